"""WGT004."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tracker_health.evidence import TensorHeader, Weights
from tracker_health.rules.weights.weight_scale import WeightScale

CODE = "WGT004"


def weights_of(*tensors):
    """Tensors of (name, shape, rms)."""
    headers = tuple(TensorHeader(name=name, shape=shape, dtype="F32", rms=rms) for name, shape, rms in tensors)
    return Weights(source="model.safetensors", tensors=headers)


def naive(tensors):
    by_input = sorted(rms * math.sqrt(math.prod(shape[1:])) for _, shape, rms in tensors)
    by_smaller = sorted(rms * math.sqrt(min(shape[0], math.prod(shape[1:]))) for _, shape, rms in tensors)
    half = len(tensors) // 2
    if len(tensors) % 2:
        return by_input[half], by_smaller[half]
    return (by_input[half - 1] + by_input[half]) / 2, (by_smaller[half - 1] + by_smaller[half]) / 2


@given(
    tensors=st.lists(
        st.tuples(
            st.just("layers.0.weight"),
            st.tuples(st.integers(2, 64), st.integers(2, 64)) | st.tuples(st.integers(2, 9), st.just(3), st.just(3)),
            st.floats(1e-4, 10),
        ),
        min_size=2,
        max_size=8,
    )
)
def test_against_plain_python(tensors, make, judge):
    tensors = [one for one in tensors if len(one[1]) > 2 or one[1][0] < 4 * one[1][1]]  # no tables of vectors
    tensors = [(f"layers.{at}.weight", *one[1:]) for at, one in enumerate(tensors)]
    assume(len(tensors) > 1)
    low, high = naive(tensors)
    assume(
        all(abs(one / limit - 1) > 1e-9 for one, limit in ((low, WeightScale.min_scale), (high, WeightScale.max_scale)))
    )
    result = judge(CODE, make.evidence(weights=weights_of(*tensors)))
    assert result.measured["scale"] == pytest.approx(low)
    assert result.measured["scale_by_smaller_side"] == pytest.approx(high)
    healthy = low >= WeightScale.min_scale and high <= WeightScale.max_scale
    assert result.verdict == ("pass" if healthy else "warn")


@pytest.mark.parametrize(("bias", "verdict"), [(False, "SkippedProbe"), (True, "warn")])
def test_tables_of_vectors_begin_larger(bias, verdict, make, judge):
    """Embeddings by another name: normal, with many rows; a layer of that shape has a bias beside it."""
    tensors = [(f"{name}.weight", (2000, 64), 1.0) for name in ("center", "context")]
    tensors += [(f"{name}.bias", (2000,), 0.1) for name in ("center", "context")] if bias else []
    assert judge(CODE, make.evidence(weights=weights_of(*tensors))).verdict == verdict


def test_the_initialisation_of_torch_is_healthy(make, judge):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = {
        "linear": torch.nn.Linear(300, 200), "conv": torch.nn.Conv2d(16, 32, 3), "narrow": torch.nn.Linear(64, 3),
        "attention": torch.nn.Linear(128, 384),
    }  # fmt: skip
    tensors = [
        (f"{name}.weight", tuple(layer.weight.shape), float(layer.weight.detach().pow(2).mean().sqrt()))
        for name, layer in layers.items()
    ]
    result = judge(CODE, make.evidence(weights=weights_of(*tensors)))
    assert result.verdict == "pass"
    assert result.measured["scale"] == pytest.approx(1 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (4.0, "pass"), (20.0, "warn"), (0.01, "warn")])
def test_scaled_weights(factor, verdict, make, judge):
    tensors = [(f"layers.{index}.weight", (64, 64), factor / 8) for index in range(4)]
    assert judge(CODE, make.evidence(weights=weights_of(*tensors))).verdict == verdict


def falling(share, n=200, back=0.0):
    """A loss that comes down by that share, and at the end goes back up by a part of it."""
    losses = 2.0 * (1 - share * (1 - np.exp(-10 * np.arange(n) / n)))
    losses[-n // 4 :] += 2.0 * share * back
    return losses + 0.001 * np.random.default_rng(0).standard_normal(n)


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        (None, "warn"), (falling(0.9), "pass"), (falling(0.27), "pass"), (falling(0.22), "warn"), (falling(0.0), "warn"),
        (falling(0.9, back=0.3), "warn"), (falling(0.9, n=6), "warn"),
    ],
)  # fmt: skip
def test_small_weights_that_are_meant_so(losses, verdict, make, judge):
    """A sine network multiplies by 30 what its weights let through, and learns."""
    tensors = [(f"layers.{index}.weight", (128, 128), math.sqrt(2) / 30 / math.sqrt(128)) for index in range(3)]
    result = judge(CODE, make.evidence(losses, weights=weights_of(*tensors)))
    assert result.verdict == verdict
    assert "shrunk" not in result.message
    huge = [(name, shape, 9.0) for name, shape, _ in tensors]
    assert judge(CODE, make.evidence(losses, weights=weights_of(*huge))).verdict == "warn"


def test_embeddings_adapters_and_unread_tensors_do_not_count(make, judge):
    usual = [("layers.0.weight", (64, 64), 0.1), ("layers.1.weight", (64, 64), 0.1)]
    odd = [("tok_embeddings.weight", (9, 64), 99.0), ("wpe.weight", (9, 64), 99.0), ("pos_embed", (9, 64), 99.0)]
    assert judge(CODE, make.evidence(weights=weights_of(*usual, *odd))).verdict == "pass"
    unread = [("layers.2.weight", (64, 64), None), ("layers.3.weight", (64, 64), float("nan"))]
    assert judge(CODE, make.evidence(weights=weights_of(*usual, *unread))).measured["matrices"] == 2
    adapter = [(f"base_model.model.q.lora_{side}.weight", (64, 64), 99.0) for side in "AB"]
    assert judge(CODE, make.evidence(weights=weights_of(*adapter))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(weights=weights_of(*odd))).verdict == "SkippedProbe"
