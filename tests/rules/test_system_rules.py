"""SYS001 and SYS002."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

FEW = settings(max_examples=draws(40), deadline=None)
N = 200


def noisy(level, size=0.02, seed=0):
    return np.asarray(level) * (1 + size * np.random.default_rng(seed).standard_normal(N))


@pytest.fixture(scope="session")
def verdict(make, judge):
    """The result of a rule on series given by their roles."""

    def of(code, **series):
        return judge(code, make.evidence(None, *(make.series(values, role=role) for role, values in series.items())))

    return of


FIRST_EPOCH = np.arange(N) < 40


# An idle accelerator


def test_an_idle_device(verdict):
    assert verdict("SYS001", accelerator_utilisation=noisy(np.full(N, 12.0))).verdict == "warn"
    assert "12" in verdict("SYS001", accelerator_utilisation=np.full(N, 12.0)).message


def test_waiting_for_data(verdict):
    result = verdict("SYS001", data_time=noisy(np.full(N, 0.7)), step_time=noisy(np.full(N, 1.0)))
    assert result.verdict == "warn"
    assert result.measured["data_share"] == pytest.approx(0.7, rel=0.02)


def test_near_misses_of_an_idle_device(verdict):
    assert verdict("SYS001", accelerator_utilisation=np.where(FIRST_EPOCH, 5.0, 80.0)).verdict == "pass"
    slow_first = np.where(FIRST_EPOCH, 2.0, 0.1)
    assert verdict("SYS001", data_time=slow_first, step_time=slow_first + 0.5).verdict == "pass"
    assert verdict("SYS001", data_time=np.ones(N)).verdict == "SkippedProbe"


def test_one_busy_device_of_several_is_enough(make, judge):
    series = [
        make.series(np.full(N, level), role="accelerator_utilisation", name=f"gpu.{level}") for level in (1.0, 60.0)
    ]
    assert judge("SYS001", make.evidence(None, *series)).verdict == "pass"


# Growing memory


@pytest.mark.parametrize("seed", range(3))
def test_a_leak(seed, verdict):
    result = verdict("SYS002", memory=noisy(np.linspace(1000, 1600, N), seed=seed))
    assert (result.verdict, "rose steadily" in result.message) == ("warn", True)


def test_near_misses_of_a_leak(verdict):
    fills = 1000 + 600 * (1 - np.exp(-np.arange(N) / 25))
    for memory in (np.full(N, 1000.0), noisy(np.full(N, 1000.0), 0.2), fills, np.where(FIRST_EPOCH, 300.0, 1000.0)):
        assert verdict("SYS002", memory=memory).verdict == "pass"
    assert verdict("SYS002", memory=noisy(np.linspace(1000, 1100, N))).verdict == "pass"
    saw = 1000 + 300 * (np.arange(N) % 20) / 20  # a collector that runs now and then
    assert verdict("SYS002", memory=saw).verdict == "pass"


# Against plain Python


@FEW
@given(values=st.lists(st.floats(0.01, 100), min_size=32, max_size=80))
def test_memory_against_plain_python(values, plain, verdict):
    block = max(1, min(3, len(values) // 8), len(values) // 40)
    of_blocks = values[len(values) % block :]
    levels = [plain.median(of_blocks[at : at + block]) for at in range(0, len(of_blocks), block)]
    quarter, half = int(0.25 * len(levels)), int(0.5 * len(levels))
    first, last = plain.median(levels[quarter:half]), plain.median(levels[int(0.75 * len(levels)) :])
    result = verdict("SYS002", memory=values)
    assert result.measured["growth"] == pytest.approx((last - first) / first, rel=1e-9, abs=1e-12)
    assert result.verdict == "pass" or (last - first) / first >= 0.2
