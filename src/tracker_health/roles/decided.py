"""What is decided of the metrics of a run by their names: once for the same names, and then handed on as it is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from tracker_health.roles.meaning import ANY_LOSS, Meaning

_MOST_NAMES = 10_000


@dataclass(frozen=True, slots=True)
class MetricRoles:
    """What the metrics of a run are by their names: plain data.

    ``meanings``: of every name, but for those that this tool writes. ``needed``: the role of each name that is read.
    """

    meanings: Mapping[str, Meaning]
    needed: Mapping[str, str]

    @classmethod
    def of(cls, meanings: Mapping[str, Meaning], wanted: frozenset[str] | None = None) -> MetricRoles:
        """Those with a role are read: with one of the ``wanted``, or with any."""
        roles = {name: one.role for name, one in meanings.items() if one.role is not None}
        return cls(meanings, {name: role for name, role in roles.items() if wanted is None or role in wanted})

    @property
    def has_loss(self) -> bool:
        """Whether a loss is read, so that no logs from elsewhere have to be."""
        return not ANY_LOSS.isdisjoint(self.needed.values())


class Decider:
    """Decides roles, and remembers the newest answers: a run's names are asked for when it is listed, read and judged,
    and many runs have the same names. What is remembered has 10,000 names in all, or is one answer.

    ``decide`` is called with names in the order in which they were given: of very many, the first count.
    """

    def __init__(self, decide: Callable[[tuple[str, ...]], MetricRoles]) -> None:
        self._decide = decide
        self._known: OrderedDict[tuple[str, ...], MetricRoles] = OrderedDict()
        self._names = 0
        self._lock = Lock()

    def __call__(self, names: Iterable[str]) -> MetricRoles:
        """What these names are, seen together."""
        key = tuple(names)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        found = self._decide(key)  # two threads may both decide: the answer is the same
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._names += len(key)
                while self._names > _MOST_NAMES and len(self._known) > 1:
                    self._names -= len(self._known.popitem(last=False)[0])
        return found
