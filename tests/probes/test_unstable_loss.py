"""LOS008."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes._comparable import after_climb
from tracker_health.probes.unstable_loss import UnstableLoss

CODE = "LOS008"
RULE = UnstableLoss()
FEW = settings(max_examples=60, deadline=None)


def naive(losses, plain, rule=RULE):
    """The measured numbers, the verdict, and by how much each condition is met or missed."""
    n = len(losses)
    size, noise = max(3, n // 40), plain.noise(losses)
    blocks = plain.blocks(losses, size)
    levels = [plain.median(block) for block in blocks]
    start = plain.start(losses, min(5, size), noise)
    lowest = min(levels)
    descent = max(start - lowest, 0.2 * abs(lowest))
    margins, flags, steep = [], [], False
    rises = [level - min(levels[: index + 1]) for index, level in enumerate(levels)]
    for index, rise in enumerate(rises):
        around = [block[-size:] for block in blocks[max(0, index - 2) : index + 3]]
        steps = [abs(b - a) for block in around for a, b in itertools.pairwise(block)]
        own = max(1.4826 * plain.quantile(steps, 0.5), 0.6080 * plain.quantile(steps, 0.9)) / math.sqrt(2)
        error = plain.median_error(max(noise, own), size)
        clear = rise > rule.sigmas * error
        margins += [rise - rule.rise_share * descent, rise - 2 * rule.rise_share * descent, rise - rule.sigmas * error]
        if index < len(levels) - 1:
            flags.append(clear and rise > rule.rise_share * descent)
            steep = steep or (clear and rise > 2 * rule.rise_share * descent)
    runs = [len(list(group)) for high, group in itertools.groupby(flags) if high]
    lasting = max(runs, default=0) >= rule.lasting_share * len(levels)
    measured = {"excursions": len(runs), "tallest": max(rises[:-1]), "descent": descent, "noise": noise}
    return measured, "warn" if len(runs) >= rule.repeated or steep or (lasting and runs) else "pass", margins


def leap_in(losses, plain, margins, rule=RULE):
    """Whether a single leap of few points, 30 to 59, counts; with the margins of its conditions."""
    found = False
    for at in range(8, len(losses) - 2):
        best = min(losses[:at])
        rise, descent = losses[at] - best, losses[0] - best
        noise = rule.sigmas * max(plain.evaluation_noise(losses[:at]), plain.noise(losses[at + 1 :]))
        conditions = [descent - noise, rise - max(2 * rule.rise_share * descent, noise)]
        conditions += [losses[after] - best - rule.rise_share * descent for after in (at + 1, at + 2)]
        margins += conditions
        found = found or min(conditions) > 0
    return found


def assert_as_naive(losses, plain, make, judge):
    assume(after_climb(np.array(losses)) == 0)  # what a climb by design leaves out has tests of its own
    measured, verdict, margins = naive(losses, plain)
    if verdict == "pass" and len(losses) < 60 and leap_in(losses, plain, margins):
        verdict, measured = "warn", {"excursions": 1}
    scale = 1e-9 * max(1e-300, *(abs(loss) for loss in losses))
    assume(all(margin == 0 or abs(margin) > scale for margin in margins))
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == verdict
    for name, value in measured.items():
        assert result.measured[name] == pytest.approx(value, rel=1e-9, abs=scale), name


@FEW
@given(losses=st.lists(st.floats(-100, 100), min_size=30, max_size=200))
def test_against_plain_python(losses, plain, make, judge):
    assert_as_naive(losses, plain, make, judge)


BUMPS = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 0.3), st.floats(0.1, 3)), max_size=4)


def curve(seed, n, noise, bumps):
    """A descent from 4 to 1 with bumps (place and length as shares, height)."""
    losses = 1 + 3 * np.exp(-5 * np.arange(n) / n) + noise * np.random.default_rng(seed).standard_normal(n)
    for place, length, height in bumps:
        losses[int(place * n) : int((place + length) * n)] += height
    return losses


@FEW
@given(seed=st.integers(0, 10**6), n=st.integers(30, 400), noise=st.floats(0, 0.3), bumps=BUMPS)
def test_curves_against_plain_python(seed, n, noise, bumps, plain, make, judge):
    assert_as_naive(curve(seed, n, noise, bumps).tolist(), plain, make, judge)


@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    verdict = judge(CODE, make.evidence(losses)).verdict
    assert verdict == ("pass" if len(losses) >= RULE.min_points else "SkippedProbe")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stride", [5, 10])
def test_healthy_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, judge):
    losses = getattr(healthy, long_healthy_name)(seed)[::stride]
    evidence = make.evidence(losses, steps=np.arange(len(losses)) * stride)
    assert judge(CODE, evidence).verdict in ("pass", "SkippedProbe")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [60, 400, 4000])
def test_a_level_that_comes_and_goes(n, seed, make, judge):
    """Three times above its best by a third of the descent, for a fifteenth of the run each."""
    losses = curve(seed, n, 0.02, [(0.4, 0.067, 1.2), (0.6, 0.067, 1.2), (0.8, 0.067, 1.2)])
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == "warn"
    assert "left its best 3 times" in result.message
    assert f"at step {result.steps[0]}" in result.message
    assert result.measured["excursions"] == 3
    assert "learning rate" in result.remedy


@pytest.mark.parametrize("seed", range(3))
def test_at_the_edge_of_stability(seed, make, judge):
    """The level swings by as much as it came down."""
    index = np.arange(600)
    losses = 2 + 1.5 * np.exp(-index / 60) + np.where(index > 150, np.abs(np.sin(index / 25)) * 1.2, 0)
    losses += 0.05 * np.random.default_rng(seed).standard_normal(600)
    assert judge(CODE, make.evidence(losses)).verdict == "warn"


@pytest.mark.parametrize("seed", range(3))
def test_one_high_excursion_that_came_back(seed, make, judge):
    losses = curve(seed, 400, 0.02, [(0.5, 0.1, 2.5)])
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["excursions"]) == ("warn", 1)
    assert 200 - 10 <= result.steps[0] <= 240


@pytest.mark.parametrize("seed", range(3))
def test_one_low_excursion_passes_unless_it_lasts(seed, make, judge):
    for length, verdict in ((0.1, "pass"), (0.15, "pass"), (0.25, "warn"), (0.3, "warn")):
        evidence = make.evidence(curve(seed, 400, 0.01, [(0.6, length, 1.1)]))
        assert judge(CODE, evidence).verdict == verdict


def levels(*values, size=3):
    return np.repeat(np.array(values, dtype=float), size)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_the_rise(factor, verdict, make, judge):
    """A descent of 1 and no noise: two excursions of exactly the height that is asked for do not count."""
    up = 2 + RULE.rise_share * factor
    losses = levels(3, 2, up, 2, up, 2, 2, 2, 2, 2, 2)
    result = judge(CODE, make.evidence(losses))
    assert (result.verdict, result.measured["excursions"]) == (verdict, 0 if verdict == "pass" else 2)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1 + 1e-9, "warn")])
def test_boundary_of_a_single_rise(factor, verdict, make, judge):
    result = judge(CODE, make.evidence(levels(3, 2, 2 + 2 * RULE.rise_share * factor, *[2] * 9)))
    assert (result.verdict, result.measured["excursions"]) == (verdict, 1)


@pytest.mark.parametrize(("blocks", "verdict"), [(3, "pass"), (4, "warn")])
def test_boundary_of_the_length(blocks, verdict, make, judge):
    """A fifth of twenty levels."""
    assert judge(CODE, make.evidence(levels(3, 2, *[2.3] * blocks, *[2] * (18 - blocks)))).verdict == verdict


def test_a_level_that_is_up_at_the_very_end_is_for_los004(make, judge):
    assert judge(CODE, make.evidence(levels(3, *[2] * 18, 9))).verdict == "pass"
    assert judge(CODE, make.evidence(levels(3, *[2] * 17, 9, 2))).verdict == "warn"


def test_noise_is_no_excursion(make, judge):
    """Flat noise, however large: its levels stay within six standard errors, but for one run in fifty."""
    for n, noise in ((30, 0.3), (100, 0.3), (1000, 1.0)):
        flat = [2.0 + noise * np.random.default_rng(seed).standard_normal(n) for seed in range(100)]
        assert [judge(CODE, make.evidence(losses)).verdict for losses in flat].count("warn") <= 2


@pytest.mark.parametrize("freedom", [1.5, 2.0, 3.0])
def test_long_tails_in_short_logs_are_no_excursions(freedom, make, judge):
    """The median of three points feels Student's tails: three of a hundred runs at most."""
    index = np.arange(120)
    tails = [np.random.default_rng(seed).standard_t(freedom, 120) for seed in range(100)]
    runs = [(1 + 2 * np.exp(-index / 15)) * (1 + np.maximum(0.05 * tail, -0.9)) for tail in tails]
    assert [judge(CODE, make.evidence(losses)).verdict for losses in runs].count("warn") <= 3


def test_noise_that_falls_with_the_loss_is_no_excursion(make, judge):
    """A long plateau with the noise of its level, then learning: the noise of the end says nothing of the beginning.

    One run in twenty at most; by the noise of the whole it would be three in four.
    """
    level = 0.2 + 2.5 / (1 + np.exp((np.arange(180) - 80) / 4))
    runs = [level * (1 + 0.25 * np.random.default_rng(seed).standard_normal(180)) for seed in range(60)]
    assert [judge(CODE, make.evidence(losses)).verdict for losses in runs].count("warn") <= 3


def test_a_slow_wave_of_a_small_height_passes(healthy, make, judge):
    for seed in range(5):
        losses = healthy.descent(seed) + 0.3 * np.sin(np.arange(400) / 15)
        assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_two_garbage_stretches_of_a_few_points_pass(healthy, make, judge):
    """Medians of ten points do not see four of them."""
    losses = healthy.descent(n=400)
    losses[[151, 152, 153, 154, 301, 302, 303, 304]] += 20.0
    assert judge(CODE, make.evidence(losses)).verdict == "pass"


def test_the_step_it_names_is_one_of_an_excursion(make, judge):
    result = judge(CODE, make.evidence(levels(3, 2, 2.3, 2, 2.3, *[2] * 6, 2.9)))
    assert result.measured["excursions"] == 2
    assert result.steps[0] in (6, 12)


@pytest.mark.parametrize("value", [0.0, 2.3, -1.0, 1e-300, 1e300])
def test_constant(value, make, judge):
    assert judge(CODE, make.evidence(np.full(100, value))).verdict == "pass"


def test_too_few_finite_points_are_skipped(healthy, make, judge):
    losses = healthy.descent(n=60)
    losses[RULE.min_points - 1 :] = np.nan
    assert judge(CODE, make.evidence(losses)).verdict == "SkippedProbe"


@pytest.mark.parametrize("name", ["bumps", "descent", "heavy_noise", "cosine_restarts", "all_negative"])
@settings(max_examples=20, deadline=None)
@given(exponent=st.integers(-60, 60))
def test_the_unit_of_the_loss_does_not_matter(name, exponent, healthy, make, judge):
    bumps = [(0.4, 0.07, 1.2), (0.6, 0.07, 1.2)]
    losses = curve(3, 400, 0.05, bumps) if name == "bumps" else getattr(healthy, name)(3)
    plainly, scaled = (judge(CODE, make.evidence(one)) for one in (losses, losses * 2.0**exponent))
    assert (scaled.verdict, scaled.measured["excursions"]) == (plainly.verdict, plainly.measured["excursions"])


@FEW
@given(
    seed=st.integers(0, 10**6),
    bumps=BUMPS,
    repeated=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    lasting=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)),
)
def test_higher_thresholds_never_find_more(seed, bumps, repeated, lasting, make, judge):
    """Of the heights this does not hold: above a higher one, a single excursion can become two."""
    losses = curve(seed, 200, 0.02, bumps)
    lower, higher = ({"repeated": f(repeated), "lasting_share": f(lasting)} for f in (min, max))
    if judge(CODE, make.evidence(losses), **lower).verdict == "pass":
        assert judge(CODE, make.evidence(losses), **higher).verdict == "pass"


def test_a_ramp_of_a_part_s_weight_is_no_excursion(make, judge):
    """A VAE's KL weight rises for seven eighths of the run; what follows is judged, if there is enough of it."""
    index = np.arange(400)
    noise = 1 + 0.01 * np.random.default_rng(9).standard_normal(400)
    for ramp, verdict in ((350, "pass"), (380, "SkippedProbe")):
        weight = np.minimum(1, index / ramp)
        losses = (60 + 40 * np.exp(-index / 15) + 40 * weight * (1 - np.exp(-index / 30))) * noise
        logged = make.series(weight, role="objective_weight", name="kl_weight")
        assert judge(CODE, make.evidence(losses)).verdict == "warn"
        assert judge(CODE, make.evidence(losses, logged)).verdict == verdict
    wild = losses.copy()
    early = make.series(np.minimum(1, index / 300), role="objective_weight", name="kl_weight")
    wild[300:] = wild[300] * np.where(index[300:] // 10 % 4 == 3, 3.0, 1.0)
    assert judge(CODE, make.evidence(wild, early)).verdict == "warn"


def test_a_climb_by_design_is_no_excursion(make, judge):
    """A queue of negatives fills, gradually; a leap to the same height is judged."""
    index, noise = np.arange(500), 1 + 0.01 * np.random.default_rng(0).standard_normal(500)
    descent = 9 - 5.0 * (1 - np.exp(-(index - 60) / 120))
    climb = np.where(index < 60, 2 + 7 * (index / 60), descent)
    leap = np.where(index < 60, 2.0, descent)
    assert judge(CODE, make.evidence(climb * noise)).verdict == "pass"
    assert judge(CODE, make.evidence(leap * noise)).verdict == "warn"


EPOCHS = [2.2, 1.8, 1.5, 1.3, 1.15, 1.05, 1.0, 0.95, 0.92, 0.9]
"""Ten epochs."""


@pytest.mark.parametrize(("at", "value", "verdict"), [
    (5, 2.1, "warn"), (8, 1.8, "warn"),
    (5, 1.5, "SkippedProbe"),  # not half of the way
    (9, 2.1, "SkippedProbe"),  # at the very end: for LOS004
    (3, 2.1, "SkippedProbe"),  # of three points before it no noise is known
])  # fmt: skip
def test_a_leap_in_a_few_points(at, value, verdict, make, judge):
    losses = np.array(EPOCHS)
    losses[at] = value
    result = judge(CODE, make.evidence(losses))
    assert result.verdict == verdict
    if verdict == "warn":
        assert f"leapt to {value:g} at step {at}, after {EPOCHS[at - 1]:g}" in result.message


@pytest.mark.parametrize(("length", "verdict"), [(1, "SkippedProbe"), (2, "warn"), (4, "warn")])
def test_a_leap_in_twenty_points_has_to_last(length, verdict, make, judge):
    losses = 0.9 + 1.3 * np.exp(-0.4 * np.arange(20))
    losses[12 : 12 + length] = 2.1
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize(("n", "length", "verdict"), [
    (30, 2, "pass"), (30, 3, "warn"), (45, 3, "warn"), (59, 2, "pass"), (59, 3, "warn"),
    (60, 3, "pass"),  # from here on blocks alone count
])  # fmt: skip
def test_a_leap_that_blocks_do_not_show_has_to_last_for_three_points(n, length, verdict, make, judge):
    losses = 0.9 + 1.3 * np.exp(-8.0 * np.arange(n) / n)
    at = n - 3 * (n // 6) - 1  # across two blocks
    losses[at : at + length] = 1.8
    assert judge(CODE, make.evidence(losses)).verdict == verdict


@pytest.mark.parametrize("n", [8, 12, 20, 29, 40, 59])
def test_the_noise_of_a_few_points_is_no_leap(n, make, judge):
    """Of flat, falling and stepwise noise."""
    index = np.arange(n)
    for level in (np.full(n, 2.0), 1.0 + np.exp(-4.0 * index / n), 2.0 - (index >= n // 2)):
        runs = [level + 0.1 * np.random.default_rng(seed).standard_normal(n) for seed in range(100)]
        assert [judge(CODE, make.evidence(losses)).verdict for losses in runs].count("warn") <= 2


def test_fewer_than_eight_points_are_too_few(make, judge):
    assert judge(CODE, make.evidence(EPOCHS[:7])).verdict == "SkippedProbe"


def naive_validation(values, first, plain, rule=RULE):
    """Whether the validation loss leapt and came back, and by how much that is met or missed."""
    start = max(first, values[0])
    if start - min(values) < 0.2 * start:
        return False, abs(start - min(values) - 0.2 * start)
    needed = max(
        rule.validation_share * (start - min(values)),
        0.1 * abs(min(values)),
        5.0 * plain.evaluation_noise(values),
    )
    heights = [
        min(value - min(values[: at + 1]), value - min(values[at:]))
        for at, value in enumerate(values)
        if at >= len(values) // 3
    ]
    return max(heights) > needed, abs(max(heights) - needed) / max(abs(needed), 1e-300)


@FEW
@given(
    values=st.lists(st.floats(0.01, 10.0), min_size=8, max_size=20), bump=st.floats(0.0, 20.0), at=st.integers(0, 19),
    first=st.floats(0.01, 20.0),
)  # fmt: skip
def test_validation_against_plain_python(values, bump, at, first, plain, make, judge):
    values[at % len(values)] += bump
    leapt, margin = naive_validation(values, first, plain)
    assume(margin > 1e-9 and abs(max(first, values[0]) * 0.8 - min(values)) > 1e-9)
    quiet = first * np.linspace(1.0, 0.5, 60)
    evidence = make.evidence(quiet, make.series(values, role="val_loss"))
    assert judge(CODE, evidence).verdict == ("warn" if leapt else "pass")


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, "warn"), ({"at": 2}, "pass"), ({"height": 0.9}, "pass"), ({"comes_back": False}, "pass"), ({"first": 20.0}, "pass"),
    ({"n": 7}, "pass"), ({"noise": 0.3}, "pass"), ({"n": 200, "at": 150}, "warn"),
])  # fmt: skip
def test_a_leap_of_the_validation_loss(change, verdict, make, judge):
    """After 2.0 it comes down to 0.3, and leaps by 1.3."""
    case = {"n": 12, "at": 7, "height": 1.3, "comes_back": True, "first": 2.0, "noise": 0.0} | change
    values = 0.3 + 1.7 * np.exp(-4.0 * np.arange(case["n"]) / case["n"])
    values += case["noise"] * np.random.default_rng(0).normal(size=case["n"])
    values[case["at"] % len(values) : None if not case["comes_back"] else case["at"] % len(values) + 1] += case[
        "height"
    ]
    quiet = case["first"] * np.linspace(1.0, 0.5, 60)
    result = judge(CODE, make.evidence(quiet, make.series(values, role="val_loss")))
    assert result.verdict == verdict
    assert verdict != "warn" or "validation loss leapt" in result.message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_validation_loss_beside_a_training_loss_without_a_number(value, make, judge):
    held_out = make.series(np.linspace(1.0, 0.5, 12), role="val_loss")
    result = judge(CODE, make.evidence(np.full(40, value), held_out))
    assert result.verdict in ("pass", "SkippedProbe")
