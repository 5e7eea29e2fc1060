"""Sums of single tensors against double precision: of any size, type and layout."""

from __future__ import annotations

import math
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from tracker_health.monitor import statistics, watch  # noqa: E402
from tracker_health.monitor.statistics import fetched, rows_of  # noqa: E402

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu)


def sums(tensor):
    (found,) = fetched([rows_of(tensor)])
    return found


def assert_naive(tensor, tolerance=1e-5):
    """As double precision has it, of all values and of each row."""
    found, values = sums(tensor), tensor.double()
    rows = values.reshape(len(values), -1)
    spread = math.sqrt(float(values.square().mean()))
    for of, variance, mean in (
        (found.of_all(), values.var(), values.mean()),
        (found.of_instances(), rows.var(1).mean(), rows.mean(1).mean()),
    ):
        assert of.maximum == float(values.abs().max())
        assert of.mean == pytest.approx(float(mean), rel=tolerance, abs=tolerance * spread)
        assert of.variance == pytest.approx(float(variance), rel=tolerance)


@pytest.mark.parametrize("shape", [(4, 8), (300, 400), (1, 3, 70_000)])
@pytest.mark.parametrize("size", [1e-37, 1e-25, 1e-18, 1e-10, 1.0, 1e10, 1e18, 1e25, 1e37])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.thinned(4)
def test_tiny_and_huge_values(kind, size, shape):
    torch.manual_seed(0)
    tensor = (torch.randn(shape, dtype=torch.float64).clamp(-3, 3) * size).to(kind)
    assert_naive(tensor, 1e-4 if kind is torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("shape", [(1, 6_000_000), (2, 3, 1000, 1001), (6_000_000,)])
@pytest.mark.parametrize("size", [1.0, 1e30])
def test_rows_of_millions_of_values(shape, size):
    torch.manual_seed(0)
    tensor = torch.randn(shape).clamp(-4, 4) * size
    found, exact = sums(tensor), tensor.double()
    assert found.of_all().variance == pytest.approx(float(exact.var()), rel=1e-5)
    assert found.of_instances().variance == pytest.approx(
        float(exact.reshape(1 if len(shape) < 2 else len(tensor), -1).var(1).mean()), rel=1e-5
    )


@pytest.mark.parametrize("size", [1e-37, 1.0, 1e37])
@pytest.mark.parametrize("shape", [(40, 7), (1, 3, 50, 2), (2, 5, 50), (3, 1, 1), (1, 400)])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_device_that_nothing_is_asked_of_scales_always_and_in_blocks(kind, shape, size):
    torch.manual_seed(0)
    tensor = (torch.randn(shape, dtype=torch.float64).clamp(-3, 3) * size).to(kind)
    with patch.multiple(statistics, _SMALL=0, _BLOCK=60, _LEAST_NORM=math.inf):
        if tensor[0].numel() > 1:
            assert_naive(tensor)
        else:
            assert sums(tensor).of_all().variance == pytest.approx(float(tensor.double().var()), rel=1e-5)


@given(
    st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=40),
    st.integers(-118, 120),
    st.booleans(),
)
def test_any_values_at_any_scale(values, exponent, always):
    tensor = torch.tensor([values], dtype=torch.float64) * 2.0**exponent
    tensor = tensor.float()
    least = math.inf if always else statistics._LEAST_NORM
    with patch.multiple(statistics, _SMALL=0, _LEAST_NORM=least):
        found = sums(tensor).of_all()
    exact = tensor.double()
    largest = float(exact.abs().max())
    assert found.maximum == largest
    assert found.mean == pytest.approx(float(exact.mean()), abs=1e-5 * largest)
    # Single precision has a millionth of the squared mean.
    assert found.variance == pytest.approx(float(exact.var()), rel=1e-5, abs=1e-5 * largest**2)


def test_what_is_not_finite_stays_so():
    for odd in (math.nan, math.inf, -math.inf):
        for always in (False, True):
            tensor = torch.ones(2, 3)
            tensor[0, 0] = odd
            least = math.inf if always else statistics._LEAST_NORM
            with patch.multiple(statistics, _SMALL=0, _LEAST_NORM=least):
                found = sums(tensor).of_all()
            assert not math.isfinite(found.maximum)
            assert not math.isfinite(found.mean)


@pytest.mark.parametrize("kind", FLOAT8)
@pytest.mark.parametrize("shape", [(3, 4), (300, 300)])
def test_eight_bits(kind, shape):
    torch.manual_seed(0)
    assert_naive(torch.rand(shape).to(kind))


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_a_sparse_tensor_counts_its_zeros(layout):
    torch.manual_seed(0)
    dense = torch.zeros(6, 8)
    dense[1], dense[4, :4] = torch.rand(8) + 1, torch.rand(4) + 1
    blocks = {"blocksize": (2, 4)} if layout.startswith("bs") else {}
    tensor = dense.to_sparse() if layout == "coo" else getattr(dense, f"to_sparse_{layout}")(**blocks)
    found = sums(tensor)
    assert found.values == dense.numel()
    assert found.lowest == 0
    assert found.of_all() == pytest.approx((float(dense.max()), float(dense.mean()), float(dense.var())), rel=1e-6)


def test_a_sparse_tensor_without_values_is_zeros():
    found = sums(torch.zeros(6, 8).to_sparse())
    assert found.values == 48
    assert found.of_all() == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("words", [[[1, 1, 2]], [[0, 1, 2, 3, 4, 5, 6]], [[]]])
def test_gradients_of_a_sparse_embedding(words):
    torch.manual_seed(0)
    said, embed = {}, torch.nn.Embedding(7, 4, sparse=True)
    head, words = torch.randn(4), torch.tensor(words, dtype=torch.int64)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)
    with watch(embed, optimizer, interval=1, detail=lambda _, metrics: said.update(metrics)):
        (embed(words) * head).sum().backward()
        expected = embed.weight.grad.to_dense().double()
        optimizer.step()
    assert said["gap/grads/weight/max"] == pytest.approx(float(expected.abs().max()), rel=1e-6)
    assert said["gap/grads/weight/mean"] == pytest.approx(float(expected.mean()), rel=1e-6)
    assert said["gap/grads/weight/var"] == pytest.approx(float(expected.var()), rel=1e-6)
