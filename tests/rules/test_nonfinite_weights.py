"""WGT001."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import MomentStats, TensorHeader, Weights

CODE = "WGT001"
NAN, INF = math.nan, math.inf


def stats_of(values):
    """Statistics as a reader accumulates them: a NaN in the mean for a NaN in the values, an infinity for one."""
    count, total = len(values), sum(values)
    return MomentStats(
        count=count,
        mean=total / count,
        rms=math.sqrt(sum(value * value for value in values) / count),
        minimum=min(values),
        maximum=max(values),
        zeros=values.count(0.0),
        nonfinite=sum(not math.isfinite(value) for value in values),
    )


def weights_of(tensors, *, every=True, dtype="F32"):
    """Tensors by name, from lists of values; with the statistics of all of them, or only their size."""
    headers = []
    for name, values in tensors.items():
        stats = stats_of(values)
        headers.append(
            TensorHeader(name=name, shape=(len(values),), dtype=dtype, rms=stats.rms, stats=stats if every else None)
        )
    return Weights(source="model.safetensors", tensors=tuple(headers))


NAMES = ["layers.0.weight", "layers.1.bias", "bn.running_mean", "attn_mask", "pe", "teacher.weight"]


@given(
    tensors=st.dictionaries(
        st.sampled_from(NAMES),
        st.lists(st.sampled_from([0.0, 1.0, -2.5, NAN, INF, -INF]), min_size=1, max_size=5),
        min_size=1,
    ),
    every=st.booleans(),
)
def test_against_plain_python(tensors, every, make, judge):
    result = judge(CODE, make.evidence(weights=weights_of(tensors, every=every)))
    bad = []
    for name, values in tensors.items():
        # Infinities of both signs add up to NaN: no mask has both.
        nan = any(math.isnan(value) for value in values) or (every and {INF, -INF} <= set(values))
        infinite = any(math.isinf(value) for value in values)
        if nan or (infinite and name.startswith("layers")):
            bad.append(name)
    assert result.verdict == ("fail" if bad else "pass")
    assert result.measured["nonfinite_tensors"] == len(bad)
    if bad:
        assert result.details["tensors"] == bad
        assert bad[0] in result.message


def test_healthy(make, judge):
    result = judge(CODE, make.evidence(weights=weights_of({"a.weight": [1.0, -3e38], "b.bias": [0.0]})))
    assert (result.verdict, result.message) == ("pass", "all values of 2 tensors are finite")


@pytest.mark.parametrize("name", ["attn_mask", "layers.0.attn.causal_mask", "mask"])
def test_a_mask_is_made_of_infinities(name, make, judge):
    sound = {"layers.0.weight": [1.0], name: [0.0, -INF]}
    assert judge(CODE, make.evidence(weights=weights_of(sound))).verdict == "pass"


def test_statistics_of_normalisation(make, judge):
    broken = {"layers.0.weight": [1.0], "bn.running_var": [1.0, NAN]}
    assert judge(CODE, make.evidence(weights=weights_of(broken))).verdict == "fail"


def test_a_size_that_overflows_is_no_infinity(make, judge):
    """Squares of 1e200 do: only where all values were read it is known."""
    huge = TensorHeader(name="a.weight", shape=(2,), dtype="F64", rms=INF)
    assert judge(CODE, make.evidence(weights=Weights(source="w", tensors=(huge,)))).verdict == "pass"
    single = TensorHeader(name="a.weight", shape=(2,), dtype="F32", rms=INF)
    assert judge(CODE, make.evidence(weights=Weights(source="w", tensors=(single,)))).verdict == "fail"


def test_nothing_to_read(make, judge):
    assert judge(CODE, make.evidence(weights=make.weights({"a": (2, 2)}))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 20)).verdict == "SkippedProbe"
