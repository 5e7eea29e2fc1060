"""The files of a run, wherever they lie, and what reading them gives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from tracker_health.errors import ReadError, RunError
from tracker_health.evidence import (
    DlmCheckpoint,
    DlmStepLog,
    Evidence,
    OptimizerState,
    Problem,
    RunInfo,
    RunRef,
    Series,
    TextLog,
    Weights,
)
from tracker_health.readers.random_access import LocalFile, RandomAccess
from tracker_health.readers.trainer_state import TrainerState
from tracker_health.stores.agreement import disagreements
from tracker_health.text import printable


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A file of a run: path relative to the run, size in bytes, modification time in seconds where it is known."""

    path: str
    size: int
    modified: float | None = None

    @cached_property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @cached_property
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

    def open(self, file: RunFile) -> RandomAccess:
        """The file, to be read in parts: of one that is elsewhere, only those parts are fetched where that pays.

        Raises:
            RunError: it cannot be fetched, or is no regular file.
            OSError: it cannot be read.
        """
        return LocalFile(self.local(file))


class AboveLimit(ReadError):
    """A file is larger than what may be downloaded."""


@dataclass
class FileEvidence:
    """What the files of a run gave. ``above_limit``: what may not be downloaded, which is for its store to explain.
    ``printed``: what console logs have of the metrics, where those come from a tracker.
    """

    series: list[Series] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    trainer: TrainerState | None = None
    optimizer: OptimizerState | None = None
    weights: Weights | None = None
    dlm_step_log: DlmStepLog | None = None
    dlm_checkpoint: DlmCheckpoint | None = None
    text_log: TextLog | None = None
    printed: list[Series] = field(default_factory=list)
    snapshot: bool = False
    problems: list[Problem] = field(default_factory=list)
    above_limit: list[Problem] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def cannot_read(self, source: str, error: RunError | OSError, roles: Iterable[str]) -> None:
        """Note that a file could not be read, and which parts that takes away."""
        if isinstance(error, RunError):
            message = f"{error.message} ({error.hint})" if error.hint else error.message
        else:
            message = f"it cannot be read: {error.strerror or type(error).__name__}"
        problems = self.above_limit if isinstance(error, AboveLimit) else self.problems
        problems.append(Problem(source=printable(source), message=message, roles=frozenset(roles)))

    def evidence(self, run: RunRef, tracked: Tracked | None = None, *, problems: Iterable[Problem] = ()) -> Evidence:
        """All of it as evidence of a run, with what its tracker knows. ``problems``: more of them."""
        known, trainer = tracked or Tracked(), self.trainer
        info = RunInfo(
            status=known.status,
            params={**self.params, **known.params},
            metric_names=tuple(dict.fromkeys([*known.names, *self.names])),
            global_step=trainer.global_step if trainer else None,
            epoch=trainer.epoch if trainer else None,
            snapshot=self.snapshot,
        )
        return Evidence(
            run=run,
            info=info,
            series=(*known.series, *self.series),
            optimizer=self.optimizer,
            weights=self.weights,
            dlm_step_log=self.dlm_step_log,
            dlm_checkpoint=self.dlm_checkpoint,
            text_log=self.text_log,
            notes=(*self.notes, *disagreements(known.series, self.printed)),
            problems=(*problems, *self.problems),
            missing=self.missing,
        )


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What a tracker itself knows of a run: its params come before those in files, and so do its histories."""

    status: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    names: Iterable[str] = ()
    series: Sequence[Series] = ()


# Folders of which a trainer leaves one after the other in a single run. A number in any other folder tells runs apart,
# and so does one in a file after a word that says so.
_CHECKPOINT_FOLDER = re.compile(
    r"(.*[-_=.])?(checkpoint|ckpt|chkpt|global_?step|step|epoch|iter|iteration|part)s?[-_=.]?\d.*|v\d+", re.IGNORECASE
)
_OF_ITS_OWN = re.compile(
    r"(.*[-_.])?(run|seed|fold|trial|exp|experiment|job|rank|worker|optimizer)[-_=.]?\d.*", re.IGNORECASE
)


_LAST = frozenset({"last", "latest", "final", "newest"})
_WHICH_ONE = _LAST.union(
    ("best", "model", "checkpoint", "ckpt", "chkpt", "weights", "epoch", "ep", "step", "steps", "iter", "iteration"),
    ("global", "v", "val", "valid", "loss", "acc", "accuracy", "score", "metric", "#"),
)


def is_plain(path: str) -> bool:
    """Whether a path stays below where it starts. Paths come from servers and from model names."""
    return "\\" not in path and "\0" not in path and not {"", ".", ".."}.intersection(path.split("/"))


def numbers(path: str) -> tuple[int, ...]:
    """The numbers in a path, to sort by: ``checkpoint-10`` comes after ``checkpoint-2``."""
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", path))


def series_of(path: str) -> str:
    """The path with the numbers masked in which the checkpoints, or the pieces of a log, of one run differ."""
    *folders, name = path.split("/")
    masked = [masked_name(folder) if _CHECKPOINT_FOLDER.fullmatch(folder) else folder for folder in folders]
    return "/".join([*masked, name if _OF_ITS_OWN.fullmatch(name) else masked_name(name)])


def checkpoints_of(path: str) -> str:
    """The same for all checkpoints that one training may leave in a place: numbered ones, the best and the last one."""
    *folders, name = series_of(path).split("/")
    kept = [_essence(folder) if _essence(folder) in ("", "#") else folder for folder in folders]
    return "/".join([one for one in kept if one not in ("", "#")] + [_essence(name.partition(".")[0])])


def _essence(name: str) -> str:
    """What is left of a name without the words that only say which one of a training's checkpoints it is."""
    return "-".join(word for word in re.findall(r"[a-z]+|\d+|#", name.lower()) if word not in _WHICH_ONE)


def recency(path: str) -> int:
    """1 for a checkpoint that is called the last one, -1 for the best one: it may be older than those with numbers."""
    words = set(re.findall(r"[a-z]+", "/".join(path.lower().split("/")[-2:])))
    return int(not _LAST.isdisjoint(words)) - int("best" in words)


def masked_name(name: str) -> str:
    """A name with every number masked."""
    return re.sub(r"\d+", "#", name)
