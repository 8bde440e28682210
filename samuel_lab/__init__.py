"""The paper's experiments and comparisons of online learners; needs `pip install "samuel-optim[lab]"`.

data         data sets, decoded once into a cache, and batches as a function of seed and step
models       the networks
schedules    learning rates as functions of the step
optimizers   bases that take a rate, and learning-rate-free methods
methods      methods by name
trainers     the steps of a method: one network, many experts, or a whole search
settings     options of a study, validated before any work begins
study        base class of studies; shift, offline, stability and compute are the paper's
catalogue    the studies by name
training     the one training loop
files        atomic writing of files
runs         the folder of a run, from which it can be resumed after any kill
execution    trains what is left of a run
report       tables, figures, the page and the live view, made from run folders
play         online learners on streams of losses: `samuel play`
drawing      shared parts of the pages of `report` and `play`; tables are in `tables`
"""
