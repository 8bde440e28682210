"""Covers: which blocks there are, when they start, and how any interval is cut into them."""

import math

import jax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samuel.core import AllIntervals, Anytime, Chosen, Compact, Fixed, Geometric, Lasting, Pruned

LIMITED = [
    Anytime(4, levels=4),
    Anytime(5, levels=2),
    Anytime(1, levels=1),
    Geometric(120, shortest=5),
    Geometric(90, shortest=8, levels=2),
    Fixed(25),
    Chosen((30, 31, 90)),
]
"""Covers with a number of slots that no run exceeds."""
COVERS = [
    Geometric(horizon=300),
    Geometric(horizon=300, shortest=7),
    Anytime(shortest=1),
    Anytime(shortest=5),
    Fixed(every=13),
    Lasting(every=6),
    Chosen((10, 11, 200)),
    AllIntervals(horizon=300),
    *LIMITED,
]
covers = st.sampled_from(COVERS)


@given(covers, st.integers(0, 299), st.integers(0, 299))
def test_tiles_cover_any_interval_exactly_once(cover, a, b):
    first, last = min(a, b), max(a, b)
    rounds = [t for tile in cover.tile(first, last) for t in range(tile.first, tile.last + 1)]
    assert rounds == list(range(first, last + 1))


@given(covers, st.integers(0, 299), st.integers(0, 299))
def test_a_tile_begins_where_its_block_begins_and_stays_inside(cover, a, b):
    for tile in cover.tile(min(a, b), max(a, b)):
        if tile.slot is None:
            assert not cover.starts_at(tile.first)
        else:
            start, length = cover.block(tile.slot, tile.first)
            assert start == tile.first
            assert tile.last < start + length


@given(st.integers(1, 9), st.integers(0, 5000), st.integers(0, 5000))
def test_doubling_blocks_cut_an_interval_into_few_tiles(shortest, a, b):
    first, last = min(a, b), max(a, b)
    tiles = list(Anytime(shortest).tile(first, last))
    blocks = [tile for tile in tiles if tile.slot is not None]
    assert len(tiles) - len(blocks) < shortest
    assert len(blocks) <= 2 * math.log2(last - first + 2) + 2


@given(covers, st.integers(0, 299))
def test_a_slot_starts_exactly_when_its_block_changes(cover, t):
    slots = cover.slots(300)
    begun = np.asarray(cover.starts(t, slots))
    for slot in range(slots):
        block = cover.block(slot, t)
        assert bool(begun[slot]) == (block is not None and block[0] == t)


@given(covers, st.integers(0, 299))
def test_blocks_start_only_on_the_beat_of_the_rhythm(cover, t):
    if t % cover.rhythm:
        assert cover.starts_at(t) == []


@given(st.integers(1, 6), st.integers(0, 1023))
def test_anytime_restarts_with_the_horizon_form_on_the_levels_both_have_open(shortest, t):
    anytime, horizon = Anytime(shortest), Geometric(1024, shortest)
    slots = anytime.slots(1024)
    for slot in range(min(slots, horizon.slots(1024))):
        if anytime.block(slot, t) is not None:
            assert anytime.block(slot, t) == horizon.block(slot, t)
            assert bool(anytime.starts(t, slots)[slot]) == bool(horizon.starts(t, slots)[slot])


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_starts_are_the_same_for_numbers_and_for_arrays_of_any_library(cover):
    slots = cover.slots(300)
    compiled = jax.jit(lambda t: cover.starts(t, slots))
    for t in (0, 1, 5, 10, 13, 64, 200, 256):
        expected = np.asarray(cover.starts(t, slots))
        assert np.array_equal(compiled(np.int32(t)), expected)
        assert np.array_equal(cover.starts(torch.tensor(t), slots).numpy(), expected)


def test_the_papers_online_study_has_eight_lengths():
    cover = Geometric(horizon=25_600, shortest=200)
    assert [cover.length(slot) for slot in range(cover.slots(25_600))] == [200 * 2**k for k in range(8)]


def test_one_block_of_all_intervals_serves_any_interval_to_its_end():
    assert all(len(list(AllIntervals(50).tile(a, b))) == 1 for a in range(50) for b in range(a, 50))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Geometric(0), "horizon.*0"),
        (lambda: Geometric(10, shortest=-1), "shortest.*-1"),
        (lambda: Anytime(shortest=2.5), r"shortest.*2\.5"),
        (lambda: Fixed(True), "True"),
        (lambda: Chosen((3, -4)), "-4"),
        (lambda: list(Anytime().tile(5, 4)), "first=5, last=4"),
    ],
)
def test_bad_values_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize("cover", LIMITED, ids=str)
def test_a_limited_cover_has_a_number_of_slots_that_no_run_exceeds(cover):
    assert cover.slots(300) == cover.slots(2**31)


def test_limited_levels_repeat_their_longest_block():
    cover = Anytime(shortest=4, levels=3)
    assert [cover.slots(rounds) for rounds in (1, 8, 16, 10**6)] == [1, 2, 3, 3]
    assert [cover.block(2, t) for t in (15, 16, 31, 1000)] == [None, (16, 16), (16, 16), (992, 16)]
    assert Geometric(horizon=100, shortest=5, levels=2).slots(100) == 2


@pytest.mark.parametrize("shortest", [1, 3])
def test_a_pruned_cover_keeps_whom_the_rule_keeps(shortest):
    cover = Pruned(shortest)
    for t in range(400):
        now = t // shortest + 1
        # Born in i = r 2^k, r odd; dropped once older than 2^(k+2): `i & -i` is 2^k.
        alive = {i for i in range(1, now + 1) if now - i <= 4 * (i & -i)}
        slots = cover.slots(t)
        blocks = [cover.block(slot, t) for slot in range(slots)]
        found = {first // shortest + 1: length for first, length in (block for block in blocks if block)}
        assert found == {i: shortest * (4 * (i & -i) + 1) for i in alive}
        assert [block is not None for block in blocks] == cover.running(t, slots).tolist()
        assert len(cover.starts_at(t)) == (t % shortest == 0)


@pytest.mark.parametrize("shortest", [1, 3])
def test_a_compact_cover_has_every_other_block(shortest):
    cover = Compact(shortest)
    for t in range(400):
        now, slots = t // shortest + 1, cover.slots(t)
        blocks = [cover.block(slot, t) for slot in range(slots)]
        # Level k runs where the bit k of the number of now is set, from where that bit was last set.
        expected = [
            ((now >> k << k) * shortest - shortest, shortest * 2**k) if now >> k & 1 else None for k in range(slots)
        ]
        assert blocks == expected
        assert [block is not None for block in blocks] == cover.running(t, slots).tolist()
        assert len(cover.starts_at(t)) == (t % shortest == 0)
