"""What ``explain`` says a rule gave on the benchmark's runs."""

import pytest

from tracker_health.render import calibration as module

_RULES = {
    "AAA001": {"judged": 40, "false_alarms": 1, "found": {"f": [1, 9], "g": [9, 9]}, "missed": {}},
    "AAA002": {"judged": 0, "false_alarms": 0, "found": {}, "missed": {"f": 9, "g": 4}},
    "AAA003": {"judged": 100, "false_alarms": 0, "found": {}, "missed": {}},
}


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.setattr(module, "_measured", lambda: {"date": "2030-01-02", "healthy": 100, "rules": _RULES})


@pytest.mark.usefixtures("drawn")
def test_the_share_is_of_the_runs_that_were_judged():
    alarms, found, _ = module.calibration("AAA001")
    assert "in 40 of 100 certified healthy validation runs" in alarms
    assert "1 of them (2.5 %)" in alarms
    assert found == "Of faulty ones it found, by itself: g 9 of 9, f 1 of 9."


@pytest.mark.usefixtures("drawn")
def test_a_rule_that_judged_nothing_and_found_nothing():
    alarms, found, when = module.calibration("AAA002")
    assert (
        alarms
        == "None of the 100 certified healthy validation runs had what it judges: its false-alarm rate is unknown."
    )
    assert found == "It found none of 13 faulty runs with faults that its symptom would name (f 9, g 4)."
    assert "2030-01-02" in when


@pytest.mark.usefixtures("drawn")
def test_a_rule_without_a_fault_of_its_own():
    assert "no fault that this rule is for" in module.calibration("AAA003")[1]


@pytest.mark.usefixtures("drawn")
def test_a_rule_that_was_not_measured():
    assert module.calibration("ZZZ999") == []
