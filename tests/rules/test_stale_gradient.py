"""OPT005."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.rules.optimizer.stale_gradient import StaleGradient

CODE = "OPT005"
RULE = StaleGradient()
FEW = settings(max_examples=draws(80), deadline=None)


def adam(gradients, betas=(0.9, 0.999)):
    """The mean of the squared first over the second moment after these gradients (steps, values), as it is stored."""
    first, second = np.zeros(gradients.shape[1]), np.zeros(gradients.shape[1])
    for gradient in gradients:
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
    return float(np.mean(first**2 / second))


def state_of(make, *ratios, step=1000.0, groups=({"betas": (0.9, 0.999)},), shape=(4, 4), group=0):
    tensors = [
        make.tensor(key, shape=shape, step=step, moment_ratio=ratio, group=group) for key, ratio in enumerate(ratios)
    ]
    return make.state(*tensors, groups=groups, global_step=1000)


def logs(make, losses, norms):
    return make.evidence(losses, make.series(norms, role="grad_norm"))


def noisy(seed=0, *, n=200, spread=0.2):
    return np.random.default_rng(seed).lognormal(0.0, spread, n)


def smooth(n=200):
    return 1.0 + 0.5 * np.sin(np.arange(n) / 30)


def roughness(values):
    known = [math.log(value) for value in values if math.isfinite(value) and value > 0]
    slopes = [b - a for a, b in itertools.pairwise(known)]
    bends = sorted(abs(b - a) for a, b in itertools.pairwise(slopes))
    half = len(bends) // 2
    return bends[half] if len(bends) % 2 else (bends[half - 1] + bends[half]) / 2


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.8, 0.95), (0.7, 0.999)])
@pytest.mark.parametrize("steps", [50, 300])
def test_gradients_of_noise(steps, betas, seed, make, judge):
    """The ratio is (1 - b1) / (1 + b1), whatever the number of steps, after the correction of the bias."""
    gradients = np.random.default_rng(seed).standard_normal((steps, 4000))
    state = state_of(make, adam(gradients, betas), step=float(steps), groups=({"betas": betas},))
    result = judge(CODE, make.evidence(optimizer=state))
    assert result.verdict == "pass"
    assert result.measured["signal_to_noise"] == pytest.approx((1 - betas[0]) / (1 + betas[0]), rel=0.15)


def test_adam_of_sparse_gradients_counts_steps_that_a_row_had_not(make, judge):
    """torch's SparseAdam, told by what its groups hold; and a discriminator's short memory."""
    for group in ({"betas": (0.9, 0.999), "maximize": False}, {"betas": (0.5, 0.9)}):
        state = state_of(make, 5.0, step=400.0, groups=(group,))
        assert judge(CODE, make.evidence(optimizer=state)).verdict == "SkippedProbe"


@pytest.mark.parametrize("seed", range(3))
def test_forgotten_zero_grad(seed, make, judge):
    """What the optimizer sees is the sum of all gradients so far: a random walk that mostly goes on."""
    rng = np.random.default_rng(seed)
    gradients = np.cumsum(rng.standard_normal((400, 500)) + 0.2 * rng.standard_normal(500), axis=0)
    result = judge(CODE, make.evidence(optimizer=state_of(make, adam(gradients), step=400.0)))
    assert result.verdict == "fail"
    assert result.measured["signal_to_noise"] > 1
    assert f"{result.measured['signal_to_noise']:.3f}" in result.message
    assert "zero_grad" in result.remedy


def test_one_gradient_again_and_again(make, judge):
    gradients = np.repeat(np.random.default_rng(0).standard_normal((1, 50)), 60, axis=0)
    result = judge(CODE, make.evidence(optimizer=state_of(make, adam(gradients), step=60.0)))
    assert result.measured["signal_to_noise"] == pytest.approx(1.0, rel=1e-9)
    assert result.verdict == "fail"


def test_a_first_beta_of_zero(make, judge):
    """As generators of pictures are often trained; the first moment is then the last gradient alone."""
    gradients = np.random.default_rng(0).standard_normal((300, 4000))
    state = state_of(make, adam(gradients, (0.0, 0.99)), step=300.0, groups=({"betas": (0.0, 0.99)},))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    ("ratio", "norms", "verdict"),
    [
        (0.1, None, "pass"),
        (0.79, None, "pass"),
        (0.81, None, "fail"),
        (0.81, "noisy", "pass"),
        (0.81, "smooth", "fail"),
        (0.99, "noisy", "pass"),
        (1.01, "noisy", "fail"),
        (1.01, None, "fail"),
        (0.79, "smooth", "pass"),
    ],
)
def test_the_state_and_a_gradient_norm(ratio, norms, verdict, make, judge):
    """At an infinity of steps there is no bias. A rough gradient norm excuses a ratio up to 1."""
    state = state_of(make, ratio, step=1e6)
    series = [] if norms is None else [make.series(noisy() if norms == "noisy" else smooth(), role="grad_norm")]
    assert judge(CODE, make.evidence(None, *series, optimizer=state)).verdict == verdict


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_boundary_of_the_roughness(factor, make, judge):
    """Alternating up and down, the second difference is four times the height."""
    norms = np.exp(RULE.max_roughness * factor / 4 * (-1.0) ** np.arange(60))
    assert roughness(norms) == pytest.approx(RULE.max_roughness * factor)
    evidence = make.evidence(None, make.series(norms, role="grad_norm"), optimizer=state_of(make, 0.9, step=1e6))
    result = judge(CODE, evidence)
    assert result.verdict == ("fail" if factor < 1 else "pass")
    assert result.measured["norm_roughness"] == pytest.approx(roughness(norms), abs=1e-12)


@pytest.mark.parametrize("norms", [smooth(), np.ones(200), np.minimum(noisy(2), 0.9), np.round(noisy(2), 1)])
def test_the_logs_alone_tell_nothing(norms, make, judge):
    """A smooth gradient norm beside a noisy loss may be a running average, or have been clipped before it was logged."""
    assert judge(CODE, logs(make, noisy(), norms)).verdict == "SkippedProbe"


@pytest.mark.parametrize(("step", "verdict"), [(47.0, "SkippedProbe"), (49.0, "SkippedProbe"), (50.0, "fail")])
def test_boundary_of_the_steps(step, verdict, make, judge):
    """A short fine-tune says nothing yet."""
    ratio = 2.0 * (1 - 0.9**step) ** 2 / (1 - 0.999**step)
    assert judge(CODE, make.evidence(optimizer=state_of(make, ratio, step=step))).verdict == verdict


def test_the_median_is_by_size(make, judge):
    """A hundred stale vectors beside one large matrix that is not."""
    vectors = [make.tensor(key, shape=(4,), moment_ratio=5.0) for key in range(100)]
    for rows, verdict in ((90, "fail"), (110, "pass")):
        matrix = make.tensor(100, shape=(rows, 4), moment_ratio=0.05)
        assert judge(CODE, make.evidence(optimizer=make.state(*vectors, matrix))).verdict == verdict


@pytest.mark.parametrize(("ratios", "verdict"), [((1.9, 1.8, 1.9, 1.2), "fail"), ((1.9, 1.8, 1.9, 0.03), "pass")])
def test_what_piles_up_does_so_everywhere(ratios, verdict, make, judge):
    """The large matrices of a training that has only begun go one way; the last bias is done with that."""
    tensors = [
        make.tensor(key, shape=(8,) if key == 3 else (8, 8), moment_ratio=ratio) for key, ratio in enumerate(ratios)
    ]
    assert judge(CODE, make.evidence(optimizer=make.state(*tensors))).verdict == verdict


@pytest.mark.parametrize(
    ("groups", "group"),
    [
        ((), None),
        ((), 3),
        (({"lr": 0.1},), 0),
        (({"betas": "x"},), 0),
        (({"betas": (0.9,)},), 0),
        (({"betas": (2.0, 0.5)},), 0),
    ],
)
def test_without_betas_those_of_adam_are_taken(groups, group, make, judge):
    step = 60.0
    ratio = 0.7 * (1 - 0.9**step) ** 2 / (1 - 0.999**step)
    result = judge(CODE, make.evidence(optimizer=state_of(make, ratio, step=step, groups=groups, group=group)))
    assert result.measured["signal_to_noise"] == pytest.approx(0.7)


@FEW
@given(
    tensors=st.lists(
        st.tuples(
            st.none() | st.floats(0, 3) | st.sampled_from([math.nan, math.inf]),
            st.sampled_from([(2, 3), (50,), (), (0, 4)]),
            st.none() | st.floats(0, 3000),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=10,
    ),
    limit=st.floats(0.05, 2),
)
def test_the_state_against_plain_python(tensors, limit, plain, make, judge):
    betas = ((0.9, 0.999), (0.7, 0.99))
    built = [
        make.tensor(key, shape=shape, step=step, moment_ratio=ratio, group=group)
        for key, (ratio, shape, step, group) in enumerate(tensors)
    ]
    state = make.state(*built, groups=tuple({"betas": one} for one in betas))
    spread, known = [], []
    for ratio, shape, step, group in tensors:
        if ratio is not None and math.isfinite(ratio) and step is not None and step >= 50:
            corrected = ratio * (1 - betas[group][1] ** step) / (1 - betas[group][0] ** step) ** 2
            spread += [corrected] * math.prod(shape)
            known += [corrected] if math.prod(shape) else []
    result = judge(CODE, make.evidence(optimizer=state), max_ratio=limit)
    if not spread:
        assert result.verdict == "SkippedProbe"
        return
    middle = sorted(spread)[(len(spread) - 1) // 2]
    assume(abs(middle - 1) > 1e-9)
    assume(abs(middle - limit) > 1e-9)
    needed, least = min(1.0, limit), plain.quantile(known, 0.1) if len(known) > 1 else known[0]
    assume(abs(least - min(0.7, needed)) > 1e-9)
    assert result.measured["least"] == pytest.approx(least, rel=1e-9)
    assert result.measured["signal_to_noise"] == pytest.approx(middle, rel=1e-9)
    assert result.verdict == ("fail" if middle > needed and least > min(0.7, needed) else "pass")


@FEW
@given(ratio=st.floats(0.01, 1.5), one=st.floats(0.01, 2), other=st.floats(0.01, 2))
def test_a_higher_ratio_never_finds_more(ratio, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = make.evidence(optimizer=state_of(make, ratio))
    if judge(CODE, evidence, max_ratio=lower).verdict == "pass":
        assert judge(CODE, evidence, max_ratio=higher).verdict == "pass"
