"""The ablation benchmark: what it caches, and what it says of a rule or a special case that is taken out."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import check
from tracker_health.config import Config
from tracker_health.evidence import Evidence, Need, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import Finding
from tracker_health.rules import registry
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.words.verdict import Verdict

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "ablate.py"


@dataclass(frozen=True, kw_only=True)
class EndsHigh(Probe):
    """The loss ends high.

    What it finds:
        A last loss above 1.

    Why it matters:
        It is of no use.

    How it decides:
        The last value is above 1.

    Special cases:
        long-log: Of a long log nothing is said.
        never: No run is of this kind.

    Known limits:
        None.

    What to do:
        Train longer.

    References:
        None.
    """

    code = "TST001"
    name = "ends-high"
    symptom = Symptom.NOT_LEARNING
    vouches = True

    @property
    def needs(self):
        return (Need(role="train_loss", min_points=1),)

    def judge(self, evidence):
        values = evidence.first("train_loss").finite().values
        if self.case("never", applies=False) or self.case("long-log", applies=len(values) > 8):
            return Finding(verdict=Verdict.PASS, message="it is long", case="long-log")
        verdict = Verdict.FAIL if values[-1] > 1 else Verdict.PASS
        return Finding(verdict=verdict, message=f"ends at {values[-1]:g}", remedy="train longer")


@pytest.fixture(scope="module")
def module():
    spec = importlib.util.spec_from_file_location("ablate", SCRIPT)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["ablate"] = loaded
    path = list(sys.path)
    try:
        spec.loader.exec_module(loaded)
        yield loaded
    finally:
        sys.path[:] = path
        del sys.modules["ablate"]


@pytest.fixture
def ablate(module, monkeypatch):
    """The benchmark, with one rule."""
    monkeypatch.setattr(registry, "BUILT_IN", (EndsHigh,))
    monkeypatch.setattr(module, "BUILT_IN", (EndsHigh,))
    return module


def evidence(values):
    steps = np.arange(len(values))
    series = Series(name="loss", role="train_loss", steps=steps, values=np.array(values, dtype=float))
    return Evidence(run=RunRef(store="directory", id="a", name="a"), series=(series,))


@pytest.fixture
def cache(ablate, tmp_path):
    folder = tmp_path / "cache"
    for split, name, label, values in (
        ("tune", "a", "healthy", [2.0] * 9),
        ("tune", "b", "healthy", [2.0] * 10),
        ("tune", "c", "stuck", [2.0] * 3),
        ("validate", "d", "healthy", [2.0, 0.5]),
    ):
        ablate.keep(folder, split, name, ablate.Cached(label, evidence(values)))
    return folder


def said(ablate, *arguments):
    result = CliRunner().invoke(ablate.main, [*map(str, arguments), "--workers", "1"])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_everything_is_taken_out_in_turn(ablate, cache):
    lines = said(ablate, cache)
    assert [" ".join(line.split()) for line in lines] == [
        "4 runs",
        "without TST001 ends-high: 4 of 4 verdicts change",
        "tune healthy pass -> skip 2",
        "tune stuck fail -> skip 1",
        "validate healthy pass -> skip 1",
        "without TST001 ends-high, special case long-log: 2 of 2 verdicts change",
        "tune healthy pass -> fail 2",
        "without TST001 ends-high, special case never: 0 of 0 verdicts change",
    ]


def test_one_alone_and_one_split(ablate, cache):
    lines = said(ablate, cache, "--case", "TST001:long-log", "--split", "validate")
    assert lines == ["1 runs", "without TST001 ends-high, special case long-log: 0 of 0 verdicts change"]


def test_what_is_not_there_is_refused(ablate, cache):
    for arguments in (["--rule", "TST009"], ["--case", "TST001:else"], ["--cache", str(cache)]):
        assert CliRunner().invoke(ablate.main, [str(cache), *arguments]).exit_code == 2
    assert CliRunner().invoke(ablate.main, []).exit_code == 2


def test_nothing_that_rules_worked_out_is_kept(module, tmp_path):
    seen = evidence([3.0 - 0.1 * step for step in range(20)])
    diagnose(seen, Config())
    assert "by_role" in vars(seen)
    module.keep(tmp_path, "tune", "a", module.Cached("healthy", seen))
    again = module.kept(tmp_path / "tune" / "a.pickle").evidence
    assert vars(again).keys() == vars(evidence([1.0])).keys()
    assert vars(again.series[0]).keys() == vars(evidence([1.0]).series[0]).keys()


def test_a_cached_run_is_judged_as_the_run_itself(module, tmp_path, write_log, healthy_losses, monkeypatch):
    folder = write_log([*healthy_losses, *[float("nan")] * 9])
    (tmp_path / "truth").mkdir()
    truth = {"split": "tune", "fault": "masked-nan", "structural": True}
    (tmp_path / "truth" / "run.json").write_text(json.dumps(truth))
    folder.rename(folder.parent / "moved")
    (tmp_path / "runs").mkdir()
    (folder.parent / "moved").rename(tmp_path / "runs" / "run")
    labels = {"run": SimpleNamespace(certified=False, manifested=True)}
    monkeypatch.setitem(sys.modules, "oracle", SimpleNamespace(labels=lambda truths: labels))
    assert module.cache_generated(tmp_path / "cache", tmp_path) == 1
    cached = module.kept(tmp_path / "cache" / "tune" / "run.pickle")
    assert cached.label == "masked-nan"
    report, direct = diagnose(cached.evidence, Config()), check(tmp_path / "runs" / "run")
    assert report.to_json() == direct.to_json()


def test_a_public_curve(module, tmp_path):
    (tmp_path / "curves").mkdir()
    curve = {"id": "a", "kind": "csv", "metrics": {"loss": [[step, 2.0 * 0.9**step] for step in range(30)]}}
    (tmp_path / "curves" / "a.json").write_text(json.dumps(curve))
    (tmp_path / "labels.csv").write_text("id,label,confidence,same_run_group\na,healthy,high,g\na,healthy,low,g\n")
    sys.path.insert(0, str(SCRIPT.parent))
    assert module.cache_public(tmp_path / "cache", tmp_path) == 2
    assert module.kept(tmp_path / "cache" / "public" / "a.pickle").label == "(healthy)"
