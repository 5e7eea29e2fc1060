"""GEN004."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

CODE = "GEN004"
TEN = {"num_classes": "10"}


def learning(n=30, *, start=0.1, end=0.95, pace=5.0):
    return end - (end - start) * np.exp(-pace * np.arange(n) / n)


def logged(make, held_out, *, train=None, losses=None, params=None, val_loss=None):
    """A run of 200 steps; fewer evaluations lie at evenly spaced steps."""

    def spread(values, role):
        return make.series(values, np.linspace(200 / len(values), 200, len(values)), role=role)

    more = [spread(held_out, "val_accuracy")]
    more += [spread(train, "train_accuracy")] if train is not None else []
    more += [spread(val_loss, "val_loss")] if val_loss is not None else []
    return make.evidence(spread(losses if losses is not None else descending(), "train_loss"), *more, params=params)


def descending(*, begin=2.3, end=0.5, n=200):
    return end + (begin - end) * np.exp(-8.0 * np.arange(n) / n)


def test_worked_example(make, judge):
    """Ten classes: the training gained 90 % since guessing, the gap is 65 %: more than half of that."""
    train, held_out = [0.3, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0], [0.2, 0.3, 0.34, 0.35, 0.35, 0.35, 0.35, 0.35]
    result = judge(CODE, logged(make, held_out, train=train, params=TEN))
    assert (result.verdict, result.confidence) == ("warn", "low")
    assert result.measured["gap_share"] == pytest.approx(0.65 / 0.9)
    assert "rose from 10 % to 100 %, that of the validation samples is 35 %" in result.message


HEALTHY = {
    "an ordinary gap": (learning(end=0.99), learning(10, end=0.75)),
    "a fine-tune that began with a gap": (learning(start=0.6, end=0.9), learning(10, start=0.4, end=0.62)),
    "dropout": (learning(end=0.8), learning(10, end=0.9)),
    "known well from the first epoch on": (learning(start=0.97, end=1.0), np.full(10, 0.8)),
    "noise": (learning(), np.clip(learning(end=0.8) + 0.05 * np.random.default_rng(1).standard_normal(30), 0, 1)),
    "a restart": (np.concatenate([learning(20), learning(10, start=0.6)]), learning(end=0.85)),
    "learnt just now": (np.append(np.full(180, 0.1), np.linspace(0.1, 0.9, 20)), [*[0.1] * 9, 0.85]),
}


@pytest.mark.parametrize(("train", "held_out"), HEALTHY.values(), ids=HEALTHY)
def test_healthy_pairs(train, held_out, make, judge):
    assert judge(CODE, logged(make, held_out, train=train, losses=np.full(200, 5.0))).verdict == "pass"


@pytest.mark.parametrize("params", [TEN, None], ids=["told", "seen from the loss"])
def test_learnt_by_heart_as_the_loss_shows(params, make, judge):
    """A loss of 0.001 leaves room for one wrong answer in seven hundred."""
    losses = descending(end=0.001)
    result = judge(CODE, logged(make, learning(10, end=0.4), losses=losses, params=params))
    assert result.verdict == "warn"
    assert "is at least 99" in result.message
    for end in (0.75, 0.9):
        assert judge(CODE, logged(make, learning(10, end=end), losses=losses, params=params)).verdict == "pass"


@pytest.mark.parametrize(
    ("losses", "params"),
    [
        (descending(end=0.4), None),
        (descending(begin=math.log(2), end=0.001), None),
        (descending(end=0.001), {"vocab_size": "10"}),
        (descending(end=0.001), {"num_classes": "80"}),
    ],
    ids=["it leaves room", "a decision of two", "a vocabulary", "no cross-entropy among the classes"],
)
def test_what_a_loss_does_not_show(losses, params, make, judge):
    assert judge(CODE, logged(make, learning(10, end=0.4), losses=losses, params=params)).verdict == "pass"


FALLS = np.concatenate([learning(12, end=0.8), np.linspace(0.78, 0.5, 12)])


def test_a_validation_accuracy_that_falls_again(make, judge):
    result = judge(CODE, logged(make, FALLS, train=learning(24, end=0.9)))
    assert result.verdict == "warn"
    assert 80 <= result.steps[0] <= 120
    assert f"step {result.steps[0]}" in result.remedy


@pytest.mark.parametrize(
    ("held_out", "more", "verdict"),
    [
        pytest.param(FALLS, {}, "warn", id="nothing beside it"),
        pytest.param(FALLS, {"val_loss": 3.0 - 2.0 * FALLS}, "warn", id="the loss rises as well"),
        pytest.param(FALLS, {"val_loss": np.linspace(2.0, 1.0, 24)}, "pass", id="the loss still falls"),
        pytest.param(FALLS, {"train": FALLS}, "pass", id="the training loses as much"),
        pytest.param(np.clip(FALLS, 0, 0.53), {}, "pass", id="it lost little"),
    ],
)
def test_falls(held_out, more, verdict, make, judge):
    assert judge(CODE, logged(make, held_out, losses=np.full(200, 5.0), **more)).verdict == verdict


@settings(max_examples=draws(80), deadline=None)
@given(
    train=st.lists(st.floats(0, 1), min_size=5, max_size=40),
    held_out=st.lists(st.floats(0, 1), min_size=5, max_size=40),
    share=st.floats(0.1, 2),
)
def test_stricter_thresholds_find_less(train, held_out, share, make, judge):
    evidence = logged(make, np.array(held_out), train=np.array(train), params=TEN)
    strict = judge(CODE, evidence, gap_share=share * 2, fall_share=share * 2).verdict
    lenient = judge(CODE, evidence, gap_share=share, fall_share=share).verdict
    assert (strict, lenient) != ("warn", "pass")
