"""Rules on what a run costs: SYS001, SYS002, SYS005."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import TextLog

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


# Steps that wait, and an idle accelerator


@pytest.fixture
def on_a_device(make, judge):
    """The result of a run whose device is used so much, and holds so many megabytes."""

    def of(used, held):
        series = [make.series(noisy(np.full(N, used)), role="accelerator_utilisation")]
        series += [make.series(np.full(N, held), role="memory", name="system/gpu_0_memory_usage_megabytes")]
        return judge("SYS001", make.evidence(None, *series))

    return of


def test_an_idle_device_that_holds_the_run(on_a_device):
    result = on_a_device(2.0, 6000.0)
    assert (result.verdict, result.kind) == ("warn", "idle")
    assert "6000 MB" in result.message


def test_an_idle_device_without_the_run_is_not_blamed(on_a_device, verdict):
    assert on_a_device(0.0, 3.0).verdict == "pass"
    assert on_a_device(30.0, 6000.0).verdict == "pass"
    assert verdict("SYS001", accelerator_utilisation=np.full(N, 1.0)).verdict == "pass"


def test_waiting_for_data(verdict):
    result = verdict("SYS001", data_time=noisy(np.full(N, 0.7)), step_time=noisy(np.full(N, 1.0)))
    assert (result.verdict, result.kind) == ("warn", "data")
    assert result.measured["data_share"] == pytest.approx(0.7, rel=0.02)


def test_near_misses_of_waiting(verdict):
    slow_first = np.where(FIRST_EPOCH, 2.0, 0.1)
    assert verdict("SYS001", data_time=slow_first, step_time=slow_first + 0.5).verdict == "pass"
    assert verdict("SYS001", data_time=np.ones(N)).verdict == "SkippedProbe"


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
    levels_off = 1000 + 600 * np.minimum(np.arange(N) / (0.7 * N), 1.0)
    assert verdict("SYS002", memory=levels_off).verdict == "pass"
    saw = 1000 + 300 * (np.arange(N) % 20) / 20  # a collector that runs now and then
    assert verdict("SYS002", memory=saw).verdict == "pass"


# Steps that take longer


def steps_of(times, size=0.1, seed=0):
    return np.asarray(times) * np.exp(size * np.random.default_rng(seed).standard_normal(len(times)))


STEADY = np.ones(N)
SLOWER = np.where(np.arange(N) < 120, 1.0, 2.0)
CREEPS = 1.0 + np.maximum(np.arange(N) - 60, 0) / 70


@pytest.mark.parametrize("role", ["step_time", "throughput", "elapsed", "times"])
@pytest.mark.parametrize(("times", "kind", "place"), [(SLOWER, "step", 120), (CREEPS, "creep", 60)])
def test_steps_that_take_longer(role, times, kind, place, make, judge):
    took = 60.0 * steps_of(times)
    values = {"step_time": took, "throughput": 1.0 / took, "elapsed": np.cumsum(took), "times": np.ones(N)}[role]
    series = make.series(values, role="train_loss" if role == "times" else role)
    if role == "times":
        series = replace(series, times=1.7e9 + np.cumsum(took))
    result = judge("SYS005", make.evidence(None, series))
    assert (result.verdict, result.kind) == ("warn", kind)
    assert result.steps[0] == pytest.approx(place, abs=0.1 * N)
    assert result.measured["times"] == pytest.approx(times[-20:].mean(), rel=0.15)
    if role in ("elapsed", "times"):
        lost = (times - 1.0).sum() / times.sum()
        assert result.measured["lost_share"] == pytest.approx(lost, rel=0.25)
        assert result.measured["lost_hours"] == pytest.approx(lost * times.sum() / 60.0, rel=0.25)


def test_near_misses_of_a_slow_down(verdict):
    at = np.arange(N)
    evaluates = np.where(at % 10 == 9, 20.0, 1.0)
    comes_back = np.where((at > 80) & (at < 140), 2.0, 1.0)
    up_and_down = np.where(at // 20 % 2, 2.0, 1.0)
    begins_fast = np.where(at < 0.08 * N, 0.3, 1.0)
    one_pause = np.where(at == 150, 400.0, 1.0)
    for times in (STEADY, evaluates, comes_back, up_and_down, begins_fast, one_pause, SLOWER[::-1], 1 + 0.2 * SLOWER):
        assert verdict("SYS005", step_time=60.0 * steps_of(times, 0.3)).verdict == "pass"
    levels_off = 1.0 + 2.0 * (1 - np.exp(-at / 8))
    assert verdict("SYS005", step_time=60.0 * levels_off).verdict == "pass"


def test_what_comes_back_regularly_is_told(verdict):
    result = verdict("SYS005", step_time=60.0 * steps_of(np.where(np.arange(N) % 10 == 9, 20.0, 1.0)))
    assert "20 steps at a regular distance took 6" in result.message
    assert result.measured["stalls_every"] == 10


def test_longer_sequences_take_longer(verdict):
    longer = {"step_time": 60.0 * SLOWER, "workload": 512 * SLOWER}
    assert (verdict("SYS005", **longer).verdict, verdict("SYS005", **longer).case) == ("pass", "more-work")
    assert verdict("SYS005", **longer | {"workload": np.full(N, 512.0)}).verdict == "warn"
    # Tokens a second say more than steps a second.
    assert verdict("SYS005", **longer | {"throughput": 1.0 / STEADY}).verdict == "pass"


def test_what_changed_where_it_began(make, judge):
    """An evaluation that begins there, a resume, sequences that became longer by less than steps did."""
    took = make.series(60.0 * SLOWER, role="step_time")
    evaluated = make.series(np.ones(8), np.arange(120, 200, 10), role="val_loss")
    earlier = make.series(np.ones(16), np.arange(40, 200, 10), role="val_loss")
    longer = make.series(np.where(np.arange(N) < 120, 512, 640), role="workload", name="seq_len")
    resumed = TextLog(source="train.log", lines=300, rows=N, resumed=(118,))

    def changed(*series, **parts):
        return judge("SYS005", make.evidence(None, took, *series, **parts)).details["changed"]

    assert changed(evaluated) == "val_loss is logged from step 120 on"
    assert changed(longer) == "seq_len went from 512 to 640"
    assert changed(evaluated, text_log=resumed) == "the run was resumed at step 118"
    assert changed(earlier) == changed() == ""


def test_where_the_loader_is_what_slowed(verdict):
    result = verdict("SYS005", step_time=60.0 * SLOWER, data_time=60.0 * (SLOWER - 0.9))
    assert result.measured["data_share"] == pytest.approx(1.0)


def test_points_that_were_written_at_once_tell_no_pace(make, judge):
    at_once = np.where(np.arange(N) < 190, 1.7e9, 1.7e9 + 1e4 * np.arange(N))
    assert judge("SYS005", make.evidence(None, make.series(np.ones(N), times=at_once))).verdict == "SkippedProbe"
    written_later = make.series(np.ones(N), times=1.7e9 + 1e-4 * np.cumsum(SLOWER))
    assert judge("SYS005", make.evidence(None, written_later)).verdict == "SkippedProbe"


def test_what_a_tracker_measures_of_the_machine_tells_no_pace(make, judge):
    every_15_seconds = make.series(np.ones(900), role="memory", name="system.cpu", times=1.7e9 + 15 * np.arange(900))
    slower = make.series(np.ones(N), times=1.7e9 + np.cumsum(60.0 * SLOWER))
    assert judge("SYS005", make.evidence(None, slower, every_15_seconds)).steps[0] == pytest.approx(120, abs=2)
    epochs = make.series(np.ones(9), times=1.7e9 + 900 * np.arange(9))
    assert judge("SYS005", make.evidence(None, epochs, every_15_seconds)).verdict == "SkippedProbe"


@FEW
@given(unit=st.floats(1e-3, 1e3), seed=st.integers(0, 99), points=st.integers(24, 400))
def test_neither_the_unit_nor_how_often_it_is_logged_matters(unit, seed, points, verdict):
    fast, slow = points // 2, points - points // 2
    times = steps_of(np.concatenate([np.ones(fast), np.full(slow, 3.0)]), 0.1, seed)
    result = verdict("SYS005", step_time=unit * 60.0 * times)
    assert result.verdict == "warn"
    assert abs(result.steps[0] - fast) <= 0.1 * points


@FEW
@given(seed=st.integers(0, 999), points=st.integers(24, 600), size=st.floats(0.01, 0.4))
def test_noise_alone_is_no_slow_down(seed, points, size, verdict):
    assert verdict("SYS005", step_time=60.0 * steps_of(np.ones(points), size, seed)).verdict == "pass"


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
