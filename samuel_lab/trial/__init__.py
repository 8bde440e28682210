"""One trial: a method that trains a network on the batches of a study.

schedules    learning rates as functions of the round
optimizers   bases that need a learning rate, and methods that need none
experiment   what the trials of a study share
drop_in      SAMUEL's optax transformations and average, as the studies use them
methods      methods by name, as in `--methods`
trainers     how a method takes steps: one network, many experts, or a search
training     the training loop
"""
