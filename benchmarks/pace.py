"""Small trainings that are slowed on purpose, their healthy twins, and what the rules on pace say of both.

    python benchmarks/pace.py make build/pace --seed 0        # real processes, half a minute each, ten at a time
    python benchmarks/pace.py score build/pace
    python benchmarks/pace.py healthy FOLDER...               # runs that are known to have kept their pace

Each training is a torch model on the CPU with a wait for its device, and logs to an MLflow file store as its plan says:
losses alone, a time per step, a throughput, the time for data. Slowed are the loader (a sleep, or files that are looked
through again and again), the process (another one on its core), and what is kept of each step.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mlflow import MlflowClient
from mlflow.entities import Metric

from tracker_health import api

SLOWED = ("sleep", "rescan", "kept", "busy")
STARVED = ("starved", "leak")
HEALTHY = ("plain", "evaluates", "saves", "starts-slowly", "bursts", "longer", "cached", "logged-late", "resumed")
LOGGED = ("times", "step_time", "throughput", "data_time")
_CODES = ("SYS001", "SYS002", "SYS005")
_AT_ONCE = 10


def planned(seed: int, kind: str, number: int) -> dict[str, Any]:
    """What a training is: drawn from the seed, its kind and its number."""
    draw = np.random.default_rng([seed, number, *kind.encode()])
    return {
        "seed": int(draw.integers(2**31)),
        "kind": kind,
        "steps": int(draw.choice([300, 400, 600])),
        "wait": float(draw.uniform(0.03, 0.08)),
        "jitter": float(draw.choice([0.02, 0.1, 0.3])),
        "every": int(draw.choice([1, 5, 10])),
        "logs": "data_time" if kind == "starved" else str(draw.choice(LOGGED)),
        "at": float(draw.uniform(0.25, 0.75)),
        "times": float(draw.uniform(1.6, 4.0)),
        "evaluates": int(draw.choice([0, 50, 100])) if kind not in ("evaluates", "saves") else 60,
        "evaluation": float(draw.uniform(0.3, 1.0)),
    }


class Training:
    """One run of a plan."""

    def __init__(self, plan: dict[str, Any], store: Path) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(plan["seed"])
        self.plan = plan
        self.draw = np.random.default_rng(plan["seed"])
        width = 256 if plan["kind"] == "busy" else 64
        self.model = torch.nn.Sequential(torch.nn.Linear(32, width), torch.nn.ReLU(), torch.nn.Linear(width, 8))
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
        self.truth = torch.randn(32, 8)
        self.kept: list[Any] = []
        self.files = [f"sample-{at}" for at in range(1000)]
        self.waiting: list[Any] = []
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        self.client = MlflowClient(store.as_uri())
        self.run = self.client.create_run("0").info.run_id

    def train(self) -> None:
        """All steps, each logged as the plan says."""
        begin_at, plan = int(self.plan["at"] * self.plan["steps"]), self.plan
        busy: list[subprocess.Popen[bytes]] = []
        try:
            for step in range(plan["steps"]):
                if plan["kind"] == "busy" and step == begin_at:
                    busy = [_neighbour() for _ in range(max(1, round(plan["times"]) - 1))]
                if plan["kind"] == "bursts" and step % 97 == 0:
                    _stop(busy)
                    busy = [_neighbour()] if self.draw.random() < 0.3 else []
                self._step(step, begin_at)
        finally:
            _stop(busy)
        self._send(at_end=True)
        self.client.set_terminated(self.run)

    def _step(self, step: int, begin_at: int) -> None:
        begin = time.perf_counter()
        inputs, targets = self._load(step, begin_at)
        loaded = time.perf_counter()
        for _ in range(8 if self.plan["kind"] == "busy" else 1):
            loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self._wait(step, begin_at)
        self._keep(loss, step, begin_at)
        took, waited = time.perf_counter() - begin, loaded - begin
        if step % self.plan["every"] == 0:
            self._log(step, {"train_loss": loss.item(), **self._measures(took, waited)})
        if self.plan["evaluates"] and step % self.plan["evaluates"] == self.plan["evaluates"] - 1:
            time.sleep(self.plan["evaluation"])
            if self.plan["kind"] != "saves":
                self._log(step, {"val_loss": loss.item() * 1.05})

    def _load(self, step: int, begin_at: int) -> tuple[Any, Any]:
        plan, usual = self.plan, self.plan["wait"]
        seconds = 0.1 * usual
        if plan["kind"] == "sleep" and step >= begin_at:
            seconds += (plan["times"] - 1.0) * usual
        if plan["kind"] == "starved":
            seconds = plan["times"] * usual
        if plan["kind"] == "cached" and step < 0.2 * plan["steps"]:
            seconds = usual
        if plan["kind"] == "rescan":
            done = max(0.0, (step - begin_at) / (plan["steps"] - begin_at))
            seconds += 2.0 * (plan["times"] - 1.0) * usual * done
        time.sleep(seconds)
        rows = 512 if plan["kind"] == "busy" else 64
        if plan["kind"] == "longer":
            rows *= 1 + (step >= begin_at)
        inputs = torch.randn(rows, 32)
        return inputs, inputs @ self.truth

    def _wait(self, step: int, begin_at: int) -> None:
        """For the device."""
        plan = self.plan
        if plan["kind"] == "busy":
            return
        times = 1.0 + (plan["kind"] == "longer" and step >= begin_at)
        if plan["kind"] == "resumed" and step == begin_at:
            time.sleep(4.0)
        times += 5.0 * (plan["kind"] == "starts-slowly" and step < 0.04 * plan["steps"])
        time.sleep(plan["wait"] * times * float(np.exp(plan["jitter"] * self.draw.normal())))

    def _keep(self, loss: Any, step: int, begin_at: int) -> None:
        if self.plan["kind"] == "leak":
            self.kept.append(np.ones(200_000))
        if self.plan["kind"] == "kept" and step >= begin_at:
            self.kept += [loss] * 40
            time.sleep(2.0 * (self.plan["times"] - 1.0) * self.plan["wait"] * (step - begin_at)
                       / (self.plan["steps"] - begin_at))  # fmt: skip

    def _measures(self, took: float, waited: float) -> dict[str, float]:
        found: dict[str, float] = {}
        match self.plan["logs"]:
            case "step_time":
                found = {"step_time": took}
            case "throughput":
                found = {"samples_per_second": 64 / took}
            case "data_time":
                found = {"batch_time": took, "data_time": waited}
        if self.plan["kind"] == "longer":
            found["seq_len"] = 512.0
        found["system/system_memory_usage_megabytes"] = _resident()
        return found

    def _log(self, step: int, values: dict[str, float]) -> None:
        if "seq_len" in values:
            values["seq_len"] *= 1 + (step >= int(self.plan["at"] * self.plan["steps"]))
        now = int(time.time() * 1000)
        self.waiting += [Metric(name, value, now, step) for name, value in values.items()]
        self._send()

    def _send(self, *, at_end: bool = False) -> None:
        late = self.plan["kind"] == "logged-late" and not at_end
        if not late and self.waiting:
            now = int(time.time() * 1000)
            if self.plan["kind"] == "logged-late":
                self.waiting = [Metric(one.key, one.value, now, one.step) for one in self.waiting]
            for at in range(0, len(self.waiting), 900):
                self.client.log_batch(self.run, metrics=self.waiting[at : at + 900])
            self.waiting = []


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _neighbour() -> subprocess.Popen[bytes]:
    """Another process on the core of this one; it ends with it."""
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
    return subprocess.Popen([sys.executable, "-c", code])


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for one in processes:
        one.kill()
        one.wait()


def _make_one(task: tuple[dict[str, Any], str]) -> None:
    plan, folder = task
    store = Path(folder)
    if (store / "plan.json").exists():
        return
    store.mkdir(parents=True, exist_ok=True)
    if plan["kind"] in ("busy", "bursts"):
        os.sched_setaffinity(0, {plan["seed"] % (os.cpu_count() or 1)})
    Training(plan, store / "mlruns").train()
    (store / "plan.json").write_text(json.dumps(plan))


def make(folder: Path, seed: int, slowed: int, healthy: int, logs: str) -> None:
    """Train all: so many of each kind that is slowed, and of each healthy one; ``logs``: what all log, empty for what
    their plans say.
    """
    tasks = []
    for kinds, count in ((SLOWED, slowed), (STARVED, slowed), (HEALTHY, healthy)):
        for kind in kinds:
            for at in range(count):
                plan = planned(seed, kind, at) | ({"logs": logs} if logs else {})
                tasks.append((plan, str(folder / f"{kind}-{seed}-{at}")))
    # What needs a core of its own comes alone.
    alone = [task for task in tasks if task[0]["kind"] in ("busy", "bursts")]
    with multiprocessing.get_context("fork").Pool(_AT_ONCE, maxtasksperchild=1) as pool:
        list(pool.imap_unordered(_make_one, [task for task in tasks if task not in alone]))
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        list(pool.imap_unordered(_make_one, alone))


def _results(run: Path) -> dict[str, Any]:
    report = api.check(run)
    return {one.code: one for one in report.results if one.code in _CODES} | {"report": report}


def score(folder: Path) -> None:
    """Per kind: found, the place, what else; every miss and every false alarm by name."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(folder.glob("*/plan.json")):
        plan = json.loads(path.read_text())
        results = _results(_run_of(path.parent))
        flagged = [code for code in _CODES if code in results and results[code].verdict in ("warn", "fail")]
        kind = plan["kind"]
        found[kind]["runs"] += 1
        found[kind].update(flagged)
        said = "; ".join(results[code].message for code in flagged)
        place = ""
        if kind in SLOWED and "SYS005" in flagged:
            off = abs(results["SYS005"].steps[0] - plan["at"] * plan["steps"]) / plan["steps"]
            found[kind]["place within 10 %"] += off <= 0.1
            place = f" off by {off:.1%}"
        cause = results["report"].diagnosis
        found[kind][f"cause {cause.cause}" if cause is not None and cause.cause else "no cause"] += 1
        missed = (kind in SLOWED and "SYS005" not in flagged) or (kind == "starved" and "SYS001" not in flagged)
        if (kind in HEALTHY and flagged) or missed or place:
            about = f"{plan['logs']}, every {plan['every']}, x{plan['times']:.1f}"
            print(f"{path.parent.name} ({about}){place}: {said or 'nothing'}")
    for kind, counted in found.items():
        print(f"{kind:14} {dict(counted)}")


def _run_of(folder: Path) -> Path:
    return next(path.parent for path in (folder / "mlruns").glob("*/*/meta.yaml"))


def healthy(folders: list[Path]) -> None:
    """How many runs are flagged by the rules on pace, of those whose times are known."""
    judged, flagged = 0, 0
    for folder in folders:
        results = _results(folder)
        said = [results[code] for code in _CODES if code in results and results[code].verdict != "skip"]
        judged += bool(said)
        bad = [one for one in said if one.verdict in ("warn", "fail")]
        flagged += bool(bad)
        for one in bad:
            print(f"{folder}: {one.code} {one.message}")
    print(f"{flagged} of {judged} flagged")


def main() -> None:
    """Make, score, or look at runs that are known to be healthy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "score", "healthy"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slowed", type=int, default=5, help="of each kind")
    parser.add_argument("--healthy", type=int, default=6, help="of each kind")
    parser.add_argument("--logs", default="", choices=("", *LOGGED), help="what all log")
    given = parser.parse_args()
    match given.what:
        case "make":
            make(given.folders[0], given.seed, given.slowed, given.healthy, given.logs)
        case "score":
            score(given.folders[0])
        case "healthy":
            healthy(given.folders)


if __name__ == "__main__":
    main()
