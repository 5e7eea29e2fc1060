"""RWD002 to RWD020: policies, and what is seen of them beside their reward."""

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


def run(make, *, names=None, params=None, **roles):
    series = [
        make.series(values, STEPS[-len(values) :], role=role, name=(names or {}).get(role, role))
        for role, values in roles.items()
    ]
    loss = make.series(-0.01 * np.ones(N), STEPS, role="objective_loss")
    return make.evidence(None, loss, *series, params=params or {})


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
    pytest.param("RWD005", {"train_reward": noisy(FALLS), "kl": noisy(line(0.01, 0.8), 0.01)}, id="a straight line"),
    pytest.param("RWD005", {"train_reward": noisy(RISES), "kl": noisy(line(0.0, 30.0))}, id="summed over an answer"),
    pytest.param("RWD006", {"train_reward": noisy(FALLS), "clip_fraction": noisy(line(0.1, 0.35))}, id="much, not most"),
    pytest.param("RWD007", {"train_reward": noisy(RISES), "cut_share": np.full(N, 0.1)}, id="some are cut"),
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


RIGHT, APPROX = {"names": {"reward_part": "rewards/correct"}}, {"names": {"kl": "train/approx_kl"}}
FAST = 0.3 + 0.5 * (1.0 - np.exp(-STEPS / 3.0))
GONE = 0.02 + 1.48 * np.exp(-STEPS / 3.0)
CARTPOLE = {"params": {"env_id": "CartPole-v1"}}
BESIDE_A_RISE = [
    pytest.param(
        "RWD004",
        {"train_reward": noisy(FAST), "entropy": noisy(GONE, 0.002), "reward_part": noisy(FAST), **RIGHT},
        {"train_reward": noisy(FAST), "entropy": noisy(GONE, 0.002), "reward_part": noisy(FAST) + 0.18, **RIGHT},
        id="the entropy is gone, and answers are not right",
    ),
    pytest.param(
        "RWD005",
        {"train_reward": noisy(leap(0.3, 0.9, 10) - leap(0.0, 0.3, 30)), "kl": leap(0.02, 0.8, 30), **APPROX},
        {"train_reward": noisy(RISES), "kl": leap(0.02, 0.8, 30), **APPROX},
        id="updates are far too large, and some of the reward is lost",
    ),
    pytest.param(
        "RWD005",
        {"train_reward": noisy(RISES), "kl": noisy(line(0, 3)), "val_reward": noisy(STAYS)},
        {"train_reward": noisy(RISES), "kl": noisy(line(0, 3)), "val_reward": noisy(RISES)},
        id="far from the reference, and held-out answers are no better",
    ),
    pytest.param(
        "RWD007",
        {"train_reward": noisy(RISES), "cut_share": noisy(leap(0.05, 0.3))},
        {"train_reward": noisy(RISES), "cut_share": noisy(leap(0.02, 0.1))},
        id="a quarter of the answers is cut off",
    ),
    pytest.param(
        "RWD007",
        {"train_reward": noisy(RISES), "response_length": line(90, 198), "val_reward": noisy(STAYS),
         "params": {"max_completion_length": "200"}},
        {"train_reward": noisy(RISES), "response_length": line(90, 198), "val_reward": noisy(RISES),
         "params": {"max_completion_length": "200"}},
        id="answers fill the limit, and are no better",
    ),
    pytest.param(
        "RWD008",
        {"train_reward": noisy(RISES), "val_reward": noisy(STAYS)},
        {"train_reward": noisy(RISES), "val_reward": noisy(STAYS) + 0.55},
        id="a held-out reward stands",
    ),
    pytest.param(
        "RWD008",
        {"train_reward": noisy(RISES), "reward_part": noisy(RISES), "val_reward": noisy(FALLS), **RIGHT},
        {"train_reward": noisy(RISES), "reward_part": noisy(RISES), "val_reward": noisy(RISES), **RIGHT},
        id="more answers are right in training, and fewer held-out ones",
    ),
    pytest.param(
        "RWD009",
        {"margin": noisy(line(0, 3)), "val_accuracy": noisy(line(0.2, 0.1))},
        {"margin": noisy(line(0, 3)), "val_accuracy": noisy(leap(0.1, 0.9, 8))},
        id="held-out pairs are swapped",
    ),
    pytest.param(
        "RWD017",
        {"train_reward": noisy(RISES), "reward_part": noisy(np.full(N, 0.02), 0.002), "response_length": STAYS},
        {"train_reward": noisy(RISES), "reward_part": 0.02 + 0.2 * RISES, "response_length": STAYS},
        id="a part of the reward stands",
    ),
    pytest.param(
        "RWD018",
        {"train_reward": noisy(RISES), "flat_share": noisy(line(0.7, 0.8))},
        {"train_reward": noisy(RISES), "flat_share": noisy(line(0.1, 0.8))},
        id="groups agree from the beginning on",
    ),
    pytest.param(
        "RWD019",
        {"train_reward": noisy(STAYS), "learning_rate": np.full(N, 0.1)},
        {"train_reward": noisy(RISES), "learning_rate": np.full(N, 0.1)},
        id="a rate that no policy trains with",
    ),
    pytest.param(
        "RWD020",
        {"train_reward": noisy(np.full(N, 22.0), 1.0), **CARTPOLE},
        {"train_reward": noisy(line(22.0, 120.0), 1.0), **CARTPOLE},
        id="never rose, where it is known that it could",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "faulty", "healthy"), BESIDE_A_RISE)
def test_what_is_wrong_while_the_reward_rises(code, faulty, healthy, make, judge):
    assert judge(code, run(make, **faulty)).verdict == "warn"
    assert judge(code, run(make, **healthy)).verdict == "pass"


def test_a_running_mean_that_drifts_says_nothing(make, judge):
    """An actor that never moved, by the means of its last hundred episodes: they share nearly all of these."""
    rng = np.random.default_rng(3)
    episodes = -500.0 + 100.0 * (rng.random(200) > 0.95)
    means = [episodes[max(0, at - 100) : at].mean() for at in range(40, 200, 4)]
    reward = make.series(means, 2000 * STEPS, role="train_reward", name="rollout/ep_rew_mean")
    length = make.series(np.full(N, 500.0), 2000 * STEPS, role="episode_length", name="rollout/ep_len_mean")
    spread = make.series(STAYS, 2000 * STEPS, role="reward_spread")
    evidence = make.evidence(None, reward, length, spread)
    assert judge("RWD001", evidence).verdict == "SkippedProbe"
    assert judge("RWD003", evidence).verdict != "pass"


def test_a_rise_alone_does_not_vouch():
    from tracker_health.rules.registry import BUILT_IN

    assert not next(rule for rule in BUILT_IN if rule.code == "RWD003").vouches
