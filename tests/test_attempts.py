"""What runs say of repairs, and the chains and counts that are made of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import RunRef
from tracker_health.fleet.overview_page import GROUPED_BY, overview_page
from tracker_health.judge.annotations import has_repairs, note_with_repairs, repairs_in_markdown
from tracker_health.runs.attempts import Attempts, attempt_lines, kind_of_change
from tracker_health.runs.overview import overview, overview_lines
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.common.record import tagged
from tracker_health.text import printable
from tracker_health.words.repairs import MAX_MARK_CHARACTERS, MAX_RUN, REPAIRED_BY, REPAIRS, Answer, RepairMark
from tracker_health.words.verdict import Verdict

NOW = 1_800_000_000.0
RATE = "learning-rate-too-high"


def mark(old, new, answer=Answer.REPAIRED, cause=RATE, change="lr 0.3 -> 0.03", when=NOW, because="It falls."):
    return RepairMark(old=old, new=new, answer=answer, cause=cause, change=change, because=because, when=when)


def run(name, repairs=None, repaired_by=None, verdict=Verdict.FAIL):
    ref = RunRef(store="mlflow", id=name, name=f"run {name}")
    return TaggedRun(ref=ref, verdict=verdict, summary="it rose", repairs=repairs, repaired_by=repaired_by)


def found_of(*runs):
    attempts = Attempts()
    for one in runs:
        attempts.add(one)
    return attempts.found()


def lines_of(*runs):
    return list(attempt_lines(found_of(*runs)))


# The mark


TEXTS = st.text(max_size=700)


@given(old=TEXTS, new=TEXTS, change=TEXTS, because=TEXTS, answer=st.sampled_from(Answer), when=st.floats(0, 2e9))
def test_what_is_written_is_what_is_read(old, new, change, because, answer, when):
    given_mark = mark(old, new, answer, change=change, because=because, when=when)
    if not (0 < len(old) <= MAX_RUN and 0 < len(new) <= MAX_RUN):
        with pytest.raises(ValueError, match="no mark of a repair"):
            given_mark.to_text()
        return
    text = given_mark.to_text()
    assert len(text) <= MAX_MARK_CHARACTERS
    assert printable(text, MAX_MARK_CHARACTERS) == text
    assert RepairMark.from_text(text) == given_mark.bounded()
    assert given_mark.says_the_same(replace(given_mark, when=0.0))


def test_the_longest_mark_has_room_in_a_tag():
    longest = replace(
        mark("\\" * MAX_RUN, '"' * MAX_RUN, Answer.SOMETHING_NEW, cause="c" * 80, when=2.0**39),
        change='"' * 999,
        because="\\" * 999,
    )
    assert RepairMark.from_text(longest.to_text()) == longest.bounded()


@given(text=st.one_of(TEXTS, st.recursive(st.none() | st.booleans() | st.floats() | TEXTS, st.lists).map(json.dumps)))
def test_what_is_not_ours_says_nothing(text):
    assert RepairMark.from_text(text) is None


@pytest.mark.parametrize(
    "change",
    [
        ('"repaired"', '"not repaired"'),
        ('"repaired"', '["repaired"]'),
        ('"old":"a"', '"old":"b"'),
        ('"old":"a"', '"old":"\\u001b[2J"'),
        (str(int(NOW)), "NaN"),
        (str(int(NOW)), "1e999"),
        (str(int(NOW)), '"' + "9" * 400 + '"'),
        ('"check":', '"other":'),
        (RATE, "a cause\\nof two lines"),
        ("{", "[" * 4_000),
    ],
)
def test_what_was_changed_by_hand_says_nothing(change):
    text = mark("a", "b").to_text()
    assert change[0] in text
    assert RepairMark.from_text(text.replace(*change)) is None


def test_a_mark_that_was_copied_with_the_tags_of_another_run_says_nothing_of_this_one():
    tags = {REPAIRS: mark("a", "team/project/b").to_text(), REPAIRED_BY: mark("b", "c").to_text()}
    for own, has in (("b", True), ("renamed/project/b", True), ("x", False)):
        found = tagged(RunRef(store="mlflow", id=own, name=own), tags, user="", started=None, last_step=None)
        assert (found.repairs is not None, found.repaired_by is not None) == (has, has)


def test_a_note_has_each_line_once_and_no_markup_of_a_run_in_it():
    hostile = mark("a`<b>", "b", because="**Repair of** [x](http://evil) <img src=x>")
    both = {REPAIRS: hostile, REPAIRED_BY: hostile}
    note = note_with_repairs(
        note_with_repairs("The verdict.\n\nMore.", repairs_in_markdown(both)), repairs_in_markdown(both)
    )
    assert note.startswith("The verdict.\n\nMore.\n\n**Repair tried in** `b`: repaired (")
    assert sum(has_repairs(line) for line in note.splitlines()) == 2
    assert "<img" not in note
    assert "[x](" not in note
    assert note_with_repairs(note, ()) == "The verdict.\n\nMore."


# Chains


def test_a_chain_goes_from_run_to_run_and_branches():
    first, second = (
        mark("a", "b", Answer.NOT_REPAIRED, when=NOW),
        mark("b", "c", change="warmup 0 -> 500", when=NOW + 2),
    )
    other = mark("a", "d", Answer.CANNOT_TELL, change="", cause="", when=NOW + 1)
    runs = [run("c", second), run("b", first, second), run("a", repaired_by=other), run("d", other)]
    for order in (runs, runs[::-1]):
        assert lines_of(*order) == [
            "3 repairs: 1 repaired, 1 not repaired, 1 cannot tell",
            "  learning-rate-too-high: warmup raised: repaired 1 of 1",
            "  learning-rate-too-high: lr lowered: repaired 0 of 1",
            "  (not known): (not known): repaired 0 of 0 (1 more: cannot tell)",
            "  run a",
            "    run b: not repaired (learning-rate-too-high; changed: lr 0.3 -> 0.03)",
            "      run c: repaired (learning-rate-too-high; changed: warmup 0 -> 500)",
            "    run d: cannot tell",
        ]


def test_what_helped_is_counted_over_values_and_once_for_both_runs_of_a_repair():
    answers = [Answer.REPAIRED, Answer.SOMETHING_NEW, Answer.NOT_REPAIRED, Answer.REPAIRED, Answer.CANNOT_TELL]
    marks = [mark(f"a{at}", f"b{at}", answer, change=f"lr {at + 1} -> 0.{at}") for at, answer in enumerate(answers)]
    runs = [one for each in marks for one in (run(each.old, repaired_by=each), run(each.new, each))]
    assert lines_of(*runs)[1] == (
        "  learning-rate-too-high: lr lowered: repaired 3 of 4 (1 with something new; 1 more: cannot tell)"
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("learning_rate 0.3 -> 3e-2", "learning_rate lowered"),
        ("learning_rate 0.3 → .5, warmup steps 0 -> 500", "learning_rate raised, warmup steps raised"),
        ("beta -1 -> -1.0; lr 1 -> 2", "beta set again, lr raised"),
        ("optimizer adam -> sgd", "optimizer adam -> sgd"),
        ("zero_grad is called", "zero_grad is called"),
        ("lr 1 -> 1e9999", "lr 1 -> 1e9999"),
        ("", ""),
    ],
)
def test_a_change_of_numbers_is_counted_by_its_direction(change, kind):
    assert kind_of_change(change) == kind


def test_of_what_both_runs_say_the_last_counts_and_a_run_that_is_gone_is_called_by_its_id():
    early, late = mark("a", "b", Answer.NOT_REPAIRED), mark("a", "b", Answer.REPAIRED, when=NOW + 9)
    assert lines_of(run("a", repaired_by=late), run("b", early))[0] == "1 repair: 1 repaired"
    assert lines_of(run("b", early)) [-2:] == [
        "  a", "    run b: not repaired (learning-rate-too-high; changed: lr 0.3 -> 0.03)",
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), max_size=20))
def test_chains_end_whatever_tags_say_and_each_new_run_is_in_one_at_most(edges):
    """Circles and runs with two of others among them."""
    runs = [run(str(new), mark(str(old), str(new), when=NOW + when)) for old, new, when in edges]
    found = found_of(*runs)
    attempts = [one.mark.new for chain in found.chains for one in chain.attempts]
    assert len(attempts) == len(set(attempts))
    pairs = {(old, new) for old, new, _ in edges if old != new}
    assert found.answers.total() == len(pairs)
    assert bool(found.chains) == bool(pairs)
    for chain in found.chains:
        known = {chain.attempts[0].mark.old: -1}
        for one in chain.attempts:
            assert one.depth == known[one.mark.old] + 1
            known[one.mark.new] = one.depth


def test_what_is_shown_is_bounded_whatever_runs_say():
    long = [mark(f"r{at}", f"r{at + 1}", when=NOW + at, because="x" * 500) for at in range(5_000)]
    many = [mark(f"s{at}", f"t{at}", cause=f"c{at}", change="y" * 300) for at in range(6_000)]
    found = found_of(*(run(one.new, one) for one in [*long, *many]))
    assert (found.answers.total(), found.left_out) == (10_000, 1_000)
    assert len(json.dumps(found.to_json())) < 500_000
    lines = list(attempt_lines(found))
    assert len(lines) < 150
    assert max(map(len, lines)) < 400
    assert "    and 4990 more" in lines


# The summary


def test_the_summary_says_what_became_of_a_run_and_what_helped():
    said = mark("a", "b", Answer.SOMETHING_NEW)
    runs = [run("a", repaired_by=said), run("b", said), run("c")]
    found = overview(runs, GROUPED_BY, now=NOW)
    lines = list(overview_lines(found))
    assert any("run a  it rose (repaired, and something new in run b)" in line for line in lines)
    assert any("run b  it rose (repair of run a: repaired, and something new)" in line for line in lines)
    assert "1 repair: 1 repaired, and something new" in lines
    document = found.to_json()
    by_id = {one["run"]["id"]: one for one in document["worst"]}
    assert (by_id["a"]["repaired_by"]["new"], by_id["b"]["repairs"]["old"], by_id["c"]["repairs"]) == ("b", "a", None)
    assert document["repairs"]["helped"] == [
        {"cause": RATE, "change": "lr lowered", "helped": 1, "of": 1, "answers": {
            "repaired": 0, "not repaired": 0, "repaired, and something new": 1, "cannot tell": 0}},
    ]  # fmt: skip
    assert document["repairs"]["chains"][0]["attempts"][0]["new_name"] == "run b"
    page = overview_page(found, title="Experiment a", now=NOW).decode()
    assert '<th scope="col" role="columnheader">repaired</th>' in page
    assert "→ run b: repaired, and something new (learning-rate-too-high" in page
    assert "<li>learning-rate-too-high: lr lowered: repaired 1 of 1 (1 with something new)</li>" in page


def test_without_repairs_the_summary_says_nothing_of_them():
    found = overview([run("a")], GROUPED_BY, now=NOW)
    assert not any("repair" in line for line in overview_lines(found))
    assert found.to_json()["repairs"]["chains"] == []
    page = overview_page(found, title="Experiment a", now=NOW).decode()
    assert "epair" not in page.partition("<main>")[2]
