"""The judge: the process that judges the runs of a training process, one after the other, and outlives it if need be.

For each run that ends it answers with one line to show: the verdict by the metrics, which is on the run by then. The
rest (checkpoints, pictures) follows when nothing is waiting. While a run is still running it waits, with all imported
that it needs, unless memory gets short.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tracker_health.errors import ConfigError, MissingExtra
from tracker_health.hooks.exec_log import RunToJudge, event_of, note
from tracker_health.hooks.guard import UNABLE
from tracker_health.hooks.memory import memory_left
from tracker_health.text import printable

if TYPE_CHECKING:
    from tracker_health.config import Notify
    from tracker_health.judge.messages import Notice
    from tracker_health.runs.outcome import Outcome

GATHER_SECONDS = 20
"""How long a message waits for others: of trials that fail together people get one."""

IDLE_SECONDS = 60
"""How long it waits for another run where none is running."""

LOOK_SECONDS = 5
"""How often it looks, while a run is still running, whether someone needs its memory."""

ROOM_TO_WAIT = 2**30
"""Bytes that must be left for it to wait on."""

HARD_LIMIT_SECONDS = 3600
"""For one run: what takes longer hangs."""

FLUSH_SECONDS = 60
"""How long W&B may take to complete a log. It takes milliseconds, if nobody has killed it."""

_SETTLED_SECONDS = 2
_MAX_LINE = 2**20


def main() -> None:
    """Serve the process at the other end of standard input."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with suppress(OSError):
        os.nice(5)
    with suppress(OSError):  # where memory runs out, it is this process that goes, and not the training
        Path("/proc/self/oom_score_adj").write_text("1000")
    _Session(connection).serve()


class _Session:
    """What there is to do for a training process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._going_on: set[str] = set()
        self._prepared: set[tuple[str, str | None]] = set()
        self._rest: deque[RunToJudge] = deque()
        self._owing: dict[str, _Receiver] = {}

    def serve(self) -> None:
        """Until the training process is gone, or has had nothing to do for a while."""
        buffer = b""
        while True:
            if self._is_readable():
                chunk = _received(self._connection)
                if not chunk:
                    break
                *lines, buffer = (buffer + chunk).split(b"\n")
                buffer = buffer[:_MAX_LINE]
                for line in lines:
                    self._take(line)
            elif self._rest:
                _finish(self._rest.popleft(), self._owing)
            elif self._owing:
                _send(self._owing)
            elif not self._going_on or not _has_room():
                break
        for run in self._rest:
            _finish(run, self._owing)
        if self._owing:
            time.sleep(GATHER_SECONDS)
            _send(self._owing)

    def _is_readable(self) -> bool:
        seconds = LOOK_SECONDS if self._going_on else IDLE_SECONDS
        seconds = 0 if self._rest else GATHER_SECONDS if self._owing else seconds
        return bool(select.select([self._connection], [], [], seconds)[0])

    def _take(self, line: bytes) -> None:
        try:
            event, _, run = event_of(line)
        except (ValueError, TypeError, KeyError):  # something in the training has written into our socket
            return
        if run is None:
            return
        if event == "end":
            self._going_on.discard(run.key)
            self._rest += self._first(run)
            return
        self._going_on.add(run.key)
        tracker, colon, _ = run.run.partition(":")
        place = (tracker if colon else "", run.tracking_uri)
        if place not in self._prepared:
            self._prepared.add(place)
            self._answer(_prepare(run))

    def _first(self, run: RunToJudge) -> list[RunToJudge]:
        """Judge a run by its metrics and answer; the run again where more is to be done."""
        found = _judged(run, quick=True)
        if not (found.text or found.silent):
            found = _judged(run, quick=False)
        self._owing |= found.owing
        if run.exec_log:
            _tell_launcher(run, found)
        elif found.text.startswith(UNABLE):
            self._answer(found.text)
            self._answer("", always=True)
        else:
            said = found.text if found.complete or found.silent else run.provisional(found.text)
            self._answer(said, always=True)
        return [] if found.complete else [run]

    def _answer(self, text: str, *, always: bool = False) -> None:
        """Send a line to show. ``always``: also where there is nothing to show, as someone waits for it."""
        if text or always:
            with suppress(OSError):
                self._connection.sendall(json.dumps(text).encode() + b"\n")


def _has_room() -> bool:
    left = memory_left()
    return left is None or left >= ROOM_TO_WAIT


def _prepare(run: RunToJudge) -> str:
    """Import and connect to what judging a run will need. Nothing is written. Gives what to say where no run can be
    judged, which need not wait for the end of one.
    """
    signal.alarm(HARD_LIMIT_SECONDS)
    try:
        from tracker_health.api import annotate_as
        from tracker_health.runs.annotating import AnnotateOptions
        from tracker_health.runs.run_config import resolve_config
        from tracker_health.settings.sources import effective

        _enter(run.folder)
        settings = effective({}, lenient=True)
        uri = run.tracking_uri or settings.tracking_uri
        config = resolve_config(settings.config, writes=True)
        annotate_as(run.run, AnnotateOptions(config=config, tracking_uri=uri, quick=True, dry_run=True))
    except (ConfigError, MissingExtra) as error:
        return f"{UNABLE}{error}"
    except Exception:  # noqa: BLE001, S110  what is wrong will still be wrong when there is something to judge
        pass
    finally:
        signal.alarm(0)
    return ""


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(2**16)
    except OSError:  # the training process is gone
        return b""


def _finish(run: RunToJudge, owing: dict[str, _Receiver]) -> None:
    """Judge a run by all that it left, and say so to a launcher. ``owing``: where messages are to be sent."""
    found = _judged(run, quick=False)
    owing |= found.owing
    if run.exec_log:
        _tell_launcher(run, found)


def _tell_launcher(run: RunToJudge, found: _Judgement) -> None:
    note("verdict", run, path=run.exec_log, line=found.text, final=found.complete, ended=found.ended)


class _Receiver(NamedTuple):
    """Who gets the messages about runs of a store, and where its runs are."""

    notify: Notify
    tracking_uri: str | None


class _Judgement(NamedTuple):
    """What to say of a run, nothing where a quick look tells nothing; whether nothing more is to be done; how the run
    was found to have ended; and whether nothing is to be said, since verdicts are only tried out. ``owing``: who is to
    get a message, by the key of the store.
    """

    text: str
    complete: bool
    ended: str = ""
    silent: bool = False
    owing: Mapping[str, _Receiver] = {}


def _judged(run: RunToJudge, *, quick: bool) -> _Judgement:
    signal.alarm(HARD_LIMIT_SECONDS)
    try:
        _enter(run.folder)
        last_step = _last_step(Path(run.log), left=run.left) if run.log else None
        if run.left:  # what its process left unsent does not come any more
            last_step = None
        return _told(run, quick=quick, last_step=last_step)
    except (ConfigError, MissingExtra) as error:
        return _Judgement(f"{UNABLE}{error}", complete=True)
    except Exception as error:  # noqa: BLE001  told, and the other runs are still judged
        from tracker_health.errors import described

        return _Judgement(f"{printable(run.run)} was not judged: {described(error)}", complete=True)
    finally:
        signal.alarm(0)


def _enter(folder: str) -> None:
    """Work where the training did; at the root where that is gone, as addresses of stores are seldom relative."""
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")


def _told(run: RunToJudge, *, quick: bool, last_step: int | None) -> _Judgement:
    from tracker_health.api import annotate_as
    from tracker_health.runs.annotating import AnnotateOptions
    from tracker_health.runs.run_config import resolve_config
    from tracker_health.settings.sources import effective

    # Nobody is at hand to put a wrong setting right: the run is judged without it, and both say so.
    settings = effective({}, lenient=True)
    options = AnnotateOptions(
        config=resolve_config(replace(settings.config, notes=settings.warnings), writes=True),
        tracking_uri=run.tracking_uri or settings.tracking_uri,
        quick=quick,
        ending=run.ending,
        last_step=last_step,
        notify=True,
    )
    outcome = annotate_as(run.run, options)
    if quick and outcome.status == "checked":
        return _Judgement("", complete=False)
    complete = not quick or outcome.status == "unchanged"
    said = "" if outcome.shadow else _line(outcome, settings.warnings)
    receiver = _Receiver(settings.config.notify, run.tracking_uri or settings.tracking_uri)
    owing = _put(outcome.notice, receiver) if outcome.notice is not None else {}
    return _Judgement(said, complete, outcome.report.ended, silent=outcome.shadow, owing=owing)


def _put(notice: Notice, receiver: _Receiver) -> Mapping[str, _Receiver]:
    """Let a message wait on this machine. Where it cannot, it stays due on the run, and a sweep sends it."""
    from tracker_health.runs.message_queue import MessageQueue

    with suppress(OSError):
        MessageQueue().put([notice])
        return {notice.store: receiver}
    return {}


def _send(owing: dict[str, _Receiver]) -> None:
    """Send the messages that wait. What cannot be sent now is sent by whoever comes next."""
    from tracker_health.runs.lookup import open_run
    from tracker_health.runs.message_queue import MessageQueue, deliver_quietly

    signal.alarm(HARD_LIMIT_SECONDS)
    for store, receiver in owing.items():
        opener = partial(open_run, tracking_uri=receiver.tracking_uri)
        deliver_quietly(partial(MessageQueue().deliver, receiver.notify, store, opener))
    owing.clear()
    signal.alarm(0)


def _line(outcome: Outcome, warnings: Sequence[str] = ()) -> str:
    ref = outcome.report.run
    place = ref.url or ref.id
    more = f" (+{len(warnings) - 1} more)" if len(warnings) > 1 else ""
    said = f"; settings: {printable(warnings[0], 300)}{more}" if warnings else ""
    judged = printable(f"{outcome.report.verdict.upper()} {ref.name}: {outcome.report.headline} ({place})", 1000)
    return judged + said


def _last_step(log: Path, *, left: bool) -> int | None:
    """The last step in a log of W&B's, once W&B has written its end and has let go of it; of one that may have no end,
    as nobody ended the run, once nobody writes any more.
    """
    from tracker_health.errors import ReadError
    from tracker_health.stores.wandb.alive import Writer, writer_of
    from tracker_health.stores.wandb.transaction_log import read_log

    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < FLUSH_SECONDS:
        with suppress(OSError, ReadError):
            if writer_of(log, "") is not Writer.AT_WORK:
                found = read_log(log)
                if found.exit_code is not None or (left and waited > _SETTLED_SECONDS):
                    return found.last_step
        if not log.exists():  # an online run may keep none
            return None
        time.sleep(min(0.02 + waited / 10, 1.0))
    return None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("this is started by the hooks")
    main()
