"""The gate before a registered model: versions and logged models of a real MLflow server, in a process of its own."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import closing
from urllib.parse import quote

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import annotate, clear_annotations
from tracker_health.cli import cli
from tracker_health.config import preset
from tracker_health.fleet.gate import GateOptions, Watch
from tracker_health.judge.gate_decision import GateDecision
from tracker_health.runs.lookup import open_run
from tracker_health.words.acknowledgements import acknowledgement

from .conftest import ADMIN_PASSWORD, READER_PASSWORD
from .many_runs import make_runs

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pictures")]  # real servers

FINITE, NAN = "finite", "nan"


def client_of(uri):
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def weights_in(folder, kind=FINITE):
    """A folder with the weights of a model: heavy-tailed, as trained ones are."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    draws = np.random.default_rng(7).standard_t(4, (64, 32)).astype(np.float32) * 0.05
    if kind == NAN:
        draws[3, 5] = np.nan
    save_file({"layer.weight": draws, "layer.bias": draws[0].copy()}, folder / "model.safetensors")
    return folder


def registered(uri, tmp_path, *, sick=False, end="FINISHED", weights=FINITE, logged=False, artifacts=None):
    """A run that logged a model, and the version of a registered model that came of it: both ids."""
    client = client_of(uri)
    _, (run,) = make_runs(uri, 1, sick={0} if sick else (), end=None if logged else end, artifacts=artifacts)
    name = f"net {uuid.uuid4().hex[:8]}"
    client.create_registered_model(name)
    if logged:
        record = client.get_run(run)
        model = client.create_logged_model(record.info.experiment_id, "net", source_run_id=run)
        client.log_model_artifacts(model.model_id, str(weights_in(tmp_path / name, weights)))
        client.finalize_logged_model(model.model_id, "READY")
        client.set_terminated(run, status=end)
        client.create_model_version(name, f"models:/{model.model_id}", run_id=run, model_id=model.model_id)
        return run, name, model.model_id
    source = f"{client.get_run(run).info.artifact_uri}/model"
    if weights:
        client.log_artifacts(run, str(weights_in(tmp_path / name, weights)), "model")
    client.create_model_version(name, source, run_id=run)
    return run, name, ""


def gating(uri, *arguments):
    return CliRunner().invoke(cli, ["gate", "--tracking-uri", uri, *arguments])


def answer_of(uri, *arguments):
    done = gating(uri, "--format", "json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def tags_of(uri, name, version="1"):
    return client_of(uri).get_model_version(name, version).tags


def test_a_healthy_model_may_go_on_and_bears_the_verdict(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path)
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"], answer["verdict"]) == (0, "go on", "pass")
    assert (answer["files"], answer["tags"]) == ("read", "written")
    ran = {one["code"] for one in answer["files_report"]["results"]}
    assert "WGT001" in ran
    tags = tags_of(server_uri, name)
    assert tags["health.verdict"] == "pass"
    assert "health.cause" not in tags
    assert answer["url"] == f"{server_uri}/#/models/{quote(name)}/versions/1"
    again = gating(server_uri, answer["url"])
    assert (again.exit_code, again.stdout.splitlines()[0].partition("  ")[0]) == (0, f"models:/{name}/1: go on (PASS)")


def test_a_bad_run_keeps_its_model_back(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path, sick=True)
    client = client_of(server_uri)
    client.set_registered_model_alias(name, "champion", "1")
    code, answer = answer_of(server_uri, f"models:/{name}@champion")
    assert (code, answer["answer"], answer["verdict"]) == (1, "bad model", "fail")
    tags = tags_of(server_uri, name)
    assert tags["health.verdict"] == "fail"
    assert tags.get("health.cause", "") == (answer["cause"] or "")
    assert client.get_model_version_by_alias(name, "champion").version == "1"


@pytest.mark.parametrize("logged", [False, True], ids=["of a run", "logged model"])
def test_bad_weights_keep_a_model_back_though_its_run_looks_well(server_uri, tmp_path, logged):
    run, name, model = registered(server_uri, tmp_path, weights=NAN, logged=logged)
    # What else the run has logged is of no matter to the version, and newer checkpoints of it least of all.
    client_of(server_uri).log_artifacts(run, str(weights_in(tmp_path / "later")), "later")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"], answer["verdict"]) == (1, "bad model", "fail")
    assert [one["code"] for one in answer["files_report"]["results"] if one["verdict"] == "fail"] == ["WGT001"]
    if logged:
        code, answer = answer_of(server_uri, f"models:/{model}")
        assert (code, answer["model"]) == (1, f"models:/{model}")
        assert client_of(server_uri).get_logged_model(model).tags["health.verdict"] == "fail"


def test_a_version_without_a_checkpoint_is_judged_by_its_run(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path, weights="")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (0, "go on")
    assert answer["files"] == "there is no checkpoint among the registered files"


def test_a_pickled_model_is_never_opened(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path, weights="")
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "MLmodel").write_text("flavors: {}\n")
    (folder / "model.pkl").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    client_of(server_uri).log_artifacts(run, str(folder), "model")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert code == 0
    assert "model.pkl is a pickled model" in answer["files"]


def test_a_checkpoint_that_cannot_be_read_is_no_pass(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path, weights="")
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    client_of(server_uri).log_artifacts(run, str(folder), "model")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (3, "could not be judged")
    assert "model.safetensors" in answer["reason"]
    assert answer_of(server_uri, "--on-error", "pass", f"models:/{name}/1")[0] == 0


def test_a_running_run_is_unfinished_unless_that_is_allowed(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path, end=None)
    # It logs now: a run that was silent for hours would count as dead.
    client_of(server_uri).log_metric(run, "train/loss", 0.2, step=31)
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (4, "unfinished run")
    assert "health.verdict" not in tags_of(server_uri, name)
    assert answer_of(server_uri, "--on-error", "pass", f"models:/{name}/1")[0] == 4
    assert answer_of(server_uri, "--allow-unfinished", f"models:/{name}/1")[0] == 0


def test_a_deleted_run_is_still_judged(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path)
    client = client_of(server_uri)
    client.delete_run(run)
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (0, "go on")
    assert "the run is deleted" in answer["notes"]


def test_a_run_that_is_gone_for_good_cannot_be_judged_and_its_weights_can_still_be_bad(sqlite_uri, tmp_path):
    for weights, expected in ((FINITE, 3), (NAN, 1)):
        run, name, _ = registered(sqlite_uri, tmp_path, weights=weights, artifacts=str(tmp_path / "kept"))
        client = client_of(sqlite_uri)
        client.delete_run(run)
        client._tracking_client.store._hard_delete_run(run)  # as `mlflow gc` does
        code, answer = answer_of(sqlite_uri, f"models:/{name}/1")
        assert code == expected
        assert answer["files"] == "read"
        assert ("the run that made" in answer["reason"]) == (expected == 3)
    client.create_model_version(name, str(tmp_path / "kept"))
    code, answer = answer_of(sqlite_uri, f"models:/{name}/2")
    assert "names no run that made it" in answer["reason"]


def test_a_version_that_was_judged_under_another_policy_is_judged_by_the_one_in_force(
    server_uri, tmp_path, monkeypatch
):
    run, name, _ = registered(server_uri, tmp_path, sick=True)
    policy = tmp_path / "policy.toml"
    policy.write_text('ignore = ["LOS001"]\nlocked = ["ignore"]\n')
    monkeypatch.setenv("TRACKER_HEALTH_POLICY", str(policy))
    annotate(run, tracking_uri=server_uri)
    lenient = answer_of(server_uri, f"models:/{name}/1")[1]
    by_policy = tags_of(server_uri, name)["health.settings"]
    monkeypatch.delenv("TRACKER_HEALTH_POLICY")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["verdict"]) == (1, "fail")
    assert any("was given under another policy" in note for note in answer["notes"])
    assert not any("another policy" in note for note in lenient["notes"])
    assert tags_of(server_uri, name)["health.settings"] != by_policy


def test_what_is_somebody_elses_stays(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path)
    client = client_of(server_uri)
    client.set_model_version_tag(name, "1", "health.verdict", "of the patient")
    code, answer = answer_of(server_uri, f"models:/{name}/1")
    assert (code, answer["tags"]) == (0, "it has a health.verdict that is not ours")
    assert tags_of(server_uri, name) == {"health.verdict": "of the patient"}


def test_a_warning_passes_unless_it_is_asked_for_and_several_models_have_the_worst_code(server_uri, tmp_path):
    _, good, _ = registered(server_uri, tmp_path)
    _, bad, _ = registered(server_uri, tmp_path, sick=True)
    models = [f"models:/{good}/1", f"models:/{bad}/1", f"models:/{good}/77"]
    done = gating(server_uri, "--format", "github", *models)
    assert done.exit_code == 1
    levels = [line.partition(" ")[0] for line in done.stdout.splitlines()]
    assert levels == ["::notice", "::error", "::error"]
    assert "there is no such model" in done.stderr
    assert gating(server_uri, "-q", models[0], models[2]).exit_code == 3


def test_the_card_has_five_lines(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path)
    lines = gating(server_uri, "--format", "markdown", f"models:/{name}/1").stdout.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("**Training health: PASS** · go on · ")


@pytest.mark.parametrize("text", ["models:/net", "models:/net/Production", "models:/net/1/2", "models:", "abc", ""])
def test_what_names_no_version_is_told_what_would(sqlite_uri, text):
    done = gating(sqlite_uri, text)
    assert done.exit_code == 3
    assert "models:/NAME/VERSION" in done.stderr


def test_a_model_that_takes_too_long_could_not_be_judged(server_uri, tmp_path, monkeypatch):
    from tracker_health.stores.mlflow import registry

    _, name, _ = registered(server_uri, tmp_path)
    monkeypatch.setattr(registry.ModelVersion, "run", lambda _: time.sleep(5))
    code, answer = answer_of(server_uri, "--timeout", "0.5s", f"models:/{name}/1")
    assert (code, answer["answer"]) == (3, "could not be judged")
    assert "within 0.5 seconds" in answer["reason"]


def test_a_reader_is_answered_and_writes_nothing(auth_server_uri, tmp_path, monkeypatch):
    def become(user, password):
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)

    become("admin", ADMIN_PASSWORD)
    _, name, _ = registered(auth_server_uri, tmp_path, sick=True)
    become("reader", READER_PASSWORD)
    code, answer = answer_of(auth_server_uri, f"models:/{name}/1")
    assert (code, answer["answer"]) == (1, "bad model")
    assert "no permission" in answer["tags"]
    assert "EDIT permission" in answer["tags"]
    assert answer_of(auth_server_uri, "--no-tags", f"models:/{name}/1")[1]["tags"] == "as they were"
    become("admin", ADMIN_PASSWORD)
    assert tags_of(auth_server_uri, name) == {}


def test_a_watch_answers_once_for_each_new_version(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path)
    watch = Watch(options=GateOptions(config=preset("default"), tracking_uri=server_uri), names=(name,))
    assert [one.gate.answer for one in watch.answer_new()] == [GateDecision.GO_ON]
    assert list(watch.answer_new()) == []
    client = client_of(server_uri)
    client.create_model_version(name, f"{client.get_run(run).info.artifact_uri}/model", run_id=run)
    assert [one.model for one in watch.answer_new()] == [f"models:/{name}/2"]
    # One that begins now sees by the tags what was answered, and asks again under other settings.
    assert list(Watch(options=watch.options, names=(name,)).answer_new()) == []
    other = GateOptions(config=preset("strict"), tracking_uri=server_uri)
    assert len(list(Watch(options=other, names=(name,)).answer_new())) == 2


def test_a_watch_without_permission_to_tag_remembers(auth_server_uri, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", ADMIN_PASSWORD)
    _, name, _ = registered(auth_server_uri, tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", READER_PASSWORD)
    watch = Watch(options=GateOptions(config=preset("default"), tracking_uri=auth_server_uri), names=(name,))
    (first,) = watch.answer_new()
    assert (first.gate.answer, first.written) == (GateDecision.GO_ON, False)
    assert "no permission" in first.unwritten
    assert list(watch.answer_new()) == []


@pytest.mark.exhaustive
def test_what_was_acknowledged_may_pass_where_that_is_asked_for_and_is_recorded(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path, sick=True)
    model = f"models:/{name}/1"
    _, answer = answer_of(server_uri, model)
    annotate(run, tracking_uri=server_uri)
    failed = [one["code"] for one in answer["run_report"]["results"] if one["verdict"] == "fail"]
    with closing(open_run(run, tracking_uri=server_uri)) as opened:
        entry = acknowledgement(
            id="0123456789abcdef",
            who="ana",
            when=time.time(),
            because="the validation is what counts",
            codes=failed,
            cause=answer["cause"] or "",
            evidence=opened.evidence(),
        )
        opened.acknowledge(entry)
    assert answer_of(server_uri, model)[0] == 1
    code, answer = answer_of(server_uri, "--accept-ack", model)
    assert (code, answer["verdict"], answer["accepted"]) == (0, "fail", failed)
    assert "acknowledged by ana: the validation is what counts" in answer["notes"]
    tags = tags_of(server_uri, name)
    assert (tags["health.verdict"], tags["health.accepted"]) == ("fail", ",".join(failed))
    assert answer_of(server_uri, model)[0] == 1
    assert "health.accepted" not in tags_of(server_uri, name)


def test_in_shadow_nothing_is_kept_back_and_one_tag_says_what_would_have_been(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path, sick=True)
    code, answer = answer_of(server_uri, "--shadow", f"models:/{name}/1")
    assert (code, answer["answer"]) == (0, "bad model")
    assert tags_of(server_uri, name) == {"health.shadow": "fail"}


def described(uri, name):
    return client_of(uri).get_model_version(name, "1").description


def test_the_registry_has_the_sentence_and_the_report_in_the_description_below_the_owners_words(server_uri, tmp_path):
    run, name, _ = registered(server_uri, tmp_path, sick=True)
    client_of(server_uri).update_model_version(name, "1", "My own words.")
    annotate(run, tracking_uri=server_uri)
    for _ in range(2):
        assert gating(server_uri, f"models:/{name}/1").exit_code == 1
        own, _, ours = described(server_uri, name).partition("\n\n<!-- tracker-health:begin -->\n")
        assert own == "My own words."
        assert "**Training health of this version: FAIL**: non-finite-loss (certain)" in ours.replace("\\", "")
        assert f"/runs/{run})\n<!-- tracker-health:end -->" in ours, "without a page of the report, the run's"
    clear_annotations(f"models:/{name}/1", tracking_uri=server_uri)
    assert described(server_uri, name) == "My own words."


def test_no_words_for_a_good_model_nor_where_no_descriptions_are_wanted(server_uri, tmp_path):
    _, good, _ = registered(server_uri, tmp_path)
    _, bad, _ = registered(server_uri, tmp_path, sick=True)
    gating(server_uri, f"models:/{good}/1")
    gating(server_uri, f"models:/{bad}/1", "--set", "description=never")
    assert [described(server_uri, name) or "" for name in (good, bad)] == ["", ""]
    assert tags_of(server_uri, bad)["health.verdict"] == "fail"


def test_a_block_that_was_copied_from_a_run_is_its_owners(server_uri, tmp_path):
    _, name, _ = registered(server_uri, tmp_path, sick=True)
    copied = "my words\n\n<!-- tracker-health:begin -->\n**Training health: FAIL**\n<!-- tracker-health:end -->\nmore"
    client_of(server_uri).update_model_version(name, "1", copied)
    for _ in range(2):
        assert gating(server_uri, f"models:/{name}/1").exit_code == 1
        assert described(server_uri, name) == copied
    assert clear_annotations(f"models:/{name}/1", tracking_uri=server_uri).found
    assert described(server_uri, name) == copied
