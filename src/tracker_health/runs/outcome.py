"""What became of one run: its report, what was written of it, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracker_health.config import Config
from tracker_health.errors import LeftAlone, described
from tracker_health.evidence import RunRef
from tracker_health.judge.annotations import Annotations
from tracker_health.judge.engine import tool_of
from tracker_health.judge.messages import Notice
from tracker_health.report.result import ErrorEntry, Report, ToolInfo
from tracker_health.runs.lookup import shown_name, store_of
from tracker_health.stores.found import Listed
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.render.sketch import Sketch

Status = Literal["checked", "written", "unchanged", "dry-run", "left alone", "failed", "shadow"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of one run.

    ``status``: ``written``; ``unchanged`` (the annotation there still holds: the run was not judged again);
    ``dry-run`` and ``checked`` (judged, nothing written); ``failed`` (could not be judged or written: ``error`` says
    why; ``annotations`` are there if it was judged); ``left alone`` (judged, and not to be written onto: ``error`` is
    the ``LeftAlone`` that says why, and the last note of the report says it, too). ``annotations``: what was, or would
    be, written; ``omitted``: what of it was left out for something of the owner's, with the reason. ``run``: as given,
    a URL without its secrets. ``sketch``: the curve that the verdict is about in one line, None where there is none.
    ``replaces_older``: the verdict that the run had before was on a part of its data. ``shadow``: verdicts are only
    tried out: nobody is notified, and no exit code says so. With the status ``shadow`` the one tag for that was
    written. ``notice``: a message that this call has to send; ``owes``: another call has one to send, and may still do
    so.
    """

    run: str
    status: Status
    report: Report
    annotations: Annotations | None = None
    omitted: tuple[str, ...] = ()
    error: Exception | None = None
    sketch: Sketch | None = None
    replaces_older: bool = False
    shadow: bool = False
    notice: Notice | None = None
    owes: bool = False

    @property
    def complete(self) -> bool:
        """Whether the run was found, read, judged and, where it is to be, written, with nothing missing on the way."""
        return self.status != "failed" and not self.report.errors and self.report.verdict is not Verdict.ERROR

    def with_error(self, error: Exception) -> Outcome:
        """The outcome of a run of which something could not be written.

        Args:
            error: Why.

        Returns:
            The outcome whose report says so.
        """
        entry = ErrorEntry(source="annotation", message=described(error))
        return replace(self, report=replace(self.report, errors=(*self.report.errors, entry)))

    def unwritten(self, error: Exception) -> Outcome:
        """The outcome of a run that was judged, and onto which nothing was written.

        Args:
            error: Why. A ``LeftAlone`` is no failure.

        Returns:
            The outcome with the status ``left alone`` or ``failed``.
        """
        if isinstance(error, LeftAlone):
            left = replace(self, status="left alone", error=error)
            return replace(left, report=add_note(self.report, left.why_left))
        return replace(self.with_error(error), status="failed", error=error)

    @property
    def why_left(self) -> str:
        """Why the run was left alone, in one line that is also the last note of its report; empty for any other."""
        if self.status != "left alone" or not isinstance(self.error, LeftAlone):
            return ""
        return f"left alone: {printable(self.error.message, 600)}"

    def insisted_on(self) -> Outcome:
        """The outcome for whoever asked for this very run.

        Returns:
            The same, or one that failed where the run was left alone.
        """
        if not self.why_left or self.error is None:
            return self
        report = replace(self.report, notes=self.report.notes[:-1])
        return replace(self, status="failed", report=report).with_error(self.error)

    def failed_with(self, error: Exception) -> Outcome:
        """The outcome for a run whose result turned out to be good for nothing.

        Args:
            error: Why.

        Returns:
            The same run's outcome, with the error in place of a verdict.
        """
        report = _error_report(self.report.run, error, self.report.tool)
        return replace(self, status="failed", report=report, annotations=None, omitted=(), error=error)


def failed_outcome(run: str | Path | Listed, error: Exception, config: Config) -> Outcome:
    """The outcome for a run that could not be judged."""
    shown = shown_name(run)
    ref = RunRef(store=store_of(str(run).strip()), id=shown, name=shown)
    report = _error_report(ref, error, tool_of(config))
    return Outcome(run=shown, status="failed", report=report, error=error, shadow=config.mode == "shadow")


def _error_report(ref: RunRef, error: Exception, tool: ToolInfo) -> Report:
    """The report on a run of which there is nothing but an error."""
    message = described(error)
    errors = (ErrorEntry(source=ref.id, message=message),)
    return Report(run=ref, verdict=Verdict.ERROR, score=None, summary=printable(message, 500), errors=errors, tool=tool)


def add_note(report: Report, note: str) -> Report:
    """The report with one more note, where there is any to add."""
    return replace(report, notes=(*report.notes, note)) if note else report
