"""LOS005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import block_medians, local_noise, mann_kendall, median_error, start_level
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_LOSSES = ("train_loss", "val_loss")
_BLOCKS = 10
_SURE_POINTS = 20
_SIGNIFICANT = 3.0
_LARGE = 0.3
_TREND_BLOCKS = 60
_LEANING = 1.0
_FEW_EVALUATIONS = 3
_BASE_MODEL_PARAMS = (
    "base_model",
    "base_model_name_or_path",
    "model_name_or_path",
    "_name_or_path",
    "pretrained",
    "init_checkpoint",
)


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
        training did not begin from scratch) *and* significant: three standard errors from the first points or from
        the first block, or a falling Mann-Kendall trend, or a descent by 30 % whose last quarter lies below the first
        value for value. A smaller descent that the trend confirms is a warning, and so is any miss when fine-tuning;
        else it fails. Where the noise could hide the descent that is asked for, a last third below the first by one
        standard error, or a falling validation loss, is enough to pass, with low confidence.

    Known limits:
        Needs 8 points, and is unsure (a warning) below 20, where the noise would hide a descent of that size, and for
        a history that begins in mid-training. A run that learns everything before its first logged point looks flat.

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
            Need(role="train_loss", any_of=("val_loss",), min_points=self.min_points),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        enough = [role for role in _LOSSES if evidence.amount(role) >= self.min_points]
        loss = evidence.first(*enough, *_LOSSES).finite()
        n = len(loss)
        if n < self.min_points:
            return Finding(
                verdict=Verdict.SKIP, message=f"only {n} finite points of the loss, {self.min_points} are needed"
            )
        fine_tuning = _is_fine_tuning(evidence)
        needed = self.min_descent_fine_tuning if fine_tuning else self.min_descent
        descent = _descent(loss)
        if descent.significant and descent.share >= needed:
            fall = f"from {number(descent.start)} to {number(descent.best)}, by {descent.share:.0%}"
            message = f"the loss came down {fall} in {n} points"
            return Finding(verdict=Verdict.PASS, message=message, measured=descent.measured())
        blurred = descent.could_hide(needed)
        if blurred and (descent.leaning > _LEANING or _validation_came_down(evidence, needed)):
            message = f"the loss seems to come down, though {n} points are too few to be sure through its noise"
            return Finding(verdict=Verdict.PASS, message=message, measured=descent.measured(), confidence="low")
        resumed = bool(loss.steps[0] > 0.2 * loss.steps[-1] > 0)
        slowly = descent.significant and descent.trend < -_SIGNIFICANT
        levels = f"it starts at {number(descent.start)} and its best level is {number(descent.best)}"
        outcome = "cannot be seen to come down through its noise" if blurred else "did not come down"
        return Finding(
            verdict=Verdict.WARN if fine_tuning or slowly else Verdict.FAIL,
            message=f"the loss {outcome} in {n} points: {levels} ({descent.share:.1%})",
            remedy="overfit one batch: if that fails, look for frozen or detached parameters and the loss mask; "
            "else change the learning rate threefold",
            measured=descent.measured(),
            confidence="low" if blurred or resumed or n < _SURE_POINTS else "high",
        )


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
    """Significant is a fall of three standard errors, from the first points or (where those are too noisy) from the
    first block, or a falling trend of the blocks.
    """
    values, n = loss.values, len(loss)
    size = max(2, n // _BLOCKS)
    levels = block_medians(values, size)
    noise = local_noise(values)
    head = max(1, min(3, size))
    start = start_level(values, head, noise)
    # The lowest of ten medians lies below their common level by about one and a half standard errors.
    best, best_error = float(levels.min()), 1.5 * median_error(noise, size)
    error = float(np.hypot(median_error(noise, head), best_error))
    block_error = float(np.hypot(median_error(noise, size), best_error))
    falls = (start - best, error), (float(levels[0]) - best, block_error)
    trend = mann_kendall(block_medians(values, max(1, n // _TREND_BLOCKS)))
    separate = start - best > _LARGE * max(abs(start), abs(best)) and _comes_apart(values)
    clear = any(fall > max(0.0, _SIGNIFICANT * its_error) for fall, its_error in falls)
    significant = separate or clear or trend < -_SIGNIFICANT
    return _Descent(
        start=start, best=best, error=error, significant=significant, trend=trend, leaning=_leaning(values, noise),
        points=n, noise=noise,
    )  # fmt: skip


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


def _comes_apart(values: FloatArray) -> bool:
    """Whether the last quarter lies below the first, value for value. In a short steep descent the differences between
    neighbours are no noise, and would hide it.
    """
    quarter = max(2, len(values) // 4)
    return float(values[-quarter:].max()) < float(values[:quarter].min())


def _is_fine_tuning(evidence: Evidence) -> bool:
    if evidence.weights is not None and evidence.weights.is_adapter:
        return True
    params = evidence.info.params
    return any(str(params.get(name, "")).lower() not in ("", "none", "false", "0") for name in _BASE_MODEL_PARAMS)
