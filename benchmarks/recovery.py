"""One untuned run of the drop-in against seven constant rates of Adam: final accuracy, and recovery from a shift.

    python benchmarks/recovery.py --json results/recovery.json

scikit-learn's digits, a small network, batches of 32, 2,000 steps. First without a shift: test accuracy after the last
step. Then all labels are permuted half-way, unannounced: steps until the test accuracy is back at 90 %. Every number is
a mean over the seeds, which decide the network, the batches and the permutation.
"""

from __future__ import annotations

import argparse
import datetime
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from samuel.jax import averaged, samuel

STEPS, SHIFT, BATCH, HIDDEN = 2000, 1000, 32, 64
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
EVERY = 2
"""Steps between two looks at the test set."""


def digits() -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(pixels))
    pixels, labels = jnp.asarray(pixels[order] / 16, jnp.float32), jnp.asarray(labels[order])
    return pixels[:1297], labels[:1297], pixels[1297:], labels[1297:]


def network(key: jax.Array) -> list[dict[str, jax.Array]]:
    sizes = (64, HIDDEN, HIDDEN, 10)
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (n, m)) * jnp.sqrt(2 / n), "b": jnp.zeros(m)}
        for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def logits(params: Any, x: jax.Array) -> jax.Array:
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits(params, x), y).mean()


@partial(jax.jit, static_argnums=(0, 2, 3))
def run(tx: optax.GradientTransformation, seed: jax.Array, shifted: bool, averages: bool) -> jax.Array:
    """Test accuracies in the course of a run; of the parameters, or of SAMUEL's average."""
    x_train, y_train, x_test, y_test = digits()
    key = jax.random.key(seed)
    shuffled = jax.random.permutation(jax.random.fold_in(key, 1), 10)
    params = network(jax.random.fold_in(key, 2))

    def label(y: jax.Array, t: jax.Array) -> jax.Array:
        return jnp.where(t >= SHIFT, shuffled[y], y) if shifted else y

    def step(carry: Any, t: jax.Array) -> Any:
        params, state = carry
        chosen = jax.random.randint(jax.random.fold_in(key, 10 + t), (BATCH,), 0, len(x_train))
        gradient = jax.grad(loss)(params, x_train[chosen], label(y_train[chosen], t))
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), None

    def stretch(carry: Any, first: jax.Array) -> Any:
        carry, _ = jax.lax.scan(step, carry, first + jnp.arange(EVERY))
        params, state = carry
        used = averaged(state, params) if averages else params
        accuracy = jnp.mean(jnp.argmax(logits(used, x_test), -1) == label(y_test, first))
        return carry, accuracy

    return jax.lax.scan(stretch, (params, tx.init(params)), jnp.arange(0, STEPS, EVERY))[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    seeds = jnp.arange(arguments.seeds)
    optimizers = {f"Adam, constant {rate:g}": optax.adam(rate) for rate in RATES}
    optimizers |= {
        "samuel": samuel(),
        "samuel, steps given": samuel(steps=STEPS),
        "samuel over adam": samuel("adam"),
        "samuel over adam, steps given": samuel("adam", steps=STEPS),
    }
    print(f"{'':34s} {'final accuracy':>15s} {'':4s} {'steps to 90 %':>14s}   per seed")
    rows = []
    for name, tx in optimizers.items():
        averages = name.startswith("samuel")

        def accuracies(shifted: bool, tx: Any = tx, averages: bool = averages) -> np.ndarray:
            return np.asarray(jax.vmap(lambda seed: run(tx, seed, shifted, averages))(seeds))

        final, after = accuracies(False)[:, -1], accuracies(True)[:, SHIFT // EVERY :] >= 0.9
        steps = [int(row.argmax() + 1) * EVERY if row.any() else None for row in after]
        mean = None if None in steps else float(np.mean(steps))
        error = float(final.std(ddof=1) / len(final) ** 0.5) if len(final) > 1 else 0.0
        rows.append({"name": name, "accuracy": float(final.mean()), "error": error, "steps": mean, "each": steps})
        shown = "never" if mean is None else f"{mean:.0f}"
        print(f"{name:34s} {100 * final.mean():11.2f} % ±{100 * error:4.2f} {shown:>14s}   {steps}", flush=True)
    if arguments.json:
        facts = {
            "command": f"python benchmarks/recovery.py --seeds {arguments.seeds} --json results/recovery.json",
            "device": jax.devices()[0].device_kind,
            "date": datetime.date.today().isoformat(),
            "jax": jax.__version__,
            "seeds": arguments.seeds,
            "steps": STEPS,
            "shift": SHIFT,
        }
        arguments.json.write_text(json.dumps(facts | {"optimizers": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
