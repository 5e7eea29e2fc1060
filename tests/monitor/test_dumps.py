"""Gradients as files: which steps, which part, before clipping; and what is refused."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch import nn  # noqa: E402

from tracker_health import ConfigError, GradientDumps, watch  # noqa: E402
from tracker_health.errors import ReadError  # noqa: E402
from tracker_health.readers.gradient_dumps import read_gradient_dumps  # noqa: E402


def train(dumps, kinds=(), steps=6, scaler=None):
    """Two micro-batches a step, clipped; gives the true gradients of each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model.scale = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    true = {}
    with watch(model, optimizer, kinds=kinds, interval=100, detail=lambda *_: None, dumps=dumps, scaler=scaler):
        for step in range(1, steps + 1):
            for _ in range(2):
                loss = (model(torch.randn(5, 4)) * model.scale).square().mean()
                (scaler.scale(loss) if scaler else loss).backward()
            if scaler:
                scaler.unscale_(optimizer)
            true[step] = {name: one.grad.clone() for name, one in model.named_parameters()}
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            scaler.step(optimizer) if scaler else optimizer.step()
            if scaler:
                scaler.update()
            optimizer.zero_grad()
    return true


@pytest.mark.parametrize("kinds", [(), ("grads", "activations")])
@pytest.mark.parametrize("scaled", [False, True])
def test_corners(kinds, scaled, tmp_path):
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0) if scaled else None
    true = train(GradientDumps(folder=tmp_path, start=2, end=6, step_interval=2, save_first_n=2), kinds, 7, scaler)
    folders = sorted(tmp_path.glob("gradients/*"))
    assert [one.name for one in folders] == ["step2", "step4", "step6"]
    for folder in folders:
        files = {one.name.removesuffix(".safetensors"): one for one in (folder / "sampled_gradients").iterdir()}
        assert files.keys() == true[2].keys()
        for name, file in files.items():
            held = safetensors_torch.load_file(file)
            whole = true[int(folder.name[4:])][name]
            assert list(held) == ["gradient"]
            torch.testing.assert_close(held["gradient"], whole[tuple(slice(2) for _ in whole.shape)])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_whole_gradients(tmp_path):
    true = train(GradientDumps(folder=tmp_path, start=3, end=3))
    assert [one.name for one in tmp_path.glob("gradients/*")] == ["step3"]
    read = {name: torch.zeros_like(one) for name, one in true[3].items()}
    reader = dcp.FileSystemReader(tmp_path / "gradients" / "step3" / "full_gradients")
    dcp.load(read, storage_reader=reader)
    for name, gradient in true[3].items():
        torch.testing.assert_close(read[name], gradient)


@pytest.mark.parametrize("wrong", [{"start": -1}, {"step_interval": 0}, {"save_first_n": 0}, {"start": 5, "end": 4}])
def test_refused(wrong, tmp_path):
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        GradientDumps(folder=tmp_path, **wrong)


def test_earlier_gradients_are_left_alone(tmp_path):
    (tmp_path / "gradients" / "step3").mkdir(parents=True)
    with pytest.raises(ConfigError, match="already"):
        train(GradientDumps(folder=tmp_path))


def test_corners_are_read(tmp_path):
    true = train(GradientDumps(folder=tmp_path, start=9, end=11, save_first_n=2), steps=11)
    dumps = read_gradient_dumps(tmp_path)
    assert [(one.step, one.whole) for one in dumps] == [(9, False), (10, False), (11, False)]
    for dump in dumps:
        assert {one.name for one in dump.tensors} == true[9].keys()
        for tensor in dump.tensors:
            corner = true[dump.step][tensor.name][tuple(slice(2) for _ in tensor.shape)].double()
            assert tensor.shape == corner.shape
            assert tensor.stats.mean == pytest.approx(float(corner.mean()), rel=1e-5)
            assert tensor.rms == pytest.approx(float(corner.square().mean().sqrt()), rel=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_whole_gradients_are_described(tmp_path):
    true = train(GradientDumps(folder=tmp_path, start=3, end=3))
    (dump,) = read_gradient_dumps(tmp_path)
    assert dump.whole
    assert {one.name: one.shape for one in dump.tensors} == {name: tuple(one.shape) for name, one in true[3].items()}


def test_olmo_cores_layout_and_broken_files(tmp_path):
    folder = tmp_path / "gradient_dumper" / "step20" / "sampled_gradients"
    folder.mkdir(parents=True)
    safetensors_torch.save_file({"gradient": torch.ones(3, 4)}, folder / "blocks.0.w.weight_first3.safetensors")
    (dump,) = read_gradient_dumps(tmp_path)
    assert [(one.name, one.shape, one.rms) for one in dump.tensors] == [("blocks.0.w.weight", (3, 4), 1.0)]
    for content in (b"", b"\xff" * 64):
        (folder / "b.safetensors").write_bytes(content)
        with pytest.raises(ReadError):
            read_gradient_dumps(tmp_path)
    safetensors_torch.save_file({"weight": torch.ones(2)}, folder / "b.safetensors")
    with pytest.raises(ReadError, match="other tensors"):
        read_gradient_dumps(tmp_path)
