"""The worked example in a rule's docstring has the verdict that it claims."""

import numpy as np
import pytest

from tracker_health.rules.probe import explanation_of
from tracker_health.rules.registry import BUILT_IN

WITH_ONE = [rule for rule in BUILT_IN if explanation_of(rule).example is not None]


@pytest.mark.parametrize("rule", WITH_ONE, ids=lambda rule: rule.code)
def test_the_worked_example(rule, make, judge):
    example = explanation_of(rule).example
    last = max(map(len, example.series.values())) - 1
    series = []
    for key, values in example.series.items():
        role, _, name = key.partition(" ")
        steps = np.linspace(last / len(values) * (len(values) < last), last, len(values))
        series.append(make.series(values, steps, role=role, name=name or role))
    result = judge(rule.code, make.evidence(None, *series, params=example.params))
    assert result.verdict == example.verdict, result.message
