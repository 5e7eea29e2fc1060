"""Experiments of many runs: read together without losing a point, each run written once, whatever comes between."""

import itertools
import json
import math
import shlex
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

import tracker_health as th
from tracker_health.api import runs_of_experiment
from tracker_health.cli import cli
from tracker_health.stores.mlflow import bulk, experiment
from tracker_health.stores.mlflow.histories import read_history
from tracker_health.stores.mlflow.run import MlflowRun
from tracker_health.stores.mlflow.stored_files import artifacts, empty_runs

from .many_runs import make_runs

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.fixture(params=["sqlite_uri", "server_uri"])
def uri(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def asked(monkeypatch):
    """The questions for histories: of how many runs at once each was."""
    sizes = []
    original = bulk._bulk_call

    def spying(client, uri):
        ask = original(client, uri)
        return lambda runs, name: sizes.append(len(runs)) or ask(runs, name)

    monkeypatch.setattr(bulk, "_bulk_call", spying)
    return sizes


def client_of(uri):
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def verdicts(uri, ids):
    client = client_of(uri)
    return Counter(client.get_run(one).data.tags.get("health.verdict") for one in ids)


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one[:3], other[:3], strict=True))


def columns(points):
    return points.steps, points.values, points.times


def shared_histories(uri, name):
    client = client_of(uri)
    histories = bulk.BulkHistories(client, uri)
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    for run in found:
        latest = {point.key: point.step for point in run.data.to_proto().metrics}
        histories.expect(run.info.run_id, latest, annotated=False)
    return histories, client


def test_histories_read_together_are_those_read_one_by_one(uri, asked):
    name, ids = make_runs(uri, 12, sick={3}, metrics=("train/loss", "eval/loss"))
    client = client_of(uri)
    for step, value in enumerate([math.inf, -math.inf, math.nan, 1.0], start=30):
        client.log_metric(ids[5], "train/loss", value, step=step)
    histories, client = shared_histories(uri, name)
    for run, metric in itertools.product(ids, ("train/loss", "eval/loss")):
        assert same(columns(histories.read(run, metric)), columns(read_history(client, run, metric)))
        if metric == "eval/loss":
            histories.forget(run)
    assert asked == [12, 12]


@pytest.mark.parametrize("cap", [29, 30, 31, 61, 100, 359, 360, 361])
@pytest.mark.thinned(4)
def test_an_answer_that_was_cut_off_loses_no_point(sqlite_uri, monkeypatch, cap):
    name, ids = make_runs(sqlite_uri, 12)
    monkeypatch.setattr(bulk, "PAGE_POINTS", cap)
    histories, client = shared_histories(sqlite_uri, name)
    for run in ids:
        assert same(columns(histories.read(run, "train/loss")), columns(read_history(client, run, "train/loss")))
        histories.forget(run)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.exhaustive
def test_one_long_run_is_read_by_itself_and_the_others_together(sqlite_uri, asked, monkeypatch, first):
    name, ids = make_runs(sqlite_uri, 12)
    monkeypatch.setattr(bulk, "PAGE_POINTS", 400)
    client = client_of(sqlite_uri)
    for step in range(30, 500):
        client.log_metric(ids[6], "train/loss", 0.1, step=step)
    histories, client = shared_histories(sqlite_uri, name)
    asked.clear()
    for run in sorted(ids, key=lambda one: (one == ids[6]) is not first):
        assert same(columns(histories.read(run, "train/loss")), columns(read_history(client, run, "train/loss")))
        histories.forget(run)
    assert asked == [12, 11]


def wait_for(histories):
    if (coming := histories._metrics["train/loss"].coming) is not None:
        coming.join()


@pytest.mark.exhaustive
def test_a_server_is_asked_for_the_next_runs_while_these_are_judged(server_uri, asked, monkeypatch):
    monkeypatch.setattr(bulk, "_FIRST_RUNS", 4)
    monkeypatch.setattr(bulk, "MOST_RUNS", 8)
    name, ids = make_runs(server_uri, 40, sick={7, 33})
    histories, client = shared_histories(server_uri, name)
    for place, run in enumerate(ids):
        if place == 1:
            wait_for(histories)
            assert asked == [4, 8], "and nobody has waited for the second"
        if place % 7 != 3:  # the others are forgotten unread, as runs are that have not changed
            points = histories.read(run, "train/loss")
            assert same(columns(points), columns(read_history(client, run, "train/loss")))
        histories.forget(run)
    wait_for(histories)
    metric = histories._metrics["train/loss"]
    assert (metric.points, metric.given) == ({}, set())
    assert max(asked) == 8


@pytest.fixture
def listings(monkeypatch):
    """The places whose artifacts were listed."""
    places = []
    walk, listed = artifacts._walk, empty_runs.EmptyRuns._folders
    monkeypatch.setattr(artifacts, "_walk", lambda *given: places.append("one run") or walk(*given))
    monkeypatch.setattr(empty_runs.EmptyRuns, "_folders", lambda *given: places.append("all runs") or listed(*given))
    return places


@pytest.mark.parametrize("ended", ["before", "just now"])
@pytest.mark.exhaustive
def test_runs_without_artifacts_are_told_by_one_list(server_uri, listings, monkeypatch, tmp_path, ended):
    monkeypatch.setattr(empty_runs, "EMPTY_BEFORE", 4)
    monkeypatch.setattr(empty_runs, "_SKEW_SECONDS", -60 if ended == "before" else 60)
    name, ids = make_runs(server_uri, 12)
    (tmp_path / "console.log").write_text(
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no\n'
    )
    for one in ids[:2]:  # the last of the list
        client_of(server_uri).log_artifact(one, str(tmp_path / "console.log"))
    listed = runs_of_experiment(name, tracking_uri=server_uri)
    together = {one.run: one.report for one in th.check_many(listed, tracking_uri=server_uri, workers=1)}
    assert Counter(listings) == {"one run": 6 if ended == "before" else 12, "all runs": 1}
    assert together == {one: th.check(one, tracking_uri=server_uri) for one in ids}
    assert [one for one in ids if together[one].findings] == ids[:2]


def test_a_list_of_folders_that_is_refused_hides_nothing(server_uri, monkeypatch):
    monkeypatch.setattr(empty_runs, "EMPTY_BEFORE", 1)
    monkeypatch.setattr(empty_runs, "_SKEW_SECONDS", -60)
    monkeypatch.setattr(empty_runs, "repository_of", refused)
    name, _ = make_runs(server_uri, 3)
    listed = runs_of_experiment(name, tracking_uri=server_uri)
    assert all(one.complete for one in th.check_many(listed, tracking_uri=server_uri, workers=1))


def refused(*_):
    raise OSError("403")


@pytest.mark.exhaustive
def test_the_cap_of_a_real_server(server_uri, asked):
    name, ids = make_runs(server_uri, 3, points=8_400)
    histories, client = shared_histories(server_uri, name)
    for run in ids:
        points = histories.read(run, "train/loss")
        assert len(points.steps) == 8_400
        assert same(columns(points), columns(read_history(client, run, "train/loss")))
        histories.forget(run)
    assert asked == [3]


@pytest.mark.parametrize("fault", ["refused", "lacks a run", "lacks the end"])
def test_a_server_without_the_call_is_asked_run_by_run(sqlite_uri, monkeypatch, fault):
    name, ids = make_runs(sqlite_uri, 4)

    def broken(client, uri):
        ask = partial_of(client)

        def answer(runs, metric):
            if fault == "refused":
                raise OSError("404")
            rows = list(ask(runs, metric))
            lost = [row for row in rows if row[0] == ids[0] and (fault == "lacks a run" or row[1] > 20)]
            return [row for row in rows if row not in lost]

        return answer

    monkeypatch.setattr(bulk, "_bulk_call", broken)
    histories, client = shared_histories(sqlite_uri, name)
    for run in ids:
        assert same(columns(histories.read(run, "train/loss")), columns(read_history(client, run, "train/loss")))


def partial_of(client):
    return lambda runs, name: bulk._rows_of_store(client._tracking_client.store, runs, name)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.thinned(4)
def test_a_batch_says_of_each_run_what_it_says_of_one(uri, workers, asked):
    name, ids = make_runs(uri, 12, sick={3, 7})
    listed = runs_of_experiment(name, tracking_uri=uri)
    together = {one.run: one.report for one in th.check_many(listed, tracking_uri=uri, workers=workers)}
    assert together == {one: th.check(one, tracking_uri=uri) for one in ids}
    assert asked == [12]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.thinned(4)
def test_an_interrupted_batch_goes_on_where_it_stood(uri, workers, writes):
    name, ids = make_runs(uri, 12)
    first = th.annotate_many(runs_of_experiment(name, tracking_uri=uri), tracking_uri=uri, workers=workers)
    assert [outcome.status for outcome in itertools.islice(first, 4)] == ["written"] * 4
    first.close()
    assert 4 <= sum(writes.values()) < 12
    rest = list(th.annotate_many(runs_of_experiment(name, tracking_uri=uri), tracking_uri=uri, workers=workers))
    assert {outcome.run for outcome in rest} == set(ids)
    assert writes == Counter(dict.fromkeys(ids, 1))
    assert verdicts(uri, ids) == {"pass": 12}


@pytest.mark.exhaustive
def test_what_is_annotated_costs_no_question_about_the_run(uri, monkeypatch, asked):
    name, _ = make_runs(uri, 8)
    list(th.annotate_many(runs_of_experiment(name, tracking_uri=uri), tracking_uri=uri))
    asked.clear()
    monkeypatch.setattr("tracker_health.stores.mlflow.run._fetched", None)
    monkeypatch.setattr(MlflowRun, "read", None)
    again = list(th.annotate_many(runs_of_experiment(name, tracking_uri=uri), tracking_uri=uri))
    assert [one.status for one in again] == ["unchanged"] * 8
    assert asked == []


@pytest.mark.exhaustive
def test_runs_that_are_annotated_already_are_read_together_where_many_have_to_be(sqlite_uri, asked, monkeypatch):
    monkeypatch.setattr(experiment, "_PAGE", 4)
    name, ids = make_runs(sqlite_uri, 8)
    listed = runs_of_experiment(name, tracking_uri=sqlite_uri)
    list(th.annotate_many(listed, tracking_uri=sqlite_uri, config="dlm"))
    asked.clear()
    list(th.annotate_many(runs_of_experiment(name, tracking_uri=sqlite_uri), tracking_uri=sqlite_uri))
    assert asked == [7]  # the next page is there before this one is done
    asked.clear()
    client_of(sqlite_uri).log_metric(ids[0], "train/loss", 0.05, step=30)  # in the last place
    again = th.annotate_many(runs_of_experiment(name, tracking_uri=sqlite_uri), tracking_uri=sqlite_uri)
    assert Counter(one.status for one in again) == {"unchanged": 7, "written": 1}
    assert asked == []  # the others have not changed


@pytest.mark.exhaustive
def test_a_filter_for_what_we_write_loses_no_run(uri, monkeypatch, writes):
    monkeypatch.setattr(experiment, "_PAGE", 5)
    name, ids = make_runs(uri, 13)
    where = "tags.`health.verdict` IS NULL"
    list(th.annotate_many(runs_of_experiment(name, tracking_uri=uri, where=where), tracking_uri=uri))
    assert writes == Counter(dict.fromkeys(ids, 1))


def test_runs_that_began_at_the_same_moment_are_all_found(sqlite_uri, monkeypatch):
    monkeypatch.setattr(experiment, "_PAGE", 3)
    client = client_of(sqlite_uri)
    one = client.create_experiment("same moment")
    times = [5, 5, 5, 5, 5, 5, 5, 4, 4, 3, 3, 3, 3, 2]
    ids = [client.create_run(one, start_time=time).info.run_id for time in times]
    found = [str(run) for run in runs_of_experiment("same moment", tracking_uri=sqlite_uri)]
    assert sorted(found) == sorted(ids)


@pytest.mark.slow
def test_a_broken_run_in_the_middle(sqlite_uri, tmp_path, writes):
    name, ids = make_runs(sqlite_uri, 7)
    (tmp_path / "optimizer.pt").write_bytes(b"no checkpoint at all")
    client_of(sqlite_uri).log_artifact(ids[3], tmp_path / "optimizer.pt")
    result = CliRunner().invoke(
        cli, ["annotate", "--experiment", name, "--tracking-uri", sqlite_uri, "--json", "--workers", "2"]
    )
    assert result.exit_code == 3
    found = {one["run"]["id"]: one["verdict"] for one in map(json.loads, result.stdout.splitlines())}
    assert found == {**dict.fromkeys(ids, "pass"), ids[3]: "error"}
    assert sum(writes.values()) == 7


def test_the_table_at_the_end(server_uri):
    name, _ = make_runs(server_uri, 8, sick={1, 2})
    of_these = ["--experiment", name, "--tracking-uri", server_uri]
    result = CliRunner().invoke(cli, ["check", *of_these])
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 8
    _, fail, passed, done, *worst, page = result.stderr.splitlines()
    assert fail.split() == ["fail", "2", "non-finite-loss", "2"]
    assert passed.split() == ["pass", "6"]
    assert done.startswith("8 runs: 8 checked; ")
    assert len(worst) == 2
    assert shlex.split(page)[1:] == ["tracker-health", "report", "-o", "failed.html", "--only", "fail", *of_these]


def test_an_experiment_without_runs_is_told(sqlite_uri):
    """A gate whose filter has a slip in it would else be green without a word."""
    name, _ = make_runs(sqlite_uri, 1)
    where = ["--where", "attributes.status = 'FAILED'"]
    for command in ("check", "annotate"):
        result = CliRunner().invoke(cli, [command, "--experiment", name, "--tracking-uri", sqlite_uri, *where])
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "tracker-health: there is no such run: nothing was judged\n"


def test_a_summary_names_the_runs_that_were_asked_for_and_the_page_of_them(sqlite_uri):
    name, ids = make_runs(sqlite_uri, 4, sick={1, 2})
    store = ["--tracking-uri", sqlite_uri]
    swept = CliRunner().invoke(cli, ["sweep", "--experiment", name, *store])
    assert f"report -o failed.html --tracking-uri {sqlite_uri} " in swept.stderr
    assert all(one in swept.stderr for one in ids[1:3])
    whole = CliRunner().invoke(cli, ["summary", "--experiment", name, *store])
    assert f"report -o failed.html --only fail --experiment '{name}' " in whole.stdout
    healthy = CliRunner().invoke(cli, ["summary", "--experiment", name, *store, "--only", "pass", "--json"])
    assert {one["run"]["id"] for one in json.loads(healthy.stdout)["worst"]} == {ids[0], ids[3]}
    assert "2 runs left out by --only pass" in healthy.stderr
