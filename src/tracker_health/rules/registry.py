"""The rules there are: the built-in ones, found in the packages of ``rules``, and those of installed plugins."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isabstract
from pkgutil import iter_modules
from types import ModuleType

from tracker_health.rules import (
    curves,
    fine_tune,
    gradients,
    live,
    optimizer,
    reinforcement,
    run,
    schedules,
    system,
    validation,
    weights,
)
from tracker_health.rules.plugins import Plugins, load_plugins
from tracker_health.rules.probe import Probe

RULES_VERSION = 16
"""Raised whenever a rule may judge the same evidence differently. Annotated runs that are still running are then judged
again; those that have ended keep the verdict of the version that judged them, until ``--rejudge`` asks for another.
"""

WINGS: tuple[ModuleType, ...] = (
    curves,
    schedules,
    validation,
    reinforcement,
    gradients,
    optimizer,
    weights,
    live,
    run,
    system,
    fine_tune,
)
"""The packages of rules, in the order in which reports list what they found."""


def _rules_in(wing: ModuleType) -> Iterator[type[Probe]]:
    """The rules that the modules of a package define: a new file is a new rule."""
    for entry in iter_modules(wing.__path__, f"{wing.__name__}."):
        module = import_module(entry.name)
        for candidate in vars(module).values():
            is_rule = isinstance(candidate, type) and issubclass(candidate, Probe) and not isabstract(candidate)
            if is_rule and candidate.__module__ == entry.name:
                yield candidate


BUILT_IN: tuple[type[Probe], ...] = tuple(
    rule for wing in WINGS for rule in sorted(_rules_in(wing), key=lambda rule: rule.code)
)
"""Every built-in rule, by package and code."""


def probe_classes() -> tuple[type[Probe], ...]:
    """Every rule that works, in the order in which reports list them."""
    return (*BUILT_IN, *plugins().rules)


@cache
def plugins() -> Plugins:
    """The installed plugins, loaded when they are first asked for, once a process."""
    return load_plugins(BUILT_IN)
