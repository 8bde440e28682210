"""Rays against the same rule with explicit points, in every library; and what holds whatever the options are."""

import functools
import math
from dataclasses import fields, replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samuel.core import AllIntervals, Anytime, Chosen, Fixed, Geometric, Watched
from samuel.core import weights as mw
from samuel.core.arrays import matmul, namespace
from samuel.core.rays import FADING, GROWN, PATIENT, SETTLED, Rays, certify
from samuel.core.rules import RULES, follow
from tests.core.plain_rays import Adagrad, Plain, PlainRays

DIM = 5
RATES = (0.003, 0.03, 0.3, 1.0)
BASES = {"plain": Plain(), "adagrad": Adagrad()}

# The ready rules with blocks short enough for a test.
SHORT = {
    rule: {"cover": Watched(8, options["cover"].short), "horizon": 400}
    if isinstance(options["cover"], Watched)
    else {"cover": Anytime(4, levels=5)}
    for rule, options in RULES.items()
}


# The holder of the parameters, as the module's first lines ask for it: what an optimizer does, on one flat vector


def begin(rays, x):
    """Decision, basis, the base's memories, the state, and the average of the decisions, before the first round."""
    xp = namespace(x)
    vectors = len(rays.moving) + len(rays.kept)
    basis, memory = (xp.zeros((rows, DIM), dtype=x.dtype) for rows in (vectors, rays.directions))
    return x, basis, memory, rays.start(x[0]), x


def hold(rays, base, carry, gradient):
    """One round: four lines for the basis, one for the base's memory, one for the average."""
    x, basis, memory, state, average = carry
    xp, moving = namespace(x), len(rays.moving)
    state, moves = rays.advance(state, matmul(xp.concat([basis, gradient[None]]), gradient))
    stepped = [base.direction(own, gradient) for own in memory]
    directions, memory = (xp.stack(parts) for parts in zip(*stepped, strict=True))
    x = x + matmul(moves.difference, basis) + matmul(moves.along, directions)
    moved = moves.keep[:, None] * basis[:moving] + matmul(moves.enter, directions)
    basis = xp.concat([moved, basis[moving:]])
    basis = xp.where(moves.due, matmul(moves.rewrite, basis), basis)
    anew = moves.restarted if rays.base_state == "slots" else moves.reset[None]
    average = average + moves.pace * (x - average)
    return (x, basis, xp.where(anew[:, None], 0.0, memory), state, average), moves


def experts(rays, carry):
    """Where every expert stands, `(slots, rates, d)`, read off the basis by the names of its vectors."""
    x, basis, _, state, _ = carry
    named = dict(zip((*rays.moving, *rays.kept), basis, strict=True))
    each, lr = range(rays.slots), np.asarray(rays.learning_rates)
    sums = [named["u0"] if "u0" in named else named["s"]]
    for k in each[1:]:
        sums.append(named[f"u{k}"] if f"u{k}" in named else sums[-1] + named[f"u{k}-u{k - 1}"])
    above_last = [sum((named[f"c{i}-c{i + 1}"] for i in range(k, rays.slots - 1)), np.zeros(DIM)) for k in each]
    sums, above_last, p = np.array(sums), np.array(above_last), mw.shares(state.weights)
    if rays.combine == "steps":
        last = x - named["x"] - above_last[0]
    else:
        last = x - (p.sum(-1) @ above_last - (p @ lr) @ sums)
    return last + above_last[:, None] - lr[:, None] * sums[:, None]


class Valley:
    """Noisy gradients of a quadratic whose lowest point jumps far away now and then."""

    def __init__(self, seed, rounds, noise=0.5):
        self.random, self.noise = np.random.default_rng(seed), noise
        self.jumps = {0, rounds // 3, rounds // 2, 3 * rounds // 4}
        root = self.random.normal(size=(DIM, DIM))
        self.curvature = root @ root.T / DIM + 0.1 * np.eye(DIM)
        self.x = self.random.normal(size=DIM)

    def gradient(self, t, x):
        if t in self.jumps:
            self.lowest = 6 * self.random.normal(size=DIM)
        return self.curvature @ (x - self.lowest) + self.noise * self.random.normal(size=DIM)

    def loss(self, x):
        return 0.5 * np.einsum("...i,ij,...j->...", x - self.lowest, self.curvature, x - self.lowest)


def story(rays, base, seed=0, rounds=160, noise=0.5):
    """A run of the real code, round by round: what was before, the gradient, what came of it."""
    valley = Valley(seed, rounds, noise)
    carry = begin(rays, valley.x)
    for t in range(rounds):
        gradient = valley.gradient(t, carry[0])
        after, moves = hold(rays, base, carry, gradient)
        yield SimpleNamespace(t=t, valley=valley, before=carry, gradient=gradient, after=after, moves=moves)
        carry = after


def close(ours, theirs, tolerance=1e-8):
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    finite = np.isfinite(theirs)
    assert np.array_equal(finite, np.isfinite(ours))
    difference = abs(ours[finite] - theirs[finite])
    assert (difference <= tolerance * (1 + abs(theirs[finite]))).all(), difference.max()


def compare(rays, base, seed=0, rounds=160, far=math.inf):
    """Play the rays and the plain rule side by side until the run is too far away; returns the latter's last state."""
    plain = None
    for now in story(rays, base, seed, rounds):
        if plain is not None and abs(now.before[0]).max() > far:
            break
        plain = plain or PlainRays(rays, now.before[0], base)
        plain.step(now.gradient)
        x, _, _, state, average = now.after
        close(x, plain.x)
        close(average, plain.average)
        close(mw.shares(state.weights), plain.shares())
        close(mw.shares(state.weights).sum(), 1.0, 1e-12)
        assert now.moves.restarted.tolist() == plain.restarted.tolist()
        assert bool(now.moves.reset) == plain.reset
        assert (int(state.round), int(state.since), int(state.shifts)) == (plain.round, plain.since, plain.shifts)
        taking_part = plain.open()
        close(experts(rays, now.after)[taking_part], plain.points()[taking_part])
        close(state.rate, plain.rate)
        close(state.log_total, plain.log_total)
        close(state.weights.bound, plain.bound)
        if plain.by_prior():
            close(state.weights.started, plain.started)
        measured, bound = certify(state)
        expected, limit = plain.certificate()
        close(measured, expected)
        begun = plain.count > 0  # before its first round, a block's bound has no unit
        close(bound[begun], limit[begun])
        known = ~np.isnan(measured)
        assert (measured[known] <= bound[known] + 1e-9 * (1 + abs(measured[known]))).all()
    return plain


# The same decisions as with explicit points


@pytest.mark.parametrize(("base", "base_state"), [("plain", "shared"), ("adagrad", "shared"), ("adagrad", "slots")])
@pytest.mark.parametrize("rule", RULES)
def test_ready_rules_decide_as_explicit_points_do(rule, base, base_state):
    rays = follow(rule, RATES, base_state=base_state, **SHORT[rule])
    plain = compare(rays, BASES[base])
    if rule in ("samuel", "patient", "K", "Kr"):
        assert plain.shifts > 0
    assert rays.averages == (rule in ("samuel", "patient"))


@pytest.mark.parametrize("rule", RULES)
def test_ready_rules_over_muon_decide_as_explicit_points_do(rule):
    plain = compare(follow(rule, RATES, base="muon", **SHORT[rule]), BASES["plain"])
    if rule in ("samuel", "patient"):
        assert plain.shifts > 0


COVERS = [
    Watched(4, short=2),
    Watched(8, short=3),
    Watched(64, short=3),
    Watched(short=0),
    Anytime(4, levels=4),
    Anytime(5, levels=2),
    Geometric(120, shortest=5),
    Geometric(90, shortest=8, levels=2),
    Fixed(25),
    Chosen((30, 31, 90)),
]
options = st.fixed_dictionaries(
    {
        "learning_rates": st.sampled_from([RATES, (0.001, 0.1)]),
        "cover": st.sampled_from(COVERS),
        "horizon": st.sampled_from([70, 170]),  # the end of the run comes before that of the test, or after
        "Q": st.sampled_from([1, 4, 10]),
        "scale": st.sampled_from(["rms", "max", 5.0, 500.0]),
        "combine": st.sampled_from(["points", "steps"]),
        "newborns": st.sampled_from(["fresh", "inherit", "join"]),
        "prior": st.sampled_from([-0.5, 0.0]),
        "decay": st.sampled_from(["none", "linear", "sqrt"]),
        "lag": st.sampled_from([0.0, 0.5, 0.9]),
        "reference": st.sampled_from(["mixture", "long"]),
        "short_rates": st.sampled_from(["all", "above"]),
        "takeover": st.sampled_from([None, 0.6, 0.8]),
        "collapse": st.sampled_from([None, 0.5]),
        "alarm": st.sampled_from([None, 0, 1.5, 10.0]),
        "settle": st.sampled_from([None, 5.0, 100.0]),
        "experience": st.sampled_from([None, 0, 30.0]),
        "patience": st.sampled_from([None, 0, 20.0]),
        "average": st.sampled_from([0.0, 0.5, 8.0]),
        "base_state": st.sampled_from(["shared", "slots"]),
    }
)


@settings(max_examples=40)
@given(options, st.sampled_from(sorted(BASES)), st.integers(0, 9))
def test_any_options_decide_as_explicit_points_do(options, base, seed):
    if not isinstance(options["cover"], Watched):
        options = options | {"takeover": None}
    if options["scale"] != "rms":
        options = options | {"settle": None, "patience": None}
    if options["settle"] is None:
        options = options | {"experience": None}
    if isinstance(options["cover"], Chosen):
        options = options | {"horizon": 170}  # after the last block has begun
    # Some options let a run fly apart, and what is left of differences between points that far away is rounding.
    compare(Rays(**options), BASES[base], seed, rounds=100, far=1e4)


def test_what_rounding_leaves_of_a_newborns_gain_is_not_magnified_where_positions_cancel():
    options = {"Q": 4, "decay": "linear", "lag": 0.0, "short_rates": "above", "settle": 5.0}
    compare(Rays(RATES, Geometric(120, shortest=5), horizon=70, **options), BASES["plain"], seed=3, rounds=20)


@pytest.mark.parametrize("cover", [Watched(4, short=2), Watched(short=0)], ids=str)
def test_a_collapse_of_the_rate_restarts_everything(cover):
    rays = Rays(RATES, cover, horizon=400, decay="linear", collapse=0.5)
    assert compare(rays, BASES["plain"], seed=3).shifts > 0
    assert compare(replace(rays, collapse=None), BASES["plain"], seed=3).shifts == 0


def test_a_collapse_is_not_looked_for_right_after_a_restart():
    rays = Rays(RATES, Watched(short=0), collapse=0.99)  # which any fall of the rate is
    ends = [now.t + 1 for now in story(rays, BASES["plain"]) if now.moves.reset]
    assert len(ends) > 1
    assert np.diff([0, *ends]).min() == SETTLED + 1
    compare(rays, BASES["plain"])


def test_a_run_longer_than_its_horizon_begins_another():
    rays = Rays(RATES, Watched(4, short=1), horizon=50, decay="linear")
    ends = [now.t + 1 for now in story(rays, BASES["plain"], rounds=120) if now.moves.reset]
    assert ends == [50, 100]
    assert compare(rays, BASES["plain"], rounds=120).shifts == 0


@pytest.mark.parametrize("combine", ["points", "steps"])
@pytest.mark.parametrize("decay", ["none", "linear", "sqrt"])
@pytest.mark.parametrize("base", BASES)
def test_one_slot_with_one_rate_is_the_base_with_that_rate(base, decay, combine):
    rays = Rays((0.1,), Watched(short=0), horizon=100, decay=decay, combine=combine)
    fall = {"none": lambda t: 1.0, "linear": lambda t: 1 - t / 100, "sqrt": lambda t: (1 + t / 256) ** -0.5}[decay]
    x, memory = None, np.zeros(DIM)
    for now in story(rays, BASES[base], rounds=100):
        x = now.before[0] if x is None else x
        direction, memory = BASES[base].direction(memory, now.gradient)
        x = x - 0.1 * fall(now.t) * direction
        close(now.after[0], x, 1e-12)
        assert float(now.after[3].rate) == pytest.approx(0.1 * fall(now.t))


# The same numbers in every library

# Every way of storing the basis once: shared sums, one slot, own sums with and without a lag, with the decision.
STORAGES = {
    "samuel": (follow("samuel", RATES, alarm=5.0), "plain"),
    "experienced": (follow("samuel", RATES, alarm=5.0, experience=30.0), "plain"),
    "watched": (follow("samuel", RATES, cover=Watched(4, 2), takeover=0.8), "plain"),
    "levels": (follow("levels", RATES, cover=Anytime(4, levels=3), base_state="slots"), "adagrad"),
    "theorem": (follow("theorem", RATES, cover=Geometric(32, shortest=8)), "adagrad"),
    "chosen": (Rays(RATES, Chosen((10, 11, 40)), newborns="inherit", scale=50.0), "plain"),
    "lagging slots": (Rays(RATES, Anytime(4, levels=3), decay="linear", base_state="slots"), "adagrad"),
    "lagging long slot": (follow("Kr", RATES, base_state="slots", **SHORT["Kr"]), "adagrad"),
}


@functools.cache
def recorded(name, rounds=60):
    rays, base = STORAGES[name]
    return [(now.before[0], now.gradient, now.after) for now in story(rays, BASES[base], rounds=rounds)]


def readings(carry):
    x, basis, _, state, average = carry
    leap = state.gradient_square, state.recent_square, state.pace
    return x, basis, average, mw.shares(state.weights), state.log_total, *leap, *certify(state)


def agree(name, rows):
    if name in ("samuel", "experienced"):
        assert recorded(name)[-1][2][3].shifts > 0  # so that an alarm is among what is compared
    for (_, _, expected), row in zip(recorded(name), rows, strict=True):
        for part, ours in zip(row, readings(expected), strict=True):
            close(part, ours, 1e-9)


@pytest.mark.parametrize("name", STORAGES)
def test_torch_gives_the_same_numbers(name):
    rays, base = STORAGES[name]
    carry, rows = begin(rays, torch.asarray(recorded(name)[0][0])), []
    for _, gradient, _ in recorded(name):
        carry, _ = hold(rays, BASES[base], carry, torch.asarray(gradient))
        rows.append([part.numpy() for part in readings(carry)])
    assert all(part.dtype == np.float64 for part in rows[-1])
    agree(name, rows)


@pytest.mark.parametrize("name", STORAGES)
def test_compiled_jax_gives_the_same_numbers(name):
    rays, base = STORAGES[name]

    def body(carry, gradient):
        carry, _ = hold(rays, BASES[base], carry, gradient)
        return carry, readings(carry)

    with jax.enable_x64(True):
        gradients = jnp.asarray(np.stack([gradient for _, gradient, _ in recorded(name)]))
        quick_to_compile = {"xla_backend_optimization_level": 0}  # this test compiles much and runs little
        scanned = jax.jit(lambda *given: jax.lax.scan(body, *given)[1], compiler_options=quick_to_compile)
        columns = scanned(begin(rays, jnp.asarray(recorded(name)[0][0])), gradients)
        agree(name, zip(*map(np.asarray, columns), strict=True))


@pytest.mark.parametrize("library", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", STORAGES)
def test_shapes_and_dtypes_never_change(name, library):
    rays, base = STORAGES[name]
    first = carry = begin(rays, library.ones(DIM, dtype=library.float32))
    for t in range(20):
        carry, moves = hold(rays, BASES[base], carry, library.ones(DIM, dtype=library.float32) * (t % 3 - 1.0))
    for then, now in zip(_leaves(first), _leaves(carry), strict=True):
        assert (then.shape, then.dtype) == (now.shape, now.dtype)
    assert moves.along.dtype == moves.difference.dtype == moves.rewrite.dtype == library.float32


def _leaves(tree):
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


# What holds at block ends


@pytest.mark.parametrize("name", STORAGES)
def test_the_basis_is_rewritten_only_when_a_block_ends(name):
    rays, base = STORAGES[name]
    ends = 0
    for now in story(rays, BASES[base], rounds=60):
        assert bool(now.moves.due) == bool(now.moves.restarted.any())
        if now.moves.due:
            ends += 1
        else:
            assert np.array_equal(now.moves.rewrite, np.eye(len(rays.moving) + len(rays.kept)))
    assert ends > 0


def undisturbed(rays):
    """The same rays, but no block ever ends: what a round came to before anything restarted."""
    kind = type(rays.cover)
    endless = type("Endless", (kind,), {"starts": lambda self, t, slots: np.zeros(slots, bool)})
    cover = endless(**{field.name: getattr(rays.cover, field.name) for field in fields(kind)})
    return replace(rays, cover=cover, takeover=None, collapse=None, alarm=None)


def block_ends(rays, base, rounds=130):
    """The rounds in which blocks end, each with what it would have come to if they had not."""
    alone = undisturbed(rays)
    for now in story(rays, base, rounds=rounds):
        if now.moves.due:
            now.undisturbed, _ = hold(alone, base, now.before, now.gradient)
            yield now


@pytest.mark.parametrize("combine", ["points", "steps"])
@pytest.mark.parametrize("newborns", ["fresh", "inherit", "join"])
@pytest.mark.parametrize("cover", [Watched(4, short=2), Anytime(4, levels=4)], ids=str)
def test_an_expert_never_moves_because_another_slot_restarts(cover, newborns, combine):
    takeover = 0.3 if isinstance(cover, Watched) else None
    rays = Rays(RATES, cover, newborns=newborns, combine=combine, lag=0.0, takeover=takeover)
    stayed = 0
    for now in block_ends(rays, BASES["plain"]):
        stays = ~now.moves.restarted & (mw.shares(now.after[3].weights).sum(-1) > 0)
        close(experts(rays, now.after)[stays], experts(rays, now.undisturbed)[stays], 1e-9)
        stayed += stays.sum()
    assert stayed > 0


LAW_COVERS = [Watched(4, short=2), Anytime(4, levels=4), Geometric(32, shortest=4), Fixed(10)]


@pytest.mark.parametrize("cover", LAW_COVERS, ids=str)
def test_newborns_that_join_leave_the_decision_to_those_that_stay(cover):
    """It moves by the share of those that ended times how far their mean was from that of the others."""
    rays = Rays(RATES, cover, horizon=400, newborns="join", takeover=0.5 if isinstance(cover, Watched) else None)
    for now in block_ends(rays, BASES["plain"]):
        before, points = mw.shares(now.undisturbed[3].weights), experts(rays, now.undisturbed)
        left = before * ~now.moves.restarted[:, None]
        expected = now.undisturbed[0]
        if left.sum() > 0:
            expected = np.einsum("kj,kjd->d", left, points) / left.sum()
        close(now.after[0], expected, 1e-9)


@pytest.mark.parametrize("cover", LAW_COVERS, ids=str)
def test_newborns_that_inherit_move_the_decision_only_by_the_prior_they_add(cover):
    rays = Rays(RATES, cover, horizon=400, newborns="inherit")
    mass = np.array([PlainRays(rays, np.zeros(DIM), Plain()).mass(k) for k in range(rays.slots)])
    jumps = []
    for now in block_ends(rays, BASES["plain"]):
        here, shares = now.undisturbed[0], mw.shares(now.undisturbed[3].weights)
        of_slots, ended = shares.sum(-1), now.moves.restarted
        stays = (of_slots > 0) & ~ended if ((of_slots > 0) & ~ended).any() else of_slots > 0
        added = mass * ended * of_slots[stays].sum() / mass[stays].sum()
        means = np.einsum("kj,kjd->kd", shares, experts(rays, now.undisturbed)) / np.maximum(of_slots, 1e-300)[:, None]
        means[of_slots == 0] = here
        close(now.after[0], (here + added @ means) / (1 + added.sum()), 1e-9)
        jumps.append(np.linalg.norm(now.after[0] - here))
        farthest = np.linalg.norm(means[ended] - here, axis=-1).max()
        assert jumps[-1] <= added.sum() / (1 + added.sum()) * farthest + 1e-9
    if rays.slots == 1:
        assert max(jumps) < 1e-9  # a block that inherits from itself alone does not move at all


@pytest.mark.parametrize("newborns", ["fresh", "inherit", "join"])
@pytest.mark.parametrize("combine", ["points", "steps"])
def test_a_shift_restarts_every_expert_where_the_decision_is(newborns, combine):
    rays = follow("K", RATES, newborns=newborns, combine=combine, **SHORT["K"])
    shifts = 0
    for now in block_ends(rays, BASES["plain"], rounds=160):
        if now.moves.reset:
            shifts += 1
            close(now.after[0], now.undisturbed[0], 1e-9)
            here = np.broadcast_to(now.after[0], (rays.slots, len(RATES), DIM))
            close(experts(rays, now.after), here, 1e-9)
    assert shifts > 0


def test_mixed_steps_never_jump():
    rays = follow("levels", RATES, **SHORT["levels"])
    for now in block_ends(rays, BASES["plain"]):
        close(now.after[0], now.undisturbed[0], 1e-12)


@pytest.mark.parametrize("rule", ["K", "Kr"])
def test_short_blocks_carry_only_rates_above_the_long_ones(rule):
    rays = follow(rule, RATES, **SHORT[rule])
    lr, seen = np.asarray(RATES), 0
    for now in block_ends(rays, BASES["plain"], rounds=100):
        p = mw.shares(now.after[3].weights)
        mean = p[-1] @ lr / p[-1].sum()
        for k in np.flatnonzero(now.moves.restarted[:-1]):
            assert ((p[k] > 0) == (lr > mean)).all()
            seen += 1
    assert seen > 0


# What an alarm needs, and what it leaves


def alarms(rays, squares):
    """The rounds in which gradients of these squares raise an alarm, and the last state."""
    state, rounds = rays.start(np.zeros(())), []
    for t, square in enumerate(squares):
        dots = np.array([*np.zeros(len(rays.moving) + len(rays.kept)), square])
        state, moves = rays.advance(state, dots)
        if moves.reset:
            rounds.append(t)
    assert state.shifts == len(rounds)
    return rounds, state


PRIOR = np.asarray(RATES) ** -0.5 / np.sum(np.asarray(RATES) ** -0.5)
ALERT = Rays(RATES, Watched(short=0), alarm=10.0)
QUIET = [1.0] * 40


def test_an_alarm_needs_two_leaps_in_a_row():
    assert alarms(ALERT, [*QUIET, 11.0, 1.0, 11.0, 1.0])[0] == []
    assert alarms(ALERT, [*QUIET, 9.9, 9.9])[0] == []
    rounds, state = alarms(ALERT, [*QUIET, 12.5, 12.5])
    assert rounds == [41]
    assert (state.since, state.gradient_square, state.recent_square, bool(state.alarmed)) == (0, 0.0, 0.0, False)


def test_after_an_alarm_the_new_size_is_the_usual_one():
    assert alarms(ALERT, [*QUIET, *[100.0] * 200])[0] == [41]


@pytest.mark.parametrize("early", [SETTLED - 1, SETTLED])
def test_no_alarm_is_raised_in_the_first_rounds(early):
    rounds, _ = alarms(ALERT, [*[1.0] * early, 100.0, 100.0])
    assert rounds == ([] if early < SETTLED else [early + 1])
    after_another = [*QUIET, 100.0, 100.0, *[1.0] * early, 100.0, 100.0]
    assert alarms(ALERT, after_another)[0] == ([41] if early < SETTLED else [41, 41 + early + 2])


def test_gradients_that_grow_slowly_raise_no_alarm():
    """At the end far above the mean of all, and not above that of the last ones."""
    growing = 10.0 ** (np.arange(2000) / 300)
    assert growing[-1] > 10 * growing.mean()
    assert alarms(ALERT, growing)[0] == []
    assert alarms(ALERT, [*growing, *[20 * growing[-1]] * 2])[0] == [2001]


def test_a_long_run_hears_of_a_leap_beyond_what_it_began_with():
    """The first gradients of a run are often its largest: large beside the last ones alone is no leap."""
    falling = [*[100.0] * 40, *[1.0] * 1000]
    assert alarms(ALERT, [*falling, 20.0, 20.0])[0] == []
    assert alarms(ALERT, [*falling, 80.0, 80.0])[0] == [1041]


def test_an_odd_gradient_leaves_little_behind():
    _, state = alarms(ALERT, [*QUIET, 1e30])
    assert state.gradient_square == pytest.approx(sum(QUIET) + 10.0)  # ten times the mean, and no more
    assert bool(state.alarmed)
    assert alarms(ALERT, [*QUIET, 1e30, 1.0, 20.0, 20.0])[0] == [43]  # which is still a leap
    assert not alarms(ALERT, [*QUIET, 1e30, 1.0])[1].alarmed


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("early", [0, 10, 40])
def test_gradients_without_a_size_do_not_spoil_the_mean(bad, early):
    rounds, state = alarms(ALERT, [*[1.0] * early, bad, *QUIET])
    assert rounds == []
    assert early + 40 <= state.gradient_square <= early + 40 + 10
    assert 0.9 < state.recent_square < 1.2
    assert alarms(ALERT, [*[1.0] * early, bad, *QUIET, 100.0, 100.0])[0] == [early + 42]


@pytest.mark.parametrize(("bad", "expected"), [(math.nan, []), (math.inf, [41])])
def test_gradients_without_a_size_raise_no_second_alarm(bad, expected):
    rounds, state = alarms(ALERT, [*QUIET, *[bad] * 5, *[1.0] * 500])
    assert rounds == expected
    assert np.isfinite([state.gradient_square, state.recent_square]).all()
    assert not state.alarmed


def test_a_state_that_was_alarmed_is_not_where_nothing_is_watched():
    _, state = alarms(ALERT, [*QUIET, 100.0])
    assert bool(state.alarmed)
    _, moves = replace(ALERT, alarm=0).advance(state, np.array([0.0, 0.0, 1.0]))
    assert not moves.reset


@pytest.mark.parametrize(("left", "noticed"), [(20, True), (4, False)])
def test_at_the_end_of_the_run_a_leap_is_let_pass(left, noticed):
    squares = [*[1.0] * (200 - left), 100.0, 100.0]
    rounds, _ = alarms(replace(ALERT, horizon=200), squares)
    assert bool(rounds) == noticed


@pytest.mark.parametrize("alarm", [None, 0])
def test_without_an_alarm_nothing_is_noticed(alarm):
    rounds, state = alarms(replace(ALERT, alarm=alarm), [*QUIET, *[1e6] * 5])
    assert rounds == []
    assert not state.alarmed


class Unit:
    """A base whose directions have one length, whatever the scale of the losses."""

    def direction(self, memory, gradient):
        return gradient / abs(gradient).max(), memory


def test_losses_times_a_constant_change_neither_alarms_nor_decisions():
    rays = follow("samuel", RATES)

    def run(scale):
        valley = Valley(seed=0, rounds=160)
        carry, path, shifts = begin(rays, valley.x), [], []
        for t in range(160):
            carry, moves = hold(rays, Unit(), carry, scale * valley.gradient(t, carry[0]))
            path.append(carry[0])
            shifts.append(bool(moves.reset))
        return np.array(path), carry[4], shifts

    path, average, shifts = run(1.0)
    assert any(shifts)
    for scale in (2.0**60, 2.0**-60):  # rounds nothing
        other, its_average, its_shifts = run(scale)
        assert its_shifts == shifts
        np.testing.assert_array_equal(other, path)
        np.testing.assert_array_equal(its_average, average)


@pytest.mark.parametrize("cover", [Watched(short=0), Watched(8, short=2)], ids=str)
def test_after_an_alarm_the_long_block_keeps_what_it_knew_about_rates(cover):
    rays = follow("samuel", RATES, cover=cover)
    seen = 0
    for now in block_ends(rays, BASES["adagrad"], rounds=160):
        if now.moves.reset:
            before, after = (mw.shares(end[3].weights)[-1] for end in (now.undisturbed, now.after))
            close(after / after.sum(), before / before.sum(), 1e-12)
            assert abs(before / before.sum() - PRIOR).max() > 0.05  # something had been learned
            seen += 1
    assert seen > 0


def test_at_the_end_of_the_horizon_half_of_it_is_forgotten():
    rays = follow("samuel", RATES, horizon=100, decay="none", alarm=0)
    with_end, without = (
        [mw.shares(now.after[3].weights)[0] for now in story(options, BASES["adagrad"], rounds=100)]
        for options in (rays, replace(rays, horizon=None))
    )
    close(with_end[:-1], without[:-1], 1e-12)
    close(with_end[-1], (without[-1] + PRIOR) / 2, 1e-12)
    assert abs(without[-1] - PRIOR).max() > 0.05


# Where the parameters shrink


def test_what_experts_have_moved_by_shrinks_with_the_parameters():
    rays = Rays(RATES, Watched(short=0), weight_decay=0.5, lag=0.0)
    moved = np.zeros(DIM)
    for now in story(rays, BASES["plain"]):
        moved = (1 - 0.5 * float(now.after[3].rate)) * moved + now.gradient
        close(now.after[1][0], moved, 1e-12)


def test_with_weight_decay_the_decision_is_the_mean_of_points_that_shrink():
    rays = Rays(RATES, Watched(short=0), weight_decay=0.5, lag=0.0)
    valley = Valley(0, rounds=100)
    carry, points = begin(rays, valley.x), np.tile(valley.x, (len(RATES), 1))
    for t in range(100):
        gradient = valley.gradient(t, carry[0])
        (x, *rest), _ = hold(rays, BASES["plain"], carry, gradient)
        lost = 0.5 * float(rest[2].rate)
        carry = (x - lost * carry[0], *rest)
        points = (1 - lost) * points - np.outer(RATES, gradient)
        close(carry[0], mw.shares(rest[2].weights)[0] @ points)
    assert np.ptp(mw.shares(rest[2].weights)) > 0.1  # the weights have moved


# What early rounds decide


def moved(rays):
    """By how much the logarithm of the odds between two rates changed at most, in every round."""
    changes = []
    for now in story(rays, BASES["plain"], noise=2.0):
        before, after = (np.log(mw.shares(end[3].weights)[0]) for end in (now.before, now.after))
        changes.append(np.ptp(after - before))
    return np.array(changes)


def test_with_settle_a_round_moves_the_odds_between_rates_less_and_less():
    rays = Rays(RATES, Watched(short=0), settle=20.0)
    fade = (1 + np.arange(160) / 20.0) ** -FADING
    at_most = np.log1p(fade / 2) - np.log1p(-fade / 2)  # the largest of the step sizes is 1/2
    assert (moved(rays) <= at_most + 1e-12).all()
    assert (moved(replace(rays, settle=None)) > at_most).any()


@pytest.mark.parametrize("scale", ["max", 5.0])
@pytest.mark.parametrize("rule", ["samuel", "patient"])
def test_rules_whose_gains_fade_take_any_scale(rule, scale):
    rays = follow(rule, RATES, base="muon", scale=scale)
    assert rays.settle is rays.experience is rays.patience is None
    for name in ("settle", "experience", "patience"):
        with pytest.raises(ValueError, match=f"{name} .* which only scale='rms' allows"):
            follow(rule, RATES, base="muon", scale=scale, **{name: 100.0})


def test_a_horizon_may_be_an_array_of_no_dimension():
    assert follow("K", RATES, horizon=np.asarray(20_000)) == follow("K", RATES, horizon=20_000)


@pytest.mark.parametrize("kind", [np.float64, np.asarray], ids=["number", "array"])
@pytest.mark.parametrize("option", ["alarm", "settle", "experience", "patience"])
def test_an_option_may_be_a_number_of_numpys_and_leaves_the_dtypes_alone(option, kind):
    rays, same = (follow("patient", RATES, **{option: value}) for value in (kind(30.0), 30.0))
    assert rays == same
    state = rays.start(np.zeros((), np.float32))
    after, _ = rays.advance(state, dots=np.ones(3, np.float32))
    assert after.weights.value.dtype == np.float32


def test_settle_and_patience_can_be_switched_off():
    np.testing.assert_array_equal(
        *(
            moved(follow("patient", RATES, settle=0, patience=0)),
            moved(Rays(RATES, Watched(short=0), lag=0.5, decay="sqrt", alarm=10.0)),
        )
    )


def counted(rays, **options):
    """Of the rounds of a run, how many there were in the block before, how many shifts, and how much of what is heard
    without experience was heard."""
    for now in story(rays, BASES["plain"], **options):
        inexperienced = (*now.before[:3], now.before[3]._replace(experience=np.zeros(())), *now.before[4:])
        without, _ = hold(rays, BASES["plain"], inexperienced, now.gradient)
        before, ours, whole = (run[3].ledger.used[0] for run in (now.before, now.after, without))
        if not now.moves.reset and whole[0] != before[0]:
            share = (ours - before) / (whole - before)
            close(share, np.full_like(share, share[0]))  # the odds between any two rates move alike
            yield SimpleNamespace(n=int(now.before[3].count[0]), shifts=int(now.before[3].shifts), share=share[0])


def test_with_experience_a_round_after_a_shift_counts_as_much_as_in_an_older_block():
    run = list(counted(follow("samuel", RATES, settle=20.0, experience=30.0)))
    first, later = ([one for one in run if bool(one.shifts) == after] for after in (False, True))
    assert min(len(first), len(later)) > 30
    close([one.share for one in first], np.ones(len(first)))  # nobody has experience of a first block
    close([one.share for one in later], [((20 + one.n + 30) / (20 + one.n)) ** -FADING for one in later])
    assert max(one.share for one in later) < 1


def test_a_horizon_is_no_shift_and_gives_no_experience():
    rays = Rays(RATES, Watched(short=0), horizon=50, decay="linear", settle=20.0, experience=30.0)
    shares = [one.share for one in counted(rays)]
    assert len(shares) > 100
    close(shares, np.ones(len(shares)))


def leaping(rounds, rays, until, pull):
    """The state before and after every round of a run in which two gradients leap in some; `pull` is `<g, s>`."""
    state = rays.start(np.zeros(()))
    for t in range(until):
        leaps = any(t in (leap, leap + 1) for leap in rounds)
        before, (state, _) = state, rays.advance(state, np.array([pull, 0.0, 1e6 if leaps else 1.0]))
        yield before, state


def alarmed_at(rounds, rays, until):
    """How much older blocks count than they are, round by round, where two gradients leap in some rounds."""
    return [float(after.experience) for _, after in leaping(rounds, rays, until, pull=1.0)]


def test_experience_is_no_more_than_what_was_lived_through():
    rays = Rays(RATES, Watched(short=0), alarm=10.0, settle=100.0, experience=100.0)
    found = alarmed_at((50, 90, 200), rays, 250)
    assert found[:51] == [0] * 51
    assert set(found[51:91]) == {52}  # an early alarm, perhaps a false one, must not fix a rate that is hardly known
    assert set(found[91:201]) == {92}
    assert set(found[201:]) == {100}


def test_experience_ends_with_the_horizon():
    rays = Rays(RATES, Watched(short=0), horizon=120, alarm=10.0, settle=100.0, experience=40.0)
    found = alarmed_at((50,), rays, 300)
    assert set(found[51:119]) == {40}
    assert set(found[119:]) == {0}


def test_after_a_shift_the_odds_between_rates_move_less_with_experience():
    def way(experience):
        """How far the odds went, all rounds after the first shift together."""
        rays, length = follow("samuel", RATES, settle=10.0, experience=experience), 0.0
        for now in story(rays, BASES["plain"], noise=2.0):
            if now.before[3].shifts > 0:
                before, after = (np.log(mw.shares(end[3].weights)[0]) for end in (now.before, now.after))
                length += np.ptp(after - before)
        return length

    assert 0 < way(1000.0) < 0.2 * way(0)


def heights(rounds, rays, until):
    """What the decay begins with, round by round, where two gradients leap in some rounds: the rate over the mean."""
    rates = np.asarray(rays.learning_rates)
    # Nothing pulls, so there are no gains, and the weights do not move in a round.
    run = leaping(rounds, rays, until, pull=0.0)
    return np.asarray([float(after.rate) / (mw.shares(before.weights)[0] @ rates) for before, after in run])


def test_after_a_shift_rates_that_are_known_begin_with_a_half_and_rise_as_long_as_a_block_settles():
    rays = Rays(RATES, Watched(short=0), alarm=10.0, settle=40.0, experience=100.0)
    found = heights((50, 150), rays, 300)
    rise = 0.5 + 0.5 * np.arange(40) / 40
    close(found, np.concatenate([np.ones(52), rise, np.ones(60), rise, np.ones(108)]))
    close(heights((50, 150), replace(rays, experience=0.0), 300), np.ones(300))


def test_the_decay_over_the_block_is_of_rates_that_rise_after_a_shift_and_of_whole_ones_after_the_horizon():
    rays = Rays(RATES, Watched(short=0), horizon=200, decay="linear", alarm=10.0, settle=40.0, experience=100.0)
    fall = 1 - np.arange(148) / 148
    rise = np.minimum(1, 0.5 + 0.5 * np.arange(148) / 40)
    close(heights((50,), rays, 300)[52:], np.concatenate([rise * fall, 1 - np.arange(100) / 200]))


def test_experience_can_be_switched_off():
    np.testing.assert_array_equal(
        *(
            moved(follow("samuel", RATES, base="muon", experience=0)),
            moved(replace(follow("samuel", RATES, lag=0.67), experience=None)),
        )
    )


# What suits a base


@pytest.mark.parametrize("rule", ["samuel", "patient"])
def test_over_muon_experts_are_judged_with_a_longer_lag_and_rates_are_kept_after_a_shift(rule):
    over_muon, over_adam, over_any = (follow(rule, base=base) for base in ("muon", "adam", None))
    assert (over_muon.lag, over_muon.experience) == (0.67, 1000.0)
    assert over_adam == over_any
    assert (over_adam.lag, over_adam.experience) == (0.5, 0.0)
    assert replace(over_muon, lag=0.5, experience=0.0) == over_adam


def test_what_suits_a_base_is_overridden_by_what_is_given():
    rays = follow("samuel", base="muon", lag=0.3, experience=7.0)
    assert (rays.lag, rays.experience) == (0.3, 7.0)
    assert follow("samuel", base="muon", experience=0).experience == 0


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ("samuel", "patient")])
def test_rules_with_a_lag_of_their_own_are_the_same_over_muon_and_adam(rule):
    assert follow(rule, base="muon", horizon=100) == follow(rule, base="adam", horizon=100)


def test_where_nothing_settles_a_base_brings_no_experience():
    assert follow("samuel", base="muon", settle=0).experience is None


def heard(rays, **options):
    """Of the rounds of a run, whether each spoke for smaller rates, whether its gradient had grown, and how much of it
    was heard with patience, of what is heard without."""
    squares = []
    for now in story(rays, BASES["plain"], **options):
        impatient, _ = hold(replace(rays, patience=None), BASES["plain"], now.before, now.gradient)
        before, ours, whole = (run[3].ledger.used[0] for run in (now.before, now.after, impatient))
        square = float(now.gradient @ now.gradient)
        if not now.moves.reset and whole[0] != before[0]:
            share = (ours - before) / (whole - before)
            close(share, np.full_like(share, share[0]))  # the odds between any two rates move alike
            yield SimpleNamespace(
                round=now.t + 1,
                shifts=int(now.before[3].shifts),
                for_smaller=bool(whole[0] > before[0]),
                grown=bool(square > GROWN * np.mean(squares)),
                share=share[0],
            )
        squares = [] if now.moves.reset else [*squares, square]


def test_with_patience_what_speaks_for_smaller_rates_is_heard_little_by_little():
    rays = Rays(RATES, Watched(short=0), settle=100.0, patience=50.0)
    seen = set()
    for one in heard(rays, noise=2.0):
        slowly = one.for_smaller and not one.grown
        close(one.share, PATIENT * one.round / (one.round + 50.0) if slowly else 1.0)
        seen.add((one.for_smaller, one.grown))
    assert seen == {(True, True), (True, False), (False, True), (False, False)}


def test_after_a_shift_all_is_heard_at_once():
    after = [one.share for one in heard(follow("patient", RATES), noise=2.0) if one.shifts]
    assert len(after) > 50
    close(after, np.ones(len(after)))


def test_after_a_horizon_all_is_heard_at_once():
    rays = Rays(RATES, Watched(short=0), horizon=50, decay="linear", patience=20.0)
    shares = [(one.round, one.share) for one in heard(rays, noise=2.0) if one.for_smaller and not one.grown]
    first, later = ([share for n, share in shares if (n > 50) == after] for after in (False, True))
    assert min(first) < 0.5
    assert len(later) > 20
    close(later, np.ones(len(later)))


@pytest.mark.parametrize(("times", "slowly"), [(0.99 * GROWN, True), (1.01 * GROWN, False)])
def test_a_gradient_that_has_grown_is_heard_at_once(times, slowly):
    rays = Rays(RATES, Watched(short=0), lag=0.0, patience=50.0)
    state, _ = rays.advance(rays.start(np.zeros(())), dots=np.array([0.0, 1.0]))
    state, _ = rays.advance(state, dots=np.array([1.0, 3.0]))
    before = np.array([-1.0, 2.0 * times])  # the mean square so far is 2, and less of the steps would be better
    used = [replace(rays, patience=p).advance(state, before)[0].ledger.used - state.ledger.used for p in (50.0, None)]
    close(used[0] / used[1], np.full_like(used[0], PATIENT * 3 / 53 if slowly else 1.0))


def test_patience_hears_slots_with_other_rates_than_the_long_one_as_explicit_points_do():
    rays = Rays(RATES, Watched(8, short=2), short_rates="above", lag=0.5, patience=20.0)
    compare(rays, BASES["plain"])


def test_noisy_first_rounds_take_the_rate_down_less_with_patience():
    def lowest(rule):
        return min(float(now.after[3].rate) for now in story(follow(rule, RATES), BASES["plain"], rounds=40, noise=4.0))

    assert lowest("patient") > 1.2 * lowest("samuel")


def test_patience_never_makes_a_round_count_more_than_the_largest_gain():
    rays = Rays(RATES, Watched(short=0), patience=1.0)
    for now in story(rays, BASES["plain"], noise=2.0):
        assert (abs(now.after[3].ledger.used - now.before[3].ledger.used) <= 1 + 1e-12).all()


def test_after_a_restart_the_first_rounds_decide_again():
    rays = follow("samuel", RATES, settle=5.0)
    *_, last = story(rays, BASES["plain"], rounds=160)
    assert last.after[3].shifts > 0
    assert last.after[3].count.tolist() == [last.after[3].since]


# The average


def test_the_average_is_the_weighted_mean_of_the_decisions_since_the_last_shift():
    rays, power = follow("samuel", RATES), 8
    path, shifts = [], 0
    for now in story(rays, BASES["plain"], noise=1.0):
        path = path or [now.before[0]]
        if now.moves.reset:
            path, shifts = [], shifts + 1
            assert now.moves.pace == now.after[3].pace == 1
        else:
            assert now.moves.pace == now.after[3].pace < 1
        path.append(now.after[0])
        weights = [math.comb(n + power, n) for n in range(len(path))]  # which grow as n**8
        close(now.after[4], np.average(path, axis=0, weights=weights), 1e-12)
        losses = now.valley.loss(np.array(path))  # of convex losses, all at the present lowest point
        assert now.valley.loss(now.after[4]) <= np.average(losses, weights=weights) + 1e-9
    assert shifts > 0
    assert len(path) < 160


def test_the_average_is_about_the_last_ninth():
    weights = np.array([math.comb(n + 8, n) for n in range(901)], float)
    assert weights[-100:].sum() / weights.sum() == pytest.approx(1 - (8 / 9) ** 9, abs=0.01)


def test_at_the_end_of_the_horizon_the_average_is_there_and_the_next_one_begins_with_it():
    rays = Rays(RATES, Watched(short=0), horizon=50, decay="linear", average=8.0)
    paces = [float(now.moves.pace) for now in story(rays, BASES["plain"], rounds=60)]
    np.testing.assert_allclose(paces, [9 / (n + 9) for n in [*range(1, 51), *range(1, 11)]])


def test_without_an_average_the_pace_is_that_of_the_decisions():
    rays = Rays(RATES, Watched(short=0), collapse=0.5)
    assert not rays.averages
    for now in story(rays, BASES["plain"], rounds=60):
        assert now.moves.pace == now.after[3].pace == 1
        close(now.after[4], now.after[0], 1e-12)


# The certificate and the theorem


@pytest.mark.parametrize("base_state", ["shared", "slots"])
@pytest.mark.parametrize("newborns", ["fresh", "inherit"])
@pytest.mark.parametrize("cover", [Anytime(4, levels=5), Geometric(64, shortest=4)], ids=str)
def test_under_the_theorems_rule_the_total_weight_is_what_was_started(cover, newborns, base_state):
    rays = follow("theorem", RATES, cover=cover, newborns=newborns, base_state=base_state)
    for now in story(rays, BASES["adagrad"], noise=2.0):
        state = now.after[3]
        assert state.log_total <= np.log(state.weights.started) + 1e-9
        if not now.moves.due:
            assert state.log_total == pytest.approx(np.log(state.weights.started), abs=1e-9)


@pytest.mark.parametrize("name", ["theorem", "levels", "samuel"])
def test_on_convex_losses_the_certificate_bounds_the_regret_to_every_expert(name):
    rays = follow(name, RATES, **SHORT[name])
    regret = np.zeros((rays.slots, len(RATES)))
    for now in story(rays, BASES["adagrad"], noise=0.0):
        regret += now.valley.loss(now.before[0]) - now.valley.loss(experts(rays, now.before))
        regret[now.moves.restarted] = 0.0
        begun = (mw.shares(now.after[3].weights) > 0) & ~now.moves.restarted[:, None]
        measured, bound = (part[begun] for part in certify(now.after[3]))
        assert (regret[begun] <= measured + 1e-8).all()
        assert (measured <= bound + 1e-8 * (1 + abs(measured))).all()


def test_the_certificate_holds_from_the_moment_a_block_begins():
    rays = Rays(RATES, Fixed(25), Q=1, scale=5.0, newborns="inherit", lag=0.0)
    for now in story(rays, BASES["adagrad"], seed=137, rounds=150):
        measured, bound = certify(now.after[3])
        assert (measured <= bound).all(), now.t


@pytest.mark.parametrize("rule", ["samuel", "K", "Kr"])
def test_a_short_run_does_not_restart_in_every_round(rule):
    rays = follow(rule, RATES, horizon=500)
    for now in story(rays, BASES["plain"], rounds=20):
        assert int(now.after[3].shifts) <= now.t // 2


def test_the_last_of_chosen_blocks_decays_to_the_horizon():
    rays = Rays((0.1,), Chosen((4,)), horizon=10, decay="linear")
    rates = [float(now.after[3].rate) for now in story(rays, BASES["plain"], rounds=10)]
    np.testing.assert_allclose(rates, 0.1 * np.array([1, 3 / 4, 2 / 4, 1 / 4, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]))


def test_a_block_that_becomes_the_longest_carries_every_rate():
    rays = Rays(RATES, Anytime(4, levels=3), short_rates="above", lag=0.0)
    *_, last = story(rays, BASES["plain"], rounds=8)
    assert (mw.shares(last.after[3].weights)[1] > 0).all()


# Refusals


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"learning_rates": ()}, "empty"),
        ({"learning_rates": (0.1, 0.1)}, r"0\.1, 0\.1"),
        ({"learning_rates": (0.1, -1.0)}, r"-1\.0"),
        ({"learning_rates": 0.1}, r"0\.1"),
        ({"cover": AllIntervals(10)}, "AllIntervals"),
        ({"Q": 0}, "Q.*0"),
        ({"horizon": 0}, "horizon.*0"),
        ({"scale": "mean"}, "'mean'"),
        ({"scale": -1.0}, r"scale.*-1\.0"),
        ({"lag": 1.0}, r"lag.*1\.0"),
        ({"takeover": -0.1}, r"takeover.*-0\.1"),
        ({"cover": Anytime(4)}, r"has no last one.*levels=8"),
        ({"takeover": 0.5, "cover": Anytime(4, levels=3)}, r"takeover is for.*Anytime"),
        ({"collapse": 2}, "collapse.*2"),
        ({"alarm": 1}, "alarm.*above 1.*got 1"),
        ({"alarm": 0.5}, r"alarm.*got 0\.5"),
        ({"alarm": -3}, "alarm.*got -3"),
        ({"alarm": math.nan}, "alarm.*got nan"),
        ({"settle": -1}, "settle.*above 0.*got -1"),
        ({"settle": math.inf}, "settle.*got inf"),
        ({"settle": 100.0, "scale": "max"}, "settle.*scale='rms'.*got scale='max'"),
        ({"patience": -1}, "patience.*above 0.*got -1"),
        ({"patience": math.nan}, "patience.*got nan"),
        ({"patience": math.inf}, "patience.*got inf"),
        ({"patience": np.ones(2)}, "patience must be a number.*got array"),
        ({"patience": np.asarray(True)}, "patience must be a number.*got array"),
        ({"horizon": np.asarray(True)}, "horizon must be a whole number.*got array"),
        ({"patience": 100.0, "scale": "max"}, "patience.*scale='rms'.*got scale='max'"),
        ({"experience": -1, "settle": 100.0}, "experience.*above 0.*got -1"),
        ({"experience": math.nan, "settle": 100.0}, "experience.*got nan"),
        ({"experience": math.inf, "settle": 100.0}, "experience.*got inf"),
        ({"experience": np.ones(2), "settle": 100.0}, "experience must be a number.*got array"),
        ({"experience": True, "settle": 100.0}, "experience must be a number.*got True"),
        ({"experience": 9.0, "scale": "max"}, "experience.*scale='rms'.*got scale='max'"),
        ({"experience": 9.0}, "experience.*only with settle.*got settle=None; give settle="),
        ({"experience": 9.0, "settle": 0}, "experience.*only with settle.*got settle=0"),
        ({"settle": 100.0, "scale": 2.5}, r"settle.*scale='rms'.*got scale=2\.5"),
        ({"average": -1}, "average.*at least 0.*got -1"),
        ({"average": True}, "average.*got True"),
        ({"weight_decay": -0.1}, r"weight_decay.*at least 0.*got -0\.1"),
        ({"newborns": "warm"}, "'warm'"),
        ({"decay": "linear"}, "horizon"),
        ({"decay": "linear", "cover": Chosen((5,))}, "horizon"),
        ({"decay": "linear", "cover": Chosen((5, 9)), "horizon": 9}, "after the start of .* round 9, got horizon=9"),
    ],
)
def test_bad_options_are_named(changed, named):
    with pytest.raises(ValueError, match=named):
        Rays(**({"learning_rates": RATES, "cover": Watched()} | changed))


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="'Z'"):
        follow("Z", RATES)


ANY_COVER = [Anytime(4, levels=3), Geometric(64, shortest=8), Fixed(20), Chosen((10,))]


@pytest.mark.parametrize("cover", [*ANY_COVER, Watched(4, short=2)], ids=str)
def test_the_default_rule_takes_any_cover(cover):
    compare(follow("samuel", RATES, cover=cover), BASES["adagrad"], rounds=100)


@pytest.mark.parametrize("cover", ANY_COVER, ids=str)
@pytest.mark.parametrize("rule", ["K", "Kr"])
def test_a_takeover_is_left_out_where_there_is_no_long_block(rule, cover):
    assert follow(rule, cover=cover, horizon=100).takeover is None
    with pytest.raises(ValueError, match="takeover is for the long block"):
        follow(rule, cover=cover, horizon=100, takeover=0.5)
