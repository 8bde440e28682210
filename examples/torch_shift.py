"""Recovery from a shift of the task during training: SAMUEL and Adam with a constant rate.

    python examples/torch_shift.py                      # draws a plot into a temporary folder
    python examples/torch_shift.py --out shift.html     # or here

Digits arrive as a stream: first 5 to 9, then 0 to 4. The network has five outputs, which mean one digit before the
change and another after it. Both networks start alike and see the same batches. Needs scikit-learn for its digits, and
plotly for the plot.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import samuel

STEPS, SHIFT, BATCH, EVERY = 1600, 800, 32, 5
CONSTANT = 0.001
"""The usual default."""

torch.set_num_threads(1)  # more threads are slower on so small a network
digits = load_digits()
order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
labels = torch.tensor(digits.target)[order]
is_train = torch.arange(len(labels)) < 1297
early, late = labels >= 5, labels < 5


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 5)),
    )


def learn(model, optimizer, chosen):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen] % 5)
    loss.backward()
    optimizer.step()


def accuracy(model, chosen):
    model.eval()
    with torch.no_grad():
        found = (model(images[chosen]).argmax(1) == labels[chosen] % 5).float().mean().item()
    model.train()
    return found


def train():
    """Rows of (step, accuracy of each, learning rate that Samuel uses)."""
    ours, constant = network(), network()
    optimizer = samuel.torch.Samuel(ours)  # no learning rate
    rival = torch.optim.Adam(constant.parameters(), lr=CONSTANT)
    random, rows = torch.Generator().manual_seed(1), []
    for step in range(1, STEPS + 1):
        now = early if step <= SHIFT else late
        seen = torch.nonzero(now & is_train)[:, 0]
        chosen = seen[torch.randint(0, len(seen), (BATCH,), generator=random)]
        learn(ours, optimizer, chosen)
        learn(constant, rival, chosen)
        if step == SHIFT + 1:
            print("other digits from here on")
        if step % EVERY == 0:
            test = now & ~is_train
            with optimizer.averaged():  # the parameters to deploy
                own = accuracy(ours, test)
            rows.append((step, own, accuracy(constant, test), optimizer.param_groups[0]["effective_lr"]))
        if step % 100 == 0 or step in (SHIFT + 20, SHIFT + 50):
            _, own, other, rate = rows[-1]
            print(
                f"step {step:5d}   Adam with {CONSTANT:g}: {other:6.1%}   Samuel: accuracy {own:6.1%}"
                f"   learning rate {rate:.4f}   restarts {optimizer.shifts}",
                flush=True,
            )
    return rows


def steps_to(level, rows, column):
    """Steps after the change until the accuracy is back."""
    back = [row[0] - SHIFT for row in rows if row[0] > SHIFT and row[column] >= level]
    return f"after {back[0]} steps" if back else "not yet"


def draw(rows, path):
    """The accuracies and the rate over the run, as a page that needs no network."""
    try:
        from plotly import graph_objects
        from plotly.subplots import make_subplots
    except ImportError:
        print("no plot: it needs plotly (pip install plotly)")
        return
    steps, ours, constant, rates = zip(*rows, strict=True)
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08, subplot_titles=("test accuracy", "learning rate")
    )
    blue, grey = {"color": "#3f51b5"}, {"color": "#9e9e9e"}
    name = f"Adam, constant {CONSTANT:g}"
    add = figure.add_trace
    add(graph_objects.Scatter(x=steps, y=ours, name="Samuel", line=blue, legendgroup="ours"), 1, 1)
    add(graph_objects.Scatter(x=steps, y=constant, name=name, line=grey, legendgroup="constant"), 1, 1)
    shown = {"showlegend": False}
    add(graph_objects.Scatter(x=steps, y=rates, name="Samuel", line=blue, legendgroup="ours", **shown), 2, 1)
    flat = [CONSTANT] * len(steps)
    add(graph_objects.Scatter(x=steps, y=flat, name=name, line=grey, legendgroup="constant", **shown), 2, 1)
    said = {"annotation_text": "other digits from here on", "annotation_position": "bottom right"}
    figure.add_vline(x=SHIFT, line_dash="dot", row=1, col=1, **said)
    figure.add_vline(x=SHIFT, line_dash="dot", row=2, col=1)
    figure.update_yaxes(tickformat=".0%", row=1, col=1)
    figure.update_yaxes(type="log", tickvals=[0.001, 0.003, 0.01, 0.03, 0.1], row=2, col=1)
    figure.update_xaxes(title="step", row=2, col=1)
    figure.update_layout(template="plotly_white", title="Digits 5 to 9, then 0 to 4, unannounced", hovermode="x")
    path = path or Path(tempfile.mkdtemp(prefix="samuel-")) / "torch_shift.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path, include_plotlyjs=True)
    print(f"plot: {path.resolve()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where to write the plot; by default into a new temporary folder")
    arguments = parser.parse_args()
    rows = train()
    print(f"back at 90 % after the change: Samuel {steps_to(0.9, rows, 1)}, Adam {steps_to(0.9, rows, 2)}")
    draw(rows, arguments.out)
    print(f"Samuel at the end: accuracy {rows[-1][1]:6.1%}")


if __name__ == "__main__":
    main()
