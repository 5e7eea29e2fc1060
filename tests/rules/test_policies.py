"""RWD002 to RWD010: policies, and what is seen of them beside their reward."""

import numpy as np
import pytest

N = 40
STEPS = np.arange(1, N + 1)
RISES = 0.3 + 0.5 * (1.0 - np.exp(-STEPS / 10.0))
STAYS = np.full(N, 0.4)
FALLS = RISES[::-1]
TO_A_LEVEL = 0.4 + 1.1 * np.exp(-STEPS / 8.0)


def noisy(level, noise=0.02, seed=0):
    return level + noise * np.random.default_rng(seed).standard_normal(len(level))


def leap(low, high, at=20):
    """From one level to another, at a step."""
    return np.where(at > STEPS, low, high).astype(float)


def line(start, end):
    return np.linspace(start, end, N)


def run(make, **roles):
    series = [make.series(values, STEPS[-len(values) :], role=role) for role, values in roles.items()]
    return make.evidence(None, make.series(-0.01 * np.ones(N), STEPS, role="objective_loss"), *series)


HEALTHY = {
    "RWD002": {"train_reward": RISES, "flat_share": noisy(line(0.1, 0.4))},
    "RWD003": {"train_reward": noisy(RISES), "reward_spread": noisy(STAYS)},
    "RWD004": {"train_reward": noisy(RISES), "entropy": noisy(TO_A_LEVEL)},
    "RWD005": {"train_reward": noisy(RISES), "kl": noisy(line(0.001, 0.2), 0.005)},
    "RWD006": {"train_reward": noisy(RISES), "clip_fraction": noisy(line(0.1, 0.2))},
    "RWD007": {"train_reward": noisy(RISES), "cut_share": noisy(line(0.1, 0.05)), "response_length": line(100, 180)},
    "RWD008": {"train_reward": noisy(RISES), "reward_part": noisy(RISES), "val_reward": noisy(RISES)},
    "RWD009": {"margin": noisy(line(0, 3)), "chosen_logp": noisy(line(-90, -70), 3), "rejected_logp": line(-90, -200)},
    "RWD010": {"train_reward": noisy(RISES), "explained_variance": noisy(line(-0.5, 0.8))},
}
FAULTY = {
    "RWD002": {"train_reward": noisy(STAYS), "flat_share": np.ones(N)},
    "RWD003": {"train_reward": noisy(STAYS), "reward_spread": noisy(STAYS)},
    "RWD004": {"train_reward": noisy(FALLS), "entropy": noisy(1.5 * np.exp(-STEPS / 8.0))},
    "RWD005": {"train_reward": noisy(FALLS), "kl": noisy(leap(0.05, 3.0), 0.005)},
    "RWD006": {"train_reward": noisy(FALLS), "clip_fraction": noisy(leap(0.2, 0.8))},
    "RWD007": {"train_reward": noisy(FALLS), "cut_share": noisy(leap(0.1, 0.95))},
    "RWD008": {"train_reward": noisy(RISES), "reward_part": noisy(FALLS)},
    "RWD009": {"margin": np.zeros(N), "chosen_logp": noisy(line(-90, -80))},
    "RWD010": {"train_reward": noisy(FALLS), "explained_variance": noisy(leap(-0.5, -0.9))},
}
NEAR_MISSES = [
    pytest.param("RWD002", {"train_reward": noisy(RISES), "flat_share": leap(0.2, 1.0, 10)}, id="the task is solved"),
    pytest.param("RWD002", {"train_reward": noisy(STAYS), "flat_share": noisy(leap(0.7, 0.75))}, id="some groups differ"),
    pytest.param("RWD003", {"train_reward": noisy(STAYS, 0.3), "reward_spread": noisy(STAYS)}, id="noise hides a rise"),
    pytest.param("RWD003", {"train_reward": noisy(STAYS), "kl": [*np.zeros(N - 1), 1e-9]}, id="it moved a bit"),
    pytest.param("RWD004", {"train_reward": noisy(FALLS), "entropy": noisy(TO_A_LEVEL)}, id="a level is kept"),
    pytest.param("RWD004", {"train_reward": noisy(RISES), "entropy": noisy(1.5 * np.exp(-STEPS / 8.0))}, id="solved"),
    pytest.param("RWD004", {"train_reward": noisy(FALLS), "entropy": noisy(line(-2, -9))}, id="continuous actions"),
    pytest.param("RWD005", {"train_reward": noisy(FALLS), "kl": noisy(line(0.01, 2.0), 0.01)}, id="a straight line"),
    pytest.param("RWD005", {"train_reward": noisy(RISES), "kl": noisy(line(0.0, 30.0))}, id="summed over an answer"),
    pytest.param("RWD006", {"train_reward": noisy(FALLS), "clip_fraction": noisy(line(0.1, 0.35))}, id="much, not most"),
    pytest.param("RWD007", {"train_reward": noisy(RISES), "cut_share": np.ones(N)}, id="all have the limit's length"),
    pytest.param("RWD007", {"train_reward": noisy(RISES), "response_length": line(100, 900)}, id="longer and better"),
    pytest.param("RWD008", {"train_reward": noisy(RISES), "reward_part": noisy(line(0.5, 0.45))}, id="a little worse"),
    pytest.param("RWD008", {"train_reward": noisy(STAYS), "reward_part": noisy(FALLS)}, id="nothing was gained"),
    pytest.param(
        "RWD009",
        {"margin": noisy(line(0, 3)), "chosen_logp": noisy(line(-90, -110), 3), "rejected_logp": line(-90, -200)},
        id="chosen answers fall a little",
    ),
    pytest.param("RWD010", {"train_reward": noisy(FALLS), "explained_variance": noisy(leap(-0.9, 0.1))}, id="it learnt"),
]  # fmt: skip


@pytest.mark.parametrize("code", HEALTHY)
def test_healthy(code, make, judge):
    assert judge(code, run(make, **HEALTHY[code])).verdict == "pass"


@pytest.mark.parametrize("code", FAULTY)
def test_faulty(code, make, judge):
    result = judge(code, run(make, **FAULTY[code]))
    assert result.verdict in ("fail", "warn")
    assert result.remedy
    assert result.steps
    assert result.confidence == "high"


@pytest.mark.parametrize(("code", "roles"), NEAR_MISSES)
def test_near_misses(code, roles, make, judge):
    assert judge(code, run(make, **roles)).verdict in ("pass", "SkippedProbe")


@pytest.mark.parametrize("code", [code for code in FAULTY if code not in ("RWD002", "RWD009")])
def test_few_points_are_unsure(code, make, judge):
    """Of every fifth point less is said, and never with confidence."""
    result = judge(code, run(make, **{role: values[::5] for role, values in FAULTY[code].items()}))
    assert result.verdict in ("pass", "warn", "SkippedProbe")
    assert getattr(result, "confidence", "low") == "low" or result.verdict == "pass"


@pytest.mark.parametrize(("role", "values"), [("reward_spread", np.full(N, 1e-9)), ("grad_norm", np.zeros(N))])
def test_other_signs_of_silence(role, values, make, judge):
    """A trainer may log no share of groups, and round a spread of 0."""
    assert judge("RWD002", run(make, train_reward=np.full(N, 0.7), **{role: values})).verdict == "fail"


def test_a_policy_that_never_left_its_reference(make, judge):
    result = judge("RWD003", run(make, train_reward=noisy(STAYS, 0.3), kl=np.zeros(N)))
    assert result.verdict == "warn"
    assert "never left its reference" in result.message


def test_the_divergence_from_the_last_policy_may_be_zero(make, judge):
    kl = make.series(np.zeros(N), STEPS, role="kl", name="actor/ppo_kl")
    evidence = run(make, train_reward=noisy(STAYS, 0.3))
    assert judge("RWD003", make.evidence(None, *evidence.series, kl)).verdict == "SkippedProbe"


def test_answers_that_grow_into_the_limit_while_the_reward_rises(make, judge):
    result = judge("RWD007", run(make, train_reward=noisy(RISES), cut_share=noisy(leap(0.05, 0.95))))
    assert result.verdict == "warn"
    assert "grew into the limit" in result.message


@pytest.mark.parametrize(("end", "verdict"), [(10, "warn"), (400, "warn"), (60, "pass"), (180, "pass")])
def test_lengths_that_change_for_nothing(end, verdict, make, judge):
    assert judge("RWD007", run(make, train_reward=noisy(STAYS), response_length=line(100, end))).verdict == verdict


def test_rejected_answers_are_preferred(make, judge):
    assert judge("RWD009", run(make, margin=noisy(line(0, -3)))).verdict == "fail"


def test_chosen_answers_became_unlikely(make, judge):
    margin, chosen, rejected = noisy(line(0, 3)), noisy(line(-90, -200), 3), noisy(line(-90, -260), 3)
    result = judge("RWD009", run(make, margin=margin, chosen_logp=chosen, rejected_logp=rejected))
    assert result.verdict == "warn"
    assert "chosen answers became unlikely" in result.message


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("code", sorted(HEALTHY))
def test_the_unit_of_the_reward_does_not_matter(code, unit, make, judge):
    for cases in (HEALTHY, FAULTY):
        roles = {role: unit * values if "reward" in role else values for role, values in cases[code].items()}
        assert judge(code, run(make, **roles)).verdict == judge(code, run(make, **cases[code])).verdict


def test_held_out_pairs_are_preferred_as_by_chance(make, judge):
    roles = {
        "margin": noisy(line(0, 3)),
        "train_accuracy": noisy(line(0.5, 0.9)),
        "val_accuracy": noisy(line(0.5, 0.5)),
    }
    assert judge("RWD009", run(make, **roles)).verdict == "warn"
    assert judge("RWD009", run(make, **roles | {"val_accuracy": noisy(line(0.5, 0.65))})).verdict == "pass"


def test_answers_that_became_empty_while_the_reward_rose(make, judge):
    roles = {"train_reward": noisy(RISES), "response_length": noisy(leap(40, 1)), "cut_share": np.zeros(N)}
    assert judge("RWD007", run(make, **roles)).verdict == "warn"
    assert judge("RWD007", run(make, **roles | {"response_length": line(40, 12)})).verdict == "pass"


def test_a_logarithm_of_the_actions_spread_is_none(make, judge):
    assert judge("RWD012", run(make, policy_std=line(-0.5, -2.0))).verdict == "SkippedProbe"
