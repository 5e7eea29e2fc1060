"""RUN004."""

import pytest

from tracker_health.evidence import RunInfo, StepUnit, TextLog, Trouble
from tracker_health.readers.log_formats.text_lines import TextLines
from tracker_health.roles import assign

CODE = "RUN004"
ROWS = "".join(f"step {step} loss={2 - step / 100}\n" for step in range(100))


def traceback(raised):
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    step()\n{raised}\n'


@pytest.fixture
def verdict(tmp_path, make, judge):
    """What the rule says of a console log."""

    def of(text, **more):
        path = tmp_path / "console.log"
        path.write_text(text)
        log = TextLines().read(path, "console.log", assign)
        return judge(CODE, make.evidence(text_log=log.text, **more))

    return of


SICK = {
    "out of memory": traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."),
    "a data loader worker died": traceback("RuntimeError: DataLoader worker (pid 41, 42) exited unexpectedly"),
    "no space left on the disk": traceback("OSError: [Errno 28] No space left on device"),
    "a collective operation timed out": traceback(
        "torch.distributed.DistBackendError: Watchdog caught collective operation timeout"
    ),
    "killed by a signal": "./run.sh: line 3:  4242 Killed                  python train.py\n",
    "its time was up": "slurmstepd: error: *** JOB 7 ON node CANCELLED AT 2024-05-01T10:00:00 DUE TO TIME LIMIT ***\n",
}


@pytest.mark.parametrize("cause", list(SICK))
def test_sick(cause, verdict):
    result = verdict(ROWS + SICK[cause])
    assert result.verdict == "fail"
    assert f"ends with {cause}" in result.message
    assert result.details["cause"] == cause


def test_a_worker_that_died_while_its_batch_was_on_its_way(verdict):
    frame = '  File "torch/utils/data/dataloader.py", line 1275, in _try_get_data\n'
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    said = f"Traceback (most recent call last):\n{frame}    data = self._data_queue.get(timeout=timeout)\n{reset}"
    assert verdict(ROWS + said).details["cause"] == "a data loader worker died"
    assert verdict(ROWS + said.replace("_try_get_data", "download")).details["cause"] == "an exception"


def test_a_shell_says_it_behind_a_bar_that_left_its_line_open(verdict):
    bar = "\r 50%|#####     | 60/120 [00:30<00:30, 2.0it/s, loss=0.5]"
    said = "bash: line 1:  4242 Killed                  python train.py\n"
    assert verdict(bar + said).details["cause"] == "killed by a signal"
    assert verdict(f"{bar}Killed processes: 0\n").verdict == "pass"


def test_the_last_step_is_told(tmp_path, make, judge):
    log = TextLog(
        source="a", lines=120, rows=100, troubles=(Trouble(cause="out of memory", text="x", line=118, rows_after=0),)
    )
    result = judge(CODE, make.evidence([1.0, 2.0, 3.0], steps=[10, 20, 30], text_log=log))
    assert result.verdict == "fail"
    assert "after step 30" in result.message
    assert result.steps == (30,)


@pytest.mark.parametrize("prefix", ["[rank0]: ", "2024-05-01 10:00:00 | ", ""])
def test_a_prefix_before_what_was_raised(prefix, verdict):
    text = "".join(f"{prefix}{line}\n" for line in traceback("MemoryError: no room").splitlines())
    assert verdict(ROWS + text).details["cause"] == "out of memory"


def test_some_exception_without_a_plan_only_warns(verdict):
    result = verdict(ROWS + traceback("KeyError: 'labels'"))
    assert (result.verdict, result.details["text"]) == ("warn", "KeyError: 'labels'")


def test_some_exception_before_the_plan_was_reached_fails(verdict, make):
    info = RunInfo(params={"max_steps": "1000"})
    series = make.series([1.0] * 100, role="global_step", step_unit=StepUnit.OPTIMIZER_STEP)
    assert verdict(ROWS + traceback("KeyError: 'labels'"), info=info, losses=series).verdict == "fail"


def test_an_exception_after_training_only_warns(verdict):
    text = ROWS + "Training completed in 3 minutes\n" + traceback("OSError: [Errno 28] No space left on device")
    result = verdict(text)
    assert result.verdict == "warn"
    assert result.message.startswith("training was done")


def test_a_log_of_one_stream_only_warns(verdict):
    """What is caught there may go on in the other stream."""
    assert verdict(SICK["out of memory"]).verdict == "warn"


NEAR_MISSES = {
    "a healthy log": ROWS,
    "a caught exception": ROWS
    + traceback("torch.OutOfMemoryError: CUDA out of memory.")
    + "skipping this batch\n"
    + ROWS,
    "a warning about memory": ROWS + "UserWarning: this may run out of memory; CUDA out of memory is likely\n",
    "interrupted by hand": ROWS + traceback("KeyboardInterrupt"),
    "a word": ROWS
    + "Killed all workers, done. Error rate 0.1, OutOfMemoryError is handled\n".replace("Killed", "Stopped"),
    "settings": "on_out_of_memory: raise\nmax_errors=3\n" + ROWS,
    "much came after it": ROWS + traceback("ValueError: no plot") + "saved\n" * 300,
}


@pytest.mark.parametrize("name", list(NEAR_MISSES))
def test_near_misses(name, verdict):
    assert verdict(NEAR_MISSES[name]).verdict == "pass"


def test_without_a_console_log_it_is_skipped(make, judge):
    assert judge(CODE, make.evidence([1.0])).verdict == "SkippedProbe"
