"""How a process ends is the same with us and without, to whoever waits for it: real processes, side by side."""

from __future__ import annotations

import signal
import sys

import pytest

from tracker_health.hooks.startup_path import FOLDER

BEGIN = "import atexit, os, signal, sys, threading, time\n"
BY_SIGNAL = "os.kill(os.getpid(), signal.{}); time.sleep(60)\n"
ENDS = {
    **{name: BY_SIGNAL.format(name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGSEGV")},
    "os.abort": "os.abort()\n",
    "KeyboardInterrupt": "raise KeyboardInterrupt\n",
    "its subclass": "class Mine(KeyboardInterrupt): pass\nraise Mine\n",
    "Ctrl-C that its own exit forgets": "atexit.register(lambda: exec('1'))\nraise KeyboardInterrupt\n",
    "Ctrl-C that was caught": "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    sys.exit(9)\n",
    "sys.exit(3)": "sys.exit(3)\n",
    "a message": "sys.exit('no data')\n",
    "raise SystemExit": "raise SystemExit(4)\n",
    "os._exit": "os._exit(7)\n",
    "an exception": "raise ValueError('mine')\n",
    "SIGTERM made an exit": "signal.signal(15, lambda *_: sys.exit(143))\n" + BY_SIGNAL.format("SIGTERM"),
    "to its end": "",
}
WITH_A_RUN = ("SIGINT", "SIGTERM", "SIGKILL", "os._exit", "a message", "an exception", "raise SystemExit")
RUN = """
import mlflow
mlflow.start_run(run_name="r")
for step in range(12):
    mlflow.log_metric("loss", 2.3 * 0.9 ** step, step=step)
"""
EXEC = (sys.executable, "-m", "tracker_health", "exec", "--wait", "60", "--")


def codes(place, script):
    """The return code without us, with the variable, and under ``exec``; and the last one's standard error."""
    (place.folder / "train.py").write_text(script)
    command = (sys.executable, "train.py")
    path = f"{place.environment.get('PYTHONPATH', '')}:{FOLDER}".strip(":")
    done = [
        place.ended(place.start(*command)),
        place.ended(place.start(*command, TRACKER_HEALTH_AUTO="1", PYTHONPATH=path)),
        place.ended(place.start(*EXEC, *command)),
    ]
    return [code for code, _, _ in done], done[-1][2]


@pytest.mark.parametrize("name", list(ENDS))
@pytest.mark.thinned(3)
@pytest.mark.slow
def test_the_return_code_is_the_same(workplace, name):
    found, err = codes(workplace, BEGIN + ENDS[name])
    assert found == [found[0]] * 3, err


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("store", "name"),
    [*(("sqlite", name) for name in WITH_A_RUN), ("file", "SIGINT"), ("file", "SIGSEGV")],
)
def test_the_return_code_is_the_same_with_a_run_of_mlflows(workplace, store, name):
    if store == "file":
        workplace.environment |= {"MLFLOW_TRACKING_URI": str(workplace.folder / "mlruns")}
        workplace.environment |= {"MLFLOW_ALLOW_FILE_STORE": "true"}
    found, err = codes(workplace, BEGIN + RUN + ENDS[name])
    assert found == [found[0]] * 3, err
    assert "tracker-health: " in err, "the run was judged"


def test_a_signal_that_was_ignored_from_the_start_still_ends_it(workplace):
    """As under nohup: the command sets its own handling, and is ended by it."""
    script = "import os, signal; signal.signal(1, signal.SIG_DFL); os.kill(os.getpid(), 1)"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = workplace.start(*EXEC, sys.executable, "-c", script)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert workplace.ended(process)[0] == -signal.SIGHUP
