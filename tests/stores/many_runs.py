"""Many tiny runs in a real store, made with few requests."""

from __future__ import annotations

import math
import uuid


def make_runs(uri, count, *, points=30, sick=(), end="FINISHED", artifacts=None, metrics=("train/loss",)):
    """The name of a new experiment, and the ids of its runs; those of ``sick`` have NaN in their second half."""
    import mlflow
    from mlflow.entities import Metric

    client = mlflow.MlflowClient(tracking_uri=uri)
    name = f"many {uuid.uuid4().hex[:8]}"
    experiment = client.create_experiment(name, artifact_location=artifacts)
    ids = []
    for index in range(count):
        run = client.create_run(experiment, run_name=f"run {index}", start_time=1_700_000_000_000 + index).info.run_id
        values = [2.0 * 0.9**step + 0.1 for step in range(points)]
        if index in sick:
            values[points // 2 :] = [math.nan] * (points - points // 2)
        logged = [
            Metric(metric, value, 1_700_000_000_000 + step, step)
            for metric in metrics
            for step, value in enumerate(values)
        ]
        for start in range(0, len(logged), 1000):
            client.log_batch(run, metrics=logged[start : start + 1000])
        if end:
            client.set_terminated(run, status=end)
        ids.append(run)
    return name, ids
