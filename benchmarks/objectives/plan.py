"""Which runs there are, healthy and broken, and how each is trained and logged: drawn at random, once for all."""

from __future__ import annotations

import random
import zlib
from itertools import product

from environments import ENVS
from logs import RL_NAMES, VAE_NAMES
from settings import Params

_PG_FAULTS = ("wrong_sign", "lr_high", "lr_low", "gamma_above_1", "zero_reward", "shuffled", "late_jump", "frozen")
_DQN_FAULTS = ("wrong_sign", "lr_high", "lr_low", "gamma_above_1", "zero_reward", "no_target", "late_jump", "frozen")
_VAE_FAULTS = ("beta_high", "skip", "detached", "endless_annealing")


def plan() -> dict[str, Params]:
    """Every run's settings, by its name."""
    return _agents() | _autoencoders()


def _agents() -> dict[str, Params]:
    """Every run of reinforcement learning."""
    runs: dict[str, Params] = {}
    for task, algorithm in product(ENVS, ("reinforce", "a2c", "dqn")):
        faults = _DQN_FAULTS if algorithm == "dqn" else _PG_FAULTS
        for name, fault in [(f"healthy{number}", "") for number in range(8)] + [(fault, fault) for fault in faults]:
            draw = random.Random(f"{task} {algorithm} {name}")
            runs[f"{task}-{algorithm}-{name}"] = _agent(task, algorithm, fault, draw, len(runs))
    return runs


def _agent(task: str, algorithm: str, fault: str, draw: random.Random, number: int) -> Params:
    """The settings of one run of reinforcement learning."""
    deep, long = algorithm == "dqn", algorithm == "reinforce"
    hard = ("", "plateau", "", "warm", "dip" if deep else "")[number % 5] if not fault else ""
    cap = ENVS[task].cap
    iterations = 190 if deep else 100 if long else 320
    lr = (2e-3 if deep else 8e-3 if long else 3e-3) * draw.choice([0.7 if deep else 0.4, 0.7, 1, 1.7])
    factor = {"lr_high": draw.choice([30, 100, 300]), "lr_low": 1 / 300}.get(fault, 1)
    gamma = draw.choice([1.02, 1.05]) if fault == "gamma_above_1" else draw.choice([0.97, 0.98, 0.99])
    cadences = ["window", "iteration"] if task == "bandit" else ["episode", "window", "iteration"]
    return {
        "kind": "rl", "task": task, "algorithm": algorithm, "fault": fault, "hard": hard, "seed": number,
        "names": draw.choice(list(RL_NAMES)), "cadence": draw.choice(cadences), "log_every": draw.choice([1, 1, 2, 5]),
        "evals": draw.choice([0, 5, 10, 20, 40]), "lr": lr * factor, "gamma": gamma, "iterations": iterations,
        "hidden": draw.choice([64 if deep else 32, 64, 128]),
        "ent_coef": 0.0 if long else draw.choice([0.003, 0.01, 0.02]),
        "lambda": 1.0 if long else 0.95, "rollout": max(16, cap) if long else 24, "clip": draw.choice([0.5, 1.0, 10.0]),
        "reward_scale": draw.choice([0.01, 0.1, 1, 1, 10]), "metrics": draw.random() < 0.8,
        "schedule": "warmup" if hard == "plateau" and not deep else draw.choice(["constant", "linear"]),
        "total_timesteps": iterations * (128 if deep else 16 * (max(16, cap) if long else 24)),
        "jump_at": draw.uniform(0.6, 0.8), "jump": draw.choice([100, 300]),
        "target_every": draw.choice([25, 50, 100]),
        "eps_end": draw.choice([0.02, 0.05, 0.1]), "eps_share": draw.choice([0.2, 0.4]),
    }  # fmt: skip


_REWARD_FAULTS = (
    "constant_reward",
    "out_of_reach",
    "lr_high",
    "no_kl",
    "temperature_0",
    "limit_short",
    "length_hack",
    "wrong_sign",
    "frozen",
)
_PREFERENCE_FAULTS = ("wrong_sign", "lr_high", "beta_0", "frozen")
FIRST_LOOK = (
    "shuffled",
    "late_jump",
    "repetition_hack",
    "mask_off_by_one",
    "negated_reward",
    "kl_too_high",
    "entropy_bonus",
    "same_answers",
    "swapped",
)
"""Faults that no rule was made on: what is found of them is looked at once."""

RIGHT_CAUSES = {
    "constant_reward": "reward-without-signal", "out_of_reach": "reward-without-signal",
    "temperature_0": "reward-without-signal", "limit_short": "length-limit-too-short",
    "lr_high": "learning-rate-too-high", "no_kl": "learning-rate-too-high kl-coefficient-too-low",
    "length_hack": "reward-hacked", "wrong_sign": "loss-implemented-wrong", "frozen": "parameters-not-trained",
    "beta_0": "preferences-without-effect", "shuffled": "reward-without-signal",
    "late_jump": "learning-rate-too-high", "repetition_hack": "reward-hacked",
    "mask_off_by_one": "loss-implemented-wrong", "negated_reward": "loss-implemented-wrong",
    "kl_too_high": "kl-coefficient-too-high", "entropy_bonus": "entropy-bonus-too-high",
    "same_answers": "preferences-without-effect", "swapped": "loss-implemented-wrong labels-do-not-match",
    "no_reward": "reward-without-signal", "rate_high": "learning-rate-too-high",
    "rate_tiny": "learning-rate-too-low policy-not-trained",
    "not_updated": "policy-not-trained parameters-not-trained", "huge_reward": "value-function-diverged",
    "rate_jumps": "learning-rate-too-high policy-drifted", "bonus_high": "entropy-bonus-too-high",
    "many_epochs": "policy-drifted", "target_stands": "value-function-diverged",
}  # fmt: skip
"""By fault the causes of which one has to come first; a few are none that there is."""


def plan_of_posttraining(draw_name: str = "") -> dict[str, Params]:
    """Every run of a language model that is trained on, by its name; a ``draw_name`` gives other seeds and settings."""
    runs: dict[str, Params] = {}
    seeds = zlib.crc32(draw_name.encode()) % 100_000 if draw_name else 0
    for algorithm, healthy in (("grpo", 14), ("rloo", 8), ("dpo", 8)):
        some = _PREFERENCE_FAULTS if algorithm == "dpo" else _REWARD_FAULTS
        unseen = ("shuffled", "late_jump", *(FIRST_LOOK[-2:] if algorithm == "dpo" else FIRST_LOOK[2:-2]))
        for task in ("copy", "sort", "largest", "runs"):
            named = [(f"healthy{number}", "") for number in range(healthy)]
            named += [(fault, fault) for fault in (*some, *unseen) if (algorithm, fault) != ("rloo", "entropy_bonus")]
            for name, fault in named:
                if not fault or algorithm != "rloo" or task in ("sort", "runs"):
                    draw = random.Random(f"{draw_name} {task} {algorithm} {name}".strip())
                    runs[f"{task}-{algorithm}-{name}"] = _policy(task, algorithm, fault, draw, seeds + len(runs))
    return runs


def _policy(task: str, algorithm: str, fault: str, draw: random.Random, number: int) -> Params:
    """The settings of one run that trains a language model on."""
    preferring = algorithm == "dpo"
    settings = {
        "kind": "llm", "task": task, "algorithm": algorithm, "fault": fault, "seed": number,
        "skill": draw.choice([0.3, 0.5, 0.5, 0.7]), "hidden": draw.choice([32, 48]),
        "max_steps": draw.choice([50, 70, 100]), "learning_rate": draw.choice([5e-4, 1e-3, 2e-3]),
        "lr_scheduler_type": draw.choice(["linear", "constant", "cosine"]),
        "logging_steps": draw.choice([1, 1, 1, 2]), "max_grad_norm": draw.choice([0.2, 1.0, 1.0]),
        "num_generations": draw.choice([4, 8, 8]),
        "beta": draw.choice([0.05, 0.1, 0.5] if preferring else [0.0, 0.01, 0.04]),
        "max_completion_length": draw.choice([6, 8]), "temperature": draw.choice([0.8, 1.0, 1.0, 1.2]),
        "num_iterations": draw.choice([1, 1, 2, 4]), "evals": draw.choice([0, 0, 6, 10]), "exact": draw.random() < 0.2,
        "form": draw.random() < 0.4, "entropy_coef": 0.0, "constant": draw.choice([0.0, 1.0, 0.5]),
        "names": "trl" if preferring else draw.choice(["trl", "trl", "trl", "verl", "openrlhf"]),
    }  # fmt: skip
    return settings | {
        "lr_high": {"learning_rate": draw.choice([0.03, 0.1, 0.3]), "max_grad_norm": 1.0},
        "no_kl": {"learning_rate": draw.choice([0.01, 0.02]), "beta": 0.0, "num_iterations": draw.choice([4, 8])},
        "temperature_0": {"temperature": 1e-3},
        "constant_reward": {"form": False},
        "out_of_reach": {"form": False},
        "limit_short": {"max_completion_length": 1, "exact": task != "largest" and draw.random() < 0.7, "form": False},
        "beta_0": {"beta": 0.0},
        "kl_too_high": {"beta": draw.choice([10.0, 30.0])},
        "entropy_bonus": {"entropy_coef": draw.choice([1.0, 3.0])},
    }.get(fault, {})


def _autoencoders() -> dict[str, Params]:
    """Every run of an autoencoder."""
    runs: dict[str, Params] = {}
    every = [(f"healthy{number}", "") for number in range(30)]
    every += [(f"{fault}{number}", fault) for fault in _VAE_FAULTS for number in range(4)]
    for task, (name, fault) in product(("digits", "sinusoids", "mixture"), every):
        runs[f"{task}-vae-{name}"] = _autoencoder(task, fault, random.Random(f"{task} {name}"), len(runs))
    return runs


def _autoencoder(task: str, fault: str, draw: random.Random, number: int) -> Params:
    """The settings of one run of an autoencoder."""
    kind = draw.choice(["mse", "bce", "gaussian"])
    beta = draw.choice([0.1, 0.2]) if kind == "mse" else draw.choice([0.1, 0.25, 0.5, 1, 1, 2])
    settings = {
        "kind": "vae", "task": task, "fault": fault, "seed": number, "names": draw.choice(list(VAE_NAMES)),
        "reconstruction": kind, "beta": draw.choice([50, 150, 500]) if fault == "beta_high" else beta,
        "annealing": draw.choice(["", "", "linear", "cyclic"]), "free_bits": draw.choice([0, 0, 0.05, 0.2]),
        "reduction": draw.choice(["sum", "mean"]), "kl_logged": draw.choice(["sum", "mean", "weighted"]),
        "latent_dim": draw.choice([2, 4, 8, 16]), "hidden": draw.choice([64, 128]),
        "lr": draw.choice([1e-3, 2e-3, 3e-3]), "batch_size": draw.choice([32, 64, 128]),
        "epochs": draw.choice([20, 30, 50]), "per_step": draw.random() < 0.3, "validated": draw.random() < 0.7,
    }  # fmt: skip
    return settings | ({"annealing": "linear"} if fault == "endless_annealing" else {})
