"""OPT012."""

import numpy as np
import pytest

CODE = "OPT012"


@pytest.mark.parametrize("name", [
    "max_grad_norm", "grad_clip", "clip_grad_norm", "gradient_clip_val", "trainer.gradient_clip_val", "optim/clip", "grad.max_norm",
])  # fmt: skip
@pytest.mark.parametrize(("limit", "verdict"), [
    ("1e-06", "warn"), ("5e-05", "warn"), ("6e-05", "pass"), ("1.0", "pass"), ("0", "pass"), ("0.0", "pass"), ("-1", "pass"),
    ("none", "SkippedProbe"), ("nan", "SkippedProbe"), ("inf", "SkippedProbe"), ("", "SkippedProbe"),
])  # fmt: skip
def test_where_gradients_are_clipped(name, limit, verdict, make, judge):
    result = judge(CODE, make.evidence(np.linspace(2, 1, 50), params={name: limit}))
    assert result.verdict == verdict
    assert verdict != "warn" or name in result.message


@pytest.mark.parametrize("name", ["clip_range", "clip_model", "clip", "loss.clip", "attack.max_norm", "max_norm"])
def test_other_clips(name, make, judge):
    assert judge(CODE, make.evidence(np.ones(50), params={name: "1e-6"})).verdict == "SkippedProbe"


@pytest.mark.parametrize(("norm", "verdict"), [(1e-8, "pass"), (1e-6, "warn"), (0.3, "warn")])
def test_gradients_that_never_come_near_the_limit(norm, verdict, make, judge):
    norms = make.series(np.full(50, norm), role="grad_norm")
    assert judge(CODE, make.evidence(np.ones(50), norms, params={"grad_clip": "1e-6"})).verdict == verdict


@pytest.mark.parametrize(("decay", "rate", "verdict"), [
    ("5.0", "1.5e-3", "warn"), ("1.0", "4.9e-3", "pass"), ("1.0", "5.1e-3", "warn"), ("0.1", "1e-3", "pass"),
    ("0.01", "1.0", "pass"),  # an optimizer that finds its rate by itself
    ("10", "3e-5", "pass"),  # Lion
    ("5.0", "", "SkippedProbe"), ("a lot", "1e-3", "SkippedProbe"),
])  # fmt: skip
def test_weight_decay(decay, rate, verdict, make, judge):
    params = {"optimizer.weight_decay": decay, "optimizer.lr": rate, "inner.lr": "0.4", "wd": "300"}
    assert judge(CODE, make.evidence(np.ones(50), params=params)).verdict == verdict


def test_a_weight_decay_that_lets_it_learn(make, judge):
    """Long after the training samples were learnt by heart, a large one makes a network generalise."""
    params = {"weight_decay": "1.0", "lr": "1e-2"}
    assert judge(CODE, make.evidence(np.linspace(3.0, 0.5, 50), params=params)).verdict == "pass"
    assert judge(CODE, make.evidence(np.linspace(3.0, 2.5, 50), params=params)).verdict == "warn"


def test_gradients_of_samples_that_are_clipped_for_privacy(make, judge):
    params = {"max_grad_norm": "1e-5", "noise_multiplier": "1.1"}
    assert judge(CODE, make.evidence(np.ones(50), params=params)).verdict == "pass"


def test_no_params(make, judge):
    assert judge(CODE, make.evidence(np.ones(50))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(np.ones(50), params={"x" * 10**6 + "/grad_clip": "1e-6"})).verdict == "warn"
