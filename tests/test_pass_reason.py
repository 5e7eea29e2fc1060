"""A pass says why: what the curves did, and answers to what people worry about."""

from __future__ import annotations

import numpy as np
import pytest
from tests.test_engine import judged

N = np.arange(200)
FALLS = 0.086 + 2.2 * np.exp(-N / 25)
NOISE = 0.003 * np.random.default_rng(3).standard_normal(200)


def said(**metrics):
    report = judged({name.replace("__", "/"): values for name, values in metrics.items()})
    assert report.verdict == "pass", report.headline
    return report.summary


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"loss": FALLS + NOISE}, ["loss 2.", "-> 0.08", "falling slowly at the end; ", " checks"]),
        (
            {"loss": 5 - 0.02 * N + NOISE, "val_loss": 6 - 0.02 * N},
            ["still falling at the end", "validation loss 2.02, its best, no overfit"],
        ),
        (
            {"loss": FALLS, "val_loss": np.r_[FALLS[:150] + 0.1, np.full(50, 0.193)]},
            ["validation loss 0.193, best 0.192 at step 149 of 199, no overfit"],
        ),
        ({"loss": 0.05 + 2.2 * np.exp(-N / 12) + NOISE}, ["loss 2.", "-> 0.0", ", level at the end; 11 checks"]),
        ({"loss": np.r_[0.02, FALLS + 0.2 + NOISE]}, ["loss 0.02", "-> 0.2", " by way of 2.49; "]),
        ({"loss": FALLS + 0.3 + NOISE, "val_loss": FALLS + NOISE}, ["validation is below training"]),
        ({"loss": FALLS + NOISE + (abs(N - 120) < 6)}, ["the loss jumped at step 115 and came back"]),
        ({"loss": FALLS + NOISE, "val_accuracy": 0.9 - 0.8 * np.exp(-N / 25)}, ["val_accuracy 0."]),
    ],
)
def test_a_pass_says_what_the_curves_did(metrics, words):
    summary = said(**metrics)
    assert [one for one in words if one not in summary] == [], summary


def test_a_pass_of_a_policy_says_that_its_loss_may_rise():
    reward = 200 - 180 * np.exp(-N / 40) + NOISE
    summary = said(rollout__ep_rew_mean=reward, train__loss=0.1 + 0.01 * N + NOISE, train__approx_kl=0.01 + NOISE)
    assert summary.startswith("rollout/ep_rew_mean 2")
    assert "need not fall while the reward rises" in summary


def test_chosen_rewards_that_fall_are_explained():
    margin = 3 - 3 * np.exp(-N / 50) + NOISE
    chosen = {"rewards/chosen": -1 + np.exp(-N / 60) + NOISE, "logps/chosen": -200 - 0.2 * N + NOISE}
    summary = said(**{"loss": FALLS + NOISE, "rewards/margins": margin} | chosen)
    assert "as is usual in preference training" in summary
