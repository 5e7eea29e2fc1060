"""Scores of held-out samples, whatever they are called: which way is better, what is worst, and how they went."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tracker_health.evidence import SURELY, Curve, Evidence, FloatArray, Need, Series
from tracker_health.facts.learnt import falls_surely
from tracker_health.roles import is_perplexity
from tracker_health.text import count, number, percent, short_name
from tracker_health.words.ending import Ended

HIGHER = ("val_accuracy", "val_auc", "higher_better_val")
LOWER = ("lower_better_val",)
HELD_OUT = (*HIGHER, *LOWER)

_OF_WORDS = re.compile(r"(^|[^a-z])(wer|cer|eer|uer|per|error_rate)([^a-z]|$)", re.IGNORECASE)
_OF_NO_SHARE = re.compile(r"psnr|snr|inception|(^|[^a-z])(is|elo|fps|db)([^a-z]|$)", re.IGNORECASE)
_SIGNED = re.compile(r"pearson|spearman|kendall|corr|matthews|mcc|kappa|r2|silhouette", re.IGNORECASE)
_PERCENT = 100.0
_BY_CLASS = re.compile(r"^(?P<before>.*?[._/ -])(?P<of>[^._/ -]+)$|^(?P<plain>[A-Za-z]+)(?P<at>\d+)$")


def needs_of_scores() -> tuple[Need, ...]:
    """Any held-out score, and the losses next to it."""
    first, *others = HELD_OUT
    return (Need(role=first, any_of=tuple(others)), *Need.beside("train_loss", "val_loss"))


@dataclass(frozen=True, eq=False)
class Score:
    """A score of held-out samples. ``series``: as it was logged, what is not finite left out; ``all``: with that."""

    all: Series
    series: Series

    @property
    def name(self) -> str:
        return short_name(self.series.name)

    @property
    def higher(self) -> bool:
        """Whether more is better."""
        return self.series.role in HIGHER

    @property
    def values(self) -> FloatArray:
        return self.series.values

    @cached_property
    def unit(self) -> float | None:
        """1 of shares, 100 of percentages; None of what is neither, by its values or its name (a signal to noise)."""
        if not self._is_share or not len(self.values) or self.values.min() < (-1.0 if self.is_signed else 0.0):
            return None
        highest = float(np.abs(self.values).max())
        return None if highest > _PERCENT and self.higher else 1.0 if highest <= 1.0 + _SMALL else _PERCENT

    @property
    def _is_share(self) -> bool:
        named = _OF_WORDS if not self.higher else _OF_NO_SHARE
        return bool(named.search(self.series.name)) is not self.higher

    @property
    def is_signed(self) -> bool:
        """Whether it may be below 0, as a correlation is: 0 is then that of an answer by chance."""
        return bool(_SIGNED.search(self.series.name))

    @cached_property
    def badness(self) -> Curve | None:
        """Its course, turned so that lower is better; None of fewer than four values."""
        values = -self.values if self.higher else self.values
        return Curve.of(replace(self.series, values=values, role="val_loss"))

    def is_worst(self, near: float) -> FloatArray:
        """At which values it is as bad as it can be: 0 of what is to rise, all wrong of an error rate. ``near``: how
        near counts, as a share.
        """
        if self.unit is None:
            return np.zeros(len(self.values), dtype=np.float64)
        shares = self.values / self.unit
        worst = np.abs(shares) <= near if self.higher else shares >= 1.0 - near
        return worst.astype(np.float64)

    def said(self, value: float, digits: int = 3) -> str:
        """A value, for people."""
        return percent(value / _PERCENT, digits) if self.unit == _PERCENT else number(value, digits)


_SMALL = 1e-9


def held_out_scores(evidence: Evidence, least: int = 1) -> Iterator[Score]:
    """All of them that have so many values, finite or not; perplexities are losses, and left to their rules. An
    accuracy of exactly 0 throughout says nothing: a regression has it, and whole answers of which none is right yet.
    """
    for role in HELD_OUT:
        for series in evidence.all_of(role):
            clean = series.clean()
            of_regression = role == "val_accuracy" and len(clean) and not clean.values.any()
            if len(clean) >= least and not (is_perplexity(series.name) or of_regression):
                yield Score(clean, clean.finite())


def rests(evidence: Evidence, least: int) -> str:
    """Of a run that ended in order: which held-out value was last best so many evaluations before the end, or more. It
    may have been stopped for that, whether or not the patience was logged. Empty where none was.
    """
    if evidence.ending is None or evidence.ending.how is not Ended.FINISHED:
        return ""
    for role in ("val_loss", *HELD_OUT, "val_reward"):
        for series in evidence.all_of(role):
            values = series.finite().values
            worse = -values if role in HIGHER or role == "val_reward" else values
            since = len(values) - 1 - int(np.argmin(worse)) if len(values) else 0
            if since >= least:
                return f"{short_name(series.name)} was best {count(since, 'evaluation')} before the end"
    return ""


def training_falls(evidence: Evidence) -> bool:
    """Whether the training loss clearly came down and did not clearly rise again; True where there is none."""
    curve = evidence.curve("train_loss")
    if curve is None:
        return True
    return falls_surely(curve) and not (curve.end - curve.best).surely_above(0.5 * curve.descent.value, SURELY)


def by_class(scores: list[Score]) -> dict[str, list[Score]]:
    """The scores that are one measure for each of several classes (``IoU.car``, ``IoU.road``), by the measure."""
    groups: dict[str, list[Score]] = {}
    for score in scores:
        found = _BY_CLASS.match(score.series.name)
        if found is not None:
            groups.setdefault(found["before"] or found["plain"], []).append(score)
    return {measure: group for measure, group in groups.items() if len(group) > 1}
