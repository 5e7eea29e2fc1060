"""Runs that others are to be compared with: each is judged, and nothing is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from tracker_health.config import Config
from tracker_health.errors import described
from tracker_health.evidence import Evidence, RunRef, Series, Sibling
from tracker_health.facts.applied import all_settings, as_logged
from tracker_health.judge.annotations import PAGE_FILE
from tracker_health.render.thinning import thin
from tracker_health.report.baseline import MOST_RUNS, Candidate
from tracker_health.report.result import Report
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import shown_name
from tracker_health.runs.run_config import open_with_config
from tracker_health.stores.common.ownership import HEALTH_FOLDER
from tracker_health.stores.found import Listed
from tracker_health.words.verdict import Verdict

_MOST_LOOKED_AT, _ENOUGH = 500, 2 * MOST_RUNS  # runs of an experiment, and of them those that passed
_BUCKETS = 300


def candidates_among(
    runs: Iterable[str | Path | Listed], config: Config, tracking_uri: str | None, without: Collection[RunRef]
) -> list[Candidate]:
    """Runs as candidates for a baseline, until enough of them passed; those ``without`` are left out."""
    settings = replace(config, baseline=None, siblings=())
    found: list[Candidate] = []
    for run in islice(runs, _MOST_LOOKED_AT):
        one = _judge_candidate(run, settings, tracking_uri, without)
        found += [one] if one is not None else []
        if sum(not one.why_not for one in found) >= _ENOUGH:
            break
    return found


def _judge_candidate(
    run: str | Path | Listed, base: Config, tracking_uri: str | None, without: Collection[RunRef]
) -> Candidate | None:
    try:
        with open_with_config(run, base, tracking_uri) as (opened, settings):
            name = opened.ref.id
            if opened.ref in without:
                return None
            report, evidence = judge_run(opened, settings, go_back=False)
    except Exception as error:  # noqa: BLE001  one bad run never stops the others
        return Candidate(id=shown_name(run), why_not=f"it cannot be read: {described(error)}")
    sibling = _sibling_of(report, evidence)
    if report.verdict is not Verdict.PASS or evidence.goes_on:
        why = "it is still running" if evidence.goes_on else f"its verdict is {report.verdict}"
        return Candidate(id=name, why_not=why, sibling=sibling)
    return Candidate(id=name, course=evidence.course, params=as_logged(evidence), sibling=sibling)


def _sibling_of(report: Report, evidence: Evidence) -> Sibling:
    return Sibling(
        run=report.run,
        name=report.run.listed_name,
        verdict=str(report.verdict),
        link=report.run.url or _page_of(report.run),
        series={role: _thinned(one) for role, one in evidence.by_role.items()},
        settings=all_settings(evidence),
    )


def _page_of(run: RunRef) -> str:
    """The page next to a run in a folder, where there is one."""
    page = Path(run.id) / HEALTH_FOLDER / PAGE_FILE
    return page.resolve().as_uri() if run.store == "directory" and page.is_file() else ""


def _thinned(series: Series) -> Series:
    finite = series.finite()
    steps, values = thin(finite.steps, finite.values, _BUCKETS)
    return replace(finite, steps=steps.astype(np.int64), values=values, times=None)
