"""Batches of MLflow runs, beside what one would write by hand: a loop of ``get_run``, ``get_metric_history`` and
judging.

    python benchmarks/speed/batch.py [RUNS]

RUNS (default 1,000) runs of two metrics and 200 steps, from a SQLite file and from a server with one and with two
processes; one run of 20 metrics and 10,000 steps beside the history calls alone that it needs; and the peak memory for
a tenth of the runs and for all. Every figure is of a fresh process, without its imports; the loop by hand, which is
slow, is timed on a fifth of the runs. The figures to quote are the ratios.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

_METRICS, _STEPS = ("train/loss", "eval/loss"), 200
_LONG_METRICS, _LONG_STEPS = 20, 10_000
_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


# What is measured, each in a process of its own


def _client(uri: str) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def _ids(uri: str, experiment: str, count: int) -> list[str]:
    client = _client(uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id], max_results=count)
    return [run.info.run_id for run in found]


def _by_hand(uri: str, count: int) -> int:
    import numpy as np

    from tracker_health.config import preset
    from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
    from tracker_health.judge.engine import diagnose

    client, roles, done = _client(uri), dict(zip(_METRICS, ("train_loss", "val_loss"), strict=True)), 0
    for run_id in _ids(uri, "many", count):
        run, series = client.get_run(run_id), []
        for name, role in roles.items():
            points = client.get_metric_history(run_id, name)
            steps = np.array([point.step for point in points])
            values = np.array([point.value for point in points])
            times = np.array([point.timestamp for point in points]) / 1000
            series.append(Series(name=name, role=role, source="MLflow", steps=steps, values=values, times=times))
        ref = RunRef(store="mlflow", id=run_id, name=run.info.run_name)
        diagnose(Evidence(run=ref, info=RunInfo(), series=tuple(series)), preset("default"))
        done += 1
    return done


def _ours(uri: str, count: int, workers: int) -> int:
    from tracker_health.api import check_many, runs_of_experiment

    runs = islice(runs_of_experiment("many", tracking_uri=uri), count)
    outcomes = check_many(runs, tracking_uri=uri, workers=workers)
    return sum(outcome.complete for outcome in outcomes)


def _long_calls(uri: str) -> int:
    """The history calls alone that judging the long run needs."""
    from tracker_health.config import preset
    from tracker_health.judge.engine import needs_of

    client = _client(uri)
    (run_id,) = _ids(uri, "long", 1)
    names = sorted(client.get_run(run_id).data.metrics)
    return sum(len(client.get_metric_history(run_id, name)) for name in needs_of(preset("default")).roles.needed(names))


def _long_check(uri: str) -> int:
    import tracker_health as th

    (run_id,) = _ids(uri, "long", 1)
    return len(th.check(run_id, tracking_uri=uri).series)


def _warm(uri: str) -> None:
    """Imports, and the first request."""
    import tracker_health as th

    (run_id,) = _ids(uri, "many", 1)
    th.check(run_id, tracking_uri=uri)


_WORK: dict[str, Callable[..., int]] = {
    "hand": _by_hand,
    "ours": _ours,
    "long calls": _long_calls,
    "long check": _long_check,
}


def _measure(what: str, uri: str, *numbers: str) -> None:
    _warm(uri)
    began = time.perf_counter()
    done = _WORK[what](uri, *map(int, numbers))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    print(json.dumps([done, seconds, peak]))


def measured(what: str, uri: str, *numbers: int) -> tuple[int, float, float]:
    """How many were done, wall seconds, and the peak of resident memory in MB, in a fresh process."""
    command = [sys.executable, __file__, "--measure", what, uri, *map(str, numbers)]
    environment = os.environ | _QUIET | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    done, seconds, peak = json.loads(answer.splitlines()[-1])
    return done, seconds, peak


# The stores


def make_store(folder: Path, runs: int) -> str:
    """A database with an experiment of many runs and one of a single long one."""
    from mlflow.entities import Metric

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = _client(uri)

    def log(experiment: str, names: tuple[str, ...], steps: int, wobble: int) -> None:
        run = client.create_run(experiment).info.run_id
        points = [
            Metric(name, 0.2 + 2.1 * math.exp(-4 * step / steps) + 0.01 * math.sin(step * (wobble + 2)), step, step)
            for step in range(steps)
            for name in names
        ]
        for start in range(0, len(points), 1000):
            client.log_batch(run, metrics=points[start : start + 1000])
        client.set_terminated(run)

    many = client.create_experiment("many", artifact_location=str(folder / "artifacts"))
    for index in range(runs):
        log(many, _METRICS, _STEPS, index)
    long = client.create_experiment("long", artifact_location=str(folder / "artifacts"))
    others = tuple(f"layer_{index}/activation" for index in range(_LONG_METRICS - len(_METRICS)))
    log(long, _METRICS + others, _LONG_STEPS, 0)
    return uri


@contextmanager
def served(folder: Path, processes: int) -> Iterator[str]:
    """A server of a copy of the store that keeps the artifacts for its clients."""
    copy = folder / f"served-{processes}.db"
    shutil.copy(folder / "mlflow.db", copy)
    with closing(sqlite3.connect(copy)) as database, database:
        place = str(folder / "artifacts")
        for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, 'mlflow-artifacts:')", (place,))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--workers", str(processes), "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{copy}", "--artifacts-destination", str(folder / "destination")]
    with Path(folder, "server.log").open("wb") as log:
        environment = os.environ | _QUIET
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    uri = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=2).close()
                break
            except OSError:
                time.sleep(0.3)
        yield uri
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _compare(title: str, uri: str, runs: int) -> None:
    few = max(runs // 5, 1)
    done, seconds, _ = measured("hand", uri, few)
    by_hand = seconds / done
    print(f"{title}: by hand {1000 * by_hand:.1f} ms a run")
    for workers in (1, 2, 4):
        done, seconds, peak = measured("ours", uri, runs, workers)
        if done != runs:
            raise SystemExit(f"only {done} of {runs} runs were judged")
        ratio = by_hand * done / seconds
        print(f"  --workers {workers}: {1000 * seconds / done:6.1f} ms a run, {ratio:4.1f} x as fast, {peak:.0f} MB")


def _compare_long(title: str, uri: str) -> None:
    calls, check = measured("long calls", uri)[1], measured("long check", uri)[1]
    print(
        f"  one run of {_LONG_METRICS} x {_LONG_STEPS}, {title}: {check:.2f} s, {check / calls:.2f} x its history calls"
    )


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    os.environ.update(_QUIET)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        uri = make_store(folder, runs)
        print(f"{runs} runs of {len(_METRICS)} metrics and {_STEPS} steps, and one of {_LONG_METRICS} x {_LONG_STEPS}")
        _compare("a SQLite file", uri, runs)
        _compare_long("a SQLite file", uri)
        for processes in (1, 2):
            with served(folder, processes) as address:
                title = f"a server of {processes} process{'es' * (processes > 1)}"
                _compare(title, address, runs)
                _compare_long(title, address)
                peaks = [measured("ours", address, count, 2)[2] for count in (max(runs // 10, 1), runs)]
                print(f"  memory for {max(runs // 10, 1)} and {runs} runs: {peaks[0]:.0f} and {peaks[1]:.0f} MB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        _measure(*sys.argv[2:])
    else:
        main()
