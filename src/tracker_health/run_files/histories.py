"""Metric histories in a run's files: trainer states and logs of any format, each metric of those that tell most."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from tracker_health.errors import UNREADABLE
from tracker_health.evidence import Part, Problem, RankReports, Request, TextLog
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.roles import RolePlan
from tracker_health.run_files.checkpoints import is_checkpoint_file
from tracker_health.run_files.naming import numbers, saying, series_of
from tracker_health.run_files.several_logs import (
    HISTORY_ROLES,
    OneLog,
    joined,
    judged,
    report_strangers,
    resumed,
    strangers_among,
)
from tracker_health.run_files.text_logs import begins_as_log, is_history, is_notebook, says_output, texts_among
from tracker_health.run_files.trainer_states import TRAINER_STATE
from tracker_health.run_files.tree import FileEvidence, FileTree, RunFile
from tracker_health.text import count, listing, printable
from tracker_health.words.gap_names import GAP_FILE, KINDS, metric

if TYPE_CHECKING:
    from tracker_health.readers.log_formats import Log, LogFormat

_SAYS_LOG = saying("log|logs|metrics?|history|scalars|progress|results?|loss|losses|curves?|training|train_loss")
_SAYS_CONSOLE = saying("log|logs|stdout|stderr|console|output|nohup|slurm")
LOG = re.compile(
    rf"(?:.*\.(?:jsonl|ndjson)|(?:.*\.)?events\.out\.tfevents(?:\..*)?|{_SAYS_LOG}.*\.(?:csv|tsv|json)|summary\.csv|"
    rf".*\.(?:(?:log|out|err|stdout|stderr)(?:\.\d+)?|[oe]\d+)|{_SAYS_CONSOLE}.*\.txt|stdout|stderr|log|"
    r"screenlog(?:\.\d+)?)(?:\.gz)?",
    re.IGNORECASE | re.DOTALL,
)
"""The names of files that may be logs; what they are is recognised by their content."""
_EVENTS = re.compile(r"(?:.*\.)?events\.out\.tfevents(?:\..*)?", re.IGNORECASE | re.DOTALL)
_CONSOLE = re.compile(
    rf"(?:.*\.(?:(?:log|out|err|stdout|stderr)(?:\.\d+)?|[oe]\d+)|{_SAYS_CONSOLE}.*\.txt|stdout|stderr|log|"
    r"screenlog(?:\.\d+)?)(?:\.gz)?",
    re.IGNORECASE | re.DOTALL,
)


_OF_DVCLIVE = re.compile(r"(?:.*/)?plots/metrics/(?P<groups>(?:[^/]+/)*)[^/]+\.tsv", re.DOTALL)
"""A file for each metric, which is called by its path there."""
_DLM_LOG = re.compile(r"(?:(?P<root>.*)/)?logs/train-[^/]*\.jsonl")
_HELD_OUT = re.compile(r"(?:^|[_\-.])(eval|val|valid|validation|test|dev)(?:[_\-.]|$)", re.IGNORECASE)


GAP_ROLES = frozenset(f"gap_{kind}" for kind in KINDS)
_OF_EACH_KIND = tuple(metric(kind, "any", "max") for kind in KINDS)


_FEWEST_UNREAD = 4  # lines


def is_log(path: str) -> bool:
    """Whether a file of this path may be a log, by its name or as DVCLive places them."""
    name = path.rpartition("/")[2]
    return bool(LOG.fullmatch(name) or _OF_DVCLIVE.fullmatch(path)) and not TRAINER_STATE.fullmatch(name)


def read_logs(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """The series of every log, and what the console said besides. Texts of any other name count where they read as a
    log: those called as a training's output is, and others where nothing else has a history.
    """
    reading = _Logs(tree, request, found)
    alone = len(tree.files) == 1
    named = [file for file in tree.files if is_log(file.path) or (alone and is_notebook(file.name))]
    texts = [file for file in texts_among(tree.files) if file not in named]
    reading.take([*named, *(file for file in texts if says_output(file))])
    if not reading.has_history:
        reading.take([file for file in texts if not says_output(file)])
    reading.finish()


class _Logs:
    """The logs of a run that were read."""

    def __init__(self, tree: FileTree, request: Request, found: FileEvidence) -> None:
        self._tree, self._request, self._found = tree, request, found
        self._pieces: dict[str, list[OneLog]] = {}
        self._unread: list[tuple[RunFile, Log]] = []
        self._read: list[Log] = []
        self._unasked: list[tuple[RunFile, Log]] = []
        self._others: list[tuple[RunFile, Log]] = []

    @property
    def has_history(self) -> bool:
        """Whether a loss, or anything else by which a training is judged, was found."""
        logged = [one.role for parts in self._pieces.values() for part in parts for one in part.series]
        return self._found.trainer is not None or not frozenset(HISTORY_ROLES).isdisjoint(logged)

    def take(self, files: list[RunFile]) -> None:
        """Read files, each what its name or its content says."""
        # By number: of a step that two pieces hold, the one in part-10 is newer than the one in part-2.
        files = sorted(files, key=lambda file: (numbers(file.path), file.path))
        for file in files:
            named = is_log(file.path) or (len(self._tree.files) == 1 and is_notebook(file.name))
            if not named and not begins_as_log(self._tree, file, self._request):
                continue
            try:
                log, form = _read_one(self._tree, file, self._request, alone=len(files) == 1)
            except UNREADABLE as error:
                if named:
                    self._found.cannot_read(file.path, error, HISTORY_ROLES)
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
        self._found.odd += log.odd
        _report(self._found, file, log, ())
        self._unasked += [(file, log)] * (not log.series)
        precise = form is None or form.precise
        self._pieces.setdefault(_key_of(file), []).append(OneLog(file.path, log.series, precise))

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
                _report(found, file, log, HISTORY_ROLES)
        found.notes += [
            f"{printable(file.path)}: {log.problem}" for file, log in self._unread if self._pieces and log.problem
        ]
        for file, log in self._unasked if self.has_history else ():
            found.notes.append(_no_rule(file, log))
        logs = resumed([joined(parts) for parts in self._pieces.values()])
        strangers = strangers_among(logs)
        if (
            strangers
            and found.trainer is not None
            and all(_EVENTS.fullmatch(PurePosixPath(path).name) for path in strangers)
        ):
            # Each launch of the Hugging Face Trainer leaves a folder of them below the checkpoints.
            source = printable(found.trainer.source)
            found.notes.append(f"several unrelated logs: {listing(strangers)}; {source} is judged")
            logs = [log for log in logs if log.path not in strangers]
        elif strangers:
            report_strangers(found, "logs", strangers)
            return
        _take_plan(found, self._read)
        if found.trainer is not None:
            logs.insert(0, OneLog(found.trainer.source, found.trainer.series))
        found.series[:] = judged(logs, found.notes)


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
                log = _read(tree, file, request.roles)[0]
                _take_text(found, log)
                found.printed += log.series
            except UNREADABLE as error:
                found.cannot_read(file.path, error, [Part.TEXT_LOG])


def read_live_statistics(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """What ``watch`` wrote into a file, of a run whose other histories come from elsewhere."""
    for file in tree.files:
        if file.name == GAP_FILE and request.roles.needed(_OF_EACH_KIND):
            try:
                log, _ = _read_one(tree, file, request, alone=True)
            except UNREADABLE as error:
                found.cannot_read(file.path, error, GAP_ROLES)
                continue
            _take_names(found, log)
            _report(found, file, log, GAP_ROLES)
            found.series += [one for one in log.series if one.role in GAP_ROLES]


def _key_of(file: RunFile) -> str:
    """What the pieces of one log have in common. Of the event files in a folder each continues where another ended."""
    if _EVENTS.fullmatch(file.name):
        return f"{file.folder}/events"
    return str(PurePosixPath(file.folder, PurePosixPath(series_of(file.path)).name))


def _take_text(found: FileEvidence, log: Log) -> None:
    """Of several console logs the one counts that continues where the others end; else the one that reports an error,
    and of those the one with the history. What ranks report of collective operations is taken from all.
    """
    if log.text is None:
        return
    reports = [one.reports for one in (log.text, found.text_log) if one is not None and one.reports is not None]
    if found.text_log is None or _tells_more(log.text, found.text_log):
        found.text_log = log.text
    if reports:  # each rank may have a console of its own
        found.text_log = replace(found.text_log, reports=RankReports.together(reports))


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
    plan = request.roles.under(_prefix(file, alone=alone))
    log, form = _read(tree, file, plan)
    series = tuple(replace(one, name=plan.name(one.name)) for one in log.series)
    return replace(log, series=series, names=tuple(map(plan.name, log.names))), form


def _read(tree: FileTree, file: RunFile, roles: RolePlan) -> tuple[Log, LogFormat | None]:
    # Here: a folder with nothing but a checkpoint is judged without the formats of logs.
    from tracker_health.readers.log_formats import read_log

    return read_log(tree.local(file), file.path, roles)


def _prefix(file: RunFile, *, alone: bool) -> str:
    """What the metrics of a log are called by: of held-out data its own name or its folder's, of DVCLive its folders'.
    A run may be named "test" as well.
    """
    path, live = PurePosixPath(file.path), _OF_DVCLIVE.fullmatch(file.path)
    if live is not None:
        return live["groups"]
    match = _HELD_OUT.search(path.stem) or _HELD_OUT.fullmatch(path.parent.name)
    if match is None or (alone and match.group(1).lower() == "test"):
        return ""
    return f"{match.group(1).lower()}/"


def _take_names(found: FileEvidence, log: Log) -> None:
    known = set(found.names)
    found.names += [name for name in log.names if name not in known]
    found.params |= log.params


def _take_plan(found: FileEvidence, logs: Collection[Log]) -> None:
    """Take the plan that console logs show, and whether they stopped early.

    The plan is the number of epochs that they count up to, if they agree. Without epochs it is the number of steps, if
    there is only one log.
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
    except UNREADABLE as error:
        found.cannot_read(files[0].folder, error, [Part.DLM_STEP_LOG])
