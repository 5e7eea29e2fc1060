"""W&B: a run has ended after ``_finish``, or after W&B's own teardown when Python exits, which does not call it."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracker_health.errors import OutdatedPackage, refuse_outdated
from tracker_health.hooks import finish
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import UNABLE, safely, say
from tracker_health.hooks.imports import WANDB, forget, when_imported
from tracker_health.hooks.patches import wrap

_undo: list[Callable[[], None]] = []
_open: dict[str, RunToJudge] = {}
_at_exit: list[bool] = []


def install() -> None:
    """Hook onto W&B's runs, now or when they are imported. Idempotent."""
    if not _undo:
        when_imported(WANDB, _patch_safely)


def uninstall() -> None:
    """Leave W&B's runs as they were."""
    forget(WANDB)
    _open.clear()
    while _undo:
        _undo.pop()()


def _patch_safely(module: ModuleType) -> None:
    safely(_patch, module)


def _patch(module: ModuleType) -> None:
    if not _at_exit:
        # Registered before W&B's own, which its first run does, and so called after it: W&B ends what is left open
        # as it always does, with the exit code that it knows. Where it was quicker, nobody waits for the verdict.
        _at_exit.append(_is_set_up())
        atexit.register(_exit)
    try:
        refuse_outdated("wandb")
        _undo.append(wrap(module.Run, "_on_start", _started))
        # Also ``with`` and a next run come by it, and not by ``finish``.
        _undo.append(wrap(module.Run, "_finish", _finished))
    except (AttributeError, TypeError) as error:
        uninstall()
        say(f"{UNABLE}this wandb cannot be hooked onto ({error}); annotate and sweep can")
        return
    except OutdatedPackage as error:
        uninstall()
        say(f"{UNABLE}{error}")
        return
    current = getattr(sys.modules.get("wandb"), "run", None)
    if current is not None:
        _started(None, (current,), {})


def _is_set_up() -> bool:
    """Whether W&B has a service by now, and with it the function that ends it when Python exits."""
    setup = sys.modules.get("wandb.sdk.wandb_setup")
    return getattr(setup, "_singleton", None) is not None


def _started(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    safely(_begin, arguments[0])


def _begin(run: Any) -> None:
    settings = run.settings
    if run.disabled or getattr(settings, "x_primary", True) is False:  # one of several processes of a shared run
        return
    log = os.path.abspath(settings.sync_file)  # noqa: PTH100
    name = os.path.dirname(log) if run.offline else f"wandb:{run.entity}/{run.project}/{run.id}"  # noqa: PTH120
    tracked = RunToJudge(run=name, folder=finish.here(), log=log, name=run.name or "", page=run.url or "")
    _open[str(run.id)] = tracked
    finish.begun(tracked)


def _finished(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    run = arguments[0]
    safely(lambda: _end(str(run.id), wait=True, failed=bool(getattr(run, "_exit_code", 0))))


def _end(run_id: str, *, wait: bool, failed: bool = False) -> None:
    run = _open.pop(run_id, None)
    if run is not None:
        finish.ended(run, wait=wait, failed=failed)


def _exit() -> None:
    for run_id in list(_open):
        safely(_end, run_id, wait=not _at_exit[0])
