"""A report in the terminal: the cause, its evidence, what to try."""

import click
import pytest

from tracker_health.evidence import RunRef
from tracker_health.render.console import one_line, report_lines
from tracker_health.render.markdown import report_markdown
from tracker_health.render.page import report_page
from tracker_health.report.result import Judged, ProbeResult, Report, ToolInfo
from tracker_health.words.diagnosis import Action, Alternative, Diagnosis, SignSeen
from tracker_health.words.verdict import Verdict


def result(code, name, message, remedy=""):
    return ProbeResult(
        code=code, name=name, symptom="diverged", status="stable", verdict=Verdict.FAIL, votes=True, score=0.0,
        message=message, remedy=remedy,
    )  # fmt: skip


@pytest.fixture
def report():
    diagnosis = Diagnosis(
        cause="learning-rate-too-high",
        certainty="certain",
        sentence="A learning rate of 3 is too high; the loss rose.",
        action=Action(text="train again with 0.01, not 3", setting="learning_rate", old=3.0, new=0.01),
        explains=("OPT006", "LOS004"),
        others=(Alternative(cause="initialisation-wrong", test="print the norms"),),
        signs=(SignSeen(name="the rate is beyond what trains", looks_at="learning_rate", weight=8),),
        score=8,
    )
    results = (
        result("LOS004", "diverged", "the loss rose", "restart with a lower rate"),
        result("OPT006", "update-too-small", "steps are too small", "raise the rate 3e7 times"),
        result("SYS002", "memory-growth", "memory grows", "look for lists that are kept"),
    )
    return Report(
        run=RunRef(store="directory", id="run", name="run"), verdict=Verdict.FAIL, score=0.0, summary="diverged",
        results=results, diagnosis=diagnosis, tool=ToolInfo(version="1", preset="default", config_digest="d"),
        judged=(Judged(part="loss", state="judged"), Judged(part="weights", state="not usable", why="it is empty")),
    )  # fmt: skip


def lines_of(report, **more):
    return [click.unstyle(line) for line in report_lines(report, width=100, **more)]


def test_the_cause_comes_first_and_its_evidence_has_no_remedies(report):
    lines = lines_of(report)
    shown = "\n".join(lines)
    assert lines[0] == f"FAIL   run: {report.diagnosis.sentence}"
    assert lines[1] == "  cause    learning-rate-too-high (certain)"
    assert lines[2].split() == ["try", "learning_rate:", "3", "->", "0.01"]
    assert lines[4].split() == ["found", "FAIL", "OPT006", "update-too-small:", "steps", "are", "too", "small"]
    assert lines[5].split() == ["FAIL", "LOS004", "diverged"]
    assert "raise the rate" not in shown
    assert "restart with" not in shown
    assert "look for lists that are kept" in shown
    assert "judged   loss" in shown
    assert "weights not usable: it is empty" in shown
    assert "+8.0 the rate is beyond what trains" not in shown


def test_the_signs_are_shown_on_request(report):
    assert any("+8.0 the rate is beyond what trains (learning_rate)" in line for line in lines_of(report, verbose=True))


def test_one_line_names_the_cause(report):
    assert "learning-rate-too-high (certain): A learning rate of 3" in one_line(report)


def test_markdown_and_page_begin_with_it(report):
    text = "\n".join(report_markdown(report))
    assert text.index("learning-rate-too-high") < text.index("LOS004")
    assert "raise the rate" not in text
    html = report_page(report).decode()
    assert html.index("learning-rate-too-high") < html.index("OPT006") < html.index("LOS004") < html.index("SYS002")
    assert "raise the rate" not in html
    assert "learning_rate: 3 -&gt; 0.01" in html
    assert "not usable: it is empty" in html
