"""Optimizer state from a file of ``torch.save``, found by its shape and not by the name of its key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.evidence import Attribution, OptimizerState, TensorState, label_of
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.readers.optimizers.aside import aside
from tracker_health.readers.optimizers.moments import first_moment, read_moments, tensors_to_read
from tracker_health.readers.optimizers.saved_scaler import saved_loss_scale, scales_in
from tracker_health.readers.optimizers.saved_schedule import saved_schedules
from tracker_health.readers.optimizers.saved_stopping import early_stopping_in
from tracker_health.readers.tensors.tensor_values import TensorStatistics, Values
from tracker_health.readers.torch_files.safe_pickle import Opaque
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_pickle import TensorRef
from tracker_health.readers.torch_files.torch_weights import torch_weights
from tracker_health.text import printable, short_name

MAX_PARAMETERS = 40_000
_DEEPEST = 4
_MOST_LOOKED_AT = 100_000
# A group has some thirty settings and its parameters' ids; the largest of models have a group for each parameter.
_MOST_LISTED = 2_000_000

_FIRST_FEW = 8  # parameters
STEP_KEYS = ("global_step", "step", "steps", "iteration", "iter", "global_steps")
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


def has_optimizer_state(path: Path | RandomAccess) -> bool:
    """Whether a torch archive holds an optimizer's state. Reads no tensor.

    Raises:
        ReadError: the file is no torch archive, or cannot be trusted.
        OSError: the file cannot be read.
    """
    with open_torch_archive(path) as archive:
        return bool(_state_dicts(archive.root))


def read_optimizer_state(path: Path | RandomAccess, source: str) -> OptimizerState:
    """The optimizer state of a file, every moment reduced to its statistics.

    ``source`` is the name under which the state is reported. Several optimizers (a generator's, a discriminator's) are
    kept apart by the name that each tensor has.

    Raises:
        ReadError: the file is not what it should be, or holds no optimizer state.
        OSError: the file cannot be read.
    """
    with open_torch_archive(path) as archive:
        found = _state_dicts(archive.root)
        if not found:
            raise ReadError(
                "it holds no optimizer state (no dictionary with 'state' and 'param_groups')",
                _whole_object(archive.root),
            )
        require_sane_extent(found.values())
        archive.expect(_to_read(archive.root, found.values()))
        statistics = TensorStatistics()
        alone = len(found) == 1
        together = joined([optimizer_state(one, "" if alone else name, statistics) for name, one in found.items()])
        extras = {} if alone and archive.root is next(iter(found.values())) else plain_values(archive.root, statistics)
        root, notes = archive.root, list[str]()
        return replace(
            together,
            source=source,
            global_step=global_step_of(extras),
            extras=extras,
            stubs=archive.stubs,
            beside_weights=bool(torch_weights(archive.root)),
            loss_scale=aside("its loss scale", lambda: saved_loss_scale(root, statistics), notes),
            schedules=aside("its scheduler", lambda: saved_schedules(root, together.groups), notes) or (),
            early_stopping=aside("its setting for early stopping", lambda: early_stopping_in(root), notes) or "",
            notes=tuple(f"{printable(source)}: {note}" for note in notes),
        )


def optimizer_state(state_dict: Mapping[str, Any], name: str, statistics: TensorStatistics) -> OptimizerState:
    """One optimizer's state dict, with its tensors in place, reduced to its statistics.

    ``name`` says which one of several it is.

    Raises:
        ReadError: it has too many parameters, or a moment that cannot be read.
    """
    require_sane_extent([state_dict])
    state, groups = state_dict["state"], state_dict["param_groups"]
    names, places = _names(groups), _places(groups)
    plain = tuple(plain_values(group, statistics) for group in groups if isinstance(group, Mapping))
    tensors = []
    for key, entry in state.items():
        if isinstance(entry, Mapping):
            one = tensor_state(entry, _identity(key), names.get(key), statistics)
            tensors.append(replace(one, group=places.get(key), step=_step_of(one, plain, places), optimizer=name))
    listed = () if _is_kept_together(state) else places
    stateless = tuple(label_of(_identity(key), names.get(key), name) for key in listed if not state.get(key))
    return OptimizerState(
        source="",
        tensors=tuple(tensors),
        groups=plain,
        stateless=stateless,
        attribution=_attribution(tensors),
        listed=_listed(groups),
    )


def _is_kept_together(state: Mapping[Any, Any]) -> bool:
    """Whether what is kept for the first parameter is that of all, as L-BFGS has it."""
    only = next(iter(state.values())) if len(state) == 1 else None
    return isinstance(only, Mapping) and "func_evals" in only


def tensor_state(
    entry: Mapping[str, Any], key: int | str, name: str | None, statistics: TensorStatistics
) -> TensorState:
    """What an optimizer keeps for one parameter, reduced to its statistics.

    Raises:
        ReadError: a moment cannot be read.
    """
    try:
        moments = read_moments(entry, statistics)
        return TensorState(
            id=key,
            name=key if name is None and isinstance(key, str) else name,
            shape=moments.shape,
            step=_step(entry.get("step"), statistics),
            first_moment=moments.first,
            second_moment=moments.second,
            moment_ratio=moments.ratio,
            kind=moments.kind,
        )
    except ReadError as error:
        raise ReadError(f"the state of parameter {printable(name or key, 80)}: {error.message}", error.hint) from error


def require_sane_extent(state_dicts: Iterable[Mapping[str, Any]]) -> None:
    """Raises where state dicts are together larger than any model's: a small pickle can give the same one, or the same
    group, a million times.

    Raises:
        ReadError: they are.
    """
    parameters, listed = 0, 0
    for one in state_dicts:
        parameters += len(one["state"])
        if parameters > MAX_PARAMETERS:
            raise ReadError(f"it holds {parameters} parameters' state, more than the {MAX_PARAMETERS} that are read")
        for group in one["param_groups"]:
            ids = group.get("params") if isinstance(group, Mapping) else None
            listed += 1 + (len(group) if isinstance(group, Mapping) else 0) + (len(ids) if isinstance(ids, list) else 0)
            if listed > _MOST_LISTED:
                raise ReadError(f"its parameter groups list more than the {_MOST_LISTED} values that are read")


def _to_read(root: Any, states: Iterable[Mapping[str, Any]]) -> Iterator[TensorRef]:
    """The tensors that reading these state dicts of a saved structure will read."""
    yield from (one for one in scales_in(root) if isinstance(one, TensorRef))
    mappings = [root]
    for state_dict in states:
        mappings += state_dict["param_groups"][:1000]
        for entry in islice(state_dict["state"].values(), MAX_PARAMETERS):
            if isinstance(entry, Mapping):
                yield from tensors_to_read(entry)
    for mapping in mappings:
        if isinstance(mapping, Mapping):
            scalars = islice(mapping.values(), 1000)
            yield from (one for one in scalars if isinstance(one, TensorRef) and one.numel == 1)


def _attribution(tensors: list[TensorState]) -> Attribution:
    """Whether the file names all of its parameters. A number for a name is an id that was made a text."""
    named = [one for one in tensors if one.name is not None and not one.name.isdigit()]
    return Attribution.NAMED if named and len(named) == len(tensors) else Attribution.UNATTRIBUTED


def _listed(groups: list[Any]) -> tuple[tuple[int | str, ...], ...]:
    """The ids of each group's parameters, in order."""
    ids = (group.get("params") if isinstance(group, Mapping) else None for group in groups)
    return tuple(
        tuple(_identity(key) for key in one[:MAX_PARAMETERS] if isinstance(key, (int, str)))
        if isinstance(one, list)
        else ()
        for one in ids
    )


def first_moments(root: Any) -> dict[int | str, Values]:
    """The first moment of each parameter, in place, of the one optimizer in a saved structure.

    Raises:
        ReadError: one is of a kind that is not read.
    """
    found = list(_state_dicts(root).values())
    if len(found) != 1:
        return {}
    entries = {_identity(key): one for key, one in found[0]["state"].items() if isinstance(one, Mapping)}
    moments = {key: first_moment(entry) for key, entry in entries.items()}
    return {key: moment for key, moment in moments.items() if moment is not None}


def has_optimizer_state_in(root: Any) -> bool:
    """Whether a saved structure holds an optimizer's state."""
    return bool(_state_dicts(root))


def steps_in(root: Any) -> int | None:
    """The steps that the optimizer in a saved structure counted itself, by its first parameters; None where it did not.

    Raises:
        ReadError: such a count cannot be read.
    """
    statistics = TensorStatistics()
    entries = (entry for one in _state_dicts(root).values() for entry in islice(one["state"].values(), _FIRST_FEW))
    counts = (_step(entry.get("step"), statistics) for entry in entries if isinstance(entry, Mapping))
    return max((int(one) for one in counts if one is not None and 0 <= one < 2**53), default=None)


def joined(states: Sequence[OptimizerState]) -> OptimizerState:
    """Several optimizers' states as one, the groups of each behind those of the one before. Without a source."""
    tensors, before = [], 0
    for state in states:
        tensors += [
            one if one.group is None or not before else replace(one, group=one.group + before) for one in state.tensors
        ]
        before += len(state.groups)
    return OptimizerState(
        source="",
        tensors=tuple(tensors),
        groups=tuple(group for state in states for group in state.groups),
        stateless=tuple(label for state in states for label in state.stateless),
        attribution=_attribution(tensors),
        listed=tuple(ids for state in states for ids in state.listed),
    )


def _state_dicts(root: Any) -> dict[str, Mapping[str, Any]]:
    """The optimizer state dicts in a saved structure by the keys that lead to them, not more than a few levels deep."""
    level, left, seen = [("", root)], _MOST_LOOKED_AT, set()
    for _ in range(_DEEPEST):
        found = {name or "optimizer": value for name, value in level if _is_state_dict(value)}
        if found:
            return found
        inner: list[tuple[str, Any]] = []
        for name, value in level:
            for key, one in islice(_items(value), min(1000, left)):
                left -= 1
                # Each is looked into once: a few lists in lists have as many paths as one likes.
                if isinstance(one, (Mapping, list, tuple)) and id(one) not in seen:
                    seen.add(id(one))
                    inner.append((_inner_name(name, key), one))
        level = inner
    return {}


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _whole_object(root: Any) -> str:
    """What to do where an object was saved in the place of its state; "" where none was."""
    named = root.items() if isinstance(root, Mapping) else [("optimizer", root)]
    for key, value in islice(named, 1000):
        if isinstance(value, Opaque) and "optim" in short_name(key).lower():
            return f"it holds a whole object ({value.name}), which is not rebuilt; save optimizer.state_dict()"
    return ""


def _inner_name(name: str, key: Any) -> str:
    shown = short_name(key)
    return f"{name}.{shown}" if name else shown


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


def _step(value: Any, statistics: TensorStatistics) -> float | None:
    if isinstance(value, Values):
        return statistics.scalar(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _as_float(value)
    return None


def _step_of(tensor: TensorState, groups: tuple[Mapping[str, Any], ...], places: Mapping[Any, int]) -> float | None:
    """A parameter's steps. Some optimizers count them for its group: ``step`` in fused ones, ``k`` schedule-free."""
    place = places.get(tensor.id)
    if tensor.step is not None or place is None or place >= len(groups):
        return tensor.step
    counted = [groups[place].get(key) for key in ("step", "k")]
    return next((float(one) for one in counted if isinstance(one, (int, float)) and not isinstance(one, bool)), None)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def plain_values(mapping: Any, statistics: TensorStatistics) -> dict[str, Any]:
    """The numbers, texts and short lists of them in a mapping; one-element tensors as numbers; all else left out.

    An integer beyond 64 bits is given as an infinity: no count and no setting is that large, and it is no float.
    """
    if not isinstance(mapping, Mapping):
        return {}
    plain: dict[str, Any] = {}
    for key, value in list(mapping.items())[:1000]:
        if not isinstance(key, str) or len(key) > 1000:
            continue
        if isinstance(value, Values) and value.numel == 1:
            plain[key] = statistics.scalar(value)
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


def global_step_of(extras: Mapping[str, Any]) -> int | None:
    """The training step that plain values tell, under any of its usual names."""
    for key in STEP_KEYS:
        value = extras.get(key)
        if not key.startswith("global") and value == extras.get("epoch"):
            continue  # trainers that save once an epoch call its number a step, too
        if (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and abs(value) < 2**53
            and value == int(value) >= 0
        ):
            return int(value)
    return None
