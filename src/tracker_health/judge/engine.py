"""From evidence to a report: which rules can run, what they find, and the one verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from tracker_health._version import __version__
from tracker_health.config import Config, did_you_mean
from tracker_health.diagnosis import diagnosis_of
from tracker_health.errors import ConfigError, named
from tracker_health.evidence import Evidence, Part, Request
from tracker_health.facts.applied import all_settings
from tracker_health.facts.steps import plan_reached
from tracker_health.judge.coverage import RuleOutcome, coverage_of, notes_on, why_unjudged
from tracker_health.judge.pass_reason import why_passed
from tracker_health.judge.run_rule import judged, off_stdout
from tracker_health.report.baseline import settings_beside
from tracker_health.report.result import (
    HEALTHY_SO_FAR,
    ErrorEntry,
    ProbeResult,
    Report,
    SeriesUse,
    SkippedProbe,
    ToolInfo,
    once_a_source,
)
from tracker_health.roles import (
    DEFAULT_PATTERNS,
    LOSS_PART,
    SHOW_TRAINING,
    VAL_LOSS_TERM,
    Meaning,
)
from tracker_health.rules.probe import Probe, thresholds_of
from tracker_health.rules.registry import plugins, probe_classes
from tracker_health.text import count, listing, printable, uncapitalized
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.ending import Ended
from tracker_health.words.retired import retired_rule
from tracker_health.words.verdict import Verdict, worst_verdict

NOTHING_VOUCHES = "nothing here shows whether training worked"
NOT_UNDERSTOOD = "no metric is understood as a loss, an accuracy or a reward"
_REASON_CHARACTERS = 400
_MOST_SETTINGS = 3  # that a note has room for
_ON_CURVES, _ON_ENDS = "LOS", frozenset({"RUN003", "RUN004"})


def configured_probes(config: Config) -> tuple[Probe, ...]:
    """The rules that run under a configuration, with its thresholds.

    Raises:
        ConfigError: the configuration names a rule or threshold that does not exist, or gives a value that makes no
            sense. Thresholds of a rule that is not there are passed over while a plugin does not work: it may be the
            plugin's.
    """
    global _configured_last  # noqa: PLW0603
    classes = probe_classes()
    if _configured_last is not None and _configured_last[0] is config and _configured_last[1] == classes:
        return _configured_last[2]
    probes = _all_configured(config, classes)
    _configured_last = (config, classes, probes)
    return probes


_configured_last: tuple[Config, tuple[type[Probe], ...], tuple[Probe, ...]] | None = None
"""Of thousands of runs nearly all are judged by the same configuration."""


def _all_configured(config: Config, classes: Sequence[type[Probe]]) -> tuple[Probe, ...]:
    names = {probe.name for probe in classes}
    codes = {probe.code for probe in classes}
    for wanted in sorted(config.select | config.ignore):
        if wanted not in names | codes and retired_rule(wanted) is None:
            raise ConfigError(f"there is no rule {wanted!r}", did_you_mean(wanted, names | codes))
    for name in config.thresholds:
        if name not in names and not plugins().errors:
            raise ConfigError(f"rules.{name}: there is no such rule", did_you_mean(name, names))
    return tuple(
        _configured(probe, config.thresholds.get(probe.name, {}))
        for probe in classes
        if config.runs(probe.code, probe.name)
    )


def _configured(probe: type[Probe], values: Mapping[str, float | int]) -> Probe:
    known = thresholds_of(probe)
    for name in values:
        if name not in known:
            raise ConfigError(f"rules.{probe.name}.{name}: there is no such threshold", did_you_mean(name, known))
    try:
        with off_stdout(probe):
            return probe(**values)
    except ConfigError:
        raise
    except Exception as error:  # a plugin's own check of its thresholds
        raise ConfigError(f"rules.{probe.name}: {printable(named(error))}") from error


def known_roles() -> frozenset[str]:
    """The roles that a metric may be given: those with usual names, and what else the rules ask for."""
    asked: set[str] = set()
    for probe in probe_classes():
        with suppress(Exception), off_stdout(probe):
            asked |= _roles_of(probe())
    return frozenset(DEFAULT_PATTERNS) | (asked - set(Part))


def needs_of(config: Config) -> Request:
    """What a source has to read for this configuration, and nothing more."""
    global _request_last  # noqa: PLW0603
    probes = configured_probes(config)
    if _request_last is None or _request_last[0] is not config or _request_last[1] is not probes:
        _request_last = (config, probes, request_for(probes, config))
    return _request_last[2]


_request_last: tuple[Config, tuple[Probe, ...], Request] | None = None
"""As above."""


def request_for(probes: Iterable[Probe], config: Config) -> Request:
    """What a source has to read for these rules, and nothing more."""
    wanted = {role for probe in probes for role in _roles_of(probe)}
    # Optimizer steps and plan are worked out from series as well as from files.
    if wanted & {Part.OPTIMIZER_STEPS, Part.PLAN}:
        wanted |= {"epoch", "global_step"}
    # Where only terms of a loss were logged their sum is judged.
    for whole, term in (("train_loss", LOSS_PART), ("val_loss", VAL_LOSS_TERM)):
        wanted |= {term} if whole in wanted else set()

    return Request(
        roles=config.role_plan(frozenset(wanted)),
        parts=frozenset(role for role in wanted if role in set(Part)),
        checkpoint=config.checkpoint,
        max_download=config.max_download,
    )


def _roles_of(probe: Probe, *, optional: bool = True) -> frozenset[str]:
    """The roles that a rule needs; none where it breaks already here, as it will again when it is run. ``optional``:
    those too that it can do without.
    """
    with suppress(Exception), off_stdout(type(probe)):
        return frozenset(role for need in probe.needs if optional or not need.optional for role in need.roles)
    return frozenset()


def diagnose(evidence: Evidence, config: Config, *, probes: Sequence[Probe] | None = None) -> Report:
    """Judge a run. Pure: the same evidence and configuration give the same report.

    ``rules``: judge by these rules alone, instead of by all that the configuration runs.
    """
    results: list[ProbeResult] = []
    skipped: list[SkippedProbe] = []
    errors = [ErrorEntry(source=problem.source, message=problem.message) for problem in evidence.problems]
    outcomes: list[RuleOutcome] = []
    broken: list[Verdict] = []
    judging = configured_probes(config) if probes is None else probes
    for probe in judging:
        votes = _votes(probe, evidence, config)
        outcome = judged(probe, evidence, config, votes)
        result = None if isinstance(outcome, ErrorEntry) else outcome
        outcomes.append(RuleOutcome(probe, votes, result, _roles_of(probe, optional=False)))
        match outcome:
            case ProbeResult():
                results.append(outcome)
            case SkippedProbe():
                skipped.append(outcome)
            case ErrorEntry():
                errors.append(outcome)
                broken += [Verdict.ERROR] * votes
    if probes is None:
        errors += plugins().errors
    voting = [result for result in results if result.votes]
    verdict = worst_verdict([result.verdict for result in voting] + broken)
    meanings = _meanings(evidence, config)
    unknown = not_understood(evidence, config)
    unread = evidence.unread and not _shows_training(evidence, meanings)
    unjudged = why_unjudged(evidence, outcomes)
    if verdict in (Verdict.PASS, Verdict.SKIP) and (unknown or unread or unjudged is not None):
        verdict = Verdict.ERROR if evidence.problems else Verdict.SKIP
    if verdict is Verdict.PASS and any(problem.unfinished for problem in evidence.problems):
        verdict = Verdict.ERROR
    passes = verdict is Verdict.PASS
    if passes and evidence.goes_on:  # it may fail yet, and filters, gates and baselines take a pass for the last word
        verdict = Verdict.SKIP
    diagnosis, undiagnosed = _diagnosed(evidence, results, verdict, judging)
    scores = [result.score for result in voting if result.score is not None]
    report = Report(
        run=evidence.run,
        verdict=verdict,
        score=min(scores) if scores and verdict not in (Verdict.SKIP, Verdict.ERROR) else None,
        summary="",
        notes=(
            *_notes(evidence, config, unknown),
            *(notes_on(evidence, outcomes) if passes else ()),
            *_advice(results),
            *undiagnosed,
        ),
        results=tuple(results),
        skipped=tuple(skipped),
        errors=tuple(errors),
        series=tuple(_uses(evidence)),
        tool=tool_of(config),
        fingerprint=evidence.fingerprint,
        ended=str(evidence.ending.how) if evidence.ending is not None else "",
        ended_by=printable(evidence.ending.by) if evidence.ending is not None else "",
        children=evidence.info.children,
        diagnosis=diagnosis,
        judged=coverage_of(evidence, outcomes),
    )
    so_far = passes and verdict is Verdict.SKIP
    if verdict is Verdict.PASS:
        return replace(report, summary=why_passed(evidence, results, report.judged))
    return replace(report, summary=_so_far(evidence) if so_far else _summary(report, unjudged or ""))


def _votes(probe: Probe, evidence: Evidence, config: Config) -> bool:
    """Whether a rule's verdict counts. One that compares a run with a baseline advises where nobody froze that."""
    frozen = evidence.baseline is not None and evidence.baseline.frozen
    return config.counts(probe.code, probe.status) and (frozen or Part.BASELINE not in _roles_of(probe))


def _advice(results: Iterable[ProbeResult]) -> Iterator[str]:
    """What a comparison with living runs found, which is informational."""
    for one in results:
        if one.details.get("baseline") and not one.votes and one.verdict is not Verdict.PASS:
            yield printable(f"{one.code} advises: {one.message}; {one.remedy}", 2 * _REASON_CHARACTERS)


def _diagnosed(
    evidence: Evidence, results: Sequence[ProbeResult], verdict: Verdict, probes: Iterable[Probe]
) -> tuple[Diagnosis | None, tuple[str, ...]]:
    """The cause of what was found, and a note where working it out broke: that must not take the verdict with it."""
    if verdict not in (Verdict.WARN, Verdict.FAIL, Verdict.ERROR):
        return None, ()
    try:
        with np.errstate(all="ignore"):
            found = diagnosis_of(evidence, results, {probe.code: probe.thresholds for probe in probes})
            return _with_healthy_part(found, evidence, results), ()
    except Exception as error:  # noqa: BLE001
        return None, (f"the cause could not be worked out: {printable(named(error))}",)


def _with_healthy_part(
    diagnosis: Diagnosis | None, evidence: Evidence, results: Sequence[ProbeResult]
) -> Diagnosis | None:
    """The diagnosis of a run of which only the end was bad, with what its curves were until then."""
    voting = [one for one in results if one.votes]
    found = {one.code for one in voting if one.verdict in (Verdict.WARN, Verdict.FAIL)}
    curves_pass = any(one.verdict is Verdict.PASS and one.code.startswith(_ON_CURVES) for one in voting)
    last = _last_place(evidence)
    if diagnosis is None or not found <= _ON_ENDS or not curves_pass or not last:
        return diagnosis
    return replace(diagnosis, sentence=f"Healthy up to {last}, then {uncapitalized(diagnosis.sentence)}")


def tool_of(config: Config) -> ToolInfo:
    """Which version judges, under which configuration."""
    version, preset_name = __version__, config.preset
    return ToolInfo(version=version, preset=preset_name, config_digest=config.digest, ignored=config.left_out)


def _notes(evidence: Evidence, config: Config, unknown: list[str]) -> Iterable[str]:
    """What a reader of the verdict should know besides. ``unknown``: see ``not_understood``."""
    if evidence.goes_on:
        yield f"the run is still {evidence.info.status.lower()}: this is a verdict on what it has done so far"
    if evidence.ending is not None and evidence.ending.how is Ended.SILENT and plan_reached(evidence):
        yield printable(f"nobody closed the run when its training was done: {evidence.ending.by}", _REASON_CHARACTERS)
    compared = comparison_note(evidence)
    if compared:
        yield compared
    yield from (printable(note, _REASON_CHARACTERS) for note in config.notes)
    yield from evidence.notes
    yield from _superseded(evidence)
    if unknown:
        seen = listing(unknown)
        note = f"{NOT_UNDERSTOOD}: {seen}; set roles.train_loss to name one"
        yield printable(note, _REASON_CHARACTERS)
    names = sorted(evidence.info.metric_names)
    for role in config.unmatched_roles(names):
        wanted = listing(list(config.roles[role]))
        seen = f"seen: {listing(names)}" if names else "there is no metric history"
        yield printable(f"roles.{role} matches no metric: configured: {wanted}; {seen}", _REASON_CHARACTERS)


def _superseded(evidence: Evidence) -> Iterator[str]:
    """Which series were begun again, those after the same number of points in one line."""
    names: dict[int, list[str]] = {}
    for series in evidence.series:
        if series.superseded:
            names.setdefault(series.superseded, []).append(series.name)
    for points, begun in names.items():
        passed, said = count(points, "point"), listing(begun, 3)
        yield printable(f"the steps of {said} began again after {passed}: only what came then is judged", 500)


def comparison_note(evidence: Evidence) -> str:
    """What a run was compared with, and what that counts for; empty for nothing."""
    said = _next_to(evidence) if evidence.siblings else ""
    if evidence.baseline is not None:
        runs = f"{count(len(evidence.baseline.runs), 'run')} of {evidence.baseline.of}"
        frozen = f"compared with baseline {evidence.baseline.digest}: {runs}"
        said = frozen if evidence.baseline.frozen else f"compared with {runs}: this is informational"
        said = f"not compared with the baseline: {evidence.not_compared}" if evidence.not_compared else said
    return printable(said, _REASON_CHARACTERS)


def _next_to(evidence: Evidence) -> str:
    """In which settings a run differs from those that it is shown next to."""
    rows, _ = settings_beside(all_settings(evidence), [one.settings for one in evidence.siblings])
    names = listing([one.name for one in evidence.siblings])
    more = f"; and {len(rows) - _MOST_SETTINGS} more" if len(rows) > _MOST_SETTINGS else ""
    return f"next to {names}: {'; '.join(map(str, rows[:_MOST_SETTINGS])) or 'no setting differs'}{more}"


def _meanings(evidence: Evidence, config: Config) -> Mapping[str, Meaning]:
    """What the run's metrics mean: as it was decided when they were read, or now where nobody has asked before."""
    return config.understand(evidence.info.metric_names) if evidence.roles is None else evidence.roles.meanings


def not_understood(evidence: Evidence, config: Config) -> list[str]:
    """The metrics that nothing is known of, of a run in whose history nothing else shows how training went."""
    meanings = _meanings(evidence, config)
    if _shows_training(evidence, meanings):
        return []
    refuted = _refuted(evidence)
    return sorted(name for name, one in meanings.items() if name in refuted or not one.quantity)


def _shows_training(evidence: Evidence, meanings: Mapping[str, Meaning]) -> bool:
    """Whether any metric shows how training went."""
    refuted = _refuted(evidence)
    return any(one.role in SHOW_TRAINING and name not in refuted for name, one in meanings.items())


def _refuted(evidence: Evidence) -> set[str]:
    return {one.name for one in evidence.series if one.role is None}


def _uses(evidence: Evidence) -> Iterable[SeriesUse]:
    for series in sorted(evidence.series, key=lambda one: (one.role or "", one.name, one.source)):
        yield SeriesUse(
            name=series.name,
            role=series.role,
            source=series.source,
            points=len(series),
            nonfinite=series.nonfinite,
        )


def _last_place(evidence: Evidence) -> str:
    """How far the metrics go that are judged, in words; empty without any."""
    judged = [one for one in evidence.series if one.role and len(one)]
    furthest = max(judged, key=lambda one: (int(one.steps.max()), one.axis is not None, len(one)), default=None)
    return "" if furthest is None else furthest.place(int(furthest.steps.max()))


def _so_far(evidence: Evidence) -> str:
    """Of a run that is still running and in which nothing was found."""
    last = _last_place(evidence)
    return f"{HEALTHY_SO_FAR} up to {last}" if last else HEALTHY_SO_FAR


def _summary(report: Report, unjudged: str) -> str:
    """One sentence: the diagnosis's own, the worst finding, or why there is no verdict.

    ``unjudged``: why nothing shows whether training worked.
    """
    findings = report.findings
    if report.verdict is Verdict.ERROR and report.errors:
        first = next(iter(once_a_source(report.errors)[0]), report.errors[0])
        itself = first.source in (report.run.id, report.run.name)
        return printable(first.message if itself else f"{first.source}: {first.message}", 500)
    if report.diagnosis is not None:
        return report.diagnosis.sentence
    if findings:
        more = f" (+{len(findings) - 1} more)" if len(findings) > 1 else ""
        return printable(f"{findings[0].name}: {findings[0].message}{more}", 500)
    return printable(f"{NOTHING_VOUCHES}: {unjudged}", _REASON_CHARACTERS)
