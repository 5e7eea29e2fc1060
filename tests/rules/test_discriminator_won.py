"""LOS015."""

import numpy as np
import pytest

from tracker_health.roles import adversary_of, assign

CODE = "LOS015"


def won(n=100, *, first=0.8, late=1e-6):
    return first * np.exp(-np.arange(n)) + late


def pair(make, discriminator, generator=None, *, names=("loss_D", "loss_G")):
    generator = np.linspace(1.0, 40.0, len(discriminator)) if generator is None else generator
    roles = assign(names)
    values = dict(zip(names, (discriminator, generator), strict=True))
    return make.evidence(None, *(make.series(values[name], role=roles[name], name=name) for name in roles))


def test_worked_example(make, judge):
    """It began at 1.4 and was 0.001 in the second half: less than a hundredth of that, and than 0.01."""
    result = judge(CODE, pair(make, [1.4, 0.3, 0.05, *[0.001] * 17]))
    assert (result.verdict, result.measured["late"]) == ("warn", 0.001)
    assert result.measured["late_share"] == pytest.approx(0.001 / 1.4)


@pytest.mark.parametrize(
    "names",
    [("loss_D", "loss_G"), ("errD", "errG"), ("train/d_loss", "train/g_loss"), ("disc_loss", "gen_loss"),
     ("discriminator_loss", "generator_loss"), ("Loss_d/train", "Loss_g/train"), ("tr_loss_D", "tr_loss_G")],
)  # fmt: skip
def test_a_discriminator_that_is_always_right(names, make, judge):
    result = judge(CODE, pair(make, won(), names=names))
    assert result.verdict == "warn"
    assert result.symptom == "not_learning"
    assert names[0] in result.message


BALANCE = 1.38 + 0.05 * np.random.default_rng(0).standard_normal(100)
NEAR_MISSES = {
    "squared errors of a bad beginning": won(first=900.0, late=0.246),
    "in balance": BALANCE,
    "mostly right": won(late=0.02),
    "right for a while": np.r_[won(80), BALANCE[:20]],
    "a critic without a bound": -np.arange(100.0),
    "a critic that began at nothing": np.r_[0.0, 0.0, 0.0, np.full(97, 1e-9)],
    "a critic that went below 0": 0.8 * np.exp(-np.arange(100)) - 1e-6,
}


@pytest.mark.parametrize("losses", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(losses, make, judge):
    assert judge(CODE, pair(make, losses)).verdict == "pass"


def test_two_terms_that_both_fall(make, judge):
    """Of data and of a governing equation, as a physics-informed network logs them."""
    assert judge(CODE, pair(make, won(), won())).verdict == "pass"


def test_a_part_of_the_discriminator_alone(make, judge):
    evidence = pair(make, won(), names=("d_loss_real", "g_loss"))
    fake = make.series(BALANCE, role="objective_loss", name="d_loss_fake")
    assert judge(CODE, evidence).verdict == "warn"
    assert judge(CODE, make.evidence(None, *evidence.series, fake)).verdict == "pass"


def test_no_pair(make, judge):
    critic = make.series(won(), role="objective_loss", name="critic_loss")
    actor = make.series(won(), role="objective_loss", name="actor_loss")
    assert judge(CODE, make.evidence(None, critic, actor)).verdict == "SkippedProbe"
    assert judge(CODE, pair(make, won(15))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(won())).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    ("name", "side"),
    [("loss_D", "discriminator"), ("D_real", None), ("lossG", "generator"), ("errD", "discriminator"), ("val/g_loss", "generator"),
     ("loss", None), ("d_time", None), ("gradient_loss", None), ("d_g_loss", None), ("critic_loss", None), ("", None)],
)  # fmt: skip
def test_whose_loss_it_is(name, side):
    assert adversary_of(name) == side
