"""Rules that load and then misbehave: an error of that rule, whatever it does, and nothing else."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

import tracker_health.judge.engine as engine_module
from tracker_health import Config, ConfigError, Evidence, Finding, Need, Probe, Symptom, Threshold, Verdict
from tracker_health.evidence import RunRef
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.report.result import ErrorEntry
from tracker_health.rules.plugins import Plugins

EVIDENCE = Evidence(run=RunRef(store="directory", id="a", name="a"))
SOUND = Finding(verdict=Verdict.PASS, message="fine")


@dataclass(frozen=True, kw_only=True)
class Rule(Probe):
    """Says what it is told to say."""

    code = "TST001"
    name = "test-rule"
    symptom = Symptom.UNSTABLE
    vouches = True

    needs = ()

    def judge(self, evidence):
        return SOUND


def foreign(**more):
    return type("Foreign", (Rule,), {"code": "TST002", "name": "foreign", **more})


@pytest.fixture
def judged(monkeypatch):
    def run(*rules, config=None):
        monkeypatch.setattr(engine_module, "probe_classes", lambda: (Rule, *rules))
        needs_of(config or Config())
        report = diagnose(EVIDENCE, config or Config())
        json.dumps(report.to_json(), allow_nan=False)
        return report

    return run


def raising(error):
    def judge(self, evidence):
        raise error

    return judge


def giving(finding):
    return lambda self, evidence: finding


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        (raising(ZeroDivisionError("by zero")), "ZeroDivisionError: by zero"),
        (raising(SystemExit(0)), "SystemExit: 0"),
        (raising(BaseException("base")), "BaseException: base"),
        (raising(Mute()), "Mute"),
        (giving(None), "AttributeError"),
        (giving("pass"), "AttributeError"),
        (giving(Finding(verdict="bad", message="x")), "ValueError: 'bad' is not a valid Verdict"),
        (giving(Finding(verdict=Verdict.ERROR, message="x")), "ValueError: a finding is pass, warn, fail or skip"),
        (giving(Finding(verdict=Verdict.PASS, message=3)), "TypeError: message and remedy are text, not 3"),
        (giving(Finding(verdict=Verdict.PASS, message="x", measured={"a": [1]})), "TypeError: measured 'a' is a list"),
        (giving(Finding(verdict=Verdict.PASS, message="x", measured={"a": np.ones(3)})), "ValueError"),
        (giving(Finding(verdict=Verdict.PASS, message="x", details={"a": object()})), "TypeError: object has no JSON"),
        (giving(Finding(verdict=Verdict.PASS, message="x", steps=["one"])), "ValueError"),
        (giving(Finding(verdict=Verdict.PASS, message="x", score="high")), "TypeError"),
    ],
)
def test_a_rule_that_breaks_is_an_error_of_that_rule(judged, judge, told):
    report = judged(foreign(judge=judge))
    assert [(one.code, one.name) for one in report.errors] == [("TST002", "foreign")]
    assert report.errors[0].message.startswith(f"the rule broke: {told}")
    assert [one.code for one in report.results] == ["TST001"]
    assert report.verdict is Verdict.ERROR


def test_a_rule_that_breaks_when_asked_for_its_needs(judged):
    for needs in (property(raising_needs), property(lambda self: 3), property(lambda self: ("train_loss",))):
        report = judged(foreign(needs=needs))
        assert [one.code for one in report.errors] == ["TST002"]
        assert [one.code for one in report.results] == ["TST001"]


def raising_needs(self):
    raise RuntimeError("no needs")


def test_ctrl_c_passes_through_a_rule(judged):
    with pytest.raises(KeyboardInterrupt):
        judged(foreign(judge=raising(KeyboardInterrupt())))


def test_a_verdict_as_text_and_numpy_numbers_are_understood(judged):
    finding = Finding(verdict="fail", message="3", remedy="x", score=np.float32(0.25), measured={"a": np.float32(0.5)})
    report = judged(foreign(judge=giving(finding)))
    assert (report.verdict, report.score, report.errors) == (Verdict.FAIL, 0.25, ())


def test_thresholds_that_a_rule_itself_refuses_are_a_wrong_configuration(judged):
    @dataclass(frozen=True, kw_only=True)
    class Picky(Rule):
        """Picky."""

        code = "TST002"
        name = "picky"
        level: Annotated[float, Threshold("level", "", "test")] = 1.0

        def __post_init__(self):
            super().__post_init__()
            if self.level != 1.0:
                raise RuntimeError("one is the only level")

    with pytest.raises(ConfigError, match=r"rules\.picky: RuntimeError: one is the only level"):
        judged(Picky, config=Config(thresholds={"picky": {"level": 2.0}}))


def test_errors_of_plugins_come_last_and_change_no_verdict(judged, monkeypatch):
    entry = ErrorEntry(source="plugin x (y 1)", message="could not be loaded")
    monkeypatch.setattr(engine_module, "plugins", lambda: Plugins(errors=(entry,)))
    report = judged(foreign(judge=raising(ValueError("v")), status="preview"))
    assert report.verdict is Verdict.PASS
    assert [one.source for one in report.errors] == ["TST002 foreign", "plugin x (y 1)"]
    unmet = judged(foreign(needs=(Need(role="train_loss"),)))
    assert unmet.errors == (entry,)
    assert diagnose(EVIDENCE, Config(), probes=(Rule(),)).errors == ()
