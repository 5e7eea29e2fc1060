"""The configuration in force: of a call, and for one run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tracker_health.config import Config, preset
from tracker_health.judge.engine import configured_probes
from tracker_health.runs.lookup import open_run
from tracker_health.settings.policy import VARIABLE as POLICY
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import Listed
from tracker_health.stores.remote import hosts


def resolve_config(config: Config | str, *, writes: bool = False) -> Config:
    """The configuration, of a preset by its name, with the policy that the environment names beneath it.

    ``writes``: verdicts are written by it: what the policy locks holds.

    Raises:
        ConfigError: it names something that does not exist, or the policy cannot be read.
    """
    settings = preset(config) if isinstance(config, str) else config
    if os.environ.get(POLICY):
        from tracker_health.settings.sources import under_policy

        settings = under_policy(settings, writes=writes)
    hosts.allow(*settings.trusted_hosts)
    configured_probes(settings)  # a configuration that makes no sense is reported once, and not for every run
    return settings


def config_for_run(config: Config, run: TrackedRun) -> Config:
    """The configuration with the overrides that are meant for this run; nothing is asked of the store without any."""
    return config.for_run(run.traits()) if config.overrides else config


@contextmanager
def open_with_config(
    run: str | Path | Listed, config: Config, tracking_uri: str | None
) -> Iterator[tuple[TrackedRun, Config]]:
    """A run, opened to be read, with the configuration that is in force for it."""
    with closing(open_run(run, tracking_uri=tracking_uri)) as opened:
        yield opened, config_for_run(config, opened)
