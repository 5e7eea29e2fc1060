"""How many requests each command takes of a server: counted, and what ``docs/scale.md`` says."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli

from .faulty_proxy import Proxy
from .many_runs import make_runs
from .test_gate import registered
from .test_gate_wandb import TRAINING

pytestmark = [pytest.mark.exhaustive]  # real servers

PAGE = Path(__file__).parent.parent.parent / "docs" / "scale.md"
HEALTHY = [1.0 + 0.98**step for step in range(300)]
SICK = [*HEALTHY[:150], *[math.nan] * 150]
ROWS = {
    "annotate": "`annotate`, a run that passes",
    "sick": "`annotate`, a run that fails, with page and picture",
    "unchanged": "`annotate`, a verdict that still holds",
    "swept": "`sweep`, each further run without a verdict",
    "kept": "`sweep`, each further run with one",
    "clear": "`clear`",
    "gate": "`gate`, with tags, of one safetensors file",
}


class Counted:
    """What commands ask of a server whose requests are in a growing list."""

    def __init__(self, requests, *options):
        self.requests, self.options = requests, options

    def __call__(self, *arguments, code=0):
        before = len(self.requests)
        done = CliRunner().invoke(cli, [*map(str, arguments), *self.options])
        assert done.exit_code == code, done.output
        return len(self.requests) - before

    def costs(self, healthy, sick, some, more, model):
        """By row. ``some`` and ``more``: options that name one run and four, none with a verdict."""
        self("check", healthy)  # the server is known, as for all but the first run of a call
        found = {"annotate": self("annotate", healthy), "sick": self("annotate", sick)}
        found["unchanged"] = self("annotate", healthy)
        one, four = ([self("sweep", "--workers", 1, *runs) for _ in range(2)] for runs in (some, more))
        found["swept"], found["kept"] = ((b - a) / 3 for a, b in zip(one, four, strict=True))
        found["gate"] = self("gate", model)
        found["clear"] = self("clear", healthy)
        return found


@pytest.fixture
def of_mlflow(server_uri, tmp_path):
    if version("mlflow").startswith("2."):
        pytest.skip("the page has the numbers of MLflow 3")
    with Proxy(server_uri) as proxy:
        uri = proxy.uri
        _, (healthy, sick) = make_runs(uri, 2, sick={1})
        some, more = (("--experiment", make_runs(uri, number)[0]) for number in (1, 4))
        _, name, _ = registered(uri, tmp_path)
        counted = Counted(proxy.asked, "--tracking-uri", uri)
        return counted.costs(healthy, sick, some, more, f"models:/{name}/1")


@pytest.fixture
def of_wandb(wandb_server, tmp_path):
    def put(project, name, losses):
        run = wandb_server.store.new_run("team", project, name)
        run.history = [json.dumps({"_step": n, "_timestamp": 1.0 * n, "loss": loss}) for n, loss in enumerate(losses)]
        run.state, run.summary = "finished", {"loss": losses[-1]}
        return f"wandb:team/{project}/{name}"

    training = [sys.executable, "-c", TRAINING, "made", "finite"]
    subprocess.run(training, env=os.environ, cwd=tmp_path, check=True, capture_output=True, timeout=180)
    healthy, sick = put("proj", "healthy", HEALTHY), put("proj", "sick", SICK)
    for project, number in (("one", 1), ("four", 4)):
        for index in range(number):
            put(project, f"run{index}", HEALTHY)
    some, more = (("--project", f"team/{project}") for project in ("one", "four"))
    return Counted(wandb_server.requests).costs(healthy, sick, some, more, "wandb:team/proj/net:v0")


def test_the_page_says_how_many_requests_each_command_takes(of_mlflow, of_wandb):
    lines = [f"| {row} | {of_mlflow[key]:.0f} | {of_wandb[key]:.0f} |" for key, row in ROWS.items()]
    table = "\n".join(("| requests | MLflow | W&B |", "|---|---|---|", *lines))
    assert table in PAGE.read_text(encoding="utf-8"), f"docs/scale.md must have\n{table}"
