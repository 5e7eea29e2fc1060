"""What holds of every headline, whatever was found: laws on drawn findings."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import Config
from tracker_health.diagnosis import CAUSES, Facts, cause_named, diagnosis_of, rank
from tracker_health.diagnosis._facts import MILD, WORST
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, StepUnit, TextLog, confirm
from tracker_health.judge.engine import needs_of
from tracker_health.report.result import ProbeResult
from tracker_health.report.resume_point import Onset
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="run", name="run")
RULES = {probe.code: probe for probe in BUILT_IN}
UNKNOWN = {cause.name for cause in CAUSES if cause.unknown}
N = 40


def result(
    code, verdict=Verdict.FAIL, *, kind="", steps=(), message="", onset=None, details=None, votes=True, **measured
):
    rule = RULES[code]
    return ProbeResult(
        code=code, name=rule.name, symptom=str(rule.symptom), status="stable", verdict=verdict, votes=votes, score=0.0,
        message=message or f"what {code} found", kind=kind, steps=tuple(steps), measured=measured, details=details or {},
        onset=onset,
    )  # fmt: skip


def run(series=None, text_log=None, **params):
    made = [
        Series(name=name, steps=np.arange(1, len(values) + 1), values=np.array(values, dtype=np.float64), source="log")
        for name, values in (series or {}).items()
    ]
    info = RunInfo(params={key: str(value) for key, value in params.items()}, metric_names=tuple(series or ()))
    roles = needs_of(Config()).roles.of(series or ())
    return Evidence(run=RUN, info=info, series=confirm(tuple(made), roles)[0], text_log=text_log)


@st.composite
def findings(draw):
    """Some rules that object, each with a kind that it declares, numbers that rules have, and a step."""
    codes = draw(st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=6, unique=True))
    found = []
    for code in codes:
        kind = draw(st.sampled_from(RULES[code].kinds or ("",)))
        verdict = draw(st.sampled_from((Verdict.WARN, Verdict.FAIL)))
        steps = draw(st.sampled_from(((), (3,), (12,), (30, 39))))
        ended = draw(st.sampled_from(("failed", "killed", "out-of-memory", "silent")))
        text = draw(st.sampled_from(("KeyError: 'x'", "RuntimeError: NaN in loss", "CUDA out of memory", "")))
        onset = Onset(step=steps[0], what="it rose") if steps else None
        found.append(result(
            code, verdict, kind=kind, steps=steps, onset=onset, details={"text": text}, ended=ended,
            scale=draw(st.sampled_from((0.01, 1.0, 300.0))), fraction=draw(st.sampled_from((0.3, 1.0))),
        ))  # fmt: skip
    return found


@st.composite
def runs(draw):
    """Runs with a loss, and perhaps a gradient norm, a rate, a reward and params."""
    falls, noise = np.linspace(2.3, 0.4, N), np.random.default_rng(draw(st.integers(0, 9))).normal(0, 0.01, N)
    losses = {
        "falls": falls, "flat": np.full(N, 0.693), "rises": np.linspace(1.0, 9.0, N), "zero": np.zeros(N),
        "fell back": np.concatenate([falls[:30], np.linspace(2.2, 2.0, 10)]),
        "nan": np.where(np.arange(N) < 20, falls, np.nan),
    }  # fmt: skip
    loss = losses[draw(st.sampled_from(sorted(losses)))]
    series = {"loss": loss + (0.0 if not loss.any() or np.ptp(loss) == 0 else noise)}
    series |= draw(st.sampled_from(({}, {"grad_norm": np.full(N, 0.5)}, {"grad_norm": np.zeros(N)})))
    series |= draw(st.sampled_from(({}, {"lr": np.full(N, 1e-3)}, {"lr": np.linspace(1e-3, 0.0, N)})))
    series |= draw(st.sampled_from(({}, {"train/reward": np.linspace(0.6, 0.1, N)})))
    params = draw(
        st.sampled_from(({}, {"optimizer": "adam", "lr": 1e-3}, {"optimizer": "sgd", "lr": 30.0}, {"lr": 1e-6}))
    )
    return run(series, **params)


def headline(evidence, found):
    return diagnosis_of(evidence, found)


@given(runs(), findings())
def test_a_failure_is_headed_by_a_cause_that_explains_a_failure(evidence, found):
    diagnosis = headline(evidence, found)
    failing = {one.code for one in found if one.verdict is Verdict.FAIL}
    if diagnosis is not None and failing:
        assert failing & set(diagnosis.explains)


@given(runs(), findings())
def test_the_worst_symptom_is_not_headed_by_a_milder_one(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is None:
        return
    worst = max(one.verdict.rank for one in found)
    alike = [one for one in found if one.verdict.rank == worst]
    about = next(one for one in found if one.code == diagnosis.about)
    assert about.verdict.rank == worst
    if any(one.symptom in WORST for one in alike):
        assert about.symptom in WORST
    if any(one.symptom not in MILD for one in alike):
        assert about.symptom not in MILD


@given(runs(), findings())
def test_a_cause_leads_only_with_a_sign_that_it_requires(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is None:
        return
    cause = cause_named(diagnosis.cause)
    assert (diagnosis.certainty == "unknown") is (cause.name in UNKNOWN)
    if cause.name not in UNKNOWN:
        required = {sign.name for sign in (*cause.requires, *cause.defines)}
        assert required & {sign.name for sign in diagnosis.signs}
        assert not any(sign.seen(Facts(evidence, found)) for sign in cause.never)


@given(runs(), findings())
def test_certain_is_only_what_a_sign_defines(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is not None and diagnosis.certainty == "certain":
        cause = cause_named(diagnosis.cause)
        assert {sign.name for sign in cause.defines} & {sign.name for sign in diagnosis.signs}


NAN = re.compile(r"\bNaN\b|infinite")


@given(runs(), findings())
def test_nan_is_said_only_where_one_was_seen(evidence, found):
    diagnosis = headline(evidence, found)
    codes = {one.code for one in found}
    seen = codes & {"LOS001", "LOS002", "GRD001", "OPT002", "WGT001", "GAP001"}
    said = any("NaN" in str(one.details.get("text")) for one in found if one.code in ("RUN003", "RUN004"))
    if diagnosis is not None and not seen and not said:
        assert diagnosis.cause != "non-finite-loss"
        assert not NAN.search(diagnosis.sentence)


@given(runs(), findings())
def test_a_range_to_the_end_is_said_only_where_it_holds_to_the_end(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is not None and re.search(r"from step \d+ on\b", diagnosis.sentence):
        losses = [one.values for one in evidence.series if one.role in ("train_loss", "val_loss", "grad_norm")]
        broken = [values[np.argmax(~np.isfinite(values)) :] for values in losses if not np.isfinite(values).all()]
        assert not broken or any(not np.isfinite(values).any() for values in broken)


@given(runs(), findings())
def test_a_resume_is_said_only_with_a_sign_of_one(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is not None and diagnosis.cause == "resume-incomplete":
        assert any(one.code == "RUN001" and one.kind == "updates-missing" for one in found)


@given(runs(), findings())
def test_memory_is_said_only_with_a_word_of_it(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is not None and diagnosis.cause == "out-of-memory":
        ends = [one for one in found if one.code in ("RUN003", "RUN004")]
        assert any(
            one.measured["ended"] == "out-of-memory" or "out of memory" in one.details["text"].lower() for one in ends
        )


@given(runs(), findings())
def test_a_setting_is_changed_to_another_value(evidence, found):
    action = headline(evidence, found).action if headline(evidence, found) is not None else None
    if action is not None and action.old is not None:
        assert action.old != action.new


@given(runs(), findings())
def test_a_step_to_go_back_to_lies_between_the_first_and_the_onset(evidence, found):
    diagnosis = headline(evidence, found)
    back = (
        re.search(r"restart from (?:a|the last) checkpoint before step (\d+)", diagnosis.action.text)
        if diagnosis
        else None
    )
    if back is not None:
        first = min(int(one.steps.min()) for one in evidence.series)
        assert first < int(back[1]) - 1 + 1
        assert int(back[1]) - 1 > first
        assert int(back[1]) in {one.onset.step for one in found if one.onset is not None} | {
            sign.step
            for sign in (Facts(evidence, found).fell_back, Facts(evidence, found).rate_jump)
            if sign is not None
        }


@given(runs(), findings())
def test_nothing_is_asked_for_that_was_logged(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is None:
        return
    logged = {one.role for one in evidence.series}
    if "grad_norm" in logged:
        assert "log the gradient norm" not in diagnosis.action.text
    if "learning_rate" in logged:
        assert "log the learning rate" not in diagnosis.action.text


@given(runs(), findings())
def test_the_order_of_the_table_and_of_the_findings_decides_nothing(evidence, found):
    import tracker_health.diagnosis as package

    forwards, table = headline(evidence, found), package.CAUSES
    by_code = sorted(found, key=lambda one: one.code)
    try:
        package.CAUSES = table[::-1]
        backwards = headline(evidence, found)
    finally:
        package.CAUSES = table
    assert (forwards and (forwards.cause, forwards.certainty)) == (backwards and (backwards.cause, backwards.certainty))
    assert (forwards and forwards.cause) == (
        (again := headline(evidence, by_code)) and again.cause
    ) or forwards.about != again.about


@pytest.mark.parametrize("code", sorted(code for code in RULES if code[:3] not in ("SYS", "CMP") and code not in
                                        ("LOS101", "OPT101", "REG003", "RUN005", "RUN007")))  # fmt: skip
def test_each_finding_alone_has_a_headline(code):
    for kind in RULES[code].kinds or ("",):
        found = result(code, kind=kind, ended="failed", initial=2, scale=300.0, fraction=0.5, dead_tensors=1, tensors=3)
        diagnosis = headline(run({"loss": np.linspace(2.0, 1.0, N)}), [found])
        assert diagnosis is not None
        assert diagnosis.about == code
        assert diagnosis.explains == (code,)


# One law each for what a headline was wrong about most


@pytest.mark.parametrize("params", [{}, {"lr": 1e-3, "optimizer": "adam"}])
def test_a_flat_loss_alone_names_neither_labels_nor_rate(params):
    found = headline(run({"loss": np.full(N, 0.6931)}, **params), [result("LOS005", kind="flat"), result("LOS006")])
    assert found.cause == "not-learning-cause-unknown"


@pytest.mark.parametrize("rate", [1e-6, 5e-6, 3e-4])
def test_a_usual_rate_of_a_policy_is_not_blamed(rate):
    series = {"train/reward": np.linspace(0.6, 0.1, N), "lr": np.full(N, rate), "kl": np.linspace(0.0, 9.0, N)}
    found = headline(run(series, optimizer="adamw"), [result("RWD001"), result("RWD005", Verdict.WARN)])
    assert found.cause not in ("learning-rate-too-high", "learning-rate-too-low")
    assert "learning-rate-too-high" not in [one.cause for one in found.others[:0]]


def test_a_wrong_sign_is_not_said_where_the_policy_moved():
    series = {"loss": np.linspace(1.0, 9.0, N), "train/reward": np.linspace(0.6, 0.1, N), "lr": np.full(N, 1e-4)}
    found = headline(run(series), [result("LOS004", kind="rose"), result("RWD005", Verdict.WARN)])
    assert found.cause != "loss-implemented-wrong"


def test_a_rate_of_zero_at_the_end_of_a_decay_says_nothing():
    series = {"loss": np.linspace(2.0, 1.0, N), "lr": np.linspace(1e-3, 0.0, N)}
    found = headline(run(series), [result("GEN005", Verdict.WARN), result("GEN001", Verdict.WARN)])
    assert found.cause != "schedule-wrong"


FELL_BACK = np.concatenate([np.linspace(2.3, 0.5, 60), np.linspace(2.2, 1.0, 40)])


@pytest.mark.parametrize(
    ("resumed", "cause"),
    [((60,), "resume-incomplete"), ((20,), "diverged-cause-unknown"), ((), "diverged-cause-unknown")],
)
def test_a_jump_is_a_resume_where_the_log_says_so_right_there(resumed, cause):
    log = TextLog(source="train.log", lines=100, rows=100, resumed=resumed)
    found = headline(run({"loss": FELL_BACK}, log), [result("LOS004", kind="rose", steps=(61, 100))])
    assert found.cause == cause


def test_what_came_first_heads_the_report():
    nan = np.where(np.arange(N) < 30, np.linspace(2.0, 8.0, N), np.nan)
    found = headline(run({"loss": nan}), [
        result("LOS001", steps=(31,), first_step=31, last_step=40, nonfinite=10),
        result("LOS004", kind="rose", steps=(8, 30), onset=Onset(step=8, what="the loss rose")),
    ])  # fmt: skip
    assert (found.cause, found.about) == ("diverged-cause-unknown", "LOS004")
    assert "before step 8" in found.action.text


def test_a_model_that_begins_far_below_guessing_is_a_fine_tune():
    """No rate is called too low for it that is usual for fine-tunes."""
    loss = np.full(N, 2.0)
    wide = {"optimizer": "adamw", "lr": 1e-5, "vocab_size": 50_000}
    found = headline(run({"loss": loss}, **wide), [result("LOS005", kind="flat")])
    assert found.cause == "not-learning-cause-unknown"
    scratch = headline(run({"loss": np.full(N, np.log(50_000))}, **wide), [result("LOS005", kind="flat")])
    assert scratch.cause == "learning-rate-too-low"


def test_the_threshold_that_is_set_counts_for_the_cause():
    found, high = [result("LOS004", kind="rose", steps=(15,))], run(lr="0.5", optimizer="adam")
    assert diagnosis_of(high, found).certainty == "certain"
    limits = {"OPT016": {"most_rate": 2.0}}
    assert diagnosis_of(high, found, limits).certainty != "certain"
    clipped = run(max_grad_norm="1e-3")
    flat = [result("LOS005", kind="flat")]
    assert diagnosis_of(clipped, flat).cause == "not-learning-cause-unknown"
    limits["OPT014"] = {"least_clip": 1e-2}
    assert diagnosis_of(clipped, flat, limits).cause == "gradient-clipping-too-tight"


LEADING = {"certain": 2.0, "likely": 2.0}


@given(runs(), findings())
def test_who_is_certain_or_likely_is_ahead_of_every_other_that_may_lead(evidence, found):
    diagnosis = headline(evidence, found)
    if diagnosis is not None and diagnosis.certainty in LEADING:
        facts = Facts(evidence, found)
        rivals = [one.score for one in rank(CAUSES, facts) if one.leads and one.cause.name != diagnosis.cause]
        assert all(diagnosis.score - score >= LEADING[diagnosis.certainty] for score in rivals)
    if diagnosis is not None and diagnosis.certainty == "likely":
        assert diagnosis.score >= 4.0


def test_two_settings_beyond_use_leave_it_open_which_it_was():
    both = run(optimizer="adam", lr="0.5", weight_decay="5")
    assert headline(both, [result("LOS004", kind="rose", steps=(15,))]).certainty != "certain"
    one = run(optimizer="adam", lr="0.5", weight_decay="0.01")
    assert headline(one, [result("LOS004", kind="rose", steps=(15,))]).certainty == "certain"


@pytest.mark.parametrize(("worse", "milder"), [
    ("LOS004", "RUN001"), ("LOS001", "GEN001"), ("LOS005", "RUN001"), ("LOS005", "LRS001"), ("LOS004", "LRS001"),
    ("GRD001", "LOS005"), ("LOS006", "GEN004"), ("OPT004", "LOS007"), ("LOS004", "OPT004"),
])  # fmt: skip
def test_a_worse_symptom_heads_the_report_though_it_came_later(worse, milder):
    kinds = {code: (RULES[code].kinds or ("",))[0] for code in (worse, milder)}
    found = [
        result(milder, kind=kinds[milder], steps=(2,), fraction=0.3), result(worse, kind=kinds[worse], steps=(30,)),
    ]  # fmt: skip
    assert headline(run({"loss": np.linspace(2.0, 1.0, N)}), found).about == worse
    as_a_warning = [found[0], result(worse, Verdict.WARN, kind=kinds[worse], steps=(30,))]
    assert headline(run({"loss": np.linspace(2.0, 1.0, N)}), as_a_warning).about == milder


def test_of_two_causes_with_equally_much_for_them_it_may_be_either(monkeypatch):
    import tracker_health.diagnosis as package

    one = cause_named("data-not-shuffled")
    monkeypatch.setattr(package, "CAUSES", (*package.CAUSES, replace(one, name="its-twin")))
    found = headline(run({"loss": np.linspace(2.0, 1.0, N)}), [result("LOS010", steps=(5,))])
    assert found.certainty == "possible"
    assert [found.cause, *(one.cause for one in found.others)] == ["data-not-shuffled", "its-twin"]


def test_nan_after_a_growth_is_a_divergence():
    grew = np.where(np.arange(N) < 30, np.geomspace(1.0, 1e5, N), np.nan)
    nan = result("LOS001", steps=(31,), first_step=31, last_step=40, nonfinite=10)
    found = headline(run({"loss": grew}), [nan])
    assert found.cause == "diverged-cause-unknown"
    assert "it had grown tenfold before" in found.sentence
    fell = np.where(np.arange(N) < 30, np.linspace(2.0, 1.0, N), np.nan)
    assert headline(run({"loss": fell}), [nan]).certainty == "certain"


@pytest.mark.parametrize(("text", "cause"), [
    ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***", "time-limit"),
    ("slurmstepd: error: *** JOB 7 CANCELLED DUE TO PREEMPTION ***", "preempted"), ("KeyboardInterrupt", "interrupted"),
    ("Killed", "killed-reason-unknown"),
])  # fmt: skip
def test_what_ended_the_run_is_named_where_the_console_says_it(text, cause):
    found = headline(
        run({"loss": np.linspace(2.0, 1.0, N)}), [result("RUN003", details={"text": text}, ended="interrupted")]
    )
    assert found.cause == cause


def test_a_step_is_called_what_the_log_counts():
    evidence = run({"loss": np.linspace(2.0, 1.0, N)})
    epochs = replace(evidence, series=tuple(replace(one, step_unit=StepUnit.EPOCH) for one in evidence.series))
    found = headline(epochs, [result("GEN001", Verdict.WARN, best_step=7)])
    assert "keep the checkpoint at epoch 7" in found.action.text


def test_a_rate_that_still_rises_is_not_too_low_but_its_schedule_too_long():
    series = {"loss": np.full(N, 9.0), "lr": np.linspace(1e-8, 1.5e-6, N)}
    found = headline(run(series, optimizer="adamw"), [result("LOS005", kind="flat"), result("LRS001", Verdict.WARN)])
    assert found.cause == "schedule-wrong"


def test_a_spread_of_rewards_that_was_lost_is_an_effect():
    reward = 0.4 + 0.01 * np.sin(np.arange(N))
    series = {"train/reward": reward, "train/reward_std": np.linspace(0.3, 0.0, N)}
    found = headline(run(series), [result("RWD002"), result("RWD004", kind="collapsed")])
    assert found.cause == "entropy-collapsed"
    always = {"train/reward": reward, "train/reward_std": np.zeros(N)}
    assert headline(run(always), [result("RWD002")]).cause == "reward-without-signal"
