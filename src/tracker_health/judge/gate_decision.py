"""Whether a registered model may go on: the answer, from the reports on its run and on its own files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tracker_health.judge.annotations import CAUSE, RULES, SETTINGS, SHADOW, JudgedBy, in_markdown
from tracker_health.report.brief import MOST_BYTES, Room, brief_cause, fitted
from tracker_health.report.result import ProbeResult, Report, brief_action
from tracker_health.text import clipped, printable
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict, worst_verdict

SCHEMA = "tracker-health/gate/1"
"""Of the JSON document."""
BRIEF_SCHEMA = "tracker-health/gate-brief/1"
"""Of the same in few bytes."""

FAILS_ON: Mapping[str, frozenset[Verdict]] = {
    "never": frozenset(),
    "fail": frozenset({Verdict.FAIL}),
    "warn": frozenset({Verdict.FAIL, Verdict.WARN}),
    "skip": frozenset({Verdict.FAIL, Verdict.WARN}),
}
"""The verdicts of findings that make a bad model, for each value of ``fail_on``. A run with nothing to judge is never a
bad model: it could not be judged.
"""
NOTE_BEGINS = "**Training health of this version: "
"""By this the block in a description is the gate's: one that someone copied from a run begins otherwise."""
_MOST_REASON = 400
_MODEL_BYTES, _URL_BYTES, _NAME_BYTES, _NOTE_BYTES = 160, 200, 20, 120
_VERDICT, _ACCEPTED = "verdict", "accepted"


class GateDecision(StrEnum):
    """What a gate says."""

    GO_ON = "go on"
    BAD = "bad model"
    NOT_JUDGED = "could not be judged"
    UNFINISHED = "unfinished run"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a model may go on. ``fail_on``: of ``FAILS_ON``. ``allow_unfinished``: also while its run is still running.
    ``accepts``: codes of findings that someone has acknowledged, and that may pass for that. ``require_files``: only
    where all of the model's files were read, and judged.
    """

    fail_on: str = "fail"
    allow_unfinished: bool = False
    require_files: bool = False
    accepts: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The answer about one model. ``verdict``: on its run and its files together, whatever was accepted; None where
    neither could be judged. ``cause``: the one cause of the findings, empty where none is known. ``accepted``: the
    codes that passed since someone has acknowledged them.
    """

    answer: GateDecision
    reason: str
    verdict: Verdict | None = None
    cause: str = ""
    accepted: tuple[str, ...] = ()


def decide(
    run: Report | None, files: Report | None, failure: str = "", rule: Rule | None = None, unread: str = ""
) -> Gate:
    """The answer. ``run``: the report on the run that made the model; ``files``: on the registered files alone, None
    where there was nothing to read. ``failure``: why there is no report on the run, or why one of them cannot be relied
    upon. ``unread``: why not all of the files were read.

    What is clearly wrong comes first: a model that is bad stays bad, whatever else could not be read. Then a run that
    is still running, which has to be asked about again; then what could not be judged.
    """
    chosen = rule or Rule()
    found = _findings(run, files)
    counted = [one for one in found if one.verdict in FAILS_ON[chosen.fail_on]]
    barred = [one for one in counted if one.code not in chosen.accepts]
    gate = Gate(
        answer=GateDecision.GO_ON,
        reason="",
        verdict=_verdict(run, files),
        cause=_cause(run, files),
        accepted=tuple(one.code for one in counted if one.code in chosen.accepts),
    )
    if barred:
        return replace(gate, answer=GateDecision.BAD, reason=_why_bad(barred[0], run, files))
    if run is not None and run.ended == Ended.RUNNING and not chosen.allow_unfinished:
        return replace(gate, answer=GateDecision.UNFINISHED, reason="its run is still running")
    reason = failure or _why_not_judged(run, files)
    if not reason and chosen.require_files and (files is None or unread or not _says_something(files)):
        reason = f"its files are required, and not judged: {unread or 'no rule says anything of them'}"
    if reason:
        return replace(gate, answer=GateDecision.NOT_JUDGED, reason=printable(reason, _MOST_REASON))
    accepted = f"acknowledged: {', '.join(gate.accepted)}" if gate.accepted else ""
    return replace(gate, reason=accepted or (run.headline if run is not None else ""))


def _findings(run: Report | None, files: Report | None) -> list[ProbeResult]:
    """Of both, worst first; what the run's own checkpoint shows already is not said of the files again."""
    of_run = list(run.findings) if run is not None else []
    known = {one.code for one in of_run}
    of_files = [one for one in (files.findings if files is not None else ()) if one.code not in known]
    return sorted([*of_run, *of_files], key=lambda one: -one.verdict.rank)


def _verdict(run: Report | None, files: Report | None) -> Verdict | None:
    """The worse of the two. That files alone do not show whether training worked takes nothing from the run's."""
    if run is None:
        return files.verdict if files is not None and files.findings else None
    return worst_verdict(
        [run.verdict, *([files.verdict] if files is not None and files.verdict is not Verdict.SKIP else [])]
    )


def _cause(run: Report | None, files: Report | None) -> str:
    known = [one.cause for one in (run, files) if one is not None and one.cause]
    return known[0] if known else ""


def _why_bad(finding: ProbeResult, run: Report | None, files: Report | None) -> str:
    explained = next(
        (
            one.diagnosis
            for one in (run, files)
            if one is not None and one.diagnosis is not None and finding.code in one.diagnosis.explains
        ),
        None,
    )
    text = explained.headline if explained is not None else f"{finding.code} {finding.name}: {finding.message}"
    return printable(text, _MOST_REASON)


def _says_something(files: Report) -> bool:
    return any(one.verdict in (Verdict.PASS, Verdict.WARN, Verdict.FAIL) for one in files.results)


def _why_not_judged(run: Report | None, files: Report | None) -> str:
    """Why what was judged says nothing; empty where it does."""
    if run is None:
        return "no run is known that made it"
    for report in (run, files):
        if report is not None and (report.errors or report.verdict is Verdict.ERROR):
            return next((f"{one.source}: {one.message}" for one in report.errors), report.summary)
    return run.summary if run.verdict is Verdict.SKIP and not run.is_healthy_so_far else ""


@dataclass(frozen=True, kw_only=True)
class Gated:
    """The answer about a model, with what it rests on.

    ``model``: as ``models:/net/3`` or ``wandb:team/proj/net:v3``; ``url``: of its page. ``run`` and ``files``: the
    reports; ``unread``: why the registered files were not all read, empty where they were. ``notes``: what to know
    besides. ``written``: the tags that were written onto the model's version; ``unwritten``: why they were not.
    ``promoted``: what became of the alias; ``unpromoted``: why it was not set. ``error``: what kept the model from
    being judged. ``shadow``: answers are only tried out, and keep nothing back.
    """

    model: str
    gate: Gate
    url: str = ""
    run: Report | None = None
    files: Report | None = None
    unread: str = ""
    notes: tuple[str, ...] = ()
    written: bool = False
    unwritten: str = ""
    promoted: str = ""
    unpromoted: str = ""
    error: Exception | None = None
    shadow: bool = False

    @property
    def promotion(self) -> str:
        """What became of the alias, in words; empty where none was to be set."""
        if self.promoted:
            return f"promoted: {self.promoted}"
        return f"not promoted: {self.unpromoted}" if self.unpromoted else ""

    @property
    def lacks_promotion(self) -> bool:
        """Whether it may go on, and did not get the alias that it was to have."""
        return bool(self.unpromoted) and self.gate.answer is GateDecision.GO_ON and not self.shadow

    def brief(self, most: int = MOST_BYTES) -> dict[str, Any]:
        """The answer for a reader with little room, in at most so many bytes of JSON; at least 1,500."""
        return fitted(self._brief_in, most)

    def _brief_in(self, room: Room) -> dict[str, Any]:
        gate = self.gate
        reports = [one for one in (self.run, self.files) if one is not None]
        diagnosis = next((one.diagnosis for one in reports if one.diagnosis is not None), None)
        found = list({one.code: one for report in reports for one in report.headline_first}.values())
        certainty = diagnosis.certainty if diagnosis is not None and diagnosis.cause == gate.cause else ""
        return {
            "schema": BRIEF_SCHEMA,
            "model": clipped(self.model, _MODEL_BYTES),
            "url": self.url if self.url and clipped(self.url, _URL_BYTES) == self.url else None,
            "answer": str(gate.answer),
            "reason": clipped(gate.reason, room.text),
            "verdict": None if gate.verdict is None else str(gate.verdict),
            "cause": brief_cause(gate.cause, certainty),
            "findings": [one.brief(room) for one in found[: room.findings]],
            "more_findings": max(0, len(found) - room.findings),
            "action": None if diagnosis is None else brief_action(diagnosis.action, room),
            "accepted": [clipped(one, _NAME_BYTES) for one in gate.accepted[: room.findings]],
            "files": clipped(self.unread, _NOTE_BYTES) or ("read" if self.files is not None else "not read"),
            "promotion": clipped(self.promotion, _NOTE_BYTES) or None,
        }

    def to_json(self, *, skipped: bool = True) -> dict[str, Any]:
        """As a document of strict JSON values. ``skipped``: its reports have the rules that did not run, too."""
        gate = self.gate
        return {
            "schema": SCHEMA,
            "model": self.model,
            "url": self.url or None,
            "answer": str(gate.answer),
            "reason": gate.reason,
            "verdict": None if gate.verdict is None else str(gate.verdict),
            "cause": gate.cause or None,
            "accepted": list(gate.accepted),
            "files": self.unread or ("read" if self.files is not None else "not read"),
            "notes": list(self.notes),
            "tags": "written" if self.written else self.unwritten or "as they were",
            "promotion": self.promotion or None,
            "run_report": None if self.run is None else self.run.to_json(skipped=skipped),
            "files_report": None if self.files is None else self.files.to_json(skipped=skipped),
        }


def tags_of(gate: Gate, settings: str, rules: int) -> dict[str, str]:
    """The tags of a model's version, by bare name; one that does not apply is empty, and comes off. ``settings``: by
    which configuration it was judged, as ``annotations.JudgedBy`` has it; ``rules``: under which version of the rules.
    """
    if gate.verdict is None:
        return {}
    return {
        SETTINGS: settings,
        CAUSE: gate.cause,
        _ACCEPTED: ",".join(gate.accepted),
        RULES: str(rules),
        _VERDICT: str(gate.verdict),
    }


def note_of_gate(gate: Gate, page: str) -> str:
    """What the description of a model's version says of it, in Markdown. ``page``: the address of the report on its
    run, empty where it has none.
    """
    verdict = "" if gate.verdict is None else gate.verdict.upper()
    report = f"\n\n[The report on its run]({page})" if page else ""
    return f"{NOTE_BEGINS}{verdict}**: {in_markdown(gate.reason)}{report}"


def ours_of_gate(tags: Mapping[str, str]) -> tuple[str, ...]:
    """The full names of those tags of a model that a gate wrote, in the order in which they come off: by which settings
    it was judged says whose the others are, and is the last.
    """
    settings = f"health.{SETTINGS}"
    shadow = [f"health.{SHADOW}"] * (tags.get(f"health.{SHADOW}") in set(Verdict))
    if not JudgedBy.of(tags.get(settings, "")).config:
        return tuple(shadow)
    names = (f"health.{name}" for name in (_VERDICT, CAUSE, _ACCEPTED, RULES))
    return (*shadow, *(name for name in names if name in tags), settings)
