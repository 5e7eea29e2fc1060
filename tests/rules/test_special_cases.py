"""Special cases of rules: named in the docstring, in the report, and taken out where their worth is measured."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.evidence import Evidence, Need, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.render.docs import explain
from tracker_health.render.rule_page import rule_page, rule_text
from tracker_health.report.result import Finding, ProbeResult, Report
from tracker_health.rules.probe import (
    CASES,
    SECTIONS,
    WITHOUT,
    Probe,
    Symptom,
    explanation_of,
    flaw_in,
    special_cases_of,
)
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class HighEnd(Probe):
    """The loss ends high.

    What it finds:
        A last loss above 1.

    Why it matters:
        It is of no use.

    How it decides:
        The last value is above 1.

    Special cases:
        negative-start: A loss that begins below 0 is a log-likelihood, of which nothing is said,
            however long that takes.
        long-log: Of a long log the median of the end counts.

    Known limits:
        None.

    What to do:
        Train longer.

    References:
        None.
    """

    code = "TST001"
    name = "high-end-of-test"
    symptom = Symptom.NOT_LEARNING
    vouches = True

    @property
    def needs(self):
        return (Need(role="train_loss", min_points=1),)

    def judge(self, evidence):
        values = evidence.first("train_loss").finite().values
        if self.case("negative-start", bool(values[0] < 0)):
            return Finding(verdict=Verdict.PASS, message="begins below 0", case="negative-start")
        if self.case("long-log", len(values) > 8):
            return Finding(verdict=Verdict.SKIP, message="it is long", case="long-log")
        verdict = Verdict.FAIL if values[-1] > 1 else Verdict.PASS
        return Finding(verdict=verdict, message=f"ends at {values[-1]:g}", remedy="train longer")


def with_cases(text, base=HighEnd):
    document = base.__doc__
    start, end = document.index("    Special cases:\n"), document.index("    Known limits:\n")
    return type("Altered", (base,), {"__doc__": document[:start] + text + document[end:]})


def evidence(*values):
    series = Series(name="loss", role="train_loss", steps=np.arange(len(values)), values=np.array(values, dtype=float))
    return Evidence(run=RunRef(store="directory", id="a", name="a"), series=(series,))


def judged(*values, rule=HighEnd):
    return diagnose(evidence(*values), Config(), probes=(rule(),))


# In the docstring


def test_they_are_read_from_the_docstring():
    assert special_cases_of(HighEnd) == {
        "negative-start": "A loss that begins below 0 is a log-likelihood, of which nothing is said, however long that takes.",
        "long-log": "Of a long log the median of the end counts.",
    }
    assert tuple(explanation_of(HighEnd).sections) == SECTIONS
    assert flaw_in(HighEnd) is None


def test_a_rule_needs_none():
    plain = with_cases("")
    assert special_cases_of(plain) == {}
    assert flaw_in(plain) is None
    assert CASES not in explain(plain)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("    Special cases:\n        Only some runs.\n\n", 'not "name: sentence."'),
        ("    Special cases:\n        some-runs: Without an end\n\n", 'not "name: sentence."'),
        ("    Special cases:\n        Some-Runs: In capitals.\n\n", 'not "name: sentence."'),
        ("    Special cases:\n        a: One.\n        a: Two.\n\n", "is there twice"),
        ("    Special cases:\n\n", "says nothing under"),
    ],
)
def test_what_is_not_written_as_such_is_a_flaw(section, said):
    assert said in flaw_in(with_cases(section))


def test_they_come_after_how_it_decides():
    document = HighEnd.__doc__
    start, end = document.index("    Special cases:\n"), document.index("    Known limits:\n")
    moved = document[:start] + document[end:] + "\n" + document[start:end]
    assert "does not come after" in flaw_in(type("Moved", (HighEnd,), {"__doc__": moved}))


@pytest.mark.parametrize("probe", BUILT_IN, ids=lambda probe: probe.code)
def test_those_of_the_built_in_rules_are_written_as_such(probe):
    assert all(sentence.endswith(".") for sentence in special_cases_of(probe).values())


def test_explain_and_the_page_list_them():
    assert "  negative-start: A loss that begins below 0" in explain(HighEnd)
    assert "  long-log        Of a long log the median of the end counts." in rule_text(HighEnd)
    assert "| `long-log` | Of a long log the median of the end counts. |" in rule_page(HighEnd)


# In a report


def test_the_one_that_decided_is_named(valid_report):
    report = judged(-1.0, 2.0)
    (result,) = report.results
    assert (result.verdict, result.case) == (Verdict.PASS, "negative-start")
    assert result.message == "begins below 0 (special case: negative-start)"
    document = report.to_json()
    valid_report(document)
    assert document["results"][0]["case"] == "negative-start"
    assert Report.from_json(document).results[0].case == "negative-start"


def test_where_none_decided_there_is_no_key():
    report = judged(3.0, 2.0)
    assert "case" not in report.to_json()["results"][0]
    assert ProbeResult.from_json(report.to_json()["results"][0]).case == ""
    assert "special case" not in report.results[0].message


def test_a_skip_names_it_too():
    (skipped,) = judged(*[1.0] * 9).skipped
    assert skipped.reason == "it is long (special case: long-log)"


def test_one_that_the_rule_does_not_have_is_an_error():
    finding = Finding(verdict=Verdict.PASS, message="fine", case="unheard-of")
    report = judged(1.0, rule=type("Wrong", (HighEnd,), {"__doc__": HighEnd.__doc__, "judge": lambda *_: finding}))
    assert "unheard-of" in report.errors[0].message
    asking = type("Asking", (HighEnd,), {"__doc__": HighEnd.__doc__, "judge": lambda self, _: self.case("else", True)})
    assert "names no special case 'else'" in judged(1.0, rule=asking).errors[0].message


# Taken out


def test_a_case_that_is_switched_off_does_not_apply():
    token = WITHOUT.set(frozenset({"TST001:negative-start"}))
    try:
        (result,) = judged(-1.0, 2.0).results
        assert (result.verdict, result.case) == (Verdict.FAIL, "")
        seen = []
        thread = threading.Thread(target=lambda: seen.append(judged(-1.0, 2.0).results[0].case))
        thread.start()
        thread.join()
        assert seen == ["negative-start"], "only where it was switched off"
    finally:
        WITHOUT.reset(token)
    assert judged(-1.0, 2.0).results[0].case == "negative-start"


def test_a_case_that_does_not_apply_is_none():
    assert not HighEnd().case("long-log", applies=False)
    assert replace(HighEnd()).case("long-log", applies=True)
