"""On several processes the optimizer does what it does on one, and its checkpoints go on where they were taken."""

import signal
from functools import cache

import numpy as np
import pytest

from tests.torch.processes import run_ranks
from tests.torch.workers import ranks
from tests.torch.workers.ranks import (
    CLIP,
    FLIP,
    FORMS,
    LONG_RUNS,
    MESHES,
    SAVED,
    SHORT,
    SHORT_FLIP,
    SHORT_RUNS,
    STEPS,
    Training,
)

SPREADS = ("replicated", "sharded")
IN_DOUBLE = [name for name, options in SHORT_RUNS.items() if "dtype" not in options]

pytestmark = [
    pytest.mark.xdist_group("distributed"),
    # Torch says so of every checkpoint that is saved or loaded by a process alone.
    pytest.mark.filterwarnings("ignore:torch.distributed is .*unavailable or uninitialized:UserWarning"),
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """What came of all jobs, for each of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    done = {job.__name__: run_ranks(job, 2, folder / job.__name__, folder) for job in (ranks.train, ranks.die)}
    Training(SHORT_RUNS["adam"], flip=SHORT_FLIP).run(0, SAVED).save(folder / "one process", "sharded")
    return done | {"resume": run_ranks(ranks.resume, 2, folder / "resume", folder), "folder": folder}


def of_ranks(jobs, job, name):
    """What a run gave on each rank."""
    return [found[name] for found in jobs[job]]


@cache
def on_one_process(name):
    return Training(LONG_RUNS[name]).run(0, STEPS).facts()


@cache
def short_on_one_process(name):
    return Training(SHORT_RUNS[name], flip=SHORT_FLIP).run(0, SHORT).facts()


def assert_same_steps(found):
    """To the bit: otherwise replicas would drift apart, and shards no longer be of one network."""
    first, second = found
    for what in ("parameters", "weights", "rates", "shifted", "averaged", "tests"):
        assert first[what] == second[what], what


def assert_close(found, expected, bound, since=0):
    """The same parameters and weights in the end, and the same rates and restarts on the way."""
    for one, other in zip(found["parameters"], expected["parameters"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)
    for one, other in zip(found["averaged"], expected["averaged"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)
    for one, other in zip(found["weights"], expected["weights"], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)
    np.testing.assert_allclose(found["rates"], expected["rates"][since:], rtol=bound)
    assert found["shifted"] == [step for step in expected["shifted"] if step >= since]


def assert_goes_on(found, unbroken):
    """The rest of a run, to the bit: also all that this process holds of the optimizer's state."""
    for what in ("parameters", "weights", "averaged", "state"):
        assert found[what] == unbroken[what], what
    for what in ("rates", "losses"):
        assert found[what] == unbroken[what][SAVED:], what


# Training


@pytest.mark.parametrize("name", LONG_RUNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_all_ranks_take_the_same_steps(jobs, spread, name):
    assert_same_steps(of_ranks(jobs, "train", f"{spread}: {name}"))


@pytest.mark.parametrize("name", LONG_RUNS)
@pytest.mark.parametrize("spread", SPREADS)
def test_two_processes_with_half_the_batch_each_end_where_one_does(jobs, spread, name):
    for found in of_ranks(jobs, "train", f"{spread}: {name}"):
        assert_close(found, on_one_process(name), 1e-5)


@pytest.mark.parametrize("name", LONG_RUNS)
def test_the_runs_restart_after_the_targets_have_flipped(name):
    """Otherwise what is said about them here would be said of the easy part only."""
    assert any(step > FLIP for step in on_one_process(name)["shifted"])


def test_some_shards_are_larger_than_others_and_some_are_empty(jobs):
    """That is the hard part: a rank without a part of a parameter still has a say in the decision."""
    first, second = (found["sizes"] for found in of_ranks(jobs, "train", "sharded: adam"))
    assert first == [20, 4, 14, 2, 3, 1]
    assert second == [15, 3, 7, 1, 0, 0]


@pytest.mark.parametrize("name", SHORT_RUNS)
def test_the_state_of_a_sharded_parameter_is_sharded_like_it(jobs, name):
    for found in of_ranks(jobs, "train", f"saved: {name}"):
        assert found["misplaced"] == []


@pytest.mark.parametrize("spread", SPREADS)
def test_gradients_accumulated_without_synchronising_and_clipped_are_those_of_the_whole_batch(jobs, spread):
    whole = Training(SHORT_RUNS["adam"], flip=SHORT_FLIP, clip=CLIP).run(0, SHORT).facts()
    accumulated = of_ranks(jobs, "train", f"{spread}: accumulated")
    assert_same_steps(accumulated)
    assert_close(accumulated[0], whole, 1e-5)
    assert whole["parameters"] != short_on_one_process("adam")["parameters"]  # some were clipped


@pytest.mark.parametrize("spread", MESHES)
def test_parameters_of_which_some_are_spread_end_where_one_process_does(jobs, spread):
    """What replicas hold counts once, and what shards hold is summed."""
    found = of_ranks(jobs, "train", spread)
    assert_same_steps(found)
    assert_close(found[0], short_on_one_process("adam"), 1e-5)


@pytest.mark.parametrize("spread", SPREADS)
def test_the_averaged_parameters_can_be_tested_at_any_time_and_training_does_not_notice(jobs, spread):
    """FSDP keeps some parameters gathered after a test, and must not train with them, nor test with those before."""
    tested = of_ranks(jobs, "train", f"{spread}: tested")
    assert_same_steps(tested)
    whole = Training(SHORT_RUNS["adam"], flip=SHORT_FLIP, tested=True).run(0, SHORT).facts()
    assert_close(tested[0], whole, 1e-5)
    np.testing.assert_allclose(tested[0]["tests"], whole["tests"], rtol=0, atol=1e-5)
    untested = short_on_one_process("adam")
    assert whole["parameters"] == untested["parameters"]
    assert whole["averaged"] == untested["averaged"]
    assert whole["averaged"][:-2] != whole["parameters"]


def test_split_parameters_whose_network_is_not_known_are_refused(jobs):
    for found in of_ranks(jobs, "train", "not known"):
        assert "pass the model instead of its parameters, which averaged() needs" in found["said"]


@pytest.mark.parametrize("name", IN_DOUBLE)
def test_short_sharded_runs_end_where_one_process_does(jobs, name):
    found = of_ranks(jobs, "train", f"saved: {name}")
    assert_same_steps(found)
    assert_close(found[0], short_on_one_process(name), 1e-5)


def test_sharded_parameters_of_16_bits_learn(jobs):
    """Half the batch and the whole one round differently in 16 bits, so ranks are compared with each other only."""
    found = of_ranks(jobs, "train", "saved: 16-bit parameters")
    assert_same_steps(found)
    before, after = (np.mean([facts["losses"][step] for facts in found]) for step in (0, SHORT_FLIP - 1))
    assert after < 0.5 * before


# Checkpoints


@pytest.mark.parametrize("name", SHORT_RUNS)
@pytest.mark.parametrize("form", FORMS)
def test_a_sharded_run_resumes_in_other_processes_to_the_bit(jobs, form, name):
    resumed, unbroken = of_ranks(jobs, "resume", f"{form}: {name}"), of_ranks(jobs, "train", f"saved: {name}")
    for one, other in zip(resumed, unbroken, strict=True):
        assert_goes_on(one, other)


def test_a_checkpoint_that_only_the_first_rank_reads_resumes_to_the_bit(jobs):
    resumed, unbroken = of_ranks(jobs, "resume", "from the first: adam"), of_ranks(jobs, "train", "saved: adam")
    for one, other in zip(resumed, unbroken, strict=True):
        assert_goes_on(one, other)


@pytest.mark.parametrize("name", IN_DOUBLE)
@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_of_two_ranks_resumes_on_one_process(jobs, form, name):
    resumed = ranks.go_on(SHORT_RUNS[name], jobs["folder"] / name / form, form, spread="whole")
    assert_close(resumed, of_ranks(jobs, "train", f"saved: {name}")[0], 1e-6, since=SAVED)


def test_a_checkpoint_of_one_process_resumes_on_two_ranks(jobs):
    resumed = of_ranks(jobs, "resume", "one process")
    assert_same_steps(resumed)
    assert_close(resumed[0], short_on_one_process("adam"), 1e-6, since=SAVED)


def test_a_run_whose_rank_was_killed_resumes_and_ends_where_the_unbroken_one_does(jobs):
    survivor, killed = jobs["die"]
    assert killed == signal.SIGKILL
    assert "gloo" in survivor  # it cannot train without the other
    resumed, unbroken = of_ranks(jobs, "resume", "killed"), of_ranks(jobs, "train", "never saved")
    for one, other in zip(resumed, unbroken, strict=True):
        assert_goes_on(one, other)


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_from_before_the_first_step_resumes_to_the_bit(tmp_path, form):
    """To have something to save, torch makes such an optimizer take a step without gradients, at a rate of 0."""
    unbroken = Training(SHORT_RUNS["adam"])
    unbroken.save(tmp_path / "start", form)
    resumed = Training(SHORT_RUNS["adam"], seed=1)
    resumed.load(tmp_path / "start", form)
    expected = unbroken.run(0, 30).facts()
    assert resumed.run(0, 30).facts() == expected
    assert expected["losses"][-1] < 0.5 * expected["losses"][0]
