"""Reports from run folders, finished or not: tables, figures, a page, a live view.

reading      a run folder as plain records
gathering    merges runs of one study
costs        time of each method: per step, per expert and in all
summary      the numbers of a study: tables, findings in sentences, JSON; no drawing
figures      the figures of a study, with captions
page         one self-contained HTML page for any number of runs
terminal     tables in the terminal, and comparisons of runs
watch        live view of a run
"""
