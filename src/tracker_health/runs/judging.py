"""One run, read and judged. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracker_health.config import Config
from tracker_health.errors import StoreUnavailable, described
from tracker_health.evidence import Evidence, Part, Request, RunRef, Sibling, names_apart
from tracker_health.facts.likely_roles import likely_roles
from tracker_health.judge.checkpoint_choice import onset_of, rewind_of
from tracker_health.judge.engine import NOT_UNDERSTOOD, diagnose, needs_of, not_understood
from tracker_health.report.result import SET_ROLES, ErrorEntry, Report
from tracker_health.runs.lookup import shown_name
from tracker_health.runs.outcome import Outcome, add_note
from tracker_health.runs.run_config import open_with_config
from tracker_health.runs.run_end import RunEnd, add_silence, find_end
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Listed
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.render.sketch import Sketch

_MOST_UNKNOWN = 30
"""Metrics of unknown names whose histories are read to say which may be a loss: each may be a request."""
_NOT_YET = "it was not looked at yet: the rest of the judgement follows"


def check_run(run: str | Path | Listed, config: Config, tracking_uri: str | None) -> Outcome:
    """A run as it is judged; nothing is written. The report shows an older verdict on the run.

    Raises:
        RunError: the run cannot be found or read at all.
    """
    with open_with_config(run, config, tracking_uri) as (opened, settings):
        report, evidence = judge_run(opened, settings)
        report = report.answered(opened.acknowledgements(), time.time())
        recorded, last = opened.recorded(), opened.last_step()
    if recorded is not None and recorded.is_older_than(last):
        older = f"the verdict on the run ({recorded.verdict}) is older than its data: it was given at step"
        report = add_note(report, f"{older} {recorded.step}, and the run is at {last}; annotate judges it again")
    in_shadow = settings.mode == "shadow"
    return Outcome(
        run=shown_name(run), status="checked", report=report, sketch=sketch_curve(evidence, report), shadow=in_shadow
    )


def judge_run(
    run: TrackedRun,
    config: Config,
    fingerprint: str | None = None,
    *,
    end: RunEnd | None = None,
    quick: bool = False,
    go_back: bool = True,
) -> tuple[Report, Evidence]:
    """The report on a run, and what it was judged by. ``fingerprint`` and ``end``: the run's, where they are known
    already; ``quick``: see ``annotate``; ``go_back``: look for the checkpoint to go back to where the run went wrong.
    """
    request = needs_of(config)
    taken = run.fingerprint(request) if fingerprint is None else fingerprint
    known = find_end(run, config.stale_after) if end is None else end
    # What was printed is next to W&B's own history: without it a run that crashed could be called healthy.
    later = request.parts - ({Part.TEXT_LOG} if run.ref.store == "wandb" else set()) if quick else frozenset()
    evidence = run.read(replace(request, parts=request.parts - later))
    missing = {**dict.fromkeys(later, _NOT_YET), **evidence.missing}
    info = replace(evidence.info, seen=known.seen, silent_for=known.silent_for)
    info = add_silence(run, info, config.hang_after)
    evidence = replace(evidence, fingerprint=taken, missing=missing, info=info)
    evidence = replace(evidence, baseline=config.baseline, siblings=_named_apart(evidence.run, config.siblings))
    report = diagnose(evidence, config)
    report = replace(report, notes=(*report.notes, *run.remarks()))
    if quick:
        return report, evidence
    report = _add_what_to_set(run, report, evidence, config)
    return _add_way_back(run, report, evidence, request) if go_back else report, evidence


def _named_apart(run: RunRef, siblings: Sequence[Sibling]) -> tuple[Sibling, ...]:
    """The runs that one is shown next to, called so that no two of all have one name."""
    _, *names = names_apart([run, *(one.run for one in siblings)])
    return tuple(replace(one, name=name) for one, name in zip(siblings, names, strict=True))


def _add_what_to_set(run: TrackedRun, report: Report, evidence: Evidence, config: Config) -> Report:
    """The report on a run of which no metric is understood, with the one that goes as a loss does."""
    unknown = not_understood(evidence, config) if report.verdict is Verdict.SKIP else []
    if not 0 < len(unknown) <= _MOST_UNKNOWN or len(evidence.info.metric_names) > 2 * _MOST_UNKNOWN:
        return report
    try:
        every = run.read(
            Request(roles=config.role_plan(every=True), parts=frozenset(), max_download=config.max_download)
        )
        said = likely_roles(one for one in every.series if one.name in unknown)
    except Exception as error:  # noqa: BLE001  the verdict is as good without it
        return add_note(report, f"which metric may be a loss was not looked for: {printable(described(error), 300)}")
    if not said:
        return report
    why, what, _ = report.summary.rpartition(f"; {SET_ROLES}")  # which role to set, to whichever metric
    notes = tuple(one for one in report.notes if not one.startswith(NOT_UNDERSTOOD))  # as the summary says now
    return replace(report, summary=f"{why if what else report.summary}; {said}", notes=notes)


def _add_way_back(run: TrackedRun, report: Report, evidence: Evidence, request: Request) -> Report:
    """The report, with the checkpoint to go back to. What goes wrong with that must not take the verdict with it; where
    the server failed, the next annotation looks again.
    """
    try:
        shelf = run.saved(request) if onset_of(report, evidence) is not None else None
        return report if shelf is None else replace(report, rewind=rewind_of(report, evidence, shelf))
    except StoreUnavailable as error:
        message = f"no checkpoint to go back to was looked for: {described(error)}"
        entry = ErrorEntry(source="checkpoints", message=printable(message, 500))
        return replace(report, errors=(*report.errors, entry))
    except Exception as error:  # noqa: BLE001
        return add_note(report, f"no checkpoint to go back to was looked for: {printable(described(error), 300)}")


def sketch_curve(evidence: Evidence, report: Report) -> Sketch | None:
    """The curve that the verdict is about, in one line of text; None where there is none."""
    from tracker_health.render.sketch import sketch

    return sketch(evidence, report)
