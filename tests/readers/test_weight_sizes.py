"""The root mean square of every tensor of a safetensors file."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402

from tracker_health.errors import ReadError  # noqa: E402
from tracker_health.readers.tensors.safetensors_header import open_safetensors  # noqa: E402
from tracker_health.readers.tensors.weights import Budget, described  # noqa: E402

from .conftest import read_safetensors  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 7, 65_535, 65_536, 65_537, 3 * 65_536])
def test_against_torch(dtype, size, tmp_path):
    torch.manual_seed(size)
    tensors = {"a": torch.randn(size).to(dtype), "b": (3 * torch.randn(2, 3)).to(dtype)}
    save_file(tensors, tmp_path / "w.safetensors")
    found = {one.name: one.rms for one in read_safetensors(tmp_path / "w.safetensors").tensors}
    for name, tensor in tensors.items():
        exact = float(tensor.double().pow(2).mean().sqrt())
        assert found[name] == pytest.approx(exact, rel=1e-9)


def test_beyond_the_budget_a_million_values_are_read(tmp_path):
    rows = torch.arange(64.0).repeat_interleave(65_536)
    save_file({"a": rows, "b": rows[:100].clone()}, tmp_path / "w.safetensors")
    exact = float(rows.double().pow(2).mean().sqrt())
    with open_safetensors(tmp_path / "w.safetensors") as tensors:
        large, small = described(tensors, Budget(1000))
    assert large.rms == pytest.approx(exact, rel=0.05)
    assert large.stats is None
    assert small.stats is not None


def test_integers_and_empty_tensors_have_none(tmp_path):
    save_file({"a": torch.arange(5), "b": torch.zeros(0), "c": torch.zeros(3)}, tmp_path / "w.safetensors")
    found = {one.name: one.rms for one in read_safetensors(tmp_path / "w.safetensors").tensors}
    assert found == {"a": None, "b": None, "c": 0.0}


def test_what_is_not_finite_shows(tmp_path):
    save_file({"a": torch.tensor([1.0, float("nan")]), "b": torch.tensor([1e300], dtype=torch.float64)}, tmp_path / "w")
    found = {one.name: one.rms for one in read_safetensors(tmp_path / "w").tensors}
    assert np.isnan(found["a"])
    assert np.isinf(found["b"])


def test_a_file_that_lost_its_end_is_refused(tmp_path):
    save_file({"a": torch.randn(1000)}, tmp_path / "w")
    data = (tmp_path / "w").read_bytes()
    (tmp_path / "w").write_bytes(data[:-8])
    with pytest.raises(ReadError, match="beyond the end"):
        read_safetensors(tmp_path / "w")
