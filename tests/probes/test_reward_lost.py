"""RWD001."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tracker_health.probes.reward_lost import RewardLost

CODE = "RWD001"
RULE = RewardLost()
FEW = settings(max_examples=80, deadline=None)


def climb(n=100, *, start=20.0, end=100.0, pace=4.0, noise=6.0, seed=0):
    """Rewards of episodes: noisy, and better and better up to a ceiling."""
    levels = end - (end - start) * np.exp(-pace * np.arange(n) / n)
    return np.minimum(levels + noise * np.random.default_rng(seed).standard_normal(n), max(start, end))


def run(make, *, train=None, held_out=None, **more):
    """Evidence with the rewards of training episodes at every step, and those of evaluations evenly between."""
    series = [make.series(-0.01 * np.ones(100), role="objective_loss")]
    if train is not None:
        series.append(make.series(train, np.arange(1, len(train) + 1), role="train_reward"))
    if held_out is not None:
        steps = np.linspace(100 / len(held_out), 100, len(held_out)).round()
        series.append(make.series(held_out, steps, role="val_reward"))
    return make.evidence(None, *series, **more)


# Once more, in plain Python


def naive(values, fewest, *, held_out=False):
    """Start, peak, end, whether it rose (and far), whether it was lost, and how far each condition is from its bar."""
    n = len(values)
    if n < fewest:
        return None
    mean = statistics.fmean
    first, last = max(2, n // 10), max(2, n // 4)
    start, end = mean(values[:first]), mean(values[-last:])
    parts, at = min(10, n // 2), 0
    peak = max(start, end)
    for k in range(parts):  # the first ones have a value more
        size = n // parts + (k < n % parts)
        peak, at = max(peak, mean(values[at : at + size])), at + size
    ordered = sorted(values)

    def quantile(q):
        place = q * (n - 1)
        low = math.floor(place)
        high = min(low + 1, n - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    span = quantile(0.95) - quantile(0.05)
    changes = [b - a for a, b in itertools.pairwise(values)]
    error = statistics.pstdev(changes) / math.sqrt(2) * math.sqrt(1 / first + 1 / last)
    levels, at = [], 0
    for k in range(m := min(20, n // 2)):
        size = n // m + (k < n % m)
        levels, at = [*levels, mean(values[at : at + size])], at + size
    apart = max(1, m // 10)
    waves = [abs(b - a) for a, b in zip(levels, levels[apart:], strict=False)]
    error = (
        error if held_out else max(error, 1.4826 * statistics.median(waves or [0.0]) / math.sqrt(2) * math.sqrt(1.4))
    )
    size = max(abs(start), abs(peak), abs(end))
    kept = max(end, values[-1]) if held_out else end
    sure = max(RULE.least_fall * span, 4 * error)
    down, below, gain = peak - kept, start - kept, peak - start
    lost = down > max(sure, 0.1 * size) and (below > sure or (gain > 4 * error and down >= RULE.lost_share * gain))
    bars = [down - sure, down - 0.1 * size, below - sure, gain - 4 * error, down - RULE.lost_share * gain]
    rise, far = max(0.1 * span, 2 * error), max(0.5 * span, 4 * error)
    rose = end - start > rise
    low = min(values)
    floor = last >= 5 and max(values) > low and sum(one == low for one in values[-last:]) >= 0.9 * last
    lost = lost or ("floor" if floor and not rose else False)
    return start, peak, end, rose, rose and end - start > far, lost, [*bars, end - start - rise, end - start - far]


REWARDS = st.lists(st.floats(-100, 100), min_size=5, max_size=60)


@FEW
@example(held_out=[67.6, 62.5, 51.8, 23.4, 23.1, 23.2, 24.7], train=[20.0] * 20)
@example(held_out=[1.0] * 5, train=[1.0, 2.0] * 20)
@given(held_out=REWARDS, train=REWARDS)
def test_against_plain_python(held_out, train, make, judge):
    one, other = naive(held_out, 5, held_out=True), naive(train, 20)
    assume(all(abs(bar) > 1e-9 for found in (one, other) if found for bar in found[-1]))
    size = max(map(abs, [*one[:3], *(other or one)[:3]]))
    assume(other is None or abs(other[2] - one[2] - 0.02 * size) > 1e-9)
    never = len(set(held_out)) == 1 and other and not other[3] and other[2] - one[2] > 0.02 * size
    if one[5] or never or (not one[3] and other and other[5]):
        verdict = "warn"
    else:
        verdict = "pass" if one[4] or (other and other[4]) else "SkippedProbe"
    result = judge(CODE, run(make, train=train, held_out=held_out))
    assert result.verdict == verdict
    if verdict == "warn" and one[5]:
        assert result.measured == pytest.approx({"start": one[0], "peak": one[1], "end": one[2]}, abs=1e-9)


# Healthy, sick, and almost


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("offset", [0.0, -200.0])
def test_rewards_that_rise(seed, unit, offset, make, judge):
    train = unit * (climb(seed=seed) + offset)
    held_out = unit * (climb(8, noise=0.5, seed=seed) + offset)
    for evidence in (run(make, train=train), run(make, held_out=held_out), run(make, train=train, held_out=held_out)):
        result = judge(CODE, evidence)
        assert result.verdict == "pass"
        assert "rose from" in result.message


def test_a_dip_in_the_middle_and_a_wobble_at_the_top(make, judge):
    dip = climb(200)
    dip[90:120] = 25.0
    wobble = climb(200)
    wobble[150:] -= 15.0 * (np.arange(50) % 2)
    late = np.concatenate([np.full(150, -1.2), np.linspace(-1.2, 0.8, 20), np.full(30, 0.8)])
    for train in (dip, wobble, late):
        assert judge(CODE, run(make, train=train)).verdict == "pass"


@pytest.mark.parametrize("seed", range(5))
def test_below_its_beginning(seed, make, judge):
    """A wrong sign: from what a random policy gets down to the least there is."""
    result = judge(CODE, run(make, train=climb(start=22.0, end=9.3, pace=10.0, noise=1.0, seed=seed)))
    assert result.verdict == "warn"
    assert "began at" in result.message
    assert "sign" in result.remedy


def test_lost_again(make, judge):
    train = np.concatenate([climb(60), np.full(40, 21.0)])
    result = judge(CODE, run(make, train=train))
    assert result.verdict == "warn"
    assert "rose from" in result.message
    assert "ended at 21" in result.message
    assert "checkpoint of the peak" in result.remedy


@pytest.mark.parametrize(("end", "verdict"), [(100.0 - 0.55 * 80, "SkippedProbe"), (100.0 - 0.65 * 80, "warn")])
def test_boundary_of_what_may_be_lost(end, verdict, make, judge):
    train = np.concatenate([np.full(20, 20.0), np.full(40, 100.0), np.full(40, end)])
    assert judge(CODE, run(make, train=train)).verdict == verdict


def test_an_evaluation_that_rises_answers_for_a_policy_that_explores(make, judge):
    train = np.linspace(-0.7, -1.1, 50)
    assert judge(CODE, run(make, train=train, held_out=[-0.8] * 4 + [0.8] * 6)).verdict == "pass"
    assert judge(CODE, run(make, train=train[::-1], held_out=[-0.8] * 10)).verdict == "pass"
    assert judge(CODE, run(make, train=np.full(50, -1.1))).verdict == "warn"


def test_no_reward_ever_rose(make, judge):
    assert judge(CODE, run(make, train=[-1.2] * 90, held_out=[-0.8] * 10)).verdict == "SkippedProbe"  # it explores
    result = judge(CODE, run(make, train=[9.4, 9.5, 9.6] * 30, held_out=[9.2] * 10))
    assert result.verdict == "warn"
    assert "no reward rose" in result.message


def test_an_evaluation_that_came_back_is_of_the_policy_that_is_kept(make, judge):
    held_out = [25.0, 60.0, *[100.0] * 8, 40.0, 25.0, 30.0, 28.0, 33.0, 31.0, 30.0, 29.0, 30.0, 28.0]
    assert judge(CODE, run(make, held_out=held_out)).verdict == "warn"
    assert judge(CODE, run(make, held_out=[*held_out[:-1], 92.0])).verdict == "SkippedProbe"


def test_a_trained_policy_that_goes_on(make, judge):
    """Its evaluations scatter about the best there is, and nothing says so."""
    rng = np.random.default_rng(3)
    held_out, train = 2.3 + 0.3 * rng.standard_normal(12), 2.1 + 0.5 * rng.standard_normal(60)
    assert judge(CODE, run(make, train=train, held_out=held_out)).verdict == "SkippedProbe"


def test_a_task_that_was_solved_from_the_start(make, judge):
    assert judge(CODE, run(make, train=[500.0] * 90, held_out=[500.0] * 10)).verdict == "SkippedProbe"
    tuned = run(make, train=[0.6, 0.7] * 45, held_out=[0.9] * 10, params={"base_model": "some/model"})
    assert judge(CODE, tuned).verdict == "SkippedProbe"


def test_a_curriculum_lowers_the_reward(make, judge):
    evidence = run(make, train=np.linspace(100, 20, 60))
    level = make.series(np.linspace(0, 5, 60), role="objective_weight", name="curriculum/level")
    harder = make.evidence(None, *evidence.series, level)
    assert judge(CODE, evidence).verdict == "warn"
    assert judge(CODE, harder).verdict == "SkippedProbe"


def test_too_few_or_none_of_the_beginning(make, judge):
    train = climb(start=100.0, end=20.0, noise=0.0)
    late = make.series(train, np.arange(1000, 1100), role="train_reward")
    assert judge(CODE, make.evidence(None, late)).verdict == "SkippedProbe"
    assert judge(CODE, run(make, train=train[:19], held_out=train[:4])).verdict == "SkippedProbe"
    assert judge(CODE, run(make)).verdict == "SkippedProbe"


def test_numbers_near_the_largest(make, judge):
    train = np.concatenate([np.full(50, 1.7e308), np.full(50, -1.7e308)])
    result = judge(CODE, run(make, train=train))
    assert result.verdict == "warn"
    assert all(math.isfinite(one) for one in result.measured.values())


@pytest.mark.parametrize(("train", "verdict"), [
    ([*[-150.0, -180.0] * 10, *[-200.0] * 80], "warn"), ([*[-200.0] * 99, -190.0, *[-200.0] * 100], "warn"),
    ([*[-200.0] * 70, *[-150.0] * 30], "pass"), ([-200.0] * 100, "warn"), ([*[-190.0] * 10, *[-200.0] * 9], "SkippedProbe"),
    ([-190.0, *[-200.0] * 9, *[-200.0, -195.0] * 20], "SkippedProbe"),
])  # fmt: skip
def test_at_the_lowest_that_there_is(train, verdict, make, judge):
    """Most episodes end when their time is over; now and then one does not."""
    result = judge(CODE, run(make, train=train))
    assert result.verdict == verdict
    assert verdict != "warn" or "ended at -200" in result.message or "is -200 at all 100 points" in result.message


def test_a_policy_that_explores_may_stay_at_the_lowest(make, judge):
    held_out = [-200.0] * 10 + [-120.0] * 10
    assert judge(CODE, run(make, train=[-190.0, *[-200.0] * 60], held_out=held_out)).verdict == "pass"


@pytest.mark.parametrize("per_row", [8, 30])
@pytest.mark.parametrize(("level", "noise"), [(0.0, 1.0), (-180.0, 110.0), (300.0, 150.0)])
def test_means_of_the_last_hundred_episodes_of_a_policy_that_stays_as_it_is(level, noise, per_row, make, judge):
    for seed in range(10):
        episodes = level + noise * np.random.default_rng(seed).standard_normal(100 + 150 * per_row)
        train = [episodes[per_row * row : per_row * row + 100].mean() for row in range(150)]
        assert judge(CODE, run(make, train=train)).verdict != "warn"


@pytest.mark.parametrize(
    ("rewards", "more", "verdict"),
    [
        pytest.param(np.full(98, -0.82), {}, "warn", id="every episode runs out of time"),
        pytest.param(np.zeros(50), {}, "warn", id="the goal was never reached"),
        pytest.param(np.zeros(49), {}, "SkippedProbe", id="too few"),
        pytest.param(np.full(98, 500.0), {}, "SkippedProbe", id="it may be the highest there is"),
        pytest.param(np.r_[np.full(97, -0.82), -0.9], {}, "SkippedProbe", id="one was different"),
        pytest.param(np.full(98, -0.82), {"params": {"base_model": "x"}}, "SkippedProbe", id="a trained policy"),
    ],
)
def test_a_reward_that_is_one_number(rewards, more, verdict, make, judge):
    assert judge(CODE, run(make, train=rewards, **more)).verdict == verdict


@pytest.mark.parametrize("role", ["val_reward", "train_reward"])
def test_one_number_beside_another_reward(role, make, judge):
    other = make.series([0.0, 10.0, 50.0, 90.0], [10, 40, 70, 100], role=role, name="another")
    evidence = run(make, train=np.zeros(100))
    assert judge(CODE, make.evidence(None, *evidence.series, other)).verdict == "SkippedProbe"
