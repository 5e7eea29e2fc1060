"""Where a parameter sits in its model, by its name: which stack, which layer of it, and what it does there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_LAYER = re.compile(r"(?:^|\.)(layers|h|blocks?|layer|resblocks|encoder_layers|decoder_layers)\.(\d{1,6})(?:\.|$)")


class LayerPlace(NamedTuple):
    """A parameter's place. ``stack``: what leads to the layers (``model.decoder.layers``). ``layer``: its index there.
    ``role``: what is left of the name (``self_attn.q_proj.weight``), the same in every layer of the stack.
    """

    stack: str
    layer: int
    role: str


def place_of(name: str) -> LayerPlace | None:
    """The place that a parameter's name tells, None for one outside of numbered layers.

    The first number counts: blocks within a layer (the experts of a mixture) are part of its role.
    """
    found = _LAYER.search(name)
    if found is None:
        return None
    return LayerPlace(name[: found.end(1)], int(found.group(2)), name[found.end() :])


_LONGEST = 500
_DEEPEST = 40
_MOST_TEXT = 100_000_000  # characters by depth: so much is held when each name is cut at each of its dots


def are_names(names: Iterable[str]) -> bool:
    """Whether parameters may be called so. No model has longer names, and to take such apart costs their square."""
    text = 0
    for name in names:
        depth = name.count(".")
        text += len(name) * (depth + 1)
        if len(name) > _LONGEST or depth > _DEEPEST or text > _MOST_TEXT:
            return False
    return True
