"""How a run ended, and what RUN003 and RUN004 make of it: the table, cell by cell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracker_health.evidence import Evidence, RunInfo, RunRef, StepUnit, TextLog, Trouble
from tracker_health.words.ending import (
    Ended,
    Ending,
    ending_by_exception,
    ending_by_exit_code,
    ending_by_status,
    ending_by_wandb_code,
)

FALLS = [2.0 - 0.01 * step for step in range(120)]
SILENT = {"status": "RUNNING", "tracker": "MLflow", "silent_for": 8 * 3600.0}


def seen(how, by="by somebody"):
    return {"seen": Ending(how=how, by=by)}


# How it ended; the verdict with the plan not reached, reached, and unknown (with fewer than 100 points, and with more).
TABLE = [
    ({"status": "FAILED", "tracker": "MLflow"}, "failed", ("fail", "warn", "fail", "warn")),
    ({"status": "FAILED", "exit_code": 3}, "failed", ("fail", "warn", "fail", "warn")),
    (seen(Ended.FAILED, "exit code 3"), "failed", ("fail", "warn", "fail", "warn")),
    (seen(Ended.OUT_OF_MEMORY), "out-of-memory", ("fail", "warn", "fail", "fail")),
    (seen(Ended.KILLED, "SIGKILL"), "killed", ("fail", "warn", "fail", "fail")),
    ({"status": "CRASHED", "tracker": "W&B"}, "silent", ("warn", "pass", "warn", "warn")),
    ({"status": "KILLED", "tracker": "MLflow"}, "interrupted", ("warn", "pass", "warn", "warn")),
    ({"status": "FAILED", "exit_code": 255}, "interrupted", ("warn", "pass", "warn", "warn")),
    (seen(Ended.INTERRUPTED, "SIGTERM"), "interrupted", ("warn", "pass", "warn", "warn")),
    ({"status": "PREEMPTED", "tracker": "W&B"}, "preempted", ("warn", "pass", "warn", "warn")),
    ({"status": "FAILED", **seen(Ended.FINISHED, "exit code 0")}, "finished", ("pass", "pass", "pass", "pass")),
    ({"status": "FAILED", **seen(Ended.PRUNED, "TrialPruned")}, "pruned", ("pass", "pass", "pass", "pass")),
    ({"status": "KILLED", "tracker": "W&B", "sweep": "s1"}, "pruned", ("pass", "pass", "pass", "pass")),
    (
        {"sweep": "s1", **seen(Ended.INTERRUPTED, "SIGTERM, from a scheduler")},
        "pruned",
        ("pass", "pass", "pass", "pass"),
    ),
    ({"status": "FAILED", "exit_code": 255, "sweep": "s1"}, "interrupted", ("warn", "pass", "warn", "warn")),
    ({"status": "CRASHED", "tracker": "W&B", "sweep": "s1"}, "silent", ("warn", "pass", "warn", "warn")),
    ({"status": "SWEPT", "tracker": "W&B", "sweep": "s1"}, "pruned", ("pass", "pass", "pass", "pass")),
    (SILENT, "silent", ("warn", "pass", "warn", "warn")),
]
COLUMNS = ("plan not reached", "plan reached", "plan unknown, few points", "plan unknown, many points")


def evidence_of(make, info, column):
    losses = FALLS if "many" in column or "plan unknown" not in column else FALLS[:40]
    params = {} if "unknown" in column else {"max_steps": "400" if "not" in column else "120"}
    steps = range(1, len(losses) + 1)
    series = make.series(losses, steps, step_unit=StepUnit.OPTIMIZER_STEP)
    return make.evidence(series, info=RunInfo(params=params, metric_names=("train_loss",), **info))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize(
    ("info", "how", "verdicts"), TABLE, ids=[f"{how}-{at}" for at, (_, how, _) in enumerate(TABLE)]
)
def test_the_table(info, how, verdicts, column, make, report):
    evidence = evidence_of(make, info, column)
    judged = report(evidence)
    assert judged.ended == how == evidence.ending.how
    assert judged.ended_by
    found = [one for one in judged.results if one.code in ("RUN003", "RUN004")]
    assert max(one.verdict.rank for one in found) == {"pass": 0, "warn": 1, "fail": 3}[verdicts[COLUMNS.index(column)]]
    assert sum(one.verdict != "pass" for one in found) <= 1, "one rule says it"
    (cut_off,) = [one for one in judged.results if one.code == "RUN001"] or [None]
    assert cut_off is None or cut_off.verdict == "pass" or how == "finished"


def test_a_worse_finding_wins(make, report):
    evidence = make.evidence([float("nan")] * 50, info=RunInfo(status="KILLED", metric_names=("train_loss",)))
    judged = report(evidence)
    assert (judged.verdict, judged.ended) == ("fail", "interrupted")
    assert judged.diagnosis.about == "LOS001"


def test_a_loss_that_did_not_come_down_excuses_no_error(make, judge):
    info = RunInfo(status="FAILED", metric_names=("train_loss",))
    assert judge("RUN004", make.evidence(FALLS, info=info)).verdict == "warn"
    assert judge("RUN004", make.evidence(FALLS[::-1], info=info)).verdict == "fail"
    assert judge("RUN004", make.evidence(FALLS[:80], info=info), min_points=60).verdict == "warn"


@pytest.mark.parametrize("status", ["RUNNING", "SCHEDULED", "PENDING"])
def test_a_run_that_goes_on_is_not_judged_by_its_end(status, make, report):
    judged = report(make.evidence(FALLS, info=RunInfo(status=status, metric_names=("train_loss",))))
    assert judged.ended == "running"
    assert {"RUN003", "RUN004"} <= {one.code for one in judged.skipped}
    assert any("still" in note for note in judged.notes)


def test_without_a_tracker_and_a_console_nothing_is_known(make, report):
    judged = report(make.evidence(FALLS))
    assert judged.ended == ""
    (skipped,) = [one for one in judged.skipped if one.code == "RUN003"]
    assert "no tracker" in skipped.reason


def test_what_the_message_says(make, judge):
    finding = judge("RUN003", evidence_of(make, seen(Ended.KILLED, "SIGKILL"), "plan not reached"))
    assert finding.message == "the run was killed after 120 of 400 planned optimizer steps (SIGKILL)"
    finding = judge("RUN003", evidence_of(make, SILENT, "plan unknown"))
    assert "the run went silent after step 40 (MLflow says RUNNING, and nothing has come from it for 8.0 hours)" in (
        finding.message
    )
    finding = judge("RUN004", evidence_of(make, {"status": "FAILED", "tracker": "MLflow"}, "plan reached"))
    assert finding.message.startswith("training finished after 120 of 120 planned optimizer steps; what came after it")


@pytest.mark.parametrize(
    "info", [SILENT, {"status": "CRASHED", "tracker": "W&B"}, {"status": "GONE", "tracker": "W&B"}]
)
def test_a_run_whose_plan_is_done_and_that_nobody_closed_passes_with_a_note(info, make, report):
    judged = report(evidence_of(make, info, "plan reached"))
    assert (judged.verdict, judged.diagnosis) == ("pass", None)
    assert any(note.startswith("nobody closed the run when its training was done") for note in judged.notes)
    judged = report(evidence_of(make, info, "plan not reached"))
    assert not any("nobody closed" in note for note in judged.notes)


@pytest.mark.parametrize(
    ("info", "cause"),
    [
        (seen(Ended.KILLED, "SIGKILL"), "killed-reason-unknown"),
        ({"exit_code": 137, "tracker": "W&B"}, "killed-reason-unknown"),
        (seen(Ended.OUT_OF_MEMORY, "MemoryError"), "out-of-memory"),
        ({"status": "CRASHED", "tracker": "W&B"}, "killed-reason-unknown"),
        (SILENT, "killed-reason-unknown"),
    ],
)
def test_memory_is_said_where_something_says_memory(info, cause, make, report):
    """A kill, and a run that nobody closed, have many reasons."""
    judged = report(evidence_of(make, info, "plan not reached"))
    assert judged.verdict == ("warn" if judged.ended == "silent" else "fail")
    assert (judged.diagnosis.cause if judged.diagnosis else None) == cause
    if cause == "killed-reason-unknown":
        assert "memory" not in judged.diagnosis.sentence + judged.diagnosis.action.text


def test_a_kill_whose_console_says_memory_is_a_lack_of_memory(make, report):
    evidence = evidence_of(make, seen(Ended.KILLED, "SIGKILL"), "plan not reached")
    assert report(replace(evidence, text_log=log("out of memory"))).diagnosis.cause == "out-of-memory"


# What is known, put together


def log(cause, *, rows_after=0, done=None, rows=50, lines_after=1, then=""):
    """A console with an error in it, so many lines after that, and then another error (of a launcher, say)."""
    errors = [(cause, 100), (then, 100 + lines_after)]
    troubles = [Trouble(cause=one, text="what it said", line=at, rows_after=rows_after) for one, at in errors if one]
    return TextLog(source="console.log", lines=100 + lines_after, rows=rows, done=done, troubles=tuple(troubles))


AT_WORK = {"status": "RUNNING", "at_work": True}


TOGETHER = {
    "the console has the cause": ({"status": "FAILED"}, log("out of memory"), "out-of-memory"),
    "MLflow calls it finished, the console does not": ({"status": "FINISHED"}, log("an exception"), "failed"),
    "MLflow calls it finished, and the console goes on": (
        {"status": "FINISHED"}, log("an exception", lines_after=6), "finished",
    ),
    "MLflow calls it finished, and a launcher prints more": (
        {"status": "FINISHED"}, log("an exception", lines_after=60, then="an exception"), "failed",
    ),
    "caught, and at work": (AT_WORK, log("an exception"), "running"),
    "told to leave early, and left with an error of its own": (
        {"status": "PREEMPTED"}, log("an exception"), "failed",
    ),
    "told to leave early after an error that was caught": (
        {"status": "PREEMPTED"}, log("an exception", lines_after=6), "preempted",
    ),
    "told to leave early, and interrupted": ({"status": "PREEMPTED"}, log("interrupted"), "preempted"),
    "Ctrl-C inside with": ({"status": "FAILED"}, log("interrupted"), "interrupted"),
    "a kill that was the kernel's": (seen(Ended.KILLED), log("out of memory"), "out-of-memory"),
    "SIGTERM before a preemption": (seen(Ended.INTERRUPTED), log("a preemption"), "preempted"),
    "what SIGTERM raised": (seen(Ended.INTERRUPTED), log("an exception"), "interrupted"),
    "a run that nobody ended": ({"status": "RUNNING"}, log("an exception"), "failed"),
    "silent, and the console says why": (SILENT, log("SIGKILL"), "killed"),
    "exit code 0": (seen(Ended.FINISHED), log("an exception"), "finished"),
    "W&B's exit code 0": ({"exit_code": 0}, log("an exception"), "finished"),
    "a trial that was pruned": (seen(Ended.PRUNED), log("an exception"), "pruned"),
    "a pruned trial, by the console": ({"status": "FAILED"}, log("a search that stopped the trial"), "pruned"),
    "caught: the history goes on": ({"status": "FINISHED"}, log("an exception", rows_after=9), "finished"),
    "a console alone": ({}, log("a preemption"), "preempted"),
    "a console alone that says it is done": ({}, log("", done=90), "finished"),
    "a console alone that says nothing": ({}, log(""), None),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TOGETHER))
def test_what_is_known_put_together(name):
    info, text, how = TOGETHER[name]
    evidence = Evidence(run=RunRef(store="mlflow", id="x", name="x"), info=RunInfo(**info), text_log=text)
    assert (None if evidence.ending is None else evidence.ending.how) == how


# Words for it


class TrialPruned(Exception):
    pass


class OutOfMemoryError(RuntimeError):  # as torch's
    pass


EXCEPTIONS = [
    (ValueError("mine"), "failed", "ValueError: mine"),
    (KeyError(), "failed", "KeyError"),
    (MemoryError(), "out-of-memory", "MemoryError"),
    (OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out-of-memory", "OutOfMemoryError: CUDA"),
    (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while"), "out-of-memory", "RuntimeError: RESOURCE"),
    (OSError(12, "Cannot allocate memory"), "out-of-memory", "OSError"),
    (KeyboardInterrupt(), "interrupted", "Ctrl-C"),
    (TrialPruned(), "pruned", "TrialPruned"),
    (SystemExit(0), "finished", "exit code 0"),
    (SystemExit(None), "finished", "exit code 0"),
    (SystemExit(3), "failed", "exit code 3"),
    (SystemExit("a message"), "failed", "exit code 1"),
    (SystemExit(True), "failed", "exit code 1"),
    (SystemExit(256 + 130), "interrupted", "SIGINT"),
]


@pytest.mark.parametrize(("error", "how", "by"), EXCEPTIONS, ids=lambda one: repr(one)[:30])
def test_exceptions(error, how, by):
    ending = ending_by_exception(error)
    assert (ending.how, ending.by.startswith(by)) == (how, True), ending


def test_an_exception_with_a_hostile_text():
    class Hostile(Exception):
        def __str__(self):
            raise RuntimeError

    assert ending_by_exception(Hostile()).how == "failed"
    assert ending_by_exception(ValueError("\x1b[31m" + "x" * 10**6)).by.isprintable()


CODES = {
    0: "finished", 1: "failed", 41: "failed", 127: "failed", -9: "killed", 137: "killed", -15: "interrupted",
    143: "interrupted", -2: "interrupted", 130: "interrupted", -11: "failed", 139: "failed", -6: "failed",
    255: "failed", -10: "interrupted",
}  # fmt: skip


@pytest.mark.parametrize("code", list(CODES))
def test_exit_codes(code):
    assert ending_by_exit_code(code).how == CODES[code]
    if code >= 0:
        assert ending_by_wandb_code(code).how == ("interrupted" if code == 255 else CODES[code])


@pytest.mark.parametrize("given", [-1, -9, -15, 300])
def test_wandb_records_what_sys_exit_was_given(given):
    """The signal of this number has nothing to do with it."""
    assert ending_by_wandb_code(given) == Ending(how=Ended.FAILED, by=f"W&B's exit code {given % 256}")


def test_states_of_trackers():
    assert ending_by_status("finished", "W&B") == Ending(how=Ended.FINISHED, by="W&B says FINISHED")
    assert ending_by_status("UNHEARD_OF", "MLflow") is None
    assert ending_by_status("", "MLflow") is None


def test_a_killed_run_did_not_reach_its_plan():
    """Its tracker calls it running, which would excuse that."""
    info = {"params": {"max_steps": "100"}, "global_step": 30, "status": "RUNNING"}
    progress = [
        Evidence(run=RunRef(store="mlflow", id="x", name="x"), info=RunInfo(**info, **more)).progress
        for more in ({}, seen(Ended.KILLED))
    ]
    assert [one.snapshot for one in progress] == [True, False]


def test_the_name_of_an_exception_is_said_once():
    assert ending_by_exception(RuntimeError("RuntimeError: no labels")).by == "RuntimeError: no labels"
    assert ending_by_exception(RuntimeError("ValueError: no labels")).by == "RuntimeError: ValueError: no labels"
