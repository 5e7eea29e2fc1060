"""The checkpoint of a run: which file it is, and the optimizer state and weights in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

from tracker_health.errors import ReadError, RunError
from tracker_health.evidence import DlmCheckpoint, OptimizerState, Part, Problem, Request
from tracker_health.readers.optimizer_state import dangerous, has_optimizer_state, read_optimizer_state
from tracker_health.readers.safetensors_header import read_safetensors_header
from tracker_health.readers.trainer_state import read_trainer_state
from tracker_health.stores.tree import FileEvidence, FileTree, RunFile, numbers, series_of
from tracker_health.text import listing, printable

_STATE_PARTS = (Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.OPTIMIZER_STEPS, Part.DLM_CHECKPOINT)
CHECKPOINT_PARTS = (*_STATE_PARTS, Part.WEIGHTS)
_KNOWN_STATES = re.compile(r"(training_state\.pt|optimizer\.(pt|bin))", re.IGNORECASE)
_POSSIBLE_STATES = re.compile(r".*\.(pt|pth|ckpt|bin|tar)", re.IGNORECASE)
_NEVER_STATES = re.compile(
    r"(rng_state.*|random_states.*|training_args\.bin|scheduler\..*|scaler\..*|pytorch_model.*|adapter_model\..*"
    r"|consolidated.*)",
    re.IGNORECASE,
)
_NOT_READ_YET = re.compile(r".*\.distcp|(bf16_|fp16_)?zero_pp_rank_.*\.pt", re.IGNORECASE)
_MAX_CANDIDATES = 50
_STEPS_COMPARED = 3


def is_checkpoint_file(name: str) -> bool:
    """Whether a file of this name may be part of a checkpoint that is read, or told of."""
    return name.endswith(".safetensors") or bool(_NOT_READ_YET.fullmatch(name)) or _may_be_state(name)


def _may_be_state(name: str) -> bool:
    return bool(_POSSIBLE_STATES.fullmatch(name)) and not _NEVER_STATES.fullmatch(name)


def read_checkpoint(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """Take the newest checkpoint's optimizer state, and what lies beside it."""
    candidates = _candidates(tree, request, found)
    if not candidates:
        if request.checkpoint is not None:
            message = "the run has no such checkpoint; give a file, or a folder with training_state.pt or optimizer.pt"
            source = printable(request.checkpoint)
            found.problems.append(Problem(source=source, message=message, roles=frozenset(_STATE_PARTS)))
        elif unread := [file.path for file in tree.files if _NOT_READ_YET.fullmatch(file.name)]:
            reason = f"a checkpoint of a format that is not read: {listing(unread, 2)}"
            found.missing |= dict.fromkeys(CHECKPOINT_PARTS, reason)
        return
    patterns = {series_of(file.path): file for file in candidates}
    if len(patterns) > 1:
        several = listing(sorted(file.path for file in patterns.values()))
        reason = f"several unrelated checkpoints: {several}; choose one with --checkpoint PATH"
        found.missing |= dict.fromkeys(CHECKPOINT_PARTS, reason)
        return
    steps = _steps_of_folders(tree, candidates)
    chosen = max(candidates, key=lambda file: _age_key(steps, file))
    try:
        state = read_optimizer_state(tree.local(chosen), chosen.path)
    except (RunError, OSError) as error:
        found.cannot_read(chosen.path, error, _STATE_PARTS)
        return
    found.optimizer = state if state.global_step is not None else replace(state, global_step=steps.get(chosen.folder))
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
    possible = sorted((file for file in tree.files if _may_be_state(file.name)), key=lambda file: numbers(file.path))
    # One of each series of checkpoints is looked into: the newest.
    newest = {series_of(file.path): file for file in possible}
    holding = {
        pattern
        for pattern, file in list(newest.items())[:_MAX_CANDIDATES]
        if _holds_state(tree, file, found, alone=len(newest) == 1)
    }
    return [file for file in possible if series_of(file.path) in holding]


def _holds_state(tree: FileTree, file: RunFile, found: FileEvidence, *, alone: bool) -> bool:
    """Whether a file of any name holds optimizer state. One that cannot be read is told where it is all there is.

    Told without roles: under such a name it may as well hold weights or data.
    """
    try:
        path = tree.local(file)
    except (RunError, OSError) as error:
        found.cannot_read(file.path, error, ())
        return False
    try:
        return has_optimizer_state(path)
    except (ReadError, OSError) as error:
        if alone and not file.name.lower().endswith((".tar", ".bin")):
            found.cannot_read(file.path, error, ())
        return False


def _age_key(steps: dict[str, int], file: RunFile) -> tuple[int, tuple[int, ...], float]:
    return (steps.get(file.folder, -1), numbers(file.path), file.modified or 0.0)


def _steps_of_folders(tree: FileTree, candidates: list[RunFile]) -> dict[str, int]:
    """The global step of the trainer state in a folder, for the newest few candidates by number."""
    newest = sorted(candidates, key=lambda file: numbers(file.path))[-_STEPS_COMPARED:]
    folders = {file.folder for file in newest}
    steps = {}
    for file in tree.files:
        if file.folder in folders and file.name == "trainer_state.json":
            try:
                step = read_trainer_state(tree.local(file), file.path, lambda _: {}).global_step
            except (RunError, OSError):
                continue  # told as a problem of its own
            if step is not None:
                steps[file.folder] = step
    return steps


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
            found.cannot_read(file.path, error, [Part.WEIGHTS])


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
