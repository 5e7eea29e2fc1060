"""Runs that the real SDK leaves behind, offline, in processes of their own; and what W&B's own reader says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEALTHY = """
import wandb
run = wandb.init(project="p", name="healthy", config={"lr": 0.1, "opt": {"name": "adam"}}, tags=["mine"], notes="My words.")
for step in range(60):
    run.log({"loss": 2.3 * 0.95**step + 0.01 * (step % 3), "train": {"acc": step / 60}, "gpu": 1.0})
run.config.update({"lr": 0.2}, allow_val_change=True)
run.finish()
"""
ODD = """
import numpy, wandb
run = wandb.init(project="p", config={"lr": 0.1})
for step in range(40):
    run.log({"loss": float("nan") if step > 30 else 1 / (step + 1), "up": float("inf"), "down": -float("inf"),
             "deep": {"er": {"still": step}}, "a.b": step, "word": "NaN", "yes": True, "none": None, "list": [1, 2]})
run.log({"hist": wandb.Histogram([1, 2, 3]), "pic": wandb.Image(numpy.zeros((4, 4))), "loss": 0.5}, step=100, commit=True)
run.log({"big": 2**70, "tiny": 5e-324, "negative": -3, "zoë/π": 1.5})
run.finish(exit_code=3)
"""
EMPTY = "import wandb; wandb.init(project='p').finish()"
KILLED = """
import os, signal, time, wandb
run = wandb.init(project="p", name="killed")
for step in range(800):
    run.log({"loss": 1 / (step + 1), "acc": 1.0})
time.sleep(1)
os.kill(os.getpid(), signal.SIGKILL)
"""
SCRIPTS = {"healthy": HEALTHY, "odd": ODD, "empty": EMPTY, "killed": KILLED}


def environment(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    return {**kept, "WANDB_MODE": "offline", "WANDB_SILENT": "true", **more}


def run_script(script, folder, **more):
    """Run a training script there; its run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    more = {"WANDB_DATA_DIR": str(folder / "data"), **more}
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(**more),
        check=False,
        capture_output=True,
        timeout=120,
    )
    (run,) = (
        path for path in (folder / "wandb").iterdir() if path.is_dir() and not path.is_symlink() and "run-" in path.name
    )
    return run


def log_in(run):
    (log,) = Path(run).glob("*.wandb")
    return log


def inspected(path, *options):
    """What W&B's own reader prints: a list of records, or a summary."""
    command = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", *options, str(path)]
    done = subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=60)
    return json.loads(done.stdout) if options else [json.loads(line) for line in done.stdout.splitlines()]
