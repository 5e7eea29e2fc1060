"""How much later a training ends for the hook: python benchmarks/speed/finish.py [PAIRS].

A run of 20 metrics x 10,000 steps in an MLflow database. Trainings in fresh processes take turns with and without the
hook: each begins a run, is given its history, trains for a while, and ends. Measured is the time from the last step to
the end of the process; the figure to quote is the difference in pairs.
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
    print(time.time(), flush=True)
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


def ended(folder: Path, *, hooked: bool, trains: float) -> tuple[float, str]:
    """Seconds from the last step of a training to the end of its process; and what the hook said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACKER_HEALTH_")} | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
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
    return left - float(out), "".join(line for line in err.splitlines() if "tracker-health: " in line)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else _PAIRS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "benchmark_finish.py").write_text(Path(__file__).read_text())
        ended(folder, hooked=True, trains=0)
        differences = []
        for _ in range(pairs):
            without, _ = ended(folder, hooked=False, trains=0)
            hooked, said = ended(folder, hooked=True, trains=20)
            differences.append(hooked - without)
            print(f"without {without:.2f} s, with {hooked:.2f} s; {said[:60]}")
        short, said = ended(folder, hooked=True, trains=0)
        low, high = min(differences), max(differences)
        print(f"later by {statistics.median(differences):.2f} s [{low:.2f}, {high:.2f}]")
        print(f"a run that ends as soon as it has begun: {short:.2f} s; {said[:60]}")


if __name__ == "__main__":
    main()
