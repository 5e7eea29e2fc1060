"""The five verdicts and their one order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What a rule, or a whole run, is judged to be.

    ``skip`` is not health: the evidence was not there. ``error`` means that the evidence is there but cannot be read,
    or that a rule broke. Values are lower case everywhere a machine reads them; terminals show them upper case.
    """

    PASS = "pass"  # noqa: S105  no password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"

    @property
    def severity(self) -> int | None:
        """0 pass, 1 warn, 2 error, 3 fail; None for skip, which says nothing about health."""
        return _SEVERITY[self]

    @property
    def rank(self) -> int:
        """Position in the one order skip < pass < warn < error < fail, for sorting and comparing."""
        severity = _SEVERITY[self]
        return -1 if severity is None else severity


_SEVERITY: dict[Verdict, int | None] = {
    Verdict.SKIP: None,
    Verdict.PASS: 0,
    Verdict.WARN: 1,
    Verdict.ERROR: 2,
    Verdict.FAIL: 3,
}


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts.

    Args:
        verdicts: Any number of verdicts.

    Returns:
        The worst in the order skip, pass, warn, error, fail; skip when there is none.
    """
    return max(verdicts, key=lambda verdict: verdict.rank, default=Verdict.SKIP)
