"""LOS005."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series, StepUnit
from tracker_health.evidence.numerics import (
    block_medians,
    in_range,
    local_noise,
    mann_kendall,
    median,
    median_error,
    start_level,
)
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import after_climb, settled
from tracker_health.probes._run import is_fine_tuning
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_LOSSES = ("train_loss", "val_loss")
_BLOCKS = 10
_SURE_POINTS = 20
_SIGNIFICANT = 3.0
_LARGE = 0.3
_HIDDEN_IN_FEW = 0.15
_TREND_BLOCKS = 60
_LEANING, _FALLING = 2.0, 1.0
_LEANING_OF_FEW = 0.5
_FEW = 50
_FEW_EVALUATIONS = 3
_ENOUGH_EVALUATIONS, _AT_ONCE, _ALIKE = 5, 0.05, 0.3
_LITTLE, _HARDLY, _NOT_AT_ALL = 0.01, 0.005, 0.001
_SURELY, _LOST = 0.2, 0.25
_FEWEST = 4
_DISTINCT = 10
_WINDOW = 50
_COARSE = 5.0
_FADED = 0.2
_REMEDY = (
    "overfit one batch: if that fails, look for frozen or detached parameters and the loss mask; else change the "
    "learning rate threefold"
)
_SINGLE = 2.0
_CLEARLY = 4.0


@dataclass(frozen=True, kw_only=True)
class NoProgress(Probe):
    """The loss never came down.

    What it finds:
        A training loss (the validation loss where that has too few points) whose best level is not clearly below its
        start.

    Why it matters:
        Nothing was learnt: the learning rate is far too small or too large, the gradient does not reach the weights,
        or labels and inputs do not belong together.

    How it decides:
        The start is the median of the first points, the best level the lowest median of ten blocks. The descent must
        be at least `min_descent` of the start (`min_descent_fine_tuning` where a base model or adapter shows that
        training did not begin from scratch) *and* significant: three standard errors from the first value, the first
        three, nine, ... up to a tenth of the points (the highest is the start; none but the very first value may lie
        clearly above the first three), or a falling Mann-Kendall trend, or a descent by 30 % whose last quarter lies
        below the first value for value. A smaller descent that the trend confirms is a warning, and so is any miss when
        fine-tuning; else it fails.

        It passes with low confidence where the loss may have come down unseen. That is: a descent that the trend
        confirms, beside a validation loss that came down by 1 %. Noise that could hide a descent by 30 % (15 % in fewer
        than 20 points), of a loss that does not lean up. Noise that could hide the descent that is asked for, beside a
        training loss that leans down (by two standard errors, half a one of fewer than 50 points, or by a trend of one)
        or a validation loss that came down by as much as is asked for, or in a fine-tune without a validation loss that
        would show it. A loss whose objective was made harder meanwhile, by a logged weight of one of its parts. A
        gradual climb in the first quarter to more than one and a half times the start, from which the loss has come
        down ever since, is left out: contrastive losses do that while their queue of negatives fills. Noise is no
        excuse, unless a fine-tune's, where the validation loss moved by no more than half a percent in all of five
        evaluations or more, of which the first came within a twentieth of the steps and lies within 30 % of the first
        training losses.

        The validation loss in its place passes with low confidence beside a few points of the training loss that came
        down by as much as is asked for. Where its first evaluation comes when training had done a part, as after an
        epoch, what was learnt before is not seen: then it passes so, too, unless it does not move by more than a
        thousandth, which is a warning.

        Of four points and more, but fewer than `min_points`, it passes, with low confidence, when the loss came down by
        a fifth and kept three quarters of that. It warns when neither loss came down by half a percent.

        It fails as well when the last tenth of the points, and at least twenty, are one and the same number, other than
        0, after more than ten others: nothing was learnt from there on. Not where the log repeats or rounds its
        numbers: the fifty points before must have had a noise of five times the smallest difference between them, and
        none may have been repeated a quarter as long. Nor where it is the lowest of all, and the last ten before it had
        less than a fifth of the noise, beside their size: then it is a minimum that was come to without minibatches.

    Known limits:
        Needs 4 points, and is unsure (a warning) below 20, and for a history that begins in mid-training. A run that
        learns everything before its first logged point looks flat. A loss that cannot fall by `min_descent`, however
        sure its fall is, is flagged: of clicks (0.69 to 0.67), say, or of a fine-tune of which no param tells.

    What to do:
        Overfit a single batch first: if that fails, look for detached or frozen parameters, a wrong loss mask, or
        shuffled labels. If it works, try learning rates three times higher and lower.

    References:
        Mann (1945) and Kendall (1975) on trend; standard error of a median.
    """

    code = "LOS005"
    name = "no-progress"
    symptom = Symptom.NOT_LEARNING
    vouches = True
    headline = ("descent_share", "best")

    min_descent: Annotated[
        float, Threshold("descent needed, as a share of the start", "fraction", "design", ge=0, le=1)
    ] = 0.05
    min_descent_fine_tuning: Annotated[
        float, Threshold("the same when fine-tuning", "fraction", "design", ge=0, le=1)
    ] = 0.02
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", any_of=("val_loss",), min_points=min(_FEWEST, self.min_points)),
            Need(role="objective_weight", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        enough = [role for role in _LOSSES if evidence.amount(role) >= self.min_points]
        loss = evidence.first(*enough, *_LOSSES).finite()
        n = len(loss)
        if n < self.min_points:
            return _of_few(evidence, loss, self.min_points)
        stands = _stands_still(loss) if loss.role == "train_loss" else None
        if stands is not None:
            return _stood(loss, stands)
        fine_tuning = is_fine_tuning(evidence)
        needed = self.min_descent_fine_tuning if fine_tuning else self.min_descent
        descent = _descent(loss.at(np.arange(after_climb(loss.values), n)))
        if descent.significant and descent.share >= needed:
            message = f"the {_name(loss)} came down from {descent.described} in {n} points"
            return Finding(verdict=Verdict.PASS, message=message, measured=descent.measured())
        doubt = _doubt(descent, evidence, needed, fine_tuning=fine_tuning) or _unseen(loss, evidence, needed)
        if doubt:
            levels = f"begins at {number(descent.start)}, its best level is {number(descent.best)}"
            message = f"{doubt}: the {_name(loss)} {levels}"
            return Finding(verdict=Verdict.PASS, message=message, measured=descent.measured(), confidence="low")
        return _missed(loss, descent, needed, fine_tuning=fine_tuning)


def _of_few(evidence: Evidence, loss: Series, needed: int) -> Finding:
    """Of too few points to tell a small descent from noise: that there is none at all, or a large one, or nothing."""
    n, held_out = len(loss), evidence.find("val_loss")
    too_few = Finding(verdict=Verdict.SKIP, message=f"only {n} finite points of the {_name(loss)}, {needed} are needed")
    if n < _FEWEST:
        return too_few
    start, best, end = float(loss.values[0]), float(loss.values.min()), float(loss.values[-1])
    measured: dict[str, float | int] = {"start": start, "best": best, "points": n}
    if start > 0 and _lowered(loss.values) >= _SURELY and end - best <= _LOST * (start - best):
        message = f"the {_name(loss)} came down from {number(start)} to {number(end)} in {n} points"
        return Finding(verdict=Verdict.PASS, message=message, measured=measured, confidence="low")
    losses = [loss.values, *([held_out.finite().values] if held_out is not None else [])]
    flat = all(_lowered(values) < _HARDLY for values in losses if len(values) > 1)
    flat = flat and not (_begins_late(loss) and _moves(loss.values))
    if not flat or is_fine_tuning(evidence) or settled(evidence) is not None:
        return too_few
    return Finding(
        verdict=Verdict.FAIL,
        message=f"the {_name(loss)} hardly came down in {n} points: it starts at {number(start)}, its lowest is "
        f"{number(best)}",
        remedy=_REMEDY,
        measured=measured,
        confidence="low",
    )


def _lowered(values: FloatArray) -> float:
    """By which share of its start a loss came down."""
    start, fall = float(values[0]), float(values[0] - values.min())
    return fall / abs(start) if start else float(fall > 0)


def _doubt(descent: _Descent, evidence: Evidence, needed: float, *, fine_tuning: bool) -> str:
    """Why a descent that was not seen may be there all the same; empty where it would have been seen."""
    rise = settled(evidence)
    if rise is not None:
        return f"the loss cannot be compared with itself, because {printable(rise[0], 60)} rises up to step {rise[1]}"
    if descent.significant and descent.trend < -_SIGNIFICANT and _validation_came_down(evidence, _LITTLE):
        return "training and validation loss come down slowly"
    if not descent.could_hide(needed) or (not fine_tuning and _validation_stood(evidence)):
        return ""
    unseeable = _HIDDEN_IN_FEW if descent.points < _SURE_POINTS else _LARGE
    if descent.could_hide(unseeable) and descent.leaning > -_LEANING:
        return "its noise would hide even a large descent"
    leans = descent.leaning > (_LEANING_OF_FEW if descent.points < _FEW else _LEANING) or descent.trend < -_FALLING
    if leans or _validation_came_down(evidence, needed):
        return "the loss seems to come down, though its noise leaves that unsure"
    unseen = fine_tuning and evidence.amount("val_loss") < _FEW_EVALUATIONS
    return "the noise would hide what a fine-tune gains" if unseen else ""


def _name(loss: Series) -> str:
    return "validation loss" if loss.role == "val_loss" else "loss"


def _unseen(loss: Series, evidence: Evidence, needed: float) -> str:
    """Why a validation loss in the training loss's place does not show what was learnt; empty where it does."""
    series = evidence.find("train_loss")
    training = series.finite().values if series is not None else np.empty(0)
    if loss.role == "val_loss" and len(training) > 1 and _lowered(training) >= needed:
        return f"the few points of the training loss come down to {number(float(training.min()))}"
    late = "what was learnt before the first evaluation is not seen"
    return late if _begins_late(loss) and _moves(loss.values) else ""


def _begins_late(loss: Series) -> bool:
    """Whether a loss is the validation's and begins when training had done a part. At step 0 it begins with the
    training, unless its steps count the evaluations, or epochs.
    """
    if loss.role != "val_loss" or len(loss) < 2:
        return False
    return bool(loss.steps[0] > 0 or loss.step_unit is StepUnit.EPOCH or median(np.diff(loss.steps)) <= 1)


def _moves(values: FloatArray) -> bool:
    values, _ = in_range(values)
    return bool(np.ptp(values) > _NOT_AT_ALL * np.abs(values).max())


def _missed(loss: Series, descent: _Descent, needed: float, *, fine_tuning: bool) -> Finding:
    n, blurred = len(loss), descent.could_hide(needed)
    resumed = bool(loss.steps[0] > 0.2 * loss.steps[-1] > 0)
    slowly = descent.significant and descent.trend < -_SIGNIFICANT
    levels = f"it starts at {number(descent.start)} and its best level is {number(descent.best)}"
    if blurred:
        outcome = f"cannot be seen to come down through its noise in {n} points: {levels}"
    elif descent.significant and descent.share > 0:
        outcome = f"came down by little in {n} points: from {descent.described}"
    else:
        stayed = "come down" if descent.share < needed else "come down to stay"
        outcome = f"did not {stayed} in {n} points: {levels}"
    return Finding(
        verdict=Verdict.WARN if fine_tuning or slowly else Verdict.FAIL,
        message=f"the {_name(loss)} {outcome}",
        remedy=_REMEDY,
        measured=descent.measured(),
        confidence="low" if blurred or resumed or n < _SURE_POINTS or _begins_late(loss) else "high",
    )


def _stood(loss: Series, at: int) -> Finding:
    value, step, n = float(loss.values[at]), int(loss.steps[at]), len(loss)
    return Finding(
        verdict=Verdict.FAIL,
        message=f"the loss has stood at exactly {number(value)} since step {step}, for {n - at} of {n} points",
        remedy="look for what stopped at that step: the batches, the optimizer's steps or the log",
        measured={"stands_at": value, "stands_for": n - at, "points": n},
        steps=(step,),
    )


def _stands_still(loss: Series) -> int | None:
    """The index from which on the loss is one and the same number, other than 0, for a tenth of the points and at least
    twenty; None if it is not, or if it may be the log that repeats it.

    The points before must have been noisier than the log is coarse, by the smallest difference between two of them,
    and must not have been repeated for so long either. What all batches together, as L-BFGS, came down to at last, by
    ever smaller steps, is a minimum.
    """
    values = loss.values
    changes = np.flatnonzero(np.diff(values)) + 1
    if len(changes) < _DISTINCT or values[-1] == 0.0:
        return None
    at = int(changes[-1])
    if len(values) - at < max(_SURE_POINTS, len(values) // 10):
        return None
    before, _ = in_range(values[max(0, at - _WINDOW) : at])
    gaps = np.diff(np.unique(before))
    longest = int(np.diff(np.concatenate([[0], changes])).max())
    noisy = len(gaps) + 1 > _DISTINCT and local_noise(before) > _COARSE * gaps.min()
    return at if noisy and not _converged(values, before) and 4 * longest < len(values) - at else None


def _converged(values: FloatArray, before: FloatArray) -> bool:
    """Whether a loss came down to the lowest value of all by ever smaller steps, beside its size."""
    if values[-1] > values.min() or before.min() <= 0:
        return False
    sizes = np.log(before)
    return local_noise(sizes[-_DISTINCT:]) < _FADED * local_noise(sizes)


@dataclass(frozen=True, kw_only=True)
class _Descent:
    """Start and best level, the standard error of their difference, whether it is significant, and the trend (z).

    ``leaning``: how far the mean of the last third lies below that of the first, in its standard errors.
    """

    start: float
    best: float
    error: float
    significant: bool
    trend: float
    leaning: float
    points: int
    noise: float

    def could_hide(self, share: float) -> bool:
        """Whether a steady descent by this share could go unseen: the halves would differ by half of it."""
        error_of_halves = 2.0 * median_error(self.noise, self.points)
        unseen = _SIGNIFICANT * error_of_halves > 0.5 * share * self.scale
        return unseen and not self.significant and self.trend < _SIGNIFICANT

    @property
    def scale(self) -> float:
        return max(abs(self.start), abs(self.best))

    @property
    def share(self) -> float:
        return (self.start - self.best) / self.scale if self.scale else 0.0

    @property
    def described(self) -> str:
        """The levels, and the share where it means something: of a loss that stays above 0."""
        share = f", by {self.share:.1%}" if self.best >= 0 else ""
        return f"{number(self.start)} to {number(self.best)}{share}"

    def measured(self) -> dict[str, float | int]:
        return {
            "start": self.start,
            "best": self.best,
            "descent_share": self.share,
            "standard_error": self.error,
            "trend_z": self.trend,
            "points": self.points,
        }


def _descent(loss: Series) -> _Descent:
    """Significant is a fall of three standard errors from the first value, the first points or more and more of them,
    or a falling trend of the blocks. It is measured from the highest of those starts.
    """
    values, n = loss.values, len(loss)
    size = max(2, n // _BLOCKS)
    noise = local_noise(values)
    # The lowest of ten medians lies below their common level by about one and a half standard errors.
    best, best_error = float(block_medians(values, size).min()), 1.5 * median_error(noise, size)
    head = max(1, min(3, size))
    first, error = start_level(values, head, noise), float(np.hypot(median_error(noise, head), best_error))
    falls = [
        (level, its_error)
        for level, its_error in _starts(values, size, noise, best_error)
        # What lies clearly above the first points is no beginning: the loss went up first. The first value did not.
        if level - best > max(0.0, _SIGNIFICANT * its_error)
        and (level == values[0] or level - first <= _CLEARLY * error)
    ]
    start, error = max([(first, error), *falls])
    trend = mann_kendall(block_medians(values, max(1, n // _TREND_BLOCKS)))
    separate = start - best > _LARGE * max(abs(start), abs(best)) and _comes_apart(values)
    significant = separate or bool(falls) or trend < -_SIGNIFICANT
    return _Descent(
        start=start, best=best, error=error, significant=significant, trend=trend, leaning=_leaning(values, noise),
        points=n, noise=noise,
    )  # fmt: skip


def _starts(values: FloatArray, size: int, noise: float, best_error: float) -> Iterator[tuple[float, float]]:
    """Levels of the beginning, over more and more points, with the standard error of a fall from them: noise hides a
    short beginning, and a steep descent a long one. A single value is taken for less, because tails are heavy.
    """
    yield float(values[0]), float(np.hypot(_SINGLE * noise, best_error))
    points = min(3, size)
    while points < size:
        yield median(values[:points]), float(np.hypot(median_error(noise, points), best_error))
        points *= 3
    yield median(values[:size]), float(np.hypot(median_error(noise, size), best_error))


def _leaning(values: FloatArray, noise: float) -> float:
    third = max(1, len(values) // 3)
    fall = float(values[:third].mean() - values[-third:].mean())
    error = noise * float(np.sqrt(2.0 / third))
    return fall / error if error > 0 else 0.0


def _validation_came_down(evidence: Evidence, needed: float) -> bool:
    """Whether the validation loss, which has no minibatch noise, shows what the training loss hides."""
    held_out = evidence.find("val_loss")
    if held_out is None or len(held_out.finite()) < _FEW_EVALUATIONS:
        return False
    values = held_out.finite().values
    return bool(values[0] - values[-2:].mean() >= needed * abs(values[0]) and mann_kendall(values[:200]) < -1.0)


def _validation_stood(evidence: Evidence) -> bool:
    """Whether the validation loss hardly moved, from within the first twentieth of the training to its end: what its
    noise may hide of the training loss did not happen then.
    """
    loss, held_out = evidence.find("train_loss"), evidence.find("val_loss")
    if loss is None or held_out is None or not len(loss) or len(held_out.finite()) < _ENOUGH_EVALUATIONS:
        return False
    values, start = held_out.finite().values, median(loss.finite().values[:_FEW_EVALUATIONS])
    if held_out.finite().steps[0] > _AT_ONCE * float(loss.steps[-1]) or abs(values[0] - start) > _ALIKE * abs(start):
        return False
    return bool(np.ptp(values) <= _HARDLY * np.abs(values).max() and np.ptp(values) > 0)


def _comes_apart(values: FloatArray) -> bool:
    """Whether the last quarter lies below the first, value for value. In a short steep descent the differences between
    neighbours are no noise, and would hide it.
    """
    quarter = max(2, len(values) // 4)
    return float(values[-quarter:].max()) < float(values[:quarter].min())
