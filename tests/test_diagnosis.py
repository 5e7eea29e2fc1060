"""The diagnosis: one cause, how sure, what it explains, one thing to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.diagnosis import CAUSE_GROUPS, CAUSES, Facts, cause_named, diagnosis_of
from tracker_health.diagnosis._counts import Counts, counts
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, TextLog, confirm
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.report.result import ProbeResult, Report
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="run", name="run")
NAMES = {cause.name for cause in CAUSES}
SIGNS = list(dict.fromkeys(sign for cause in CAUSES for sign in (*cause.signs, *cause.never, *cause.doubts)))
CODES = {probe.code for probe in BUILT_IN}


def result(code, *, verdict=Verdict.FAIL, votes=True, steps=(), message="it was found", details=None, **measured):
    return ProbeResult(
        code=code, name=code.lower(), symptom="diverged", status="stable", verdict=verdict, votes=votes, score=0.0,
        message=message, steps=tuple(steps), measured=measured, details=details or {},
    )  # fmt: skip


def evidence(series=None, **params):
    request = needs_of(Config())
    made = [
        Series(name=name, steps=np.arange(len(values)), values=np.array(values, dtype=np.float64), source="log")
        for name, values in (series or {}).items()
    ]
    info = RunInfo(params={key: str(value) for key, value in params.items()}, metric_names=tuple(series or ()))
    return Evidence(run=RUN, info=info, series=confirm(tuple(made), request.roles.of(series or ()))[0])


def test_every_cause_is_whole():
    assert len(NAMES) == len(CAUSES)
    for cause in CAUSES:
        facts = Facts(evidence(), [])
        assert cause.summary.endswith(".")
        assert cause.test
        assert bool(cause.unknown) is not bool(cause.requires or cause.defines)
        assert cause.action(facts).text
        assert cause.clause(facts)
        assert cause.explains
        assert cause_named(cause.name) is cause
    names = [sign.name for sign in SIGNS]
    assert len(set(names)) == len(names)


def test_every_cause_is_in_one_group():
    assert sorted(cause.name for group in CAUSE_GROUPS.values() for cause in group) == sorted(
        cause.name for cause in CAUSES
    )


def test_signs_look_at_rules_and_kinds_that_there_are():
    kinds = {probe.code: probe.kinds for probe in BUILT_IN}
    for cause in CAUSES:
        assert {sign.looks_at for sign in cause.signs if sign.kind == "finding"} | cause.explains <= CODES
    for sign in SIGNS:
        assert set(sign.of) <= set(kinds.get(sign.looks_at, ()))


def test_counts_are_of_signs_that_there_are_and_what_is_judged_has_none():
    known = {(cause.name, sign.name) for cause in CAUSES for sign in cause.signs}
    judged = {(cause.name, sign.name) for cause in CAUSES for sign in cause.judged}
    assert set(counts()) <= known
    assert judged <= known
    assert not judged & set(counts())
    assert len(judged) <= 0.2 * len(known)


def test_the_weight_of_a_count_is_a_power_of_two():
    assert Counts(8, 15, 1, 32).weight == round(np.log2(((8 + 9 / 47) / 16) / (1.5 / 33)), 1)
    assert Counts(0, 40, 30, 40).weight < 0
    assert Counts(0, 5, 4, 309).weight < 0, "that few runs have the cause is no sign of it"


def test_what_speaks_for_a_cause_and_against_it_is_as_counted():
    """A sign seen more often with the cause than without it adds to its sum, one seen more often without it takes from
    it.
    """
    for cause in CAUSES:
        for sign in cause.signs:
            found = cause.counts_of(sign)
            if found is not None:
                more = found.seen * found.of_others - found.elsewhere * found.of
                assert cause.weight(sign) * more >= 0.0 or abs(cause.weight(sign)) < 1.0


def test_a_run_without_findings_has_no_diagnosis():
    assert diagnosis_of(evidence(), [result("LOS004", verdict=Verdict.PASS)]) is None
    assert diagnosis_of(evidence(), [result("LOS004", votes=False)]) is None


def test_a_finding_that_no_cause_explains_is_left_alone():
    assert diagnosis_of(evidence(), [result("REG003")]) is None


def test_a_setting_beyond_what_trains_outweighs_its_effects():
    findings = [result("OPT006", reach=1e-10), result("LOS004", steps=(15,)), result("WGT004", scale=604.0)]
    found = diagnosis_of(evidence(lr="3.0", opt="sgd"), findings)
    assert found.cause == "learning-rate-too-high"
    assert found.action.setting == "learning_rate"
    assert (found.action.old, found.action.new) == (3.0, 0.01)
    assert found.explains == ("LOS004", "OPT006", "WGT004")
    assert found.certainty == "certain"


@pytest.mark.parametrize(
    ("params", "cause"),
    [
        ({"lr": "19"}, "learning-rate-too-high"),  # whatever the optimizer is
        ({"lr": "1"}, "diverged-cause-unknown"),  # as D-Adaptation and Adadelta begin
        ({"lr": "19", "optimizer": "LARS"}, "diverged-cause-unknown"),
    ],
)
def test_a_rate_beyond_all_needs_no_optimizer(params, cause):
    assert diagnosis_of(evidence(**params), [result("LOS004", steps=(15,))]).cause == cause


def test_without_its_setting_a_cause_is_less_sure():
    found = diagnosis_of(evidence(), [result("LOS004", steps=(15,))])
    assert found.cause == "diverged-cause-unknown"
    assert found.certainty != "certain"


@pytest.mark.parametrize(("jump", "cause"), [(10, "learning-rate-too-high"), (30, "diverged-cause-unknown")])
def test_a_sign_does_not_count_that_came_after_what_it_is_said_to_cause(jump, cause):
    run = evidence({"learning_rate": [1e-4] * jump + [2e-3] * (40 - jump)}, opt="adam")
    assert diagnosis_of(run, [result("LOS004", steps=(15,))]).cause == cause


def test_a_loss_that_recovered_is_not_said_to_be_nan_from_there_on():
    """Neither where single gradient norms were NaN: only those that stayed so contradict it."""
    losses = np.linspace(2.0, 1.0, 40)
    losses[[5, 17]] = np.nan
    nan = result("LOS001", verdict=Verdict.WARN, steps=(5, 17), first_step=5, last_step=17, nonfinite=2)
    norms = result("GRD001", verdict=Verdict.WARN, steps=(5, 17))
    for findings in ([nan], [nan, norms]):
        sentence = diagnosis_of(evidence({"loss": losses}), findings).sentence
        assert "at steps 5 and 17 alone, and finite again" in sentence
        assert "from step" not in sentence


def test_findings_are_told_in_the_order_of_time():
    findings = [result("WGT001"), result("GRD001", steps=(12,)), result("LOS001", steps=(7, 9))]
    assert diagnosis_of(evidence(), findings).explains == ("LOS001", "GRD001", "WGT001")


def test_labels_that_are_all_masked():
    run = evidence({"loss": [0.0] * 40, "grad_norm": [0.0] * 40})
    found = diagnosis_of(run, [result("GRD003")])
    assert found.cause == "all-labels-ignored"
    assert "masked" in found.sentence


def test_an_evaluation_that_alone_is_not_finite():
    run = evidence({"loss": np.linspace(3, 1, 40), "eval_loss": [float("nan")] * 4})
    found = diagnosis_of(run, [result("LOS001", steps=(0,))])
    assert found.cause == "evaluation-stuck"


def test_a_loss_that_only_rises_is_maximised():
    """At a rate that is known to be usual; at any other it may as well have diverged."""
    rises, found = {"loss": np.exp(np.linspace(0, 5, 60))}, [result("LOS004", steps=(10,))]
    assert diagnosis_of(evidence(rises, lr=1e-3, optimizer="adam"), found).cause == "loss-implemented-wrong"
    assert diagnosis_of(evidence(rises), found).cause == "diverged-cause-unknown"


@pytest.mark.parametrize("high", [60.0, 6e3, 6e9])
def test_a_loss_that_came_down_before_it_exploded_is_not_maximised(high):
    falls, explodes = 2.2 * np.exp(-np.arange(100) / 20) + 0.1, np.geomspace(0.2, high, 200)
    found = [result("LOS004", steps=(100,), kind="rose")]
    run = evidence({"loss": np.concatenate([falls, explodes])}, lr=1e-3, optimizer="adam")
    assert diagnosis_of(run, found).cause != "loss-implemented-wrong"


def test_a_loss_that_is_back_where_it_began():
    loss = [*np.linspace(2.3, 0.5, 60), *np.linspace(2.2, 1.0, 40)]
    log = TextLog(source="train.log", lines=100, rows=100, resumed=(59,))
    run = replace(evidence({"loss": loss}), text_log=log)
    found = diagnosis_of(run, [result("LOS004", steps=(60,))])
    assert found.cause == "resume-incomplete"
    assert "between step 59 and step 60" in found.sentence


def test_the_end_of_a_process():
    end = result("RUN004", details={"text": "OSError: No space left on device"}, ended="failed")
    assert diagnosis_of(evidence(), [end]).cause == "disk-full"
    own = result("RUN004", details={"text": "KeyError: 'x'\x1b[31m"}, ended="failed")
    found = diagnosis_of(evidence(), [own])
    assert found.cause == "own-error"
    assert "\x1b" not in found.action.text


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_no_cause_breaks_on_odd_findings(cause):
    facts = Facts(
        evidence({"loss": [float("nan")] * 5}), [result(code, verdict=Verdict.WARN) for code in sorted(CODES)]
    )
    assert cause.clause(facts)
    assert cause.action(facts).text
    assert isinstance(cause.present(facts), tuple)


def test_the_report_has_it_and_is_read_again():
    run = evidence({"loss": np.exp(np.linspace(0, 8, 80)), "lr": [1e-3] * 80})
    report = diagnose(run, Config())
    assert report.diagnosis is not None
    assert report.explained
    document = json.loads(json.dumps(report.to_json()))
    assert document["schema"] == "tracker-health/report/2"
    assert Report.from_json(document).to_json() == document
    assert Diagnosis.from_json(document["diagnosis"]) == report.diagnosis


def test_the_schema_names_all_causes_and_those_that_older_reports_name():
    schema = json.loads((Path(__file__).parent.parent / "docs" / "report.schema.json").read_text())
    assert set(schema["$defs"]["cause"]["enum"]) == NAMES | {"too-good-to-be-true"}


def test_what_ended_the_process_comes_after_what_it_died_of():
    text = "Exception: Current loss scale already at minimum"
    end = result("RUN004", steps=(100,), details={"text": text}, ended="failed")
    found = diagnosis_of(evidence({"loss": np.linspace(3, 1, 40)}), [end, result("AMP001", steps=(151,))])
    assert found.cause == "fp16-overflow"
    assert found.explains == ("AMP001", "RUN004")
