"""From evidence to a report: skipping, erring, voting, and what the configuration can change."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import tracker_health.judge.engine as engine_module
from tracker_health.config import PRESETS, Config, preset
from tracker_health.errors import ConfigError
from tracker_health.evidence import (
    Evidence,
    MomentStats,
    Need,
    OptimizerState,
    Part,
    Problem,
    RunInfo,
    RunRef,
    Series,
    StepUnit,
    TensorState,
)
from tracker_health.judge.engine import NOTHING_VOUCHES, configured_probes, diagnose, known_roles, needs_of
from tracker_health.judge.run_rule import judged as judged_by
from tracker_health.report.result import Finding
from tracker_health.roles import DEFAULT_PATTERNS
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.rules.registry import probe_classes
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="runs/a", name="a")
DESCENT = 1.0 + 3.0 * np.exp(-np.arange(200) / 30)
FLAT = 2.0 + 0.01 * np.random.default_rng(0).standard_normal(200)
EXPLODED = np.concatenate([DESCENT[:150], np.full(50, 9.0)])
WITH_NAN = np.where(np.arange(200) < 150, DESCENT, np.nan)


def evidence_of(metrics=None, config=None, **parts):
    """Evidence as a store makes it: metrics by name, of which only those with a needed role are read."""
    metrics = metrics or {}
    config = config or Config()
    roles = needs_of(config).roles.needed(list(metrics))
    series = tuple(
        Series(
            name=name,
            role=role,
            steps=np.arange(len(metrics[name])),
            values=np.asarray(metrics[name], dtype=np.float64),
            source="metrics",
        )
        for name, role in roles.items()
    )
    parts.setdefault("info", RunInfo(metric_names=tuple(metrics)))
    return Evidence(run=RUN, series=series, **parts)


def judged(metrics=None, config=None, **parts):
    config = config or Config()
    return diagnose(evidence_of(metrics, config, **parts), config)


def result_of(report, code):
    return next(one for one in report.results if one.code == code)


def skip_of(report, code):
    return next(one for one in report.skipped if one.code == code)


def codes(entries):
    return {one.code for one in entries}


def adam(second=1e-6, **more):
    stats = MomentStats(
        count=4, mean=second, rms=second, minimum=second, maximum=second, zeros=4 * (not second), nonfinite=0
    )
    tensor = TensorState(id=0, shape=(2, 2), step=1000.0, second_moment=stats)
    return OptimizerState(source="optimizer.pt", tensors=(tensor,), global_step=1000, **more)


# Rules made for these tests


@dataclass(frozen=True, kw_only=True)
class Rule(Probe):
    """A rule that says what its class says."""

    code = "TST001"
    name = "test-rule"
    symptom = Symptom.UNSTABLE
    finding: ClassVar[Finding] = Finding(verdict=Verdict.PASS, message="all 3 are fine")

    @property
    def needs(self):
        return ()

    def judge(self, evidence):
        return self.finding


def rule(verdict, *, code="TST001", raises=None, broken=None, status="stable", vouches=True, needs=(), **finding):
    def judge(self, evidence):
        if raises is not None:
            raise raises
        return broken or self.finding

    return type(
        f"Rule{code}",
        (Rule,),
        {
            "__doc__": "One.",
            "code": code,
            "name": f"test-{code.lower()}",
            "status": status,
            "vouches": vouches,
            "finding": Finding(verdict=verdict, message=f"{code} measured 3", remedy="do 4", **finding),
            "judge": judge,
            "needs": property(lambda self: needs),
        },
    )


@pytest.fixture
def with_rules(monkeypatch):
    """Judges with these rules alone."""

    def run(*rules, config=None, evidence=None):
        monkeypatch.setattr(engine_module, "probe_classes", lambda: rules)
        return diagnose(evidence or Evidence(run=RUN), config or Config())

    return run


# The verdict


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], "skip"),
        ([Verdict.PASS], "pass"),
        ([Verdict.PASS, Verdict.WARN], "warn"),
        ([Verdict.WARN, Verdict.FAIL, Verdict.PASS], "fail"),
        ([Verdict.SKIP], "skip"),
        ([Verdict.SKIP, Verdict.PASS], "pass"),
    ],
)
def test_the_worst_voter_decides(verdicts, expected, with_rules):
    report = with_rules(*(rule(verdict, code=f"TST00{index}") for index, verdict in enumerate(verdicts)))
    assert report.verdict == expected
    assert report.severity == {"skip": None, "pass": 0, "warn": 1, "fail": 3}[expected]


def test_the_score_is_the_lowest_of_the_voters(with_rules):
    rules = rule(Verdict.PASS, score=0.9), rule(Verdict.WARN, code="TST002", score=0.4)
    assert with_rules(*rules).score == 0.4
    assert with_rules(rules[0]).score == 0.9
    assert with_rules().score is None


@pytest.mark.parametrize(("score", "kept"), [(7.0, 1.0), (-1.0, 0.0), (None, 1.0)])
def test_scores_stay_between_0_and_1(score, kept, with_rules):
    assert with_rules(rule(Verdict.PASS, score=score)).score == kept


def test_a_pass_needs_a_rule_that_vouches(with_rules):
    report = with_rules(rule(Verdict.PASS, vouches=False))
    reason = "no rule that could show it is among those that vote"
    assert (report.verdict, report.score, report.summary) == (Verdict.SKIP, None, f"{NOTHING_VOUCHES}: {reason}")
    assert with_rules(rule(Verdict.PASS, vouches=True)).verdict is Verdict.PASS


@pytest.mark.parametrize("verdict", [Verdict.WARN, Verdict.FAIL])
def test_a_finding_needs_none(verdict, with_rules):
    assert with_rules(rule(verdict, vouches=False)).verdict is verdict


def test_a_rule_that_vouches_but_was_skipped_does_not_vouch(with_rules):
    needs = (Need(role="train_loss"),)
    assert (
        with_rules(rule(Verdict.PASS, needs=needs), rule(Verdict.PASS, code="TST002", vouches=False)).verdict == "skip"
    )


def test_only_system_metrics_are_no_pass():
    report = judged({"gpu/utilisation": np.ones(100), "train/epoch": np.ones(100)})
    assert report.verdict is Verdict.SKIP
    assert report.summary == (
        "nothing here shows whether training worked: no metric has the role train_loss or val_loss;"
        " seen: gpu/utilisation, train/epoch; set roles.train_loss to name one"
    )


def test_a_skip_says_in_its_summary_why():
    parent = judged(missing={"train_loss": "parent run: it has no metrics of its own"})
    assert parent.summary == f"{NOTHING_VOUCHES}: parent run: it has no metrics of its own"
    assert judged({"loss": [3.0, 2.0, 1.0]}).summary.startswith(f"{NOTHING_VOUCHES}: only 3 points of train loss")
    assert "logs/train-*.jsonl" in judged({"loss": DESCENT}, preset("dlm")).summary


def test_the_reason_in_a_summary_is_bounded():
    summary = judged({"x" * 1000 + str(index): [1.0] for index in range(9)}).summary
    assert summary.startswith(NOTHING_VOUCHES)
    assert len(summary) == 400


# Notes beside the verdict


@pytest.mark.parametrize(
    ("status", "notes"),
    [
        ("RUNNING", ("the run is still running: this is a verdict on what it has done so far",)),
        ("SCHEDULED", ("the run is still scheduled: this is a verdict on what it has done so far",)),
        ("FINISHED", ()),
        ("", ()),
    ],
)
def test_a_run_that_goes_on_is_told_to(status, notes):
    report = judged({"loss": DESCENT}, info=RunInfo(status=status, metric_names=("loss",)))
    assert (report.verdict, report.notes) == (Verdict.SKIP if notes else Verdict.PASS, notes)
    assert report.is_healthy_so_far == bool(notes)
    if notes:
        assert (report.summary, report.score) == (f"so far healthy up to step {len(DESCENT) - 1}", None)


def test_what_goes_wrong_in_a_run_that_goes_on_is_no_less_wrong():
    report = judged({"loss": EXPLODED}, info=RunInfo(status="RUNNING", metric_names=("loss",)))
    assert (report.verdict, report.is_healthy_so_far) == (Verdict.FAIL, False)


def test_a_configured_role_without_a_metric_is_told_for_any_verdict():
    config = Config(roles={**DEFAULT_PATTERNS, "grad_norm": ("my/grads", "g*")})
    for losses, verdict in ((DESCENT, "pass"), (EXPLODED, "fail"), ([1.0], "skip")):
        report = judged({"loss": losses}, config)
        assert report.verdict == verdict
        assert report.notes == ("roles.grad_norm matches no metric: configured: my/grads, g*; seen: loss",)
    assert judged({}, config).notes[0].endswith("; there is no metric history")
    assert judged({"loss": DESCENT, "grads": DESCENT}, config).notes == ()


def test_a_configured_role_of_a_loss_that_need_not_descend_is_matched():
    config = Config(roles={**DEFAULT_PATTERNS, "train_loss": ("my/loss",)})
    assert judged({"my_loss": DESCENT, "reward": DESCENT}, config).notes == ()


def test_the_roles_that_may_be_set(monkeypatch):
    wanted = rule(Verdict.PASS, needs=(Need(role="perplexity", any_of=("bits",)), Need(role=Part.WEIGHTS)))
    monkeypatch.setattr(engine_module, "probe_classes", lambda: (wanted,))
    assert known_roles() == {*DEFAULT_PATTERNS, "perplexity", "bits"}


# Evidence that is not there


def test_a_skip_names_the_reason_and_the_way_out():
    report = judged({"reward_total": [1.0, 2.0] * 25, "kl": np.ones(50)})
    skipped = skip_of(report, "LOS004")
    assert (
        skipped.reason == "no metric has the role train_loss; seen: kl, reward_total; set roles.train_loss to name one"
    )
    assert skipped.details == {"role": "train_loss", "num_points": 0, "min_points": 4}
    assert "train_loss or val_loss" in skip_of(report, "LOS005").reason
    assert report.verdict is Verdict.SKIP


def test_a_long_list_of_names_is_cut():
    report = judged({f"metric_{index:03}": [1.0] for index in range(100)})
    assert "and 95 more" in skip_of(report, "LOS004").reason


def test_without_any_metric_it_says_so():
    assert "there is no metric history" in skip_of(judged(), "LOS004").reason


def test_too_few_points_are_counted():
    skipped = skip_of(judged({"loss": [3.0, 2.0, 1.0]}), "LOS004")
    assert skipped.reason == "only 3 points of train loss, 4 are needed"
    assert skipped.details == {"role": "train_loss", "num_points": 3, "min_points": 4}


def test_a_threshold_can_be_a_need():
    config = Config(thresholds={"repeated-batch": {"min_points": 400}})
    assert "LOS013" in codes(judged({"loss": np.ones(60).tolist()}, config).skipped)


def test_repeated_steps_are_one_point():
    series = Series(name="loss", role="train_loss", steps=np.zeros(50, dtype=np.int64), values=np.ones(50))
    assert "only 1 point" in skip_of(diagnose(Evidence(run=RUN, series=(series,)), Config()), "LOS004").reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("OPT001", "the number of optimizer steps is not known"),
        ("OPT002", "no optimizer state was found"),
        ("OPT003", "no optimizer state was found"),
        ("OPT101", "no training_state.pt"),
        ("LOS101", "no step log logs/train-*.jsonl"),
        ("RUN001", "no param max_steps or num_train_epochs"),
    ],
)
def test_missing_parts_have_their_own_reasons(code, reason):
    assert reason in skip_of(judged({"loss": DESCENT}), code).reason


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"max_steps": "200"}, "max_steps is 200, but how far the run came is not known: log a metric global_step"),
        ({"epochs": "3"}, "epochs is 3, but how far the run came is not known: log a metric epoch"),
        (
            {"num_train_epochs": "3.0", "max_steps": "200", "lr": "1"},
            "max_steps is 200 and num_train_epochs is 3.0, but how far the run came is not known: log a metric global_step or epoch",
        ),
        ({"max_steps": "-1"}, "the planned length is not known: no param max_steps or num_train_epochs"),
    ],
)
def test_a_plan_without_progress_is_told_apart_from_no_plan(params, reason):
    report = judged({"loss": DESCENT}, info=RunInfo(params=params, metric_names=("loss",)))
    assert skip_of(report, "RUN001").reason == reason


def test_a_better_reason_from_the_store_is_given():
    missing = {Part.SECOND_MOMENTS: "several unrelated checkpoints: a.pt, b.pt"}
    assert skip_of(judged({"loss": DESCENT}, missing=missing), "OPT002").reason.startswith("several unrelated")


def test_an_optimizer_without_second_moments():
    state = OptimizerState(source="sgd.pt", tensors=(TensorState(id=0, shape=(2,)),), global_step=1000)
    reason = skip_of(judged({"loss": DESCENT}, optimizer=state), "OPT002").reason
    assert "sgd.pt keeps no second moment" in reason


def test_optional_needs_never_skip(with_rules):
    assert with_rules(rule(Verdict.PASS, needs=(Need(role="grad_norm", optional=True),))).verdict is Verdict.PASS


def test_one_of_several_needs_is_enough(with_rules):
    needs = (Need(role="train_loss", any_of=("val_loss",), min_points=3),)
    series = Series(name="v", role="val_loss", steps=np.arange(3), values=np.ones(3))
    evidence = Evidence(run=RUN, series=(series,))
    assert with_rules(rule(Verdict.PASS, needs=needs), evidence=evidence).verdict is Verdict.PASS


# Evidence that is there but cannot be read, and rules that break


def test_a_problem_makes_an_error_of_the_rules_that_needed_it():
    problem = Problem(source="trainer_state.json", message="cut off", roles=frozenset({"train_loss"}))
    report = judged(problems=(problem,))
    assert report.verdict is Verdict.ERROR
    assert report.score is None
    assert report.severity == 2
    error = next(one for one in report.errors if one.code == "LOS004")
    assert (error.source, error.message) == ("trainer_state.json", "could not be judged: cut off")
    assert "LOS004" not in codes(report.skipped)
    assert "OPT002" in codes(report.skipped)
    assert report.summary.startswith("trainer_state.json: ")


def test_a_problem_that_took_nothing_away_is_listed_and_no_more():
    report = judged({"loss": DESCENT}, problems=(Problem(source="b.jsonl", message="2 lines broken"),))
    assert report.verdict is Verdict.PASS
    assert [(one.code, one.source, one.message) for one in report.errors] == [(None, "b.jsonl", "2 lines broken")]


def test_where_nothing_else_vouches_a_problem_is_an_error():
    report = judged(problems=(Problem(source="runs/a", message="nothing to judge in it"),))
    assert report.verdict is Verdict.ERROR
    assert "nothing to judge" in report.summary


def test_a_problem_never_hides_a_fail():
    problem = Problem(source="optimizer.pt", message="cut off", roles=frozenset({Part.SECOND_MOMENTS}))
    report = judged({"loss": EXPLODED}, problems=(problem,))
    assert report.verdict is Verdict.FAIL
    assert report.score == 0.0
    assert report.diagnosis.about == "LOS004"
    assert "OPT002" in codes(report.errors)


def test_a_rule_that_raises_is_an_error_and_hides_nothing(with_rules):
    broken = rule(Verdict.PASS, code="TST009", raises=ZeroDivisionError("by\n0"))
    report = with_rules(broken, rule(Verdict.FAIL))
    assert report.verdict is Verdict.FAIL
    assert [(one.code, one.message) for one in report.errors] == [("TST009", "the rule broke: ZeroDivisionError: by 0")]
    for harmless in (Verdict.PASS, Verdict.WARN):
        assert with_rules(broken, rule(harmless)).verdict is Verdict.ERROR


def test_a_rule_that_measures_only_may_break_without_a_vote(with_rules):
    broken = rule(Verdict.PASS, code="TST009", raises=RuntimeError("no"))
    report = with_rules(broken, rule(Verdict.PASS), config=Config(measure_only=frozenset({"TST009"})))
    assert report.verdict is Verdict.PASS
    assert codes(report.errors) == {"TST009"}


def test_details_without_a_json_form_break_their_rule_alone(with_rules):
    broken = rule(Verdict.PASS, code="TST009", details={"x": object()})
    report = with_rules(broken, rule(Verdict.WARN))
    assert (report.verdict, codes(report.errors), codes(report.results)) == (Verdict.ERROR, {"TST009"}, {"TST001"})


def test_numbers_that_overflow_are_judged_without_a_warning():
    huge = np.array([1.7e308, -1.7e308] * 50)
    report = judged({"loss": huge})
    assert report.errors == ()


# Confidence, measuring, votes


def test_a_fail_that_is_not_sure_becomes_a_warn(with_rules):
    unsure = rule(Verdict.FAIL, confidence="low")
    report = with_rules(unsure)
    assert (report.verdict, report.score, report.results[0].confidence) == (Verdict.WARN, 0.5, "low")
    dlm = replace(preset("dlm"), votes=frozenset({"TST001"}))
    assert (with_rules(unsure, config=dlm).verdict, with_rules(unsure, config=dlm).score) == (Verdict.FAIL, 0.0)


@pytest.mark.parametrize("confidence", ["high", "medium"])
def test_other_fails_stay(confidence, with_rules):
    assert with_rules(rule(Verdict.FAIL, confidence=confidence)).verdict is Verdict.FAIL


def test_every_preset_but_dlm_demotes():
    assert {name for name, config in PRESETS.items() if not config.demote_low_confidence} == {"dlm"}


def test_a_measure_only_rule_says_so_and_does_not_vote(with_rules):
    config = Config(preset="mine", measure_only=frozenset({"TST001"}))
    report = with_rules(rule(Verdict.FAIL, measured={"x": 3.0}, score=0.2), config=config)
    result = report.results[0]
    assert (result.verdict, result.votes, result.remedy, result.score) == (Verdict.PASS, False, "", 0.2)
    assert result.message == "measured only, informational under preset mine: TST001 measured 3"
    assert result.measured == {"x": 3.0}
    assert (report.verdict, report.findings) == (Verdict.SKIP, ())


def test_preview_rules_vote_only_where_the_configuration_says_so(with_rules):
    rules = rule(Verdict.FAIL, status="preview"), rule(Verdict.PASS, code="TST002")
    report = with_rules(*rules)
    assert report.verdict is Verdict.PASS
    assert (report.results[0].verdict, report.results[0].votes, report.results[0].status) == (
        Verdict.FAIL,
        False,
        "preview",
    )
    assert with_rules(*rules, config=preset("strict")).verdict is Verdict.FAIL
    assert with_rules(*rules, config=Config(votes=frozenset({"TST001"}))).verdict is Verdict.FAIL


def test_only_the_listed_codes_vote():
    config = Config(votes=frozenset({"LOS005"}))
    report = judged({"loss": EXPLODED}, config)
    assert report.verdict is Verdict.PASS
    assert result_of(report, "LOS004").verdict is Verdict.FAIL
    assert {one.code for one in report.results if one.votes} == {"LOS005"}


def test_in_dlm_only_the_original_rules_vote():
    report = judged({"loss": EXPLODED}, preset("dlm"))
    assert not any(one.votes for one in report.results)
    assert report.verdict is Verdict.SKIP


# select, ignore, thresholds


@pytest.mark.parametrize("word", ["LOS004", "diverged"])
def test_select_and_ignore_take_codes_and_names(word):
    assert codes(configured_probes(Config(select=frozenset({word})))) == {"LOS004"}
    assert codes(configured_probes(Config(ignore=frozenset({word})))) == codes(probe_classes()) - {"LOS004"}
    assert configured_probes(Config(select=frozenset({word}), ignore=frozenset({"LOS004"}))) == ()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(select=frozenset({"LOS404"})), "did you mean LOS004 or LRS004?"),
        (Config(ignore=frozenset({"divergd"})), "did you mean diverged?"),
        (Config(thresholds={"no-progres": {}}), "did you mean no-progress?"),
        (Config(thresholds={"LOS004": {}}), "rules.LOS004: there is no such rule"),
        (Config(thresholds={"diverged": {"risk_share": 1.0}}), "did you mean rise_share"),
        (Config(thresholds={"diverged": {"rise_share": 0.0}}), "must be above 0"),
        (Config(thresholds={"diverged": {"rise_share": float("nan")}}), "must be above 0"),
        (Config(thresholds={"diverged": {"sigmas": -1}}), "must be at least 0"),
        (Config(thresholds={"no-progress": {"min_descent": 1.5}}), "must be at most 1"),
        (Config(thresholds={"unstable-loss": {"repeated": 8.5}}), "must be a whole number"),
        (Config(thresholds={"unstable-loss": {"repeated": True}}), "must be a whole number"),
        (Config(thresholds={"diverged": {"sigmas": "4"}}), "must be a number"),
    ],
)
def test_what_does_not_exist_or_makes_no_sense_is_refused(config, message):
    for refuse in (configured_probes, needs_of, lambda one: diagnose(Evidence(run=RUN), one)):
        with pytest.raises(ConfigError) as error:
            refuse(config)
        assert message in str(error.value)


def test_a_threshold_changes_the_verdict_and_is_reported():
    config = Config(thresholds={"diverged": {"rise_share": 10.0, "climb_share": 10.0}})
    report = judged({"loss": EXPLODED}, config)
    assert result_of(report, "LOS004").verdict is Verdict.PASS
    assert result_of(report, "LOS004").thresholds["rise_share"] == 10.0


def test_presets_by_name():
    assert preset("default") == Config()
    with pytest.raises(ConfigError, match="did you mean strict"):
        preset("stritc")


# Roles


def test_a_source_is_asked_for_nothing_that_no_rule_needs():
    request = needs_of(Config(select=frozenset({"LOS004"})))
    assert request.roles.needed(["train/loss", "grad_norm", "lr", "epoch", "accuracy"]) == {
        "train/loss": "train_loss",
        "lr": "learning_rate",
    }
    assert request.parts == frozenset()
    both = needs_of(Config(select=frozenset({"OPT001", "RUN001"}), checkpoint="a.pt", max_download=7))
    assert set(both.roles.needed(["loss", "epoch", "trainer/global_step", "lr", "kl"]).values()) == {
        "train_loss",
        "epoch",
        "global_step",
    }
    assert both.parts == {Part.OPTIMIZER_STEPS, Part.PLAN}
    assert (both.checkpoint, both.max_download) == ("a.pt", 7)


REINFORCEMENT = {"reward": FLAT, "loss": FLAT, "kl": FLAT}
ADVERSARIAL = {"d_loss": FLAT, "g_loss": FLAT, "train_loss": FLAT}


@pytest.mark.parametrize(
    "metrics",
    [
        REINFORCEMENT,
        ADVERSARIAL,
        {"loss": FLAT, "train/policy_loss": FLAT},
        {"train/loss": EXPLODED, "clip_ratio": FLAT},
    ],
)
def test_the_loss_of_another_objective_need_not_descend(metrics):
    report = judged(metrics)
    assert report.verdict is Verdict.SKIP, report.summary
    assert {"LOS004", "LOS005"} <= codes(report.skipped)
    assert "objective_loss" in {one.role for one in report.series}


@pytest.mark.parametrize("metrics", [REINFORCEMENT, ADVERSARIAL])
def test_but_its_nan_is_found(metrics):
    sick = {name: WITH_NAN if "loss" in name else values for name, values in metrics.items()}
    report = judged(sick)
    assert report.verdict is Verdict.FAIL
    assert codes(report.findings) == {"LOS001"}


DPO = {"rewards/chosen": FLAT, "rewards/rejected": FLAT, "rewards/margins": FLAT, "rewards/accuracies": FLAT / 4}


@pytest.mark.parametrize("beside", [DPO, {"kl": FLAT}, {"train/kl": FLAT, "entropy": FLAT}, {"dis_loss": FLAT}, {}])
def test_preference_tuning_and_regularised_fine_tunes_are_judged(beside):
    assert judged({"loss": DESCENT, **beside}).verdict is Verdict.PASS
    flat = judged({"loss": FLAT, **beside})
    assert (flat.verdict, codes(flat.findings)) == (Verdict.FAIL, {"LOS005"})


@pytest.mark.parametrize("name", ["health/loss", "health/diverged/train_loss", "health.loss"])
def test_our_own_names_are_never_read(name):
    assert needs_of(Config()).roles.needed([name, "loss"]) == {"loss": "train_loss"}


def test_of_several_series_with_a_role_the_longest_is_judged():
    report = judged({"train_loss": EXPLODED[-20:], "train/loss_step": DESCENT})
    assert report.verdict is Verdict.PASS
    assert {(one.name, one.points) for one in report.series} == {("train_loss", 20), ("train/loss_step", 200)}
    swapped = judged({"train_loss": DESCENT[-20:], "train/loss_step": EXPLODED})
    assert swapped.verdict is Verdict.FAIL


def test_of_equally_long_ones_the_first_by_name():
    assert judged({"b/loss": DESCENT, "loss": DESCENT, "train/loss": EXPLODED}).verdict is Verdict.PASS


def test_roles_can_be_named():
    config = Config(roles={"train_loss": ("My Objective",)})
    assert judged({"my/objective": FLAT, "loss": DESCENT}, config).verdict is Verdict.FAIL


def test_the_series_read_are_listed():
    report = judged({"loss": WITH_NAN, "grad_norm": np.ones(200), "mAP": np.ones(200)})
    assert [(one.name, one.role, one.source, one.points, one.nonfinite) for one in report.series] == [
        ("grad_norm", "grad_norm", "metrics", 200, 0),
        ("loss", "train_loss", "metrics", 200, 50),
    ]


def test_epochs_do_not_count_as_optimizer_steps():
    series = Series(name="loss", role="train_loss", steps=np.arange(20), values=DESCENT[:20], step_unit=StepUnit.EPOCH)
    report = diagnose(Evidence(run=RUN, series=(series,)), Config())
    assert "OPT001" in codes(report.skipped)


# The summary


def test_a_pass_counts_what_it_rests_on():
    report = judged({"loss": DESCENT})
    voters = [one for one in report.results if one.votes]
    assert report.summary.endswith(f"; {len(voters)} checks")


def test_one_rule_is_one_rule(with_rules):
    assert with_rules(rule(Verdict.PASS)).summary == "1 check"


def test_the_worst_finding_comes_first_and_the_others_are_counted(with_rules):
    rules = rule(Verdict.WARN), rule(Verdict.FAIL, code="TST003"), rule(Verdict.FAIL, code="TST002")
    report = with_rules(*rules)
    assert report.summary == "test-tst003: TST003 measured 3 (+2 more)"
    assert [one.code for one in report.findings] == ["TST003", "TST002", "TST001"]
    assert with_rules(rules[0]).summary == "test-tst001: TST001 measured 3"


def test_a_summary_is_one_printable_line_of_at_most_500_characters(with_rules):
    report = with_rules(rule(Verdict.FAIL, broken=Finding(verdict=Verdict.FAIL, message="a\n\x1b[31m" + "x" * 900)))
    assert len(report.summary) == 500
    assert report.summary.isprintable()


def test_healthy_sick_and_dead(healthy_losses):
    assert judged({"loss": healthy_losses}, optimizer=adam()).verdict is Verdict.PASS
    assert judged({"loss": healthy_losses}, optimizer=adam(0.0)).diagnosis.about == "OPT003"
    assert judged({"loss": EXPLODED}, optimizer=adam()).diagnosis.about == "LOS004"


def test_the_report_names_tool_preset_and_digest():
    report = diagnose(Evidence(run=RUN, fingerprint="abc"), preset("strict"))
    assert (report.tool.preset, report.tool.config_digest, report.fingerprint) == (
        "strict",
        preset("strict").digest,
        "abc",
    )
    assert report.run == RUN


@pytest.mark.parametrize(
    ("message", "given", "expected"),
    [
        ("it rose", (), ("loss",)),
        ("it rose, and loss did not", ("kl",), ("kl",)),
        ("train_loss and loss stay", (), ("train_loss", "loss")),
        ("loss and train_loss stay", (), ("loss", "train_loss")),
        ("train_loss and loss/x and loss.y and aloss stay", (), ("train_loss",)),
    ],
)
def test_a_finding_says_in_which_series_it_is_seen(message, given, expected):
    made = rule("warn", needs=(Need(role="train_loss"),), about=given)
    made.finding = replace(made.finding, message=message)
    series = [
        Series(name=name, role="train_loss", steps=np.arange(9), values=np.ones(9), source="s")
        for name in ("loss", "train_loss")
    ]
    found = judged_by(made(), Evidence(run=RUN, series=tuple(series)), Config(), votes=True)
    assert found.about == expected
