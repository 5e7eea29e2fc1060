"""The tools that an agent has, as functions that give plain data: what is asked is looked up among the roots, judged by
the library, and answered in few bytes. Nothing here knows of a protocol.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tracker_health import api
from tracker_health.config import Config, did_you_mean, parse_duration
from tracker_health.errors import ConfigError, RunNotFound
from tracker_health.evidence import Evidence, Request, Series
from tracker_health.fleet.agents.roots import Roots
from tracker_health.judge.compare import came_to_its_plan
from tracker_health.live import false_stops
from tracker_health.live.hang import HangJudge
from tracker_health.live.replay import Replay, replay
from tracker_health.live.verdicts import LiveJudge
from tracker_health.render.calibration import calibration_listed
from tracker_health.render.docs import causes_listed, explained, explained_in_brief, rules_listed
from tracker_health.render.markdown import report_markdown
from tracker_health.render.questions import missing_from
from tracker_health.render.thinning import stretches, thin
from tracker_health.report.brief import Room, brief_cause, brief_run, fitted
from tracker_health.report.result import ProbeResult, Report, brief_action
from tracker_health.runs.judging import judge_run
from tracker_health.runs.run_config import open_with_config
from tracker_health.runs.run_end import add_silence, find_end
from tracker_health.text import clipped, number, printable

MOST = 1_500
"""Characters of an answer's data, as JSON writes them: with what is around them about 400 tokens."""
MOST_POINTS = 40
_POINTS_OF_A_BUCKET = 4
_NAME, _MOST_NAMES, _MOST_MARKS, _MOST_WAYS = 60, 12, 6, 12
_DIGITS = 4
_MOST_REPORT = 20_000
_MOST_GOOD = 8


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What may be asked about ``roots``, judged under ``config``."""

    roots: Roots
    config: Config

    @property
    def _uri(self) -> str | None:
        return self.roots.tracking_uri or None

    def check_run(self, run: str) -> dict[str, Any]:
        """The verdict on a run, as ``check --brief`` prints it.

        Raises:
            TrackerHealthError: it cannot be found, is outside of the roots, or cannot be read at all.
        """
        return self._report(run).brief(MOST)

    def report(self, run: str) -> str:
        """The whole report on a run, in Markdown.

        Raises:
            TrackerHealthError: as for ``check_run``.
        """
        return printable_lines("\n".join(report_markdown(self._report(run))), _MOST_REPORT)

    def triage(self, experiment: str = "", project: str = "", since: str = "") -> dict[str, Any]:
        """How many runs of an MLflow experiment or a W&B project have which verdict, why, and the worst of them.

        Raises:
            ConfigError: not one of the two is named, or the time is none.
            RunError: it cannot be found, is outside of the roots, or cannot be asked.
        """
        if bool(experiment) == bool(project):
            hint = "give experiment, the name of one in the MLflow store, or project, as ENTITY/PROJECT"
            raise ConfigError("name one of experiment (of MLflow) and project (of W&B)", hint)
        if experiment and not self.roots.tracking_uri:
            raise RunNotFound("this server was given no MLflow store", f"one of: {self.roots.said}")
        found = api.overview_of(
            experiment=experiment,
            project=self.roots.project(project) if project else "",
            tracking_uri=self._uri,
            since=time.time() - parse_duration(since) if since else None,
        )
        return found.brief(MOST)

    def watch_run(self, run: str) -> dict[str, Any]:
        """Whether a run that is still running should go on, by the rules that may speak before the end.

        Raises:
            TrackerHealthError: as for ``check_run``.
        """
        judge = LiveJudge(self.config, None)
        with open_with_config(self.roots.run(run), self.config, self._uri) as (opened, settings):
            # What trains is not read back from its files.
            evidence = opened.read(replace(judge.request, parts=frozenset()))
            silent = find_end(opened, settings.stale_after).silent_for
            info = add_silence(opened, evidence.info, settings.hang_after)
        return watched(replace(evidence, info=info), settings, silent)

    def compare_runs(self, bad: str, good: Sequence[str]) -> dict[str, Any]:
        """What is unlike between a run and others, and where their curves part.

        Raises:
            TrackerHealthError: as for ``check_run``; there is no other run, or one is named twice.
        """
        if len(good) > _MOST_GOOD:
            raise ConfigError(f"{len(good)} other runs are too many", f"name at most {_MOST_GOOD}")
        others = [self.roots.run(one) for one in good]
        return api.compare(self.roots.run(bad), others, config=self.config, tracking_uri=self._uri).brief(MOST)

    def repaired(self, old: str, new: str) -> dict[str, Any]:
        """Whether a run repairs another one; nothing is written.

        Raises:
            TrackerHealthError: as for ``check_run``; or one run is named twice.
        """
        pair = self.roots.run(old), self.roots.run(new)
        return api.repaired(*pair, config=self.config, tracking_uri=self._uri).brief(MOST)

    @staticmethod
    def explain(name: str) -> dict[str, Any]:
        """What a rule or a cause is, and what to do.

        Raises:
            ConfigError: there is none of that code or name.
        """
        return {key: clipped(text, MOST // 3) for key, text in explained_in_brief(name.strip()).items()}

    @staticmethod
    def listed(what: Literal["rules", "causes", "accuracy"]) -> str:
        """All rules or causes, or what was measured of each rule, one a line."""
        lists = {"rules": rules_listed, "causes": causes_listed, "accuracy": calibration_listed}
        also = [f"watch_run: {false_stops.said()}"] if what == "accuracy" else []
        return "\n".join([*also, *lists[what]()])

    @staticmethod
    def page(name: str) -> str:
        """The whole page of a rule or a cause, as text.

        Raises:
            ConfigError: there is none of that code or name.
        """
        return explained(name.strip(), full=True)

    def curve(self, run: str, metric: str, points: int = MOST_POINTS) -> dict[str, Any]:
        """A metric of a run in a few points, every extreme kept, with what was found in it.

        Raises:
            TrackerHealthError: as for ``check_run``; there is no such metric.
        """
        with open_with_config(self.roots.run(run), self.config, self._uri) as (opened, settings):
            report, evidence = judge_run(opened, settings, go_back=False)
            series = _series_of(evidence, metric)
            if series is None:
                request = Request(roles=settings.role_plan(every=True), parts=frozenset())
                every = opened.read(replace(request, max_download=settings.max_download))
                series = _series_of(every, metric) or _no_series(every, metric)
        return fitted(lambda room: _curve_in(series, report, min(max(points, 2), MOST_POINTS), room), MOST)

    def rules_that_fit(self, run: str) -> dict[str, Any]:
        """How many rules judged a run, and what to log or save so that more of them can.

        Raises:
            TrackerHealthError: as for ``check_run``.
        """
        report = self._report(run)
        return fitted(lambda room: _lacking_in(report, room), MOST)

    def annotate(self, run: str) -> dict[str, Any]:
        """Judge a run and write the verdict onto it.

        Raises:
            TrackerHealthError: as for ``check_run``, or it cannot be written.
        """
        done = api.annotate(self.roots.run(run), config=self.config, tracking_uri=self._uri)
        return {"status": done.status, "left_out": [clipped(one, 100) for one in done.omitted[:3]]} | {
            "report": done.report.brief(MOST - 400)
        }

    def _report(self, run: str) -> Report:
        return api.check(self.roots.run(run), config=self.config, tracking_uri=self._uri)


def printable_lines(text: str, most: int) -> str:
    """Text of several lines without what could control a terminal, cut at so many characters."""
    cut = "\n".join(printable(line, most) for line in text[:most].splitlines())
    return cut if len(text) <= most else f"{cut}\n…"


def watched(evidence: Evidence, config: Config, silent: float | None) -> dict[str, Any]:
    """What to do with a run that may still be running. Pure.

    Args:
        evidence: What it has logged so far.
        config: How to judge.
        silent: For how many seconds nothing has come, where these are too many.

    Returns:
        ``stop``, ``look at it`` (it stands still), ``go on``, ``over`` or ``too early``, with why.
    """
    seen, ending = replay(evidence, config), evidence.ending
    worst = seen.stop_for
    if ending is not None and ending.how.is_over:
        advice, because = "over", f"it is over ({ending.how}); check_run judges all of it"
    elif came_to_its_plan(evidence):
        advice, because = "over", "it came to the end of its plan; check_run judges all of it"
    elif worst is not None:
        advice, because = "stop", f"{worst.code} {worst.name}: {worst.message}"
    elif (hang := HangJudge(config).look(evidence)[0]) is not None:
        advice, because = "look at it", f"{hang.result.code} {hang.result.name}: {hang.result.message}"
    elif seen.report is None:
        advice, because = "too early", f"only {seen.extent.points} rows are logged"
    elif seen.findings:
        advice, because = "go on", f"a warning counts: {seen.findings[0].code}: {seen.findings[0].message}"
    else:
        advice, because = "go on", "nothing counts by now that a run should be stopped for"
    return fitted(lambda room: _watched_in(seen, evidence, (advice, because, silent), room), MOST)


def _watched_in(seen: Replay, evidence: Evidence, answer: tuple[str, str, float | None], room: Room) -> dict[str, Any]:
    advice, because, silent = answer
    stops = seen.stop_for if advice == "stop" else None
    cause = stops.cause if stops is not None else None
    return {
        "run": brief_run(evidence.run.name, evidence.run.id, evidence.run.url),
        "advice": advice,
        "because": clipped(because, room.text),
        "cause": None if cause is None else brief_cause(cause.cause, cause.certainty),
        "action": None if cause is None else brief_action(cause.action, room),
        "false_stops": false_stops.said() if stops is not None else None,
        "last_step": seen.extent.last if seen.extent.points else None,
        "share_of_plan": None if seen.extent.share is None else round(seen.extent.share, 3),
        "not_sure_yet": [f"{one.code} {one.name}" for one in seen.waiting[: room.findings]],
        "silent_seconds": None if silent is None else round(silent),
        "look_again": None if advice == "over" else f"when {seen.next_look} rows are logged (now {seen.extent.points})",
    }


def _series_of(evidence: Evidence, metric: str) -> Series | None:
    """The series of a name, or else of a role."""
    every = [one for one in (*evidence.series, *evidence.odd) if len(one.clean())]
    named = [one for one in every if one.name == metric] or [one for one in every if one.role and one.role == metric]
    return named[0] if named else None


def _no_series(evidence: Evidence, metric: str) -> Series:
    names = sorted({one.name for one in evidence.series if len(one)})
    hint = did_you_mean(metric, names) if names else "nothing was logged"
    listed = ", ".join(clipped(one, _NAME) for one in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    raise ConfigError(f"there is no metric {printable(metric, _NAME)!r}; there are: {listed}{more}", hint)


def _curve_in(series: Series, report: Report, points: int, room: Room) -> dict[str, Any]:
    clean, finite = series.clean(), series.finite()
    steps, values = thin(finite.steps, finite.values, max(1, points // _POINTS_OF_A_BUCKET))
    marks = [one for one in report.headline_first if _is_about(one, series)]
    return {
        "run": clipped(report.run.name, _NAME),
        "metric": clipped(series.name, _NAME),
        "role": series.role or None,
        "unit": str(series.step_unit),
        "logged_points": len(clean),
        "points": [[int(step), _short(value)] for step, value in zip(steps.tolist(), values.tolist(), strict=True)],
        "not_finite": [
            {"from": first, "to": last, "points": count}
            for first, last, count in stretches(clean.steps, clean.values)[: room.findings]
        ],
        "marks": [
            {"code": one.code, "step": one.first_step, "what": clipped(one.message, room.why)}
            for one in marks[:_MOST_MARKS]
        ],
    }


def _is_about(finding: ProbeResult, series: Series) -> bool:
    return series.name in finding.about or (not finding.about and bool(finding.steps) and bool(series.role))


def _short(value: float) -> float | None:
    return float(number(value, _DIGITS)) if math.isfinite(value) else None


def _lacking_in(report: Report, room: Room) -> dict[str, Any]:
    ways = missing_from(report)[:_MOST_WAYS]
    return {
        "run": brief_run(report.run.name, report.run.id, report.run.url),
        "judged_by": len(report.results),
        "judged": [one.part for one in report.judged if one.state == "judged"],
        "to_log_or_save": [
            {"what": clipped(one.what, _NAME), "how": clipped(one.how, room.sentence), "rules": len(one.codes)}
            | ({"codes": list(one.codes[:3])} if room.why else {})
            for one in ways
        ],
    }
