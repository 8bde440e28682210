"""The paper's experiments, and contests of learners; needs `pip install "samuel-optim[lab]"`.

data         data sets, read safely and kept decoded, and batches that follow from the seed and the step
models       the networks
schedules    learning rates as functions of the round
optimizers   bases that take a rate, and methods that need none
methods      methods by the names that users give them
trainers     what takes the steps of a method: one network, many experts, or a whole search
settings     what a study can be told, checked before any work begins
study        what a study is; shift, offline, stability and compute are the paper's
catalogue    the studies by name
training     the one training loop
files        files that are written whole or not at all
runs         the folder of a run, from which any kill can be resumed
execution    a run from wherever it stands to its end
report       tables, figures, the page and the live view, all made from the folders of runs
play         learners that play streams of losses: `samuel play`
drawing      what the pages of `report` and `play` share; tables are in `tables`
"""
