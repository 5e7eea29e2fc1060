"""What every store must do, as a suite of tests: subclass ``StoreContract``, give it a ``harness`` fixture, run
pytest.

::

    class TestMyStore(StoreContract):
        @pytest.fixture def harness(self, tmp_path):
            return MyHarness(tmp_path)

A harness makes runs as a trainer would, looks at them as their owner would, and breaks them. What a store cannot have
(a folder is never deleted and still there) its harness says with ``supports``, and the test is skipped with that
reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

import pytest

from tracker_health.errors import RunError, RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Part
from tracker_health.judge.annotations import Annotations
from tracker_health.stores.common.exits import exit_value
from tracker_health.testing.stores.answers import FAIL, MARKED, PASS, SHADOW, SKIP, AnswersContract
from tracker_health.testing.stores.harness import (
    LOSS,
    Killed,
    Points,
    StoreHarness,
    View,
    acknowledge,
    assert_bears,
    assert_pending_or_whole,
    bearing,
    calls_counted,
    clear,
    entry_on,
    fingerprint,
    interleaved_at,
    kill_at,
    read,
    recorded_digest,
    request_for,
    seen_of,
    skip_unless,
    state,
    try_out,
    write,
    write_or_clear,
)
from tracker_health.testing.stores.repairs import RepairsContract
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.stopped import Stop

__all__ = [
    "FAIL",
    "LOSS",
    "MARKED",
    "OTHER",
    "PASS",
    "SKIP",
    "Killed",
    "Points",
    "StoreContract",
    "StoreHarness",
    "View",
    "assert_bears",
    "assert_pending_or_whole",
    "calls_counted",
    "clear",
    "fingerprint",
    "interleaved_at",
    "kill_at",
    "read",
    "recorded_digest",
    "request_for",
    "seen_of",
    "skip_unless",
    "state",
    "write",
    "write_or_clear",
]

STOPPED = Stop(step=48, verdict="fail", code="LOS004", cause="", reason="likely: LOS004 diverged", when=1_700_000_048.5)
OTHER: Points = [(step, float(step)) for step in range(50)]


class StoreContract(AnswersContract, RepairsContract):
    """The suite. Each test makes its own runs."""

    @pytest.fixture
    def run(self, harness: StoreHarness) -> str:
        """A run with two metrics, two files and a description of its owner's."""
        files = {
            "notes/readme.txt": b"mine",
            "checkpoint-5/trainer_state.json": b'{"log_history": [], "global_step": 5}',
        }
        return harness.new_run(metrics={"loss": LOSS, "gpu": OTHER}, files=files, note="My own words.")

    # Reading

    def test_reads_what_is_needed(self, harness: StoreHarness, run: str) -> None:
        evidence = read(harness, run, request_for("train_loss"))
        (series,) = evidence.series
        assert series.role == "train_loss"
        assert series.clean().steps.tolist() == [step for step, _ in LOSS]
        assert series.clean().values.tolist() == [value for _, value in LOSS]

    def test_reads_nothing_else(self, harness: StoreHarness, run: str) -> None:
        touched: list[str] = []
        with harness.before_read(touched.append):
            read(harness, run, request_for("train_loss"))
        assert "gpu" not in touched
        assert not any("readme" in name for name in touched)

    def test_names_every_metric_of_the_run_whether_read_or_not(self, harness: StoreHarness, run: str) -> None:
        assert {"loss", "gpu"} <= set(read(harness, run, request_for("train_loss")).info.metric_names)

    def test_reading_changes_nothing(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False), harness.view(run, ours=True)
        read(harness, run, request_for("train_loss", "val_loss", parts=frozenset(Part)))
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == before

    def test_an_unknown_run_is_not_found(self, harness: StoreHarness) -> None:
        with pytest.raises(RunNotFound) as caught:
            harness.open(harness.unknown_run())
        assert "\n" not in str(caught.value)

    def test_the_fingerprint_stays_and_changes_with_the_run(self, harness: StoreHarness, run: str) -> None:
        first = fingerprint(harness, run)
        assert fingerprint(harness, run) == first
        write(harness, run, FAIL)
        assert fingerprint(harness, run) == first, "what is ours is no part of it"
        before = state(harness, run)
        harness.add_point(run, "loss", 50, 1.0)
        assert fingerprint(harness, run) != first
        with closing(harness.open(run)) as opened:
            assert opened.is_in_state(opened.state())
            assert harness.supports("state") or not opened.is_in_state(before), "something came from it"

    # Writing

    def test_a_run_without_annotation_bears_none(self, harness: StoreHarness, run: str) -> None:
        with closing(harness.open(run)) as opened:
            assert opened.recorded() is None
        assert harness.view(run, ours=True) == View()

    def test_what_is_written_is_there(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, FAIL)
        assert_bears(harness, run, FAIL)

    def test_writing_leaves_the_owners_things_alone(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        for one in (FAIL, PASS, SKIP, FAIL):
            write(harness, run, one)
        assert harness.view(run, ours=False) == before

    def test_writing_twice_is_writing_once(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, FAIL)
        once = harness.view(run, ours=True)
        write(harness, run, FAIL)
        assert harness.view(run, ours=True) == once

    @pytest.mark.parametrize("earlier", [FAIL, PASS, SKIP], ids=lambda one: str(one.verdict))
    @pytest.mark.parametrize("later", [FAIL, PASS, SKIP], ids=lambda one: str(one.verdict))
    @pytest.mark.thinned(3)
    def test_a_changed_verdict_leaves_nothing_of_the_earlier_one(
        self, harness: StoreHarness, run: str, earlier: Annotations, later: Annotations
    ) -> None:
        fresh = harness.new_run(metrics={"loss": LOSS}, files={}, note="My own words.")
        write(harness, fresh, later)
        write(harness, run, earlier)
        write(harness, run, later)
        assert harness.view(run, ours=True) == harness.view(fresh, ours=True)

    @pytest.mark.parametrize("annotated", [True, False])
    def test_a_file_of_the_owners_under_one_of_our_names_stays(
        self, harness: StoreHarness, run: str, annotated: bool
    ) -> None:
        if annotated:
            write(harness, run, SKIP)
        harness.add_file(run, "health/report.json", b"mine")
        harness.add_file(run, "health/loss.png", b"my picture")
        with pytest.raises(WriteError) as caught:
            write(harness, run, FAIL)
        assert "\n" not in str(caught.value)
        assert harness.owned(run, "health/report.json") == b"mine"
        assert harness.owned(run, "health/loss.png") == b"my picture"
        assert recorded_digest(harness, run) == (SKIP.digest if annotated else None)
        clear(harness, run)
        assert harness.owned(run, "health/loss.png") == b"my picture"

    @pytest.mark.parametrize("annotated", [False, True], ids=["fresh", "annotated"])
    @pytest.mark.parametrize(
        "name",
        ["verdict", "summary", "codes", "ended", "exit", "ack", "open", "shadow", "stopped", "notified"],
    )
    @pytest.mark.thinned(4)
    def test_a_value_of_the_owners_under_one_of_our_names_stays(
        self, harness: StoreHarness, run: str, name: str, annotated: bool
    ) -> None:
        skip_unless(harness, "values")
        if annotated and name == "codes":
            write(harness, run, PASS)  # which has none
        harness.add_value(run, name, "my own")
        for one in (FAIL, PASS, MARKED):
            with suppress(WriteError):  # where the verdict itself would have to take its place
                write(harness, run, one)
            assert harness.value(run, name) == "my own"
        with suppress(RunError):
            acknowledge(harness, run, entry_on(harness, run))
        with suppress(WriteError):
            try_out(harness, run, SHADOW)
        assert harness.value(run, name) == "my own"
        clear(harness, run)
        assert harness.value(run, name) == "my own"

    def test_what_was_seen_of_the_end_goes_with_the_verdict(self, harness: StoreHarness, run: str) -> None:
        ending = Ending(how=Ended.KILLED, by="SIGKILL")
        seen = replace(FAIL, exit=exit_value(ending, state(harness, run)))
        write(harness, run, seen)
        assert seen_of(harness, run) == ending
        write(harness, run, PASS)
        assert seen_of(harness, run) is None, "an annotation without it says that it no longer holds"
        write(harness, run, seen)
        assert clear(harness, run)
        assert (seen_of(harness, run), harness.view(run, ours=True)) == (None, View())

    def test_a_run_whose_training_stopped_it_was_stopped_on_purpose(self, harness: StoreHarness, run: str) -> None:
        """However often it is annotated, until its history goes on clearly beyond that."""
        skip_unless(harness, "stops")
        before = fingerprint(harness, run)
        harness.add_value(run, "stopped", STOPPED.as_stopped)
        assert fingerprint(harness, run) != before, "an earlier verdict holds no longer"
        for one in (FAIL, PASS, SKIP):
            write(harness, run, one)
            assert harness.value(run, "stopped") == STOPPED.as_stopped
            evidence = read(harness, run, request_for("train_loss"))
            assert evidence.ending == STOPPED.ending
            assert STOPPED.ending.by == "tracker-health stopped it at step 48: likely: LOS004 diverged"
        for step in range(50, 60):
            harness.add_point(run, "loss", step, 1.0)
        ending = read(harness, run, request_for("train_loss")).ending
        assert ending is None or ending.how is not Ended.PRUNED, "it was not obeyed"

    @pytest.mark.parametrize("change", [("48", "47"), ("LOS004", "LOS005"), ('"check"', '"checked"')])
    def test_a_stop_that_was_changed_by_hand_says_nothing(
        self, harness: StoreHarness, run: str, change: tuple[str, str]
    ) -> None:
        skip_unless(harness, "stops")
        harness.add_value(run, "stopped", STOPPED.as_stopped.replace(*change))
        ending = read(harness, run, request_for("train_loss")).ending
        assert ending is None or ending.how is not Ended.PRUNED

    @pytest.mark.every_write
    @pytest.mark.parametrize("earlier", [None, PASS], ids=["fresh", "annotated"])
    @pytest.mark.thinned(2)
    def test_an_interrupted_write_is_repaired_by_the_next(
        self, harness: StoreHarness, earlier: Annotations | None
    ) -> None:
        def repaired(run: str, wholes: Mapping[str, View]) -> View:
            write(harness, run, FAIL)
            return wholes[FAIL.digest]

        writes = self._at_every_write(harness, earlier, partial(kill_at, annotations=FAIL), repaired)
        assert writes > 2, "the harness counts writes"

    @pytest.mark.every_write
    @pytest.mark.parametrize(
        ("earlier", "slow", "quick"),
        [
            (None, FAIL, PASS),
            (None, PASS, FAIL),
            (SKIP, PASS, FAIL),
            (PASS, SKIP, FAIL),
            (None, FAIL, None),
            (FAIL, None, PASS),
            (FAIL, None, SKIP),
        ],
        ids=lambda one: str(one.verdict) if one else "none",
    )
    @pytest.mark.thinned(7)
    def test_one_annotator_in_the_midst_of_another_leaves_no_mixture(
        self, harness: StoreHarness, earlier: Annotations | None, slow: Annotations | None, quick: Annotations | None
    ) -> None:
        def repaired(run: str, wholes: Mapping[str, View]) -> View:
            write(harness, run, PASS)  # what of FAIL is not known as ours would stay
            return wholes[PASS.digest]

        self._at_every_write(harness, earlier, partial(interleaved_at, slow=slow, quick=quick), repaired)

    def _at_every_write(
        self,
        harness: StoreHarness,
        earlier: Annotations | None,
        disturbed: Callable[[StoreHarness, str, int], bool],
        repaired: Callable[[str, Mapping[str, View]], View],
    ) -> int:
        """Disturb the first write to a run, the second to another, and so on, until one run is done before; how many
        runs that were. ``repaired`` brings a run into order, and gives what it has to have of ours then.
        """
        wholes = self._wholes(harness)
        number, came = 0, True
        while came:
            number += 1
            run = bearing(harness, earlier)
            came = disturbed(harness, run, number)
            assert_pending_or_whole(harness, run, wholes)
            whole = repaired(run, wholes)
            assert harness.view(run, ours=True) == whole, f"disturbed at write {number}"
            assert harness.view(run, ours=False).note == "My own words."
        return number

    def _wholes(self, harness: StoreHarness) -> dict[str, View]:
        """By digest, what a run has that was annotated once and undisturbed."""
        return {one.digest: harness.view(bearing(harness, one), ours=True) for one in (FAIL, PASS, SKIP)}

    @pytest.mark.every_write
    def test_two_writers_at_once_leave_one_whole_annotation_or_say_that_none_is(
        self, harness: StoreHarness, run: str
    ) -> None:
        before = harness.view(run, ours=False)
        wholes = self._wholes(harness)
        failures: list[BaseException] = []

        def writer(annotations: Annotations) -> None:
            try:
                for _ in range(3):
                    write(harness, run, annotations)
            except RunError:
                return  # a store may tell the slower of two that it came too late
            except BaseException as error:  # noqa: BLE001  kept for the main thread, where it fails the test
                failures.append(error)

        threads = [threading.Thread(target=writer, args=(annotations,)) for annotations in (FAIL, PASS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert_pending_or_whole(harness, run, wholes)
        write(harness, run, FAIL)
        assert_bears(harness, run, FAIL)
        assert harness.view(run, ours=False) == before

    def test_without_permission_nothing_is_written(self, harness: StoreHarness, run: str) -> None:
        skip_unless(harness, "permissions")
        before = harness.view(run, ours=False), harness.view(run, ours=True)
        with harness.forbid_writing(run) as opened, pytest.raises(StoreRefused) as caught:
            opened.write(FAIL)
        assert "\n" not in str(caught.value)
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == before

    def test_a_deleted_run_is_refused(self, harness: StoreHarness, run: str) -> None:
        skip_unless(harness, "delete")
        harness.delete(run)
        with pytest.raises(RunError), closing(harness.open(run)) as opened:
            opened.write(FAIL)
        assert harness.view(run, ours=True) == View()

    # Clearing

    @pytest.mark.parametrize("annotations", [FAIL, PASS, SKIP], ids=lambda one: str(one.verdict))
    def test_clear_takes_off_what_is_ours_and_nothing_else(
        self, harness: StoreHarness, run: str, annotations: Annotations
    ) -> None:
        before = harness.view(run, ours=False)
        write(harness, run, annotations)
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()
        assert harness.view(run, ours=False) == before

    def test_clearing_a_run_that_bears_nothing_finds_nothing(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        assert not clear(harness, run)
        assert harness.view(run, ours=False) == before

    @pytest.mark.every_write
    def test_an_interrupted_clear_can_be_done_again(self, harness: StoreHarness) -> None:
        def repaired(run: str, _: Mapping[str, View]) -> View:
            clear(harness, run)
            return View()

        self._at_every_write(harness, FAIL, partial(kill_at, annotations=None), repaired)

    def test_a_cleared_run_can_be_annotated_again(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, FAIL)
        clear(harness, run)
        write(harness, run, PASS)
        assert_bears(harness, run, PASS)
