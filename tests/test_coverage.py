"""What of a run was judged, and which runs do not pass by it."""

from __future__ import annotations

import numpy as np
import pytest

from tracker_health.api import check
from tracker_health.config import Config, preset
from tracker_health.evidence import Evidence, OptimizerState, RunInfo, RunRef, Series, StepUnit, TensorState, confirm
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="run", name="run")
FALLING = list(2.3 * np.exp(-np.linspace(0, 2, 60)))


NOISE = [3.0 + 0.5 * (-1) ** i + 0.2 * ((i * 7) % 5 - 2) for i in range(28)]


def judged(series, *, params=None, optimizer=None, config=None, step_unit=StepUnit.UNKNOWN):
    config = config or Config()
    request = needs_of(config)
    made = [
        Series(name=name, steps=np.arange(1, len(values) + 1), values=np.array(values, dtype=np.float64), source="log",
               step_unit=step_unit)
        for name, values in series.items()
    ]  # fmt: skip
    info = RunInfo(params=params or {}, metric_names=tuple(series))
    evidence = Evidence(
        run=RUN, info=info, series=confirm(tuple(made), request.roles.of(series))[0], optimizer=optimizer
    )
    return diagnose(evidence, config)


def states(report):
    return {one.part: one.state for one in report.judged}


def test_each_part_is_judged_or_not_there():
    report = judged({"loss": FALLING, "grad_norm": [1.0] * 60})
    assert report.verdict is Verdict.PASS
    found = states(report)
    assert found["loss"] == found["gradients"] == "judged"
    assert found["validation"] == found["weights"] == found["end"] == "not there"


def test_what_is_there_and_too_little_says_why():
    report = judged({"loss": [3.0, 2.0, 1.0]})
    part = next(one for one in report.judged if one.part == "loss")
    assert (part.state, report.verdict) == ("not usable", Verdict.SKIP)
    assert "3 points" in part.why


def test_noise_that_would_hide_a_large_descent_is_not_green():
    report = judged({"train_loss": NOISE})
    assert report.verdict is Verdict.SKIP
    assert states(report)["loss"] == "not usable"
    assert "noise may hide a descent" in report.summary


def test_little_noise_on_a_loss_that_falls_passes():
    loss = np.array(FALLING) + np.random.default_rng(1).normal(0, 0.1, 60)
    assert judged({"train_loss": loss}).verdict is Verdict.PASS


def test_with_a_loss_a_checkpoint_alone_vouches_for_nothing():
    tensor = TensorState(id=0, shape=(4, 4), step=500.0)
    state = OptimizerState(source="optimizer.pt", tensors=(tensor,), groups=({"lr": 0.1},))
    assert judged({"loss": [3.0, 2.0]}, optimizer=state).verdict is Verdict.SKIP


@pytest.mark.parametrize(("planned", "verdict"), [(5, Verdict.SKIP), (500, Verdict.FAIL)])
def test_a_plan_of_a_few_steps_is_too_short_to_judge(planned, verdict):
    series = {"loss": [3.0, 2.5, 2.2, 2.0, 1.9], "global_step": [1, 2, 3, 4, 5]}
    report = judged(series, params={"max_steps": str(planned)}, step_unit=StepUnit.OPTIMIZER_STEP)
    assert report.verdict is verdict
    assert verdict is Verdict.FAIL or "too few to judge" in report.summary


OVERFIT = {
    "loss": list(2.3 * np.exp(-np.linspace(0, 3, 60))),
    "val_loss": [2.1, 1.6, 1.3, 1.2, 1.15, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8],
}


@pytest.mark.parametrize(
    ("params", "verdict"),
    [
        ({}, Verdict.WARN),
        ({"load_best_model_at_end": "True"}, Verdict.PASS),
        ({"load_best_model_at_end": "False"}, Verdict.WARN),
        ({"best_model_checkpoint": "checkpoint-5"}, Verdict.PASS),
        ({"best_model_checkpoint": "checkpoint-9"}, Verdict.WARN),
    ],
)
def test_overfitting_whose_best_checkpoint_was_kept_passes_with_a_note(params, verdict):
    report = judged(OVERFIT, params=params)
    assert next(one for one in report.results if one.code == "GEN001").verdict is verdict
    assert any(note.startswith("GEN001") for note in report.notes) is (report.verdict is Verdict.PASS)


def test_the_two_original_rules_keep_their_verdicts():
    assert judged({"train_loss": NOISE}, config=preset("dlm")).verdict is Verdict.SKIP


def test_a_part_that_a_rule_judged_by_another_is_judged(tmp_path):
    """Dead units of weights show in the moments, where no weights were saved."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(300):
        net(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    report = check(tmp_path)
    assert "WGT003" in {one.code for one in report.results}
    assert "weights (only by what the optimizer keeps)" in report.judged_parts("judged")
    assert "weights" not in report.judged_parts("not there")
