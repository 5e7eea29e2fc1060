"""Configuration for some runs only, by what the store says about them."""

import json

from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.entities import Metric

from tracker_health.cli import cli

OVERRIDES = """
[[overrides]]
match = "experiment:rl-*"
ignore = ["LOS005"]

[[overrides]]
match = "tag:stage=draft"
ignore = ["LOS001"]
"""


def test_overrides_by_experiment_and_tag(sqlite_uri, tmp_path, monkeypatch):
    (tmp_path / "tracker-health.toml").write_text(OVERRIDES)
    monkeypatch.chdir(tmp_path)
    client = MlflowClient(tracking_uri=sqlite_uri)
    codes = {}
    for experiment, tags in (("rl-cartpole", {}), ("supervised", {}), ("supervised", {"stage": "draft"})):
        found = client.get_experiment_by_name(experiment)
        identity = found.experiment_id if found else client.create_experiment(experiment)
        run = client.create_run(identity, tags=tags).info.run_id
        client.log_batch(run, metrics=[Metric("loss", 2.0, step, step) for step in range(30)])
        result = CliRunner().invoke(cli, ["check", "--json", run, "--tracking-uri", sqlite_uri])
        report = json.loads(result.stdout)
        codes[experiment, *tags] = {one["code"] for one in report["results"]}
    assert "LOS005" not in codes[("rl-cartpole",)]
    assert "LOS001" in codes[("rl-cartpole",)]
    assert {"LOS001", "LOS005"} <= codes[("supervised",)]
    assert "LOS001" not in codes["supervised", "stage"]
