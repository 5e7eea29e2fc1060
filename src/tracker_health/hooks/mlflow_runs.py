"""MLflow: a run has ended when its client has reported that to the store. All ways of ending a run do so."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracker_health.errors import OutdatedPackage, refuse_outdated
from tracker_health.hooks import finish
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import UNABLE, safely, say
from tracker_health.hooks.imports import forget, when_imported
from tracker_health.hooks.patches import argument, wrap

_CLIENT = "mlflow.tracking._tracking_service.client"
_FLUENT = "mlflow.tracking.fluent"
_NOT_WELL = frozenset({"FAILED", "KILLED"})
_ENDED = _NOT_WELL | {"FINISHED"}

_undo: list[Callable[[], None]] = []
# By tracking URI, where its relative path starts: MLflow keeps to the folder in which it first met it.
_folders: dict[str, str] = {}


def install() -> None:
    """Hook onto MLflow's client, now or when it is imported. Idempotent."""
    if not _undo:
        when_imported(_CLIENT, lambda module: safely(_patch_client, module))
        when_imported(_FLUENT, lambda module: safely(_patch_fluent, module))


def uninstall() -> None:
    """Leave MLflow's client as it was."""
    forget(_CLIENT)
    forget(_FLUENT)
    while _undo:
        _undo.pop()()


def _patch_client(module: ModuleType) -> None:
    try:
        refuse_outdated("mlflow")
        client = module.TrackingServiceClient
        for name, after in (("set_terminated", _terminated), ("update_run", _updated), ("create_run", _created)):
            _undo.append(wrap(client, name, after))
    except (AttributeError, TypeError) as error:  # all of it is MLflow's own business, and may change
        uninstall()
        say(f"{UNABLE}this MLflow cannot be hooked onto ({error}); annotate and sweep can")
    except OutdatedPackage as error:
        uninstall()
        say(f"{UNABLE}{error}")


def _patch_fluent(module: ModuleType) -> None:
    try:
        # For a run that is resumed ``start_run`` writes past the client.
        _undo.append(wrap(module.ActiveRun, "__init__", _active))
    except (AttributeError, TypeError) as error:
        say(f"of resumed runs nobody is notified when they begin, this MLflow cannot be hooked onto ({error})")


def _created(result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    safely(lambda: finish.begun(_run(arguments[0], result.info.run_id)))


def _active(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    import mlflow

    run = arguments[0]
    safely(lambda: finish.resumed(_run_at(mlflow.get_tracking_uri(), run.info.run_id)))


def _terminated(_result: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    run_id, status = (argument(arguments, options, 1 + at, name) for at, name in enumerate(("run_id", "status")))
    safely(lambda: finish.ended(_run(arguments[0], run_id), failed=status in _NOT_WELL))


def _updated(_result: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    if argument(arguments, options, 2, "status") in _ENDED:
        _terminated(None, arguments, options)


def _run(client: Any, run_id: str) -> RunToJudge:
    return _run_at(client.tracking_uri, run_id)


def _run_at(tracking_uri: Any, run_id: str) -> RunToJudge:
    uri = str(tracking_uri)
    return RunToJudge(run=f"mlflow:{run_id}", tracking_uri=uri, folder=_folders.setdefault(uri, finish.here()))
