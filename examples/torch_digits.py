"""One run without a learning rate against seven constant ones: a small CNN on scikit-learn's digits.

    python examples/torch_digits.py

All eight runs start from the same network and see the same batches. Needs scikit-learn for its digits.
"""

from contextlib import nullcontext

import torch
from sklearn.datasets import load_digits
from torch import nn

import samuel

STEPS, BATCH = 800, 32
RATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)

torch.set_num_threads(1)  # more threads are slower on so small a network
digits = load_digits()
order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
labels = torch.tensor(digits.target)[order]
train, test = slice(0, 1297), slice(1297, None)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 10)),
    )


def accuracy(model, optimizer):
    model.eval()
    averaged = optimizer.averaged() if isinstance(optimizer, samuel.torch.Samuel) else nullcontext()
    with torch.no_grad(), averaged:
        found = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
    model.train()
    return found


def run(make_optimizer, show=False):
    model, random = network(), torch.Generator().manual_seed(1)
    optimizer = make_optimizer(model)
    for step in range(1, STEPS + 1):
        chosen = torch.randint(0, 1297, (BATCH,), generator=random)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[train][chosen]), labels[train][chosen])
        loss.backward()
        optimizer.step()
        if show and (step % 100 == 0 or step == 25):
            now, rate = accuracy(model, optimizer), optimizer.param_groups[0]["effective_lr"]
            print(f"   step {step:4d}   accuracy {now:6.1%}   learning rate {rate:.4f}", flush=True)
    return accuracy(model, optimizer)


constant = {}
for rate in RATES:
    constant[rate] = run(lambda model, rate=rate: torch.optim.Adam(model.parameters(), lr=rate))
    print(f"Adam, constant rate {rate:<8g}   accuracy {constant[rate]:6.1%}", flush=True)
print("Samuel, number of steps not given:")
untuned = run(samuel.torch.Samuel, show=True)  # no learning rate; the loop is the same
scheduled = run(lambda model: samuel.torch.Samuel(model, steps=STEPS))
best = max(constant, key=constant.get)
print(f"Best of the seven, in hindsight: {best:g}, with {constant[best]:.1%}; worst: {min(constant.values()):.1%}")
print(f"Samuel, number of steps given      accuracy {scheduled:6.1%}")
print(f"Samuel, number of steps not given  accuracy {untuned:6.1%}")
