"""What is found in some 190 small runs is what was found before: whoever changes it writes the record again.

python -m tests.outcomes
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from .outcomes import outcome, recorded, runs

RUNS, RECORDED = runs(), recorded()


def test_each_run_is_on_record():
    assert list(RECORDED) == list(RUNS)


@pytest.mark.parametrize("run", RUNS)
def test_what_is_found_is_what_was_found_before(run):
    found = outcome(RUNS[run])
    assert set(found) == set(RECORDED[run])
    changed = {code: (RECORDED[run][code], what) for code, what in found.items() if not same(what, RECORDED[run][code])}
    assert changed == {}


def same(one: Any, other: Any) -> bool:
    """Equal, numbers up to what the sum of many depends on its order."""
    match one, other:
        case [*ones], [*others]:
            return len(ones) == len(others) and all(map(same, ones, others))
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case (float(), float() | int()) | (int(), float()):
            return math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)
