"""The one-line helper for the tests of other packages' rules."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tracker_health import (
    Config,
    Evidence,
    Finding,
    Need,
    OptimizerState,
    Part,
    RunInfo,
    Series,
    Symptom,
    Verdict,
    Weights,
)
from tracker_health.evidence import RunRef, TensorHeader
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.report.result import ProbeResult, SkippedProbe
from tracker_health.rules.curves.diverged import Diverged
from tracker_health.rules.curves.no_progress import NoProgress
from tracker_health.rules.optimizer.too_few_steps import TooFewSteps
from tracker_health.rules.probe import flaw_in
from tracker_health.rules.registry import BUILT_IN
from tracker_health.testing import check_probe


@pytest.fixture(scope="module")
def rule(tmp_path_factory):
    """The rule of the good plugin, from its source."""
    path = Path(__file__).parent / "good_plugin" / "good_plugin.py"
    spec = importlib.util.spec_from_file_location("good_plugin", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["good_plugin"] = module
    try:
        spec.loader.exec_module(module)
        yield module.HighEnd
    finally:
        del sys.modules["good_plugin"]


def altered(rule, **more):
    return type("Altered", (rule,), {"__doc__": rule.__doc__, **more})


def judging(finding):
    return lambda self, evidence: finding


def test_the_results_of_a_sound_rule(rule):
    result = check_probe(rule, series={"train/loss": [3, 2, 0.5]}, expect="pass")
    assert isinstance(result, ProbeResult)
    assert result.measured == {"last": 0.5}
    assert check_probe(rule, series={"loss": [(10, 1), (20, 2), (30, 3)]}, expect=Verdict.FAIL).votes
    assert check_probe(rule(ceiling=5), series={"loss": [3, 3, 3]}, expect="pass").thresholds == {"ceiling": 5}


def test_a_rule_is_skipped_by_the_real_engine(rule):
    skipped = check_probe(rule, series={"loss": [1, 2]}, expect="skip")
    assert isinstance(skipped, SkippedProbe)
    assert skipped.reason == "only 2 points of train loss, 3 are needed"
    assert "seen: reward" in check_probe(rule, series={"reward": [1, 2, 3]}, expect="skip").reason
    assert check_probe(rule, series={"loss": []}, expect="skip").code == "TEA001"


def test_roles_are_those_of_the_configuration(rule):
    config = Config(roles={"train_loss": ("my/loss",)})
    check_probe(rule, series={"my_loss": [3, 2, 0.5]}, config=config, expect="pass")
    check_probe(rule, series={"loss": [3, 2, 0.5]}, config=config, expect="skip")
    check_probe(rule, series={"loss": [3, 2, 0.5], "train/reward": [1, 2, 3]}, expect="skip")


def test_parts_reach_only_a_rule_that_needs_them(rule):
    state, weights = OptimizerState(source="optimizer.pt", tensors=(), global_step=5), Weights(source="w", tensors=())
    seen = {}

    def judge(self, evidence):
        seen.update(optimizer=evidence.optimizer, weights=evidence.weights, names=[one.name for one in evidence.series])
        return Finding(verdict=Verdict.PASS, message="fine")

    series = {"loss": [1, 2, 3], "lr": [1, 1, 1]}
    check_probe(altered(rule, judge=judge), series=series, optimizer=state, weights=weights)
    assert seen == {"optimizer": None, "weights": None, "names": ["loss"]}
    needs = (Need(role=Part.OPTIMIZER_STATE), Need(role=Part.WEIGHTS), Need(role="learning_rate", optional=True))
    check_probe(altered(rule, judge=judge, needs=needs), series=series, optimizer=state, weights=weights)
    assert seen == {"optimizer": state, "weights": weights, "names": ["lr"]}


def looking(rule, look, *roles):
    """A rule that needs these parts, and what it saw of them."""
    seen = []

    def judge(self, evidence):
        seen[:] = [look(evidence)]
        return Finding.passed("fine")

    return altered(rule, judge=judge, needs=tuple(Need(role=role) for role in roles)), seen


def test_an_optimizer_as_plain_arrays_is_what_its_checkpoint_gives(rule, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    adam = torch.optim.Adam([{"params": list(model.named_parameters()), "lr": 0.01}])
    model(torch.ones(4, 3)).sum().backward()
    adam.step()
    torch.save(adam.state_dict(), tmp_path / "optimizer.pt")
    saved = read_optimizer_state(tmp_path / "optimizer.pt", "check_probe")
    arrays = {
        key: {name: one.numpy() for name, one in entry.items()} for key, entry in adam.state_dict()["state"].items()
    }
    asking, seen = looking(rule, lambda evidence: evidence.optimizer, Part.OPTIMIZER_STATE)
    check_probe(asking, optimizer={**adam.state_dict(), "state": arrays}, expect="pass")
    assert seen[0] == replace(saved, beside_weights=None)
    check_probe(asking, optimizer=dict(zip(("weight", "bias"), arrays.values(), strict=True)), expect="pass")
    assert [replace(one, group=0) for one in seen[0].tensors] == list(saved.tensors)
    check_probe(asking, optimizer={"weight": arrays[0], "idle": {}}, expect="pass")
    assert seen[0].stateless == ("idle",)


def test_weights_as_plain_arrays_have_statistics_and_changes(rule):
    asking, seen = looking(rule, lambda evidence: evidence.weights, Part.WEIGHTS)
    now = {"a.weight": np.array([[3.0, 4.0], [0.0, 0.0]]), "ids": np.arange(3), "half": np.ones(2, np.float32)}
    check_probe(asking, weights=now, previous_weights={**now, "a.weight": np.zeros((2, 2))}, expect="pass")
    weight, ids, half = seen[0].tensors
    assert (weight.shape, weight.rms, weight.stats.zeros, weight.stats.zero_rows) == ((2, 2), 2.5, 2, 1)
    assert (ids.dtype, ids.rms, half.rms) == ("I64", None, 1.0)
    assert {one.name: (one.rms, one.unchanged) for one in seen[0].changes} == {
        "a.weight": (2.5, False), "half": (0.0, True),
    }  # fmt: skip
    check_probe(altered(rule, needs=(Need(role=Part.WEIGHT_CHANGES),)), weights=now, expect="skip")


def test_a_console_log_as_text(rule):
    asking, seen = looking(rule, lambda evidence: evidence.text_log, Part.TEXT_LOG)
    text = "step 1 loss 2.0\nTraceback (most recent call last):\n  File x\nRuntimeError: CUDA out of memory\n"
    check_probe(asking, text_log=text, expect="pass")
    assert (seen[0].lines, [one.cause for one in seen[0].troubles]) == (4, ["out of memory"])
    with pytest.raises(ValueError, match="no line"):
        check_probe(asking, text_log="\n")


def test_ready_evidence_stands_alone(rule):
    ready = Evidence(run=RunRef(store="directory", id="a", name="a"), info=RunInfo(metric_names=("loss",)))
    assert check_probe(rule, evidence=ready, expect="skip").code == "TEA001"
    with pytest.raises(ValueError, match="give one or the other"):
        check_probe(rule, evidence=ready, series={"loss": [3, 2, 1]})
    with pytest.raises(ValueError, match="previous_weights"):
        check_probe(looking(rule, id, Part.WEIGHTS)[0], previous_weights={})


def test_a_series_that_has_a_role_keeps_it(rule):
    series = Series(name="x", role="train_loss", steps=np.arange(3), values=np.array([3.0, 2.0, 0.5]))
    check_probe(rule, series={"x": series}, expect="pass")
    check_probe(rule, series={"train/loss": replace(series, role=None)}, expect="pass")
    check_probe(rule, series={"y": replace(series, role=None)}, expect="skip")


def test_built_in_rules_pass_it():
    falling = [4.0 * 0.97**step + 1 for step in range(200)]
    for probe in BUILT_IN:
        check_probe(probe, series={"loss": falling})
    check_probe(NoProgress, series={"loss": falling}, expect="pass")
    check_probe(Diverged, series={"loss": falling + [9.0] * 100}, expect="fail")
    check_probe(TooFewSteps, global_step=5, expect="fail")
    check_probe(TooFewSteps, global_step=40, params={"max_steps": 1000}, expect="fail")
    adapter = Weights(
        source="adapter_model.safetensors", tensors=(TensorHeader(name="a.lora_A.weight", shape=(2,), dtype="F32"),)
    )
    flat = [2.0 + 0.001 * (step % 3) for step in range(200)]
    check_probe(NoProgress, series={"loss": flat}, weights=adapter, expect="warn")
    check_probe(NoProgress, series={"loss": flat}, expect="fail")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"code": "TEAM1"}, "its code is 'TEAM1'"),
        ({"__doc__": "No sections."}, "its docstring has the sections"),
        ({"symptom": "unstable"}, "symptom"),
        ({"judge": lambda self, evidence: 1 / 0}, "the rule broke: ZeroDivisionError"),
        ({"judge": lambda self, evidence: sys.exit(3)}, "the rule broke: SystemExit"),
        ({"judge": lambda self, evidence: evidence.first("val_loss")}, "the rule's needs must name them"),
        (
            {"judge": lambda self, evidence: evidence.first("train_loss").values.sort()},
            "the rule broke: ValueError",
        ),
        ({"judge": judging(Finding(verdict="fail", message="bad", remedy="x"))}, "must name numbers"),
        ({"judge": judging(Finding(verdict="fail", message="3 bad"))}, "must say what to do"),
        ({"judge": judging(Finding(verdict="warn", message="3", remedy="x", score=1))}, "cannot have the score 1"),
        ({"judge": judging(Finding(verdict="pass", message="two\nlines"))}, "must be one line"),
        ({"judge": judging(Finding(verdict="pass", message=" "))}, "must be one line"),
        ({"judge": judging(Finding(verdict="pass", message="x", details={"a": object()}))}, "no JSON form"),
    ],
)
def test_what_is_wrong_with_a_rule_is_told(rule, changes, told):
    with pytest.raises(AssertionError, match=re.escape(told)):
        check_probe(altered(rule, **changes), series={"loss": [3, 2, 1]})


def test_the_traceback_leads_into_the_rule(rule):
    with pytest.raises(AssertionError) as caught:
        check_probe(altered(rule, judge=lambda self, evidence: 1 / 0), series={"loss": [3, 2, 1]})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_rule_that_remembers_is_not_pure(rule):
    calls = []

    def judge(self, evidence):
        calls.append(1)
        return Finding(verdict=Verdict.PASS, message=f"{len(calls)} calls")

    with pytest.raises(AssertionError, match="is not pure"):
        check_probe(altered(rule, judge=judge), series={"loss": [3, 2, 1]})


def test_another_verdict_than_expected_is_told_with_its_numbers(rule):
    with pytest.raises(AssertionError) as caught:
        check_probe(rule, series={"loss": [3, 2, 1.5]}, expect="pass")
    assert str(caught.value) == (
        "TEA001 high-end: expected pass, got fail: the loss ends at 1.5, the ceiling is 1 (last = 1.5)"
    )
    with pytest.raises(AssertionError, match="expected fail, got skip: only 1 point of train loss, 3 are needed"):
        check_probe(rule, series={"loss": [3]}, expect="fail")


def test_what_is_no_rule_and_no_series(rule):
    with pytest.raises(AssertionError, match=r"is no subclass of tracker_health\.Probe"):
        check_probe(Symptom)
    with pytest.raises(AssertionError, match="neither a list of values nor one of"):
        check_probe(rule, series={"loss": [[1, 2, 3]]})


@pytest.mark.slow
def test_the_helper_needs_no_pytest():
    code = "import sys; import tracker_health.testing; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("name", ["loss (nats)", "", "../x", "x" * 101, "a/b", "1st", "\u00e4", "a\n", 3])
def test_a_headline_that_no_tracker_takes_as_a_name_is_a_flaw(rule, name):
    assert "not a tuple of names" in flaw_in(altered(rule, headline=("last", name)))
    assert flaw_in(altered(rule, headline=("last", "x" * 100, "A_1"))) is None
