"""What is known of collective operations: what ranks reported of them in a console, and what their recorders dumped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

MOST_REPORTS = 20_000
"""Of a kind, in all consoles of a run."""

_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgather_base": "all_gather_into_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}


def operation_of(name: str) -> str:
    """What an operation is called in Python.

    Args:
        name: As NCCL's watchdog (``_ALLGATHER_BASE``) or a recorder (``nccl:all_reduce``) has it.

    Returns:
        In small letters, as in ``torch.distributed``.
    """
    plain = name.rpartition(":")[2].partition(" ")[0].strip("_").lower()
    return _OPERATIONS.get(plain, plain)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A rank's report that it waited in a collective operation until its time was up.

    ``operation``: empty where nothing says it; ``number``: of the operation in its group, counted by the process
    group. ``seconds``: how long it waited. ``group``: of processes, as the console calls it.
    """

    rank: int
    operation: str = ""
    number: int | None = None
    seconds: float | None = None
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How far a rank says that it came in a group: the numbers of the last operation that it entered, and of the last
    one that was completed.
    """

    rank: int
    group: str
    entered: int
    completed: int


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a rank ran where another ran something else. ``shape``: of its tensor, as it is written."""

    rank: int
    operation: str
    number: int | None = None
    shape: str = ""


@dataclass(frozen=True, kw_only=True)
class Missed:
    """A rank of which another says that it did not come to a barrier within some ``seconds``."""

    rank: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Left:
    """A rank in a launcher's table of failures. ``code``: its exit code, negative for a signal."""

    rank: int
    code: int


@dataclass(frozen=True, kw_only=True)
class Raised:
    """The exception that ended a rank, where it is none about a collective operation."""

    rank: int
    text: str


@dataclass(frozen=True, kw_only=True)
class RankReports:
    """What the ranks of a training report in its consoles: see each of the kinds.

    ``first``: the rank that failed first, by its launcher.
    """

    waits: tuple[Wait, ...] = ()
    counted: tuple[Counted, ...] = ()
    ran: tuple[Ran, ...] = ()
    missed: tuple[Missed, ...] = ()
    left: tuple[Left, ...] = ()
    raised: tuple[Raised, ...] = ()
    first: int | None = None

    @property
    def says_something(self) -> bool:
        """Whether an operation was waited for in vain, or differed between ranks."""
        return bool(self.waits or self.ran or self.missed)

    @classmethod
    def together(cls, several: Iterable[RankReports]) -> RankReports:
        """The reports in several consoles, each once.

        Args:
            several: Of one training.

        Returns:
            All of them, at most ``MOST_REPORTS`` of each kind.
        """
        every = list(several)
        kinds: dict[str, Any] = {
            one.name: tuple(dict.fromkeys(report for each in every for report in getattr(each, one.name)))[
                :MOST_REPORTS
            ]
            for one in fields(cls)
            if one.name != "first"
        }
        return cls(**kinds, first=next((one.first for one in every if one.first is not None), None))


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A collective operation that a rank entered.

    ``sizes``: of the tensors that it gave. ``at``: when, in seconds since 1970; ``limit``: after how many seconds its
    time is up. None where the dump does not say it.
    """

    number: int
    operation: str
    sizes: tuple[tuple[int, ...], ...] = ()
    at: float | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class GroupDump:
    """What a rank's recorder has of a group of processes.

    ``ranks``: of the group, none where the dump does not list them. ``entered``: the last operations, by number;
    ``last``: the number of the very last; ``completed``: that of the last one that was done.
    """

    name: str
    ranks: tuple[int, ...]
    entered: tuple[Entered, ...]
    last: int
    completed: int

    def operation(self, number: int) -> Entered | None:
        """The operation of a number.

        Args:
            number: As the group counts.

        Returns:
            The operation, or None where it was never entered, or is forgotten.
        """
        return next((one for one in reversed(self.entered) if one.number == number), None)


@dataclass(frozen=True, kw_only=True)
class RankDump:
    """What a rank's flight recorder wrote into a file. ``written``: when, in seconds since 1970, if that is known."""

    rank: int
    source: str
    groups: tuple[GroupDump, ...]
    written: float | None = None
