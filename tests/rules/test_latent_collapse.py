"""REG005."""

import numpy as np
import pytest

from tracker_health.evidence import RunInfo
from tracker_health.rules.fine_tune.latent_collapse import LatentCollapse

CODE = "REG005"
RULE = LatentCollapse()


def variational(make, kl, *, role="kl", name="train_kl", loss=42.0, names=("train_recon",), params=None):
    """Evidence with a KL and, unless it is None, a loss that ends at that level."""
    series = [make.series(kl, role=role, name=name)]
    losses = None if loss is None else loss * (1.0 + np.exp(-5.0 * np.arange(len(kl)) / len(kl)))
    info = RunInfo(params=params or {}, metric_names=(name, *names))
    return make.evidence(losses, *series, info=info)


def gone(n=40, *, start=0.1, end=2e-5):
    """A KL that falls to nothing within the first half, in proportion."""
    return start * (end / start) ** np.minimum(np.arange(n) / (n / 2), 1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["exact", "estimated"])
def test_a_divergence_that_came_down_to_nothing(sign, make, judge):
    result = judge(CODE, variational(make, np.r_[0.1, sign * gone(39)]))
    assert result.verdict == "warn"
    assert "came down from 0.1 to 2e-05" in result.message


@pytest.mark.parametrize("loss", [42.0, None])
@pytest.mark.parametrize("role", ["kl", "loss_part", "objective_loss"])
def test_by_whatever_name(role, loss, make, judge):
    name = "kl" if role == "kl" else "KLD/loss"
    assert judge(CODE, variational(make, gone(), role=role, name=name, loss=loss)).verdict == "warn"
    assert (
        judge(CODE, variational(make, gone(), role="loss_part", name="skill_loss", loss=loss)).verdict == "SkippedProbe"
    )


def test_sound_codes(make, judge):
    rising = 7.0 * (1.0 - np.exp(-np.arange(40) / 8.0))
    strong = np.linspace(3.0, 0.8, 40)
    weighted = 1e-6 * (3.0 + np.cos(np.arange(40)))  # beside a loss of pixels' means
    annealed = np.r_[120.0, np.linspace(40.0, 2.0, 39)]
    for kl in (rising, strong, annealed):
        assert judge(CODE, variational(make, kl)).verdict == "pass"
    assert judge(CODE, variational(make, weighted, loss=0.05)).verdict == "pass"  # which hardly comes down


@pytest.mark.parametrize(("end", "verdict"), [(0.9e-2, "warn"), (1.1e-2, "pass")])
def test_boundary_of_nothing(end, verdict, make, judge):
    assert judge(CODE, variational(make, gone(start=1.0, end=end))).verdict == verdict


@pytest.mark.parametrize(("start", "verdict"), [(29e-5, "pass"), (31e-5, "warn")])
def test_boundary_of_the_fall(start, verdict, make, judge):
    assert judge(CODE, variational(make, gone(start=start, end=1e-5))).verdict == verdict


@pytest.mark.parametrize(("names", "params", "verdict"), [
    (("loss",), {}, "SkippedProbe"), (("loss",), {"model": "BetaVAE"}, "warn"), (("loss",), {"model": "conv_vae-2"}, "warn"),
    (("ELBO",), {}, "warn"), (("loss",), {"optimizer": "levae"}, "SkippedProbe"), (("loss",), {"vae": "sd-vae"}, "SkippedProbe"),
    (("recon", "policy_loss"), {}, "SkippedProbe"), (("recon",), {"teacher": "resnet"}, "SkippedProbe"),
    (("recon", "loss/distill"), {}, "SkippedProbe"),
])  # fmt: skip
def test_only_of_autoencoders(names, params, verdict, make, judge):
    assert judge(CODE, variational(make, gone(), names=names, params=params)).verdict == verdict


def test_a_divergence_of_a_policy_is_none_of_codes(make, judge):
    assert judge(CODE, variational(make, gone(), name="kl", names=("reward", "entropy"))).verdict == "SkippedProbe"


def test_a_divergence_of_0_from_the_start_is_that_of_no_variational_model(make, judge):
    assert judge(CODE, variational(make, np.zeros(40))).verdict == "pass"


@pytest.mark.parametrize(("loss", "verdict"), [(0.2, "pass"), (0.6, "warn")])
def test_means_of_pixels_are_small_beside_small_losses(loss, verdict, make, judge):
    assert judge(CODE, variational(make, gone(start=1.0, end=0.009), loss=loss)).verdict == verdict


def test_too_few(make, judge):
    assert judge(CODE, variational(make, gone()[: RULE.min_points - 1])).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(np.ones(40))).verdict == "SkippedProbe"
    assert judge(CODE, variational(make, np.full(40, np.nan))).verdict == "SkippedProbe"
