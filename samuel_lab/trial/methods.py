"""Methods by the names users give them, and the trainer that each one is.

adam/cosine            a base and a schedule, at the study's rate for the pair
adam/cosine@0.003      the same at another rate
adagrad/step@1:0.1:0.01   a rate for each phase
adam/cosine+average    the same training, judged at the average that SAMUEL would decide for
prodigy                a learning-rate-free method at its defaults
samuel                 SAMUEL, the drop-in as it comes: one gradient a step
samuel-linear          the paper's algorithm (1 online, 2 offline) fed with one gradient a step
samuel-full            the paper's algorithm as its experiments ran it: every expert has a network of its own
search                 every step schedule of the study's grid
search@0.1:1           the part of it that begins with these rates: parts may be run apart and reported together
baselines, peers       the paper's twelve, all learning-rate-free methods
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import optax

import samuel.jax as sj
from samuel.core.options import one_of
from samuel.core.rules import follow
from samuel_lab.models import Task
from samuel_lab.trial import optimizers, schedules
from samuel_lab.trial.trainers import Compiled, Population, Search, Single, Trainer

SAMUELS = {
    "samuel": "SAMUEL",
    "samuel-linear": "SAMUEL, paper's, linear",
    "samuel-full": "SAMUEL, paper's, full",
}
GROUPS = {
    "baselines": tuple(f"{base}/{schedule}" for base, schedule in schedules.BASELINES),
    "peers": tuple(optimizers.PEERS),
}
"""Names that stand for several."""
AVERAGED = "+average"
"""What the name of a method ends with that is judged at an average."""
EXPERTS_ADAGRAD = {"optax": 0.1 + 1e-7, "plain": 0.0}
"""What the AdaGrad of the paper's experts adds to its sum of squares inside the root, by name. optax begins the sum at
0.1 and adds an epsilon of 1e-7."""
SCHEDULE_LABELS = {
    "constant": "constant",
    "cosine": "cosine",
    "warmup-cosine": "warm-up cosine",
    "exponential": "exponential",
    "linear": "linear",
    "cosine-restarts": "cosine with restarts",
    "increasing": "increasing",
    "step": "step",
}


class Scheduled(NamedTuple):
    """A base with a schedule, as its name says it."""

    base: str
    schedule: str
    rates: tuple[float, ...]
    """Empty unless the name gives some; one per phase for a step schedule."""
    averaged: bool = False
    """Whether the network is judged at an average of its parameters."""


def parse(name: str) -> Scheduled | None:
    """What a name means: a base with a schedule, or None for a method that is known by its name.

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
            f"method {name!r} is not known: choose from {', '.join(known)}, or write BASE/SCHEDULE with a base of "
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
    """Whether a name means every step schedule, or a part of them."""
    return name == "search" or name.startswith("search@")


def first_rates(name: str) -> tuple[float, ...]:
    """The rates that a part of the search begins with; empty for the whole.

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
    """The names with those of groups spelt out, each once; ValueError for one that means nothing.

    >>> expand(["samuel", "peers"])[:3]
    ('samuel', 'schedule-free', 'prodigy')
    """
    listed = [one for name in names for one in GROUPS.get(name, (name,))]
    for name in listed:
        parse(name)
    return tuple(dict.fromkeys(listed))


@dataclass(frozen=True)
class Setup:
    """What methods are made for: the task, the length of the run, and what the paper's algorithm is told.

    Attributes:
        task: what is learned.
        rounds: steps of a trial.
        phases: candidate learning rates: one list, or one for each phase.
        transitions: when the second and later phases start; the paper's algorithm restarts there.
        shortest: rounds in the shortest block of Algorithm 1; None for Algorithm 2.
        base: what the paper's experts and the search use.
        experts_adagrad: which AdaGrad those experts have, of `EXPERTS_ADAGRAD`, where the base is AdaGrad.
        weight_decay: added to gradients, for every base.
        baselines: the rates of bases with schedules.
        alphas: history decays of Algorithm 2's experts.
        Q: number of step sizes of the weights.
        combine: how the paper's experts make a decision under full feedback.
        placement: where the networks of experts and searches train.
        samuel_base: what the drop-in gets its directions from.
        samuel_rule: the drop-in's rule.
        samuel_horizon: whether the drop-in is told the number of steps.
        samuel_weight_decay: decoupled, of the drop-in's matrices; None for the usual one over Adam and Muon, and none
            over others, whose rates are too large for it.
    """

    task: Task
    rounds: int
    phases: tuple[tuple[float, ...], ...]
    transitions: tuple[int, ...] = ()
    shortest: int | None = None
    base: str = "adagrad"
    experts_adagrad: str = "optax"
    weight_decay: float = 0.0
    baselines: Mapping[tuple[str, str], float] = field(default_factory=lambda: schedules.BASELINES)
    alphas: tuple[float, ...] = (1.0,)
    Q: int | None = None
    combine: Literal["sample", "average", "best"] = "sample"
    placement: Literal["map", "scan"] = "map"
    samuel_base: str = "adam"
    samuel_rule: str = "samuel"
    samuel_horizon: bool = True
    samuel_weight_decay: float | None = None
    compiled: dict[Any, Compiled] = field(default_factory=dict, compare=False, repr=False)
    """Steps compiled so far, by optimizer: trials that differ in schedule or seed share one."""


class Method(NamedTuple):
    """A method, ready to be made into trials."""

    name: str
    label: str
    group: str
    about: str
    trainer: Callable[[], Trainer]
    extra: Mapping[str, Any] = {}
    """What else the plan says about its trials."""


def method(name: str, setup: Setup) -> Method:
    """The method of a name for a study's setup."""
    if name == "samuel":
        return _drop_in(setup)
    if name == "samuel-linear":
        return _paper_linear(setup)
    if name == "samuel-full":
        return _paper_full(setup)
    if is_search(name):
        return _search(name, setup)
    found = parse(name)
    return _peer(name, setup) if found is None else _scheduled(name, found, setup)


def _scheduled(name: str, found: Scheduled, setup: Setup) -> Method:
    base = optimizers.BASES[found.base]
    if found.schedule == "step":
        schedule = schedules.Step(found.rates, setup.transitions)
    else:
        known = setup.baselines.get((found.base, found.schedule), base.rate)
        schedule = schedules.make(found.schedule, found.rates[0] if found.rates else known, setup.rounds)

    def trainer() -> Trainer:
        key = ("scheduled", found.base, found.averaged)
        if key not in setup.compiled:
            optimizer, judged = optimizers.base(found.base, setup.weight_decay), {}
            if found.averaged:
                optimizer = optimizers.averaged(optimizer, setup.rounds)
                judged = {"evaluate": optimizers.average_of, "pace": lambda state: state.clock.pace}
            setup.compiled[key] = Compiled(setup.task, optimizer, scheduled=True, **judged)
        return Single(setup.compiled[key], schedule)

    label = f"{base.label}, {SCHEDULE_LABELS[found.schedule]}"
    if found.rates:
        label += " " + "/".join(f"{rate:g}" for rate in found.rates)
    about = f"{base.label}{base.told}, {schedule.describe()}."
    if found.averaged:
        label, about = f"{label}, averaged", f"{about} Judged at the average that SAMUEL would decide for."
    return Method(name, label, "baseline", about, trainer)


def _peer(name: str, setup: Setup) -> Method:
    peer = optimizers.peer(name)

    def own(state: Any) -> Any:
        """The peer's own state: where weights decay, that comes before it in a chain."""
        return state[1] if setup.weight_decay else state

    def facts(state: Any) -> dict[str, Any]:
        assert peer.rate is not None, "asked of those that have one"
        return {"rate": peer.rate(own(state))}

    def trainer() -> Trainer:
        if name not in setup.compiled:
            optimizer = peer.make(setup.rounds)
            if setup.weight_decay:
                optimizer = optax.chain(optax.add_decayed_weights(setup.weight_decay), optimizer)
            setup.compiled[name] = Compiled(
                setup.task,
                optimizer,
                scheduled=False,
                needs_value=peer.needs_value,
                evaluate=lambda state, params: peer.evaluate(own(state), params),
                renews=peer.renews,
            )
        return Single(setup.compiled[name], facts=None if peer.rate is None else facts)

    return Method(name, peer.label, "peer", peer.about, trainer)


def _facts(state: Any) -> dict[str, Any]:
    return {"rate": sj.learning_rate(state), "weights": sj.weights(state), "shifts": sj.shifts(state)}


def _linear(
    name: str, about: str, setup: Setup, base: Any, rates: Any, rule: str, decay: float = 0.0, **options: Any
) -> Method:
    """SAMUEL with one gradient a step."""

    def trainer() -> Trainer:
        plan = follow(rule, rates, base=base if isinstance(base, str) else None, **options)
        if name not in setup.compiled:
            decayed = {"weight_decay": decay, "weight_decay_mask": optimizers.matrices}
            optimizer = sj.samuel(base, rates, rule=rule, **decayed, **options)
            if setup.weight_decay and isinstance(base, str):
                optimizer = optax.chain(optax.add_decayed_weights(setup.weight_decay), optimizer)
            averaged = {"evaluate": sj.decision, "pace": sj.pace} if plan.averages else {}
            setup.compiled[name] = Compiled(setup.task, optimizer, scheduled=False, **averaged)
        return Single(
            setup.compiled[name],
            facts=_facts,
            levels=_levels(plan.cover, setup.rounds, plan.slots),
            rates=tuple(plan.learning_rates),
        )

    return Method(name, SAMUELS[name], "samuel", about, trainer)


def _drop_in(setup: Setup) -> Method:
    horizon = setup.rounds if setup.samuel_horizon else None
    told = "told the number of steps" if setup.samuel_horizon else "not told the number of steps"
    decay = setup.samuel_weight_decay
    if decay is None:
        decay = optimizers.WEIGHT_DECAY if setup.samuel_base in ("adam", "muon") else 0.0
    shrinks = f", weight decay {decay:g}" if decay else ""
    by = "" if setup.samuel_rule == "samuel" else f", rule {setup.samuel_rule}"
    about = f"The drop-in over {setup.samuel_base}{by}{shrinks}: no learning rate, one gradient a step, {told}."
    made = _linear("samuel", about, setup, setup.samuel_base, None, setup.samuel_rule, decay, horizon=horizon)
    return made._replace(label=made.label + by)


def _experts_base(setup: Setup) -> Any:
    """What the paper's experts get their directions from: a transformation, or for AdaGrad a function of `alpha`."""
    if setup.base != "adagrad":
        return optimizers.base(setup.base, setup.weight_decay)
    one_of("experts_adagrad", setup.experts_adagrad, tuple(EXPERTS_ADAGRAD))
    epsilon = EXPERTS_ADAGRAD[setup.experts_adagrad]

    def adagrad(alpha: Any = 1.0) -> optax.GradientTransformation:
        discounted = sj.scale_by_discounted_rss(alpha, epsilon)
        return (
            optax.chain(optax.add_decayed_weights(setup.weight_decay), discounted) if setup.weight_decay else discounted
        )

    return adagrad


def _experts_base_in_words(setup: Setup) -> str:
    label = optimizers.BASES[setup.base].label
    if setup.base != "adagrad":
        return label
    return f"{label} ({EXPERTS_ADAGRAD[setup.experts_adagrad]:.3g} added to its sum of squares)"


def _paper_linear(setup: Setup) -> Method:
    base, options = _experts_base(setup), {}
    if setup.base == "adagrad":  # which never forgets, so every block has its own
        base, options = base(), {"base_state": "slots"}
    rates = tuple(sorted({rate for phase in setup.phases for rate in phase}))
    about = (
        f"{_algorithm(setup)} over {_experts_base_in_words(setup)} with {len(rates)} learning rates, judged by the one "
        "gradient at the decision."
    )
    return _linear("samuel-linear", about, setup, base, rates, "theorem", cover=_cover(setup), Q=setup.Q, **options)


def _paper_full(setup: Setup) -> Method:
    several = len(setup.alphas) > 1 or setup.alphas != (1.0,)
    slots = _cover(setup).slots(setup.rounds)
    count = slots * len(setup.phases[0]) * len(setup.alphas)
    about = (
        f"{_algorithm(setup)}: {count} experts, each with a network of its own trained by "
        f"{_experts_base_in_words(setup)}; the one to use is "
        f"{'drawn by weight' if setup.combine == 'sample' else 'the ' + setup.combine}."
    )

    def trainer() -> Trainer:
        adagrad = setup.base == "adagrad"
        if several and not adagrad:
            raise ValueError(f"history decays (alphas) are Adagrad's; the base here is {setup.base}")
        engine = sj.Experts(
            setup.task.loss,
            _experts_base(setup),
            setup.phases if len(setup.phases) > 1 else next(iter(setup.phases)),
            cover=_cover(setup),
            hyperparameters={"alpha": setup.alphas} if adagrad else None,
            rounds=setup.rounds,
            combine=setup.combine,
            Q=setup.Q,
            # Algorithm 2 has eta_q = 2^-q, which is a bound of 1; Algorithm 1's is found out.
            bound=None if setup.shortest else 1.0,
            clip=not setup.shortest,
            placement=setup.placement,
        )
        cover = _cover(setup)
        return Population(setup.task, engine, _levels(cover, setup.rounds, cover.slots(setup.rounds)))

    # Where candidates change from phase to phase, the plan says to what.
    changing = {"phases": [list(rates) for rates in setup.phases]} if len(set(setup.phases)) > 1 else {}
    return Method("samuel-full", SAMUELS["samuel-full"], "samuel", about, trainer, changing)


def _search(name: str, setup: Setup) -> Method:
    first = first_rates(name)
    phases = (first or setup.phases[0], *setup.phases[1:])
    count = len(schedules.product(phases))
    base = optimizers.BASES[setup.base].label

    def trainer() -> Trainer:
        transformation = optimizers.base(setup.base, setup.weight_decay)
        sweep = sj.Sweep(setup.task.loss, transformation, phases, setup.transitions, placement=setup.placement)
        return Search(setup.task, sweep)

    which = (
        f"All {count}" if not first else f"Those {count} that begin with {' or '.join(f'{r:g}' for r in first)} of the"
    )
    about = f"{which} step schedules with {base}, common beginnings trained once."
    return Method(name, f"{base}, {count} step schedules", "search", about, trainer)


def _algorithm(setup: Setup) -> str:
    if setup.shortest:
        return f"The paper's Algorithm 1 (shortest block {setup.shortest} rounds)"
    return f"The paper's Algorithm 2 (restarts at {', '.join(map(str, setup.transitions)) or 'no round'})"


def _cover(setup: Setup) -> Any:
    if setup.shortest:
        return sj.Geometric(setup.rounds, setup.shortest)
    return sj.Chosen(setup.transitions)


def _levels(cover: Any, rounds: int, slots: int) -> tuple[int | None, ...]:
    """Lengths of the blocks of every slot; None for those as long as the run."""
    if not hasattr(cover, "length"):
        return (None,) * slots
    lengths = [cover.length(slot) for slot in range(slots)]
    return tuple(length if length < rounds else None for length in lengths)
