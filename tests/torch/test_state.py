"""All that matters is in the state: a run can be saved, loaded, copied, moved and taken apart at any step of it."""

import copy
import gc
import io
import pickle

import numpy as np
import pytest
import torch

from samuel.core.rate_search import RateSearch
from tests.torch.configurations import (
    CLASSES,
    CONFIGURATIONS,
    VARIANTS,
    all_parameters,
    assert_close,
    assert_equal,
    assert_same_snapshot,
    feed,
    parameters,
    rates,
    samuel,
    snapshot,
    train,
    values,
)


class Coarse(torch.optim.Optimizer):
    """A home-made optimizer that keeps its memory in 16 bits."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    memory = self.state[p].setdefault("memory", torch.zeros_like(p, dtype=torch.bfloat16))
                    memory.mul_(0.9).add_(p.grad.bfloat16())
                    p.sub_(group["lr"] * memory)


class Counting(torch.optim.Optimizer):
    """A home-made optimizer, the state of which is a number of Python's and a tensor that it makes anew each time."""

    def __init__(self, params, lr=1e-3, beta=0.7):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    state["count"] = state.get("count", 0) + 1
                    state["mean"] = group["beta"] * state.get("mean", 0.0) + p.grad
                    p.sub_(group["lr"] * state["mean"] / state["count"] ** 0.5)


MATRICES = ((7, 5), (3, 4))
RUNS = {
    **{name: {"options": options} for name, options in CONFIGURATIONS.items()},
    **{
        name: {"options": {"base": base}, "shapes": MATRICES}
        for name, base in {**CLASSES, **VARIANTS, "home-made": Counting, "coarse": Coarse}.items()
    },
    "state of 16 bits": {"options": {**CONFIGURATIONS["muon-untold"], "state_dtype": torch.bfloat16}},
    "16 bits": {"options": CONFIGURATIONS["adam-untold"], "dtype": torch.bfloat16},
    "64 bits": {"options": CONFIGURATIONS["muon-untold"], "dtype": torch.float64},
    "complex": {"options": CONFIGURATIONS["adam-untold"], "dtype": torch.complex64},
    "tensor lr": {"options": {**CONFIGURATIONS["adam-untold"], "lr": torch.tensor(0.5), "weight_decay": 0.1}},
}
"""What is saved and loaded: options of the optimizer, and what its parameters are."""


def begin(run, seed=0):
    """Parameters and optimizer before the first step."""
    params = parameters(run.get("shapes", ((7, 5), (5,), ())), run.get("dtype", torch.float32), seed)
    return params, samuel(params, **copy.deepcopy(run["options"]))


def averaged(params, optimizer):
    """The parameters to use."""
    with optimizer.averaged():
        return values(params)


def saved(params, optimizer):
    """A checkpoint, as a file would hold it."""
    file = io.BytesIO()
    torch.save({"params": values(params), "optimizer": optimizer.state_dict()}, file)
    return file.getvalue()


def resumed(checkpoint, params, optimizer):
    """Load a checkpoint as people do who do not trust it."""
    found = torch.load(io.BytesIO(checkpoint), weights_only=True)
    with torch.no_grad():
        for p, value in zip(params, found["params"], strict=True):
            p.copy_(value)
    optimizer.load_state_dict(found["optimizer"])


@pytest.mark.filterwarnings("ignore:averaged.. changes nothing")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_saved_and_loaded_goes_on_to_the_bit(name):
    run, later = RUNS[name], 10
    params, optimizer = begin(run)
    path, averages, checkpoints = [values(params)], [averaged(params, optimizer)], {0: saved(params, optimizer)}
    for step in range(54):
        train(optimizer, params, [step])
        path.append(values(params))
        averages.append(averaged(params, optimizer))
        done = step + 1
        if done in (1, 17, 44):
            checkpoints[done] = saved(params, optimizer)
    for done, checkpoint in checkpoints.items():
        fresh, again = begin(run, seed=1)
        resumed(checkpoint, fresh, again)
        assert_equal(values(fresh), path[done])
        assert_equal(averaged(fresh, again), averages[done])
        train(again, fresh, range(done, done + later))
        assert_equal(values(fresh), path[done + later])
        assert_equal(averaged(fresh, again), averages[done + later])


@pytest.mark.parametrize("name", ["adam-untold", "16 bits", "home-made", "muon-told"])
def test_loading_into_a_run_leaves_nothing_of_it(name):
    params, optimizer = begin(RUNS[name])
    start = saved(params, optimizer)
    train(optimizer, params, range(20))
    checkpoint = saved(params, optimizer)
    train(optimizer, params, range(20, 30))
    expected = values(params)

    other, busy = begin(RUNS[name], seed=1)
    train(busy, other, range(13))
    resumed(checkpoint, other, busy)
    train(busy, other, range(20, 30))
    assert_equal(values(other), expected)

    resumed(start, other, busy)  # a state in which there is nothing yet
    train(busy, other, range(20))
    assert_equal(values(other), torch.load(io.BytesIO(checkpoint), weights_only=True)["params"])


@pytest.mark.parametrize("name", ["adam-untold", "16 bits", "complex", "home-made", "Rprop"])
def test_what_was_loaded_is_copied(name):
    params, optimizer = begin(RUNS[name])
    train(optimizer, params, range(20))
    before, given = snapshot(optimizer), optimizer.state_dict()
    other, again = begin(RUNS[name], seed=1)
    with torch.no_grad():
        for p, q in zip(other, params, strict=True):
            p.copy_(q)
    again.load_state_dict(given)
    train(again, other, range(20, 30))  # does not touch what it was given
    assert_same_snapshot(before, snapshot(optimizer))
    expected = values(other)

    third, late = begin(RUNS[name], seed=1)
    with torch.no_grad():
        for p, q in zip(third, params, strict=True):
            p.copy_(q)
    late.load_state_dict(given)
    train(optimizer, params, range(20, 30))  # nor does it hear of what happens to that later
    train(late, third, range(20, 30))
    assert_equal(values(third), expected)


def test_a_checkpoint_is_no_larger_than_the_state():
    params = parameters(((64, 64), (64, 64)))
    optimizer = samuel(params)
    train(optimizer, params, range(3))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    assert len(file.getvalue()) < held(optimizer) + 60_000


def test_parameters_that_had_no_gradient_yet_are_loaded_too():
    params, optimizer = begin(RUNS["adam-untold"])
    train(optimizer, params[:2], range(20))
    fresh, again = begin(RUNS["adam-untold"], seed=1)
    resumed(saved(params, optimizer), fresh, again)
    for one, some in ((optimizer, params), (again, fresh)):
        train(one, some[:2], range(20, 25))
        train(one, some, range(25, 40))
    assert_equal(values(fresh), values(params))


def test_options_of_groups_come_with_the_state_as_in_torch():
    params, optimizer = begin(RUNS["adam-untold"])
    optimizer.param_groups[0] |= {"lr": 0.25, "betas": (0.5, 0.6), "weight_decay": 0.3}
    train(optimizer, params, range(5))
    fresh, again = begin(RUNS["adam-untold"])
    resumed(saved(params, optimizer), fresh, again)
    assert again.param_groups[0]["lr"] == 0.25
    assert again.param_groups[0]["betas"] == (0.5, 0.6)
    train(optimizer, params, range(5, 10))
    train(again, fresh, range(5, 10))
    assert_equal(values(fresh), values(params))


# Other devices and dtypes


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["adam-untold", "muon-untold", "RMSprop", "Rprop", "Muon"])
def test_a_state_can_be_loaded_for_parameters_of_another_dtype(name, dtype):
    if name not in RUNS:
        pytest.skip(f"this torch has no {name}")
    params, optimizer = begin(RUNS[name])
    train(optimizer, params, range(20))
    wide = {**RUNS[name]["options"], "state_dtype": torch.promote_types(dtype, torch.float32)}
    other, again = begin({**RUNS[name], "dtype": dtype, "options": wide})
    resumed(saved(params, optimizer), other, again)
    for p, q in zip(params, other, strict=True):
        vectors = {entry: value for entry, value in again.state[q].items() if entry in ("sum", "lag", "average")}
        assert vectors
        for entry, value in vectors.items():  # 16 bits would be too few
            assert_equal([value], [optimizer.state[p][entry]])
    feed([again, optimizer], range(20, 35))  # gradients of the dtype that both can hold, or nearly
    rounding = 4 * torch.finfo(dtype).eps if dtype != torch.float64 else 1e-5
    assert_close([q.float() for q in other], values(params), atol=rounding)
    assert rates(again) == pytest.approx(rates(optimizer), rel=1e-3)


@pytest.mark.parametrize("name", ["adam-untold", "home-made", "Adafactor", "Rprop"])
def test_a_model_can_change_its_dtype_in_mid_run(name):
    params, optimizer = begin(RUNS[name])
    other, again = begin(RUNS[name])
    train(optimizer, params, range(20))
    train(again, other, range(20))
    for p in other:
        p.data = p.data.double()  # as Module.double does it
        p.grad = None
    feed([optimizer, again], range(20, 35))
    assert {p.dtype for p in other} == {torch.float64}
    vectors = {v.dtype for p in other for entry, v in again.state[p].items() if entry in ("sum", "lag", "average")}
    assert vectors == {torch.float64}
    assert_close([p.float() for p in other], values(params))


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


@pytest.mark.parametrize("assign", [False, True])
def test_a_model_that_is_built_without_memory_takes_over_a_run(assign, tmp_path):
    model = network()
    optimizer = samuel(model.parameters(), **CONFIGURATIONS["adam-untold"])
    train(optimizer, list(model.parameters()), range(20))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    found = torch.load(tmp_path / "checkpoint.pt", weights_only=True, mmap=True)
    with torch.device("meta"):
        empty = network()
    if not assign:
        empty.to_empty(device="cpu")
    empty.load_state_dict(found["model"], assign=assign)
    again = samuel(empty.parameters(), **CONFIGURATIONS["adam-untold"])
    again.load_state_dict(found["optimizer"])
    train(optimizer, list(model.parameters()), range(20, 30))
    train(again, list(empty.parameters()), range(20, 30))
    assert_equal(values(empty.parameters()), values(model.parameters()))


# Hooks


def test_hooks_see_what_is_loaded_and_may_change_it():
    params, optimizer = begin(RUNS["16 bits"])
    train(optimizer, params, range(5))
    checkpoint = optimizer.state_dict()
    fresh, again = begin(RUNS["16 bits"])
    seen = []

    def halve(optimizer, state_dict):
        seen.append("before")
        groups = [{**group, "lr": group["lr"] / 2} for group in state_dict["param_groups"]]
        return {**state_dict, "param_groups": groups}

    def look(optimizer):
        entries = optimizer.state[fresh[0]]
        seen.append([entries[name].dtype for name in ("sum", "lag", "offset", "exp_avg", "exp_avg_sq")])

    again.register_load_state_dict_pre_hook(halve)
    again.register_load_state_dict_post_hook(look)
    again.load_state_dict(checkpoint)
    assert seen == ["before", [torch.bfloat16] * 4 + [torch.float32]]
    assert again.param_groups[0]["lr"] == 0.5
    assert checkpoint["param_groups"][0]["lr"] == 1.0
    train(again, fresh, range(5, 7))
    again.load_state_dict(checkpoint)
    assert len(seen) == 4


# Refusing what belongs to something else


def state_of_adam(params):
    optimizer = torch.optim.Adam(params)
    train(optimizer, params, range(2))
    return optimizer


SHAPES = ((7, 5), (5,), ())
FOREIGN = {
    "another optimizer": (state_of_adam, "is of another optimizer"),
    "an optimizer that has not begun": (torch.optim.Adam, "is of another optimizer"),
    "SGD as base": (lambda params: samuel(params, "sgd"), "has base='sgd', and this optimizer base='adam'"),
    "RMSprop as base": (lambda params: samuel(params, torch.optim.RMSprop), "has base='RMSprop'"),
    "Muon as base": (lambda params: samuel(params), "has base='muon'"),
    "no average": (lambda params: samuel(params, "adam", average=False), "has average=False"),
    "another clip": (lambda params: samuel(params, "adam", clip=1.0), "has clip=1.0, and this optimizer clip=None"),
    "other shifts": (lambda params: samuel(params, "adam", on_shift="ignore"), "has on_shift='ignore'"),
    "other steps": (lambda params: samuel(params, "adam", steps=9, average=True), "steps=9, .* extend"),
    "other rates": (lambda params: samuel(params, "adam", (0.1, 1.0)), r"search .* learning_rates=\[0.1, 1.0\]"),
    "another search": (lambda params: samuel(params, "adam", search=RateSearch(Q=3)), "search .* has lag=0.67"),
    "other roles": (lambda params: samuel([{"params": params[:1], "role": "matrix"}, {"params": params[1:]}], "adam"),
                    "a group of role 'matrix' where this optimizer has 'table'"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_the_state_of_something_else_is_refused_before_anything_changes(name):
    build, message = FOREIGN[name]
    params = parameters(SHAPES)
    theirs = build(params)
    if not isinstance(theirs, torch.optim.Adam):
        train(theirs, params, range(2))
    given = copy.deepcopy(theirs.state_dict())
    ours = parameters(SHAPES)
    optimizer = samuel(ours, "adam")
    train(optimizer, ours, range(5))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(given)
    assert_same_snapshot(before, snapshot(optimizer))
    train(optimizer, ours, range(5, 10))
    undisturbed = parameters(SHAPES)
    train(samuel(undisturbed, "adam"), undisturbed, range(10))
    assert_equal(values(ours), values(undisturbed))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((5, 7), (5,), ()), "where this optimizer has 'table'"),
        (((7, 5), (5,)), "doesn't match the size"),
        (((7,), (5,), ()), "where this optimizer has 'table'|doesn't match"),
    ],
    ids=["shape", "number", "dimensions"],
)
def test_the_state_of_other_parameters_is_refused_before_anything_changes(shapes, message):
    params = parameters(shapes)
    theirs = samuel(params, "adam")
    train(theirs, params, range(2))
    ours = parameters(SHAPES)
    optimizer = samuel(ours, "adam")
    train(optimizer, ours, range(5))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(theirs.state_dict())
    assert_same_snapshot(before, snapshot(optimizer))


# Copies


def by_pickle(what):
    return pickle.loads(pickle.dumps(what))


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("name", ["adam-untold", "16 bits", "complex", "home-made", "muon-untold"])
def test_a_copy_of_model_and_optimizer_goes_on_alike_and_by_itself(name, copied):
    params, optimizer = begin(RUNS[name])
    train(optimizer, params, range(20))
    theirs, twin = copied((params, optimizer))
    assert {id(p) for p in theirs} == {id(p) for p in all_parameters(twin)}
    before, of_twin = snapshot(optimizer), snapshot(twin)
    train(twin, theirs, range(20, 40))
    assert_same_snapshot(before, snapshot(optimizer))
    train(optimizer, params, range(20, 40))
    assert_equal(values(theirs), values(params))
    assert_same_snapshot(snapshot(optimizer), snapshot(twin))
    assert_same_snapshot(before, of_twin)


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle], ids=["deepcopy", "pickle"])
def test_a_copy_before_the_first_step_is_one_too(copied):
    params, optimizer = begin(RUNS["adam-untold"])
    theirs, twin = copied((params, optimizer))
    train(optimizer, params, range(10))
    train(twin, theirs, range(10))
    assert_equal(values(theirs), values(params))


# State in other hands


def new_dicts(optimizer):
    for p, entries in list(optimizer.state.items()):
        optimizer.state[p] = {
            name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in entries.items()
        }


def new_entries(optimizer):
    for entries in optimizer.state.values():
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                entries[name] = value.clone()


@pytest.mark.parametrize("replace", [new_dicts, new_entries])
@pytest.mark.parametrize("name", ["adam-untold", "16 bits", "complex", "home-made", "muon-untold"])
def test_a_trainer_may_replace_the_state_in_mid_run(name, replace):
    params, optimizer = begin(RUNS[name])
    usual, undisturbed = begin(RUNS[name])
    for step in range(40):
        train(optimizer, params, [step])
        train(undisturbed, usual, [step])
        if step % 7 == 6:
            replace(optimizer)
    assert_equal(values(params), values(usual))
    assert_same_snapshot(snapshot(undisturbed), snapshot(optimizer))


def test_what_a_trainer_writes_into_the_state_counts():
    params, optimizer = begin(RUNS["adam-untold"])
    train(optimizer, params, range(10))
    moved = optimizer.state[params[0]]["exp_avg"]
    with torch.no_grad():
        moved.zero_()
    usual, other = begin(RUNS["adam-untold"])
    train(other, usual, range(10))
    train(optimizer, params, [10])
    train(other, usual, [10])
    assert not torch.equal(params[0], usual[0])
    assert_equal(values(params[1:]), values(usual[1:]))


# Memory


def storages(optimizer, prefix=""):
    """The bytes of everything in the state whose name begins like this, by the memory it lies in."""
    found = {}
    for entries in optimizer.state.values():
        for name, value in entries.items():
            if name.startswith(prefix) and isinstance(value, torch.Tensor):
                memory = value.untyped_storage()
                found[memory.data_ptr()] = memory.nbytes()
    return found


def held(optimizer, prefix=""):
    return sum(storages(optimizer, prefix).values())


COPIES = {
    # dtype of the parameters, of the state, with steps=: copies in float32 for matrices and tables, limit
    "float32, steps given": (torch.float32, None, True, 3, 4, 3.6),
    "float32, steps not given": (torch.float32, None, False, 4, 5, 4.6),
    "float32, state in bfloat16, steps given": (torch.float32, torch.bfloat16, True, 2, 3, 2.6),
    "float32, state in bfloat16, steps not given": (torch.float32, torch.bfloat16, False, 2.5, 3.5, 3.1),
    "bfloat16, steps given": (torch.bfloat16, None, True, 2, 3, 2.6),
    "bfloat16, steps not given": (torch.bfloat16, None, False, 2.5, 3.5, 3.1),
}


@pytest.mark.parametrize("name", COPIES)
def test_the_state_has_as_many_copies_of_the_parameters_as_documented(name):
    """Of a network with the proportions of a GPT of 163 million parameters: 53 % in matrices, the rest in tables."""
    dtype, narrow, given, of_matrix, of_table, limit = COPIES[name]
    matrix, table = parameters(((53, 1000), (47, 1000)), dtype)
    groups = [{"params": [matrix], "role": "matrix"}, {"params": [table], "role": "table"}]
    optimizer = samuel(groups, steps=100 if given else None, state_dtype=narrow)
    train(optimizer, [matrix, table], range(3))
    for p, copies in ((matrix, of_matrix), (table, of_table)):
        entries = [x for x in optimizer.state[p].values() if x.shape == p.shape]
        assert sum(x.untyped_storage().nbytes() for x in entries) == copies * 4 * p.numel()
    assert held(optimizer) <= limit * 4 * (matrix.numel() + table.numel())


def test_a_step_allocates_no_copies_that_stay():
    """Also where the average is stored as an offset."""
    params = parameters(((64, 64), (4096,)), torch.bfloat16)
    optimizer = samuel(params, "adam")
    train(optimizer, params, range(3))
    before = held(optimizer)
    with optimizer.averaged():
        pass
    train(optimizer, params, range(3, 6))
    assert held(optimizer) == before


@pytest.mark.parametrize("name", ["adam-untold", "home-made", "16 bits", "muon-untold"])
def test_no_memory_is_lost_over_the_steps(name):
    params, optimizer = begin(RUNS[name])

    def alive():
        gc.collect()
        things = gc.get_objects()
        return np.array([len(things), sum(issubclass(type(thing), torch.Tensor) for thing in things)])

    train(optimizer, params, range(40))  # blocks have ended, everything is in place
    memory, counts = storages(optimizer, "sum"), [alive()]
    for start in (40, 100, 160):
        train(optimizer, params, range(start, start + 60))
        counts.append(alive())
    # Other libraries in the process make things of their own at any time; a leak shows in every window.
    things, tensors = np.diff(counts, axis=0).min(axis=0)
    assert tensors <= 0
    assert things < 30  # half of what one thing a step would be
    assert storages(optimizer, "sum") == memory


# The same again


@pytest.mark.parametrize("name", RUNS)
def test_two_runs_are_the_same_to_the_bit(name):
    (params, one), (others, other) = begin(RUNS[name]), begin(RUNS[name])
    train(one, params, range(30))
    train(other, others, range(30))
    assert_equal(values(others), values(params))
    assert_same_snapshot(snapshot(one), snapshot(other))


BROKEN = {
    "a vector of another shape": (lambda entries: entries.update({"lag": torch.zeros(3)}), "'lag' of shape"),
    "an average of another shape": (lambda entries: entries.update({"average": torch.zeros(3)}), "'average' of shape"),
    "the base's of another shape": (lambda entries: entries.update({"exp_avg": torch.zeros(3)}), "'exp_avg' of shape"),
    "a vector that is missing": (lambda entries: entries.pop("sum"), "has no 'sum'"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_state_is_refused_before_anything_changes(name):
    broken, message = BROKEN[name]
    params = parameters(SHAPES)
    optimizer = samuel(params, "adam")
    train(optimizer, params, range(5))
    state = copy.deepcopy(optimizer.state_dict())
    broken(state["state"][0])
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(state)
    assert_same_snapshot(before, snapshot(optimizer))
