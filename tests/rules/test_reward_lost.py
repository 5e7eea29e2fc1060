"""RWD001."""

import math

import numpy as np
import pytest

CODE = "RWD001"


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("offset", [0.0, -200.0])
def test_rewards_that_rise(seed, unit, offset, make, judge):
    train = unit * (climb(seed=seed) + offset)
    held_out = unit * (climb(8, noise=0.5, seed=seed) + offset)
    for evidence in (run(make, train=train), run(make, held_out=held_out), run(make, train=train, held_out=held_out)):
        result = judge(CODE, evidence)
        assert result.verdict == "pass"
        assert "went from" in result.message


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
    assert result.verdict == "fail"
    assert "began at" in result.message
    assert "sign" in result.remedy


def test_lost_again(make, judge):
    train = np.concatenate([climb(60), np.full(40, 21.0)])
    result = judge(CODE, run(make, train=train))
    assert result.verdict == "warn"
    assert "rose from" in result.message
    assert "ended at 21" in result.message
    assert "checkpoint of the peak" in result.remedy


@pytest.mark.parametrize(("end", "verdict"), [(100.1 - 0.55 * 80, "SkippedProbe"), (100.1 - 0.65 * 80, "warn")])
def test_boundary_of_what_may_be_lost(end, verdict, make, judge):
    train = np.concatenate([np.full(20, 20.1), np.full(40, 100.1), np.full(40, end)])
    assert judge(CODE, run(make, train=train)).verdict == verdict


def test_an_evaluation_that_rises_answers_for_a_policy_that_explores(make, judge):
    train = np.linspace(-0.7, -1.1, 50)
    assert judge(CODE, run(make, train=train, held_out=[-0.8] * 4 + [0.8] * 6)).verdict == "pass"
    assert judge(CODE, run(make, train=train[::-1], held_out=[-0.8] * 10)).verdict == "pass"
    assert judge(CODE, run(make, train=np.full(50, -1.1))).verdict == "warn"


def test_an_evaluation_that_never_changed(make, judge):
    result = judge(CODE, run(make, train=[9.4, 9.5, 9.6] * 30, held_out=[9.2] * 10))
    assert result.verdict == "warn"
    assert "val_reward stayed at 9.2" in result.message
    worse = 8.5 + 0.1 * np.random.default_rng(1).standard_normal(90)
    assert judge(CODE, run(make, train=worse, held_out=[9.2] * 10)).verdict == "SkippedProbe"


def test_a_trained_policy_that_goes_on(make, judge):
    """Its evaluations scatter about the best there is, and nothing says so."""
    rng = np.random.default_rng(3)
    held_out, train = 2.3 + 0.3 * rng.standard_normal(12), 2.1 + 0.5 * rng.standard_normal(60)
    assert judge(CODE, run(make, train=train, held_out=held_out)).verdict == "SkippedProbe"


def test_a_task_that_was_solved_from_the_start(make, judge):
    solved = run(make, train=[500.0] * 90, held_out=[500.0] * 10, params={"env": "CartPole-v1"})
    assert judge(CODE, solved).verdict == "pass"
    assert judge(CODE, run(make, train=[500.0] * 90, held_out=[500.0] * 10)).verdict == "warn"


def test_a_curriculum_lowers_the_reward(make, judge):
    evidence = run(make, train=np.linspace(100, 20, 60))
    level = make.series(np.linspace(0, 5, 60), role="objective_weight", name="curriculum/level")
    harder = make.evidence(None, *evidence.series, level)
    assert judge(CODE, evidence).verdict == "fail"
    assert judge(CODE, harder).verdict == "SkippedProbe"


def test_too_few(make, judge):
    train = climb(start=100.0, end=20.0, noise=0.0)
    assert judge(CODE, run(make, train=train[:7], held_out=train[:4])).verdict == "SkippedProbe"
    assert judge(CODE, run(make)).verdict == "SkippedProbe"


def test_numbers_near_the_largest(make, judge):
    train = np.concatenate([np.full(50, 1.7e308), np.full(50, -1.7e308)])
    result = judge(CODE, run(make, train=train))
    assert result.verdict == "fail"
    assert all(math.isfinite(one) for one in result.measured.values())


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
        pytest.param(np.zeros(8), {}, "warn", id="the goal was never reached"),
        pytest.param(np.zeros(7), {}, "SkippedProbe", id="too few"),
        pytest.param(np.full(98, 500.0), {"params": {"env_id": "CartPole-v1"}}, "pass", id="its environment is solved"),
        pytest.param(np.r_[np.full(97, -0.82), -0.9], {}, "warn", id="one was different"),
        pytest.param(np.full(98, -0.82), {"params": {"base_model": "x"}}, "warn", id="of a trained policy, too"),
    ],
)
def test_a_reward_that_is_one_number(rewards, more, verdict, make, judge):
    assert judge(CODE, run(make, train=rewards, **more)).verdict == verdict


def test_one_number_beside_another_reward(make, judge):
    other = make.series([0.0, 10.0, 50.0, 90.0], [10, 40, 70, 100], role="val_reward")
    evidence = run(make, train=np.zeros(100))
    assert judge(CODE, make.evidence(None, *evidence.series, other)).verdict == "SkippedProbe"


def test_worked_example(make, judge):
    """From 20 up to 100 and back to 30: 70 of the 80 gained are lost, more than `lost_share`."""
    result = judge(
        CODE, run(make, train=np.concatenate([np.linspace(20.5, 100.5, 40), np.full(20, 100.5), np.full(40, 30.5)]))
    )
    assert result.verdict == "warn"
    assert result.message.endswith("to 100 at step 40 and ended at 30.5")
