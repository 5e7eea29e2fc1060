"""The report of one run as a self-contained HTML page: no network, every text of the run escaped."""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tracker_health.diagnosis import cause_named
from tracker_health.errors import optional_packages
from tracker_health.evidence import Evidence, Part
from tracker_health.facts.applied import all_settings
from tracker_health.judge.doc_links import docs_link
from tracker_health.judge.engine import comparison_note
from tracker_health.render.curves import plots_of, usual_rates
from tracker_health.render.docs import help_on, help_on_cause
from tracker_health.render.facts import facts_of, moment
from tracker_health.render.heat import HeatMap, heat_map
from tracker_health.render.markdown import issue_markdown
from tracker_health.render.plot import Plot, draw
from tracker_health.render.questions import missing_from, not_applicable, questions_of
from tracker_health.render.yardsticks import Bar, bar, bar_of
from tracker_health.report.baseline import settings_beside
from tracker_health.report.result import Measure, ProbeResult, Report, once_a_source
from tracker_health.rules.probe import Symptom
from tracker_health.rules.registry import probe_classes
from tracker_health.text import count, number, percent, printable, sentence, setting, split_sentence, without_userinfo
from tracker_health.words.diagnosis import SignSeen
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Environment

_MOST_SERIES = 60
_MOST_ERRORS = 50
_MOST_STEPS = 20
_MOST_SETTINGS = 20
_TRACKERS = ("mlflow", "wandb", "trackio")
_SETTING_CODES = frozenset({
    "OPT010", "OPT011", "OPT013", "OPT014", "OPT015", "OPT016", "OPT017", "OPT018",
    "LRS001", "LRS003", "LRS004", "LRS005", "LRS006",
})  # fmt: skip
_LAYERS = frozenset((Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS, Part.WEIGHTS, Part.WEIGHT_CHANGES))
_PLACES = {
    "LOS": "loss", "los": "loss", "GEN": "validation", "RWD": "rewards", "GRD": "gradients", "gra": "gradients",
    "OPT": "optimizer state", "WGT": "weights", "wei": "weights", "GAP": "layers", "LRS": "learning rate",
    "AMP": "loss scale", "RUN": "end of the run", "SYS": "hardware", "REG": "regulariser", "CMP": "comparable runs",
}  # fmt: skip
"""Where a sign is seen, by the first letters of what it looks at; all others are settings."""
_CONFIDENCE = {
    "certain": "High confidence",
    "likely": "Likely, not certain",
    "possible": "Possible: look before you act on it",
    "unknown": "What was found is sure, its cause is not shown",
}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plot and the element that shows it."""

    plot: Plot
    svg: str

    @property
    def has_validation(self) -> bool:
        """Whether there is a second curve to hide."""
        return any("val" in line.look.split() for line in self.plot.lines)


@dataclass(frozen=True, kw_only=True)
class ReportStep:
    """The cause, one of its effects, or another finding. ``look``: its class in the style sheet. ``charts``: those that
    stand here; ``elsewhere``: those above in which it is marked as well.
    """

    role: str
    title: str
    code: str
    explain: str
    look: str = ""
    bar: Bar | None = None
    remedy: str = ""
    results: tuple[ProbeResult, ...] = ()
    signs: tuple[SignSeen, ...] = ()
    heat: HeatMap | None = None
    charts: tuple[Chart, ...] = ()
    elsewhere: tuple[Chart, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """Of the rules whose findings it is."""
        return tuple(one.code for one in self.results)


def report_page(
    report: Report,
    evidence: Evidence | None = None,
    *,
    without_pictures: str = "",
    docs_url: str = "",
    all_runs: str = "",
) -> bytes:
    """The page of one run's report. ``evidence``: what was read of the run, for its curves and facts. A report that was
    read from a file has none. ``without_pictures``: why there are none. ``docs_url``: the base of links to rules and
    causes, empty for none. ``all_runs``: the address of the page of all runs, "" for none.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    known = evidence if evidence is not None else Evidence(run=report.run)
    plots = plots_of(known, report) if not without_pictures else ()
    charts = [Chart(plot=plot, svg=draw(plot)) for plot in plots]
    first = charts[0] if charts else None
    heat = heat_map(known) if not without_pictures else None
    steps, after = _with_charts(list(_steps(report, known, heat))[:_MOST_STEPS], charts)
    told, unjudged = once_a_source(report.errors)
    headline, lead = headline_of(report)
    comparison = comparison_note(known)
    beside, alike = settings_beside(all_settings(known), [one.settings for one in known.siblings])
    return render(
        "report.html",
        scripts=("plot.js", "report.js"),
        data={
            "plots": [plot.data for plot in plots],
            "issue": issue_markdown(report, _address(report), link_of(report), docs_url),
            "ack": _ack_of(report),
        },
        ack=_ack_of(report),
        help_on=help_on,
        help_on_cause=help_on_cause,
        report=report,
        diagnosis=report.diagnosis,
        headline=headline,
        lead=lead,
        confidence=_confidence(report),
        remedy=only_remedy(report),
        experiment=known.info.experiment,
        when=_when(known),
        link=link_of(report),
        all_runs=all_runs,
        facts=facts_of(known, report),
        first=first,
        charts=[one for one in after if not one.plot.is_small],
        small=[one for one in after if one.plot.is_small],
        notes=[note for note in report.notes if note != comparison],
        comparison=comparison,
        siblings=known.siblings,
        beside=beside[:_MOST_SETTINGS],
        more_beside=max(0, len(beside) - _MOST_SETTINGS),
        alike=alike,
        steps=steps,
        pages={step.explain: page for step in steps if (page := docs_link(step.explain, docs_url))},
        steps_title=_steps_title(report),
        heat=heat if not any(step.heat for step in steps) else None,
        compared=next((one for one in report.results if one.symptom == Symptom.ODD_ONE_OUT), None),
        without_pictures=without_pictures,
        errors=told[:_MOST_ERRORS],
        more_errors=max(0, len(told) - _MOST_ERRORS),
        unjudged=list(unjudged.items())[:_MOST_ERRORS],
        questions=questions_of(report, {probe.code: str(probe.symptom) for probe in probe_classes()}),
        missing=missing_from(report),
        skipped=not_applicable(report),
        series=report.series[:_MOST_SERIES],
        more_series=max(0, len(report.series) - _MOST_SERIES),
        command=f"tracker-health check {shlex.quote(_address(report))}",
    )


def headline_of(report: Report) -> tuple[str, str]:
    """What the page says first, and what it says below that."""
    return split_sentence(report.diagnosis.sentence if report.diagnosis is not None else report.summary)


def _when(evidence: Evidence) -> str:
    """When the run ended, or else began."""
    info = evidence.info
    for word, seconds in (("ended", info.ended), ("started", info.started)):
        if seconds is not None and (shown := moment(seconds)) is not None:
            return f"{word} {shown[0]}, {shown[1]}"
    return ""


def link_of(report: Report) -> str:
    """The run's page, where it has one that a browser may open; else ""."""
    url = report.run.url or ""
    return url if url.startswith(("http://", "https://")) else ""


def _address(report: Report) -> str:
    """How commands name the run: as a page, which says its server as well, where it has one."""
    run = report.run
    if run.store == "mlflow":
        return link_of(report) or f"mlflow:{run.id}"
    is_named = run.store == "trackio" or (run.store == "wandb" and run.url)
    return f"{run.store}:{run.id}" if is_named else without_userinfo(run.id)


def _ack_of(report: Report) -> str:
    """The command that answers the verdict on a run of a tracker, where somebody still has to; else ""."""
    codes = report.open if report.open is not None else [one.code for one in report.findings]
    if report.run.store not in _TRACKERS or report.verdict not in (Verdict.WARN, Verdict.FAIL) or not codes:
        return ""
    return f'tracker-health ack {shlex.quote(_address(report))} {" ".join(codes)} --because "WHY"'


def _confidence(report: Report) -> str:
    if report.diagnosis is None:
        return ""
    said = _CONFIDENCE.get(report.diagnosis.certainty, report.diagnosis.certainty)
    places = list(dict.fromkeys(_PLACES.get(sign.looks_at[:3], "settings") for sign in report.diagnosis.signs))
    if len(places) < 2:
        return f"{said}: it shows in the {places[0]}." if places else f"{said}."
    return f"{said}: {', '.join(places[:-1])} and {places[-1]} agree."


def only_remedy(report: Report) -> str:
    """Of a run without a diagnosis what its worst finding asks for."""
    return next((one.remedy for one in report.findings if one.remedy), "")


def _steps_title(report: Report) -> str:
    effects = sum(not (one.code in _SETTING_CODES and _is_about_the_setting(one, report)) for one in report.explained)
    if not _names_a_cause(report):
        return "What was found"
    return f"Why: one cause, {count(effects, 'effect')}" if effects else "Why"


def _names_a_cause(report: Report) -> bool:
    return report.diagnosis is not None and report.diagnosis.certainty != "unknown"


def _steps(report: Report, evidence: Evidence, heat: HeatMap | None) -> Iterator[ReportStep]:
    """The cause, its effects in the order of time, and what it does not explain. The layers are at the first finding
    about them.
    """
    left, of_layers = heat, _rules_on_layers() if heat is not None else ()
    explained = list(report.explained)
    if _names_a_cause(report):
        own = [one for one in explained if one.code in _SETTING_CODES and _is_about_the_setting(one, report)]
        explained = [one for one in explained if one not in own]
        yield _cause(report, evidence, own)
    first = "Effect" if _names_a_cause(report) else "Found"
    for role, findings in ((first, explained), ("Also found", report.unexplained)):
        for finding in findings:
            here = left if not finding.about and finding.code in of_layers else None
            left = None if here is not None else left
            yield ReportStep(
                role=role if report.diagnosis is not None else "Found",
                title=sentence(finding.message),
                code=finding.code,
                explain=finding.code,
                bar=bar_of(finding),
                remedy=sentence(finding.remedy) if finding.remedy and role != "Effect" else "",
                results=(finding,),
                heat=here,
                look=str(finding.verdict),
            )


@cache
def _rules_on_layers() -> frozenset[str]:
    """The codes of the rules that judge what a checkpoint holds."""
    return frozenset(
        probe.code
        for probe in probe_classes()
        if any(not need.optional and not _LAYERS.isdisjoint(need.roles) for need in probe().needs)
    )


def _with_charts(steps: Iterable[ReportStep], charts: Sequence[Chart]) -> tuple[list[ReportStep], list[Chart]]:
    """The steps with the charts of what they are about, each at the first of them; and the charts of none. The first
    chart of all stands above the steps.
    """
    drawn, left, made = list(charts[:1]), list(charts[1:]), []
    for step in steps:
        here = [one for one in left if not set(step.codes).isdisjoint(one.plot.codes)]
        above = [one for one in drawn if not set(step.codes).isdisjoint(one.plot.codes)]
        left = [one for one in left if one not in here]
        drawn += here
        made.append(replace(step, charts=tuple(here), elsewhere=tuple(above)))
    return made, left


def _is_about_the_setting(finding: ProbeResult, report: Report) -> bool:
    """Whether a finding measured the setting that the diagnosis wants changed."""
    old = report.diagnosis.action.old if report.diagnosis is not None else None
    return isinstance(old, (int, float)) and any(value == old for value in finding.measured.values())


def _cause(report: Report, evidence: Evidence, own: Sequence[ProbeResult]) -> ReportStep:
    diagnosis = report.diagnosis
    assert diagnosis is not None  # noqa: S101  its only caller asked
    known = cause_named(diagnosis.cause)  # a report of another version may name another one
    title = known.title if known is not None else diagnosis.cause.replace("-", " ").capitalize()
    action = diagnosis.action
    shown = None
    if isinstance(action.old, (int, float)):
        title += f" ({printable(action.setting, 60)} = {setting(action.old)})"
        shown = _setting_bar(report, evidence, own)
    return ReportStep(
        role="Cause",
        title=sentence(title),
        code=", ".join(one.code for one in own),
        explain=diagnosis.cause,
        look="cause-step",
        bar=shown,
        results=tuple(own),
        signs=diagnosis.signs,
    )


def _setting_bar(report: Report, evidence: Evidence, own: Sequence[ProbeResult]) -> Bar | None:
    """The setting at fault compared with what is usual, or else what is advised."""
    action = report.diagnosis.action if report.diagnosis is not None else None
    if action is None or not isinstance(action.old, (int, float)):
        return None
    usual, limit = None, None
    if action.setting == "learning_rate":
        usual = usual_rates(evidence, report)
        limits = [one.thresholds.get("most_rate") for one in own if one.code == "OPT016"]
        limit = next((float(one) for one in limits if isinstance(one, (int, float))), None)
        limit = limit if limit is not None and limit < action.old else None
    if usual is None and isinstance(action.new, (int, float)):
        usual = (float(action.new), float(action.new))
        says = f"advised {setting(action.new)}"
    else:
        says = f"usual {setting(usual[0])} to {setting(usual[1])}" if usual is not None else ""
    return bar(
        float(action.old),
        f"{printable(action.setting, 60)} {setting(action.old)}",
        usual=usual,
        says_usual=says,
        limit=limit,
        says_limit=f"limit {setting(limit)}" if limit is not None else "",
    )


def render(template: str, *, scripts: Sequence[str], data: Mapping[str, Any], **values: Any) -> bytes:
    """A page of ``templates/``, in which every value is escaped. Its style sheet and its script (``scripts``, one after
    the other) may run by their hashes, and nothing else may. ``data``: what the script reads.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    style, script = _text_of("page.css"), "".join(_text_of(name) for name in scripts)
    common = {"style": style, "style_hash": _hash_of(style), "script": script, "script_hash": _hash_of(script)}
    return _environment().get_template(template).render(**common, data=data, **values).encode()


@cache
def _text_of(name: str) -> str:
    return files("tracker_health.render").joinpath(f"templates/{name}").read_text(encoding="utf-8")


def _hash_of(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _environment() -> Environment:
    with optional_packages("charts"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
    loader = PackageLoader("tracker_health.render", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    filters: Mapping[str, Any] = {"shown": printable, "number": _number, "percent": percent, "sentence": sentence}
    environment.filters.update(filters)
    environment.policies["json.dumps_function"] = _compact
    environment.policies["json.dumps_kwargs"] = {}
    return environment


def _compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _number(value: Measure) -> str:
    return printable(value, 200) if isinstance(value, (str, bool)) else number(value)
