"""What a run waits for when it ends: python benchmarks/speed/finish.py [PAIRS].

A run of 20 metrics x 10,000 steps in an MLflow database. Trainings in fresh processes take turns with and without the
hook: each begins a run, is given its history, trains for a while, and ends. Measured is the time from the last step to
the end of the process; the figure to quote is the difference in pairs, less what the store itself takes to read the
histories that a rule needs, through MLflow's client in a process where that is all loaded.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

_PAIRS = 5
_METRICS = ("train/loss", "eval/loss", "grad_norm", "learning_rate", *(f"layer{index}/norm" for index in range(16)))
_STEPS = 10_000

# The history is put into the database at once: logging it takes minutes, and is none of what is measured.
_TRAINING = """
import os, sys, time
import mlflow
from benchmark_finish import insert
with mlflow.start_run() as run:
    mlflow.log_metrics(dict.fromkeys({metrics}, 1.0), step=0)
    insert(run.info.run_id)
    time.sleep(float(sys.argv[1]))
    print(time.time(), run.info.run_id, flush=True)
"""


def insert(run_id: str, database: str = "mlflow.db") -> None:
    """Give a run its history, as MLflow would have written it."""
    rows = [
        (name, 2.0 * 0.9996**step + 0.01 * (step % 7), 1_700_000_000_000 + step, run_id, step, 0)
        for name in _METRICS
        for step in range(1, _STEPS)
    ]
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        statement = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)"
        connection.executemany(statement, rows)


def ended(folder: Path, *, hooked: bool, trains: float) -> tuple[float, str, str]:
    """Seconds from the last step of a training to the end of its process; the run's id, and what the hook said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKER_HEALTH_")} | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TRACKER_HEALTH_HOOK_SECONDS": "60",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])),
    }
    start = "import tracker_health; tracker_health.autolog()\n" if hooked else ""
    script = start + _TRAINING.format(metrics=_METRICS)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(trains)],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.wait()
    left = time.time()
    out, err = process.communicate()
    if process.returncode:
        raise SystemExit(err)
    last_step, run_id = out.split()
    return left - float(last_step), run_id, "".join(line for line in err.splitlines() if "tracker-health: " in line)


def reading(folder: Path, run_id: str) -> float:
    """Seconds that the store takes to read the histories that a rule needs."""
    import mlflow

    from tracker_health.config import preset
    from tracker_health.engine import needs_of

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    client.get_metric_history(run_id, "no such metric")
    begin = time.perf_counter()
    for name in needs_of(preset("default")).select_names(_METRICS):
        client.get_metric_history(run_id, name)
    return time.perf_counter() - begin


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else _PAIRS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "benchmark_finish.py").write_text(Path(__file__).read_text())
        ended(folder, hooked=True, trains=0)
        differences, beyond = [], []
        for _ in range(pairs):
            without, _, _ = ended(folder, hooked=False, trains=0)
            hooked, run_id, said = ended(folder, hooked=True, trains=20)
            read = reading(folder, run_id)
            differences.append(hooked - without)
            beyond.append(hooked - without - read)
            print(f"without {without:.2f} s, with {hooked:.2f} s, the store's own reading {read:.2f} s; {said[:60]}")
        short, _, _ = ended(folder, hooked=True, trains=0)
        for title, values in (("difference", differences), ("beyond the store's reading", beyond)):
            print(f"{title:27} {statistics.median(values):.2f} s [{min(values):.2f}, {max(values):.2f}]")
        print(f"a run that ends as soon as it has begun: {short:.2f} s")


if __name__ == "__main__":
    main()
