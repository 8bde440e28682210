"""Every learner keeps the contract, and the checks notice when one does not."""

import numpy as np
import pytest

from samuel import online
from samuel.online import Ball, Base, Learner, Rival, Single, Stepped, check
from samuel.online.checks import ContractBroken
from tests.online.catalogue import BASES, LEARNERS, RIVALS


def exported(kind):
    """The names of the classes of one kind that `samuel.online` exports, without that class itself."""
    things = {name: getattr(online, name) for name in online.__all__}
    return {name for name, one in things.items() if isinstance(one, type) and issubclass(one, kind) and one is not kind}


def test_every_base_and_every_rival_has_a_row_in_the_catalogue():
    assert exported(Base) == {type(base).__name__ for base in BASES.values()}
    rivals = {type(make()).__name__ for make in RIVALS.values()}
    assert exported(Learner) - {"Rival", "Samuel", "Single"} == rivals
    assert exported(Rival) < rivals


@pytest.mark.parametrize("name", LEARNERS)
def test_learner_keeps_the_contract(name):
    # Compiled and plain arithmetic round differently, and a full matrix magnifies that. Compiling takes seconds: each
    # base learner is compiled on its own, and SAMUEL over two of them and in all its other forms.
    compiled = not (name.startswith("Samuel(") and name not in ("Samuel(Adagrad)", "Samuel(AdagradFull)"))
    passed = check(LEARNERS[name], tolerance=1e-6 if "Full" in name else 1e-9, compiled=compiled)
    assert len(passed) == 8 + compiled


class Escapes(Base):
    """Forgets to stay in the domain."""

    def init(self, template):
        return ()

    def step(self, points, memory, gradients, learning_rate, domain):
        return Stepped(points - learning_rate * gradients, memory)


class Remembers(Base):
    """Keeps a memory of its own, outside the state."""

    seen = np.zeros(3)

    def init(self, template):
        return ()

    def step(self, points, memory, gradients, learning_rate, domain):
        Remembers.seen = Remembers.seen + np.sum(gradients)
        return Stepped(domain.project(points - learning_rate * gradients - 1e-3 * np.sum(Remembers.seen)), memory)


@pytest.mark.parametrize(("base", "named"), [(Escapes(), "decisions stay in the domain"), (Remembers(), "differ")])
def test_the_checks_notice_a_broken_contract(base, named):
    with pytest.raises(ContractBroken, match=named):
        check(lambda **options: Single(base, 3, Ball(1.0), **options))
