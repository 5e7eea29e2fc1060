"""How runs end that the other tests of hooks do not end: each has its verdict in the end, by hook, launcher or sweep."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from ..wandb_server import WandbServer  # noqa: TID252  tests are no package of a name

pytestmark = pytest.mark.slow

pytest.importorskip("mlflow")

LOG = """
import os, signal, sys, time, tracker_health
tracker_health.autolog()
import mlflow
def log():
    for step in range(60):
        mlflow.log_metric("loss", 2.3 * 0.95 ** step + 0.01 * (step % 3), step=step)
"""
# A client in another language, as far as the server can tell.
RAW = """
import json, urllib.request
def post(path, **body):
    address = os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/" + path
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))
now = int(time.time() * 1000)
experiment = mlflow.set_experiment("ends").experiment_id
run = post("runs/create", experiment_id=experiment, start_time=now, run_name="raw")["run"]["info"]["run_id"]
points = [{"key": "loss", "value": 2.3 * 0.95 ** step, "timestamp": now + step, "step": step} for step in range(60)]
post("runs/log-batch", run_id=run, metrics=points)
post("runs/update", run_id=run, status="FINISHED", end_time=now + 60)
"""


def sweep(workplace, uri, *options):
    command = [sys.executable, "-m", "tracker_health", "sweep", *options]
    return workplace.ended(workplace.start(*command, **({"MLFLOW_TRACKING_URI": uri} if uri else {})))


@pytest.mark.exhaustive
def test_what_no_hook_can_see_is_left_to_the_sweep(workplace, mlflow_server):
    """Raw REST; and, without a launcher, an end that runs no code of ours: the run claims to go on for ever."""
    script = LOG + RAW + "mlflow.start_run(run_name='gone')\nlog()\nprint('trained', flush=True)\nos._exit(5)\n"
    code, out, err = workplace.train(script, MLFLOW_TRACKING_URI=mlflow_server)
    assert (code, out) == (5, "trained\n")
    assert "tracker-health: " not in err
    runs = {name: workplace.mlflow_runs(mlflow_server)[name] for name in ("raw", "gone")}
    assert {name: (tags.get("health.verdict"), status) for name, (tags, status) in runs.items()} == {
        "raw": (None, "FINISHED"),
        "gone": (None, "RUNNING"),
    }
    time.sleep(2)
    only = ("--experiment", "ends", "--stale-after", "1s")
    code, out, err = sweep(workplace, mlflow_server, *only)
    assert code == 0, err
    runs = {name: workplace.mlflow_runs(mlflow_server)[name] for name in ("raw", "gone")}
    assert {name: (tags.get("health.verdict"), status) for name, (tags, status) in runs.items()} == {
        "raw": ("pass", "FINISHED"),
        "gone": ("fail", "RUNNING"),
    }
    assert runs["gone"][0]["health.codes"].split(",")[0] == "RUN003"
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("end", "code", "cause", "verdict"),
    [
        ("os._exit(5)", 5, "exit code 5", ("fail", "RUN004", "RUNNING")),
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, "SIGTERM", ("warn", "RUN003", "RUNNING")),
    ],
)
@pytest.mark.exhaustive
def test_ends_that_only_the_launcher_sees(workplace, mlflow_server, end, code, cause, verdict):
    name = f"died of {cause}"
    script = f"{LOG}\nmlflow.start_run(run_name={name!r})\nlog()\nprint('trained', flush=True)\n{end}\ntime.sleep(60)\n"
    ended, out, err = workplace.execute(script, MLFLOW_TRACKING_URI=mlflow_server)
    assert (ended, out) == (code, "trained\n"), err
    tags, status = workplace.mlflow_runs(mlflow_server)[name]
    assert (tags["health.verdict"], tags["health.codes"], status) == verdict
    assert cause in tags["health.summary"]
    assert err.count(f"tracker-health: {verdict[0].upper()} {name}: ") == 1


@pytest.mark.parametrize(
    ("end", "found"),
    [("pass", ("pass", "running", "")), ("raise ValueError('mine')", ("fail", "failed", "ValueError: mine"))],
)
@pytest.mark.exhaustive
def test_a_forked_child_that_leaves_its_run_open(workplace, end, found):
    """Python's end does not come in it: it may be meant to go on elsewhere, and was not killed."""
    script = f"""{LOG}
import multiprocessing
def train():
    mlflow.start_run(run_name="child")
    log()
    {end}
child = multiprocessing.get_context("fork").Process(target=train)
child.start()
child.join()
"""
    code, _, err = workplace.execute(script)
    assert code == 0, err
    tags, status = workplace.mlflow_runs()["child"]
    assert status == "RUNNING"
    assert (tags["health.verdict"], tags["health.ended"], tags.get("health.ended_by", "")) == found


@pytest.mark.exhaustive
def test_an_exit_in_the_middle_of_a_run(workplace):
    """``sys.exit`` and Ctrl-C that nobody catches: MLflow ends the run when Python exits, or when ``with`` is left."""
    inside = LOG + "with mlflow.start_run(run_name='with'):\n    log()\n    sys.exit(3)\n"
    outside = LOG + "mlflow.start_run(run_name='without')\nlog()\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
    code, _, err = workplace.train(inside)
    assert (code, err.count("tracker-health: provisional: FAIL with: ")) == (3, 1)
    code, _, err = workplace.train(outside)
    said = err.count("tracker-health: provisional: WARN without: ")
    assert (code, said, err.count("KeyboardInterrupt")) == (-signal.SIGINT, 1, 1)
    ends = {name: (tags["health.verdict"], status) for name, (tags, status) in workplace.mlflow_runs().items()}
    assert ends == {"with": ("fail", "FAILED"), "without": ("warn", "FINISHED")}


WANDB = """
import tracker_health; tracker_health.autolog()
import os, signal, sys, time, wandb
run = wandb.init(project="p", name="ended")
for step in range(60):
    run.log({"loss": 2.3 * 0.95 ** step + 0.01 * (step % 3)})
"""


@pytest.mark.parametrize(
    ("end", "code", "verdicts"),
    [
        ("raise ValueError('mine')", 1, ("fail",)),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, ("warn",)),
    ],
)
@pytest.mark.exhaustive
def test_an_end_of_wandb_that_nobody_catches(workplace, end, code, verdicts):
    """The line that is told knows of the exception, not only the verdict that follows it."""
    ended, _, err = workplace.train(WANDB + end + "\n")
    assert ended == code, err
    ((told, name),) = [line.split()[2:4] for line in err.splitlines() if line.startswith("tracker-health: ")]
    assert (told.lower() in verdicts, name) == (True, "ended:"), err
    assert workplace.wandb_logs()["ended"].own["health/verdict"] in verdicts


@pytest.mark.exhaustive
def test_a_run_of_wandb_that_went_without_a_word_is_left_to_the_sweep(workplace):
    with WandbServer() as server:
        online = server.environment(workplace.folder) | {"WANDB_MODE": "online"}
        code, _, err = workplace.train(WANDB + "time.sleep(2); os.kill(os.getpid(), signal.SIGKILL)\n", **online)
        assert code == -signal.SIGKILL
        (run,) = server.store.runs.values()
        assert not run.tags, err
        run.heartbeat = "2026-01-01T00:00:00Z"
        command = [sys.executable, "-m", "tracker_health", "sweep", "--project", "team/p", "--since", "10000d"]
        code, _, err = workplace.ended(workplace.start(*command, **online))
        assert (code, list(run.tags)) == (0, ["health:fail"]), err


ODD = {
    "the folder is gone": "os.mkdir('gone'); os.chdir('gone')",
    "descriptors of streams are free": "sys.stderr = None; os.close(2); os.close(0)",
    "nothing at home may be written": "os.environ['HOME'] = '/proc'",
}
GONE = "import shutil; shutil.rmtree('../gone')"


@pytest.mark.parametrize("place", list(ODD))
@pytest.mark.exhaustive
def test_a_run_in_an_odd_place(workplace, place):
    """From several threads, each with a run of its own, under MLflow's own autologging."""
    script = f"""{LOG}
{ODD[place]}
import threading
mlflow.autolog(silent=True)
client = mlflow.MlflowClient()
def work(name):
    run = client.create_run("0", run_name=name).info.run_id
    for step in range(60):
        client.log_metric(run, "loss", 2.3 * 0.95 ** step, step=step)
    client.set_terminated(run)
threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
for thread in threads: thread.start()
{GONE if "gone" in place else ""}
for thread in threads: thread.join()
print("to the end")
"""
    code, out, err = workplace.train(script)
    assert (code, out) == (0, "to the end\n"), err
    verdicts = {name: tags.get("health.verdict") for name, (tags, _) in workplace.mlflow_runs().items()}
    assert verdicts == {"one": "pass", "two": "pass"}, err


@pytest.mark.exhaustive
def test_hooks_that_are_taken_off_in_the_middle_of_a_run(workplace):
    script = LOG + "mlflow.start_run(run_name='off')\nlog()\ntracker_health.autolog(disable=True)\nmlflow.end_run()\n"
    code, _, err = workplace.train(script)
    assert (code, "tracker-health: " in err) == (0, False)
    assert "health.verdict" not in workplace.mlflow_runs()["off"][0]
