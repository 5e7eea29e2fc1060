"""The page that a new team follows: its commands in their order, on a real server, and what is left after the last."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import tracker_health

from .conftest import server_of
from .many_runs import make_runs

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parent.parent.parent / "docs" / "adopt.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("tracker-health ")
]
SETTINGS = re.search(r"^```toml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    for uri in server_of(folder):
        yield folder / "mlflow.db", uri


def rows(database):
    """Every row of every table."""
    with closing(sqlite3.connect(database)) as opened:
        tables = [name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(map(repr, opened.execute(f'SELECT * FROM "{name}"'))) for name in tables}


def test_the_commands_work_and_the_last_ones_leave_nothing(server, tmp_path, monkeypatch):
    database, uri = server
    name, _ = make_runs(uri, 4, sick={2, 3})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (tmp_path / "tracker-health.toml").write_text(SETTINGS)
    before = rows(database)
    judged, said = None, ""
    for line in COMMANDS:
        words = [name if word == "my-experiment" else word for word in shlex.split(line)[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "tracker_health", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said += done.stdout + done.stderr
        if words == ["doctor", "--experiment", name]:
            before = rows(database)  # its run is in MLflow's trash
        if "summary.html" in words:
            judged = rows(database)
    assert judged is not None
    assert judged["tags"] != before["tags"], "the verdicts were there"
    assert "in shadow only: " in said
    assert {path.name for path in tmp_path.glob("*.html")} == {"week.html", "summary.html"}
    assert rows(database) == before


LISTENING = """
import os, sys
def heard(event, arguments):
    if event == "socket.getaddrinfo":
        with open(os.environ["ASKED"], "a") as asked:
            asked.write(f"{arguments[0]}\\n")
sys.addaudithook(heard)
"""


def test_no_other_host_is_asked(server, tmp_path):
    """Nor by MLflow's own package, which reports what it is used for unless it is asked not to."""
    _, uri = server
    name, _ = make_runs(uri, 2, sick={1})
    (tmp_path / "sitecustomize.py").write_text(LISTENING)
    asked = tmp_path / "asked"
    bare = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "ASKED": str(asked), "MLFLOW_TRACKING_URI": uri}
    bare["PYTHONPATH"] = f"{tmp_path}:{Path(tracker_health.__file__).parent.parent}"
    command = [sys.executable, "-m", "tracker_health", "sweep", "--experiment", name, "--since", "7d"]
    subprocess.run(command, env=bare, cwd=tmp_path, check=True, capture_output=True)
    assert set(asked.read_text().splitlines()) == {"127.0.0.1"}
