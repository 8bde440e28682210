"""The learners that the common suite runs: a base learner added to the package gets a row here."""

from samuel.online import (
    OGD,
    Adadelta,
    Adagrad,
    AdagradFull,
    Adam,
    Anytime,
    Ball,
    Box,
    Chosen,
    DiscountedAdagrad,
    Fixed,
    Free,
    Geometric,
    RMSprop,
    Samuel,
    ScaleFreeOGD,
    Simplex,
    Single,
)

BASES = {
    "OGD": OGD(0.3),
    "OGD sqrt": OGD(0.5, schedule="sqrt"),
    "OGD inverse": OGD(0.5, schedule="inverse"),
    "ScaleFreeOGD": ScaleFreeOGD(0.7),
    "Adagrad": Adagrad(0.7),
    "Adagrad delta": Adagrad(0.7, delta=0.1),
    "AdagradFull": AdagradFull(0.7),
    "AdagradFull delta": AdagradFull(0.7, delta=0.1),
    "DiscountedAdagrad": DiscountedAdagrad(0.1, alpha=0.8),
    "Adam": Adam(0.1),
    "RMSprop": RMSprop(0.1),
    "Adadelta": Adadelta(1.0, epsilon=0.01),
}
"""Every base learner, by name."""

BOUNDED = {"ball": Ball(1.0), "box": Box(-1.0, (0.5, 1.0, 2.0)), "simplex": Simplex()}
"""Every kind of bounded domain, in three dimensions."""

WITH_BOUND = (
    "OGD",
    "OGD sqrt",
    "ScaleFreeOGD",
    "Adagrad",
    "Adagrad delta",
    "AdagradFull",
    "AdagradFull delta",
)
"""Base learners whose regret is bounded."""

LEARNERS = {
    **{
        f"Single({name})": lambda base=base, **options: Single(base, 3, Ball(1.0), **options)
        for name, base in BASES.items()
    },
    **{
        f"Samuel({name})": lambda base=base, **options: Samuel(
            3, Ball(1.0), base=base, learning_rates=(0.1, 1.0), **options
        )
        for name, base in BASES.items()
    },
    "Samuel on a box": lambda **options: Samuel(3, Box(-1.0, 1.0), **options),
    "Samuel(AdagradFull) on a simplex": lambda **options: Samuel(3, Simplex(), base=AdagradFull(delta=0.1), **options),
    "Samuel everywhere": lambda **options: Samuel(3, Free(), **options),
    "Samuel, horizon": lambda **options: Samuel(3, Ball(1.0), horizon=200, gradient_bound=50.0, **options),
    "Samuel, shortest 1": lambda **options: Samuel(3, Ball(1.0), cover=Anytime(shortest=1), **options),
    "Samuel, geometric": lambda **options: Samuel(3, Ball(1.0), cover=Geometric(200, shortest=3), **options),
    "Samuel, fixed blocks": lambda **options: Samuel(3, Ball(1.0), cover=Fixed(20), **options),
    "Samuel, chosen restarts": lambda **options: Samuel(3, Ball(1.0), cover=Chosen((10, 33)), **options),
    "Samuel, cold": lambda **options: Samuel(3, Ball(1.0), newborns="cold", **options),
    "Samuel, inherit": lambda **options: Samuel(3, Ball(1.0), newborns="inherit", **options),
    "Samuel, full": lambda **options: Samuel(3, Ball(1.0), feedback="full", **options),
    "Samuel, loss": lambda **options: Samuel(3, Ball(1.0), feedback="loss", **options),
    "Samuel, best": lambda **options: Samuel(3, Ball(1.0), combine="best", **options),
    "Samuel, sample": lambda **options: Samuel(3, Ball(1.0), combine="sample", feedback="full", **options),
    "Samuel, mixed with AdagradFull": lambda **options: Samuel(
        3, Ball(1.0), learners=[OGD(0.1), OGD(1.0), Adagrad(0.5), AdagradFull(0.5)], **options
    ),
}
"""Every learner under the common contract: a function that makes a fresh one in three dimensions."""
