"""Verdicts as continuous integration shows them: annotations of GitHub Actions, and test reports of JUnit's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tracker_health.judge.doc_links import page_about
from tracker_health.judge.gate_decision import FAILS_ON, Gated, GateDecision
from tracker_health.report.result import Report, once_a_source
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

_MOST_TITLE, _MOST_MESSAGE = 200, 2_000  # characters
_MOST_CASES = 100_000
_LEVELS = {Verdict.FAIL: "error", Verdict.ERROR: "error", Verdict.WARN: "warning"}

Result = Literal["passed", "failed", "error", "skipped"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was judged, for a job's page. ``group``: the kind of thing; ``level``: of the annotation."""

    group: str
    name: str
    result: Result
    level: str
    title: str
    message: str


def check_of_run(report: Report, fail_on: str, docs_url: str = "") -> Check:
    """The check of a run. ``fail_on``: from which verdict on it has failed. ``docs_url``: the base of the address to
    read on at, empty for none.
    """
    lines = [report.headline]
    if report.diagnosis is not None:
        lines.append(f"Try: {report.diagnosis.action.in_short}")
    if report.rewind is not None:
        said = f"{report.rewind.label}{report.rewind.said}"
        lines.append(f"{said[:1].upper()}{said[1:]}")
    lines += [f"{one.code} {one.name}: {one.message}" for one in report.unexplained]
    if page := page_about(report, docs_url):
        lines.append(f"Read: {page}")
    errors = once_a_source(report.errors)[0]
    lines += [f"{one.source}: {one.message}" for one in errors]
    ids = report.run.name if report.run.id == report.run.name else f"{report.run.name} ({report.run.id})"
    return Check(
        group=f"tracker-health.{report.run.store}",
        name=ids,
        result=_result_of(report, fail_on),
        level=_LEVELS.get(report.verdict, "notice"),
        title=f"{report.verdict.upper()} {ids}",
        message="\n".join(lines),
    )


def _result_of(report: Report, fail_on: str) -> Result:
    if report.errors or report.verdict is Verdict.ERROR:
        return "error"
    if report.verdict is Verdict.SKIP:
        return "failed" if fail_on == "skip" and not report.is_parent else "skipped"
    return "failed" if report.verdict in FAILS_ON[fail_on] else "passed"


def check_of_model(gated: Gated, *, blocks: bool) -> Check:
    """The check of a model at a gate. ``blocks``: whether the answer keeps it back."""
    answer = gated.gate.answer
    result: Result = "failed" if answer is GateDecision.BAD else "error" if blocks else "passed"
    return Check(
        group="tracker-health.gate",
        name=gated.model,
        result=result,
        level="error" if blocks else "notice" if answer is GateDecision.GO_ON else "warning",
        title=f"{answer}: {gated.model}",
        message="\n".join(filter(None, [gated.gate.reason, gated.promotion, *gated.notes])),
    )


def github_line(check: Check) -> str:
    """An annotation, as a command on a line of its own. What is in it cannot be another command."""
    title = _escaped(printable(check.title, _MOST_TITLE)).replace(":", "%3A").replace(",", "%2C")
    lines = (printable(line, _MOST_MESSAGE) for line in check.message.splitlines())
    return f"::{check.level} title={title}::{_escaped(chr(10).join(lines)) or title}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


class JUnit:
    """A test report that is put together check by check."""

    def __init__(self) -> None:
        self._checks: list[Check] = []

    def add(self, check: Check) -> None:
        """Take one more, up to a hundred thousand."""
        if len(self._checks) < _MOST_CASES:
            self._checks.append(check)

    def document(self) -> str:
        """All of them, as XML."""
        results = [one.result for one in self._checks]
        counts = {
            "tests": str(len(results)),
            "failures": str(results.count("failed")),
            "errors": str(results.count("error")),
            "skipped": str(results.count("skipped")),
        }
        root = Element("testsuites", counts)
        suite = SubElement(root, "testsuite", {"name": "tracker-health", **counts})
        for check in self._checks:
            case = SubElement(suite, "testcase", {"classname": check.group, "name": printable(check.name, _MOST_TITLE)})
            title = printable(check.title, _MOST_TITLE)
            text = "\n".join(printable(line, _MOST_MESSAGE) for line in check.message.splitlines())
            if check.result == "passed":
                SubElement(case, "system-out").text = f"{title}\n{text}"
            else:
                kind = {"failed": "failure", "error": "error", "skipped": "skipped"}[check.result]
                SubElement(case, kind, {"message": title}).text = text
        indent(root)
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode")
