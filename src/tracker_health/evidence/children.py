"""How the runs below a parent run fared, by what their own annotations say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracker_health.text import count
from tracker_health.words.verdict import Verdict

MOST_WORST = 3
_NONE = "without a verdict"


@dataclass(frozen=True, kw_only=True)
class Child:
    """A run below another. ``verdict``: None without one. ``codes``: of the rules behind it, the worst first. ``link``:
    to its page, as seen from its parent's, empty for none.
    """

    id: str
    name: str
    verdict: Verdict | None = None
    codes: tuple[str, ...] = ()
    summary: str = ""
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Children:
    """``total``: how many there are. ``verdicts``: how many of each. ``causes``: how many have which code as their
    first. ``worst``: those to look at. ``more``: whether there are more than were counted.
    """

    total: int
    verdicts: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[str, int] = field(default_factory=dict)
    worst: tuple[Child, ...] = ()
    more: bool = False

    @classmethod
    def of(cls, children: Iterable[Child], *, more: bool = False) -> Children:
        """What is to be said of the runs below a parent.

        Args:
            children: The runs below, in any order.
            more: Whether there are others that were not read.

        Returns:
            Counts by verdict and by ending, and the worst of them.
        """
        known = sorted(children, key=lambda one: (-_rank(one.verdict), one.name, one.id))
        words = Counter(str(one.verdict) if one.verdict is not None else _NONE for one in known)
        bad = [one for one in known if _rank(one.verdict) >= Verdict.WARN.rank]
        causes = Counter(one.codes[0] for one in bad if one.codes)
        return cls(
            total=len(known),
            verdicts={word: words[word] for word in (*_BY_RANK, _NONE) if words[word]},
            causes=dict(sorted(causes.items(), key=lambda one: (-one[1], one[0]))),
            worst=tuple(bad[:MOST_WORST]),
            more=more,
        )

    def __str__(self) -> str:
        verdicts = ", ".join(f"{number} {word}" for word, number in self.verdicts.items())
        causes = ", ".join(f"{number} {code}" for code, number in self.causes.items())
        runs = f"more than {count(self.total, 'run')}" if self.more else count(self.total, "run")
        return f"{runs}: {verdicts}" + (f" ({causes})" if causes else "")

    def to_json(self) -> dict[str, Any]:
        """As strict JSON values.

        Returns:
            Plain values, as the report has them under ``children``.
        """
        worst = [
            {
                "id": one.id,
                "name": one.name,
                "verdict": str(one.verdict),
                "codes": list(one.codes),
                "summary": one.summary,
            }
            for one in self.worst
        ]
        return {
            "total": self.total,
            "more": self.more,
            "verdicts": dict(self.verdicts),
            "causes": dict(self.causes),
            "worst": worst,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Children:
        """What ``to_json`` wrote.

        Args:
            document: What ``to_json`` gave.

        Returns:
            The same summary.
        """
        worst = tuple(
            Child(
                id=one["id"],
                name=one["name"],
                verdict=Verdict(one["verdict"]),
                codes=tuple(one["codes"]),
                summary=one["summary"],
            )
            for one in document["worst"]
        )
        known = {key: document[key] for key in ("total", "more", "verdicts", "causes")}
        return cls(worst=worst, **known)


def _rank(verdict: Verdict | None) -> int:
    return -1 if verdict is None else verdict.rank


_BY_RANK = tuple(str(verdict) for verdict in sorted(Verdict, key=_rank, reverse=True))
