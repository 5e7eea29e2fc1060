"""``tracker-health exec``: the command runs as it would without it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tracker_health.hooks import launcher
from tracker_health.hooks.startup_path import FOLDER, with_startup, without_startup

pytestmark = pytest.mark.slow

EXEC = (sys.executable, "-m", "tracker_health", "exec", "--")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 41"), 41),
        (("sh", "-c", "kill -KILL $$"), -signal.SIGKILL),
        (("no-such-command",), 127),
        (("/",), 126),
    ],
)
def test_exit_codes(workplace, command, code):
    ended, out, err = workplace.ended(workplace.start(*EXEC, *command))
    assert (ended, out) == (code, "")
    if code in (126, 127):
        message, hint = err.splitlines()
        assert message.startswith("tracker-health: ")
        assert command[0] in message
        assert hint.startswith("  try: ")
    else:
        assert err == ""


def test_an_exit_code_where_children_are_ignored():
    """As some supervisors leave SIGCHLD: the system then keeps no exit codes for whoever has inherited that."""
    script = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, *EXEC, sys.executable, "-c", "import sys; sys.exit(3)"]
    assert subprocess.run(command, capture_output=True, timeout=120, check=False).returncode == 3


def test_streams_environment_and_files_are_the_commands_own(workplace):
    """Also a file that somebody opened for it; of the environment only what switches the hooks on is different."""
    with Path(__file__).open("rb") as file:
        number = file.fileno()
        script = "import os, sys; print(input()); print(*os.environ, sep='\\n'); sys.stderr.write('problem\\n'); "
        script += f"print(os.fdopen({number}).read(), end='')"
        done = subprocess.run(
            [*EXEC, sys.executable, "-c", script],
            input="typed\n",
            capture_output=True,
            text=True,
            pass_fds=(number,),
            env=workplace.environment | {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "MINE": "1"},
            check=True,
            timeout=60,
        )
    assert done.stdout.startswith("typed\n")
    assert done.stdout.endswith(Path(__file__).read_text())
    assert done.stderr == "problem\n"
    names = set(done.stdout.splitlines())
    added = {"TRACKER_HEALTH_AUTO", "TRACKER_HEALTH_LEDGER", "PYTHONPATH", "MINE"}
    assert added <= names
    assert not names & {"MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"}


def test_without_hooks(workplace):
    script = "env | grep -c '^TRACKER_HEALTH_AUTO\\|^TRACKER_HEALTH_LEDGER'"
    process = workplace.start(*EXEC, "sh", "-c", script, TRACKER_HEALTH_DISABLED="1")
    assert workplace.ended(process) == (1, "0\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_are_passed_on(workplace, number):
    script = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('got it', flush=True), sys.exit(5)))\n"
        "print('ready', flush=True)\ntime.sleep(60)\n"
    )
    before = signal.signal(
        number, signal.SIG_DFL
    )  # where it is ignored, as in a shell's background, the child ignores it
    try:
        process = workplace.start(*EXEC, sys.executable, "-c", script)
    finally:
        signal.signal(number, before)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (5, "got it\n", "")


COUNTS = """
import signal, sys, time
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, _: got.append(number))
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.05)
print(*got)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.thinned(3)
def test_a_signal_for_the_whole_group_comes_once(number):
    """As ``timeout``, schedulers and terminals send it; one for us alone is passed on, before and after it."""
    command = [*EXEC, sys.executable, "-c", COUNTS, "6"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM if number != signal.SIGTERM else signal.SIGUSR1)
    time.sleep(0.5)
    process.send_signal(number)  # as `timeout` does: first its child, then all
    os.killpg(process.pid, number)
    time.sleep(2)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    first = signal.SIGTERM if number != signal.SIGTERM else signal.SIGUSR1
    assert out.split() == [str(int(one)) for one in (first, number, number)]


def test_a_signal_for_a_group_that_the_command_has_left_is_passed_on():
    process = subprocess.Popen(
        [*EXEC, "setsid", sys.executable, "-c", COUNTS, "3"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=60)[0].split() == [str(int(signal.SIGTERM))]


def test_a_signal_beside_many_open_files():
    """The numbers of ours are then above those that ``select`` knows."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(4096, limits[1])), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    for number in files:
        os.set_inheritable(number, True)
    try:
        process = subprocess.Popen(
            [*EXEC, sys.executable, "-c", COUNTS, "3"], stdout=subprocess.PIPE, text=True, close_fds=False
        )
    finally:
        for number in files:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0].split() == [str(int(signal.SIGTERM))]
    assert process.returncode == 0


def test_a_group_that_ends_before_the_command_has_started():
    """The signal that came before the command was there reaches it all the same."""
    for _ in range(5):
        process = subprocess.Popen([*EXEC, "sleep", "5"], start_new_session=True)
        wait_until(lambda group=process.pid: len(members(group)) > 1)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM


def test_a_signal_while_what_is_left_is_judged_does_not_change_the_exit_code(workplace):
    script = (
        "import os\nfrom tracker_health.hooks import finish\nfrom tracker_health.hooks.exec_log import RunToJudge\n"
        "finish.begun(RunToJudge(run='mlflow:' + 'a' * 32, tracking_uri=os.environ['HANGS'], folder=os.getcwd()))\n"
        "os.write(1, b'left')\nos._exit(7)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        uri = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        process = workplace.start(*EXEC, sys.executable, "-c", script, HANGS=uri)
        assert process.stdout.read(4) == "left"
        time.sleep(1.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 7
        process.communicate()
        for judge in workplace.judges():
            os.kill(judge, signal.SIGKILL)


def test_nothing_is_left_of_a_launcher_that_is_killed():
    process = subprocess.Popen([*EXEC, "sleep", "60"], start_new_session=True)
    group = process.pid
    wait_until(lambda: len(members(group)) == 3)
    process.kill()
    process.wait()
    wait_until(lambda: len(members(group)) == 1)
    os.killpg(group, signal.SIGKILL)


def members(group):
    """The command lines of the processes in a process group."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and os.getpgid(int(process.name)) == group:
                found.append((process / "cmdline").read_bytes())
    return found


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_process_that_has_ended_and_that_nobody_waits_for_is_dead():
    process = subprocess.Popen(["true"])
    wait_until(lambda: not launcher._is_alive(process.pid))
    assert launcher._is_alive(os.getpid())
    process.wait()


def test_a_sitecustomize_of_the_users_own_still_runs(workplace, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    script = (
        "import sys\nprint(sys.own, 'tracker_health.hooks.finish' in sys.modules, sys.modules['sitecustomize'].__file__)\n"
        "print([path for path in sys.path if path.endswith('startup')])\n"
    )
    path = os.pathsep.join(filter(None, [str(tmp_path / "own"), os.environ.get("PYTHONPATH", "")]))
    code, out, err = workplace.ended(workplace.start(*EXEC, sys.executable, "-c", script, PYTHONPATH=path))
    assert (code, err) == (0, "")
    assert out == f"True True {tmp_path / 'own' / 'sitecustomize.py'}\n[]\n"


def test_a_python_that_has_no_tracker_health(workplace, tmp_path):
    """Its programs run as if we were not there, at every depth."""
    script = "import sys; print('tracker_health' in sys.modules)"
    inner = [sys.executable, "-S", "-c", script]
    code, out, err = workplace.ended(workplace.start(*EXEC, "env", "-u", "PYTHONPATH", *inner))
    assert (code, out, err) == (0, "False\n", "")


def test_the_path_of_children():
    assert without_startup(with_startup("/a")) == "/a"
    assert with_startup(with_startup("/a")) == os.pathsep.join([FOLDER, "/a"])
    assert with_startup("") == FOLDER


def test_a_run_that_goes_on_elsewhere_is_left_alone(workplace):
    """A process that a command leaves behind, and that still trains."""
    script = (
        "import os, subprocess, sys\nfrom tracker_health.hooks import finish\nfrom tracker_health.hooks.exec_log import RunToJudge\n"
        "finish.begun(RunToJudge(run='mlflow:x', folder='/'))\nprint(os.getpid(), flush=True)\n"
        "os.close(1); os.close(2)\n"
        "import time; time.sleep(60)\n"
    )
    shell = f'"{sys.executable}" -c "$TRAIN" & sleep 2'
    process = workplace.start(*EXEC, "sh", "-c", shell, TRAIN=script)
    trainer = int(process.stdout.readline())
    try:
        out, err = process.communicate(timeout=60)
    finally:
        os.kill(trainer, signal.SIGKILL)
    assert process.returncode == 0
    assert err == f"tracker-health: mlflow:x continues in process {trainer}: not judged\n"
    assert out == ""


BIG = """
import mlflow, os
mlflow.start_run(run_name="big")
for step in range(60):
    mlflow.log_metric("loss", 2.3 * 0.95 ** step, step=step)
if "TAKES" in os.environ:
    kept = bytearray(2**32)
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def small_group(tmp_path):
    """A control group of 800 MB, in which the kernel kills what takes more."""
    found = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    is_first = "memory" in found
    place = Path("/sys/fs/cgroup", *(("memory", found["memory"][1:]) if is_first else (found.get("", "/")[1:],)))
    group = place / f"tracker-health-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(800 * 2**20))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.mark.parametrize(
    ("command", "takes", "ended"),
    [
        ('"$PYTHON" -c "$BIG"', {"TAKES": "1"}, "out-of-memory"),
        ('"$PYTHON" -c "$BIG"', {}, "killed"),
        ('sh -c \'"$PYTHON" -c "$BIG" || exit 1\'', {"TAKES": "1"}, "out-of-memory"),
    ],
    ids=["for lack of memory", "by somebody", "beneath a launcher with a code of its own"],
)
def test_a_kill_for_lack_of_memory_is_known_by_the_kernels_count(workplace, small_group, command, takes, ended):
    pytest.importorskip("mlflow")
    script = f'echo $$ > {small_group}/cgroup.procs; exec "$PYTHON" -m tracker_health exec --wait 100 -- {command}'
    process = workplace.start("sh", "-c", script, PYTHON=sys.executable, BIG=BIG, **takes)
    _, _, err = workplace.ended(process)
    tags, status = workplace.mlflow_runs()["big"]
    assert (tags["health.ended"], status) == (ended, "RUNNING"), err
    assert ("lack of memory" in tags["health.ended_by"]) == (ended == "out-of-memory")
