"""Causes that were renamed or split: answers and messages under an older name still count."""

from __future__ import annotations

from collections.abc import Mapping

FORMERLY: Mapping[str, tuple[str, ...]] = {
    "policy-drifted": ("kl-coefficient-too-low", "learning-rate-too-high"),
    "entropy-collapsed": ("learning-rate-too-high", "kl-coefficient-too-low"),
    "weights-do-not-move": (
        "evaluation-stuck",
        "labels-do-not-match",
        "learning-rate-too-low",
        "no-gradient",
        "parameters-not-trained",
    ),
    "not-learning-cause-unknown": ("labels-do-not-match", "learning-rate-too-low", "no-gradient", "stopped-too-early"),
    "reward-cause-unknown": ("loss-implemented-wrong", "learning-rate-too-high", "reward-without-signal"),
    "diverged-cause-unknown": ("loss-implemented-wrong", "learning-rate-too-high", "resume-incomplete"),
    "spikes-cause-unknown": ("diverged-cause-unknown", "outliers-in-data", "resume-incomplete"),
    "time-limit": ("killed-reason-unknown", "out-of-memory", "stopped-too-early"),
    "preempted": ("killed-reason-unknown", "out-of-memory", "stopped-too-early"),
    "interrupted": ("killed-reason-unknown", "stopped-too-early", "own-error"),
    "killed-reason-unknown": ("out-of-memory", "stopped-too-early"),
}
"""By name what the same runs were called before, since 0.2."""


def is_same_cause(now: str, before: str) -> bool:
    """Whether a cause is the one that was named before, or what became of it."""
    return now == before or before in FORMERLY.get(now, ())
