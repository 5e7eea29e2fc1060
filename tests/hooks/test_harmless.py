"""What must never hurt a training: a store that hangs, refuses or goes away, signals, forks, ranks, other people's patches."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

import pytest

from tracker_health import hooks
from tracker_health.hooks import early, exec_log, finish, guard, imports, patches
from tracker_health.hooks import judge_client as judge
from tracker_health.hooks import judge_process as worker
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import safely
from tracker_health.hooks.memory import memory_kills, memory_left
from tracker_health.words.ending import Ended, Ending

pytestmark = pytest.mark.slow

# What a training does at the end of a run, without a tracker that takes seconds to import.
ENDED = """
import os, signal, sys, time
from tracker_health.hooks import finish
from tracker_health.hooks.exec_log import RunToJudge
from tracker_health.hooks.guard import safely
finish.watch()
def ended(uri, run="mlflow:" + "a" * 32):
    safely(finish.ended, RunToJudge(run=run, tracking_uri=uri, folder=os.getcwd()))
"""


def test_a_server_that_hangs_refuses_or_goes_away(workplace):
    """The training's output and exit code are its own, and it waits no longer than it has to."""
    with socket.create_server(("127.0.0.1", 0)) as hangs, socket.create_server(("127.0.0.1", 0)) as gone:
        uris = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in (gone, hangs)]
        gone.close()
        script = f"{ENDED}\nended({uris[0]!r})\nended({uris[1]!r})\nprint('mine')\nsys.exit(9)\n"
        process = workplace.start(sys.executable, "-c", script, TRACKER_HEALTH_HOOK_SECONDS="40")
        out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (9, "mine\n")
    assert err.count("was not judged: ") == 2, err


def test_a_verdict_that_takes_too_long_is_not_waited_for(workplace):
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        uri = f"http://127.0.0.1:{hangs.getsockname()[1]}"
        script = f"{ENDED}\nended({uri!r})\nended({uri!r})\nprint('mine')\n"
        process = workplace.start(sys.executable, "-c", script, TRACKER_HEALTH_HOOK_SECONDS="1.5")
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "mine\n")
    said = f"tracker-health: mlflow:{'a' * 32} is being judged; the verdict will be on the run"
    assert err == f"{said}; {judge.BUDGET}=60 waits for it, as tracker-health exec does\n"


def test_no_interpreter_no_room_no_standard_error(monkeypatch, tmp_path, capsys):
    run = RunToJudge(run=str(tmp_path), folder=str(tmp_path))
    monkeypatch.setattr(early, "_home", os.getpid())
    monkeypatch.setenv(judge.BUDGET, "60")
    for broken in ("", "/no/such/python", sys.executable):
        monkeypatch.setattr(judge, "_judges", {})
        monkeypatch.setattr(sys, "executable", broken)
        if broken == sys.executable:
            monkeypatch.setattr(judge, "_environment", lambda: {"PYTHONPATH": "", "PYTHONHOME": "/nowhere"})
        assert safely(finish.ended, run) is None
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(judge, "_judges", {})
    assert safely(finish.ended, run) is None
    told = capsys.readouterr()
    assert told.out == ""
    failed = told.err.count("tracker-health: the hook failed and left the run alone: ")
    gone = told.err.count("tracker-health: the judge is gone, and has given no verdict")
    assert failed + gone == 4
    assert gone >= 1, "of a judge that comes up, and goes before anything could be written to it, either is said"
    assert "the program is frozen" in told.err
    monkeypatch.delattr(sys, "frozen")
    monkeypatch.setattr(judge, "_SHELL", ("/no/such/sh", *judge._SHELL[1:]))
    assert safely(finish.ended, run) is None
    assert "No such file or directory: '/no/such/sh'" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stderr", None)
    assert safely(finish.ended, run) is None


@pytest.fixture
def silent(monkeypatch):
    """The other end of a judge that is there and never answers."""
    ours, theirs = socket.socketpair()
    descriptor = ours.detach()

    def start(*_):
        return os.dup(descriptor)

    monkeypatch.setattr(judge, "_start", start)
    monkeypatch.setattr(judge, "_judges", {})
    monkeypatch.setattr(early, "_home", os.getpid())
    monkeypatch.setattr(finish, "_owners", {})
    monkeypatch.delenv("TRACKER_HEALTH_DISABLED", raising=False)
    for name in finish._RANKS:
        monkeypatch.delenv(name, raising=False)
    theirs.setblocking(False)
    yield theirs
    judge.of_this_process().leave()
    os.close(descriptor)
    theirs.close()


RUN = RunToJudge(run="mlflow:x", folder="/")
START = judge._start


def asked(connection, event="end"):
    """How many runs the judge was told of that have ended (or begun)."""
    received = b""
    with suppress(BlockingIOError):
        while chunk := connection.recv(100_000):
            received += chunk
    return received.count(b'{"event": "%b"' % event.encode())


def test_a_judge_that_takes_nothing_more_stops_no_training(silent, monkeypatch, capsys):
    """One that is busy while more runs end than a socket holds, and then more than anybody will wait for."""
    monkeypatch.setenv(judge.BUDGET, "0.1")
    for _ in range(2000):
        safely(finish.ended, RUN)
    found = asked(silent)
    assert 0 < found < 2000
    monkeypatch.setenv(judge.BUDGET, "60")
    reader = threading.Thread(target=judge.of_this_process().rest)
    reader.start()
    end = time.monotonic() + 60
    while found < 2000 and time.monotonic() < end:
        found += asked(silent)
    silent.close()
    reader.join()
    assert found == 2000


@pytest.mark.parametrize("launcher", [True, False])
def test_runs_that_end_beside_a_judge_that_hangs_are_given_up_in_the_end(
    silent, monkeypatch, capsys, tmp_path, launcher
):
    if launcher:
        (tmp_path / "exec_log").touch()
        monkeypatch.setenv(guard.EXEC_LOG, str(tmp_path / "exec_log"))
    monkeypatch.setenv(judge.BUDGET, "0.1")
    monkeypatch.setattr(judge, "MOST_OUTGOING", 10_000)
    for _ in range(2000):
        safely(finish.ended, RUN)
    assert capsys.readouterr().err.count("too many runs wait for the judge") == 1


def test_the_judge_is_told_when_a_run_begins_if_there_is_memory_for_it(silent, monkeypatch):
    for left, budget, told in ((None, "10", 1), (2**40, "10", 1), (2**40, "0", 0), (2**30, "10", 0)):
        monkeypatch.setenv(judge.BUDGET, budget)
        monkeypatch.setattr(judge, "memory_left", lambda left=left: left)
        finish.begun(RUN)
        assert asked(silent, "start") == told, (left, budget)


def test_what_changes_in_the_environment_while_a_run_goes_on(silent, monkeypatch):
    """Credentials of a store ask for another judge, which starts when it is needed; the rest for none."""
    monkeypatch.setenv(judge.BUDGET, "0.1")
    starts = []
    start = judge._start
    monkeypatch.setattr(judge, "_start", lambda *given: starts.append(given) or start(*given))
    finish.begun(RUN)
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    safely(finish.ended, RUN)
    assert len(starts) == 1
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "another")
    finish.begun(RUN)
    assert len(starts) == 1
    safely(finish.ended, RUN)
    assert len(starts) == 2


def test_a_fork_lets_go_of_its_parents_judge(silent, monkeypatch):
    """Or a worker that lives on would keep the judge waiting for a training that is gone."""
    monkeypatch.setenv(judge.BUDGET, "1")
    finish.begun(RUN)
    held = judge.of_this_process()._line.descriptor
    child = os.fork()
    if not child:
        try:
            os.fstat(held)
        except OSError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.fstat(held)


@pytest.mark.parametrize(
    ("membership", "folder", "names"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/b", ("memory.max", "memory.current", "inactive_file")),
        ("0::/elsewhere\n", "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
        (
            "9:cpu:/\n4:memory:/a/b\n0::/\n",
            "sys/fs/cgroup/memory/a",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_the_memory_that_is_left_is_the_containers(tmp_path, membership, folder, names):
    limit, used, cache = names
    place = tmp_path / folder
    place.mkdir(parents=True)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    4000 kB\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text(membership)
    assert memory_left(tmp_path) == 4000 * 1024
    (place / limit).write_text("max\n")
    (place / used).write_text("900000\n")
    (place / "memory.stat").write_text(f"anon 1\n{cache} 300000\n")
    assert memory_left(tmp_path) == 4000 * 1024
    (place / limit).write_text("1000000\n")
    assert memory_left(tmp_path) == 400_000
    assert memory_left(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("membership", "file"),
    [
        ("0::/a/b\n", "sys/fs/cgroup/a/b/memory.events"),
        ("0::/elsewhere\n", "sys/fs/cgroup/memory.events"),
        ("4:memory:/a/b\n0::/\n", "sys/fs/cgroup/memory/a/b/memory.oom_control"),
    ],
)
def test_the_kills_for_lack_of_memory_are_counted_by_the_kernel(tmp_path, membership, file):
    assert memory_kills(tmp_path) is None
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(membership)
    assert memory_kills(tmp_path) is None
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("oom 7\noom_kill 3\noom_group_kill 9\n")
    assert memory_kills(tmp_path) == 3
    (tmp_path / file).write_bytes(b"\xff" * 2**20 + b"\noom_kill 3\n")  # more than is read
    assert memory_kills(tmp_path) is None


PREPARED = """
import os, sys, time
from tracker_health.hooks import finish, judge_client
from tracker_health.hooks.exec_log import RunToJudge
finish.watch()
finish.begun(RunToJudge(run="mlflow:" + "a" * 32, tracking_uri="sqlite:///none.db", folder=os.getcwd()))
print(judge_client.of_this_process()._line is not None, flush=True)
if sys.argv[1] == "killed":
    if not os.fork():
        time.sleep(60)  # a worker that its parent's death does not end
    os.kill(os.getpid(), 9)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["killed", "ends"])
@pytest.mark.thinned(2)
def test_a_judge_that_waits_leaves_with_its_training(workplace, how):
    process = workplace.start(sys.executable, "-c", PREPARED, how, MLFLOW_TRACKING_URI="sqlite:///none.db")
    assert process.stdout.readline() == "True\n"
    process.wait(60)
    process.stdout.close()
    process.stderr.close()
    workplace.wait_for_judges()
    assert workplace.judges() == []


def test_a_judge_that_waits_goes_where_memory_gets_short(monkeypatch):
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_prepare", lambda _: None)
    left = iter([None, 2**40, 2**29])
    monkeypatch.setattr(worker, "memory_left", lambda: next(left))
    with ours, theirs:
        ours.sendall(exec_log.line_of("start", RUN))
        worker._Session(theirs).serve()
    assert next(left, "asked each time") == "asked each time"


@pytest.mark.parametrize("error", [TimeoutError, SystemExit, ValueError, KeyboardInterrupt])
def test_what_a_signal_handler_raises_reaches_the_training(silent, monkeypatch, error):
    """SIGTERM that becomes SystemExit, an alarm that becomes TimeoutError: none is swallowed by a hook that waits."""
    monkeypatch.setenv(judge.BUDGET, "30")

    def handler(*_):
        raise error("mine")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(error, match="mine"):
            safely(finish.ended, RUN)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("waiting", ["for another thread", "for another thread at the end"])
def test_what_a_signal_handler_raises_reaches_the_training_from_every_wait(silent, monkeypatch, waiting):
    monkeypatch.setenv(judge.BUDGET, "30")
    ours = judge.of_this_process()
    held, done = threading.Event(), threading.Event()

    def hold():
        with ours._lock:
            held.set()
            done.wait(60)

    def handler(*_):
        raise TimeoutError("mine")

    threading.Thread(target=hold, daemon=True).start()
    held.wait(60)
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError, match="mine"):
            safely(*([ours.rest] if waiting.endswith("end") else [finish.ended, RUN]))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        done.set()


@pytest.mark.exhaustive
def test_an_interpreter_that_takes_long_to_start_is_not_waited_for(workplace, tmp_path):
    """As from a file system that is far away. What the training tells it meanwhile waits for it."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nsleep 6\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    script = f"""{ENDED}
import time
sys.executable = {str(program)!r}
begin = time.monotonic()
run = RunToJudge(run={str(tmp_path)!r}, folder=os.getcwd())
safely(finish.begun, run)
safely(finish.ended, run)
print(time.monotonic() - begin < 4)
"""
    (tmp_path / "log.jsonl").write_text("".join(f'{{"step": {step}, "loss": {0.95**step}}}\n' for step in range(60)))
    code, out, err = workplace.train(script, TRACKER_HEALTH_HOOK_SECONDS="0.2")
    assert (code, out, err.count("is being judged")) == (0, "True\n", 1)
    wait_until_there(tmp_path / "health" / "report.json")


def wait_until_there(path):
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_program_that_closes_our_socket_and_opens_files_of_its_own(silent, monkeypatch):
    """As a daemon does: the number is then another file's, into which nothing of ours is written, and which stays."""
    monkeypatch.setenv(judge.BUDGET, "0.1")
    finish.begun(RUN)
    number = judge.of_this_process()._line.descriptor
    mine, theirs = socket.socketpair()
    with mine, theirs:
        os.dup2(theirs.fileno(), number)
        mine.setblocking(False)
        assert asked(silent, "start") == 1
        safely(finish.ended, RUN)
        assert asked(silent) == 1
        assert asked(mine) == 0
        judge.of_this_process().leave()
        os.fstat(number)
        os.close(number)


def test_where_standard_output_is_closed_the_judge_does_not_take_its_number(workplace):
    script = """
import os, sys
from tracker_health.hooks import finish, judge_client
from tracker_health.hooks.exec_log import RunToJudge
os.close(1)
finish.begun(RunToJudge(run="mlflow:" + "a" * 32, tracking_uri="sqlite:///none.db", folder=os.getcwd()))
try:
    os.write(1, b"of the training's own")
except OSError:
    print(judge_client.of_this_process()._line.descriptor > 2, file=sys.stderr)
"""
    code, out, err = workplace.train(script)
    assert (code, out, err) == (0, "", "True\n")


def test_a_judge_survives_what_is_none_of_ours(monkeypatch):
    ours, theirs = socket.socketpair()
    prepared = []
    monkeypatch.setattr(worker, "_prepare", prepared.append)
    with ours, theirs:
        ours.sendall(b"NCCL INFO hello\n[]\n{}\n" + exec_log.line_of("start", RUN))
        ours.shutdown(socket.SHUT_WR)
        worker._Session(theirs).serve()
    assert prepared == [RUN]


def test_a_signal_handler_that_ends_a_run_does_not_wait_for_the_hook_that_it_interrupts(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "1")
    before = signal.signal(signal.SIGALRM, lambda *_: safely(finish.ended, RUN))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        safely(finish.ended, RUN)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert asked(silent) == 2


def test_threads_that_end_runs_at_once_lose_none(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "0.3")
    threads = [threading.Thread(target=safely, args=(finish.ended, RUN)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked(silent) == 8


def test_a_training_that_wants_to_die_of_sigpipe_does_not(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "0.1")
    silent.close()
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        safely(finish.ended, RUN)
    finally:
        signal.signal(signal.SIGPIPE, before)


@pytest.mark.parametrize(
    ("environment", "begun_here", "expected"),
    [
        ({}, False, 1),
        ({"RANK": "0", "LOCAL_RANK": "0"}, False, 1),
        ({"RANK": "4", "LOCAL_RANK": "0"}, False, 0),
        ({"LOCAL_RANK": "1"}, False, 0),
        ({"SLURM_PROCID": "1"}, False, 0),
        ({"RANK": "1"}, True, 1),
        ({"TRACKER_HEALTH_DISABLED": "1"}, True, 0),
    ],
)
def test_the_process_that_began_a_run_or_the_first_rank_has_it_judged(
    silent, monkeypatch, environment, begun_here, expected
):
    monkeypatch.setenv(judge.BUDGET, "0")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if begun_here:
        finish.begun(RUN)
    safely(finish.ended, RUN)
    assert asked(silent) == expected


def test_a_run_that_has_ended_and_that_a_fork_goes_on_with_is_the_forks(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "0")
    finish.begun(RUN)
    if not os.fork():
        finish.resumed(RUN)  # its parent goes on with it as well
        safely(finish.ended, RUN)
        os._exit(0)
    os.wait()
    assert asked(silent) == 0
    safely(finish.ended, RUN)
    if not os.fork():
        finish.resumed(RUN)
        safely(finish.ended, RUN)
        os._exit(0)
    os.wait()
    assert asked(silent) == 2


def test_a_verdict_is_not_waited_for_twice(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "0.5")
    safely(finish.ended, RUN)
    ours, waits = judge.of_this_process(), []
    answers = ours._answers
    monkeypatch.setattr(ours, "_answers", lambda end: waits.append(end - time.monotonic()) or answers(end))
    ours.rest()
    assert max(waits) < 0.1


def test_a_fork_has_only_its_own_runs_judged(silent, monkeypatch):
    monkeypatch.setenv(judge.BUDGET, "0")
    finish.begun(RUN)
    child = os.fork()
    if not child:
        safely(finish.ended, RUN)
        safely(finish.ended, RunToJudge(run="mlflow:resumed", folder="/"))
        os._exit(0)
    os.waitpid(child, 0)
    assert asked(silent) == 0
    child = os.fork()
    if not child:
        own = RunToJudge(run="mlflow:own", folder="/")
        finish.begun(own)
        safely(finish.ended, own)
        os._exit(0)
    os.waitpid(child, 0)
    assert asked(silent) == 1


# Patching


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A package that imports something of its own in its middle, and then something else."""
    package = tmp_path / "hooked_in_tests"
    package.mkdir()
    (package / "__init__.py").write_text("from hooked_in_tests import client, later\n")
    (package / "client.py").write_text(
        "import hooked_in_tests.plugin\nclass Client:\n    def end(self, run_id, status=None):\n        return status\n"
    )
    (package / "plugin.py").write_text("")
    (package / "later.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    imports.forget("hooked_in_tests.client")
    for name in [name for name in sys.modules if name.startswith("hooked_in_tests")]:
        del sys.modules[name]


def test_a_module_is_patched_once_it_is_complete(module):
    seen = []
    (module / "plugin.py").write_text("import sys\nsys.modules['hooked_in_tests.asked']()\n")
    sys.modules["hooked_in_tests.asked"] = lambda: imports.when_imported("hooked_in_tests.client", seen.append)
    finders = list(sys.meta_path)
    package = importlib.import_module("hooked_in_tests")
    assert seen == [package.client]
    assert sys.meta_path == finders
    assert type(package.client.__loader__).__name__ == "SourceFileLoader"


def test_a_patch_that_fails_does_not_fail_the_import(module):
    def fails(_):
        raise RuntimeError("mine")

    imports.when_imported("hooked_in_tests.client", fails)
    assert importlib.import_module("hooked_in_tests").client.Client().end(1, "x") == "x"


def test_wrapping_is_undone_even_below_somebody_elses_wrapper():
    class Client:
        def end(self, run_id, status=None):
            """Ends."""
            return status

    original, seen = Client.end, []
    undo = patches.wrap(Client, "end", lambda *given: seen.append(given))
    again = patches.wrap(Client, "end", lambda *_: pytest.fail("wrapped twice"))
    assert Client().end(1, status="x") == "x"
    assert [(result, len(arguments), options) for result, arguments, options in seen] == [("x", 2, {"status": "x"})]
    assert Client.end.__doc__ == "Ends."
    ours = Client.end
    Client.end = lambda self, run_id, status=None: ours(self, run_id, status)
    again()
    undo()
    assert Client().end(1, "y") == "y"
    assert len(seen) == 1
    Client.end = original
    undo = patches.wrap(Client, "end", lambda *given: seen.append(given))
    undo()
    assert Client.end is original


def test_hooks_that_were_off_come_on_again_above_somebody_elses_wrapper():
    class Client:
        def end(self):
            return "x"

    seen = []
    undo = patches.wrap(Client, "end", lambda *_: seen.append("first"))
    ours = Client.end

    @functools.wraps(ours)
    def theirs(self):
        return ours(self)

    Client.end = theirs
    patches.wrap(Client, "end", lambda *_: pytest.fail("wrapped twice"))
    undo()
    patches.wrap(Client, "end", lambda *_: seen.append("second"))
    assert Client().end() == "x"
    assert seen == ["second"]


def test_autolog_is_idempotent_and_undone():
    client = pytest.importorskip("mlflow.tracking._tracking_service.client").TrackingServiceClient
    before = client.set_terminated, client.update_run, client.create_run
    hooks.autolog()
    hooked = client.set_terminated
    hooks.autolog()
    assert client.set_terminated is hooked is not before[0]
    hooks.autolog(disable=True)
    assert (client.set_terminated, client.update_run, client.create_run) == before


def test_the_kill_switch_comes_before_everything(monkeypatch):
    client = pytest.importorskip("mlflow.tracking._tracking_service.client").TrackingServiceClient
    monkeypatch.setenv("TRACKER_HEALTH_DISABLED", "1")
    monkeypatch.setenv("TRACKER_HEALTH_AUTO", "1")
    before = client.set_terminated
    hooks.autolog()
    hooks.autolog_if_wanted()
    assert client.set_terminated is before


def test_a_tracker_that_cannot_be_hooked_onto_is_told_of_in_one_line(monkeypatch, capsys):
    module = pytest.importorskip("mlflow.tracking._tracking_service.client")
    before = module.TrackingServiceClient.set_terminated
    monkeypatch.setattr(module.TrackingServiceClient, "update_run", None)
    hooks.autolog()
    try:
        assert module.TrackingServiceClient.set_terminated is before
        assert capsys.readouterr().err.count("this MLflow cannot be hooked onto") == 1
    finally:
        hooks.autolog(disable=True)


def test_a_exec_log_that_was_cut_off(tmp_path, monkeypatch):
    path = tmp_path / "exec_log"
    path.touch()
    monkeypatch.setenv(guard.EXEC_LOG, str(path))
    other = RunToJudge(run="mlflow:y", folder="/", log="/x.wandb")
    exec_log.note("start", RUN)
    exec_log.note("start", other)
    exec_log.note("end", RUN)
    with path.open("ab") as file:
        file.write(b'{"event": "end", "pid": 1, "run": {"run": "mlfl')
    found = exec_log.ExecLog(path).read()
    (left,) = found.left
    assert (left.run, left.pid, found.exits) == (other, os.getpid(), {})
    with path.open("ab") as file:
        file.write(b"\n")
    failed = Ending(how=Ended.FAILED, by="exit code 3")
    exec_log.note("exit", ending=failed)
    assert (found.read().exits, found.left, found.full) == ({os.getpid(): failed}, [left], False)


def test_a_exec_log_with_more_than_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(exec_log, "_MAX_BYTES", 1000)
    path = tmp_path / "exec_log"
    path.write_bytes(exec_log.line_of("start", RUN) * 100)
    found = exec_log.ExecLog(path).read()
    assert (len(found.left), found.full) == (1, True)
    assert found.read().full


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ("start 1, start 2, end 2", [1]),
        ("start 1, start 2, end 1", []),
        ("start 1, start 2, end 2, end 1", []),
        ("start 1, end 3", []),
        ("start 1, end 1, start 2", [2]),
    ],
)
def test_who_has_ended_a_run_that_several_processes_go_on_with(tmp_path, monkeypatch, events, left):
    path = tmp_path / "exec_log"
    for one in events.split(", "):
        event, pid = one.split()
        monkeypatch.setattr(exec_log.os, "getpid", lambda pid=pid: int(pid))
        with path.open("ab") as file:
            file.write(exec_log.line_of(event, RUN))
    assert [one.pid for one in exec_log.ExecLog(path).read().left] == left


def test_no_secret_is_seen_in_the_list_of_processes(silent, monkeypatch):
    """The address of a store may hold a password: it goes through the socket, not onto a command line."""
    monkeypatch.setenv(judge.BUDGET, "0")
    safely(finish.ended, RunToJudge(run="mlflow:x", folder="/", tracking_uri="postgresql://u:secret@h/d"))
    assert b"secret" in silent.recv(10_000)
