"""Everything that tracker-health raises on purpose.

::

    TrackerHealthError          what happened, to which file or run, and what to try
    ├── ConfigError             wrong usage or configuration (exit code 2)
    └── RunError                a run could not be found, read or written (exit code 3)
        ├── RunNotFound         no such folder or run
        ├── StoreUnavailable    a server or database could not be asked, or gave no whole answer
        ├── StoreRefused        no permission, or the run is deleted
        ├── ReadError           a file is truncated, foreign or hostile
        ├── WriteError          the verdict could not be written
        │   └── LeftAlone       it is not to be; of several runs that is no failure (exit code 0)
        │       ├── NotOurs     something of the owner's is in its place
        │       └── StillRunning  the run would undo it
        └── MissingExtra        an optional package is not installed
            └── OutdatedPackage it is older than what is supported

Messages may hold text that came from a run: whoever shows one to a person passes it through ``text.printable``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tracker_health.words.lowest_versions import older_than_supported


class TrackerHealthError(Exception):
    """Base class. ``message`` says what happened and to what, ``hint`` what to try."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(TrackerHealthError):
    """Wrong usage or configuration."""


class RunError(TrackerHealthError):
    """Something about one run; the other runs of the call are still done."""


class RunNotFound(RunError):
    """No folder of that name, or no run with that id."""


class StoreUnavailable(RunError):
    """A server or database could not be asked, or gave no whole answer: no connection, no answer in time, a status of
    its own failure (5xx, 429), an answer that breaks off. It says nothing about a run, and never becomes a verdict.
    """


class StoreRefused(RunError):
    """The store said no: no permission, or the run is deleted."""


class ReadError(RunError):
    """A file is truncated, not what its name says, or hostile."""


class WriteError(RunError):
    """The verdict could not be written onto the run."""


class LeftAlone(WriteError):
    """As the run is, nothing is to be written onto it. Nobody failed. Of several runs it is passed over; for whoever
    asked for this very run it is an error.
    """


class NotOurs(LeftAlone):
    """Something of the owner's stands where the verdict would go."""


class StillRunning(LeftAlone):
    """The run is still running, and what it writes itself would undo what is written onto it."""


class MissingExtra(RunError):
    """An optional package that this needs is not installed."""


class OutdatedPackage(MissingExtra):
    """An optional package is installed in a version that is older than what is supported."""


UNREADABLE: Final = (ReadError, RunNotFound, StoreRefused, OSError)
"""What whoever reads one part of a run may pass over: the error is in that part. ``StoreUnavailable`` is not among
it: where a server fails the whole run counts as not looked at, and keeps the verdict that it has."""


def described(error: BaseException) -> str:
    """What to say of any exception: ours and the operating system's speak for themselves, all others are unexpected."""
    if isinstance(error, TrackerHealthError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return f"unexpected {type(error).__name__}: {error}"


def named(error: BaseException) -> str:
    """Type and message of an exception out of foreign code, whose own ``__str__`` may be broken too."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  see above
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def refuse_outdated(extra: str) -> None:
    """Say so where a package that an extra asks for is installed and too old.

    Raises:
        OutdatedPackage: so it is.
    """
    if found := older_than_supported(extra):
        raise OutdatedPackage(
            f"{found.package} {found.installed} is installed, tracker-health needs >= {found.lowest}",
            f"pip install -U {found.package}",
        )


@contextmanager
def optional_packages(extra: str) -> Iterator[None]:
    """Turn an ImportError inside the block into a MissingExtra that names the pip command.

    Raises:
        OutdatedPackage: what the extra asks for is installed, and older than it asks for.
        MissingExtra: it is not installed.
    """
    try:
        yield
    except ImportError as error:
        refuse_outdated(extra)  # what an older version has under another name is not missing
        package = error.name or str(error)
        raise MissingExtra(
            f"the package {package!r} is not installed", f"pip install 'tracker-health[{extra}]'"
        ) from error
