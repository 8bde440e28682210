"""What studies can be told: every value is checked under its name, and comes back from JSON and from a command line."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel_lab.studies.catalogue import STUDIES, study_of
from samuel_lab.studies.settings import BadSetting, Settings, option, words

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Coffee(Settings):
    cups: int = option(1, "How many.", least=1, most=3)
    litres: float = option(0.2, "How much in each.", above=0)
    sizes: tuple[float, ...] = option((0.1, 0.2), "What there is.", least=0, most=1)
    milk: bool = option(False, "Whether there is milk.")
    bean: str = option("arabica", "The bean.", choices=("arabica", "robusta"))
    spoons: int | None = option(None, "Sugar, if any.", least=1)
    shelf: Path | None = option(None, "Where it stands.")


def refused(kind, **values):
    with pytest.raises(BadSetting) as caught:
        kind.read(values)
    return caught.value


def given_data(kind, **values):
    """Settings of a study, whose data exist where it needs some."""
    return kind.read({**({"data": str(HERE)} if kind.takes_data else {}), **values})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cups": "4"}, "cups must be a whole number from 1 to 3, got 4"),
        ({"cups": 0}, "cups must be a whole number from 1 to 3, got 0"),
        ({"cups": "1.5"}, "cups must be a whole number, got '1.5'"),
        ({"cups": 2.0}, "cups must be a whole number from 1 to 3, got 2.0"),
        ({"cups": True}, "cups must be a whole number from 1 to 3, got True"),
        ({"cups": None}, "cups must be a whole number from 1 to 3, got None"),
        ({"cups": "9" * 400}, "cups must be a whole number from 1 to 3, got 999"),
        ({"litres": "0"}, "litres must be a number above 0, got 0.0"),
        ({"litres": "much"}, "litres must be a number, got 'much'"),
        ({"litres": "nan"}, "litres must be a number above 0, got nan"),
        ({"litres": "inf"}, "litres must be a number above 0, got inf"),
        ({"sizes": "0.5,2"}, "sizes must be a number from 0 to 1, got 2.0"),
        ({"sizes": "0.5,x"}, "sizes must be a number, got 'x'"),
        ({"sizes": ""}, "sizes is empty: give at least one value"),
        ({"sizes": []}, "sizes is empty: give at least one value"),
        ({"sizes": 0.5}, "sizes must be a list of values, got 0.5"),
        ({"sizes": {"0.5": 1}}, "sizes must be a list of values, got {'0.5': 1}"),
        ({"milk": "perhaps"}, "milk must be yes or no, got 'perhaps'"),
        ({"milk": 1}, "milk must be yes or no, got 1"),
        ({"bean": "liberica"}, "bean must be one of arabica, robusta, got 'liberica'"),
        ({"bean": 3}, "bean must be one of arabica, robusta, got 3"),
        ({"spoons": "0"}, "spoons must be a whole number of at least 1, got 0"),
        ({"shelf": ""}, "shelf must be a path, got ''"),
        ({"shelf": 3}, "shelf must be a path, got 3"),
        ({"tea": 1}, "unknown setting 'tea'; choose from cups, litres, sizes, milk, bean, spoons, shelf"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(values, message):
    error = refused(Coffee, **values)
    assert str(error).startswith(message)
    assert [error.name] == list(values)


def test_words_become_values_of_their_type():
    told = {"cups": "2", "litres": "1", "sizes": " 0.5, 1 ", "milk": "yes", "spoons": "None", "shelf": "a/b"}
    assert Coffee.read(told) == Coffee(2, 1.0, (0.5, 1.0), milk=True, spoons=None, shelf=Path("a/b"))
    assert isinstance(Coffee.read({"litres": 1}).litres, float)
    assert [Coffee.read({"milk": word}).milk for word in ("on", "True", "1", "off", "No", "0")] == [True] * 3 + [
        False
    ] * 3


def test_only_what_was_given_differently_counts_as_changed():
    assert Coffee().changed() == {}
    assert Coffee(cups=2, litres=0.2, milk=True).changed() == {"cups": 2, "milk": True}


numbers = st.floats(1e-9, 1e9, allow_nan=False)
coffees = st.builds(
    Coffee,
    cups=st.integers(1, 3),
    litres=numbers,
    sizes=st.lists(st.floats(0, 1), min_size=1, max_size=4).map(tuple),
    milk=st.booleans(),
    bean=st.sampled_from(["arabica", "robusta"]),
    spoons=st.none() | st.integers(1, 10**12),
    shelf=st.none() | st.sampled_from([Path("a"), Path("/b c/d")]),
)


@given(coffees)
def test_settings_come_back_from_json_and_from_the_words_of_a_command_line(coffee):
    assert Coffee.read(json.loads(json.dumps(coffee.as_json()))) == coffee
    assert Coffee.read({entry.name: words(getattr(coffee, entry.name)) for entry in fields(coffee)}) == coffee


@pytest.mark.parametrize("kind", STUDIES.values(), ids=lambda kind: kind.name)
def test_the_settings_of_every_study_come_back_from_json(kind):
    study = given_data(kind, scale="0.5", first_seed="7", checkpoint_seconds="0.5", device="cpu", tensorboard="yes")
    assert study_of(kind.name, json.loads(json.dumps(study.as_json()))) == study
    assert set(study.as_json()) == {entry.name for entry in fields(kind)}
    told = {name: words(value) for name, value in study.changed().items()}
    assert given_data(kind, **told) == study


@pytest.mark.parametrize("kind", STUDIES.values(), ids=lambda kind: kind.name)
def test_every_setting_of_every_study_has_a_help_text_and_a_good_default(kind):
    given_data(kind)
    for entry in fields(kind):
        assert entry.metadata["help"].endswith("."), entry.name


@pytest.mark.parametrize("kind", STUDIES.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("name", "value"), [("seeds", "0"), ("scale", "2"), ("scale", "0"), ("device", "abacus"), ("batch", "none!")]
)
def test_every_study_refuses_a_bad_value_by_its_name(kind, name, value):
    with pytest.raises(BadSetting, match=value) as caught:
        given_data(kind, **{name: value})
    assert caught.value.name == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("study", "values", "name", "message"),
    [
        ("digits", {"methods": "samuel,adam/sine"}, "methods", "method 'adam/sine' has an unknown schedule"),
        ("digits", {"methods": "madam/cosine"}, "methods", "unknown method 'madam/cosine'"),
        ("digits", {"methods": "adam/cosine@-1"}, "methods", "'adam/cosine@-1' has no positive rate after the @"),
        ("digits", {"methods": "adam/cosine@1:2"}, "methods", "has 2 rates: a cosine schedule takes one"),
        ("digits", {"methods": "adam/step@1:2:3"}, "methods", "needs an offline study: this one has no transitions"),
        ("digits", {"shift": "768"}, "shift", "shift must be before the last of 768 rounds, got 768"),
        ("digits", {"rounds": "9" * 400}, "rounds", "rounds must be a whole number from 10 to"),
        ("digits", {"scale": "0.001"}, "scale", "scale 0.001 leaves 1 rounds before the shift"),
        ("digits", {"first": "1,2", "then": "3"}, "then", "as many classes as first, 2"),
        ("digits", {"first": "1,2", "then": "2,3"}, "then", "2 is in both"),
        ("digits", {"first": "1,1", "then": "2,3"}, "first", "first must have every class once, got 1, 1"),
        ("digits", {"windows": "50,10"}, "windows", "windows must be increasing, got (50, 10)"),
        ("digits", {"data": str(HERE)}, "data", "the study digits has its own, got"),
        ("shift", {}, "data", "data is missing: give CIFAR-10"),
        ("shift", {"data": "no/such/place"}, "data", "no/such/place does not exist; give CIFAR-10"),
        ("stability", {}, "data", "data is missing: give CIFAR-10"),
        ("digits-offline", {"transitions": "16,10"}, "transitions", "transitions must be increasing, got (16.0, 10.0)"),
        ("digits-offline", {"transitions": "10,20"}, "transitions", "before the end, epoch 20, got (10.0, 20.0)"),
        ("digits-offline", {"rates": "1,1"}, "rates", "rates must differ from each other, got (1.0, 1.0)"),
        ("digits-offline", {"methods": "adam/step@1:2"}, "methods", "needs 3 rates, one for each phase"),
        ("digits-offline", {"epochs": "1e308"}, "epochs", "epochs must be a number above 0 and at most"),
        ("stability", {"task": "digits-offline", "decays": "2,4"}, "decays", "decays must be of 1, 2, 3, 6, got 4"),
        ("stability", {"task": "digits-offline", "decays": "2,2"}, "decays", "must differ from each other, got (2, 2)"),
        ("stability", {"task": "sst2", "data": str(HERE)}, "task", "with base adagrad, got sst2"),
        ("compute", {"task": "digits-offline", "methods": "samuel"}, "methods", "this study has its own, got samuel"),
        ("compute", {"task": "digits"}, "task", "task must be one of cifar10, imagenet, sst2, digits-offline"),
    ],
)
def test_values_that_do_not_go_together_are_refused_by_name(study, values, name, message):
    error = refused(STUDIES[study], **values)
    assert message in str(error)
    assert error.name == name


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"samuel_base": "muon", "samuel_horizon": True}, "samuel_base, samuel_horizon"),
        ({"samuel_weight_decay": None}, "samuel_weight_decay"),
    ],
)
def test_the_options_of_a_run_made_with_another_drop_in_are_refused_with_the_reason(options, named):
    with pytest.raises(BadSetting, match=f"made by an older version.*{named}.*cannot be resumed"):
        study_of("digits", {"seeds": 1, **options})


def test_a_study_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(BadSetting, match=f"unknown study 'digit'; choose from {', '.join(STUDIES)}$"):
        study_of("digit", {})
