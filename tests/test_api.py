import os
from dataclasses import replace
from pathlib import Path

import pytest

import tracker_health as th
from tracker_health.errors import RunNotFound
from tracker_health.runs.lookup import open_run


def test_check_gives_a_report(write_log, healthy_losses):
    report = th.check(write_log(healthy_losses))
    assert report.verdict is th.Verdict.PASS
    assert report.tool.preset == "default"
    assert [use.role for use in report.series] == ["train_loss"]
    assert report.fingerprint


def test_check_takes_a_preset_name_or_a_configuration(write_log, healthy_losses):
    run = write_log(healthy_losses)
    assert th.check(run, config="dlm").tool.preset == "dlm"
    with pytest.raises(th.ConfigError, match="sigmas"):
        th.check(run, config=replace(th.preset("default"), thresholds={"diverged": {"sigmas": -1}}))


def test_the_same_run_gives_the_same_report(write_log, healthy_losses):
    run = write_log(healthy_losses)
    assert th.check(run) == th.check(run)


def test_annotate_many_reports_each_run(write_log, healthy_losses, tmp_path):
    runs = [tmp_path / "missing", write_log(healthy_losses)]
    failed, written = th.annotate_many(runs)
    assert (failed.status, written.status) == ("failed", "written")
    assert isinstance(failed.error, RunNotFound)
    assert failed.report.verdict is th.Verdict.ERROR
    assert not failed.complete
    assert written.complete
    assert written.annotations.verdict is th.Verdict.PASS


def test_annotate_raises_what_annotate_many_reports(tmp_path):
    with pytest.raises(RunNotFound, match="no folder"):
        th.annotate(tmp_path / "missing")


@pytest.mark.parametrize("run", ["./nowhere", "a b", "runs/x/y", "", "../../etcetera", "x" * 5000, "nul\x00l"])
def test_what_cannot_be_a_run_id_is_a_missing_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunNotFound) as caught:
        open_run(run)
    assert "no folder" in str(caught.value)


@pytest.mark.parametrize("kind", [str, Path])
def test_no_outcome_holds_the_secrets_of_a_url(kind):
    (outcome,) = th.check_many([kind("https://me:s3cr3t@host.example/x?key=s3cr3t")])
    assert isinstance(outcome.error, RunNotFound)
    assert outcome.run == outcome.report.run.id == outcome.report.errors[0].source == "https://host.example/x"
    assert "s3cr3t" not in repr(outcome)


@pytest.mark.parametrize(
    "url",
    [
        "http://host:5000/#/experiments/1",
        "http://host:5000/x#/experiments/1/runs/a",
        "s3://bucket/run",
        "mlflow:http://u@h/1",
    ],
)
def test_a_url_is_told_to_be_one(url):
    with pytest.raises(RunNotFound, match="is not the address of an MLflow run page"):
        open_run(url)


def test_a_folder_may_look_like_a_url(write_log, healthy_losses, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "https:").mkdir()
    write_log(healthy_losses).rename(tmp_path / "https:" / "run")
    assert th.check("https://run").verdict is th.Verdict.PASS


def test_what_is_neither_file_nor_folder_is_not_a_run(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunNotFound, match="is not a folder"):
        open_run(tmp_path / "pipe")


def test_what_could_not_be_read_is_tried_again_the_next_time(write_log, healthy_losses):
    run = write_log(healthy_losses)
    log = run / "train_log.jsonl"
    whole = log.read_bytes()
    status = log.stat()
    log.write_bytes(b"x" * len(whole))
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert th.annotate(run).report.verdict is th.Verdict.ERROR
    # As a permission that came back, or a server that answers again: nothing about the file looks different.
    log.write_bytes(whole)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert th.annotate(run).report.verdict is th.Verdict.PASS
    assert th.annotate(run).status == "unchanged"
