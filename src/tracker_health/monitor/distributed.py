"""Tensors and statistics in several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from torch import Tensor, distributed

from tracker_health.monitor.statistics import Sums

Key = tuple[str, str]
T = TypeVar("T")


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return world_size() == 1 or distributed.get_rank() == 0


def local_part(tensor: Tensor) -> tuple[Tensor, bool]:
    """What of a tensor is in this process, and whether others hold the rest of it.

    Of a part that several processes have, one counts: the others give an empty tensor.
    """
    if not hasattr(tensor, "placements"):
        return tensor, False
    placements, mesh = tensor.placements, tensor.device_mesh  # type: ignore[attr-defined]
    if any(one.is_partial() for one in placements):
        from torch.distributed.tensor import Replicate

        tensor = tensor.redistribute(placements=[Replicate() if one.is_partial() else one for one in placements])  # type: ignore[attr-defined]
    local: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    if not any(one.is_shard() for one in placements):
        return local, False
    coordinate = mesh.get_coordinate() or [0] * len(placements)
    first = all(place == 0 or one.is_shard() for place, one in zip(coordinate, placements, strict=True))
    return (local if first else local[:0]), True


def joined(
    own: Mapping[Key, Sums], sharded: AbstractSet[Key], *, stop: bool = False
) -> tuple[Mapping[Key, Sums] | None, bool]:
    """The sums of all processes, where they have to be added up: those of activations and of sharded tensors; of
    others, which are the same everywhere, the first process's. None in every process but the first. And whether any
    process wants to ``stop``, which all of them learn at the same step.

    All processes have to call it at the same step.
    """
    if world_size() == 1:
        return own, stop
    split = {key: sums for key, sums in own.items() if key in sharded or key[0].startswith("activation")}
    every: list[tuple[dict[Key, Sums], bool]] = [({}, False)] * world_size()
    distributed.all_gather_object(every, (split, stop))
    stop = any(one[1] for one in every)
    if distributed.get_rank() != 0:
        return None, stop
    keys = dict.fromkeys(key for one, _ in every for key in one)
    together = {key: Sums.merged([one[key] for one, _ in every if key in one]) for key in keys}
    return {**own, **together}, stop


def all_have(what: Sequence[str] | None) -> bool:
    """Whether all processes have the same, and none has nothing (None). All of them have to call it."""
    if world_size() == 1:
        return what is not None
    every: list[Sequence[str] | None] = [None] * world_size()
    distributed.all_gather_object(every, None if what is None else list(what))
    return every[0] is not None and all(one == every[0] for one in every)


def from_first(value: T) -> T:
    """What the first process has, in all of them. All of them have to call it, in the same order."""
    if world_size() == 1:
        return value
    box = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]
