"""The view of an MLflow experiment: a tag that its pages read, and nothing else."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli

mlflow = pytest.importorskip("mlflow")


def viewed(*arguments):
    return CliRunner().invoke(cli, ["view", *arguments])


def test_a_view_is_one_tag_of_its_experiment_and_goes_again(server_uri):
    client = mlflow.MlflowClient(tracking_uri=server_uri)
    name = f"viewed {time.time_ns()}"
    experiment = client.create_experiment(name, tags={"team": "vision"})
    before = client.get_experiment(experiment).tags
    for _ in range(2):
        made = viewed("--experiment", name, "--tracking-uri", server_uri)
        assert made.stdout == f"{server_uri}/#/experiments/{experiment}/runs?viewStateShareKey=tracker-health\n"
    tags = client.get_experiment(experiment).tags
    assert tags.keys() - before.keys() == {"mlflow.sharedViewState.tracker-health"}
    state = json.loads(tags["mlflow.sharedViewState.tracker-health"])
    assert state["selectedColumns"] == ["tags.`health`"]
    assert len(client.search_runs([experiment], state["searchFilter"])) == 0, "a filter that MLflow takes"
    left = CliRunner().invoke(cli, ["clear", "--experiment", name, "--dry-run", "--tracking-uri", server_uri])
    assert f"the view stays: tracker-health view --experiment '{name}' --remove takes it off" in left.stdout
    said = [viewed("--experiment", name, "--remove", "--tracking-uri", server_uri).stdout for _ in range(2)]
    assert said == ["the view was taken off\n", "there is no view of ours\n"]
    assert client.get_experiment(experiment).tags == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--experiment for MLflow, or --project for W&B"),
        (("--experiment", "a", "--project", "b"), "--experiment for MLflow, or --project for W&B"),
        (("--project", "b", "--remove"), "--remove takes the view of an --experiment off"),
        (("--experiment", "a", "--json"), "use it with --dry-run"),
    ],
)
def test_wrong_usage_is_said(arguments, said):
    done = viewed(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_database_has_no_pages(sqlite_uri):
    done = viewed("--experiment", "local", "--tracking-uri", sqlite_uri)
    assert done.exit_code == 3
    assert "only the pages of an MLflow server have views" in done.stderr
