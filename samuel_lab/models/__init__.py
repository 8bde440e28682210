"""Networks for classification: each maps a batch of inputs to a score for every class.

convnet      a small convolutional network for digits, made for CPUs
resnet       ResNet-18 and ResNet-50
lstm         a bidirectional LSTM for sentences
task         a network and its cross entropy, as functions for the training loop
"""

from samuel_lab.models.convnet import ConvNet
from samuel_lab.models.lstm import BiLSTM
from samuel_lab.models.resnet import ResNet, ResNet18, ResNet50
from samuel_lab.models.task import Task

__all__ = ["BiLSTM", "ConvNet", "ResNet", "ResNet18", "ResNet50", "Task"]
