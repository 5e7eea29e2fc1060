"""OPT010."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health import check

CODE = "OPT010"


def loss(share, n=100):
    """A loss that comes down by that share of its start."""
    losses = 2.0 * (1.0 - share * (1.0 - np.exp(-10.0 * np.arange(n) / n)))
    return losses + 0.001 * np.random.default_rng(0).standard_normal(n)


def evidence_of(make, seconds, *, eps=1e-8, losses=None, step=5000.0, sizes=None, **more):
    """Parameters with these mean second moments, in a group with this eps."""
    sizes = sizes or [16] * len(seconds)
    tensors = [
        make.tensor(index, second, shape=(size,), step=step)
        for index, (second, size) in enumerate(zip(seconds, sizes, strict=True))
    ]
    group = {"lr": 1e-3} | ({} if eps is None else {"eps": eps})
    return make.evidence(losses, optimizer=make.state(*tensors, groups=(group,)), **more)


@pytest.mark.parametrize(("share", "verdict"), [(0.0, "fail"), (0.2, "warn"), (0.6, "pass"), (None, "warn")])
@pytest.mark.parametrize(("second", "eps"), [(1e-4, 1.0), (1e-22, 1e-8)], ids=["a large eps", "tiny gradients"])
def test_the_loss_bears_it_out(second, eps, share, verdict, make, judge):
    losses = None if share is None else loss(share)
    result = judge(CODE, evidence_of(make, [second] * 3, eps=eps, losses=losses))
    assert result.verdict == verdict
    corrected = second / (1.0 - 0.999**5000)
    assert result.measured["eps_ratio"] == pytest.approx(eps / math.sqrt(corrected))


@pytest.mark.parametrize(("ratio", "verdict"), [(9.99, "pass"), (10.01, "fail")])
def test_boundary(ratio, verdict, make, judge):
    evidence = evidence_of(make, [(1.0 - 0.999**5000) * 1e-16 / ratio**2], losses=loss(0.0))
    assert judge(CODE, evidence).verdict == verdict


def test_sound_moments(make, judge):
    """Gradients of a model with many parameters are small, and yet far above 1e-8."""
    assert judge(CODE, evidence_of(make, [1e-8, 1e-11, 1e-13], losses=loss(0.0))).verdict == "pass"
    assert judge(CODE, evidence_of(make, [1e-9] * 3, eps=1e-3, losses=loss(0.0))).verdict == "fail"
    assert judge(CODE, evidence_of(make, [1e-2] * 3, eps=0.1, losses=loss(0.0))).verdict == "pass"


def test_few_values_do_not_decide(make, judge):
    """A layer with little gradient, or none, beside a large one."""
    assert judge(CODE, evidence_of(make, [1e-8, 1e-30, 0.0], sizes=[100, 40, 900], losses=loss(0.0))).verdict == "pass"
    assert judge(CODE, evidence_of(make, [1e-8, 1e-30], sizes=[40, 100], losses=loss(0.0))).verdict == "fail"


@pytest.mark.parametrize("eps", [None, 0.0, -1.0, math.nan, math.inf, 10**400, "1e-8", (1e-30, 1e-3), True])
def test_an_eps_that_is_no_such_number(eps, make, judge):
    assert judge(CODE, evidence_of(make, [1e-30], eps=eps)).verdict == "SkippedProbe"


def test_an_eps_that_is_a_whole_number(make, judge):
    assert judge(CODE, evidence_of(make, [1e-4], eps=1)).verdict == "warn"


@pytest.mark.parametrize("second", [0.0, math.nan, math.inf])
def test_no_gradient_is_another_rule(second, make, judge):
    assert judge(CODE, evidence_of(make, [second])).verdict == "SkippedProbe"


@settings(max_examples=draws(60), deadline=None)
@given(
    seconds=st.lists(st.floats(1e-30, 1.0), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 1000), min_size=6, max_size=6),
    eps=st.floats(1e-12, 1.0),
    step=st.integers(10, 10**6),
)
def test_against_plain_python(seconds, sizes, eps, step, make, judge):
    sizes = sizes[: len(seconds)]
    known = sorted(
        (eps / math.sqrt(second / (1.0 - 0.999**step)), size) for second, size in zip(seconds, sizes, strict=True)
    )
    seen = itertools.accumulate(size for _, size in known)
    ratio = next(one for (one, _), so_far in zip(known, seen, strict=True) if so_far >= sum(sizes) / 2)
    assume(abs(ratio - 10.0) > 1e-6)
    result = judge(CODE, evidence_of(make, seconds, sizes=sizes, eps=eps, step=float(step)))
    assert result.measured["eps_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert result.verdict == ("warn" if ratio >= 10.0 else "pass")


@pytest.mark.parametrize(("eps", "verdict"), [(1e-8, "pass"), (1.0, "warn")])
def test_a_real_optimizer(eps, verdict, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=eps)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().mul(0.01).backward()
        optimizer.step()
    torch.save({"optimizer": optimizer.state_dict(), "model": model.state_dict()}, tmp_path / "training_state.pt")
    assert next(one.verdict for one in check(tmp_path).results if one.code == CODE) == verdict
