"""What a format of logs is, and what reading one gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tracker_health.evidence import Series, TextLog
from tracker_health.roles import RolePlan

HEAD_BYTES = 2**16


@dataclass(frozen=True, kw_only=True)
class Log:
    """What one log holds.

    ``names``: every metric in it, needed or not; ``odd``: of those that are not needed the ones with values that are
    NaN or infinite. ``problem`` says what of it could not be read, ``note`` what a reader
    of the verdict should know besides; empty where there is nothing to say. ``text``: what a console log says besides
    its numbers. ``epochs``: how many its lines say there are to be, None where they say none or not one number;
    ``epoch``: how many there were, by the headings among them or by the steps of the last; ``steps``: what its steps
    count up to and never came to; ``stopped_early``: it speaks of early stopping. ``unread``: how many lines have
    numbers that were not understood. ``is_doubtful``: most of its lines are of another form, or all that tell anything.
    """

    series: tuple[Series, ...] = ()
    odd: tuple[Series, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    problem: str = ""
    note: str = ""
    text: TextLog | None = None
    epochs: int | None = None
    epoch: float | None = None
    steps: int | None = None
    stopped_early: bool = False
    unread: int = 0
    is_doubtful: bool = False


class LogFormat(Protocol):
    """One format of logs. ``precise``: numbers are written with all their digits, and not for people to read."""

    precise: bool

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins like this (its first ``HEAD_BYTES`` bytes) has this format."""

    def read(self, path: Path, source: str, roles: RolePlan) -> Log:
        """The metric series of a file that ``roles`` wants read.

        Raises:
            ReadError: it is no regular file, has too many fields, or is far too long.
            OSError: it cannot be read.
        """
