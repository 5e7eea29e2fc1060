"""Environments that everybody trains on: at which mean reward each counts as solved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from tracker_health.evidence import Evidence

SOLVED: Mapping[str, float] = MappingProxyType({
    "cartpole-v0": 195.0, "cartpole": 475.0, "mountaincar": -110.0, "mountaincarcontinuous": 90.0, "acrobot": -100.0,
    "lunarlander": 200.0, "lunarlandercontinuous": 200.0, "bipedalwalker": 300.0, "bipedalwalkerhardcore": 300.0,
    "carracing": 900.0, "frozenlake": 0.7, "frozenlake8x8": 0.85, "taxi": 8.0, "reacher": -3.75, "pusher": 0.0,
    "invertedpendulum": 950.0, "inverteddoublependulum": 9100.0, "halfcheetah": 4800.0, "hopper": 3800.0,
    "swimmer": 360.0, "ant": 6000.0,
})  # fmt: skip
"""By name the reward at which Gymnasium's registry calls an environment solved (``reward_threshold``)."""
STEPS_BY_DESIGN = frozenset({*SOLVED, "pendulum", "walker2d", "humanoid", "humanoidstandup", "cliffwalking"})
"""Environments whose episodes have more than one step."""

_OF_CONTROL = ("episode_length", "exploration", "policy_std")
_NAMES_IT = re.compile(r"(?:^|[./_ -])(?:env|gym|environment|task)(?:[_ .-]?(?:id|name))?$", re.IGNORECASE)
_MOST_CHARACTERS = 100
_VERSION = re.compile(r"-v\d{1,2}$")


def environment_of(evidence: Evidence) -> str:
    """The name of a known environment that a param names, without its version where that does not matter; empty where
    none does.
    """
    for key, value in evidence.info.params.items():
        if _NAMES_IT.search(key[-_MOST_CHARACTERS:]):
            full = value[:_MOST_CHARACTERS].strip().lower().rpartition("/")[2]
            base = _VERSION.sub("", full)
            if base != full and base in STEPS_BY_DESIGN:  # without a version it may be another library's
                return full if full in SOLVED else base
    return ""


def is_control(evidence: Evidence) -> bool:
    """Whether a policy acts in an environment, and gives no answers: by a param, or by what was logged."""
    acts = any(evidence.find(role) is not None for role in _OF_CONTROL)
    return acts or bool(environment_of(evidence))
