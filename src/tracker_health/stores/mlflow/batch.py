"""What runs that are read about one after the other share."""

from __future__ import annotations

from dataclasses import dataclass

from tracker_health.stores.mlflow.bulk import BulkHistories
from tracker_health.stores.mlflow.stored_files.empty_runs import EmptyRuns


@dataclass(frozen=True)
class Batch:
    """Histories that are read together, and which of the runs have no artifacts."""

    histories: BulkHistories
    empty_runs: EmptyRuns
