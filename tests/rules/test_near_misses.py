"""All rules together, on whole histories: what is healthy passes, and what is sick is found for the right reason."""

import numpy as np
import pytest

TOLD = {"one_spike": ("LOS003",)}
"""The healthy history of which a warning is no mistake: a single batch, past the start by ten times the descent."""


def assert_healthy(found, name):
    assert not found.errors
    if [one.code for one in found.findings] and name in TOLD:
        assert tuple(one.code for one in found.findings) == TOLD[name], found.summary
        assert found.verdict == "warn"
    else:
        assert found.verdict == "pass", found.summary
        assert found.score == 1.0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(4)
def test_healthy_histories_pass(healthy_name, seed, healthy, make, report):
    losses = getattr(healthy, healthy_name)(seed)
    assert_healthy(report(make.evidence(losses)), healthy_name)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.thinned(4)
def test_a_spike_past_the_start_is_told_and_nothing_else(seed, healthy, make, report):
    found = report(make.evidence(healthy.one_spike(seed)))
    assert [(one.code, one.verdict) for one in found.findings] == [("LOS003", "warn")]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stride", [5, 10])
@pytest.mark.thinned(4)
def test_healthy_histories_pass_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, report):
    losses = getattr(healthy, long_healthy_name)(seed)
    found = report(make.evidence(losses[::stride], steps=np.arange(0, len(losses), stride)))
    assert_healthy(found, long_healthy_name)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("name", "verdict", "code"),
    [
        ("exploding", "fail", "LOS004"),
        ("drifting_up", "fail", "LOS004"),
        ("rescued_explosion", "fail", "LOS004"),
        ("from_the_start", "fail", "LOS004"),
        ("nan_at_800", "fail", "LOS001"),
        ("masked_zeros", "fail", "LOS002"),
        ("at_chance", "fail", "LOS005"),
    ],
)
@pytest.mark.thinned(4)
def test_sick_histories_are_found(name, seed, verdict, code, sick, make, report):
    found = report(make.evidence(getattr(sick, name)(seed)))
    assert found.verdict == verdict
    assert code in [one.code for one in found.findings]
    assert not found.errors


def test_a_resume_that_wrote_over_nan_passes(healthy, make, report):
    losses = healthy.descent(n=400)
    first_try = losses[:300].copy()
    first_try[250:] = np.nan
    steps = np.concatenate([np.arange(300), np.arange(240, 400)])
    assert report(make.evidence(np.concatenate([first_try, losses[240:]]), steps=steps)).verdict == "pass"


@pytest.mark.parametrize("factor", [1.3, 2.0, 4.0])
def test_a_worse_and_worse_end_is_found_and_a_wobble_is_not(factor, healthy, make, report):
    losses = healthy.descent(n=400, noise=0.01)
    wobble, worse = losses.copy(), losses.copy()
    wobble[330:355] *= factor
    worse[300:] *= np.linspace(1.0, 2 * factor, 100)
    # A whole level past the start is an excursion, and no divergence.
    codes = [(one.code, one.verdict) for one in report(make.evidence(wobble)).findings]
    assert codes == ([("LOS008", "warn")] if factor == 4.0 else [])
    assert report(make.evidence(worse)).verdict == "fail"


def test_steps_out_of_order_change_nothing(healthy, sick, make, report):
    order = np.random.default_rng(5).permutation(400)
    for losses in (healthy.descent(n=400), sick.exploding()):
        shuffled = make.evidence(losses[order], steps=order)
        assert report(shuffled).verdict == report(make.evidence(losses)).verdict


def test_a_run_of_accuracies_alone_has_no_verdict(make, report):
    """No rule may vouch for what shows neither a loss nor an optimizer's state."""
    accuracy = make.series(np.linspace(0.1, 0.9, 50), role=None, name="val/accuracy")
    rate = make.series(np.linspace(1e-3, 0, 50), role="learning_rate")
    norm = make.series(np.ones(50), role="grad_norm")
    scale = make.series(np.full(50, 65536.0), role="loss_scale")
    for series in ([accuracy], [accuracy, rate], [accuracy, norm], [accuracy, rate, norm, scale]):
        found = report(make.evidence(None, *series))
        assert (found.verdict, found.score) == ("skip", None)
        assert not found.errors


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [60, 400, 2000])
def test_a_whole_healthy_run_passes(n, seed, healthy, make, report):
    """Everything that a trainer logs, with a harmless gradient spike, an overflow and a scale that finds its level."""
    rng = np.random.default_rng(seed)
    progress = np.arange(n) / (n - 1)
    losses = healthy.descent(seed, n=n)
    norms = rng.lognormal(0.0, 0.25, n)
    norms[n // 2] *= 80
    norms[n // 3] = np.inf
    scales = np.where(np.arange(n) < 5, 65536.0 / 2.0 ** np.minimum(np.arange(n), 4), 4096.0)
    steps = np.linspace(n / 10, n, 10)
    found = report(
        make.evidence(
            losses,
            make.series(np.interp(steps, np.arange(n), healthy.descent(n=n, noise=0.0)) * 1.05, steps, role="val_loss"),
            make.series(norms, role="grad_norm"),
            make.series(0.5 * (1 + np.cos(np.pi * progress)), role="learning_rate"),
            make.series(scales, role="loss_scale"),
            params={"vocab_size": "50257"},
        )
    )
    assert found.verdict == "pass", found.summary


def test_half_a_run_of_25_percent_label_noise_passes(healthy, make, report):
    """The loss can not fall below the entropy of the labels; the validation loss follows it."""
    for seed in range(8):
        losses = healthy.descent(seed, n=600, start=2.35, floor=1.05, rate=8.0, noise=0.06)
        level = healthy.descent(n=600, start=2.35, floor=1.05, rate=8.0, noise=0.0)[29::30]
        held_out = level * (1.03 + 0.004 * np.random.default_rng(seed).standard_normal(20))
        validation = make.series(held_out, np.arange(29, 600, 30), role="val_loss")
        found = report(make.evidence(losses, validation, params={"num_classes": "10"}))
        assert found.verdict == "pass", found.summary


@pytest.mark.parametrize("seed", range(3))
def test_one_point_per_epoch(seed, healthy, make, report):
    """Eight to sixty epochs, of a loss averaged over each, with an evaluation after it."""
    for n in (8, 12, 20, 60):
        losses = healthy.descent(seed, n=n, noise=0.01)
        held_out = healthy.descent(seed + 50, n=n, start=3.0, floor=1.1, noise=0.01)
        validation = make.series(held_out, np.arange(1, n + 1), role="val_loss")
        found = report(make.evidence(losses, validation, steps=np.arange(1, n + 1)))
        assert found.verdict == "pass", found.summary
