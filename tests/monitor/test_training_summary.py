"""What a watched training leaves of its optimizer tells a frozen layer from one that no gradient reached."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tracker_health  # noqa: E402
from tracker_health.monitor.training_summary import summary_of  # noqa: E402
from tracker_health.readers.training_summary import as_text, read_training_summary  # noqa: E402


def trained(model, forward, folder):
    """OPT004 on the summary of ten steps, and the summary."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(10):
        optimizer.zero_grad()
        forward(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    path = folder / "health_summary.json"
    path.write_text(as_text(summary_of(model, optimizer, steps=10, params={})))
    found = {one.code: one for one in tracker_health.check(folder).results}
    return found["OPT004"], read_training_summary(path, "summary").optimizer


def chain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))


def test_a_first_layer_that_asks_for_a_gradient_and_gets_none_is_warned_of(tmp_path):
    model = chain()
    found, optimizer = trained(model, lambda batch: model[1:](model[0](batch).detach()), tmp_path)
    assert (str(found.verdict), found.details["missing"]) == ("warn", ["0.weight", "0.bias"])
    assert (optimizer.stateless, optimizer.frozen) == (("0.weight", "0.bias"), ())


def test_a_first_layer_that_is_frozen_is_not(tmp_path):
    model = chain()
    model[0].requires_grad_(requires_grad=False)
    found, optimizer = trained(model, model, tmp_path)
    assert str(found.verdict) == "pass"
    assert optimizer.stateless == optimizer.frozen == ("0.weight", "0.bias")


def test_nor_is_a_large_part_that_is_run_without_gradients(tmp_path):
    model = nn.Sequential(*chain(), nn.Linear(2, 2))
    for one in model[:5].parameters():
        one.data *= 3  # no longer as layers begin: trained before
    found, optimizer = trained(model, lambda batch: model[5](model[:5](batch).detach()), tmp_path)
    assert (str(found.verdict), len(optimizer.stateless)) == ("pass", 6)
