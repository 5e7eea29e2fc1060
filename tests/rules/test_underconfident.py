"""LOS012."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

CODE = "LOS012"
TEN = {"num_classes": "10"}


def softmax(logits):
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def trained(classes=10, *, twice=False, n=60, most=40.0, noise=1.0, seed=0):
    """Losses and accuracies of a model whose logits come to favour the right answers, with one softmax or two."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=400)
    losses, accuracies = [], []
    for size in np.linspace(0.0, most, n):
        logits = noise * min(1.0, size) * rng.standard_normal((400, classes))
        logits[np.arange(400), labels] += size * rng.uniform(0.0, 1.0, 400)
        shares = softmax(softmax(logits)) if twice else softmax(logits)
        losses.append(-np.log(shares[np.arange(400), labels]).mean())
        accuracies.append((logits.argmax(1) == labels).mean() if size else 1.0 / classes)
    return np.array(losses), np.array(accuracies)


def logged(make, losses, accuracies, *, validation=False, params=None, head=None):
    """A run; with ``validation`` loss and accuracy are the validation's, beside the same training loss. ``head``: so many
    does the last layer of its checkpoint choose among.
    """
    more = [] if accuracies is None else [make.series(accuracies, role=f"{'val' if validation else 'train'}_accuracy")]
    if validation:
        more.append(make.series(losses, role="val_loss"))
    shapes = {"0.weight": (48, 20), "0.bias": (48,), "fc.weight": (head, 48), "fc.bias": (head,)}
    return make.evidence(losses, *more, params=params, weights=make.weights(shapes) if head else None)


def test_worked_example(make, judge):
    """Ten classes: two softmaxes leave ln(e + 9) = 2.461 less the accuracy. A loss of 1.56 and 90 % right are 2.46. A
    model that is right so often, and knows it, has 0.54.
    """
    losses, right = np.linspace(2.30, 1.56, 12), np.linspace(0.1, 0.9, 12)
    losses[-4:], right[-4:] = 1.56, 0.9
    result = judge(CODE, logged(make, losses, right, params=TEN))
    assert (result.verdict, result.steps) == ("warn", (0,))
    assert result.measured["sum"] == pytest.approx(2.46)
    assert "the training accuracy ends at 90 %, the loss at 1.56: they add up as behind two softmaxes" in result.message


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize(
    ("classes", "known"),
    [
        (10, {}),
        (10, {"params": TEN}),
        (4, {"head": 4}),
        (100, {"params": {"num_classes": "100"}}),
        (1000, {"head": 1000}),
    ],
)
@pytest.mark.thinned(3)
def test_a_softmax_too_many(classes, known, validation, make, judge):
    result = judge(CODE, logged(make, *trained(classes, twice=True), validation=validation, **known))
    assert result.verdict == "warn"
    assert ("validation" if validation else "training") in result.message
    assert "logits" in result.remedy
    assert judge(CODE, logged(make, *trained(classes), validation=validation, **known)).verdict == "pass"


RISING = 0.97 - 0.87 * np.exp(-np.arange(30) / 4.0)
NEAR_MISSES = {
    "it came below once": (np.r_[0.1 + 2.2 * np.exp(-np.arange(30) / 4.0), np.full(5, 1.6)], np.r_[RISING, np.full(5, 0.97)]),
    "guessing": (np.full(30, 2.3), np.full(30, 0.1)),
    "above guessing": (np.full(30, 2.4), np.full(30, 0.9)),
    "half right, and it knows": (np.linspace(2.3, 1.7, 30), np.linspace(0.1, 0.5, 30)),
    "smoothed targets": (1.0 + 1.3 * np.exp(-np.arange(30) / 4.0), RISING),
}  # fmt: skip


@pytest.mark.parametrize(("losses", "accuracies"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(losses, accuracies, make, judge):
    assert judge(CODE, logged(make, losses, accuracies, params=TEN)).verdict == "pass"


@pytest.mark.parametrize(("begin", "verdict"), [(0.9, "SkippedProbe"), (0.3, "SkippedProbe"), (0.15, "warn")])
def test_a_first_mean_of_mostly_right_answers_tells_no_classes(begin, verdict, make, judge):
    losses = np.append(2.25, np.full(29, 1.5))
    assert judge(CODE, logged(make, losses, np.linspace(begin, 0.97, 30))).verdict == verdict


@pytest.mark.parametrize("known", [{"params": TEN}, {"head": 10}])
@pytest.mark.parametrize(("above", "verdict"), [(0.02, "warn"), (0.2, "SkippedProbe"), (-0.1, "SkippedProbe")])
def test_the_least_loss_of_two_softmaxes(above, verdict, known, make, judge):
    floor = math.log(math.e + 9.0) - 1.0
    losses = floor + above + (math.log(10) - floor) * np.exp(-np.arange(60) / 4.0)
    assert judge(CODE, logged(make, losses, None, **known)).verdict == verdict
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


@settings(max_examples=draws(40), deadline=None)
@given(classes=st.integers(3, 40), seed=st.integers(0, 99), most=st.floats(5, 12), noise=st.floats(0.5, 1))
def test_one_softmax_is_never_taken_for_two(classes, seed, most, noise, make, judge):
    params = {"num_classes": str(classes)}
    run = trained(classes, n=20, most=most, noise=noise, seed=seed)
    assert judge(CODE, logged(make, *run, params=params)).verdict == "pass"
