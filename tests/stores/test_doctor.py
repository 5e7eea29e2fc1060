"""Doctor: what works on a real MLflow server, for whom, and that nothing of the try is left."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli

from ..wandb_server import READER  # noqa: TID252  tests are no package of a name
from .conftest import ADMIN_PASSWORD, READER_PASSWORD
from .many_runs import make_runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures")]  # real servers


def examined(*options):
    done = CliRunner().invoke(cli, ["doctor", *options])
    rows = [line.partition("  ") for line in done.stdout.splitlines() if "enough for" not in line]
    assert "Traceback" not in done.stderr
    return done, {rest.strip().partition(":")[0]: state.strip() for state, _, rest in rows}


def called_next(done):
    """The command that doctor names as the next one, called."""
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("next ")]
    return CliRunner().invoke(cli, shlex.split(line.removeprefix("next"))[1:])


def left_on(uri, name):
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    models = [one.name for one in client.search_registered_models() if one.name.startswith("tracker-health-doctor")]
    place = client.get_experiment_by_name(name).experiment_id
    return [run.info.run_name for run in client.search_runs([place])], models


def test_a_server_that_takes_everything(server_uri):
    name, _ = make_runs(server_uri, 1)
    done, states = examined("--tracking-uri", server_uri, "--experiment", name)
    assert (done.exit_code, "INFO" in done.output) == (0, False), done.output
    assert list(states.values())[:9] == ["works"] * 9
    assert "enough for: check, report; annotate, sweep, exec; gate; gate with tags" in done.stdout
    assert "not enough" not in done.stdout
    assert left_on(server_uri, name) == (["run 0"], [])
    import mlflow

    swept, client = called_next(done), mlflow.MlflowClient(tracking_uri=server_uri)
    assert swept.exit_code == 0, swept.output
    (run,) = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    assert {tag for tag in run.data.tags if tag.startswith("health")} == {"health.shadow"}


def test_an_account_that_may_only_read(auth_server_uri, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", ADMIN_PASSWORD)
    name, _ = make_runs(auth_server_uri, 1)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", READER_PASSWORD)
    done, states = examined("--tracking-uri", auth_server_uri, "--experiment", name)
    assert done.exit_code == 3
    assert (states["read runs"], states["make a run"]) == ("works", "fails")
    assert "no permission" in done.stdout
    assert "not enough for: annotate, sweep, exec; gate with tags" in done.stdout
    monkeypatch.chdir(tmp_path)
    assert called_next(done).exit_code == 0, "what it names next needs no more than to read"
    assert left_on(auth_server_uri, name) == (["run 0"], [])


@pytest.mark.exhaustive
def test_a_server_whose_tags_do_not_stay_is_found_out_and_left_clean(sqlite_uri, tmp_path, monkeypatch):
    from tracker_health.stores.mlflow.run import MlflowRun

    monkeypatch.setattr(MlflowRun, "write", lambda *_: ())
    name, _ = make_runs(sqlite_uri, 1, artifacts=str(tmp_path))
    done, states = examined("--tracking-uri", sqlite_uri, "--experiment", name)
    assert done.exit_code == 3
    assert (states["write a verdict"], states["read it back"], states["write files"]) == ("works", "fails", "fails")
    assert left_on(sqlite_uri, name) == (["run 0"], [])


def test_an_experiment_that_is_not_there(sqlite_uri):
    done, states = examined("--tracking-uri", sqlite_uri, "--experiment", "no such thing")
    assert done.exit_code == 3
    assert states["read runs"] == "not there"
    assert "enough for: nothing" not in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "not known what the account is enough for: there is no experiment no such thing "
        "(name one of yours with --experiment, or log the first run there)"
    )


def test_a_new_project_of_wandb_says_nothing_of_the_account(wandb_server):
    done, states = examined("--project", "team/new")
    assert (done.exit_code, states["read runs"], states["make a run"]) == (3, "not there", "not tried")
    assert "not known what the account is enough for: there is no W&B project team/new" in done.stdout
    assert "W&B makes a project with its first run" in done.stdout
    wandb_server.store.new_run("team", "new", "first")
    done, _ = examined("--project", "team/new")
    assert "enough for: check, report; annotate, sweep, exec; gate" in done.stdout.splitlines()


def test_settings_about_runs_say_nothing_of_the_account(sqlite_uri, tmp_path, monkeypatch):
    """Under names of one's own the loss of its run would be none; in shadow no verdict would be written."""
    (tmp_path / "policy.toml").write_text(
        'mode = "shadow"\nlocked = ["mode"]\n[roles]\ntrain_loss = ["objective/total"]\n'
    )
    monkeypatch.setenv("TRACKER_HEALTH_POLICY", str(tmp_path / "policy.toml"))
    name, _ = make_runs(sqlite_uri, 1, artifacts=str(tmp_path))
    done, states = examined("--tracking-uri", sqlite_uri, "--experiment", name)
    assert (done.exit_code, states["read it back"], states["write files"]) == (0, "works", "works"), done.output


def test_as_a_document(sqlite_uri):
    name, _ = make_runs(sqlite_uri, 1)
    done = CliRunner().invoke(
        cli, ["doctor", "--tracking-uri", sqlite_uri, "--experiment", name, "--dry-run", "--json"]
    )
    document = json.loads(done.stdout)
    assert document["schema"] == "tracker-health/doctor/1"
    assert {"tracker-health", "python", "system", "mlflow", "numpy"} <= document["versions"].keys()
    assert [step["what"] for step in document["steps"]][:2] == ["reach the server", "runs"]
    assert document["next"].endswith("--since 7d --report-to tracker-health-reports"), "nothing said that it may write"


def test_a_password_is_in_no_document():
    done = CliRunner().invoke(cli, ["doctor", "--tracking-uri", "http://ana:hunter2@127.0.0.1:9", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["next"]) == (3, "")
    assert "hunter2" not in done.output


def test_versions_alone_ask_no_server(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = CliRunner().invoke(cli, ["doctor", "--versions", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["steps"]) == (0, [])
    assert "python" in CliRunner().invoke(cli, ["doctor", "--versions"]).stdout


@pytest.mark.slow
def test_a_wandb_server(wandb_server, monkeypatch):
    wandb_server.store.new_run("team", "proj", "theirs").state = "finished"
    done, states = examined("--project", "team/proj")
    assert done.exit_code == 0, done.output
    assert [states[one] for one in ("make a run", "write tags and summary", "write files")] == ["works"] * 3
    assert [name for _, _, name in wandb_server.store.runs] == ["theirs"]
    monkeypatch.setenv("WANDB_API_KEY", READER)
    done, states = examined("--project", "team/proj")
    assert done.exit_code == 3
    assert (states["read runs"], states["make a run"]) == ("works", "fails")


def test_a_dry_run_makes_nothing_and_says_how_the_runs_of_wandb_stand(wandb_server, monkeypatch):
    runs = {
        name: wandb_server.store.new_run("team", "proj", name) for name in ("judged", "new", "going", "theirs", "mine")
    }
    for name, run in runs.items():
        run.state = "running" if name == "going" else "finished"
    runs["theirs"].summary = {"health/verdict": 3}
    runs["mine"].summary = {"health/score": 0.5}  # a name of the owner's that is in nobody's way
    assert CliRunner().invoke(cli, ["annotate", "wandb:team/proj/judged"]).exit_code == 0
    written = len(wandb_server.written())
    done, states = examined("--project", "team/proj", "--dry-run")
    assert (done.exit_code, states["may write"], len(wandb_server.written())) == (0, "works", written)
    assert "runs: 5: 1 judged, 2 without a verdict, 1 still going, 1 with names like ours" in done.stdout
    assert "names like ours: on 1 run by others, which get no verdict: theirs" in done.stdout
    swept = CliRunner().invoke(cli, ["sweep", "--project", "team/proj"])
    assert "4 runs: 2 annotated, 1 unchanged, 0 taken, 1 left alone" in swept.stderr, "as doctor said"
    written = len(wandb_server.written())
    monkeypatch.setenv("WANDB_API_KEY", READER)
    done, states = examined("--project", "team/proj", "--dry-run")
    assert (done.exit_code, states["runs"], states["may write"]) == (3, "works", "fails")
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert examined("--project", "team/proj", "--dry-run")[0].exit_code == 3
    assert len(wandb_server.written()) == written


def test_a_dry_run_makes_nothing_and_says_how_the_runs_of_mlflow_stand(sqlite_uri):
    import mlflow

    name, (judged, theirs, going, _) = make_runs(sqlite_uri, 4)
    client, where = mlflow.MlflowClient(tracking_uri=sqlite_uri), ("--tracking-uri", sqlite_uri)
    CliRunner().invoke(cli, ["annotate", judged, *where])
    client.set_tag(theirs, "health.digest", "mine")
    client.update_run(going, status="RUNNING")
    done, states = examined(*where, "--experiment", name, "--dry-run")
    assert (done.exit_code, states["may write"]) == (0, "not tried")
    assert "runs: 4: 1 judged, 1 without a verdict, 1 still going, 1 with names like ours" in done.stdout
    assert f"on 1 run by others, which get no verdict: {theirs}" in done.stdout
    assert left_on(sqlite_uri, name) == (["run 3", "run 2", "run 1", "run 0"], [])
