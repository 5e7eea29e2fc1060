"""LOS006."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

CODE = "LOS006"
TEN = {"num_classes": "10"}
FEW = settings(max_examples=draws(40), deadline=None)


def stuck(classes, *, n=200, noise=0.005, start=1.0, seed=0):
    """A loss at the level of guessing, to which it comes down at once from so many times as high."""
    rng = np.random.default_rng(seed)
    return math.log(classes) * (1.0 + (start - 1.0) * np.exp(-np.arange(n) / 2.0) + noise * rng.standard_normal(n))


def test_worked_example(make, judge):
    """Ten classes: guessing costs ln 10 = 2.303. The second half is 2.30, the end 2.31: both within 2 %."""
    result = judge(CODE, make.evidence([2.41, 2.33, 2.31, 2.30, 2.30, 2.30, 2.31, 2.31], params=TEN))
    assert (result.verdict, result.steps) == ("fail", (0,))
    assert (
        result.message
        == "the loss began at 2.41 and ends at 2.31, the chance level (guessing among 10 answers has 2.303)"
    )


@pytest.mark.parametrize(
    ("param", "classes"), [("num_classes", 10), ("num_labels", 2), ("vocab_size", 50257), ("n_classes", 1000)]
)
@pytest.mark.parametrize("start", [1.0, 1.2])
def test_at_the_level_of_the_classes_that_the_params_tell(param, classes, start, make, judge):
    result = judge(CODE, make.evidence(stuck(classes, start=start), params={param: str(classes)}))
    assert result.verdict == "fail"
    assert f"guessing among {classes} answers has {math.log(classes):.4g}" in result.message
    assert result.measured["classes"] == classes


def test_from_far_above_it_may_be_another_loss(make, judge):
    """Unless only an explosion goes so far."""
    found = [judge(CODE, make.evidence(stuck(10, start=times), params=TEN)).verdict for times in (20.0, 50.0)]
    assert found == ["warn", "fail"]


def test_so_much_noise_that_it_is_unsure(make, judge):
    assert judge(CODE, make.evidence(stuck(10, noise=0.2), params=TEN)).verdict in ("warn", "pass")


@pytest.mark.parametrize("end", [0.97, 1.04])
def test_near_misses(end, make, judge):
    """It has learnt a little, or ends elsewhere."""
    losses = stuck(10) * np.linspace(1.0, end, 200)
    assert judge(CODE, make.evidence(losses, params=TEN)).verdict == "pass"


def test_a_descent_that_passes_by(make, judge):
    assert judge(CODE, make.evidence(np.linspace(4.0, 2.303, 200), params=TEN)).verdict == "pass"


@pytest.mark.parametrize("classes", [2, 4, 10])
def test_at_the_level_of_unknown_classes(classes, make, judge):
    result = judge(CODE, make.evidence(stuck(classes, noise=0.001, start=1.06)))
    assert result.verdict == "warn"
    assert f"guessing among {classes} answers" in result.message
    fine_tune = make.evidence(stuck(classes, noise=0.001), params={"base_model": "x"})
    assert judge(CODE, fine_tune).verdict == "pass"


@pytest.mark.parametrize(("start", "validation"), [(1.3, 1.0), (1.05, 0.97)], ids=["from above", "validation below"])
def test_a_level_that_fits_by_coincidence(start, validation, make, judge):
    held_out = make.series(np.linspace(1.05, validation, 8) * math.log(5), np.arange(8) * 25, role="val_loss")
    assert judge(CODE, make.evidence(stuck(5, noise=0.001, start=start), held_out)).verdict == "pass"


@pytest.mark.parametrize("params", [{}, {"num_classes": "1000"}, {"vocab_size": "50257"}])
@pytest.mark.thinned(3)
def test_healthy(healthy_name, params, healthy, make, judge):
    assert judge(CODE, make.evidence(getattr(healthy, healthy_name)(), params=params)).verdict == "pass"


@FEW
@given(classes=st.integers(2, 5000), n=st.integers(20, 400), more=st.integers(1, 5))
def test_more_points_of_the_same_change_nothing(classes, n, more, make, judge):
    losses = stuck(classes, n=n, noise=0.001)
    verdicts = {
        judge(CODE, make.evidence(np.tile(losses, times), params={"vocab_size": str(classes)})).verdict
        for times in (1, more)
    }
    assert verdicts == {"fail"}


@pytest.mark.parametrize("param", ["vocab_size", "num_classes"])
def test_another_count_does_not_hide_a_loss_stuck_at_ln_2(param, make, judge):
    """The vocabulary of the language model below a classifier; one binary decision for each of many classes."""
    losses = stuck(2, noise=0.003, start=1.08)
    assert judge(CODE, make.evidence(losses, params={param: "30522"})).verdict == "warn"
    assert judge(CODE, make.evidence(losses, params={"vocab_size": "30522", "num_labels": "2"})).verdict == "fail"
