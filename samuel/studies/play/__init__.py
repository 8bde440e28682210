"""Learners that play streams: what `samuel play` does.

contest      which learners play which streams, and what is measured: plain records, no drawing
figures      the figures of a contest, each with words that say what it shows
page         one self-contained HTML page, made from the records alone
"""
