"""What people answer to a verdict, as data: what counts, what is left open, and what is no entry of ours."""

import json
from types import SimpleNamespace

import pytest

from tracker_health.words.acknowledgements import (
    MAX_ENTRY_CHARACTERS,
    MOST_ENTRIES,
    acknowledgement,
    answer_marks,
    answers,
    in_order,
    is_ack_mark,
    on_evidence,
    open_codes,
    open_findings,
    parsed,
    said_by,
    standing,
    worst_of,
)
from tracker_health.words.verdict import Verdict

NOW = 1_800_000_000.0


def entry(number=1, **given):
    return acknowledgement(
        **{
            "id": f"{number:016x}",
            "who": "ana",
            "when": NOW + number,
            "because": "a known spike",
            "codes": ["LOS004"],
            **given,
        }
    )


def report(*findings, cause=""):
    found = [SimpleNamespace(code=code, verdict=verdict) for code, verdict in findings]
    return SimpleNamespace(findings=found, diagnosis=SimpleNamespace(named=cause) if cause else None)


FAILED = report(("LOS004", Verdict.FAIL), ("GRD001", Verdict.WARN), cause="learning-rate-too-high")


def test_what_is_written_is_what_is_read():
    full = entry(
        who="Zoë", cause="bad-data", about_cause=True, until=NOW + 60, wrong=True, undoes=[f"{9:016x}"], evidence="ab"
    )
    for one in (entry(), full):
        assert parsed(one.value, one.id) == one


def test_the_longest_entry_fits_its_place():
    longest = entry(
        who="ü" * 999,
        because='"\\' * 9999,
        codes=[f"{number:040}" for number in range(99)],
        undoes=[f"{number:016x}" for number in range(99)],
        cause="c" * 80,
        evidence='"' * 300,
        until=NOW,
    )
    assert len(longest.value) <= MAX_ENTRY_CHARACTERS
    assert parsed(longest.value) == longest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "[]",
        "{}",
        "[" * 5000,
        json.dumps({**json.loads(entry().value), "schema": "other"}),
        json.dumps({**json.loads(entry().value), "id": "../../etc/passwd"}),
        json.dumps({**json.loads(entry().value), "codes": ["<script>"]}),
        json.dumps({**json.loads(entry().value), "codes": "LOS004"}),
        json.dumps({**json.loads(entry().value), "codes": ["A"] * 1000}),
        json.dumps({**json.loads(entry().value), "who": "  "}),
        json.dumps({**json.loads(entry().value), "who": 3}),
        json.dumps({**json.loads(entry().value), "when": 10**400}),
        json.dumps({**json.loads(entry().value), "when": "9999-12-31T23:59:59+99:00"}),
        json.dumps({**json.loads(entry().value), "until": "yesterday"}),
        json.dumps({**json.loads(entry().value), "cause": "a b"}),
        json.dumps({**json.loads(entry().value), "because": "x" * MAX_ENTRY_CHARACTERS}),
    ],
)
def test_what_is_no_entry_of_ours_is_none(text):
    assert parsed(text) is None


def test_an_entry_under_another_name_than_its_own_is_none():
    assert parsed(entry(1).value, entry(2).id) is None


def test_words_that_would_move_the_cursor_are_made_printable():
    hostile = json.dumps({**json.loads(entry().value), "who": "a\x1b[2Jna", "because": "one\ntwo\u202e"})
    found = parsed(hostile)
    assert (found.who, found.because) == ("a?[2Jna", "one two?")


def test_an_acknowledged_finding_is_open_no_more_and_the_others_are():
    assert [one.code for one in open_findings(FAILED, [], NOW)] == ["LOS004", "GRD001"]
    acks = [entry(cause="learning-rate-too-high")]
    left = open_findings(FAILED, acks, NOW)
    assert [one.code for one in left] == ["GRD001"]
    assert worst_of(left) is Verdict.WARN
    assert worst_of(()) is Verdict.PASS


def test_a_new_cause_drops_what_was_said_before():
    acks = [entry(cause="bad-data")]
    assert len(open_findings(FAILED, acks, NOW)) == 2
    assert len(open_findings(FAILED, [entry(cause="")], NOW)) == 2
    without_cause = report(("LOS004", Verdict.FAIL))
    assert open_findings(without_cause, acks, NOW) == (), "that a cause is gone is no new one"


def test_a_cause_that_was_renamed_or_split_opens_nothing_again():
    now = report(("RWD005", Verdict.FAIL), cause="policy-drifted")
    assert open_findings(now, [entry(codes=["RWD005"], cause="kl-coefficient-too-low")], NOW) == ()
    assert len(open_findings(now, [entry(codes=["RWD005"], cause="overfitting")], NOW)) == 1


def test_it_ends_when_it_was_said_to_and_with_its_evidence():
    ends = [entry(until=NOW + 60)]
    then, undo = entry(evidence="then"), entry(2, codes=[], undoes=[entry().id])
    assert on_evidence([then, undo], "now") == (undo,)
    assert on_evidence([undo, then], "then") == (then, undo)
    assert standing(ends, cause="", now=NOW)
    assert not standing(ends, cause="", now=NOW + 60)


def test_what_is_taken_back_no_longer_counts_in_whole_or_for_a_code():
    both = entry(1, codes=["LOS004", "GRD001"], cause="learning-rate-too-high", about_cause=True)
    other = entry(3, codes=["LOS004"], cause="learning-rate-too-high")
    part, whole = entry(2, codes=["LOS004"], undoes=[both.id]), entry(2, codes=[], undoes=[both.id])
    (left,) = answers([both, part])
    assert (left.codes, left.about_cause) == (("GRD001",), False)
    assert answers([both, whole]) == ()
    assert answers([both, whole, other]) == (other,), "what was said after it, or by somebody else, stays"


def test_the_clocks_of_two_people_decide_nothing():
    early_undo = entry(2, when=NOW - 9999, codes=[], undoes=[entry(1).id])
    assert answers([entry(1), early_undo]) == ()


def test_a_retired_rule_stands_for_what_replaced_it():
    from tracker_health.words.retired import RETIRED

    replaced = next(one for one in RETIRED if one.replaced_by)
    assert open_codes(replaced.replaced_by, [entry(codes=[replaced.code])]) == ()


def test_the_marks_say_who_and_whether_somebody_still_has_to_look():
    codes = ("LOS004", "GRD001")
    assert (answer_marks((), "", (), NOW).ack, answer_marks((), "", (), NOW).open) == ("", "")
    assert answer_marks(codes, "", (), NOW).open == "true"
    part = answer_marks(codes, "", [entry()], NOW)
    assert (part.ack, part.open) == ("acknowledged by ana", "true")
    whole = answer_marks(codes, "", [entry(1), entry(2, who="ben", codes=["GRD001"], wrong=True)], NOW)
    assert (whole.ack, whole.open) == ("acknowledged by ana, called wrong by ben", "false")
    assert is_ack_mark(whole.ack)
    assert not is_ack_mark("my own")
    assert answer_marks(codes, "", [entry(codes=["OPT001"])], NOW).ack == "", "what is about nothing that was found"


def test_of_many_people_the_newest_are_named():
    crowd = [entry(number, who=f"person {number}") for number in range(9)]
    assert said_by(crowd) == "acknowledged by person 8, person 7, person 6 and 6 more"
    assert is_ack_mark(said_by([entry(number, who="w" * 80) for number in range(9)]))


def test_of_too_many_entries_the_newest_are_kept():
    kept = in_order([*(entry(number) for number in range(MOST_ENTRIES + 50)), entry(149)])
    assert len(kept) == MOST_ENTRIES
    assert kept[-1] == entry(MOST_ENTRIES + 49)
