"""How a process ends is the same with us and without, to whoever waits for it: real processes, side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from .conftest import ROOT

BEGIN = "import atexit, multiprocessing, os, signal, subprocess, sys, threading, time\n"
BY_SIGNAL = "os.kill(os.getpid(), signal.{}); time.sleep(60)\n"
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL", "SIGSEGV", "SIGABRT", "SIGUSR1", "SIGUSR2", "SIGALRM")
LATER = "def later():\n    time.sleep(0.3)\n    {}\nthreading.Thread(target=later).start()\n"
IN_A_CHILD = """
def work():
    {}
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
sys.exit(child.exitcode & 255)
"""
BY_A_SHELL = "sys.exit(subprocess.call(['sh', '-c', {!r}]) & 255)\n"
ENDS = {
    **{name: BY_SIGNAL.format(name) for name in SIGNALS},
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
    "SIGPIPE": "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n" + BY_SIGNAL.format("SIGPIPE"),
    **{f"sys.exit({code})": f"sys.exit({code})\n" for code in (0, 1, 255, 256, -1, None, 3.5, (), True)},
    "an empty message": "sys.exit('')\n",
    "nobody reads": "r, w = os.pipe(); os.close(r); os.dup2(w, 1); print('x' * 10)\n",
    "a full disk": "os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('x')\n",
    "a closed output": "sys.stdout.close()\n",
    "its own hook fails": "def hook(*_): 1 / 0\nsys.excepthook = hook\nraise ValueError\n",
    "an exit during an exception": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    sys.exit(5)\n",
    "its own exit raises": "atexit.register(lambda: 1 / 0)\n",
    "its own exit raises after 3": "atexit.register(lambda: 1 / 0)\nsys.exit(3)\n",
    "its own exit exits": "atexit.register(lambda: sys.exit(6))\nsys.exit(3)\n",
    "its own exit is interrupted": "def late(): raise KeyboardInterrupt\natexit.register(late)\n",
    "its own exit leaves": "atexit.register(os._exit, 8)\nraise KeyboardInterrupt\n",
    "a thread is alive": LATER.format("pass") + "sys.exit(3)\n",
    "a thread fails": LATER.format("1 / 0"),
    "a thread exits": LATER.format("sys.exit(3)"),
    "a thread leaves": LATER.format("os._exit(4)") + "sys.exit(3)\n",
    "a thread is alive after Ctrl-C": LATER.format("pass") + "raise KeyboardInterrupt\n",
    "Ctrl-C while a thread is alive": LATER.format("os.kill(os.getpid(), signal.SIGINT); time.sleep(0.5)"),
    "a daemon is alive": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nraise KeyboardInterrupt\n",
    "a child fails": IN_A_CHILD.format("1 / 0"),
    "a child exits": IN_A_CHILD.format("sys.exit(3)"),
    "a child is interrupted": IN_A_CHILD.format("raise KeyboardInterrupt"),
    "a child is killed": IN_A_CHILD.format("os.kill(os.getpid(), 9)"),
    "a shell exits": BY_A_SHELL.format("exit 3"),
    "a shell is interrupted": BY_A_SHELL.format("kill -INT $$"),
    "a shell takes its place": "os.execvp('sh', ['sh', '-c', 'kill -INT $$'])\n",
    "a shell in its place exits": "os.execvp('sh', ['sh', '-c', 'exit 3'])\n",
}
WITH_A_RUN = tuple(name for name in ENDS if not name.startswith(("sys.exit(", "a shell")))
RUN = """
import mlflow
mlflow.start_run(run_name="r")
for step in range(12):
    mlflow.log_metric("loss", 2.3 * 0.9 ** step, step=step)
"""
EXEC = (sys.executable, "-m", "tracker_health", "exec", "--wait", "60", "--")


def _started(folder):
    """A folder that has Python do at its start what it does where the package is installed."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text((ROOT / "src" / "tracker-health.pth").read_text())
    return site


def codes(place, script):
    """The return code without us, with the variable, and under ``exec``; and the last one's standard error."""
    (place.folder / "train.py").write_text(script)
    command = (sys.executable, "train.py")
    path = f"{place.environment.get('PYTHONPATH', '')}:{_started(place.folder)}".strip(":")
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


LOOP = 'for i in 1 2; do "$@"; echo "again $?"; done'
TRAINED = "print('trained', flush=True)\ntime.sleep(60)\n"
WANDB = """
import wandb
run = wandb.init(project="p", name="r", settings=wandb.Settings(console="off"))
for step in range(12):
    run.log({"loss": 2.3 * 0.9 ** step})
"""
TYPED = {
    "": TRAINED,
    "in mlflow": RUN + TRAINED,
    "in mlflow's with": "import mlflow\nwith mlflow.start_run(run_name='r'):\n    mlflow.log_metric('loss', 1)\n    "
    + TRAINED.replace("\n", "\n    ").strip(),
    "in wandb": WANDB + TRAINED,
    "in wandb's with": "import wandb\nwith wandb.init(project='p', name='r', settings=wandb.Settings(console='off')) as run:\n"
    "    run.log({'loss': 1})\n    " + TRAINED.replace("\n", "\n    ").strip(),
    "and caught": f"try:\n    {TRAINED.replace(chr(10), chr(10) + '    ').strip()}\nexcept KeyboardInterrupt:\n    sys.exit(4)\n",
}


def typed(place, command, **more):
    """Of a shell's loop over a command, which gets Ctrl-C once it has trained: its own end, and what it printed."""
    process = subprocess.Popen(
        ["bash", "-c", LOOP, "loop", *command], cwd=place.folder, env=place.environment | more, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    printed = []
    for line in process.stdout:
        printed.append(line.strip())
        if line == "trained\n":
            time.sleep(0.3)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
    code, _, err = place.ended(process)
    return (code, [line for line in printed if line.startswith(("again", "trained"))]), err


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(TYPED))
def test_a_loop_of_a_shell_ends_with_ctrl_c_as_it_does_without_us(workplace, name):
    (workplace.folder / "train.py").write_text(BEGIN + TYPED[name])
    command = (sys.executable, "train.py")
    path = f"{workplace.environment.get('PYTHONPATH', '')}:{_started(workplace.folder)}".strip(":")
    plain, _ = typed(workplace, command)
    variable, said = typed(workplace, command, TRACKER_HEALTH_AUTO="1", PYTHONPATH=path)
    under_exec, err = typed(workplace, [*EXEC, *command])
    assert (variable, under_exec) == (plain, plain), (said, err)
