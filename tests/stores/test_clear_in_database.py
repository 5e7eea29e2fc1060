"""What ``clear`` leaves in MLflow's database, looked at without MLflow."""

import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

import tracker_health
from tracker_health.cli import cli

MEASURED = tracker_health.Config(metrics=True)
TABLES = {
    "runs": "run_uuid",
    "tags": "run_uuid",
    "params": "run_uuid",
    "metrics": "run_uuid",
    "latest_metrics": "run_uuid",
}


def rows(uri, run):
    with closing(sqlite3.connect(uri.removeprefix("sqlite:///"))) as database:
        return {
            table: sorted(database.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,)).fetchall(), key=repr)
            for table, key in TABLES.items()
        }


@pytest.fixture
def annotated(sqlite_uri):
    """A run, its rows before, and its rows after it was annotated."""
    client = MlflowClient(tracking_uri=sqlite_uri)
    run = client.create_run(client.get_experiment_by_name("local").experiment_id).info.run_id
    metrics = [Metric("loss", 2.0 - step * 0.01, 1000 + step, step) for step in range(100)]
    metrics.append(Metric("health/heart_rate", 60.0, 1000, 7))
    tags = [RunTag("mlflow.note.content", "My own words."), RunTag("health.patient", "17")]
    client.log_batch(run, metrics=metrics, params=[Param("max_steps", "99")], tags=tags)
    client.set_terminated(run)
    before = rows(sqlite_uri, run)
    assert tracker_health.annotate(f"mlflow:{run}", tracking_uri=sqlite_uri, config=MEASURED).status == "written"
    return run, before, rows(sqlite_uri, run)


def test_every_row_of_the_owners_is_as_it_was(annotated, sqlite_uri):
    run, before, between = annotated
    assert between != before
    cleared = tracker_health.clear_annotations(f"mlflow:{run}", tracking_uri=sqlite_uri)
    after = rows(sqlite_uri, run)
    assert cleared.found
    assert cleared.kept == ()
    assert (after["runs"], after["tags"], after["params"]) == (before["runs"], before["tags"], before["params"])
    for table in ("metrics", "latest_metrics"):
        assert set(before[table]) <= set(after[table])
        assert {row[0] for row in set(after[table]) - set(before[table])} == set(cleared.hidden)


def test_our_metrics_are_gone_from_filters(annotated, sqlite_uri):
    run, _, _ = annotated
    client = MlflowClient(tracking_uri=sqlite_uri)
    experiment = client.get_run(run).info.experiment_id

    def found(query):
        return run in [one.info.run_id for one in client.search_runs([experiment], query)]

    assert found('metrics."health/severity" = 0')
    tracker_health.clear_annotations(f"mlflow:{run}", tracking_uri=sqlite_uri)
    assert not found('metrics."health/severity" >= 0')
    assert not found("tags.`health.verdict` = 'pass'")
    assert found('metrics."health/heart_rate" = 60')
    assert [entry.path for entry in client.list_artifacts(run) if entry.path.startswith("health/")] == []


def test_the_help_says_which_filters_still_find_what_is_hidden(annotated, sqlite_uri):
    run, _, _ = annotated
    client = MlflowClient(tracking_uri=sqlite_uri)
    tracker_health.clear_annotations(f"mlflow:{run}", tracking_uri=sqlite_uri)
    query = 'metrics."health/severity" != 5'
    assert run in [one.info.run_id for one in client.search_runs([client.get_run(run).info.experiment_id], query)]
    shown = " ".join(CliRunner().invoke(cli, ["clear", "--help"]).output.split())
    assert "Only filters with != in them still match it" in shown
