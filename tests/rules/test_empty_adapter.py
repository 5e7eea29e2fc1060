"""WGT007: adapters that hold nothing, or changed nothing."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from tracker_health.api import check

CODE = "WGT007"


def adapter(layers=3, *, second=0.01, size=8):
    found = {}
    for layer in range(layers):
        name = f"base_model.model.layers.{layer}.q_proj"
        found[f"{name}.lora_A.weight"] = torch.randn(4, size)
        found[f"{name}.lora_B.weight"] = torch.full((size, 4), second if layer else 0.01 * bool(second))
    return found


def left(folder, tensors, *, steps=300):
    (folder / "checkpoint-300").mkdir()
    save_file(tensors, folder / "checkpoint-300" / "adapter_model.safetensors")
    state = {"global_step": steps, "max_steps": steps, "epoch": 1.0, "log_history": [
        {"step": step, "loss": 2.0 - step / 400} for step in range(10, steps + 1, 10)
    ]}  # fmt: skip
    (folder / "checkpoint-300" / "trainer_state.json").write_text(json.dumps(state))
    report = check(folder)
    return next((one for one in (*report.results, *report.skipped) if one.code == CODE), None)


def test_an_adapter_that_was_trained(tmp_path):
    assert left(tmp_path, adapter()).verdict == "pass"


def test_a_file_without_a_tensor(tmp_path):
    result = left(tmp_path, {})
    assert (result.verdict, "holds 0 tensors" in result.message) == ("fail", True)


@pytest.mark.parametrize("rest", [False, True])
def test_tensors_of_size_0(rest, tmp_path):
    """As a shard of ZeRO-3 that was not gathered."""
    tensors = {name: torch.zeros(0) for name in adapter()}
    if rest:
        tensors |= adapter(1)
    result = left(tmp_path, tensors)
    assert result.verdict == ("warn" if rest else "fail")
    assert "of size 0" in result.message or "hold no value" in result.message


def test_second_matrices_that_are_all_0(tmp_path):
    result = left(tmp_path, adapter(second=0.0))
    assert (result.verdict, result.measured["idle"]) == ("fail", 3)
    assert "after 300 steps" in result.message


def test_some_second_matrices_that_are_all_0(tmp_path):
    some = adapter() | {"base_model.model.layers.9.q_proj.lora_B.weight": torch.zeros(8, 4)}
    assert left(tmp_path, some).verdict == "warn"


def test_an_adapter_of_the_first_steps(tmp_path):
    assert left(tmp_path, adapter(second=0.0), steps=20).verdict == "pass"


def test_a_whole_model_is_none(tmp_path):
    save_file({"layers.0.weight": torch.randn(8, 8)}, tmp_path / "model.safetensors")
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps({"step": n, "loss": 2.0 - n / 99}) for n in range(60)))
    result = next(one for one in (*check(tmp_path).results, *check(tmp_path).skipped) if one.code == CODE)
    assert "hold no adapter" in result.reason
