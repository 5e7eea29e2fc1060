"""Metric histories in a run's files: trainer states and step logs, pieced together where they belong together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import PurePosixPath

import numpy as np

from tracker_health.errors import RunError
from tracker_health.evidence import Part, Problem, Request, Series
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.step_log import StepLog, read_step_log
from tracker_health.readers.trainer_state import TrainerState, read_trainer_state
from tracker_health.stores.tree import FileEvidence, FileTree, RunFile, masked_name, numbers, series_of
from tracker_health.text import listing, printable

STEP_LOG = re.compile(r".*\.(jsonl|ndjson)|(scalars|metrics|result|.*\.log)\.json|log\.txt", re.IGNORECASE)
# MMEngine, detectron2, Ray Tune, MMCV, DETR: JSON lines as well, but others put something else under these names.
_PERHAPS_A_LOG = re.compile(r".*\.(json|txt)", re.IGNORECASE)
TRAINER_STATE = re.compile(r"trainer_state.*\.json", re.IGNORECASE)

_DLM_LOG = re.compile(r"(?:(?P<root>.*)/)?logs/train-[^/]*\.jsonl")
_HELD_OUT = re.compile(r"(?:^|[_\-.])(eval|val|valid|validation|test|dev)(?:[_\-.]|$)", re.IGNORECASE)
_CHECKPOINT_FOLDER = re.compile(r"checkpoint-\d+", re.IGNORECASE)
_BESIDE_A_CHECKPOINT = re.compile(r"optimizer\.(pt|bin)|scheduler\.pt|rng_state.*\.pth", re.IGNORECASE)
_HISTORY_ROLES = ("train_loss", "val_loss", "objective_loss", Part.PLAN)
_NEWEST_TRIED = 3
_LOGS_COMPARED = 100

SelectNames = Callable[[Iterable[str]], Mapping[str, str]]


# Trainer states


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
        _report_strangers(found, "trainer states", [longest.source, *strangers])
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
            return read_trainer_state(tree.local(file), file.path, request.select_names)
        except (RunError, OSError) as error:
            found.cannot_read(file.path, error, _HISTORY_ROLES if file is files[:_NEWEST_TRIED][-1] else ())
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
    return bool(_CHECKPOINT_FOLDER.fullmatch(name)) or beside or state.at_save_step


# Step logs


@dataclass(frozen=True)
class _Log:
    """A step log, of one file or of the pieces of several; ``path`` is the first one's."""

    path: str
    series: tuple[Series, ...]


def read_step_logs(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """The series of every JSON lines log."""
    # By number: of a step that two pieces hold, the one in part-10 is newer than the one in part-2.
    files = sorted(
        (file for file in tree.files if STEP_LOG.fullmatch(file.name)), key=lambda file: (numbers(file.path), file.path)
    )
    pieces: dict[str, list[_Log]] = {}
    unread: list[tuple[RunFile, StepLog]] = []
    for file in files:
        try:
            log = _read_one(tree, file, request, alone=len(files) == 1)
        except (RunError, OSError) as error:
            found.cannot_read(file.path, error, _HISTORY_ROLES)
            continue
        if _PERHAPS_A_LOG.fullmatch(file.name):
            if not log.names:
                continue
            log = replace(log, problem="")
        if not log.names:
            unread.append((file, log))
            continue
        _take_names(found, log)
        _report(found, file, log, ())
        key = str(PurePosixPath(file.folder, PurePosixPath(series_of(file.path)).name))
        pieces.setdefault(key, []).append(_Log(file.path, log.series))
    if not pieces:
        # Without a single step they are no logs, unless they are all there is.
        for file, log in unread:
            found.params |= log.params
            _report(found, file, log, _HISTORY_ROLES)
    logs = [_joined(parts) for parts in pieces.values()]
    strangers = _strangers(logs)
    if strangers:
        _report_strangers(found, "logs", strangers)
        return
    found.series += [series for log in logs for series in log.series]


def _read_one(tree: FileTree, file: RunFile, request: Request, *, alone: bool) -> StepLog:
    prefix = _held_out_prefix(file, alone=alone)
    renamed: dict[str, str] = {}

    def select(names: Iterable[str]) -> Mapping[str, str]:
        for name in names:
            known = request.select_names([name]).get(name) == "val_loss"
            renamed[name] = name if known else prefix + name
        roles = request.select_names(renamed.values())
        return {name: roles[new] for name, new in renamed.items() if new in roles}

    log = read_step_log(tree.local(file), file.path, select)
    return replace(
        log,
        series=tuple(replace(series, name=renamed[series.name]) for series in log.series),
        names=tuple(renamed.get(name, name) for name in log.names),
    )


def _held_out_prefix(file: RunFile, *, alone: bool) -> str:
    """What a log of held-out data is called by: its own name or its folder's. A run may be named "test" as well."""
    path = PurePosixPath(file.path)
    match = _HELD_OUT.search(path.stem) or _HELD_OUT.fullmatch(path.parent.name)
    if match is None or (alone and match.group(1).lower() == "test"):
        return ""
    return f"{match.group(1).lower()}/"


def _take_names(found: FileEvidence, log: StepLog) -> None:
    known = set(found.names)
    found.names += [name for name in log.names if name not in known]
    found.params |= log.params


def _report(found: FileEvidence, file: RunFile, log: StepLog, roles: Iterable[str]) -> None:
    if log.problem:
        found.problems.append(Problem(source=printable(file.path), message=log.problem, roles=frozenset(roles)))


def _joined(pieces: list[_Log]) -> _Log:
    """One log of the pieces that numbered files hold: each goes on where a restart began, and replaces what came
    after.
    """
    parts: dict[str, list[Series]] = {}
    for piece in pieces:
        for series in piece.series:
            parts.setdefault(series.name, []).append(series)
    return _Log(pieces[0].path, tuple(_continued(series) for series in parts.values()))


def _continued(parts: list[Series]) -> Series:
    joined = parts[0]
    for part in parts[1:]:
        before = joined.steps < (part.steps.min() if len(part) else np.iinfo(np.int64).max)
        joined = replace(
            joined,
            source=f"{parts[0].source} and {len(parts) - 1} more",
            steps=np.concatenate([joined.steps[before], part.steps]),
            values=np.concatenate([joined.values[before], part.values]),
        )
    return joined


def _strangers(logs: list[_Log]) -> list[str]:
    """The logs that are of different runs: kept apart by folder or number, and at odds about the same steps."""
    names = Counter(series.name for log in logs for series in log.series if series.role in _HISTORY_ROLES)
    shared = {name for name, count in names.items() if count > 1}
    odd: dict[str, None] = {}
    for one, other in combinations(logs[:_LOGS_COMPARED], 2) if shared else ():
        if _kept_apart(one.path, other.path) and _at_odds(one, other, shared):
            odd |= dict.fromkeys((one.path, other.path))
    return list(odd)


def _kept_apart(one: str, other: str) -> bool:
    first, second = PurePosixPath(one), PurePosixPath(other)
    if first.parent == second.parent:
        return masked_name(first.name) == masked_name(second.name)
    return first.parent not in second.parents and second.parent not in first.parents


def _at_odds(one: _Log, other: _Log, names: set[str]) -> bool:
    others = {series.name: series.clean() for series in other.series if series.name in names}
    for series in one.series:
        if series.name in others:
            mine, theirs = series.clean(), others[series.name]
            _, here, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
            if not np.array_equal(mine.values[here], theirs.values[there], equal_nan=True):
                return True
    return False


def _report_strangers(found: FileEvidence, kind: str, paths: list[str]) -> None:
    message = f"several unrelated {kind}: {listing(paths)}; give the folder of one run"
    found.problems.append(Problem(source=printable(paths[0]), message=message, roles=frozenset(_HISTORY_ROLES)))


# The step log of the original rules


def read_dlm_logs(tree: FileTree, found: FileEvidence) -> None:
    """The outermost ``logs/train-*.jsonl``, by the conventions of the rule ``training-drift``."""
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
        found.cannot_read(files[0].folder, error, [Part.DLM_STEP_LOG])
