"""Reading the tables of roles that were written by hand, for PyTorch and JAX."""

from __future__ import annotations

import re

from samuel.core.roles import matrices


def lines(table):
    """Patterns of names and what is expected of them."""
    for line in table.strip().splitlines():
        name, expected = line.strip().split(None, 1)
        pattern = re.escape(name).replace(r"\*", r"[^.]+").replace(r"\{", "(?:").replace(r"\}", ")").replace(",", "|")
        yield re.compile(pattern), expected.strip()


def shown(role, shape):
    """A role as the tables write it."""
    text = role.kind
    if role.kind == "matrix":
        text += " " + " + ".join(f"{n} of {m} x {k}" for n, m, k in matrices(role, shape))
    return text + (" guessed" if role.guessed else "")


def assert_as_written(found, shapes, table):
    """Every parameter has one line, every line a parameter, and all roles are those of the table."""
    expected = {}
    for name in shapes:
        fitting = [role for pattern, role in lines(table) if pattern.fullmatch(name)]
        assert len(fitting) == 1, f"{name} has {len(fitting)} lines"
        expected[name] = fitting[0]
    for pattern, _ in lines(table):
        assert any(pattern.fullmatch(name) for name in shapes), f"no parameter for {pattern.pattern}"
    assert {name: shown(role, shapes[name]) for name, role in found.items()} == expected
    assert all(role.why for role in found.values())
