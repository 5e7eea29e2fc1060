"""Four small environments, each with a policy that is hard to beat, and how good another policy is beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Policy = Callable[[np.ndarray], np.ndarray]
"""From what is seen in each copy of an environment to the actions."""


class Env:
    """Copies of one environment side by side; each starts anew when its episode ends or has lasted `cap` steps."""

    size, actions, cap, unit = 1, 2, 1, 1.0
    """What an agent sees and does, the longest episode, and what training divides rewards by."""

    def __init__(self, copies: int, rng: np.random.Generator) -> None:
        self.rng, self.state = rng, np.zeros((copies, self.size))
        self.age, self.score = np.zeros(copies, dtype=int), np.zeros(copies)
        self.state = self.starts(copies)
        self.done: list[tuple[float, int]] = []

    def starts(self, copies: int) -> np.ndarray:
        return self.rng.uniform(-0.05, 0.05, (copies, self.size))

    def move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next states, the rewards, and which episodes ended by themselves."""
        raise NotImplementedError

    def see(self) -> np.ndarray:
        return self.state.astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What is seen afterwards, the rewards, what ended, and what started anew; `done` holds finished episodes."""
        self.state, reward, ended = self.move(action)
        self.age, self.score = self.age + 1, self.score + reward
        after, over = self.see(), ended | (self.age >= self.cap)
        self.done = list(zip(self.score[over].tolist(), self.age[over].tolist(), strict=True))
        if over.any():
            self.state[over], self.age[over], self.score[over] = self.starts(int(over.sum())), 0, 0.0
        return after, reward, ended, over


class CartPole(Env):
    """Barto, Sutton and Anderson (1983): a pole on a cart, pushed left or right; a reward for every step it stands."""

    size, actions, cap = 4, 2, 100

    def move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place, speed, angle, turn = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (20.0 * action - 10.0 + 0.05 * turn**2 * sine) / 1.1
        spin = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        pull = push - 0.05 * spin * cosine / 1.1
        new = np.stack([place + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * spin], axis=1)
        return new, np.ones(len(new)), (np.abs(new[:, 0]) > 2.4) | (np.abs(new[:, 2]) > 0.2095)

    def expert(self, seen: np.ndarray) -> np.ndarray:
        return (seen[:, 2] + 0.5 * seen[:, 3] + 0.02 * seen[:, 0] + 0.05 * seen[:, 1] > 0).astype(int)


class Bandit(Env):
    """A contextual bandit: five arms, eight numbers of context, rewards under noise; an episode is one choice."""

    size, actions, cap = 8, 5, 1
    arms = np.random.default_rng(5).normal(0, 0.4, (8, 5))

    def starts(self, copies: int) -> np.ndarray:
        return self.rng.normal(size=(copies, 8))

    def move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mean = (self.state @ self.arms)[np.arange(len(action)), action]
        return self.state, mean + self.rng.normal(0, 1, len(action)), np.ones(len(action), dtype=bool)

    def expert(self, seen: np.ndarray) -> np.ndarray:
        return (seen @ self.arms).argmax(1)


class Grid(Env):
    """A slippery 6 by 6 grid: one point lost per step, ten won in the far corner."""

    size, actions, cap, unit = 2, 4, 40, 5.0

    def starts(self, copies: int) -> np.ndarray:
        return self.rng.integers(0, 3, (copies, 2)).astype(float)

    def move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        slips = self.rng.random(len(action)) < 0.1
        way = np.where(slips, self.rng.integers(0, 4, len(action)), action)
        new = np.clip(self.state + np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])[way], 0, 5)
        there = (new == 5).all(1)
        return new, np.where(there, 10.0, -1.0), there

    def see(self) -> np.ndarray:
        return (self.state / 2.5 - 1).astype(np.float32)

    def expert(self, seen: np.ndarray) -> np.ndarray:
        return (seen[:, 0] > 0.9).astype(int)


class Mountain(Env):
    """Moore's mountain car (1990), each choice held for eight steps: the goal is first met by luck, after a while."""

    size, actions, cap, unit = 2, 3, 25, 8.0

    def starts(self, copies: int) -> np.ndarray:
        return np.stack([self.rng.uniform(-0.6, -0.4, copies), np.zeros(copies)], axis=1)

    def move(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        place, speed = self.state.T
        there = np.zeros(len(place), dtype=bool)
        for _ in range(8):
            speed = np.clip(speed + 0.001 * (action - 1) - 0.0025 * np.cos(3 * place), -0.07, 0.07)
            place = np.clip(place + speed, -1.2, 0.6)
            speed = np.where((place <= -1.2) & (speed < 0), 0, speed)
            there |= place >= 0.5
        return np.stack([place, speed], axis=1), np.full(len(place), -8.0), there

    def see(self) -> np.ndarray:
        return ((self.state - [-0.4, 0.0]) / [0.5, 0.03]).astype(np.float32)

    def expert(self, seen: np.ndarray) -> np.ndarray:
        return np.where(seen[:, 1] >= 0, 2, 0)


ENVS: dict[str, Any] = {"cartpole": CartPole, "bandit": Bandit, "grid": Grid, "mountain": Mountain}


def play(task: str, policy: Policy, episodes: int, seed: int) -> float:
    """The mean reward of whole episodes."""
    env = ENVS[task](episodes, np.random.default_rng(seed))
    total, alive = np.zeros(episodes), np.ones(episodes, dtype=bool)
    for _ in range(env.cap):
        _, reward, _, over = env.step(policy(env.see()))
        total, alive = total + reward * alive, alive & ~over
    return float(total.mean())


def skill(task: str, policy: Policy) -> float:
    """How far a policy came on the way from a random one (0) to the best known (1)."""
    count = 1000 if task == "bandit" else 100
    chance = np.random.default_rng(3)
    low = play(task, lambda seen: chance.integers(0, ENVS[task].actions, len(seen)), count, 1)
    high = play(task, ENVS[task](1, chance).expert, count, 1)
    return (play(task, policy, count, 2) - low) / (high - low)
