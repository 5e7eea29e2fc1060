"""What the trackers' own packages find in the environment of a process that is tracker-health's alone."""

from __future__ import annotations

FOR_TRACKERS = {
    # MLflow's own patience with a server that hangs is minutes long.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_SILENT": "true",
    # Nothing leaves the machine but what goes to the tracking server.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
}
"""By variable its value, unless the user has set another one."""
