"""LRS002."""

import numpy as np
import pytest

CODE = "LRS002"


def noisy_plateau(seed=0, *, n=600, noise=0.1, floor=1.0):
    rng = np.random.default_rng(seed)
    return floor + 3.0 * np.exp(-12.0 * np.arange(n) / n) + noise * rng.standard_normal(n)


def verdict(judge, make, losses, rates):
    return judge(CODE, make.evidence(losses, make.series(rates, role="learning_rate")))


@pytest.mark.parametrize("seed", range(5))
def test_sick(seed, make, judge):
    result = verdict(judge, make, noisy_plateau(seed), np.full(600, 1e-3))
    assert (result.verdict, result.remedy[:21]) == ("warn", "let the learning rate")


def test_warm_up_before_a_constant_rate_is_constant(make, judge):
    rates = np.minimum(1.0, np.arange(600) / 100) * 1e-3
    assert verdict(judge, make, noisy_plateau(), rates).verdict == "warn"


CONSTANT = np.full(600, 1e-3)
NEAR_MISSES = {
    "a cosine": (noisy_plateau(), 1e-3 * (0.5 + 0.5 * np.cos(np.pi * np.arange(600) / 600))),
    "one step down": (noisy_plateau(), np.where(np.arange(600) < 450, 1e-3, 1e-4)),
    "still falling": (4 - 2 * np.arange(600) / 600 + 0.1 * np.random.default_rng(0).standard_normal(600), CONSTANT),
    "converged near zero": (noisy_plateau(floor=0.1), CONSTANT),
    "no noise to take away": (noisy_plateau(noise=0.005), CONSTANT),
    "never came down": (1 + 0.1 * np.random.default_rng(0).standard_normal(600), CONSTANT),
    "a rate of zero": (noisy_plateau(), np.zeros(600)),
    "the second half goes up": (noisy_plateau() - 0.0, CONSTANT * np.linspace(2, 1, 600)),
}


@pytest.mark.parametrize("name", list(NEAR_MISSES))
def test_near_misses(name, make, judge):
    assert verdict(judge, make, *NEAR_MISSES[name]).verdict == "pass"


def test_worked_example(make, judge):
    """From 4 down to 1 within the first half; a noise of 0.1 is a tenth of that, more than `noise`."""
    result = verdict(judge, make, noisy_plateau(), np.full(600, 1e-3))
    assert result.measured["noise"] == pytest.approx(0.1, rel=0.2)
    assert result.steps == (314, 599)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_with_a_decay(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    assert verdict(judge, make, losses, np.linspace(1, 0, 20)).verdict in ("pass", "SkippedProbe")
