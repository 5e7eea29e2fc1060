"""From the files of a run to typed evidence.

Stores give a ``FileTree``: a folder's files, or a run's artifacts, which are fetched only when they are read.
"""

from __future__ import annotations

from tracker_health.evidence import Part, Request
from tracker_health.readers.flight_recorder import DUMP
from tracker_health.readers.run_settings import SETTINGS_FILE
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS, is_checkpoint_file, read_checkpoint
from tracker_health.run_files.histories import (
    is_log,
    read_console,
    read_dlm_logs,
    read_live_statistics,
    read_logs,
)
from tracker_health.run_files.summaries import read_dumps, read_gradients, read_settings, read_summary
from tracker_health.run_files.text_logs import texts_among
from tracker_health.run_files.trainer_states import TRAINER_STATE, read_trainer_states
from tracker_health.run_files.tree import FileEvidence, FileTree, RunFile
from tracker_health.words.gap_names import SUMMARY_FILE


def is_relevant(path: str) -> bool:
    """Whether reading may open a file of this path, so that a fingerprint depends on its path and size."""
    name = path.rpartition("/")[2]
    is_other = name == SUMMARY_FILE or DUMP.fullmatch(name) is not None
    return bool(is_log(path) or TRAINER_STATE.fullmatch(name) or is_checkpoint_file(name)) or is_other


def is_settings(name: str) -> bool:
    """Whether a file of this name may hold the settings of a run that no tracker knows. By itself it makes no run."""
    return bool(SETTINGS_FILE.fullmatch(name))


def relevant_files(tree: FileTree) -> tuple[RunFile, ...]:
    """The files that reading may open, by their names and places."""
    return tuple(file for file in tree.files if is_relevant(file.path))


def opened_files(tree: FileTree, *, logs: bool = True) -> tuple[RunFile, ...]:
    """Those, and the texts that reading looks into where ``logs`` are read: a fingerprint depends on all of them."""
    texts = [file for file in (texts_among(tree.files) if logs else ()) if not is_relevant(file.path)]
    return tuple(sorted([*relevant_files(tree), *texts], key=lambda file: file.path))


def read_files(
    tree: FileTree, request: Request, *, logs: bool = True, settings: bool = False, folder_name: str = ""
) -> FileEvidence:
    """The evidence in a run's files that the request needs.

    ``logs`` false: metric histories come from elsewhere. ``settings``: no tracker knows the run's params, so that files
    of settings count. ``folder_name``: what the run's own folder is called, where
    it is one.
    """
    found = FileEvidence()
    read_trainer_states(tree, request, found, folder_name)
    if logs:
        read_logs(tree, request, found)
    else:
        found.series.clear()
        read_live_statistics(tree, request, found)
        if request.needs(Part.TEXT_LOG):
            read_console(tree, request, found)
    if request.needs(Part.DLM_STEP_LOG):
        read_dlm_logs(tree, found)
    if request.needs(*CHECKPOINT_PARTS, Part.PLAN):
        read_checkpoint(tree, request, found)
    read_summary(tree, request, found)
    read_gradients(tree, request, found)
    if request.needs(Part.COLLECTIVES):
        read_dumps(tree, found)
    if settings and (found.names or found.optimizer or found.weights):
        read_settings(tree, found)
    return found
