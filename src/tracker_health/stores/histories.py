"""Metric histories in a run's files: trainer states and logs of any format, each metric of those that tell most."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from tracker_health.errors import RunError
from tracker_health.evidence import Part, Problem, Request, Series, TextLog
from tracker_health.gap_names import GAP_FILE, KINDS, metric
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.trainer_state import TrainerState, read_trainer_state
from tracker_health.roles import ANY_LOSS
from tracker_health.stores.agreement import agree, canonical, comparable, difference
from tracker_health.stores.checkpoints import is_checkpoint_file
from tracker_health.stores.naming import numbers, saying, series_of
from tracker_health.stores.texts import begins_as_log, is_history, says_output, texts_among
from tracker_health.stores.tree import FileEvidence, FileTree, RunFile
from tracker_health.text import count, listing, printable, without_numbers

if TYPE_CHECKING:
    from tracker_health.readers.log_formats import Log, LogFormat, SelectNames

_SAYS_LOG = saying("log|logs|metrics?|history|scalars|progress|results?|loss|losses|curves?|training|train_loss")
_SAYS_CONSOLE = saying("log|logs|stdout|stderr|console|output|nohup|slurm")
LOG = re.compile(
    rf"(?:.*\.(?:jsonl|ndjson)|(?:.*\.)?events\.out\.tfevents(?:\..*)?|{_SAYS_LOG}.*\.(?:csv|tsv|json)|summary\.csv|"
    rf".*\.(?:(?:log|out|err|stdout|stderr)(?:\.\d+)?|[oe]\d+)|{_SAYS_CONSOLE}.*\.txt|stdout|stderr|log|"
    r"screenlog(?:\.\d+)?)(?:\.gz)?",
    re.IGNORECASE | re.DOTALL,
)
"""The names of files that may be logs; what they are is told by their content."""
_EVENTS = re.compile(r"(?:.*\.)?events\.out\.tfevents(?:\..*)?", re.IGNORECASE | re.DOTALL)
_CONSOLE = re.compile(
    rf"(?:.*\.(?:(?:log|out|err|stdout|stderr)(?:\.\d+)?|[oe]\d+)|{_SAYS_CONSOLE}.*\.txt|stdout|stderr|log|"
    r"screenlog(?:\.\d+)?)(?:\.gz)?",
    re.IGNORECASE | re.DOTALL,
)
TRAINER_STATE = re.compile(r"trainer_state.*\.json", re.IGNORECASE)

_DLM_LOG = re.compile(r"(?:(?P<root>.*)/)?logs/train-[^/]*\.jsonl")
_HELD_OUT = re.compile(r"(?:^|[_\-.])(eval|val|valid|validation|test|dev)(?:[_\-.]|$)", re.IGNORECASE)
_CHECKPOINT_FOLDER = re.compile(r"checkpoint-\d+", re.IGNORECASE)
_BESIDE_A_CHECKPOINT = re.compile(r"optimizer\.(pt|bin)|scheduler\.pt|rng_state.*\.pth", re.IGNORECASE)
_HISTORY_ROLES = (*sorted(ANY_LOSS), Part.PLAN)
GAP_ROLES = frozenset(f"gap_{kind}" for kind in KINDS)
_OF_EACH_KIND = tuple(metric(kind, "any", "max") for kind in KINDS)
_NEWEST_TRIED = 3
_LOGS_COMPARED = 100
_RESUMED = re.compile(r"[._ -]?(resumed?|restarted)(?![a-z])", re.IGNORECASE)
_FEWEST_UNREAD = 4  # lines
_A_FEW = 5  # lines of a log
_OVERDUE, _OVERDUE_SECONDS, _LEAST_SECONDS = 3.0, 300.0, 0.5


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


# Logs


@dataclass(frozen=True)
class _Log:
    """A log, of one file or of the pieces of several; ``path`` is the first one's. ``precise``: see ``LogFormat``."""

    path: str
    series: tuple[Series, ...]
    precise: bool = True


def is_log(name: str) -> bool:
    """Whether a file of this name may be a log."""
    return bool(LOG.fullmatch(name)) and not TRAINER_STATE.fullmatch(name)


def read_logs(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """The series of every log, and what the console said besides. Texts of any other name count where they read as a
    log: those called as a training's output is, and others where nothing else has a history.
    """
    reading = _Logs(tree, request, found)
    texts = [file for file in texts_among(tree.files) if not is_log(file.name)]
    named = [file for file in tree.files if is_log(file.name)]
    reading.take([*named, *(file for file in texts if says_output(file))])
    if not reading.has_history:
        reading.take([file for file in texts if not says_output(file)])
    reading.finish()


class _Logs:
    """The logs of a run that were read."""

    def __init__(self, tree: FileTree, request: Request, found: FileEvidence) -> None:
        self._tree, self._request, self._found = tree, request, found
        self._pieces: dict[str, list[_Log]] = {}
        self._unread: list[tuple[RunFile, Log]] = []
        self._read: list[Log] = []
        self._unasked: list[tuple[RunFile, Log]] = []
        self._others: list[tuple[RunFile, Log]] = []

    @property
    def has_history(self) -> bool:
        """Whether a loss, or anything else by which a training is judged, was found."""
        logged = [one.role for parts in self._pieces.values() for part in parts for one in part.series]
        return self._found.trainer is not None or not frozenset(_HISTORY_ROLES).isdisjoint(logged)

    def take(self, files: list[RunFile]) -> None:
        """Read files, each what its name or its content says."""
        # By number: of a step that two pieces hold, the one in part-10 is newer than the one in part-2.
        files = sorted(files, key=lambda file: (numbers(file.path), file.path))
        for file in files:
            named = is_log(file.name)
            if not named and not begins_as_log(self._tree, file, self._request):
                continue
            try:
                log, form = _read_one(self._tree, file, self._request, alone=len(files) == 1)
            except (RunError, OSError) as error:
                if named:
                    self._found.cannot_read(file.path, error, _HISTORY_ROLES)
            else:
                if named or is_history(log):
                    self._take_one(file, log, form)
                elif log.names and not log.series:
                    self._others.append((file, log))

    def _take_one(self, file: RunFile, log: Log, form: LogFormat | None) -> None:
        _take_text(self._found, log)
        self._read.append(log)
        if not log.series and log.unread >= _FEWEST_UNREAD:
            self._found.unread.append(file.path)
            self._found.notes.append(
                f"{printable(file.path)}: {count(log.unread, 'line')} with numbers were not understood"
            )
        if not log.names:
            self._unread += [(file, log)] * _is_sure(file)
            return
        _take_names(self._found, log)
        _report(self._found, file, log, ())
        self._unasked += [(file, log)] * (not log.series)
        precise = form is None or form.precise
        self._pieces.setdefault(_key_of(file), []).append(_Log(file.path, log.series, precise))

    def finish(self) -> None:
        """Give what was read: each metric of the log that has most of it."""
        found = self._found
        if not self._pieces and not any(is_checkpoint_file(file.name) for file in self._tree.files):
            for file, log in self._others:
                _take_names(found, log)
                found.notes.append(_no_rule(file, log))
        if not self._pieces:
            # Without a single step they are no logs, unless they are all there is.
            for file, log in self._unread:
                found.params |= log.params
                _report(found, file, log, _HISTORY_ROLES)
        found.notes += [
            f"{printable(file.path)}: {log.problem}" for file, log in self._unread if self._pieces and log.problem
        ]
        for file, log in self._unasked if self.has_history else ():
            found.notes.append(_no_rule(file, log))
        logs = _resumed([_joined(parts) for parts in self._pieces.values()])
        strangers = _strangers(logs)
        if (
            strangers
            and found.trainer is not None
            and all(_EVENTS.fullmatch(PurePosixPath(path).name) for path in strangers)
        ):
            # Each launch of the Hugging Face Trainer leaves a folder of them below the checkpoints.
            judged = printable(found.trainer.source)
            found.notes.append(f"several unrelated logs: {listing(strangers)}; {judged} is judged")
            logs = [log for log in logs if log.path not in strangers]
        elif strangers:
            _report_strangers(found, "logs", strangers)
            return
        _take_plan(found, self._read)
        if found.trainer is not None:
            logs.insert(0, _Log(found.trainer.source, found.trainer.series))
        found.series[:] = _judged(logs, found.notes)


def _no_rule(file: RunFile, log: Log) -> str:
    return f"{printable(file.path)}: no rule asks for what was logged there: {listing([*log.names])}"


def _is_sure(file: RunFile) -> bool:
    from tracker_health.readers.log_formats import promised_by

    return promised_by(file.name) is not None


def read_console(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """What the console logs say besides numbers, of a run whose histories come from elsewhere, and which numbers they
    print of those.
    """
    for file in tree.files:
        if _CONSOLE.fullmatch(file.name):
            try:
                log = _read(tree, file, request.select_names)[0]
                _take_text(found, log)
                found.printed += log.series
            except (RunError, OSError) as error:
                found.cannot_read(file.path, error, [Part.TEXT_LOG])


def read_live_statistics(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """What ``watch`` wrote into a file, of a run whose other histories come from elsewhere."""
    for file in tree.files:
        if file.name == GAP_FILE and request.select_names(_OF_EACH_KIND):
            try:
                log, _ = _read_one(tree, file, request, alone=True)
            except (RunError, OSError) as error:
                found.cannot_read(file.path, error, GAP_ROLES)
                continue
            _take_names(found, log)
            _report(found, file, log, GAP_ROLES)
            found.series += [one for one in log.series if one.role in GAP_ROLES]


def _key_of(file: RunFile) -> str:
    """What the pieces of one log have in common. Of the event files in a folder each goes on where another ended."""
    if _EVENTS.fullmatch(file.name):
        return f"{file.folder}/events"
    return str(PurePosixPath(file.folder, PurePosixPath(series_of(file.path)).name))


def _take_text(found: FileEvidence, log: Log) -> None:
    """Of several console logs the one counts that goes on where the others end; else the one that tells of a trouble,
    and of those the one with the history.
    """
    if log.text is not None and (found.text_log is None or _tells_more(log.text, found.text_log)):
        found.text_log = log.text


def _tells_more(one: TextLog, other: TextLog) -> bool:
    if _goes_on_after(one, other) or _goes_on_after(other, one):
        return _goes_on_after(one, other)
    return (bool(one.troubles), one.rows, one.lines) > (bool(other.troubles), other.rows, other.lines)


def _goes_on_after(one: TextLog, other: TextLog) -> bool:
    """Whether a log is that of a later attempt: it begins in the last half of the other, and comes further."""
    if one.span is None or other.span is None:
        return False
    return one.span[1] > other.span[1] and 2 * one.span[0] > sum(other.span)


def _read_one(tree: FileTree, file: RunFile, request: Request, *, alone: bool) -> tuple[Log, LogFormat | None]:
    prefix = _held_out_prefix(file, alone=alone)
    renamed: dict[str, str] = {}

    def select(names: Iterable[str]) -> Mapping[str, str]:
        known = list(names)
        for name in known:
            if name not in renamed:
                held_out = bool(prefix) and request.select_names([name]).get(name) == "val_loss"
                renamed[name] = name if held_out else prefix + name
        roles = request.select_names([renamed[name] for name in known])
        return {name: roles[renamed[name]] for name in known if renamed[name] in roles}

    log, form = _read(tree, file, select)
    series = tuple(replace(series, name=renamed[series.name]) for series in log.series)
    return replace(log, series=series, names=tuple(renamed.get(name, prefix + name) for name in log.names)), form


def _read(tree: FileTree, file: RunFile, select: SelectNames) -> tuple[Log, LogFormat | None]:
    # Here: a folder with nothing but a checkpoint is judged without the formats of logs.
    from tracker_health.readers.log_formats import read_log

    return read_log(tree.local(file), file.path, select)


def _held_out_prefix(file: RunFile, *, alone: bool) -> str:
    """What a log of held-out data is called by: its own name or its folder's. A run may be named "test" as well."""
    path = PurePosixPath(file.path)
    match = _HELD_OUT.search(path.stem) or _HELD_OUT.fullmatch(path.parent.name)
    if match is None or (alone and match.group(1).lower() == "test"):
        return ""
    return f"{match.group(1).lower()}/"


def _take_names(found: FileEvidence, log: Log) -> None:
    known = set(found.names)
    found.names += [name for name in log.names if name not in known]
    found.params |= log.params


def _take_plan(found: FileEvidence, logs: Collection[Log]) -> None:
    """The number of epochs that console logs count up to, where none says another one, or of steps, where one alone
    did and they were not done; and that they stopped early.
    """
    said = {log.epochs for log in logs if log.epochs is not None}
    if len(said) == 1:
        found.printed_plan = {"num_train_epochs": str(said.pop())}
        found.printed_epoch = max((log.epoch for log in logs if log.epoch is not None), default=None)
    elif not said and len(logs) == 1:
        (log,) = logs
        if log.steps is not None:
            found.printed_plan = {"max_steps": str(log.steps)}
            found.printed_step = max((int(one.steps[-1]) for one in log.series if len(one)), default=None)
    if any(log.stopped_early for log in logs):
        found.params.setdefault("early_stopping", "said in the console log")


def _report(found: FileEvidence, file: RunFile, log: Log, roles: Iterable[str]) -> None:
    if log.note:
        found.notes.append(f"{printable(file.path)}: {log.note}")
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
    precise = all(piece.precise for piece in pieces)
    return _Log(pieces[0].path, tuple(_continued(series) for series in parts.values()), precise)


def _resumed(logs: list[_Log]) -> list[_Log]:
    """The logs, with those that a restart wrote to a file of another name put behind the one they go on from: called
    as that is, but for a word that says so (``train_resumed.log``), and beginning where all that they share ends.
    """
    found = {one.path: one for one in logs if not _RESUMED.search(PurePosixPath(one.path).name)}
    for log in (one for one in logs if _RESUMED.search(PurePosixPath(one.path).name)):
        path = PurePosixPath(log.path)
        before = found.get(str(path.parent / _RESUMED.sub("", path.name, count=1)))
        if before is not None and _goes_on(log, before):
            found[before.path] = _joined([before, log])
        else:
            found[log.path] = log
    return list(found.values())


def _goes_on(log: _Log, other: _Log) -> bool:
    """Whether one log begins within a few lines of where the other one ends, by all that both have."""
    known = {one.name: one for one in other.series if len(one)}
    shared = [(known[one.name], one) for one in log.series if one.name in known and len(one)]
    return any(one.role in _HISTORY_ROLES for _, one in shared) and all(
        0 < int(after.steps.min()) - int(before.steps.max()) <= _A_FEW * _apart(before) for before, after in shared
    )


def _apart(series: Series) -> int:
    """How many steps lie between two points, as a rule."""
    steps = np.unique(series.steps)
    return int(np.median(np.diff(steps))) if len(steps) > 1 else max(1, int(steps[0]))


def _continued(parts: list[Series]) -> Series:
    if all(part.times is not None and len(part) for part in parts):
        parts = sorted(parts, key=lambda part: float(part.times[0]) if part.times is not None else 0.0)
    joined = parts[0]
    for part in parts[1:]:
        before = joined.steps < (part.steps.min() if len(part) else np.iinfo(np.int64).max)
        timed = joined.times is not None and part.times is not None
        joined = replace(
            joined,
            source=f"{parts[0].source} and {len(parts) - 1} more",
            steps=np.concatenate([joined.steps[before], part.steps]),
            values=np.concatenate([joined.values[before], part.values]),
            times=np.concatenate([joined.times[before], part.times]) if timed else None,  # type: ignore[index]
        )
    return joined


# One metric in several logs


def _judged(logs: list[_Log], notes: list[str]) -> list[Series]:
    """The series of all logs, each metric from the log that has most of it; ``notes`` gets what the others say."""
    same: dict[tuple[str | None, str], list[tuple[_Log, Series]]] = {}
    for log in logs:
        for series in log.series:
            same.setdefault((series.role, canonical(series.name)), []).append((log, series))
    left_out: set[int] = set()
    agreeing: dict[tuple[str, str], list[str]] = {}
    for candidates in same.values():
        best_log, best = max(candidates, key=lambda one: (len(one[1].clean()), one[0].precise))
        for log, series in candidates:
            if log is best_log or not comparable(best, series):
                continue
            left_out.add(id(series))
            odd = difference(best, series, precise=log.precise and best_log.precise)
            if odd:
                notes.append(f"log integrity: {odd}")
            else:
                agreeing.setdefault((best.source, series.source), []).append(series.name)
    for (judged, other), names in agreeing.items():
        notes.append(f"{printable(other)} agrees with {printable(judged)}, which is judged, on {listing(names)}")
    return [series for log in logs for series in log.series if id(series) not in left_out]


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
        return without_numbers(first.name) == without_numbers(second.name)
    return first.parent not in second.parents and second.parent not in first.parents


def _at_odds(one: _Log, other: _Log, names: set[str]) -> bool:
    others = {series.name: series.clean() for series in other.series if series.name in names}
    for series in one.series:
        if series.name in others:
            mine, theirs = series.clean(), others[series.name]
            _, here, there = np.intersect1d(mine.steps, theirs.steps, return_indices=True)
            if not comparable(series, others[series.name]):
                continue
            if not agree(mine.values[here], theirs.values[there], precise=one.precise and other.precise).all():
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
