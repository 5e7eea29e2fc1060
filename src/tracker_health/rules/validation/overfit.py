"""GEN001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Evidence
from tracker_health.facts.intent import best_kept
from tracker_health.report.result import Finding
from tracker_health.report.resume_point import Onset
from tracker_health.rules.curves.curve_rule import CurveRule
from tracker_health.rules.probe import Symptom, Threshold
from tracker_health.rules.validation._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.text import contrast, count, ends, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Overfit(CurveRule):
    """The validation loss rises while the training loss falls.

    What it finds:
        A validation loss that ends clearly above its best level, or far above the training loss, while the training
        loss keeps falling.

    Why it matters:
        From the best level on the model memorises its training samples. The last checkpoint is not the best one.

    How it decides:
        Warn when the validation loss ends clearly above its best level, by `rise_share` of that and
        `descent_share` of its descent, `min_after` evaluations or more later. A rise that is likely by its size
        and by its trend needs `steady_descent_share`. Where the training loss clearly fell meanwhile, such a
        rise counts from `clear_share` of the best level on. It must be `noise_times` the noise of one
        evaluation, too. The training loss rose by no more than `train_lost`. Warn, too, where it ends clearly
        above the training loss by `gap_share` of that one's descent, which is `train_descent` of its start or
        more. Their gap at the first evaluation is taken off, and the validation loss must have stopped falling.

    Known limits:
        A rise passes where the best checkpoint was kept: a param says that it was loaded at the end, or a checkpoint is
        of that step. Whether that checkpoint is then used is not visible. Accuracy may still rise while the loss does:
        overconfidence is overfitting of the loss. Losses that are normalised or sampled otherwise in validation
        (survival times, pairs, margins) look like a gap.

    Worked example:
        train_loss: 2.3 1.6 1.2 0.9 0.7 0.5 0.4 0.3 0.25 0.2 0.15 0.1
        val_loss: 2.1 1.6 1.3 1.2 1.15 1.2 1.3 1.4 1.5 1.6 1.7 1.8
        gives: rise_share 0.5319, best 1.175, end 1.8
        warn: 1.8 is 0.62 above the best level of 1.18, which is half of it, while the training loss fell to 0.1.

    What to do:
        Take the checkpoint at the minimum, and stop there the next time; more data, augmentation, dropout or weight
        decay.

    References:
        Prechelt (1998), Early stopping: but when?
    """

    code = "GEN001"
    name = "overfit"
    symptom = Symptom.OVERFIT
    headline = ("rise_share", "gap_share")
    role, also, fewest = "val_loss", ("train_loss",), FEWEST_POINTS

    rise_share: Annotated[
        float, Threshold("rise above the best level, as a share of it", "fraction", "design", gt=0)
    ] = 0.1
    descent_share: Annotated[
        float, Threshold("the same as a share of the validation's descent", "fraction", "calibration", ge=0)
    ] = 0.1
    steady_descent_share: Annotated[
        float, Threshold("the same where it is a steady climb", "fraction", "calibration", ge=0)
    ] = 0.03
    clear_share: Annotated[
        float, Threshold("the same of a steady climb clear of the noise while the training loss falls", "fraction",
                         "design", gt=0)
    ] = 0.05  # fmt: skip
    noise_times: Annotated[
        float, Threshold("what is clear of the noise, in deviations of one evaluation", "ratio", "design", gt=0)
    ] = 6.0
    gap_share: Annotated[
        float, Threshold("distance of the two losses at the end, as a share of the training's descent", "fraction",
                         "calibration", gt=0)
    ] = 0.5  # fmt: skip
    train_lost: Annotated[
        float, Threshold("rise of the training loss meanwhile that is still overfitting", "fraction", "design", ge=0)
    ] = 0.1
    train_descent: Annotated[
        float, Threshold("descent of the training loss, as a share of its start", "fraction", "design", ge=0)
    ] = 0.2
    min_after: Annotated[int, Threshold("evaluations after the best", "evaluations", "design", ge=1)] = 2

    def judge_curve(self, curve: Curve, evidence: Evidence) -> Finding:
        if is_of_another_model(evidence):
            return Finding.skipped(OF_ANOTHER_MODEL)
        train = evidence.curve("train_loss")
        best, rise, late = curve.best.value, curve.end - curve.best, curve.since(curve.best_step)
        steady = rise.surely_above(0.0, LIKELY) and curve.trend_since(curve.best_step) > LIKELY
        of_best = self.rise_share * abs(best)
        if steady and self._still_learns(train, curve.best_step):
            of_best = min(of_best, max(self.clear_share * abs(best), self.noise_times * curve.noise))
        needed = max(of_best, (self.steady_descent_share if steady else self.descent_share) * curve.size)
        measured: dict[str, float | int | str] = {
            "best": best, "end": curve.end.value, "best_step": curve.best_step, "noise": curve.noise,
            "rise_share": rise.value / abs(best) if best else 0.0, "evaluations": curve.points,
        }  # fmt: skip
        message = f"the validation loss {ends(curve.end.value, best, at_best=curve.end.value <= best)}"
        rose = rise.value > needed and (steady or rise.surely_above(0.0)) and late >= self.min_after
        kept = best_kept(evidence, curve.best_step)
        if rose and kept:
            message = f"{message}; the model was kept as it was best, at {curve.series.where(curve.best_step)} ({kept})"
            return Finding.passed(message, measured | {"kept": kept})
        if rose and self._went_on(train, curve.best_step):
            lowest, end = contrast(curve.best_value, curve.end.value)
            over = f"from {lowest} at {curve.series.where(curve.best_step)} to about {end}"
            meanwhile = ", while the training loss did not rise" if train is not None else ""
            message = f"the validation loss rose {over}, over {count(late, 'evaluation')}{meanwhile}"
        elif train is not None and self._apart(curve, train):
            share = (curve.end - train.end).value / train.descent.value
            end, trained = contrast(curve.end.value, train.end.value)
            message = (
                f"the validation loss ends at {end}, the training loss at {trained}: {percent(share)} of its descent"
            )
            message = f"{message} holds for its own samples only"
            del measured["rise_share"]  # what it was judged by is the gap
            measured |= {"gap_share": share, "train_end": train.end.value}
        else:
            return Finding.passed(message, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=message,
            remedy=f"take the checkpoint at {curve.series.place(curve.best_step)}; stop there, add data or regularise",
            measured=measured,
            steps=(curve.best_step,),
            confidence="high" if curve.sure else "low",
            onset=Onset.on(curve.series, curve.best_step, "the best validation loss", is_best=True),
        )

    def _went_on(self, train: Curve | None, step: int) -> bool:
        """Whether the training loss did not rise since a step. Unknown counts as so."""
        if train is None:
            return True
        then = train.at_step(step).value
        return train.end.value <= then + self.train_lost * abs(then)

    def _still_learns(self, train: Curve | None, step: int) -> bool:
        """Whether the training loss clearly fell since a step."""
        return train is not None and (train.at_step(step) - train.end).surely_above(0.0)

    def _apart(self, curve: Curve, train: Curve) -> bool:
        at_first = max(0.0, (curve.first - train.at_step(int(curve.series.steps[0]))).value)
        fell = train.descent.surely_above(self.train_descent * abs(train.start.value))
        stopped = not (curve.between(0.5, 1.0) - curve.end).surely_above(0.0)
        gap = curve.end - train.end
        return fell and stopped and gap.surely_above(at_first + self.gap_share * train.descent.value)
