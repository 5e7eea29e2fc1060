"""The state in a checkpoint of ``torch.distributed.checkpoint``, as FSDP, OLMo-core, torchtitan and others save it.

Each item (a tensor, a piece of one, a pickled value) is a ``torch.save`` of its own somewhere in a file, found through
its name. Of an optimizer the names are those of ``get_optimizer_state_dict`` (``optim.state.layers.0.weight.exp_avg``),
flattened or not, or of its plain state dict, which has ids for parameters (``optim.state.0.exp_avg``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution, OptimizerState, TensorHeader, Weights
from tracker_health.readers.files.closing import Closing
from tracker_health.readers.files.file_pool import FilePool
from tracker_health.readers.files.folder import Folder
from tracker_health.readers.files.random_access import Stretch
from tracker_health.readers.optimizers.distributed_index import (
    DistributedIndex,
    Item,
    ShardedTensor,
    read_distributed_index,
)
from tracker_health.readers.optimizers.moments import MOMENT_KEYS
from tracker_health.readers.optimizers.optimizer_state import (
    STEP_KEYS,
    global_step_of,
    joined,
    optimizer_state,
    plain_values,
)
from tracker_health.readers.tensors.tensor_values import TensorStatistics
from tracker_health.readers.torch_files.chunked import Chunk, ChunkedTensor
from tracker_health.readers.torch_files.finite import FloatTensor
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.text import printable

_QUANTISED = ".__bnb_optimizer_quant_state__"
_LARGEST_VALUE = 4 * 2**20
_SMALL_VALUE = 16 * 2**10
_MOST_OF_VALUES = (
    8 * 2**20
)  # of those that are not small, together: to interpret a megabyte takes a quarter of a second
_MOST_SETTINGS = 40_000
_MOST_EXTRAS = 100
_MOST_OPTIMIZERS = 20
_WEIGHTS = re.compile(r"(?:model|module|state_dict)\.(.+)")
_DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


_FLOAT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


class _Name(NamedTuple):
    """An item's name taken apart: ``optim.state.head.weight.exp_avg`` is of the optimizer ``optim``."""

    optimizer: str
    owner: str  # a parameter, or a parameter group
    key: str


def _named(name: str, kind: str) -> _Name | None:
    """The parts of the name of an item of this kind, ``state`` or ``param_groups``; None for any other."""
    before, found, rest = f".{name}".partition(f".{kind}.")
    owner, _, key = rest.rpartition(".")
    return _Name(before[1:], owner, key) if found and owner and key else None


def has_state(folder: Folder, lead: str) -> bool:
    """Whether an index names an optimizer's items.

    Raises:
        ReadError: it is no such index, or cannot be trusted.
        OSError: it cannot be read.
    """
    return bool(_optimizers(_index(folder, lead)))


def read_state(folder: Folder, lead: str, beside: str | None, source: str) -> OptimizerState:
    """The optimizer state. ``beside``: a file of ``torch.save`` with what is no tensor, where there is one.

    Raises:
        RunError: a file is missing, not what it should be, or holds no optimizer state.
        OSError: a file cannot be read.
    """
    with _Checkpoint(folder, _index(folder, lead)) as checkpoint:
        state = checkpoint.optimizer_state()
    if state.global_step is None and beside is not None:
        with open_torch_archive(folder.open(beside)) as archive:
            extras = plain_values(archive.root, TensorStatistics()) | dict(state.extras)
        stubs = (*state.stubs, *archive.stubs)
        state = replace(state, extras=extras, global_step=global_step_of(extras), stubs=stubs)
    return replace(state, source=source)


def read_headers(folder: Folder, lead: str, source: str) -> Weights | None:
    """Names, shapes and dtypes of the weights; None where there are none.

    Raises:
        RunError, OSError: as for ``read_state``.
    """
    found = {}
    for name, tensor in _index(folder, lead).tensors.items():
        weight = _WEIGHTS.fullmatch(name)
        if weight:
            found[weight[1]] = tensor
    headers = (
        TensorHeader(name=name, shape=one.shape, dtype=_DTYPES.get(one.dtype, one.dtype.upper()))
        for name, one in found.items()
    )
    return Weights(source=source, tensors=tuple(headers)) if found else None


def float_tensors(folder: Folder, lead: str) -> Iterator[FloatTensor]:
    """The tensors of floating-point values, weights and all else, single numbers left out; open while they are asked
    for.

    Raises:
        RunError, OSError: as for ``read_state``.
    """
    with _Checkpoint(folder, _index(folder, lead)) as checkpoint:
        yield from checkpoint.float_tensors()


def _index(folder: Folder, lead: str) -> DistributedIndex:
    file = folder.open(lead)
    try:
        return read_distributed_index(file)
    finally:
        file.close()


def _optimizers(index: DistributedIndex) -> list[str]:
    """What is before ``state`` or ``param_groups`` in the names of each optimizer's items.

    A model may have a module called ``state``: without parameter groups the keys of moments tell.
    """
    found: dict[str, None] = {}
    for name in (*index.tensors, *index.others):
        group, state = _named(name, "param_groups"), _named(name, "state")
        if group:
            found[group.optimizer] = None
        elif state and state.key in MOMENT_KEYS:
            found[state.optimizer] = None
    return list(found)


class _Checkpoint(Closing):
    """An open checkpoint."""

    def __init__(self, folder: Folder, index: DistributedIndex) -> None:
        self._files = FilePool(folder)
        self._index = index
        self._optimizers = _optimizers(index)
        self._statistics = TensorStatistics()
        self._stubs = dict.fromkeys(index.stubs)
        self._left = _MOST_OF_VALUES

    def close(self) -> None:
        self._files.close()

    def optimizer_state(self) -> OptimizerState:
        if not self._optimizers:
            raise ReadError("it holds no optimizer state (no item has a name like optim.state.*.exp_avg)")
        if len(self._optimizers) > _MOST_OPTIMIZERS:
            raise ReadError(
                f"it holds {len(self._optimizers)} optimizers, more than the {_MOST_OPTIMIZERS} that are read"
            )
        alone = len(self._optimizers) == 1
        states = [
            optimizer_state(self._state_dict(name), "" if alone else name, self._statistics)
            for name in self._optimizers
        ]
        state = joined(states)
        extras, step = self._extras()
        named = bool(state.tensors) and all(tensor.name is not None for tensor in state.tensors)
        return replace(
            state,
            extras=extras,
            global_step=step,
            stubs=tuple(self._stubs),
            attribution=Attribution.NAMED if named else Attribution.UNATTRIBUTED,
        )

    def float_tensors(self) -> Iterator[FloatTensor]:
        for tensor in self._index.tensors.values():
            width, values = _FLOAT_BYTES.get(tensor.dtype, 0), prod(tensor.shape)
            if width and values and len(tensor.shape):
                yield FloatTensor(self._tensor(tensor), values * width)

    def _state_dict(self, optimizer: str) -> dict[str, Any]:
        """What ``torch.optim.Optimizer.state_dict`` would give, with tensors in place."""
        state: dict[Any, dict[str, Any]] = defaultdict(dict)
        for found, name in self._of("state", optimizer):
            state[_key(found.owner.removesuffix(_QUANTISED))][found.key] = self._value(name)
        return {"state": state, "param_groups": self._groups(optimizer)}

    def _of(self, kind: str, optimizer: str) -> list[tuple[_Name, str]]:
        """An optimizer's items of a kind."""
        named = ((_named(name, kind), name) for name in (*self._index.tensors, *self._index.others))
        return [(found, name) for found, name in named if found and found.optimizer == optimizer]

    def _groups(self, optimizer: str) -> list[dict[str, Any]]:
        """The parameter groups: numbered, or one for each parameter, of which those alike are put together."""
        numbered: dict[int, dict[str, Any]] = defaultdict(dict)
        flattened: dict[str, dict[str, Any]] = defaultdict(dict)
        wanted = self._of("param_groups", optimizer)
        if len(wanted) > _MOST_SETTINGS:
            raise ReadError(f"it has {len(wanted)} settings of parameter groups, more than the {_MOST_SETTINGS} read")
        self._files.expect(self._index.others[name] for _, name in wanted if name in self._index.others)
        for found, name in wanted:
            if found.owner.isdecimal() and len(found.owner) < 6:
                numbered[int(found.owner)][found.key] = self._value(name)
            else:
                flattened[found.owner][found.key] = self._value(name)
        return [numbered[place] for place in sorted(numbered)] + self._alike(flattened)

    def _alike(self, flattened: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        groups: dict[str, dict[str, Any]] = {}
        for parameter, settings in flattened.items():
            plain = plain_values(settings, self._statistics)
            groups.setdefault(repr(sorted(plain.items())), {**plain, "params": []})["params"].append(parameter)
        return list(groups.values())

    def _extras(self) -> tuple[dict[str, Any], int | None]:
        """The plain values at the top, and the step they tell, or those one level below (``train_state.step``)."""
        top: dict[str, Any] = {}
        below: dict[str, Any] = {}
        for name in (*self._index.others, *self._index.tensors):
            *parents, last = name.split(".")
            if not parents and len(top) < _MOST_EXTRAS and self._is_small(name):
                top[name] = self._value(name)
            elif len(parents) == 1 and last in STEP_KEYS and parents[0] not in self._optimizers:
                below.setdefault(last, self._value(name))
        extras = plain_values(top, self._statistics)
        step = global_step_of(extras)
        return extras, global_step_of(plain_values(below, self._statistics)) if step is None else step

    def _is_small(self, name: str) -> bool:
        item = self._index.others.get(name)
        return item.length <= _LARGEST_VALUE if item else self._index.tensors[name].shape in {(), (1,)}

    def _value(self, name: str) -> Any:
        """A tensor in place, or of a pickled value what is plain, where it is not large."""
        tensor = self._index.tensors.get(name)
        try:
            if tensor is not None:
                return self._tensor(tensor)
            item = self._index.others[name]
            return self._plain(item) if item.length <= _LARGEST_VALUE else None
        except ReadError as error:
            raise ReadError(f"its item {printable(name, 120)}: {error.message}", error.hint) from error

    def _plain(self, item: Item) -> Any:
        """A pickled number, text or short list of them; a list of parameters. What else a pickle holds can take far
        more memory than bytes, and there are many of them.
        """
        if item.length > _SMALL_VALUE:
            self._left -= item.length
        if self._left < 0:
            raise ReadError(f"with it, its values are larger than the {_MOST_OF_VALUES} bytes that are read")
        value = self._root(item)
        if isinstance(value, list):
            return [one for one in value if isinstance(one, (int, str))]
        return plain_values({"": value}, self._statistics).get("")

    def _tensor(self, tensor: ShardedTensor) -> ChunkedTensor:
        chunks = [Chunk(offsets, sizes, partial(self._root, item)) for offsets, sizes, item in tensor.pieces]
        return ChunkedTensor(tensor.shape, chunks)

    def _root(self, item: Item) -> Any:
        try:
            # It holds nothing open of its own: what it reads through is shared.
            archive = open_torch_archive(Stretch(self._files.get(item.file), item.offset, item.length))
        except ReadError as error:
            raise ReadError(f"{printable(item.file, 80)}: {error.message}", error.hint) from error
        self._stubs |= dict.fromkeys(archive.stubs)
        return archive.root


def _key(parameter: str) -> str | int:
    return int(parameter) if parameter.isdecimal() and len(parameter) < 10 else parameter
