"""OPT008."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tracker_health.evidence import Attribution

CODE = "OPT008"


def evidence_of(make, sizes, *, attribution=Attribution.NAMED, role="q.weight"):
    """Second moments of these sizes, a layer each."""
    tensors = [make.tensor(key, size, name=f"model.layers.{key}.{role}") for key, size in enumerate(sizes)]
    return make.evidence(optimizer=make.state(*tensors, attribution=attribution))


@given(exponents=st.lists(st.floats(-12, 2), min_size=5, max_size=12), limit=st.floats(1, 20))
def test_against_plain_python(exponents, limit, make, judge, plain):
    centre = plain.median(exponents)
    spread = max(1.4826 * plain.median([abs(one - centre) for one in exponents]), 0.3)
    scores = [abs(one - centre) / spread for one in exponents]
    assume(all(abs(score - limit) > 1e-6 for score in scores))
    result = judge(CODE, evidence_of(make, [math.exp(one) for one in exponents]), max_score=limit)
    assert result.verdict == ("warn" if max(scores) > limit else "pass")
    assert result.measured["largest_score"] == pytest.approx(max(scores), abs=1e-6)
    assert result.measured["outliers"] == sum(score > limit for score in scores)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_one_layer_is_another(factor, make, judge):
    sizes = list(np.random.default_rng(0).lognormal(-14, 0.3, 12))
    assert judge(CODE, evidence_of(make, sizes)).verdict == "pass"
    sizes[7] *= factor
    result = judge(CODE, evidence_of(make, sizes))
    assert result.verdict == "warn"
    assert result.details["outliers"] == ["model.layers.7.q.weight"]
    assert ("larger" if factor > 1 else "smaller") in result.message


def test_near_misses(make, judge):
    # A trend along the depth, and one factor of three among layers that are alike.
    assert judge(CODE, evidence_of(make, [10.0 ** -(layer / 2) for layer in range(12)])).verdict == "pass"
    assert judge(CODE, evidence_of(make, [1e-6] * 11 + [3e-6])).verdict == "pass"


@pytest.mark.parametrize("attribution", [Attribution.ASSUMED_ORDER, Attribution.UNATTRIBUTED])
def test_never_on_an_assumed_order(attribution, make, judge):
    evidence = evidence_of(make, [1e-6] * 11 + [1.0], attribution=attribution)
    assert judge(CODE, evidence).verdict == "SkippedProbe"
    checked = evidence_of(make, [1e-6] * 11 + [1.0], attribution=Attribution.CONTENT_CHECKED)
    assert judge(CODE, checked).verdict == "warn"


def test_few_layers_and_zeros(make, judge):
    assert judge(CODE, evidence_of(make, [1e-6] * 3 + [1.0])).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [1e-6, 0.0, math.inf] * 3)).verdict == "SkippedProbe"
