"""Agents that Stable-Baselines3 trains on Gymnasium's classic tasks, rightly or with a fault. The library's own CSV
logger and monitors log them; what they became is the mean return of twenty episodes of the final policy. A run is
healthy where its last episodes of training were good as well.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from settings import Params
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor

_EPISODES = 20
_LATE = 0.6
"""From this share of the run on the faults act that come late."""


class _Task(NamedTuple):
    """A task, the steps that an algorithm needs for it, and the returns of a policy that solves it or knows nothing."""

    env: str
    algorithm: str
    steps: int
    settings: dict[str, Any]
    solved: float
    lost: float


_ON_POLICY = {"policy": "MlpPolicy"}
TASKS = {
    "ppo-cartpole": _Task("CartPole-v1", "ppo", 50_000, {"n_steps": 512, "batch_size": 64, "n_epochs": 10}, 400, 150),
    "a2c-cartpole": _Task("CartPole-v1", "a2c", 100_000, {"n_steps": 16, "learning_rate": 1e-3}, 400, 150),
    "dqn-cartpole": _Task(
        "CartPole-v1", "dqn", 60_000,
        {"learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "train_freq": 256,
         "gradient_steps": 128, "target_update_interval": 10, "exploration_fraction": 0.16,
         "exploration_final_eps": 0.04}, 400, 150),
    "ppo-acrobot": _Task("Acrobot-v1", "ppo", 80_000, {"n_steps": 1024, "batch_size": 128, "n_epochs": 10}, -110, -350),
    "sac-pendulum": _Task("Pendulum-v1", "sac", 8_000, {"learning_rate": 1e-3, "learning_starts": 500}, -300, -900),
    "td3-pendulum": _Task("Pendulum-v1", "td3", 8_000, {"learning_rate": 1e-3, "learning_starts": 500}, -300, -900),
}  # fmt: skip
_ALGORITHMS = {"ppo": PPO, "a2c": A2C, "dqn": DQN, "sac": SAC, "td3": TD3}
_OF_ALL = (
    "negated_reward",
    "no_reward",
    "blind",
    "rate_high",
    "rate_tiny",
    "not_updated",
    "huge_reward",
    "myopic",
    "rate_jumps",
)
FAULTS = {
    "ppo": (*_OF_ALL, "bonus_high", "many_epochs", "episodes_end_at_once"),
    "a2c": (*_OF_ALL, "bonus_high", "episodes_end_at_once"),
    "dqn": (*_OF_ALL, "never_exploits", "target_stands"),
    "sac": (*_OF_ALL, "bonus_high"),
    "td3": (*_OF_ALL, "target_stands"),
}
"""What goes wrong with agents, as the literature and the libraries' own advice have it: Henderson et al. (2018),
Andrychowicz et al. (2021), Engstrom et al. (2020), Schulman's and Achiam's notes on debugging.
"""


def plan_of_zoo(draw_name: str = "zoo") -> dict[str, Params]:
    """Every run by its name; another ``draw_name`` gives other seeds and settings."""
    runs: dict[str, Params] = {}
    for task, about in TASKS.items():
        named = [(f"healthy{number}", "") for number in range(8)]
        for name, fault in (*named, *((fault, fault) for fault in FAULTS[about.algorithm])):
            draw = random.Random(f"{draw_name} {task} {name}")
            runs[f"{task}-{name}"] = {
                "kind": "zoo", "task": task, "algorithm": about.algorithm, "fault": fault,
                "env_id": about.env, "seed": draw.randrange(10**6), "rate_factor": draw.choice([0.7, 1.0, 1.3]),
                "high": draw.choice([100, 300]), "evals": draw.choice([0, 10, 20]),
                "share": draw.choice([0.5, 1.0, 1.0]),
            }  # fmt: skip
    return runs


class _Changed(gym.Wrapper):
    """An environment whose rewards, observations or ends reach the agent otherwise than they are."""

    def __init__(self, env: gym.Env, fault: str) -> None:
        super().__init__(env)
        self.fault = fault

    def reset(self, **keywords: Any) -> tuple[Any, dict[str, Any]]:
        seen, info = self.env.reset(**keywords)
        return self._seen(seen), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, ended, over, info = self.env.step(action)
        factor = {"negated_reward": -1.0, "no_reward": 0.0, "huge_reward": 1e4}.get(self.fault, 1.0)
        return self._seen(seen), factor * float(reward), ended or self.fault == "episodes_end_at_once", over, info

    def _seen(self, seen: Any) -> Any:
        return np.zeros_like(seen) if self.fault == "blind" else seen


class _RateJumps(BaseCallback):
    """Late in the run the learning rate becomes that of another task."""

    def __init__(self, run: Params, steps: int) -> None:
        super().__init__()
        self.run, self.at = run, _LATE * steps

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            rate = self.run["settings"]["learning_rate"] * self.run["high"]
            self.model.lr_schedule = lambda _: rate
        return True


def train_zoo(run: Params, folder: Path) -> str:
    """Train, and leave what the library writes in ``folder``; healthy, sick or unclear by the policy's return."""
    torch.set_num_threads(1)
    task = TASKS[run["task"]]
    # As people have it: the monitor inside logs what the environment pays, a changed reward is seen by the agent alone,
    # but for what changes the environment itself.
    own = run["fault"] in ("no_reward", "episodes_end_at_once", "huge_reward")
    inside = _Changed(gym.make(task.env), run["fault"]) if own else gym.make(task.env)
    env = _Changed(Monitor(inside, str(folder / "monitor.csv")), "" if own else run["fault"])
    run["settings"] = settings = _settings(run, task)
    model = _ALGORITHMS[run["algorithm"]](**_ON_POLICY, env=env, seed=run["seed"], device="cpu", **settings)
    model.set_logger(configure(str(folder), ["csv"]))
    steps = int(task.steps * (run["share"] if run["fault"] else 1.0))
    if run["fault"] == "not_updated":
        _update_nothing(model)
    callbacks: list[BaseCallback] = [_RateJumps(run, steps)] if run["fault"] == "rate_jumps" else []
    if run["evals"]:
        held_out = Monitor(_Changed(gym.make(task.env), run["fault"] if own or run["fault"] == "blind" else ""))
        callbacks.append(EvalCallback(held_out, n_eval_episodes=5, eval_freq=steps // run["evals"], verbose=0))
    try:
        model.learn(
            steps,
            callback=callbacks,
            log_interval=1 if run["algorithm"] == "ppo" else 100 if run["algorithm"] == "a2c" else 4,
        )
    except ValueError as error:  # NaN in the policy's distribution
        run["ended"] = str(error)[:200]
        score = -np.inf
    else:
        test = _Changed(gym.make(task.env), "blind" if run["fault"] == "blind" else "")
        score = float(evaluate_policy(model, test, _EPISODES, warn=False)[0])
    run["measured"] = round(score, 1)
    if run["fault"]:
        return "sick" if score <= task.lost else "unclear"
    # A policy that was good for a moment, between updates that lose it again, did not go well.
    late = float(np.mean(env.env.get_episode_rewards()[-_EPISODES:]))
    return "healthy" if score >= task.solved and late > task.lost else "unclear"


def _update_nothing(model: Any) -> None:
    """Give every optimizer a parameter that no loss reaches."""
    for part in (model.policy, getattr(model, "actor", None), getattr(model, "critic", None)):
        optimizer = getattr(part, "optimizer", None)
        if optimizer is not None:
            optimizer.param_groups[0]["params"] = [torch.nn.Parameter(torch.zeros(1))]


def _settings(run: Params, task: _Task) -> dict[str, Any]:
    """What the library is given."""
    usual = {"ppo": 3e-4, "a2c": 7e-4, "dqn": 1e-4, "sac": 3e-4, "td3": 1e-3}[run["algorithm"]]
    settings = {"learning_rate": usual, "gamma": 0.99} | task.settings
    settings["learning_rate"] *= run["rate_factor"]
    fault = run["fault"]
    if fault == "rate_high":
        settings["learning_rate"] *= run["high"]
    if fault == "rate_tiny":
        settings["learning_rate"] /= 3000
    if fault == "myopic":
        settings["gamma"] = 0.0
    if fault == "bonus_high":
        settings["ent_coef"] = 5.0 if run["algorithm"] != "sac" else 30.0
    if fault == "many_epochs":
        settings |= {"n_epochs": 60, "clip_range": 5.0, "learning_rate": 1e-2}
    if fault == "never_exploits":
        settings |= {"exploration_fraction": 1.0, "exploration_initial_eps": 1.0, "exploration_final_eps": 1.0,
                     "gradient_steps": 1}  # fmt: skip
    if fault == "target_stands":
        settings |= {"target_update_interval": 10**9} if run["algorithm"] == "dqn" else {"tau": 0.0}
    return settings
