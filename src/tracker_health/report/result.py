"""What rules find and what a run's report holds: plain data, and its versioned JSON.

Results know neither tracker nor terminal nor page. The JSON form is strict (no NaN or Infinity literals) and a
contract: ``docs/report.schema.json`` describes it, and readers ignore keys that they do not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tracker_health.evidence import Children, RunRef
from tracker_health.report.brief import MOST_BYTES, Room, brief_cause, brief_run, fitted
from tracker_health.report.resume_point import Onset, Rewind
from tracker_health.text import clipped
from tracker_health.words.acknowledgements import Acknowledgement, from_json, open_codes, said_by, standing, worst_of
from tracker_health.words.diagnosis import Action, Diagnosis
from tracker_health.words.order import Place
from tracker_health.words.verdict import Verdict

SCHEMA = "tracker-health/report/2"
"""The one that is written unless another is asked for."""

BRIEF_SCHEMA = "tracker-health/brief/1"
"""Of the same in few bytes."""

HEALTHY_SO_FAR = "so far healthy"
"""With this the summary of a run begins that is still running, and in which nothing was found."""

SET_ROLES = "set roles."
"""With this a summary continues that says what to set, so that a run can be judged."""

BY_PARAMS = "the params say it"
"""With this the reason begins why a part of a run could not be judged of which only the params say anything."""

Confidence = Literal["high", "medium", "low"]
Measure = float | int | str

_PART_BYTES, _PATH_BYTES = 30, 160
_MOST_PARTS, _MOST_ERRORS = 12, 2

_DEFAULT_SCORES = {Verdict.PASS: 1.0, Verdict.WARN: 0.5, Verdict.FAIL: 0.0}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a rule concludes from the evidence; the engine adds which rule it was and whether it votes.

    ``message`` is one sentence with the numbers; ``measured`` is flat; ``details`` is any JSON; ``steps`` says where
    it happened, on the step axis of the series judged. ``score`` is 0 (faulty) to 1 (healthy); by default it follows
    from the verdict. A finding of ``skip`` means that the rule saw, after all, that there was nothing to judge: its
    message is the reason. ``kind``: which of the kinds that the rule declares it is, empty for a rule with one.
    ``case``: which of the rule's special cases decided, empty for none. ``onset``: from where on
    it was wrong, only where going on from a checkpoint from before undoes it: not for what was wrong from the start.
    ``about``: the names of the series in which it is seen; empty for those of the first role that the rule needs.
    """

    verdict: Verdict
    message: str
    remedy: str = ""
    score: float | None = None
    measured: Mapping[str, Measure] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[int] = ()
    confidence: Confidence = "high"
    kind: str = ""
    case: str = ""
    onset: Onset | None = None
    about: Sequence[str] = ()

    @classmethod
    def skipped(cls, message: str, measured: Mapping[str, Measure] | None = None) -> Finding:
        """Nothing to judge.

        Args:
            message: Why, in one line.
            measured: What was measured all the same, by name.

        Returns:
            A finding without a verdict.
        """
        return cls(verdict=Verdict.SKIP, message=message, measured=measured or {})

    @classmethod
    def passed(cls, message: str, measured: Mapping[str, Measure] | None = None, *, sure: bool = True) -> Finding:
        """Nothing to object to.

        Args:
            message: What was looked at and found in order, in one line, with numbers.
            measured: Measures by name.
            sure: False where something, as noise, may hide what the rule looks for.

        Returns:
            A finding that passes.
        """
        return cls(verdict=Verdict.PASS, message=message, measured=measured or {}, confidence="high" if sure else "low")

    def scored(self) -> float | None:
        """The score within 0..1, that of the verdict where the rule gave none.

        Returns:
            1 is healthy, 0 the worst; None for skip.
        """
        score = _DEFAULT_SCORES.get(self.verdict) if self.score is None else self.score
        return None if score is None else float(min(1.0, max(0.0, score)))


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """The result of one rule that ran. ``votes`` false: measured, shown apart, and no part of the run's verdict.
    ``kind``, ``case`` and ``onset``: as of a ``Finding``; ``about``: the names of the series in which it is seen, none
    for what is seen in no series, as in weights.
    """

    code: str
    name: str
    symptom: str
    status: str
    verdict: Verdict
    votes: bool
    score: float | None
    message: str
    remedy: str = ""
    measured: Mapping[str, Measure] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    thresholds: Mapping[str, Measure] = field(default_factory=dict)
    steps: tuple[int, ...] = ()
    confidence: Confidence = "high"
    kind: str = ""
    case: str = ""
    onset: Onset | None = None
    about: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Whoever reads a measure may turn it into a float, and an integer of 400 digits is none.
        object.__setattr__(self, "measured", {key: _bounded(value) for key, value in self.measured.items()})

    def to_json(self) -> dict[str, Any]:
        """The result as strict JSON values; measures that are not finite are next to the others.

        Returns:
            Plain values, as the report has them under ``results``.
        """
        measured, nonfinite = _split_nonfinite(self.measured)
        document: dict[str, Any] = {
            "code": self.code,
            "name": self.name,
            "symptom": self.symptom,
            "status": self.status,
            "verdict": str(self.verdict),
            "votes": self.votes,
            "score": self.score,
            "confidence": self.confidence,
            "message": self.message,
            "remedy": self.remedy,
            "measured": measured,
            "details": strict(self.details),
            "thresholds": strict(self.thresholds),
            "steps": list(self.steps),
        }
        if nonfinite:
            document["nonfinite"] = nonfinite
        if self.kind:
            document["kind"] = self.kind
        if self.case:
            document["case"] = self.case
        if self.onset is not None:
            document["onset"] = self.onset.to_json()
        if self.about:
            document["about"] = list(self.about)
        return document

    @property
    def first_step(self) -> int | None:
        """Where it shows first, on the step axis of the series judged; None of what is at no step."""
        return self.onset.step if self.onset is not None else min(map(int, self.steps), default=None)

    def brief(self, room: Room) -> dict[str, Any]:
        """The result in few bytes.

        Args:
            room: For its sentence and its words.

        Returns:
            Its rule, verdict, kind, first step and sentence.
        """
        return {
            "code": self.code,
            "name": clipped(self.name, room.word),
            "kind": clipped(self.kind, room.word) or None,
            "verdict": str(self.verdict),
            "step": strict(self.first_step),
            "sentence": clipped(self.message, room.sentence),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> ProbeResult:
        """The result that ``to_json`` gave.

        Args:
            document: What ``to_json`` gave.

        Returns:
            The result.

        Raises:
            KeyError: a key is missing.
        """
        measured = dict(document.get("measured", {}))
        measured.update({key: float(text) for key, text in document.get("nonfinite", {}).items()})
        return cls(
            code=document["code"],
            name=document["name"],
            symptom=document["symptom"],
            status=document["status"],
            verdict=Verdict(document["verdict"]),
            votes=document["votes"],
            score=document["score"],
            message=document["message"],
            remedy=document.get("remedy", ""),
            measured=measured,
            details=document.get("details", {}),
            thresholds=document.get("thresholds", {}),
            steps=tuple(document.get("steps", ())),
            confidence=document.get("confidence", "high"),
            kind=document.get("kind", ""),
            case=document.get("case", ""),
            onset=Onset.from_json(document["onset"]) if document.get("onset") else None,
            about=tuple(document.get("about", ())),
        )


def earliest_onset(findings: Iterable[ProbeResult]) -> Onset | None:
    """Where the worst of some findings say that a run went wrong.

    Args:
        findings: Results that warn or fail.

    Returns:
        Of several the earliest; None where none says where, or an earlier checkpoint would be no better.
    """
    known = [(one.verdict.rank, one.onset) for one in findings if one.onset is not None]
    worst = max((rank for rank, _ in known), default=0)
    onsets = [onset for rank, onset in known if rank == worst]
    alike = [one for one in onsets if one.is_comparable(onsets[0])]
    return min(alike, key=lambda one: one.last_good, default=None)


@dataclass(frozen=True, kw_only=True)
class SkippedProbe:
    """A rule that did not run, why, and what would let it run."""

    code: str
    name: str
    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ErrorEntry:
    """Something that could not be read or judged. ``code`` and ``name`` are None when it was not one rule's failure."""

    source: str
    message: str
    code: str | None = None
    name: str | None = None


def once_a_source(errors: Iterable[ErrorEntry]) -> tuple[list[ErrorEntry], dict[str, list[str]]]:
    """Errors for people: entries of rules that only repeat what their source says are left out.

    Args:
        errors: Entries of a report.

    Returns:
        The entries, no two with the same words; and by source the codes of the rules that could not be judged for it.
    """
    told: dict[tuple[str, str], ErrorEntry] = {}
    unjudged: dict[str, list[str]] = {}
    for error in errors:
        if error.code is not None and error.message.startswith("could not be judged"):
            unjudged.setdefault(error.source, []).append(error.code)
        else:
            told.setdefault((error.source, error.message), error)
    return list(told.values()), unjudged


@dataclass(frozen=True, kw_only=True)
class SeriesUse:
    """A metric series that was read: how many points, how many of them NaN or infinite, and the role it played."""

    name: str
    role: str | None
    source: str
    points: int
    nonfinite: int


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Whether a part of a run (its loss, its weights, its end) was judged. ``why``: of what is there and not usable the
    reason, and the way out. Of what is not there and was judged all the same, by what.
    """

    part: str
    state: Literal["judged", "not there", "not usable"]
    why: str = ""

    def brief_reason(self, most: int) -> str:
        """Why it was not judged.

        Args:
            most: Bytes of it.

        Returns:
            Its state and the reason; of no room for one the state.
        """
        return clipped(f"{self.state}: {self.why}", most) if self.why and most else self.state


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """Which version judged, under which configuration. ``ignored``: the rules that it leaves out, and the thresholds
    that were set, as in ``LOS004`` and ``diverged.sigmas=8``.
    """

    version: str
    preset: str
    config_digest: str
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The verdict on one run, with everything that explains it.

    ``notes``: what a reader of the verdict should know besides: that the run is still running, that a configured role
    found no metric. ``ended``: how the run ended, a word of ``Ended``, empty where that is not known; ``ended_by``:
    what says so. It is no verdict. ``children``: how the runs below a parent run fared. ``diagnosis``: the one cause of
    what was found, None where nothing was, or no cause explains it. ``judged``: which parts of the run were.
    ``acknowledged``: what people answered that still counts; ``open``: the codes of the findings that nobody has
    answered, None where nobody has answered any. ``rewind``: the checkpoint to go back to, or that there is none; None
    where going back helps nothing, or no checkpoint was found.
    """

    run: RunRef
    verdict: Verdict
    score: float | None
    summary: str
    notes: tuple[str, ...] = ()
    results: tuple[ProbeResult, ...] = ()
    skipped: tuple[SkippedProbe, ...] = ()
    errors: tuple[ErrorEntry, ...] = ()
    series: tuple[SeriesUse, ...] = ()
    tool: ToolInfo
    fingerprint: str = ""
    ended: str = ""
    ended_by: str = ""
    children: Children | None = None
    diagnosis: Diagnosis | None = None
    judged: tuple[Judged, ...] = ()
    acknowledged: tuple[Acknowledgement, ...] = ()
    open: tuple[str, ...] | None = None
    rewind: Rewind | None = None

    def answered(
        self, entries: Iterable[Acknowledgement], now: float, codes: Sequence[str] | None = None, cause: str = ""
    ) -> Report:
        """The report with what people answered to it; the verdict stays.

        Args:
            entries: The answers that the run has.
            now: The time, in seconds since 1970: answers may end.
            codes: Of what was found, where the report is on an older verdict and has no results.
            cause: Of the same, the cause that was named.

        Returns:
            The same report, with what is answered and what is still open.
        """
        found = tuple(result.code for result in self.findings) if codes is None else tuple(codes)
        of = self.cause if self.diagnosis is not None else cause
        counting = standing(entries, cause=of, now=now)
        about = tuple(one for one in counting if len(open_codes(found, [one])) < len(found))
        return replace(self, acknowledged=about, open=open_codes(found, about)) if about else self

    @property
    def cause(self) -> str:
        """The cause where it is certain or likely; else empty."""
        return self.diagnosis.named if self.diagnosis is not None else ""

    @property
    def place(self) -> Place:
        """What it is sorted by among others."""
        cause = "" if self.diagnosis is None else self.diagnosis.cause
        return Place(self.verdict, self.run.name, cause, self.score)

    @property
    def said(self) -> str:
        """``fail``, or ``fail, acknowledged by ana``: for people; filters go by the verdict alone."""
        if not self.acknowledged:
            return str(self.verdict)
        return f"{self.verdict}, {said_by(self.acknowledged)}{' in part' if self.open else ''}"

    @property
    def open_verdict(self) -> Verdict:
        """The worst verdict that someone still has to look at: what an exit code goes by."""
        if self.open is None or self.verdict not in (Verdict.WARN, Verdict.FAIL):
            return self.verdict
        if not self.open:
            return Verdict.PASS
        left = [result for result in self.findings if result.code in self.open]
        return worst_of(left) if left else self.verdict

    @property
    def is_parent(self) -> bool:
        """Whether there was nothing to judge because the runs below it did the training."""
        return self.verdict is Verdict.SKIP and self.children is not None

    @property
    def is_healthy_so_far(self) -> bool:
        """Whether there is no verdict only because the run is still running: so far it would have passed."""
        return self.verdict is Verdict.SKIP and self.summary.startswith(HEALTHY_SO_FAR)

    @property
    def severity(self) -> int | None:
        return self.verdict.severity

    @property
    def findings(self) -> tuple[ProbeResult, ...]:
        """The voting results that are not pass, worst first; of equally bad ones in the order of the rules."""
        found = [result for result in self.results if result.votes and result.verdict is not Verdict.PASS]
        return tuple(sorted(found, key=lambda result: -result.verdict.rank))

    @property
    def unexplained(self) -> tuple[ProbeResult, ...]:
        """The findings that the diagnosis does not explain: all where there is none."""
        explained = self.diagnosis.explains if self.diagnosis is not None else ()
        return tuple(one for one in self.findings if one.code not in explained)

    @property
    def headline(self) -> str:
        """What to read first: the cause with its sentence where there is one, else the summary."""
        return self.diagnosis.headline if self.diagnosis is not None else self.summary

    def judged_parts(self, state: str) -> list[str]:
        """The parts of the run that are in a state.

        Args:
            state: ``judged``, ``not there`` or ``not usable``.

        Returns:
            The names of the parts, and by what one was judged that is not there itself.
        """
        parts = [one for one in self.judged if one.state == state]
        return [f"{one.part} ({one.why})" if state == "judged" and one.why else one.part for one in parts]

    @property
    def explained(self) -> tuple[ProbeResult, ...]:
        """The findings that are the diagnosis's evidence, in the order of time."""
        order = self.diagnosis.explains if self.diagnosis is not None else ()
        by_code = {one.code: one for one in self.findings}
        return tuple(by_code[code] for code in order if code in by_code)

    @property
    def headline_first(self) -> tuple[ProbeResult, ...]:
        """The findings, that of the headline first, then those of the diagnosis in the order of time."""
        leading = self.diagnosis.about if self.diagnosis is not None else ""
        return tuple(sorted((*self.explained, *self.unexplained), key=lambda one: one.code != leading))

    def to_json(self, *, skipped: bool = True) -> dict[str, Any]:
        """The report as a document of strict JSON values.

        Args:
            skipped: With the rules that did not run, each with its reason. Else only how many these are is in it, as
                ``skipped_left_out``.

        Returns:
            Plain values that fit ``docs/report.schema.json``.
        """
        document = self._always()
        if not skipped:
            document |= {"skipped": [], "skipped_left_out": len(self.skipped)}
        if self.acknowledged:
            document["acknowledged"] = [one.to_json() for one in self.acknowledged]
            document["open"] = list(self.open or ())
        if self.rewind is not None:
            document["rewind"] = self.rewind.to_json()
        return document

    def brief(self, most: int = MOST_BYTES) -> dict[str, Any]:
        """The report for a reader with little room: what is wrong, why, and the one thing to do.

        Args:
            most: Bytes of the JSON; at least 1,500.

        Returns:
            Plain values that fit ``docs/brief.schema.json``. Texts from the run are of one line and cut where they are
            long.
        """
        return fitted(self._brief_in, most)

    def _brief_in(self, room: Room) -> dict[str, Any]:
        diagnosis = self.diagnosis
        cause = brief_cause(diagnosis.cause, diagnosis.certainty) if diagnosis is not None else None
        errors, _ = once_a_source(self.errors)
        parts = self.judged[:_MOST_PARTS]
        return {
            "schema": BRIEF_SCHEMA,
            "run": brief_run(self.run.name, self.run.id, self.run.url),
            "verdict": str(self.verdict),
            "headline": clipped(diagnosis.sentence if diagnosis is not None else self.summary, room.text),
            "cause": cause,
            "findings": [one.brief(room) for one in self.headline_first[: room.findings]],
            "more_findings": max(0, len(self.findings) - room.findings),
            "action": None if diagnosis is None else brief_action(diagnosis.action, room),
            "go_back_to": None if self.rewind is None else _brief_rewind(self.rewind, room.sentence),
            "judged": [clipped(one.part, _PART_BYTES) for one in parts if one.state == "judged"],
            "not_judged": {
                clipped(one.part, _PART_BYTES): one.brief_reason(room.why) for one in parts if one.state != "judged"
            },
            "ended": self.ended or None,
            "acknowledged": clipped(self.said, room.sentence) if self.acknowledged else None,
            "errors": [clipped(f"{one.source}: {one.message}", room.sentence) for one in errors[:_MOST_ERRORS]],
        }

    def _always(self) -> dict[str, Any]:
        """What every report has."""
        return {
            "schema": SCHEMA,
            "run": asdict(self.run),
            "verdict": str(self.verdict),
            "severity": self.severity,
            "score": self.score,
            "summary": self.summary,
            "ended": self.ended or None,
            "ended_by": self.ended_by,
            "children": self.children.to_json() if self.children is not None else None,
            "notes": list(self.notes),
            "results": [result.to_json() for result in self.results],
            "skipped": [
                {"code": one.code, "name": one.name, "reason": one.reason, "details": strict(one.details)}
                for one in self.skipped
            ],
            "errors": [
                {"code": one.code, "name": one.name, "source": one.source, "message": one.message}
                for one in self.errors
            ],
            "series": [
                {
                    "name": one.name,
                    "role": one.role,
                    "source": one.source,
                    "points": one.points,
                    "nonfinite": one.nonfinite,
                }
                for one in self.series
            ],
            "tool": {
                "version": self.tool.version,
                "preset": self.tool.preset,
                "config_digest": self.tool.config_digest,
                "ignored": list(self.tool.ignored),
            },
            "fingerprint": self.fingerprint,
            "diagnosis": self.diagnosis.to_json() if self.diagnosis is not None else None,
            "judged": [{"part": one.part, "state": one.state, "why": one.why} for one in self.judged],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Report:
        """The report that ``to_json`` wrote.

        Args:
            document: What ``to_json`` wrote.

        Returns:
            The report.

        Raises:
            ValueError: the document has another schema.
            KeyError: a key of the schema is missing.
        """
        if document.get("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} document: its schema is {document.get('schema')!r}")
        return cls(
            run=RunRef(**_known(document["run"], "store", "id", "name", "url")),
            verdict=Verdict(document["verdict"]),
            score=document["score"],
            summary=document["summary"],
            notes=tuple(document.get("notes", ())),
            results=tuple(ProbeResult.from_json(one) for one in document["results"]),
            skipped=tuple(
                SkippedProbe(**_known(one, "code", "name", "reason", "details")) for one in document["skipped"]
            ),
            errors=tuple(ErrorEntry(**_known(one, "code", "name", "source", "message")) for one in document["errors"]),
            series=tuple(
                SeriesUse(**_known(one, "name", "role", "source", "points", "nonfinite")) for one in document["series"]
            ),
            tool=_tool_from(document["tool"]),
            fingerprint=document["fingerprint"],
            ended=document.get("ended") or "",
            ended_by=document.get("ended_by", ""),
            children=Children.from_json(document["children"]) if document.get("children") else None,
            diagnosis=Diagnosis.from_json(document["diagnosis"]) if document.get("diagnosis") else None,
            judged=tuple(Judged(**_known(one, "part", "state", "why")) for one in document.get("judged", ())),
            acknowledged=tuple(
                one for entry in document.get("acknowledged", ()) if (one := from_json(entry)) is not None
            ),
            open=tuple(document["open"]) if "open" in document else None,
            rewind=Rewind.from_json(document["rewind"]) if document.get("rewind") else None,
        )


def brief_action(action: Action, room: Room) -> dict[str, Any]:
    """The one thing to do, in few bytes.

    Args:
        action: Of a diagnosis.
        room: For its text and its words.

    Returns:
        Its ``text``, and the ``setting`` to change with its values ``from`` and ``to``, None where there is none;
        ``param``: what the run's own params call it.
    """
    values = {key: strict(value) for key, value in (("from", action.old), ("to", action.new))}
    return {
        "text": clipped(action.text, room.text),
        "setting": clipped(action.setting, room.word) or None,
        "param": clipped(action.param, room.word) or None,
        **{key: clipped(value, room.word) if isinstance(value, str) else value for key, value in values.items()},
    }


def _brief_rewind(rewind: Rewind, most: int) -> dict[str, Any]:
    return {
        "path": clipped(rewind.path, _PATH_BYTES) or None,
        "step": strict(rewind.step),
        "epoch": strict(rewind.epoch),
        "why": clipped(rewind.about if rewind.path else rewind.said, most),
    }


def _tool_from(document: Mapping[str, Any]) -> ToolInfo:
    known = _known(document, "version", "preset", "config_digest")
    return ToolInfo(**known, ignored=tuple(document.get("ignored", ())))


def _known(document: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: document[key] for key in keys}


def strict(value: Any) -> Any:
    """The same value in strict JSON: non-finite floats become null, tuples lists, numpy scalars plain numbers.

    So do integers beyond 64 bits: other languages have no such numbers, and Python prints none that are very long.

    Args:
        value: Any value: of a measure, or of details.

    Returns:
        The same in None, booleans, numbers, text, lists and mappings.

    Raises:
        TypeError: a value has no JSON form.
    """
    if isinstance(value, Mapping):
        return {_key(key): strict(one) for key, one in value.items()}
    if isinstance(value, str):
        return str(value)
    value = _bounded(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "tolist"):
        return strict(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [strict(one) for one in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _key(key: Any) -> str:
    return str(_bounded(key))


def _bounded(value: Any) -> Any:
    """The value, or an infinity for an integer beyond 64 bits."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return math.inf if value > 0 else -math.inf
    return value


def _split_nonfinite(measured: Mapping[str, Measure]) -> tuple[dict[str, Any], dict[str, str]]:
    nonfinite = {
        key: _NONFINITE_NAMES[str(float(value))]
        for key, value in measured.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    return strict(measured), nonfinite


_NONFINITE_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
