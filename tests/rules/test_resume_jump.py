"""LOS017: a jump where a run was resumed; and where that is known from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health import check
from tracker_health.evidence import RunInfo, TextLog
from tracker_health.facts.resumes import resumes_of, state_begins

CODE = "LOS017"
FALLS = 1.0 + 2.0 * np.exp(-np.arange(200) / 50)


def said(*steps):
    return TextLog(source="train.log", lines=500, rows=200, resumed=steps)


@given(height=st.floats(0.0, 3.0), noise=st.floats(0.005, 0.05), at=st.integers(20, 180), seed=st.integers(0, 9))
def test_a_jump_at_a_resume_is_found_when_it_is_clear_of_noise_and_large(height, noise, at, seed, make, judge):
    losses = FALLS + noise * np.random.default_rng(seed).standard_normal(200)
    losses[at + 1 :] += height * np.exp(-np.arange(199 - at) / 30)
    verdict = judge(CODE, make.evidence(losses, text_log=said(at))).verdict
    if height > 0.5 + 8 * noise:
        assert verdict == "warn"
    if height < 0.1:
        assert verdict == "pass"


def test_a_jump_elsewhere_is_no_resume(make, judge):
    losses = FALLS + np.where(np.arange(200) > 120, 1.5, 0.0)
    assert judge(CODE, make.evidence(losses, text_log=said(60))).verdict == "pass"
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


def test_too_few_points_after_a_resume_are_no_pass(make, judge):
    assert judge(CODE, make.evidence(np.r_[FALLS, 9.0, 9.0], text_log=said(199))).verdict == "SkippedProbe"


@pytest.mark.parametrize("ended", [True, False])
def test_a_second_training_in_one_console_is_a_resume_only_if_the_first_had_not_ended(ended, tmp_path):
    """Folds of a cross-validation are trained one after the other, each from the start."""
    done = ["{'train_runtime': 12.0, 'train_samples_per_second': 3.0, 'epoch': 3.0}"]
    rows = [f"{{'loss': {2.1 * 0.93**at + 0.1:.4f}, 'epoch': {at / 10:.2f}}}" for at in range(1, 31)]
    fold = ["***** Running training *****", *rows]
    (tmp_path / "train.log").write_text("\n".join([*fold, *(done if ended else []), *fold, *done]) + "\n")
    assert ("LOS017" in [one.code for one in check(tmp_path).findings]) is not ended


@pytest.mark.parametrize(("counted", "begins"), [(400, 600), (970, None), (1000, None), (0, None)])
def test_an_optimizer_that_counts_from_inside_the_run(counted, begins, make, judge):
    state = make.state(make.tensor(0, step=float(counted)), global_step=None)
    info = RunInfo(global_step=1000, metric_names=("train_loss",))
    evidence = make.evidence(FALLS, steps=np.arange(200) * 5, info=info, optimizer=state)
    assert state_begins(evidence) == begins
    assert [one.step for one in resumes_of(evidence)] == ([] if begins is None else [begins])
    if begins is not None:
        assert judge(CODE, evidence).measured["state_begins"] == begins
        jumped = make.evidence(FALLS + np.where(np.arange(200) > 120, 1.5, 0.0), steps=np.arange(200) * 5, info=info,
                               optimizer=state)  # fmt: skip
        assert judge(CODE, jumped).verdict == "warn"
