"""Roles of parameters are those that a person who knows the layers would give."""

import jax
import pytest

from samuel.jax.roles import named_roles
from tests.jax.role_models import MODELS
from tests.jax.role_tables import TABLES
from tests.roles import assert_as_written


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_has_the_role_that_was_written_down(model):
    params = MODELS[model]()
    found = named_roles(params)
    shapes = dict(zip(found, [leaf.shape for leaf in jax.tree.leaves(params)], strict=True))
    assert_as_written(found, shapes, TABLES[model])
