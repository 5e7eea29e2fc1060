"""How far a run was at the earlier of two checkpoints, and what its loss did since."""

from __future__ import annotations

import re

from tracker_health.evidence import Evidence
from tracker_health.probes._run import descent_of
from tracker_health.text import without_numbers

_COUNT = re.compile(r"\d{1,18}")
_NO_COUNT = re.compile(r"-v\d+(?=\.)|(?<!\d)\d++\.\d++")  # a second file of the same step; a measured value


def share_before(first: str, last: str) -> float | None:
    """The share of the steps to the later of two checkpoints that the earlier one had done, or more, by their names;
    None where these are not told apart by a count, as copies are.
    """
    if without_numbers(first) != without_numbers(last):
        return None
    counted = zip(_counted(first), _counted(last), strict=False)
    return max(((before + 1) / (after + 1) for before, after in counted if before < after), default=None)


def _counted(path: str) -> list[int]:
    return [int(digits) for digits in _COUNT.findall(_NO_COUNT.sub("", path))]


def fell_since(evidence: Evidence, share: float) -> bool | None:
    """Whether the training loss surely fell after this share of its steps; None where there is no loss."""
    loss = evidence.find("train_loss")
    if loss is None or not len(finite := loss.finite()):
        return None
    begin, end = float(finite.steps.min()), float(finite.steps.max())
    later = descent_of(finite.values[finite.steps >= begin + share * (end - begin)])
    return later is not None and later.sure
