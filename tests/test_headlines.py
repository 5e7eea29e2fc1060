"""What a report leads with: laws that hold for whichever way causes are weighed, and runs whose cause is plain."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tracker_health
from tracker_health.config import Config
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, confirm
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.render.console import report_lines

RUNS = Path(__file__).parent / "data" / "headlines"
LEADS = {
    "all-labels-masked": "all-labels-ignored",
    "crash-log-begins-with-rank-bracket": "out-of-memory",
    "deepspeed-scale-minimum": "fp16-overflow",
    "eval-loss-nan-only": "evaluation-stuck",
    "exception-after-the-last-epoch": "own-error",
    "explodes-late": "diverged-cause-unknown",
    "grpo-no-spread-while-rate-warms-up": "reward-without-signal",
    "keras-dice_coef-overfits": "overfitting",
    "keras-rate-too-high": "learning-rate-too-high",
    "lightning-warmup-by-epoch": "schedule-wrong",
    "masked-nan-shown-as-zero": "non-finite-loss",
    "nan-from-the-second-step": "non-finite-loss",
    "nccl-timeout-in-the-middle": "hang-in-collective",
    "overfit-by-17-percent-clear-of-the-noise": "overfitting",
    "overfit-with-train-loss-rounded-to-zero": "overfitting",
    "plan-in-hparams-4-of-100-epochs": "stopped-too-early",
    "rate-1000-times-below-hparams": "setting-not-applied",
    "real-resume-starts-from-scratch": "resume-incomplete",
    "train-loss-rises-with-the-eval-loss": "diverged-cause-unknown",
}
# A sign defines the cause: a setting beyond use, an exception's text, a NaN that was seen, a plan that was not done.
PLAIN = (
    "crash-log-begins-with-rank-bracket", "deepspeed-scale-minimum", "exception-after-the-last-epoch",
    "keras-rate-too-high", "masked-nan-shown-as-zero", "nan-from-the-second-step", "nccl-timeout-in-the-middle",
    "plan-in-hparams-4-of-100-epochs", "rate-1000-times-below-hparams",
)  # fmt: skip
# Something else explains them nearly as well, or what shows the cause shows in other runs too.
DOUBTFUL = (
    "all-labels-masked", "eval-loss-nan-only", "explodes-late", "keras-dice_coef-overfits", "lightning-warmup-by-epoch",
    "overfit-with-train-loss-rounded-to-zero", "real-resume-starts-from-scratch", "train-loss-rises-with-the-eval-loss",
)  # fmt: skip


@cache
def reported(name):
    return tracker_health.check(RUNS / name)


@pytest.mark.parametrize("name", sorted(LEADS))
def test_a_plain_fault_is_the_headline(name):
    assert reported(name).diagnosis.cause == LEADS[name]


@pytest.mark.parametrize("name", PLAIN)
def test_a_proof_without_a_rival_is_certain(name):
    assert reported(name).diagnosis.certainty == "certain"


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_has_a_rival_or_no_proof_is_not_certain(name):
    assert reported(name).diagnosis.certainty != "certain"


def test_a_rate_that_ends_at_zero_is_no_sign_of_anything():
    """Its evaluation is one number, and its learning rate decays to 0, as planned."""
    diagnosis = reported("eval-loss-frozen-linear-decay-to-zero").diagnosis
    assert diagnosis.cause == "evaluation-stuck"
    assert "schedule-wrong" not in {one.cause for one in diagnosis.others}


@pytest.mark.parametrize("name", sorted(LEADS))
def test_the_headline_is_carried_by_signs_that_the_report_shows(name):
    """What it looks at was found, it explains something that was found, and what speaks for it outweighs the rest."""
    report = reported(name)
    found = {one.code for one in report.results if one.verdict in ("warn", "fail")}
    looked = {
        one.looks_at for one in report.diagnosis.signs if one.looks_at[:3].isupper() and one.looks_at[3:].isdigit()
    }
    assert looked <= found
    assert set(report.diagnosis.explains) <= found
    assert report.diagnosis.about in report.diagnosis.explains
    if report.diagnosis.certainty == "unknown":
        assert report.diagnosis.signs == ()
    else:
        assert sum(one.weight for one in report.diagnosis.signs) > 0
        assert any(one.weight > 0 for one in report.diagnosis.signs)


@pytest.mark.parametrize("name", sorted(LEADS))
def test_rivals_are_named_in_order_and_never_lead(name):
    diagnosis = reported(name).diagnosis
    scores = [one.score for one in diagnosis.others]
    assert scores == sorted(scores, reverse=True)
    assert diagnosis.cause not in {one.cause for one in diagnosis.others}


@pytest.mark.parametrize("name", sorted(LEADS))
def test_whoever_asks_for_more_sees_the_signs(name):
    report = reported(name)
    lines = list(report_lines(report, width=300, verbose=True))
    for sign in report.diagnosis.signs:
        assert any(f"{sign.weight:+.1f} {sign.name} ({sign.looks_at})" in line for line in lines)
    assert report.diagnosis.sentence in " ".join(line.strip() for line in lines)


# Runs that are made, to be changed in one thing


def run(*, params=None, **series):
    """The report on a run with these metrics."""
    made = [
        Series(name=name, steps=np.arange(len(values)), values=np.array(values, dtype=np.float64), source="log")
        for name, values in series.items()
    ]
    info = RunInfo(params={key: str(value) for key, value in (params or {}).items()}, metric_names=tuple(series))
    confirmed = confirm(tuple(made), needs_of(Config()).roles.of(series))[0]
    ref = RunRef(store="directory", id="run", name="run")
    return diagnose(Evidence(run=ref, info=info, series=confirmed), Config())


def cause_of(report):
    return report.diagnosis.cause if report.diagnosis is not None else None


NOISE = np.random.default_rng(5).normal(0.0, 0.02, 400)
FALLING = 0.3 + 2.0 * np.exp(-np.arange(400) / 80) + NOISE
DIVERGED = np.where(np.arange(400) < 150, FALLING, 6.0 + np.linspace(0.0, 2.0, 400) + NOISE)
OVERFITTING = {
    "train_loss": np.linspace(2.3, 0.1, 40) + NOISE[:40] / 4,
    "val_loss": np.concatenate([np.linspace(2.3, 1.0, 15), np.linspace(1.0, 2.2, 25)]),
}


def rate_that_jumps(step):
    return np.where(np.arange(400) < step, 1e-4, 2e-3)


def test_a_jump_of_the_rate_before_the_loss_rose_is_its_cause():
    report = run(train_loss=DIVERGED, learning_rate=rate_that_jumps(145), params={"optimizer": "adam"})
    assert cause_of(report) == "learning-rate-too-high"
    assert "at step 145" in report.diagnosis.sentence


@pytest.mark.parametrize("step", [200, 300, 399])
def test_a_jump_of_the_rate_after_the_loss_rose_is_not(step):
    """What came later changes nothing: the cause is that of the same run without it."""
    without = run(train_loss=DIVERGED, learning_rate=np.full(400, 1e-4), params={"optimizer": "adam"})
    later = run(train_loss=DIVERGED, learning_rate=rate_that_jumps(step), params={"optimizer": "adam"})
    assert cause_of(without) == cause_of(later) == "diverged-cause-unknown"


@pytest.mark.parametrize(
    ("sick", "cause", "mended"),
    [
        ({"params": {"optimizer": "adam", "lr": 3.0}}, "learning-rate-too-high", {"params": {"optimizer": "adam", "lr": 1e-3}}),
        ({"learning_rate": rate_that_jumps(145)}, "learning-rate-too-high", {"learning_rate": np.full(400, 1e-4)}),
    ],
)  # fmt: skip
def test_without_its_strongest_sign_a_cause_does_not_lead(sick, cause, mended):
    assert cause_of(run(train_loss=DIVERGED, **sick)) == cause
    assert cause_of(run(train_loss=DIVERGED, **mended)) != cause


def test_overfitting_needs_a_validation_loss_that_rose():
    assert cause_of(run(**OVERFITTING)) == "overfitting"
    follows = {**OVERFITTING, "val_loss": OVERFITTING["train_loss"] + 0.05}
    assert cause_of(run(**follows)) is None


def test_what_is_nan_leads_over_overfitting():
    broken = {**OVERFITTING, "train_loss": np.where(np.arange(40) < 30, OVERFITTING["train_loss"], np.nan)}
    assert cause_of(run(**broken)) == "non-finite-loss"


def test_a_usual_rate_speaks_against_one_that_is_too_high(tmp_path):
    """A rival where no rate is known, the cause where it is beyond what trains, and no rival where it is usual."""

    def ranked(**params):
        folder = shutil.copytree(RUNS / "explodes-late", tmp_path / str(len(list(tmp_path.iterdir()))))
        (folder / "config.json").write_text(json.dumps(params))
        diagnosis = tracker_health.check(folder).diagnosis
        return [diagnosis.cause, *(one.cause for one in diagnosis.others)]

    assert ranked(optimizer="adam", lr=5.0)[0] == "learning-rate-too-high"
    assert "learning-rate-too-high" in ranked()[1:]
    assert "learning-rate-too-high" not in ranked(optimizer="adam", lr=1e-3)


def test_a_healthy_run_has_no_headline():
    assert run(train_loss=FALLING).diagnosis is None


@pytest.mark.parametrize(
    "name", ["explodes-late", "nan-from-the-second-step", "overfit-by-17-percent-clear-of-the-noise"]
)
def test_the_same_run_gets_the_same_headline(name):
    assert tracker_health.check(RUNS / name).diagnosis == reported(name).diagnosis
