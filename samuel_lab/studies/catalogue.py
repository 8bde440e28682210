"""The studies by name."""

from __future__ import annotations

from samuel_lab.studies.compute import Compute
from samuel_lab.studies.offline import Cifar10, DigitsOffline, DigitsSweep, ImageNet, Sst2
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.shift import Digits, Shift
from samuel_lab.studies.stability import Stability
from samuel_lab.studies.study import Study

STUDIES: dict[str, type[Study]] = {
    study.name: study
    for study in (Digits, DigitsOffline, DigitsSweep, Shift, Cifar10, ImageNet, Sst2, Stability, Compute)
}
"""The studies of `samuel run`."""
DEMO: tuple[Study, ...] = (DigitsSweep(), Digits())
"""The studies of `samuel demo`: one without a shift, one with."""


RETIRED = {"samuel_base", "samuel_rule", "samuel_horizon", "samuel_weight_decay"}
"""Settings of older versions, whose drop-in was one method with options and one search."""


def study_of(name: str, options: dict[str, object]) -> Study:
    """A study from its name and its settings, as `config.json` has them.

    >>> study_of("digits", {"seeds": 1, "scale": 0.5}).seeds
    1
    """
    if name not in STUDIES:
        raise BadSetting("study", f"unknown study {name!r}; choose from {', '.join(STUDIES)}")
    retired = sorted(RETIRED & options.keys())
    if retired:
        raise BadSetting(
            retired[0],
            f"this run was made by an older version, whose method `samuel` was another algorithm (settings "
            f"{', '.join(retired)}), and cannot be resumed; `samuel report` still reads it. Start a new run with "
            "the methods samuel, samuel-untold or samuel-adam",
        )
    return STUDIES[name].read(options)
