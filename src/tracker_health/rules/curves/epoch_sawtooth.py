"""LOS010."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class EpochSawtooth(Probe):
    """The loss goes through one slow pattern in every epoch.

    What it finds:
        A training loss whose ups and downs repeat at about the same places of each epoch, with similar losses for
        neighbouring batches.

    Why it matters:
        The data are sorted: gradients of neighbouring batches agree too much, and the model forgets what it saw first.

    How it decides:
        The loss is cut into epochs by the logged epoch: `min_epochs` whole ones of `min_per_epoch` points.
        Without each epoch's mean, and without a line through those means, each point is compared with its later
        neighbour in the next epoch. Warn when both correlations are above `correlation`, and above zero by
        `sure` standard errors. A mean since the beginning of each epoch repeats itself, too. Where the jitter
        dies away to `dies_away` within the epochs, what such means are made of must correlate as well. It needs
        `min_points` points.

    Known limits:
        Needs the epoch of each point. Data that were shuffled only once repeat as well, but their neighbours are not
        alike. They train as well as data that are shuffled again: of 23 such trainings none is flagged. Of 23 sorted
        ones, the 19 that ended worse are flagged. Batches sorted on purpose (by length, or as one long text) look the
        same. A learning rate that restarts with the epochs is not judged.

    Worked example:
        train_loss: 3 9 8 7 6 5 4 3 2 9 8 7 6 5 4 3 2 9 8 7 6 5 4 3 2 9 8 7 6 5 4 3 2 9
        epoch: 0 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2 3 3 3 3 3 3 3 3 4 4 4 4 4 4 4 4 5
        gives: correlation 0.8824, epochs 4, points_an_epoch 8
        warn: about its mean of 5.5 each epoch is the next: 3.5, 2.5 ... -3.5; moved by one it correlates by 0.88.

    What to do:
        Shuffle the training data again in each epoch.

    References:
        Autocorrelation at a seasonal lag.
    """

    code = "LOS010"
    name = "epoch-sawtooth"
    symptom = Symptom.DATA_ORDER
    headline = ("correlation",)

    correlation: Annotated[float, Threshold("autocorrelation at the epoch's length", "", "calibration", gt=0, le=1)] = (
        0.5
    )
    sure: Annotated[float, Threshold("its distance from zero", "standard errors", "calibration", ge=0)] = 4.0
    dies_away: Annotated[
        float, Threshold("jitter late in the epochs over that early in them, of running means", "ratio", "calibration",
                         ge=0)
    ] = 0.6  # fmt: skip
    min_epochs: Annotated[int, Threshold("whole epochs needed", "epochs", "design", ge=3)] = 4
    min_per_epoch: Annotated[int, Threshold("points needed in each", "points", "design", ge=4)] = 8
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=32)] = 32

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="epoch", min_points=self.min_epochs),
            Need(role="learning_rate", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        epochs, curve = _epochs(evidence, self.min_epochs, self.min_per_epoch), evidence.curve("train_loss")
        if epochs is None:
            few = f"fewer than {self.min_epochs} whole epochs with {self.min_per_epoch} points of the loss each"
            return Finding.skipped(few)
        if curve is not None and len(curve.restarts) >= self.min_epochs:
            return Finding.skipped("the learning rate begins again as often as there are epochs")
        length, found = epochs.shape[1], _repetition(epochs)
        if _jitter_left(epochs) < self.dies_away:
            # The first point of an epoch is the last of the one before where trainers count its end to the next.
            found = min(found, *(_repetition(_single_values(epochs[:, first:])) for first in (0, 1)))
        measured = {"correlation": found, "epochs": len(epochs), "points_an_epoch": length}
        said = f"epochs correlate by {number(found)} with the next ({len(epochs)} epochs of {length} points)"
        if not found > max(self.correlation, self.sure / sqrt(epochs.size - length)):  # NaN of numbers near 1e308
            return Finding.passed(said, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the loss goes through one pattern in every epoch, {said}",
            remedy="shuffle the training data again in each epoch",
            measured=measured,
            steps=(int(evidence.first("train_loss").finite().steps[0]),),
        )


def _epochs(evidence: Evidence, fewest: int, points: int) -> FloatArray | None:
    """The loss, a row for each whole epoch; the first and the last may not be whole, and are left out."""
    loss, counter = evidence.first("train_loss").finite(), evidence.first("epoch").finite()
    if not len(counter) or not len(loss):
        return None
    place = np.searchsorted(counter.steps, loss.steps, side="left").clip(0, len(counter) - 1)
    number_of = np.floor(counter.values[place])
    starts = np.flatnonzero(np.diff(number_of, prepend=np.nan) != 0)
    if len(starts) < fewest + 2:
        return None
    inner = [loss.values[a:b] for a, b in pairwise(starts[1:])]
    usual = int(median([len(one) for one in inner]))
    whole = [one for one in inner if usual <= len(one) <= usual + 1]
    if usual < points or len(whole) < max(fewest, len(inner) // 2 + 1):
        return None
    return np.array([one[:usual] for one in whole])


def _repetition(epochs: FloatArray) -> float:
    """How alike each epoch and the next are, compared with what their level and the descent between them explain."""
    means = epochs.mean(axis=1)
    centres = (np.arange(len(epochs)) + 0.5) * epochs.shape[1] - 0.5
    smooth = np.interp(np.arange(epochs.size), centres, means).reshape(epochs.shape)
    return min(_correlation(epochs - means[:, None]), _correlation(epochs - smooth))


def _jitter_left(rows: FloatArray) -> float:
    """The jitter in the second half of the epochs over that in the first: of a mean since each began it dies away, as
    one over the number of points so far.
    """
    first, last = (median(half.ravel()) for half in np.array_split(np.abs(np.diff(rows, axis=1)), 2, axis=1))
    return last / first if first > 0 else 1.0


def _single_values(means: FloatArray) -> FloatArray:
    """The values whose means from the beginning of the row on these are."""
    return np.diff(means * np.arange(1, means.shape[1] + 1), axis=1, prepend=0.0)


def _correlation(rows: FloatArray) -> float:
    """Of each value with the one after its place in the next row: where the rows' pattern is slow they are alike."""
    before, after = rows[:-1, :-1].ravel(), rows[1:, 1:].ravel()
    size = float(np.sqrt((before**2).sum() * (after**2).sum()))
    return float((before * after).sum() / size) if size > 0 else 0.0
