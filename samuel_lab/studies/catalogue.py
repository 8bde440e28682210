"""The studies by name."""

from __future__ import annotations

from samuel_lab.studies.compute import Compute
from samuel_lab.studies.offline import Cifar10, DigitsOffline, ImageNet, Sst2
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.shift import Digits, Shift
from samuel_lab.studies.stability import Stability
from samuel_lab.studies.study import Study

STUDIES: dict[str, type[Study]] = {
    study.name: study for study in (Digits, DigitsOffline, Shift, Cifar10, ImageNet, Sst2, Stability, Compute)
}
"""What `samuel run` can run."""


def study_of(name: str, options: dict[str, object]) -> Study:
    """A study from its name and its settings, as `config.json` has them.

    >>> study_of("digits", {"seeds": 1, "scale": 0.5}).seeds
    1
    """
    if name not in STUDIES:
        raise BadSetting("study", f"study {name!r} is not known: choose from {', '.join(STUDIES)}")
    return STUDIES[name].read(options)
