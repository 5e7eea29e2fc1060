"""From the log of a policy, under a trainer's own names, to the cause and the setting to change."""

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, confirm
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.roles import assign

N = 40
STEPS = np.arange(1, N + 1)
STAYS, FALLS = np.full(N, 0.4), 0.8 - 0.5 * (1.0 - np.exp(-STEPS / 10.0))
RISES = 1.1 - FALLS
GROUPS = {"train/loss": np.zeros(N), "train/grad_norm": np.full(N, 0.3)}
PAIRS = {"loss": np.full(N, 0.693), "rewards/chosen": np.zeros(N), "grad_norm": np.full(N, 0.3)}
RATE = {"learning_rate": 1e-3, "optimizer": "adamw"}


def noisy(level, seed=0):
    return level + 0.02 * np.random.default_rng(seed).standard_normal(len(level))


def leap(low, high):
    return np.where(STEPS > N // 2, high, low).astype(float)


def diagnosed(series, **params):
    request = needs_of(Config())
    made = [Series(name=name, steps=STEPS, values=np.asarray(values), source="log") for name, values in series.items()]
    info = RunInfo(params={key: str(value) for key, value in params.items()}, metric_names=tuple(series))
    run = RunRef(store="directory", id="run", name="run")
    evidence = Evidence(run=run, info=info, series=confirm(tuple(made), request.roles.of(series))[0])
    return diagnose(evidence, Config()).diagnosis


SILENT = GROUPS | {"train/reward": noisy(STAYS), "train/frac_reward_zero_std": np.ones(N)}
CASES = [
    ("reward-without-signal", "temperature", SILENT, {"temperature": 0.01}),
    ("reward-without-signal", "num_generations", SILENT, {"temperature": 1.0, "num_generations": 2}),
    ("reward-without-signal", "", SILENT, {}),
    (
        "length-limit-too-short", "max_completion_length",
        SILENT | {"train/completions/clipped_ratio": np.ones(N)}, {"max_completion_length": 64},
    ),
    (
        "kl-coefficient-too-low", "beta",
        GROUPS | {"train/reward": noisy(leap(0.4, 0.1)), "train/kl": noisy(leap(0.05, 30.0))}, {"beta": 0.0} | RATE,
    ),
    (
        "reward-hacked", "",
        GROUPS | {"train/reward": noisy(RISES), "train/completions/clipped_ratio": noisy(leap(0.05, 0.95))}, RATE,
    ),
    (
        "reward-hacked", "",
        GROUPS | {"train/reward": noisy(RISES), "train/rewards/correct/mean": noisy(FALLS)}, RATE,
    ),
    (
        "reward-hacked", "",
        GROUPS | {"train/reward": noisy(RISES), "train/rewards/correct/mean": noisy(STAYS)}, RATE,
    ),
    (
        "labels-do-not-match", "",
        PAIRS | {"rewards/margins": noisy(np.linspace(0, 3, N)), "rewards/accuracies": noisy(RISES),
                 "eval_rewards/accuracies": noisy(np.full(N, 0.1))}, RATE,
    ),
    (
        "policy-not-trained", "",
        {"rollout/ep_rew_mean": noisy(22 * STAYS, 1), "rollout/ep_len_mean": np.full(N, 22.0),
         "train/approx_kl": np.zeros(N), "train/entropy_loss": np.full(N, -0.693)}, RATE,
    ),
    (
        "value-function-diverged", "",
        {"rollout/ep_rew_mean": noisy(22 * STAYS, 1), "train/value_loss": np.geomspace(1, 1e9, N)}, {"ent_coef": 0.01},
    ),
    (
        "entropy-bonus-too-high", "entropy_coef",
        {"rollout/ep_rew_mean": noisy(22 * STAYS, 1), "rollout/ep_len_mean": np.full(N, 22.0),
         "train/entropy_loss": noisy(np.full(N, -0.693)) * 0.001 - 0.693}, {"ent_coef": 5.0},
    ),
    (
        "learning-rate-too-high", "learning_rate",
        {"rollout/ep_rew_mean": 9 + 13 * np.exp(-STEPS / 2.0), "train/entropy_loss": -0.7 * np.exp(-STEPS / 2.0)},
        {"learning_rate": 0.05, "env_id": "CartPole-v1"},
    ),
    ("reward-cause-unknown", "", GROUPS | {"train/reward": noisy(FALLS), "train/reward_std": noisy(STAYS)}, RATE),
    (
        "parameters-not-trained", "",
        GROUPS | {"train/reward": noisy(STAYS), "train/reward_std": noisy(STAYS), "train/kl": np.zeros(N)}, RATE,
    ),
    ("preferences-without-effect", "beta", PAIRS | {"rewards/margins": np.zeros(N), "grad_norm": np.zeros(N)}, {"beta": 0.0}),
    ("loss-implemented-wrong", "", PAIRS | {"rewards/margins": noisy(np.linspace(0, -3, N))}, RATE),
    (
        "learning-rate-too-high", "learning_rate",
        PAIRS | {
            "rewards/margins": noisy(np.linspace(0, 3, N)), "logps/chosen": noisy(np.linspace(-20, -90, N)),
            "logps/rejected": noisy(np.linspace(-20, -120, N)),
        }, {"learning_rate": 0.05, "optimizer": "adamw"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "setting", "series", "params"), CASES)
def test_the_cause_and_what_to_change(cause, setting, series, params):
    found = diagnosed(series, **params)
    assert found.cause == cause, found
    assert found.action.setting == setting


def test_a_sound_policy_has_no_cause():
    assert diagnosed(GROUPS | {"train/reward": noisy(RISES), "train/reward_std": noisy(STAYS)}, **RATE) is None


LIBRARIES = {
    "trl grpo": {
        "reward": "train_reward", "reward_std": "reward_spread", "frac_reward_zero_std": "flat_share", "kl": "kl",
        "rewards/format/mean": "reward_part", "rewards/format/std": None, "completions/clipped_ratio": "cut_share",
        "completions/mean_length": "response_length", "clip_ratio/region_mean": "clip_fraction", "entropy": "entropy",
        "sampling/importance_sampling_ratio/mean": "importance_ratio", "loss": "objective_loss",
        "eval_reward": "val_reward",
    },
    "trl online dpo": {
        "objective/rlhf_reward": "train_reward", "rewards/margins": "margin", "rewards/accuracies": None,
        "objective/kl": "kl", "logps/chosen": "chosen_logp", "loss": "objective_loss",
    },
    "trl dpo": {
        "loss": "train_loss", "rewards/margins": "margin", "rewards/chosen": "chosen_reward",
        "logps/rejected": "rejected_logp", "rewards/accuracies": "train_accuracy", "eval_rewards/margins": None,
    },
    "verl": {
        "critic/rewards/mean": "train_reward", "critic/rewards/max": None, "critic/returns/mean": None,
        "actor/kl_loss": "kl", "actor/entropy": "entropy", "actor/pg_clipfrac": "clip_fraction",
        "critic/vf_explained_var": "explained_variance", "response_length/clip_ratio": "cut_share",
        "response_length/mean": "response_length", "critic/vf_loss": "objective_loss",
        "val-core/gsm8k/reward/mean@1": "val_reward",
    },
    "openrlhf": {
        "train/reward": "train_reward", "train/return": None, "train/kl": "kl", "train/critic_loss": "objective_loss",
        "train/group_reward_std": "reward_spread", "train/response_length": "response_length",
    },
    "nemo-rl": {
        "train/reward": "train_reward", "train/kl_penalty": "kl", "train/probs_ratio": "importance_ratio",
        "train/mean_gen_tokens_per_sample": "response_length", "train/advantages/std": "advantage_spread",
    },
    "stable-baselines3": {
        "rollout/ep_rew_mean": "train_reward", "eval/mean_reward": "val_reward", "train/approx_kl": "kl",
        "train/clip_fraction": "clip_fraction", "train/explained_variance": "explained_variance",
        "train/value_loss": "objective_loss", "train/clip_range": None,
    },
    "rllib": {
        "env_runners/episode_return_mean": "train_reward", "learners/default_policy/mean_kl_loss": "kl",
        "learners/default_policy/vf_explained_var": "explained_variance", "learners/default_policy/entropy": "entropy",
    },
    "rsl_rl": {
        "Train/mean_reward": "train_reward", "Episode_Reward/track_lin_vel": "reward_part", "Loss/entropy": "entropy",
        "Loss/value_function": "objective_loss",
    },
    "a variational autoencoder": {"loss": "train_loss", "kl_loss": "loss_part", "recon_loss": "loss_part"},
    "a generator and its critic": {"generator_loss": "objective_loss", "critic_loss": "objective_loss"},
}  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_libraries_log(library):
    names = LIBRARIES[library]
    given = assign(names)
    assert {name: given.get(name) for name in names} == names
