"""GRD001."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.gradients.nonfinite_gradient import NonfiniteGradient

CODE = "GRD001"
RULE = NonfiniteGradient()
FEW = settings(max_examples=draws(150), deadline=None)


def norms(seed=0, *, n=400, bad=(), value=np.inf):
    """An ordinary gradient norm, with that value at some places."""
    found = np.random.default_rng(seed).lognormal(0.0, 0.3, n)
    found[list(bad)] = value
    return found


def evidence_of(make, values, steps=None):
    return make.evidence(None, make.series(values, steps, role="grad_norm"))


def test_a_norm_that_is_taken_every_tenth_step(make, judge):
    values = np.full(400, np.nan)
    values[9::10] = norms(n=40)
    assert judge(CODE, evidence_of(make, values)).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [4, 8, 60, 400])
def test_healthy(n, seed, make, judge):
    result = judge(CODE, evidence_of(make, norms(seed, n=n)))
    assert result.verdict == "pass"
    assert result.message == f"0 of {n} gradient norms are NaN or infinite"


@pytest.mark.parametrize("value", [np.inf, np.nan, -np.inf])
def test_a_scaler_that_skips_single_steps(value, make, judge):
    """Every two thousand steps one overflows, when the scale was doubled."""
    assert judge(CODE, evidence_of(make, norms(n=20_000, bad=range(1999, 20_000, 2000), value=value))).verdict == "pass"
    assert judge(CODE, evidence_of(make, norms(n=400, bad=[150, 300], value=value))).verdict == "pass"
    assert judge(CODE, evidence_of(make, norms(n=10, bad=[4, 8], value=value))).verdict == "pass"


def test_single_ones_in_a_sparse_log(make, judge):
    """Three of sixty points, one each hundred steps, and never two in a row."""
    steps = 100 * np.arange(1, 61)
    assert judge(CODE, evidence_of(make, norms(n=60, bad=[3, 20, 41]), steps)).verdict == "pass"
    many = judge(CODE, evidence_of(make, norms(n=60, bad=range(3, 60, 5)), steps))
    assert (many.verdict, many.message) == ("warn", "12 of 60 gradient norms are NaN or infinite, from step 400 on")


@pytest.mark.parametrize(("first", "verdict"), [(24, "pass"), (25, "fail")])
def test_boundary_of_the_beginning(first, verdict, make, judge):
    assert judge(CODE, evidence_of(make, norms(n=100, bad=range(first)))).verdict == verdict


def test_a_scaler_that_finds_its_level(make, judge):
    """A scale of 65536 that is halved six times in the first steps."""
    assert judge(CODE, evidence_of(make, norms(n=1000, bad=range(6)))).verdict == "pass"


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize(
    ("name", "bad", "first"),
    [
        ("for good", range(300, 400), 300),
        ("for a while", range(100, 110), 100),
        ("again and again", range(7, 400, 5), 7),
        ("at the end", [397, 398, 399], 397),
        ("always", range(400), 0),
    ],
)
def test_sick(name, bad, first, value, make, judge):
    result = judge(CODE, evidence_of(make, norms(bad=bad, value=value), np.arange(400) * 3))
    assert result.verdict == "fail"
    assert f"{len(bad)} of 400 gradient norms" in result.message
    assert f"before step {first * 3}" in result.remedy
    ends = [one for one in bad if one - 1 not in bad or one + 1 not in bad]
    assert result.steps == tuple(one * 3 for one in ends[:100])
    assert result.measured["share"] == len(bad) / 400


@pytest.mark.parametrize(("length", "verdict"), [(RULE.max_run - 1, "pass"), (RULE.max_run, "fail")])
def test_boundary_of_the_run(length, verdict, make, judge):
    result = judge(CODE, evidence_of(make, norms(bad=range(200, 200 + length))))
    assert result.verdict == verdict
    if verdict == "fail":
        assert f"{length} in a row from step 200" in result.message


@pytest.mark.parametrize(("amount", "verdict"), [(27, "pass"), (30, "warn"), (37, "warn"), (39, "fail")])
def test_worked_example(amount, verdict, make, judge):
    """30 of 400 are 7.5 % with an error of 1.3 %: likely above the 5 % of `max_share`, and surely with 39."""
    assert RULE.max_share == 0.05
    assert judge(CODE, evidence_of(make, norms(bad=range(5, 5 + 10 * amount, 10)))).verdict == verdict


@pytest.mark.parametrize(
    ("bad", "verdict"), [([398, 399], "pass"), ([396, 398, 399], "pass"), ([397, 398, 399], "fail")]
)
def test_boundary_of_the_end(bad, verdict, make, judge):
    assert judge(CODE, evidence_of(make, norms(bad=bad))).verdict == verdict


def test_a_run_of_two_where_two_are_asked_for(make, judge):
    assert judge(CODE, evidence_of(make, norms(bad=[200, 201])), max_run=2).verdict == "fail"


SKIPPED = {
    "13 of 40": range(1, 40, 3),
    "9 of 40": range(2, 38, 4),
    "13 in a row": range(12, 25),
    "13 at the end": range(27, 40),
    "all": range(40),
}


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("bad", SKIPPED.values(), ids=SKIPPED)
def test_a_loss_that_falls_took_no_harm(bad, value, make, judge):
    """A scaler skipped the steps, or each norm is a mean over an epoch; a loss that stands still shows the harm."""
    grad_norm = make.series(norms(n=40, bad=bad, value=value), role="grad_norm")
    noise = np.random.default_rng(1).normal(0.0, 0.01, 40)
    falls = np.linspace(2.0, 1.0, 40) + noise
    result = judge(CODE, make.evidence(falls, grad_norm))
    assert result.verdict == ("warn" if np.isnan(value) and bad[-1] < 39 else "pass"), "NaN is more than an overflow"
    assert "the loss continued to fall from step" in result.message
    assert result.onset is None
    broken = np.where(np.arange(40) >= bad[0], np.nan, falls)
    for harmed in (1.5 + noise, falls[::-1], broken):
        assert judge(CODE, make.evidence(harmed, grad_norm)).verdict == ("warn" if len(bad) == 9 else "fail")


@pytest.mark.parametrize("stands", [range(10, 40), range(28, 40)])
def test_a_loss_that_fell_and_then_stands_took_harm(stands, make, judge):
    losses = np.linspace(2.0, 1.0, 40)
    losses[list(stands)] = losses[stands[0]]
    grad_norm = make.series(norms(n=40, bad=[3, *stands]), role="grad_norm")
    assert judge(CODE, make.evidence(losses, grad_norm)).verdict == "fail"


def test_a_resume_that_wrote_over_them(make, judge):
    steps = np.concatenate([np.arange(300), np.arange(240, 400)])
    values = np.concatenate([norms(n=300, bad=range(250, 300)), norms(n=160)])
    assert judge(CODE, evidence_of(make, values, steps)).verdict == "pass"
    assert judge(CODE, evidence_of(make, values[::-1], steps[::-1])).verdict == "fail"


def test_without_a_gradient_norm_it_is_skipped(make, judge):
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [np.nan] * (RULE.min_points - 1))).verdict == "SkippedProbe"


@FEW
@given(
    flags=st.lists(st.booleans(), min_size=4, max_size=60),
    shares=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
    runs=st.tuples(st.integers(2, 20), st.integers(2, 20)),
)
def test_higher_thresholds_never_find_more(flags, shares, runs, make, judge):
    evidence = evidence_of(make, [math.inf if flag else 1.0 for flag in flags])
    lower, higher = ({"max_share": f(shares), "max_run": f(runs)} for f in (min, max))
    if judge(CODE, evidence, **lower).verdict == "pass":
        assert judge(CODE, evidence, **higher).verdict == "pass"
