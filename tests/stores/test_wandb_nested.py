"""Nested metrics of W&B (``log({"train": {"loss": 1}})``), in every form in which a server may give them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import tracker_health as th
from tracker_health.stores.wandb import online_history
from tracker_health.stores.wandb.online_history import metric_counts

pytestmark = pytest.mark.slow

FORMS = ("rows", "dotted", "maps", "parquet")
TRAINING = """
import wandb
run = wandb.init(project="proj", id="nested")
for step in range(120):
    loss = {"loss": 2.0 * 0.97 ** step + 0.1, "deep": {"grad_norm": 1.0}}
    run.log({"train": loss, "val": {"loss": 2.0 * 0.97 ** step + 0.2}, "gpu": 1.0})
run.finish()
"""


@pytest.fixture
def run(wandb_server, tmp_path):
    """A run that the real SDK logged."""
    environment = {**os.environ, **wandb_server.environment(tmp_path), "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, "-c", TRAINING], env=environment, check=True, timeout=120)
    return wandb_server.run("team/proj/nested")


@pytest.mark.parametrize("by_name", [False, True], ids=["all rows", "by name"])
@pytest.mark.exhaustive
def test_every_form_gives_the_same_histories(run, monkeypatch, by_name):
    if by_name:
        monkeypatch.setattr(online_history, "_MANY_VALUES", 0)
    found = {}
    for run.nested in FORMS:
        table = th.read_series("wandb:team/proj/nested")
        assert table.problems == ()
        found[run.nested] = sorted((one.name, one.role, len(one), float(one.values[-1])) for one in table.series)
    assert len({json.dumps(one) for one in found.values()}) == 1, found
    names = {name: (role, points) for name, role, points, _ in found["rows"]}
    assert names["train.loss"] == ("train_loss", 120)
    assert names["val.loss"] == ("val_loss", 120)
    assert names["train.deep.grad_norm"][1] == 120


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.thinned(4)
def test_they_are_judged(run, form):
    run.nested = form
    report = th.check("wandb:team/proj/nested")
    assert (report.verdict, report.errors) == ("pass", ())
    assert {one.role for one in report.series} >= {"train_loss", "val_loss"}


class Facts:
    """What the SDK says of a run."""

    def __init__(self, keys, summary):
        self.history_keys, self.summary_metrics = {"keys": keys}, summary


@pytest.mark.parametrize(
    "keys",
    [
        None,
        {"a": None},
        {"a": {"typeCounts": None}},
        {"a": {"typeCounts": ["map"]}},
        {"a": {"typeCounts": [{"type": "map"}]}},
        {"a": {"typeCounts": [{"type": "map", "count": 3, "keys": []}]}},
        {"a": {"typeCounts": [{"type": "map", "count": 3, "keys": {"b": 1}}]}},
    ],
)
def test_what_is_no_list_of_names_is_none(keys):
    assert metric_counts(Facts(keys, {"a": [1, 2]})) == {}


def test_nesting_without_end_is_not_followed():
    keys = {"typeCounts": [{"type": "number", "count": 1}]}
    for _ in range(3000):
        keys = {"typeCounts": [{"type": "map", "count": 1, "keys": {"a": keys}}]}
    assert metric_counts(Facts({"a": keys}, {})) == {}
