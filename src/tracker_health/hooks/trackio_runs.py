"""trackio: a run has ended after ``Run.finish``, which trackio also calls for the last one when Python exits."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracker_health.hooks import finish
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import UNABLE, safely, say
from tracker_health.hooks.imports import TRACKIO, forget, when_imported
from tracker_health.hooks.patches import wrap

_undo: list[Callable[[], None]] = []
_open: dict[int, RunToJudge] = {}
_told: list[str] = []


def install() -> None:
    """Hook onto trackio's runs, now or when they are imported. Idempotent."""
    if not _undo:
        when_imported(TRACKIO, _patch_safely)


def uninstall() -> None:
    """Leave trackio's runs as they were."""
    forget(TRACKIO)
    _open.clear()
    while _undo:
        _undo.pop()()


def _patch_safely(module: ModuleType) -> None:
    safely(_patch, module)


def _patch(module: ModuleType) -> None:
    try:
        _undo.append(wrap(module.Run, "__init__", _started))
        _undo.append(wrap(module.Run, "finish", _finished))
    except (AttributeError, TypeError) as error:
        uninstall()
        say(f"{UNABLE}this trackio cannot be hooked onto ({error}); annotate and sweep can")


def _started(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    safely(_begin, arguments[0])


def _begin(run: Any) -> None:
    if not getattr(run, "_is_local", True):
        _say_once(f"{UNABLE}runs of trackio that are sent to a Space or a server are not read")
        return
    key = getattr(run, "id", None) or run.name  # older versions have no ids
    tracked = RunToJudge(run=f"trackio:{run.project}/{key}", folder=finish.here(), name=str(run.name))
    _open[id(run)] = tracked
    finish.begun(tracked)


def _finished(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    safely(_end, arguments[0])


def _end(run: Any) -> None:
    tracked = _open.pop(id(run), None)
    if tracked is not None:
        finish.ended(tracked)


def _say_once(text: str) -> None:
    if text not in _told:
        _told.append(text)
        say(text)
