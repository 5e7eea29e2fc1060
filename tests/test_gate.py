"""What a gate answers, from reports alone; and how answers and verdicts look in continuous integration."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tracker_health.evidence import RunRef
from tracker_health.judge.gate_decision import Gated, GateDecision, Rule, decide
from tracker_health.render.ci import JUnit, check_of_model, check_of_run, github_line
from tracker_health.render.model_card import model_card, model_lines
from tracker_health.report.result import HEALTHY_SO_FAR, ErrorEntry, ProbeResult, Report, ToolInfo
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

TOOL = ToolInfo(version="1", preset="default", config_digest="d")


def finding(code, verdict):
    return ProbeResult(
        code=code, name=f"rule-{code.lower()}", symptom="s", status="stable", verdict=verdict, votes=True, score=0.0, message="numbers"
    )  # fmt: skip


def report(verdict=Verdict.PASS, *findings, **more):
    run = RunRef(store="mlflow", id="1", name="run 17")
    return Report(run=run, verdict=verdict, score=None, summary=f"it is {verdict}", results=findings, tool=TOOL, **more)


PASSED, SKIPPED = report(), report(Verdict.SKIP)
WARNED = report(Verdict.WARN, finding("LOS002", Verdict.WARN))
FAILED = report(Verdict.FAIL, finding("LOS001", Verdict.FAIL), finding("LOS002", Verdict.WARN))
UNREAD = report(Verdict.ERROR, errors=(ErrorEntry(source="model.safetensors", message="it is cut off"),))
BAD_FILES = report(Verdict.FAIL, finding("WGT001", Verdict.FAIL))
RUNNING = replace(report(Verdict.SKIP), ended=Ended.RUNNING, summary=f"{HEALTHY_SO_FAR} up to step 9")


@pytest.mark.parametrize(
    ("run", "files", "failure", "answer", "verdict"),
    [
        (PASSED, None, "", GateDecision.GO_ON, Verdict.PASS),
        (PASSED, SKIPPED, "", GateDecision.GO_ON, Verdict.PASS),
        (WARNED, PASSED, "", GateDecision.GO_ON, Verdict.WARN),
        (FAILED, PASSED, "", GateDecision.BAD, Verdict.FAIL),
        (PASSED, BAD_FILES, "", GateDecision.BAD, Verdict.FAIL),
        (None, BAD_FILES, "the run is gone", GateDecision.BAD, Verdict.FAIL),
        (None, PASSED, "the run is gone", GateDecision.NOT_JUDGED, None),
        (None, None, "", GateDecision.NOT_JUDGED, None),
        (SKIPPED, SKIPPED, "", GateDecision.NOT_JUDGED, Verdict.SKIP),
        (UNREAD, None, "", GateDecision.NOT_JUDGED, Verdict.ERROR),
        (PASSED, UNREAD, "", GateDecision.NOT_JUDGED, Verdict.ERROR),
        (PASSED, None, "its files are out of reach", GateDecision.NOT_JUDGED, Verdict.PASS),
        (FAILED, None, "its files are out of reach", GateDecision.BAD, Verdict.FAIL),
        (RUNNING, None, "", GateDecision.UNFINISHED, Verdict.SKIP),
        (replace(SKIPPED, ended=Ended.RUNNING), None, "", GateDecision.UNFINISHED, Verdict.SKIP),
        (replace(FAILED, ended=Ended.RUNNING), None, "", GateDecision.BAD, Verdict.FAIL),
    ],
)
def test_answers(run, files, failure, answer, verdict):
    gate = decide(run, files, failure)
    assert (gate.answer, gate.verdict) == (answer, verdict)
    assert gate.reason


def test_what_is_asked_for_decides():
    assert decide(WARNED, None, rule=Rule(fail_on="warn")).answer is GateDecision.BAD
    assert decide(FAILED, None, rule=Rule(fail_on="never")).answer is GateDecision.GO_ON
    assert decide(SKIPPED, None, rule=Rule(fail_on="never")).answer is GateDecision.NOT_JUDGED
    assert decide(RUNNING, None, rule=Rule(allow_unfinished=True)).answer is GateDecision.GO_ON
    unread = replace(RUNNING, summary="nothing here shows whether training worked: too few points")
    assert decide(unread, None, rule=Rule(allow_unfinished=True)).answer is GateDecision.NOT_JUDGED


def test_an_acknowledged_finding_may_pass_and_is_recorded_and_the_verdict_stays():
    gate = decide(FAILED, None, rule=Rule(accepts=frozenset({"LOS001"})))
    assert (gate.answer, gate.verdict, gate.accepted) == (GateDecision.GO_ON, Verdict.FAIL, ("LOS001",))
    assert "LOS001" in gate.reason
    other = decide(FAILED, BAD_FILES, rule=Rule(accepts=frozenset({"LOS001"})))
    assert (other.answer, other.accepted) == (GateDecision.BAD, ("LOS001",))
    assert "WGT001" in other.reason


HOSTILE = "a\n::stop-commands::x\r##[error]%0A\x1b[31m ]]> <b>&\ufffe\ud800"


def test_an_annotation_is_one_line_and_one_command_whatever_a_run_is_called():
    named = replace(FAILED, run=RunRef(store="mlflow", id=HOSTILE, name=HOSTILE), summary=HOSTILE)
    line = github_line(check_of_run(named, "fail"))
    assert line.startswith("::error title=FAIL a ")
    assert not set(line) & set("\n\r\x1b")
    properties, _, message = line.removeprefix("::error ").partition("::")
    assert not set(properties.removeprefix("title=")) & set(":,")
    assert "%250A" in message


@pytest.mark.parametrize(
    ("judged", "fail_on", "level", "result"),
    [
        (PASSED, "fail", "notice", "passed"),
        (WARNED, "fail", "warning", "passed"),
        (WARNED, "warn", "warning", "failed"),
        (FAILED, "fail", "error", "failed"),
        (FAILED, "never", "error", "passed"),
        (SKIPPED, "fail", "notice", "skipped"),
        (SKIPPED, "skip", "notice", "failed"),
        (UNREAD, "never", "error", "error"),
    ],
)
def test_checks_of_runs(judged, fail_on, level, result):
    check = check_of_run(judged, fail_on)
    assert (check.level, check.result) == (level, result)


def test_a_test_report_counts_and_can_be_parsed_whatever_a_run_is_called():
    named = replace(FAILED, run=RunRef(store="mlflow", id=HOSTILE, name=HOSTILE), summary=HOSTILE)
    cases = JUnit()
    for one in (PASSED, named, SKIPPED, UNREAD):
        cases.add(check_of_run(one, "fail"))
    root = ET.fromstring(cases.document().encode())
    assert {key: root.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    assert [[child.tag for child in case] for case in root.iter("testcase")] == [
        ["system-out"], ["failure"], ["skipped"], ["error"],
    ]  # fmt: skip


def test_a_card_has_five_lines_and_no_markup_of_a_run():
    named = replace(FAILED, run=RunRef(store="mlflow", id="1", name="<img src=x> [a](b)\n# c", url="https://h/#/r"))
    gated = Gated(model="models:/<b>net/1", gate=decide(named, None), run=named, unread=HOSTILE)
    lines = model_card(gated)
    assert len(lines) == 5
    assert not any("<img" in line or "<b>" in line or "\n" in line for line in lines)
    assert not any("\x1b" in line for line in model_lines(gated))
    check = check_of_model(gated, blocks=True)
    assert (check.level, check.result) == ("error", "failed")
