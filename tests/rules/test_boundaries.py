"""Where the verdict of a rule turns: on both sides of a condition that other histories never come near."""

import numpy as np
import pytest


@pytest.fixture
def restarted(make):
    """A loss that came down to 1, with a learning rate that began again at step 180, and where it went from there."""

    def run(level):
        rng = np.random.default_rng(3)
        losses = np.concatenate([np.linspace(4.0, 1.0, 180), np.full(20, level)]) + rng.normal(0.0, 0.02, 200)
        rate = np.concatenate([0.5 * (1 + np.cos(np.pi * np.arange(180) / 180)), np.ones(20)])
        return make.evidence(losses, make.series(rate, role="learning_rate"))

    return run


@pytest.mark.parametrize(("level", "verdict"), [(2.0, "warn"), (20.0, "fail")])
def test_a_restart_of_the_rate_excuses_a_rise_and_no_climb_past_the_start(level, verdict, restarted, judge):
    assert judge("LOS004", restarted(level)).verdict == verdict


@pytest.mark.parametrize(("later", "verdict"), [(1, "pass"), (2, "warn"), (3, "warn")])
def test_overfitting_needs_two_evaluations_after_the_best(later, verdict, make, judge):
    """Few evaluations, each a level of its own, so that the best is where it looks to be."""
    values = [*np.linspace(2.0, 0.8, 12 - later), *[1.4] * later]
    train = make.series(np.linspace(2.3, 0.5, 12))
    held_out = make.series(values, role="val_loss")
    assert judge("GEN001", make.evidence(train, held_out)).verdict == verdict


@pytest.mark.parametrize(("dead", "verdict"), [(3, "pass"), (4, "pass"), (5, "warn")])
def test_half_of_the_experts_may_get_no_token(dead, verdict, make, judge):
    names = [f"layers.0.experts.{index}.up.weight" for index in range(8)] + ["head.weight"]
    tensors = [make.tensor(key, 0.0 if key < dead else 1e-6, name=name) for key, name in enumerate(names)]
    weights = make.weights(dict.fromkeys(names, (4, 4)))
    assert judge("OPT003", make.evidence(optimizer=make.state(*tensors), weights=weights)).verdict == verdict
