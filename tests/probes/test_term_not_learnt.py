"""LOS016."""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = "LOS016"


def course(start, end, n=40, *, noise=0.01, seed=0):
    falls = end + (start - end) * np.exp(-5.0 * np.arange(n) / n)
    return falls * (1.0 + noise * np.random.default_rng(seed).standard_normal(n))


def run(make, terms, weights=None, *, off=0.0, steps=None, **more):
    """Evidence of a loss that is the sum of these terms; ``off``: what is not logged of it, as a share."""
    weights = [1.0] * len(terms) if weights is None else weights
    total = sum(weight * values for weight, values in zip(weights, terms.values(), strict=True))
    total = total * (1.0 + off * np.random.default_rng(9).standard_normal(len(total)))
    parts = [make.series(values, steps, role="loss_part", name=name) for name, values in terms.items()]
    return make.evidence(make.series(total, steps), *parts, **more)


def tasks(digit=(2.3, 2.22), ink=(0.86, 0.14), **more):
    return {"digit_loss": course(*digit, seed=1, **more), "ink_loss": course(*ink, seed=2, **more)}


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.5, 3.0), (20.0, 50.0)])
@pytest.mark.parametrize("n", [12, 40, 400])
def test_one_task_that_is_not_learnt(n, weights, make, judge):
    result = judge(CODE, run(make, tasks(n=n, noise=0.003), weights))
    assert result.verdict == "warn"
    assert result.symptom == "not_learning"
    assert "digit_loss" in result.message


NEAR_MISSES = {
    "both are learnt": {"terms": tasks(digit=(2.3, 0.8))},
    "it fell by a tenth": {"terms": tasks(digit=(2.3, 2.05))},
    "a small part of what is left": {"terms": tasks(digit=(0.1, 0.098), ink=(2.0, 0.6))},
    "a divergence that starts at 0": {"terms": {"kl": course(0.1, 1.5), "recon_loss": course(9.0, 3.0, seed=3)}},
    "too noisy to tell": {"terms": tasks(noise=0.3)},
    "the whole did not come down": {"terms": tasks(ink=(0.1, 0.09))},
}


@pytest.mark.parametrize("logged", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(logged, make, judge):
    assert judge(CODE, run(make, **logged)).verdict == "pass"


NO_SUM = {
    "a term is not logged": {"terms": tasks(), "off": 0.1},
    "another data set": {
        "terms": {"ood_loss": course(2.3, 2.3, seed=5), "wiki_loss": course(3.0, 2.9, seed=6)},
        "off": 0.3,
    },
    "one term alone": {"terms": {"digit_loss": course(2.3, 2.2)}},
    "of validation": {"terms": {f"val_{name}": values for name, values in tasks().items()}},
    "few points": {"terms": tasks(n=11)},
    "a fine-tune": {"terms": tasks(), "params": {"base_model": "x"}},
    "it goes on from a checkpoint": {"terms": tasks(), "steps": np.arange(100, 140)},
    "with a sign": {"terms": tasks(), "weights": (1.0, -0.5)},
}


@pytest.mark.parametrize("logged", NO_SUM.values(), ids=NO_SUM)
def test_no_sum_of_terms(logged, make, judge):
    assert judge(CODE, run(make, **logged)).verdict == "SkippedProbe"


def test_terms_that_cannot_be_told_apart(make, judge):
    half = course(2.3, 2.2)
    assert judge(CODE, run(make, {"a_loss": half, "b_loss": 2.0 * half})).verdict == "SkippedProbe"


def test_a_weight_that_rises(make, judge):
    rising = make.series(np.linspace(0, 1, 40), role="objective_weight", name="beta")
    evidence = run(make, tasks())
    assert judge(CODE, make.evidence(None, *evidence.series, rising)).verdict == "SkippedProbe"


def test_noise_of_batches_does_not_hide_it(make, judge):
    """Of each batch the terms go up and down; their sum is the loss at each step all the same."""
    rng = np.random.default_rng(0)
    terms = {"cls_loss": 1.2 + 0.1 * rng.standard_normal(400), "box_loss": course(3.0, 0.2, 400, noise=0.1, seed=1)}
    assert judge(CODE, run(make, terms, (1.0, 5.0))).verdict == "warn"


# Once more, in plain Python


def naive_noise(values):
    """Of first differences: their median size, scaled."""
    sizes = [abs(b - a) for a, b in itertools.pairwise(values)]
    return 1.4826 * statistics.median(sizes) / 2**0.5


def naive_stays(values):
    n = len(values)
    size = max(2, n // 8)
    start, end = statistics.median(values[:size]), statistics.median(values[-size:])
    error = 2**0.5 * 1.2533 * naive_noise(values) / size**0.5
    return start - end <= 0.05 * start and start - end + 2 * error < 0.1 * start and end < 1.5 * start


@settings(max_examples=60, deadline=None)
@given(end=st.floats(1.9, 3.6), noise=st.floats(0.0, 0.2), n=st.integers(24, 120), seed=st.integers(0, 99))
def test_against_plain_python(end, noise, n, seed, make, judge):
    rng = np.random.default_rng(seed)
    digit = np.linspace(2.3, end, n) * (1.0 + noise * rng.uniform(-1.0, 1.0, n))
    terms = {"digit_loss": digit, "ink_loss": course(30.0, 1.0, n)}
    result = judge(CODE, run(make, terms))
    assert result.verdict == ("warn" if naive_stays(digit.tolist()) else "pass")
