"""Matrices spread over real processes are worked on whole, and every process gets its shards back."""

import pytest
import torch

from samuel.torch.sharded import Exchange, layout_of, owners
from tests.torch.processes import run_ranks
from tests.torch.workers import exchange

pytestmark = pytest.mark.xdist_group("sharded")

COUNT = sum(torch.Size(shape).numel() for shape in exchange.SHAPES)


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """What every process found."""
    return run_ranks(exchange.compare_all, request.param, tmp_path_factory.mktemp("exchange"))


def test_every_process_gets_its_shards_of_the_work_on_whole_tensors(found):
    for process in found:
        assert {name: result["worst"] for name, result in process.items()} == dict.fromkeys(process, 0.0)


def test_a_split_matrix_is_sent_and_returned_once(found):
    moved = sum(process["columns"]["bytes"] for process in found)
    processes = len(found)
    assert moved <= 2 * 4 * COUNT * (processes - 1) / processes + 4 * 2 * sum(
        size[0] * -(-size[1] // processes)
        for size in exchange.SHAPES  # what uneven shards may add
    )
    assert moved > 0


def test_whole_matrices_are_not_gathered(found):
    expected = 4 * COUNT * (len(found) - 1)  # every owner sends its results to all others
    assert sum(process["replicated"]["bytes"] for process in found) == expected


def test_stacks_that_are_split_between_matrices_stay_where_they_are(found):
    assert all(process["rows"]["local"] == 1 and process["columns"]["local"] == 0 for process in found)


def test_owners_share_the_work_evenly():
    costs = [float(cost) for cost in range(1, 40)]
    chosen = owners(costs, 4)
    loads = [sum(cost for cost, owner in zip(costs, chosen, strict=True) if owner == rank) for rank in range(4)]
    assert max(loads) - min(loads) <= 2


def test_a_group_of_another_size_is_refused(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="is on 3 processes, and the group has 1"):
            Exchange([layout_of(torch.zeros(2, 2), group_size=3)], [1.0])
    finally:
        torch.distributed.destroy_process_group()
