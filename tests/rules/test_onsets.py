"""From where on a rule says that a run was wrong: only where going on from an earlier checkpoint undoes it."""

from __future__ import annotations

import numpy as np
import pytest

from tracker_health.evidence import Series
from tracker_health.rules.probe import explanation_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.testing import check_probe

RULES = {rule.code: rule for rule in BUILT_IN}
NAN = float("nan")


def onset_of(code, series, **more):
    outcome = check_probe(RULES[code], series=series, **more)
    return outcome.onset


def worked(code):
    example = explanation_of(RULES[code]).example
    names = {"train_reward": "reward", "kl": "kl"}
    return {names.get(role, role): values for role, values in example.series.items()}


@pytest.mark.parametrize(
    ("code", "step", "is_best"),
    [
        ("LOS001", 4, False),
        ("LOS002", 4, False),
        ("LOS004", 7, False),
        ("GRD004", 15, False),
        ("AMP001", 4, False),
        ("GEN001", 4, True),
    ],
)
def test_the_worked_example_says_where(code, step, is_best):
    onset = onset_of(code, worked(code))
    assert (onset.step, onset.is_best) == (step, is_best)
    assert onset.what


def test_a_nan_that_training_survived_is_nothing_to_go_back_from():
    assert onset_of("LOS001", {"train_loss": [2.0, NAN, 1.8, *[1.5] * 20]}) is None


def test_of_several_stretches_of_nan_the_one_that_stayed_counts():
    onset = onset_of("LOS001", {"train_loss": [2.0, NAN, 1.8, 1.7, 1.6, NAN, NAN, NAN]})
    assert onset.step == 5
    assert onset_of("GRD001", {"grad_norm": [1.0, NAN, *[1.0] * 20, *[NAN] * 10]}).step == 22


def test_a_loss_that_never_was_finite_has_nothing_before_it():
    assert onset_of("LOS001", {"train_loss": [NAN] * 8}) is None


def test_nan_in_the_validation_alone_leaves_the_weights_in_order():
    series = {"train_loss": [2.0, 1.9, 1.8, 1.7], "val_loss": [2.0, NAN, NAN, NAN]}
    assert onset_of("LOS001", series) is None


def falling(steps=200):
    return 0.1 + 2.2 * 0.98 ** np.arange(steps) + 0.005 * np.random.default_rng(0).normal(size=steps)


def test_a_spike_after_which_nothing_was_gained_is_gone_back_from():
    loss = falling()
    loss[100:] = loss[99] + 0.02
    loss[100:102] += 9.0
    assert onset_of("LOS003", {"train_loss": loss}).step in (100, 101)


def test_a_spike_that_training_left_behind_is_not():
    loss = falling()
    loss[50] += 9.0
    assert onset_of("LOS003", {"train_loss": loss}) is None


def test_a_climb_that_came_down_again_asks_for_a_new_start():
    loss = np.concatenate([np.full(20, 2.0), np.full(20, 10.0), np.full(60, 1.0)])
    loss += 0.01 * np.random.default_rng(0).normal(size=100)
    outcome = check_probe(RULES["LOS004"], series={"train_loss": loss})
    assert outcome.verdict == "fail"
    assert outcome.onset is None


def rewards(values):
    steps = np.arange(len(values), dtype=np.int64)
    return Series(name="r", role="val_reward", steps=steps, values=np.array(values, dtype=np.float64))


def test_a_reward_that_rose_first_is_gone_back_to_at_its_best():
    rising = [*np.linspace(0.0, 10.0, 20), *np.linspace(10.0, 0.5, 20)]
    onset = onset_of("RWD001", {"r": rewards(rising)})
    assert onset.is_best
    assert 15 <= onset.step <= 22


def test_a_reward_that_only_fell_was_wrong_from_the_start():
    outcome = check_probe(RULES["RWD001"], series={"r": rewards(np.linspace(10.0, 0.5, 40))})
    assert outcome.verdict == "fail"
    assert outcome.onset is None


def test_a_finding_that_passes_has_none():
    assert onset_of("LOS004", {"train_loss": list(falling())}) is None
