"""Python has what the commands have: each function returns the document that the command prints with --json."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import tracker_health
from tracker_health.cli import cli

from .many_runs import make_runs

pytestmark = pytest.mark.usefixtures("no_pictures")


def printed(*arguments, uri):
    done = CliRunner().invoke(
        cli,
        [*arguments, "--tracking-uri", uri, "--json", *([] if arguments[0] in ("summary", "ack") else ["--all"])],
        catch_exceptions=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def without_times(document):
    return {key: one for key, one in document.items() if key not in ("when", "now", "counted")}


@pytest.fixture(scope="module")
def swept(sqlite_uri):
    name, runs = make_runs(sqlite_uri, 7, sick=(0,))
    documents = list(tracker_health.sweep(experiments=[name], since="9999d", tracking_uri=sqlite_uri))
    return name, runs, documents


def test_a_sweep_gives_the_reports_that_check_prints(swept, sqlite_uri):
    _name, runs, documents = swept
    assert {one["run"]["id"] for one in documents} == set(runs)
    (same,) = printed("check", runs[0], uri=sqlite_uri)
    (own,) = [one for one in documents if one["run"]["id"] == runs[0]]
    assert (own["verdict"], own["diagnosis"]) == (same["verdict"], same["diagnosis"])
    assert list(tracker_health.sweep(experiments=[swept[0]], since="9999d", tracking_uri=sqlite_uri)) == []


def test_a_summary(swept, sqlite_uri):
    name = swept[0]
    own = tracker_health.summary(experiment=name, by=["cause"], since="9999d", tracking_uri=sqlite_uri)
    (same,) = printed("summary", "--experiment", name, "--by", "cause", "--since", "9999d", uri=sqlite_uri)
    assert without_times(own) == without_times(same)
    assert tracker_health.summary(experiment=name, since="1s", tracking_uri=sqlite_uri) != own


def test_an_answer(swept, sqlite_uri):
    sick = swept[1][0]
    own = tracker_health.acknowledge(sick, because="known", who="ana", lasts="14d", tracking_uri=sqlite_uri)
    assert own["open"] == []
    (same,) = printed("ack", sick, "--because", "known", "--who", "ana", "--for", "14d", uri=sqlite_uri)
    assert (own.keys(), own["codes"], own["run"]) == (same.keys(), same["codes"], same["run"])
    assert tracker_health.acknowledge(sick, who="ana", undo=True, tracking_uri=sqlite_uri)["open"]
    with pytest.raises(tracker_health.ConfigError, match="needs a reason"):
        tracker_health.acknowledge(sick, tracking_uri=sqlite_uri)


def test_a_baseline(swept, sqlite_uri, tmp_path):
    name, runs, _ = swept
    own = tracker_health.baseline(*runs[1:], path=tmp_path / "own.json", tracking_uri=sqlite_uri)
    assert json.loads((tmp_path / "own.json").read_text()) == own
    command = [
        "baseline",
        "save",
        f"experiment:{name}",
        "-o",
        str(tmp_path / "same.json"),
        "--tracking-uri",
        sqlite_uri,
    ]
    assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    same = json.loads((tmp_path / "same.json").read_text())
    assert (own["low"], own["high"], set(own["runs"])) == (same["low"], same["high"], set(same["runs"]))


def test_a_gate_answers_for_what_cannot_be_judged(sqlite_uri):
    own = tracker_health.gate("models:/nothing/1", tags=False, tracking_uri=sqlite_uri)
    done = CliRunner().invoke(
        cli, ["gate", "models:/nothing/1", "--no-tags", "--tracking-uri", sqlite_uri, "--format", "json"]
    )
    assert json.loads(done.stdout) == own


def test_a_shell_completes_experiments(sqlite_uri, monkeypatch):
    from click.shell_completion import ShellComplete

    name, _runs = make_runs(sqlite_uri, 0)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    for name_of in ("TIMEOUT", "MAX_RETRIES"):  # which completing changes for its own short process
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name_of}", "1")
    complete = ShellComplete(cli, {}, "tracker-health", "_X").get_completions
    assert name in {one.value for one in complete(["check", "--experiment"], name[:6])}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////nowhere/mlflow.db")
    assert complete(["check", "--experiment"], name[:6]) == []
