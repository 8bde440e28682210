"""Folders of runs that never ran: the format of `samuel_lab.runs`, written out, with numbers made from a seed."""

import itertools
import json
from pathlib import Path

import numpy as np

BASES = {"sgd": "SGD", "adagrad": "AdaGrad", "adam": "Adam"}
SCHEDULES = {
    "constant": "constant",
    "cosine": "cosine",
    "warmup-cosine": "warm-up cosine",
    "exponential": "exponential",
}
LEVELS = [16, 32, 64, None]
RATES = [0.001, 0.01, 0.1]


def shift_run(folder, methods=None, seeds=(0, 1, 2), rounds=192, shift=128, windows=(8, 16, 32), options=None):
    """The online study: classes change after step `shift`; measures are denser after it."""
    methods = methods or ["samuel", *(f"{base}/{schedule}" for base in BASES for schedule in SCHEDULES)]
    steps = [*range(0, shift, 16), shift, *range(shift + 2, shift + windows[0] + 1, 2)]
    steps += [step for step in range(0, rounds + 1, 8) if step > steps[-1]]
    trials = [_entry(name, seed, rounds) for seed in seeds for name in methods]
    write(
        folder,
        "digits",
        trials,
        {trial_key(entry): _learn(entry, steps, shift) for entry in trials},
        plan={"rounds": rounds, "unit": "round", "shift": shift, "windows": list(windows)},
        options={"seeds": len(seeds), "scale": 1.0, **(options or {})},
    )
    return folder


def offline_run(folder, seeds=(0,), phases=3, rounds=90):
    """The offline study: one SAMUEL, a baseline that diverges, a peer, and a search over 2 x 2 x 2 schedules."""
    transitions = [rounds // 3, 2 * rounds // 3]
    schedules = [list(rates) for rates in itertools.product([1.0, 0.1], repeat=phases)]
    steps = list(range(0, rounds + 1, 10))
    names = ["samuel", "samuel-full", "adam/cosine", "prodigy", "search"]
    trials = [_entry(name, seed, rounds) for seed in seeds for name in names]
    events = {}
    for entry in trials:
        if entry["trial"] == "search":
            entry |= {"networks": len(schedules), "gradients": len(schedules), "schedules": schedules}
            events[trial_key(entry)] = _search(entry, steps, transitions, schedules)
        else:
            events[trial_key(entry)] = _learn(entry, steps, None)
    write(
        folder,
        "digits-offline",
        trials,
        events,
        plan={"rounds": rounds, "unit": "step", "steps_per_epoch": 10, "transitions": transitions},
        options={"seeds": len(seeds)},
    )
    return folder


def stability_run(folder, rounds=60):
    """Many SAMUELs that differ in their hyperparameters."""
    steps = list(range(0, rounds + 1, 6))
    trials = []
    for alphas, etas in itertools.product((2, 3, 6), (5, 10)):
        entry = _entry(f"samuel-{alphas}x{etas}", 0, rounds)
        trials.append(
            entry | {"group": "stability", "label": f"{alphas} decays, {etas} etas", "alphas": alphas, "etas": etas}
        )
    write(
        folder,
        "stability",
        trials,
        {trial_key(entry): _learn(entry, steps, None) for entry in trials},
        plan={"rounds": rounds, "unit": "step", "steps_per_epoch": 6},
    )
    return folder


def trial_key(entry):
    return entry["trial"], entry["seed"]


def write(folder, study, trials, events, plan=None, options=None):
    folder = Path(folder)
    folder.mkdir(parents=True)
    plan = {
        "format": 1,
        "study": study,
        "title": study.capitalize().replace("-", " "),
        "about": f"What {study} is, in a paragraph.",
        "rounds": 192,
        "unit": "round",
        "steps_per_epoch": None,
        "shift": None,
        "windows": [],
        "transitions": [],
        "chance": 0.2,
        "data": {"name": "digits", "train": 1440, "test": 357, "classes": [str(digit) for digit in range(10)]},
        "model": {"name": "ConvNet", "parameters": 4321},
        "batch": 64,
        "trials": trials,
        **(plan or {}),
    }
    config = {
        "format": 1,
        "study": study,
        "options": options or {},
        "command": f"samuel run {study} --seeds 3",
        "created": "2026-11-15T19:00:00+00:00",
    }
    session = {
        "started": "2026-11-15T19:00:01+00:00", "samuel": "0.1.0", "python": "3.12.1", "jax": "0.10.0",
        "flax": "0.12.0", "optax": "0.2.8", "numpy": "2.3.0", "platform": "Linux", "device": "cpu", "devices": 1,
        "cores": 2, "pid": 123,
    }  # fmt: skip
    save(folder / "config.json", config)
    save(folder / "plan.json", plan)
    save(folder / "environment.json", {"format": 1, "sessions": [session]})
    lines, times = [], []
    for entry in trials:
        found = events[trial_key(entry)]
        lines += found
        times += _times(entry, [event["step"] for event in found if event["event"] == "measure"])
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    (folder / "times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in times))


def save(path, content):
    path.write_text(json.dumps(content, indent=1, allow_nan=False))


def change(path, **entries):
    """Change entries of a JSON file."""
    save(path, {**json.loads(path.read_text()), **entries})


def cut(folder, lines, torn=""):
    """Leave the first lines of the metrics, as if the run had been killed there, and perhaps a part of the next."""
    path = Path(folder) / "metrics.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:lines]
    path.write_text("".join(kept) + torn)


def _entry(name, seed, steps):
    base, _, scheduled = name.partition("/")
    schedule, _, rate = scheduled.partition("@")
    ours = name.startswith("samuel")
    label = name.replace("samuel", "SAMUEL").replace("-", " ") if ours else f"{BASES.get(base, base)}"
    return {
        "trial": name,
        "seed": seed,
        "label": f"{label}, {SCHEDULES[schedule]} {rate}".rstrip() if schedule else label,
        "group": "samuel" if ours else "baseline" if schedule else "search" if name == "search" else "peer",
        "about": f"{name} in a sentence.",
        "steps": steps,
        "networks": 1,
        "gradients": 12 if name == "samuel-full" else 1,
        "levels": LEVELS if ours else None,
        "rates": RATES if ours else None,
        "schedules": None,
    }


def _dice(entry):
    return np.random.default_rng([entry["seed"], *entry["trial"].encode()])


def _learn(entry, steps, shift):
    dice, end = _dice(entry), steps[-1]
    ours, speed = entry["levels"] is not None, dice.uniform(0.5, 1.5)
    events = []
    for step in steps:
        since = step if shift is None or step <= shift else step - shift
        accuracy = 0.2 + 0.75 * (1 - np.exp(-speed * since / 20)) + dice.normal(0, 0.01)
        event = {
            "event": "measure",
            "trial": entry["trial"],
            "seed": entry["seed"],
            "step": step,
            "loss": None if step == 0 else _six(-np.log(np.clip(accuracy, 0.01, 0.99))),
            "accuracy": _six(min(accuracy, 1.0)),
            "test_loss": _six(-np.log(np.clip(accuracy, 0.01, 0.99)) + 0.05),
            "rate": None if entry["group"] == "peer" else _six(_rate(entry["trial"], step, end)),
        }
        if ours:
            weights = dice.dirichlet(np.ones(12)).reshape(4, 3)
            event |= {"weights": [[_six(w) for w in row] for row in weights], "shifts": 0}
        events.append(event)
    return [*events, _end(entry, steps[-1])]


def _search(entry, steps, transitions, schedules):
    dice, events = _dice(entry), []
    skill = [0.4 + 0.05 * place for place in range(len(schedules))]
    for step in steps:
        alive = 2 ** (1 + sum(step > transition for transition in transitions))
        share = len(schedules) // alive
        reached = [np.mean(skill[i * share : (i + 1) * share]) for i in range(alive)]
        accuracy = [_six(max(0.0, value * step / steps[-1] + dice.normal(0, 0.003))) for value in reached]
        losses = [_six(2.0 - value) for value in accuracy]
        event = {"event": "measure", "trial": "search", "seed": entry["seed"], "step": step}
        events.append(event | {"loss": losses, "accuracy": accuracy, "test_loss": losses, "rate": None})
    return [*events, _end(entry, steps[-1])]


def _rate(name, step, end):
    if name.startswith("samuel"):
        return 0.01 * (1 + np.sin(step / 20) / 2)
    schedule = name.partition("/")[2]
    return {"constant": 0.1, "exponential": 0.1 * 0.5 ** (8 * step / end)}.get(
        schedule, 0.05 * (1 + np.cos(np.pi * step / end))
    )


def _end(entry, step, diverged=False):
    return {"event": "end", "trial": entry["trial"], "seed": entry["seed"], "step": step, "diverged": diverged}


def _times(entry, steps):
    pace = 0.001 * entry["gradients"]
    return [
        {
            "trial": entry["trial"],
            "seed": entry["seed"],
            "step": step,
            "steps": step - before,
            "train_seconds": _six((step - before) * pace + (2.0 if before == 0 else 0.0)),
            "test_seconds": 0.01,
            "compile": before == 0,
        }
        for before, step in itertools.pairwise(steps)
    ]


def _six(value):
    return float(f"{value:.6g}")
