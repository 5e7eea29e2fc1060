"""The checkpoints among the files of a run, all of them: when each was saved, and whether it holds NaN.

What is judged is one checkpoint, which ``checkpoints`` chooses. This is for the way back.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from tracker_health.errors import UNREADABLE, ReadError, described
from tracker_health.readers.files.random_access import LocalFile
from tracker_health.readers.optimizers.optimizer_state import (
    global_step_of,
    has_optimizer_state_in,
    plain_values,
    steps_in,
)
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.tensors.tensor_values import TensorStatistics
from tracker_health.readers.tensors.weights import Budget
from tracker_health.readers.torch_files.finite import (
    FloatTensor,
    Passed,
    float_tensors_among,
    float_tensors_in,
    passed_over,
)
from tracker_health.readers.torch_files.safe_pickle import Opaque
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_weights import torch_weights
from tracker_health.readers.trainer_state import read_trainer_state
from tracker_health.report.resume_point import NOTHING, CheckpointContents, Counted, Saved
from tracker_health.roles import NOTHING_READ
from tracker_health.run_files.checkpoints import FolderOfRun
from tracker_health.run_files.naming import checkpoints_of, counted, saved_together
from tracker_health.run_files.tree import AboveLimit, FileTree, RunFile
from tracker_health.run_files.weights import is_weights_file
from tracker_health.text import printable

_ANY_CASE = re.IGNORECASE | re.DOTALL
_TORCH = re.compile(
    r".*\.(pt2?|pth|ckpt)|.*\.pth\.tar|(pytorch_model|adapter_model)(-.*)?\.bin|optimizer(_\d+)?\.bin", _ANY_CASE
)
_SAFETENSORS = re.compile(r".*\.safetensors", _ANY_CASE)
_DISTRIBUTED, _INDEX = re.compile(r".*\.distcp", _ANY_CASE), ".metadata"
# What other libraries save: named, and not looked into. Data is in some of these, too.
_OTHER = (".keras", ".weights.h5", ".pdparams")
_PERHAPS = (".h5", ".hdf5", ".npz", ".msgpack", ".index")
_SAYS_CHECKPOINT = re.compile(r"model|checkpoint|ckpt|weights|epoch|step|params")
_NO_PART = re.compile(
    r"(rng_state|random_states|training_args|scheduler|scaler|sampler|dl_state_dict|dataloader).*", _ANY_CASE
)
# Of the weights of a model, which share a folder: the folder is the checkpoint.
_SHARED = re.compile(
    r"((diffusion_|pytorch_)*model|adapter_model)(-\d+-of-\d+)?\.(safetensors|bin)|optimizer(_\d)?\.(pt|bin)"
    r"|training_state\.pt|consolidated.*|.*\.distcp|(bf16_|fp16_)?(zero_pp|mp)_rank_.*", _ANY_CASE
)  # fmt: skip
_OF_A_LAYER = re.compile(r"(.*\.)?(weight|lora_[AB])")
_SAYS_MODEL = re.compile(r"model|checkpoint|ckpt|weights|epoch|step|best|last", _ANY_CASE)
_NO_FOLDERS = frozenset({"sampled_gradients", "full_gradients"})  # of dumped gradients
_TRAINER_STATE = "trainer_state.json"
_EPOCHS = ("epoch", "current_epoch", "epoch_num", "epoch_idx", "last_epoch")
_COUNTERS = ("iter_num", "num_updates", "current_step", "current_iter", "completed_steps", "train_step", "n_iter")
_SAMPLED_ELSEWHERE = 32  # tensors
_WHOLE_ELSEWHERE = 32 * 2**20  # bytes
_PATH_CHARACTERS = 400


class _Unit(NamedTuple):
    """The files of one checkpoint."""

    files: tuple[RunFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def is_model_file(name: str) -> bool:
    """Whether a file of this name may be a part of a checkpoint that one can go on from."""
    if _NO_PART.fullmatch(name):
        return False
    lower = name.lower()
    named = lower.endswith(_PERHAPS) and bool(_SAYS_CHECKPOINT.search(lower))
    return named or lower.endswith(_OTHER) or not _is_only_named(name)


class SavedFiles:
    """See ``resume_point.Shelf``: the checkpoints among files. ``shown``: from a path in the tree to what people call
    it; ``budget``: of bytes, over all of the checkpoints that are looked into.
    """

    def __init__(self, tree: FileTree, shown: Callable[[str], str], budget: Budget | None = None) -> None:
        self._tree = tree
        self._shown = shown
        self._budget = budget or Budget()

    @cached_property
    def _units(self) -> dict[str, _Unit]:
        return {path: _Unit(tuple(files)) for path, files in _of_one_training(_together(self._tree.files)).items()}

    @cached_property
    def _trainer_states(self) -> dict[str, RunFile]:
        return {file.folder: file for file in self._tree.files if file.name == _TRAINER_STATE}

    @cached_property
    def listed(self) -> Sequence[Saved]:
        """All of them."""
        return [
            Saved(
                key=path,
                path=printable(self._shown(path), _PATH_CHARACTERS),
                counted=_by_name(path, unit),
                modified=max((one.modified for one in unit.files if one.modified is not None), default=None),
            )
            for path, unit in self._units.items()
        ]

    def counted(self, saved: Saved) -> Counted:
        """By the trainer state next to it, else by the counters in its own files."""
        unit = self._units[saved.key]
        folders = dict.fromkeys((saved.key or ".", *(file.folder for file in unit.files)))
        state = next((self._trainer_states[one] for one in folders if one in self._trainer_states), None)
        try:
            if state is not None:
                step = read_trainer_state(self._tree.local(state), state.path, NOTHING_READ).global_step
                return Counted(step=step)
            return self._counted_inside(unit, bool(saved.counted))
        except UNREADABLE:
            return NOTHING  # who looks into it says so

    def _counted_inside(self, unit: _Unit, is_named: bool) -> Counted:
        lead = next((file for file in unit.files if _TORCH.fullmatch(file.name)), None)
        if lead is None or (len(unit.files) > 1 and is_named):
            return NOTHING
        with open_torch_archive(self._tree.open(lead)) as archive:
            extras = plain_values(archive.root, TensorStatistics())
            epoch = _first_whole(extras.get(key) for key in _EPOCHS)
            step = global_step_of(extras)
            step = _first_whole(extras.get(key) for key in _COUNTERS) if step is None else step
            if step is None and epoch is None and not is_named:
                step = steps_in(archive.root)
        return Counted(step=step, epoch=epoch)

    def look(self, saved: Saved) -> CheckpointContents:
        """Whether it holds NaN, as far as the budget and the limit on downloads allow."""
        unit = self._units[saved.key]
        known = [file for file in unit.files if not _is_only_named(file.name)]
        if not known:
            kind = unit.files[0].name.rpartition(".")[2]
            return CheckpointContents(unchecked=f"no values are read from files of .{printable(kind, 20)}")
        try:
            return self._looked_into(known)
        except AboveLimit as error:
            return CheckpointContents(unchecked=described(error))
        except _NotRead as error:
            return CheckpointContents(unchecked=error.message)
        except ReadError as error:
            return CheckpointContents(unchecked=described(error), is_broken=True)
        except UNREADABLE as error:
            return CheckpointContents(unchecked=described(error))

    def _looked_into(self, files: Sequence[RunFile]) -> CheckpointContents:
        passes: list[Passed] = []
        models = 0
        for part in _parts(files):
            with self._opened(part) as (tensors, is_near, is_model):
                models += is_model
                some = tensors if is_near else _spread(list(tensors))
                budget = self._budget if is_near else Budget(_WHOLE_ELSEWHERE)
                passes.append(passed_over(some, budget))
            if passes[-1].nonfinite:
                break
        if not models or not any(one.tensors for one in passes):
            return CheckpointContents(is_none=True)
        return CheckpointContents(
            tensors=sum(one.tensors for one in passes),
            in_part=sum(one.in_part for one in passes),
            nonfinite=passes[-1].nonfinite,
        )

    @contextmanager
    def _opened(self, files: Sequence[RunFile]) -> Iterator[tuple[Iterable[FloatTensor], bool, bool]]:
        """The tensors of a file, or of several that belong together, while it is open; whether it is on this machine;
        and whether it is a model's.
        """
        first = files[0]
        if _DISTRIBUTED.fullmatch(first.name):
            from tracker_health.readers.optimizers.distributed_state import float_tensors

            folder = FolderOfRun(self._tree, [file for file in self._tree.files if file.folder == first.folder])
            if _INDEX not in folder.names:
                raise ReadError("its .metadata is missing: it was not saved to its end")
            opened = self._tree.open(first)
            opened.close()
            is_near = isinstance(opened, LocalFile)
            yield float_tensors(folder, _INDEX), is_near, True
            return
        source = self._tree.open(first)
        is_near = isinstance(source, LocalFile)
        with ExitStack() as stack:
            if _SAFETENSORS.fullmatch(first.name):
                stored = stack.enter_context(open_safetensors(source))
                yield float_tensors_among(stored), is_near, True
            else:
                archive = stack.enter_context(open_torch_archive(source))
                is_model = archive.is_model or _is_model(archive.root, first.name)
                yield float_tensors_in(archive.root), is_near, is_model


class _NotRead(ReadError):
    """It may be in order, and is of a kind that is not read."""


def _is_model(root: Any, name: str) -> bool:
    """Whether a saved structure is a model's, and not some data in tensors: by its tensors' names, else by the file's.

    Raises:
        _NotRead: it is an object of some class.
    """
    if isinstance(root, Opaque):
        raise _NotRead(f"it is a pickled object ({printable(root.name, 80)}), which is not rebuilt")
    nested = islice(root.values(), 100) if isinstance(root, Mapping) else ()
    tensors = [one for part in (root, *nested) for one in torch_weights(part)]
    if any(len(one.shape) > 1 and _OF_A_LAYER.fullmatch(one.name) for one in tensors) or has_optimizer_state_in(root):
        return True
    return bool(tensors) and bool(_SAYS_MODEL.search(name))


def _is_only_named(name: str) -> bool:
    return not any(one.fullmatch(name) for one in (_TORCH, _SAFETENSORS, _DISTRIBUTED))


def _parts(files: Sequence[RunFile]) -> list[list[RunFile]]:
    """The files that are opened one by one, weights first, and those of a distributed checkpoint by their folder."""
    by_folder: dict[str, list[RunFile]] = defaultdict(list)
    alone: list[RunFile] = []
    for file in files:
        if _DISTRIBUTED.fullmatch(file.name):
            by_folder[file.folder].append(file)
        else:
            alone.append(file)
    return [*([one] for one in sorted(alone, key=lambda one: not is_weights_file(one.name))), *by_folder.values()]


def _spread(tensors: list[FloatTensor]) -> list[FloatTensor]:
    """A few of them from the first to the last: of a file elsewhere each costs a request."""
    if len(tensors) <= _SAMPLED_ELSEWHERE:
        return tensors
    return [tensors[place * (len(tensors) - 1) // (_SAMPLED_ELSEWHERE - 1)] for place in range(_SAMPLED_ELSEWHERE)]


def _together(files: Iterable[RunFile]) -> dict[str, list[RunFile]]:
    """The files that may be of checkpoints, by the path of the checkpoint; "" for those in the run's own folder."""
    units: dict[str, list[RunFile]] = defaultdict(list)
    for file in files:
        if is_model_file(file.name) and _NO_FOLDERS.isdisjoint(file.path.split("/")):
            is_part = bool(_SHARED.fullmatch(file.name))
            path = saved_together(file.path, is_part=is_part)
            if path == file.path and is_part:
                path = "" if file.folder == "." else file.folder
            units[path].append(file)
    return units


def _of_one_training(units: dict[str, list[RunFile]]) -> dict[str, list[RunFile]]:
    """Those that one training left: of several series the one of which there are most, then that of the largest files
    in the same place; none where it is not clear.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for path in units:
        groups[checkpoints_of(path)].append(path)
    if len(groups) < 2:
        return units

    def rank(paths: list[str]) -> tuple[int, int]:
        return len(paths), sum(file.size for path in paths for file in units[path])

    first, second, *_ = sorted(groups.values(), key=rank, reverse=True)
    beside = {path.rpartition("/")[0] for path in (first[0], second[0])}
    if len(first) == len(second) and len(beside) > 1:
        return {}
    return {path: units[path] for path in first}


def _by_name(path: str, unit: _Unit) -> Counted:
    own = counted(path) if path else NOTHING
    return own or next((one for file in unit.files if (one := counted(_named(file)))), NOTHING)


def _named(file: RunFile) -> str:
    """What says when a file was saved: of one of several parts its folder."""
    return file.folder if _SHARED.fullmatch(file.name) else file.path


def _first_whole(values: Iterable[object]) -> int | None:
    for value in values:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**53:
            return int(value)
    return None
