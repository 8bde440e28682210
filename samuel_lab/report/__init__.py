"""What is made of the folders of runs, finished or not: tables, figures, a page, a live view.

reading      a run folder as plain records
gathering    runs put together: methods of several runs of one study side by side
costs        what methods take: time a step, per expert and in all
summary      the numbers of a study: tables, findings in sentences, JSON; no drawing
figures      the figures of a study, each with words that say what it shows
page         one self-contained HTML page for any number of runs
terminal     the tables in a terminal, and runs side by side
watch        a run while it goes on
"""
