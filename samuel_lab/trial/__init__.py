"""One trial: a method that trains a network on the batches of a study.

schedules    learning rates as functions of the round
optimizers   bases that need a learning rate, and methods that need none
methods      methods by the names that users give them
trainers     the steps of a method: one network, many experts, or a whole search
training     the one training loop
"""
