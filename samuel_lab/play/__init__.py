"""Online learners on streams of losses: `samuel play`.

cast         learners by name
arenas       streams by name, and tables of data
streams      the streams of the paper's Table 1
plan         what to play, validated
contest      plays and measures; returns plain records
measuring    measurements on the trace of a run
records      results of a contest, and their JSON
workers      several streams in parallel, in processes
figures      figures of a contest, with captions
page         one self-contained HTML page, made from the records
bounds       regret beside the bounds of the paper's Table 1
bounds_page  its tables, sentences and figures
"""
