"""The recipes of docs/operation.md, docs/gate.md and docs/adopt.md, and the commands of docs/faq.md: those that can be are run, of the others what is in them is checked."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import click
import pytest
import yaml

from tracker_health.cli import cli

from .many_runs import make_runs
from .test_gate import client_of

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("operation.md", "gate.md", "ci.md", "adopt.md", "faq.md", "upgrade.md")
BLOCKS = [
    (f"{page}-{number}", language, text)
    for page in PAGES
    for number, (language, text) in enumerate(
        re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    )
]
COMMANDS = sorted(
    {
        line.strip()
        for page in PAGES
        for line in re.findall(r"tracker-health [a-z]+ [^\n`]*--[^\n`]*", (DOCS / page).read_text())
    }
    | {
        " ".join(words)
        for words in re.findall(r'\["(tracker-health)", "(\w+)", "(--[^\]]+)"\]', (DOCS / "operation.md").read_text())
    }
)
CRON = re.search(r"^    \*/10 \* \* \* \* (.*)$", (DOCS / "operation.md").read_text(), re.MULTILINE)[1]


TRAINING = """
import os, sys, time
import mlflow
mlflow.set_experiment(sys.argv[1])
mlflow.start_run()
for step in range(40):
    mlflow.log_metric("train/loss", 2.0 * 0.9**step + 0.1, step=step)
print("training", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("language", "text"), [block[1:] for block in BLOCKS], ids=[block[0] for block in BLOCKS])
def test_what_is_written_can_be_parsed(language, text):
    if language == "yaml":
        assert all(isinstance(one, (dict, list)) for one in yaml.safe_load_all(text))
    elif language == "python":
        ast.parse(text)
    elif language == "toml":
        assert tomllib.loads(text)
    elif language == "console":  # what a command prints: written anew by make docs
        assert text.startswith("$ tracker-health ")
    else:
        assert language in ("bash", "sh")
        subprocess.run([language, "-n"], input=text, text=True, check=True, timeout=30)


@pytest.mark.parametrize("line", COMMANDS)
def test_the_options_of_what_is_written_exist(line):
    name, rest = line.removeprefix("tracker-health ").split(" ", 1)
    known = {option for parameter in cli.commands[name].params for option in parameter.opts}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.split(r"(?:^| )-- |\", \"--\",", rest)[0]):
        assert option in known, line


def test_there_are_commands_and_blocks_to_check():
    assert len(COMMANDS) >= 10
    assert {language for _, language, _ in BLOCKS} == {"yaml", "python", "bash", "sh", "console", "toml"}
    assert isinstance(cli, click.Group)


@pytest.mark.exhaustive
def test_a_container_that_is_gone_and_a_sweep_by_cron(server_uri, tmp_path):
    """Everything of it is killed at once. The next sweep says so, started as cron starts it: by sh, from no shell of a
    user's, with hardly anything in the environment.
    """
    name, (healthy,) = make_runs(server_uri, 1)
    environment = os.environ | {"MLFLOW_TRACKING_URI": server_uri}
    with subprocess.Popen(
        [sys.executable, "-c", TRAINING, name], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as training:
        assert training.stdout.readline()
        os.killpg(training.pid, signal.SIGKILL)
    credentials, metrics = tmp_path / "credentials", tmp_path / "tracker-health.prom"
    credentials.write_text(f"export MLFLOW_TRACKING_URI={server_uri}\nexport MLFLOW_DISABLE_TELEMETRY=true\n")
    tool = f"'{sys.executable}' -m tracker_health"
    line = CRON.replace("/etc/tracker-health/credentials", str(credentials))
    line = line.replace("/var/lib/node_exporter/tracker-health.prom", str(metrics))
    line = line.replace("tracker-health sweep", f"{tool} sweep --experiment '{name}' --stale-after 3s")
    time.sleep(4)
    bare = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run(
        ["/bin/sh", "-c", line], env=bare, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    place = client_of(server_uri).get_experiment_by_name(name).experiment_id
    tags = {run.info.run_id: run.data.tags for run in client_of(server_uri).search_runs([place])}
    assert tags.pop(healthy)["health.verdict"] == "pass"
    (gone,) = tags.values()
    assert (gone["health.verdict"], gone["health.ended"]) == ("fail", "silent")
    assert gone["health.codes"].startswith("RUN003")
    assert 'tracker_health_sweep_runs{result="judged"} 2' in metrics.read_text()
