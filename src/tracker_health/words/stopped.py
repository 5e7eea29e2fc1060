"""Why a training was stopped while it was running, or is asked to stop, as the run itself keeps it."""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass

from tracker_health.text import printable
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.gap_names import STOP_WANDB_TAG

MOST_CHARACTERS = 300
"""Of the reason: it is one sentence in a table of runs."""
_MOST_READ = 5000
_MOST_STEPS = 2**63
_BY_HAND = frozenset({"stop", "true", "yes", "on", "1"})
_STOPPED, _ASKED = "stopped", "asked to stop"


@dataclass(frozen=True, kw_only=True)
class Stop:
    """A finding that a training stopped for, or is asked to stop for.

    ``step``: the last one that was logged when it was found. ``verdict``: warn or fail; ``code``: of the rule;
    ``cause``: "" where none is known. ``reason``: all of it in one sentence. ``when``: in seconds since 1970.
    """

    step: int
    verdict: str
    code: str
    cause: str
    reason: str
    when: float

    @property
    def as_stopped(self) -> str:
        """For a run that stopped: text that nobody else writes."""
        return self._value(_STOPPED)

    @property
    def as_request(self) -> str:
        """For a run that is asked to stop."""
        return self._value(_ASKED)

    def _value(self, what: str) -> str:
        said = f"{what} at step {self.step}: {printable(self.reason, MOST_CHARACTERS)}"
        content = {"said": said, "step": self.step, "verdict": self.verdict, "code": self.code, "cause": self.cause}
        content["when"] = round(self.when, 3)
        return json.dumps({**content, "check": _check(content)})

    @property
    def ending(self) -> Ending:
        """How a run ended that stopped for this."""
        by = f"tracker-health stopped it at step {self.step}: {printable(self.reason, MOST_CHARACTERS)}"
        return Ending(how=Ended.PRUNED, by=by)


def stop_of(text: str) -> Stop | None:
    """What a text of ours says; None for one that is not ours, or was changed by hand."""
    if not text or len(text) > _MOST_READ:
        return None
    with suppress(ValueError, RecursionError, KeyError, TypeError, OverflowError):
        document = json.loads(text)
        content = {key: document[key] for key in ("said", "step", "verdict", "code", "cause", "when")}
        step, when = int(content["step"]), float(content["when"])
        if document["check"] == _check(content) and abs(step) < _MOST_STEPS and math.isfinite(when):
            verdict, code, cause = (printable(str(content[key]), 80) for key in ("verdict", "code", "cause"))
            reason = printable(str(content["said"]).partition(": ")[2], MOST_CHARACTERS)
            return Stop(step=step, verdict=verdict, code=code, cause=cause, reason=reason, when=when)
    return None


def asks(text: str) -> bool:
    """Whether a text where a request belongs is one: of ours, W&B's tag, or a word by which people say so. ``false``
    and a remark are none.
    """
    word = text.strip().lower()
    return word in _BY_HAND or word == STOP_WANDB_TAG or stop_of(text) is not None


def _check(content: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()[:16]
