"""W&B's local runs: what the real SDK leaves is judged, annotated as its own reader sees it, and given back unchanged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.api import annotate, annotate_many, check, clear_annotations
from tracker_health.config import Config
from tracker_health.errors import RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Part, Request, StepUnit
from tracker_health.judge.annotations import PENDING
from tracker_health.judge.engine import needs_of
from tracker_health.readers.files import record_log
from tracker_health.roles import NOTHING_READ, RolePlan
from tracker_health.runs.lookup import open_run
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.wandb import alive, local, log_writer
from tracker_health.stores.wandb.local import LocalRun
from tracker_health.stores.wandb.transaction_log import read_log
from tracker_health.testing.stores.contract import FAIL, PASS, SKIP, request_for

from . import wandb_logs, wandb_runs
from .test_killed_annotators import check_and_repair, kill_in_the_midst, new_run, wholes_of
from .test_wandb_local_contract import LocalHarness

pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _in_no_container(monkeypatch):
    """The tests may well run in one."""
    monkeypatch.setattr(alive, "_sees_every_process", lambda: True)


@pytest.fixture
def runs(offline_runs, tmp_path):
    """Copies of the runs, to be written to."""
    return {name: Path(shutil.copytree(run, tmp_path / name / run.name)) for name, run in offline_runs.items()}


@pytest.fixture
def small(tmp_path):
    """A run made by hand."""

    def make(name="offline-run-1-abc123", losses=(3.0, 2.0, 1.0), *, ended=True, more=(), **parts):
        rows = [wandb_logs.history(step, {"loss": loss}) for step, loss in enumerate(losses)]
        records = [wandb_logs.run_record(**parts), *rows, *more, *([wandb_logs.exit_record()] if ended else [])]
        log = wandb_logs.write_log(tmp_path / "wandb" / name / "run-abc123.wandb", records)
        (log.parent / "files").mkdir()
        return log.parent

    return make


def state_of(run):
    """Every file of a run with its bytes."""
    return {path.relative_to(run): path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}


def theirs_of(run):
    """What the reference reader prints of the owner's records, without the places where they stand in the log."""
    told = {id(one): {key: value for key, value in one.items() if key != "num"} for one in wandb_runs.inspected(run)}
    return [one for one in told.values() if "health" not in json.dumps(one)]


# Judging and annotating real runs


@pytest.mark.skipif(version("wandb").startswith("0.1"), reason="an SDK before 0.20 has no reader of logs")
@pytest.mark.parametrize(
    ("name", "verdict"), [("healthy", "pass"), ("odd", "fail"), ("empty", "skip"), ("killed", "warn")]
)
@pytest.mark.exhaustive
def test_the_verdict_is_seen_by_wandbs_own_reader(runs, name, verdict):
    run = runs[name]
    before, records = state_of(run), theirs_of(run)
    summary_before = wandb_runs.inspected(run, "--summary")
    outcome = annotate(run)
    assert outcome.report.verdict == verdict, outcome.report.summary
    assert outcome.status == "written"
    summary = wandb_runs.inspected(run, "--summary")
    assert summary["summary"]["health/verdict"] == verdict
    assert summary["summary"]["health/digest"] == outcome.annotations.digest
    assert [tag for tag in summary["tags"] if tag.startswith("health:")] == (
        [] if verdict == "skip" else [f"health:{verdict}"]
    )
    unchanged = ("config", "exit_code", "step", "notes", "name", "state", "start_time", "run_id", "last_write")
    assert {key: summary.get(key) for key in unchanged} == {key: summary_before.get(key) for key in unchanged}
    assert theirs_of(run) == records
    assert annotate(run).status == "unchanged"
    assert clear_annotations(run).found
    assert state_of(run) == before
    assert not clear_annotations(run).found


@pytest.mark.slow
def test_what_is_judged_of_a_run(runs):
    report = check(runs["odd"])
    assert report.run.store == "wandb"
    (finding,) = [one for one in report.results if one.code == "LOS001"]
    assert finding.verdict == "fail"
    assert finding.measured["nonfinite"] == 9
    assert report.run.id == str(runs["odd"])


def test_of_a_loss_that_was_logged_in_terms_the_sum_is_judged(tmp_path):
    rows = [
        wandb_logs.history(step, {"train/box_loss": 2 * 0.95**step + 0.1, "train/cls_loss": 0.95**step})
        for step in range(60)
    ]
    folder = tmp_path / "wandb" / "offline-run-1-abc123"
    wandb_logs.write_log(folder / "run-abc123.wandb", [wandb_logs.run_record(), *rows, wandb_logs.exit_record()])
    (folder / "files").mkdir()
    report = check(folder)
    assert report.verdict == "pass"
    assert {one.name: one.role for one in report.series} == {
        "train/box_loss": "loss_part",
        "train/cls_loss": "loss_part",
        "train/box_loss + train/cls_loss": "train_loss",
    }


def test_a_run_without_history_is_skipped_with_the_reason(runs):
    report = check(runs["empty"])
    assert report.verdict == "skip"
    assert any("no history" in one.reason for one in report.skipped)


@pytest.mark.slow
def test_nothing_of_wandb_is_imported(runs):
    code = "import sys, tracker_health as t; t.annotate(sys.argv[1]); assert not {'wandb', 'mlflow', 'torch', 'google.protobuf'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(runs["healthy"])], check=True, timeout=120)


def test_a_log_is_named_as_well_as_its_folder(runs):
    log = wandb_runs.log_in(runs["healthy"])
    assert check(log).verdict == check(runs["healthy"]).verdict == "pass"
    (runs["healthy"].parent / "latest-run").symlink_to(runs["healthy"].name)
    assert annotate(runs["healthy"].parent / "latest-run").status == "written"


def test_config_tags_and_project(runs):
    with closing(open_run(runs["healthy"])) as run:
        info = run.read(request_for("train_loss")).info
        assert (info.params["lr"], info.params["opt.name"], info.status) == ("0.2", "adam", "FINISHED")
        assert set(info.metric_names) == {"loss", "train.acc", "gpu"}
        assert run.traits() == {"project": "p", "tag:mine": ""}
        assert run.ref.name == "healthy"
    with closing(open_run(runs["odd"])) as run:
        assert run.read(request_for("train_loss")).info.status == "FAILED"


def test_our_tag_is_no_trait_and_our_summary_no_metric(runs):
    annotate(runs["healthy"])
    with closing(open_run(runs["healthy"])) as run:
        assert run.traits() == {"project": "p", "tag:mine": ""}
        assert not any("health" in name for name in run.read(request_for("train_loss")).info.metric_names)


def test_steps_are_the_trainers_where_it_counts_them(small, tmp_path):
    rows = [wandb_logs.history(step, {"train/loss": 1.0, "train/global_step": 10 * step}) for step in range(5)]
    log = wandb_logs.write_log(
        tmp_path / "r" / "run-x.wandb", [wandb_logs.run_record(), *rows, wandb_logs.exit_record()]
    )
    with closing(open_run(log)) as run:
        (series,) = run.read(request_for("train_loss")).series
    assert series.steps.tolist() == [0, 10, 20, 30, 40]
    assert series.step_unit is StepUnit.OPTIMIZER_STEP


def test_the_plan_is_found_behind_thousands_of_classes(small):
    classes = {str(number): f"class {number}" for number in range(3000)}
    run = small(config={"id2label": classes, "label2id": classes, "max_steps": 500, "lr": 0.1})
    with closing(open_run(run)) as opened:
        params = opened.read(request_for("train_loss")).info.params
    assert (params["max_steps"], params["lr"]) == ("500", "0.1")


@pytest.mark.exhaustive
def test_a_long_run_costs_about_a_second_and_its_log_is_read_once(small, monkeypatch):
    """Twenty metrics and ten thousand rows; the bound on the processor's time is a wide one."""
    run = small()
    values = {f"metric{number}": 1.5 * number for number in range(19)}
    rows = [wandb_logs.history(step, {**values, "loss": 3.0 / (step + 1)}) for step in range(10_000)]
    log = wandb_logs.write_log(run / "run-abc123.wandb", [wandb_logs.run_record(), *rows, wandb_logs.exit_record()])
    with closing(open_run(run)) as opened:
        start = time.process_time()
        evidence = opened.read(Request(roles=RolePlan(every=True), parts=frozenset()))
        assert time.process_time() - start < 10
    assert {len(series) for series in evidence.series} == {10_000}
    assert len(evidence.series) == 20
    read = []
    monkeypatch.setattr(local, "read_log", lambda path: read.append(path) or read_log(path))
    assert annotate(run).status == "written"
    assert read == [log]
    assert annotate(run).status == "unchanged"


# What was measured of the machine


def busy(at, used=2.0, leaks=0.0):
    held = 6e9 * (1 + leaks * at)
    return wandb_logs.stats_record(
        1.7e9 + 15 * at, gpu__0__gpu=used, gpu__0__memoryAllocatedBytes=held, cpu=50.0, disk__usagePercent=3.0
    )


def test_the_device_and_its_memory_are_judged(small):
    idle = check(small(more=[busy(at) for at in range(60)]))
    assert [(one.code, one.kind) for one in idle.findings] == [("SYS001", "idle")]
    leaks = check(small("offline-run-2-abc123", more=[busy(at, 80.0, 0.02) for at in range(60)]))
    assert [one.code for one in leaks.findings] == ["SYS002"]
    assert leaks.findings[0].about == ("system.gpu.0.memoryAllocatedBytes",)


def test_of_weeks_of_the_machine_few_records_are_kept(small):
    log = read_log(wandb_runs.log_in(small(more=[busy(at) for at in range(9_000)])))
    used, held = log.machine.series(needs_of(Config()).roles, "log")
    assert (used.role, held.role) == ("accelerator_utilisation", "memory")
    assert 1_000 < len(used) == len(held) < 4_000
    assert used.times[-1] - used.times[0] > 0.99 * 15 * 9_000


# How a run ended


def ended(run):
    report = check(run)
    return str(report.verdict), report.ended, report.ended_by


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ((wandb_logs.exit_record(0),), ("skip", "finished")),
        ((wandb_logs.exit_record(3),), ("fail", "failed")),
        ((wandb_logs.exit_record(255),), ("warn", "interrupted")),
        ((wandb_logs.exit_record(137),), ("fail", "killed")),
        ((wandb_logs.preempting_record(), wandb_logs.exit_record(1)), ("warn", "preempted")),
        ((wandb_logs.preempting_record(), wandb_logs.exit_record(0)), ("skip", "finished")),
        ((wandb_logs.preempting_record(),), ("warn", "preempted")),
        ((), ("warn", "silent")),
    ],
)
def test_by_the_log(small, more, how):
    assert ended(small(ended=False, more=more))[:2] == how


CONSOLE = [
    "epoch 1\n",
    "Traceback (most recent call last):\n",
    "",
    '  File "train.py", line 6, in <module>\n    step()\n',
]


@pytest.mark.parametrize(
    ("last", "how"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory.\n", "out-of-memory"),
        ("Exception: Loss scale at its minimum\n", "failed"),
    ],
)
def test_by_a_console_in_the_log(small, last, how):
    printed = [wandb_logs.output_record(text) for text in (*CONSOLE, last, "")]
    verdict, found, by = ended(small(ended=False, more=(*printed, wandb_logs.exit_record(1))))
    assert (verdict, found) == ("fail", how)
    assert "run-abc123.wandb ends with" in by
    run = small("offline-run-2-abc123", ended=False, more=(*printed, wandb_logs.exit_record(0)))
    assert ended(run)[:2] == ("skip", "finished"), "what left with code 0 caught it"


def test_what_a_run_that_goes_on_has_printed_did_not_end_it(small):
    printed = [wandb_logs.output_record(text) for text in (*CONSOLE, "ConnectionError: upload failed\n", "")]
    run = small(ended=False, more=printed)
    with wandb_runs.log_in(run).open("r+b"):
        assert ended(run)[1] == "running"
    assert ended(run)[1] == "failed"


def test_an_error_after_the_run_said_that_it_may_be_preempted(small):
    said = wandb_logs.preempting_record()
    printed = [wandb_logs.output_record(text) for text in (*CONSOLE, "ValueError: mine\n", "")]
    assert ended(small(ended=False, more=(said, *printed, wandb_logs.exit_record(1))))[1] == "failed"
    went_on = [wandb_logs.output_record(f"saved shard {shard}\n") for shard in range(9)]
    run = small("offline-run-2-abc123", ended=False, more=(said, *printed, *went_on, wandb_logs.exit_record(1)))
    assert ended(run)[1] == "preempted"


def test_a_console_in_a_file_comes_before_one_in_the_log(small):
    printed = [wandb_logs.output_record(text) for text in (*CONSOLE, "MemoryError\n")]
    run = small(ended=False, more=(*printed, wandb_logs.exit_record(1)))
    (run / "files" / "output.log").write_text("".join(CONSOLE) + "KeyboardInterrupt\n")
    assert ended(run)[1] == "interrupted"


@pytest.mark.parametrize("record", [wandb_logs.stats_record, wandb_logs.output_record_at, wandb_logs.start_record])
@pytest.mark.parametrize("file_age", [0.0, 8 * 3600.0, 200 * 86_400.0])
def test_a_log_without_an_exit_is_as_old_as_its_newest_record(small, monkeypatch, record, file_age):
    """The date of a file says when it was copied."""
    monkeypatch.setattr(alive, "_sees_every_process", lambda: False)
    verdicts = []
    for at, hours in enumerate((0.1, 7.0)):
        run = small(f"offline-run-{at}-abc123", ended=False, more=[record(time.time() - hours * 3600)])
        os.utime(wandb_runs.log_in(run), (time.time() - file_age,) * 2)
        verdicts.append(ended(run))
    assert verdicts[0][1] == "running"
    assert verdicts[1][:2] == ("warn", "silent")
    assert verdicts[1][2] == "W&B's log has no exit record, and nothing has come from it for 7.0 hours"


def test_a_copy_of_a_log_that_is_still_written_has_not_ended(small, tmp_path, monkeypatch):
    """No process writes the copy, whose log stands still."""
    monkeypatch.setattr(alive, "_sees_every_process", lambda: True)
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "vm")
    run = small(ended=False, more=[wandb_logs.stats_record(time.time() - 7 * 3600)])
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    assert ended(copy)[1] == "silent"
    with wandb_runs.log_in(run).open("ab"):
        assert ended(copy)[1] == "running"
        assert any("is a copy" in note for note in check(copy).notes)
        assert annotate(copy).status == "written"
        assert ended(run)[1] == "running"


def test_a_record_of_no_time_that_can_be_leaves_the_files_date(small, monkeypatch):
    monkeypatch.setattr(alive, "_sees_every_process", lambda: False)
    run = small(ended=False, more=[wandb_logs.stats_record(1e15), wandb_logs.stats_record(-5)])
    assert read_log(wandb_runs.log_in(run)).heard == pytest.approx(1.7e9, abs=1e5)


@pytest.mark.skipif(not os.environ.get("OLD_WANDB"), reason="make old-wandb has interpreters with old SDKs")
@pytest.mark.parametrize("python", os.environ.get("OLD_WANDB", "").split())
def test_what_old_sdks_leave_of_a_run_that_died(tmp_path, python):
    """What it printed is in the log alone."""
    script = """
import wandb
run = wandb.init(project="p", name="died", mode="offline")
for step in range(60):
    run.log({"loss": 2.3 * 0.95 ** step})
    print(f"step {step}")
raise RuntimeError("CUDA error: out of memory")
"""
    environment = {**os.environ, "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}
    done = subprocess.run([python, "-c", script], env=environment, capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert ended(log.parent)[:2] == ("fail", "out-of-memory")
    assert annotate(log.parent).status == "written"


# Runs that did not end


def test_a_killed_run_is_told_and_keeps_its_state(runs):
    report = annotate(runs["killed"]).report
    assert any("no exit" in note for note in report.notes)
    with closing(open_run(runs["killed"])) as run:
        assert run.read(request_for("train_loss")).info.status in ("GONE", "OPEN")
    assert wandb_runs.inspected(runs["killed"], "--summary")["exit_code"] is None


@pytest.mark.slow
@pytest.mark.parametrize("cut", [1, 9, 40])
@pytest.mark.thinned(3)
def test_a_log_cut_off_in_a_record_is_annotated_and_given_back(runs, cut):
    log = wandb_runs.log_in(runs["killed"])
    log.write_bytes(log.read_bytes()[: read_log(log).cut - cut])
    before = state_of(runs["killed"])
    rows = read_log(log).rows
    outcome = annotate(runs["killed"])
    assert any("cut off" in note for note in outcome.report.notes)
    assert read_log(log).rows == rows
    assert wandb_runs.inspected(log, "--summary")["summary"]["health/verdict"] == "warn"  # silent, and nothing says why
    assert annotate(runs["killed"]).status == "unchanged"
    clear_annotations(runs["killed"])
    assert state_of(runs["killed"]) == before


@pytest.mark.parametrize("place", [40_000, 70_000])
@pytest.mark.thinned(2)
@pytest.mark.slow
def test_a_damaged_block_is_told_and_stays_as_it_is(runs, place):
    log = wandb_runs.log_in(runs["killed"])
    content = bytearray(log.read_bytes())
    content[place] ^= 0x10
    log.write_bytes(content)
    outcome = annotate(runs["killed"])
    assert [error.message for error in outcome.report.errors] == [
        "1 place in it could not be read; the other records were read"
    ]
    assert "wandb sync stops at the damage" in outcome.omitted[0]
    cut = read_log(log).cut
    assert cut > place
    assert log.read_bytes()[:cut] == content[:cut]
    assert wandb_runs.inspected(log, "--summary")["summary"]["health/verdict"] == str(outcome.report.verdict)
    clear_annotations(runs["killed"])
    assert log.read_bytes() == content


LIVE = """
import sys, wandb
run = wandb.init(project="p")
for step in range(600):
    run.log({"loss": 1 / (step + 1)})
print("logged", flush=True)
sys.stdin.read()
run.finish()
"""


@pytest.mark.exhaustive
def test_a_live_run_gets_files_only_until_it_ends(tmp_path):
    command, environment = [sys.executable, "-c", LIVE], wandb_runs.environment()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes) as process:
        try:
            assert process.stdout.readline() == "logged\n"
            (run,) = (tmp_path / "wandb").glob("offline-run-*")
            log = wandb_runs.log_in(run)
            wait_for(lambda: log.stat().st_size > 10_000)
            inode = log.stat().st_ino
            outcome = annotate(run)
            assert "still running" in outcome.omitted[0]
            assert any("it is still running" in note for note in outcome.report.notes)
            assert log.stat().st_ino == inode
            assert (run / "files" / "health" / "report.json").exists()
        finally:
            process.communicate(timeout=60)
    outcome = annotate(run)
    assert (outcome.status, outcome.omitted) == ("written", ())
    summary = wandb_runs.inspected(run, "--summary")
    assert (summary["summary"]["health/verdict"], summary["step"], summary["exit_code"]) == (
        str(outcome.report.verdict),
        599,
        0,
    )


def wait_for(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come")


def test_a_run_of_another_machine_without_exit_is_not_taken_for_dead(small, monkeypatch):
    run = small(ended=False)
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "another")
    before = wandb_runs.log_in(run).read_bytes()
    outcome = annotate(run)
    assert "cannot be seen from here" in outcome.omitted[0]
    assert wandb_runs.log_in(run).read_bytes() == before
    assert annotate(run).status == "unchanged"
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "vm")
    outcome = annotate(run)
    assert outcome.omitted == ()
    assert read_log(wandb_runs.log_in(run)).own["health/verdict"] == str(outcome.report.verdict) == "warn"


@pytest.mark.parametrize("elsewhere", ["a container", "another machine"])
def test_a_run_that_cannot_be_seen_is_dead_after_a_week_of_silence(small, monkeypatch, elsewhere):
    run = small(ended=False)
    log = run / "run-abc123.wandb"
    monkeypatch.setattr(alive.socket, "gethostname", lambda: "vm" if elsewhere == "a container" else "another")
    monkeypatch.setattr(alive, "_sees_every_process", lambda: elsewhere != "a container")
    for days, written in ((0, False), (6, False), (8, True)):
        at = time.time() - days * 24 * 3600
        os.utime(log, (at, at))
        annotate(run)
        assert read_log(log).bears_ours is written


# What is refused


def refuse_synced(run, log):
    (run / "run-abc123.wandb.synced").touch()


def refuse_symlink(run, log):
    log.rename(run / "elsewhere")
    log.symlink_to(run / "elsewhere")


def refuse_hardlink(run, log):
    os.link(log, run.parent / "another-name")


def refuse_tagged(run, log):
    described = wandb_logs.run_record(tags=["mine", "health:pass"])
    wandb_logs.write_log(log, [described, wandb_logs.history(0, {"loss": 1.0}), wandb_logs.exit_record()])


def refuse_headless(run, log):
    wandb_logs.write_log(log, [wandb_logs.history(0, {"loss": 1.0}), wandb_logs.exit_record()])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (refuse_synced, "synced already: annotate the run on its server, wandb:ENTITY/p/abc123"),
        (refuse_symlink, "symbolic link"),
        (refuse_hardlink, "hard link"),
        (refuse_headless, "no record of a run"),
        (refuse_tagged, "has the tag health:pass already"),
    ],
)
def test_a_log_that_must_not_be_replaced_is_left_alone_and_the_files_are_written(small, spoil, said):
    run = small()
    log = run / "run-abc123.wandb"
    spoil(run, log)
    before = log.read_bytes()
    outcome = annotate(run)
    (omitted,) = outcome.omitted
    assert said in omitted
    assert any(said in note for note in outcome.report.notes)
    assert log.read_bytes() == before
    assert (run / "files" / "health" / "annotation.json").exists()
    assert annotate(run).status == "unchanged"
    assert clear_annotations(run).found
    assert not (run / "files" / "health").exists()


def test_what_no_longer_hinders_is_made_up_for(small):
    run = small()
    refuse_synced(run, None)
    annotate(run)
    (run / "run-abc123.wandb.synced").unlink()
    assert annotate(run).omitted == ()
    assert read_log(run / "run-abc123.wandb").bears_ours


def test_a_verdict_in_a_log_that_was_synced_since_is_not_replaced_by_half(small):
    run = small()
    write_on(run, FAIL)
    refuse_synced(run, None)
    before = state_of(run)
    with pytest.raises(WriteError, match="earlier verdict"):
        write_on(run, PASS)
    assert state_of(run) == before


def write_on(run, annotations):
    with closing(open_run(run)) as opened:
        opened.write(annotations)


@pytest.mark.parametrize("content", [b":W&B\xe1\xbe\x01" + bytes(100), b"something else"])
def test_an_unknown_version_is_an_error_and_left_alone(small, content):
    run = small()
    (run / "run-abc123.wandb").write_bytes(content)
    outcome = annotate(run / "run-abc123.wandb")
    assert outcome.report.verdict == "error"
    assert (run / "run-abc123.wandb").read_bytes() == content
    assert len(outcome.omitted) == 1


def test_an_empty_log_is_a_skip_with_the_reason(small):
    run = small()
    (run / "run-abc123.wandb").write_bytes(b"")
    outcome = annotate(run)
    assert outcome.report.verdict == "skip"
    assert not outcome.report.errors
    assert any("0 bytes" in one.reason for one in outcome.report.skipped)
    assert "0 bytes" in outcome.omitted[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_log_that_may_not_be_read_is_told_as_such(small):
    run = small()
    (run / "run-abc123.wandb").chmod(0)
    with pytest.raises(StoreRefused, match=r"run-abc123\.wandb: no permission to read it"):
        check(run)


FULL = """
import resource, signal, sys
from tracker_health.api import annotate_many
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
(outcome,) = annotate_many([sys.argv[1]])
print(outcome.status, outcome.error)
"""


@pytest.mark.slow
def test_where_there_is_no_room_for_the_new_log_the_old_one_stays(small):
    """A limit on the size of files, in the place of a full disk: the copy of the log ends in its middle."""
    run = small(config={f"key{number}": "x" * 1000 for number in range(3000)})
    log = run / "run-abc123.wandb"
    before = log.read_bytes()
    command = [sys.executable, "-c", FULL, str(run), str(len(before) - 100)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("failed ")
    assert "File too large" in done.stdout
    assert log.read_bytes() == before
    assert sorted(path.name for path in run.iterdir()) == ["files", "run-abc123.wandb"]
    assert annotate(run).status == "written"
    clear_annotations(run)
    assert log.read_bytes() == before
    assert not list((run / "files").iterdir())


def test_several_logs_in_one_folder_share_no_files(small):
    run = small()
    shutil.copy(run / "run-abc123.wandb", run / "run-other.wandb")
    assert check(run / "run-abc123.wandb").verdict is not None
    with pytest.raises(WriteError, match=r"run-other\.wandb"):
        annotate(run / "run-abc123.wandb")
    with pytest.raises(RunNotFound, match="2 W&B runs"):
        check(run)


def test_a_log_that_grows_meanwhile_is_left_as_it_is(small, monkeypatch):
    run = small()
    log = run / "run-abc123.wandb"
    grown = log.read_bytes() + b"more"
    dress = log_writer._dress
    monkeypatch.setattr(log_writer, "_dress", lambda *arguments: (dress(*arguments), log.write_bytes(grown)))
    with pytest.raises(WriteError, match="changed while"):
        annotate(run)
    assert log.read_bytes() == grown
    assert not list(run.glob(log_writer.LEFTOVER))
    with closing(open_run(run)) as opened:
        assert opened.recorded().digest == PENDING


@pytest.mark.slow
def test_a_log_that_goes_on_for_long_behind_its_exit_is_left_alone(small, monkeypatch):
    monkeypatch.setattr(log_writer, "_MAX_TAIL_BYTES", 2 * 2**20)
    run = small()
    log = run / "run-abc123.wandb"
    more = wandb_logs.record(tbrecord={"log_dir": "x" * 2**20}).SerializeToString()
    contents = [content for _, content in wandb_logs.contents_of(log.read_bytes())]
    log.write_bytes(record_log.HEADER + record_log.framed([*contents, *[more] * 60], len(record_log.HEADER)))
    before = log.read_bytes()
    tracemalloc.start()
    with pytest.raises(WriteError, match="too much behind the exit"):
        write_on(run, FAIL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 2**20
    assert log.read_bytes() == before


def test_a_log_that_does_not_read_back_is_not_used(small, monkeypatch):
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    framed = log_writer.framed
    monkeypatch.setattr(log_writer, "framed", lambda contents, start: framed(contents[:-1], start))
    with pytest.raises(WriteError, match="read back"):
        annotate(run)
    assert (run / "run-abc123.wandb").read_bytes() == before


# Only files


def test_sidecar_leaves_the_log_alone(small):
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    outcome = annotate(run, sidecar=True)
    assert outcome.omitted == ("the log (only files were asked for)",)
    assert (run / "run-abc123.wandb").read_bytes() == before
    assert annotate(run, sidecar=True).status == "unchanged"
    assert annotate(run).omitted == ()
    assert read_log(run / "run-abc123.wandb").bears_ours
    with pytest.raises(WriteError, match="earlier verdict"):
        annotate(run, sidecar=True, force=True)


def test_sidecar_of_anything_but_a_folder_is_refused(small):
    with pytest.raises(RunNotFound, match="only files"):
        annotate("0" * 32, sidecar=True)


# Again, and taken off


def test_the_backup_is_the_log_as_it_was(small):
    run = small(tags=["mine", "health:good"])
    log = run / "run-abc123.wandb"
    before, status = log.read_bytes(), log.stat()
    for one in (FAIL, PASS, SKIP, FAIL):
        write_on(run, one)
    assert (run / "run-abc123.wandb.before-tracker-health").read_bytes() == before
    assert not list((run / "run-abc123.wandb.before-tracker-health").parent.glob("*.tmp"))
    assert (log.stat().st_mtime_ns, log.stat().st_mode) == (status.st_mtime_ns, status.st_mode)
    assert read_log(log).own_tags == ("mine", "health:good", "health:fail")
    clear_annotations(run)
    assert log.read_bytes() == before
    assert sorted(path.name for path in run.iterdir()) == ["files", "run-abc123.wandb"]


def test_all_tags_of_its_owner_stay_byte_for_byte(small):
    tags = ["x" * 64, "é" * 64, "\x1b[2J\n\u202e", "", "Health:fail", "health:", *map(str, range(12_000))]
    run = small(tags=tags)
    write_on(run, FAIL)
    first, *_, ours, _, _, _ = wandb_logs.records_in(run / "run-abc123.wandb")
    assert [*first.run.tags, "health:fail"] == [*tags, "health:fail"] == list(ours.run.tags)


def test_without_its_backup_a_log_is_cleared_as_well(small):
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    write_on(run, FAIL)
    (run / "run-abc123.wandb.before-tracker-health").unlink()
    clear_annotations(run)
    assert (run / "run-abc123.wandb").read_bytes() == before


@pytest.mark.parametrize("content", [wandb_logs.HEADER, b"", b"half", wandb_logs.log_of([b"other"])])
def test_a_backup_of_something_else_is_not_put_back(small, content):
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    write_on(run, FAIL)
    (run / "run-abc123.wandb.before-tracker-health").write_bytes(content)
    clear_annotations(run)
    assert (run / "run-abc123.wandb").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("ours", [False, True])
def test_a_log_that_is_damaged_later_does_not_cost_its_backup(small, ours):
    """The damage may hit our own records: then there seem to be none."""
    run = small(losses=[3.0 / (step + 1) for step in range(2000)])
    log = run / "run-abc123.wandb"
    before = log.read_bytes()
    write_on(run, FAIL)
    content = bytearray(log.read_bytes())
    content[read_log(log).cut + 20 if ours else 40_000] ^= 1
    log.write_bytes(content)
    assert read_log(log).bears_ours is not ours
    (outcome,) = annotate_many([run], force=True)
    said = outcome.omitted[0] if ours else str(outcome.error)
    assert "damaged since: clear puts back run-abc123.wandb.before-tracker-health" in said
    assert (run / "run-abc123.wandb.before-tracker-health").read_bytes() == before
    assert log.read_bytes() == content
    clear_annotations(run)
    assert log.read_bytes() == before
    assert sorted(path.name for path in run.iterdir()) == ["files", "run-abc123.wandb"]


def test_a_file_system_without_hard_links_gets_a_copy(small, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    write_on(run, FAIL)
    assert (run / "run-abc123.wandb.before-tracker-health").read_bytes() == before


def test_ours_in_the_log_alone_is_unfinished_and_can_be_cleared(small):
    run = small()
    before = state_of(run)
    for repair in (clear_annotations, lambda run: (write_on(run, PASS), clear_annotations(run))):
        write_on(run, FAIL)
        shutil.rmtree(run / "files" / "health")
        with closing(open_run(run)) as opened:
            assert opened.recorded().digest == PENDING
        repair(run)
        assert state_of(run) == before


# Media


@pytest.mark.slow
def test_page_and_picture_lie_where_the_summary_says(runs):
    run = runs["healthy"]
    outcome = annotate(run, config=Config(pages="always"))
    summary = wandb_runs.inspected(run, "--summary")["summary"]
    page, picture = summary["health/report"], summary["health/picture"]
    assert (page["_type"], picture["_type"], picture["format"]) == ("html-file", "image-file", "png")
    for entry, name in ((page, "report.html"), (picture, "loss.png")):
        content = (run / "files" / entry["path"]).read_bytes()
        assert content == outcome.annotations.files[name]
        assert (entry["size"], entry["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    image = pytest.importorskip("PIL.Image")
    with image.open(run / "files" / picture["path"]) as opened:
        assert opened.size == (picture["width"], picture["height"])


def test_media_that_no_longer_hold_go_and_those_of_their_owner_stay(small):
    run = small()
    media = run / "files" / "media" / "images"
    media.mkdir(parents=True)
    (media / "mine.png").write_bytes(b"mine")
    before = state_of(run)
    write_on(run, FAIL)
    assert (media / "health" / "loss.png").read_bytes() == b"picture"
    write_on(run, PASS)
    assert not (media / "health").exists()
    write_on(run, FAIL)
    clear_annotations(run)
    assert state_of(run) == before
    assert not (media / "health").exists()


@pytest.mark.parametrize("taken", ["file", "folder", "link to a folder"])
def test_something_in_the_place_of_the_media_is_in_the_way(small, tmp_path, taken):
    run = small()
    media = run / "files" / "media"
    (tmp_path / "elsewhere").mkdir()
    if taken == "file":
        (media / "images" / "health").mkdir(parents=True)
        (media / "images" / "health" / "loss.png").write_bytes(b"mine")
    elif taken == "folder":
        (media / "images" / "health" / "loss.png").mkdir(parents=True)
    else:
        media.symlink_to(tmp_path / "elsewhere")
    before = state_of(run)
    with pytest.raises(WriteError, match=r"loss\.png exists and is not ours; nothing was written"):
        write_on(run, FAIL)
    assert state_of(run) == before
    write_on(run, PASS)  # without a picture
    write_on(run, SKIP)
    clear_annotations(run)
    assert state_of(run) == before
    assert list((tmp_path / "elsewhere").iterdir()) == []
    with closing(open_run(run, sidecar=True)) as opened:
        opened.write(FAIL)  # which needs none of these places


def test_a_log_put_back_by_hand_is_annotated_again(small):
    run = small()
    before = (run / "run-abc123.wandb").read_bytes()
    first = annotate(run)
    (run / "run-abc123.wandb").write_bytes(before)
    assert annotate(run).status == "written"
    assert read_log(run / "run-abc123.wandb").own["health/digest"] == first.annotations.digest


RECORDS = st.lists(
    st.binary(max_size=300).map(lambda content: wandb_logs.record(tbrecord={"log_dir": content.hex()})), max_size=6
)


@settings(deadline=None, max_examples=draws(60))
@given(RECORDS, RECORDS, st.booleans(), st.sampled_from([FAIL, PASS, SKIP]), st.integers(0, 40_000))
def test_any_log_bears_ours_and_is_given_back(before, after, ended, annotations, filler):
    import tempfile

    filling = wandb_logs.record(tbrecord={"log_dir": "x" * filler})
    records = [wandb_logs.run_record(), filling, *before, *([wandb_logs.exit_record(), *after] if ended else [])]
    with tempfile.TemporaryDirectory() as folder:
        path = wandb_logs.write_log(Path(folder, "run-a.wandb"), records)
        original = path.read_bytes()
        marks = {**annotations.metrics, "verdict": str(annotations.verdict), "digest": annotations.digest}
        ours = log_writer.our_records(read_log(path), marks, annotations.files)
        log_writer.replace_ours(path, read_log(path), ours)
        found = [content for _, content in wandb_logs.contents_of(path.read_bytes())]
        place = 2 + len(before)
        assert found[place : place + len(ours)] == ours
        assert wandb_logs.log_of(found[:place] + found[place + len(ours) :]) == original
        log_writer.replace_ours(path, read_log(path), [])
        assert path.read_bytes() == original


@pytest.mark.parametrize("delay", [0.001, 0.0043, 0.0087])
@pytest.mark.slow
def test_annotators_that_are_killed(tmp_path, delay):
    harness = LocalHarness(tmp_path)
    run = new_run(harness)
    kill_in_the_midst(run, "", delay)
    check_and_repair(harness, run, wholes_of(harness))
    assert not list(Path(run).rglob(log_writer.LEFTOVER))


# Files and artifacts


def trained(tmp_path, name="optimizer.pt"):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    path = tmp_path / name
    torch.save(optimizer.state_dict(), path)
    return path


STATE = Request(roles=NOTHING_READ, parts=frozenset(Part))


def test_a_checkpoint_among_the_files_is_read(small, tmp_path):
    run = small()
    (run / "files" / "checkpoint-5").mkdir()
    shutil.copy(trained(tmp_path), run / "files" / "checkpoint-5")
    with closing(open_run(run)) as opened:
        assert opened.read(STATE).optimizer.source == "checkpoint-5/optimizer.pt"


LOGGING = """
import sys, wandb
run = wandb.init(project="p")
run.log({"loss": 1.0})
for _ in range(2):
    artifact = wandb.Artifact("model", type="model", metadata={"round": _})
    artifact.add_file(sys.argv[1], "optimizer.pt")
    if _:
        artifact.add_file(sys.argv[1], "again.pt")
    run.log_artifact(artifact)
run.finish()
"""


@pytest.mark.slow
def test_a_logged_artifact_is_read_from_where_it_is_staged(tmp_path):
    state = trained(tmp_path)
    code = f"import sys; sys.argv = ['', {str(state)!r}]\n{LOGGING}"
    run = wandb_runs.run_script(code, tmp_path / "run")
    with closing(open_run(run)) as opened:
        evidence = opened.read(STATE)
        fingerprint = opened.fingerprint(STATE)
    assert evidence.optimizer.source == "artifacts/model/v1/optimizer.pt"
    shutil.rmtree(tmp_path / "run" / "data")
    with closing(open_run(run)) as opened:
        assert opened.fingerprint(STATE) != fingerprint
        evidence = opened.read(STATE)
    assert evidence.optimizer is None
    assert "no longer on this machine" in evidence.missing[Part.OPTIMIZER_STATE]


@pytest.mark.parametrize("climbing", [False, True])
def test_a_log_cannot_name_any_file_of_this_machine(small, tmp_path, climbing):
    from wandb.proto import wandb_internal_pb2 as sdk

    state = trained(tmp_path)
    (tmp_path / "artifacts" / "staging").mkdir(parents=True)
    run = small()
    artifact = sdk.ArtifactRecord(name="model", digest="x")
    named = str(tmp_path / "artifacts" / "staging" / ".." / ".." / state.name) if climbing else str(state)
    assert Path(named).exists()
    artifact.manifest.contents.add(path="optimizer.pt", size=state.stat().st_size, local_path=named)
    records = [wandb_logs.run_record(), wandb_logs.record(artifact=artifact), wandb_logs.exit_record()]
    wandb_logs.write_log(run / "run-abc123.wandb", records)
    with closing(open_run(run)) as opened:
        assert opened.files == ()


# Which run a folder is


def test_a_folder_with_one_run_below_it_is_that_run(small):
    root = small().parent
    assert open_run(root).ref.store == open_run(root.parent).ref.store == "wandb"
    assert isinstance(open_run(root), LocalRun)


def test_several_runs_are_named(small):
    root = small().parent
    small("offline-run-2-abc123")
    for folder in (root, root.parent):
        with pytest.raises(RunNotFound) as caught:
            annotate(folder)
        assert "holds 2 W&B runs" in str(caught.value)
        assert "offline-run-2-abc123" in str(caught.value)
        assert f"{root}/*run-*" in str(caught.value)


def test_a_folder_of_its_own_checkpoints_stays_one(small, tmp_path):
    small()
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    assert isinstance(open_run(tmp_path), DirectoryRun)
    assert not isinstance(open_run(tmp_path), LocalRun)


def test_a_log_of_an_online_run_says_where_the_run_is(small):
    run = small("run-20260101_000000-abc123", entity="team")
    (omitted,) = annotate(run).omitted
    assert "wandb:team/p/abc123" in omitted
    assert read_log(run / "run-abc123.wandb").bears_ours


def test_the_command_line(runs, capsys):
    from tracker_health.__main__ import main

    log = wandb_runs.log_in(runs["healthy"])
    before = log.read_bytes()
    assert run_cli(main, ["annotate", "--sidecar", str(runs["healthy"])]) == 0
    assert "only files were asked for" in capsys.readouterr().out
    assert log.read_bytes() == before
    assert run_cli(main, ["annotate", str(runs["healthy"])]) == 0
    assert log.read_bytes() != before


def run_cli(main, arguments):
    sys.argv = ["tracker-health", *arguments]
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code or 0
