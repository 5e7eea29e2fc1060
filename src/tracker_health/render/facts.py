"""The strip of facts of a run's page: its losses, how far it came, what was read, when, how long, how it ended."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from tracker_health.evidence import Evidence
from tracker_health.judge.pass_reason import RISES
from tracker_health.render.curves import clean, main_series
from tracker_health.report.result import Report
from tracker_health.roles import OBJECTIVE_LOSS
from tracker_health.text import contrast, count, duration, number, percent, printable, short_name
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

_NAMES = {"train_loss": "train loss", "val_loss": "validation loss"}
_LONG_VALUE, _LONG_MORE = 24, 60  # characters
_BAD_ENDS = frozenset((Ended.FAILED, Ended.OUT_OF_MEMORY, Ended.KILLED, Ended.SILENT))


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A label, what is so, and a word on it. ``bad``: it is a part of what is wrong."""

    label: str
    value: str
    more: str = ""
    bad: bool = False

    @property
    def is_long(self) -> bool:
        """Whether it takes the room of two."""
        return len(self.value) > _LONG_VALUE or len(self.more) > _LONG_MORE


def facts_of(evidence: Evidence, report: Report) -> tuple[Fact, ...]:
    """The facts that are known; of what is not known there is none."""
    found = [*_metrics(evidence, report), *_steps(evidence), *_rules(report), *_times(evidence), *_ending(report)]
    return (*found, *_read(report))  # last the long one: it fills its row


def _metrics(evidence: Evidence, report: Report) -> Iterator[Fact]:
    """The losses, and the metric that the run is known by where that is none of them."""
    bad, main = report.verdict is Verdict.FAIL, main_series(evidence)
    leads = (main.role or "") if main is not None else ""
    for role in dict.fromkeys((leads, *_NAMES)):
        series, curve = clean(evidence, role), evidence.curve(role)
        if series is None:
            continue
        name, rises = _NAMES.get(role) or short_name(series.name), role in RISES
        last, finite = float(series.values[-1]), series.finite()
        level = last if curve is None or not math.isfinite(last) else curve.end.value
        turned = curve.upside_down if curve is not None and rises else curve
        best = level if turned is None else 0.0 - turned.best.value if rises else turned.best.value
        ended, lowest = contrast(level, best)
        where = f"started at {number(float(finite.values[0]))}" if len(finite) else "never finite"
        if curve is not None and math.isfinite(last):
            where = f"{where}; last value {number(last)}"
        elif len(finite) and not math.isfinite(last):
            where = f"last finite {number(float(finite.values[-1]))} at {finite.place(finite.steps[-1])}"
        is_bad = not math.isfinite(last) or (bad and role == leads)
        yield Fact(label=f"final {name}", value=ended, more=where, bad=is_bad)
        if turned is not None and role != OBJECTIVE_LOSS:  # which need not fall
            where = f"{'highest' if rises else 'lowest'} near {series.place(turned.best_step)}"
            yield Fact(label=f"best {name}", value=lowest, more=where)


def _steps(evidence: Evidence) -> Iterator[Fact]:
    progress = evidence.progress
    if progress is not None:
        unit = "epochs" if progress.unit.startswith("epoch") else "steps"
        done = "plan completed" if progress.fraction >= 1 else f"{percent(progress.fraction)} of the plan"
        value = f"{number(progress.done)} of {number(progress.planned)}"
        yield Fact(label=unit, value=value, more=done, bad=progress.fraction < 0.9 and not progress.snapshot)
    elif evidence.optimizer_steps is not None:
        yield Fact(label="optimizer steps", value=str(evidence.optimizer_steps), more="the plan is not known")
    elif (series := main_series(evidence)) is not None and len(series):
        yield Fact(label="last step logged", value=str(int(series.steps[-1])), more="the plan is not known")


def _read(report: Report) -> Iterator[Fact]:
    judged, absent = report.judged_parts("judged"), report.judged_parts("not there")
    unusable = report.judged_parts("not usable")
    if report.judged:
        missing = [f"not usable: {', '.join(unusable)}"] if unusable else []
        missing += [f"not there: {', '.join(absent)}"] if absent else []
        yield Fact(label="read and judged", value=", ".join(judged) or "nothing", more="; ".join(missing))


def _rules(report: Report) -> Iterator[Fact]:
    passed = sum(one.votes and one.verdict is Verdict.PASS for one in report.results)
    more = f"{passed} passed, {len(report.skipped)} had no data"
    yield Fact(label="rules", value=count(len(report.findings), "finding"), more=more, bad=bool(report.findings))


def _times(evidence: Evidence) -> Iterator[Fact]:
    times = [
        float(t)
        for one in evidence.series
        if one.times is not None and len(one)
        for t in (one.times.min(), one.times.max())
    ]
    known = [one for one in times if math.isfinite(one) and one > 0]
    began = evidence.info.started or min(known, default=None)
    ended = evidence.info.ended or max(known, default=None)
    if began is not None and (shown := moment(began)):
        yield Fact(label="started", value=shown[0], more=shown[1])
    if began is not None and ended is not None and ended > began:
        yield Fact(label="duration", value=duration(ended - began))


def _ending(report: Report) -> Iterator[Fact]:
    if report.ended:
        bad = report.ended in _BAD_ENDS
        yield Fact(
            label="how it ended", value=report.ended.replace("-", " "), more=printable(report.ended_by, 120), bad=bad
        )


def moment(seconds: float) -> tuple[str, str] | None:
    """Day and time of day (UTC) of seconds since 1970; None beyond what a calendar has."""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{when.day} {when:%b} {when.year}", f"{when:%H:%M} UTC"
