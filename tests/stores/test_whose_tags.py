"""What of a run's tags and histories is ours, and what is its owner's: without a server."""

import json
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from tracker_health.errors import WriteError
from tracker_health.evidence import RunRef, Series, StepUnit
from tracker_health.judge.messages import SentMessages
from tracker_health.run_files.history_agreement import agree, canonical, comparable, difference
from tracker_health.stores.base import RunRecord
from tracker_health.stores.common.note_block import BEGIN, END, has_broken_markers, with_note
from tracker_health.stores.common.ownership import is_file_name
from tracker_health.stores.common.record import (
    ENTRY_PREFIX,
    MAX_MARK,
    Written,
    bears_verdict,
    entries_on,
    is_annotated,
    is_finished,
    is_legible,
    key_of,
    notified_on,
    of_run,
    ours_on,
    owns_note,
    recorded_on,
)
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.words.acknowledgements import acknowledgement, in_order
from tracker_health.words.verdict import Verdict

NOW = 1_800_000_000.0
MOST = 100
VERDICT = {"digest": "0123456789abcdef", "verdict": "fail", "codes": "LOS004"}
RECORD = {"tool": "tracker-health", "digest": "0123456789abcdef", "files": [], "metrics": [], "note": False}


class Run(TrackedRun):
    """As much of a run as has marks."""

    def __init__(self, marks):
        self.held = dict(marks)

    @property
    def record(self):
        ref = RunRef(store="mlflow", id="run", name="run")
        return RunRecord(ref=ref, shown="run", marks=lambda: self.held, naming=str)

    def look(self):
        pass

    @contextmanager
    def writing(self, doing, *, live=False):
        yield

    def set_marks(self, changes):
        self.held = {name: value for name, value in {**self.held, **changes}.items() if value is not None}
        return frozenset()

    def list_files(self):
        return {}

    fingerprint = read = saved = close = get_file = put_files = delete_files = None


def entry(number, who="ana"):
    return acknowledgement(id=f"{number:016x}", who=who, when=NOW + number, because="known", codes=["LOS004"])


def entered(amount):
    return {f"{ENTRY_PREFIX}{one.id}": one.value for one in map(entry, range(amount))}


def judged(*names):
    return {**VERDICT, "written": json.dumps({**RECORD, "tags": ["codes", *names]})}


OWNERS = {
    f"{ENTRY_PREFIX}of-my-own": "do not touch",
    f"{ENTRY_PREFIX}{'f' * 16}": "a name like ours, a value of mine",
    f"{ENTRY_PREFIX}{'e' * 16}": entry(1).value,  # a copy of ours under another name
    "acknowledged": "yes",
    "note": "mine",
}


COPIED = {**VERDICT, "written": json.dumps({**RECORD, "tags": ["codes", "notified"], "run": key_of("first")})}
TOLD = f"told=bad-data of={key_of('first')}"


@pytest.mark.parametrize("told", [TOLD, "told=bad-data"])
def test_a_verdict_that_was_copied_from_another_run_is_none(told):
    own, copy = (of_run({**COPIED, "notified": told}, identity) for identity in ("first", "second"))
    assert (recorded_on(own).verdict, is_finished(own), notified_on(own)) == (Verdict.FAIL, True, "told=bad-data")
    assert (is_finished(copy), SentMessages.of(notified_on(copy)).causes) == (False, ())
    assert ours_on(copy).tags == ours_on(own).tags == 5, "all of it goes with clear"


def test_what_was_said_of_another_run_before_it_had_a_verdict_is_said_of_no_copy():
    assert notified_on(of_run({"notified": TOLD}, "first")) == "told=bad-data"
    copy = of_run({"notified": TOLD}, "second")
    assert (SentMessages.of(notified_on(copy)).causes, ours_on(copy).tags) == ((), 1)


@pytest.mark.parametrize("record", [RECORD, {**RECORD, "run": 3}, {**RECORD, "run": "x" * 8}])
def test_a_record_that_names_no_run_is_of_the_run_that_has_it(record):
    assert is_finished(of_run({**VERDICT, "written": json.dumps(record)}, "second"))


def test_taking_answers_off_leaves_every_mark_of_the_owner():
    run = Run({**OWNERS, **entered(3)})
    assert run.clear(acks=True).found
    assert run.held == OWNERS


def test_all_answers_go_however_many_there_are():
    run = Run({**OWNERS, **entered(MOST + 20)})
    assert run.ours().acks == MOST + 20
    assert run.clear(acks=True).acks == 0
    assert run.held == OWNERS


def test_a_hundred_answers_and_no_more():
    run = Run({**judged(), **entered(MOST - 1)})
    run.acknowledge(entry(MOST))
    assert len(entries_on(run.held)) == MOST
    before = dict(run.held)
    with pytest.raises(WriteError, match="100 entries"):
        run.acknowledge(entry(MOST + 1))
    assert run.held == before


def test_of_too_many_answers_the_newest_are_read():
    people = [entry(number) for number in range(MOST + 7)]
    assert in_order(reversed(people)) == tuple(people[7:])


def test_an_answer_is_marked_and_the_mark_is_recorded_as_ours():
    run = Run(judged())
    run.acknowledge(entry(1))
    assert run.held["ack"] == "acknowledged by ana"
    assert run.held["open"] == "false"
    assert Written.of(run.held).tags == {"ack", "codes", "open"}


def test_marks_follow_the_answers_and_go_with_them():
    run = Run(judged())
    run.acknowledge(entry(1))
    run.set_marks(dict.fromkeys(entered(2)))
    run.settle(NOW)
    assert "ack" not in run.held
    assert run.held["open"] == "true"


@pytest.mark.parametrize("value", ["by me", "acknowledged", "acknowledged by ana"])
def test_a_mark_of_the_owners_is_left(value):
    """Also one that looks like ours, on a run that nobody answered and whose record does not list it."""
    run = Run({**judged(), "ack": value})
    run.settle(NOW)
    assert run.held["ack"] == value


def test_nothing_is_answered_while_somebody_annotates():
    run = Run({"digest": "pending:0123abcd", "verdict": "fail"})
    with pytest.raises(WriteError):
        run.acknowledge(entry(1))
    assert not entries_on(run.held)


def test_a_record_of_another_tool_makes_nothing_ours():
    names = {"files": ["report.json"], "metrics": ["loss"], "tags": ["owner"]}
    assert not Written.of({"written": json.dumps({**names, "tool": "another"})})
    assert not ours_on({"written": json.dumps(names), "owner": "ana", "verdict": "good"}).found
    assert Written.of({"written": json.dumps({**names, "tool": "tracker-health"})}).all_files == {"report.json"}


def test_a_record_cannot_claim_answers_or_paths():
    record = {**RECORD, "files": ["report.json", "../model.pt", "a/b", ""], "tags": ["cause", f"ack.{'e' * 16}"]}
    written = Written.of({**VERDICT, "written": json.dumps(record)})
    assert (written.files, written.tags) == ({"report.json"}, {"cause"})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", None, 3])
def test_what_is_no_name_of_a_file(name):
    assert not is_file_name(name)
    assert is_file_name("report.html")


TEXT = "# Mine\n\nwith `code`"


@pytest.mark.parametrize("text", ["", TEXT])
def test_a_description_comes_back_as_it_was(text):
    noted = with_note(text, "the loss diverged")
    assert noted.startswith(text)
    assert "the loss diverged" in noted
    assert with_note(noted, "another").count(BEGIN) == 1
    assert with_note(noted, "") == text


@pytest.mark.parametrize("text", [BEGIN, END, f"{END}\n{BEGIN}\n", f"a {BEGIN}\nb\n{END}", f"{BEGIN}\n{BEGIN}\n{END}"])
def test_broken_markers_are_nobodys_to_mend(text):
    assert has_broken_markers(text)
    assert with_note(text, "note") == text


def test_a_note_that_does_not_fit_is_left_out():
    room = len(with_note(TEXT, "note"))
    assert with_note(TEXT, "note", room) != TEXT
    assert with_note(TEXT, "note", room - 1) == TEXT


def history(values, source):
    return Series(
        name="loss", role="train_loss", steps=np.arange(len(values)), values=np.array(values, dtype=np.float64),
        source=source,
    )  # fmt: skip


@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        ([2.0, np.nan, 1.0], [2.0, np.nan, 1.0], True),
        ([2.0, np.inf, 1.0], [2.0, np.inf, 1.0], True),
        ([2.0, np.nan, 1.0], [2.0, 1.5, 1.0], False),
        ([2.0, np.inf, 1.0], [2.0, -np.inf, 1.0], False),
        ([2.0, np.inf, 1.0], [2.0, 1.5, 1.0], False),
        ([2.0, 1.5, 1.0], [2.0, 1.7, 1.0], False),
    ],
)
def test_histories_that_are_not_finite_agree_where_both_are_not(mine, theirs, same, precise):
    said = difference(history(mine, "one"), history(theirs, "other"), precise=precise)
    assert (said == "") is same


def test_what_people_read_may_lack_digits_and_what_machines_read_may_not():
    full, printed = history([1.2345678, 0.5432109], "one"), history([1.235, 0.543], "other")
    assert not difference(full, printed, precise=False)
    assert difference(full, printed, precise=True)


@pytest.mark.parametrize(
    ("mine", "theirs", "precise", "same"),
    [
        (0.5, 0.5509, False, True), (0.5, 0.5511, False, False),  # one digit behind the point: half of it, and a little
        (1.23, 1.2350, False, True), (1.23, 1.2352, False, False),
        (3.0, 3.4, False, True), (3.0, 3.6, False, False),
        (0.25, 0.2, False, True), (0.25, 0.2, True, False),  # the coarser of both says what may be lost
        (1.2345678e-9, 1.2465e-9, False, True), (1.2345678e-9, 1.26e-9, False, False),  # an exponent's: a hundredth
        (1.0, 1.0 + 0.9e-6, True, True), (1.0, 1.0 + 1.1e-6, True, False),
        (-1e6, -1e6 - 0.9, True, True), (1e6, -1e6, True, False),
        (np.nan, np.nan, True, True), (np.inf, 1.0, False, False), (np.inf, np.inf, False, True),
    ],
)  # fmt: skip
def test_how_far_two_values_may_be_apart(mine, theirs, precise, same):
    assert agree(np.array([mine]), np.array([theirs]), precise=precise).tolist() == [same]
    assert agree(np.array([theirs]), np.array([mine]), precise=precise).tolist() == [same]


def test_a_difference_names_the_first_step_and_how_many():
    said = difference(history([5.0, 1.0, 2.0, 3.0], "one"), history([5.0, 1.0, 2.5, 3.5], "other"), precise=True)
    assert "differ at 2 of 4 common steps, first at step 2 (2 against 2.5)" in said


def test_only_steps_that_count_the_same_are_compared():
    units = [history([1.0], "one"), history([1.0], "other")]
    both = [[replace(one, step_unit=unit) for one in units] for unit in StepUnit]
    for (mine, _), unit in zip(both, StepUnit, strict=True):
        for (_, theirs), other in zip(both, StepUnit, strict=True):
            apart = {unit, other} & {StepUnit.EPOCH, StepUnit.LOG_CALL}
            assert comparable(mine, theirs) is (unit is other or not apart)


def test_what_some_loggers_put_before_a_name_makes_no_other_metric():
    assert canonical("train/loss") == canonical("loss") == canonical("training/loss")
    assert canonical("eval/loss") != canonical("loss")


@pytest.mark.parametrize(
    "digest", ["0123456789abcdef", "pending", "pending:0123abcd", "", "0123456789ABCDEF", "pending:", "mine", "0123"]
)
def test_a_digest_is_ours_by_its_form(digest):
    tags = {"digest": digest, "verdict": "fail"}
    ours = digest in ("0123456789abcdef", "pending", "pending:0123abcd")
    assert is_annotated(tags) is bears_verdict(tags) is ours
    assert (recorded_on(tags) is not None) is ours
    assert is_finished(tags) is owns_note(tags) is (digest == "0123456789abcdef")
    assert not is_finished({"digest": digest}), "there is no verdict"
    assert owns_note({**tags, "verdict": "skip"}) is False


def test_a_record_of_another_annotation_than_the_digest_says_is_one_under_way():
    record = {**RECORD, "digest": "f" * 16, "note": True}
    tags = {**VERDICT, "written": json.dumps(record)}
    assert recorded_on(tags).digest == "pending"
    assert owns_note(tags)
    assert not owns_note({**tags, "written": json.dumps(RECORD)})
    assert recorded_on({**VERDICT, "written": json.dumps(RECORD)}).digest == VERDICT["digest"]


@pytest.mark.parametrize(("value", "legible"), [("{}", True), ("[]", False), ("{", False), ("[" * 5000, False)])
def test_a_record_that_is_no_record_is_not_legible(value, legible):
    assert is_legible({"written": value}) is legible
    assert not Written.of({**VERDICT, "written": value})


def test_a_record_holds_all_that_fits_and_leaves_out_measures_first():
    names = {
        kind: frozenset(f"{kind}-{at:04d}.{'x' * 20}" for at in range(60)) for kind in ("files", "metrics", "tags")
    }
    few = Written(**{kind: frozenset(sorted(some)[:5]) for kind, some in names.items()}, note=True)
    assert few.beside(Written()) == few
    many = Written(**names, missing=frozenset({"picture.png"}), digest="0123456789abcdef")
    kept = many.beside(Written())
    assert len(kept.value) <= MAX_MARK
    assert kept.files == many.files
    assert kept.tags == many.tags
    assert kept.missing == many.missing
    assert kept.metrics < many.metrics
    without_digest = len(replace(kept, digest="").value)
    assert MAX_MARK - 80 - 40 < without_digest <= MAX_MARK - 80, "a name takes 40, a digest and a run 80"
    assert Written.of({**VERDICT, "written": kept.value}) == kept
    beside = many.beside(kept)
    assert len((kept | beside).value) <= MAX_MARK
    assert not replace(beside, note=False).beside(Written(files=frozenset(f"{at:0200d}" for at in range(40))))


def test_what_both_records_say_is_kept_and_what_arrived_is_not_missing():
    one = Written(files=frozenset({"a"}), metrics=frozenset({"m"}), note=True, digest="0" * 16)
    other = Written(missing=frozenset({"a", "b"}), tags=frozenset({"t"}), digest="1" * 16)
    both = one | other
    assert (both.files, both.missing, both.metrics, both.tags) == ({"a"}, {"b"}, {"m"}, {"t"})
    assert (both.note, both.digest, both.all_files) == (True, "0" * 16, {"a", "b"})
    assert both.without(frozenset({"a", "z"})) == replace(both, files=frozenset(), missing=frozenset({"a", "b"}))
    assert [bool(Written(**{kind: frozenset({"x"})})) for kind in ("files", "metrics", "tags", "missing")] == [True] * 4
    assert bool(Written(note=True))
    assert not Written(digest="0" * 16)
