"""From the files of a run to typed evidence: which files count, which checkpoint is newest, what readers make of them.

Stores give a ``FileTree``: a folder's files, or a run's artifacts, which are fetched only when they are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from tracker_health.errors import ReadError, RunError
from tracker_health.evidence import (
    DlmCheckpoint,
    DlmStepLog,
    OptimizerState,
    Part,
    Problem,
    Request,
    RunInfo,
    Series,
    Weights,
)
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.optimizer_state import dangerous, has_optimizer_state, read_optimizer_state
from tracker_health.readers.safetensors_header import read_safetensors_header
from tracker_health.readers.step_log import read_step_log
from tracker_health.readers.trainer_state import TrainerState, read_trainer_state
from tracker_health.text import listing, printable


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A file of a run: path relative to the run, size in bytes, modification time in seconds where it is known."""

    path: str
    size: int
    modified: float | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def folder(self) -> str:
        return str(PurePosixPath(self.path).parent)


class FileTree(Protocol):
    """The files of a run."""

    @property
    def files(self) -> tuple[RunFile, ...]:
        """All of them, sorted by path."""

    def local(self, file: RunFile) -> Path:
        """Where the file can be read, after fetching it if need be.

        Raises:
            RunError: it cannot be fetched.
        """


@dataclass
class FileEvidence:
    """What the files of a run gave."""

    series: list[Series] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    trainer: TrainerState | None = None
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    problems: list[Problem] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def info(self, status: str = "") -> RunInfo:
        trainer = self.trainer
        return RunInfo(
            status=status,
            params=self.params,
            metric_names=tuple(self.names),
            global_step=trainer.global_step if trainer else None,
            epoch=trainer.epoch if trainer else None,
            snapshot=trainer is not None and not trainer.finished and _is_checkpoint_folder(trainer.source),
        )


_STATE_PARTS = (Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.OPTIMIZER_STEPS, Part.DLM_CHECKPOINT)
_CHECKPOINT_PARTS = (*_STATE_PARTS, Part.WEIGHTS)
_KNOWN_STATES = re.compile(r"(training_state\.pt|optimizer\.(pt|bin))", re.IGNORECASE)
_POSSIBLE_STATES = re.compile(r".*\.(pt|pth|ckpt|bin|tar)", re.IGNORECASE)
_NEVER_STATES = re.compile(
    r"(rng_state.*|random_states.*|training_args\.bin|scheduler\..*|scaler\..*|pytorch_model.*|adapter_model\..*|consolidated.*)",
    re.IGNORECASE,
)
_MAX_CANDIDATES = 50
_STEP_LOG = re.compile(r".*\.(jsonl|ndjson)", re.IGNORECASE)
_TRAINER_STATE = re.compile(r"trainer_state.*\.json", re.IGNORECASE)
_DLM_LOG = re.compile(r"(?:(?P<root>.*)/)?logs/train-[^/]*\.jsonl")
_HELD_OUT = re.compile(r"(?:^|[_\-.])(eval|val|valid|validation|test|dev)(?:[_\-.]|$)", re.IGNORECASE)


def relevant_files(tree: FileTree) -> tuple[RunFile, ...]:
    """The files that reading may open, and on whose paths and sizes a fingerprint therefore hangs."""
    return tuple(
        file
        for file in tree.files
        if _STEP_LOG.fullmatch(file.name)
        or _TRAINER_STATE.fullmatch(file.name)
        or file.name.endswith(".safetensors")
        or _may_be_state(file.name)
    )


def read_files(tree: FileTree, request: Request, *, logs: bool = True) -> FileEvidence:
    """The evidence in a run's files that the request needs. ``logs`` false: metric histories come from elsewhere."""
    found = FileEvidence()
    _read_trainer_states(tree, request, found)
    if logs:
        _read_step_logs(tree, request, found)
    elif found.trainer is not None:
        found.series.clear()
    if request.needs(Part.DLM_STEP_LOG):
        _read_dlm_logs(tree, found)
    if request.needs(*_CHECKPOINT_PARTS):
        _read_checkpoint(tree, request, found)
    return found


def _cannot_read(found: FileEvidence, source: str, error: Exception, roles: Iterable[str]) -> None:
    message = error.message if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
    hint = f" ({error.hint})" if isinstance(error, RunError) and error.hint else ""
    found.problems.append(Problem(source=printable(source), message=f"{message}{hint}", roles=frozenset(roles)))


# Metric histories


def _read_trainer_states(tree: FileTree, request: Request, found: FileEvidence) -> None:
    states = []
    for file in tree.files:
        if _TRAINER_STATE.fullmatch(file.name):
            try:
                states.append(read_trainer_state(tree.local(file), file.path, request.select_names))
            except (RunError, OSError) as error:
                _cannot_read(found, file.path, error, _SERIES_ROLES)
    if not states:
        return
    longest = max(states, key=lambda state: (len(state.loss_by_step), state.global_step or 0))
    strangers = [state.source for state in states if not _same_run(state, longest)]
    if strangers:
        several = listing([longest.source, *strangers])
        message = f"several unrelated trainer states: {several}; give the folder of one run"
        found.problems.append(Problem(source="trainer_state.json", message=message, roles=frozenset(_SERIES_ROLES)))
        return
    found.trainer = longest
    found.series += longest.series
    found.names += longest.names
    found.params |= longest.params


_SERIES_ROLES = ("train_loss", "val_loss", Part.PLAN)


def _same_run(state: TrainerState, longest: TrainerState) -> bool:
    """Checkpoints of one run repeat the history up to them."""
    shared = state.loss_by_step.keys() & longest.loss_by_step.keys()
    if not shared:
        return not state.loss_by_step or not longest.loss_by_step
    return all(
        state.loss_by_step[step] == longest.loss_by_step[step] or state.loss_by_step[step] != state.loss_by_step[step]
        for step in shared
    )


def _read_step_logs(tree: FileTree, request: Request, found: FileEvidence) -> None:
    pieces: dict[tuple[str, str], list[Series]] = {}
    # By number: of a step that two pieces hold, the one in part-10 is newer than the one in part-2.
    for file in sorted(tree.files, key=lambda file: (_numbers(file.path), file.path)):
        if not _STEP_LOG.fullmatch(file.name):
            continue
        held_out = _HELD_OUT.search(PurePosixPath(file.name).stem)
        prefix = f"{held_out.group(1).lower()}/" if held_out else ""
        try:
            log = read_step_log(tree.local(file), file.path, request.select_names, prefix)
        except (RunError, OSError) as error:
            _cannot_read(found, file.path, error, _SERIES_ROLES)
            continue
        known = set(found.names)
        found.names += [name for name in log.names if name not in known]
        found.params |= log.params
        if log.problem:
            roles = () if log.series else _SERIES_ROLES
            found.problems.append(Problem(source=printable(file.path), message=log.problem, roles=frozenset(roles)))
        for series in log.series:
            pieces.setdefault((_pattern(file.path), series.name), []).append(series)
    found.series += [_joined(parts) for parts in pieces.values()]


def _joined(parts: list[Series]) -> Series:
    """One series of the pieces that numbered files of one kind hold (a log that goes on after each restart)."""
    if len(parts) == 1:
        return parts[0]
    return Series(
        name=parts[0].name,
        role=parts[0].role,
        source=f"{parts[0].source} and {len(parts) - 1} more",
        step_unit=parts[0].step_unit,
        steps=np.concatenate([part.steps for part in parts]),
        values=np.concatenate([part.values for part in parts]),
    )


def _read_dlm_logs(tree: FileTree, found: FileEvidence) -> None:
    roots: dict[str, list[RunFile]] = {}
    for file in tree.files:
        match = _DLM_LOG.fullmatch(file.path)
        if match:
            roots.setdefault(match.group("root") or "", []).append(file)
    if not roots:
        return
    # The outermost logs folder is the store's own.
    files = min(roots.items(), key=lambda item: (item[0].count("/") + bool(item[0]), item[0]))[1]
    files.sort(key=lambda file: file.name)
    try:
        found.dlm_step_log = read_dlm_step_log([(file.path, tree.local(file)) for file in files])
    except (RunError, OSError) as error:
        _cannot_read(found, files[0].folder, error, [Part.DLM_STEP_LOG])


# Checkpoints


def _may_be_state(name: str) -> bool:
    return bool(_POSSIBLE_STATES.fullmatch(name)) and not _NEVER_STATES.fullmatch(name)


def _read_checkpoint(tree: FileTree, request: Request, found: FileEvidence) -> None:
    candidates = _candidates(tree, request, found)
    if not candidates:
        if request.checkpoint is not None:
            message = "the run has no such checkpoint; give a file, or a folder with training_state.pt or optimizer.pt"
            source = printable(request.checkpoint)
            found.problems.append(Problem(source=source, message=message, roles=frozenset(_STATE_PARTS)))
        return
    patterns = {_pattern(file.path): file for file in candidates}
    if len(patterns) > 1:
        several = listing(sorted(file.path for file in patterns.values()))
        reason = f"several unrelated checkpoints: {several}; choose one with --checkpoint PATH"
        found.missing |= dict.fromkeys(_CHECKPOINT_PARTS, reason)
        return
    chosen = max(candidates, key=lambda file: _age_key(tree, file))
    try:
        state = read_optimizer_state(tree.local(chosen), chosen.path)
    except (RunError, OSError) as error:
        _cannot_read(found, chosen.path, error, _STATE_PARTS)
        return
    found.optimizer = state if state.global_step is not None else replace(state, global_step=_step_beside(tree, chosen))
    _report_dangerous(found, state)
    _read_weights(tree, chosen, found)
    if chosen.name == "training_state.pt" and request.needs(Part.DLM_CHECKPOINT):
        _describe_dlm_checkpoint(tree, chosen, state, found)


def _candidates(tree: FileTree, request: Request, found: FileEvidence) -> list[RunFile]:
    """The files to take optimizer state from: the chosen one, else those of a known name, else those that hold some."""
    if request.checkpoint is not None:
        wanted = PurePosixPath(request.checkpoint)
        return [
            file
            for file in tree.files
            if PurePosixPath(file.path) == wanted
            or (wanted in PurePosixPath(file.path).parents and _KNOWN_STATES.fullmatch(file.name))
        ]
    known = [file for file in tree.files if _KNOWN_STATES.fullmatch(file.name)]
    if known:
        return known
    possible = sorted((file for file in tree.files if _may_be_state(file.name)), key=lambda file: _numbers(file.path))
    # One of each series of checkpoints is looked into: the newest.
    newest = {_pattern(file.path): file for file in possible}
    holding = {
        pattern
        for pattern, file in list(newest.items())[:_MAX_CANDIDATES]
        if _holds_state(tree, file, found, alone=len(newest) == 1)
    }
    return [file for file in possible if _pattern(file.path) in holding]


def _holds_state(tree: FileTree, file: RunFile, found: FileEvidence, *, alone: bool) -> bool:
    """Whether a file of any name holds optimizer state. One that cannot be read is told where it is all there is."""
    try:
        path = tree.local(file)
    except (RunError, OSError) as error:
        _cannot_read(found, file.path, error, ())
        return False
    try:
        return has_optimizer_state(path)
    except (ReadError, OSError) as error:
        if alone:
            _cannot_read(found, file.path, error, _STATE_PARTS)
        return False


def _age_key(tree: FileTree, file: RunFile) -> tuple[int, tuple[int, ...], float]:
    step = _step_beside(tree, file)
    return (-1 if step is None else step, _numbers(file.path), file.modified or 0.0)


def _step_beside(tree: FileTree, file: RunFile) -> int | None:
    """The global step of the trainer state in the same folder."""
    for other in tree.files:
        if other.folder == file.folder and other.name == "trainer_state.json":
            try:
                return read_trainer_state(tree.local(other), other.path, lambda _: {}).global_step
            except (RunError, OSError):
                return None  # already told as a problem of its own
    return None


def _numbers(path: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", path))


def _pattern(path: str) -> str:
    """The path with its numbers masked: checkpoints of one series differ in them alone."""
    return re.sub(r"\d+", "#", path)


def _is_checkpoint_folder(path: str) -> bool:
    return bool(re.fullmatch(r"(.*/)?checkpoint-\d+/[^/]*", path))


def _report_dangerous(found: FileEvidence, state: OptimizerState) -> None:
    names = dangerous(state.stubs)
    if names:
        called = f"its pickle asks to call {listing(list(names))}; nothing was run"
        message = f"{called}, but whoever loads this file without weights_only=True runs it"
        found.problems.append(Problem(source=printable(state.source), message=message))


def _read_weights(tree: FileTree, checkpoint: RunFile, found: FileEvidence) -> None:
    beside = [file for file in tree.files if file.folder == checkpoint.folder and file.name.endswith(".safetensors")]
    for file in sorted(beside, key=lambda one: (one.name != "adapter_model.safetensors", one.name))[:1]:
        try:
            found.weights = read_safetensors_header(tree.local(file), file.path)
        except (RunError, OSError) as error:
            _cannot_read(found, file.path, error, [Part.WEIGHTS])


def _describe_dlm_checkpoint(tree: FileTree, checkpoint: RunFile, state: OptimizerState, found: FileEvidence) -> None:
    step = state.extras.get("global_step")
    if isinstance(step, bool) or not isinstance(step, (int, float)) or not float(step).is_integer():
        return
    names, reason = None, "weights file missing"
    if found.weights is not None and PurePosixPath(found.weights.source).name == "adapter_model.safetensors":
        names = tuple(tensor.name for tensor in found.weights.tensors)
    elif any(file.folder == checkpoint.folder and file.name == "adapter_model.safetensors" for file in tree.files):
        reason = "weights file unreadable"
    found.dlm_checkpoint = DlmCheckpoint(
        state=state, global_step=int(step), weight_names=names, weights_reason=reason if names is None else ""
    )
