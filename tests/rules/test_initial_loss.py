"""LOS009, and what LOS006 says of the same numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

CODE = "LOS009"
TEN = {"num_classes": "10"}
FEW = settings(max_examples=draws(60), deadline=None)


def unlearnt(first, classes=10, *, n=200, pace=2.0, end=0.3):
    """A loss that begins high, and is soon what it would have been."""
    rng = np.random.default_rng(0)
    return (math.log(classes) * end + first * np.exp(-np.arange(n) / pace)) * (1 + 0.02 * rng.standard_normal(n))


def with_head(make, losses, *, head=10, accuracy=True, params=None):
    shapes = {"0.weight": (48, 20), "0.bias": (48,), "fc.weight": (head, 48), "fc.bias": (head,)}
    more = [make.series(np.linspace(0.1, 0.8, 20), role="val_accuracy")] if accuracy else []
    return make.evidence(losses, *more, params=params, weights=make.weights(shapes))


def test_worked_example(make, judge):
    """Ten classes: guessing costs 2.303. A start of 11.5 is five times that, and 1.9 is below it soon."""
    losses = [11.5, 2.6, *[1.9] * 20]
    result = judge(CODE, make.evidence(losses, params=TEN))
    assert (result.verdict, result.steps) == ("warn", (0,))
    assert result.message == "the loss begins at 11.5, 4.99 times that of guessing among 10 answers"


@pytest.mark.parametrize(("classes", "first"), [(2, 14.0), (10, 31.0), (1000, 90.0), (50257, 120.0)])
def test_unscaled_inputs(classes, first, make, judge):
    result = judge(CODE, make.evidence(unlearnt(first, classes), params={"vocab_size": str(classes)}))
    assert result.verdict == "warn"


@pytest.mark.parametrize(("classes", "first"), [(2, 0.75), (10, 2.35), (10, 3.9), (1000, 7.2), (50257, 11.2)])
def test_an_untrained_model_is_about_as_good_as_guessing(classes, first, make, judge):
    losses = first * np.exp(-np.arange(100) / 30)
    assert judge(CODE, make.evidence(losses, params={"vocab_size": str(classes)})).verdict == "pass"


def test_the_last_layer_tells_the_classes(make, judge):
    assert judge(CODE, with_head(make, unlearnt(20.0))).verdict == "warn"
    assert judge(CODE, with_head(make, unlearnt(2.0))).verdict == "pass"
    assert judge(CODE, with_head(make, unlearnt(20.0), head=1)).verdict == "SkippedProbe"


def test_what_is_no_cross_entropy_among_the_classes(make, judge):
    """A detector's sum comes down gradually, and not below guessing; from thirty times on that is no excuse."""
    losses = 6.0 + 32.0 * np.exp(-np.arange(300) / 60)
    assert judge(CODE, make.evidence(losses, params={"num_classes": "91"})).verdict == "pass"
    assert judge(CODE, make.evidence(losses * 10, params={"num_classes": "91"})).verdict == "warn"
    accuracy = make.series([0.1, 0.2, 0.3], role="train_accuracy")
    assert judge(CODE, make.evidence(losses, accuracy, params={"num_classes": "91"})).verdict == "warn"


@pytest.mark.parametrize("params", [{}, {"num_classes": "1"}, {"num_classes": "x"}, {"vocab_size": "inf"}])
def test_without_a_number_of_classes_it_is_skipped(params, make, judge):
    result = judge(CODE, make.evidence(unlearnt(1e4), params=params))
    assert "num_classes" in result.reason["reason"]


def test_a_teacher_s_answers_are_no_classes(make, judge):
    params = TEN | {"teacher": "resnet50"}
    assert judge(CODE, make.evidence(unlearnt(20.0), params=params)).verdict == "SkippedProbe"


def test_healthy(healthy_name, healthy, make, judge):
    assert judge(CODE, make.evidence(getattr(healthy, healthy_name)(), params=TEN)).verdict in ("pass", "SkippedProbe")


@FEW
@given(start=st.floats(0.5, 40), end=st.floats(0.5, 4), classes=st.integers(2, 1000))
def test_the_two_rules_name_one_chance(start, end, classes, make, judge):
    """Whatever they find, neither has another number for guessing, and a loss that ends there is not called learnt."""
    losses = end + (start - end) * np.exp(-np.arange(60) / 3.0)
    evidence = make.evidence(losses, params={"num_classes": str(classes)})
    found = [judge(code, evidence) for code in ("LOS006", CODE)]
    if found[1].verdict == "SkippedProbe":  # it begins too low for a choice among so many
        assert start < 0.71 * math.log(classes)
        return
    assert {one.measured["chance"] for one in found} == {math.log(classes)}
    if abs(found[0].measured["end"] - math.log(classes)) < 0.005 * math.log(classes):
        assert found[0].verdict in ("warn", "fail")


@FEW
@given(first=st.floats(0, 100), one=st.floats(1.01, 10), other=st.floats(1.01, 10))
def test_a_higher_factor_never_finds_more(first, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = make.evidence(unlearnt(first), params=TEN)
    if judge(CODE, evidence, factor=lower).verdict == "pass":
        assert judge(CODE, evidence, factor=higher).verdict == "pass"
