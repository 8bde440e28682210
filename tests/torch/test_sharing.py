"""Where several processes have a model, they share the work on its matrices and train it as one process does."""

import pytest
import torch

from samuel.torch import Samuel
from tests.torch.processes import run_ranks
from tests.torch.workers import sharing

pytestmark = pytest.mark.xdist_group("sharing")


def run_alone(count, **options):
    """The parameters that one process finds, and their average."""
    model = sharing.network()
    optimizer = Samuel(model, **options)
    sharing.train(model, optimizer, 0, count)
    with optimizer.averaged():
        averaged = sharing.parameters_of(model)
    return sharing.parameters_of(model), averaged


def assert_same(found, expected):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-8, atol=1e-8)


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """What every process found."""
    return run_ranks(sharing.train_all, request.param, tmp_path_factory.mktemp("sharing"))


def test_every_way_of_spreading_a_model_trains_it_as_one_process_does(found):
    expected, _ = run_alone(sharing.STEPS, steps=sharing.STEPS)
    for process in found:
        for parameters, _ in process.values():
            assert_same(parameters, expected)


def test_every_matrix_is_orthogonalised_by_one_process(found):
    for way in found[0]:
        owned = [process[way][1] for process in found]
        matrices = {"tensor": 2, "both": 6}.get(way, 4)  # those outside of tensor parallelism are in every such group
        assert sum(owned) == matrices
        assert max(owned) < matrices


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_a_checkpoint_continues_on_another_number_of_processes(tmp_path, before, after):
    run_ranks(sharing.save, before, tmp_path / "first", tmp_path / "checkpoint")
    results = run_ranks(sharing.load, after, tmp_path / "second", tmp_path / "checkpoint")
    half, _ = run_alone(sharing.STEPS // 2)
    end, averaged = run_alone(sharing.STEPS)
    for result in results:
        for found, expected in zip(result, (half, end, averaged), strict=True):
            assert_same(found, expected)
