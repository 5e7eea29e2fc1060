"""The files of a run, wherever they are, and what reading them gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Protocol

from tracker_health.errors import ReadError, RunError
from tracker_health.evidence import (
    Children,
    DlmCheckpoint,
    DlmStepLog,
    Evidence,
    OptimizerState,
    Problem,
    RankDump,
    Request,
    RunInfo,
    RunRef,
    Series,
    TextLog,
    Weights,
    confirm,
    planned_epochs,
    planned_steps,
    stood,
)
from tracker_health.readers.files.random_access import LocalFile, RandomAccess
from tracker_health.readers.trainer_state import TrainerState
from tracker_health.run_files.history_agreement import disagreements
from tracker_health.text import printable
from tracker_health.words.stopped import stop_of


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
    ``odd``: metrics that no rule asks for, some of whose values are NaN or infinite.
    ``printed``: what console logs have of the metrics, where those come from a tracker. ``printed_plan``: a param for
    what console logs count up to, where no other says how far the run was meant to go; ``printed_epoch``: how far they
    counted in headings; ``printed_step``: how far in steps, where these did not come to what they count up to.
    ``doubtful``: what cannot be read, and may be no file of the training: a problem where there is nothing else to
    judge, and a note next to that. ``files``: those that there are, whatever they hold; ``read``: the paths of those
    whose tensors were read.
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
    dumps: tuple[RankDump, ...] = ()
    odd: list[Series] = field(default_factory=list)
    printed: list[Series] = field(default_factory=list)
    printed_plan: dict[str, str] = field(default_factory=dict)
    printed_epoch: float | None = None
    printed_step: int | None = None
    snapshot: bool = False
    problems: list[Problem] = field(default_factory=list)
    above_limit: list[Problem] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    doubtful: list[Problem] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    files: tuple[RunFile, ...] = ()
    read: set[str] = field(default_factory=set)

    def cannot_read(self, source: str, error: RunError | OSError, roles: Iterable[str]) -> None:
        """Note that a file could not be read, and which parts that takes away."""
        if isinstance(error, RunError):
            message = f"{error.message} ({error.hint})" if error.hint else error.message
        else:
            message = f"it cannot be read: {error.strerror or type(error).__name__}"
        problems = self.above_limit if isinstance(error, AboveLimit) else self.problems
        problems.append(Problem(source=printable(source), message=message, roles=frozenset(roles)))

    def _counts_up_to(self, planned: float | None) -> bool:
        """Whether what console logs count up to is the plan that another source has: then it counts steps, too."""
        return planned is not None and planned_steps(self.printed_plan) == planned

    def evidence(
        self, run: RunRef, request: Request, tracked: Tracked | None = None, *, problems: Iterable[Problem] = ()
    ) -> Evidence:
        """All of it as evidence of a run, with what its tracker knows. ``problems``: more of them."""
        known, trainer = tracked or Tracked(), self.trainer
        params = {**self.params, **known.params}
        counted = None
        # What counts steps may do so next to a plan in epochs: during them, or during the first, it broke off.
        steps, epochs = planned_steps(params), planned_epochs(params)
        said = steps is not None or (epochs is not None and self.printed_step is None)
        if not said and (self.printed_step is None or not known.series):
            params |= self.printed_plan
            counted = self.printed_step
        elif not known.series and self._counts_up_to(steps):
            counted = self.printed_step
        names = tuple(dict.fromkeys([*known.names, *self.names]))
        roles = request.roles.of(names)
        series, confirmed = confirm((*known.series, *self.series), roles)
        stop = stop_of(known.stopped)
        info = RunInfo(
            stopped=stop if stop is not None and stood(stop, series) else None,
            status=known.status,
            tracker=known.tracker,
            exit_code=known.exit_code,
            at_work=known.at_work,
            params=params,
            metric_names=names,
            global_step=trainer.global_step if trainer else None,
            epoch=trainer.epoch if trainer else self.printed_epoch,
            printed_step=counted,
            printed_epochs=planned_epochs(self.printed_plan),
            snapshot=self.snapshot,
            children=known.children,
            experiment=known.experiment,
            started=known.started,
            ended=known.ended,
            resumed=known.resumed,
            sweep=known.sweep,
        )
        judged = known.series or self.series or self.optimizer or self.weights or self.dlm_step_log or self.dumps
        noted = (f"{one.source}: {one.message}" for one in self.doubtful if judged)
        return Evidence(
            run=run,
            info=info,
            series=series,
            roles=roles,
            optimizer=self.optimizer,
            weights=self.weights,
            dlm_step_log=self.dlm_step_log,
            dlm_checkpoint=self.dlm_checkpoint,
            text_log=self.text_log,
            dumps=self.dumps,
            notes=(*self.notes, *noted, *disagreements(known.series, self.printed), *confirmed),
            problems=(*problems, *self.problems, *(() if judged else self.doubtful)),
            unread=tuple(self.unread),
            odd=tuple({one.name: one for one in self.odd}.values()),
            missing=self.missing,
        )


@dataclass(frozen=True, kw_only=True)
class Tracked:
    """What a tracker itself knows of a run: its params come before those in files, and so do its histories.

    ``status`` is its word for the run's state, ``tracker`` what it is called, ``exit_code`` what it recorded.
    ``at_work``: the run's process is known to go on. ``stopped``: what is on the run of why its training stopped it.
    ``experiment``, ``started``, ``ended``, ``resumed``, ``sweep``: see ``RunInfo``.
    """

    status: str = ""
    tracker: str = ""
    exit_code: int | None = None
    at_work: bool = False
    stopped: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    names: Iterable[str] = ()
    series: Sequence[Series] = ()
    children: Children | None = None
    experiment: str = ""
    started: float | None = None
    ended: float | None = None
    resumed: tuple[int, ...] = ()
    sweep: str = ""
