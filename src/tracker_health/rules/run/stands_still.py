"""RUN007."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Patience, Rhythm, rhythm_of
from tracker_health.facts.steps import plan_reached
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import duration, duration_in_short
from tracker_health.words.verdict import Verdict

_ROLES = ("val_loss", "objective_loss", "learning_rate", "grad_norm", "reward", "accuracy", "val_accuracy")
_REMEDY = "look at what its process does (py-spy dump), and at its data, its other ranks and its disk"


@dataclass(frozen=True, kw_only=True)
class StandsStill(Probe):
    """A run that claims to be running logs no more, by its own rhythm.

    What it finds:
        A silence that is longer than anything that was normal for the run before. Also a run that is over, whose
        metrics of the machine went on long after its last point.

    Why it matters:
        A process that waits for a lock, a dead rank or a disk costs as much as one that trains. Trackers show it as
        running, for hours.

    How it decides:
        The gaps between the times at which points came are its rhythm; points that came almost together are one
        arrival. The limit is `factor` times the longest gap that came back, as those of evaluations do. It is at least
        `once` times the longest gap, and at least `floor` seconds. As long as no pause came back, it is also at least
        `first` of the time so far, up to `first_most`: a first evaluation may come. It takes `arrivals` of points, for
        as long as `floor`. The setting `hang_after` takes the limit's place. Warn when a run that claims to be running
        is silent for longer. A run that came to the end of its plan passes. After a run's
        end, warn when its metrics of the machine went on for `far` limits after its last point. They must have done so
        for `share` of the run.

    Known limits:
        A first evaluation, or first checkpoint, is flagged where it takes longer than that. A clock of the
        training's machine that is behind makes a silence look longer. After a pause of hours the limit is longer than
        that. MLflow and TensorBoard record times; of a log without any only `hang_after` says something. Healthy logs
        of 6 hours had no false alarm. Stretched to a usual gap of 10 s and of 60 s they had 2 in 2,800 hours, both
        by a first evaluation; the limits were set on these logs. That is why the rule is informational.

    What to do:
        Look at what its process does (`py-spy dump --pid PID`), at its other ranks, its data loader and its disk. If
        nothing moves, end it and resume from the last checkpoint.

    References:
        None: plain arithmetic.
    """

    code = "RUN007"
    name = "stands-still"
    symptom = Symptom.KILLED
    status = "preview"
    kinds = ("standing", "alive", "silent", "stood")
    headline = ("silence",)
    since = "0.2.0"

    factor: Annotated[float, Threshold("times of the longest gap that came back", "", "benchmarks/gaps.py", ge=1)] = 3.0
    once: Annotated[float, Threshold("times of the longest gap", "", "benchmarks/gaps.py", ge=1)] = 1.5
    floor: Annotated[float, Threshold("silence that is always normal", "seconds", "benchmarks/gaps.py", ge=0)] = 900.0
    first: Annotated[
        float, Threshold("share of the time so far that a first evaluation takes", "fraction", "benchmarks/gaps.py",
                         ge=0)
    ] = 0.5  # fmt: skip
    first_most: Annotated[float, Threshold("time of a first evaluation", "seconds", "design", ge=0)] = 3600.0
    arrivals: Annotated[int, Threshold("times at which points came", "", "benchmarks/gaps.py", ge=2)] = 8
    far: Annotated[float, Threshold("limits that evaluating and saving at the end may take", "", "design", ge=1)] = 3.0
    share: Annotated[float, Threshold("share of a run that is over", "fraction", "design", gt=0, le=1)] = 0.1

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss", optional=True), *Need.beside(*_ROLES))

    @property
    def patience(self) -> Patience:
        """What of the thresholds makes the limit."""
        return Patience(
            factor=self.factor,
            once=self.once,
            floor=self.floor,
            share=self.first,
            most=self.first_most,
            arrivals=self.arrivals,
        )

    def judge(self, evidence: Evidence) -> Finding:
        info, rhythm = evidence.info, rhythm_of(evidence.series)
        silence = info.quiet_for if evidence.goes_on else info.vital_for
        if silence is None or info.hang_after == inf or info.children is not None:
            return Finding.skipped("for how long it was silent is not known, or is not asked for")
        limit = info.hang_after or (None if rhythm is None else rhythm.limit(self.patience))
        if limit is None:
            few = f"points came fewer than {self.arrivals} times, or for less than {duration(self.floor)}"
            return Finding.skipped(f"its rhythm is not known: {few}")
        measured = {"silence": silence, "limit": limit}
        if rhythm is not None:
            measured |= {"usual": rhythm.usual, "longest": rhythm.longest}
        if plan_reached(evidence):
            return Finding.passed("it came to the end of its plan", measured)
        if evidence.goes_on:
            return _silent(evidence, rhythm, measured)
        whole = silence + (0.0 if rhythm is None else rhythm.span)
        if silence > self.far * limit and silence > self.share * whole and rhythm is not None:
            stood, of = duration_in_short(silence), duration_in_short(whole)
            message = (
                f"points stop{_place(evidence)} at {_clock(rhythm.last)}, while its system metrics go on to "
                f"{_clock(rhythm.last + silence)}: it stood still for {stood} of {of}"
            )
            return _found("stood", message, evidence, measured)
        return Finding.passed(f"its system metrics end {duration(max(0.0, silence))} after its last point", measured)


def _silent(evidence: Evidence, rhythm: Rhythm | None, measured: dict[str, float]) -> Finding:
    """The finding on a run that claims to be running."""
    info, silence, limit = evidence.info, measured["silence"], measured["limit"]
    if silence <= limit:
        return Finding.passed(f"silent for {duration(max(0.0, silence))}, up to {duration(limit)} is normal", measured)
    usual = "" if rhythm is None else f"; usually every {duration(rhythm.usual)}, never longer than "
    usual += duration(rhythm.longest) if rhythm is not None else ""
    message = f"nothing was logged for {duration_in_short(silence)}{_place(evidence, ' (', ')')}{usual}"
    if info.vital_for is not None and 2 * info.vital_for > silence:  # they are logged by a rhythm of their own
        return _found("standing", f"{message}, and its system metrics go on", evidence, measured)
    if info.at_work:
        return _found("alive", f"{message}, and its process is alive", evidence, measured)
    return _found("silent", f"{message}; it hangs, or was lost", evidence, measured)


def _found(kind: str, message: str, evidence: Evidence, measured: dict[str, float]) -> Finding:
    last = [int(one.steps.max()) for one in evidence.of_training if len(one)]
    return Finding(
        verdict=Verdict.WARN,
        message=message,
        remedy=_REMEDY,
        measured=measured,
        steps=(max(last),) if last else (),
        confidence="medium" if kind == "silent" else "high",
        kind=kind,
    )


def _place(evidence: Evidence, before: str = " at ", after: str = "") -> str:
    """The last step of the longest history in words; empty without any."""
    longest = max(evidence.of_training, key=len, default=None)
    return "" if longest is None or not len(longest) else f"{before}{longest.where(longest.steps.max())}{after}"


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%-d %b %H:%M} UTC"
