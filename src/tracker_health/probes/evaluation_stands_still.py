"""GEN005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._standing import EVALUATIONS, FALL, REPEATS, Standing, equal_at_end, standing, stopped
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_ANOTHER = (
    "check which model is evaluated: an average that is not updated, a copy made before the training, or one that the "
    "optimizer does not have"
)
_STOPPED = "look for what stopped at that step: the schedule, a loss scale that skips every step, or the optimizer"


@dataclass(frozen=True, kw_only=True)
class EvaluationStandsStill(Probe):
    """The validation loss is one and the same number to the end.

    What it finds:
        A validation loss that repeats a number exactly in at least half of its evaluations, up to the last one.

    Why it matters:
        Weights that move never give the same loss twice. What is evaluated is another model than the one that is
        trained: a moving average that is not updated, the copy that the training began with, an optimizer made for
        other parameters. Or the weights do not move: every step is skipped, or the learning rate is 0. Early stopping
        and the choice of a checkpoint then go by a number that means nothing.

    How it decides:
        Warn when at least `min_repeats` evaluations at the end, and half of all, are one number other than 0, and the
        training loss fell in the points after the first of them: along a sure trend (Mann-Kendall below -2.3), or a
        likely one (-1.5) and by three standard errors from the first quarter to the last; by `min_fall` of where it
        began; and, in proportion, by a hundred times the unit of the number's last digit. Of 304 runs whose training
        loss fell, none had a validation loss that moved, in proportion, by less than an eighth of that.

        Warn also when at least eight evaluations at the end, and three quarters of all, are one number of five digits
        or more, whatever the training loss does, unless that is nearly 0 and all is learnt: no schedule is meant to end
        so early. Half of the evaluations are enough, and four digits (or five evaluations, of five digits), where the
        learning rate was above a twentieth of its highest when the number was first seen. A learning rate that is
        logged as 0 is left to LRS001.

        Not where it may be the log that repeats the number. A log that has more rows than evaluations copies each of
        them: every earlier stretch of equal values must be at most a quarter as long. A best value so far never rises:
        such a loss must not have stood anywhere before. A single number must begin within four evaluations of the
        training.

    Known limits:
        Needs 5 evaluations, and a training loss that falls, beyond its noise, once they stand still (with two decimals
        by half or so), or else four digits. A best value so far that stood nowhere but at its end is taken for a model
        that stands still. Other rules on validation (GEN001 to GEN004) are skipped where this one finds something.

    What to do:
        Compare the weights that are evaluated with those that the optimizer has. Look whether the moving average is
        updated, whether the model was copied (compiled, wrapped, moved to a device) after the optimizer was made, and
        whether a cached result is logged.

    References:
        Measured: benchmarks/faults, public training curves.
    """

    code = "GEN005"
    name = "evaluation-stands-still"
    symptom = Symptom.FROZEN
    headline = ("repeats",)

    min_repeats: Annotated[int, Threshold("equal evaluations at the end", "evaluations", "design", ge=2)] = REPEATS
    min_fall: Annotated[
        float, Threshold("fall of the training loss meanwhile, as a share of where it began", "fraction", "design",
                         ge=0, le=1)
    ] = FALL  # fmt: skip
    min_points: Annotated[int, Threshold("finite evaluations needed", "evaluations", "design", ge=2)] = EVALUATIONS

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="val_loss", min_points=self.min_points),
            Need(role="train_loss", min_points=4),
            Need(role="learning_rate", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        held_out, loss = evidence.first("val_loss").finite(), evidence.first("train_loss").finite()
        n = len(held_out)
        if n < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {n} finite evaluations")
        found = standing(held_out, loss, self.min_repeats, self.min_fall)
        if found is not None:
            while_it_fell = f", while the training loss fell from {number(found.before)} to {number(found.after)}"
            return _finding(found, while_it_fell, _ANOTHER)
        found = stopped(evidence, held_out, loss, self.min_repeats)
        if found is not None:
            return _finding(found, ": the weights no longer change", _STOPPED)
        equal = equal_at_end(held_out.values)
        repeats = "is a new number" if equal == 1 else f"repeats {equal - 1} others"
        measured = {"repeats": equal, "evaluations": n}
        return Finding(verdict=Verdict.PASS, message=f"the last of {n} evaluations {repeats}", measured=measured)


def _finding(found: Standing, meanwhile: str, remedy: str) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"the validation loss is one number, {number(found.value)}, in the last {found.repeats} of "
        f"{found.evaluations} evaluations, from step {found.step} on{meanwhile}",
        remedy=remedy,
        measured={
            "repeats": found.repeats, "evaluations": found.evaluations, "stands_at": found.value,
            "train_before": found.before, "train_after": found.after, "fall_share": found.fall,
        },
        steps=(found.step,),
    )  # fmt: skip
