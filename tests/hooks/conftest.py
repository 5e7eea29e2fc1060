"""Training scripts in processes of their own, with real stores, and the judges that these leave behind."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.stores import mlflow_tags

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120


class Workplace:
    """A folder in which scripts train, and what becomes of them there."""

    def __init__(self, folder):
        self.folder = folder
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WANDB_", "TRACKER_HEALTH_", "_TRACKER_HEALTH_"))
        }
        self.environment = kept | {
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "WANDB_DATA_DIR": str(folder / "data"),
            "TRACKER_HEALTH_HOOK_SECONDS": str(PATIENCE),
        }

    def start(self, *command, **more):
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def train(self, script, *arguments, **more):
        """Run a Python script, and wait until its runs are judged; its exit code, standard output and error."""
        return self.ended(self.start(sys.executable, "-c", script, *arguments, **more))

    def execute(self, script, **more):
        """The same under ``tracker-health exec``."""
        command = [sys.executable, "-m", "tracker_health", "exec", "--wait", str(PATIENCE), "--"]
        return self.ended(self.start(*command, sys.executable, "-c", script, **more))

    def ended(self, process):
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
        self.wait_for_judges()
        return process.returncode, out, err

    def judges(self):
        """The processes that judge in this folder."""
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdecimal() and (process / "cwd").readlink() == self.folder:
                    found += [int(process.name)] * (
                        b"tracker_health.hooks.judge_process" in (process / "cmdline").read_bytes()
                    )
        return found

    def wait_for_judges(self):
        end = time.monotonic() + PATIENCE
        while self.judges() and time.monotonic() < end:
            time.sleep(0.1)

    def mlflow_runs(self, uri=None):
        """By name, the tags and the status of each run."""
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=uri or self.environment["MLFLOW_TRACKING_URI"])
        runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
        return {run.info.run_name: (mlflow_tags.expanded(run.data.tags), run.info.status) for run in runs}

    def wandb_logs(self):
        """By name, what W&B's runs in this folder say."""
        from tracker_health.stores.wandb.transaction_log import read_log

        logs = [read_log(path) for path in sorted((self.folder / "wandb").glob("*run-*/*.wandb"))]
        return {log.name: log for log in logs}


class MortalServer:
    """A real server behind a door that shuts for good at the first request after it has answered one with this in it."""

    def __init__(self, uri, last):
        host, port = uri.removeprefix("http://").split(":")
        self._address, self._last = (host, int(port)), last
        self._has_answered = False
        self._door = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with self._door:
            while True:
                client = self._door.accept()[0]
                if self._has_answered:
                    client.close()
                    return
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client):
        is_last = False
        with suppress(OSError), client, socket.create_connection(self._address) as server:
            while True:
                for side in select.select([client, server], [], [])[0]:
                    chunk = side.recv(2**16)
                    if not chunk or (side is client and self._has_answered):
                        return
                    (server if side is client else client).sendall(chunk)
                    is_last |= side is client and self._last in chunk
                    self._has_answered |= is_last and side is server


@pytest.fixture
def workplace(tmp_path):
    place = Workplace(tmp_path.resolve())
    yield place
    for judge in place.judges():
        with suppress(ProcessLookupError):
            os.kill(judge, signal.SIGKILL)


@pytest.fixture
def plugin_path(tmp_path):
    """A search path on which the package is installed with the entry points of pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "tracker_health_of_the_tests-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tracker-health-of-the-tests\nVersion: 1\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return os.pathsep.join([str(info.parent), str(ROOT / "src")])


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory):
    from ..stores.conftest import server_of  # noqa: TID252  tests are no package of a name

    yield from server_of(tmp_path_factory.mktemp("server"))
