import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import preset
from tracker_health.evidence import Evidence, RunEnd, RunInfo, RunRef, Series, Siblings
from tracker_health.judge.engine import compared, diagnose
from tracker_health.report.siblings import end_of, siblings_among
from tracker_health.rules.curves.odd_one_out import OddOneOut
from tracker_health.words.verdict import Verdict

REF = RunRef(store="directory", id="run", name="run")
USUAL = (0.50, 0.51, 0.49, 0.52, 0.48, 0.50)


def end(value, *, start=2.3, step=1000, metric="loss"):
    return RunEnd(metric=metric, step=step, start=start, end=value)


def judged(own, others, **thresholds):
    siblings = Siblings(own=own, others=tuple(others))
    return OddOneOut(**thresholds).judge(Evidence(run=REF, siblings=siblings))


def history(values, name="train_loss", role="train_loss"):
    series = Series(name=name, role=role, steps=np.arange(len(values)), values=np.asarray(values, dtype=np.float64))
    return Evidence(run=REF, info=RunInfo(status="FINISHED", metric_names=(name,)), series=(series,))


def test_a_run_among_its_like_passes():
    assert judged(end(0.515), map(end, USUAL)).verdict is Verdict.PASS


def test_one_that_ended_far_above_warns_with_the_numbers():
    finding = judged(end(0.9), map(end, USUAL))
    assert finding.verdict is Verdict.WARN
    assert "ended at 0.9, where 6 comparable runs ended around 0.5" in finding.message
    assert finding.measured["deviations"] == pytest.approx(0.4 / 0.01)


def test_one_that_ended_far_below_is_no_odd_one():
    assert judged(end(0.1), map(end, USUAL)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (0.56, (0.5, 0.58, 0.45, 0.55, 0.42, 0.5)),  # within what the others differ by
        (0.52, (0.5,) * 6),  # far beyond their deviations, which are none, but by 4 %, which is little
        (0.004, (0.001, 0.0011, 0.0009, 0.001, 0.001)),  # four times as high, and all of them learned it by heart
    ],
)
def test_near_misses(own, others):
    assert judged(end(own), map(end, others)).verdict is Verdict.PASS


def test_most_runs_being_bad_makes_nobody_odd():
    assert judged(end(2.3), map(end, (2.3, 2.31, 2.29, 2.3, 0.4, 0.5))).verdict is Verdict.PASS


FINITE = st.floats(allow_nan=False, allow_infinity=False)
ENDS = st.lists(FINITE, min_size=5, max_size=9)


@given(FINITE, ENDS)
def test_a_second_implementation_agrees(own, others):
    with np.errstate(all="ignore"):
        finding = judged(end(own), map(end, others))
    ordered = sorted(others)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    distances = sorted(abs(one - middle) for one in others)
    spread = (distances[(len(distances) - 1) // 2] + distances[len(distances) // 2]) / 2
    descents = sorted(2.3 - one for one in others)
    descent = (descents[(len(descents) - 1) // 2] + descents[len(descents) // 2]) / 2
    if not all(map(math.isfinite, (middle, spread, own - middle, descent))):
        return
    odd = own - middle > max(5 * spread, 0.15 * abs(middle), 0.15 * descent)
    assert (finding.verdict is Verdict.WARN) == odd


@given(ENDS, st.integers(-20, 20).map(lambda power: 2.0**power))  # exactly: the limit may be met to the last bit
def test_a_run_at_the_others_median_never_warns_and_units_do_not_matter(others, unit):
    others = [one % 7 if abs(one) > 1e-9 else 0.0 for one in others]
    assert judged(end(float(np.median(others))), map(end, others)).verdict is Verdict.PASS
    own = 2 * max(others) + 1
    here = judged(end(own), map(end, others)).verdict
    scaled = [end(one * unit, start=2.3 * unit) for one in others]
    there = judged(end(own * unit, start=2.3 * unit), scaled).verdict
    assert here is there


def test_levels_are_medians_of_the_first_twentieth_and_the_last_tenth():
    values = np.linspace(3.0, 1.0, 200)
    values[3], values[-1] = 900.0, np.nan
    found = end_of(history(values))
    finite = values[np.isfinite(values)]
    assert found == RunEnd(
        metric="train_loss", step=198, start=float(np.median(finite[:9])), end=float(np.median(finite[-19:]))
    )
    assert end_of(history([np.nan, np.inf])) is None
    assert end_of(history([1.0, 2.0], role="accuracy")) is None
    assert end_of(history([1.0, 2.0], "val_loss", "val_loss")).metric == "val_loss"


def test_comparable_are_runs_with_the_same_loss_that_are_about_as_long():
    ends = [end(0.5), end(0.6, step=1250), end(0.7, step=1251), end(0.8, metric="other"), None, end(0.9, step=800)]
    first, *_, none, last = siblings_among(ends)
    assert [one.end for one in first.others] == [0.9, 0.6]  # the closest in length first
    assert none is None
    assert [one.end for one in last.others] == [0.5]
    assert len(siblings_among([end(0.5)] * 7)[0].others) == 6


def test_of_very_many_runs_those_of_the_most_alike_length_are_compared():
    found = siblings_among([end(float(at), step=10_000 + at) for at in range(3000)])
    assert {len(one.others) for one in found} == {200}
    assert {other.step for other in found[1500].others} == {11_500 + by for by in range(-100, 101) if by}
    assert {other.step for other in found[0].others} == {10_000 + by for by in range(1, 201)}


def healthy():
    return history(2.0 * np.exp(-np.arange(400) / 60.0) + 0.3)


def test_a_report_gains_what_the_others_show():
    config = preset("default")
    report = diagnose(healthy(), config)
    assert next(one for one in report.skipped if one.code == "CMP001").reason.startswith("no other run was read")
    odd = compared(report, Siblings(own=end(0.9), others=tuple(map(end, USUAL))), config)
    assert odd.verdict is report.verdict is Verdict.PASS
    assert odd.summary == report.summary
    assert [one.verdict for one in odd.results if one.code == "CMP001"] == [Verdict.WARN]
    assert not [one for one in odd.skipped if one.code == "CMP001"]
    few = compared(report, Siblings(own=end(0.9), others=(end(0.5),)), config)
    assert next(one for one in few.skipped if one.code == "CMP001").reason == "only 1 run of siblings, 5 are needed"


def test_what_lies_beside_a_run_has_no_vote_even_where_preview_rules_have():
    config = preset("strict")
    report = diagnose(healthy(), config)
    odd = compared(report, Siblings(own=end(0.9), others=tuple(map(end, USUAL))), config)
    assert (report.verdict, odd.verdict) == (Verdict.PASS, Verdict.PASS)
    assert [(one.verdict, one.votes) for one in odd.results if one.code == "CMP001"] == [(Verdict.WARN, False)]
    assert odd.summary == report.summary
