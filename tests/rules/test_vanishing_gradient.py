"""GRD003."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Attribution
from tracker_health.evidence.parameters.gradient_by_depth import _slope
from tracker_health.rules.gradients.vanishing_gradient import VanishingGradient

CODE = "GRD003"


def norms(n=200, *, late=1.0, at=0.4, seed=0):
    """An ordinary gradient norm, from a place on times that factor."""
    values = np.random.default_rng(seed).lognormal(0.0, 0.3, n)
    values[int(at * n) :] *= late
    return values


def flat(n=200, share=0.0, seed=1):
    """A loss that comes down by that share."""
    losses = 2.0 * (1 - share * (1 - np.exp(-10 * np.arange(n) / n)))
    return losses + 0.005 * np.random.default_rng(seed).standard_normal(n)


def evidence_of(make, values, losses, **more):
    return make.evidence(losses, make.series(values, role="grad_norm"), **more)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 0.95])
def test_healthy(share, seed, make, judge):
    assert judge(CODE, evidence_of(make, norms(seed=seed), flat(share=share))).verdict == "pass"


@pytest.mark.parametrize(
    ("late", "share", "verdict"),
    [
        (0.0, 0.0, "warn"), (0.0, 0.3, "warn"), (0.0, 0.6, "pass"),
        (1e-8, 0.0, "warn"), (1e-8, 0.02, "warn"), (1e-8, 0.1, "pass"), (1e-8, 0.95, "pass"),
        (1e-4, 0.0, "pass"),
    ],
)  # fmt: skip
def test_a_norm_that_collapses(late, share, verdict, make, judge):
    """Of small norms alone, a loss that has come down may have converged; of zeros it has not."""
    result = judge(CODE, evidence_of(make, norms(late=late), flat(share=share)))
    assert result.verdict == verdict
    if verdict == "warn":
        assert "exactly 0 at 100 %" in result.message if late == 0 else "fell from" in result.message


def test_zero_from_the_first_step_on(make, judge):
    """Inputs that are all the same, or a loss that depends on nothing."""
    result = judge(CODE, evidence_of(make, np.zeros(300), np.full(300, 0.7)))
    assert result.verdict == "warn"
    assert result.steps == (150, 299)


def test_norms_logged_with_too_few_decimals(make, judge):
    assert judge(CODE, evidence_of(make, np.zeros(200), flat(share=0.9))).verdict == "pass"


def test_worked_example(make, judge):
    """A norm of 1 that is 1e-7 from step 80 on, less than `collapse`, beside a loss that stays at 2."""
    values = np.where(np.arange(200) < 80, 1.0, 1e-7)
    result = judge(CODE, evidence_of(make, values, flat()))
    assert (result.verdict, result.steps) == ("warn", (100, 199))
    assert "the gradient norm fell from 1 to 1e-07, and the loss came down by under 0.1 %" in result.message


def deep(make, sizes, losses=None, *, attribution=Attribution.NAMED, roles=("up.weight", "down.weight"), **more):
    """Second moments, the squares of these sizes of the gradient, layer by layer, of every role."""
    tensors = [
        make.tensor(f"{layer}{role}", size**2, name=f"net.layers.{layer}.{role}")
        for layer, size in enumerate(sizes)
        for role in roles
    ]
    return make.evidence(losses, optimizer=make.state(*tensors, attribution=attribution), **more)


FADING = [10.0 ** (layer - 12) for layer in range(9)]


def test_gradients_that_fade_along_the_depth(make, judge):
    result = judge(CODE, deep(make, FADING))
    assert result.verdict == "warn"
    assert result.measured["largest_ratio"] == pytest.approx(1e8, rel=1e-6)
    assert "towards the first layer" in result.message
    assert judge(CODE, deep(make, FADING, flat(share=0.9))).verdict == "pass"
    assert judge(CODE, deep(make, FADING, flat(share=0.1))).verdict == "warn"


@pytest.mark.parametrize("attribution", [Attribution.ASSUMED_ORDER, Attribution.UNATTRIBUTED])
def test_without_certain_names_in_the_optimizers_order_beside_a_loss(attribution, make, judge):
    """Of one shape, whatever they are called: the order of an optimizer is that of the model."""
    assert judge(CODE, deep(make, FADING, attribution=attribution)).verdict == "SkippedProbe"
    found = judge(CODE, deep(make, FADING, flat(share=0.1), attribution=attribution))
    assert found.verdict == "warn"
    assert "in the matrices of 4x4" in found.message
    assert judge(CODE, deep(make, FADING, flat(share=0.9), attribution=attribution)).verdict == "pass"
    assert judge(CODE, deep(make, FADING[::-1], flat(share=0.1), attribution=attribution)).verdict == "pass"
    few = deep(make, FADING[:2], flat(share=0.1), attribution=attribution)
    assert judge(CODE, few).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    "sizes",
    [
        FADING[::-1],
        [1e-3] * 9,
        [1.5 ** (layer - 12) for layer in range(9)],
        [1e-9, *[1e-3] * 8],
        [1e-6, 1e-3, 1e-6, 1e-3, 1e-6, 1e-3, 1e-6, 1e-3, 1e-6],
        FADING[:4],
    ],
    ids=["towards the last", "even", "gently", "one layer", "up and down", "few layers"],
)
def test_near_misses_along_the_depth(sizes, make, judge):
    assert judge(CODE, deep(make, sizes)).verdict in ("pass", "SkippedProbe")


def test_one_role_of_three_is_not_the_model(make, judge):
    plain = deep(make, [1e-3] * 9, roles=("a.weight", "b.weight")).optimizer.tensors
    fading = deep(make, FADING, roles=("c.weight",)).optimizer.tensors
    state = make.state(*plain, *fading, attribution=Attribution.NAMED)
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "pass"


@given(values=st.lists(st.floats(-5, 5), min_size=2, max_size=12))
def test_the_slope_against_all_pairs(values, plain):
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in itertools.combinations(enumerate(values), 2)]
    assert _slope(np.arange(len(values)), np.array(values)) == pytest.approx(plain.median(slopes), abs=1e-9)


def test_too_little(make, judge):
    assert judge(CODE, evidence_of(make, np.zeros(19), flat(19))).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, np.zeros(50), None)).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, np.full(50, math.nan), flat(50))).verdict == "SkippedProbe"


@pytest.mark.parametrize(("zeros", "verdict"), [(100, "warn"), (91, "warn"), (89, "pass"), (0, "pass")])
def test_exact_zeros_beside_a_loss_that_need_not_come_down(zeros, verdict, make, judge):
    """A policy that has come down to one action."""
    values = norms()
    values[100 : 100 + zeros] = 0.0
    objective = make.series(np.full(200, -0.01), role="objective_loss")
    result = judge(CODE, make.evidence(None, objective, make.series(values, role="grad_norm")))
    assert result.verdict == verdict
    assert verdict != "warn" or f"exactly 0 at {zeros} %" in result.message


def test_zeros_beside_an_objective_whose_reward_rose(make, judge):
    objective = make.series(np.full(200, -0.01), role="objective_loss")
    solved = make.series(np.linspace(0.1, 1.0, 200), role="train_reward")
    for values in (np.zeros(200), [*norms(100), *np.zeros(100)]):
        norm = make.series(values, role="grad_norm")
        assert judge(CODE, make.evidence(None, objective, norm)).verdict == "warn"
        assert judge(CODE, make.evidence(None, objective, norm, solved)).verdict == "pass"


def test_rewards_are_read_for_it_where_no_other_rule_asks():
    roles = {role for need in VanishingGradient().needs for role in need.roles}
    assert roles >= {"objective_loss", "train_reward", "val_reward"}
