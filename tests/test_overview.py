"""What the tags of many runs say together."""

from __future__ import annotations

from tracker_health.evidence import RunRef
from tracker_health.overview import overview, overview_lines
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.record import tagged
from tracker_health.verdict import Verdict


def run(number, verdict, cause="", codes=("LOS004",)):
    ref = RunRef(store="mlflow", id=str(number), name=f"run {number}")
    return TaggedRun(ref=ref, verdict=verdict, codes=codes, summary="the loss rose", cause=cause)


RUNS = [
    run(1, Verdict.FAIL, "learning-rate-too-high"),
    run(2, Verdict.FAIL, "learning-rate-too-high"),
    run(3, Verdict.WARN, "overfitting"),
    run(4, Verdict.PASS, codes=()),
]


def test_causes_are_counted_and_grouped():
    found = overview(RUNS, by=["cause"])
    assert found.causes == {"learning-rate-too-high": 2, "overfitting": 1}
    assert found.groups["cause"]["learning-rate-too-high"]["fail"] == 2
    document = found.to_json()
    assert document["causes"][0] == {"cause": "learning-rate-too-high", "runs": 2}
    assert document["worst"][0]["cause"] == "learning-rate-too-high"
    lines = list(overview_lines(found))
    assert lines.index("most frequent causes") < lines.index("most frequent reasons")
    assert any("learning-rate-too-high: the loss rose" in line for line in lines)


def test_without_a_cause_nothing_is_said_of_it():
    found = overview([run(1, Verdict.FAIL)])
    assert found.to_json()["causes"] == []
    assert found.to_json()["worst"][0]["cause"] is None
    assert "most frequent causes" not in list(overview_lines(found))


def test_a_run_has_the_cause_of_its_tag():
    ref = RunRef(store="mlflow", id="1", name="a")
    tags = {
        "health.verdict": "fail", "health.digest": "0" * 16, "health.written": "{}", "health.cause": "overfitting",
    }  # fmt: skip
    found = tagged(ref, tags, user="", started=None, last_step=None)
    assert found.cause == ("overfitting" if found.verdict is not None else "")
