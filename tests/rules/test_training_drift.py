"""LOS101: the arithmetic in plain Python. tests/test_golden.py has the original's own figures."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tracker_health.evidence import DlmStepLog

CODE = "LOS101"
LOSSES = st.lists(st.floats(-50, 50) | st.just(math.nan) | st.just(math.inf), min_size=10, max_size=120)


def log(losses, steps=None, files=("logs/train-1.jsonl",)):
    losses = np.asarray(losses, dtype=np.float64)
    return DlmStepLog(files=files, steps=np.arange(len(losses)) if steps is None else np.asarray(steps), losses=losses)


def median(values):
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def variance(values):
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def naive(losses, window=10, sigma=3.0):
    gaps = [not math.isfinite(loss) for loss in losses]
    events = sum(gaps)
    if all(gaps):
        return {
            "initial_loss": math.nan,
            "convergence_ratio": math.nan,
            "smoothness": 0.0,
            "instability_events": events,
        }
    last = next(loss for loss in losses if math.isfinite(loss))
    filled = []
    for loss in losses:
        last = loss if math.isfinite(loss) else last
        filled.append(last)
    differences = [b - a for a, b in itertools.pairwise(filled)]
    for index, rise in enumerate(differences):
        if len(differences) < window:
            baseline = median([abs(one) for one in differences])
            events += baseline > 0 and rise > sigma * baseline
            continue
        around = [
            abs(differences[other])
            for other in range(max(0, index - window // 2), min(len(differences), index + window // 2 + 1))
            if other != index
        ]
        events += rise > 0 and rise > sigma * median(around)
    spread = variance(filled)
    return {
        "initial_loss": filled[0],
        "final_loss": filled[-1],
        "convergence_ratio": filled[-1] / filled[0] if filled[0] else math.inf,
        "smoothness": max(0.0, 1 - variance(differences) / spread) if spread else 0.0,
        "instability_events": events,
    }


def rounded(losses):
    """Numbers with few digits: their differences are exact, so that no comparison hangs on the last bit."""
    return [round(loss * 64) / 64 if math.isfinite(loss) else loss for loss in losses]


@given(losses=LOSSES, window=st.integers(2, 25), sigma=st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0]))
def test_against_plain_python(losses, window, sigma, make, judge):
    losses = rounded(losses)
    finite = [loss for loss in losses if math.isfinite(loss)]
    assume(len(set(finite)) != 1)  # a constant: whether its variance is exactly 0 is numpy's business
    expected = naive(losses, window, sigma)
    result = judge(CODE, make.evidence(dlm_step_log=log(losses)), rolling_window=window, spike_sigma=sigma)
    for name, value in expected.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name
    good = (
        result.measured["smoothness"] >= 0.7
        and expected["instability_events"] <= 0
        and expected["convergence_ratio"] <= 0.7
    )
    assert result.verdict == ("pass" if good else "warn")
    assert result.score == min(1.0, result.measured["smoothness"]) * (1.0 if good else 0.5)


@pytest.mark.parametrize("n", [65_530, 65_536, 65_537, 131_100])
def test_medians_in_pieces_are_medians(n, make, judge):
    """Long logs are worked on in pieces; at their seams nothing changes."""
    losses = np.round(np.cumsum(np.random.default_rng(n).standard_normal(n)) * 64) / 64
    differences = np.diff(losses)
    padded = np.pad(np.abs(differences), 5, constant_values=np.nan)
    around = np.delete(np.lib.stride_tricks.sliding_window_view(padded, 11), 5, axis=1)
    events = int(np.sum((differences > 0) & (differences > 3 * np.nanmedian(around, axis=1))))
    assert judge(CODE, make.evidence(dlm_step_log=log(losses))).measured["instability_events"] == events


@pytest.mark.parametrize(
    ("points", "kept"), [(10, 10), (512, 512), (513, 257), (1023, 512), (1024, 513), (1025, 342 + 1), (5000, 500 + 1)]
)
def test_the_curve_is_thinned_and_keeps_its_last_point(points, kept, make, judge):
    steps = np.arange(points) * 7
    result = judge(CODE, make.evidence(dlm_step_log=log(np.linspace(3, 1, points), steps)))
    curve = result.details["curve_sampled"]
    assert len(curve) == kept
    assert (curve[0][0], curve[-1]) == (0, [int(steps[-1]), 1.0])


def test_the_curve_keeps_what_was_logged_and_not_what_was_filled(make, judge):
    losses = [math.nan, 3.0, 2.0, math.inf, *np.linspace(2, 1, 10)]
    result = judge(CODE, make.evidence(dlm_step_log=log(losses)))
    assert [loss for _, loss in result.details["curve_sampled"][:5]] == [None, 3.0, 2.0, None, 2.0]
    assert result.measured["initial_loss"] == 3.0
    assert result.measured["instability_events"] == 2


@pytest.mark.parametrize(
    ("threshold", "value", "named"),
    [
        ("assert_smoothness_gte", 1.0, "smoothness below 1"),
        ("assert_convergence_ratio_lte", 0.3, "convergence ratio above 0.3"),
        ("assert_instability_events_lte", 0, "more than 0 instability events"),
    ],
)
def test_the_message_names_each_threshold_missed(threshold, value, named, make, judge):
    losses = np.linspace(4, 2, 40)
    losses[20:] += 0.5
    missed = judge(
        CODE, make.evidence(dlm_step_log=log(losses)), **{"assert_instability_events_lte": 9, threshold: value}
    )
    assert missed.verdict == "warn"
    assert named in missed.message
    kept = judge(CODE, make.evidence(dlm_step_log=log(losses)), assert_instability_events_lte=1)
    assert kept.verdict == "pass"


def test_exactly_at_the_asserted_values_passes(make, judge):
    evidence = make.evidence(dlm_step_log=log(np.linspace(4, 2, 40)))
    measured = judge(CODE, evidence).measured
    at = {
        "assert_smoothness_gte": measured["smoothness"],
        "assert_convergence_ratio_lte": measured["convergence_ratio"],
    }
    assert judge(CODE, evidence, **at).verdict == "pass"


def test_all_non_finite(make, judge):
    result = judge(CODE, make.evidence(dlm_step_log=log([math.nan] * 12)))
    assert (result.verdict, result.score, result.measured["instability_events"]) == ("warn", 0.0, 12)


def test_a_start_at_zero_has_an_infinite_ratio(make, judge):
    result = judge(CODE, make.evidence(dlm_step_log=log([0.0, *[1.0] * 12])))
    assert result.measured["convergence_ratio"] == math.inf


@pytest.mark.parametrize(("points", "verdict"), [(9, "SkippedProbe"), (10, "pass")])
def test_the_least_number_of_steps(points, verdict, make, judge):
    assert judge(CODE, make.evidence(dlm_step_log=log(np.linspace(3, 1, points)))).verdict == verdict


def test_without_a_step_log_it_is_skipped(healthy, make, judge):
    """The general loss history is not the log that this rule reads."""
    assert judge(CODE, make.evidence(healthy.descent())).verdict == "SkippedProbe"
