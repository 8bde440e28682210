"""Networks, and how they are trained: each one maps a batch of inputs to a score for every class.

convnet      a small convolutional network for digits, made for CPUs
resnet       ResNet-18 and ResNet-50
lstm         a bidirectional LSTM for sentences
task         a network and the cross entropy, as the training loop wants them
"""

from samuel_lab.models.convnet import ConvNet
from samuel_lab.models.lstm import BiLSTM
from samuel_lab.models.resnet import ResNet, ResNet18, ResNet50
from samuel_lab.models.task import Task

__all__ = ["BiLSTM", "ConvNet", "ResNet", "ResNet18", "ResNet50", "Task"]
