"""What the record of an MLflow run says of the runs that it belongs with."""

from __future__ import annotations

from typing import Any

from tracker_health.evidence.kin import Kin, results_of, settings_of_kin
from tracker_health.stores.mlflow.last_activity import in_seconds
from tracker_health.stores.mlflow.marks import latest_points
from tracker_health.stores.mlflow.run import last_step_of, state_of

PARENT_TAG = "mlflow.parentRunId"
_OF_OPTUNA = frozenset(("datetime_start", "state"))
_OF_HYPEROPT = "fmin_uuid"
_CHARACTERS = 200


def kin_of(record: Any, where: str) -> Kin:
    """What is known by a run's record. ``where``: its experiment."""
    info, data = record.info, record.data
    name = info.run_name or ""
    tags = {key: value for key, value in data.tags.items() if not key.startswith(("mlflow.", "health."))}
    points = {key: point.value for key, point in latest_points(record).items() if not key.startswith("health/")}
    goes_on = info.status in ("RUNNING", "SCHEDULED")
    return Kin(
        where=where,
        id=info.run_id,
        name=name[:_CHARACTERS] or info.run_id,
        parent=data.tags.get(PARENT_TAG, "")[:_CHARACTERS],
        is_trial=data.tags.keys() >= _OF_OPTUNA or _OF_HYPEROPT in data.tags,
        started=in_seconds(info.start_time),
        ended=None if goes_on else in_seconds(info.end_time),
        last_step=last_step_of(record),
        results=results_of(points),
        state=state_of(record),
        **settings_of_kin(data.params, [name], tags),
    )
