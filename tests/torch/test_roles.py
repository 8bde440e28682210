"""Roles of parameters are those that a person who knows the layers would give."""

import re

import pytest

from samuel.core.roles import matrices
from samuel.torch.roles import roles
from tests.torch.role_models import MODELS
from tests.torch.role_tables import TABLES


def lines(table):
    for line in table.strip().splitlines():
        name, expected = line.strip().split(None, 1)
        pattern = re.escape(name).replace(r"\*", r"[^.]+").replace(r"\{", "(?:").replace(r"\}", ")").replace(",", "|")
        yield re.compile(pattern), expected.strip()


def shown(role, shape):
    text = role.kind
    if role.kind == "matrix":
        text += " " + " + ".join(f"{n} of {m} x {k}" for n, m, k in matrices(role, shape))
    return text + (" guessed" if role.guessed else "")


def expected_of(name, table):
    found = [expected for pattern, expected in lines(table) if pattern.fullmatch(name)]
    assert len(found) == 1, f"{name} has {len(found)} lines"
    return found[0]


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_has_the_role_that_was_written_down(model):
    network = MODELS[model]()
    found = roles(network)
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert {name: shown(role, shapes[name]) for name, role in found.items()} == {
        name: expected_of(name, TABLES[model]) for name in shapes
    }
    for pattern, _ in lines(TABLES[model]):
        assert any(pattern.fullmatch(name) for name in shapes), f"no parameter for {pattern.pattern}"
    assert all(role.why for role in found.values())
