"""What every store must do with what runs say of repairs."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace

import pytest

from tracker_health.errors import StoreRefused, WriteError
from tracker_health.testing.stores.answers import FAIL, PASS, SKIP
from tracker_health.testing.stores.harness import (
    NOON,
    StoreHarness,
    View,
    acknowledge,
    bearing,
    clear,
    entries,
    entry_on,
    killed_before,
    recorded_digest,
    skip_unless,
    write,
)
from tracker_health.words.repairs import REPAIRED_BY, REPAIRS, Answer, RepairMark

REPAIR = RepairMark(
    old="an-old-run",
    new="a-new-run",
    cause="learning-rate-too-high",
    change="learning_rate 0.3 -> 0.03",
    answer=Answer.REPAIRED,
    because="The loss <falls> to the end.",
    when=NOON,
)
BOTH = pytest.mark.parametrize("as_old", [False, True], ids=["new", "old"])
LINES = {False: "**Repair of** `an-old-run`: ", True: "**Repair tried in** `a-new-run`: "}


def write_repair(harness: StoreHarness, run: str, mark: RepairMark, *, as_old: bool, described: bool = True) -> bool:
    """Say on a run what came of a repair; whether something changed."""
    with closing(harness.open(run)) as opened:
        return opened.write_repair(mark, as_old=as_old, described=described)


def repair_on(harness: StoreHarness, run: str, *, as_old: bool) -> RepairMark | None:
    """What a run says of the other one, without its own id."""
    with closing(harness.open(run)) as opened:
        found = opened.repairs().get(REPAIRED_BY if as_old else REPAIRS)
        own = opened.ref.id
    if found is None:
        return None
    assert (found.old if as_old else found.new) == own, "its own id is its own"
    return replace(found, old=REPAIR.old) if as_old else replace(found, new=REPAIR.new)


class RepairsContract:
    """A part of the suite; ``run`` and ``harness`` are fixtures of the whole."""

    @BOTH
    def test_a_repair_is_said_once_and_outlives_annotations(
        self, harness: StoreHarness, run: str, as_old: bool
    ) -> None:
        before = harness.view(run, ours=False)
        write(harness, run, FAIL)
        assert write_repair(harness, run, REPAIR, as_old=as_old)
        once = harness.view(run, ours=True)
        assert not write_repair(harness, run, replace(REPAIR, when=NOON + 60), as_old=as_old)
        assert harness.view(run, ours=True) == once
        for one in (PASS, SKIP, FAIL):
            write(harness, run, one)
            assert repair_on(harness, run, as_old=as_old) == REPAIR
            assert not write_repair(harness, run, REPAIR, as_old=as_old), "the note has its line as well"
        assert harness.view(run, ours=True) == once
        assert harness.view(run, ours=False) == before
        self._is_described(harness, run, f"{LINES[as_old]}repaired (", FAIL.note)
        assert clear(harness, run)
        assert repair_on(harness, run, as_old=as_old) is None
        assert (harness.view(run, ours=True), harness.view(run, ours=False)) == (View(), before)

    def _is_described(self, harness: StoreHarness, run: str, *parts: str) -> None:
        note = harness.view(run, ours=True).note
        assert harness.supports("note") or all(note.count(part) == 1 for part in parts)

    @BOTH
    def test_another_answer_takes_the_place_of_the_one_before(
        self, harness: StoreHarness, run: str, as_old: bool
    ) -> None:
        write(harness, run, PASS)
        write_repair(harness, run, REPAIR, as_old=as_old)
        other = replace(REPAIR, answer=Answer.NOT_REPAIRED, change="", because="It rose again.", when=NOON + 60)
        assert write_repair(harness, run, other, as_old=as_old)
        assert repair_on(harness, run, as_old=as_old) == other
        said = "not repaired (learning-rate-too-high). It rose again."
        self._is_described(harness, run, f"{LINES[as_old]}{said}", "**Repair")

    def test_a_run_may_be_the_old_one_of_one_repair_and_the_new_one_of_another(
        self, harness: StoreHarness, run: str
    ) -> None:
        write(harness, run, FAIL)
        for as_old in (True, False):
            assert write_repair(harness, run, REPAIR, as_old=as_old)
        assert repair_on(harness, run, as_old=True) == repair_on(harness, run, as_old=False) == REPAIR
        self._is_described(harness, run, *LINES.values(), FAIL.note)

    @BOTH
    def test_without_a_verdict_a_repair_is_a_mark_alone(self, harness: StoreHarness, run: str, as_old: bool) -> None:
        before = harness.view(run, ours=False)
        assert write_repair(harness, run, REPAIR, as_old=as_old)
        assert not write_repair(harness, run, REPAIR, as_old=as_old)
        assert recorded_digest(harness, run) is None
        assert repair_on(harness, run, as_old=as_old) == REPAIR
        assert harness.view(run, ours=True).note == ""
        write(harness, run, FAIL)
        self._is_described(harness, run, LINES[as_old], FAIL.note)
        assert clear(harness, run)
        write_repair(harness, run, REPAIR, as_old=as_old)
        assert clear(harness, run)
        assert repair_on(harness, run, as_old=as_old) is None
        assert (harness.view(run, ours=True), harness.view(run, ours=False)) == (View(), before)

    def test_where_no_description_is_wanted_a_repair_is_a_mark_alone(self, harness: StoreHarness, run: str) -> None:
        plain = replace(PASS, note="")
        write(harness, run, plain)
        assert write_repair(harness, run, REPAIR, as_old=False, described=False)
        write(harness, run, plain)
        assert harness.view(run, ours=True).note == ""
        assert write_repair(harness, run, REPAIR, as_old=False) is not bool(harness.supports("note"))
        write(harness, run, plain)
        self._is_described(harness, run, LINES[False])
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()

    def test_a_repair_counts_for_no_answer_and_changes_no_verdict(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, FAIL)
        entry = entry_on(harness, run)
        acknowledge(harness, run, entry)
        with closing(harness.open(run)) as opened:
            before = opened.recorded(), opened.state(), opened.evidence()
        for as_old in (True, False):
            write_repair(harness, run, REPAIR, as_old=as_old)
        with closing(harness.open(run)) as opened:
            assert (opened.recorded(), opened.state(), opened.evidence()) == before
        assert entries(harness, run) == (entry,)

    @BOTH
    def test_a_value_of_the_owners_in_the_place_of_a_repair_stays(self, harness: StoreHarness, as_old: bool) -> None:
        skip_unless(harness, "values")
        name, forged = REPAIRED_BY if as_old else REPAIRS, REPAIR.to_text().replace("0.03", "0.01")
        for value in ("my own", forged):
            run = bearing(harness, None)
            harness.add_value(run, name, value)
            with suppress(WriteError):  # where ours has a place of its own
                write_repair(harness, run, REPAIR, as_old=as_old)
            assert harness.value(run, name) == value
            write(harness, run, FAIL)
            clear(harness, run)
            assert harness.value(run, name) == value
            assert repair_on(harness, run, as_old=as_old) is None

    def test_without_permission_no_repair_is_written(self, harness: StoreHarness, run: str) -> None:
        skip_unless(harness, "permissions")
        write(harness, run, FAIL)
        before = harness.view(run, ours=False), harness.view(run, ours=True)
        with harness.forbid_writing(run) as opened, pytest.raises(StoreRefused):
            opened.write_repair(REPAIR, as_old=True)
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == before

    @pytest.mark.every_write
    def test_an_interrupted_repair_costs_no_verdict_and_can_be_done_again(self, harness: StoreHarness) -> None:
        number, finished = 0, False
        while not finished:
            number += 1
            run = bearing(harness, FAIL)
            finished = not killed_before(
                harness,
                number,
                lambda: write_repair(harness, run, REPAIR, as_old=True),  # noqa: B023
            )
            assert recorded_digest(harness, run) == FAIL.digest
            write_repair(harness, run, REPAIR, as_old=True)
            assert repair_on(harness, run, as_old=True) == REPAIR, f"after a kill at write {number}"
            self._is_described(harness, run, LINES[True], FAIL.note)
            assert harness.view(run, ours=False).note == "My own words."
        assert number > 1, "the harness counts writes"
