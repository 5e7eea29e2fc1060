"""Runs that left logs of other formats: the same verdict as their twin in JSON lines, and one metric in several logs."""

from __future__ import annotations

import csv
import json
import math
import struct
import subprocess
import sys

import numpy as np
import pytest

import tracker_health
from tracker_health.api import check
from tracker_health.evidence import Part, Request
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import read_files
from tracker_health.stores.folder.directory import DirectoryRun

N = 200


def losses(name):
    rng = np.random.default_rng(0)
    index = np.arange(N)
    healthy = 0.3 + 2.0 * np.exp(-index / 40) + 0.02 * rng.standard_normal(N)
    if name == "diverged":
        healthy[120:] = 7.0 + 0.3 * rng.standard_normal(80)
    elif name == "nan":
        healthy[150:] = math.nan
    elif name == "flat":
        healthy = math.log(4) + 0.02 * rng.standard_normal(N)
    return healthy.round(4)


def as_json_lines(folder, values):
    (folder / "train.jsonl").write_text(
        "".join(
            json.dumps({"step": 10 * at, "loss": value, "lr": 0.1}) + "\n" for at, value in enumerate(values.tolist())
        )
    )


def as_csv(folder, values):
    with (folder / "metrics.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["step", "loss", "lr"], *([10 * at, value, 0.1] for at, value in enumerate(values.tolist()))]
        )


def as_console(folder, values):
    lines = (
        f"2024-05-01 12:00:{at % 60:02d},000 INFO step {10 * at}: loss {value:.4f}, lr 1e-1, {at % 7 + 3}ms\n"
        for at, value in enumerate(values)
    )
    (folder / "console.log").write_text("".join(lines))


def as_bar(folder, values):
    lines = (
        f"\r{at / 2:3.0f}%|{'█' * (at // 20):<10}| {10 * at}/2000 [00:{at % 60:02d}<00:10, 9.1it/s, loss={value:.4f}, lr=0.1]"
        for at, value in enumerate(values)
    )
    (folder / "stderr").write_text("".join(lines))


def as_dictionaries(folder, values):
    lines = (
        f"{{'loss': {value:.4f}, 'learning_rate': 0.1, 'epoch': {at / 50:.2f}}}\n"
        for at, value in enumerate(values, start=1)
    )
    (folder / "output.log").write_text("".join(lines))


def as_events(folder, values, name="events.out.tfevents.1000.host", start=0):
    event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    folder.mkdir(parents=True, exist_ok=True)
    events = [event_pb2.Event(wall_time=1000.0 + 10 * start, file_version="brain.Event:2")]
    for at, value in enumerate(values.tolist(), start=start):
        tags = [Summary.Value(tag="train/loss", simple_value=value), Summary.Value(tag="train/lr", simple_value=0.1)]
        events.append(event_pb2.Event(wall_time=1000.0 + 10 * start + at, step=10 * at, summary=Summary(value=tags)))
    with (folder / name).open("wb") as file:
        for content in (event.SerializeToString() for event in events):
            head = struct.pack("<Q", len(content))
            file.write(
                head + struct.pack("<I", masked_crc32c(head)) + content + struct.pack("<I", masked_crc32c(content))
            )


def as_history(folder, values):
    (folder / "history.json").write_text(
        json.dumps({"step": [10 * at for at in range(N)], "loss": values.tolist(), "lr": [0.1] * N})
    )


FORMS = {one.__name__: one for one in (as_csv, as_console, as_bar, as_dictionaries, as_events, as_history)}


@pytest.mark.parametrize("kind", ["healthy", "diverged", "nan", "flat"])
@pytest.mark.parametrize("form", list(FORMS))
def test_the_same_verdict_as_in_json_lines(form, kind, tmp_path):
    for folder, write in (("twin", as_json_lines), ("run", FORMS[form])):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, losses(kind))
    twin, run = tracker_health.check(tmp_path / "twin"), tracker_health.check(tmp_path / "run")
    assert run.verdict == twin.verdict == ("pass" if kind == "healthy" else "fail" if kind != "flat" else run.verdict)
    assert (run.errors, run.notes) == ((), ())
    ours, theirs = ({one.code: one.verdict for one in report.results} for report in (run, twin))
    assert ours.items() >= theirs.items()
    # What a console log or event files have besides: their end, epochs, times.
    assert set(ours) - set(theirs) <= {"RUN004", "LOS010", "LOS013", "SYS005"}


# One metric in several logs


def read(folder):
    return read_files(DirectoryRun(folder), Request(roles=RolePlan(), parts=frozenset(Part)))


def sources(found, role="train_loss"):
    return [(one.source, len(one)) for one in found.series if one.role == role]


def test_the_most_complete_log_is_judged_and_the_others_agree(tmp_path):
    values = losses("healthy")
    as_json_lines(tmp_path, values)
    as_events(tmp_path / "tb", values[:150])
    (tmp_path / "console.log").write_text(
        "".join(f"step {10 * at} loss={value:.3f}\n" for at, value in enumerate(values) if at % 10 == 0)
    )
    found = read(tmp_path)
    assert sources(found) == [("train.jsonl", 200)]
    assert len(found.notes) == 2
    assert all("agrees with train.jsonl" in note for note in found.notes)
    assert tracker_health.check(tmp_path).notes == tuple(found.notes)


@pytest.mark.parametrize("logs", [("console.log", "train.jsonl"), ("a.jsonl", "metrics.csv")])
def test_logs_that_disagree_are_told(logs, tmp_path):
    values = losses("healthy")
    writers = {"console.log": as_console, "train.jsonl": as_json_lines, "a.jsonl": as_json_lines, "metrics.csv": as_csv}
    writers[logs[0]](tmp_path, values)
    writers[logs[1]](tmp_path, np.where(np.arange(N) == 100, values + 0.5, values))
    (note,) = (note for note in read(tmp_path).notes if "integrity" in note)
    assert "differ at 1 of 200 common steps, first at step 1000" in note


def test_logs_with_other_axes_are_not_compared(tmp_path):
    as_json_lines(tmp_path, losses("healthy"))
    (tmp_path / "history.json").write_text(json.dumps({"loss": [5.0, 4.0, 3.0] * 5}))
    found = read(tmp_path)
    assert (found.notes, len(sources(found))) == ([], 2)


def test_a_trainer_state_beside_its_console(tmp_path):
    values = losses("healthy")
    history = [{"step": 10 * at, "loss": value} for at, value in enumerate(values.tolist(), start=1)]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": history, "global_step": 2000, "max_steps": 2000})
    )
    as_dictionaries(tmp_path, values)
    found = read(tmp_path)
    assert ("trainer_state.json", 200) in sources(found)
    assert tracker_health.check(tmp_path).verdict == "pass"


def test_event_files_of_restarts_are_one_history(tmp_path):
    values = losses("healthy")
    as_events(tmp_path, values[:120], "events.out.tfevents.1000.host")
    as_events(tmp_path, values[100:], "events.out.tfevents.2000.other", start=100)
    (series,) = (one for one in read(tmp_path).series if one.role == "train_loss")
    assert series.source == "events.out.tfevents.1000.host and 1 more"
    assert series.clean().values.tolist() == pytest.approx(values.tolist())
    assert len(series) == N


def test_a_console_log_is_read_where_the_histories_come_from_elsewhere(tmp_path):
    (tmp_path / "output.log").write_text("step 1 loss=2\nTraceback (most recent call last):\nMemoryError: no room\n")
    found = read_files(DirectoryRun(tmp_path), Request(roles=RolePlan(), parts=frozenset(Part)), logs=False)
    assert found.series == []
    assert [one.cause for one in found.text_log.troubles] == ["out of memory"]


def _rows(first, last):
    return "".join(f"step {step} loss={3 - step / 100}\n" for step in range(first, last))


def test_the_log_of_the_last_attempt_counts(tmp_path):
    died = "Traceback (most recent call last):\nMemoryError: no room\n"
    (tmp_path / "slurm-100.out").write_text(_rows(0, 60) + died)
    (tmp_path / "slurm-101.out").write_text(_rows(50, 100) + "Training complete\n")
    assert tracker_health.check(tmp_path).verdict == "pass"


OF_LOGGERS = {
    "wandb": "%(asctime)s %(levelname)-7s %(threadName)-10s:%(process)d [%(filename)s:%(funcName)s():%(lineno)s] %(message)s",
    "swanlab.sdk": "%(asctime)s | %(levelname)s | %(name)s:%(funcName)s:%(lineno)d - %(message)s",
    "mlflow.server": "%(asctime)s %(levelname)s %(name)s: %(message)s",
    "trainer": "%(asctime)s %(levelname)s %(name)s: %(message)s",
}


def _logged_error(folder, logger, end=""):
    """What a program prints whose logger of this name logs an error that was caught, and that then ends so."""
    script = f"""
import logging
logging.basicConfig(format={OF_LOGGERS[logger]!r}, level=logging.INFO)
def start():
    try:
        try:
            import no_such_module
        except ImportError as error:
            raise RuntimeError("please install it") from error
    except RuntimeError:
        logging.getLogger({logger!r}).exception("the start of the board failed")
start()
{end}
"""
    (folder / "train.py").write_text(script)
    return subprocess.run([sys.executable, folder / "train.py"], capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("logger", ["wandb", "swanlab.sdk", "mlflow.server"])
def test_an_error_in_a_trackers_own_log_ends_no_run(tmp_path, logger):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "console.log").write_text(_rows(0, 100) + "Training complete\n")
    (tmp_path / "logs" / "debug.log").write_text(_logged_error(tmp_path, logger))
    assert "Traceback" in (tmp_path / "logs" / "debug.log").read_text()
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.ended) == ("pass", "finished")


@pytest.mark.parametrize(
    ("logger", "end"), [("trainer", ""), ("mlflow.server", "logging.getLogger('mlflow').warning('old')\n1 / 0")]
)
def test_an_error_of_the_program_counts_also_behind_a_trackers_record(tmp_path, logger, end):
    (tmp_path / "console.log").write_text(_rows(0, 60) + _logged_error(tmp_path, logger, end))
    assert tracker_health.check(tmp_path).ended == "failed"


def test_a_process_that_died_is_not_hidden_by_those_beside_it(tmp_path):
    died = "Traceback (most recent call last):\nMemoryError: no room\n"
    (tmp_path / "rank0.log").write_text(_rows(0, 62))
    (tmp_path / "rank1.log").write_text(_rows(0, 60) + died)
    assert tracker_health.check(tmp_path).verdict == "fail"


def test_event_files_need_no_package(tmp_path, monkeypatch):
    as_events(tmp_path, losses("healthy"))
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.errors) == ("pass", ())


def test_a_log_that_is_not_understood_is_named(tmp_path):
    rows = "".join(f"{at} {3 / (at + 1):.4f} {at / 9:.3f} {at * 2:.2f}\n" for at in range(60))
    (tmp_path / "train.log").write_text(f"hello\n{rows}")
    report = tracker_health.check(tmp_path)
    assert report.verdict in ("skip", "error")
    assert any("train.log: 59 lines with numbers were not understood" in note for note in report.notes)


def test_event_files_of_several_launches_beside_a_trainer_state(tmp_path):
    values = losses("healthy")
    history = [{"step": 10 * at, "loss": value} for at, value in enumerate(values.tolist())]
    (tmp_path / "trainer_state.json").write_text(
        json.dumps({"log_history": history, "global_step": 1990, "max_steps": 1990})
    )
    as_events(tmp_path / "runs" / "May01_host", values + 1.0)
    as_events(tmp_path / "runs" / "May02_host", values)
    report = tracker_health.check(tmp_path)
    assert (report.verdict, report.errors) == ("pass", ())
    assert "several unrelated logs" in report.notes[0]
    (tmp_path / "trainer_state.json").unlink()
    assert tracker_health.check(tmp_path).verdict == "error"


def test_a_log_beside_others_that_nothing_asks_for_is_named(tmp_path):
    rows = [{"step": step, "loss": 2.0 * 0.95**step + 0.1} for step in range(60)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "metrics.csv").write_text("step,wobble,fnord\n" + "".join(f"{step},1,2\n" for step in range(60)))
    report = check(tmp_path)
    assert report.verdict == "pass"
    assert report.notes == ("metrics.csv: no rule asks for what was logged there: wobble, fnord",)


def test_a_checkpoint_does_not_vouch_for_a_history_that_is_not_understood(tmp_path):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(200):
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    assert check(tmp_path).verdict == "pass"
    rows = [{"step": step, "wobble": 2.0 * 0.95**step} for step in range(60)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check(tmp_path)
    assert report.verdict == "skip"
    assert report.summary.endswith("wobble falls as a loss does: set roles.train_loss to it")
    assert report.summary.count("set roles.") == 1


def test_a_log_of_nothing_but_its_end_is_judged_by_that(tmp_path):
    tail = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nRuntimeError: CUDA out of memory.\n'
    (tmp_path / "train.log").write_text(f"[2026-11-26 10:00:00] INFO loading\n{tail}")
    report = tracker_health.annotate(tmp_path).report
    assert (str(report.verdict), report.errors, report.diagnosis.cause) == ("fail", (), "out-of-memory")
    assert (tmp_path / "health" / "report.json").exists()
