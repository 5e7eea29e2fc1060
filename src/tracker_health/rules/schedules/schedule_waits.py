"""LRS004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.schedules._schedules import ACCURACIES, LOSSES, waits_in_vain
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScheduleWaits(Probe):
    """The scheduler waits for a loss to rise.

    What it finds:
        A saved ReduceLROnPlateau whose best value is the highest loss, or the lowest accuracy, that was logged.

    Why it matters:
        It was given the wrong `mode`: it lowers the rate while the model gets better, and never where it stands still.

    How it decides:
        The saved scheduler says which value is its best, and whether it waits for a rise. Warn when that value is one
        of the highest of `min_points` or more losses and none of the lowest, to the digits of the log. Of an accuracy
        the other way round.

    Known limits:
        It needs the scheduler's state in a checkpoint, and the metric that it watches in the log.

    Worked example:
        val_loss: 3 2.5 2 1.8 1.7
        schedule: best=3 mode=max num_bad_epochs=4 last_epoch=5 _last_lr=0.1
        warn: with mode=max it takes 3, the highest of `min_points` losses, for the best; the lowest is 1.7.

    What to do:
        Give ReduceLROnPlateau mode='min' for a loss, mode='max' for an accuracy.

    References:
        torch.optim.lr_scheduler.ReduceLROnPlateau.
    """

    code = "LRS004"
    name = "schedule-waits-in-vain"
    symptom = Symptom.SCHEDULE
    since = "0.2.0"

    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=3)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SAVED_SCHEDULE), *Need.beside(*LOSSES, *ACCURACIES))

    def judge(self, evidence: Evidence) -> Finding:
        saved = evidence.optimizer.schedules if evidence.optimizer is not None else ()
        watching = [one for one in saved if one.best is not None and one.waits_for_rise is not None]
        if not watching:
            return Finding.skipped("no saved scheduler watches a metric")
        said = next(filter(None, (waits_in_vain(one, evidence, self.min_points) for one in watching)), "")
        if not said:
            return Finding.passed("the scheduler's best value is no worst one of a metric")
        remedy = "give ReduceLROnPlateau mode='min' for a loss, mode='max' for an accuracy"
        return Finding(verdict=Verdict.WARN, message=said, remedy=remedy)
