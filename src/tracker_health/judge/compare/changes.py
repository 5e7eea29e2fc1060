"""What is set otherwise in two runs, and which tensors differ or did not move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from tracker_health.evidence import Evidence, Weights
from tracker_health.facts.applied import all_settings
from tracker_health.facts.settings import ADAM, Settings, usual_rate_of
from tracker_health.judge.compare.side import Side
from tracker_health.report.baseline import UNLIKE_EACH_TIME, WHAT_IS_TRAINED, settings_beside
from tracker_health.text import count, listing, printable

_SOURCES = {"as logged": "log", "as saved": "checkpoint", "planned": "plan", "as known": "params and checkpoint"}
UNLIKE = "unlike in every run"
"""What is known of a seed, an id, a place."""

_RATES = ("lr", "learning_rate", "learning rate")
_PARAMS, _UNSET = "params", "not set"
_TIMES = 2.0  # the size of a tensor, that two seeds do not bring
_NAME, _MOST = 80, 200


@dataclass(frozen=True, kw_only=True)
class Change:
    """A setting in which a run differs from others, as text. ``source``: what says it: ``params``, ``log``,
    ``checkpoint`` or ``plan``. ``known``: what is known of it, empty for nothing.
    """

    name: str
    own: str
    others: tuple[str, ...]
    source: str
    known: str = ""

    @property
    def said(self) -> str:
        """``lr 0.3, there 0.001 (params; 0.0001 to 0.01 are usual)``."""
        more = "; ".join(one for one in (self.source, self.known) if one)
        return f"{self.name} {self.own}, there {' and '.join(dict.fromkeys(self.others))} ({more})"

    @property
    def as_change(self) -> str:
        """``lr 0.3 -> 0.001``: from this run to the first of the others."""
        return f"{self.name} {self.own} -> {self.others[0]}"

    def to_json(self) -> dict[str, Any]:
        return {
            "setting": self.name,
            "own": self.own,
            "there": list(self.others),
            "source": self.source,
            "known": self.known,
        }


class Changes(NamedTuple):
    """The settings that differ, most telling first; how many are the same; and of those that a log, a checkpoint or a
    plan would say, the names of the ones of which not all runs have that.
    """

    found: list[Change]
    same: int
    alone: list[str]


def changes_of(bad: Side, goods: Sequence[Side]) -> Changes:
    """The settings in which a run differs from any of others.

    Args:
        bad: The run.
        goods: The others.

    Returns:
        Those of every source: params, log, optimizer state, plan.
    """
    rows, same = settings_beside(all_settings(bad.evidence), [all_settings(one.evidence) for one in goods])
    found = [
        Change(name=row.name, own=row.own, others=row.others, source=_source(row.name), known=_known(row.name, bad))
        for row in rows[:_MOST]
    ]
    diagnosis = bad.report.diagnosis
    blamed = diagnosis.action.param if diagnosis is not None else ""
    alone = [one.name for one in found if one.source != _PARAMS and _UNSET in (one.own, *one.others)]
    kept = [one for one in found if one.name not in alone]
    return Changes(sorted(kept, key=lambda one: not blamed or one.name != blamed), same, alone)


def _source(name: str) -> str:
    return next((source for end, source in _SOURCES.items() if name.endswith(end)), _PARAMS)


def _known(name: str, bad: Side) -> str:
    """What is known of a setting."""
    plain = name.partition(",")[0].split("/")[-1].split(".")[-1].lower()
    diagnosis = bad.report.diagnosis
    if diagnosis is not None and diagnosis.action.param == name:
        return f"what the verdict says to change: {printable(diagnosis.action.in_short, _NAME)}"
    if plain in WHAT_IS_TRAINED:
        return "what is trained: these runs need not be alike"
    if plain in _RATES:
        settings = Settings(bad.evidence)
        kind = "" if settings.optimizer_is_unsaid else settings.optimizer
        return f"{usual_rate_of(kind).said} for {kind.capitalize() if kind == ADAM else kind.upper()}" if kind else ""
    return UNLIKE if UNLIKE_EACH_TIME.search(name) else ""


@dataclass(frozen=True, kw_only=True)
class TensorChanges:
    """What is unlike in the weights of two runs, by names of tensors. ``only_own``, ``only_there``: which one has;
    ``reshaped``: with the two shapes; ``resized``: of which the size of values differs by more than twice, with both;
    ``stood_own``, ``stood_there``: which did not move between two checkpoints of that run, and did in the other.
    """

    only_own: tuple[str, ...] = ()
    only_there: tuple[str, ...] = ()
    reshaped: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    resized: tuple[tuple[str, float, float], ...] = ()
    stood_own: tuple[str, ...] = ()
    stood_there: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(self.lines())

    def lines(self) -> list[str]:
        """One sentence for each kind of difference."""

        def names(found: Sequence[str], what: str) -> str:
            return f"{count(len(found), 'tensor')} {what}: {listing([printable(one, _NAME) for one in found], 3)}"

        def pairs(found: Sequence[tuple[str, Any, Any]]) -> list[str]:
            return [f"{name} {own} and {there}" for name, own, there in found]

        sized = [(name, f"{own:.2g}", f"{there:.2g}") for name, own, there in self.resized]
        said = (
            (self.stood_own, "did not move here, and did there"),
            (self.stood_there, "did not move there, and did here"),
            (pairs(self.reshaped), "of another shape"),
            (self.only_own, "only here"),
            (self.only_there, "only there"),
            (pairs(sized), "with values of another size (rms)"),
        )
        return [names(found, what) for found, what in said if found]

    def to_json(self) -> dict[str, Any]:
        """Plain values, each list of at most 200."""
        found: dict[str, Any] = {
            "only_own": self.only_own,
            "only_there": self.only_there,
            "stood_own": self.stood_own,
            "stood_there": self.stood_there,
        }
        plain = {key: [printable(one, 200) for one in names[:_MOST]] for key, names in found.items()}
        return {
            **plain,
            "reshaped": [
                {"name": printable(name, 200), "own": list(own), "there": list(there)}
                for name, own, there in self.reshaped[:_MOST]
            ],
            "resized": [
                {"name": printable(name, 200), "own": own, "there": there} for name, own, there in self.resized[:_MOST]
            ],
        }


def tensor_changes(bad: Evidence, good: Evidence) -> TensorChanges | None:
    """Which tensors of two runs are unlike; None where one of them has no saved weights that are read.

    Args:
        bad: The run.
        good: Another one.

    Returns:
        The differences; two seeds make no tensor twice as large, and leave none where it was.
    """
    if bad.weights is None or good.weights is None:
        return None
    own = {one.name: one for one in bad.weights.tensors}
    there = {one.name: one for one in good.weights.tensors}
    both = [name for name in own if name in there]
    moved_own, moved_there = _moved(bad.weights), _moved(good.weights)
    pairs = ((name, own[name].shape, there[name].shape) for name in both)
    return TensorChanges(
        only_own=tuple(name for name in own if name not in there),
        only_there=tuple(name for name in there if name not in own),
        reshaped=tuple(one for one in pairs if one[1] != one[2]),
        resized=tuple(_resized(both, own, there)),
        stood_own=tuple(name for name, moved in moved_own.items() if not moved and moved_there.get(name)),
        stood_there=tuple(name for name, moved in moved_there.items() if not moved and moved_own.get(name)),
    )


def _moved(weights: Weights) -> dict[str, bool]:
    return {one.name: not one.unchanged for one in weights.changes}


def _resized(
    both: Sequence[str], own: Mapping[str, Any], there: Mapping[str, Any]
) -> Iterator[tuple[str, float, float]]:
    for name in both:
        one, other = own[name].rms, there[name].rms
        alike = own[name].shape == there[name].shape and len(own[name].shape) > 1
        if alike and one and other and isfinite(one / other) and not 1.0 / _TIMES <= one / other <= _TIMES:
            yield name, one, other


def said_alone(names: Sequence[str]) -> list[str]:
    """A line on settings that one side's log, checkpoint or plan says, and the other's does not.

    Args:
        names: Of the settings.

    Returns:
        One line, or none.
    """
    return [f"{count(len(names), 'setting')} said by one alone: {listing(list(names), 3)}"] if names else []
