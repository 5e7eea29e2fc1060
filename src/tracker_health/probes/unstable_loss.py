"""LOS008."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import (
    block_medians,
    evaluation_noise,
    in_range,
    local_noise,
    longest_run,
    median_error,
    start_level,
)
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import comparable
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_BLOCKS = 40
_LEAST_BLOCK = 3
_FEWEST, _SEVERAL = 8, 15
_MOST_FOR_A_LEAP = 2  # times min_points
_AROUND = 2  # blocks to either side
_LEAST_LEAP, _SURE, _A_DESCENT = 0.1, 5.0, 0.2
_HALF, _MOST = 1.4826, 0.6080  # of normal noise, the deviation over what half and a tenth of the sizes exceed


@dataclass(frozen=True, kw_only=True)
class UnstableLoss(Probe):
    """The loss keeps going up and down.

    What it finds:
        A training loss whose level rises well above the best it had, several times, and comes back; a validation loss
        that leaps once by most of what it came down by.

    Why it matters:
        The learning rate is near the edge: the weights are thrown about instead of settling, and where the run ends is
        a matter of luck.

    How it decides:
        Levels are medians of blocks of a fortieth of the points, at least three, so that minibatch noise and single
        spikes do not count. An excursion is a stretch of levels above the best so far by `rise_share` of the descent
        *and* by `sigmas` standard errors, from the noise of the whole or of the blocks around, where that is wilder or
        has longer tails. Warn at `repeated` excursions, or at one of twice that height or that lasts
        for `lasting_share` of the run.

        Of eight points and more, but fewer than twice `min_points`, one alone counts: above the best so far by twice
        `rise_share` of the descent so far *and* by `sigmas` times the noise of the points before it, four at least
        (eight from `min_points` on), and of those after it; and so has that descent to be. From 15 points on the next
        point has to be above by `rise_share` as well, from `min_points` on the next two, for a single one may be an odd
        batch.

        The validation loss counts, too: in its last two thirds, of eight evaluations or more, one that lies above the
        best so far, and above a later one as well, by `validation_share` of what it came down by (from the first
        training loss, where that is higher), by a tenth of the lowest, and by five times its noise. A descent that is
        less than a fifth counts for none.

        Only what can be compared is. While a logged weight of a part of the loss rises (`kl_weight`, `beta`: the role
        `objective_weight`) the loss measures something else with every step, and what comes after the rise is judged.
        Neither does a gradual climb in the first quarter count, by more than half of the start, from which the loss has
        come down ever since: contrastive losses do that while their queue of negatives fills.

    Known limits:
        Needs 8 points. Cosine restarts with a high rate make excursions of their own.

    What to do:
        Lower the learning rate, clip gradients, or take larger batches.

    References:
        Cohen et al. (2021), gradient descent at the edge of stability.
    """

    code = "LOS008"
    name = "unstable-loss"
    symptom = Symptom.UNSTABLE
    headline = ("excursions",)

    rise_share: Annotated[
        float, Threshold("rise above the best level so far, as a share of the descent", "fraction", "calibration", gt=0)
    ] = 0.25
    sigmas: Annotated[float, Threshold("the same in standard errors of a level", "sigma", "calibration", gt=0)] = 6.0
    repeated: Annotated[int, Threshold("excursions that make a warning", "excursions", "calibration", ge=1)] = 2
    lasting_share: Annotated[
        float,
        Threshold("length of one excursion that counts alone, as a share of the run", "fraction", "public runs", gt=0),
    ] = 0.2
    validation_share: Annotated[
        float,
        Threshold("leap of the validation loss, as a share of its descent", "fraction", "calibration", gt=0),
    ] = 0.6
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=16)] = 30

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=min(_FEWEST, self.min_points)),
            Need(role="objective_weight", optional=True),
            Need(role="val_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        found = self._of_training(evidence)
        return found if found.verdict is Verdict.WARN else self._of_validation(evidence) or found

    def _of_training(self, evidence: Evidence) -> Finding:
        loss = comparable(evidence.first("train_loss").finite(), evidence)
        values = loss.values
        if len(values) < self.min_points:
            few = f"only {len(values)} finite points of the loss can be compared"
            return self._leap(loss) or Finding(verdict=Verdict.SKIP, message=few)
        size = max(_LEAST_BLOCK, len(values) // _BLOCKS)
        levels = block_medians(values, size)
        noise = local_noise(values)
        best = np.minimum.accumulate(levels)
        start = start_level(values, min(5, size), noise)
        descent = max(start - float(levels.min()), 0.2 * abs(float(levels.min())))
        rise = levels - best
        floor = self.sigmas * _errors(values, size, len(levels), noise)
        high = (rise > self.rise_share * descent) & (rise > floor)
        steep = (rise > 2.0 * self.rise_share * descent) & (rise > floor)
        excursions, lasting = _stretches(high[:-1])
        tallest = int(np.argmax(rise[:-1]))
        measured = {"excursions": excursions, "tallest": float(rise[tallest]), "descent": descent, "noise": noise}
        long = lasting >= self.lasting_share * len(levels)
        if excursions < self.repeated and not steep[:-1].any() and not long:
            leap = self._leap(loss) if len(values) < _MOST_FOR_A_LEAP * self.min_points else None
            return leap or Finding(
                verdict=Verdict.PASS, message=f"{count(excursions, 'excursion')} of the loss level", measured=measured
            )
        step = int(loss.steps[max(0, len(values) - (len(levels) - tallest) * size)])
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss level left its best {count(excursions, 'time')}: at step {step} it was "
            f"{number(float(levels[tallest]))} after {number(float(best[tallest]))}",
            remedy="lower the learning rate, clip gradients, or take larger batches",
            measured=measured,
            steps=(step,),
        )

    def _of_validation(self, evidence: Evidence) -> Finding | None:
        """The finding that the validation loss leapt, and came back."""
        series = evidence.find("val_loss")
        held_out = comparable(series.finite(), evidence) if series is not None else None
        if held_out is None or len(held_out) < _FEWEST:
            return None
        values, unit = in_range(held_out.values)
        best, later = np.minimum.accumulate(values), np.minimum.accumulate(values[::-1])[::-1]
        height = np.minimum(values - best, values - later)
        height[: len(values) // 3] = 0.0
        at, low = int(np.argmax(height)), float(values.min())
        start = max(*evidence.first("train_loss").finite().values[:1] / unit, float(values[0]), low)
        if start - low < _A_DESCENT * abs(start):
            return None
        needed = max(
            self.validation_share * (start - low),
            _LEAST_LEAP * abs(low),
            _SURE * evaluation_noise(values),
        )
        if not height[at] > needed:
            return None
        step = int(held_out.steps[at])
        there, earlier = (number(float(one) * unit) for one in (values[at], best[at]))
        said = f"the validation loss leapt to {there} at step {step}, after {earlier}, and came back"
        return _leapt(said, step, tallest=float(height[at]) * unit, descent=(start - low) * unit)

    def _leap(self, loss: Series) -> Finding | None:
        """The finding that a log of few points, of one an epoch, say, went up again further than blocks show."""
        values, unit = in_range(loss.values)
        n = len(values)
        best = np.minimum.accumulate(values)
        # The last point is not known to come back: a loss that is up at the end has diverged.
        before, after = (4, 0) if n < _SEVERAL else (4, 1) if n < self.min_points else (8, 2)
        for at in range(before, n - max(1, after) if n >= _FEWEST else 0):
            rise, descent = float(values[at] - best[at - 1]), float(values[0] - best[at - 1])
            noise = self.sigmas * max(evaluation_noise(values[:at]), local_noise(values[at + 1 :]))
            lasts = bool((values[at + 1 : at + 1 + after] - best[at - 1] > self.rise_share * descent).all())
            if lasts and descent > noise and rise > max(2.0 * self.rise_share * descent, noise):
                step = int(loss.steps[at])
                there, earlier = (number(float(one) * unit) for one in (values[at], best[at - 1]))
                said = f"the loss leapt to {there} at step {step}, after {earlier}"
                return _leapt(said, step, tallest=rise * unit, descent=descent * unit)
        return None


def _leapt(said: str, step: int, *, tallest: float, descent: float) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=said,
        remedy="lower the learning rate, clip gradients, or look whether the weights were lost there",
        measured={"excursions": 1, "tallest": tallest, "descent": descent},
        steps=(step,),
    )


def _errors(values: FloatArray, size: int, blocks: int, noise: float) -> FloatArray:
    """The standard error of each level: by the noise of the whole, or by that around it where that is wilder.

    Around it are the differences inside five blocks. Medians of few points feel long tails, so that what a tenth of the
    differences exceed counts as well as what half of them do.
    """
    steps = np.abs(np.diff(values[len(values) - blocks * size :].reshape(blocks, size), axis=1))
    padded = np.pad(steps, ((_AROUND, _AROUND), (0, 0)), constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1, axis=0).reshape(blocks, -1)
    # At both ends only, there are fewer blocks around; leaving out NaN takes numpy a call for each row.
    half, most = np.empty((2, blocks))
    for rows, quantile in ((inner := ~np.isnan(around).any(axis=1), np.quantile), (~inner, np.nanquantile)):
        half[rows], most[rows] = quantile(around[rows], [0.5, 0.9], axis=1)
    own = np.maximum(_HALF * half, _MOST * most) / np.sqrt(2.0)
    errors: FloatArray = median_error(1.0, size) * np.maximum(noise, own)
    return errors


def _stretches(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """How many separate stretches of True there are, and the length of the longest."""
    starts = np.count_nonzero(np.diff(np.concatenate([[0], mask.astype(np.int8)])) == 1)
    return int(starts), longest_run(mask)[1]
