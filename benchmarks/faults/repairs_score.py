"""How often advice repairs a run, and how right ``repaired`` is: counted on what was trained again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from repairs import PLACEBOS, REPAIRS, lines_of
from score import wilson

from tracker_health.api import repaired
from tracker_health.words.repairs import Answer

_NORMAL_90 = 1.645  # standard deviations on both sides of 90 %
_FEWEST = 5
"""Of fewer runs with a cause its advice is not called bad."""

_HALF = 0.5


class Pair(NamedTuple):
    """A faulty run, the run after it, what is true of both, and the answer. ``placebo``: nothing was changed."""

    line: Mapping[str, Any]
    placebo: bool
    answer: Answer
    because: str

    @property
    def is_repair(self) -> bool:
        return bool(self.line["was_faulty"]) and not self.line["still_faulty"]

    @property
    def is_still_faulty(self) -> bool:
        return bool(self.line["was_faulty"] and self.line["still_faulty"])

    @property
    def is_no_better(self) -> bool:
        """Whether it is still faulty, and less than half of what it was worse by is made good."""
        return self.is_still_faulty and self.line["closed"] < _HALF


def answered(out: Path, workers: int) -> list[Pair]:
    """The answers to all pairs so far."""
    lines = [(line, place == PLACEBOS) for place in (REPAIRS, PLACEBOS) for line in lines_of(out / place)]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(partial(_answered, out / "runs"), lines, chunksize=4))


def _answered(runs: Path, given: tuple[Mapping[str, Any], bool]) -> Pair:
    line, placebo = given
    found = repaired(str(runs / line["old"]), str(runs / line["new"]))
    return Pair(line, placebo, found.answer, found.because)


def by_cause(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    """Pairs of runs that were faulty and were given advice, by its cause, the most frequent first."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.line["was_faulty"] and not pair.placebo:
            groups[pair.line["cause"]].append(pair)
    return dict(sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])))


def share(group: Iterable[Pair]) -> tuple[int, int, float, float]:
    """Runs that the advice repaired, runs, and the 90 % interval of the share. A run counts once: by another seed."""
    once = [pair for pair in group if pair.line["seed"] == "other"]
    hits = sum(pair.is_repair for pair in once)
    return hits, len(once), *wilson(hits, len(once), _NORMAL_90)


def table(pairs: Iterable[Pair]) -> Iterator[str]:
    """A row for each cause, in Markdown: what the advice did, and what was said of it."""
    names = " | ".join(f"said: {answer}" for answer in Answer)
    yield f"| cause | runs | something to change | repaired [90 % interval] | half repaired | pairs | {names} |"
    yield "|---" * (6 + len(Answer)) + "|"
    groups = by_cause(pairs)
    every = [pair for group in groups.values() for pair in group]
    for kind in ("setting", "setting and words", "words"):
        groups[f"*all by {kind}*"] = [pair for pair in every if pair.line["kind"] == kind]
    for cause, group in (groups | {"**all**": every}).items():
        hits, runs, low, high = share(group)
        followed = sum(pair.line["applied"] and pair.line["seed"] == "other" for pair in group)
        half = sum(pair.is_still_faulty and not pair.is_no_better and pair.line["seed"] == "other" for pair in group)
        said = Counter(pair.answer for pair in group)
        cells = " | ".join(str(said[answer]) for answer in Answer)
        of = f"{hits / runs:.0%} [{low:.0%}, {high:.0%}]" if runs else "-"
        yield f"| {cause} | {runs} | {followed} | {of} | {half} | {len(group)} | {cells} |"


def errors(pairs: Iterable[Pair]) -> Iterator[str]:
    """How often a still faulty run is called repaired, and a true repair is not."""
    for name, some in (("with advice", False), ("trained again as they were", True)):
        group = [pair for pair in pairs if pair.placebo is some]
        still = [pair for pair in group if pair.is_still_faulty]
        no_better = [pair for pair in still if pair.is_no_better]
        yield f"still faulty, {name}: {_rate(still, said=True)} called repaired"
        yield f"of them those that are not half as good again: {_rate(no_better, said=True)} called repaired"
    right = [pair for pair in pairs if pair.is_repair]
    yield f"repaired: {_rate(right, said=False)} not called so"


def _rate(group: list[Pair], *, said: bool) -> str:
    hits = sum(pair.answer.helped is said for pair in group)
    low, high = wilson(hits, len(group))
    return f"{hits} of {len(group)}" + (f" ({hits / len(group):.1%} [{low:.1%}, {high:.1%}])" if group else "")


def disagreements(pairs: Iterable[Pair]) -> Iterator[str]:
    """Every pair whose answer is wrong, with its reason."""
    for pair in pairs:
        wrong = pair.answer.helped if pair.is_still_faulty else pair.is_repair and not pair.answer.helped
        if wrong:
            line = pair.line
            what = "PLACEBO" if pair.placebo else line["seed"]
            runs = f"{line['fault']} {line['old']} {line['new']} {what}"
            yield f"{pair.answer}, closed {line['closed']}: {runs} {line['cause']}: {pair.because}"


def weak(pairs: Iterable[Pair]) -> Iterator[str]:
    """Causes whose advice is known to repair fewer than half of the runs, with what it said."""
    for cause, group in by_cause(pairs).items():
        hits, runs, _, high = share(group)
        if runs >= _FEWEST and high < _HALF:
            said = Counter(pair.line["action"] for pair in group).most_common(1)[0][0]
            yield f"{cause}: {hits} of {runs}, at most {high:.0%}: {said}"
