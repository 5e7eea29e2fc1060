"""The weights of a checkpoint: which files they are in, what is in them, and whose the optimizer's states are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

from tracker_health.errors import UNREADABLE, ReadError
from tracker_health.evidence import Attribution, OptimizerState, Part, Problem, Request, WeightChange, Weights
from tracker_health.readers.files.closing import Closing
from tracker_health.readers.files.json_lines import parse_json
from tracker_health.readers.files.random_access import LocalFile
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.readers.optimizers.optimizer_state import first_moments
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.tensors.weights import MAX_TENSORS, Budget, StoredTensor, changes, described
from tracker_health.readers.torch_files.safe_pickle import Opaque
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_storages import TorchArchive
from tracker_health.readers.torch_files.torch_weights import is_in_order, torch_average, torch_weights, unread_weights
from tracker_health.run_files.naming import age, series_of
from tracker_health.run_files.tree import FileEvidence, FileTree, RunFile
from tracker_health.text import listing, printable

_ADAPTER = "adapter_model.safetensors"
_TORCH_WEIGHTS = re.compile(r"(pytorch_model|adapter_model)(-\d{1,6}-of-\d{1,6})?\.bin", re.IGNORECASE)
_INDEX = re.compile(r".*\.(safetensors|bin)\.index\.json", re.IGNORECASE)
_SHARD = re.compile(r"(.*)-(\d{1,6})-of-(\d{1,6})(\.\w+)")
_OF_A_LAYER = re.compile(r"\.(weight|lora_[AB])$")
_MAY_HOLD_WEIGHTS = re.compile(r"\.(safetensors|bin|pt2?|pth|ckpt|msgpack|h5|npz)$", re.IGNORECASE)
_NO_PART = re.compile(r"optim|sched|scaler|rng|random|training_(args|state)|(^|[-_.])(ema|best|last|latest|final)[-_.]")
_ONLY_STATE = re.compile(r"optimizer\.(pt|bin)", re.IGNORECASE)
_MOST_INDEX_BYTES = 16 * 2**20
_MOST_OF_AN_AVERAGE = 8  # matrices
_FEWEST_BEFORE = 2  # checkpoints
_MOST_SHARDS = 1000
# Decoders that name their modules as others do and define them in another order: of an adapter on some of these
# modules alone, nothing else tells.
_MOST_NAME = 100
_OTHER_ORDER = re.compile(r"xglm", re.IGNORECASE)


def is_weights_file(name: str) -> bool:
    """Whether a file of this name holds weights that are read, or tells where they are."""
    return name.endswith(".safetensors") or bool(_TORCH_WEIGHTS.fullmatch(name) or _INDEX.fullmatch(name))


def weights_lead(files: Iterable[RunFile]) -> RunFile | None:
    """The file of a folder that stands for the weights in it, by its name; None where no name says so."""
    by_name = {file.name: file for file in files}
    if _ADAPTER in by_name:
        return by_name[_ADAPTER]
    names = _by_rank(name for name in by_name if name.endswith(".safetensors"))
    names = names or _by_rank(name for name in by_name if _TORCH_WEIGHTS.fullmatch(name))
    return by_name[names[0]] if names else None


def _by_rank(names: Iterable[str]) -> list[str]:
    """By name, the model's own before others (``init.safetensors``), the last one before the best one."""
    return sorted(
        sorted(names), key=lambda name: (name.startswith(("model", "pytorch_model")), age(name)), reverse=True
    )


def holds_model(tree: FileTree, file: RunFile) -> bool:
    """Whether a torch file of any name holds a model's weights, and not some data in tensors."""
    with _Archives(tree) as archives:
        try:
            archive = archives.of(file)
            return archive.is_model or _is_model(torch_weights(archive.root))
        except UNREADABLE:
            return False  # told where it was looked into for an optimizer's state


def is_pickled_model(tree: FileTree, file: RunFile) -> bool:
    """Whether a torch file holds a whole model as its Python object, and not its state dict."""
    with _Archives(tree) as archives:
        try:
            return isinstance(archives.of(file).root, Opaque)
        except UNREADABLE:
            return False


def pickled_reason(path: str) -> str:
    """Why the weights in a pickled model are not read."""
    return f"{printable(path)} is a pickled model: it is there, and not read; its state dict, or safetensors, would be"


def why_not_alone(tree: FileTree, lead: RunFile) -> str:
    """Why weights are not read that are next to no optimizer's state; empty where they are.

    Nobody has said that the file is a model's: what is something else, or is elsewhere, is no error.

    Raises:
        RunError: it is not what its name says, or cannot be fetched.
        OSError: it cannot be read.
    """
    with _Archives(tree) as archives:
        files = _of(archives, lead, None)
        if files is None:
            return f"no weights are read from {printable(lead.path)}"
        if files.missing:
            return f"{listing(list(files.missing))} of the weights is missing"
        with _opened(archives, files) as opened:
            if not opened.near:
                return f"{printable(lead.path)} is not on this machine, and no optimizer state is next to it"
            # An adapter's file is one, also with nothing in it.
            known = lead.name == _ADAPTER or opened.is_model or _is_model(opened.tensors)
            return "" if known else f"{printable(lead.path)} holds no model's weights"


def _is_model(tensors: Iterable[StoredTensor]) -> bool:
    return any(len(tensor.shape) > 1 and _OF_A_LAYER.search(tensor.name) for tensor in tensors)


@dataclass(frozen=True, kw_only=True)
class _Files:
    """The files that the weights of one checkpoint are in. ``missing``: shards that are not there."""

    files: tuple[RunFile, ...]
    missing: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return self.files[0].path


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """The tensors of open files. ``in_order``: as the model defines them. ``near``: the files are on this machine.
    ``is_model``: their format is one of models. ``unread``: how many tensors more there are whose values are not read.
    """

    tensors: list[StoredTensor]
    in_order: bool
    near: bool
    is_model: bool
    unread: int


class _Archives(Closing):
    """The torch files of a run that were opened so far. Each is opened once: of one elsewhere, that costs requests."""

    def __init__(self, tree: FileTree) -> None:
        self.tree = tree
        self._stack = ExitStack()
        self._open: dict[str, TorchArchive] = {}

    def close(self) -> None:
        self._stack.close()

    def of(self, file: RunFile) -> TorchArchive:
        """The file, open.

        Raises:
            RunError: it is none of its kind, or cannot be fetched.
            OSError: it cannot be read.
        """
        if file.path not in self._open:
            self._open[file.path] = self._stack.enter_context(open_torch_archive(self.tree.open(file)))
        return self._open[file.path]

    def begin_pass(self) -> None:
        """Let all that is open be read once more: to be compared."""
        for archive in self._open.values():
            archive.begin_pass()


class Earlier(NamedTuple):
    """Checkpoints of a run from before one of them: the newest first, as far as they are compared to it until one is no
    copy; and the first of its own series, where there are more than these.
    """

    newest: Sequence[RunFile]
    first: RunFile | None = None


def read_weights(tree: FileTree, checkpoint: RunFile, earlier: Earlier, request: Request, found: FileEvidence) -> None:
    """Take the weights next to a checkpoint's optimizer state or in the same file, and name the state's parameters.

    They are compared to the earlier ones where some rule needs that.
    """
    with _Archives(tree) as archives:
        files = _of(archives, checkpoint, found.optimizer)
        if files is None:
            return
        _tell_missing(files, found)
        _read(archives, files, checkpoint, earlier, request=request, found=found)


def _read(
    archives: _Archives,
    files: _Files,
    checkpoint: RunFile,
    earlier: Earlier,
    *,
    request: Request,
    found: FileEvidence,
) -> None:
    try:
        with _opened(archives, files) as opened:
            if not opened.tensors:
                if files.files[0].name == _ADAPTER:
                    found.weights = Weights(source=files.source, tensors=(), left_out=opened.unread)
                    found.read.add(files.source)
                return
            # Of weights elsewhere, names and shapes: they are most of what would have to be fetched.
            wanted = opened.near and request.needs(Part.WEIGHTS, Part.WEIGHT_CHANGES)
            budget = Budget() if wanted else None
            tensors = described(opened.tensors, budget)
            task, beside = _adapter_settings(archives.tree, checkpoint) if wanted else ("", ())
            found.weights = Weights(
                source=files.source,
                tensors=tensors,
                in_order=opened.in_order,
                task=task,
                saved_beside=beside,
                left_out=opened.unread,
            )
            found.read.update(file.path for file in files.files)
            if found.optimizer is not None:
                _attribute(archives, checkpoint, found.optimizer, opened, found)
            compared = opened.near and request.needs(Part.WEIGHT_CHANGES)
            if not compared:
                return
            if any(_compare(archives, one, opened, found) for one in earlier.newest):
                _tell_idle_average(archives, checkpoint, earlier, found)
            else:
                _tell_copies(archives, checkpoint, earlier.first, opened, found)
    except UNREADABLE as error:
        found.cannot_read(files.source, error, [Part.WEIGHTS, Part.WEIGHT_CHANGES])


def _tell_missing(files: _Files, found: FileEvidence) -> None:
    if files.missing:
        which = f"{listing(list(files.missing))} of the weights {'is' if len(files.missing) == 1 else 'are'} missing"
        found.problems.append(Problem(source=printable(files.source), message=f"{which}; the rest is used"))


def _of(archives: _Archives, checkpoint: RunFile, state: OptimizerState | None) -> _Files | None:
    """The files of a checkpoint's weights, or None. Adapter weights first, then those in the same file, then others."""
    tree = archives.tree
    beside = {file.name: file for file in tree.files if file.folder == checkpoint.folder}
    if _ADAPTER in beside:
        return _Files(files=(beside[_ADAPTER],))
    if not _ONLY_STATE.fullmatch(checkpoint.name) and _holds_weights(archives, checkpoint, state):
        return _Files(files=(checkpoint,))
    names = _by_rank(name for name in beside if name.endswith(".safetensors"))
    names = names or _by_rank(name for name in beside if _TORCH_WEIGHTS.fullmatch(name))
    expected = _listed_shards(tree, beside) or (_series(names[0]) if names else ())
    there = tuple(beside[name] for name in expected if name in beside)
    if there:
        return _Files(files=there, missing=tuple(name for name in expected if name not in beside))
    return _Files(files=(beside[names[0]],)) if names else None


def _holds_weights(archives: _Archives, checkpoint: RunFile, state: OptimizerState | None) -> bool:
    if state is not None and state.beside_weights is not None:
        return state.beside_weights
    try:
        return bool(torch_weights(archives.of(checkpoint).root))
    except UNREADABLE:
        return False  # told when its optimizer state was read


def _series(name: str) -> tuple[str, ...]:
    """All the shards of which this is one, by its name; itself alone where it is none."""
    found = _SHARD.fullmatch(name)
    if found is None or not 0 < int(found.group(3)) <= _MOST_SHARDS:
        return (name,)
    stem, digits, count, suffix = found.groups()
    return tuple(f"{stem}-{number:0{len(digits)}d}-of-{count}{suffix}" for number in range(1, int(count) + 1))


def _listed_shards(tree: FileTree, beside: Mapping[str, RunFile]) -> tuple[str, ...]:
    """The shards that an index lists, safetensors before others; nothing where there is no index that can be read."""
    for name in sorted((name for name in beside if _INDEX.fullmatch(name)), key=lambda one: (".bin." in one, one)):
        document = _json(tree, beside[name])
        listed = document.get("weight_map") if isinstance(document, dict) else None
        if isinstance(listed, dict):
            shards = sorted({one for one in listed.values() if isinstance(one, str) and is_weights_file(one)})
            if any(one in beside for one in shards[:_MOST_SHARDS]):
                return tuple(shards[:_MOST_SHARDS])
    return ()


def _json(tree: FileTree, file: RunFile) -> Any:
    """What a small JSON file holds, None where it cannot be read: nothing depends on it alone."""
    if file.size > _MOST_INDEX_BYTES:
        return None
    try:
        return parse_json(read_regular(tree.local(file), _MOST_INDEX_BYTES))
    except (*UNREADABLE, ValueError, RecursionError):
        return None


@contextmanager
def _opened(archives: _Archives, files: _Files) -> Iterator[_Opened]:
    """All tensors of the files, while they are open.

    Raises:
        RunError: one of them is none of its kind, or cannot be fetched.
        OSError: one cannot be read.
    """
    with ExitStack() as stack:
        tensors: list[StoredTensor] = []
        stored, near, is_model, unread = False, True, False, 0
        for file in files.files:
            if file.name.endswith(".safetensors"):
                source = archives.tree.open(file)
                tensors += stack.enter_context(open_safetensors(source))
            else:
                archive = archives.of(file)
                source, stored = archive.source, True
                tensors += torch_weights(archive.root)
                is_model, unread = archive.is_model, unread + unread_weights(archive.root)
            near = near and isinstance(source, LocalFile)
            if len(tensors) > MAX_TENSORS:
                raise ReadError(f"its files have more than the {MAX_TENSORS} tensors that are read")
        if len({tensor.name for tensor in tensors}) < len(tensors):
            raise ReadError("two of its shards have a tensor of the same name")
        in_order = stored and not files.missing and is_in_order(tensors)
        yield _Opened(tensors=tensors, in_order=in_order, near=near, is_model=is_model, unread=unread)


def _attribute(
    archives: _Archives, checkpoint: RunFile, state: OptimizerState, opened: _Opened, found: FileEvidence
) -> None:
    """Give the state the names of its parameters, as far as they are certain, and check them by contents."""
    # Imported where there are weights next to the state: a run with logs alone needs none of it.
    from tracker_health.readers.optimizers.attribution import attributed, unattributed

    named = attributed(state, found.weights)
    if named.attribution is Attribution.ASSUMED_ORDER:
        if _has_other_order(archives.tree, checkpoint):
            return
        agree = _contents_agree(archives, checkpoint, named, opened)
        named = unattributed(named) if agree is False else named
        if agree:
            named = replace(named, attribution=Attribution.CONTENT_CHECKED)
    found.optimizer = named


def _has_other_order(tree: FileTree, checkpoint: RunFile) -> bool:
    """Whether the configuration of an adapter says that its model is one whose names mislead."""
    document = _adapter_config(tree, checkpoint)
    told = (document.get("base_model_name_or_path"), document.get("auto_mapping"))
    return bool(_OTHER_ORDER.search(str(told)[:2000]))


def _adapter_settings(tree: FileTree, checkpoint: RunFile) -> tuple[str, tuple[str, ...]]:
    """The task of an adapter, and the modules that are saved whole next to it, by its configuration."""
    document = _adapter_config(tree, checkpoint)
    task, beside = document.get("task_type"), document.get("modules_to_save")
    named = [one for one in beside if isinstance(one, str)] if isinstance(beside, list) else []
    return task[:_MOST_NAME] if isinstance(task, str) else "", tuple(one[:_MOST_NAME] for one in named[:_MOST_NAME])


def _adapter_config(tree: FileTree, checkpoint: RunFile) -> dict[str, Any]:
    """The configuration of an adapter next to a checkpoint; empty where there is none."""
    for file in tree.files:
        if file.folder == checkpoint.folder and file.name == "adapter_config.json":
            document = _json(tree, file)
            if isinstance(document, dict):
                return document
    return {}


def _contents_agree(archives: _Archives, checkpoint: RunFile, state: OptimizerState, opened: _Opened) -> bool | None:
    from tracker_health.readers.optimizers.attribution import names_of
    from tracker_health.readers.tensors.content_check import can_tell, contents_agree

    names = names_of(state)
    if not opened.near or not can_tell(names.values(), state.steps):
        return None
    weights = {tensor.name: tensor.values for tensor in opened.tensors if tensor.values is not None}
    try:
        return contents_agree(names, first_moments(archives.of(checkpoint).root), weights, state.steps)
    except UNREADABLE:
        return None  # what cannot be read cannot tell


def _compare(archives: _Archives, earlier: RunFile, opened: _Opened, found: FileEvidence) -> bool:
    """Compare the open weights to those of an earlier checkpoint; whether anything differs."""
    files = _of(archives, earlier, None)
    if files is None or found.weights is None:
        return False
    try:
        archives.begin_pass()
        with _opened(archives, files) as before:
            by_name = {tensor.name: tensor for tensor in before.tensors}
            moved: tuple[WeightChange, ...] = tuple(changes(opened.tensors, by_name, Budget()))
    except UNREADABLE as error:
        found.cannot_read(files.source, error, [Part.WEIGHT_CHANGES])
        return False
    found.weights = replace(found.weights, previous=files.source, changes=moved)
    return not all(one.unchanged for one in moved)


def _tell_idle_average(archives: _Archives, checkpoint: RunFile, earlier: Earlier, found: FileEvidence) -> None:
    """Find a moving average of the model that never moved.

    It is the same as in the first checkpoint of three or more, and as in the one before. Only the first matrices that
    changed in the model itself are compared.
    """
    weights = found.weights
    known = [one for one in (*earlier.newest, earlier.first) if one is not None]
    if weights is None or weights.source != checkpoint.path or len(known) < _FEWEST_BEFORE:
        return
    changed = {one.name for one in weights.changes if not one.unchanged}
    keys = [_same_average(archives, checkpoint, one, changed) for one in (known[0], known[-1])]
    if keys[0] and keys[0] == keys[1]:
        found.weights = replace(weights, idle_average=keys[0])


def _same_average(archives: _Archives, now: RunFile, before: RunFile, changed: AbstractSet[str]) -> str:
    """The key of a moving average that is the same in two files as far as the model changed; "" where there is none."""
    try:
        (key, average), (other, earlier) = (torch_average(archives.of(one).root) for one in (now, before))
        archives.begin_pass()
        matrices = [one for one in average if len(one.shape) > 1 and one.name in changed][:_MOST_OF_AN_AVERAGE]
        moved = list(changes(matrices, {one.name: one for one in earlier}, Budget()))
    except UNREADABLE:
        return ""  # nothing depends on it
    return key if key == other and moved and all(one.unchanged for one in moved) else ""


def _tell_copies(
    archives: _Archives, checkpoint: RunFile, first: RunFile | None, opened: _Opened, found: FileEvidence
) -> None:
    """Of weights that did not change since the checkpoint before: whether they are the same since the first one."""
    weights = found.weights
    if weights is None or not weights.changes:
        return
    if other := _other_part(archives.tree, checkpoint, weights.source):
        if found.optimizer is None:
            found.weights = replace(weights, previous="", changes=())
            reason = f"nothing changed in {printable(weights.source)}, next to which is {printable(other)}"
            found.missing[Part.WEIGHT_CHANGES] = reason
        return
    files = _of(archives, first, None) if first is not None else None
    if files is not None:
        same = _hold_the_same(archives, files, opened, len(weights.changes))
        found.weights = replace(weights, first=files.source, same_as_first=same)


def _other_part(tree: FileTree, checkpoint: RunFile, source: str) -> str:
    """A file of the same folder that may hold another part of the model, the one that is trained; "" where none may."""
    alike = {series_of(checkpoint.path), series_of(source)}
    beside = (one for one in tree.files if one.folder == checkpoint.folder and _MAY_HOLD_WEIGHTS.search(one.name))
    others = (one.name for one in beside if series_of(one.path) not in alike and not _NO_PART.search(one.name))
    return next(others, "")


def _hold_the_same(archives: _Archives, files: _Files, opened: _Opened, amount: int) -> bool:
    """Whether so many tensors can be compared, and none differs."""
    try:
        archives.begin_pass()
        with _opened(archives, files) as before:
            by_name = {tensor.name: tensor for tensor in before.tensors}
            same = takewhile(lambda one: one.unchanged, changes(opened.tensors, by_name, Budget()))
            return sum(1 for _ in same) == amount
    except UNREADABLE:
        return False  # nothing depends on it
