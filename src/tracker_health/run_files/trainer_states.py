"""The trainer states among a run's files: the longest history of them, and whether it tells where the run ended."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import PurePosixPath

from tracker_health.errors import UNREADABLE
from tracker_health.evidence import Request
from tracker_health.readers.trainer_state import TrainerState, read_trainer_state
from tracker_health.run_files.naming import numbers, series_of
from tracker_health.run_files.several_logs import HISTORY_ROLES, report_strangers
from tracker_health.run_files.tree import FileEvidence, FileTree, RunFile

TRAINER_STATE = re.compile(r"trainer_state.*\.json", re.IGNORECASE)
_CHECKPOINT_FOLDER = re.compile(r"checkpoint-\d+", re.IGNORECASE)
_BESIDE_A_CHECKPOINT = re.compile(r"optimizer\.(pt|bin)|scheduler\.pt|rng_state.*\.pth", re.IGNORECASE)
_NEWEST_TRIED = 3
_OVERDUE, _OVERDUE_SECONDS, _LEAST_SECONDS = 3.0, 300.0, 0.5


def read_trainer_states(tree: FileTree, request: Request, found: FileEvidence, folder_name: str) -> None:
    """Take the longest history of the trainer states that are there; ``folder_name``: what the run's own folder is
    called.
    """
    groups: dict[str, list[RunFile]] = {}
    for file in sorted(tree.files, key=lambda file: numbers(file.path), reverse=True):
        if TRAINER_STATE.fullmatch(file.name):
            groups.setdefault(series_of(file.path), []).append(file)
    states = [state for files in groups.values() if (state := _newest_readable(tree, files, request, found))]
    if not states:
        return
    longest = max(states, key=lambda state: (len(state.loss_by_step), state.global_step or 0))
    strangers = [state.source for state in states if not _same_run(state, longest)]
    if strangers:
        report_strangers(found, "trainer states", [longest.source, *strangers])
        return
    found.trainer = longest
    found.snapshot = _is_snapshot(tree, longest, folder_name)
    found.series += longest.series
    found.names += longest.names
    found.params |= longest.params


def _newest_readable(
    tree: FileTree, files: list[RunFile], request: Request, found: FileEvidence
) -> TrainerState | None:
    """The newest of a run's trainer states; if that was cut short by a crash, the one before it."""
    for file in files[:_NEWEST_TRIED]:
        try:
            return read_trainer_state(tree.local(file), file.path, request.roles)
        except UNREADABLE as error:
            found.cannot_read(file.path, error, HISTORY_ROLES if file is files[:_NEWEST_TRIED][-1] else ())
    return None


def _same_run(state: TrainerState, longest: TrainerState) -> bool:
    """Checkpoints of one run repeat the history up to them."""
    shared = state.loss_by_step.keys() & longest.loss_by_step.keys()
    if not shared:
        return not state.loss_by_step or not longest.loss_by_step
    return all(
        state.loss_by_step[step] == longest.loss_by_step[step] or state.loss_by_step[step] != state.loss_by_step[step]
        for step in shared
    )


def _is_snapshot(tree: FileTree, state: TrainerState, folder_name: str) -> bool:
    """Whether a trainer state was written with a checkpoint in mid-training, so that it cannot tell where the run
    ended.
    """
    if state.finished:
        return False
    folder = str(PurePosixPath(state.source).parent)
    name = PurePosixPath(folder_name, folder).name
    beside = any(file.folder == folder and _BESIDE_A_CHECKPOINT.fullmatch(file.name) for file in tree.files)
    in_training = bool(_CHECKPOINT_FOLDER.fullmatch(name)) or beside or state.at_save_step
    return in_training and not _is_overdue(tree, state)


def _is_overdue(tree: FileTree, state: TrainerState) -> bool:
    """Whether the checkpoint that would come next, before the plan's end, is missing for far longer than it took: in a
    folder that holds several, by when they were written, unless all are of one time, as of a copy or an archive.
    """
    around = PurePosixPath(state.source).parent.parent
    written = {
        int(folder.name.partition("-")[2]): file.modified
        for file in tree.files
        if TRAINER_STATE.fullmatch(file.name)
        and (folder := PurePosixPath(file.folder)).parent == around
        and _CHECKPOINT_FOLDER.fullmatch(folder.name)
        and file.modified is not None
    }
    if len(written) < 2 or state.max_steps is None or max(written) != state.global_step:
        return False
    steps, times = zip(*sorted(written.items()), strict=True)
    due = steps[-1] + min(later - earlier for earlier, later in pairwise(steps))
    took = max(later - earlier for earlier, later in pairwise(times))
    newest: float = max(file.modified for file in tree.files if file.modified is not None)
    patience: float = max(_OVERDUE * took, _OVERDUE_SECONDS)
    return took >= _LEAST_SECONDS and due <= state.max_steps and time.time() - newest > patience
