"""Optimizer state from a file of ``torch.save``, found by its shape and not by the name of its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import MomentStats, OptimizerState, TensorState, label_of
from tracker_health.readers.torch_zip import TensorRef, TorchArchive, UnreadTensor
from tracker_health.text import printable

MAX_PARAMETERS = 40_000

_STEP_KEYS = ("global_step", "step", "steps", "iteration", "iter", "global_steps")
_DANGEROUS_MODULES = frozenset(
    {"os", "posix", "nt", "subprocess", "_posixsubprocess", "sys", "builtins", "__builtin__", "io", "_io", "codecs",
     "shutil", "runpy", "importlib", "code", "pip", "commands", "pty", "ctypes", "socket", "asyncio", "multiprocessing",
     "webbrowser", "pickle", "marshal", "operator", "functools", "pdb", "bdb", "timeit", "cProfile", "profile", "trace",
     "torch.hub"}
)  # fmt: skip
_HARMLESS_BUILTINS = frozenset(
    {"set", "frozenset", "list", "dict", "tuple", "bytearray", "bytes", "complex", "slice", "range", "int", "float",
     "str", "object"}
)  # fmt: skip


def dangerous(stubs: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names met in a pickle that no training state has a reason to call."""
    return tuple(stub for stub in stubs if _is_dangerous(stub))


def _is_dangerous(stub: str) -> bool:
    module, _, name = stub.rpartition(".")
    if module in ("builtins", "__builtin__") and name in _HARMLESS_BUILTINS:
        return False
    return module in _DANGEROUS_MODULES or module.split(".")[0] in {"os", "subprocess", "importlib", "ctypes"}


def has_optimizer_state(path: Path) -> bool:
    """Whether a torch archive holds an optimizer's state. Reads no tensor.

    Raises:
        ReadError: the file is no torch archive, or cannot be trusted.
        OSError: the file cannot be read.
    """
    with TorchArchive(path) as archive:
        return next(_state_dicts(archive.root), None) is not None


def read_optimizer_state(path: Path, source: str) -> OptimizerState:
    """The optimizer state of a file, every moment reduced to its statistics.

    ``source`` is the name under which the state is reported.

    Raises:
        ReadError: the file is not what it should be, or holds no optimizer state, or several.
        OSError: the file cannot be read.
    """
    with TorchArchive(path) as archive:
        found = list(_state_dicts(archive.root))
        if not found:
            raise ReadError("it holds no optimizer state (no dictionary with 'state' and 'param_groups')")
        if len(found) > 1:
            raise ReadError(f"it holds {len(found)} optimizers; files with one are read")
        state, groups = found[0]["state"], found[0]["param_groups"]
        if len(state) > MAX_PARAMETERS:
            raise ReadError(f"it holds {len(state)} parameters' state, more than the {MAX_PARAMETERS} that are read")
        names, places = _names(groups), _places(groups)
        tensors = tuple(
            replace(_tensor_state(archive, _identity(key), entry, names.get(key)), group=places.get(key))
            for key, entry in state.items()
            if isinstance(entry, Mapping)
        )
        extras = _plain_values(archive.root, archive) if archive.root is not found[0] else {}
        return OptimizerState(
            source=source,
            tensors=tensors,
            groups=tuple(_plain_values(group, archive) for group in groups if isinstance(group, Mapping)),
            global_step=_global_step(extras),
            extras=extras,
            stubs=archive.stubs,
            stateless=tuple(label_of(_identity(key), names.get(key)) for key in places if not state.get(key)),
        )


def _state_dicts(root: Any) -> Iterator[Mapping[str, Any]]:
    """The optimizer state dicts at the root, one level below, or in a list one level below."""
    if _is_state_dict(root):
        yield root
        return
    if not isinstance(root, Mapping):
        return
    for value in list(root.values())[:1000]:
        for candidate in value[:100] if isinstance(value, list) else [value]:
            if _is_state_dict(candidate):
                yield candidate


def _is_state_dict(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("state"), Mapping)
        and isinstance(value.get("param_groups"), list)
    )


def _names(groups: list[Any]) -> dict[Any, str]:
    """Parameter names by id, where the optimizer was given named parameters."""
    names: dict[Any, str] = {}
    for group in groups:
        if not isinstance(group, Mapping):
            continue
        ids, given = group.get("params"), group.get("param_names")
        if isinstance(ids, list) and isinstance(given, list) and len(ids) == len(given):
            pairs = zip(ids, given, strict=True)
            names.update({key: name for key, name in pairs if isinstance(key, (int, str)) and isinstance(name, str)})
    return names


def _places(groups: list[Any]) -> dict[Any, int]:
    """The index of the group that lists each parameter."""
    places: dict[Any, int] = {}
    for index, group in enumerate(groups):
        ids = group.get("params") if isinstance(group, Mapping) else None
        if isinstance(ids, list):
            places.update({key: index for key in ids[:MAX_PARAMETERS] if isinstance(key, (int, str))})
    return places


def _identity(key: Any) -> int | str:
    return key if isinstance(key, int) and abs(key) < 2**63 else printable(key, 200)


def _tensor_state(archive: TorchArchive, key: int | str, entry: Mapping[str, Any], name: str | None) -> TensorState:
    try:
        first, second, ratio = _moments(archive, entry.get("exp_avg"), entry.get("exp_avg_sq"))
        return TensorState(
            id=key,
            name=key if name is None and isinstance(key, str) else name,
            shape=_shape(entry),
            step=_step(archive, entry.get("step")),
            first_moment=first,
            second_moment=second,
            moment_ratio=ratio,
        )
    except ReadError as error:
        raise ReadError(f"the state of parameter {printable(name or key, 80)}: {error.message}", error.hint) from error


def _moments(
    archive: TorchArchive, first: Any, second: Any
) -> tuple[MomentStats | None, MomentStats | None, float | None]:
    if isinstance(first, TensorRef) and isinstance(second, TensorRef):
        return archive.moment_stats(first, second)
    return _stats(archive, first), _stats(archive, second), None


def _stats(archive: TorchArchive, value: Any) -> MomentStats | None:
    if isinstance(value, UnreadTensor):
        # Not to be taken for an optimizer that keeps no such moment.
        raise ReadError(f"its moments are kept as {value.name}, which is not read")
    return archive.stats(value) if isinstance(value, TensorRef) else None


def _shape(entry: Mapping[str, Any]) -> tuple[int, ...]:
    shapes = [value.shape for value in entry.values() if isinstance(value, TensorRef)]
    return max(shapes, key=len, default=())


def _step(archive: TorchArchive, value: Any) -> float | None:
    if isinstance(value, TensorRef):
        return archive.scalar(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _as_float(value)
    return None


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _plain_values(mapping: Any, archive: TorchArchive) -> dict[str, Any]:
    """The numbers, texts and short lists of them in a mapping; one-element tensors as numbers; all else left out.

    An integer beyond 64 bits is given as an infinity: no count and no setting is that large, and it is no float.
    """
    if not isinstance(mapping, Mapping):
        return {}
    plain: dict[str, Any] = {}
    for key, value in list(mapping.items())[:1000]:
        if not isinstance(key, str) or len(key) > 1000:
            continue
        if isinstance(value, TensorRef) and value.numel == 1:
            plain[key] = archive.scalar(value)
        elif _is_plain(value):
            plain[key] = _bounded(value)
        elif isinstance(value, (tuple, list)) and len(value) <= 8 and all(_is_plain(one) for one in value):
            plain[key] = tuple(_bounded(one) for one in value)
    return plain


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        return float("inf") if value > 0 else float("-inf")
    return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 1000
    return value is None or isinstance(value, (bool, int, float))


def _global_step(extras: Mapping[str, Any]) -> int | None:
    for key in _STEP_KEYS:
        value = extras.get(key)
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and abs(value) < 2**53
            and value == int(value) >= 0
        ):
            return int(value)
    return None
