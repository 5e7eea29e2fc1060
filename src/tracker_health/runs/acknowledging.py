"""Answering the verdict that is on a run: what of it is meant, and the entry that says so. Nothing is judged."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tracker_health.config import did_you_mean
from tracker_health.errors import ConfigError, WriteError
from tracker_health.evidence import RunRef
from tracker_health.runs.lookup import open_run
from tracker_health.runs.retrying import retry_while_overtaken
from tracker_health.stores.base import Recorded
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Listed
from tracker_health.text import printable
from tracker_health.words.acknowledgements import Acknowledgement, acknowledgement, open_codes, standing
from tracker_health.words.verdict import Verdict

_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds at most before another try, where someone else was writing onto the run."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """What an answer came to. ``open``: the codes that someone still has to look at; ``entry``: what was added."""

    run: RunRef
    verdict: Verdict
    entry: Acknowledgement
    open: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The entry, and the run with its verdict, as strict JSON values."""
        about = {"run": asdict(self.run), "verdict": str(self.verdict)}
        return {**about, **self.entry.to_json(), "open": list(self.open)}


def acknowledge_verdict(
    run: str | Path | Listed,
    names: Sequence[str],
    *,
    because: str,
    who: str,
    wrong: bool,
    until: float | None,
    undo: bool,
    tracking_uri: str | None,
) -> Answered:
    """See ``api.acknowledge``."""
    if not who.strip():
        raise ConfigError("an acknowledgement says who it is from", "give a name: --who ana")
    if not (because.strip() or undo):
        raise ConfigError("an acknowledgement needs a reason", 'give a reason: --because "the data has this spike"')
    now = time.time()
    if until is not None and until <= now:
        raise ConfigError("it would be over before it began", "give a longer --for")

    def once() -> Answered:
        with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
            recorded = _require_verdict(opened)
            codes, about_cause = _find_meant(recorded, names)
            entries = opened.acknowledgements()
            if any(one.id == entry_id for one in entries):  # before someone else stopped us
                opened.settle(now)
                return _result(opened, recorded, next(one for one in entries if one.id == entry_id), now)
            undone = _find_undone(entries, codes if names else (), recorded.cause, now) if undo else ()
            entry = acknowledgement(
                id=entry_id,
                who=who,
                when=now,
                because=because,
                codes=codes if names or not undo else (),
                cause=recorded.cause,
                about_cause=about_cause,
                until=until,
                wrong=wrong and not undo,
                undoes=undone,
                evidence=opened.evidence(),
            )
            opened.acknowledge(entry)
            return _result(opened, recorded, entry, now)

    entry_id = secrets.token_hex(8)  # the same each time, so that one that was added before is not added twice
    return retry_while_overtaken(once, _PAUSES)


def _result(run: TrackedRun, recorded: Recorded, entry: Acknowledgement, now: float) -> Answered:
    counting = standing(run.acknowledgements(), cause=recorded.cause, now=now)
    verdict = recorded.verdict or Verdict.ERROR
    return Answered(run=run.ref, verdict=verdict, entry=entry, open=open_codes(recorded.codes, counting))


def _require_verdict(run: TrackedRun) -> Recorded:
    recorded, shown = run.recorded(), printable(run.ref.name, 80)
    if recorded is None:
        raise WriteError(f"{shown} has no verdict to acknowledge", "annotate it first")
    if not recorded.is_whole:
        raise WriteError(f"the annotation of {shown} was begun and not ended", "annotate it again, then acknowledge")
    if recorded.is_older_than(run.last_step()):
        raise WriteError(f"the verdict on {shown} is older than its data", "annotate it again, then acknowledge")
    if not recorded.codes:
        raise WriteError(f"nothing was found of {shown}: the verdict is {recorded.verdict}", "there is nothing to do")
    return recorded


def _find_meant(recorded: Recorded, names: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The codes that are meant by codes, names of rules, and the cause; and whether the cause is."""
    from tracker_health.rules.registry import probe_classes

    if not names:
        return recorded.codes, bool(recorded.cause)
    by_name = {probe.name: probe.code for probe in probe_classes()}
    codes: list[str] = []
    about_cause = False
    for name in names:
        word = name.strip()
        code = by_name.get(word.lower(), word.upper())
        if recorded.cause and word.lower() == recorded.cause:
            codes += recorded.explained
            about_cause = True
        elif code in recorded.codes:
            codes.append(code)
        else:
            known = [*recorded.codes, *([recorded.cause] if recorded.cause else [])]
            raise ConfigError(f"the run has no finding or cause {printable(word, 60)!r}", did_you_mean(word, known))
    return tuple(dict.fromkeys(codes)), about_cause


def _find_undone(entries: Sequence[Acknowledgement], codes: Sequence[str], cause: str, now: float) -> tuple[str, ...]:
    """The ids of what is taken back: what counts now, for these codes, or all of it.

    Raises:
        WriteError: there is nothing to take back.
    """
    counting = standing(entries, cause=cause, now=now)
    found = tuple(one.id for one in counting if not codes or set(codes) & set(one.codes))
    if not found:
        raise WriteError("nobody has acknowledged that: there is nothing to take back")
    return found
