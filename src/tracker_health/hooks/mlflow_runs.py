"""MLflow: a run has ended when its client has reported that to the store. All ways of ending a run do so."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracker_health.errors import OutdatedPackage, refuse_outdated
from tracker_health.hooks import finish
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import UNABLE, safely, say
from tracker_health.hooks.imports import MLFLOW, forget, when_imported
from tracker_health.hooks.patches import argument, wrap
from tracker_health.text import without_userinfo

_FLUENT = "mlflow.tracking.fluent"
_NOT_WELL = frozenset({"FAILED", "KILLED"})
_ENDED = _NOT_WELL | {"FINISHED"}

_undo: list[Callable[[], None]] = []
_known: dict[str, tuple[str, str]] = {}
"""By run, its name and the number of its experiment, as far as they have been seen."""
# By tracking URI, where its relative path starts: MLflow keeps to the folder in which it first met it.
_folders: dict[str, str] = {}


def install() -> None:
    """Hook onto MLflow's client, now or when it is imported. Idempotent."""
    if not _undo:
        when_imported(MLFLOW, lambda module: safely(_patch_client, module))
        when_imported(_FLUENT, lambda module: safely(_patch_fluent, module))


def uninstall() -> None:
    """Leave MLflow's client as it was."""
    forget(MLFLOW)
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
    safely(lambda: finish.begun(_met(arguments[0].tracking_uri, result.info)))


def _active(_result: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> None:
    import mlflow

    safely(lambda: finish.resumed(_met(mlflow.get_tracking_uri(), arguments[0].info)))


def _terminated(_result: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    run_id, status = (argument(arguments, options, 1 + at, name) for at, name in enumerate(("run_id", "status")))
    safely(lambda: finish.ended(_run_at(arguments[0].tracking_uri, run_id), failed=status in _NOT_WELL))


def _updated(_result: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    if argument(arguments, options, 2, "status") in _ENDED:
        _terminated(None, arguments, options)


def _met(tracking_uri: Any, info: Any) -> RunToJudge:
    _known[info.run_id] = str(info.run_name or ""), str(info.experiment_id)
    return _run_at(tracking_uri, info.run_id)


def _run_at(tracking_uri: Any, run_id: str) -> RunToJudge:
    uri = str(tracking_uri)
    name, experiment = _known.get(run_id, ("", ""))
    server = without_userinfo(uri).rstrip("/")
    page = f"{server}/#/experiments/{experiment}/runs/{run_id}" if experiment and uri.startswith("http") else ""
    folder = _folders.setdefault(uri, finish.here())
    return RunToJudge(run=f"mlflow:{run_id}", tracking_uri=uri, folder=folder, name=name, page=page)
