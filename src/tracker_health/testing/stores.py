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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pytest

from tracker_health.acknowledged import Acknowledgement, acknowledgement
from tracker_health.annotations import Annotations, Shadow
from tracker_health.ending import Ended, Ending
from tracker_health.errors import RunError, RunNotFound, StoreRefused, WriteError
from tracker_health.evidence import Evidence, Part, Request
from tracker_health.roles import assign
from tracker_health.stores.base import Overtaken, TrackedRun
from tracker_health.stores.exits import ending_seen, exit_value
from tracker_health.verdict import Verdict

Points = Sequence[tuple[int, float]]


class Killed(BaseException):
    """Stands for the end of the process in the middle of writing: nothing may catch it."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What a run bears, timestamps aside: tags, latest metric values, description, and files with their bytes."""

    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


class StoreHarness(Protocol):
    """What the suite needs of a store under test."""

    def new_run(self, *, metrics: Mapping[str, Points], files: Mapping[str, bytes], note: str = "") -> str:
        """A finished run as a trainer leaves it, with these metric histories, files and description; its name for
        ``open``.
        """

    def open(self, run: str) -> TrackedRun:
        """The run, as the store gives it."""

    def view(self, run: str, *, ours: bool) -> View:
        """What the run bears that is ours, or all the rest."""

    def unknown_run(self) -> str:
        """The name of a run that is not there."""

    def add_file(self, run: str, path: str, content: bytes) -> None:
        """Add a file of its owner's to the run, ``health/...`` for one among ours."""

    def owned(self, run: str, path: str) -> bytes:
        """The content of a file of its owner's."""

    def add_point(self, run: str, metric: str, step: int, value: float) -> None:
        """Log one more point, as training that went on."""

    def add_value(self, run: str, name: str, value: str) -> None:
        """Put a value of its owner's under a name that we write as well (``verdict``, ``summary``): a tag, or a key of
        the summary.
        """

    def value(self, run: str, name: str) -> str | None:
        """What the owner sees under that name."""

    def delete(self, run: str) -> None:
        """Delete the run, as its owner would."""

    def forbid_writing(self, run: str) -> AbstractContextManager[TrackedRun]:
        """The run, opened by somebody who may read it and not write to it."""

    def before_write(self, action: Any) -> AbstractContextManager[None]:
        """Call ``action(number)`` before each single write to the store, the first being number 1."""

    def before_read(self, action: Any) -> AbstractContextManager[None]:
        """Call ``action(name)`` before each reading of a metric history or a file."""

    def supports(self, ability: str) -> str:
        """Empty where the store has the ability (``delete``, ``permissions``, ``note``, ``values``, ``state``,
        ``marks``), else why it has not.
        """


LOSS: Points = [(step, 2.0 - 0.01 * step) for step in range(50)]
OTHER: Points = [(step, float(step)) for step in range(50)]

FAIL = Annotations(
    verdict=Verdict.FAIL,
    digest="0123456789abcdef",
    tags={
        "codes": "LOS004",
        "symptoms": "diverged",
        "summary": "diverged: it rose",
        "version": "0.1.0",
        "open": "true",
        "ack": "",
    },
    metrics={"severity": 3.0, "diverged/rise_share": 2.5},
    files={"report.json": b'{"verdict": "fail"}', "loss.png": b"picture"},
    note="**Training health: FAIL**",
)
PASS = Annotations(
    verdict=Verdict.PASS,
    digest="fedcba9876543210",
    tags={"summary": "8 rules passed", "version": "0.1.0"},
    metrics={"severity": 0.0},
    files={"report.json": b'{"verdict": "pass"}'},
    note="**Training health: PASS**",
)
SKIP = Annotations(verdict=Verdict.SKIP, digest="00000000ffffffff")
MARKED = replace(
    FAIL,
    digest="aaaabbbbccccdddd",
    tags={**FAIL.tags, "codes": "LOS004,GRD001", "cause": "bad-data"},
)
"""With more to answer."""
SHADOW = Shadow(verdict=Verdict.FAIL, codes=("LOS004",), cause="bad-data", digest="1111222233334444")
NOON = 1_900_000_000.0


def request_for(*roles: str, parts: frozenset[str] = frozenset()) -> Request:
    """A request for the series of these roles and for these parts."""
    return Request(
        select_names=lambda names: {name: role for name, role in assign(names).items() if role in roles}, parts=parts
    )


class StoreContract:
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
    @pytest.mark.parametrize("name", ["verdict", "summary", "codes", "ended", "exit", "ack", "open", "shadow"])
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

    def test_what_was_seen_of_the_end_outlives_a_clearing(self, harness: StoreHarness, run: str) -> None:
        """Until something comes from the run again."""
        ending = Ending(how=Ended.KILLED, by="SIGKILL")
        with closing(harness.open(run)) as opened:
            opened.write(replace(FAIL, exit=exit_value(ending, opened.state())))
        assert seen_of(harness, run) == ending
        assert clear(harness, run)
        assert (seen_of(harness, run), recorded_digest(harness, run)) == (ending, None)
        assert not clear(harness, run)
        write(harness, run, PASS)
        assert seen_of(harness, run) is None, "an annotation without it says that it no longer holds"

    @pytest.mark.parametrize("earlier", [None, PASS], ids=["fresh", "annotated"])
    def test_an_interrupted_write_is_repaired_by_the_next(
        self, harness: StoreHarness, earlier: Annotations | None
    ) -> None:
        wholes = self._wholes(harness)
        number, finished = 0, False
        while not finished:
            number += 1
            run = self._bearing(harness, earlier)
            finished = not kill_at(harness, run, number, FAIL)
            assert_pending_or_whole(harness, run, wholes)
            write(harness, run, FAIL)
            assert harness.view(run, ours=True) == wholes[FAIL.digest], f"after a kill at write {number}"
            assert harness.view(run, ours=False).note == "My own words."
        assert number > 2, "the harness counts writes"

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
    def test_one_annotator_in_the_midst_of_another_leaves_no_mixture(
        self, harness: StoreHarness, earlier: Annotations | None, slow: Annotations | None, quick: Annotations | None
    ) -> None:
        wholes = self._wholes(harness)
        number, finished = 0, False
        while not finished:
            number += 1
            run = self._bearing(harness, earlier)
            finished = not interleaved_at(harness, run, number, slow, quick)
            assert_pending_or_whole(harness, run, wholes)
            # What of FAIL is not known as ours would stay.
            write(harness, run, PASS)
            assert harness.view(run, ours=True) == wholes[PASS.digest], f"with the other at write {number}"
            assert harness.view(run, ours=False).note == "My own words."

    def _bearing(self, harness: StoreHarness, annotations: Annotations | None) -> str:
        """A new run with these annotations, None for none."""
        run = harness.new_run(metrics={"loss": LOSS}, files={}, note="My own words.")
        if annotations is not None:
            write(harness, run, annotations)
        return run

    def _wholes(self, harness: StoreHarness) -> dict[str, View]:
        """By digest, what a run bears that was annotated once and undisturbed."""
        return {one.digest: harness.view(self._bearing(harness, one), ours=True) for one in (FAIL, PASS, SKIP)}

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

    # What people answer

    def test_an_acknowledgement_stands_beside_the_verdict_and_outlives_annotations(
        self, harness: StoreHarness, run: str
    ) -> None:
        before = harness.view(run, ours=False)
        write(harness, run, MARKED)
        entry = entry_on(harness, run)
        acknowledge(harness, run, entry)
        assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=True)
        other = entry_on(harness, run, 2, who="ben", codes=("GRD001",), wrong=True)
        acknowledge(harness, run, other)
        assert entries(harness, run) == (entry, other)
        assert_bears(harness, run, MARKED, ack="acknowledged by ana, called wrong by ben", is_open=False)
        for one in (PASS, SKIP, MARKED):
            write(harness, run, one)
            assert entries(harness, run) == (entry, other)
        assert_bears(harness, run, MARKED, ack="acknowledged by ana, called wrong by ben", is_open=False)
        assert harness.view(run, ours=False) == before

    def test_what_is_taken_back_is_open_again(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, MARKED)
        entry = entry_on(harness, run, codes=("LOS004", "GRD001"))
        acknowledge(harness, run, entry)
        assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=False)
        acknowledge(harness, run, entry_on(harness, run, 2, codes=(), undoes=(entry.id,)))
        assert_bears(harness, run, MARKED, ack="", is_open=True)

    def test_what_was_for_some_time_is_open_again_after_it(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, MARKED)
        acknowledge(harness, run, entry_on(harness, run, codes=("LOS004", "GRD001"), until=NOON + 60))
        assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=False)
        with closing(harness.open(run)) as opened:
            opened.settle(NOON + 61)
        assert_bears(harness, run, MARKED, ack="", is_open=True)

    def test_an_acknowledgement_is_of_the_evidence_that_there_was(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, MARKED)
        entry = entry_on(harness, run)
        acknowledge(harness, run, entry)
        harness.add_point(run, "loss", 50, 1.0)
        assert entries(harness, run) == ()

    def test_a_run_without_a_verdict_of_its_present_state_bears_its_entries_and_no_marks(
        self, harness: StoreHarness, run: str
    ) -> None:
        write(harness, run, MARKED)
        entry = entry_on(harness, run)
        acknowledge(harness, run, entry)
        assert clear(harness, run)
        assert entries(harness, run) == (entry,)
        with closing(harness.open(run)) as opened:
            assert opened.recorded() is None
            assert (opened.ours().found, opened.ours().acks) == (False, 1)
        assert clear(harness, run, acks=True)
        assert entries(harness, run) == ()
        assert harness.view(run, ours=True) == View()
        assert not clear(harness, run, acks=True)

    @pytest.mark.parametrize("acks", [False, True], ids=["verdict", "acks"])
    def test_clearing_takes_off_as_many_things_as_were_counted(
        self, harness: StoreHarness, run: str, acks: bool
    ) -> None:
        write(harness, run, MARKED)
        acknowledge(harness, run, entry_on(harness, run))
        with closing(harness.open(run)) as opened:
            ours = opened.ours()
        assert ours.found
        assert (ours.files >= len(MARKED.files), ours.acks) == (True, 1)
        assert clear(harness, run, acks=acks)
        with closing(harness.open(run)) as opened:
            assert opened.ours() == replace(type(ours)(), acks=0 if acks else 1)

    def test_an_interrupted_acknowledgement_costs_no_verdict_and_can_be_done_again(self, harness: StoreHarness) -> None:
        whole = self._bearing(harness, MARKED)
        acknowledge(harness, whole, entry_on(harness, whole))
        number, finished = 0, False
        while not finished:
            number += 1
            run = self._bearing(harness, MARKED)
            entry = entry_on(harness, run)
            finished = not killed_before(harness, number, lambda: acknowledge(harness, run, entry))  # noqa: B023
            assert recorded_digest(harness, run) == MARKED.digest
            assert entries(harness, run) in ((), (entry,)), f"after a kill at write {number}"
            acknowledge(harness, run, entry)
            assert entries(harness, run) == (entry,)
            assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=True)
        assert number > 1, "the harness counts writes"

    def test_a_second_person_in_the_midst_of_the_first_loses_nothing(self, harness: StoreHarness) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = self._bearing(harness, MARKED)
            first, second = entry_on(harness, run), entry_on(harness, run, 2, who="ben", codes=("GRD001",))
            came = interrupted_at(
                harness,
                number,
                lambda: acknowledge(harness, run, first),  # noqa: B023
                lambda: acknowledge(harness, run, second),  # noqa: B023
            )
            for one in (first, second):  # where one was told that the other is at work
                if one not in entries(harness, run):
                    acknowledge(harness, run, one)
            assert entries(harness, run) == (first, second), f"with the other at write {number}"
            assert_bears(harness, run, MARKED, ack="acknowledged by ben, ana", is_open=False)

    @pytest.mark.parametrize("annotations", [MARKED, PASS], ids=["again", "pass"])
    def test_an_annotator_in_the_midst_of_an_acknowledgement_loses_nothing(
        self, harness: StoreHarness, annotations: Annotations
    ) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = self._bearing(harness, MARKED)
            entry = entry_on(harness, run)
            came = interrupted_at(
                harness,
                number,
                lambda: acknowledge(harness, run, entry),  # noqa: B023
                lambda: write(harness, run, annotations),  # noqa: B023
            )
            self._both_are_kept(harness, run, entry, annotations)

    @pytest.mark.parametrize("annotations", [MARKED, PASS], ids=["again", "pass"])
    def test_an_acknowledgement_in_the_midst_of_an_annotator_loses_nothing(
        self, harness: StoreHarness, annotations: Annotations
    ) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = self._bearing(harness, MARKED)
            entry = entry_on(harness, run)
            came = interrupted_at(
                harness,
                number,
                lambda: write(harness, run, annotations),  # noqa: B023
                lambda: acknowledge(harness, run, entry),  # noqa: B023
            )
            self._both_are_kept(harness, run, entry, annotations)

    def _both_are_kept(self, harness: StoreHarness, run: str, entry: Acknowledgement, annotations: Annotations) -> None:
        """Once the annotator, if told to come again, has; and so has the person."""
        write(harness, run, annotations)
        if annotations is MARKED:
            if entry not in entries(harness, run):
                acknowledge(harness, run, entry)
            assert entries(harness, run) == (entry,)
            assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=True)
        else:
            assert_bears(harness, run, annotations, ack="", is_open=None)

    def test_two_people_at_once_lose_nothing(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, MARKED)
        both = [entry_on(harness, run, number, who=who) for number, who in ((1, "ana"), (2, "ben"))]
        failures: list[BaseException] = []

        def say(entry: Acknowledgement) -> None:
            for _ in range(20):
                try:
                    acknowledge(harness, run, entry)
                except Overtaken:
                    continue  # a store may tell the slower of two to come again
                except BaseException as error:  # noqa: BLE001  kept for the main thread, where it fails the test
                    failures.append(error)
                return

        threads = [threading.Thread(target=say, args=(entry,)) for entry in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert entries(harness, run) == tuple(both)
        assert_bears(harness, run, MARKED, ack="acknowledged by ben, ana", is_open=True)

    def test_without_permission_nothing_is_acknowledged_or_tried_out(self, harness: StoreHarness, run: str) -> None:
        skip_unless(harness, "permissions")
        write(harness, run, MARKED)
        entry = entry_on(harness, run)
        before = harness.view(run, ours=False), harness.view(run, ours=True)
        with harness.forbid_writing(run) as opened, pytest.raises(StoreRefused) as caught:
            opened.acknowledge(entry)
        assert "\n" not in str(caught.value)
        with harness.forbid_writing(run) as opened, pytest.raises(StoreRefused):
            opened.write_shadow(SHADOW)
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == before

    # Tried out

    def test_what_is_tried_out_is_one_thing_and_goes_with_the_verdict(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        try_out(harness, run, replace(SHADOW, verdict=Verdict.WARN))
        try_out(harness, run, SHADOW)
        with closing(harness.open(run)) as opened:
            assert (opened.shadow(), opened.recorded()) == (SHADOW, None)
            assert opened.ours().tags == 1
        view = harness.view(run, ours=True)
        assert (dict(view.metrics), view.note, dict(view.files)) == ({}, "", {})
        assert harness.view(run, ours=False) == before
        write(harness, run, FAIL)
        assert_bears(harness, run, FAIL)
        with closing(harness.open(run)) as opened:
            assert opened.shadow() is None

    def test_what_is_tried_out_is_cleared(self, harness: StoreHarness, run: str) -> None:
        try_out(harness, run, SHADOW)
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()
        write(harness, run, PASS)
        try_out(harness, run, SHADOW)
        assert_bears(harness, run, PASS)
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()

    def test_trying_out_interrupted_can_be_done_again(self, harness: StoreHarness) -> None:
        number, finished = 0, False
        while not finished:
            number += 1
            run = self._bearing(harness, None)
            finished = not killed_before(harness, number, lambda: try_out(harness, run, SHADOW))  # noqa: B023
            try_out(harness, run, SHADOW)
            with closing(harness.open(run)) as opened:
                assert (opened.shadow(), opened.recorded()) == (SHADOW, None), f"after a kill at write {number}"

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

    def test_an_interrupted_clear_can_be_done_again(self, harness: StoreHarness) -> None:
        wholes = self._wholes(harness)
        number, finished = 0, False
        while not finished:
            number += 1
            run = self._bearing(harness, FAIL)
            finished = not kill_at(harness, run, number, None)
            assert_pending_or_whole(harness, run, wholes)
            clear(harness, run)
            assert harness.view(run, ours=True) == View(), f"after a kill at write {number}"
            assert harness.view(run, ours=False).note == "My own words."

    def test_a_cleared_run_can_be_annotated_again(self, harness: StoreHarness, run: str) -> None:
        write(harness, run, FAIL)
        clear(harness, run)
        write(harness, run, PASS)
        assert_bears(harness, run, PASS)


def read(harness: StoreHarness, run: str, request: Request) -> Evidence:
    """The evidence of a run."""
    with closing(harness.open(run)) as opened:
        return opened.read(request)


def fingerprint(harness: StoreHarness, run: str) -> str:
    """The fingerprint of a run for a request of its training loss."""
    with closing(harness.open(run)) as opened:
        return opened.fingerprint(request_for("train_loss"))


def state(harness: StoreHarness, run: str) -> str:
    """How far a run has come."""
    with closing(harness.open(run)) as opened:
        return opened.state()


def write(harness: StoreHarness, run: str, annotations: Annotations) -> None:
    """Annotate a run."""
    with closing(harness.open(run)) as opened:
        opened.write(annotations)


def clear(harness: StoreHarness, run: str, *, acks: bool = False) -> bool:
    """Clear a run; whether there was anything of ours."""
    with closing(harness.open(run)) as opened:
        return opened.clear(acks=acks).found


def entry_on(
    harness: StoreHarness, run: str, number: int = 1, who: str = "ana", codes: Sequence[str] = ("LOS004",), **more: Any
) -> Acknowledgement:
    """An entry about a run as it is now; of several the order is that of their numbers."""
    with closing(harness.open(run)) as opened:
        evidence = opened.evidence()
    given = {"because": "a known spike", "cause": "bad-data", "evidence": evidence, **more}
    return acknowledgement(id=f"{number:016x}", who=who, when=NOON + number, codes=codes, **given)


def acknowledge(harness: StoreHarness, run: str, entry: Acknowledgement) -> None:
    """Add an entry to a run."""
    with closing(harness.open(run)) as opened:
        opened.acknowledge(entry)


def entries(harness: StoreHarness, run: str) -> tuple[Acknowledgement, ...]:
    """The entries on a run that are about what it is now."""
    with closing(harness.open(run)) as opened:
        return opened.acknowledgements()


def try_out(harness: StoreHarness, run: str, shadow: Shadow) -> None:
    """Put what is only tried out onto a run."""
    with closing(harness.open(run)) as opened:
        opened.write_shadow(shadow)


def killed_before(harness: StoreHarness, number: int, work: Callable[[], None]) -> bool:
    """Do the work and die before write ``number``; whether it came that far."""

    def die(count: int) -> None:
        if count == number:
            raise Killed

    with harness.before_write(die):
        try:
            work()
        except Killed:
            return True
    return False


def interrupted_at(harness: StoreHarness, number: int, slow: Callable[[], None], quick: Callable[[], None]) -> bool:
    """Do ``slow``, and all of ``quick`` before its write ``number``; whether it came that far. Either may be told that
    the other is at work.
    """
    came = False

    def act(count: int) -> None:
        nonlocal came
        if count == number:
            came = True
            with suppress(RunError):
                quick()

    with harness.before_write(act), suppress(RunError):
        slow()
    return came


def write_or_clear(harness: StoreHarness, run: str, annotations: Annotations | None) -> None:
    """Annotate a run, or clear it for None."""
    if annotations is None:
        clear(harness, run)
    else:
        write(harness, run, annotations)


def kill_at(harness: StoreHarness, run: str, number: int, annotations: Annotations | None) -> bool:
    """Write (or clear, for None) and die before write ``number``; whether it came that far."""
    return killed_before(harness, number, lambda: write_or_clear(harness, run, annotations))


def interleaved_at(
    harness: StoreHarness, run: str, number: int, slow: Annotations | None, quick: Annotations | None
) -> bool:
    """Write ``slow``, and all of ``quick`` before its write ``number`` (None clears); whether it came that far.

    Either may be told that the other is at work.
    """
    return interrupted_at(
        harness, number, lambda: write_or_clear(harness, run, slow), lambda: write_or_clear(harness, run, quick)
    )


def seen_of(harness: StoreHarness, run: str) -> Ending | None:
    """What a run has of how its process was seen to end."""
    with closing(harness.open(run)) as opened:
        return ending_seen(opened)


def recorded_digest(harness: StoreHarness, run: str) -> str | None:
    """The digest that a run records, None for none."""
    with closing(harness.open(run)) as opened:
        recorded = opened.recorded()
    return recorded.digest if recorded else None


def assert_pending_or_whole(harness: StoreHarness, run: str, wholes: Mapping[str, View]) -> None:
    """Check that a run which records the digest of one of ``wholes`` bears that one and nothing else of ours."""
    digest = recorded_digest(harness, run)
    if digest is not None and digest in wholes:
        assert harness.view(run, ours=True) == wholes[digest]


def assert_bears(
    harness: StoreHarness, run: str, annotations: Annotations, *, ack: str = "", is_open: bool | None = None
) -> None:
    """Check that a run bears these annotations: its record, and what its owner sees. ``ack`` and ``is_open``: what the
    marks beside the verdict say, in a store that has any; by default what nobody has answered.
    """
    with closing(harness.open(run)) as opened:
        recorded = opened.recorded()
    assert recorded is not None
    assert (recorded.digest, recorded.verdict) == (annotations.digest, annotations.verdict)
    view = harness.view(run, ours=True)
    kept = {name: content for name, content in view.files.items() if not name.startswith("acks/")}
    assert kept == annotations.files
    assert view.metrics == annotations.metrics
    tags = {name: value for name, value in annotations.tags.items() if name not in ("ack", "open")}
    assert set(tags.values()) <= set(view.tags.values())
    if not harness.supports("marks"):
        marks = view.tags.get("ack", ""), view.tags.get("open")
        assert marks == (ack, annotations.tags.get("open") if is_open is None else str(is_open).lower())
    assert harness.supports("note") or annotations.note in view.note


def skip_unless(harness: StoreHarness, ability: str) -> None:
    """Skip the test, with the reason, where the store has not the ability."""
    reason = harness.supports(ability)
    if reason:
        pytest.skip(reason)


@contextmanager
def calls_counted(action: Any) -> Iterator[Any]:
    """For harnesses: a function to call before each write, which numbers the calls for ``action``."""
    lock, count = threading.Lock(), 0

    def called() -> None:
        nonlocal count
        with lock:
            count += 1
            number = count
        action(number)

    yield called
