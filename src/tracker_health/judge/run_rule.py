"""What one rule says of a run: a result, why it could not judge, or how it broke."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from tracker_health.config import Config
from tracker_health.errors import named
from tracker_health.evidence import Evidence, Need, Part, Series
from tracker_health.report.baseline import FEWEST_RUNS
from tracker_health.report.result import ErrorEntry, Finding, ProbeResult, SkippedProbe, strict
from tracker_health.roles import OBJECTIVE_LOSS
from tracker_health.rules.plugins import quietly
from tracker_health.rules.probe import Probe, special_cases_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import count, listing, printable, short_name
from tracker_health.words.verdict import Verdict

_PAST_ALL_BOUNDS = 1000.0
_MOST_NAMES = 12  # of series that one finding is about


def off_stdout(probe: type[Probe]) -> AbstractContextManager[object]:
    """While code of this rule runs: what a plugin prints goes nowhere that others read."""
    return nullcontext() if probe in BUILT_IN else quietly()


def judged(probe: Probe, evidence: Evidence, config: Config, votes: bool) -> ProbeResult | SkippedProbe | ErrorEntry:
    """What a rule finds, or why it cannot; whatever it raises becomes an error entry. ``votes``: it counts."""
    try:
        with off_stdout(type(probe)):
            return _found(probe, evidence, config, votes)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  a rule that breaks, or leaves by SystemExit, must not take the verdict with it
        message = f"the rule broke: {printable(named(error))}"
        return ErrorEntry(code=probe.code, name=probe.name, source=f"{probe.code} {probe.name}", message=message)


def _found(probe: Probe, evidence: Evidence, config: Config, votes: bool) -> ProbeResult | SkippedProbe | ErrorEntry:
    unmet = _first_unmet(probe.needs, evidence)
    if unmet is not None:
        return _without_evidence(probe, unmet, evidence)
    with np.errstate(all="ignore"):  # a loss of 1e308 overflows to infinity; it is judged, not warned about
        finding = probe.judge(evidence)
    if finding.verdict is Verdict.SKIP:
        reason = f"{finding.message}{_case_in_words(probe, finding)}"
        return SkippedProbe(code=probe.code, name=probe.name, reason=reason, details=strict(finding.details))
    finding = replace(finding, about=finding.about or _about(probe, finding, evidence))
    return _result(probe, finding, config, votes, _guess_behind(probe, evidence))


def _about(probe: Probe, finding: Finding, evidence: Evidence) -> tuple[str, ...]:
    """The series in which something was found: of the first role that the rule needs, those that its message names, in
    that order, or else the one that stands for the role. None where the rule looks at no series first.
    """
    roles = next((need.roles for need in probe.needs), ())
    first = next((one for role in roles if (one := evidence.find(role)) is not None), None)
    if first is None:
        return ()
    places = {one.name: _place_of(one, finding.message) for one in evidence.series if one.role in roles}
    named = sorted((place, name) for name, place in places.items() if place is not None)
    return tuple(name for _, name in named[:_MOST_NAMES]) or (first.name,)


def _place_of(series: Series, message: str) -> int | None:
    """Where a message first has the name of a series, and not within a longer one."""
    found = re.search(rf"(?<![\w/.]){re.escape(short_name(series.name))}(?![\w/]|\.\w)", message)
    return None if found is None else found.start()


def _guess_behind(probe: Probe, evidence: Evidence) -> Series | None:
    """The series of a guessed role without which a rule would not have judged, unless what it finds is wrong of any.
    Values past all bounds are: a loss of whatever kind does not grow a thousandfold.
    """
    needed = [need for need in probe.needs if not need.optional]
    judged = [next((one for role in need.roles if (one := evidence.find(role)) is not None), None) for need in needed]
    guess = next((one for one in judged if one is not None and one.guessed), None)
    if probe.fails_on_guesses or guess is None:
        return None
    values = np.abs(guess.finite().values)
    return None if len(values) and values[-1] > _PAST_ALL_BOUNDS * max(1.0, values[0]) else guess


def _result(probe: Probe, finding: Finding, config: Config, votes: bool, guess: Series | None) -> ProbeResult:
    verdict, message = _judgement(probe, finding), f"{finding.message}{_case_in_words(probe, finding)}"
    unsure = finding.confidence == "low" and config.demote_low_confidence
    if verdict is Verdict.FAIL and (unsure or guess is not None):
        verdict = Verdict.WARN
        finding = replace(finding, score=max(finding.score or 0.0, 0.5))
    if verdict is not Verdict.PASS and guess is not None:
        message += f" (taking {short_name(guess.name)} for {guess.role} is a guess)"
    if probe.code in config.measure_only:
        message = f"measured only, informational under preset {config.preset}: {message}"
        verdict = Verdict.PASS
    return ProbeResult(
        code=probe.code,
        name=probe.name,
        symptom=str(probe.symptom),
        status=probe.status,
        verdict=verdict,
        votes=votes,
        score=finding.scored(),
        message=message,
        remedy=finding.remedy if verdict is not Verdict.PASS else "",
        measured=_plain(finding.measured),
        details=strict(finding.details),
        thresholds=probe.thresholds,
        steps=tuple(int(step) for step in finding.steps),
        confidence=finding.confidence,
        kind=finding.kind,
        case=finding.case,
        onset=finding.onset if verdict is not Verdict.PASS else None,
        about=tuple(str(name) for name in finding.about),
    )


def _case_in_words(probe: Probe, finding: Finding) -> str:
    """What the message says of the special case that decided, once it is sure that the rule has it."""
    if not finding.case:
        return ""
    if finding.case not in special_cases_of(type(probe)):
        raise ValueError(f"a finding is of the special case {finding.case!r}, which its docstring does not name")
    return f" (special case: {finding.case})"


def _judgement(probe: Probe, finding: Finding) -> Verdict:
    """The verdict of a finding, once it is sure that all of the finding can be shown."""
    verdict = Verdict(finding.verdict)
    if finding.kind and finding.kind not in probe.kinds:
        raise ValueError(f"a finding is of the kind {finding.kind!r}, which the rule does not declare")
    if verdict is Verdict.ERROR:
        raise ValueError("a finding is pass, warn, fail or skip")
    for text in (finding.message, finding.remedy):
        if not isinstance(text, str):
            raise TypeError(f"message and remedy are text, not {text!r}")
    return verdict


def _plain(measured: Mapping[str, Any]) -> dict[str, float | int | str]:
    plain = {str(key): value.item() if hasattr(value, "item") else value for key, value in measured.items()}
    for key, value in plain.items():
        if not isinstance(value, (float, int, str)):
            raise TypeError(f"measured {key!r} is a {type(value).__name__}, not a number or text")
    return plain


def _first_unmet(needs: Sequence[Need], evidence: Evidence) -> Need | None:
    for need in needs:
        if not need.optional and all(evidence.amount(role) < need.min_points for role in need.roles):
            return need
    return None


def _without_evidence(probe: Probe, need: Need, evidence: Evidence) -> SkippedProbe | ErrorEntry:
    for problem in evidence.problems:
        if problem.roles.intersection(need.roles):
            return ErrorEntry(
                code=probe.code,
                name=probe.name,
                source=problem.source,
                message=f"could not be judged: {problem.message}",
            )
    found = max(evidence.amount(role) for role in need.roles)
    details = {"role": need.role, f"num_{need.unit}": found, f"min_{need.unit}": need.min_points}
    reason = _why_too_few(need, found, evidence) if found else _why_missing(need, evidence)
    return SkippedProbe(code=probe.code, name=probe.name, reason=reason, details=details)


def _why_too_few(need: Need, found: int, evidence: Evidence) -> str:
    known = evidence.steps_at_least
    if need.unit == "optimizer_steps" and not known.by:
        return f"neither optimizer, checkpoint nor log tells how many steps were done, {need.min_points} are needed"
    amount = count(found, _spoken(need.unit).removesuffix("s"))
    by = f" (counted by {printable(known.by, 80)})" if need.unit == "optimizer_steps" else ""
    return f"only {amount} of {_spoken(need.role)}{by}, {need.min_points} are needed"


def _why_missing(need: Need, evidence: Evidence) -> str:
    for role in need.roles:
        if role in evidence.missing:
            return evidence.missing[role]
    explain = _PART_REASONS.get(need.role)
    if explain is not None:
        return explain(evidence)
    roles = " or ".join(need.roles)
    if not evidence.info.metric_names:
        return f"no metric has the role {roles}: there is no metric history"
    objective = evidence.find(OBJECTIVE_LOSS)
    if "train_loss" in need.roles and objective is not None:
        return (
            f"{short_name(objective.name)} is a loss that need not fall, as in reinforcement learning or of "
            "adversaries: only NaN and infinity are looked for in it; set roles.train_loss to judge it like others"
        )
    seen = listing(sorted(evidence.info.metric_names))
    return f"no metric has the role {roles}; seen: {seen}; set roles.{need.role} to name one"


def _why_no_second_moments(evidence: Evidence) -> str:
    if evidence.optimizer is None:
        return evidence.missing.get(Part.OPTIMIZER_STATE, "no optimizer state was found")
    return (
        f"the optimizer in {printable(evidence.optimizer.source)} keeps no second moment that is read (SGD, Lion, Muon)"
    )


def _why_no_progress(evidence: Evidence) -> str:
    if not evidence.plan:
        return "the planned length is not known: no param max_steps or num_train_epochs"
    plan = " and ".join(f"{name} is {printable(value, 40)}" for name, value in evidence.plan.items())
    counters = dict.fromkeys("epoch" if "epoch" in name else "global_step" for name in evidence.plan)
    return f"{plan}, but how far the run came is not known: log a metric {' or '.join(counters)}"


def _why_no_ending(status: str) -> str:
    known = f"the tracker says {printable(status.lower(), 40)}" if status else "no tracker keeps that of it"
    return f"how the run ended is not known: {known}"


_PART_REASONS: Mapping[str, Callable[[Evidence], str]] = {
    Part.OPTIMIZER_STATE: lambda _: "no optimizer state was found",
    Part.SECOND_MOMENTS: _why_no_second_moments,
    Part.WEIGHTS: lambda _: "no weights file was found",
    Part.WEIGHT_CHANGES: lambda _: "no earlier checkpoint with the same weights was found",
    Part.OPTIMIZER_STEPS: lambda _: (
        "the number of optimizer steps is not known: no checkpoint, trainer state or metric global_step"
    ),
    Part.PLAN: _why_no_progress,
    Part.TEXT_LOG: lambda _: "no console log was found",
    Part.ENDING: lambda evidence: _why_no_ending(evidence.info.status),
    Part.DLM_STEP_LOG: lambda _: "no step log logs/train-*.jsonl was found",
    Part.DLM_CHECKPOINT: lambda _: "no training_state.pt with a global step was found",
    Part.RANKS: lambda _: "the run is judged by itself: sweep --by judges the ranks of one training together",
    Part.COLLECTIVES: lambda _: "no rank reported a collective operation that timed out, and no recorder left a dump",
    Part.BASELINE: lambda evidence: (
        evidence.not_compared
        or (
            evidence.siblings
            and f"no band: {count(len(evidence.siblings), 'run')} of --against, {FEWEST_RUNS} are needed"
        )
        or "no baseline was named: --against compares a run with healthy ones"
    ),
}


def _spoken(word: str) -> str:
    return word.replace("_", " ")
