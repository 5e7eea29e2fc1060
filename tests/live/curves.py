"""Losses as trainings log them."""

from __future__ import annotations

import numpy as np


def falling(n, noise=0.05, seed=0):
    random = np.random.default_rng(seed)
    return 2.0 * np.exp(-3.0 * np.arange(n) / n) + 0.3 + noise * random.normal(size=n)


def diverging(n, at):
    values = falling(n)
    values[at:] += np.linspace(0.5, 6.0, n - at)
    return values


def breaking(n, at):
    return np.where(np.arange(n) < at, falling(n), np.nan)


def flat(n, seed=1):
    return 2.3 + 0.01 * np.random.default_rng(seed).normal(size=n)
