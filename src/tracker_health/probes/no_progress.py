"""LOS005."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._stats import block_medians, local_noise, mann_kendall, median_error, start_level
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_LOSSES = ("train_loss", "val_loss")
_BLOCKS = 10
_SURE_POINTS = 20
_SIGNIFICANT = 3.0
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
        A training loss (the validation loss where that has too few points) whose best level is not clearly below its start.

    Why it matters:
        Nothing was learnt: the learning rate is far too small or too large, the gradient does not reach the weights,
        or labels and inputs do not belong together.

    How it decides:
        The start is the median of the first points, the best level the lowest median of ten blocks. The descent must
        be at least `min_descent` of the start (`min_descent_fine_tuning` where a base model or adapter shows that
        training did not begin from scratch) *and* three standard errors, from the first points or from the first
        block. A smaller descent that the Mann-Kendall
        trend confirms is a warning, and so is any miss when fine-tuning; else it fails.

    Known limits:
        Needs 8 points, and is unsure (a warning) below 20 and for a history that begins in mid-training. A run that
        learns everything before its first logged point looks flat.

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
        return (Need(role="train_loss", any_of=("val_loss",), min_points=self.min_points),)

    def judge(self, evidence: Evidence) -> Finding:
        enough = [role for role in _LOSSES if evidence.amount(role) >= self.min_points]
        loss = evidence.first(*enough, *_LOSSES).finite()
        n = len(loss)
        if n < self.min_points:
            return Finding(
                verdict=Verdict.SKIP, message=f"only {n} finite points of the loss, {self.min_points} are needed"
            )
        fine_tuning = _is_fine_tuning(evidence)
        start, best, error, significant, trend = _descent(loss)
        descent = start - best
        scale = max(abs(start), abs(best))
        share = descent / scale if scale else 0.0
        measured = {
            "start": start,
            "best": best,
            "descent_share": share,
            "standard_error": error,
            "trend_z": trend,
            "points": n,
        }
        needed = self.min_descent_fine_tuning if fine_tuning else self.min_descent
        if significant and share >= needed:
            message = f"the loss came down from {number(start)} to {number(best)}, by {share:.0%} in {n} points"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        slowly = significant and trend < -_SIGNIFICANT
        unsure = n < _SURE_POINTS or loss.steps[0] > 0.2 * loss.steps[-1] > 0
        levels = f"it starts at {number(start)} and its best level is {number(best)} ({share:.1%})"
        return Finding(
            verdict=Verdict.WARN if fine_tuning or slowly else Verdict.FAIL,
            message=f"the loss did not come down in {n} points: {levels}",
            remedy="overfit one batch: if that fails, look for frozen or detached parameters and the loss mask; "
            "else change the learning rate threefold",
            measured=measured,
            confidence="low" if unsure else "high",
        )


def _descent(loss: Series) -> tuple[float, float, float, bool, float]:
    """Start level, best level, the standard error of their difference, whether the loss came down significantly (from
    the first points, or where those are too noisy from the first block), and the trend of the block medians.
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
    significant = any(fall > max(0.0, _SIGNIFICANT * its_error) for fall, its_error in falls)
    return start, best, error, significant, mann_kendall(levels)


def _is_fine_tuning(evidence: Evidence) -> bool:
    if evidence.weights is not None and evidence.weights.is_adapter:
        return True
    params = evidence.info.params
    return any(str(params.get(name, "")).lower() not in ("", "none", "false", "0") for name in _BASE_MODEL_PARAMS)
