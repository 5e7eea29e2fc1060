"""The cron jobs of several hosts that begin in the same minute: each run is judged once, and each message sent once.

Hosts share the tracker's server and nothing else: each process here has folders of its own for its state and locks.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from tests.receiver import Receiver

from .faulty_proxy import Proxy

pytest.importorskip("mlflow")
pytestmark = pytest.mark.slow

HOSTS = 3
APART = 0.02
"""Seconds between their beginnings: no closer in earnest, as cron starts them."""
PLACES = 5
RUNS = 2
"""Of each experiment: more would share a message."""
WARM_UP_SECONDS = 120
LOSSES = [0.1 + 2.2 * 0.98**step for step in range(100)] + [float("nan")] * 20
_numbers = itertools.count()

# All that a process imports it has imported when the clock strikes.
SWEEP = """
import sys, time
from contextlib import suppress
from pathlib import Path
import mlflow
from tracker_health.cli import cli
ready, go, offset, *arguments = sys.argv[1:]
with suppress(SystemExit):
    cli(arguments)  # the first sweep of a server tells nobody anything
Path(ready).touch()
while not Path(go).exists():
    time.sleep(0.001)
time.sleep(float(offset))
cli(arguments)
"""


def sweep_together(folder, receiver, commands, environment, make_runs):
    """Sweeps of several hosts that know the server, and then find what ``make_runs`` makes. What each printed."""
    config = folder / "tracker-health.toml"
    config.write_text(
        f'pages = "never"\n[notify]\nwebhook = "{receiver.address}"\ntemplate = \'{{"text": "{{run}}"}}\'\n'
    )
    go, hosts = folder / "go", []
    for number, arguments in enumerate(commands):
        host = folder / f"host{number}"
        host.mkdir()
        own = {name: str(host / name) for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR")}
        for place in own.values():
            os.mkdir(place)  # noqa: PTH102
        command = [sys.executable, "-c", SWEEP, host / "ready", go, str(number * APART), *arguments]
        hosts.append(
            subprocess.Popen(
                [*map(str, command), "--config", str(config)],
                cwd=host, env=os.environ | environment | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        )  # fmt: skip
    try:
        end = time.monotonic() + WARM_UP_SECONDS
        while not all((folder / f"host{number}" / "ready").exists() for number in range(len(hosts))):
            over = [host.communicate()[0] for host in hosts if host.poll() is not None]
            assert (over, time.monotonic() < end) == ([], True)
            time.sleep(0.05)
        assert receiver.accepted == []
        make_runs()
        go.touch()
        return [host.communicate(timeout=300)[0] for host in hosts]
    finally:
        for host in hosts:
            host.kill()


@pytest.fixture
def receiver():
    found = Receiver()
    yield found
    found.close()


def run_names():
    return [f"run{place}-{number}" for place in range(PLACES) for number in range(RUNS)]


def log_failing_runs(client, experiments):
    import mlflow

    points = [mlflow.entities.Metric("loss", loss, 10**12 + step, step) for step, loss in enumerate(LOSSES)]
    for name in run_names():
        run = client.create_run(experiments[int(name[3])], run_name=name).info.run_id
        client.log_batch(run, metrics=points)
        client.set_terminated(run)


def test_sweeps_of_several_hosts_of_one_mlflow_server(server_uri, tmp_path, receiver):
    import mlflow

    client, first = mlflow.MlflowClient(tracking_uri=server_uri), next(_numbers)
    names = [f"together {first} {place}" for place in range(PLACES)]
    experiments = [client.create_experiment(name) for name in names]
    chosen = [part for name in names for part in ("--experiment", name)]
    with Proxy(server_uri) as proxy:
        command = ["sweep", *chosen, "--tracking-uri", proxy.uri]
        printed = sweep_together(
            tmp_path, receiver, [command] * HOSTS, {}, lambda: log_failing_runs(client, experiments)
        )
        written = Counter(asked for asked in proxy.asked if "log-batch" in asked or "set-tag" in asked)
    verdicts = [run.data.tags.get("health.verdict") for run in client.search_runs(experiments)]
    told = [run.data.tags.get("health.notified", "") for run in client.search_runs(experiments)]
    sent = Counter(one["text"] for one in receiver.accepted)
    assert (verdicts, sorted(sent)) == (["fail"] * PLACES * RUNS, run_names()), printed
    assert set(sent.values()) == {1}, (sent, written, printed)
    assert all(one.startswith("told=") and " due=" not in one for one in told), told


def test_sweeps_of_several_hosts_of_one_wandb_server(wandb_server, tmp_path, receiver):
    rows = [
        json.dumps({"_step": step, "_timestamp": 1.0 * step, "loss": "NaN" if math.isnan(loss) else loss})
        for step, loss in enumerate(LOSSES)
    ]

    def log():
        for name in run_names():
            run = wandb_server.store.new_run("team", "together", name)
            run.history, run.state, run.summary = list(rows), "finished", {"loss": "NaN"}

    wandb_server.store.new_run("team", "together", "earlier").state = "running"
    command = ["sweep", "--project", "team/together"]
    printed = sweep_together(tmp_path, receiver, [command] * HOSTS, {}, log)
    runs = [wandb_server.run(f"team/together/{name}") for name in run_names()]
    sent = Counter(one["text"] for one in receiver.accepted)
    assert [run.summary.get("health/verdict") for run in runs] == ["fail"] * len(runs), printed
    assert set(sent.values()) == {1}, (sent, printed)
