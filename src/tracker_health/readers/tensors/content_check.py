"""Whether the contents of weights and optimizer state agree with an assumed order, where contents can tell.

An adapter's second factor begins at 0, so after few steps it is what the optimizer added up: it points against the
first moment, and against nobody else's. Of other weights the beginning is not known, and late in training the moments
have forgotten where they came from: then contents say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import FloatArray
from tracker_health.readers.tensors.tensor_values import Room, Values

_FROM_ZERO = re.compile(r"\.lora_(B\.weight|B|embedding_A)$")
_MOST_STEPS = 500
_VALUES_COMPARED = 8192
_FEWEST_VALUES = 24
_MOST_TENSORS = 1000
# A cosine that stands out of its row, and one that does so by as much that a name which it contradicts is wrong. After
# 4 steps the right pairs were seen to have 0.2 to 0.7, others 0.4 at most.
_CLEAR, _MARGIN = 0.3, 0.15
_SURE, _SURE_MARGIN = 0.5, 0.25


def can_tell(names: Iterable[str], steps: int | None) -> bool:
    """Whether contents may say anything: early in training, of an adapter's second factors."""
    return steps is not None and 0 < steps <= _MOST_STEPS and any(_FROM_ZERO.search(name) for name in names)


def contents_agree(
    names: Mapping[int | str, str],
    moments: Mapping[int | str, Values],
    weights: Mapping[str, Values],
    steps: int | None,
) -> bool | None:
    """True where contents can tell and agree with the names, False where they contradict one of them, else None.

    ``moments``: the first moment of each parameter, by id.

    Raises:
        ReadError: a tensor cannot be read.
    """
    if not can_tell(names.values(), steps):
        return None
    by_shape: dict[tuple[int, ...], list[int | str]] = {}
    for key, name in islice(names.items(), _MOST_TENSORS * 10):
        if not (_FROM_ZERO.search(name) and key in moments and name in weights):
            continue
        if moments[key].layout == weights[name].layout and moments[key].numel >= _FEWEST_VALUES:
            by_shape.setdefault(moments[key].shape, []).append(key)
    room, told, agreed, compared = Room(), 0, 0, 0
    for keys in by_shape.values():
        few = keys[:_MOST_TENSORS]
        with np.errstate(all="ignore"):
            against = _directions((moments[key] for key in few), room)
            along = _directions((weights[names[key]] for key in few), room)
        cosines = -against @ along.T
        if _contradicts(cosines):
            return False
        clear, right = _compared(cosines)
        told, agreed, compared = told + clear, agreed + right, compared + len(few)
    return True if told == agreed > 0 and 2 * told >= compared else None


def _directions(tensors: Iterable[Values], room: Room) -> FloatArray:
    """The beginnings of tensors as rows of length 1; a tensor of zeros, or with what is no number, stays 0."""
    rows = []
    for tensor in tensors:
        start = next(tensor.blocks(room))[:_VALUES_COMPARED]
        length = float(np.sqrt(start.dot(start)))
        rows.append(start / length if np.isfinite(length) and length > 0 else np.zeros(len(start)))
    return np.stack(rows)


def _compared(cosines: FloatArray) -> tuple[int, int]:
    """In how many rows one cosine stands out from the others, and in how many of those it is the diagonal's."""
    best, margin, is_own = _best(cosines)
    clear = (best > _CLEAR) & (margin > _MARGIN)
    return int(np.count_nonzero(clear)), int(np.count_nonzero(clear & is_own))


def _contradicts(cosines: FloatArray) -> bool:
    """Whether a row's best is another's, beyond doubt."""
    best, margin, is_own = _best(cosines)
    return bool(((best > _SURE) & (margin > _SURE_MARGIN) & ~is_own).any())


def _best(cosines: FloatArray) -> tuple[FloatArray, FloatArray, npt.NDArray[np.bool_]]:
    """Per row the highest cosine, by how much it is above the next, and whether it is the diagonal's."""
    order = np.sort(cosines, axis=1)
    best = order[:, -1]
    second = order[:, -2] if cosines.shape[1] > 1 else np.zeros(len(best))
    return best, best - second, np.argmax(cosines, axis=1) == np.arange(len(best))
