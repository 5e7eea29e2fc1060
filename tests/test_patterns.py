"""No line and no name makes a pattern, or what reads lines and names, work longer than its length asks for."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pytest

from tracker_health.readers.log_formats import log_of
from tracker_health.roles import RolePlan
from tracker_health.run_files.naming import age, checkpoints_of, series_of
from tracker_health.run_files.reading import is_relevant, is_settings
from tracker_health.run_files.text_logs import may_be_text_log
from tracker_health.words.gap_names import layer_of
from tracker_health.words.layers import place_of

from .patterns import ENDS, all_patterns, lines_of, parts_of, unknown_calls

MORE = 16
MOST = 24.0
"""So many times the input may take so many times the time."""
ATTEMPTS = 3
# Made of what is known only when they are used, and looked at by a person: literal texts, escaped names, tables of
# patterns that the walk finds.
LOOKED_AT = {
    "hooks/memory.py": 1,
    "rules/probe.py": 1,
    "readers/log_formats/text_forms.py": 1,
    "readers/log_formats/text_patterns.py": 1,
    "readers/log_formats/text_troubles.py": 2,
    "readers/optimizers/module_order.py": 1,
    "judge/run_rule.py": 1,  # the name of a series, escaped
    "stores/mlflow/failures.py": 2,
    "stores/remote/reasons.py": 1,
    "text.py": 1,
}


def best_of(times: int, work: Callable[[], object]) -> float:
    """Seconds of this thread's processor time: others on the machine do not count."""
    taken = []
    for _ in range(times):
        start = time.thread_time()
        work()
        taken.append(time.thread_time() - start)
    return min(taken)


def is_quick(work: Callable[[str], object], short: str, long: str, quick: float) -> bool:
    """Whether the long text takes in proportion to the short one; what is done in an instant is not measured twice.

    A noisy machine makes single times longer, and never a work that grows with the square look as if it did not.
    """
    taken = best_of(1, partial(work, long))
    if taken < quick or taken <= MOST * best_of(5, partial(work, short)):
        return True
    return any(best_of(5, partial(work, long)) <= MOST * best_of(5, partial(work, short)) for _ in range(ATTEMPTS))


def slow_ones(
    work: Callable[[str], object],
    parts: Iterable[tuple[str, str]],
    length: int,
    quick: float,
    ends: Iterable[str] = ENDS,
) -> Iterator[str]:
    """The beginnings of the texts for which a work takes too long."""
    parts = set(parts)
    for short, long in zip(lines_of(parts, length // MORE, ends), lines_of(parts, length, ends), strict=True):
        if not is_quick(work, short, long, quick):
            yield long[:60]


@pytest.mark.exhaustive
def test_no_pattern_is_quadratic():
    found = {}
    for used in all_patterns():
        if slow := next(slow_ones(used.run, parts_of(used.pattern), 2**13, 0.002), None):
            found[used.where] = used.pattern.pattern, slow
    assert found == {}


def parts_in(place: str) -> set[tuple[str, str]]:
    """The parts of the patterns of some modules."""
    return {part for used in all_patterns() if used.where.startswith(place) for part in parts_of(used.pattern)}


def once_each(parts: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Each part by itself, and behind the longest of what may stand before it: what reads a line tries all patterns
    that there are, each of which has been looked at behind everything.
    """
    longest = {part: before for before, part in sorted(parts, key=lambda one: (len(one[0]), one))}
    return {("", part) for part in longest} | {(before, part) for part, before in longest.items()}


@pytest.mark.exhaustive
def test_no_line_of_a_log_is_read_in_quadratic_time():
    def read(line: str) -> None:
        log_of(line.encode() + b"\n", RolePlan())

    parts = once_each(parts_in("tracker_health.readers.log_formats"))
    assert parts
    assert list(slow_ones(read, parts, 2**12, 0.004, ENDS[:-1])) == []  # it ends with a line's end anyway


# What looks at names, and what a name of 4096 characters takes at most: those that go word by word take longer.
OF_NAMES = {
    **dict.fromkeys((is_relevant, is_settings, may_be_text_log, series_of, layer_of, place_of), 0.002),
    **dict.fromkeys((checkpoints_of, age), 0.03),
}
PLACES = ("run_files", "readers.checkpoint_formats", "words.gap_names", "words.layers")


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", list(OF_NAMES), ids=lambda one: one.__name__)
def test_no_name_takes_quadratic_time(work):
    parts = [parts_in(f"tracker_health.{place}") for place in PLACES]
    assert all(parts), "no patterns at one of these places"
    assert list(slow_ones(work, set().union(*parts), 2**12, OF_NAMES[work])) == []


@pytest.mark.slow
def test_every_pattern_is_looked_at():
    places = [place.partition(":")[0] for place in unknown_calls()]
    assert {place: places.count(place) for place in places} == LOOKED_AT


@pytest.mark.slow
def test_the_walk_finds_patterns_wherever_they_are():
    where = {used.where for used in all_patterns()}
    assert {
        "tracker_health.readers.log_formats.text_pairs._PAIR",
        "tracker_health.readers.log_formats.text_troubles._CAUSE",  # in a dictionary
        "tracker_health.readers.log_formats._NAMES",  # in tuples
        "tracker_health.readers.log_formats.text_pairs.FORMS",  # in properties of objects
    } <= where
    assert any(":" in one for one in where)  # written out in a call


@pytest.mark.parametrize("pattern", [r"[ ]+x", r"(\d+)/\d+", r"(?:\.(?:pt|zip))+$"])
@pytest.mark.slow
def test_the_guard_sees_what_is_quadratic(pattern):
    compiled = re.compile(pattern)

    def work(line: str) -> None:
        for _ in compiled.finditer(line):
            pass

    assert next(slow_ones(work, parts_of(compiled), 2**12, 0.002), None)


@pytest.mark.slow
def test_lines_that_are_all_of_another_shape_are_read_in_linear_time():
    """A few names in any order, as no trainer prints them: no line is like the one before."""

    def seconds(lines: int) -> float:
        chance = random.Random(0)
        names = [f"name{number}" for number in range(40)]
        text = "".join(
            f"step {step} loss=0.5 {'=1 '.join(chance.sample(names, chance.randint(10, 30)))}=1\n"
            for step in range(lines)
        )
        begin = time.process_time()
        log_of(text.encode(), RolePlan())
        return time.process_time() - begin

    assert min(seconds(1600) for _ in range(3)) <= 12 * min(seconds(200) for _ in range(3))
