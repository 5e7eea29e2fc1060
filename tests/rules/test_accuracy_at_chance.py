"""GEN003."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

CODE = "GEN003"
TEN = {"num_classes": "10"}


def learning(n=30, *, start=0.1, end=0.95, pace=5.0):
    return end - (end - start) * np.exp(-pace * np.arange(n) / n)


def guessing(n=30, *, chance=0.1, noise=0.01, seed=0):
    return chance + noise * np.random.default_rng(seed).standard_normal(n)


def logged(make, *, train=None, held_out=None, params=None, measure="accuracy", losses=None):
    """A run with a loss that falls, and accuracies."""
    n = len(train) if train is not None else len(held_out)
    both = (("train", train), ("val", held_out))
    series = [make.series(one, role=f"{which}_{measure}") for which, one in both if one is not None]
    losses = 0.05 + 2.25 * np.exp(-5.0 * np.arange(n) / n) if losses is None else losses
    return make.evidence(losses, *series, params=params)


def test_worked_example(make, judge):
    """Ten classes: guessing is right in 10 %. Nothing is surely above 12 %, and surely less than 19 % was learnt."""
    held_out = np.array([0.10, 0.11, 0.09, 0.10, 0.12, 0.11, 0.10, 0.09, 0.10, 0.11])
    result = judge(CODE, logged(make, held_out=held_out, params=TEN))
    assert (result.verdict, result.confidence) == ("warn", "high")
    assert result.message == "the validation accuracy stays at 10 %, guessing has 10 %"


@pytest.mark.parametrize("unit", [1.0, 100.0])
@pytest.mark.parametrize("params", [TEN, None], ids=["told", "seen from the loss"])
def test_validation_at_chance_beside_a_training_that_learns(unit, params, make, judge):
    result = judge(CODE, logged(make, train=unit * learning(), held_out=unit * guessing(), params=params))
    assert result.verdict == "warn"
    assert "of the training samples 94" in result.message
    assert result.measured["chance"] == pytest.approx(0.1)


@pytest.mark.parametrize(("held_out", "verdict"), [(None, "fail"), (guessing(seed=2), "fail"), (learning(), "pass")])
def test_training_at_chance(held_out, verdict, make, judge):
    """A training accuracy at chance beside a validation accuracy that learns is that of mixed labels, say."""
    result = judge(CODE, logged(make, train=guessing(seed=1), held_out=held_out, params=TEN))
    assert result.verdict == verdict


@pytest.mark.parametrize(
    "held_out",
    [
        pytest.param(learning(), id="healthy"),
        pytest.param(np.concatenate([guessing(20), learning(10)]), id="it learns late"),
        pytest.param(np.append(guessing(27), [0.18, 0.22, 0.25]), id="it learns at last"),
        pytest.param(guessing(chance=0.14), id="it learns little"),
        pytest.param(np.clip(guessing(noise=0.3), 0, 1), id="too noisy to tell"),
        pytest.param(guessing(chance=0.02, noise=0.002), id="far below guessing"),
    ],
)
def test_near_misses(held_out, make, judge):
    assert judge(CODE, logged(make, held_out=held_out, params=TEN)).verdict == "pass"


@pytest.mark.parametrize(("shift", "verdict"), [(0.0, "warn"), (0.08, "pass")])
def test_an_auc_of_one_half(shift, verdict, make, judge):
    values = guessing(chance=0.5 + shift, noise=0.02)
    assert judge(CODE, logged(make, held_out=values, measure="auc")).verdict == verdict


def test_it_names_the_chance_that_the_loss_stands_at(make, judge):
    """An accuracy of 11.35 % is nearer to one in nine; the loss is that of guessing among ten, as LOS006 says."""
    losses = 2.3020 + 0.0003 * np.random.default_rng(0).standard_normal(50)
    evidence = logged(make, held_out=np.full(50, 0.1135), losses=losses)
    assert judge(CODE, evidence).measured["chance"] == pytest.approx(0.1)
    assert judge("LOS006", evidence).measured["classes"] == 10


def test_nothing_tells_the_level_of_guessing(make, judge):
    """An accuracy of one in three would be guessing, but a first loss of 2.3 is that of ten classes."""
    assert judge(CODE, logged(make, held_out=guessing(chance=1 / 3))).verdict == "SkippedProbe"
    assert judge(CODE, logged(make, held_out=guessing(), params={"vocab_size": "50257"})).verdict == "SkippedProbe"


NOISE = np.random.default_rng(3).standard_normal(40)


@pytest.mark.parametrize(
    ("losses", "scores", "verdict"),
    [
        pytest.param(0.07 + 0.01 * NOISE, [np.zeros(40)], "warn", id="nothing moves"),
        pytest.param(0.07 + 0.01 * NOISE, [np.full(40, 33.0)], "warn", id="percentages"),
        pytest.param(0.07 + 0.01 * NOISE, [np.zeros(40), learning(40)], "pass", id="of a class that is rare"),
        pytest.param(0.07 + 0.01 * NOISE, [np.zeros(6)], "SkippedProbe", id="too few"),
        pytest.param(0.07 + 0.01 * NOISE, [np.full(40, -0.5)], "pass", id="no share"),
        pytest.param(2.3 - learning(40), [np.zeros(40)], "pass", id="whole answers, and the loss fell"),
    ],
)
def test_scores_that_never_move(losses, scores, verdict, make, judge):
    others = [make.series(one, role="higher_better_val", name=f"val_dice_{at}") for at, one in enumerate(scores)]
    assert judge("GEN007", make.evidence(losses, *others)).verdict == verdict


FLAT = 0.69 + 0.001 * np.sin(np.arange(12))


@pytest.mark.parametrize(
    ("held_out", "losses", "verdict"),
    [
        (np.full(12, 0.32), None, "warn"),
        (np.r_[0.1, np.full(11, 0.32)], None, "warn"),
        (0.29 + 0.0004 * np.sin(np.arange(12)), None, "warn"),
        (0.29 + 0.002 * np.sin(np.arange(12)), None, "pass"),
        (np.full(12, 0.85), FLAT, "warn"),  # of two answers one is rare: nothing was learnt
        (0.85 + 0.002 * np.sin(np.arange(12)), None, "pass"),  # the loss comes down to what the frequencies make of it
        (np.full(12, 0.95), FLAT, "pass"),
        (np.zeros(12), None, "SkippedProbe"),  # of whole sequences none is right for long
    ],
)
def test_an_accuracy_that_never_changes(held_out, losses, verdict, make, judge):
    assert judge("GEN007", logged(make, held_out=held_out, losses=losses)).verdict == verdict


@settings(max_examples=draws(60), deadline=None)
@given(end=st.floats(0.1, 1.0), seed=st.integers(0, 99), n=st.integers(8, 60))
def test_percentages_are_judged_like_shares(end, seed, n, make, judge):
    held_out = np.clip(learning(n, end=end) + guessing(n, chance=0.0, seed=seed), 0.0, 0.99)
    share, percent = (judge(CODE, logged(make, held_out=unit * held_out, params=TEN)) for unit in (1.0, 100.0))
    assert share.verdict == percent.verdict
    assert share.measured["end"] == pytest.approx(percent.measured["end"])
