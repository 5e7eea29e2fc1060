"""LRS002."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.plateau import Plateau

CODE = "LRS002"
RULE = Plateau()
FEW = settings(max_examples=40, deadline=None)


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


@FEW
@given(losses=st.lists(st.floats(-100, 100), min_size=64, max_size=120))
def test_against_plain_python(losses, plain, make, judge):
    n = len(losses)
    half = losses[n // 2 :]
    quarter = len(half) // 2
    noise = plain.noise(losses)
    start = plain.start(losses, max(1, min(3, n // 10)), noise)
    middle, end = plain.median(half[:quarter]), plain.median(half[quarter:])
    descent = start - end
    assume(abs(descent) > 1e-6)
    trend = plain.trend([plain.median(block) for block in plain.blocks(half, len(half) // 12)])
    share = (middle - end) / descent if descent > 0 else 0.0
    sick = (
        descent >= 0.1 * abs(start) and descent > 3 * plain.median_error(noise, 1)
        and share <= RULE.late_share and trend > -2 and end > RULE.floor * start and noise >= RULE.noise * abs(end)
    )  # fmt: skip
    result = verdict(judge, make, losses, np.full(20, 1.0))
    assert result.verdict == ("warn" if sick else "pass")
    assert result.measured["late_share"] == pytest.approx(share, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_healthy_with_a_decay(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    assert verdict(judge, make, losses, np.linspace(1, 0, 20)).verdict in ("pass", "SkippedProbe")
