"""What a run says of a repair: which run it was to repair, by which change, and whether that helped. Pure.

What comes from a run is hostile: anybody who may write to it can write such a mark.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tracker_health.text import printable

REPAIRS, REPAIRED_BY = "repairs", "repaired_by"
"""The names of the marks on the new run, and on the old one."""

MAX_MARK_CHARACTERS = 4_500
"""Of the text on a run."""
MAX_RUN, MAX_CHANGE, MAX_BECAUSE = 600, 300, 500
"""Characters of a run's id, of a change and of a reason."""

_NAME = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9_-]{0,79})?")
_LAST_SECOND = 2.0**40


class Answer(StrEnum):
    """What became of a finding in the run after it."""

    REPAIRED = "repaired"
    NOT_REPAIRED = "not repaired"
    SOMETHING_NEW = "repaired, and something new"
    CANNOT_TELL = "cannot tell"

    @property
    def helped(self) -> bool:
        """Whether the finding is no longer there."""
        return self in (Answer.REPAIRED, Answer.SOMETHING_NEW)


@dataclass(frozen=True, kw_only=True)
class RepairMark:
    """What one of two runs says of a repair.

    ``old`` and ``new``: the ids of both. ``cause``: of the old run, or the name of a rule, "" for none. ``change``:
    what was changed, "" where that is not known. ``because``: the reason for the answer, one sentence. ``when``: in
    seconds since 1970.
    """

    old: str
    new: str
    answer: Answer
    cause: str = ""
    change: str = ""
    because: str = ""
    when: float = 0.0

    @property
    def about(self) -> str:
        """Cause and change as far as they are known: ``learning-rate-too-high; changed: learning_rate 0.3 -> 0.03``."""
        return "; ".join(filter(None, (self.cause, f"changed: {self.change}" if self.change else "")))

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        words = {"cause": self.cause or None, "change": self.change or None, "because": self.because}
        return {"old": self.old, "new": self.new, "answer": str(self.answer), **words}

    def bounded(self) -> RepairMark:
        """The same as it can be read from a run: printable and short.

        Raises:
            ValueError: a run has no id or a very long one, the cause is no name, or the time is none.
        """
        old, new = (printable(one, MAX_RUN + 1) for one in (self.old, self.new))
        is_time = math.isfinite(self.when) and 0 <= self.when < _LAST_SECOND
        if not (0 < len(old) <= MAX_RUN and 0 < len(new) <= MAX_RUN and _NAME.fullmatch(self.cause) and is_time):
            raise ValueError(f"no mark of a repair: {printable(self)}")
        change, because = printable(self.change.strip(), MAX_CHANGE), printable(self.because.strip(), MAX_BECAUSE)
        return replace(self, old=old, new=new, change=change, because=because, when=float(int(self.when)))

    def says_the_same(self, other: RepairMark | None) -> bool:
        """Whether another mark differs in nothing but its time."""
        return other is not None and replace(self.bounded(), when=0.0) == replace(other.bounded(), when=0.0)

    def to_text(self) -> str:
        """One line of JSON that nobody else writes: at most ``MAX_MARK_CHARACTERS``, also where all are escaped.

        Raises:
            ValueError: as for ``bounded``.
        """
        mark = self.bounded()
        content: dict[str, Any] = {"answer": str(mark.answer), "old": mark.old, "new": mark.new}
        optional = {"cause": mark.cause, "change": mark.change, "because": mark.because}
        content |= {key: text for key, text in optional.items() if text}
        content |= {"when": int(mark.when), "check": _check(mark)}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> RepairMark | None:
        """The mark that a text of a run is; None for one that is not ours, or was changed by hand."""
        if not text.startswith("{") or len(text) > MAX_MARK_CHARACTERS:
            return None
        with suppress(ValueError, RecursionError, KeyError, TypeError, OverflowError):
            document = json.loads(text)
            words = {key: _text(document.get(key, "")) for key in ("old", "new", "cause", "change", "because")}
            mark = cls(answer=Answer(document["answer"]), when=float(document["when"]), **words).bounded()
            if document["check"] == _check(mark):
                return mark
        return None


def is_id_of(text: str, run: str) -> bool:
    """Whether a run's id in a mark is of the run with this id. A tracker may call its project by two names."""
    return text.rpartition("/")[2] == run.rpartition("/")[2]


def _check(mark: RepairMark) -> str:
    content = [mark.answer, mark.old, mark.new, mark.cause, mark.change, mark.because, int(mark.when)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
