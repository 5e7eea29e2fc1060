"""LOS016."""

import numpy as np
import pytest

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


def test_worked_example(make, judge):
    """A loss of a + 2 b: a stays at 1.0, b falls from 1.0 to 0.1; so a is 1.0 of the last 1.2."""
    terms = {
        "a_loss": np.full(16, 1.0) + 0.001 * np.sin(np.arange(16)),
        "b_loss": np.r_[1.0, 0.6, 0.3, np.full(13, 0.1)],
    }
    result = judge(CODE, run(make, terms, (1.0, 2.0)))
    assert (result.verdict, result.confidence) == ("warn", "high")
    assert result.measured["share"] == pytest.approx(1.0 / 1.2, rel=0.01)
    assert "a_loss, 83% of the loss, began at" in result.message


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
