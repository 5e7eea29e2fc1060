"""What the rules on throughput share: the later part of a measure, and its trend."""

from __future__ import annotations

from tracker_health.evidence import Evidence, FloatArray, Series
from tracker_health.evidence.numerics import block_medians, mann_kendall

_BLOCKS = 16
_SURE = 3.0


def all_of(evidence: Evidence, *roles: str) -> list[Series]:
    """The series of these roles, without what is not finite."""
    found = [one.finite() for one in evidence.series if one.role in roles]
    return [one for one in found if len(one)]


def levels(values: FloatArray) -> FloatArray:
    """Medians of sixteen blocks; of fewer values those themselves."""
    return block_medians(values, max(1, len(values) // _BLOCKS))


def rises(values: FloatArray) -> bool:
    """Whether a few levels rise for sure: Mann-Kendall's score is above three."""
    return mann_kendall(values) > _SURE
