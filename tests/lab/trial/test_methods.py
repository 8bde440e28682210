"""Methods by name: what each is made of, against the paper's numbers. Hardly anything is compiled."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from samuel_lab.models import ConvNet, Task
from samuel_lab.studies.offline import DigitsOffline
from samuel_lab.studies.shift import Digits, Shift
from samuel_lab.trial import optimizers
from samuel_lab.trial.experiment import Experiment
from samuel_lab.trial.methods import DROP_INS, GROUPS, SAMUELS, Scheduled, _experts_base, expand, method, parse
from samuel_lab.trial.schedules import BASELINES

TASK = Task(ConvNet(classes=5, width=4), np.zeros((1, 8, 8, 1), np.float32), 5)


class Papers(Digits):
    """Settings with the paper's rates for the baselines."""

    baselines = BASELINES


ONLINE = Experiment(Papers(), TASK, Shift.rounds, phases=(Shift.rates,), shortest=Shift.shortest)
OFFLINE = Experiment(DigitsOffline(), TASK, 1000, phases=((0.1, 1.0),) * 3, transitions=(500, 800))

# At rounds 0, 1,000, 17,000 and 25,600 of the paper's online experiment, from its appendix.
PAPER = {
    "sgd/constant": (0.15, 0.15, 0.15, 0.15),
    "sgd/cosine": (0.3, 0.29887, 0.076065, 0),
    "sgd/warmup-cosine": (1e-5, 0.5, 0.13622, 0),
    "sgd/exponential": (0.6, 0.47622, 0.011812, 0.0016194),
    "adagrad/constant": (0.2, 0.2, 0.2, 0.2),
    "adagrad/cosine": (0.2, 0.19925, 0.05071, 0),
    "adagrad/warmup-cosine": (1e-5, 0.15, 0.040865, 0),
    "adagrad/exponential": (0.35, 0.2778, 0.0068902, 0.00094467),
    "adam/constant": (0.001, 0.001, 0.001, 0.001),
    "adam/cosine": (0.001, 0.00099624, 0.00025355, 0),
    "adam/warmup-cosine": (1e-5, 0.005, 0.0013622, 0),
    "adam/exponential": (0.005, 0.0039685, 9.8431e-5, 1.3495e-5),
}


def test_baselines_are_the_papers_twelve():
    assert sorted(expand(["baselines"])) == sorted(PAPER)


@pytest.mark.parametrize("name", PAPER)
def test_a_baselines_rate_is_the_papers_at_the_start_after_warm_up_at_the_shift_and_at_the_end(name):
    trainer = method(name, ONLINE)
    found = trainer.schedule[[0, 1000, 17_000, 25_600]].tolist()
    assert found == pytest.approx(PAPER[name], rel=5e-5, abs=1e-12)
    # A measurement after so many steps tells the rate that the last of them used.
    assert trainer.facts(None, 17_001)["rate"] == trainer.schedule[17_000]


def test_a_rate_in_the_name_takes_the_place_of_the_studys():
    digits = replace(ONLINE, settings=Digits(), steps=Digits.rounds, optimizers={})
    assert method("adam/cosine", digits).schedule[0] == pytest.approx(0.02)
    assert method("adam/cosine@0.003", digits).schedule[0] == pytest.approx(0.003)
    assert method("rmsprop/constant", digits).schedule[5] == optimizers.BASES["rmsprop"].rate


def test_a_step_schedule_has_a_rate_for_each_phase():
    schedule = method("adagrad/step@1:0.1:0.01", OFFLINE).schedule
    assert schedule[[0, 499, 500, 799, 800, 999]].tolist() == [1, 1, 0.1, 0.1, 0.01, 0.01]


def test_the_drop_ins_differ_in_base_and_in_what_they_are_given():
    abouts = {name: method(name, ONLINE).about for name in DROP_INS}
    both, one = "one learning rate for matrices and one for the rest", "the learning rate"
    given, unknown = (f"one gradient a step; {word} the number of steps" for word in ("given", "without"))
    assert abouts == {
        "samuel": f"SAMUEL over Muon: searches {both}, {given}; the last parameters.",
        "samuel+average": f"SAMUEL over Muon: searches {both}, {given}; the averaged parameters.",
        "samuel-untold": f"SAMUEL over Muon: searches {both}, {unknown}; the averaged parameters.",
        "samuel-adam": f"SAMUEL over Adam: searches {one}, {given}; the last parameters.",
    }
    assert len({method(name, ONLINE).label for name in DROP_INS}) == 4


@pytest.mark.parametrize(
    ("name", "averages"),
    [("samuel", False), ("samuel+average", True), ("samuel-untold", True), ("samuel-adam", False)],
)
def test_a_drop_in_is_evaluated_at_the_average_where_there_is_one(name, averages):
    trainer = method(name, replace(ONLINE, steps=100, optimizers={}))
    state = trainer.init(jax.random.key(0))
    assert (state.opt_state.average is not None) == averages


def test_samuel_full_has_forty_experts_in_the_online_experiment():
    trainer = method("samuel-full", ONLINE)
    assert (trainer.networks, trainer.gradients) == (40, 40)
    assert trainer.levels == (200, 400, 800, 1600, 3200, 6400, 12_800, None)
    assert trainer.rates == (0.05, 0.1, 0.25, 0.5, 1.0)


def test_samuel_linear_has_the_same_experts_and_one_gradient_a_step():
    full, linear = (method(name, ONLINE) for name in ("samuel-full", "samuel-linear"))
    assert (linear.levels, linear.rates) == (full.levels, full.rates)
    assert (linear.networks, linear.gradients) == (1, 1)


@pytest.mark.parametrize("name", DROP_INS)
def test_the_plan_has_the_levels_that_the_drop_in_keeps_weights_for(name):
    trainer = method(name, replace(ONLINE, steps=100, optimizers={}))
    facts = trainer.facts(trainer.init(jax.random.key(0)), 0)
    assert (len(trainer.levels), len(trainer.rates)) == np.shape(facts["weights"])
    assert trainer.rates[0] < facts["rate"] < trainer.rates[-1]


def test_the_offline_algorithm_has_an_expert_for_each_rate_and_history_decay():
    assert method("samuel-full", OFFLINE).networks == 2
    several = replace(OFFLINE, settings=DigitsOffline(etas=5), alphas=(0.9, 0.99, 1.0))
    trainer = method("samuel-full", several)
    assert trainer.networks == 6
    assert trainer.levels == (None,)


def test_offline_gains_beyond_1_count_as_1_and_online_their_bound_is_found_out():
    offline, online = (method("samuel-full", experiment).engine for experiment in (OFFLINE, ONLINE))
    assert (offline.bound, offline.clip) == (1.0, True)
    assert (online.bound, online.clip) == (0.0, False)


@pytest.mark.parametrize("name", ["samuel-full", "samuel-linear"])
def test_the_plan_says_which_adagrad_the_papers_experts_have(name):
    for choice, said in (("optax", "AdaGrad (0.1 added to its sum"), ("plain", "AdaGrad (0 added to its sum")):
        assert said in method(name, replace(ONLINE, settings=Papers(experts_adagrad=choice))).about


@pytest.mark.parametrize(("choice", "initial"), [("optax", 0.1), ("plain", 0.0)])
def test_the_adagrad_of_the_papers_experts_is_optaxs_or_begins_at_0(choice, initial):
    ours = _experts_base(Papers(experts_adagrad=choice))()
    optaxs = optax.scale_by_rss(initial, eps=1e-7 if initial else 0.0)
    params = {"w": np.zeros(3, np.float32)}
    mine, theirs = ours.init(params), optaxs.init(params)
    for gradient in ([0.3, -2.0, 0.001], [0.1, 1.0, -0.5]):
        gradients = {"w": np.array(gradient, np.float32)}
        (found, mine), (expected, theirs) = ours.update(gradients, mine), optaxs.update(gradients, theirs)
        np.testing.assert_allclose(found["w"], expected["w"], rtol=1e-6)


def test_the_search_trains_every_step_schedule():
    trainer = method("search", OFFLINE)
    assert trainer.schedules == tuple(itertools.product((0.1, 1.0), repeat=3))
    assert trainer.networks == 8
    assert [trainer.losses(step) for step in (1, 500, 501, 800, 801, 1000)] == [2, 2, 4, 4, 8, 8]
    assert [step for step in range(1000) if trainer.compiles_at(step)] == [0, 500, 800]


def test_methods_that_share_an_optimizer_share_its_compiled_step():
    short = replace(ONLINE, steps=100, optimizers={})
    trainers = [method(f"adam/{schedule}", short) for schedule in ("constant", "cosine", "exponential@0.1")]
    assert len({id(trainer._step) for trainer in trainers}) == 1
    assert trainers[0]._step is not method("sgd/constant", short)._step


@pytest.mark.parametrize("name", ["samuel", "samuel-linear", "samuel-full", "search", "adam/cosine", *GROUPS["peers"]])
@pytest.mark.parametrize("experiment", [ONLINE, OFFLINE], ids=["online", "offline"])
def test_every_method_says_what_it_is(name, experiment):
    found = method(name, experiment)
    assert found.name == name
    assert found.label
    assert found.about.endswith(".")
    group = {"adam/cosine": "baseline", "search": "search"}.get(name, "samuel" if name in SAMUELS else "peer")
    assert found.group == group


def test_names_say_base_schedule_and_rates():
    assert parse("adam/cosine") == Scheduled("adam", "cosine", ())
    assert parse("adagrad/step@1:0.1:0.01") == Scheduled("adagrad", "step", (1.0, 0.1, 0.01))
    assert parse("adamw/linear@1e+0+average") == Scheduled("adamw", "linear", (1.0,), averaged=True)
    assert parse("prodigy") is parse("search") is parse("search@0.1:1") is parse("samuel-full") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adam", "unknown method 'adam'; choose from samuel,"),
        ("", "unknown method ''"),
        ("sam/cosine", "with a base from .*adam"),
        ("adam/", "'adam/' has an unknown schedule: choose from constant,"),
        ("adam/step", "needs a rate for each phase, such as adam/step@1:0.1:0.01"),
        ("adam/cosine@", "has no positive rate after the @"),
        ("adam/cosine@inf", "has no positive rate after the @"),
        ("adam/cosine@nan", "has no positive rate after the @"),
        ("adam/cosine@0.1:0.2", "has 2 rates: a cosine schedule takes one"),
        ("search@", "'search@' has no positive rate after the @"),
        ("search@0.1:0.1", "'search@0.1:0.1' names a rate twice"),
        ("searches", "unknown method 'searches'"),
        ("adam/cosine+mean", "'adam/cosine\\+mean' has an unknown schedule"),
        ("prodigy+average", "unknown method 'prodigy\\+average'"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_what_would(name, message):
    with pytest.raises(ValueError, match=message):
        parse(name)


def test_a_method_named_twice_is_trained_once():
    assert expand(["adam/cosine", "baselines", "samuel", "samuel"]).count("adam/cosine") == 1
    assert len(expand(["baselines", "samuel", "samuel"])) == 13
