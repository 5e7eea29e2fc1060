"""The curve that a verdict is about, in one line of text, with the place that was found below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Series
from tracker_health.facts.pace import worked_out
from tracker_health.judge.pass_reason import MAIN_ROLES
from tracker_health.report.result import ProbeResult, Report
from tracker_health.text import contrast, printable

_HEIGHTS = "▁▂▃▄▅▆▇█"
_NOT_FINITE = "x"
_NOTHING = " "
_WIDE = 20.0  # highest over lowest, from which the heights are logarithmic
_FEWEST_POINTS = 3
_NAME = 30
_CALLED = {"train_loss": "loss", "val_loss": "validation loss"}


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """A curve in one line. ``line``: a character for each stretch of steps; ``says``: what it is, its lowest and its
    highest value, and whether heights are logarithmic. ``mark``: the column of the place that was found, and ``at``
    that place in words; -1 and empty for none.
    """

    line: str
    says: str
    mark: int = -1
    at: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The curve, and below it the mark."""
        return (f"{self.line}  {self.says}", *([f"{' ' * self.mark}^ {self.at}"] if self.mark >= 0 else []))


def sketch(evidence: Evidence, report: Report, columns: int = 40) -> Sketch | None:
    """The series that the worst finding is about, or else the main metric: loss, reward, score.

    In each column the median of its points, and in those of the extremes the extremes; ``x`` stands where most values
    are NaN or infinite. None where no series has three points at different steps.
    """
    found, series = _subject(evidence, report)
    if series is None:
        return None
    columns = min(columns, len(series))
    column = _columns(series, series.steps, columns)
    groups = [series.values[start:end] for start, end in pairwise(np.searchsorted(column, np.arange(columns + 1)))]
    low, high = _extremes(series.values)
    wide = low > 0.0 and high > _WIDE * low
    line = "".join(_marks([_level(group, low, high) for group in groups], low, high, wide=wide))
    mark, at = -1, ""
    if found is not None and (step := _place(found, series)) is not None:
        mark, at = int(_columns(series, np.array([step]), columns)[0]), series.place(step)
    return Sketch(line=line, says=_says(series, low, high, wide=wide), mark=mark, at=at)


def _subject(evidence: Evidence, report: Report) -> tuple[ProbeResult | None, Series | None]:
    """The finding to mark, and the series that it is seen in; without one the main metric."""
    for finding in report.headline_first[:1]:
        derived = worked_out(evidence, finding.about)
        for name in finding.about:
            series = next((one for one in (*derived, *evidence.series, *evidence.odd) if one.name == name), None)
            if series is not None and (drawn := _drawn(series)) is not None:
                return finding, drawn
    series = next((one for role in MAIN_ROLES if (one := evidence.find(role)) is not None), None)
    if series is None or (drawn := _drawn(series)) is None:
        return None, None
    return next((one for one in report.headline_first if series.name in one.about), None), drawn


def _drawn(series: Series) -> Series | None:
    """The series in the order of its steps; None where that is no curve."""
    clean = series.clean()
    return clean if len(clean) >= _FEWEST_POINTS and clean.steps[-1] > clean.steps[0] else None


def _columns(series: Series, steps: IntArray, columns: int) -> IntArray:
    """The columns in which steps of a series are."""
    share = (steps - series.steps[0]) / float(series.steps[-1] - series.steps[0])
    column: IntArray = np.clip((share * columns).astype(np.int64), 0, columns - 1)
    return column


def _place(finding: ProbeResult, series: Series) -> int | None:
    """The first step that a finding names within the series; None of what was so from its beginning."""
    first = next((one for one in finding.steps if series.steps[0] <= one <= series.steps[-1]), None)
    return None if first == series.steps[0] else first


def _extremes(values: FloatArray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (np.nan, np.nan)


def _level(group: FloatArray, low: float, high: float) -> float | None:
    """Of a column's points the extreme of the whole curve, or their median; NaN where most are not finite, and None
    where there are none.
    """
    finite = np.sort(group[np.isfinite(group)])
    if not len(group) or 2 * len(finite) < len(group):
        return np.nan if len(group) else None
    if finite[-1] == high or finite[0] == low:
        return high if finite[-1] == high else low
    return 0.5 * float(finite[(len(finite) - 1) // 2]) + 0.5 * float(finite[len(finite) // 2])


def _marks(levels: list[float | None], low: float, high: float, *, wide: bool) -> Iterator[str]:
    if wide:
        low, high = np.log(low), np.log(high)
    half = 0.5 * high - 0.5 * low  # the difference of two floats may be none
    for level in levels:
        if level is None or not np.isfinite(level):
            yield _NOTHING if level is None else _NOT_FINITE
            continue
        height = (0.5 * (np.log(level) if wide else level) - 0.5 * low) / half if half > 0.0 else 0.5
        yield _HEIGHTS[round(float(height) * (len(_HEIGHTS) - 1))]


def _says(series: Series, low: float, high: float, *, wide: bool) -> str:
    name = _CALLED.get(series.role or "") or printable(series.name, _NAME)
    if not np.isfinite(low):
        return f"{name}, never finite"
    least, most = contrast(low, high)
    return f"{name}, min {least}, max {most}{' (log scale)' if wide else ''}"
