"""The health of many runs, from what their tags say of it; no history is read and nothing is judged."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, get_args

from tracker_health.report.brief import MOST_BYTES, Room, brief_cause, brief_run, fitted
from tracker_health.rules.registry import probe_classes
from tracker_health.runs.attempts import Attempts, Repairs, attempt_lines
from tracker_health.runs.relations import BY_KIN, Relation, Relations
from tracker_health.stores.base import TaggedRun
from tracker_health.text import clipped, count, percent, printable
from tracker_health.words import retired
from tracker_health.words.acknowledgements import Acknowledgement, answer_marks, answers
from tracker_health.words.causes import is_same_cause
from tracker_health.words.diagnosis import Certainty
from tracker_health.words.order import ORDERS, Place
from tracker_health.words.verdict import Verdict

MOST_WORST = 10
CERTAINTY_WORDS = get_args(Certainty)
_MOST_REASONS = 10
_CODE_BYTES = 20
_MOST_GROUPS = 30
_NONE = "none"
WORDS = (*map(str, sorted(Verdict, key=lambda verdict: -verdict.rank)), _NONE)
"""The verdicts, the worst first, and what stands for none."""


def _week(run: TaggedRun) -> str:
    if run.started is None:
        return ""
    try:
        year, week, _ = datetime.fromtimestamp(run.started, UTC).isocalendar()
    except (ValueError, OverflowError, OSError):  # anybody may give a run any time
        return ""
    return f"{year}-W{week:02}"


GROUPS: dict[str, Callable[[TaggedRun], Sequence[str]]] = {
    "user": lambda run: [run.user],
    "experiment": lambda run: [run.experiment],
    "week": lambda run: [_week(run)],
    "code": lambda run: run.codes,
    "cause": lambda run: [run.cause] if run.cause else [],
    **dict.fromkeys(BY_KIN, lambda _: ()),  # counted by Relations: two projects may have groups of one name
}
"""What runs can be grouped by; a run is in as many groups as it has codes."""


@dataclass(kw_only=True)
class Answers:
    """How people answered what a rule, or a cause, said of runs: in how many it was ``flagged``; of these
    ``acknowledged`` as right, and called ``wrong``. Who calls it wrong, and who does not, both count as wrong.
    """

    flagged: int = 0
    acknowledged: int = 0
    wrong: int = 0

    @property
    def precision(self) -> float | None:
        """The share of those answered that was right; None where nobody has answered."""
        answered = self.acknowledged + self.wrong
        return self.acknowledged / answered if answered else None

    def add(self, about: Sequence[Acknowledgement]) -> None:
        """Count a run, of which this was said."""
        self.flagged += 1
        wrong = any(one.wrong for one in about)
        self.wrong += wrong
        self.acknowledged += bool(about) and not wrong

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return {
            "flagged": self.flagged,
            "acknowledged": self.acknowledged,
            "wrong": self.wrong,
            "precision": self.precision,
        }


@dataclass(frozen=True, kw_only=True)
class Overview:
    """``verdicts``: how many runs have each, ``none`` for no verdict of ours. ``reasons``: in how many runs each rule's
    code stands. ``causes``: how many have each cause. ``worst``: the runs with the most severe verdicts, of equal ones
    the newest. ``groups``: the verdicts of each group, by what runs are grouped by, and ``group_causes`` their causes.
    ``older``: how many verdicts are older than the data of their runs. ``open``: at how many runs someone still has to
    look. ``rules`` and ``by_cause``: how people answered each. ``tried``: how many runs have which verdict in shadow
    alone. ``certainties``: how sure the cause is, in how many; ``certain``: of each cause, where it is certain.
    ``relations``: what each group is, by what they are grouped by. ``now``: when they were counted, in seconds since
    1970. ``only``: the verdicts that the worst runs may have. ``repairs``: what runs say of others that they were to
    repair.
    """

    verdicts: Counter[str]
    reasons: Counter[str]
    causes: Counter[str]
    worst: tuple[TaggedRun, ...]
    groups: dict[str, dict[str, Counter[str]]]
    group_causes: dict[str, dict[str, Counter[str]]]
    older: int = 0
    open: int = 0
    rules: dict[str, Answers] = field(default_factory=dict)
    by_cause: dict[str, Answers] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)
    certainties: Counter[str] = field(default_factory=Counter)
    certain: Counter[str] = field(default_factory=Counter)
    relations: dict[str, tuple[Relation, ...]] = field(default_factory=dict)
    now: float = 0.0
    only: tuple[Verdict, ...] = (Verdict.ERROR, Verdict.FAIL, Verdict.WARN)
    repairs: Repairs = field(default_factory=Repairs)

    @property
    def runs(self) -> int:
        """How many there are."""
        return self.verdicts.total()

    @property
    def bad(self) -> int:
        """How many could be among the worst runs."""
        return sum(self.verdicts[verdict] for verdict in self.only)

    def answered(self, run: TaggedRun) -> str:
        """What people said of a run that still counts: ``acknowledged by ana``; "" for nothing."""
        return answer_marks(run.codes, run.cause, run.acks, self.now).ack

    def narrowed(self, by: Sequence[str]) -> Overview:
        """The same, with these groups alone, and with the fewest of the worst runs."""
        groups = {what: self.groups[what] for what in by}
        causes = {what: self.group_causes[what] for what in by}
        relations = {what: self.relations[what] for what in by if what in self.relations}
        worst = self.worst[:MOST_WORST]
        return replace(self, groups=groups, group_causes=causes, relations=relations, worst=worst)

    def brief(self, most: int = MOST_BYTES) -> dict[str, Any]:
        """The counts, the most frequent causes and rules, and the worst runs, in at most so many bytes of JSON; at
        least 1,500.
        """
        return fitted(self._brief_in, most)

    def _brief_in(self, room: Room) -> dict[str, Any]:
        names = rule_names()
        causes, reasons = by_frequency(self.causes), by_frequency(self.reasons)
        return {
            "schema": "tracker-health/summary-brief/1",
            "runs": self.runs,
            "verdicts": {word: self.verdicts[word] for word in WORDS},
            "older": self.older,
            "open": self.open,
            "causes": [{"cause": clipped(one, room.word), "runs": runs} for one, runs in causes[: room.findings]],
            "reasons": [
                {"code": clipped(code, _CODE_BYTES), "name": names.get(code), "runs": runs}
                for code, runs in reasons[: room.findings]
            ],
            "worst": [
                {
                    **brief_run(run.ref.name, f"{run.ref.store}:{run.ref.id}", run.ref.url if room.why else None),
                    "verdict": None if run.verdict is None else str(run.verdict),
                    "cause": brief_cause(run.cause, run.certainty if run.certainty in CERTAINTY_WORDS else ""),
                    "summary": clipped(run.summary, room.why),
                }
                for run in self.worst[: room.findings]
            ],
        }

    def to_json(self) -> dict[str, Any]:
        """A document of strict JSON values."""
        names = rule_names()
        return {
            "schema": "tracker-health/summary/1",
            "runs": self.runs,
            "verdicts": {word: self.verdicts[word] for word in WORDS},
            "older": self.older,
            "reasons": [
                {"code": code, "name": names.get(code), "runs": runs} for code, runs in by_frequency(self.reasons)
            ],
            "causes": [{"cause": cause, "runs": runs} for cause, runs in by_frequency(self.causes)],
            "certainty": {word: self.certainties[word] for word in CERTAINTY_WORDS},
            "open": self.open,
            "shadow": {str(word): self.tried[word] for word in Verdict if self.tried[word]},
            "precision": {
                "rules": [
                    {"code": code, "name": names.get(code), **found.to_json()}
                    for code, found in sorted(self.rules.items())
                ],
                "causes": [{"cause": cause, **found.to_json()} for cause, found in sorted(self.by_cause.items())],
            },
            "worst": [_as_json(run) for run in self.worst],
            "by": {
                what: {name: {word: counted[word] for word in WORDS} for name, counted in sorted(groups.items())}
                for what, groups in self.groups.items()
            },
            "groups": {what: [one.to_json() for one in found] for what, found in self.relations.items()},
            "repairs": self.repairs.to_json(),
        }


def overview(
    runs: Iterable[TaggedRun],
    by: Sequence[str] = (),
    *,
    now: float,
    labelled: Callable[[dict[str, Any]], None] | None = None,
    most_worst: int = MOST_WORST,
    only: Collection[Verdict] = (),
    sort: str = "",
) -> Overview:
    """Counts of the runs, which are not kept. ``by``: of ``GROUPS``. ``now``: in seconds since 1970. ``labelled``: is
    given each run that someone has answered, with what was said, as a JSON document. ``most_worst``: how many of the
    worst runs are named. ``only``: these have one of these verdicts. ``sort``: the order in which they are named, of
    ``ORDERS``.
    """
    rules: dict[str, Answers] = {}
    by_cause: dict[str, Answers] = {}
    tried: Counter[str] = Counter()
    is_open = 0
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    relations, attempts = Relations(by), Attempts()
    groups: dict[str, dict[str, Counter[str]]] = {what: {} for what in by}
    group_causes: dict[str, dict[str, Counter[str]]] = {what: {} for what in by}
    worst: list[tuple[int, float, int, TaggedRun]] = []
    certainties: Counter[str] = Counter()
    certain: Counter[str] = Counter()
    older = 0
    for number, run in enumerate(runs):
        word = str(run.verdict or _NONE)
        verdicts[word] += 1
        older += run.older
        tried.update([str(run.shadow.verdict)] if run.shadow is not None else [])
        is_open += answer_marks(run.codes, run.cause, run.acks, now).open == "true"
        said = _count_answers(run, rules, by_cause)
        if labelled is not None and said:
            labelled(_labels(run, said))
        reasons.update(set(run.codes))
        causes.update([run.cause] if run.cause else [])
        certainties.update([run.certainty] if run.certainty in CERTAINTY_WORDS else [])
        certain.update([run.cause] if run.cause and run.certainty == "certain" else [])
        relations.add(run)
        attempts.add(run)
        for what, counted in groups.items():
            for name in set(GROUPS[what](run)):
                counted.setdefault(name, Counter())[word] += 1
                if run.cause:
                    group_causes[what].setdefault(name, Counter())[run.cause] += 1
        if run.verdict in (only or Overview.only):
            entry = (run.verdict.rank if run.verdict else 0, run.started or 0.0, -number, run)
            (heapq.heappush if len(worst) < most_worst else heapq.heappushpop)(worst, entry)
    for what in BY_KIN.keys() & groups.keys():
        groups[what], group_causes[what] = relations.counts(what)
    ordered = [run for *_, run in sorted(worst, key=lambda one: one[:3], reverse=True)]
    if sort:
        ordered.sort(key=lambda run: ORDERS[sort](Place(run.verdict or Verdict.SKIP, run.ref.name, run.cause)))
    return Overview(
        verdicts=verdicts,
        reasons=reasons,
        causes=causes,
        certainties=certainties,
        certain=certain,
        now=now,
        worst=tuple(ordered),
        groups=groups,
        group_causes=group_causes,
        older=older,
        open=is_open,
        rules=rules,
        by_cause=by_cause,
        tried=tried,
        relations=relations.found(),
        only=tuple(only) or Overview.only,
        repairs=attempts.found(),
    )


def _count_answers(
    run: TaggedRun, rules: dict[str, Answers], causes: dict[str, Answers]
) -> tuple[Acknowledgement, ...]:
    """Count what was said of a run's findings and cause, also where it no longer silences them: gives all of it."""
    said = answers(run.acks)
    for code in set(run.codes):
        rules.setdefault(code, Answers()).add([one for one in said if code in one.codes])
    if run.cause:
        about = [one for one in said if one.about_cause and is_same_cause(run.cause, one.cause)]
        causes.setdefault(run.cause, Answers()).add(about)
    return said


def _labels(run: TaggedRun, said: Iterable[Acknowledgement]) -> dict[str, Any]:
    return {
        "schema": "tracker-health/labels/1",
        **_as_json(run),
        "acknowledged": [{key: value for key, value in one.to_json().items() if key != "evidence"} for one in said],
    }


def overview_lines(found: Overview) -> Iterator[str]:
    """The same as a table for the terminal."""
    names = rule_names()
    yield from _counted_lines(found)
    yield from _precision_lines(found, names)
    if found.causes:
        yield ""
        yield "most frequent causes"
        for cause, runs in by_frequency(found.causes)[:_MOST_REASONS]:
            yield f"  {runs:>6}  {printable(cause, 40)}"
    if found.reasons:
        yield ""
        yield "most frequent reasons"
        for code, runs in by_frequency(found.reasons)[:_MOST_REASONS]:
            yield f"  {runs:>6}  {printable(code, 20)} {names.get(code, '')}".rstrip()
    if found.worst:
        yield ""
        yield "worst runs"
        for run in found.worst:
            name, where = printable(run.ref.name, 40), printable(run.ref.url or run.ref.id)
            cause = f"{run.cause} ({run.certainty})" if run.certainty in CERTAINTY_WORDS else run.cause
            said = f"{cause}: {run.summary}" if run.cause else run.summary
            answered = found.answered(run)
            more = ("older than its data" * run.older, answered, *found.repairs.of(run))
            summary = printable(said, 100) + "".join(f" ({one})" for one in more if one)
            yield f"  {run.verdict!s:<5}  {name}  {summary}  {where}"
    if found.repairs.answers.total():
        yield ""
        yield from attempt_lines(found.repairs)
    for what, groups in found.groups.items():
        yield ""
        yield from _group_lines(what, groups)
        for one in found.relations.get(what, ())[:_MOST_GROUPS]:
            yield f"  {printable(one.name, 40)}: {one.said}"


def _counted_lines(found: Overview) -> Iterator[str]:
    yield f"{count(found.runs, 'run')}: " + ", ".join(f"{found.verdicts[word]} {word}" for word in WORDS)
    if found.certainties:
        counts = ", ".join(f"{found.certainties[word]} {word}" for word in CERTAINTY_WORDS if found.certainties[word])
        yield f"causes: {counts}"
    if found.tried:
        counts = ", ".join(f"{found.tried[word]} {word}" for word in WORDS if found.tried[word])
        yield f"in shadow only: {counts}"
    if found.older:
        are = "verdict is" if found.older == 1 else "verdicts are"
        yield f"{found.older} {are} older than the data of the run: sweep or annotate judges again"
    if found.runs and 2 * found.verdicts["none"] >= found.runs:
        yield "most have no verdict yet: tracker-health annotate judges them, also a whole --experiment or --project"
    if any(one.precision is not None for one in found.rules.values()):
        yield f"{count(found.open, 'run')} open: someone still has to look"


def _precision_lines(found: Overview, names: dict[str, str]) -> Iterator[str]:
    """How people answered: nothing where nobody has."""
    rows = [(f"{printable(code, 20)} {names.get(code, '')}".rstrip(), one) for code, one in found.rules.items()]
    rows += [(printable(cause, 40), one) for cause, one in found.by_cause.items()]
    answered = [(name, one) for name, one in rows if one.precision is not None]
    if not answered:
        return
    yield ""
    yield f"{'answered by people':<40} {'flagged':>8} {'right':>6} {'wrong':>6} {'precision':>10}"
    for name, one in sorted(answered, key=lambda row: (-row[1].acknowledged - row[1].wrong, row[0]))[:_MOST_GROUPS]:
        yield f"{name:<40} {one.flagged:>8} {one.acknowledged:>6} {one.wrong:>6} {percent(one.precision or 0.0):>10}"


def _group_lines(what: str, groups: dict[str, Counter[str]]) -> Iterator[str]:
    """Most runs first, but weeks in their order."""
    ordered = sorted(groups) if what == "week" else sorted(groups, key=lambda name: (-groups[name].total(), name))
    shown = ordered[-_MOST_GROUPS:] if what == "week" else ordered[:_MOST_GROUPS]
    yield f"{what:<20} {'runs':>7} " + " ".join(f"{word:>6}" for word in WORDS)
    for name in shown:
        counts = " ".join(f"{groups[name][word]:>6}" for word in WORDS)
        yield f"{printable(name, 20) or '(unknown)':<20} {groups[name].total():>7} {counts}"
    if len(groups) > len(shown):
        yield f"and {len(groups) - len(shown)} more"


def _as_json(run: TaggedRun) -> dict[str, Any]:
    return {
        "run": asdict(run.ref),
        "verdict": str(run.verdict),
        "codes": list(run.codes),
        "cause": run.cause or None,
        "certainty": run.certainty or None,
        "summary": run.summary,
        "older": run.older,
        "repairs": None if run.repairs is None else run.repairs.to_json(),
        "repaired_by": None if run.repaired_by is None else run.repaired_by.to_json(),
    }


def rule_names() -> dict[str, str]:
    """The name of each rule, retired ones too, by its code."""
    gone = {rule.code: rule.name for rule in retired.RETIRED}
    return gone | {probe.code: probe.name for probe in probe_classes()}


def by_frequency(counted: Counter[str]) -> list[tuple[str, int]]:
    """The most frequent first; of equally frequent ones in the order of their names."""
    return sorted(counted.items(), key=lambda one: (-one[1], one[0]))
