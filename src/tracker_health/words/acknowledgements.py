"""What people answer to a verdict: acknowledgements, kept on the run one by one, and what they leave open. Pure.

An acknowledgement is never changed. Taking one back is another entry, so each is written under a name of its own and
two people at once lose nothing. What comes from a run is hostile: anybody who may write to it can write an entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from tracker_health.text import printable
from tracker_health.words.causes import is_same_cause
from tracker_health.words.retired import parts_of, retired_rule
from tracker_health.words.verdict import Verdict

SCHEMA = "tracker-health/ack/1"
MOST_ENTRIES = 100
"""How many entries a run may have: beyond that nothing is added, and of more none but the newest are read."""
MAX_ENTRY_CHARACTERS = 4_500
MAX_NAME, MAX_REASON = 80, 500
"""Characters of a name and of a reason; longer ones end in an ellipsis."""
_MAX_EVIDENCE, _MOST_CODES, _MOST_UNDONE = 300, 30, 60

_ID = re.compile(r"[0-9a-f]{16}")
_CODE = re.compile(r"[A-Za-z0-9_-]{1,40}")
_CAUSE = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_YES, _NO = "true", "false"
_MARK = re.compile(r"(?:acknowledged|called wrong) by \S.{0,500}", re.DOTALL)


class _Result(Protocol):
    @property
    def code(self) -> str: ...

    @property
    def verdict(self) -> Verdict: ...


class _Diagnosis(Protocol):
    @property
    def named(self) -> str: ...


Result_co = TypeVar("Result_co", bound=_Result, covariant=True)


class _Judged(Protocol[Result_co]):
    @property
    def findings(self) -> Sequence[Result_co]: ...

    @property
    def diagnosis(self) -> _Diagnosis | None: ...


@dataclass(frozen=True, kw_only=True)
class Acknowledgement:
    """What someone said of what was found of a run.

    ``who``: as stated, nobody checked it. ``when``: in seconds since 1970. ``codes``: of the findings that it is about.
    ``cause``: the run's at that time, "" for none; ``about_cause``: whether it is about that as well. ``until``: from
    when on it no longer counts, None for never. ``wrong``: it calls them a false alarm. ``undoes``: the ids of earlier
    entries that it takes back for these codes, for all of theirs where it names none; then it acknowledges nothing.
    ``evidence``: how far the run had come, as its store can tell later.
    """

    id: str
    who: str
    when: float
    because: str
    codes: tuple[str, ...] = ()
    cause: str = ""
    about_cause: bool = False
    until: float | None = None
    wrong: bool = False
    undoes: tuple[str, ...] = ()
    evidence: str = ""

    @property
    def said(self) -> str:
        """``acknowledged by ana``, ``called wrong by ana``."""
        return f"{'called wrong' if self.wrong else 'acknowledged'} by {self.who}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON, without what is at its default."""
        document: dict[str, Any] = {"id": self.id, "who": self.who, "when": _as_date(self.when)}
        optional = {
            "because": self.because,
            "codes": list(self.codes),
            "cause": self.cause,
            "about_cause": self.about_cause,
            "until": None if self.until is None else _as_date(self.until),
            "wrong": self.wrong,
            "undoes": list(self.undoes),
            "evidence": self.evidence,
        }
        return document | {key: value for key, value in optional.items() if value}

    @property
    def value(self) -> str:
        """One line for a tag or a file, of ``MAX_ENTRY_CHARACTERS`` at most."""
        return json.dumps({"schema": SCHEMA, **self.to_json()}, ensure_ascii=False)


def acknowledgement(
    *,
    id: str,  # noqa: A002  as in the entry
    who: str,
    when: float,
    because: str,
    codes: Iterable[str] = (),
    cause: str = "",
    about_cause: bool = False,
    until: float | None = None,
    wrong: bool = False,
    undoes: Iterable[str] = (),
    evidence: str = "",
) -> Acknowledgement:
    """An entry whose words are bounded and printable, so that what is written is what will be read."""
    return Acknowledgement(
        id=id,
        who=printable(who.strip(), MAX_NAME),
        when=float(int(when)),
        because=printable(because.strip(), MAX_REASON),
        codes=tuple(dict.fromkeys(codes))[:_MOST_CODES],
        cause=cause,
        about_cause=about_cause and bool(cause),
        until=None if until is None else float(int(until)),
        wrong=wrong,
        undoes=tuple(dict.fromkeys(undoes))[:_MOST_UNDONE],
        evidence=evidence,
    )


def is_id(text: str) -> bool:
    """Whether a text can be the id of an entry."""
    return bool(_ID.fullmatch(text))


def parsed(text: str, entry_id: str = "") -> Acknowledgement | None:
    """The entry that a text of a run is; None for what is none of ours. ``entry_id``: the one that its name says."""
    if not text or len(text) > MAX_ENTRY_CHARACTERS:
        return None
    with suppress(ValueError, RecursionError):
        document = json.loads(text)
        if isinstance(document, dict) and document.get("schema") == SCHEMA:
            return from_json(document, entry_id)
    return None


def from_json(document: Mapping[str, Any], entry_id: str = "") -> Acknowledgement | None:
    """The entry that ``to_json`` wrote, None for what is none."""
    with suppress(ValueError, KeyError, TypeError, OverflowError):
        found = acknowledgement(
            id=_text(document["id"]),
            who=_text(document["who"]),
            when=_as_seconds(document["when"]),
            because=_text(document.get("because", "")),
            codes=_words(document.get("codes", []), _CODE),
            cause=_word(document.get("cause", ""), _CAUSE),
            about_cause=document.get("about_cause") is True,
            until=_as_seconds(document["until"]) if document.get("until") is not None else None,
            wrong=document.get("wrong") is True,
            undoes=_words(document.get("undoes", []), _ID),
            evidence=printable(_text(document.get("evidence", "")), _MAX_EVIDENCE),
        )
        if is_id(found.id) and found.id == (entry_id or found.id) and found.who and (found.codes or found.undoes):
            return found
    return None


def in_order(entries: Iterable[Acknowledgement]) -> tuple[Acknowledgement, ...]:
    """Each once, the oldest first, and of too many the newest."""
    by_id = {one.id: one for one in entries}
    return tuple(sorted(by_id.values(), key=lambda one: (one.when, one.id))[-MOST_ENTRIES:])


def answers(entries: Iterable[Acknowledgement]) -> tuple[Acknowledgement, ...]:
    """The acknowledgements, without what was taken back since: each with the codes that are left of it."""
    ordered = in_order(entries)
    left = {one.id: set(one.codes) for one in ordered if not one.undoes}
    whole = set(left)
    for undo in ordered:
        for entry_id in undo.undoes:
            if entry_id in left:
                left[entry_id] -= set(undo.codes) or left[entry_id]
                whole.discard(entry_id)
    return tuple(
        one
        if one.id in whole
        else replace(one, codes=tuple(code for code in one.codes if code in left[one.id]), about_cause=False)
        for one in ordered
        if left.get(one.id)
    )


def on_evidence(entries: Iterable[Acknowledgement], evidence: str) -> tuple[Acknowledgement, ...]:
    """The entries, the oldest first, without the acknowledgements of what the run had left before it went on."""
    return tuple(one for one in in_order(entries) if one.undoes or one.evidence == evidence)


def standing(entries: Iterable[Acknowledgement], *, cause: str, now: float) -> tuple[Acknowledgement, ...]:
    """The acknowledgements that still count: not taken back, not over, and of no other cause.

    ``entries``: on the evidence that there is. ``cause``: the run's now, "" for none: a new one drops what was said
    before it appeared.
    """
    counting = (one for one in answers(entries) if one.until is None or now < one.until)
    return tuple(one for one in counting if not cause or is_same_cause(cause, one.cause))


def open_codes(codes: Iterable[str], counting: Iterable[Acknowledgement]) -> tuple[str, ...]:
    """The codes that none of these acknowledgements is about. Retired rules stand for those that replaced them."""
    answered: set[str] = set()
    for one in counting:
        for code in one.codes:
            retired = retired_rule(code)
            answered |= {code, *parts_of(code), *(retired.replaced_by if retired is not None else ())}
    return tuple(code for code in codes if code not in answered)


def open_findings(report: _Judged[Result_co], acks: Iterable[Acknowledgement], now: float) -> tuple[Result_co, ...]:
    """The findings of a report that nobody has acknowledged: those that someone still has to look at, worst first.

    ``acks``: of its run, and of the evidence that the report is on, as ``TrackedRun.acknowledgements`` gives them.
    """
    cause = report.diagnosis.named if report.diagnosis is not None else ""
    left = set(open_codes((one.code for one in report.findings), standing(acks, cause=cause, now=now)))
    return tuple(one for one in report.findings if one.code in left)


def worst_of(findings: Iterable[_Result]) -> Verdict:
    """The worst verdict among findings, pass for none: what a gate goes by once some are acknowledged."""
    return max((one.verdict for one in findings), key=lambda verdict: verdict.rank, default=Verdict.PASS)


@dataclass(frozen=True, kw_only=True)
class AnswerMarks:
    """What is next to a verdict. ``ack``: who answered it, and how, "" for nobody; ``open``: whether someone still
    has to look, "" where nothing was found.
    """

    ack: str = ""
    open: str = ""


def answer_marks(codes: Sequence[str], cause: str, entries: Iterable[Acknowledgement], now: float) -> AnswerMarks:
    """The marks for a run on which these codes and this cause were found; ``entries``: on the evidence there is."""
    if not codes:
        return AnswerMarks()
    counting = standing(entries, cause=cause, now=now)
    about = [one for one in counting if len(open_codes(codes, [one])) < len(codes)]
    left = open_codes(codes, about)
    return AnswerMarks(ack=said_by(about), open=_YES if left else _NO)


def said_by(entries: Sequence[Acknowledgement]) -> str:
    """``acknowledged by ana, ben``, ``called wrong by ana``, or both, the newest first; "" for none."""
    newest = tuple(reversed(entries))
    parts = []
    for wrong, words in ((False, "acknowledged by"), (True, "called wrong by")):
        names = list(dict.fromkeys(one.who for one in newest if one.wrong is wrong))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        parts += [f"{words} {printable(', '.join(names[:3]), 180)}{more}"] if names else []
    return ", ".join(parts)


def is_ack_mark(text: str) -> bool:
    """Whether a text is one of ours: what else is under that name is the owner's."""
    return bool(_MARK.fullmatch(text))


def is_open_mark(text: str) -> bool:
    """The same of the mark that says whether someone still has to look."""
    return text in (_YES, _NO)


def _as_date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_seconds(text: Any) -> float:
    moment = datetime.fromisoformat(_text(text))
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= seconds < 2**40:
        raise ValueError
    return seconds


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _word(value: Any, form: re.Pattern[str]) -> str:
    text = _text(value)
    if text and not form.fullmatch(text):
        raise ValueError
    return text


def _words(value: Any, form: re.Pattern[str]) -> list[str]:
    if not isinstance(value, list) or len(value) > _MOST_UNDONE:
        raise TypeError
    return [_word(one, form) for one in value if one]
