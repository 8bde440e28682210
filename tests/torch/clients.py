"""A small task for the clients of the optimizer: two classes, and a network that can tell them apart."""

import torch
from torch.utils.data import DataLoader, TensorDataset

ROWS, BATCH = 128, 16
BATCHES = ROWS // BATCH


def data():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(ROWS, 6, generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())


def batches():
    return DataLoader(data(), batch_size=BATCH)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))


def loss_of(model):
    """Over all data."""
    with torch.no_grad():
        inputs, classes = data().tensors
        return torch.nn.functional.cross_entropy(model(inputs), classes).item()
