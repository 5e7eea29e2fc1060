"""The one verdict on the ranks of one training, judged as one run, and what of it is kept on the run at their head."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Rank, as_one
from tracker_health.evidence.kin import Kin
from tracker_health.judge.annotations import GROUP, GROUP_VERDICT
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import Report
from tracker_health.text import count, printable, split_sentence, uncapitalized
from tracker_health.words.verdict import Verdict

_RANKS_APART = "RUN005"
_MARK = re.compile(r"(?P<said>.{1,400}) \[(?P<ranks>\d{1,6}):(?P<state>[0-9a-f]{16})\]")
_JUDGED = frozenset((Verdict.PASS, Verdict.WARN, Verdict.FAIL))
_MOST_SAID, _MOST_CODES = 300, 3


@dataclass(frozen=True, kw_only=True)
class GroupVerdict:
    """What is said of the ranks of one training. ``verdict``: None where nothing shows how they did. ``ranks``: how
    many there were. ``state``: how far each had come: the verdict holds as long as that stays.
    """

    verdict: Verdict | None
    said: str
    ranks: int
    state: str

    @property
    def tags(self) -> dict[str, str]:
        """The marks that keep it."""
        value = f"{self.said} [{self.ranks}:{self.state}]"
        return {GROUP: value} | ({GROUP_VERDICT: str(self.verdict)} if self.verdict is not None else {})

    @classmethod
    def of(cls, verdict: Verdict | None, mark: str) -> GroupVerdict | None:
        """What the marks of a run say, None where they are not of the form of ours."""
        found = _MARK.fullmatch(mark)
        if found is None:
            return None
        return cls(verdict=verdict, said=found["said"], ranks=int(found["ranks"]), state=found["state"])

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> GroupVerdict | None:
        """What tags that are written say; None where they say nothing of ranks."""
        verdict = tags.get(GROUP_VERDICT, "")
        return cls.of(Verdict(verdict) if verdict else None, tags.get(GROUP, ""))

    def holds_for(self, kin: Sequence[Kin]) -> bool:
        """Whether it is still on these ranks. Some of them may have ended too long ago to be looked at again: what was
        said of more ranks stays.
        """
        return len(kin) < self.ranks or state_of(kin) == self.state


def state_of(kin: Iterable[Kin]) -> str:
    """How far some runs have come: 16 hexadecimal digits."""
    content = json.dumps(sorted([one.where, one.id, str(one.rank), one.state] for one in kin))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def group_verdict(base: Evidence, ranks: Sequence[Rank], kin: Sequence[Kin], config: Config) -> GroupVerdict | None:
    """The verdict on the ranks of one training.

    Args:
        base: What was read of the run that stands for them: its record, its files, its console.
        ranks: What each rank logged.
        kin: Their relations.
        config: By which they are judged.

    Returns:
        The verdict by the usual rules on the one curve that they are, and by those on several ranks; None where it
        could not be judged, and is to be tried again.
    """
    evidence = replace(base, ranks=tuple(ranks), series=as_one(ranks) or base.series, baseline=None)
    report = diagnose(evidence, config)
    if report.verdict is Verdict.ERROR:
        return None
    verdict = report.verdict if report.verdict in _JUDGED else None
    said = _said_of(report)
    return GroupVerdict(verdict=verdict, said=said, ranks=len(kin), state=state_of(kin))


def _said_of(report: Report) -> str:
    """What is wrong, in a clause or two: the rank that is apart comes first, since no run by itself shows it."""
    apart = next((one for one in report.findings if one.code == _RANKS_APART), None)
    if apart is None:
        said = split_sentence(report.summary)[0].rstrip(".") if report.findings else report.summary
        return printable(uncapitalized(said), _MOST_SAID)
    more = [one.code for one in report.findings if one is not apart]
    also = f"; also {', '.join(more[:_MOST_CODES])}" if more else ""
    return printable(f"{apart.message.partition(': ')[0]}{also}", _MOST_SAID)


def group_sentence(found: GroupVerdict) -> str:
    """The whole of it in a line: ``3 ranks of one training: FAIL (rank 1 left the others from step 300)``."""
    word = str(found.verdict).upper() if found.verdict is not None else "not judged"
    return f"{count(found.ranks, 'rank')} of one training: {word} ({found.said})"
