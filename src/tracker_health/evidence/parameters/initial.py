"""Whether a tensor still is what an initialiser draws: tested against the distributions that layers begin with.

An initialiser's draw is known in advance: its mean, its size and how far its largest values go. Training moves all
three, and the largest value at once, so that nearly all tensors that were never trained pass, and almost no other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto
from math import inf, log, prod, sqrt

from tracker_health.evidence.parameters.words import GATES, RECURRENT
from tracker_health.evidence.tensors import MomentStats, TensorHeader

SIGMAS = 4.0
"""Standard errors of a random draw within which its mean and its mean square are, but for one in 16,000."""
UNIFORM_VARIANCE, NORMAL_VARIANCE = 0.8, 2.0
"""The variance of a value's square over the square of its mean: of a uniform and of a normal one."""
EDGE = 12.0
"""Of n values that are uniform up to a bound, the largest is within so many n-ths of it, but for one in 160,000."""
MOST_ERROR = 0.3
"""Of a mean square that tells anything: a uniform matrix of 140 values, a normal one of 360."""
MOST_ERROR_BY_FANS = 0.1
"""The same of a normal draw by the fans, of which there are several that are close to each other: 3,200 values."""
MOST_ERROR_AT_EDGE = 0.45
"""The same where the largest values tell as well: 64 values."""
TAIL = 1e-4
"""How unlikely the largest of n normal values may be, on either side."""
GAINS_OF_UNIFORM = (1.0, 2.0, 3.0, 6.0)
"""Squared bounds of torch's own draw, Glorot's with one gain, LeCun's and Kaiming's, times fan-in."""
NORMAL_SCALES = (1.0, 0.02, 0.01)
"""Of embeddings; of transformers; of small heads."""
ORTHOGONAL_GAINS = (1.0, 2.0)
"""Squared: of torch's orthogonal draw, and of that before a rectifier."""
SMALLEST_ERROR = 1e-6
"""In float32 a value is as exact, relatively, as a bound can be compared."""
LARGEST_SAMPLE = 1 << 20
"""Values from which a sampled tensor's size is known."""
ROUNDING = {"F16": 2.0**-10, "BF16": 2.0**-7}
"""How far rounding to half precision may carry the largest value, relatively."""


class Initial(Enum):
    """``DRAWN``: the values are a draw of the usual initialisers, to its last value. ``LIKELY``: they are as large as
    one. ``NO``: they are none of these draws. ``UNKNOWN``: there are too few, or they are not read.
    """

    DRAWN = auto()
    LIKELY = auto()
    NO = auto()
    UNKNOWN = auto()

    @property
    def may_be(self) -> bool:
        """Whether the tensor looks never trained."""
        return self in (Initial.DRAWN, Initial.LIKELY)


def initial_of(tensor: TensorHeader) -> Initial:
    """Whether a matrix still is what an initialiser draws; vectors begin as ones or zeros, and do not tell."""
    if sum(size > 1 for size in tensor.shape) < 2 or not tensor.numel or tensor.rms is None or not tensor.rms < inf:
        return Initial.UNKNOWN
    if tensor.stats is not None and tensor.stats.count < 1:
        return Initial.UNKNOWN  # a summary that says so of a tensor with values
    if tensor.rms == 0.0:
        return Initial.LIKELY  # what begins at 0: an adapter's second factor, a gate
    read = tensor.stats is not None and not tensor.stats.nonfinite
    values = min(tensor.numel, LARGEST_SAMPLE) if tensor.stats is None else tensor.numel
    error = SIGMAS * sqrt(UNIFORM_VARIANCE / values)
    if is_uniform_draw(tensor):
        return Initial.DRAWN if error <= MOST_ERROR_AT_EDGE else Initial.UNKNOWN
    if _is_orthogonal(tensor):
        return Initial.LIKELY
    spread = SIGMAS * sqrt(NORMAL_VARIANCE / values)
    for variances, most in ((_usual_variances(), MOST_ERROR), (_variances(tensor), MOST_ERROR_BY_FANS)):
        if _is_normal_draw(tensor, values, variances):
            return Initial.LIKELY if spread <= most else Initial.UNKNOWN
    if not read and any(abs(_third(tensor.rms / bound) - 1.0) <= error for bound in _bounds(tensor)):
        return Initial.LIKELY if error <= MOST_ERROR else Initial.UNKNOWN
    return Initial.NO


def never_trained(tensors: Collection[TensorHeader]) -> bool:
    """Whether a part of a model looks as if it was never trained: some of its matrices are draws, and no other one is
    known to be none. One is enough where all normalisations scale by exactly 1.
    """
    told = [initial_of(one) for one in tensors]
    return any(one.may_be for one in told) and (Initial.NO not in told or _scale_by_one(tensors))


def is_uniform_draw(tensor: TensorHeader) -> bool:
    """Whether a matrix is, by its largest values, its mean and its mean square, uniform within one of the bounds that
    layers begin with.
    """
    stats = tensor.stats
    if stats is None or stats.nonfinite or stats.count < 1 or len(tensor.shape) < 2 or not tensor.numel:
        return False
    error = SIGMAS * sqrt(UNIFORM_VARIANCE / tensor.numel)
    return any(
        ends_at(bound, stats, ROUNDING.get(tensor.dtype, 0.0))
        and abs(_third(stats.rms / bound) - 1.0) <= error + ROUNDING.get(tensor.dtype, 0.0)
        and abs(stats.mean) <= SIGMAS * bound / sqrt(3.0 * tensor.numel)
        for bound in _bounds(tensor)
    )


def _third(size: float) -> float:
    """Three times the square of a size over a bound: 1 for a uniform draw. ``**`` would raise where it is too large."""
    return 3.0 * size * size


def ends_at(bound: float, stats: MomentStats, rounding: float = 0.0) -> bool:
    """Whether the largest value is as close below a bound as that of a uniform draw, and none beyond it."""
    largest = max(stats.maximum, -stats.minimum)
    return bound * (1.0 - EDGE / stats.count - rounding) <= largest <= bound * (1.0 + SMALLEST_ERROR + rounding)


def is_constant(tensor: TensorHeader, *values: float) -> bool:
    """Whether a tensor holds nothing but one of these values: the ones and zeros that vectors begin with."""
    stats = tensor.stats
    return stats is not None and not stats.nonfinite and stats.minimum == stats.maximum and stats.minimum in values


def _fans(tensor: TensorHeader) -> tuple[int, int]:
    return prod(tensor.shape[1:]), tensor.shape[0] * prod(tensor.shape[2:])


def _bounds(tensor: TensorHeader) -> Iterator[float]:
    """The bounds of uniform draws for a matrix of this shape: by its fan-in, by both fans, and of a recurrent layer by
    its width.
    """
    fan_in, fan_out = _fans(tensor)
    yield from (sqrt(gain / fan_in) for gain in GAINS_OF_UNIFORM)
    yield sqrt(GAINS_OF_UNIFORM[-1] / (fan_in + fan_out))
    if RECURRENT.search(tensor.name):
        yield from (sqrt(gates / tensor.shape[0]) for gates in GATES)


def _usual_variances() -> tuple[float, ...]:
    return tuple(scale**2 for scale in NORMAL_SCALES)


def _variances(tensor: TensorHeader) -> tuple[float, ...]:
    """The variances of normal draws for a matrix of this shape, by its fans."""
    fan_in, fan_out = _fans(tensor)
    return 1 / fan_in, 2 / fan_in, 2 / fan_out, 2 / (fan_in + fan_out)


def _is_normal_draw(tensor: TensorHeader, values: int, variances: tuple[float, ...]) -> bool:
    """Whether mean, mean square and largest values are those of a normal draw; a row of zeros (padding) is left out."""
    stats, rms = tensor.stats, tensor.rms or 0.0
    zeros = stats.zeros if stats is not None else 0
    square, error = rms * rms * values / max(1, values - zeros), SIGMAS * sqrt(NORMAL_VARIANCE / values)
    size = sqrt(square)
    return any(abs(square / variance - 1.0) <= error for variance in variances) and (
        stats is None or (abs(stats.mean) <= SIGMAS * size / sqrt(values) and _ends_as_normal(stats, size))
    )


def _ends_as_normal(stats: MomentStats, size: float) -> bool:
    """Whether both extremes are where those of so many normal values are."""
    from statistics import NormalDist  # it imports much, and most runs have no such tensor

    known = NormalDist()
    least, most = -known.inv_cdf(min(-log(TAIL) / stats.count, 0.5)), -known.inv_cdf(TAIL / stats.count)
    return all(least * size <= end <= most * size for end in (stats.maximum, -stats.minimum))


def _is_orthogonal(tensor: TensorHeader) -> bool:
    """Whether a matrix has the size of an orthogonal draw, which is the same for all of them."""
    longer = max(tensor.shape[0], prod(tensor.shape[1:]))
    square = (tensor.rms or 0.0) * (tensor.rms or 0.0) * longer
    return any(abs(square / gain - 1.0) <= SMALLEST_ERROR * SIGMAS for gain in ORTHOGONAL_GAINS)


def _scale_by_one(tensors: Collection[TensorHeader]) -> bool:
    """Whether there are normalisations, and all are as they begin."""
    scales = [one for one in tensors if len(one.shape) == 1 and one.name.endswith("weight")]
    return bool(scales) and all(is_constant(one, 1.0) for one in scales)
