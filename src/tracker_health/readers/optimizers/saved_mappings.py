"""The small mappings in a saved structure: what a scaler or a scheduler wrote next to an optimizer's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

_DEEPEST = 4  # OpenMMLab's meta.fp16.loss_scaler
_MOST_OF_ONE = 100  # the state of an optimizer or of a model has more, and nothing of the kind in it
_MOST_LOOKED_AT = 10_000


def mappings_in(root: Any) -> Iterator[Mapping[Any, Any]]:
    """A saved structure itself, and the small mappings in it and in its lists, a few levels deep, each once."""
    level, seen = [root], {id(root)}
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                yield one
            for value in islice(_values(one), _MOST_OF_ONE):
                fits = isinstance(value, (Mapping, list, tuple)) and len(value) <= _MOST_OF_ONE
                if fits and id(value) not in seen and len(seen) < _MOST_LOOKED_AT:
                    seen.add(id(value))
                    inner.append(value)
        level = inner


def _values(one: Any) -> Iterable[Any]:
    if isinstance(one, Mapping):
        return one.values()
    return one if isinstance(one, (list, tuple)) else ()
