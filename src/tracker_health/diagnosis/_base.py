"""What a cause is: the signs by which it is known, each with a weight, what it explains, and one thing to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from tracker_health.diagnosis._counts import COUNTS, Counts
from tracker_health.diagnosis._facts import Facts
from tracker_health.report.resume_point import Onset
from tracker_health.words.diagnosis import Action

Kind = Literal["finding", "number", "setting"]

DECISIVE = 8
"""The weight of a setting beyond what trains: more than any one of its effects has."""


@dataclass(frozen=True, kw_only=True)
class Sign:
    """By what a cause is known.

    ``looks_at``: a rule's code, or what number or setting it is. ``judged``: its weight where it was not counted on
    runs whose cause is known. ``begins``: the step at which what it sees began, None where no step belongs to it.
    """

    name: str
    kind: Kind
    looks_at: str
    seen: Callable[[Facts], bool]
    judged: int
    begins: Callable[[Facts], int | None] = lambda _: None


def codes(text: str) -> frozenset[str]:
    """Codes of rules, written one after the other."""
    return frozenset(text.split())


def finding(code: str, judged: int, name: str, where: Callable[[Facts], bool] | None = None) -> Sign:
    """A rule's finding as a sign; ``where``: only one that this holds for."""
    return Sign(
        name=name,
        kind="finding",
        looks_at=code,
        seen=lambda facts: facts.has(code) and (where is None or where(facts)),
        judged=judged,
        begins=lambda facts: facts.onset(code),
    )


def setting(name: str, looks_at: str, seen: Callable[[Facts], bool], judged: int = DECISIVE) -> Sign:
    """A setting as a sign."""
    return Sign(name=name, kind="setting", looks_at=looks_at, seen=seen, judged=judged)


def measure(name: str, looks_at: str, seen: Callable[[Facts], bool], judged: int) -> Sign:
    """A measured number as a sign."""
    return Sign(name=name, kind="number", looks_at=looks_at, seen=seen, judged=judged)


class Cause:
    """Base of all causes. The class docstring is a summary in one line and what there is to say of it.

    ``name``: in kebab case. ``title``: in words, at the beginning of a sentence. ``signs``: by what it is known.
    ``explains``: the codes of the findings that are its effects. ``test``: what would distinguish it from another.
    ``do``: the one thing to do, where it depends on no number of the run. ``from_the_start``: what it did to the run it
    did from the first step on, so that no earlier checkpoint is worth going back to.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    signs: ClassVar[tuple[Sign, ...]]
    explains: ClassVar[frozenset[str]]
    test: ClassVar[str]
    do: ClassVar[str | Action] = ""
    from_the_start: ClassVar[bool] = False

    def sentence(self, facts: Facts) -> str:
        """The cause with the run's numbers, without a full stop."""
        said = first_message(facts, tuple(sign.looks_at for sign in self.present(facts)) + tuple(sorted(self.explains)))
        return f"{self.title}: {said}" if said else self.title

    def action(self, facts: Facts) -> Action:  # noqa: ARG002  what most causes ask for depends on no number
        """One thing to do."""
        return self.do if isinstance(self.do, Action) else Action(text=self.do)

    def set_in(self, facts: Facts) -> Onset | None:  # noqa: ARG002  most causes know no more than the findings
        """Where it came into the run, where the cause knows that better than the findings that it explains."""
        return None

    def counts_of(self, sign: Sign) -> Counts | None:
        """How often a sign was seen with this cause and without it; None where its weight is a judgement."""
        return COUNTS.get((self.name, sign.name))

    def weight(self, sign: Sign) -> int:
        """What a sign adds to the sum."""
        counts = self.counts_of(sign)
        return sign.judged if counts is None else counts.weight

    def present(self, facts: Facts) -> tuple[Sign, ...]:
        """The signs that a run shows, less those that came after what the cause is said to have done. Of several that
        speak for it and look at the same thing only the strongest counts.
        """
        seen = [sign for sign in self.signs if sign.seen(facts) and not self._comes_too_late(sign, facts)]
        strongest: dict[str, Sign] = {}
        for sign in seen:
            known = strongest.setdefault(sign.looks_at, sign)
            if self.weight(sign) > self.weight(known):
                strongest[sign.looks_at] = sign
        return tuple(sign for sign in seen if self.weight(sign) <= 0 or strongest[sign.looks_at] is sign)

    def _comes_too_late(self, sign: Sign, facts: Facts) -> bool:
        began = sign.begins(facts)
        if began is None or sign.looks_at in self.explains or self.weight(sign) <= 0:
            return False
        effects = (facts.onset(code) for code in self.explains if code != sign.looks_at)
        return any(effect is not None and effect < began for effect in effects)

    @property
    def summary(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").partition("\n")[0]

    @property
    def about(self) -> str:
        return inspect.cleandoc(type(self).__doc__ or "").partition("\n")[2].strip()


def first_message(facts: Facts, codes: tuple[str, ...]) -> str:
    """What the first of these rules that found something says."""
    return next((facts.found[code].message for code in codes if code in facts.found), "")
