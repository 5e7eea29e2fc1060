"""The partitions that DeepSpeed's ZeRO saves, put together.

Stages 1 and 2 say in each file which stretch of the partition belongs to which parameter (``param_slice_mappings``).
Stage 3 does not. There each parameter is cut into as many equal parts as there are ranks, and the last one is padded.
The parts follow each other in the order of ``param_shapes``. DeepSpeed's own ``zero_to_fp32.py`` relies on that order,
too. Written after DeepSpeed 0.19.8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from math import prod
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution, OptimizerState, TensorHeader, Weights
from tracker_health.readers.files.file_pool import FilePool
from tracker_health.readers.files.folder import Folder
from tracker_health.readers.optimizers.optimizer_state import (
    MAX_PARAMETERS,
    global_step_of,
    joined,
    optimizer_state,
    plain_values,
    require_sane_extent,
)
from tracker_health.readers.tensors.tensor_values import TensorStatistics
from tracker_health.readers.torch_files.chunked import JoinedTensor, part_of
from tracker_health.readers.torch_files.safe_pickle import PickledObject
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_pickle import TensorRef, sizes
from tracker_health.text import listing, printable

_MOST_RANKS = 4096
_MOST_SLICES = MAX_PARAMETERS + 8 * _MOST_RANKS  # a partition's border cuts a parameter, in each of a few groups
_MOST_KEPT = 100  # for one parameter


class _Slice(NamedTuple):
    """A stretch of a rank's partition of one parameter group."""

    rank: int
    group: int
    start: int
    values: int


class _Partition(NamedTuple):
    """What a rank saved: per parameter group the flat tensors by key; the groups' settings; the slices it shows."""

    state: Mapping[Any, Any]
    groups: list[Any]
    slices: Sequence[Any]
    ranks: int
    by_shapes: bool


def read_partitions(
    folder: Folder, files: Mapping[tuple[int, int], str], model_files: Mapping[int, str], source: str
) -> OptimizerState:
    """The optimizer state of all ranks.

    ``files``: those of optimizer state, by the rank in model and in data parallelism. ``model_files``: one of what was
    saved of the model, by the rank in model parallelism; one that is missing costs the shapes.

    Raises:
        ReadError: a rank's file is missing, or none of DeepSpeed's.
        OSError: a file cannot be read.
    """
    models = sorted({model for model, _ in files})
    with FilePool(folder) as pool:
        archive = _Archives(pool, model_files)
        states = [
            _of_model(archive, {rank: name for (model, rank), name in files.items() if model == one}, one, models)
            for one in models
        ]
        extras = plain_values(archive.model_states(models[0]), TensorStatistics())
    named = all(tensor.name is not None for state in states for tensor in state.tensors)
    return replace(
        joined(states),
        source=source,
        extras=extras,
        global_step=global_step_of(extras),
        stubs=tuple(archive.stubs),
        attribution=Attribution.NAMED if named else Attribution.UNATTRIBUTED,
    )


def read_module(folder: Folder, file: str | None, source: str) -> Weights | None:
    """Names, shapes and dtypes of the weights in a file of model states; None where there is none with any.

    Raises:
        ReadError: it cannot be trusted.
        OSError: it cannot be read.
    """
    with FilePool(folder) as pool:
        module = {} if file is None else _Archives(pool, {}).root(file).get("module")
    if not isinstance(module, Mapping):
        return None
    headers = (
        TensorHeader(name=name, shape=one.shape, dtype=_dtype(one.dtype))
        for name, one in module.items()
        if isinstance(name, str) and isinstance(one, TensorRef) and one.numel
    )
    tensors = tuple(headers)
    return Weights(source=source, tensors=tensors) if tensors else None


def _dtype(code: str) -> str:
    return {"bf16": "BF16", "f2": "F16", "f4": "F32", "f8": "F64"}.get(code, code.upper())


class _Archives:
    """The pickles of a checkpoint's files. ``stubs``: the names in them that were not looked up."""

    def __init__(self, pool: FilePool, model_files: Mapping[int, str]) -> None:
        self._pool = pool
        self._model_files = model_files
        self.stubs: dict[str, None] = {}

    def root(self, name: str) -> Mapping[Any, Any]:
        try:
            archive = open_torch_archive(self._pool.get(name))
        except ReadError as error:
            raise ReadError(f"{printable(name, 80)}: {error.message}", error.hint) from error
        self.stubs |= dict.fromkeys(archive.stubs)
        return archive.root if isinstance(archive.root, Mapping) else {}

    def model_states(self, model: int) -> Mapping[Any, Any]:
        """What was saved of the model, and of the training: shapes, steps; nothing where the file is not there."""
        file = self._model_files.get(model)
        return {} if file is None else self.root(file)


def _of_model(archives: _Archives, files: Mapping[int, str], model: int, models: Sequence[int]) -> OptimizerState:
    """The state of the parameters of one rank in model parallelism, put together from its partitions."""
    first = _partition(archives, files[min(files)])
    missing = [rank for rank in range(first.ranks) if rank not in files]
    if missing:
        shown = listing([str(rank) for rank in missing], 8)
        raise ReadError(
            f"of {first.ranks} ranks' files those of rank {shown} are missing; each has a part of every layer"
        )
    partitions = {rank: _partition(archives, files[rank]) for rank in range(first.ranks)}
    shapes = _shapes(archives.model_states(model).get("param_shapes"))
    slices = _slices_by_shapes(partitions, shapes) if first.by_shapes else _slices(partitions)
    label = f"mp_rank_{model:02d}" if len(models) > 1 else ""
    if slices is None:
        return joined([_whole_partition(one, rank, label) for rank, one in partitions.items()])
    state = {name: _entry(partitions, parts, shapes.get(name)) for name, parts in slices.items()}
    groups = _groups(first, slices)
    return optimizer_state({"state": state, "param_groups": groups}, label, TensorStatistics())


def _partition(archives: _Archives, file: str) -> _Partition:
    saved = archives.root(file).get("optimizer_state_dict")
    if not isinstance(saved, Mapping):
        raise ReadError(f"{printable(file, 80)}: it holds no optimizer state as DeepSpeed saves it")
    by_shapes = "fp32_flat_groups" in saved or "fp32_partitioned_groups_flat" in saved
    base = saved.get("optimizer_state_dict" if by_shapes else "base_optimizer_state")
    # An "elastic" checkpoint has a list of the groups' states in the place of an optimizer's state dict.
    state, groups = (base.get("state"), base.get("param_groups")) if isinstance(base, Mapping) else (base, [])
    if isinstance(state, list):
        state = dict(enumerate(state))
    slices = saved.get("param_slice_mappings")
    if not isinstance(state, Mapping) or not isinstance(groups, list):
        raise ReadError(f"{printable(file, 80)}: it holds no optimizer state as DeepSpeed saves it")
    if not by_shapes and not isinstance(slices, (list, tuple)):
        raise ReadError(f"{printable(file, 80)}: it does not say which part belongs to which parameter (too old)")
    require_sane_extent([{"state": state, "param_groups": groups}])
    return _Partition(state, groups, slices or (), _count(saved.get("partition_count"), file), by_shapes)


def _count(partitions: Any, file: str) -> int:
    """How many ranks share the state; of groups of experts it can be less, and the most is meant."""
    counts = [one for one in _list(partitions) or [partitions] if type(one) is int]
    if not counts or not 0 < min(counts) <= max(counts) <= _MOST_RANKS:
        raise ReadError(f"{printable(file, 80)}: it does not say how many ranks there are")
    return max(counts)


def _slices(partitions: Mapping[int, _Partition]) -> dict[str, list[_Slice]]:
    """Where each parameter's values are, in order, by what the files of stages 1 and 2 say."""
    found: dict[str, list[_Slice]] = defaultdict(list)
    every: list[_Slice] = []
    for rank, partition in partitions.items():
        for group, mapping in enumerate(partition.slices):
            for name, address in mapping.items() if isinstance(mapping, Mapping) else ():
                every.append(_slice(rank, group, name, address))
                found[name].append(every[-1])
                if len(every) > _MOST_SLICES:
                    raise ReadError(f"it cuts the parameters into more than the {_MOST_SLICES} parts that are read")
    _require_apart(every)
    return found


def _slice(rank: int, group: int, name: Any, address: Any) -> _Slice:
    start, count = (address.get("start"), address.get("numel")) if isinstance(address, PickledObject) else (0, None)
    if not isinstance(name, str) or type(start) is not int or type(count) is not int:
        raise ReadError("it says in an unknown way which part belongs to which parameter")
    return _Slice(rank, group, start, count)


def _require_apart(slices: Sequence[_Slice]) -> None:
    """Raises where two parameters would have the same values."""
    ordered = sorted(one for one in slices if one.values > 0)
    for one, after in pairwise(ordered):
        if one[:2] == after[:2] and after.start < one.start + one.values:
            raise ReadError(f"two parts of the parameters overlap in the file of rank {one.rank}")


def _slices_by_shapes(
    partitions: Mapping[int, _Partition], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, list[_Slice]] | None:
    """Where they are in stage 3, by the parameters' order; None where their sizes do not add up to the partitions'."""
    ranks = len(partitions)
    lengths = [_length(partition.state) for partition in partitions.values()]
    parts = {name: -(-prod(shape) // ranks) for name, shape in shapes.items()}
    if not shapes or any(one != lengths[0] for one in lengths) or sum(parts.values()) != sum(lengths[0].values()):
        return None
    found: dict[str, list[_Slice]] = defaultdict(list)
    groups = iter(lengths[0].items())
    group, left = next(groups)
    at = 0
    for name, part in parts.items():
        if at == left:
            (group, left), at = next(groups, (group, left)), 0
        if at + part > left:
            return None
        for rank in range(ranks):
            count = min(part, max(prod(shapes[name]) - rank * part, 0))
            found[name].append(_Slice(rank, group, at, count))
        at += part
    return found


def _length(state: Mapping[Any, Any]) -> dict[int, int]:
    """The values of each group's moments."""
    return {
        group: max((one.numel for one in entry.values() if isinstance(one, TensorRef)), default=0)
        for group, entry in state.items()
        if isinstance(entry, Mapping)
    }


def _entry(
    partitions: Mapping[int, _Partition], slices: Sequence[_Slice], shape: tuple[int, ...] | None
) -> dict[str, Any]:
    """What the optimizer keeps for one parameter: its part of each flat tensor, and what is one for all parameters."""
    states = [state for one in slices if isinstance(state := partitions[one.rank].state.get(one.group), Mapping)]
    if len(states) < len(slices):
        raise ReadError("a rank's file lacks the state of a group of parameters")
    shape = (sum(one.values for one in slices),) if shape is None else shape
    entry: dict[str, Any] = {}
    for key, value in islice(states[0].items(), _MOST_KEPT):
        flat = [one for state in states if isinstance(one := state.get(key), TensorRef)]
        if isinstance(value, TensorRef) and len(value.shape) == 1 and len(flat) == len(slices):
            pieces = [part_of(one, piece.start, piece.values) for one, piece in zip(flat, slices, strict=True)]
            entry[key] = JoinedTensor(shape, pieces)
        else:
            entry[key] = value
    return entry


def _groups(first: _Partition, slices: Mapping[str, Sequence[_Slice]]) -> list[dict[str, Any]]:
    """The parameter groups, with the names of their parameters."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parts in slices.items():
        names[parts[0].group].append(name)
    plain = [group if isinstance(group, Mapping) else {} for group in first.groups]
    if first.by_shapes:  # several sub-groups make a group of parameters
        place = {key: index for index, group in enumerate(plain) for key in _list(group.get("params"))}
        of_group: dict[int, list[str]] = defaultdict(list)
        for key, ours in names.items():
            of_group[place.get(key, 0)] += ours
        names = of_group
    return [{**group, "params": names.get(index, [])} for index, group in enumerate(plain)]


def _list(value: Any) -> list[Any]:
    return value[:MAX_PARAMETERS] if isinstance(value, list) else []


def _whole_partition(partition: _Partition, rank: int, label: str) -> OptimizerState:
    """A rank's state as it is: what its parts are cannot be determined."""
    name = f"{label}.rank_{rank}" if label else f"rank_{rank}"
    return optimizer_state({"state": partition.state, "param_groups": partition.groups}, name, TensorStatistics())


def _shapes(stored: Any) -> dict[str, tuple[int, ...]]:
    """The parameters' shapes, in the order of the groups; empty where the file with them is not there."""
    groups = stored if isinstance(stored, (list, tuple)) else [stored]
    found: dict[str, tuple[int, ...]] = {}
    for group in groups:
        if not isinstance(group, Mapping) or not found.keys().isdisjoint(islice(group, 1)):
            continue  # the same group again
        for name, shape in group.items():
            if isinstance(name, str):
                found[name] = sizes(shape)
        if len(found) > MAX_PARAMETERS:
            raise ReadError(f"it has the shapes of more than the {MAX_PARAMETERS} parameters that are read")
    return found
