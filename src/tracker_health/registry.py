"""The rules there are: the built-in ones, listed one by one, and those of installed plugins."""

from __future__ import annotations

from functools import cache

from tracker_health.plugins import Plugins, load_plugins
from tracker_health.probe import Probe
from tracker_health.probes.diverged import Diverged
from tracker_health.probes.gradient_ghost import GradientGhost
from tracker_health.probes.masked_nan import MaskedNan
from tracker_health.probes.no_gradient import NoGradient
from tracker_health.probes.no_progress import NoProgress
from tracker_health.probes.nonfinite_loss import NonfiniteLoss
from tracker_health.probes.nonfinite_moments import NonfiniteMoments
from tracker_health.probes.too_few_steps import TooFewSteps
from tracker_health.probes.training_drift import TrainingDrift
from tracker_health.probes.truncated import Truncated

RULES_VERSION = 1
"""Raised whenever a rule may judge the same evidence differently, so that annotated runs are judged again."""

BUILT_IN: tuple[type[Probe], ...] = (
    NonfiniteLoss,
    MaskedNan,
    Diverged,
    NoProgress,
    TrainingDrift,
    TooFewSteps,
    NonfiniteMoments,
    NoGradient,
    GradientGhost,
    Truncated,
)


def probe_classes() -> tuple[type[Probe], ...]:
    """Every rule that works, in the order in which reports list them."""
    return (*BUILT_IN, *plugins().rules)


@cache
def plugins() -> Plugins:
    """The installed plugins, loaded when they are first asked for, once a process."""
    return load_plugins(BUILT_IN)
