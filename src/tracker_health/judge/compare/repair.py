"""Whether a run repairs another one: the old cause is gone, nothing as bad is new, and the end is better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from typing import Any, Literal

import numpy as np

from tracker_health.diagnosis import Facts, cause_named
from tracker_health.evidence import LIKELY, SURELY, Estimate, Series
from tracker_health.facts.scores import HELD_OUT
from tracker_health.judge.compare import margins
from tracker_health.judge.compare.alignment import Alignment, By, aligned
from tracker_health.judge.compare.changes import UNLIKE as _EACH_TIME
from tracker_health.judge.compare.changes import Change, changes_of
from tracker_health.judge.compare.side import Side
from tracker_health.judge.pass_reason import MAIN_ROLES, RISES
from tracker_health.report.baseline import WHAT_IS_TRAINED
from tracker_health.report.result import ProbeResult
from tracker_health.rules.probe import Symptom
from tracker_health.text import contrast, listing, printable, sentence, short_name
from tracker_health.words.repairs import Answer, RepairMark
from tracker_health.words.verdict import Verdict

SCHEMA = "tracker-health/repair/1"
_BY_VALIDATION = ("val_loss", *HELD_OUT)
_SHARE = 0.9  # of the length of the shorter run: what ends earlier is not at the same place
_END = 0.2  # of the compared part: the levels that are its end
_NOTHING = 1e-9
_BY_STEPS = Alignment(by=By.STEP)
_SHOWN, _MESSAGE, _MOST_CHANGES = 80, 300, 3

Better = Literal["better", "as before", "worse"]


@dataclass(frozen=True, kw_only=True)
class End:
    """A metric at the end of the part that both runs have. ``old`` and ``new``: its levels there, NaN where it is not
    finite; ``noise``: what the difference has to exceed, in the unit of the metric.
    """

    name: str
    role: str
    old: float
    new: float
    noise: float
    place: str

    @property
    def outcome(self) -> Better:
        """Whether the new level is better beyond the noise."""
        if isfinite(self.old) is not isfinite(self.new):
            return "better" if isfinite(self.new) else "worse"
        gain = (self.new - self.old) * (1.0 if self.role in RISES else -1.0)
        if not isfinite(gain) or abs(gain) <= self.noise:
            return "as before"
        return "better" if gain > 0 else "worse"

    @property
    def said(self) -> str:
        """``val_loss ends better: about 0.31 at step 900, before 1.2``."""
        both = isfinite(self.old) and isfinite(self.new)
        old, new = contrast(self.old, self.new) if both else (_shown(self.old), _shown(self.new))
        return f"{short_name(self.name)} ends {self.outcome}: about {new} at {self.place}, before {old}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a level that is not finite is null."""
        levels = {"old": self.old, "new": self.new, "noise": self.noise}
        plain = {key: one if isfinite(one) else None for key, one in levels.items()}
        return {
            "metric": printable(self.name),
            "role": self.role,
            "outcome": self.outcome,
            "place": self.place,
            **plain,
        }


def _shown(value: float) -> str:
    return contrast(value)[0] if isfinite(value) else "not finite"


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """Whether ``new`` repairs ``old``. ``cause``: the old one's, or the name of its worst finding. ``because``: the
    reason, a sentence. ``added``: findings of the new run alone that are as severe. ``ends``: the metrics at the end.
    ``not_compared``: what could not be, each with the reason. ``changes``: what was set otherwise.
    """

    old: Side
    new: Side
    answer: Answer
    because: str
    cause: str = ""
    added: tuple[str, ...] = ()
    ends: tuple[End, ...] = ()
    not_compared: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def change(self) -> str:
        """What was changed, in short: ``learning_rate 0.3 -> 0.03``; empty where nothing is known to be."""
        known = [one for one in self.changes if one.source == "params" and not one.known.startswith(_EACH_TIME)]
        return "; ".join(f"{one.name} {one.own} -> {one.others[0]}" for one in known[:_MOST_CHANGES])

    def mark(self, when: float) -> RepairMark:
        """What is put onto both runs. ``when``: in seconds since 1970."""
        return RepairMark(
            old=self.old.report.run.id,
            new=self.new.report.run.id,
            answer=self.answer,
            cause=self.cause,
            change=self.change,
            because=self.because,
            when=when,
        )

    def to_json(self) -> dict[str, Any]:
        """The answer as a document of strict JSON values."""
        return {
            "schema": SCHEMA,
            "answer": str(self.answer),
            "because": self.because,
            "old": _run(self.old),
            "new": _run(self.new),
            "cause": self.cause,
            "change": self.change,
            "added": list(self.added),
            "ends": [one.to_json() for one in self.ends],
            "settings": [one.to_json() for one in self.changes],
            "not_compared": list(self.not_compared),
        }


def _run(side: Side) -> dict[str, Any]:
    run = side.report.run
    return {"store": run.store, "id": run.id, "name": printable(run.name), "verdict": str(side.report.verdict)}


def judge_repair(old: Side, new: Side, seeds: Sequence[Side] = ()) -> Repair:
    """Whether a run repairs another. Pure.

    Args:
        old: The run with a finding.
        new: The run after it.
        seeds: Runs set as the new one, with other seeds: the noise of its end is then theirs.

    Returns:
        The answer with its reason.
    """
    changes, _ = changes_of(old, [new])
    cause = old.report.cause or (old.head.name if old.head is not None else "")
    said = _Judging(old, new, seeds, changes)
    answer, because = said.answer()
    return Repair(
        old=old,
        new=new,
        answer=answer,
        because=sentence(because),
        cause=cause,
        added=tuple(said.added),
        ends=tuple(said.ends),
        not_compared=tuple(said.not_compared),
        changes=tuple(changes),
    )


class _Judging:
    """The steps to an answer, each of which may end it."""

    def __init__(self, old: Side, new: Side, seeds: Sequence[Side], changes: Sequence[Change]) -> None:
        self.old, self.new, self.seeds, self.changes = old, new, seeds, changes
        self.alignment = aligned([old, new])
        self.not_compared: list[str] = []
        if not any(not one.known.startswith(_EACH_TIME) for one in changes):
            self.not_compared.append("no setting is known to differ: if the code does not, this may be the seed alone")
        self.ends = list(self._ends())
        self.added = list(self._added())

    def answer(self) -> tuple[Answer, str]:
        """The answer and its reason, without a full stop."""
        why_not = self._why_not_judged()
        if why_not:
            return Answer.CANNOT_TELL, why_not
        still = self._still_there()
        if still:
            return Answer.NOT_REPAIRED, still
        why_not = self._why_not_compared()
        if why_not:
            return Answer.CANNOT_TELL, why_not
        worse = [one for one in self.ends if one.outcome == "worse"]
        better = [one for one in self.ends if one.outcome == "better"]
        gone = f"{self._head.code} {self._head.name} is gone"
        if worse and not (better and self.ends[0].outcome == "better"):
            return Answer.NOT_REPAIRED, f"{gone}, but {worse[0].said}"
        if not better and self._is_about_the_end:
            level = self.ends[0].said if self.ends else ""
            return Answer.NOT_REPAIRED, f"{gone}, but the run does not end better beyond noise: {level}"
        what = f"{gone}, and {better[0].said}" if better else f"{gone}, and the run ends no worse"
        if self.added:
            return Answer.SOMETHING_NEW, f"{what}; new is {listing(self.added, 2)}"
        return Answer.REPAIRED, what

    @property
    def _head(self) -> ProbeResult:
        """The finding that is to be gone."""
        head = self.old.head
        if head is None:
            raise LookupError("a run without a finding has nothing to repair")
        return head

    def _why_not_judged(self) -> str:
        if self.old.head is None:
            return "nothing was found in the old run: there is nothing to repair"
        if self.new.evidence.goes_on:
            return "the new run is still running"
        if self.new.report.verdict in (Verdict.ERROR, Verdict.SKIP):
            return f"the new run could not be judged: {printable(self.new.report.summary)}"
        own, there = self.old.evidence.info.params, self.new.evidence.info.params
        for name in WHAT_IS_TRAINED:
            if name in own and name in there and own[name] != there[name]:
                values = f"{printable(own[name], _SHOWN)} and {printable(there[name], _SHOWN)}"
                return f"other data or another model: {name} is {values}"
        return ""

    def _still_there(self) -> str:
        """What of the old verdict the new run still shows."""
        code, name = self._head.code, f"{self._head.code} {self._head.name}"
        if code in self.new.found:
            return f"{name} is still there: {printable(self.new.found[code].message, _MESSAGE).rstrip('.')}"
        named = cause_named(self.old.report.cause) if self.old.report.cause else None
        if named is None:
            return ""
        if self.new.report.cause == named.name:
            return f"the cause is the same: {named.name}"
        facts = Facts(self.new.evidence, self.new.report.results)
        defined = [one for one in named.defines if one.seen(facts)]
        return f"what {named.name} is known by is still there: {defined[0].looks_at}" if defined else ""

    def _why_not_compared(self) -> str:
        """Why the absence of the old finding says nothing."""
        code = self._head.code
        skipped = {one.code: one.reason for one in self.new.report.skipped}
        if code in skipped and not (self._is_done_as_said or self._is_of_what_is_gone):
            return f"{code} {self._head.name} could not be looked for in the new run: {printable(skipped[code])}"
        short = self._is_shorter()
        if short:
            return short
        if not self.ends and self._is_about_the_end:
            return "the two runs have no metric in common that says how they end"
        return ""

    @property
    def _is_done_as_said(self) -> bool:
        """Whether the setting that the old verdict names was changed: what its rule looked at may be gone with it, as
        the loss scale is of a run without half precision.
        """
        diagnosis = self.old.report.diagnosis
        named = "" if diagnosis is None else diagnosis.action.param or diagnosis.action.setting
        return bool(named) and any(one.name == named for one in self.changes)

    @property
    def _is_of_what_is_gone(self) -> bool:
        """Whether the finding is on a loss scale, and the new run has none: it does without half precision."""
        roles = {one.role for one in self.old.evidence.series if one.name in self._head.about}
        return roles == {"loss_scale"}

    def _is_shorter(self) -> str:
        """Whether the new run did not come as far as the old one, and nothing stopped it in order. More steps are
        enough: a plan may have been too short by its steps, and its epochs shorter ones.
        """
        old, new = (_reach(one, self.alignment) for one in (self.old, self.new))
        if old is None or new is None or new >= _SHARE * old or self.new.evidence.info.stopped is not None:
            return ""
        was, now = (_reach(one, _BY_STEPS) for one in (self.old, self.new))
        if was is not None and now is not None and now >= max(_SHARE * was, was + 1) and self.alignment.by is By.EPOCH:
            return ""
        own, there = (self.alignment.shown(one) for one in (new, old))
        return f"the new run is shorter: it ends at {own}, the old one at {there}"

    def _added(self) -> Iterator[str]:
        """Findings of the new run alone that are as severe as what the old one is to be rid of."""
        head = self.old.head
        if head is None:
            return
        for code, one in self.new.found.items():
            if code not in self.old.found and one.verdict.rank >= head.verdict.rank:
                yield f"{code} {one.name}"

    @property
    def _is_about_the_end(self) -> bool:
        """Whether a run without this fault has to end better: where it is seen in a curve, and not in weights alone."""
        return bool(self._head.about)

    def _ends(self) -> Iterator[End]:
        """The main metrics at the end of what both runs have: held-out ones first."""
        held_out = [role for role in _BY_VALIDATION if self._has(role)]
        others = [role for role in MAIN_ROLES if role not in _BY_VALIDATION and self._has(role)]
        for role in [*held_out, *others]:
            end = self._end_of(role)
            if end is not None:
                yield end

    def _has(self, role: str) -> bool:
        return all(one.evidence.find(role) is not None for one in (self.old, self.new))

    def _end_of(self, role: str) -> End | None:
        own, there = (one.evidence.by_role[role].clean() for one in (self.old, self.new))
        if own.name != there.name:
            self.not_compared.append(f"{role}: {short_name(own.name)} and {short_name(there.name)} are two metrics")
            return None
        at = [self.alignment.positions(series, one.evidence) for series, one in ((own, self.old), (there, self.new))]
        if not all(len(one) for one in at):
            return None
        stop = min(float(one.max()) for one in at)
        levels = [_level(series.values, where, stop) for series, where in ((own, at[0]), (there, at[1]))]
        if self._hides_nan(own):
            levels[0] = Estimate(float("nan"), 0.0)
        return End(
            name=own.name,
            role=role,
            old=levels[0].value,
            new=levels[1].value,
            noise=self._noise(role, levels, stop),
            place=self.alignment.place(stop, there, self.new.evidence),
        )

    def _hides_nan(self, series: Series) -> bool:
        """Whether the old run became NaN, and one number is logged in its place to the end."""
        head = self.old.head
        if head is None or head.symptom != Symptom.NONFINITE or not head.steps:
            return False
        after = series.values[series.steps >= min(head.steps)]
        return len(after) > 1 and bool(np.all(after == after[-1]))

    def _noise(self, role: str, levels: Sequence[Estimate], stop: float) -> float:
        """What two ends differ by without any change: the scatter of seeds that were given, else the run's own, and
        what another seed brings.
        """
        own = LIKELY * hypot(levels[0].error, levels[1].error)
        ends = [levels[1].value, *self._ends_of_seeds(role, stop)]
        if len(ends) > 1 and np.isfinite(ends).all():
            return max(own, SURELY * float(np.std(ends, ddof=1)))
        curves = [one.falling(role) for one in (self.old, self.new)]
        descents = [abs(curve.descent.value) for curve in curves if curve is not None]
        size = max((abs(one.value) for one in levels if isfinite(one.value)), default=0.0)
        of_seeds = min(margins.OF_AN_END * max(descents, default=0.0), margins.OF_A_LOW_END * size)
        return max(own, of_seeds, margins.OF_A_LEVEL * size, _NOTHING)

    def _ends_of_seeds(self, role: str, stop: float) -> Iterator[float]:
        for side in self.seeds:
            series = side.evidence.find(role)
            if series is not None and len(series):
                clean = series.clean()
                yield _level(clean.values, self.alignment.positions(clean, side.evidence), stop).value


def _reach(side: Side, alignment: Alignment) -> float | None:
    """How far a run came, on the axis of the comparison."""
    found = [
        float(at.max())
        for role in MAIN_ROLES
        if (series := side.evidence.find(role)) is not None
        and len(at := alignment.positions(series.clean(), side.evidence))
    ]
    return max(found, default=None)


def _level(values: np.ndarray, at: np.ndarray, stop: float) -> Estimate:
    """The level of the last part up to a place; NaN where half of it is not finite."""
    begins = float(at.min())
    here = values[(at <= stop) & (at >= stop - _END * (stop - begins))]
    few = here if len(here) >= 1 else values[at <= stop][-1:]
    finite = few[np.isfinite(few)]
    if 2 * len(finite) <= len(few):
        return Estimate(float("nan"), 0.0)
    spread = float(np.median(np.abs(finite - np.median(finite)))) * 1.4826
    return Estimate(float(np.median(finite)), 1.2533 * spread / float(np.sqrt(len(finite))))
