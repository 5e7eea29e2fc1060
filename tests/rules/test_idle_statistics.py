"""WGT006, on trainings of torch's own layers and optimizers."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tracker_health.api import check

CODE = "WGT006"


def network(**of_norm):
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16, **of_norm), nn.ReLU(), nn.Linear(16, 8), nn.BatchNorm1d(8, **of_norm), nn.Linear(8, 1)
    )  # fmt: skip


def left(folder, model, *, training, steps=60):
    """What a training leaves: a log, the optimizer's state, the weights."""
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=1e-2)
    rows = []
    training(model)
    for step in range(steps):
        x = torch.randn(32, 8)
        loss = (model(x)[:, 0] - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append(json.dumps({"step": step, "loss": loss.item()}))
    (folder / "metrics.jsonl").write_text("\n".join(rows))
    torch.save({"optimizer_state_dict": optimizer.state_dict(), "global_step": steps}, folder / "training_state.pt")
    save_file(model.state_dict(), folder / "model.safetensors")
    report = check(folder)
    return next((one for one in (*report.results, *report.skipped) if one.code == CODE), None)


def test_trained_in_evaluation_mode(tmp_path):
    result = left(tmp_path, network(), training=lambda model: model.eval())
    assert result.verdict == "warn"
    assert result.measured == {"idle": 2, "layers": 2}
    assert "1, 4" in result.message


def test_one_layer_in_evaluation_mode(tmp_path):
    result = left(tmp_path, network(), training=lambda model: model.train()[4].eval())
    assert result.verdict == "warn"
    assert result.measured == {"idle": 1, "layers": 2}


def test_a_momentum_of_zero(tmp_path):
    assert left(tmp_path, network(momentum=0.0), training=lambda model: model.train()).verdict == "warn"


def frozen_as_begun(model):
    model.eval()
    for one in (model[1], model[4]):
        one.requires_grad_(requires_grad=False)


def test_all_layers_frozen_before_they_were_ever_trained(tmp_path):
    result = left(tmp_path, network(), training=frozen_as_begun)
    assert result.verdict == "warn"
    assert "nothing was normalised: 1, 4" in result.message


def frozen(model):
    """The statistics of a trained model, kept on purpose while it is tuned."""
    model.train()
    for _ in range(20):
        model(3.0 * torch.randn(32, 8) + 1.0)
    model.eval()


def unused(model):
    """Never trained, never looked at: a layer that the forward pass leaves out."""
    model.train()
    model[4].forward = lambda x: x


def unused_and_initialised(weights):
    """The same, of a layer whose weights do not begin at one."""

    def prepare(model):
        weights(model[4].weight)
        unused(model)

    return prepare


HEALTHY = {
    "trained": lambda model: model.train(),
    "frozen on purpose": frozen,
    "unused": unused,
    "unused, begun at zero": unused_and_initialised(nn.init.zeros_),
    "unused, begun at random": unused_and_initialised(lambda weight: nn.init.normal_(weight, 1.0, 0.02)),
}


@pytest.mark.parametrize("training", HEALTHY.values(), ids=HEALTHY)
def test_healthy(training, tmp_path):
    assert left(tmp_path, network(), training=training).verdict == "pass"


def test_nothing_to_tell_it_by(tmp_path):
    for number, model in enumerate((network(affine=False), network(track_running_stats=False))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert "no trained layer" in left(folder, model, training=lambda model: model.eval()).reason


def test_too_few_steps(tmp_path):
    assert "fewer than 10" in left(tmp_path, network(), training=lambda model: model.eval(), steps=5).reason
