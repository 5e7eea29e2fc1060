"""All rules together, on whole histories: what is healthy passes, and what is sick is found for the right reason."""

import numpy as np
import pytest


@pytest.mark.parametrize("seed", range(8))
def test_healthy_histories_pass(healthy_name, seed, healthy, make, report):
    losses = getattr(healthy, healthy_name)(seed)
    found = report(make.evidence(losses))
    assert found.verdict == "pass", found.summary
    assert not found.errors
    assert found.score == 1.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("stride", [5, 10])
def test_healthy_histories_pass_in_sparse_logs(long_healthy_name, seed, stride, healthy, make, report):
    losses = getattr(healthy, long_healthy_name)(seed)
    found = report(make.evidence(losses[::stride], steps=np.arange(0, len(losses), stride)))
    assert found.verdict == "pass", found.summary


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
        ("memorised", "warn", "LOS002"),
        ("at_chance", "fail", "LOS005"),
    ],
)
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
    wobble[330:340] *= factor
    worse[300:] *= np.linspace(1.0, 2 * factor, 100)
    assert report(make.evidence(wobble)).verdict == "pass"
    assert report(make.evidence(worse)).verdict == "fail"


def test_steps_out_of_order_change_nothing(healthy, sick, make, report):
    order = np.random.default_rng(5).permutation(400)
    for losses in (healthy.descent(n=400), sick.exploding()):
        shuffled = make.evidence(losses[order], steps=order)
        assert report(shuffled).verdict == report(make.evidence(losses)).verdict
