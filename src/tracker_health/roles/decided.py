"""What is decided of the metrics of a run by their names: once for the same names, and then handed on as it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from tracker_health.roles.meaning import ANY_LOSS, VAL_LOSS, Meaning
from tracker_health.roles.patterns import DEFAULT_PATTERNS, Patterns
from tracker_health.roles.run import Run
from tracker_health.roles.words import normal_form

_MOST_NAMES = 10_000

OWN_PREFIXES = ("health/", "health.")
"""Names under which this tool writes; they are never read back as evidence."""


def understand(names: Iterable[str], patterns: Mapping[str, tuple[str, ...]] = DEFAULT_PATTERNS) -> dict[str, Meaning]:
    """What each name of a run means. A name that a pattern fits has that pattern's role; the others follow the grammar,
    but for roles that were given patterns of their own.
    """
    known = list(dict.fromkeys(name for name in names if not name.startswith(OWN_PREFIXES)))
    by_pattern = Patterns.of(patterns)
    given = {name: role for name in known if (role := by_pattern.role(normal_form(name))) is not None}
    return Run(known, given, by_pattern.own).meanings


@dataclass(frozen=True, slots=True)
class MetricRoles:
    """What the metrics of a run are by their names: plain data.

    ``meanings``: of every name, but for those that this tool writes. ``needed``: the role of each name that is read.
    """

    meanings: Mapping[str, Meaning]
    needed: Mapping[str, str]

    @property
    def has_loss(self) -> bool:
        """Whether a loss is read, so that no logs from elsewhere have to be."""
        return not ANY_LOSS.isdisjoint(self.needed.values())


class RolePlan:
    """Which metrics are read, and as what, under one configuration: plain data, which sources and readers are handed.

    ``patterns``: what the user says of names, by role. ``wanted``: the roles that are read, all where it is None.
    ``every``: names without a role are read too, with an empty one. ``prefix``: what is put before each name, but for
    names that are a held-out loss as they are. ``segment``: of several trainings in one log the one that is read, from
    1; the last one where it is None.

    It remembers its newest answers: a run's names are asked for when it is listed, read and judged, and many runs have
    the same names. What is remembered has 10,000 names in all, or is one answer.
    """

    def __init__(
        self,
        patterns: Mapping[str, tuple[str, ...]] = DEFAULT_PATTERNS,
        *,
        wanted: frozenset[str] | None = None,
        every: bool = False,
        prefix: str = "",
        segment: int | None = None,
    ) -> None:
        self.patterns, self.wanted, self.every, self.prefix = patterns, wanted, every, prefix
        self.segment = segment
        self._known: OrderedDict[tuple[str, ...], MetricRoles] = OrderedDict()
        self._names = 0
        self._lock = Lock()

    def of(self, names: Iterable[str]) -> MetricRoles:
        """What these names are, seen together. Their order counts where there are very many: the first are looked at."""
        key = tuple(names)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = self._decided(key)  # two threads may both decide: the answer is the same
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._names += len(key)
                while self._names > _MOST_NAMES and len(self._known) > 1:
                    self._names -= len(self._known.popitem(last=False)[0])
        return found

    def needed(self, names: Iterable[str]) -> Mapping[str, str]:
        """The role of each of these names, as a file has them, that is read: for files whose names are known only when
        they are read.
        """
        if not self.prefix:
            return self.of(names).needed
        called = {self.name(name): name for name in names}
        return {called[name]: role for name, role in self.of(called).needed.items()}

    def name(self, name: str) -> str:
        """What a name is called in the run."""
        return name if not self.prefix or self._is_held_out(name) else self.prefix + name

    def under(self, prefix: str) -> RolePlan:
        """The same plan for a file whose names are put under a prefix."""
        if not prefix:
            return self
        return RolePlan(self.patterns, wanted=self.wanted, every=self.every, prefix=prefix, segment=self.segment)

    def _is_held_out(self, name: str) -> bool:
        return self.of((name,)).needed.get(name) == VAL_LOSS

    def _decided(self, names: tuple[str, ...]) -> MetricRoles:
        meanings = understand(names, self.patterns)
        if self.every:
            return MetricRoles(meanings, {name: meanings[name].role or "" for name in meanings})
        roles = {name: one.role for name, one in meanings.items() if one.role is not None}
        wanted = self.wanted
        return MetricRoles(meanings, {name: role for name, role in roles.items() if wanted is None or role in wanted})


NOTHING_READ = RolePlan(wanted=frozenset())
"""The plan by which no metric is read."""
