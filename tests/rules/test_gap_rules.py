"""GAP001 to GAP006: healthy, sick and near-miss statistics."""

import math

import numpy as np
import pytest

from tracker_health.rules.live.gap_dead_activation import GapDeadActivation
from tracker_health.rules.live.gap_exploding import GapExploding
from tracker_health.rules.live.gap_nonfinite import GapNonfinite
from tracker_health.rules.live.gap_saturated import GapSaturated
from tracker_health.rules.live.gap_vanishing import GapVanishing
from tracker_health.rules.live.gap_zero_gradient import GapZeroGradient
from tracker_health.testing import check_probe

N = 12


def stats(kind, name, maximum=1.0, mean=0.0, variance=0.1):
    """The three series of a tensor; each statistic one number, or one a point."""
    every = zip(("max", "mean", "var"), (maximum, mean, variance), strict=True)
    return {
        f"gap/{kind}/{name}/{which}": [(10 * n, float(value)) for n, value in enumerate(np.broadcast_to(values, N))]
        for which, values in every
    }


def judged(probe, *tensors, expect, **series):
    return check_probe(
        probe, series={**{name: points for one in tensors for name, points in one.items()}, **series}, expect=expect
    )


HEALTHY = stats("activations", "layers.0")
FIRST, LAST = np.arange(N) == 0, np.arange(N) == N - 1


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_nonfinite(odd):
    sick = stats("activations", "layers.3", maximum=np.where(np.arange(N) >= 5, odd, 1.0))
    later = stats("params", "head", mean=np.where(np.arange(N) >= 6, odd, 1.0))
    result = judged(GapNonfinite, HEALTHY, later, sick, expect="fail")
    assert result.steps == (50,)
    assert "first activations/layers.3" in result.message
    judged(GapNonfinite, stats("grads", "w", maximum=np.where(np.arange(N) == 5, odd, 1.0)), expect="warn")
    judged(GapNonfinite, HEALTHY, expect="pass")
    judged(GapNonfinite, stats("activations", "gate", variance=math.nan), expect="pass")  # one value an instance


def test_dead_activations():
    judged(GapDeadActivation, HEALTHY, stats("activations", "relu", 0.0, 0.0, 0.0), expect="warn")
    judged(GapDeadActivation, HEALTHY, stats("activations", "constant", 3.0, 3.0, 0.0), expect="warn")
    judged(
        GapDeadActivation,
        stats("activations", "died", *(np.where(np.arange(N) < 5, one, 0.0) for one in (1.0, 0.5, 0.2))),
        expect="warn",
    )
    # An adapter starts at zero; a unit that is quiet now and then is not dead.
    judged(
        GapDeadActivation,
        stats("activations", "lora_B", *(np.where(FIRST, 0.0, one) for one in (1.0, 0.5, 0.2))),
        expect="pass",
    )
    judged(
        GapDeadActivation,
        stats("activations", "now", *(np.where(LAST, 0.0, one) for one in (1.0, 0.5, 0.2))),
        expect="pass",
    )
    judged(GapDeadActivation, stats("activations", "small", 1e-12, 0.0, 1e-30), expect="pass")
    judged(
        GapDeadActivation,
        {name: points[:3] for name, points in stats("activations", "few", 0.0, 0.0, 0.0).items()},
        expect="skip",
    )


OUTPUT = stats("activations", "head", 4.0)


@pytest.mark.parametrize(
    ("verdict", "values"),
    [
        ("warn", (1.0, 0.0, 0.98)),  # tanh at -1 and 1
        ("warn", (1.0, 0.5, 0.245)),  # a sigmoid at 0 and 1
        ("pass", (1.0, 0.0, 0.6)),
        ("pass", (0.9999, 0.5, 0.05)),
        ("pass", (1.0, 0.02, 0.0195)),  # one of fifty: attention, or a softmax that is sure
        ("pass", (3.0, 0.0, 0.98)),  # normalised, not bounded
    ],
)
def test_saturated(verdict, values):
    judged(GapSaturated, stats("activations", "act", *values), OUTPUT, expect=verdict)


def test_sure_predictions_are_not_saturated():
    judged(GapSaturated, HEALTHY, stats("activations", "output", 1.0, 0.5, 0.249), expect="pass")


def depth(sizes, name="layers.{}.w"):
    return [stats("grads", name.format(n), 1.0, 0.0, size**2) for n, size in enumerate(sizes)]


def test_vanishing():
    fading = 10.0 ** np.arange(-6, 0)
    assert judged(GapVanishing, *depth(fading), expect="warn").measured["depth_ratio"] == pytest.approx(1e5)
    judged(GapVanishing, *depth(fading, "{}.weight"), expect="warn")
    judged(GapVanishing, *depth(fading), loss=list(np.linspace(4.0, 0.5, 60)), expect="pass")
    judged(GapVanishing, *depth(fading[:4]), expect="skip")
    judged(GapVanishing, *depth(10.0 ** np.linspace(-3, -1, 6)), expect="pass")
    judged(GapVanishing, *depth(10.0 ** np.array([-6.0, -1, -5, -2, -4, -3])), expect="pass")
    judged(GapVanishing, *depth(fading[::-1]), expect="pass")


def test_exploding():
    rising = 10.0 ** np.linspace(0, 12, N)
    judged(GapExploding, stats("activations", "a", rising, 0.0, rising), expect="warn")
    judged(GapExploding, stats("grads", "a", rising, 0.0, rising), expect="warn")
    at_once = np.where(FIRST, 1.0, 1e9)
    judged(GapExploding, stats("activations", "a", at_once, 0.0, at_once), expect="warn")
    came_back = np.where(FIRST, 1.0, 1e9) * 0.1 ** np.arange(N)
    judged(GapExploding, stats("activations", "a", came_back, 0.0, came_back), expect="warn")
    once = np.where(np.arange(N) == 5, 1e9, 1.0)
    judged(GapExploding, stats("activations", "a", once, 0.0, once), expect="pass")
    # Logits grow from almost nothing; a module may always have been large; one layer's gradient may wake up.
    judged(GapExploding, stats("activations", "a", 1.0, 0.0, np.linspace(1e-6, 100, N)), expect="pass")
    judged(GapExploding, stats("activations", "a", 1e5, 0.0, 1e8), expect="pass")
    judged(GapExploding, *depth(np.ones(3)), stats("grads", "b", rising, 0.0, rising), expect="pass")
    judged(GapExploding, stats("grads", "a", 1.0, 0.0, np.where(LAST, 1e9, 1.0)), expect="pass")


def test_zero_gradient():
    zero = (0.0, 0.0, 0.0)
    judged(GapZeroGradient, stats("grads", "w"), stats("grads", "dead", *zero), expect="fail")
    judged(GapZeroGradient, stats("grads", "w"), stats("grads", "layers.1.experts.3.w", *zero), expect="warn")
    judged(
        GapZeroGradient,
        stats("grads", "lora_A", *(np.where(FIRST, 0.0, one) for one in (1.0, 0.1, 0.1))),
        expect="pass",
    )
    judged(
        GapZeroGradient, stats("grads", "rare", *(np.where(LAST, one, 0.0) for one in (1.0, 0.1, 0.1))), expect="pass"
    )
    judged(GapZeroGradient, stats("grads", "tiny", 1e-30, 0.0, 0.0), expect="pass")
