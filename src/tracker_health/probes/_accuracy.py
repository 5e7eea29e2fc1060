"""Accuracies and areas under the ROC curve, of the training and of the validation samples, beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.probes._classes import begins_at_chance, classes, classes_of_head, vocabulary
from tracker_health.text import number

ROLES = (("accuracy", "train_accuracy", "val_accuracy"), ("AUC", "train_auc", "val_auc"))
LOSSES = ("train_loss", "val_loss", "objective_loss")
NEEDS = (
    Need(role="val_accuracy", any_of=("train_accuracy", "val_auc", "train_auc")),
    Need(role="train_loss", any_of=LOSSES[1:], optional=True),
    Need(role=Part.WEIGHTS, optional=True),
)
MOSTLY_RIGHT = 0.9
"""A share of right answers from which on a validation set counts as learnt, unless most of it is one class."""

_AUC_OF_GUESSING = 0.5
_MOST_GUESSED = 20
_NEAR = 0.3
_THERE = 0.1
_FIRST = 3
_LEAST_SEEN = 2.85  # three classes, and 5 % of noise in the first loss
_BY_CHANCE = 0.05
_MOST_SAMPLES = 10_000
_SHARES_LOOKED_AT = 200
_WHOLE = 3e-6  # of a share in single precision, and some
_BEYOND = 700.0  # an exponential that is still a number


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
    def end(self) -> float:
        """Where what is judged ends."""
        return mean_at_end(self.judged.values)


def measures(evidence: Evidence, least: int) -> Iterator[Shares]:
    """What was logged with at least so many finite values, as shares: percentages are divided by a hundred, and what is
    neither is left out.
    """
    for name, train, held_out in ROLES:
        found = [_finite(evidence, role, least) for role in (train, held_out)]
        there = [one.values for one in found if one is not None]
        if not there or min(values.min() for values in there) < 0:
            continue
        highest = max(values.max() for values in there)
        if highest <= 100.0:
            unit = 1.0 if highest <= 1.0 else 100.0
            yield Shares(name, *(one and _in_unit(one, unit) for one in found))


def _finite(evidence: Evidence, role: str, least: int) -> Series | None:
    series = evidence.find(role)
    finite = series.finite() if series is not None else None
    return finite if finite is not None and len(finite) >= least else None


def _in_unit(series: Series, unit: float) -> Series:
    return Series(name=series.name, steps=series.steps, values=series.values / unit, role=series.role)


def right_at_end(evidence: Evidence) -> float:
    """The share of the validation samples that get the right answer at the end; NaN where it was not logged."""
    known = (one.end for one in measures(evidence, 1) if one.held_out is not None and one.name == "accuracy")
    return next(known, float("nan"))


class Chance(NamedTuple):
    """The share that guessing has, and whether the measure itself or the run's params tell it."""

    share: float
    told: bool


def chance_of(evidence: Evidence, shares: Shares) -> Chance | None:
    """What guessing has of a measure; None where nothing tells: the first of ``chances_of``."""
    return next(chances_of(evidence, shares), None)


def chances_of(evidence: Evidence, shares: Shares) -> Iterator[Chance]:
    """What guessing may have of a measure, the likeliest first; nothing where nothing tells.

    Without a number of classes in the run's params it is the one, up to 20, whose share the accuracy has had on the
    whole, if the first loss lies within 30 % of its logarithm, or its median near it: two signs that know nothing of
    each other. Not where the model's last layer chooses among clearly more or fewer. Where the loss of the same samples
    speaks for a neighbour of it, that comes first.
    """
    if shares.name == "AUC":
        yield Chance(_AUC_OF_GUESSING, told=True)
        return
    known = classes(evidence)
    if known is not None:
        yield Chance(1.0 / known, told=True)
        return
    # Of a vocabulary most tokens are right far more, or far less, often than one in so many.
    if vocabulary(evidence) is not None or is_of_something_else(evidence):
        return
    loss = evidence.find("train_loss")
    values = loss.finite().values if loss is not None else np.empty(0)
    for guessed in _counts_behind(float(np.mean(shares.judged.values)), shares, evidence):
        if not 2 <= guessed <= _MOST_GUESSED or not len(values):
            continue
        near = begins_at_chance(values, guessed) or _comes_to(values, guessed)
        if near and not _contradicted(guessed, evidence):
            yield Chance(1.0 / guessed, told=False)


def _counts_behind(level: float, shares: Shares, evidence: Evidence) -> tuple[int, ...]:
    """The number of answers of which guessing has that share; before it that one of its neighbours whose loss the same
    samples have, if one of them has it, since an accuracy of few samples is off by as much.
    """
    count = round(1.0 / level) if level * (_MOST_GUESSED + 1) > 1.0 else 0
    if count < 2:
        return ()
    loss = evidence.find("val_loss" if shares.held_out is not None else "train_loss")
    values = loss.finite().values if loss is not None else np.empty(0)
    middle = median(values) if len(values) else 0.0
    near = min(range(max(2, count - 1), count + 2), key=lambda one: abs(middle - log(one)))
    return (near, count) if near != count and abs(middle - log(near)) <= _THERE * log(near) else (count,)


def _comes_to(values: FloatArray, guessed: int) -> bool:
    """Whether the median lies near the loss of guessing: within 10 %, since a loss that began among more answers passes
    by many such levels on its way down, or 30 % where it began above all of them.
    """
    exploded = float(np.median(values[:_FIRST])) > (1.0 + _NEAR) * log(_MOST_GUESSED)
    near = _NEAR if exploded else _THERE
    return abs(float(np.median(values)) - log(guessed)) <= near * log(guessed)


def _contradicted(guessed: int, evidence: Evidence) -> bool:
    """Whether the model's last layer chooses among so many that guessing has another loss."""
    head = classes_of_head(evidence)
    return head is not None and abs(log(guessed) - log(head)) > _NEAR * log(head)


def classes_of_loss(evidence: Evidence, head: int | None = None) -> float | None:
    """Among how many classes the training loss, a cross-entropy, chooses: as its first values say, from 3 to 20, or the
    run's params, where those agree; None where it begins as no such loss.

    ``head``: what the model's last layer chooses among, which counts where the params are silent and the loss agrees.
    """
    loss = evidence.find("train_loss")
    values = loss.finite().values if loss is not None else np.empty(0)
    if not len(values) or vocabulary(evidence) is not None:
        return None
    known = classes(evidence)
    if known is not None:
        return known if begins_at_chance(values, known) else None
    if head is not None and begins_at_chance(values, head):
        return head
    # The highest sign of a beginning: a log of every tenth step, or of epochs, begins when some has been learnt.
    count = exp(min(max(float(values[0]), float(np.median(values[:_FIRST]))), _BEYOND))
    return count if _LEAST_SEEN <= count <= _MOST_GUESSED else None


def least_accuracy(evidence: Evidence) -> tuple[Series, float] | None:
    """The least training accuracy that the loss leaves room for, and what guessing has; None without such a loss.

    A wrong answer has a probability of one half at most, and costs ln 2 or more: at most loss / ln 2 of them are wrong.
    """
    count = classes_of_loss(evidence)
    if count is None or is_of_something_else(evidence):
        return None
    loss = evidence.first("train_loss").finite()
    return Series(name=loss.name, steps=loss.steps, values=1.0 - loss.values / log(2.0)), 1.0 / count


def pairs(evidence: Evidence, shares: Shares, least: int) -> list[tuple[str, Series, Series]]:
    """Loss and accuracy of the same samples, with at least so many finite values, and whose they are."""
    found = []
    for whose, role, accuracy in (
        ("training", "train_loss", shares.train),
        ("validation", "val_loss", shares.held_out),
    ):
        loss = _finite(evidence, role, least)
        if loss is not None and accuracy is not None:
            found.append((whose, loss, accuracy))
    return found


def is_of_something_else(evidence: Evidence) -> bool:
    """Whether a loss is lower than a cross-entropy of so many wrong answers could be, of the same samples: a squared
    error beside the share of answers within a tolerance, say.
    """
    known = (one for one in measures(evidence, _FIRST) if one.name == "accuracy")
    return any(
        1.0 - mean_at_end(loss.values) / log(2.0) > mean_at_end(accuracy.values) + _BY_CHANCE
        for shares in known
        for _, loss, accuracy in pairs(evidence, shares, _FIRST)
    )


def samples_of(values: FloatArray) -> int | None:
    """The smallest number of samples of which all of these shares are whole numbers; None where there is none up to
    ten thousand. Shares that the log has rounded to two decimals are of a hundred, at most.
    """
    counts = np.arange(1, _MOST_SAMPLES + 1)
    for value in values[:_SHARES_LOOKED_AT]:
        parts = counts * float(value)
        counts = counts[np.abs(parts - np.round(parts)) <= _WHOLE * np.maximum(1.0, parts)]
        if not len(counts):
            return None
    return int(counts[0])


def mean_at_end(values: FloatArray) -> float:
    """The mean of the last three."""
    return float(np.mean(values[-3:]))


def scatter(values: FloatArray) -> float:
    """The standard deviation of neighbours about each other. Shares of a few answers take few values, of which a median
    would make nothing, or too much.
    """
    return float(np.std(np.diff(values))) / sqrt(2.0) if len(values) > 1 else 0.0


def percent(share: float) -> str:
    """A share for people."""
    return f"{number(100.0 * share)}%"


def without_a_loss(evidence: Evidence) -> bool:
    """Whether nothing but accuracies was logged: they tell when something is wrong, but not that all is well."""
    return not any(evidence.find(role) is not None for role in LOSSES)
