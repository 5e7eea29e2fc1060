"""Whether the tensors of a checkpoint hold NaN or infinity: a pass over as many of their values as a budget allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import FloatArray
from tracker_health.readers.tensors.stored_values import item_size
from tracker_health.readers.tensors.tensor_values import Room, Values
from tracker_health.readers.tensors.weights import DTYPES, FLOATS, MAX_TENSORS, Budget, StoredTensor
from tracker_health.readers.torch_files.torch_pickle import TensorRef

_FLOAT_CODES = frozenset(DTYPES[name] for name in FLOATS)
_DEEPEST, _MOST_LOOKED_AT = 8, 2_000_000


class FloatTensor(NamedTuple):
    """A tensor of floating-point values. ``size``: bytes of them."""

    values: Values
    size: int


class Passed(NamedTuple):
    """How many tensors were read, how many of these not to their end, and whether one holds NaN or infinity."""

    tensors: int = 0
    in_part: int = 0
    nonfinite: bool = False


def float_tensors_in(root: Any) -> Iterator[FloatTensor]:
    """The tensors of floating-point values in a saved structure, weights and all else, each once. Single numbers are
    left out: a best score so far begins as infinity.

    Raises:
        ReadError: there are more of them than any model has.
    """
    found, level, seen, left = set[object](), [root], set[int](), _MOST_LOOKED_AT
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            for one in islice(_items(value), max(left, 0)):
                left -= 1
                if isinstance(one, TensorRef):
                    place = (id(one.storage.file), one.storage.key, one.offset, one.shape)
                    if place not in found and one.dtype in _FLOAT_CODES and one.shape and one.numel:
                        found.add(place)
                        yield FloatTensor(one, one.numel * item_size(one.dtype))
                    if len(found) > MAX_TENSORS:
                        raise ReadError(f"it has more than the {MAX_TENSORS} tensors that are read")
                elif isinstance(one, (Mapping, list, tuple)) and id(one) not in seen:
                    seen.add(id(one))
                    inner.append(one)
        level = inner


def float_tensors_among(tensors: Iterable[StoredTensor]) -> Iterator[FloatTensor]:
    """Those among the tensors of a file of weights, single numbers left out."""
    for one in tensors:
        if one.values is not None and one.dtype in FLOATS and one.shape and one.values.numel:
            yield FloatTensor(one.values, one.size)


def passed_over(tensors: Iterable[FloatTensor], budget: Budget) -> Passed:
    """Look through tensors up to the first with NaN or infinity: all values while the budget lasts, then the beginning
    of each.

    Raises:
        ReadError: values cannot be read.
        OSError: the file cannot be read.
    """
    room, count, in_part = Room(), 0, 0
    with np.errstate(all="ignore"):
        for one in tensors:
            whole = budget.takes(one.size)
            count += 1
            in_part += not whole
            blocks = one.values.blocks(room)
            if any(_is_broken(block) for block in (blocks if whole else islice(blocks, 1))):
                return Passed(count, in_part, True)
    return Passed(count, in_part)


def _is_broken(values: FloatArray) -> bool:
    """Whether a block has NaN or infinity, and is not that of a mask: zeros, and minus infinity."""
    # A finite sum vouches for all of them; one that is not may have overflown.
    if isfinite(float(np.add.reduce(values))):
        return False
    odd = values[~np.isfinite(values)]
    is_mask = bool((odd == -np.inf).all()) and not values[np.isfinite(values)].any()
    return bool(len(odd)) and not is_mask


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)
