"""The checkpoint of a run: which file it is, and the optimizer state and weights in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from tracker_health.errors import UNREADABLE, ReadError, RunError, described
from tracker_health.evidence import DlmCheckpoint, OptimizerState, Part, Problem, Request
from tracker_health.readers.checkpoint_formats import FORMATS, CheckpointFormat, NameMatch
from tracker_health.readers.checkpoint_formats.torch_file import TorchFile
from tracker_health.readers.files.folder import Folder
from tracker_health.readers.files.random_access import RandomAccess
from tracker_health.readers.optimizers.optimizer_state import dangerous
from tracker_health.readers.trainer_state import read_trainer_state
from tracker_health.roles import NOTHING_READ
from tracker_health.run_files.model_files import nothing_read_from, of_other_formats
from tracker_health.run_files.naming import age, checkpoints_of, numbers, series_of
from tracker_health.run_files.tree import AboveLimit, FileEvidence, FileTree, RunFile
from tracker_health.run_files.weights import (
    Earlier,
    holds_model,
    is_pickled_model,
    is_weights_file,
    pickled_reason,
    read_weights,
    weights_lead,
    why_not_alone,
)
from tracker_health.text import listing, printable

_STATE_PARTS = (Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.OPTIMIZER_STEPS, Part.DLM_CHECKPOINT)
# A loss scale or a schedule is in few checkpoints: that one cannot be read is no error of the rule on it.
CHECKPOINT_PARTS = (*_STATE_PARTS, Part.SAVED_LOSS_SCALE, Part.SAVED_SCHEDULE, Part.WEIGHTS, Part.WEIGHT_CHANGES)
_STATE_ROLES = frozenset(_STATE_PARTS)
_MAX_CANDIDATES = 50
_STEPS_COMPARED = 3
_NEWEST_TRIED = 3


def is_checkpoint_file(name: str) -> bool:
    """Whether a file of this name may be part of a checkpoint that is read, or reported."""
    return is_weights_file(name) or any(one.belongs(name) for one in FORMATS)


class FolderOfRun:
    """See ``Folder``: one folder of a run."""

    def __init__(self, tree: FileTree, files: Sequence[RunFile]) -> None:
        self._tree = tree
        self._files = {file.name: file for file in files}
        self.names = tuple(self._files)

    def open(self, name: str) -> RandomAccess:
        return self._tree.open(self._files[name])


@dataclass(frozen=True, eq=False)
class _Candidate:
    """What may be a checkpoint: its format, the file that shows it, and what is next to that."""

    format: CheckpointFormat
    lead: RunFile
    sign: NameMatch
    beside: Folder

    @property
    def series(self) -> str:
        """The same for the checkpoints that one run leaves one after the other."""
        return series_of(self.lead.path)


def read_checkpoint(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """Take the newest checkpoint's optimizer state, and what is next to it."""
    candidates = _candidates(tree, request, found)
    if not candidates:
        if request.checkpoint is not None:
            message = "the run has no such checkpoint; give a file, or a folder with training_state.pt or optimizer.pt"
            found.problems.append(Problem(source=printable(request.checkpoint), message=message, roles=_STATE_ROLES))
            return
        if reason := _why_none(tree):
            found.missing |= dict.fromkeys(CHECKPOINT_PARTS, reason)
        elif request.needs(Part.WEIGHTS):
            _read_weights_alone(tree, request, found)
        return
    patterns = {checkpoints_of(candidate.lead.path): candidate.lead for candidate in candidates}
    if len(patterns) > 1:
        several = listing(sorted(file.path for file in patterns.values()))
        reason = f"several unrelated checkpoints: {several}; choose one with --checkpoint PATH"
        found.missing |= dict.fromkeys(CHECKPOINT_PARTS, reason)
        found.notes.append(reason)
        return
    leads = [candidate.lead for candidate in candidates]
    steps = _steps_of_folders(tree, leads)
    newest = max(candidates, key=lambda candidate: _age_key(steps, candidate.lead))
    chosen = newest.lead
    try:
        state = newest.format.read(newest.beside, chosen.name, chosen.path)
    except UNREADABLE as error:
        found.cannot_read(chosen.path, error, _STATE_PARTS)
        return
    found.optimizer = state if state.global_step is not None else replace(state, global_step=_step_of(steps, chosen))
    found.notes += state.notes
    found.read.add(chosen.path)
    _report_dangerous(found, state)
    read_weights(tree, chosen, _before(chosen, leads, steps), request, found)
    if found.weights is None:
        _read_own_weights(newest, found)
    if chosen.name == "training_state.pt" and request.needs(Part.DLM_CHECKPOINT):
        _describe_dlm_checkpoint(tree, chosen, state, found)


def _read_weights_alone(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """Take the newest weights that are next to no optimizer state, where all there are belong together."""
    leads = [lead for files in _by_folder(tree).values() if (lead := weights_lead(files)) is not None]
    if not leads:
        known = [one.lead for one in _all_candidates(tree) if isinstance(one.format, TorchFile)]
        newest = {series_of(lead.path): lead for lead in sorted(known, key=lambda one: numbers(one.path))}
        holding = {key for key, lead in list(newest.items())[:_MAX_CANDIDATES] if holds_model(tree, lead)}
        leads = [lead for lead in known if series_of(lead.path) in holding]
        pickled = [lead for lead in newest.values() if not leads and is_pickled_model(tree, lead)]
        if pickled:
            found.missing |= dict.fromkeys((Part.WEIGHTS, Part.WEIGHT_CHANGES), pickled_reason(pickled[0].path))
    if not leads and (others := of_other_formats(tree.files)):
        reason = nothing_read_from(others)
        found.missing = dict.fromkeys((Part.WEIGHTS, Part.WEIGHT_CHANGES), reason) | found.missing
    patterns = {checkpoints_of(lead.path): lead for lead in leads}
    if len(patterns) > 1:
        several = listing(sorted(file.path for file in patterns.values()))
        reason = f"several unrelated weights: {several}"
        found.missing |= dict.fromkeys((Part.WEIGHTS, Part.WEIGHT_CHANGES), reason)
        found.notes.append(reason)
    elif leads:
        steps = _steps_of_folders(tree, leads)
        chosen = max(leads, key=lambda lead: _age_key(steps, lead))
        try:
            reason = why_not_alone(tree, chosen)
        except UNREADABLE as error:
            if not isinstance(error, AboveLimit):
                message = f"it cannot be read: {described(error)}"
                found.doubtful.append(Problem(source=printable(chosen.path), message=message))
            reason = f"{printable(chosen.path)} cannot be read: {described(error)}"
        if reason:
            found.missing |= dict.fromkeys((Part.WEIGHTS, Part.WEIGHT_CHANGES), reason)
        else:
            read_weights(tree, chosen, _before(chosen, leads, steps), request, found)


def _by_folder(tree: FileTree) -> dict[str, list[RunFile]]:
    folders: dict[str, list[RunFile]] = defaultdict(list)
    for file in tree.files:
        folders[file.folder].append(file)
    return folders


def _all_candidates(tree: FileTree) -> list[_Candidate]:
    """Every file that may report a checkpoint, by the first format that knows it."""
    found = []
    for files in _by_folder(tree).values():
        beside, left = FolderOfRun(tree, files), {file.name: file for file in files}
        for one in FORMATS:
            signs = one.leads(tuple(left))
            found += [_Candidate(one, left[name], sign, beside) for name, sign in signs.items()]
            if signs:
                left = {name: file for name, file in left.items() if not one.belongs(name)}
    return found


def _candidates(tree: FileTree, request: Request, found: FileEvidence) -> list[_Candidate]:
    """The checkpoints to take optimizer state from: the chosen one, else those of a sure name, else those with some."""
    every = _all_candidates(tree)
    if request.checkpoint is not None:
        return _chosen(tree, every, PurePosixPath(request.checkpoint), found)
    sure = [candidate for candidate in every if candidate.sign is NameMatch.SURE]
    return sure or _holding(sorted(every, key=lambda one: numbers(one.lead.path)), found)


def _chosen(tree: FileTree, every: list[_Candidate], wanted: PurePosixPath, found: FileEvidence) -> list[_Candidate]:
    """The checkpoint of a path that the user gave: a file's, whatever its name, or those in a folder."""
    for file in tree.files:
        if PurePosixPath(file.path) == wanted:
            return _of_file(every, tree, file)
    inside = [candidate for candidate in every if wanted in PurePosixPath(candidate.lead.path).parents]
    known = [candidate for candidate in inside if candidate.sign is NameMatch.SURE]
    likely = [candidate for candidate in inside if candidate.sign is NameMatch.LIKELY]
    return known or (_holding(likely, found) if len(likely) > 1 else likely)


def _of_file(every: list[_Candidate], tree: FileTree, file: RunFile) -> list[_Candidate]:
    """The checkpoint that a file is of; a file of an unknown name counts as one of ``torch.save``."""
    there = [one for one in every if one.lead.folder == file.folder and one.format.belongs(file.name)]
    exact = [one for one in there if one.lead == file]
    part_of = [one for one in there if one.sign > NameMatch.POSSIBLE and not isinstance(one.format, TorchFile)]
    if exact or part_of:
        return (exact or part_of)[:1]
    beside = FolderOfRun(tree, [one for one in tree.files if one.folder == file.folder])
    return [_Candidate(TorchFile(), file, NameMatch.SURE, beside)]


def _holding(possible: list[_Candidate], found: FileEvidence) -> list[_Candidate]:
    """Those that hold optimizer state, by one of each series: the newest that can be read, and those before it."""
    series: dict[str, list[_Candidate]] = {}
    for candidate in sorted(possible, key=lambda one: age(one.lead.path), reverse=True):
        series.setdefault(candidate.series, []).append(candidate)
    # Names that say nothing but "checkpoint" first.
    likely = sorted(series.values(), key=lambda some: bool(checkpoints_of(some[0].lead.name)))
    holding = []
    for some in likely[:_MAX_CANDIDATES]:
        unread: list[tuple[RunFile, RunError | OSError]] = []
        for candidate in some[:_NEWEST_TRIED]:
            try:
                holds = candidate.format.holds_state(candidate.beside, candidate.lead.name)
            except UNREADABLE as error:
                unread.append((candidate.lead, error))
                continue
            holding += some[len(unread) :] if holds else []
            break
        of_checkpoints = some[-1] in holding
        for lead, why in unread:
            if of_checkpoints or _is_told(lead, why, alone=len(series) == 1):
                found.cannot_read(lead.path, why, ())
    return holding


def _is_told(lead: RunFile, error: RunError | OSError, *, alone: bool) -> bool:
    """Whether it is worth a word that a file of any name cannot be read: where it is all there is, say. Such a file may
    as well hold weights or data.
    """
    if isinstance(error, (ReadError, OSError)) and not isinstance(error, AboveLimit):
        return alone and not lead.name.lower().endswith((".tar", ".bin"))
    return True


def _why_none(tree: FileTree) -> str:
    """Why the run's files make up no checkpoint, where some are of one."""
    for folder, files in _by_folder(tree).items():
        names = [file.name for file in files]
        for reason in filter(None, (one.why_not(names) for one in FORMATS)):
            return f"{reason}: {folder}"
    return ""


def _age_key(steps: dict[str, int], file: RunFile) -> tuple[int, tuple[float, int, tuple[int, ...]], float]:
    step = _step_of(steps, file)
    return (-1 if step is None else step, age(file.path), file.modified or 0.0)


def _step_of(steps: dict[str, int], file: RunFile) -> int | None:
    """The step of the trainer state next to a file, or in the folder above: ``checkpoint-10/optimizer_0/.metadata``."""
    return steps.get(file.folder, steps.get(str(PurePosixPath(file.folder).parent)))


def _steps_of_folders(tree: FileTree, candidates: list[RunFile]) -> dict[str, int]:
    """The global step of the trainer state in a folder, for the newest few candidates by name."""
    newest = sorted(candidates, key=lambda file: age(file.path))[-_STEPS_COMPARED:]
    folders = {folder for file in newest for folder in (file.folder, str(PurePosixPath(file.folder).parent))}
    steps = {}
    for file in tree.files:
        if file.folder in folders and file.name == "trainer_state.json":
            try:
                step = read_trainer_state(tree.local(file), file.path, NOTHING_READ).global_step
            except UNREADABLE:
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


def _before(chosen: RunFile, candidates: list[RunFile], steps: dict[str, int]) -> Earlier:
    """The checkpoint before the chosen one, of the same series, and the first; where there is none (``last.pt`` next to
    numbered ones) the newest two others, of which the first may be a copy.
    """
    key = partial(_age_key, steps)
    older = sorted((file for file in candidates if key(file) < key(chosen)), key=key, reverse=True)
    alike = [file for file in older if series_of(file.path) == series_of(chosen.path)]
    return Earlier(alike[:1] or older[:2], alike[-1] if len(alike) > 1 else None)


def _read_own_weights(candidate: _Candidate, found: FileEvidence) -> None:
    """The weights that a checkpoint keeps in its own files."""
    lead = candidate.lead
    try:
        found.weights = candidate.format.weights(candidate.beside, lead.name, lead.path)
    except UNREADABLE as error:
        found.cannot_read(lead.path, error, [Part.WEIGHTS])


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
