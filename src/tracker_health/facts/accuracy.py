"""Accuracies and areas under the ROC curve, of the training and of the validation samples, next to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tracker_health.evidence import Curve, Evidence, FloatArray, Need, Part, Series
from tracker_health.text import percent

ROLES = (("accuracy", "train_accuracy", "val_accuracy"), ("AUC", "train_auc", "val_auc"))
SCORE = "higher_better_val"
NEEDS = (
    Need(role="val_accuracy", any_of=("train_accuracy", "val_auc", "train_auc")),
    Need(role="train_loss", any_of=("val_loss", "objective_loss"), optional=True),
    Need(role=Part.WEIGHTS, optional=True),
)


@dataclass(frozen=True)
class Shares:
    """One measure from 0 to 1 in both sets; None where it was not logged. ``name``: what it is called to people."""

    name: str
    train: Series | None
    held_out: Series | None

    @property
    def judged(self) -> Series:
        """Of the validation samples, or of the training samples where no others were looked at."""
        found = self.held_out if self.held_out is not None else self.train
        if found is None:
            raise LookupError("neither was logged")
        return found

    @property
    def whose(self) -> str:
        """Of which samples that is, in words."""
        return "training" if self.held_out is None else "validation"

    @property
    def end(self) -> float:
        """Where what is judged ends."""
        return mean_at_end(self.judged.values)


def measures(evidence: Evidence, least: int) -> Iterator[Shares]:
    """What was logged with at least so many finite values, as shares: percentages are divided by a hundred, and what is
    neither is left out.
    """
    for name, train, held_out in ROLES:
        found = [_finite(evidence.find(role), least) for role in (train, held_out)]
        if (unit := _unit(found)) is not None:
            yield Shares(name, *(one and _in_unit(one, unit) for one in found))


def scores(evidence: Evidence, least: int) -> list[Shares]:
    """The other scores of the validation samples that are higher for a better model, as ``measures``: a Dice, an F1."""
    found = [_finite(one, least) for one in evidence.all_of(SCORE)]
    units = [(one, _unit([one])) for one in found]
    return [Shares(one.name, None, _in_unit(one, unit)) for one, unit in units if one is not None and unit is not None]


def _unit(found: Iterable[Series | None]) -> float | None:
    there = [one.values for one in found if one is not None]
    if not there or min(values.min() for values in there) < 0.0:
        return None
    highest = max(values.max() for values in there)
    return None if highest > 100.0 else 1.0 if highest <= 1.0 else 100.0


def wrong(shares: Series | None) -> Curve | None:
    """The course of the share of wrong answers, which is to fall like a loss; None where it was not logged."""
    if shares is None:
        return None
    return Curve.of(replace(shares, values=1.0 - shares.values))


def _finite(series: Series | None, least: int) -> Series | None:
    finite = series.finite() if series is not None else None
    return finite if finite is not None and len(finite) >= least else None


def _in_unit(series: Series, unit: float) -> Series:
    return replace(series, values=series.values / unit)


def pairs(evidence: Evidence, shares: Shares, least: int) -> Iterator[tuple[str, Curve, Curve]]:
    """Whose samples, their loss, and how many of them were wrong, with at least so many finite values."""
    both = ("training", "train_loss", shares.train), ("validation", "val_loss", shares.held_out)
    for whose, role, accuracy in both:
        loss, mistakes = evidence.curve(role), wrong(accuracy)
        if loss is not None and mistakes is not None and loss.points >= least:
            yield whose, loss, mistakes


def mean_at_end(values: FloatArray) -> float:
    """The mean of the last three."""
    return float(np.mean(values[-3:]))


def accuracy_said(share: float, digits: int = 3) -> str:
    """An accuracy for people: ``97.4 %``."""
    return percent(share, digits)
