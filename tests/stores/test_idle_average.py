"""A moving average of the model, in torch's own checkpoints of a real training."""

from __future__ import annotations

import copy
import json

import pytest

from tracker_health.api import check

torch = pytest.importorskip("torch")


def train(folder, *, key="ema", updates=True, wrap=False, logged=60, model=True):
    """Sixty steps of a small model, saved every twenty of them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    average = copy.deepcopy(net)
    x = torch.randn(64, 6)
    rows = []
    for step in range(1, 61):
        loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if updates:
            for one, other in zip(average.parameters(), net.parameters(), strict=True):
                one.data.lerp_(other.data, 0.05)
        rows.append({"global_step": step, "loss": loss.item()})
        if step % 20 == 0:
            state = average.state_dict()
            document = {"optimizer": optimizer.state_dict(), "step": step, key: {"module": state} if wrap else state}
            torch.save(document | ({"model": net.state_dict()} if model else {}), folder / f"ckpt_{step}.pt")
    rows += [{"global_step": step, "loss": 0.1} for step in range(61, logged + 1)]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def outcome(folder):
    return next(((one.verdict, one.message) for one in check(folder).results if one.code == "WGT002"), ("skip", ""))


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("key", ["ema", "model_ema", "ema_state_dict", "EMA_model"])
def test_an_average_that_is_not_updated(tmp_path, key, wrap):
    train(tmp_path, key=key, updates=False, wrap=wrap)
    verdict, message = outcome(tmp_path)
    assert verdict == "warn"
    assert message.startswith(f"the moving average in ckpt_60.pt ({key}) is the one of ckpt_40.pt")


@pytest.mark.parametrize(
    "more",
    [{}, {"key": "ema", "wrap": True}, {"key": "teacher", "updates": False}, {"key": "ema_decays", "updates": False}],
)
def test_an_average_that_moves_or_is_another_thing(tmp_path, more):
    train(tmp_path, **more)
    assert outcome(tmp_path)[0] == "pass"


def test_an_average_that_may_begin_later(tmp_path):
    train(tmp_path, updates=False, logged=600)
    assert outcome(tmp_path)[0] == "pass"


def test_an_average_alone_is_no_model_beside_it(tmp_path):
    train(tmp_path, updates=False, model=False)
    assert outcome(tmp_path)[0] != "warn" or "moving average" not in outcome(tmp_path)[1]
