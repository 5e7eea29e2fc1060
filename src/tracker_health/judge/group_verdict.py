"""The one verdict on the ranks of one training, judged as one run, and what of it is kept on the run at their head."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Rank, RankReports, TextLog, as_one
from tracker_health.evidence.kin import Kin
from tracker_health.judge.annotations import GROUP, GROUP_STATE, GROUP_VERDICT
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import ProbeResult, Report
from tracker_health.text import count, printable, split_sentence, uncapitalized
from tracker_health.words.verdict import Verdict

_OF_RANKS = ("RUN005", "RUN006", "SYS004")
"""Rules that name a rank: one that is apart, that did not come, or that is slow."""
_STATE = re.compile(r"(?P<ranks>\d{1,6}) of (?P<expected>\d{1,9}):(?P<state>[0-9a-f]{16})")
_JUDGED = frozenset((Verdict.PASS, Verdict.WARN, Verdict.FAIL))
_MOST_SAID, _MOST_CODES = 300, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A rank: its relations, what was read of it, and the report on it alone, None where it is still to be judged."""

    kin: Kin
    evidence: Evidence
    report: Report | None = None


@dataclass(frozen=True, kw_only=True)
class GroupVerdict:
    """What is said of the ranks of one training. ``verdict``: None where nothing shows how they did. ``ranks``: how
    many there were, of so many ``expected``. ``state``: how far each had come: the verdict holds as long as that stays.
    """

    verdict: Verdict | None
    said: str
    ranks: int
    expected: int
    state: str

    @property
    def tags(self) -> dict[str, str]:
        """The marks that keep it."""
        kept = {GROUP: self.said, GROUP_STATE: f"{self.ranks} of {self.expected}:{self.state}"}
        return kept | ({GROUP_VERDICT: str(self.verdict)} if self.verdict is not None else {})

    @classmethod
    def of(cls, verdict: Verdict | None, said: str, state: str) -> GroupVerdict | None:
        """What the marks of a run say, None where they are not of the form of ours."""
        found = _STATE.fullmatch(state)
        if found is None or not said:
            return None
        ranks, expected = int(found["ranks"]), int(found["expected"])
        return cls(verdict=verdict, said=said[:_MOST_SAID], ranks=ranks, expected=expected, state=found["state"])

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> GroupVerdict | None:
        """What tags that are written say; None where they say nothing of ranks."""
        verdict = tags.get(GROUP_VERDICT, "")
        return cls.of(Verdict(verdict) if verdict else None, tags.get(GROUP, ""), tags.get(GROUP_STATE, ""))

    def holds_for(self, kin: Sequence[Kin]) -> bool:
        """Whether it is still on these ranks. Some of them may have ended too long ago to be looked at again: what was
        said of more ranks stays.
        """
        return len(kin) < self.ranks or state_of(kin) == self.state


def state_of(kin: Iterable[Kin]) -> str:
    """How far some runs have come: 16 hexadecimal digits."""
    content = json.dumps(sorted([one.where, one.id, str(one.rank), one.state] for one in kin))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def group_verdict(base: Evidence, members: Sequence[Member], expected: int, config: Config) -> GroupVerdict | None:
    """The verdict on the ranks of one training: the worst of that on the one curve that they are, and of their own.

    Args:
        base: What was read of the run that stands for them: its record, its files, its console.
        members: The ranks that are there.
        expected: How many there are to be, as far as someone says: fewer do not pass.
        config: By which they are judged.

    Returns:
        The verdict; None where it could not be judged, and is to be tried again.
    """
    kin = [one.kin for one in members]
    ranks = [Rank(number=one.kin.rank or 0, name=one.kin.name, series=one.evidence.series) for one in members]
    together = replace(
        base,
        ranks=tuple(ranks),
        series=as_one(ranks) or base.series,
        baseline=None,
        text_log=_with_all_reports(base.text_log, members),
        dumps=tuple(dump for one in members for dump in one.evidence.dumps),
    )
    report = diagnose(together, config)
    if report.verdict is Verdict.ERROR:
        return None
    verdict: Verdict | None = report.verdict if report.verdict in _JUDGED else None
    said = _said_of(report)
    worst, number = _worst_of(members, config)
    if worst is not None and worst.verdict.rank > (verdict or Verdict.PASS).rank:
        verdict = worst.verdict
        if not _is_apart(report, number):  # what others do says more of a rank than its own curve
            said = printable(f"rank {number}: {_clause(worst)}", _MOST_SAID)
    expected = max(expected, len(members))
    if verdict is Verdict.PASS and len(members) < expected:
        verdict, said = None, "nothing was found, and not all of them are here"
    return GroupVerdict(verdict=verdict, said=said, ranks=len(kin), expected=expected, state=state_of(kin))


def _with_all_reports(log: TextLog | None, members: Sequence[Member]) -> TextLog | None:
    """The console of the run that stands for the ranks, with what each of them reports in its own."""
    logs = [one.evidence.text_log for one in members if one.evidence.text_log is not None]
    reports = [one.reports for one in (*([log] if log is not None else []), *logs) if one.reports is not None]
    base = log or next((one for one in logs if one.reports is not None), None)
    return replace(base, reports=RankReports.together(reports)) if base is not None and reports else log


def _worst_of(members: Sequence[Member], config: Config) -> tuple[Report | None, int]:
    """The worst report on a rank alone, and its number; None where nothing is wrong with any."""
    reports = [(diagnose(one.evidence, config) if one.report is None else one.report, one.kin) for one in members]
    flagged = [(one, kin.rank or 0) for one, kin in reports if one.verdict in (Verdict.WARN, Verdict.FAIL)]
    return max(flagged, key=lambda pair: pair[0].verdict.rank, default=(None, 0))


def _apart_in(report: Report) -> ProbeResult | None:
    found = [one for one in report.findings if one.code in _OF_RANKS]
    return max(found, key=lambda one: one.verdict.rank, default=None)


def _is_apart(report: Report, number: int) -> bool:
    """Whether it is that rank which is apart from the others."""
    apart = _apart_in(report)
    return apart is not None and apart.measured.get("rank") == number


def _said_of(report: Report) -> str:
    """What is wrong, in a clause or two: the rank that is apart comes first, since no run by itself shows it."""
    apart = _apart_in(report)
    if apart is None:
        return printable(_clause(report) if report.findings else report.summary, _MOST_SAID)
    more = [one.code for one in report.findings if one is not apart]
    also = f"; also {', '.join(more[:_MOST_CODES])}" if more else ""
    return printable(f"{apart.message.partition(': ')[0]}{also}", _MOST_SAID)


def _clause(report: Report) -> str:
    return uncapitalized(split_sentence(report.summary)[0].rstrip("."))


def group_sentence(found: GroupVerdict) -> str:
    """The whole of it in a line: ``3 ranks of one training: FAIL (rank 1 left the others from step 300)``."""
    word = str(found.verdict).upper() if found.verdict is not None else "not judged"
    ranks = count(found.ranks, "rank") if found.ranks == found.expected else f"{found.ranks} of {found.expected} ranks"
    return f"{ranks} of one training: {word} ({found.said})"
