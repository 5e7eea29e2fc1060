"""Every way in which a run of MLflow ends, with real processes and a real database."""

from __future__ import annotations

import re
import signal

import pytest
from tests.stores import mlflow_tags

from tracker_health import annotate, check, clear_annotations

from .conftest import MortalServer

pytestmark = pytest.mark.slow

pytest.importorskip("mlflow")

LOG = """
def log(diverges=False):
    for step in range(60):
        mlflow.log_metric("loss", 2.3 * (1.05 if diverges else 0.95) ** step + 0.01 * (step % 3), step=step)
"""
IN_ONE_PROCESS = (
    """
import mlflow, os, signal, sys
"""
    + LOG
    + """
with mlflow.start_run(run_name="with") as first:
    log()
    with mlflow.start_run(run_name="nested", nested=True):
        log(diverges=True)
for name, error in (("raised", ValueError), ("interrupted", KeyboardInterrupt)):
    try:
        with mlflow.start_run(run_name=name):
            log()
            if error is KeyboardInterrupt:
                os.kill(os.getpid(), signal.SIGINT)
            raise error
    except error:
        print(name)
client = mlflow.MlflowClient()
for name, end in (("terminated", client.set_terminated), ("updated", client.update_run)):
    run = client.create_run("0", run_name=name)
    for step in range(60):
        client.log_metric(run.info.run_id, "loss", 2.3 * 0.95**step, step=step)
    client.update_run(run.info.run_id, name=name)
    end(run.info.run_id, status="KILLED")
client.create_run("0", run_name="not ended")
mlflow.start_run(run_name="forked")
log()
if not os.fork():
    sys.exit(0)  # MLflow ends the run here: it is its parent's
os.wait()
print("waited")
raise RuntimeError("the training broke")
"""
)


def test_all_ways_of_ending(workplace, plugin_path):
    """Under the plugin: which is imported in the middle of MLflow's own import."""
    code, out, err = workplace.train(IN_ONE_PROCESS, TRACKER_HEALTH_AUTO="1", PYTHONPATH=plugin_path)
    assert (code, out) == (1, "raised\ninterrupted\nwaited\n")
    assert err.splitlines().count("RuntimeError: the training broke") == 1
    runs = workplace.mlflow_runs()
    verdicts = {name: (tags.get("health.verdict"), status) for name, (tags, status) in runs.items()}
    assert verdicts == {
        "with": ("pass", "FINISHED"),
        "nested": ("fail", "FINISHED"),
        "raised": ("fail", "FAILED"),
        "interrupted": ("warn", "FAILED"),
        "terminated": ("warn", "KILLED"),
        "updated": ("warn", "KILLED"),
        "not ended": (None, "RUNNING"),
        "forked": ("fail", "FINISHED"),
    }
    ended = {name: tags.get("health.ended") for name, (tags, _) in runs.items()}
    assert ended == {
        "with": "finished",
        "nested": "finished",
        "raised": "failed",
        "interrupted": "interrupted",
        "terminated": "interrupted",
        "updated": "interrupted",
        "not ended": None,
        "forked": "failed",
    }
    assert "RuntimeError: the training broke" in runs["forked"][0]["health.ended_by"]
    told = [line for line in err.splitlines() if line.startswith("tracker-health: ")]
    assert [line.split()[1:4] for line in told] == [
        ["provisional:", "FAIL", "nested:"],
        ["provisional:", "PASS", "with:"],
        ["provisional:", "FAIL", "raised:"],
        ["provisional:", "WARN", "interrupted:"],
        ["provisional:", "WARN", "terminated:"],
        ["provisional:", "WARN", "updated:"],
        ["provisional:", "FAIL", "forked:"],
    ]
    assert "report.html" in runs["forked"][0]["health.written"]  # the rest was done as well, after the process


LEFT_OPEN = (
    """
import mlflow, sys, tracker_health
tracker_health.autolog()
tracker_health.autolog()
"""
    + LOG
    + """
mlflow.start_run(run_name="left open")
log()
print("to the end", flush=True)
sys.exit(7)
"""
)


@pytest.mark.exhaustive
def test_the_server_and_a_run_that_is_left_open(workplace, mlflow_server):
    code, out, err = workplace.train(LEFT_OPEN, MLFLOW_TRACKING_URI=mlflow_server)
    assert (code, out) == (7, "to the end\n" + _of_mlflow(out))
    tags, status = workplace.mlflow_runs(mlflow_server)["left open"]
    assert (tags["health.verdict"], tags["health.ended_by"], status) == ("fail", "exit code 7", "FINISHED")
    assert f"({mlflow_server}/#/experiments/0/runs/" in err


ENDS_WELL = (
    "import mlflow\n"
    + LOG
    + """
with mlflow.start_run(run_name="the last"):
    log()
    print("trained")
"""
)


@pytest.mark.exhaustive
def test_a_server_that_dies_when_the_run_has_ended(workplace, mlflow_server, plugin_path):
    """Between the end of the run and its verdict: the training ends as it would without the hook."""
    ends = []
    for auto in ("0", "1"):
        server = MortalServer(mlflow_server, b"/runs/update")
        environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
        hooked = {"TRACKER_HEALTH_AUTO": auto, "PYTHONPATH": plugin_path}
        code, out, err = workplace.train(ENDS_WELL, **environment, **hooked)
        ends.append((code, out.splitlines()[0], len(out.splitlines())))
    assert ends[0] == ends[1]
    assert ends[0][:2] == (0, "trained")
    assert err.count("tracker-health: ") == err.count("was not judged: ") == 1


def _of_mlflow(out):
    """What MLflow itself prints of a run on a server."""
    return "".join(line for line in out.splitlines(keepends=True) if "View run" in line or "View experiment" in line)


@pytest.mark.parametrize("mode", ["broken", "missing"])
def test_a_broken_installation_does_not_keep_mlflow_from_being_imported(workplace, plugin_path, mode, tmp_path):
    package = tmp_path / "site" / "tracker_health"
    if mode == "broken":
        package.mkdir()
        (package / "__init__.py").write_text("raise RuntimeError('a broken installation')\n")
    else:
        (tmp_path / "site" / "_tracker_health_hooks.py").write_text("import tracker_health_that_is_gone\n")
    script = "import mlflow.tracking.context.registry as r; print(len(list(r._run_context_provider_registry)) > 0)"
    code, out, err = workplace.train(script, TRACKER_HEALTH_AUTO="1", PYTHONPATH=plugin_path)
    assert (code, out) == (0, "True\n"), err


def test_the_plugin_does_nothing_unless_it_is_asked(workplace, plugin_path):
    """Nor with the kill switch, whatever a configuration file says; it imports next to nothing."""
    script = (
        "import sys, _tracker_health_hooks as m; print(sorted(n for n in sys.modules if n.startswith('tracker_health')));"
        "p = m.RunContextProvider(); print(p.in_context(), p.tags())"
    )
    (workplace.folder / "tracker-health.toml").write_text("auto = true\n")
    assert "tracker_health.hooks.early" in workplace.train(script, PYTHONPATH=plugin_path)[1]
    killed = workplace.train(script, PYTHONPATH=plugin_path, TRACKER_HEALTH_DISABLED="1", TRACKER_HEALTH_AUTO="1")
    assert killed == (0, "[]\nFalse {}\n", "")
    (workplace.folder / "tracker-health.toml").unlink()
    inert = workplace.train(script, PYTHONPATH=plugin_path)
    assert inert[1] == "[]\nFalse {}\n"
    assert inert[2] == ""


KILLED = (
    """
import mlflow, os, signal, sys
"""
    + LOG
    + """
mlflow.start_run(run_name="killed")
log()
print("trained", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
)


def test_a_killed_run_is_judged_by_the_launcher(workplace):
    code, out, err = workplace.execute(KILLED)
    assert (code, out) == (-signal.SIGKILL, "trained\n")
    tags, status = workplace.mlflow_runs()["killed"]
    assert (tags["health.verdict"], tags["health.codes"], status) == ("fail", "RUN003", "RUNNING")
    assert "SIGKILL" in tags["health.summary"]
    assert err.count("tracker-health: FAIL killed: ") == 1
    # Who annotates it later, and knows nothing of that, finds the same; and a run that went on is no longer killed.
    import mlflow

    uri = workplace.environment["MLFLOW_TRACKING_URI"]
    client = mlflow.MlflowClient(tracking_uri=uri)
    run_id = client.search_runs(["0"])[0].info.run_id
    assert annotate(run_id, tracking_uri=uri).status == "unchanged"
    assert annotate(run_id, tracking_uri=uri, force=True).report.verdict == "fail"
    assert mlflow_tags.ours(client.get_run(run_id).data.tags)["digest"] == tags["health.digest"]
    client.log_metric(run_id, "loss", 0.1, step=60)
    client.set_terminated(run_id)
    assert annotate(run_id, tracking_uri=uri).report.verdict == "pass"
    assert not {"ended_by", "exit"} & mlflow_tags.ours(client.get_run(run_id).data.tags).keys()


@pytest.mark.exhaustive
def test_clearing_does_not_turn_a_killed_run_into_a_pass(workplace):
    code, _, _ = workplace.execute(KILLED)
    assert code == -signal.SIGKILL
    import mlflow

    uri = workplace.environment["MLFLOW_TRACKING_URI"]
    client = mlflow.MlflowClient(tracking_uri=uri)
    run_id = client.search_runs(["0"])[0].info.run_id
    assert clear_annotations(run_id, tracking_uri=uri).found
    assert not [tag for tag in client.get_run(run_id).data.tags if tag.startswith("health")]
    assert check(run_id, tracking_uri=uri).verdict == "skip", "MLflow still calls it running"


RESUMED = """
import mlflow, os, signal, sys
client = mlflow.MlflowClient()
(run,) = client.search_runs(["0"])
with mlflow.start_run(run_id=run.info.run_id):
    mlflow.log_metric("loss", 0.1, step=60)
with mlflow.start_run(run_id=run.info.run_id):
    mlflow.log_metric("loss", 0.1, step=61)
    print(client.get_run(run.info.run_id).data.tags["health.verdict"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.exhaustive
def test_a_run_that_is_resumed_and_killed_does_not_keep_its_verdict(workplace):
    code, _, err = workplace.execute(
        "import mlflow\n" + LOG + "with mlflow.start_run(run_name='resumed'):\n    log()\n"
    )
    assert (code, err.count("tracker-health: PASS resumed: ")) == (0, 1)
    code, out, err = workplace.execute(RESUMED)
    assert (code, out) == (-signal.SIGKILL, "pass\n")
    assert err.count("tracker-health: FAIL resumed: ") == 1
    tags, status = workplace.mlflow_runs()["resumed"]
    assert (tags["health.verdict"], tags["health.codes"], status) == ("fail", "RUN003", "RUNNING")


def test_a_verdict_that_nobody_waits_for_is_promised_on_the_runs_own_page(workplace, mlflow_server):
    """Of the address a password is left out; how to wait is said once."""
    script = "import mlflow, tracker_health\ntracker_health.autolog()\n"
    script += (
        "for name in ('one', 'two'):\n    with mlflow.start_run(run_name=name):\n        mlflow.log_metric('loss', 1)\n"
    )
    uri = mlflow_server.replace("http://", "http://me:secret@")
    code, _, err = workplace.train(script, MLFLOW_TRACKING_URI=uri, TRACKER_HEALTH_HOOK_SECONDS="0.01")
    lines = [line for line in err.splitlines() if line.startswith("tracker-health: ")]
    assert (code, "secret" in err) == (0, False)
    pages = rf"\({re.escape(mlflow_server)}/#/experiments/0/runs/[0-9a-f]{{32}}\)"
    assert re.fullmatch(
        rf"tracker-health: one is being judged; the verdict will be on the run {pages}; .*=60 .*", lines[0]
    )
    assert all("HOOK_SECONDS" not in line for line in lines[1:]), lines
