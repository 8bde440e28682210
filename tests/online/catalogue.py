"""The learners that the common suite runs: a base learner added to the package gets a row here."""

from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    OGD,
    ONS,
    SACS,
    SAOL,
    Adadelta,
    Adagrad,
    AdagradFull,
    Adam,
    Ader,
    Anytime,
    Ball,
    Box,
    Chosen,
    DiscountedAdagrad,
    Fixed,
    FixedShare,
    Free,
    Geometric,
    Hedge,
    Lasting,
    OptimisticOGD,
    ParameterFree,
    RelativeOGD,
    RMSprop,
    Samuel,
    ScaleFreeOGD,
    Simplex,
    Single,
    Stay,
    Sword,
)

BASES = {
    "OGD": OGD(0.3),
    "OGD sqrt": OGD(0.5, schedule="sqrt"),
    "OGD inverse": OGD(0.5, schedule="inverse"),
    "RelativeOGD": RelativeOGD(0.7),
    "ScaleFreeOGD": ScaleFreeOGD(0.7),
    "Adagrad": Adagrad(0.7),
    "Adagrad delta": Adagrad(0.7, delta=0.1),
    "AdagradFull": AdagradFull(0.7),
    "AdagradFull delta": AdagradFull(0.7, delta=0.1),
    "ONS": ONS(2.0, delta=0.5),
    "OptimisticOGD": OptimisticOGD(0.7),
    "DiscountedAdagrad": DiscountedAdagrad(0.1, alpha=0.8),
    "Adam": Adam(0.1),
    "RMSprop": RMSprop(0.1),
    "Adadelta": Adadelta(1.0, epsilon=0.01),
    "Stay": Stay(),
}
"""Every base learner, by name."""

BOUNDED = {"ball": Ball(1.0), "box": Box(-1.0, (0.5, 1.0, 2.0)), "simplex": Simplex()}
"""Every kind of bounded domain, in three dimensions."""

WITH_BOUND = (
    "OGD",
    "OGD sqrt",
    "RelativeOGD",
    "ScaleFreeOGD",
    "Adagrad",
    "Adagrad delta",
    "AdagradFull",
    "AdagradFull delta",
    "ONS",
    "OptimisticOGD",
)
"""Base learners whose regret is bounded."""

RIVALS = {
    "FLH": lambda **options: FLH(3, Ball(1.0), **options),
    "FLH, every round": lambda **options: FLH(3, Box(-1.0, 1.0), shortest=1, newborns="cold", **options),
    "FLH, exp-concave": lambda **options: FLH(3, Ball(1.0), feedback="loss", exp_concavity=0.1, **options),
    "AFLH": lambda **options: AFLH(3, Ball(1.0), **options),
    "AFLH, every round, full": lambda **options: AFLH(3, Ball(1.0), shortest=1, feedback="full", **options),
    "SAOL": lambda **options: SAOL(3, Ball(1.0), **options),
    "SAOL, shortest 1, cold": lambda **options: SAOL(3, Simplex(), shortest=1, newborns="cold", **options),
    "CBCE": lambda **options: CBCE(3, Ball(1.0), **options),
    "CBCE, full": lambda **options: CBCE(3, Ball(1.0), shortest=1, feedback="full", **options),
    "SACS": lambda **options: SACS(3, Ball(1.0), **options),
    "SACS everywhere": lambda **options: SACS(3, Free(), shortest=1, learning_rates=(0.1, 1.0), **options),
    "ParameterFree": lambda **options: ParameterFree(3, Ball(1.0), **options),
    "ParameterFree on a simplex": lambda **options: ParameterFree(3, Simplex(), shortest=1, **options),
    "ParameterFree everywhere": lambda **options: ParameterFree(3, shortest=1, newborns="cold", **options),
    "Hedge": lambda **options: Hedge(3, Ball(1.0), gradient_bound=50.0, **options),
    "Hedge on a simplex": lambda **options: Hedge(3, Simplex(), **options),
    "FixedShare": lambda **options: FixedShare(3, Ball(1.0), horizon=100, **options),
    "Ader": lambda **options: Ader(3, Ball(1.0), **options),
    "Ader, horizon, full": lambda **options: Ader(
        3, Box(-1.0, 1.0), horizon=100, gradient_bound=50.0, feedback="full", **options
    ),
    "Sword": lambda **options: Sword(3, Ball(1.0), **options),
    "Sword, all": lambda **options: Sword(3, Simplex(), horizon=100, gradient_bound=50.0, smoothness=30.0, **options),
    "FixedShare, past": lambda **options: FixedShare(3, Simplex(), past=True, **options),
}
"""Every rival in some of its forms, in three dimensions."""

LEARNERS = {
    **RIVALS,
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
    "Samuel, default": lambda **options: Samuel(3, Ball(1.0), **options),
    "Samuel on a ball off the origin": lambda **options: Samuel(3, Ball(1.0, (0.5, 0.0, -1.0)), **options),
    "Samuel on a simplex": lambda **options: Samuel(3, Simplex(), **options),
    "Samuel on a box": lambda **options: Samuel(3, Box(-1.0, 1.0), **options),
    "Samuel(AdagradFull) on a simplex": lambda **options: Samuel(3, Simplex(), base=AdagradFull(delta=0.1), **options),
    "Samuel everywhere": lambda **options: Samuel(3, Free(), **options),
    "Samuel, horizon": lambda **options: Samuel(3, Ball(1.0), horizon=200, gradient_bound=50.0, **options),
    "Samuel, blocks": lambda **options: Samuel(3, Ball(1.0), base=Adagrad(), **options),
    "Samuel, lasting": lambda **options: Samuel(
        3, Ball(1.0), learners=[RelativeOGD(0.1), Adagrad(0.5, delta=0.1)], cover=Lasting(3), feedback="full", **options
    ),
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
