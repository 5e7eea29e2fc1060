"""What a team's server runs with an account of its own: runs that ended without a verdict get one, and so do those that
crashed silently. And what this version would say differently of the runs that have one.

Several may do so at once. A run that another has just annotated, or is annotating, is left to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Literal

from tracker_health.api import annotate_each
from tracker_health.config import Config
from tracker_health.errors import ConfigError, StoreUnavailable
from tracker_health.fleet.silence import HungRun, Silences
from tracker_health.judge.annotations import PENDING, JudgedBy
from tracker_health.judge.group_verdict import GroupVerdict
from tracker_health.judge.messages import Notice
from tracker_health.report.result import Report
from tracker_health.rules.registry import RULES_VERSION
from tracker_health.runs.annotating import AnnotateOptions
from tracker_health.runs.due_messages import store_key
from tracker_health.runs.grouping import By, RankGroups
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_run
from tracker_health.runs.message_queue import Delivered, MessageQueue, deliver_quietly
from tracker_health.runs.outcome import Outcome
from tracker_health.runs.parallel import in_threads
from tracker_health.runs.run_config import config_for_run, resolve_config
from tracker_health.runs.run_end import seems_alive
from tracker_health.runs.still_holds import bytes_to_annotate
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.folder.reports import ReportedRun
from tracker_health.stores.found import Period, SweptRun
from tracker_health.stores.named import named_in
from tracker_health.stores.named import swept_runs as runs_of_named
from tracker_health.words.verdict import Verdict

AGAIN_SECONDS = 3600
"""How long a run that could not be judged, and has not changed since, is left alone by a sweep that keeps on."""
_MOST_REMEMBERED = 1_000_000
_MOST_HELD = 20_000
"""Runs that wait until all are listed, since they may be ranks of one training."""

Kind = Literal["annotated", "unchanged", "left alone", "failed", "taken"]


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did to a run. ``taken``: another annotator has had it since it was found. ``left alone``: it was
    judged, and is not to be written onto.
    """

    run: SweptRun
    kind: Kind
    outcome: Outcome

    @property
    def group(self) -> GroupVerdict | None:
        """The verdict on the ranks that the run stands for, where one was written with its own."""
        written = self.outcome.annotations if self.kind == "annotated" else None
        return None if written is None else GroupVerdict.of_tags(written.tags)

    def documents(self, *, skipped: bool = True) -> Iterator[dict[str, Any]]:
        """The report, with its skipped rules or without, and behind it the verdict on the ranks that the run stands
        for.
        """
        yield self.outcome.report.to_json(skipped=skipped)
        if (found := self.group) is not None:
            verdict = None if found.verdict is None else str(found.verdict)
            told = {"head": self.run.name, "group_verdict": verdict, "said": found.said, "ranks": found.ranks}
            yield {"schema": "tracker-health/group/1", **told, "expected": found.expected}


@dataclass(frozen=True, kw_only=True)
class SweepEstimate:
    """What a sweep would do: ``runs`` to write onto, ``silent`` of them that claim to be running, and ``size`` bytes of
    files to read at most; ``failed``: what could not be looked at, with the reason.
    """

    runs: int
    silent: int
    size: int
    failed: tuple[tuple[str, Exception], ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerdictChange:
    """A run on which this version would give another verdict than the one that it has. ``before``: that verdict, and
    ``rules``: of which version of the rules, None where it does not say. ``report``: what this version says.
    ``other_settings``: it was judged with other settings; ``older``: the run has data that it did not judge.
    """

    before: Verdict
    rules: int | None
    report: Report
    other_settings: bool
    older: bool

    @property
    def finding(self) -> str:
        """The worst finding of the new verdict, or what it rests on."""
        found = self.report.findings
        return f"{found[0].code} {self.report.summary}" if found else self.report.summary

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return {
            "run": asdict(self.report.run),
            "before": str(self.before),
            "rules_before": self.rules,
            "after": str(self.report.verdict),
            "rules": RULES_VERSION,
            "finding": self.finding,
            "other_settings": self.other_settings,
            "older_than_data": self.older,
        }


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What comparing a run came to: its ``difference``, or the ``error`` that kept it from being judged; neither where
    the verdict would stay. ``judged``: whether it had a whole verdict to compare with.
    """

    run: SweptRun
    judged: bool = False
    difference: VerdictChange | None = None
    error: Exception | None = None


@dataclass(kw_only=True)
class Sweep:
    """Sweeps of the same runs, one after the other. Times are in seconds; without ``experiments`` all are swept.

    ``since``: how long ago a run may have ended. ``rejudge``: as for ``annotate``. ``report_to``: a folder for the
    reports, where nothing is to be written onto the runs. ``messages``: where they wait for ``send_messages``. ``by``:
    by what the ranks of one training are known, which then get one verdict, too. A run
    that claims to be running must have been silent for the ``stale_after`` of the configuration that is in force for
    it. Or its verdict must already call it silent.
    """

    config: Config
    experiments: tuple[str, ...] = ()
    project: str = ""
    tracking_uri: str | None = None
    since: float = 7 * 86_400.0
    rejudge: bool = False
    workers: int = 1
    report_to: Path | None = None
    messages: MessageQueue = field(default_factory=MessageQueue)
    by: By | None = None
    _notices: list[Notice] = field(default_factory=list, repr=False)
    _settled: dict[str, tuple[str, float]] = field(default_factory=dict, repr=False)
    _unjudged: dict[str, float | None] = field(default_factory=dict, repr=False)
    _groups: RankGroups | None = field(default=None, repr=False)
    _idle: dict[str, SweptRun] = field(default_factory=dict, repr=False)
    _silences: Silences | None = field(default=None, repr=False)
    _silent_notices: list[Notice] = field(default_factory=list, repr=False)

    @property
    def oldest_unjudged(self) -> tuple[str, float] | None:
        """The run that has waited longest for a verdict, as far as this sweep has looked, and since when (in seconds
        since 1970); None where none waits.
        """
        waiting = [(since, name) for name, since in self._unjudged.items() if since is not None]
        return (min(waiting)[1], min(waiting)[0]) if waiting else None

    def candidates(self) -> Iterator[SweptRun]:
        """The runs to look at, but for those that an earlier pass of this sweep has settled.

        Raises:
            ConfigError: runs that must still go on would count as silent, or none as recent.
            RunError: the store cannot be reached, or there is no such experiment or project.
        """
        now = time.time()
        limits = [self.config.stale_after, *(one.changes.get("stale_after", inf) for one in self.config.overrides)]
        silences = self._silences = self._silences or Silences(config=self.config, tracking_uri=self.tracking_uri)
        quiet_since = None if silences.floor == inf else now - silences.floor
        period = Period(since=now - self.since, silent_since=now - min(limits), quiet_since=quiet_since)
        if min(limits) >= self.since:
            raise ConfigError("no run is silent for longer than it is looked at", "give a longer --since")
        for run in self._find_runs(period):
            if run.quiet:
                silences.runs += [run] if len(silences.runs) < _MOST_HELD else []
                continue
            is_of_ranks = self._groups is not None and self._groups.see(run)
            state, again = self._settled.get(run.name, ("", 0.0))
            if state != run.state or again < now:
                yield run
            elif is_of_ranks and len(self._idle) < _MOST_HELD:
                self._idle[run.name] = run

    def _find_runs(self, period: Period) -> Iterator[SweptRun]:
        if project := named_in(self.project):
            return runs_of_named(project, period, kin=self.by is not None)
        if self.project:
            from tracker_health.stores.wandb.project import swept_runs as of_project

            return of_project(self.project, period, kin=self.by is not None)
        from tracker_health.stores.mlflow.experiment import swept_runs

        return swept_runs(self.experiments, self.tracking_uri, period, kin=self.by is not None)

    def annotate(self, runs: Iterable[SweptRun]) -> Iterator[Swept]:
        """Judge runs and write the verdicts. Those that may be ranks of one training come last, their heads after all
        others.
        """
        self._groups = groups = RankGroups(self.by) if self.by is not None else None
        self._idle.clear()
        if groups is None:
            yield from self._annotate(runs)
            return
        held: dict[str, SweptRun] = {}

        def at_once() -> Iterator[SweptRun]:
            for run in runs:
                if groups.see(run) and len(held) < _MOST_HELD:
                    held[run.name] = run
                else:
                    yield run

        yield from self._annotate(at_once())
        groups.decide()
        for some in groups.some_at_a_time():
            due = [one for one in some if not held.keys().isdisjoint(one.all)]
            heads = [run for one in due if (run := held.pop(one.head, self._idle.get(one.head))) is not None]
            yield from self._annotate([held.pop(name) for one in due for name in one.names if name in held])
            yield from self._annotate(heads)
        yield from self._annotate(held.values())

    def _annotate(self, runs: Iterable[SweptRun]) -> Iterator[Swept]:
        in_hand: dict[str, SweptRun] = {}
        options = AnnotateOptions(
            config=resolve_config(self.config, writes=True),
            tracking_uri=self.tracking_uri,
            rejudge=self.rejudge,
            report_to=self.report_to,
            notify=self._sends_messages and self.messages.knows(self._server),
            groups=self._groups,
        )

        def still_over() -> Iterator[SweptRun]:
            for run in runs:
                if run.silent and self._is_alive(run):
                    self._settled[run.name] = (run.state, time.time() + AGAIN_SECONDS)
                else:
                    in_hand[run.name] = run
                    yield run

        for outcome in annotate_each(still_over(), options, self.workers):
            run = in_hand.pop(outcome.run)
            kind = _kind_of(outcome, annotated=run.annotated or self.report_to is not None)
            self._remember(run, kind, outcome)
            self._notices += [outcome.notice] if outcome.notice is not None else []
            yield Swept(run=run, kind=kind, outcome=outcome)

    def hung(self) -> Iterator[HungRun]:
        """The running runs that stand still, of those that ``candidates`` came by. Nothing is written onto them."""
        for one in () if self._silences is None else self._silences.look(self.workers):
            self._silent_notices += [one.notice] if one.notice is not None else []
            yield one

    def send_messages(self, *, whole: bool) -> Delivered:
        """Send the messages that ``annotate`` found and those that wait; the first ``whole`` sweep of a server finds
        none: what is wrong there is no news.
        """
        return deliver_quietly(lambda: self._send_due(whole=whole)) if self._sends_messages else Delivered()

    def _send_due(self, *, whole: bool) -> Delivered:
        silent, self._silent_notices = self._silent_notices, []
        if silent:  # those of a first sweep are no news either
            self.messages.put_silences(silent, send=self.messages.knows(self._server))
        found, self._notices = self._notices, []
        if found:
            self.messages.put(found)
        if whole and not self.messages.knows(self._server):
            self.messages.remember(self._server)
        return self.messages.deliver(self.config.notify, store_key(self.tracking_uri), self._open)

    def _open(self, name: str) -> TrackedRun:
        found = open_run(name, tracking_uri=self.tracking_uri)
        return found if self.report_to is None else ReportedRun(found, self.report_to)

    @property
    def _sends_messages(self) -> bool:
        return self.config.notify.wanted and self.config.mode != "shadow"

    @property
    def _server(self) -> str:
        return f"{store_key(self.tracking_uri)} {self.project}".strip()

    def estimate(self, runs: Iterable[SweptRun]) -> SweepEstimate:
        """What ``annotate`` would do; nothing of a run is read but its record and the list of its files."""
        written = silent = size = 0
        failed = []
        for run, result in in_threads(self._estimate_run, runs, self.workers):
            if isinstance(result, Exception):
                failed.append((run.name, result))
            elif result is not None:
                written, silent, size = written + 1, silent + run.silent, size + result
        return SweepEstimate(runs=written, silent=silent, size=size, failed=tuple(failed))

    def compare(self, runs: Iterable[SweptRun]) -> Iterator[Compared]:
        """Judge the runs that have a verdict, and give those of which this version would say something else. Nothing is
        written.
        """
        return in_threads(self._compare_run, runs, self.workers)

    def _compare_run(self, run: SweptRun) -> Compared:
        try:
            with closing(run.open()) as opened:
                recorded = opened.recorded()
                if recorded is None or recorded.verdict is None or recorded.digest == PENDING:
                    return Compared(run=run)
                if run.silent and seems_alive(opened, self.config):
                    return Compared(run=run)
                settings = config_for_run(self.config, opened)
                report, _ = judge_run(opened, settings, go_back=False)
                if report.verdict is recorded.verdict:
                    return Compared(run=run, judged=True)
                difference = VerdictChange(
                    before=recorded.verdict,
                    rules=recorded.rules,
                    report=report,
                    other_settings=JudgedBy.of(recorded.settings).config not in ("", settings.digest),
                    older=recorded.is_older_than(opened.last_step()),
                )
                return Compared(run=run, judged=True, difference=difference)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            return Compared(run=run, error=error)

    def _estimate_run(self, run: SweptRun) -> tuple[SweptRun, int | Exception | None]:
        try:
            with closing(run.open()) as opened:
                alive = run.silent and seems_alive(opened, self.config)
                target = opened if self.report_to is None else ReportedRun(opened, self.report_to)
                return run, None if alive else bytes_to_annotate(target, self.config, rejudge=self.rejudge)
        except Exception as error:  # noqa: BLE001  one bad run never stops the others
            return run, error

    def _is_alive(self, run: SweptRun) -> bool:
        """Whether a run is alive after all, by its own settings or by the runs below it."""
        with suppress(Exception), closing(run.open()) as opened:  # what is wrong is reported where it is judged
            return seems_alive(opened, self.config)
        return False

    def _remember(self, run: SweptRun, kind: Kind, outcome: Outcome) -> None:
        """Remember a run that needs no second look as long as its record stays as it is. One of which a server gave
        nothing is looked at again by the next pass.
        """
        complete = outcome.complete and not outcome.owes
        if len(self._settled) > _MOST_REMEMBERED:
            self._settled.clear()
            self._unjudged.clear()
        if kind == "failed" or (kind == "annotated" and not complete):
            self._unjudged[run.name] = run.since
        else:
            self._unjudged.pop(run.name, None)
        if kind == "unchanged" and complete:
            self._settled[run.name] = (run.state, float("inf"))
        elif kind == "left alone" or not (kind == "taken" or complete or isinstance(outcome.error, StoreUnavailable)):
            self._settled[run.name] = (run.state, time.time() + AGAIN_SECONDS)


def _kind_of(outcome: Outcome, *, annotated: bool) -> Kind:
    if outcome.status == "failed":
        return "failed"
    if outcome.status == "left alone":
        return "left alone" if outcome.complete else "failed"
    if outcome.status == "unchanged":
        # W&B's list shows verdicts by their tags, which runs with nothing to judge and runs in shadow have not.
        untagged = outcome.report.verdict is Verdict.SKIP or outcome.shadow
        return "unchanged" if annotated or untagged else "taken"
    return "annotated"
