"""GEN007 to GEN011: held-out scores, whatever they are called; and what is said of parts, growth and odd metrics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import Config
from tracker_health.judge.engine import diagnose

N = 20
FALLS = 2.3 * np.exp(-np.arange(200) / 60) + 0.3 + 0.01 * np.sin(7 * np.arange(200))
NAMES = {
    "val_accuracy": "val/accuracy",
    "val_auc": "val/auc",
    "higher_better_val": "val/f1",
    "lower_better_val": "val/wer",
}
RISES = 0.8 - 0.6 * np.exp(-np.arange(N) / 4)


def score(make, values, role="higher_better_val", name=None):
    return make.series(values, 10 * (1 + np.arange(len(values))), role=role, name=name or NAMES[role])


def ends(role):
    """The best and the worst value of a score."""
    best, worst = (0.0, 1.0) if role == "lower_better_val" else (1.0, 0.0)
    return best, 0.5 if role == "val_auc" else worst


@pytest.mark.parametrize("role", NAMES)
@pytest.mark.parametrize("kind", ["nan", "worst", "one number", "falls"])
@given(noise=st.floats(0.0, 0.02), many=st.integers(10, 60), level=st.sampled_from([0.137, 0.37, 0.7]))
def test_none_of_these_passes_as_judged(role, kind, noise, many, level, make):
    """NaN, the worst value, one value throughout, and a fall from the best to the worst: of each held-out role."""
    best, worst = ends(role)
    rough = noise * np.random.default_rng(many).standard_normal(many)
    values = {
        "nan": np.full(many, np.nan),
        "worst": np.full(many, worst),
        "one number": np.full(many, level),
        "falls": np.clip(np.linspace(best, worst, many) + rough, 0.0, 1.0),
    }[kind]
    report = diagnose(make.evidence(FALLS, score(make, values, role)), Config())
    judged = [one.part for one in report.judged if one.state == "judged"]
    assert str(report.verdict) != "pass" or "accuracy or reward" not in judged


@pytest.mark.parametrize("role", NAMES)
@given(noise=st.floats(0.0, 0.05), many=st.integers(4, 60), seed=st.integers(0, 99))
def test_a_score_that_gets_better_passes(role, noise, many, seed, make):
    best, worst = ends(role)
    way = 0.85 * (1.0 - np.exp(-4 * np.arange(many) / many))
    values = worst + (best - worst) * way + noise * np.random.default_rng(seed).standard_normal(many)
    report = diagnose(make.evidence(FALLS, score(make, np.clip(values, 0.0, 1.0), role)), Config())
    assert [one.code for one in report.findings if one.code in ("GEN007", "GEN008", "GEN009", "GEN010", "GEN011")] == []


def test_an_accuracy_of_0_throughout_says_nothing(make):
    """A regression that was given an accuracy to log: that part was not judged, and the run passes."""
    report = diagnose(
        make.evidence(FALLS, score(make, np.zeros(N), "val_accuracy")), Config(ignore=frozenset({"GEN004"}))
    )
    assert str(report.verdict) == "pass"
    assert "accuracy or reward" not in [one.part for one in report.judged if one.state == "judged"]


@pytest.mark.parametrize(
    ("losses", "scores", "verdict"),
    [
        (FALLS, [np.zeros(N)], "warn"),
        (FALLS, [np.zeros(N), np.zeros(N)], "warn"),
        (FALLS, [np.zeros(N), RISES], "pass"),  # one of several is a matter of its threshold
        (FALLS, [np.r_[np.zeros(15), 0.1 * np.arange(5)]], "pass"),  # it began late
        (FALLS[::-1], [np.zeros(N)], "pass"),  # the loss did not fall: others say so
        (FALLS, [np.zeros(3)], "SkippedProbe"),
        (FALLS, [np.full(N, -2.0)], "SkippedProbe"),  # no share: nobody knows its worst value
    ],
)
def test_scores_at_their_worst(losses, scores, verdict, make, judge):
    logged = [score(make, one, name=f"val/f1_{at}") for at, one in enumerate(scores)]
    assert judge("GEN008", make.evidence(losses, *logged)).verdict == verdict


def test_error_rates_near_all_wrong(make, judge):
    wrong = 97.0 + 0.5 * np.sin(np.arange(N))
    beside = score(make, 60.0 - np.arange(N), "lower_better_val", "val/cer")
    found = judge("GEN008", make.evidence(FALLS, score(make, wrong, "lower_better_val"), beside))
    assert (found.verdict, found.measured["at_worst"]) == ("warn", N)


def test_the_few_evaluations_of_a_short_run_make_it_unsure(make, judge):
    found = judge("GEN008", make.evidence(FALLS, score(make, np.zeros(5))))
    assert (found.verdict, found.confidence) == ("warn", "low")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (RISES - 0.04 * np.clip(np.arange(N) - 9, 0, None), "warn"),
        (RISES - 0.002 * np.clip(np.arange(N) - 9, 0, None), "pass"),  # as much as noise is
        (np.r_[RISES[:10], 0.1, RISES[11:]], "pass"),  # one evaluation
        (RISES[:7], "SkippedProbe"),
    ],
)
def test_scores_that_are_lost(values, verdict, make, judge):
    assert judge("GEN009", make.evidence(FALLS, score(make, values))).verdict == verdict


def test_one_of_several_scores_that_falls_is_a_matter_of_its_threshold(make, judge):
    falls = RISES - 0.04 * np.clip(np.arange(N) - 9, 0, None)
    logged = [
        score(make, one, name=f"val/{name}") for name, one in (("precision", falls), ("recall", RISES), ("f1", RISES))
    ]
    assert judge("GEN009", make.evidence(FALLS, *logged)).verdict == "pass"


@pytest.mark.parametrize(("car", "road", "verdict"), [
    (np.zeros(8), RISES[:8], "warn"), (np.r_[np.zeros(7), 0.1], RISES[:8], "pass"), (np.zeros(8), np.zeros(8), "pass"),
])  # fmt: skip
def test_a_class_at_zero(car, road, verdict, make, judge):
    logged = [score(make, car, name="val/IoU.car"), score(make, road, name="val/IoU.road")]
    assert judge("GEN010", make.evidence(FALLS, *logged)).verdict == verdict


@pytest.mark.parametrize(
    ("bad", "verdict"), [(range(20), "warn"), (range(15, 20), "warn"), ((3,), "pass"), ((19,), "warn")]
)
def test_scores_that_are_no_numbers(bad, verdict, make, judge):
    values = RISES.copy()
    values[list(bad)] = np.nan
    assert judge("GEN011", make.evidence(FALLS, score(make, values))).verdict == verdict


def part(make, values, name, role="loss_part"):
    return make.series(values, role=role, name=name)


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([np.zeros(40), FALLS[:40]], "warn"),
        ([np.zeros(40), FALLS[:40], FALLS[:40]], "pass"),  # one of three may have a weight of 0
        ([np.r_[FALLS[:20], np.zeros(20)], FALLS[:40], FALLS[:40]], "warn"),  # it died
        ([np.zeros(40), np.zeros(40)], "pass"),  # nothing moves: other rules say so
    ],
)
def test_parts_of_a_loss(parts, verdict, make, judge):
    logged = [part(make, one, f"loss_{at}") for at, one in enumerate(parts)]
    assert judge("LOS020", make.evidence(None, *logged)).verdict == verdict


@pytest.mark.parametrize(("constant", "verdict"), [(0.0, "warn"), (0.5, "warn"), (1.0, "pass")])
def test_a_part_of_the_reward_that_never_changes(constant, verdict, make, judge):
    """At its best value it is learnt."""
    logged = [part(make, np.full(30, constant), "rewards/format", "reward_part")]
    logged += [part(make, np.linspace(0.0, 1.0, 30), "rewards/accuracy", "reward_part")]
    assert judge("LOS020", make.evidence(None, *logged)).verdict == verdict


@pytest.mark.parametrize(("growth", "verdict"), [(130.0, "pass"), (9e5, "pass"), (1e7, "warn"), (1e25, "warn")])
@pytest.mark.parametrize("role", ["objective_loss", "train_loss", "loss_part"])
def test_a_loss_that_grows(growth, verdict, role, make, judge):
    values = np.r_[np.full(20, 5.0), np.geomspace(5.0, 5.0 * growth, 30), np.full(20, 5.0 * growth)]
    assert judge("LOS021", make.evidence(None, make.series(values, role=role, name="td_loss"))).verdict == verdict


@pytest.mark.parametrize(("values", "name", "verdict"), [
    (np.r_[np.ones(10), np.full(10, np.nan)], "metric", "warn"),
    (np.full(10, np.nan), "Train-SmoothL1", "warn"), (np.full(10, np.nan), "best_so_far", "pass"),
    (np.r_[np.ones(10), np.nan, np.ones(9)], "metric", "pass"),
])  # fmt: skip
def test_metrics_that_no_rule_asks_for(values, name, verdict, make, judge):
    odd = make.series(values, role=None, name=name)
    assert judge("LOS019", make.evidence(FALLS, odd=(odd,))).verdict == verdict


def test_an_accuracy_of_training_alone_that_rises_is_no_regression(make, judge):
    evidence = make.evidence(FALLS, make.series(RISES, 10 * (1 + np.arange(N)), role="train_accuracy"))
    found = judge("GEN007", evidence)
    assert (found.verdict, found.message) == ("pass", "the training accuracy moves between 20 % and 79.5 %")


def test_a_score_that_stands_still_says_nothing_of_a_loss_that_was_not_logged(make, judge):
    assert "training loss" not in judge("GEN007", make.evidence(None, score(make, np.full(N, 0.7)))).message


def test_a_signal_to_noise_is_no_percentage(make, judge):
    values = np.r_[np.linspace(20, 31, 12), np.linspace(30, 26, 12)]
    found = judge("GEN009", make.evidence(FALLS, score(make, values, name="val/psnr")))
    assert (found.verdict, "%" in found.message) == ("warn", False)


def test_a_validation_loss_next_to_nothing_is_compared(make, judge):
    tiny = make.series(np.full(N, 1e-320), 10 * (1 + np.arange(N)), role="val_loss")
    assert judge("GEN006", make.evidence(FALLS, tiny)).verdict == "pass"
