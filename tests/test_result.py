import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import RunRef
from tracker_health.report.result import (
    ErrorEntry,
    Finding,
    ProbeResult,
    Report,
    SeriesUse,
    SkippedProbe,
    ToolInfo,
    strict,
)
from tracker_health.words.verdict import Verdict

names = st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True)
codes = st.from_regex(r"[A-Z]{3}[0-9]{3}", fullmatch=True)
scores = st.none() | st.floats(0, 1)
measures = st.dictionaries(
    st.text(max_size=10), st.floats() | st.integers(-(2**53), 2**53) | st.text(max_size=10), max_size=4
)

results = st.builds(
    ProbeResult, code=codes, name=names, symptom=st.sampled_from(["nonfinite", "spikes"]), status=st.sampled_from(["stable", "preview"]),
    verdict=st.sampled_from([Verdict.PASS, Verdict.WARN, Verdict.FAIL]), votes=st.booleans(), score=scores, message=st.text(max_size=50),
    remedy=st.text(max_size=20), measured=measures, steps=st.lists(st.integers(0, 10**9), max_size=3).map(tuple), confidence=st.sampled_from(["high", "low"]),
)  # fmt: skip
reports = st.builds(
    Report,
    run=st.builds(RunRef, store=st.sampled_from(["mlflow", "directory"]), id=st.text(), name=st.text(), url=st.none() | st.just("http://x")),
    verdict=st.sampled_from(Verdict), score=scores, summary=st.text(), results=st.lists(results, max_size=3).map(tuple),
    skipped=st.lists(st.builds(SkippedProbe, code=codes, name=names, reason=st.text()), max_size=2).map(tuple),
    errors=st.lists(st.builds(ErrorEntry, source=st.text(), message=st.text(), code=st.none() | codes, name=st.none() | names), max_size=2).map(tuple),
    series=st.lists(st.builds(SeriesUse, name=st.text(), role=st.none() | st.just("train_loss"), source=st.text(), points=st.integers(0, 9), nonfinite=st.integers(0, 9)), max_size=2).map(tuple),
    tool=st.just(ToolInfo(version="0.1.0", preset="default", config_digest="0" * 16)), fingerprint=st.text(max_size=16),
)  # fmt: skip


@given(reports)
def test_a_report_survives_its_json_and_fits_the_schema(valid_report, report):
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    valid_report(document)
    again = Report.from_json(document)
    # repr tells NaN from NaN alike, which == does not.
    assert repr(again) == repr(report)


def test_unknown_keys_are_ignored():
    report = Report(
        run=RunRef(store="mlflow", id="1", name="n"),
        verdict=Verdict.PASS,
        score=1.0,
        summary="",
        tool=ToolInfo(version="9", preset="p", config_digest="d"),
    )
    document = report.to_json() | {"new": 1}
    document["run"]["also"] = 2
    assert Report.from_json(document) == report


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="tracker-health/report/2"):
        Report.from_json({"schema": "tracker-health/report/3"})


@pytest.mark.parametrize(("huge", "name"), [(10**400, "Infinity"), (-(10**4000), "-Infinity"), (2**63, "Infinity")])
def test_integers_beyond_64_bits_are_infinities(valid_report, huge, name):
    result = ProbeResult(
        code="LOS001",
        name="x",
        symptom="nonfinite",
        status="stable",
        verdict=Verdict.FAIL,
        votes=True,
        score=0.0,
        message="",
        measured={"huge": huge, "small": 2**63 - 1},
        details={"deep": [{"a": (huge, 1)}], huge: True},
        thresholds={"limit": huge},
    )
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert (document["measured"], document["nonfinite"]) == ({"huge": None, "small": 2**63 - 1}, {"huge": name})
    assert document["details"]["deep"] == [{"a": [None, 1]}]
    assert document["thresholds"] == {"limit": None}
    assert math.isinf(float(result.measured["huge"]))
    assert ProbeResult.from_json(document).measured == result.measured


def test_nonfinite_measures_are_null_and_named():
    result = ProbeResult(
        code="LOS001",
        name="x",
        symptom="nonfinite",
        status="stable",
        verdict=Verdict.FAIL,
        votes=True,
        score=0.0,
        message="",
        measured={"a": math.nan, "b": -math.inf, "c": 1},
    )
    document = result.to_json()
    assert document["measured"] == {"a": None, "b": None, "c": 1}
    assert document["nonfinite"] == {"a": "NaN", "b": "-Infinity"}


def test_strict_makes_plain_json_of_nested_values():
    assert strict({"a": (1, math.nan, {"b": [math.inf]}), 2: Verdict.PASS}) == {
        "a": [1, None, {"b": [None]}],
        "2": "pass",
    }
    with pytest.raises(TypeError, match="object"):
        strict(object())


@pytest.mark.parametrize(
    ("verdict", "score"), [(Verdict.PASS, 1.0), (Verdict.WARN, 0.5), (Verdict.FAIL, 0.0), (Verdict.SKIP, None)]
)
def test_scores_follow_from_verdicts(verdict, score):
    assert Finding(verdict=verdict, message="").scored() == score


def test_scores_are_clipped():
    assert Finding(verdict=Verdict.PASS, message="", score=1.7).scored() == 1.0


def test_findings_are_the_voting_ones_worst_first():
    def result(code, verdict, votes=True):
        return ProbeResult(
            code=code, name="x", symptom="spikes", status="stable", verdict=verdict, votes=votes, score=0.0, message=""
        )

    report = Report(
        run=RunRef(store="mlflow", id="1", name="n"), verdict=Verdict.FAIL, score=0.0, summary="", tool=ToolInfo(version="9", preset="p", config_digest="d"),
        results=(result("AAA001", Verdict.WARN), result("AAA002", Verdict.PASS), result("AAA003", Verdict.FAIL), result("AAA004", Verdict.FAIL, votes=False)),
    )  # fmt: skip
    assert [finding.code for finding in report.findings] == ["AAA003", "AAA001"]
