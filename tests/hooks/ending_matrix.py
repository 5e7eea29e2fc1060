"""Ways to end a training x where it is tracked x who judges it, with real processes: ``python -m tests.hooks.ending_matrix [WAY ...]``.

Each cell is a training of its own, whose run is looked at afterwards: verdict, first reason and ``health.ended``.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.hooks.conftest import PATIENCE, Workplace
from tests.wandb_server import WandbServer

STORES = ("mlflow", "wandb local", "wandb online")
JUDGES = ("hook", "exec", "annotate")

MLFLOW = """
import mlflow, os, resource, signal, sys, time
def training():
    for step in range(60):
        mlflow.log_metric("loss", 2.3 * 0.95 ** step + 0.01 * (step % 3), step=step)
    print("trained", flush=True)
def tracked():
    return mlflow.start_run(run_name="{name}")
def over():
    mlflow.end_run()
"""
WANDB = """
import os, resource, signal, sys, time, wandb
def training():
    for step in range(60):
        wandb.run.log({{"loss": 2.3 * 0.95 ** step + 0.01 * (step % 3)}})
    for step in range(60, 900):  # of a run that is killed, only whole blocks of 32 KiB are on the disk
        wandb.run.log({{"other": step}})
    time.sleep(1)
    print("trained", flush=True)
def tracked():
    return wandb.init(project="p", id="{name}", name="{name}")
def over():
    wandb.finish()
"""
WITH = "with tracked():\n    training()\n    {end}\n"
WITHOUT = "tracked()\ntraining()\n{end}\n"
FINALLY = "tracked()\ntry:\n    training()\n    {end}\nfinally:\n    over()\n"
EXCEPT = "tracked()\ntry:\n    training()\n    {end}\nexcept Exception as error:\n    print(error)\n    over()\n    sys.exit(1)\n"
HANDLED = "tracked()\ntry:\n    training()\n    {end}\nexcept Exception as error:\n    print(error)\n    over()\n"
CAUGHT = """
import traceback
with tracked():
    training()
    try:
        {end}
    except ValueError:
        traceback.print_exc()
    print("saved on this machine")
"""
# As MLflow and W&B import it where it is installed.
IPYTHON = """
import types
IPython = sys.modules["IPython"] = types.ModuleType("IPython")
IPython.get_ipython = lambda: None
"""
MEMORY = "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31)); kept = [bytearray(2**28) for _ in range(100)]"
# Python in the foreground of the terminal that it is given.
TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
PRUNED = "import optuna; raise optuna.TrialPruned()"


@dataclass(frozen=True)
class Way:
    """A way to end, and by judge what MLflow's run comes to have and what W&B's does: verdict and ``health.ended``; None
    where nobody is there who could judge it.
    """

    script: str
    end: str
    mlflow: tuple[str | None, ...]
    wandb: tuple[str | None, ...]
    on_a_terminal: bool = False


FINE, FAILED, MEMORY_OUT = "pass finished", "fail failed", "fail out-of-memory"
KILLED, INTERRUPTED, PRUNED_OUT, SILENT = "fail killed", "warn interrupted", "pass pruned", "warn silent"
WAYS = {
    "to its end": Way(WITH, "pass", (FINE,) * 3, (FINE,) * 3),
    "exception in with": Way(WITH, "raise ValueError('mine')", (FAILED,) * 3, (FAILED,) * 3),
    # Without with MLflow calls it finished when Python ends, whatever it ends with: later nothing says otherwise.
    "exception": Way(WITHOUT, "raise ValueError('mine')", (FAILED, FAILED, FINE), (FAILED,) * 3),
    "sys.exit(1)": Way(WITHOUT, "sys.exit(1)", (FAILED, FAILED, FINE), (FAILED,) * 3),
    "sys.exit(1) in with": Way(WITH, "sys.exit(1)", (FAILED,) * 3, (FAILED,) * 3),
    "sys.exit(0) in with": Way(WITH, "sys.exit(0)", (FINE, FINE, FAILED), (FINE, FINE, FAILED)),
    "finally: end_run": Way(FINALLY, "raise ValueError('mine')", (FAILED, FAILED, FINE), (FAILED, FAILED, FINE)),
    "except: sys.exit(1)": Way(EXCEPT, "raise ValueError('mine')", (FAILED, FAILED, FINE), (FAILED, FAILED, FINE)),
    "end_run, sys.exit(3)": Way(WITHOUT, "over(); sys.exit(3)", (FINE, FAILED, FINE), (FINE, FAILED, FINE)),
    "except, and well": Way(HANDLED, "raise ValueError('mine')", (FINE,) * 3, (FINE,) * 3),
    "a caught traceback": Way(CAUGHT, "raise ValueError('mine')", (FINE,) * 3, (FINE,) * 3),
    "exception by IPython": Way(IPYTHON + WITHOUT, "raise ValueError('mine')", (FAILED, FAILED, FINE), (FAILED,) * 3),
    # W&B's own hook does not see it either.
    "exit(1)": Way(WITHOUT, "exit(1)", (FAILED, FAILED, FINE), (FAILED, FAILED, FINE)),
    "sys.exit(-1)": Way(WITHOUT, "sys.exit(-1)", (FAILED, FAILED, FINE), (FAILED,) * 3),
    "sys.exit(137)": Way(WITHOUT, "sys.exit(137)", (KILLED, KILLED, FINE), (KILLED,) * 3),
    "os._exit(5)": Way(WITHOUT, "os._exit(5)", (None, FAILED, SILENT), (None, FAILED, SILENT)),
    "SIGKILL": Way(WITHOUT, "os.kill(os.getpid(), 9)", (None, KILLED, SILENT), (None, KILLED, SILENT)),
    "SIGTERM": Way(WITHOUT, "os.kill(os.getpid(), 15); time.sleep(60)", (None, INTERRUPTED, SILENT), (None, INTERRUPTED, SILENT)),
    "Ctrl-C": Way(WITHOUT, "time.sleep(60)", (INTERRUPTED, INTERRUPTED, FINE), (INTERRUPTED,) * 3, on_a_terminal=True),
    "no memory left": Way(WITHOUT, MEMORY, (MEMORY_OUT, MEMORY_OUT, FINE), (MEMORY_OUT,) * 3),
    "pruned in with": Way(WITH, PRUNED, (PRUNED_OUT, PRUNED_OUT, FAILED), (PRUNED_OUT,) * 3),
}  # fmt: skip


def expected(way, store, judge):
    """What the cell's run comes to have. The exit code is in W&B's log; its server says only that it failed."""
    if (way, store, judge) == ("sys.exit(137)", "wandb online", "annotate"):
        return FAILED
    found = WAYS[way].mlflow if store == "mlflow" else WAYS[way].wandb
    return found[JUDGES.index(judge)]


class Cell:
    """One training, in a folder of its own."""

    def __init__(self, folder, way, store, judge):
        self.way, self.store, self.judge = way, store, judge
        self.name = "".join(character if character.isalnum() else "-" for character in way).strip("-").lower()
        self.place = Workplace(folder)
        (folder / "train.py").write_text(self._script())
        self.place.environment |= {"PYTHONUNBUFFERED": "1", "MLFLOW_ENABLE_ASYNC_LOGGING": "false"}
        if judge == "hook":
            self.place.environment |= {"TRACKER_HEALTH_AUTO": "1"}

    def _script(self):
        way = WAYS[self.way]
        hooks = "import tracker_health\ntracker_health.autolog()\n" if self.judge == "hook" else ""
        begin = (MLFLOW if self.store == "mlflow" else WANDB).format(name=self.name)
        return hooks + begin + way.script.format(end=way.end)

    def train(self):
        command = [sys.executable, "train.py"]
        if self.judge == "exec":
            command = [sys.executable, "-m", "tracker_health", "exec", "--wait", str(PATIENCE), "--", *command]
        run = self._train_on_a_terminal if WAYS[self.way].on_a_terminal else self._train
        self.printed = run(command)
        self.place.wait_for_judges()

    def _train(self, command):
        process = self.place.start(*command)
        return process.communicate(timeout=PATIENCE)[1]

    def _train_on_a_terminal(self, command):
        """With Ctrl-C typed once it has trained."""
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb+", buffering=0) as terminal:
            process = subprocess.Popen(
                [sys.executable, "-c", TERMINAL, *command], cwd=self.place.folder, env=self.place.environment,
                stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            )  # fmt: skip
            os.close(theirs)
            seen, typed = b"", False
            with suppress(OSError):  # nobody has the terminal open any more
                while chunk := terminal.read(4096):
                    seen += chunk
                    if b"trained" in seen and not typed:
                        typed = True
                        time.sleep(0.5)  # not in the midst of W&B's own copy of what is printed
                        terminal.write(b"\x03")
            process.wait(PATIENCE)
        return seen.decode(errors="replace")

    def annotate(self, run):
        """What somebody does later, who was not there; a run that claims to go on has been silent for long by then."""
        time.sleep(1.5)
        command = [sys.executable, "-m", "tracker_health", "annotate", "--stale-after", "1s", run]
        self.printed = self.place.ended(self.place.start(*command))[2]


def came_of(cell, server=None):
    """Verdict and ``health.ended`` of the cell's run; None for one that bears no verdict."""
    if cell.store == "mlflow":
        ((run_id, tags),) = _mlflow_runs(cell)
        if cell.judge == "annotate":
            cell.annotate(run_id)
            ((_, tags),) = _mlflow_runs(cell)
        return _said(tags.get("health.verdict"), tags.get("health.ended"))
    if cell.store == "wandb local":
        (log,) = cell.place.folder.glob("wandb/*run-*/*.wandb")
        if cell.judge == "annotate":
            cell.annotate(str(log.parent))
        annotation = log.parent / "files" / "health" / "annotation.json"
        document = json.loads(annotation.read_text()) if annotation.exists() else {}
        return _said(document.get("verdict"), document.get("tags", {}).get("ended"))
    run = server.run(f"team/p/{cell.name}")
    if cell.judge == "annotate":
        if run.state == "running":  # as W&B's server finds some minutes later
            run.state, run.heartbeat = "crashed", "2026-01-01T00:00:00Z"
        cell.annotate(f"wandb:team/p/{cell.name}")
    return _said(run.summary.get("health/verdict"), run.summary.get("health/ended"))


def _mlflow_runs(cell):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=cell.place.environment["MLFLOW_TRACKING_URI"])
    return [(run.info.run_id, run.data.tags) for run in client.search_runs(["0"])]


def _said(verdict, ended):
    return None if verdict is None else f"{verdict} {ended}"


def outcome(folder, way, store, judge):
    """What became of one cell."""
    cell = Cell(folder, way, store, judge)
    with ExitStack() as stack:
        server = None
        if store == "wandb online":
            server = stack.enter_context(WandbServer())
            cell.place.environment |= {**server.environment(folder), "WANDB_MODE": "online"}
        cell.train()
        return came_of(cell, server), cell.printed


def main() -> int:
    chosen = [way for way in WAYS if way in sys.argv[1:] or not sys.argv[1:]]
    cells = [(way, store, judge) for way in chosen for store in STORES for judge in JUDGES]
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(3) as pool:
        folders = [Path(root, str(number)).resolve() for number in range(len(cells))]
        for folder in folders:
            folder.mkdir()
        came = pool.map(lambda folder, cell: outcome(folder, *cell)[0], folders, cells)
        found = dict(zip(cells, came, strict=True))
    wrong = 0
    print(f"{'':<22}" + "".join(f"{store:<66}" for store in STORES))
    print(f"{'':<22}" + "".join(f"{judge:<22}" for _ in STORES for judge in JUDGES))
    for way in chosen:
        line = f"{way:<22}"
        for store in STORES:
            for judge in JUDGES:
                is_right = found[way, store, judge] == expected(way, store, judge)
                wrong += not is_right
                line += f"{(found[way, store, judge] or '-') + ('' if is_right else ' (wrong)'):<22}"
        print(line.rstrip())
    print(f"{len(cells) - wrong} of {len(cells)} cells right")
    return int(wrong > 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
