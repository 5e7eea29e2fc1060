"""What is found in hundreds of small runs is what was found before: whoever changes it writes the record again.

python -m tests.outcomes
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from .outcomes import outcomes, recorded

OUTCOMES, RECORDED = outcomes(), recorded()


def test_each_run_is_on_record():
    assert list(RECORDED) == list(OUTCOMES)


@pytest.mark.parametrize("run", OUTCOMES)
def test_what_is_found_is_what_was_found_before(run):
    found = OUTCOMES[run]()
    assert set(found) == set(RECORDED[run])
    changed = {key: (RECORDED[run][key], what) for key, what in found.items() if not same(what, RECORDED[run][key])}
    assert changed == {}


def same(one: Any, other: Any) -> bool:
    """Equal, numbers up to what the sum of many depends on its order."""
    match one, other:
        case [*ones], [*others]:
            return len(ones) == len(others) and all(map(same, ones, others))
        case dict(), dict():
            return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
        case (float(), float() | int()) | (int(), float()):
            return math.isclose(one, other, rel_tol=1e-6) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
