"""The loss scale that a scaler saved with a checkpoint."""

import json
import math

import pytest

from tracker_health.api import check
from tracker_health.evidence import Part, Request
from tracker_health.readers.checkpoint_formats import FORMATS
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.readers.optimizers.saved_scaler import scales_in
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import read_files
from tracker_health.stores.folder.directory import DirectoryRun

torch = pytest.importorskip("torch")


def trained(steps=3):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return optimizer.state_dict()


def scaler(scale=65536.0, **settings):
    return torch.amp.GradScaler("cpu", init_scale=scale, **settings).state_dict()


def read(folder, **more):
    """The loss scale of a checkpoint with these things beside the optimizer's state."""
    torch.save({"optimizer": trained()} | more, folder / "last.pt")
    return read_optimizer_state(folder / "last.pt", "last.pt").loss_scale


@pytest.mark.parametrize("key", ["scaler", "grad_scaler", "amp_scaler", "scaler_state_dict", "MixedPrecision"])
@pytest.mark.parametrize("scale", [65536.0, 2.0**-20, 0.0])
def test_torchs_own_under_any_key(key, scale, tmp_path):
    assert read(tmp_path, **{key: scaler(scale)}) == scale


@pytest.mark.parametrize(
    "more",
    [
        {"amp": {"loss_scaler0": {"loss_scale": 0.25, "unskipped": 3}}},
        {"amp": {"loss_scaler0": {"loss_scale": 1024.0, "unskipped": 3}, "loss_scaler1": {"loss_scale": 0.25, "unskipped": 1}}},
        {"meta": {"fp16": {"loss_scaler": {"scale": 0.25, "growth_factor": 2.0}}}},
        {"grad_scaler": {"scale": torch.tensor([0.25]), "growth_tracker": torch.tensor([7], dtype=torch.int32)}},
        {"scaler": {"scale": torch.tensor(0.25), "_growth_tracker": 0}},
    ],
    ids=["apex", "two of apex", "nested", "megatron", "tensor"],
)  # fmt: skip
def test_those_of_others(more, tmp_path):
    """Of several the smallest."""
    assert read(tmp_path, **more) == 0.25


def test_in_the_optimizers_state(tmp_path):
    """As fairseq and OpenMMLab have it."""
    torch.save({"last_optimizer_state": trained() | {"loss_scale": 0.25}}, tmp_path / "a.pt")
    torch.save({"optimizer": trained() | {"loss_scaler": scaler(0.25)}}, tmp_path / "b.pt")
    assert [read_optimizer_state(tmp_path / name, name).loss_scale for name in ("a.pt", "b.pt")] == [0.25, 0.25]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"scaler": {}},
        {"scaler": None},
        {"scaler": scaler(enabled=False)},
        {"model": {"scale": torch.tensor(0.25), "bias": torch.ones(2)}},
        {"config": {"scale": 0.25, "loss_scale": 0.25}},
        {"scaler": {"scale": "0.25", "growth_factor": 2.0}},
        {"scaler": {"scale": True, "growth_factor": 2.0}},
        {"scaler": {"scale": -1.0, "growth_factor": 2.0}},
        {"scaler": {"scale": math.nan, "growth_factor": 2.0}},
        {"scaler": {"scale": 10**400, "growth_factor": 2.0}},
        {"scaler": {"scale": torch.ones(2), "growth_factor": 2.0}},
    ],
)
def test_what_is_no_scale(more, tmp_path):
    """A scaler that is off saves nothing; a layer and a setting may be called a scale, too."""
    assert read(tmp_path, **more) is None


def test_the_search_is_bounded():
    wide = {str(key): {} for key in range(10**5)}
    assert scales_in({"a": wide | {"scale": 1.0, "growth_factor": 2.0}}) == []
    tangle = {}
    tangle |= {str(key): tangle for key in range(90)}
    assert scales_in(tangle) == []
    deep = {"scale": 1.0, "growth_factor": 2.0}
    for _ in range(10):
        deep = {"a": deep}
    assert scales_in(deep) == []


# In a file of its own


def leave(folder, *, scale=None, content=None, name="optimizer.pt"):
    folder.mkdir(exist_ok=True)
    torch.save(trained(), folder / name)
    if content is not None:
        (folder / "scaler.pt").write_bytes(content)
    elif scale is not None:
        torch.save(scaler(scale), folder / "scaler.pt")
    return read_files(DirectoryRun(folder), Request(roles=RolePlan(), parts=frozenset(Part)))


@pytest.mark.parametrize("name", ["optimizer.pt", "optimizer.bin"])
def test_beside_the_optimizers_file(name, tmp_path):
    """As the Hugging Face Trainer and Accelerate leave it."""
    found = leave(tmp_path, scale=2.0**-20, name=name)
    assert (found.optimizer.loss_scale, found.optimizer.source, found.problems) == (2.0**-20, name, [])


def test_a_checkpoint_of_another_name_has_its_own(tmp_path):
    torch.save(scaler(2.0**-20), tmp_path / "scaler.pt")
    assert leave(tmp_path, scale=2.0**-20, name="last.pt").optimizer.loss_scale is None


@pytest.mark.parametrize("content", [b"", b"nothing that can be read"])
def test_one_that_cannot_be_read_costs_nothing(content, tmp_path):
    found = leave(tmp_path, content=content)
    assert (found.optimizer.loss_scale, found.problems) == (None, [])


def test_it_belongs_to_the_checkpoint_and_is_none_itself(tmp_path):
    (form,) = (one for one in FORMATS if one.belongs("scaler.pt"))
    assert form.leads(["scaler.pt"]) == {}
    assert list(form.leads(["scaler.pt", "optimizer.pt"])) == ["optimizer.pt"]


def test_a_run_that_never_logged_its_scale(tmp_path):
    torch.save({"optimizer": trained(), "scaler": scaler(2.0**-30)}, tmp_path / "last.pt")
    rows = [json.dumps({"step": step, "loss": 1.0 / (step + 1)}) for step in range(60)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    (found,) = (one for one in check(tmp_path).results if one.code == "AMP001")
    assert found.verdict == "fail"
    assert "saved in last.pt is 9.31e-10" in found.message
