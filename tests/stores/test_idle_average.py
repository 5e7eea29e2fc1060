"""A moving average of the model, in torch's own checkpoints of a real training."""

from __future__ import annotations

import copy
import json

import pytest

from tracker_health.api import check

torch = pytest.importorskip("torch")


def train(
    folder, *, key="ema", updates=1, wrap=False, logged=60, model=True, frozen=False, saved=(20, 40, 60), **params
):
    """Sixty steps of a small model. ``updates``: the average's, every so many steps; 0 for none."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    if frozen:
        net[0].requires_grad_(requires_grad=False)
    optimizer = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], lr=1e-2)
    average = copy.deepcopy(net)
    x = torch.randn(64, 6)
    rows = []
    for step in range(1, 61):
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if updates and step % updates == 0:
            for one, other in zip(average.parameters(), net.parameters(), strict=True):
                one.data.lerp_(other.data, 0.05)
        rows.append({"global_step": step, "loss": loss.item()})
        if step in saved:
            state = average.state_dict()
            document = {"optimizer": optimizer.state_dict(), "step": step, key: {"module": state} if wrap else state}
            torch.save(document | ({"model": net.state_dict()} if model else {}), folder / f"ckpt_{step}.pt")
    rows += [{"global_step": step, "loss": 0.1} for step in range(61, logged + 1)]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "config.json").write_text(json.dumps(params))


def outcome(folder):
    return next(((one.verdict, one.message) for one in check(folder).results if one.code == "WGT002"), ("skip", ""))


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("key", ["ema", "model_ema", "ema_state_dict", "EMA_model"])
@pytest.mark.thinned(2)
def test_an_average_that_is_not_updated(tmp_path, key, wrap):
    train(tmp_path, key=key, updates=0, wrap=wrap)
    verdict, message = outcome(tmp_path)
    assert verdict == "warn"
    assert message.startswith(f"the moving average in ckpt_60.pt ({key}) is that of the first checkpoint")


@pytest.mark.parametrize("more", [
    {}, {"key": "ema", "wrap": True}, {"key": "teacher", "updates": 0}, {"key": "ema_decays", "updates": 0},
    {"frozen": True},  # in the model and in its average
    {"updates": 30, "saved": (20, 40, 50, 60)},  # once per epoch
    {"updates": 0, "saved": (40, 60)}, {"updates": 0, "ema_start": 100}, {"updates": 0, "update_after_step": 100},
    {"updates": 0, "logged": 600},  # a checkpoint of the middle
])  # fmt: skip
def test_an_average_that_moves_or_may_begin_later_or_is_another_thing(tmp_path, more):
    train(tmp_path, **more)
    assert outcome(tmp_path)[0] == "pass"


def test_the_layers_that_are_trained_tell(tmp_path):
    train(tmp_path, updates=0, frozen=True)
    assert outcome(tmp_path)[0] == "warn"


def test_an_average_alone_is_no_model_beside_it(tmp_path):
    train(tmp_path, updates=0, model=False)
    assert outcome(tmp_path) == ("skip", "")
