"""LOS004."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

CODE = "LOS004"


def median(values):
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def noise_of(values):
    return 1.4826 * median([abs(b - a) for a, b in itertools.pairwise(values)]) / math.sqrt(2)


def bend_noise_of(bends):
    return math.sqrt(sum(one**2 for one in bends) / len(bends) / 6) if bends else 0.0


def level_noise_of(values, size):
    """Of fewer than 20 points: by second differences, or more times by those away from the largest step up."""
    bends = [c - 2 * b + a for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    steps = [b - a for a, b in itertools.pairwise(values)]
    leap = steps.index(max(steps))
    beside = [bend for at, bend in enumerate(bends) if at not in (leap - 1, leap)]
    return 1.2533 / math.sqrt(size) * min(1.6 * bend_noise_of(bends), 2.5 * bend_noise_of(beside))


def lifts_of(values):
    """By how much the values from some place on are all as much higher as it takes than those before; above 0: so."""
    lifts = [
        (min(values[at:]) - (1.25 if len(values) - at == 3 else 1.1) * max(values[:at]), max(values[:at]))
        for at in range(3, len(values) - 2)
    ]
    return [lift for lift, before in lifts if before > 0]


def top_of(values):
    """How far the last three lie above all others, and their median above twice the others': above 0 where both do."""
    last, before = values[-3:], values[:-3]
    return min(min(last) - max(before), median(last) - 2 * median(before)) if median(before) > 0 else -1.0


def naive(losses):
    """The measured numbers, and how far each of the two conditions is from holding (above 0: it holds)."""
    n = len(losses)
    size = max(min(5, n // 4), round(0.05 * n))
    blocks, rest = [], list(losses)
    while len(rest) >= 2 * size:
        blocks.insert(0, median(rest[-size:]))
        rest = rest[:-size]
    blocks.insert(0, median(rest))
    noise = noise_of(losses)
    early = max(noise, noise_of(losses[: max(20, 2 * size)]))
    if len(blocks) >= 10:
        noise = max(noise, noise_of(blocks))
    low, end, high = min(blocks), blocks[-1], max(blocks)
    if n < 40:
        low = min(low, *(median(losses[at : at + size]) for at in range(n - size + 1)))
        noise = min(noise, noise_of(losses[n // 2 :]))
    climb_noise, lifted = noise, []
    if n < 20:
        top = max(losses[0], end)
        noise, climb_noise = level_noise_of([min(one, top) for one in losses], size), level_noise_of(losses, size)
        lifted = lifts_of(losses)
    if n >= 12:
        lifted = [*lifted, top_of(losses)]
    head = median(losses[:size])
    start = losses[0] if head - losses[0] > 4 * early else head
    descent = max(start - low, 0.2 * abs(low))
    beyond = max([end - low - 4 * noise, *lifted])
    rise = min(end - low - max(0.15 * descent, 0), beyond)
    beyond = max([high - start - 4 * climb_noise, *([high - start - 3 * start] if n < 20 and start > 0 else [])])
    climb = min(high - start - max((0.5 if start == head else 2.0) * abs(start), 0), beyond)
    return {"start": start, "best": low, "end": end, "peak": high, "noise": noise}, rise, climb


def assert_as_naive(losses, make, judge):
    measured, rise, climb = naive(losses)
    scale = 1e-9 * max(abs(loss) for loss in losses)
    assume(all(margin == 0 or abs(margin) > scale for margin in (rise, climb)))
    result = judge(CODE, make.evidence(losses))
    expected = ("fail" if len(losses) >= 20 else "warn") if rise > 0 or climb > 0 else "pass"
    assert result.verdict == expected
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=scale)


# The square of what is smaller vanishes.
LOSSES = st.floats(-100, 100).map(lambda one: one if abs(one) > 1e-100 else 0.0)


@given(losses=st.lists(LOSSES, min_size=8, max_size=150))
def test_against_plain_python(losses, make, judge):
    assert_as_naive(losses, make, judge)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(8, 24),
    leap=st.floats(-1, 9),
    overshoot=st.sampled_from([0.0, 0.0, 5.0, 100.0]),
    noise=st.sampled_from([0.0, 0.01, 0.1, 0.4]),
)
def test_short_leaps_against_plain_python(seed, n, leap, overshoot, noise, make, judge):
    """Down, up at one point, and on from there."""
    rng = np.random.default_rng(seed)
    at = int(rng.integers(2, n - 1))
    losses = 1 + 3 * np.exp(-5 * np.arange(n) / n) + leap * (np.arange(n) >= at) + overshoot * (np.arange(n) == at)
    assert_as_naive((losses * (1 + noise * rng.standard_normal(n))).tolist(), make, judge)


@given(seed=st.integers(0, 10**6), n=st.integers(8, 400), bend=st.floats(-2, 2), noise=st.floats(0, 0.3))
def test_curves_against_plain_python(seed, n, bend, noise, make, judge):
    rng = np.random.default_rng(seed)
    curve = 1 + 3 * np.exp(-5 * np.arange(n) / n) + bend * np.clip(np.arange(n) / n - 0.5, 0, 1)
    assert_as_naive((curve + noise * rng.standard_normal(n)).tolist(), make, judge)


@pytest.mark.parametrize("seed", range(5))
def test_healthy(healthy_name, seed, healthy, make, judge):
    result = judge(CODE, make.evidence(getattr(healthy, healthy_name)(seed)))
    assert result.verdict == "pass", result.message


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["exploding", "drifting_up", "rescued_explosion", "from_the_start"])
def test_sick(name, seed, sick, make, judge):
    result = judge(CODE, make.evidence(getattr(sick, name)(seed)))
    assert (result.verdict, result.confidence) == ("fail", "high")
    assert result.steps


def test_the_message_and_the_remedy_hold_the_numbers(sick, make, judge):
    losses = sick.exploding()
    result = judge(CODE, make.evidence(losses, steps=np.arange(400) * 10))
    best, end = result.measured["best_step"], result.measured["end"]
    assert 1000 <= best < 2500
    assert f"around step {best}" in result.message
    assert f"{end:.4g}" in result.message
    assert f"step {best}" in result.remedy


def test_an_explosion_that_decay_rescued_is_told_as_such(sick, make, judge):
    result = judge(CODE, make.evidence(sick.rescued_explosion()))
    assert result.measured["end"] < result.measured["start"]
    assert f"climbed from {result.measured['start']:.4g} to {result.measured['peak']:.4g}" in result.message
    assert "came down" in result.message


def step_up(share, n=200):
    """Noiseless: 3 falls to 2 and ends at 2 + share."""
    return np.concatenate([np.linspace(3.0, 2.0, n // 2), np.full(n // 4, 2.0), np.full(n // 4, 2.0 + share)])


@pytest.mark.parametrize(("share", "verdict"), [(0.10, "pass"), (0.142, "pass"), (0.155, "fail"), (0.5, "fail")])
def test_boundary_of_the_rise(share, verdict, make, judge):
    """The first level is the median of the first 5 %, so that the descent is a little less than 1."""
    assert judge(CODE, make.evidence(step_up(share)), sigmas=0).verdict == verdict


def levels(*values, size=10):
    return np.repeat(np.array(values, dtype=float), size)


@pytest.mark.parametrize(("end", "verdict"), [(2.15, "pass"), (2.1500001, "fail"), (2.0, "pass")])
def test_exact_boundary_of_the_rise(end, verdict, make, judge):
    """A descent of 1 from 3 to 2, no noise: a rise of exactly 0.15 does not count."""
    losses = levels(3.0, *[2.0] * 18, end)
    share = (2.15 - 2.0) / 1.0
    assert judge(CODE, make.evidence(losses), rise_share=share).verdict == verdict


@pytest.mark.parametrize(("peak", "verdict"), [(6.0, "pass"), (6.0000001, "fail")])
def test_exact_boundary_of_the_climb(peak, verdict, make, judge):
    losses = levels(4.0, peak, *[1.0] * 18)
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(("peak", "verdict"), [(3.0, "pass"), (2.99, "pass"), (3.01, "fail")])
def test_against_one_lucky_first_batch_the_climb_has_to_be_a_large_one(peak, verdict, make, judge):
    """The very first value, 1, lies clearly below the first level, 1.5; the climb from it counts from twice it on."""
    losses = levels(1.5, peak, *[1.0] * 18)
    losses[0] = 1.0
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["start"]) == (verdict, 1.0)


def test_a_short_log_whose_blocks_lie_across_its_minimum(make, judge):
    """Sixteen points, blocks of four: the lowest four points are halves of two blocks."""
    losses = [5.0, 4.3, 3.6, 3.0, 2.4, 1.8, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.confidence, result.measured["best"]) == ("warn", "low", 1.0)


@pytest.mark.parametrize("n", [8, 12, 19, 20, 60])
def test_below_20_points_it_is_unsure(n, make, judge):
    result = judge(CODE, make.evidence([*np.linspace(3, 1, n - n // 2), *np.linspace(20, 21, n // 2)]))
    assert result.verdict == ("warn" if n < 20 else "fail")


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_below_4_points_it_is_skipped(n, make, judge):
    assert judge(CODE, make.evidence(np.arange(float(n)) + 1)).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([0.76, 0.52, 11.3, 16.9, 12.2, 15.8], "warn"),
        ([0.76, 0.52, 0.61, 16.9, 12.2], "warn"),
        ([1.02, 0.64, 0.52, 1.48, 1.62, 1.61], "warn"),
        ([0.76, 0.52, 11.3, 16.9, 12.2, 2.2], "SkippedProbe"),  # and comes back
        ([0.76, 0.52, 0.61, 0.66, 12.2], "SkippedProbe"),  # at the end alone
    ],
)
def test_few_points_that_leap_and_stay_there(losses, verdict, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(
    ("losses", "held_out", "verdict"),
    [
        ([0.67, 0.63, 0.72, 0.85, 0.93], [0.58, 0.77, 0.89, 1.19, 1.33], "warn"),
        ([0.67, 0.63, 0.72, 0.85, 0.93], None, "SkippedProbe"),
        ([0.67, 0.63, 0.72, 0.85, 0.93], [0.58, 0.57, 0.56, 0.57, 0.58], "SkippedProbe"),
        ([0.67, 0.63, 0.6, 0.58, 0.57], [0.58, 0.77, 0.89, 1.19, 1.33], "SkippedProbe"),  # overfitting
        ([0.67, 0.63, 0.72, 0.85, 0.8], [0.58, 0.77, 0.89, 1.19, 1.33], "SkippedProbe"),
        ([0.67, 0.63, 0.69, 0.7, 0.72], [0.58, 0.58, 0.6, 0.61, 0.62], "SkippedProbe"),
    ],
)
def test_few_points_of_two_losses_that_climb_together(losses, held_out, verdict, make, judge):
    more = [] if held_out is None else [make.series(held_out, role="val_loss")]
    assert judge(CODE, make.evidence(losses, *more)).verdict == verdict


@pytest.mark.parametrize(
    ("losses", "held_out", "verdict"),
    [
        ([2.61, 1.92, 2.65, 2.29], [1.90, 1.71, 2.28, 2.17], "warn"),  # the weights were lost at a resume
        ([2.61, 1.92, 1.71, 2.65, 2.29], [1.90, 1.71, 1.73, 2.28, 2.17], "warn"),
        ([2.61, 1.92, 2.65, 2.1], [1.90, 1.71, 2.28, 2.17], "SkippedProbe"),  # the training comes back
        ([2.61, 1.92, 1.8, 1.7], [1.90, 1.71, 2.28, 2.17], "SkippedProbe"),  # overfitting
        ([2.61, 1.92, 2.65, 2.29], [1.90, 1.71, 1.65, 1.6], "SkippedProbe"),
        ([2.61, 1.92, 2.65, 2.29], [1.90, 1.71, 1.93, 1.94], "SkippedProbe"),  # by too little
        ([2.61, 1.92, 2.65, 2.29], [1.71, 1.90, 2.28, 2.17], "SkippedProbe"),  # no way led down
        ([2.61, 1.92, 2.65, 2.29], [1.90, 1.71, 2.0, 2.28, 2.17], "SkippedProbe"),  # other epochs
    ],
)
def test_few_points_of_two_losses_that_are_lost_together(losses, held_out, verdict, make, judge):
    both = make.evidence(losses, make.series(held_out, role="val_loss"))
    assert judge(CODE, both).verdict == verdict
    again = make.series(np.linspace(1e-4, 1e-3, len(losses)), role="learning_rate")
    assert judge(CODE, replace(both, series=(*both.series, again))).verdict == "SkippedProbe"
    restarts = replace(both.info, params={"scheduler": "CosineAnnealingWarmRestarts"})
    assert judge(CODE, replace(both, info=restarts)).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    "losses",
    [
        [4.0, 69.0, 388.0, 952.0, 1600.0],
        [4.5, 13.9, 27.4, 38.8, 45.3],
        [2.3, 2.9, 3.9, 4.1],
        [-1.0, 0.2, 1.1, 2.3, 3.0],
        [0.68, 0.56, 0.42, 0.39, 0.38, 0.56, 0.68],
        [2.3, 1.4, 0.9, 0.8, 1.3, 2.2],
        [1.0, 0.72, 0.62, 0.75, 1.02],
        [0.68, 0.60, 0.52, 0.44, 0.38, 0.53, 0.68],
        [2.3, 1.1, 0.9, 0.85, 2.25, 2.3],  # it leapt, and stayed
        [0.54, 0.19, 31725.0, 1.31, 1.02, 0.96],  # further than it settled
        [1.57, 0.35, 0.38, 2.54, 1.81, 1.76, 1.77],
    ],
)
def test_a_few_points_that_climb(losses, make, judge):
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == "warn"
    assert f"in {len(losses)} points" in result.message


@pytest.mark.parametrize(
    "losses",
    [
        [2.3, 9.0, 4.0, 1.0, 0.5],  # it came back
        [1.0, 0.5, 0.4, 0.6, 0.8],  # no climb past the start
        [1.0, 1.1, 1.2, 1.3, 1.4],  # by less than half
        [1.0, 3.0, 0.6, 2.9, 1.6, 3.4],  # noise
        [3.0, 1.0, 0.5, 8.0],  # at the end alone
        [0.68, 0.56, 0.42, 0.39, 0.38, 0.45, 0.56],  # not all the way
        [0.68, 0.64, 0.60, 0.58, 0.57, 0.63, 0.68],  # by little
        [0.68, 0.56, 0.60, 0.39, 0.38, 0.56, 0.68],  # not all along
        [0.68, 0.56, 0.42, 0.39, 0.38, 0.40, 0.68],  # at once, and at the end alone
        [1.0, 0.8, 0.6, 0.8, 1.0],  # with a corner that is not smooth, of so few
        [2.3, 1.1, 0.9, 1.6, 0.85, 2.3, 2.35],  # noise as large as that may make this
    ],
)
def test_a_few_points_that_do_not(losses, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


def climbed_by_plain_python(losses, plain):
    """Of four to seven points: whether they climbed, and by how much each condition is met or missed."""
    start, end, last = losses[0], min(losses[-2:]), losses[-1]
    bends = [c - 2 * b + a for a, b, c in zip(losses, losses[1:], losses[2:], strict=False)]
    noise = max(plain.evaluation_noise(losses), bend_noise_of(bends))
    past = [end - start - 0.5 * abs(start), end - start - 4 * noise]
    doubled = end - 2 * max(losses[:-2])
    tripled = max(min(losses[at:]) - 3 * max(losses[:at]) for at in range(1, len(losses) - 1))
    flat = [min(one, max(start, last)) for one in losses]
    low = flat.index(min(flat))
    down, steps = start - flat[low], [b - a for a, b in itertools.pairwise(flat)]
    aside = sum(max(step, 0) for step in steps[:low]) + sum(max(-step, 0) for step in steps[low:])
    flat_bends = [c - 2 * b + a for a, b, c in zip(flat, flat[1:], flat[2:], strict=False)]
    height = [one - flat[low] for one in flat[-2:]]
    stayed = [down - 0.5 * start, 0.1 * down - aside, min(height) - 0.9 * down]
    smooth = [down - 0.3 * start, height[0] - 0.3 * down, height[1] - 0.9 * down]
    smooth += [flat[-1] - flat[low] - 5 * bend_noise_of(flat_bends)]
    back = min(stayed) >= 0 or (low >= 2 and aside == 0 and min(smooth) >= 0)
    back = back and low <= len(losses) - 3 and down > 0
    lifts = lifts_of(losses) if len(losses) > 5 else []
    margins = [*past, doubled, tripled, *stayed, *smooth, *lifts]
    return min(past) > 0 or max(lifts, default=-1) >= 0 or (
        start > 0 and (doubled >= 0 or tripled >= 0 or back)
    ), margins


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(4, 7),
    low=st.floats(0.05, 0.9),
    back=st.floats(0, 3),
    noise=st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.6]),
)
def test_a_few_points_against_plain_python(seed, n, low, back, noise, plain, make, judge):
    rng = np.random.default_rng(seed)
    at = int(rng.integers(1, n))
    down = 1 - (1 - low) * np.linspace(0, 1, at + 1) ** rng.uniform(0.3, 1)
    up = low + back * (1 - low) * np.linspace(0, 1, n - at)[1:] ** rng.uniform(0, 2)
    losses = (np.concatenate([down, up]) * (1 + noise * rng.standard_normal(n))).tolist()
    expected, margins = climbed_by_plain_python(losses, plain)
    assume(all(abs(margin) > 1e-9 for margin in margins))
    assert judge(CODE, make.evidence(losses)).verdict == ("warn" if expected else "SkippedProbe")


@given(losses=st.lists(st.floats(-5, 50), min_size=4, max_size=7))
def test_any_few_points_against_plain_python(losses, plain, make, judge):
    expected, margins = climbed_by_plain_python(losses, plain)
    assume(all(abs(margin) > 1e-9 for margin in margins))
    assert judge(CODE, make.evidence(losses)).verdict == ("warn" if expected else "SkippedProbe")


def drawn(rng, n, noise):
    """A healthy loss of a few points: it levels off somewhere, or is level from the first point on."""
    floor, tail = rng.uniform(0.05, 1.0), rng.choice(["normal", "t"])
    level = floor + (1 - floor) * np.exp(-rng.uniform(1, 20) * np.arange(n) / n)
    scatter = noise * (rng.standard_normal(n) if tail == "normal" else rng.standard_t(3, n) / np.sqrt(3))
    return level * np.where(scatter > 0, 1 + scatter, 1 / (1 - scatter))


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("n", [5, 7, 8, 10, 14, 19])
def test_noise_is_seldom_a_climb(n, noise, make, judge):
    rng = np.random.default_rng(n)
    results = [judge(CODE, make.evidence(drawn(rng, n, noise))).verdict for _ in range(300)]
    assert results.count("warn") <= 4


@pytest.mark.parametrize("n", [8, 9, 12, 19])
@pytest.mark.parametrize("seed", range(3))
def test_a_short_log_that_climbs_at_its_end(seed, n, make, judge):
    """From the middle on, half of the way back up: the steps of the way down are no noise."""
    rng, half = np.random.default_rng(seed), n // 2
    down = 0.4 + 1.6 * np.exp(-4 * np.arange(half) / half)
    losses = np.concatenate([down, down[-1] + np.linspace(0.1, 0.9, n - half)]) * (1 + 0.01 * rng.standard_normal(n))
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.confidence) == ("warn", "low")
    assert "then rose" in result.message


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ([2.0, 1.1, 0.4, 0.3, 3.2, 1.9, 1.8, 1.8, 1.77, 1.75, 1.76], "warn"),  # higher than where it settled
        ([1.8, 1.7, 1.6, 1.4, 1.2, 1.1, 15.6, 1.86, 1.8, 1.82], "warn"),
        ([3.3, 2.4, 2.2, 7.4, 5.2, 4.2, 4.1, 3.7], "warn"),  # still on its way down, but above all before
        ([3.3, 2.4, 2.2, 7.4, 5.2, 4.2, 3.5, 3.2], "pass"),  # or not
        ([1.0, 1.1, 0.9, 1.6, 1.7, 1.65, 1.6, 1.7], "warn"),
        ([1.6, 4.9, 9.2, 1.55, 1.53, 1.51, 1.55, 1.53, 1.51, 1.52], "pass"),  # it came back
        ([1.6, 1.5, 95.0, 1.55, 1.53, 1.51, 1.55, 1.53, 1.51, 1.52], "warn"),  # from far above
    ],
)
def test_leaps_in_a_short_log(losses, verdict, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == verdict


def test_nan_are_left_to_los001(make, judge):
    losses = np.where(np.arange(400) % 3, 2.0, np.nan)
    assert judge(CODE, make.evidence(losses)).verdict == "pass"
    assert judge(CODE, make.evidence(np.full(100, np.nan))).verdict == "SkippedProbe"


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e-30, 1e30])
def test_constant(value, make, judge):
    assert judge(CODE, make.evidence(np.full(100, value))).verdict == "pass"


def test_a_spike_at_the_very_end_is_no_divergence(healthy, make, judge):
    losses = healthy.descent(n=300)
    losses[-2:] *= 30
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_logs_of_every_tenth_step(healthy, sick, make, judge):
    steps = np.arange(0, 400, 10)
    assert judge(CODE, make.evidence(healthy.descent()[::10], steps=steps)).verdict == "pass"
    assert judge(CODE, make.evidence(sick.exploding()[::10], steps=steps)).verdict == "fail"


def test_a_resume_that_writes_over_the_explosion(healthy, sick, make, judge):
    steps = np.concatenate([np.arange(400), np.arange(240, 400)])
    losses = np.concatenate([sick.exploding(), healthy.descent()[240:]])
    assert judge(CODE, make.evidence(losses, steps=steps)).verdict == "pass"


@pytest.mark.parametrize("name", ["exploding", "descent", "heavy_noise", "drifting_up", "blips"])
@given(exponent=st.integers(-60, 60))
def test_the_unit_of_the_loss_does_not_matter(name, exponent, healthy, sick, make, judge):
    losses = (getattr(sick, name, None) or getattr(healthy, name))(3)
    expected = judge(CODE, make.evidence(losses))
    scaled = judge(CODE, make.evidence(losses * 2.0**exponent))
    assert scaled.verdict == expected.verdict
    assert scaled.measured["rise_share"] == expected.measured["rise_share"]


@given(losses=st.lists(st.floats(-100, 100), min_size=8, max_size=60), data=st.data())
def test_higher_thresholds_never_find_more(losses, data, make, judge):
    limits = {"rise_share": (0.01, 3), "sigmas": (0, 20), "climb_share": (0.01, 3)}
    lower = {name: data.draw(st.floats(*between)) for name, between in limits.items()}
    higher = {name: value + data.draw(st.floats(0, 3)) for name, value in lower.items()}
    if judge(CODE, make.evidence(losses), **lower).verdict == "pass":
        assert judge(CODE, make.evidence(losses), **higher).verdict == "pass"


# What cannot be compared


def annealed(seed=0, *, until=300, n=400):
    """A VAE: the reconstruction gets better, and a KL term that weighs more and more comes on top."""
    index, rng = np.arange(n), np.random.default_rng(seed)
    weight = np.minimum(1.0, index / until)
    level = 60 + 40 * np.exp(-index / 15) + weight * 40 * (1 - np.exp(-index / 30))
    return level * (1 + 0.01 * rng.standard_normal(n)), weight


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("until", [100, 300, 370])
def test_while_a_weight_rises_the_loss_may(seed, until, make, judge):
    losses, weight = annealed(seed, until=until)
    assert judge(CODE, make.evidence(losses)).verdict == "fail"
    result = judge(CODE, make.evidence(losses, make.series(weight, role="objective_weight", name="beta")))
    assert result.verdict == "pass"
    assert "when beta had risen" in result.message


def test_what_diverges_after_the_rise_is_found(make, judge):
    losses, weight = annealed(until=100)
    losses[300:] *= 3
    result = judge(CODE, make.evidence(losses, make.series(weight, role="objective_weight")))
    assert (result.verdict, result.confidence) == ("fail", "high")


def test_a_weight_that_rises_to_the_end_leaves_nothing_to_judge(make, judge):
    losses, weight = annealed(until=400)
    result = judge(CODE, make.evidence(losses, make.series(weight, role="objective_weight", name="kl_weight")))
    assert result.verdict == "SkippedProbe"
    assert "kl_weight had risen" in result.reason["reason"]


@pytest.mark.parametrize(
    "weight", [np.ones(400), np.linspace(1, 0, 400), np.full(400, np.nan), np.linspace(1, 1.01, 400), np.zeros(400)]
)
def test_a_weight_that_does_not_rise_excuses_nothing(weight, sick, make, judge):
    weights = make.series(weight, role="objective_weight")
    assert judge(CODE, make.evidence(sick.exploding(), weights)).verdict == "fail"


def test_a_continuation_that_counts_anew_is_judged_by_itself(healthy, make, judge, report):
    first, second = healthy.descent(n=1000, start=2.3, floor=0.5), healthy.descent(1, n=400, start=0.5, floor=0.4)
    steps = np.concatenate([np.arange(1000), np.arange(400)])
    evidence = make.evidence(np.concatenate([first, second]), steps=steps)
    assert judge(CODE, evidence).verdict == "pass"
    assert report(evidence).notes == (
        "the steps of train_loss began anew after 1000 points: only what came then is judged",
    )


def test_a_resume_that_ended_early_makes_it_unsure(healthy, sick, make, judge):
    steps = np.concatenate([np.arange(400), np.arange(100, 200)])
    losses = np.concatenate([sick.exploding(), healthy.descent()[100:200]])
    result = judge(CODE, make.evidence(losses, steps=steps))
    assert (result.verdict, result.confidence) == ("warn", "low")
    assert "of two passes" in result.message


def contrastive(seed=0):
    """MoCo: the loss climbs while the queue of negatives fills, and comes down for the rest of the run."""
    index, rng = np.arange(500), np.random.default_rng(seed)
    level = np.where(index < 60, 2 + 7 * index / 60, 9 - 2.3 * (1 - np.exp(-(index - 60) / 120)))
    return level * (1 + 0.01 * rng.standard_normal(500))


@pytest.mark.parametrize("seed", range(4))
def test_of_a_gradual_early_climb_it_is_unsure(seed, make, judge):
    result = judge(CODE, make.evidence(contrastive(seed)))
    assert (result.verdict, result.confidence) == ("warn", "low")


@pytest.mark.parametrize("seed", range(4))
def test_of_an_early_explosion_it_is_not(seed, make, judge):
    """Ten steps up by orders of magnitude, and down ever since."""
    losses = contrastive(seed)
    losses[:60] = 2.0
    assert judge(CODE, make.evidence(losses)).confidence == "high"


def test_losses_near_the_largest_number_there_is(make, judge):
    losses = np.linspace(1.79e308, 1e308, 200)
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["best"]) == ("pass", pytest.approx(1.02e308, rel=0.05))
    assert result.measured["rise_share"] == 0.0
    assert "inf" not in result.message.lower()


def running_mean(losses, forgets, every=1, before=False):
    mean, logged = 0.0, []
    for step, loss in enumerate(losses):
        mean = (1 - forgets) * mean + forgets * loss
        if step % every == (0 if before else every - 1):
            logged.append(mean)
    return np.array(logged)


@pytest.mark.parametrize("forgets", [0.01, 0.02, 0.05])
@pytest.mark.parametrize(("every", "before"), [(1, False), (5, False), (5, True)])
@pytest.mark.parametrize("seed", range(3))
def test_a_running_mean_that_began_at_0(forgets, every, before, seed, make, judge):
    """Its climb is no divergence; what comes after it is judged."""
    noise = 0.1 * np.random.default_rng(seed).standard_normal(1000)
    losses = 2.3 * np.exp(-np.arange(1000) / 400) + noise
    result = judge(CODE, make.evidence(running_mean(losses, forgets, every, before)))
    assert result.verdict == "pass"
    rising = np.concatenate([losses, np.linspace(losses[-1], 3.0, 400)])
    assert judge(CODE, make.evidence(running_mean(rising, forgets, every, before))).verdict == "fail"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [3, 6, 12, 30])
def test_an_explosion_of_a_fine_tune_is_no_running_mean(seed, steps, make, judge):
    """It leaves its low level, with the noise of minibatches, to chance, and does not come back to it."""
    rng = np.random.default_rng(seed)
    rise = 0.3 + 2.0 * (1 - np.exp(-np.arange(steps) / (steps / 4)))
    losses = np.concatenate([np.full(10, 0.3), rise, np.full(200, 2.3)])
    losses = losses * (1 + 0.1 * rng.standard_normal(len(losses)))
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


@pytest.mark.parametrize("after", [np.full(200, 2.05), np.linspace(2.0, 1.9, 200)])
def test_a_smooth_climb_that_nothing_was_learnt_after_is_no_running_mean(after, make, judge):
    climb = 2.4 * (1 - 0.8 ** np.arange(1, 17))
    losses = np.concatenate([climb, after + 0.03 * np.random.default_rng(0).standard_normal(200)])
    assert judge(CODE, make.evidence(losses)).verdict == "fail"


ZIGZAG = [1.31, 0.40, 0.22, 0.87, 0.26, 0.15, 0.84, 0.22, 0.12, 1.09, 0.34, 0.21]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        pytest.param([*ZIGZAG, 2.16, 1.53, 1.33], "warn", id="lost for good, after leaps that look like noise"),
        pytest.param([*ZIGZAG, 2.16, 1.53, 1.30], "pass", id="one of the last was seen before"),
        pytest.param([*ZIGZAG, 2.16, 1.53, 0.33], "pass", id="it comes back"),
        pytest.param([*ZIGZAG[:8], 2.16, 1.53, 1.33], "pass", id="eleven points: by chance once in 165 times"),
    ],
)
def test_an_end_on_top_of_all(losses, verdict, make, judge):
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (-2.0 * np.linspace(1.0, 3000.0, 60) ** 2, "fail"),
        (-20.0 * np.exp(np.linspace(0.0, 9.5, 60)), "fail"),
        (
            np.r_[-2.0 * np.linspace(1.0, 3000.0, 30) ** 2, np.full(30, -2.0 * 3000.0**2)],
            "pass",
        ),  # it has found a bound
        (np.linspace(3000.0, -9000.0, 60), "pass"),  # a likelihood of many pixels, in nats
        (np.linspace(0.9, -2000.0, 60), "pass"),
        (np.r_[-1.0, -1.5, -2.0, -3e4 * (1.0 - np.exp(-np.arange(60) / 15))], "warn"),  # at a rate that decays
        (np.r_[-1.0, -1.5, -2.0, -3e3 * (1.0 - np.exp(-np.arange(60) / 15))], "pass"),
    ],
)
def test_a_loss_that_nothing_bounds(values, verdict, make, judge):
    result = judge(CODE, make.evidence(values))
    assert result.verdict == verdict
    assert ("nothing bounds it" in result.message) is (verdict == "fail")


def ascent(rates, power=1.5):
    """What a loss of a turned sign does: it falls ever faster, as fast as the rates let it."""
    return -1.0 - np.cumsum(rates * np.arange(1, len(rates) + 1) ** (power - 1))


COSINE = 0.5 * (1 + np.cos(np.pi * np.arange(60) / 60))


@pytest.mark.parametrize("noise", [0.0, 0.02])
@pytest.mark.parametrize(
    ("name", "losses", "rates", "verdict"),
    [
        ("as the rates let it", ascent(10 * COSINE), COSINE, "warn"),
        ("at one rate", ascent(10 * np.ones(60)), None, "warn"),
        ("by a tenth of that", ascent(0.1 * COSINE), COSINE, "pass"),
        ("a density", 5.0 - 900.0 * (1 - np.exp(-np.arange(60) / 15)), None, "pass"),
        ("a density, at falling rates", 5.0 - 900.0 * (1 - np.exp(-np.cumsum(COSINE) / 10)), COSINE, "pass"),
        ("a sum over dimensions", 1100.0 - 50.0 * np.arange(60), None, "pass"),
    ],
)
def test_a_loss_whose_fall_never_slows(name, losses, rates, verdict, noise, make, judge):
    rng = np.random.default_rng(1)
    losses = losses + noise * np.abs(losses).mean() * rng.standard_normal(len(losses))
    series = [] if rates is None else [make.series(1e-3 * rates, role="learning_rate")]
    result = judge(CODE, make.evidence(losses, *series))
    assert result.verdict == verdict, name
    assert ("nothing seems to bound it" in result.message) is (verdict == "warn")


@pytest.mark.parametrize("steps", [[0] * 60, [2**62 * (i % 2) for i in range(60)], list(range(60, 0, -1))])
@pytest.mark.parametrize("rate", [0.0, -1.0, 1e300, 5e-324])
def test_any_steps_and_rates(steps, rate, make, judge):
    series = make.series([rate] * 60, steps, role="learning_rate")
    assert judge(CODE, make.evidence(make.series(ascent(10 * np.ones(60)), steps), series)).verdict in {
        "pass", "warn", "fail", "SkippedProbe",
    }  # fmt: skip
