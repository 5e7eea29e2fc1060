"""The process's own streams: results to standard output, words to standard error, a list from standard input.

Streams may be closed, full, narrow or left by their reader; none of that may stop a run from being judged.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from tracker_health.errors import ConfigError, TrackerHealthError, described
from tracker_health.runs.parallel import WORKER
from tracker_health.stores.remote.progress import display
from tracker_health.text import percent, printable, size_of

EXIT_DONE, EXIT_VERDICT, EXIT_USAGE, EXIT_RUN, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
EXIT_UNFINISHED = 4
"""Of a gate: the run that made the model is still running."""
_MAX_LISTED = 1_000_000
_MAX_LINE = 10_000
_REDRAWN_SECONDS = 0.2
_LOOK_SECONDS = 0.1  # between two looks at whether an end is wanted
_PATIENCE_SECONDS = 2.0  # without a word, from which on a terminal is told that work is done
_FINISHING = b"\ntracker-health: finishing the runs in hand; Ctrl-C again stops at once\n"
Item = TypeVar("Item")


def lines_of_input() -> list[str]:
    """The lines of standard input that are neither empty nor a ``# comment``.

    Raises:
        ConfigError: it is closed, or is no list of runs.
    """
    # Python has no stream where there is no descriptor, whatever its types say.
    stream: TextIO | None = sys.stdin
    if stream is None:
        raise ConfigError(
            "- reads a list of runs from standard input, which is closed", "name the runs, or pipe a list"
        )
    lines: list[str] = []
    for number in range(1, _MAX_LISTED + 2):
        line = stream.readline(_MAX_LINE + 1)
        if not line:
            break
        if len(line) > _MAX_LINE or number > _MAX_LISTED:
            limits = f"at most {_MAX_LISTED} lines of {_MAX_LINE} characters"
            raise ConfigError(f"line {number} of standard input: this is no list of runs", limits)
        if (listed := line.strip()) and not listed.startswith("#"):
            lines.append(listed)
    return lines


def write_page(path: str, content: bytes) -> None:
    """Write a finished file, whole or not at all; ``-`` is standard output.

    Raises:
        ConfigError: there is no place to write it.
    """
    if path == "-":
        sys.stdout.buffer.write(content)
        return
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"{printable(path)} cannot be written: {error.strerror}", "give another file") from error


def open_page(path: str) -> None:
    """Open a page in the browser; where there is none, say so: the page is written all the same."""
    import webbrowser

    address = Path(path).resolve().as_uri()
    if not webbrowser.open(address):
        say_error("no browser could be started", f"open {address}")


def add_to_job_summary(lines: Iterable[str]) -> None:
    """Add Markdown to the summary of a job of GitHub Actions, where there is one (``GITHUB_STEP_SUMMARY``)."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        say_error(f"the job's summary: {described(error)}")


def draws_blocks() -> bool:
    """Whether standard output can show block characters."""
    stream: TextIO | None = sys.stdout
    return stream is not None and (stream.encoding or "").lower().replace("-", "") == "utf8"


class Output:
    """Standard output, which is switched off when it is lost: the runs still to come need not be.

    A reader that leaves early wants no more of it, and that is no error; anything else, such as a full disk, is.
    """

    def __init__(self) -> None:
        self.lost = False
        self.exit_code = EXIT_DONE

    def print(self, text: str) -> None:
        """Print a result, unless nobody reads any more."""
        if self.lost:
            return
        quiet_line()
        try:
            click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
        except BrokenPipeError:
            self.lost = True
        except OSError as error:
            self.lost, self.exit_code = True, EXIT_RUN
            say_error(f"standard output: {described(error)}")


def show_downloads() -> None:
    """Report downloads that take longer than a moment, on standard error if that is a terminal."""
    stream: TextIO | None = sys.stderr
    if stream is not None and stream.isatty():
        display.set(_download_shown)


@contextmanager
def _download_shown(name: str, size: int, done: Callable[[], int]) -> Iterator[None]:
    """One line that is written again, and gone in the end."""
    quiet_line()
    finished = threading.Event()
    thread = threading.Thread(target=_show_until, args=(finished, printable(name, 40), size, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


def _show_until(finished: threading.Event, name: str, size: int, done: Callable[[], int]) -> None:
    with suppress(OSError, ValueError):  # a terminal that went away
        written = False
        while not finished.wait(0.5):
            share = min(done() / max(size, 1), 1.0)
            bar = "#" * round(20 * share)
            click.echo(
                f"\r\x1b[K{name}  [{bar:<20}] {percent(share):>6} of {size_of(size)}", err=True, nl=False, color=True
            )
            written = True
        if written:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)


class Patience:
    """A line on standard error that a command is still at work, from its third second on, where that is a terminal.

    It goes away before anything else is written, and comes again when nothing was for a while.
    """

    def __init__(self) -> None:
        self._began = self._quiet_since = time.monotonic()
        self._drawn = False
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show it while something is done."""
        stream: TextIO | None = sys.stderr
        if stream is None or not stream.isatty():
            yield
            return
        global _patience  # noqa: PLW0603  one terminal, one line
        thread = threading.Thread(target=self._draw_until_end, daemon=True)
        thread.start()
        _patience = self
        try:
            yield
        finally:
            _patience = None
            self._ended.set()
            thread.join()
            self.clear()

    def clear(self) -> None:
        """Take the line away, for something else to be written."""
        with self._lock, suppress(OSError, ValueError):
            if self._drawn:
                click.echo("\r\x1b[K", err=True, nl=False, color=True)
            self._drawn, self._quiet_since = False, time.monotonic()

    def _draw_until_end(self) -> None:
        while not self._ended.wait(_REDRAWN_SECONDS):
            if time.monotonic() - self._quiet_since > _PATIENCE_SECONDS:
                with self._lock, suppress(OSError, ValueError):
                    seconds = time.monotonic() - self._began
                    click.echo(f"\r\x1b[Kstill at work, {seconds:.0f} s", err=True, nl=False, color=True)
                    self._drawn = True


_patience: Patience | None = None


def quiet_line() -> None:
    """Take the line away that a command is still at work, if there is one."""
    if (line := _patience) is not None:
        line.clear()


class StopFlag:
    """Whether the work is to end after what is in hand.

    A plain flag: whoever sets a ``threading.Event`` in a signal handler may wait without end for the lock that the
    interrupted ``wait`` holds.
    """

    wanted = False

    def until(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, as long as no end is wanted."""
        for item in items:
            if self.wanted:
                return
            yield item

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until an end is wanted; whether one is."""
        end = time.monotonic() + seconds
        while not self.wanted and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
        return self.wanted


def leave_threads(code: int) -> None:
    """End the process, if threads still work on runs, whose end Python would wait for."""
    if any(thread.name.startswith(WORKER) for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or nobody reads it
                stream.flush()
        os._exit(code)


@contextmanager
def stopping(*, also: Iterable[signal.Signals] = ()) -> Iterator[StopFlag]:
    """Let the first Ctrl-C (and the first of other signals) end the work after what is in hand, the second at once."""
    stop = StopFlag()
    before: dict[int, Any] = {}

    def wanted(number: int, _: object) -> None:
        stop.wanted = True
        signal.signal(number, before[number] or signal.SIG_DFL)
        with suppress(OSError, ValueError):
            if sys.stderr.isatty():  # not through its buffer, which may be in the middle of a line
                os.write(sys.stderr.fileno(), _FINISHING)

    if threading.current_thread() is threading.main_thread():
        for one in (signal.SIGINT, *also):
            before[int(one)] = signal.signal(one, wanted)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def told(error: BaseException, *, verbose: bool | None = None) -> int:
    """Say what ended the command; the exit code that it deserves. ``verbose``: None for a command without -v."""
    if isinstance(error, KeyboardInterrupt):
        say_error("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):  # the reader of our output has left
        return EXIT_DONE
    say_failure(error, verbose=verbose)
    return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_RUN


def say_failure(error: BaseException, *, about: str = "", verbose: bool | None) -> None:
    """Say what went wrong, in the words of the error where it is ours; with ``verbose`` also the traceback."""
    if isinstance(error, TrackerHealthError):
        say_error(error.message, error.hint)
    elif isinstance(error, OSError):
        say_error(f"{about}{described(error)}")
    else:
        hint = "please report it" if verbose is None else "-v shows the traceback; please report it"
        say_error(f"{about}{described(error)}", hint)
    if verbose and not isinstance(error, ConfigError):
        import traceback

        for line in "".join(traceback.format_exception(error)).splitlines():
            _say(printable(line, 1000))


def say(text: str) -> None:
    """A line on standard output, in place of the one that a command is at work."""
    quiet_line()
    click.echo(text)


def say_error(message: str, hint: str = "") -> None:
    """One line on standard error, and what to try on a second one."""
    _say(f"tracker-health: {printable(message, 1000)}")
    if hint:
        _say(f"  try: {printable(hint, 1000)}")


def _say(line: str) -> None:
    quiet_line()
    with suppress(OSError):  # where standard error is lost as well, there is nobody left to tell
        click.echo(line, err=True)


def width() -> int:
    """Columns to wrap to: the terminal's, or a hundred where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 140) if sys.stdout.isatty() else 100


def ready_streams() -> None:
    """Make standard streams that are closed, or whose encoding lacks our characters, harmless."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one: else the next file that is opened, a database say, would get it.
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    # As on the command line: the names of files need not be text.
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "replace"), (sys.stderr, "replace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def settle(stream: TextIO) -> None:
    """What is still buffered for a reader that has left, or a full disk, must not complain when Python exits."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
