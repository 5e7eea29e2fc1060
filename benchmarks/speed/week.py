"""What a week of 100 runs costs: seconds, requests of the server, and bytes on it, for each step of docs/adopt.md.

    python benchmarks/speed/week.py            # a real MLflow server, and the tests' W&B server
    python benchmarks/speed/week.py --fill URI # only make the runs on an MLflow server, and print the experiment

The runs are of a known kind: 86 healthy ones and 14 with a fault, each with two metrics of 200 points and five params.
Every command is a process of its own, so its seconds include the start of Python and the imports of the tracker.
Requests are counted by a proxy before the server, which is on this machine: a server far away adds its distance to
each of them. Bytes are those of the database and of the artifacts, after less before.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.stores.conftest import server_of  # noqa: E402
from tests.stores.faulty_proxy import Proxy  # noqa: E402
from tests.wandb_server import WandbServer  # noqa: E402

EXPERIMENT, STEPS = "my-experiment", 200
KINDS = ["diverged"] * 4 + ["nan"] * 4 + ["flat"] * 3 + ["overfit"] * 2 + ["failed"]
STEPS_OF_THE_PAGE = {
    "look, `sweep --report-to`": ["sweep", "--since", "7d", "--report-to", "{reports}"],
    "`sweep --shadow`": ["sweep", "--since", "7d", "--shadow"],
    "`sweep`: verdicts, pages": ["sweep", "--since", "7d"],
    "`sweep` again, nothing new": ["sweep", "--since", "7d"],
    "`summary`": ["summary", "--since", "7d"],
    "`clear`": ["clear"],
}


def curves(index: int, kind: str) -> tuple[list[float], list[float]]:
    """Training and validation loss by step; every tenth value of the latter counts."""
    drawn = random.Random(index)
    start, floor, pace = 2.3 + drawn.uniform(-0.2, 0.2), drawn.uniform(0.2, 0.5), drawn.uniform(18, 40)
    train = [floor + (start - floor) * math.exp(-step / pace) + drawn.gauss(0, 0.02) for step in range(STEPS)]
    held_out = [value + 0.05 + drawn.gauss(0, 0.01) for value in train]
    if kind == "diverged":
        train[120:] = [4.0 + drawn.gauss(0, 0.05) for _ in train[120:]]
        held_out[120:] = [value + 0.1 for value in train[120:]]
    elif kind == "nan":
        train[140:] = [math.nan] * 60
    elif kind == "flat":
        train = [2.303 + drawn.gauss(0, 0.004) for _ in train]
        held_out = [2.303 + drawn.gauss(0, 0.002) for _ in train]
    elif kind == "overfit":
        held_out = [value + 0.01 * max(step - 60, 0) for step, value in enumerate(held_out)]
    return train, held_out


def week(count: int) -> Iterator[tuple[int, str]]:
    """The kind of each run: every seventh has a fault."""
    for index in range(count):
        yield index, KINDS[index // 7 % len(KINDS)] if index % 7 == 6 else "healthy"


def params_of(kind: str) -> dict[str, object]:
    rate = 0.03 if kind == "diverged" else 0.001
    return {"learning_rate": rate, "optimizer": "Adam", "batch_size": 64, "max_steps": STEPS, "num_classes": 10}


def fill_mlflow(uri: str, count: int) -> None:
    import mlflow
    from mlflow.entities import Metric, Param

    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment(EXPERIMENT)
    for index, kind in week(count):
        began = int(time.time() * 1000) - (count - index) * 3_600_000
        run = client.create_run(experiment, run_name=f"{kind}-{index}", start_time=began).info.run_id
        train, held_out = curves(index, kind)
        points = [Metric("train_loss", value, began + step * 1000, step) for step, value in enumerate(train)]
        points += [Metric("val_loss", held_out[step], began + step * 1000, step) for step in range(9, STEPS, 10)]
        client.log_batch(run, metrics=points, params=[Param(key, str(one)) for key, one in params_of(kind).items()])
        client.set_terminated(run, "FAILED" if kind == "failed" else "FINISHED", began + STEPS * 1000)


def fill_wandb(server: WandbServer, count: int) -> None:
    for index, kind in week(count):
        run = server.store.new_run("team", EXPERIMENT, f"{kind}-{index}")
        train, held_out = curves(index, kind)
        rows = [{"_step": step, "_timestamp": 1.0 * step, "train_loss": value} for step, value in enumerate(train)]
        for step in range(9, STEPS, 10):
            rows[step]["val_loss"] = held_out[step]
        run.history = [json.dumps(row) for row in rows]
        run.config = {key: {"value": value} for key, value in params_of(kind).items()}
        run.state, run.summary = "crashed" if kind == "failed" else "finished", {"_step": STEPS - 1}


def measured(
    where: Sequence[str], environment: dict[str, str], requests: list[object], size: Callable[[], int]
) -> None:
    """Print a row for each step: seconds, requests, MB on the server, and the last line that was said."""
    with tempfile.TemporaryDirectory() as reports:
        for what, words in STEPS_OF_THE_PAGE.items():
            command = [word.format(reports=reports) for word in words]
            asked, before, began = len(requests), size(), time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "tracker_health", *command, *where],
                env=os.environ | environment,
                cwd=reports,
                capture_output=True,
                text=True,
                check=False,
            )
            seconds, grown = time.perf_counter() - began, (size() - before) / 1e6
            said = (done.stdout + done.stderr).strip().splitlines()[-1:]
            print(f"| {what} | {seconds:.0f} s | {len(requests) - asked:,} | {grown:.1f} MB |", said, flush=True)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(count: int = 100) -> None:
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for uri in server_of(folder):
            fill_mlflow(uri, count)
            print(f"MLflow: {size_of(folder) / 1e6:.1f} MB before")
            with Proxy(uri) as proxy:
                where = ("--experiment", EXPERIMENT, "--tracking-uri", proxy.uri)
                measured(where, quiet, proxy.asked, lambda: size_of(folder))
    with WandbServer() as server, tempfile.TemporaryDirectory() as place:
        fill_wandb(server, count)
        project = ("--project", f"team/{EXPERIMENT}")

        def size() -> int:
            kept = sum(len(blob.content) for run in server.store.runs.values() for blob in run.files.values())
            return kept + sum(len(json.dumps(run.summary)) for run in server.store.runs.values())

        print("W&B")
        measured(project, server.environment(place), server.requests, size)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        fill_mlflow(sys.argv[2], 100)
        print(EXPERIMENT)
    else:
        main()
