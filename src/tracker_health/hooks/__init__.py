"""Hooks on the trackers' clients: a run is judged when it ends, in another process. Nothing here imports a tracker."""

from __future__ import annotations

from tracker_health.hooks.guard import EXEC_LOG, UNABLE, begin_tree, is_disabled, is_on, safely, say

_TRACKERS = ("mlflow", "wandb", "trackio")


def autolog(*, disable: bool = False) -> None:
    """Judge every run of MLflow, W&B and trackio when this process ends it, and write the verdict onto it.

    May be called before or after a tracker is imported, and any number of times. With TRACKER_HEALTH_DISABLED=1 in the
    environment it does nothing.

    Args:
        disable: Take the hooks off again.
    """
    if disable:
        safely(_uninstall)
    elif not is_disabled():
        safely(_install)


def autolog_if_wanted() -> None:
    """``autolog``, where the environment (TRACKER_HEALTH_AUTO=1) or a configuration file (``auto = true``) wants it."""
    if not is_disabled() and safely(_is_wanted):
        safely(begin_tree)
        safely(_require_tracker)
        safely(_install if _is_due() else _install_with_tracker)


def _is_due() -> bool:
    """Whether the hooks are needed now: a tracker is being imported, or ``exec`` waits to hear of this process."""
    import os
    import sys

    return EXEC_LOG in os.environ or any(name in sys.modules for name in _TRACKERS)


def _install_with_tracker() -> None:
    """Have the hooks installed when a tracker is imported. Most Pythons that are started never do."""
    from tracker_health.hooks import early
    from tracker_health.hooks.imports import MLFLOW, TRACKIO, WANDB, when_imported

    early.watch()
    for name in (MLFLOW, WANDB, TRACKIO):
        when_imported(name, lambda _: safely(_install))


def _require_tracker() -> None:
    """Say so where there is no tracker whose runs could be judged; one may still come onto the path."""
    import sys
    from importlib.util import find_spec

    if not any(name in sys.modules or find_spec(name) for name in _TRACKERS):
        say(f"{UNABLE}neither mlflow, wandb nor trackio is installed for {sys.executable or 'this Python'}")


def _is_wanted() -> bool:
    import os

    said = os.environ.get("TRACKER_HEALTH_AUTO", "").strip()
    if said:
        return is_on(said)
    from pathlib import Path

    from tracker_health.errors import ConfigError
    from tracker_health.settings.file import documents

    try:
        folder, home = Path.cwd(), Path.home()
        found = documents(os.environ.get("TRACKER_HEALTH_CONFIG") or None, folder, home)
    except (OSError, RuntimeError):  # the current folder was deleted, or the user has no home
        return False
    except ConfigError as error:
        say(f"{UNABLE}{error}")
        return False
    return next((document.table["auto"] is True for document in found if "auto" in document.table), False)


def _install() -> None:
    from tracker_health.hooks import finish, mlflow_runs, trackio_runs, wandb_runs

    finish.watch()
    mlflow_runs.install()
    wandb_runs.install()
    trackio_runs.install()


def _uninstall() -> None:
    from tracker_health.hooks import early, mlflow_runs, trackio_runs, wandb_runs

    early.forget()
    mlflow_runs.uninstall()
    wandb_runs.uninstall()
    trackio_runs.uninstall()
