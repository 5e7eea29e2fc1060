"""LRS005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part, SavedSchedule
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.schedules._rates import levelled_off
from tracker_health.rules.schedules._schedules import STEPS_OF_SCHEDULE, share_done
from tracker_health.text import count, number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ScheduleLength(Probe):
    """A saved scheduler took far fewer or far more steps than it was laid out for.

    What it finds:
        A scheduler that was stepped once per epoch though it counts steps, or once per step though it counts epochs.

    Why it matters:
        The rate barely came down in the whole run, or it came down and rose again many times.

    How it decides:
        The saved state says how many steps the schedule has, and how many it took. Warn when it took
        `most_waves` of its periods or more. Warn when it took less than `least_stepped` of the steps that it
        should have by the share of the plan that was done. A loss that came down and whose last quarter has
        less than `late_share` of the descent excuses the latter. Without a plan, a run counts as whole that its
        tracker calls finished and that was not to stop early.

    Known limits:
        It needs the scheduler's state in a checkpoint of the run's end. LambdaLR, which most trainers use, saves none
        of its settings.

    Worked example:
        schedule: T_max=10 eta_min=0 last_epoch=900 base_lrs=0.1 _last_lr=0.1
        warn: a wave takes 10 steps down and 10 up; 900 / 20 is 45 waves, more than `most_waves`.

    What to do:
        Give the scheduler the number of optimizer steps, and step it once per optimizer step; or the number of epochs,
        and step it once per epoch.

    References:
        torch.optim.lr_scheduler: CosineAnnealingLR, OneCycleLR, StepLR.
    """

    code = "LRS005"
    name = "schedule-length"
    symptom = Symptom.SCHEDULE
    since = "0.2.0"

    most_waves: Annotated[float, Threshold("waves of a saved cosine that are too many", "waves", "design", ge=2)] = 10.0
    least_stepped: Annotated[
        float, Threshold("share of its steps that a saved schedule should take", "fraction", "design", ge=0, le=1)
    ] = 0.5
    late_share: Annotated[
        float, Threshold("share of the descent in the last quarter of a loss that levelled off", "fraction", "design",
                         ge=0, le=1)
    ] = 0.05  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.SAVED_SCHEDULE), *Need.beside("train_loss", "val_loss", Part.PLAN))

    def judge(self, evidence: Evidence) -> Finding:
        saved = evidence.optimizer.schedules if evidence.optimizer is not None else ()
        laid_out = [one for one in saved if one.laid_out is not None]
        if not laid_out:
            return Finding.skipped("no saved scheduler says how many steps it was laid out for")
        done = 0.0 if levelled_off(evidence.curve("train_loss"), self.late_share) else share_done(evidence)
        said = next(filter(None, (self._of_steps(one, done) for one in laid_out)), "")
        if not said:
            return Finding.passed("each saved scheduler took about the steps that it was laid out for")
        return Finding(verdict=Verdict.WARN, message=said, remedy=STEPS_OF_SCHEDULE)

    def _of_steps(self, schedule: SavedSchedule, done: float) -> str:
        stepped, laid_out = schedule.stepped, schedule.laid_out
        if laid_out is None:
            return ""
        said = f"the schedule was laid out for {count(int(laid_out), 'step')} and took {number(stepped)}"
        if schedule.period and stepped >= self.most_waves * schedule.period:
            return f"{said}: the rate came down and rose again {int(stepped / schedule.period)} times"
        return f"{said} ({percent(stepped / laid_out)})" if stepped < self.least_stepped * done * laid_out else ""
