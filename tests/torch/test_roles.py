"""Roles of parameters are those that a person who knows the layers would give."""

import pytest

from samuel.torch.roles import roles
from tests.roles import assert_as_written
from tests.torch.role_models import MODELS
from tests.torch.role_tables import TABLES


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_has_the_role_that_was_written_down(model):
    network = MODELS[model]()
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert_as_written(roles(network), shapes, TABLES[model])
