"""What a cause is: what it requires, what speaks for it and against it, what it explains, and one thing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tracker_health.diagnosis._counts import Counts, counts
from tracker_health.diagnosis._facts import Facts
from tracker_health.report.resume_point import Onset
from tracker_health.words.diagnosis import Action

Kind = Literal["finding", "number", "setting"]

DECISIVE, REQUIRED = 9.0, 4.0
"""The weight of a sign that defines a cause, and of one that it requires, where no run with that cause was counted: as
much as the largest count has, and as much as makes a cause likely.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sign:
    """Something that a run shows or does not, by which causes are known.

    ``looks_at``: a rule's code, or what number or setting it is; ``of``: the kinds of the rule's finding, empty for
    all. ``begins``: the step at which what it sees began, None where no step belongs to it.
    """

    name: str
    kind: Kind
    looks_at: str
    seen: Callable[[Facts], bool]
    of: tuple[str, ...] = ()
    begins: Callable[[Facts], int | None] = lambda _: None


@dataclass(frozen=True, kw_only=True, eq=False)
class Cause:
    """A row of the table of causes.

    ``name``: in kebab case. ``title``: a main clause. ``about``: a line on what it is, then what there is to say of it.
    ``explains``: the codes of the findings that are its effects.

    ``requires``: signs without one of which it never leads; ``defines``: those of them that leave no doubt, as a
    setting beyond use, an exception's text, a NaN that was seen. ``speaks``: signs that say something for it or against
    it. ``judged``: the weights of those that no run was counted for. ``never``: signs that rule it out;
    ``doubts``: those with which it is not certain, as something else came first.

    ``says``: the cause with the run's numbers, as a main clause; ``whole``: it says the fact as well. ``do``: the one
    thing to do. ``test``: what would distinguish it from another. ``from_the_start``: what it did to the run it did
    from the first step on, so that no earlier checkpoint is worth going back to. ``set_in``: where it came into the
    run, if the cause knows that better than the findings. ``unknown``: the codes of the findings
    of which it says that nothing shows a cause.
    """

    name: str
    title: str
    about: str
    explains: frozenset[str]
    test: str
    do: str | Action | Callable[[Facts], Action]
    requires: tuple[Sign, ...] = ()
    defines: tuple[Sign, ...] = ()
    speaks: tuple[Sign, ...] = ()
    judged: Mapping[Sign, float] = field(default_factory=dict)
    never: tuple[Sign, ...] = ()
    doubts: tuple[Sign, ...] = ()
    says: Callable[[Facts], str] | None = None
    whole: bool = False
    from_the_start: bool = False
    set_in: Callable[[Facts], Onset | None] = lambda _: None
    unknown: frozenset[str] = frozenset()

    @property
    def signs(self) -> tuple[Sign, ...]:
        """All that it is weighed by."""
        return (*self.defines, *self.requires, *self.speaks)

    def clause(self, facts: Facts) -> str:
        """The cause with the run's numbers, without a full stop."""
        return self.title if self.says is None else self.says(facts)

    def action(self, facts: Facts) -> Action:
        """One thing to do."""
        if isinstance(self.do, str):
            return Action(text=self.do)
        return self.do if isinstance(self.do, Action) else self.do(facts)

    def counts_of(self, sign: Sign) -> Counts | None:
        """How often a sign was seen with this cause and without it; None where its weight is a judgement."""
        return counts().get((self.name, sign.name))

    def weight(self, sign: Sign) -> float:
        """What a sign adds to the sum: as counted, else as judged, else that of what it requires."""
        counts = self.counts_of(sign)
        if counts is not None:
            return counts.weight
        own = DECISIVE if sign in self.defines else REQUIRED if sign in self.requires else 0.0
        return self.judged.get(sign, own)

    def present(self, facts: Facts) -> tuple[Sign, ...]:
        """The signs that a run shows, less those that came after what the cause is said to have done. Of several that
        speak for it and look at the same thing only the strongest counts.
        """
        seen = [sign for sign in self.signs if sign.seen(facts) and not self._comes_too_late(sign, facts)]
        strongest: dict[str, Sign] = {}
        for sign in sorted(seen, key=lambda one: (one not in self.defines, -self.weight(one))):
            strongest.setdefault(sign.looks_at, sign)
        return tuple(sign for sign in seen if self.weight(sign) <= 0 or strongest[sign.looks_at] is sign)

    def is_required(self, signs: tuple[Sign, ...]) -> bool:
        """Whether what it requires is among these signs."""
        return any(sign in self.requires or sign in self.defines for sign in signs)

    def _comes_too_late(self, sign: Sign, facts: Facts) -> bool:
        began = sign.begins(facts)
        if began is None or sign.looks_at in self.explains or self.weight(sign) <= 0:
            return False
        effects = (facts.onset(code) for code in self.explains if code != sign.looks_at)
        return any(effect is not None and effect < began for effect in effects)

    @property
    def summary(self) -> str:
        """What it is, in a line."""
        return self.about.partition("\n")[0]

    @property
    def text(self) -> str:
        """What there is to say of it besides."""
        return self.about.partition("\n")[2].strip()


def codes(text: str) -> frozenset[str]:
    """Codes of rules, written one after the other."""
    return frozenset(text.split())
