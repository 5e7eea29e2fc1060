"""``tracker-health exec``: runs a command with the hooks in it, outlives it, and judges the runs that it left open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from tracker_health.hooks import judge_client
from tracker_health.hooks.exec_log import EndedRun, ExecLog, JudgeLine, LeftRun, RunToJudge
from tracker_health.hooks.guard import EXEC_LOG, begin_tree, end_tree, is_disabled, safely, say
from tracker_health.hooks.memory import memory_kills
from tracker_health.hooks.signals import SignalWitness
from tracker_health.hooks.startup_path import with_startup
from tracker_health.terminal import say_error
from tracker_health.words.ending import Ended, Ending, ending_by_exit_code

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_SIGNALLED = 128
_LOOK_SECONDS = 0.05
_NOT_CAUGHT = tuple(int(getattr(signal, name)) for name in ("SIGKILL", "SIGSTOP") if hasattr(signal, name))
_PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def run(command: Sequence[str], wait: float) -> int:
    """Run a command with the hooks in it and all that it starts; its exit code, or minus the signal that killed it.

    Its streams, its signals and its terminal are its own. When it is gone, the runs that it left open are judged, and
    the verdicts on all are waited for: at most ``wait`` seconds.
    """
    try:
        return _supervised(command, os.environ)[0] if is_disabled() else _hooked(command, wait)
    except OSError as error:
        return _say_not_run(command[0], error)


def end_as(code: int) -> NoReturn:
    """End this process as the command ended: with its exit code, or by the same signal, so that a shell or a scheduler
    sees no difference. The first process of a container is spared by its own signals: it leaves with 128 and the
    signal, as a shell would.
    """
    if code < 0:
        with suppress(Exception):  # closed, or full
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError, ValueError):
            _end_by(-code)
    sys.exit(_exit_code(code))


def _end_by(number: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        # The command's own is there already, where it is wanted.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in _NOT_CAUGHT:
        signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    time.sleep(_LOOK_SECONDS)  # another thread may be the one to get it


def _say_not_run(command: str, error: OSError) -> int:
    """Say that a command could not be started, and what to try; the exit code that a shell gives for it."""
    if isinstance(error, FileNotFoundError):
        # A script whose first line names an interpreter that is not there is not found either.
        exists = Path(command).exists()
        message = f"{command} could not be started: the interpreter in its first line does not exist"
        message = message if exists else f"there is no command {command}"
        say_error(message, "check its name, or give the full path, as in: tracker-health exec -- python train.py")
        return _NOT_FOUND
    hint = f"make it executable (chmod +x {command}), or start it with its interpreter: python {command}"
    say_error(f"{command} cannot be run: {error.strerror}", hint)
    return _NOT_EXECUTABLE


def _hooked(command: Sequence[str], wait: float) -> int:
    safely(begin_tree)
    exec_log = safely(_new_exec_log)
    if exec_log is None:  # no room for a file: the command runs all the same
        return _supervised(command, _environment({}))[0]
    try:
        before = safely(memory_kills)
        code, pid = _supervised(command, _environment({EXEC_LOG: str(exec_log)}))
        with suppress(KeyboardInterrupt), _caught(_wait_no_longer):  # the judge continues without us
            exit_of = _Exit(code, pid, killed_for_memory=before is not None and (safely(memory_kills) or 0) > before)
            safely(_judge_all, exec_log, exit_of, wait)
        return code
    finally:
        end_tree()
        with suppress(OSError):
            exec_log.unlink()


def _wait_no_longer(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _new_exec_log() -> Path:
    descriptor, path = tempfile.mkstemp(prefix="tracker-health-")
    os.close(descriptor)
    return Path(path)


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    path = with_startup(os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": path, "TRACKER_HEALTH_AUTO": "1", **more}


# The command


def _supervised(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """What the command returned, as ``Popen`` has it, and the id of its process.

    Raises:
        OSError: it cannot be run.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _frame: FrameType | None = None) -> None:
        if not started:
            early.append(number)
        elif witness is None or not _has_reached(started[0], number, witness):
            started[0].send_signal(number)

    if hasattr(signal, "SIGCHLD") and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited so, the system forgets what the command returned, and it would count as 0.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with _caught(pass_on) as caught, _witness(caught) as witness:
        # The files that we were given for it stay open; ours are not inherited anyway.
        process = subprocess.Popen(command, env=environment, close_fds=False)  # noqa: S603  what we are asked to run
        started.append(process)
        for number in early:  # whoever else got it, the command was not there yet
            process.send_signal(number)
        return process.wait(), process.pid


def _has_reached(process: subprocess.Popen[bytes], number: int, witness: SignalWitness) -> bool:
    """Whether a signal that has come to us has come to the command as well; where that is not known it has not."""
    with suppress(OSError):
        return os.getpgid(process.pid) == os.getpgrp() and witness.saw(number)
    return False


@contextmanager
def _witness(caught: list[int]) -> Iterator[SignalWitness | None]:
    """Someone who sees which of the signals reach the command anyway; nobody where there is no room for it."""
    try:
        witness = SignalWitness(caught) if hasattr(signal, "pthread_sigmask") else None
    except OSError:
        witness = None
    if witness is None:
        yield None
        return
    try:
        yield witness
    finally:
        witness.leave()


@contextmanager
def _caught(handler: Callable[[int, FrameType | None], None]) -> Iterator[list[int]]:
    """Have the signals that are passed on call a handler; which these are."""
    known = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    # What the command inherits as ignored stays ignored, as under nohup.
    caught = [number for number in known if before[number] not in (signal.SIG_IGN, None)]
    for number in caught:
        signal.signal(number, handler)
    try:
        yield caught
    finally:
        for number in caught:
            signal.signal(number, before[number])


def _exit_code(code: int) -> int:
    return _SIGNALLED - code if code < 0 else code


# The runs


class _Exit(NamedTuple):
    """What came of the command. ``code``: as ``Popen`` has it; ``pid``: of its process; ``killed_for_memory``: the
    kernel has killed a process of its control group meanwhile, for lack of memory.
    """

    code: int
    pid: int
    killed_for_memory: bool = False

    @property
    def ending(self) -> Ending:
        """How a process ended whose code this is."""
        return self.explained(ending_by_exit_code(self.code))

    def explained(self, ending: Ending) -> Ending:
        """The same, with the reason for a kill where the kernel counts one."""
        if ending.how is not Ended.KILLED or not self.killed_for_memory:
            return ending
        return Ending(how=Ended.OUT_OF_MEMORY, by=f"{ending.by}; the kernel killed for lack of memory meanwhile")


def _judge_all(path: Path, exit_of: _Exit, wait: float) -> None:
    """Have the runs judged that the command left open, and print the verdict on all, for which it waits a while."""
    exec_log = ExecLog(path).read()
    waiting = _Waiting(exec_log)
    last = _last_of_command(exec_log, exit_of.pid)
    for ended in exec_log.ended:
        # What its own hook saw of the process's end is there already.
        seen = ended.pid != exit_of.pid or exec_log.exits.get(exit_of.pid) is not None
        taken = _taken_with(ended, exit_of.code)
        behind = _failed_after(ended, exit_of) if ended is last else None
        behind = behind or (None if seen else _ending_behind(ended, exit_of))
        waiting.add(ended.run, taken or behind, again=taken is not None)
    for left in exec_log.left:
        if _is_alive(left.pid):
            say(f"{left.run.run} continues in process {left.pid}: not judged")
        else:
            waiting.hand_over(left.run, _ending_of_left(left, exec_log, exit_of), left=True)
    if exec_log.full:
        say("the command had more runs than are followed here; those that it left open are left to sweep")
    waiting.until(time.monotonic() + wait)
    judge_client.of_this_process().leave()


class _Waiting:
    """For the verdicts on the runs of a command, which judges put down in its exec log."""

    def __init__(self, exec_log: ExecLog) -> None:
        self._exec_log = exec_log
        self._runs: dict[str, RunToJudge] = {}
        self._behind: dict[str, Ending] = {}
        self._again: set[str] = set()

    def add(self, run: RunToJudge, ending: Ending | None, *, again: bool = False) -> None:
        """A run that is being judged. Where that finds another ending than this one, it is judged again. ``again``:
        also where it finds one of the same kind.
        """
        self._runs[run.key] = run
        self._behind.pop(run.key, None)
        self._again.discard(run.key)
        if ending is not None:
            self._behind[run.key] = ending
            self._again |= {run.key} if again else set()

    def hand_over(self, run: RunToJudge, ending: Ending | None, *, left: bool = False) -> None:
        """Have a run judged by a judge of ours."""
        over = run.over(ending, str(self._exec_log.path), left=left)
        self._runs[run.key] = over
        judge_client.of_this_process().verdict(over)

    def until(self, end: float) -> None:
        """Print each final verdict as it comes; at the end of the time, what there is."""
        while self._runs:
            told = self._exec_log.read().told
            is_late = time.monotonic() >= end
            for key, run in list(self._runs.items()):
                lines = told.get(run.token, [])
                if not is_late and not (lines and lines[-1].final):
                    continue
                behind = self._behind.pop(key, None)
                is_known = bool(lines) and behind is not None and lines[-1].ended == behind.how
                if behind is not None and not (is_known and key not in self._again):
                    self.hand_over(run, behind)
                else:
                    say(_said(run, lines))
                    del self._runs[key]
            if self._runs:
                time.sleep(_LOOK_SECONDS)


def _said(run: RunToJudge, lines: list[JudgeLine]) -> str:
    if not lines:
        return run.being_judged
    if lines[-1].final or not lines[-1].line:  # nothing is said of what is only tried out
        return lines[-1].line
    return run.provisional(lines[-1].line)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and nobody has asked how: in a container without an init that is us."""
    with suppress(OSError, IndexError):  # gone meanwhile, or anywhere but on Linux
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
    return False


def _ending_behind(ended: EndedRun, exit_of: _Exit) -> Ending | None:
    """How a run of the command's own process ended, by what that returned; None where this says nothing of the run."""
    if ended.doubt is not None:
        return ended.doubt if exit_of.code else None
    return exit_of.ending if ended.leaving and not ended.run.ended else None


def _last_of_command(exec_log: ExecLog, pid: int) -> EndedRun | None:
    """The run that the command's own process ended last; None where it has left another open."""
    runs = [ended for ended in exec_log.ended if ended.pid == pid]
    return runs[-1] if runs and all(left.pid != pid for left in exec_log.left) else None


def _failed_after(ended: EndedRun, exit_of: _Exit) -> Ending | None:
    """How a run ended that its program had ended well, before it left with the exit code of an error."""
    ending, well = exit_of.ending, ended.run.ended in ("", str(Ended.FINISHED))
    if ending.how is not Ended.FAILED or exit_of.code < 0 or ended.leaving or ended.doubt is not None or not well:
        return None
    return Ending(how=ending.how, by=f"{ending.by}, after its program had ended the run")


def _taken_with(ended: EndedRun, code: int) -> Ending | None:
    """How a run ended that another rank took with it: what its own process saw of that is a connection that broke."""
    failed = ended.doubt is not None or ended.run.ended not in ("", str(Ended.FINISHED))
    return ended.after.said if ended.after is not None and failed and code else None


def _ending_of_left(left: LeftRun, exec_log: ExecLog, exit_of: _Exit) -> Ending | None:
    """How a run ended that nobody ended, by what its process saw, or by what the command returned: its own code, or
    what its shell or launcher made of it. None where its process came to its end in order, and did not fail: it may be
    meant to go on elsewhere.
    """
    code, pid = exit_of.code, exit_of.pid
    first = exec_log.failed_before(left.pid)
    if first is not None and code:
        return first.said
    if seen := exec_log.exits.get(left.pid):
        return seen
    if code == 0 and left.pid in exec_log.exits:
        return None
    gone = Ending(how=Ended.KILLED, by="its process is gone without a word")
    is_silent = left.pid != pid and left.pid not in exec_log.exits
    if is_silent and (code == 0 or (exit_of.killed_for_memory and exit_of.ending.how is Ended.FAILED)):
        return exit_of.explained(gone)  # what a launcher makes of a kill is a code of its own
    return exit_of.ending
