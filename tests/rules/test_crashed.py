"""RUN003 and RUN004 by what a console says."""

import pytest

from tracker_health.evidence import RunInfo, StepUnit, TextLog, Trouble
from tracker_health.readers.log_formats.text_lines import TextLines
from tracker_health.roles import RolePlan

ROWS = "".join(f"step {step} loss={2 - step / 100}\n" for step in range(100))


def traceback(raised):
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n{raised}\n'


@pytest.fixture
def verdict(tmp_path, make, judge):
    """What the rule says of a console log."""

    def of(text, **more):
        path = tmp_path / "console.log"
        path.write_text(text)
        log = TextLines().read(path, "console.log", RolePlan())
        evidence = make.evidence(text_log=log.text, **more)
        found = [judge(code, evidence) for code in ("RUN003", "RUN004")]
        return next((one for one in found if one.verdict in ("warn", "fail")), found[1])

    return of


TERMINATE = "terminate called after throwing an instance of "
SICK = {
    "out of memory": traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
    "a data loader worker died": traceback("RuntimeError: DataLoader worker (pid 41, 42) exited unexpectedly"),
    "no space left on the disk": traceback("OSError: [Errno 28] No space left on device"),
    "a collective operation timed out": traceback(
        "torch.distributed.DistBackendError: Watchdog caught collective operation timeout"
    ),
    "SIGKILL": "./run.sh: line 3:  4242 Killed                  python train.py\n",
}
FROM_OUTSIDE = {
    "a preemption": "slurmstepd: error: *** JOB 7 ON node CANCELLED AT 2024-05-01T10:00:00 DUE TO PREEMPTION ***\n",
    "a cancelled job": "slurmstepd: error: *** JOB 7 ON node CANCELLED AT 2024-05-01T10:00:00 ***\n",
    "its time was up": "slurmstepd: error: *** JOB 7 ON node CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n",
    "interrupted": traceback("KeyboardInterrupt"),
    "SIGTERM": "Terminated\n",
}


@pytest.mark.parametrize("cause", [*SICK, *FROM_OUTSIDE])
def test_sick(cause, verdict):
    result = verdict(ROWS + (SICK | FROM_OUTSIDE)[cause])
    assert result.verdict == ("fail" if cause in SICK else "warn")
    assert f"ends with {cause}" in result.message
    assert result.details["cause"] == cause


ALSO_SICK = {
    "a worker, in torch's own words": ("a data loader worker died", traceback("RuntimeError: DataLoader worker (pid(s) 41, 42) exited unexpectedly")),
    "a bar drawn again": ("out of memory", traceback("torch.OutOfMemoryError: CUDA out of memory.") + "\rSteps:  99%|#########9| 99/120 [00:02<00:00, 30.2it/s, loss=1.01]\n"),
    "a last line of another process": ("out of memory", traceback("MemoryError: no room") + "[rank1] step 100 loss=1.00\n"),
    "a last save": ("out of memory", traceback("MemoryError: no room") + "Emergency checkpoint saved at step 98 loss=1.02\n"),
    "a bare word": ("SIGKILL", "Killed\n"),
    "a core": ("a crash below Python", "Segmentation fault (core dumped)\n"),
    "another shell": ("SIGKILL", "zsh: killed     python train.py\n"),
    "DeepSpeed's launcher": ("an exit code other than 0", "[2025-02-25 21:38:29,473] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = 1\n"),
    "DeepSpeed's launcher, of a signal": ("SIGKILL", "[ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9\n"),
    "Slurm": ("an exit code other than 0", "srun: error: node-02: task 3: Exited with exit code 2\n"),
    "Slurm, of a signal": ("SIGKILL", "srun: error: node-02: task 3: Exited with exit code 137\n"),
    "LSF": ("an exit code other than 0", "Exited with exit code 1.\n\nResource usage summary:\n"),
    "an exception before its exit code": ("out of memory", traceback("MemoryError: no room") + "srun: error: node-02: task 0: Exited with exit code 1\n"),
    "a limit of LSF": ("out of memory", "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n"),
    "a limit of Slurm": ("out of memory", "slurmstepd: error: Job 12 exceeded memory limit (9 > 8), being killed\n"),
    "the kernel": ("out of memory", "[12.3] python invoked oom-killer: gfp_mask=0x140cca\n"),
    "the batch system": ("out of memory", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch.\n"),
    "the control group": ("out of memory", "oom_kill 1\n"),
    "no room in another language": ("out of memory", f"{TERMINATE}'std::bad_alloc'\n  what():  std::bad_alloc\n"),
    "a watchdog": ("a collective operation timed out", f"[rank3]:[E501 10:00:00 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: Work\n{TERMINATE}'c10::DistBackendError'\n"),
    "an abort": ("a crash below Python", f"{TERMINATE}'c10::CUDAError'\n  what():  CUDA error: an illegal memory access was encountered\n"),
    "killed in the middle of a traceback": ("SIGKILL", traceback("\n") + "Killed\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ALSO_SICK))
def test_other_words_for_it(name, verdict):
    cause, text = ALSO_SICK[name]
    result = verdict(ROWS + text)
    assert (result.verdict, result.details["cause"]) == ("fail", cause)


def test_a_report_of_lsf_before_the_output(verdict):
    """It is written when the program is gone, wherever it stands."""
    report = "Exited with exit code 1.\n\nThe output (if any) follows:\n\n"
    assert verdict(report + ROWS).details["cause"] == "an exit code other than 0"
    assert verdict(report.replace("code 1", "code 130") + ROWS).verdict == "fail"
    assert (
        verdict(report.replace("Exited with exit code 1.", "Successfully completed.") + ROWS).verdict == "SkippedProbe"
    )
    assert verdict("Exited with exit code 1.\n" + ROWS).verdict != "fail", "an attempt before this one"


def test_a_fit_that_was_done_before_its_process_broke_only_warns(verdict):
    done = "`Trainer.fit` stopped: `max_epochs=25` reached.\n"
    result = verdict(ROWS + done + ALSO_SICK["a watchdog"][1])
    assert (result.verdict, result.details["cause"]) == ("warn", "a collective operation timed out")
    assert result.message.startswith("training finished")


@pytest.mark.parametrize(
    "raised",
    [
        "StopIteration", "torch._dynamo.exc.Unsupported: a call", "Empty", "ExceptionGroup: two (2 sub-exceptions)",
        "Exception: Current loss scale already at minimum", "Exception",
    ],
)  # fmt: skip
def test_exceptions_of_any_name(raised, verdict):
    result = verdict(ROWS + traceback(raised))
    assert (result.verdict, result.details["text"]) == ("fail", raised)


def test_training_that_was_done_all_the_same_only_warns(verdict):
    result = verdict(ROWS + traceback("torch.OutOfMemoryError: CUDA out of memory.") + "Training complete.\n")
    assert result.verdict == "warn"
    assert result.message.startswith("training finished")


def test_a_worker_that_died_while_its_batch_was_on_its_way(verdict):
    frame = '  File "torch/utils/data/dataloader.py", line 1275, in _try_get_data\n'
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    said = f"Traceback (most recent call last):\n{frame}    data = self._data_queue.get(timeout=timeout)\n{reset}"
    assert verdict(ROWS + said).details["cause"] == "a data loader worker died"
    assert verdict(ROWS + said.replace("_try_get_data", "download")).details["cause"] == "an exception"


def test_a_shell_says_it_behind_a_bar_that_left_its_line_open(verdict):
    bar = "\r 50%|#####     | 60/120 [00:30<00:30, 2.0it/s, loss=0.5]"
    said = "bash: line 1:  4242 Killed                  python train.py\n"
    assert verdict(bar + said).details["cause"] == "SIGKILL"
    assert verdict(f"{bar}Killed processes: 0\n").verdict == "SkippedProbe"


def test_the_last_step_is_told(tmp_path, make, judge):
    log = TextLog(
        source="a", lines=120, rows=100, troubles=(Trouble(cause="out of memory", text="x", line=118, rows_after=0),)
    )
    result = judge("RUN004", make.evidence([1.0, 2.0, 3.0], steps=[10, 20, 30], text_log=log))
    assert result.verdict == "fail"
    assert "after step 30" in result.message
    assert result.steps == (30,)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank0]: ", "2024-05-01 10:00:00 | ", "", "2024-05-01T10:00:00.123456789Z ", "2024-05-01 10:00:00,123 ERROR ",
        "[2024-05-01 10:00:00,123][__main__][ERROR] - ", "2024-05-01T10:00:00+02:00 stderr F ", "ERROR: ",
    ],
)  # fmt: skip
def test_a_prefix_before_what_was_raised(prefix, verdict):
    text = "".join(f"{prefix}{line}\n" for line in traceback("MemoryError: no room").splitlines())
    assert verdict(ROWS + text).details["cause"] == "out of memory"


def test_some_exception_without_a_plan_only_warns_after_much_training(verdict, make):
    text = ROWS + traceback("KeyError: 'labels'")
    losses = make.series([2.0 - step / 100 for step in range(100)])
    assert (verdict(text, losses=losses).verdict, verdict(text, losses=losses).details["line"]) == ("warn", 104)
    assert verdict(text, losses=losses.at(slice(0, 90))).verdict == "fail"


def test_some_exception_before_the_plan_was_reached_fails(verdict, make):
    info = RunInfo(params={"max_steps": "1000"})
    series = make.series([1.0] * 100, role="global_step", step_unit=StepUnit.OPTIMIZER_STEP)
    assert verdict(ROWS + traceback("KeyError: 'labels'"), info=info, losses=series).verdict == "fail"


def test_an_exception_after_training_only_warns(verdict):
    text = ROWS + "Training completed in 3 minutes\n" + traceback("OSError: [Errno 28] No space left on device")
    result = verdict(text)
    assert result.verdict == "warn"
    assert result.message.startswith("training finished")


def test_a_log_of_one_stream_only_warns(verdict, make):
    """What is caught there may go on in the other stream, if that has the history."""
    assert verdict(traceback("KeyError: 'labels'"), losses=make.series([1.0, 0.9])).verdict == "warn"
    assert verdict(traceback("KeyError: 'labels'")).verdict == "fail"
    assert verdict(SICK["SIGKILL"], losses=make.series([1.0, 0.9])).verdict == "fail"


RESUMED = "".join(f"step {step} loss={2 - step / 100}\n" for step in range(90, 97))
NEAR_MISSES = {
    "a training that goes on from an earlier checkpoint": ROWS + traceback("MemoryError: no room") + RESUMED,
    "stopped early": ROWS + "Terminated early: no improvement for 5 epochs\n",
    "aborted trials": ROWS + "Aborted trials: 0\n",
    "stale workers": ROWS + "Killed 3 stale worker processes from a previous run\n",
    "the events of a control group": ROWS + "oom 0\noom_kill 0\n",
    "a setting of the kernel": ROWS + "oom_killer=off oom-killer: off\n",
    "what comes of nothing": ROWS
    + "Training complete\nException ignored in: <function _Iter.__del__ at 0x7f>\n"
    + traceback("AssertionError: can only test a child process"),
    "a healthy log": ROWS,
    "a caught exception": ROWS
    + traceback("torch.OutOfMemoryError: CUDA out of memory.")
    + "skipping this batch\n"
    + ROWS,
    "a warning about memory": ROWS + "UserWarning: this may run out of memory; CUDA out of memory is likely\n",
    "a word": ROWS
    + "Killed all workers, done. Error rate 0.1, OutOfMemoryError is handled\n".replace("Killed", "Stopped"),
    "settings": "on_out_of_memory: raise\nmax_errors=3\n" + ROWS,
    "much came after it": ROWS + traceback("ValueError: no plot") + "saved\n" * 300,
}


@pytest.mark.parametrize("name", list(NEAR_MISSES))
def test_near_misses(name, verdict, make):
    """Where no tracker says how the run ended, it is not known; where one says that it finished, it did."""
    assert verdict(NEAR_MISSES[name]).verdict in ("pass", "SkippedProbe")
    assert verdict(NEAR_MISSES[name], info=RunInfo(status="FINISHED")).verdict == "pass"
