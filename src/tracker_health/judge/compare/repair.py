"""Whether a run repairs another one: the old cause is gone, nothing as bad is new, and the end is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tracker_health.diagnosis import Facts, cause_named
from tracker_health.errors import ConfigError
from tracker_health.evidence import StepUnit
from tracker_health.judge.compare.alignment import Alignment, By, aligned, main_series
from tracker_health.judge.compare.changes import UNLIKE as _EACH_TIME
from tracker_health.judge.compare.changes import Change, Changes, changes_of, said_alone
from tracker_health.judge.compare.ends import End, Ends
from tracker_health.judge.compare.side import Side
from tracker_health.judge.pass_reason import MAIN_ROLES
from tracker_health.report.baseline import OF_THE_DATA, WHAT_IS_TRAINED
from tracker_health.report.brief import MOST_BYTES, Room, fitted
from tracker_health.report.result import ProbeResult
from tracker_health.rules.probe import Symptom
from tracker_health.text import clipped, listing, printable, sentence
from tracker_health.words.repairs import Answer, RepairMark
from tracker_health.words.verdict import Verdict

SCHEMA = "tracker-health/repair/1"
BRIEF = "tracker-health/repair-brief/1"
_SHARE = 0.9  # of the length of the shorter run: what ends earlier is not at the same place
_BY_STEPS = Alignment(by=By.STEP)
_SHOWN, _MESSAGE, _MOST_CHANGES = 80, 300, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Repair:
    """Whether ``new`` repairs ``old``. ``cause``: the old one's, or the name of its worst finding. ``because``: the
    reason, a sentence. ``added``: findings of the new run alone that are as severe, ``also``: that are less severe.
    ``ends``: the metrics at the end. ``not_compared``: what could not be, each with the reason. ``changes``: what was
    set otherwise.
    """

    old: Side
    new: Side
    answer: Answer
    because: str
    cause: str = ""
    added: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    ends: tuple[End, ...] = ()
    not_compared: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def change(self) -> str:
        """What was changed, in short: ``learning_rate 0.3 -> 0.03``; empty where nothing is known to be."""
        known = [one for one in self.changes if one.source == "params" and one.known != _EACH_TIME]
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
            "also_found": list(self.also),
            "ends": [one.to_json() for one in self.ends],
            "settings": [one.to_json() for one in self.changes],
            "not_compared": list(self.not_compared),
        }

    def brief(self, most: int = MOST_BYTES) -> dict[str, Any]:
        """The same in few bytes of JSON, for a context. ``most``: so many."""
        return fitted(self._in_brief, most)

    def _in_brief(self, room: Room) -> dict[str, Any]:
        def few(texts: Iterable[str]) -> list[str]:
            return [clipped(one, room.sentence) for one in list(texts)[: min(3, room.findings)]]

        return {
            "schema": BRIEF,
            "answer": str(self.answer),
            "because": clipped(self.because, room.text),
            "cause": self.cause,
            "change": clipped(self.change, room.sentence),
            "ends": few(one.said for one in self.ends),
            "new": few((*self.added, *self.also)),
            "not_compared": few(self.not_compared),
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

    Raises:
        ConfigError: one of ``seeds`` is set otherwise than the new run.
    """
    for seed in seeds:
        unlike = [one for one in changes_of(seed, [new]).found if one.source == "params" and one.known != _EACH_TIME]
        if unlike:
            message = f"{seed.shown} is no other seed of {new.shown}: {unlike[0].said}"
            raise ConfigError(message, "name runs that differ in their seed alone")
    changes = changes_of(old, [new])
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
        also=tuple(said.also),
        changes=tuple(changes.found),
    )


class _Judging:
    """The steps to an answer, each of which may end it."""

    def __init__(self, old: Side, new: Side, seeds: Sequence[Side], changes: Changes) -> None:
        self.old, self.new, self.seeds, self.changes = old, new, seeds, changes.found
        self.alignment = aligned([old, new])
        self.not_compared: list[str] = said_alone(changes.alone)
        if all(one.known == _EACH_TIME for one in changes.found):
            self.not_compared.append("the code: no setting is known to differ, and the seed alone may do this")
        self.ends, unlike = Ends(old=old, new=new, seeds=seeds, alignment=self.alignment).found()
        self.not_compared += unlike
        self.added, self.also = self._new_findings()

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
        for name in sorted(own):
            is_trained = name in WHAT_IS_TRAINED or OF_THE_DATA.search(name)
            if is_trained and name in there and own[name] != there[name]:
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
        effects = [one for one in self.new.found.values() if one.code in named.explains and self._is_as_severe(one)]
        if effects:
            return f"another effect of {named.name} is there: {effects[0].code} {effects[0].name}"
        facts = Facts(self.new.evidence, self.new.report.results)
        defined = [one for one in named.defines if one.seen(facts)]
        return f"a sign of {named.name} is still there: {defined[0].name}" if defined else ""

    def _why_not_compared(self) -> str:
        """Why the absence of the old finding says nothing."""
        code = self._head.code
        skipped = {one.code: one.reason for one in self.new.report.skipped}
        if code in skipped and not (self._is_done_as_said or self._is_of_what_is_gone):
            return f"{code} {self._head.name} could not be looked for in the new run: {printable(skipped[code])}"
        short = self._is_shorter() or self._ends_before_it()
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
        if was is not None and now is not None and now > was and self.alignment.by is By.EPOCH:
            return ""
        own, there = (self.alignment.shown(one) for one in (new, old))
        return f"the new run is shorter: it ends at {own}, the old one at {there}"

    def _ends_before_it(self) -> str:
        """Whether the new run has fewer steps than the old one had when it went wrong, whatever share of a plan that
        is.
        """
        wrong, now = min(self._head.steps, default=0), _reach(self.new, _BY_STEPS)
        units = {_unit_of(one) for one in (self.old, self.new)}
        if now is None or now >= wrong or len(units) > 1 or self._is_about_the_plan:
            return ""
        return f"the new run ends at step {now:.0f}, before the old one went wrong, at step {wrong}"

    @property
    def _is_about_the_plan(self) -> bool:
        return self._head.symptom in (Symptom.UNDERTRAINED, Symptom.SCHEDULE)

    def _new_findings(self) -> tuple[list[str], list[str]]:
        """Findings of the new run alone: those that are as severe as what the old one is to be rid of, and the rest."""
        fresh = [one for code, one in self.new.found.items() if code not in self.old.found]
        severe = [f"{one.code} {one.name}" for one in fresh if self._is_as_severe(one)]
        return severe, [f"{one.code} {one.name}" for one in fresh if not self._is_as_severe(one)]

    def _is_as_severe(self, finding: ProbeResult) -> bool:
        head = self.old.head
        return head is not None and finding.verdict.rank >= head.verdict.rank

    @property
    def _is_about_the_end(self) -> bool:
        """Whether a run without this fault has to end better: where it is seen in a curve, and not in weights alone."""
        return bool(self._head.about)


def _unit_of(side: Side) -> StepUnit | None:
    series = main_series(side.evidence)
    return None if series is None else series.step_unit


def _reach(side: Side, alignment: Alignment) -> float | None:
    """How far a run came, on the axis of the comparison."""
    found = [
        float(at.max())
        for role in MAIN_ROLES
        if (series := side.evidence.find(role)) is not None
        and len(at := alignment.positions(series.clean(), side.evidence))
    ]
    return max(found, default=None)
