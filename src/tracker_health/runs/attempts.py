"""Chains of attempts: which run was to repair which, by what change, and what helped against which cause. Pure.

All of it is what the tags of runs say. Anybody may write such tags: a chain may lead back to where it began, and a run
in it may be gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracker_health.stores.base import TaggedRun
from tracker_health.text import count, printable
from tracker_health.words.repairs import Answer, RepairMark

_MOST_KEPT = 10_000
"""Repairs that are counted; of more the first ones that were listed."""
_MOST_CHAINS, _MOST_IN_CHAIN, _MOST_HELPED = 50, 50, 50
_MOST_CHAINS_SHOWN, _MOST_IN_CHAIN_SHOWN, _MOST_HELPED_SHOWN = 10, 10, 10
_NAME, _CHANGE, _ABOUT, _DEEPEST = 60, 120, 200, 8
_UNKNOWN = "(not known)"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"
_SET = re.compile(rf"([^\s,;](?:[^,;]*[^\s,;])?) ({_NUMBER}) ?(?:->|→) ?({_NUMBER})")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One run that was to repair another. ``old`` and ``new``: what they are called. ``depth``: how many attempts in
    its chain came before it, one after the other.
    """

    old: str
    new: str
    mark: RepairMark
    depth: int

    @property
    def said(self) -> str:
        """In a line: ``run 2: not repaired (learning-rate-too-high; changed: learning_rate 0.3 -> 0.03)``."""
        about = f" ({printable(self.mark.about, _ABOUT)})" if self.mark.about else ""
        return f"{printable(self.new, _NAME)}: {self.mark.answer}{about}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return {**self.mark.to_json(), "old_name": self.old, "new_name": self.new, "depth": self.depth}


@dataclass(frozen=True, kw_only=True)
class Chain:
    """The attempts at one run, each behind the one that it goes on from. ``first``: what that run is called."""

    first: str
    attempts: tuple[Attempt, ...]

    def to_json(self) -> dict[str, Any]:
        """As strict JSON, without what would be too much of it."""
        shown = self.attempts[:_MOST_IN_CHAIN]
        return {
            "run": shown[0].mark.old,
            "name": self.first,
            "attempts": [one.to_json() for one in shown],
            "left_out": len(self.attempts) - len(shown),
        }


@dataclass(frozen=True, kw_only=True)
class Helped:
    """What became of a cause after one kind of change: how many runs got each answer."""

    cause: str
    change: str
    answers: Counter[Answer]

    @property
    def repaired(self) -> int:
        """In how many it was gone, whatever else came."""
        return sum(self.answers[answer] for answer in Answer if answer.helped)

    @property
    def known(self) -> int:
        """How many have an answer."""
        return self.answers.total() - self.answers[Answer.CANNOT_TELL]

    @property
    def said(self) -> str:
        """In a line: ``learning-rate-too-high: learning_rate lowered: repaired 3 of 4``."""
        new, open_ones = self.answers[Answer.SOMETHING_NEW], self.answers[Answer.CANNOT_TELL]
        more = [f"{new} with something new"] if new else []
        more += [f"{open_ones} more: cannot tell"] if open_ones else []
        counted = f"repaired {self.repaired} of {self.known}" + (f" ({'; '.join(more)})" if more else "")
        return f"{self.cause or _UNKNOWN}: {printable(self.change, _CHANGE) or _UNKNOWN}: {counted}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        answers = {str(answer): self.answers[answer] for answer in Answer}
        about = {"cause": self.cause or None, "change": self.change or None}
        return {**about, "helped": self.repaired, "of": self.known, "answers": answers}


@dataclass(kw_only=True)
class Attempts:
    """The repairs that runs say something of, taken run by run. ``left_out``: how many were too many."""

    _marks: dict[tuple[str, str], RepairMark] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    left_out: int = 0

    def add(self, run: TaggedRun) -> None:
        """Take what a run says. Of a repair that both runs name, what was said last counts."""
        for mark in (run.repairs, run.repaired_by):
            if mark is None or mark.old == mark.new:
                continue
            pair = mark.old, mark.new
            if pair not in self._marks and len(self._marks) >= _MOST_KEPT:
                self.left_out += 1
                continue
            known = self._marks.get(pair)
            if known is None or known.when < mark.when:
                self._marks[pair] = mark
            self._names[mark.new if mark is run.repairs else mark.old] = run.ref.name

    def found(self) -> Repairs:
        """The chains, that of the last attempt first, and what helped."""
        before = _acyclic(_last_by_new(self._marks.values()))
        after: dict[str, list[RepairMark]] = {}
        for mark in sorted(before.values(), key=lambda mark: (mark.when, mark.new)):
            after.setdefault(mark.old, []).append(mark)
        chains = [self._chain(first, after) for first in after if first not in before]
        chains.sort(key=lambda chain: max(one.mark.when for one in chain.attempts), reverse=True)
        answers = Counter(mark.answer for mark in self._marks.values())
        helped, names = _helped(self._marks), dict(self._names)
        return Repairs(answers=answers, chains=tuple(chains), helped=helped, left_out=self.left_out, names=names)

    def _chain(self, first: str, after: Mapping[str, Sequence[RepairMark]]) -> Chain:
        """Each attempt behind the one before it: not by recursion, as a chain may be of any length."""
        attempts: list[Attempt] = []
        due = [(mark, 0) for mark in reversed(after[first])]
        while due:
            mark, depth = due.pop()
            attempts.append(Attempt(old=self._name(mark.old), new=self._name(mark.new), mark=mark, depth=depth))
            due += [(one, depth + 1) for one in reversed(after.get(mark.new, ()))]
        return Chain(first=self._name(first), attempts=tuple(attempts))

    def _name(self, run: str) -> str:
        """What a run is called: its id where it is not among those that were listed."""
        return self._names.get(run) or run


@dataclass(frozen=True, kw_only=True)
class Repairs:
    """What the tags of many runs say of repairs. ``answers``: of how many; ``left_out``: more that were not counted.
    ``names``: what runs are called, by their ids.
    """

    answers: Counter[Answer] = field(default_factory=Counter)
    chains: tuple[Chain, ...] = ()
    helped: tuple[Helped, ...] = ()
    left_out: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def of(self, run: TaggedRun) -> list[str]:
        """What a run says of repairs, in a few words each: ``not repaired in RUN``, ``repair of RUN: repaired``."""
        old, new = run.repaired_by, run.repairs
        said = [] if old is None else [f"{old.answer} in {self._name(old.new)}"]
        return said if new is None else [*said, f"repair of {self._name(new.old)}: {new.answer}"]

    def _name(self, run: str) -> str:
        return printable(self.names.get(run) or run, _NAME)

    @property
    def said(self) -> str:
        """All of them in a line: ``3 repairs: 2 repaired, 1 cannot tell``."""
        counts = ", ".join(f"{self.answers[answer]} {answer}" for answer in Answer if self.answers[answer])
        return f"{count(self.answers.total(), 'repair')}: {counts}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON, without what would be too much of it."""
        return {
            "answers": {str(answer): self.answers[answer] for answer in Answer},
            "chains": [one.to_json() for one in self.chains[:_MOST_CHAINS]],
            "helped": [one.to_json() for one in self.helped[:_MOST_HELPED]],
            "left_out": self.left_out,
        }

    @property
    def shown_helped(self) -> tuple[Helped, ...]:
        """As many as people read, those that were tried most often first."""
        return self.helped[:_MOST_HELPED_SHOWN]

    @property
    def shown_chains(self) -> Iterator[tuple[str, list[tuple[int, str]], int]]:
        """Of each chain what its first run is called, its attempts as lines with their depth, and how many more it
        has.
        """
        for chain in self.chains[:_MOST_CHAINS_SHOWN]:
            lines = [(min(one.depth, _DEEPEST), one.said) for one in chain.attempts[:_MOST_IN_CHAIN_SHOWN]]
            yield printable(chain.first, _NAME), lines, len(chain.attempts) - len(lines)


def attempt_lines(found: Repairs) -> Iterator[str]:
    """The same for the terminal; nothing where no run says anything of a repair."""
    if not found.answers.total():
        return
    yield found.said
    yield from (f"  {one.said}" for one in found.shown_helped)
    for first, lines, more in found.shown_chains:
        yield f"  {first}"
        yield from (f"  {'  ' * (depth + 1)}{said}" for depth, said in lines)
        if more:
            yield f"    and {more} more"


def kind_of_change(change: str) -> str:
    """What a change does, without its values: ``learning_rate lowered``; a change of another form as it is."""
    kinds = []
    for part in re.split(r"[,;] ", change):
        found = _SET.fullmatch(part.strip())
        if found is None:
            return change
        before, after = float(found[2]), float(found[3])
        kinds.append(f"{found[1]} {'lowered' if after < before else 'raised' if after > before else 'set again'}")
    return ", ".join(kinds)


def _helped(marks: Mapping[tuple[str, str], RepairMark]) -> tuple[Helped, ...]:
    counted: dict[tuple[str, str], Counter[Answer]] = {}
    for mark in marks.values():
        counted.setdefault((mark.cause, kind_of_change(mark.change)), Counter())[mark.answer] += 1
    rows = [Helped(cause=cause, change=change, answers=answers) for (cause, change), answers in counted.items()]
    return tuple(sorted(rows, key=lambda row: (-row.known, -row.repaired, row.cause, row.change)))


def _last_by_new(marks: Iterable[RepairMark]) -> dict[str, RepairMark]:
    """By the new run what it was to repair: of several runs the one that was said last."""
    found: dict[str, RepairMark] = {}
    for mark in sorted(marks, key=lambda mark: (mark.when, mark.old)):
        found[mark.new] = mark
    return found


def _acyclic(before: Mapping[str, RepairMark]) -> dict[str, RepairMark]:
    """The same without the attempt that closes a circle: that which was said last of those in it."""
    found, looked_at = dict(before), set[str]()
    for start in before:
        path: dict[str, None] = {}
        run = start
        while run in found and run not in looked_at and run not in path:
            path[run] = None
            run = found[run].old
        if run in path:
            circle = list(path)[list(path).index(run) :]
            del found[max(circle, key=lambda one: (found[one].when, one))]
        looked_at |= path.keys()
    return found
