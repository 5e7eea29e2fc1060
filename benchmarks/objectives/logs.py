"""How runs are logged: what metrics are called with various libraries, and when a row is written: at every episode, or
at every few iterations with the mean of the episodes since then (or of the last 100).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from settings import Params

RL_NAMES = {
    "sb3": "rollout/ep_rew_mean eval/mean_reward rollout/ep_len_mean train/policy_gradient_loss train/value_loss"
    " train/entropy_loss train/grad_norm train/learning_rate train/explained_variance",
    "cleanrl": "charts/episodic_return eval/episodic_return charts/episodic_length losses/policy_loss losses/value_loss"
    " losses/entropy losses/grad_norm charts/learning_rate losses/explained_variance",
    "rllib": "env_runners/episode_return_mean evaluation/env_runners/episode_return_mean env_runners/episode_len_mean"
    " learners/default_policy/policy_loss learners/default_policy/vf_loss learners/default_policy/entropy"
    " learners/default_policy/gradients_default_optimizer_global_norm learners/default_policy/curr_lr"
    " learners/default_policy/vf_explained_var",
    "lightning": "train/episode_reward val/episode_reward train/episode_length train/policy_loss train/value_loss"
    " train/entropy train/grad_norm lr-Adam train/explained_variance train/loss",
    "own": "return val_return length policy_loss value_loss entropy grad_norm lr explained_variance loss",
}
_RL_KEYS = ("return", "eval", "length", "policy", "value", "entropy", "grad", "lr", "explained", "loss")
_DQN_NAMES = {  # the loss, and the mean of the values
    "sb3": ("train/loss", "train/q_mean"),
    "cleanrl": ("losses/td_loss", "losses/q_values"),
    "rllib": ("learners/default_policy/qf_loss", "learners/default_policy/qf_mean"),
    "lightning": ("train/loss", "train/q_value"),
    "own": ("loss", "q"),
}
_VAE_KEYS = ("loss", "recon", "kl", "val_loss", "val_recon", "val_kl")
VAE_NAMES = {
    "keras": "loss reconstruction_loss kl_loss val_loss val_reconstruction_loss val_kl_loss",
    "slash": "train/loss train/rec_loss train/kld val/loss val/rec_loss val/kld",
    "under": "train_loss train_recon train_kl val_loss val_recon val_kl",
    "negated": "loss Reconstruction_Loss KLD val_loss val_Reconstruction_Loss val_KLD",  # this family logs -KL
    "scvi": "elbo_train reconstruction_loss_train kl_local_train elbo_validation reconstruction_loss_validation"
    " kl_local_validation",
    "groups": "loss/total loss/recon loss/kl val_loss/total val_loss/recon val_loss/kl",
    "long": "training_loss training_recon training_kl validation_loss validation_recon validation_kl",
    "plain": "loss recon_loss kl_divergence val_loss val_recon_loss val_kl_divergence",
}


class Log:
    """The log of one run: rows under the names of one library, each with its step."""

    def __init__(self, names: dict[str, str], run: Params) -> None:
        self.names, self.run = names, run
        self.rows: list[dict[str, Any]] = []
        self.recent: deque[tuple[float, int]] = deque(maxlen=100)
        self.fresh: list[tuple[float, int]] = []

    def write(self, step: int, **values: float) -> None:
        named = {self.names[key]: float(value) for key, value in values.items() if key in self.names}
        row = {name: -value if name.endswith("entropy_loss") else value for name, value in named.items()}
        self.rows.append({"step": step} | row)

    def episodes(self, step: int, done: list[tuple[float, int]]) -> None:
        """Take in finished episodes; where each is logged by itself, write them."""
        scaled = [(score * self.run["reward_scale"], length) for score, length in done]
        self.recent.extend(scaled)
        self.fresh += scaled
        if self.run["cadence"] == "episode":
            for score, length in scaled:
                self.write(step, **{"return": score, "length": length})

    def iteration(self, step: int, number: int, **values: float) -> None:
        """One row per so many iterations, with the mean of the last 100 episodes or of those since the last row."""
        if number % self.run["log_every"]:
            return
        episodes = list(self.recent) if self.run["cadence"] == "window" else self.fresh
        if episodes and self.run["cadence"] != "episode":
            score, length = np.mean(episodes, axis=0)
            values |= {"return": score, "length": length}
        self.fresh = []
        self.write(step, **values)


def names_of(run: Params) -> dict[str, str]:
    """What a run calls its metrics; where not all are logged, no name for the others."""
    if run["kind"] == "vae":
        names = dict(zip(_VAE_KEYS, VAE_NAMES[run["names"]].split(), strict=True))
        return names | ({"beta": "beta"} if run["annealing"] else {})
    names = dict(zip(_RL_KEYS, RL_NAMES[run["names"]].split(), strict=False))
    if run["algorithm"] == "dqn":
        names["loss"], names["value"] = _DQN_NAMES[run["names"]]
    return names if run["metrics"] else {key: names[key] for key in ("return", "eval", "length")}
