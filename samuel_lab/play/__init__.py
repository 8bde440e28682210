"""Learners that play streams: what `samuel play` and `samuel table1` do.

cast         who can take part, by name
arenas       which streams can be played, by name, and tables of numbers
plan         what to play, checked
contest      playing and measuring: gives plain records, no drawing
measuring    measurements on the record of a run
records      what is kept of a contest, and its form for machines
workers      several streams at the same time, in processes
figures      the figures of a contest, each with words that say what it shows
page         one self-contained HTML page, made from the records alone
table1       the paper's Table 1 as an experiment
"""
