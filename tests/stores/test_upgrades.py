"""An upgrade of the rules: runs that have ended keep their verdict until somebody asks for another."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.stores import mlflow_tags

from tracker_health import annotate, preset
from tracker_health.api import annotate_as
from tracker_health.cli import cli
from tracker_health.config import Config
from tracker_health.fleet.sweep import Sweep
from tracker_health.judge import annotations
from tracker_health.judge.annotations import RULES
from tracker_health.report.result import Finding
from tracker_health.rules.curves.diverged import Diverged
from tracker_health.rules.registry import RULES_VERSION
from tracker_health.runs import still_holds
from tracker_health.runs.annotating import AnnotateOptions
from tracker_health.stores.mlflow.run import MlflowRun
from tracker_health.words.verdict import Verdict

from .many_runs import make_runs

pytestmark = [pytest.mark.usefixtures("no_pictures"), pytest.mark.slow]

STRICTER = replace(preset("default"), thresholds={"diverged": {"sigmas": 9}})


@pytest.fixture
def upgraded(monkeypatch):
    """Puts other rules in force."""

    def to(version=RULES_VERSION + 1):
        monkeypatch.setattr(annotations, "RULES_VERSION", version)
        monkeypatch.setattr(still_holds, "RULES_VERSION", version)

    return to


@pytest.fixture
def make(sqlite_uri):
    """Makes a run of MLflow that ends like this; its id and what gives its tags."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=sqlite_uri)

    def made(status="FINISHED", experiment=""):
        run = client.create_run(client.create_experiment(experiment) if experiment else "0").info.run_id
        now = int(time.time() * 1000)
        client.log_batch(run, metrics=[Metric("loss", 2.3 * 0.95**step + 0.05, now, step) for step in range(60)])
        if status != "RUNNING":
            client.set_terminated(run, status)
        return run, client

    return made


def tags_of(client, run):
    return mlflow_tags.expanded(client.get_run(run).data.tags)


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
@pytest.mark.thinned(3)
def test_an_ended_run_keeps_its_verdict(make, sqlite_uri, upgraded, status):
    run, client = make(status)
    annotate(run, tracking_uri=sqlite_uri)
    before = tags_of(client, run)
    assert before["health.rules"] == str(RULES_VERSION)
    upgraded()
    outcome = annotate(run, tracking_uri=sqlite_uri)
    assert outcome.status == "unchanged"
    assert f"version {RULES_VERSION} of the rules" in outcome.report.summary
    assert "--rejudge" in outcome.report.summary
    assert tags_of(client, run) == before
    assert annotate(run, tracking_uri=sqlite_uri, rejudge=True).status == "written"
    after = tags_of(client, run)
    assert after["health.rules"] == str(RULES_VERSION + 1)
    assert after["health.digest"] != before["health.digest"]
    again = annotate(run, tracking_uri=sqlite_uri, rejudge=True)
    assert (again.status, "version" in again.report.summary) == ("unchanged", False), "it is of these rules now"
    upgraded(RULES_VERSION)
    assert annotate(run, tracking_uri=sqlite_uri).status == "unchanged", "nor does somebody with older rules change it"


def test_a_run_that_goes_on_is_judged_by_the_new_rules(make, sqlite_uri, upgraded):
    run, client = make("RUNNING")
    annotate(run, tracking_uri=sqlite_uri)
    upgraded()
    assert annotate(run, tracking_uri=sqlite_uri).status == "written"
    assert tags_of(client, run)["health.rules"] == str(RULES_VERSION + 1)


def with_rules(client, run, version):
    """Change by hand which rules are said to have judged a run."""
    digest, _, behind = client.get_run(run).data.tags["health.digest"].partition(" ")
    document = {**json.loads(behind), "rules": version}
    kept = {name: value for name, value in document.items() if value is not None}
    client.set_tag(run, "health.digest", f"{digest} {json.dumps(kept)}")


@pytest.mark.parametrize(
    "change",
    [
        lambda client, run: client.log_metric(run, "loss", 9.0, step=61),
        lambda client, run: client.set_tag(run, "health.digest", "0123456789abcdef"),
        lambda client, run: client.set_tag(run, "health.digest", "pending"),
        lambda client, run: client.set_tag(run, "health.verdict", "fail"),
        lambda client, run: with_rules(client, run, str(RULES_VERSION - 3)),
        lambda client, run: with_rules(client, run, "the latest"),
        lambda client, run: with_rules(client, run, None),
        lambda client, run: client.set_terminated(run, "FAILED"),
    ],
    ids=["data", "digest", "pending", "verdict", "version", "words", "no version", "status"],
)
@pytest.mark.thinned(2)
def test_whatever_no_longer_fits_is_judged_again(make, sqlite_uri, upgraded, change):
    run, client = make()
    annotate(run, tracking_uri=sqlite_uri)
    upgraded()
    change(client, run)
    assert annotate(run, tracking_uri=sqlite_uri).status == "written"


def test_other_settings_judge_again(make, sqlite_uri, upgraded):
    run, _ = make()
    annotate(run, tracking_uri=sqlite_uri)
    upgraded()
    assert annotate(run, config=STRICTER, tracking_uri=sqlite_uri).status == "written"


def test_a_verdict_in_part_is_completed(make, sqlite_uri, upgraded):
    run, _ = make()
    annotate_as(run, AnnotateOptions(config=Config(), tracking_uri=sqlite_uri, quick=True))
    upgraded()
    assert annotate(run, tracking_uri=sqlite_uri).status == "written"


def test_a_sweep_rejudges_when_asked(make, sqlite_uri, upgraded):
    name = f"upgrade {time.time_ns()}"
    run, client = make(experiment=name)
    annotate(run, tracking_uri=sqlite_uri)
    upgraded()
    swept = Sweep(config=preset("default"), experiments=(name,), tracking_uri=sqlite_uri)
    assert swept.estimate(swept.candidates()).runs == 0
    assert [one.kind for one in swept.annotate(swept.candidates())] == ["unchanged"]
    swept = Sweep(config=preset("default"), experiments=(name,), tracking_uri=sqlite_uri, rejudge=True)
    assert swept.estimate(swept.candidates()).runs == 1
    assert [one.kind for one in swept.annotate(swept.candidates())] == ["annotated"]
    assert tags_of(client, run)["health.rules"] == str(RULES_VERSION + 1)


def test_on_a_server_neither_settings_nor_rules_of_others_change_it(make, server_uri, upgraded):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server_uri)
    run = client.create_run(client.create_experiment(f"upgrade {time.time_ns()}")).info.run_id
    for step in range(40):
        client.log_metric(run, "loss", 2.3 * 0.95**step + 0.05, step=step)
    client.set_terminated(run)
    annotate(run, config=STRICTER, tracking_uri=server_uri)
    upgraded()
    assert annotate(run, tracking_uri=server_uri).status == "unchanged"
    assert annotate(run, tracking_uri=server_uri, rejudge=True).status == "written"


def test_a_folder_whose_end_nobody_knows_is_judged_again(write_log, healthy_losses, upgraded):
    folder = write_log(healthy_losses)
    annotate(folder)
    document = json.loads((folder / "health" / "annotation.json").read_text())
    assert document["tags"][RULES] == str(RULES_VERSION)
    assert annotate(folder).status == "unchanged"
    upgraded()
    assert "ended" not in document["tags"]
    assert annotate(folder).status == "written"


# What an upgrade would change


def called(uri, name, *options):
    return CliRunner().invoke(cli, ["diff", "--experiment", name, "--tracking-uri", uri, *options])


def test_what_would_change_is_listed_and_nothing_is_written(make, sqlite_uri, monkeypatch):
    name = f"diff {time.time_ns()}"
    run, client = make(experiment=name)
    experiment = client.get_experiment_by_name(name).experiment_id
    client.set_terminated(client.create_run(experiment).info.run_id)
    annotate(run, tracking_uri=sqlite_uri)
    before = tags_of(client, run)
    same = called(sqlite_uri, name)
    assert (same.exit_code, same.stdout) == (0, "")
    assert "compared 1 run: 0 would change" in same.stderr
    monkeypatch.setattr(Diverged, "judge", lambda *_: Finding(verdict=Verdict.FAIL, message="it is \x1b[31mbad"))
    changed = called(sqlite_uri, name)
    assert changed.exit_code == 0
    (line,) = changed.stdout.splitlines()
    assert line.startswith(f"pass (rules {RULES_VERSION}) -> fail  ")
    assert run in line
    assert line.endswith("LOS004 It is ?[31mbad; nothing logged shows why.")
    assert "compared 1 run: 1 would change (1 from pass to fail)" in changed.stderr
    (document,) = map(json.loads, called(sqlite_uri, name, "--json").stdout.splitlines())
    assert (document["run"]["id"], document["before"], document["after"]) == (run, "pass", "fail")
    assert (document["rules_before"], document["other_settings"], document["older_than_data"]) == (
        RULES_VERSION,
        False,
        False,
    )
    client.log_metric(run, "loss", 0.1, step=99)
    with_others = called(sqlite_uri, name, "--preset", "strict")
    assert with_others.stdout.rstrip().endswith("[judged with other settings, older than its data]")
    assert tags_of(client, run) == before


def test_a_run_that_cannot_be_judged_is_named(make, sqlite_uri, monkeypatch):
    name = f"diff {time.time_ns()}"
    run, _ = make(experiment=name)
    annotate(run, tracking_uri=sqlite_uri)
    monkeypatch.setattr(MlflowRun, "read", lambda *_: 1 / 0)
    broken = called(sqlite_uri, name)
    assert broken.exit_code == 3
    assert run in broken.stderr


def test_neither_an_experiment_that_is_not_there_nor_both(sqlite_uri):
    assert called(sqlite_uri, "nowhere").exit_code == 3
    assert called(sqlite_uri, "a", "--project", "b").exit_code == 2


PAGE = Path(__file__).parent.parent.parent / "docs" / "upgrade.md"


def searches(code):
    """Those of the page, for a code: in MLflow's language, and in W&B's."""
    text = PAGE.read_text(encoding="utf-8")
    (mlflow,) = re.findall(r"``(tags\.`health\.codes` LIKE .*?)``", text)
    (wandb,) = re.findall(r'`(\{"summary_metrics\.health/codes".*?\}\})`', text)
    return mlflow.replace("CODE", code), wandb.replace("CODE", code)


def test_the_searches_of_the_page_find_the_runs_of_a_code(sqlite_uri, wandb_server):
    name, (_, sick) = make_runs(sqlite_uri, 2, sick={1})
    of_mlflow, of_wandb = searches("LOS001")
    for run, values in (("good", [2.0 * 0.9**step for step in range(40)]), ("bad", [1.0] * 20 + [float("nan")] * 20)):
        stored = wandb_server.store.new_run("team", "proj", run)
        stored.history = [json.dumps({"_step": step, "loss": one}) for step, one in enumerate(values)]
        stored.state, stored.summary = "finished", {"_step": 39}
    here, there = ["--experiment", name, "--tracking-uri", sqlite_uri], ["--project", "team/proj"]
    for where in (here, there):
        assert CliRunner().invoke(cli, ["sweep", "--since", "9999d", *where]).exit_code == 0
    for where, search, run in ((here, of_mlflow, sick), (there, of_wandb, "bad")):
        done = CliRunner().invoke(cli, ["summary", *where, "--where", search, "--json"])
        assert json.loads(done.stdout)["runs"] == 1, done.output
        assert run in done.stdout
    counted = CliRunner().invoke(cli, ["summary", *here, "--by", "code"])
    assert "LOS001" in counted.stdout
