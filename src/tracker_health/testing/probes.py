"""One-line tests for rules: ``check_probe(MyRule, series={"loss": [4, 3, 2]}, expect="pass")``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tracker_health.config import Config
from tracker_health.evidence import (
    Evidence,
    OptimizerState,
    Part,
    Request,
    RunInfo,
    RunRef,
    Series,
    StepUnit,
    TextLog,
    Weights,
    confirm,
)
from tracker_health.judge.engine import diagnose, request_for
from tracker_health.report.result import ProbeResult, Report, SkippedProbe
from tracker_health.rules.probe import Probe, flaw_in
from tracker_health.testing.parts import Arrays, StateDict, make_optimizer_state, make_text_log, make_weights
from tracker_health.text import listing
from tracker_health.words.verdict import Verdict

Points = Sequence[float] | Sequence[tuple[int, float]]
"""A metric's history: its values, logged at the steps 0, 1, 2, ...; or pairs of step and value."""

_RUN = RunRef(store="directory", id="check_probe", name="check_probe")
# The parts that a store reads from a checkpoint's optimizer file; and the weights file next to it.
_OPTIMIZER_PARTS = (
    Part.OPTIMIZER_STATE,
    Part.SECOND_MOMENTS,
    Part.OPTIMIZER_STEPS,
    Part.SAVED_LOSS_SCALE,
    Part.SAVED_SCHEDULE,
    Part.PLAN,
)


def check_probe(
    probe: Probe | type[Probe],
    *,
    series: Mapping[str, Points | Series] | None = None,
    params: Mapping[str, object] | None = None,
    status: str = "FINISHED",
    global_step: int | None = None,
    optimizer: OptimizerState | StateDict | None = None,
    weights: Weights | Arrays | None = None,
    previous_weights: Arrays | None = None,
    text_log: TextLog | str | None = None,
    step_unit: StepUnit = StepUnit.UNKNOWN,
    evidence: Evidence | None = None,
    config: Config | None = None,
    expect: Verdict | str | None = None,
) -> ProbeResult | SkippedProbe:
    """What the engine makes of one rule on this evidence, after checking everything that a valid rule must do.

    A metric or part that the rule does not need is not there for it, as in a real run.

    Args:
        probe: The rule, built-in or of a plugin; or its class, for the default thresholds.
        series: Histories by metric name: values logged at the steps 0, 1, 2, ..., or pairs of step and value, or a
            ``Series``. Names become roles through the configuration, as they do for a real run (``loss`` is the
            training loss); a ``Series`` that has a role keeps it.
        params: The run's own record of its settings: ``{"learning_rate": 0.1, "max_steps": 1000}``.
        status: How its tracker says that it stands, in MLflow's words.
        global_step: Optimizer steps done, by its trainer's record.
        optimizer: A saved optimizer: ``optimizer.state_dict()`` with arrays in place of tensors, or what is
            kept of each parameter by its name: ``{"fc.weight": {"step": 100, "exp_avg_sq": array}}``. See
            ``make_optimizer_state``.
        weights: The saved weights, arrays by name. See ``make_weights``.
        previous_weights: Those of the checkpoint before, where ``weights`` are arrays.
        text_log: What the training printed. See ``make_text_log``.
        step_unit: What the steps of the series count.
        evidence: A run with parts that none of these give, in place of all of them; it is judged as it is.
        config: Role patterns and votes, by default those of the preset ``default``.
        expect: The verdict that must come out, ``skip`` for a rule that the engine has to skip or that skips itself.

    Returns:
        What a report would list of the rule: its result, or why it was skipped.

    Raises:
        AssertionError: the rule does not declare or explain itself, breaks, or is not pure. Or its result cannot be
            shown in a report, or is another verdict than expected.
        ValueError: ``evidence`` is next to parts of its own, or ``previous_weights`` next to no arrays.
    """
    _assert(flaw_in(probe if isinstance(probe, type) else type(probe)))
    rule = probe() if isinstance(probe, type) else probe
    settings = config or Config()
    if evidence is None:
        request = request_for([rule], settings)
        info = RunInfo(
            status=status,
            params={key: str(value) for key, value in (params or {}).items()},
            metric_names=tuple(series or ()),
            global_step=global_step,
        )
        evidence = Evidence(
            run=_RUN,
            info=info,
            series=_confirmed(request, series or {}, step_unit),
            optimizer=_optimizer(optimizer) if request.needs(*_OPTIMIZER_PARTS) else None,
            weights=_weights(weights, previous_weights) if request.needs(Part.WEIGHTS, Part.WEIGHT_CHANGES) else None,
            text_log=_text_log(text_log) if request.needs(Part.TEXT_LOG, Part.ENDING, Part.COLLECTIVES) else None,
        )
    elif any(one is not None for one in (series, params, global_step, optimizer, weights, previous_weights, text_log)):
        raise ValueError("evidence is in place of series, params and parts: give one or the other")
    outcome = _judged(rule, evidence, settings)
    _assert_expected(outcome, expect)
    return outcome


def _judged(rule: Probe, evidence: Evidence, settings: Config) -> ProbeResult | SkippedProbe:
    report = diagnose(evidence, settings, probes=(rule,))
    if report.errors:
        raise AssertionError(f"{rule.code} {rule.name}: {report.errors[0].message}") from _cause(rule, evidence)
    _assert_sound(report)
    if diagnose(evidence, settings, probes=(rule,)).to_json() != report.to_json():
        raise AssertionError(f"{rule.code} {rule.name} is not pure: judging twice gave different results")
    return report.results[0] if report.results else report.skipped[0]


def _optimizer(given: OptimizerState | StateDict | None) -> OptimizerState | None:
    return given if given is None or isinstance(given, OptimizerState) else make_optimizer_state(given)


def _weights(given: Weights | Arrays | None, previous: Arrays | None) -> Weights | None:
    if given is not None and not isinstance(given, Weights):
        return make_weights(given, previous=previous)
    if previous is not None:
        raise ValueError("previous_weights is next to weights that are arrays by name")
    return given


def _text_log(given: TextLog | str | None) -> TextLog | None:
    return make_text_log(given) if isinstance(given, str) else given


def _assert(problem: str | None) -> None:
    if problem is not None:
        raise AssertionError(problem)


def _confirmed(request: Request, series: Mapping[str, Points | Series], step_unit: StepUnit) -> tuple[Series, ...]:
    """Only those that the rule needs, with their roles: what a store would have read."""
    ready = {name: one for name, one in series.items() if isinstance(one, Series) and one.role is not None}
    roles = request.roles.needed([name for name in series if name not in ready])
    read = tuple(_series(name, series[name], role, step_unit) for name, role in roles.items())
    return (*confirm(read, request.roles.of(series)).series, *ready.values())


def _series(name: str, points: Points | Series, role: str, step_unit: StepUnit) -> Series:
    if isinstance(points, Series):
        return replace(points, name=name, role=role)
    table = np.asarray(points, dtype=np.float64)
    if not table.size:
        table = np.empty((0, 2))
    elif table.ndim == 1:
        table = np.column_stack([np.arange(len(table), dtype=np.float64), table])
    if table.ndim != 2 or table.shape[1] != 2:
        raise AssertionError(f"the series {name!r} is neither a list of values nor one of (step, value) pairs")
    steps, values = table[:, 0].astype(np.int64), table[:, 1].copy()
    for array in (steps, values):
        array.setflags(write=False)  # other rules see the same arrays: one that writes into them must not pass
    return Series(name=name, steps=steps, values=values, role=role, source="check_probe", step_unit=step_unit)


def _cause(rule: Probe, evidence: Evidence) -> BaseException | None:
    """The exception behind an error entry, for its traceback."""
    try:
        rule.judge(evidence)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the engine met it before: it is shown, not handled
        return error
    return None


def _assert_sound(report: Report) -> None:
    """The report is strict JSON that reads back as itself, and says what people need."""
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    if Report.from_json(document).to_json() != report.to_json():
        raise AssertionError("the report does not survive being written as JSON and read again")
    for result in report.results:
        _assert(_flaw_in_result(result))


def _flaw_in_result(result: ProbeResult) -> str | None:
    if not result.message.strip() or "\n" in result.message:
        return f"{result.code}: the message must be one line, not {result.message!r}"
    if result.verdict is Verdict.PASS:
        return None
    if not re.search(r"\d", result.message):
        return f"{result.code}: the message of a {result.verdict} must name numbers, not just {result.message!r}"
    if not result.remedy.strip():
        return f"{result.code}: a {result.verdict} must say what to do (Finding.remedy)"
    if result.score == 1.0:
        return f"{result.code}: a {result.verdict} cannot have the score 1, which is healthy"
    return None


def _assert_expected(outcome: ProbeResult | SkippedProbe, expect: Verdict | str | None) -> None:
    verdict, told = _spoken(outcome)
    if expect is not None and verdict is not Verdict(expect):
        raise AssertionError(f"{outcome.code} {outcome.name}: expected {Verdict(expect)}, got {verdict}: {told}")


def _spoken(outcome: ProbeResult | SkippedProbe) -> tuple[Verdict, str]:
    if isinstance(outcome, SkippedProbe):
        return Verdict.SKIP, outcome.reason
    measured: dict[str, Any] = dict(outcome.measured)
    return outcome.verdict, f"{outcome.message} ({listing([f'{key} = {value}' for key, value in measured.items()])})"
