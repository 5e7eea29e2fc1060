"""Shared numerics: robust noise, levels and trend of a one-dimensional series, in float64."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import numpy as np
import numpy.typing as npt

from tracker_health.evidence.series import FloatArray

_MAD_TO_SIGMA = 1.4826
_CLEARLY = 4.0  # standard deviations
_AS_LOGGED = 1e-3  # of a value
_HUGE = 2.0**1000  # the sum or difference of two larger numbers may be none any more
_MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean, for normal noise: sqrt(pi / 2)


def in_range(values: FloatArray) -> tuple[FloatArray, float]:
    """The values in a unit in which their sums and differences are finite, and that unit: 1 unless they are near
    1.8e308, the largest number there is.
    """
    if not len(values) or not np.abs(values).max() > _HUGE:
        return values, 1.0
    unit = 2.0**64
    return values / unit, unit


def median(values: npt.ArrayLike) -> float:
    """The median of a few numbers, NaN where one of them is or where there are none: numpy's, without what that does
    for arrays of other shapes, which for a few hundred values takes several times as long as the median itself.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return float("nan")
    half = len(numbers) // 2
    ordered = np.partition(numbers, (half - 1, half, -1) if len(numbers) > 1 else 0)
    if np.isnan(ordered[-1]):
        return float("nan")
    return float(ordered[half]) if len(numbers) % 2 else float(0.5 * (ordered[half - 1] + ordered[half]))


def local_noise(values: FloatArray) -> float:
    """Standard deviation of the point-to-point noise, from the median absolute first difference; a slow trend does
    not add to it.
    """
    if len(values) < 2:
        return 0.0
    return float(_MAD_TO_SIGMA * median(np.abs(np.diff(values))) / np.sqrt(2.0))


def block_medians(values: FloatArray, size: int) -> FloatArray:
    """Medians of consecutive blocks of ``size`` values, aligned to the end; leftover values at the start join the
    first block.
    """
    values, unit = in_range(values)
    count = max(1, len(values) // size)
    head = len(values) - (count - 1) * size
    first = median(values[:head])
    rest = np.median(values[head:].reshape(count - 1, size), axis=1)
    return np.concatenate([[first], rest]) * unit


def start_level(values: FloatArray, size: int, noise: float) -> float:
    """The level before training changed anything: the median of the first ``size`` values.

    Where the very first value is clearly below that, it alone is taken: a loss that explodes with the first updates
    was lowest before them.
    """
    few, unit = in_range(values[:size])
    head = median(few) * unit
    first = float(values[0])
    return first if head - first > _CLEARLY * noise else head


def median_error(noise: float, size: int) -> float:
    """Standard error of the median of ``size`` values with that noise."""
    return _MEDIAN_ERROR * noise / float(np.sqrt(size))


def mann_kendall(values: FloatArray) -> float:
    """The Mann-Kendall trend statistic as a standard normal score: below -3 falls for sure. Quadratic: for a few
    dozen values.

    Mann (1945), Kendall (1975); ties are not corrected for, which errs towards "no trend".
    """
    n = len(values)
    if n < 3:
        return 0.0
    values, _ = in_range(values)
    signs = np.sign(values[None, :] - values[:, None])
    score = float(np.triu(signs, 1).sum())
    spread = np.sqrt(n * (n - 1) * (2 * n + 5) / 18.0)
    return float((score - np.sign(score)) / spread)


def coarseness(value: float) -> float:
    """The unit of a number's last digit, decimal or binary, whichever is larger: of 2.31 a hundredth, of 2.296875, that
    half precision has, a 64th.
    """
    top, bottom = value.as_integer_ratio()
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    return max((top & -top) / bottom, 10.0 ** int(exponent))


def stretch_ends(mask: npt.NDArray[np.bool_], most: int = 100) -> npt.NDArray[np.int64]:
    """The indices of the first and the last True of each of the first stretches, once where that is the same."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    return np.unique(np.concatenate([edges[::2], edges[1::2] - 1]))[:most]


def lasts_from(mask: npt.NDArray[np.bool_]) -> int:
    """The index of the first of the last stretch of True, as many as there are where that does not reach the end."""
    return len(mask) - int(np.argmin(np.append(mask[::-1], False)))


def longest_run(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest stretch of True; (0, 0) if there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    if not len(edges):
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(np.argmax(lengths))
    return int(edges[2 * longest]), int(lengths[longest])


def stands(values: FloatArray) -> npt.NDArray[np.int64]:
    """How many points each value lasts until another one comes."""
    changes = np.flatnonzero(np.diff(values)) + 1
    return np.diff(np.concatenate([[0], changes, [len(values)]]))


def is_as_logged(value: float, values: FloatArray) -> bool:
    """Whether a value is one of these, as a log of a few digits has them."""
    return bool((np.abs(values - value) <= _AS_LOGGED * abs(value)).any())


def placeholders(values: FloatArray) -> npt.NDArray[np.bool_]:
    """Which values are NaN because nothing was measured there: where finite ones come back at a regular distance, to
    the very end, with NaN between all of them. Nothing else of a broken training looks like that.
    """
    bad = ~np.isfinite(values)
    good = np.flatnonzero(~bad)
    none = np.zeros(len(values), dtype=np.bool_)
    if len(good) < _REGULAR or not np.isnan(values[bad]).all():
        return none
    distances = np.diff(good)
    usual = median(distances)
    regular = distances.min() > 1 and distances.min() >= 0.5 * usual and distances.max() <= 1.5 * usual
    ends = good[0] <= usual and len(values) - 1 - good[-1] < usual
    return bad if regular and ends else none


_REGULAR = 5
_WINDOW = 128
_ONE_SPIKE = 10  # values


def peaks_of(high: npt.NDArray[np.bool_], above: FloatArray) -> npt.NDArray[np.int64]:
    """The highest place of each group of marked ones that are within ten values of each other."""
    places = np.flatnonzero(high)
    groups = np.split(places, np.flatnonzero(np.diff(places) > _ONE_SPIKE) + 1) if len(places) else []
    return np.array([group[np.argmax(above[group])] for group in groups], dtype=np.int64)


def jumps(values: FloatArray, window: int = _WINDOW) -> tuple[FloatArray, FloatArray]:
    """How far each value is above what came before it, and the same in standard deviations.

    Both are 0 for the first eight values (the first 64 of more than 32,768): nothing came before them that they could
    be measured by, so a spike there is not seen.

    A causal Hampel filter: the median of up to ``window`` earlier values and their median absolute deviation, renewed
    every eight values (every 64 in long histories). In the windows of a second pass, a value more than eight deviations
    out is replaced by its level. So one spike does not hide the next. Linear in the number of values.
    """
    above, scores = _hampel(values, values, window)
    tamed = np.where(scores > 8.0, values - above, values)
    return _hampel(values, tamed, window)


def _hampel(values: FloatArray, history: FloatArray, window: int) -> tuple[FloatArray, FloatArray]:
    n = len(values)
    above, scores = np.zeros(n), np.zeros(n)
    stride = 8 if n <= 1 << 15 else 64
    starts = np.arange(stride, n, stride)
    if not len(starts):
        return above, scores
    # Before the first full window there are fewer earlier values: NaN stands for those that are not there.
    padded = np.concatenate([np.full(window, np.nan), history])
    whole = not np.isnan(history).any()
    few, full = starts[starts < window], starts[starts >= window]
    for chunk in (few, *np.array_split(full, max(1, len(full) // 4096))):
        if not len(chunk):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(padded, window)[chunk]
        centre, spread = _centre_and_spread(windows, full=whole and chunk is not few)
        at = (chunk[:, None] + np.arange(stride)).ravel()
        inside = at < n
        at = at[inside]
        above[at] = values[at] - np.repeat(centre, stride)[inside]
        scores[at] = above[at] / np.repeat(spread, stride)[inside]
    return above, np.nan_to_num(scores, nan=0.0, posinf=np.inf, neginf=-np.inf)


def _centre_and_spread(windows: FloatArray, *, full: bool) -> tuple[FloatArray, FloatArray]:
    middle = partial(np.median, axis=1) if full else _medians
    centre = middle(windows)
    return centre, _MAD_TO_SIGMA * middle(np.abs(windows - centre[:, None]))


def _medians(rows: FloatArray) -> FloatArray:
    """The median of each row, over the values that are not NaN; NaN where there are none."""
    ordered = np.sort(rows, axis=1)  # NaN last
    counts = np.count_nonzero(~np.isnan(ordered), axis=1)
    each = np.arange(len(ordered))
    below, above = np.maximum((counts - 1) // 2, 0), np.minimum(counts // 2, ordered.shape[1] - 1)
    return np.asarray(0.5 * (ordered[each, below] + ordered[each, above]))


def medians_around(values: FloatArray, half: int) -> FloatArray:
    """For each value the median of the ``half`` values on either side (fewer at the ends), without itself; NaN where
    there is none.
    """
    beyond = np.full(half, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([beyond, values, beyond]), 2 * half + 1)
    others = np.delete(np.arange(2 * half + 1), half)
    return np.concatenate([_medians(part[:, others]) for part in np.array_split(windows, 1 + len(values) // 4096)])


_THIRD_DIFFERENCES = float(np.sqrt(20.0))  # standard deviation of those of noise of deviation 1


def roughness(values: FloatArray) -> float:
    """Noise, by third differences, which a smooth line barely has, over the usual difference between neighbours: 0 of a
    smooth line, about 1 of noise; 1 of a flat one. Gasser, Sroka and Jennen-Steinmetz (1986).
    """
    values, _ = in_range(values)
    usual = median(np.abs(np.diff(values)))
    noise = _MAD_TO_SIGMA * median(np.abs(np.diff(values, 3))) / _THIRD_DIFFERENCES
    return noise / usual if usual > 0 else 1.0
