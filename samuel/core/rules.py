"""Ready rules for training networks: which rays to run, by the name of a rule and of a base.

A *rule* is a set of options of `samuel.core.rays.Rays`. A *base* gives the directions; of each that can be asked for by
name, it is known which learning rates people sweep for it and what else suits it. Adding a rule or a base is one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from samuel.core.cover import Anytime, Watched
from samuel.core.options import one_of
from samuel.core.rays import Rays, is_off

_SAMUEL = {"cover": Watched(short=0), "settle": 100.0, "alarm": 10.0, "average": 8.0}

RULES: dict[str, dict[str, Any]] = {
    "samuel": _SAMUEL,
    "patient": _SAMUEL | {"patience": 100.0},
    "R": {"cover": Watched(short=0), "decay": "linear"},
    "K": {"cover": Watched(shortest=32, short=3), "decay": "linear", "short_rates": "above", "takeover": 0.8},
    "Kr": {
        "cover": Watched(shortest=32, short=3),
        "decay": "linear",
        "short_rates": "above",
        "takeover": 0.8,
        "reference": "long",
    },
    "levels": {"cover": Anytime(shortest=32, levels=8), "combine": "steps", "newborns": "fresh", "lag": 0.0},
    "theorem": {
        "cover": Anytime(shortest=32, levels=8),
        "scale": "max",
        "newborns": "fresh",
        "lag": 0.0,
        "prior": 0.0,
    },
}
"""What each rule sets apart from the defaults of `Rays`; `samuel.jax.samuel` says what it is for."""


class Traits(NamedTuple):
    """What usually goes with a base."""

    decades: tuple[int, int]
    """The usual candidate rates lie between these powers of ten."""
    forgets: bool
    """Whether old gradients stop to matter, so that blocks of different age can share its state."""
    lag: float = 0.5
    """What the rules "samuel" and "patient" judge with: a base whose steps remember longer needs more of it."""
    experience: float = 0.0
    """How many rounds of a block, under the same rules, what is known about rates is worth after a shift."""


TRAITS = {
    "adam": Traits((-6, 0), forgets=True),
    "adagrad": Traits((-5, 1), forgets=False),
    "momentum": Traits((-6, 0), forgets=True),
    "sgd": Traits((-5, 1), forgets=True),
    # Its momentum of 0.95 has twice the memory of Adam's 0.9. That the rate is nearly kept after a shift gets further:
    # on a small network than to find it anew, on a large one than to keep a tenth as much (results/research.md).
    "muon": Traits((-6, 0), forgets=True, lag=0.67, experience=1000.0),
}
"""Of the bases with a name."""

ANY_BASE = Traits((-6, 0), forgets=True)
"""What is assumed of a base that we know nothing about."""


def usual_rates(lowest: int, highest: int) -> tuple[float, ...]:
    """Rates in steps of half a decade between two powers of ten.

    >>> usual_rates(-2, 0)
    (0.01, 0.0316, 0.1, 0.316, 1.0)
    """
    return tuple(float(f"{10 ** (half / 2):.3g}") for half in range(2 * lowest, 2 * highest + 1))


def follow(rule: str, learning_rates: Sequence[float] | None = None, base: str | None = None, **options: Any) -> Rays:
    """The rays of a ready rule; options that are not None override it.

    A rule with one long block that says nothing about the decay ("samuel", "patient") lets rates fall linearly to 0
    where the horizon is known, and as the root of time where it is not. Its lag and its experience are those that suit
    the base.

    Args:
        rule: its name.
        learning_rates: the candidates; the usual ones of the base if not given.
        base: the name of the base; None for one that we know nothing about.
        options: of `Rays`.

    >>> follow("samuel", horizon=1000).decay, follow("samuel").decay
    ('linear', 'sqrt')
    """
    one_of("rule", rule, tuple(RULES))
    traits = ANY_BASE if base is None else TRAITS[base]
    defaults: dict[str, Any] = {}
    if isinstance(RULES[rule]["cover"], Watched) and "decay" not in RULES[rule]:
        falls = "linear" if options.get("horizon") is not None else "sqrt"
        defaults = {"decay": falls, "lag": traits.lag, "experience": traits.experience}
    if rule in ("levels", "theorem") and not traits.forgets:
        defaults["base_state"] = "slots"
    given = {name: value for name, value in options.items() if value is not None}
    chosen = RULES[rule] | defaults | given
    if not isinstance(chosen["cover"], Watched) and "takeover" not in given:
        chosen.pop("takeover", None)  # there is no long block to take over from
    for name in ("settle", "experience", "patience"):
        if chosen.get("scale", "rms") != "rms" and name not in given:
            chosen.pop(name, None)  # only gains in units of their own size may be weighed by anything else
    if is_off(chosen.get("settle")) and "experience" not in given:
        chosen.pop("experience", None)  # nothing fades
    rates = usual_rates(*traits.decades) if learning_rates is None else learning_rates
    return Rays(learning_rates=rates, **chosen)
