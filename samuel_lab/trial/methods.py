"""Methods by name, as in `--methods`.

samuel                 SAMUEL at its defaults, given the number of steps
samuel-untold          the same without the number of steps
samuel-adam            SAMUEL over Adam, given the number of steps
samuel+average         samuel, evaluated at its average of the parameters
samuel-linear          the paper's algorithm (1 online, 2 offline) with one gradient a step
samuel-full            the paper's algorithm as its experiments ran it: a network for each expert
adam/cosine            a base and a schedule, at the study's rate for the pair
adam/cosine@0.003      the same at another rate
adagrad/step@1:0.1:0.01   a rate for each phase
adam/cosine+average    the same training, evaluated at SAMUEL's average of the parameters
prodigy                a learning-rate-free method at its defaults
search                 every step schedule of the study's grid
search@0.1:1           those that begin with these rates; parts can be run separately and reported together
baselines, peers       the paper's twelve, all learning-rate-free methods
adamw-rates            a sweep of AdamW's rates
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import optax

import samuel.jax as sj
from samuel_lab.trial import drop_in, optimizers, schedules
from samuel_lab.trial.experiment import Experiment, MethodSettings
from samuel_lab.trial.trainers import Population, Search, Single, Trainer

DROP_INS = {
    "samuel": ("SAMUEL", "muon", True, False),
    "samuel+average": ("SAMUEL, averaged", "muon", True, True),
    "samuel-untold": ("SAMUEL, steps not given", "muon", False, True),
    "samuel-adam": ("SAMUEL over Adam", "adam", True, False),
}
"""The drop-in by name: label, base, whether it is given the number of steps, and whether it averages the parameters."""
PAPERS = {"samuel-linear": "SAMUEL, paper's, linear", "samuel-full": "SAMUEL, paper's, full"}
SAMUELS = (*DROP_INS, *PAPERS)
GROUPS = {
    "baselines": tuple(f"{base}/{schedule}" for base, schedule in schedules.BASELINES),
    "peers": tuple(optimizers.PEERS),
    "adamw-rates": tuple(f"adamw/warmup-cosine@{rate:g}" for rate in (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)),
}
"""Groups: names that expand to several methods."""
AVERAGED = "+average"
"""Suffix of methods that are evaluated at an average of the parameters."""
EXPERTS_ADAGRAD = {"optax": 0.1 + 1e-7, "plain": 0.0}
"""What the AdaGrad of the paper's experts adds to its sum of squares inside the root, by name. optax begins the sum at
0.1 and adds an epsilon of 1e-7."""
SCHEDULE_LABELS = {"warmup-cosine": "warm-up cosine", "cosine-restarts": "cosine with restarts"}


class Scheduled(NamedTuple):
    """A base with a schedule, parsed from a name."""

    base: str
    schedule: str
    rates: tuple[float, ...]
    """Empty if the name has none; one per phase for a step schedule."""
    averaged: bool = False
    """Whether the network is evaluated at an average of its parameters."""


def parse(name: str) -> Scheduled | None:
    """Parse a name: a base with a schedule, or None for a method with a name of its own.

    >>> parse("adam/cosine@0.003")
    Scheduled(base='adam', schedule='cosine', rates=(0.003,), averaged=False)
    >>> parse("adam/sine")
    Traceback (most recent call last):
        ...
    ValueError: method 'adam/sine' has an unknown schedule: choose from constant, cosine, warmup-cosine, exponential, \
linear, cosine-restarts, increasing, step
    """
    if name in SAMUELS or name in optimizers.PEERS:
        return None
    if is_search(name):
        first_rates(name)
        return None
    plain = name.removesuffix(AVERAGED)
    pair, at, written = plain.partition("@")
    base, slash, schedule = pair.partition("/")
    if not slash or base not in optimizers.BASES:
        known = [*SAMUELS, "search", *GROUPS, *optimizers.PEERS]
        raise ValueError(
            f"unknown method {name!r}; choose from {', '.join(known)}, or write BASE/SCHEDULE with a base from "
            f"{', '.join(optimizers.BASES)}"
        )
    known = (*schedules.SCHEDULES, "step")
    if schedule not in known:
        raise ValueError(f"method {name!r} has an unknown schedule: choose from {', '.join(known)}")
    rates = _rates(name, written) if at else ()
    if schedule == "step" and not rates:
        raise ValueError(f"method {name!r} needs a rate for each phase, such as {pair}@1:0.1:0.01")
    if schedule != "step" and len(rates) > 1:
        raise ValueError(f"method {name!r} has {len(rates)} rates: a {schedule} schedule takes one")
    return Scheduled(base, schedule, rates, averaged=plain != name)


def is_search(name: str) -> bool:
    """Whether a name is that of the search, or of a part of it."""
    return name == "search" or name.startswith("search@")


def first_rates(name: str) -> tuple[float, ...]:
    """The first rates of a part of the search; empty for the full search.

    >>> first_rates("search"), first_rates("search@0.1:1")
    ((), (0.1, 1.0))
    """
    _, at, written = name.partition("@")
    rates = _rates(name, written) if at else ()
    if len(set(rates)) < len(rates):
        raise ValueError(f"method {name!r} names a rate twice")
    return rates


def _rates(name: str, written: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) for part in written.split(":"))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"method {name!r} has no positive rate after the @")
    return rates


def expand(names: Sequence[str]) -> tuple[str, ...]:
    """The names with groups expanded, without duplicates; ValueError for an unknown one.

    >>> expand(["samuel", "peers"])[:3]
    ('samuel', 'schedule-free', 'prodigy')
    """
    listed = [one for name in names for one in GROUPS.get(name, (name,))]
    for name in listed:
        parse(name)
    return tuple(dict.fromkeys(listed))


def method(name: str, experiment: Experiment) -> Trainer:
    """The method of a name for an experiment; nothing is compiled yet."""
    if name in DROP_INS:
        return _drop_in(name, experiment)
    if name == "samuel-linear":
        return _paper_linear(experiment)
    if name == "samuel-full":
        return _paper_full(experiment)
    if is_search(name):
        return _search(name, experiment)
    found = parse(name)
    return _peer(name, experiment) if found is None else _scheduled(name, found, experiment)


def _scheduled(name: str, found: Scheduled, experiment: Experiment) -> Trainer:
    base, settings, steps = optimizers.BASES[found.base], experiment.settings, experiment.steps
    if found.schedule == "step":
        schedule = schedules.step_rates(found.rates, experiment.transitions, steps)
        said = f"{', '.join(f'{rate:g}' for rate in found.rates)}, changing at {experiment.transitions}"
    else:
        known = settings.baselines.get((found.base, found.schedule), base.rate)
        rate = found.rates[0] if found.rates else known
        schedule = schedules.rates(found.schedule, rate, steps)
        said = schedules.describe(found.schedule, rate, steps)
    key = ("scheduled", found.base, found.averaged)
    if key not in experiment.optimizers:
        optimizer, average = optimizers.base(found.base, settings.weight_decay), {}
        if found.averaged:
            optimizer = drop_in.averaged(optimizer, steps)
            average = {"evaluate": drop_in.average_of, "pace": drop_in.pace_of}
        experiment.optimizers[key] = Single(experiment.task, optimizer, schedule=schedule, **average)
    label = f"{base.label}, {SCHEDULE_LABELS.get(found.schedule, found.schedule)}"
    if found.rates:
        label += " " + "/".join(f"{rate:g}" for rate in found.rates)
    about = f"{base.label}{base.detail}, {said}."
    if found.averaged:
        label, about = f"{label}, averaged", f"{about} Evaluated at SAMUEL's average of the parameters."
    return experiment.optimizers[key].with_(schedule=schedule, name=name, label=label, group="baseline", about=about)


def _peer(name: str, experiment: Experiment) -> Trainer:
    peer, decay = optimizers.peer(name), experiment.settings.weight_decay

    def own(state: Any) -> Any:
        """The peer's own state; with weight decay it is the second of a chain."""
        return state[1] if decay else state

    def facts(state: Any) -> dict[str, Any]:
        assert peer.rate is not None, "called only for peers with a rate"
        return {"rate": peer.rate(own(state))}

    optimizer = peer.make()
    return Single(
        experiment.task,
        optax.chain(optax.add_decayed_weights(decay), optimizer) if decay else optimizer,
        needs_value=peer.needs_value,
        evaluate=lambda state, params: peer.evaluate(own(state), params),
        renews=peer.renews,
        facts=None if peer.rate is None else facts,
        name=name,
        label=peer.label,
        group="peer",
        about=peer.about,
    )


def _drop_in(name: str, experiment: Experiment) -> Trainer:
    label, base, given, average = DROP_INS[name]
    searched = "one learning rate for matrices and one for the rest" if base == "muon" else "the learning rate"
    about = (
        f"SAMUEL over {base.capitalize()}: searches {searched}, one gradient a step; "
        f"{'given' if given else 'without'} the number of steps; the {'averaged' if average else 'last'} parameters."
    )
    made = drop_in.drop_in(base, experiment.steps if given else None, average)
    if experiment.settings.weight_decay:
        made["optimizer"] = optax.chain(optax.add_decayed_weights(experiment.settings.weight_decay), made["optimizer"])
    return Single(experiment.task, **made, name=name, label=label, group="samuel", about=about)


def _experts_base(settings: MethodSettings) -> Any:
    """The base of the paper's experts: a transformation, or for AdaGrad a function of `alpha`."""
    if settings.base != "adagrad":
        return optimizers.base(settings.base, settings.weight_decay)
    epsilon, decay = EXPERTS_ADAGRAD[settings.experts_adagrad], settings.weight_decay

    def adagrad(alpha: Any = 1.0) -> optax.GradientTransformation:
        discounted = sj.scale_by_discounted_rss(alpha, epsilon)
        return optax.chain(optax.add_decayed_weights(decay), discounted) if decay else discounted

    return adagrad


def _experts_base_in_words(settings: MethodSettings) -> str:
    label = optimizers.BASES[settings.base].label
    if settings.base != "adagrad":
        return label
    return f"{label} ({EXPERTS_ADAGRAD[settings.experts_adagrad]:.3g} added to its sum of squares)"


def _paper_linear(experiment: Experiment) -> Trainer:
    settings, base = experiment.settings, _experts_base(experiment.settings)
    shared = settings.base != "adagrad"
    rates = tuple(sorted({rate for phase in experiment.phases for rate in phase}))
    about = (
        f"{_algorithm(experiment)} over {_experts_base_in_words(settings)} with {len(rates)} learning rates, from one "
        "gradient a step, at the decision."
    )
    made = drop_in.paper(base if shared else base(), shared, rates, experiment.steps, _cover(experiment), settings.etas)
    name = "samuel-linear"
    return Single(experiment.task, **made, name=name, label=PAPERS[name], group="samuel", about=about)


def _paper_full(experiment: Experiment) -> Trainer:
    settings, alphas = experiment.settings, experiment.alphas
    cover = _cover(experiment)
    slots = cover.slots(experiment.steps)
    about = (
        f"{_algorithm(experiment)}: {slots * len(experiment.phases[0]) * len(alphas)} experts, each with its own "
        f"network trained by {_experts_base_in_words(settings)}; the decision is "
        f"{'drawn by weight' if settings.combine == 'sample' else 'the ' + settings.combine}."
    )
    adagrad, (first, *later) = settings.base == "adagrad", experiment.phases
    if alphas != (1.0,) and not adagrad:
        raise ValueError(f"history decays (alphas) are Adagrad's; the base here is {settings.base}")
    engine = sj.Experts(
        experiment.task.loss,
        _experts_base(settings),
        experiment.phases if later else first,
        cover=cover,
        hyperparameters={"alpha": alphas} if adagrad else None,
        rounds=experiment.steps,
        combine=settings.combine,  # pyright: ignore[reportArgumentType]
        Q=settings.etas,
        # Algorithm 2 has eta_q = 2^-q, that is a bound of 1; Algorithm 1 estimates it.
        bound=None if experiment.shortest else 1.0,
        clip=not experiment.shortest,
        placement=settings.placement,  # pyright: ignore[reportArgumentType]
    )
    # The plan lists the candidates of every phase if they differ.
    changing = {"phases": [list(rates) for rates in experiment.phases]} if len(set(experiment.phases)) > 1 else {}
    name, levels = "samuel-full", drop_in.levels(cover, experiment.steps, slots)
    described = {"name": name, "label": PAPERS[name], "group": "samuel", "about": about, "extra": changing}
    return Population(experiment.task, engine, levels=levels, **described)


def _search(name: str, experiment: Experiment) -> Trainer:
    settings, first = experiment.settings, first_rates(name)
    phases = (first or experiment.phases[0], *experiment.phases[1:])
    count, base = math.prod(map(len, phases)), optimizers.BASES[settings.base].label
    transformation = optimizers.base(settings.base, settings.weight_decay)
    placement: Any = settings.placement
    sweep = sj.Sweep(experiment.task.loss, transformation, phases, experiment.transitions, placement=placement)
    which = (
        f"All {count}" if not first else f"Those {count} that begin with {' or '.join(f'{r:g}' for r in first)} of the"
    )
    about = f"{which} step schedules with {base}; common beginnings are trained once."
    label = f"{base}, {count} step schedules"
    return Search(experiment.task, sweep, name=name, label=label, group="search", about=about)


def _algorithm(experiment: Experiment) -> str:
    if experiment.shortest:
        return f"The paper's Algorithm 1 (shortest block {experiment.shortest} steps)"
    return f"The paper's Algorithm 2 (restarts at {', '.join(map(str, experiment.transitions)) or 'no step'})"


def _cover(experiment: Experiment) -> Any:
    if experiment.shortest:
        return sj.Geometric(experiment.steps, experiment.shortest)
    return sj.Chosen(experiment.transitions)
