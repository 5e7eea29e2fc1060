"""The health of many runs as one self-contained page: verdicts and causes by week, user and experiment, the worst runs,
and how often people agreed. It is made of counts alone, so that its size does not grow with the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tracker_health._version import __version__
from tracker_health.render.page import render
from tracker_health.render.stacks import Column, columns, row_bar
from tracker_health.runs.overview import CERTAINTY_WORDS, WORDS, Answers, Overview, by_frequency, rule_names
from tracker_health.stores.base import TaggedRun
from tracker_health.text import printable, split_sentence

GROUPED_BY = ("week", "user", "experiment")
"""What the page groups runs by."""

MOST_WORST = 30
_MOST_WEEKS, _MOST_CAUSE_WEEKS = 26, 12
_MOST_ROWS, _MOST_CAUSES, _CAUSES_IN_A_ROW = 15, 12, 3
_MOST_ANSWERED, _MOST_RELATIONS = 40, 30
_HOTTEST = 5
_NAME_CHARACTERS = 60


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """A group of runs. ``bar``: SVG; ``causes``: the most frequent ones, with their number."""

    name: str
    counts: Mapping[str, int]
    bar: str
    causes: tuple[tuple[str, int], ...]

    @property
    def runs(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True)
class Group:
    """The runs by one thing: ``heading``, ``rows`` with the most first, and how many groups are ``left_out``."""

    heading: str
    rows: tuple[RunGroup, ...]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class CauseRow:
    """A cause by week: how many runs, and how hot each cell is, 0 to 5; ``total``: over all weeks, and ``certain`` in
    how many of these.
    """

    cause: str
    cells: tuple[tuple[int, int], ...]
    total: int
    certain: int


@dataclass(frozen=True, kw_only=True)
class Worst:
    """A run of the list of the worst. ``certainty``: of its cause; ``answered``: what people said of it; ``repaired``:
    what it says of repairs.
    """

    run: TaggedRun
    certainty: str
    answered: str
    link: str
    why: tuple[str, str]
    repaired: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AnswerCounts:
    """What people said of a rule or a cause."""

    name: str
    answers: Answers


def overview_page(found: Overview, *, title: str, now: float) -> bytes:
    """The page.

    Args:
        found: Counts of the runs, grouped by all of ``GROUPED_BY``.
        title: What the runs are of.
        now: In seconds since 1970; weeks that begin later are not drawn.

    Returns:
        HTML that asks nothing of a network, with all texts of the runs escaped.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    words = [word for word in WORDS if found.verdicts[word]]
    weeks = _weeks(found.groups["week"], now)
    drawn = sum(found.groups["week"].get(week, Counter()).total() for week in weeks)
    return render(
        "summary.html",
        scripts=(),
        data={},
        title=title,
        found=found,
        words=words,
        certainty_words=CERTAINTY_WORDS,
        weeks=columns(_columns(weeks, found.groups["week"]), words, title="Verdicts by week") if weeks else "",
        first_week=weeks[0] if weeks else "",
        undrawn=found.runs - drawn,
        groups=[group for what in ("user", "experiment") if (group := _group(found, what)).rows],
        relations=[(what, groups[:_MOST_RELATIONS]) for what, groups in found.relations.items() if groups],
        cause_weeks=weeks[-_MOST_CAUSE_WEEKS:],
        causes=list(_causes(found, weeks[-_MOST_CAUSE_WEEKS:])),
        more_causes=max(0, len(found.causes) - _MOST_CAUSES),
        worst=[_worst(run, found) for run in found.worst],
        has_repairs=any(map(found.repairs.of, found.worst)),
        answered=_answered(found),
        written=datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
    )


# Weeks


def _weeks(groups: Mapping[str, object], now: float) -> list[str]:
    """The weeks to draw, the oldest first: the last ones up to now, those without runs among them."""
    this = _name_of(datetime.fromtimestamp(now, UTC).date())
    there = sorted(week for week in groups if week and week <= this)
    if not there:
        return []
    monday = _monday(there[-1])
    last = [_name_of(monday - timedelta(weeks=back)) for back in range(_MOST_WEEKS)]
    return [week for week in reversed(last) if week >= there[0]]


def _monday(week: str) -> date:
    year, number = week.split("-W")
    return date.fromisocalendar(int(year), int(number), 1)


def _name_of(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


def _columns(weeks: Sequence[str], groups: Mapping[str, Mapping[str, int]]) -> list[Column]:
    shown, year = [], ""
    for week in weeks:
        own, _, number = week.partition("-")
        name = f"{week}, from {_monday(week):%d %b %Y}"
        shown.append(Column(label=number, below=own if own != year else "", name=name, counts=groups.get(week, {})))
        year = own
    return shown


# Tables


def _group(found: Overview, what: str) -> Group:
    """The runs by one thing; no rows where that is the same for all of them."""
    groups = found.groups[what]
    if len(groups) < 2:
        return Group(heading=what, rows=(), left_out=0)
    names = sorted(groups, key=lambda name: (-groups[name].total(), name))
    most = groups[names[0]].total()
    rows = []
    for name in names[:_MOST_ROWS]:
        causes = by_frequency(found.group_causes[what].get(name, Counter()))[:_CAUSES_IN_A_ROW]
        shown = printable(name, _NAME_CHARACTERS) or "(unknown)"
        bar = row_bar(groups[name], WORDS, most)
        rows.append(RunGroup(name=shown, counts=groups[name], bar=bar, causes=tuple(causes)))
    return Group(heading=what, rows=tuple(rows), left_out=max(0, len(names) - _MOST_ROWS))


def _causes(found: Overview, weeks: Sequence[str]) -> Iterator[CauseRow]:
    by_week = found.group_causes["week"]
    numbers = [[by_week.get(week, Counter())[cause] for week in weeks] for cause, _ in by_frequency(found.causes)]
    most = max((number for row in numbers for number in row), default=0)
    for (cause, total), row in list(zip(by_frequency(found.causes), numbers, strict=True))[:_MOST_CAUSES]:
        cells = tuple((number, -(-_HOTTEST * number // max(1, most))) for number in row)
        yield CauseRow(cause=cause, cells=cells, total=total, certain=found.certain[cause])


def _worst(run: TaggedRun, found: Overview) -> Worst:
    url = run.ref.url or ""
    link = url if url.startswith(("http://", "https://")) else ""
    certainty = run.certainty if run.cause and run.certainty in CERTAINTY_WORDS else ""
    return Worst(
        run=run,
        certainty=certainty,
        answered=found.answered(run),
        link=link,
        why=split_sentence(run.summary),
        repaired=tuple(found.repairs.of(run)),
    )


def _answered(found: Overview) -> list[AnswerCounts]:
    """Rules and causes that people have answered, those most often answered first."""
    names = rule_names()
    rows = [
        AnswerCounts(name=f"{code} {names.get(code, '')}".strip(), answers=one) for code, one in found.rules.items()
    ]
    rows += [AnswerCounts(name=cause, answers=one) for cause, one in found.by_cause.items()]
    said = [row for row in rows if row.answers.precision is not None]
    return sorted(said, key=lambda row: (-row.answers.acknowledged - row.answers.wrong, row.name))[:_MOST_ANSWERED]
