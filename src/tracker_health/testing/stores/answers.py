"""What every store must do with what people answer to a verdict, and with verdicts that are only tried out."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tracker_health.errors import StoreRefused
from tracker_health.judge.annotations import Annotations, Shadow
from tracker_health.stores.base import Overtaken
from tracker_health.testing.stores.harness import (
    NOON,
    StoreHarness,
    View,
    acknowledge,
    assert_bears,
    bearing,
    clear,
    entries,
    entry_on,
    interrupted_at,
    killed_before,
    recorded_digest,
    skip_unless,
    try_out,
    write,
)
from tracker_health.words.acknowledgements import Acknowledgement
from tracker_health.words.stopped import Stop
from tracker_health.words.verdict import Verdict

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
REQUEST = Stop(step=3, verdict="fail", code="LOS004", cause="", reason="LOS004 diverged", when=NOON).as_request
SHADOW = Shadow(verdict=Verdict.FAIL, codes=("LOS004",), cause="bad-data", digest="1111222233334444")


class AnswersContract:
    """A part of the suite; ``run`` and ``harness`` are fixtures of the whole."""

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

    @pytest.mark.every_write
    def test_an_interrupted_acknowledgement_costs_no_verdict_and_can_be_done_again(self, harness: StoreHarness) -> None:
        whole = bearing(harness, MARKED)
        acknowledge(harness, whole, entry_on(harness, whole))
        number, finished = 0, False
        while not finished:
            number += 1
            run = bearing(harness, MARKED)
            entry = entry_on(harness, run)
            finished = not killed_before(harness, number, lambda: acknowledge(harness, run, entry))  # noqa: B023
            assert recorded_digest(harness, run) == MARKED.digest
            assert entries(harness, run) in ((), (entry,)), f"after a kill at write {number}"
            acknowledge(harness, run, entry)
            assert entries(harness, run) == (entry,)
            assert_bears(harness, run, MARKED, ack="acknowledged by ana", is_open=True)
        assert number > 1, "the harness counts writes"

    @pytest.mark.every_write
    def test_a_second_person_in_the_midst_of_the_first_loses_nothing(self, harness: StoreHarness) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = bearing(harness, MARKED)
            first, second = entry_on(harness, run), entry_on(harness, run, 2, who="ben", codes=("GRD001",))
            came = interrupted_at(
                harness,
                number,
                lambda: acknowledge(harness, run, first),  # noqa: B023
                lambda: acknowledge(harness, run, second),  # noqa: B023
            )
            for one in (first, second):  # where one was notified that the other is at work
                if one not in entries(harness, run):
                    acknowledge(harness, run, one)
            assert entries(harness, run) == (first, second), f"with the other at write {number}"
            assert_bears(harness, run, MARKED, ack="acknowledged by ben, ana", is_open=False)

    @pytest.mark.every_write
    @pytest.mark.parametrize("annotations", [MARKED, PASS], ids=["again", "pass"])
    @pytest.mark.thinned(2)
    def test_an_annotator_in_the_midst_of_an_acknowledgement_loses_nothing(
        self, harness: StoreHarness, annotations: Annotations
    ) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = bearing(harness, MARKED)
            entry = entry_on(harness, run)
            came = interrupted_at(
                harness,
                number,
                lambda: acknowledge(harness, run, entry),  # noqa: B023
                lambda: write(harness, run, annotations),  # noqa: B023
            )
            self._both_are_kept(harness, run, entry, annotations)

    @pytest.mark.every_write
    @pytest.mark.parametrize("annotations", [MARKED, PASS], ids=["again", "pass"])
    @pytest.mark.thinned(2)
    def test_an_acknowledgement_in_the_midst_of_an_annotator_loses_nothing(
        self, harness: StoreHarness, annotations: Annotations
    ) -> None:
        number, came = 0, True
        while came:
            number += 1
            run = bearing(harness, MARKED)
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
                    time.sleep(0.05)  # a store may tell the slower of two to come again
                    continue
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

    # Messages

    def test_what_people_were_sent_is_renewed_on_an_annotated_run_alone(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        with closing(harness.open(run)) as opened:
            assert opened.recorded() is None
        write(harness, run, replace(MARKED, tags={**MARKED.tags, "notified": "due=bad-data@17#0123abcd"}))
        with closing(harness.open(run)) as opened:
            opened.mark_notified("told=bad-data")
        with closing(harness.open(run)) as opened:
            recorded = opened.recorded()
        assert recorded is not None
        assert recorded.is_whole
        assert (recorded.notified, recorded.digest, recorded.codes) == (
            "told=bad-data",
            MARKED.digest,
            ("LOS004", "GRD001"),
        )
        assert harness.view(run, ours=False) == before
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()

    @pytest.mark.parametrize("annotations", [FAIL, PASS, SKIP], ids=lambda one: str(one.verdict))
    def test_what_people_were_sent_stands_before_a_verdict_and_goes_into_it(
        self, harness: StoreHarness, run: str, annotations: Annotations
    ) -> None:
        before = harness.view(run, ours=False)
        for told in ("due=bad-data@17#0123abcd", "told=bad-data"):
            with closing(harness.open(run)) as opened:
                opened.mark_notified(told)
            with closing(harness.open(run)) as opened:
                assert (opened.notified(), opened.recorded()) == (told, None)
        write(harness, run, replace(annotations, tags={**annotations.tags, "notified": "told=bad-data"}))
        with closing(harness.open(run)) as opened:
            assert opened.notified() == "told=bad-data"
        assert_bears(harness, run, replace(annotations, tags={**annotations.tags, "notified": "told=bad-data"}))
        assert harness.view(run, ours=False) == before
        assert clear(harness, run)
        assert harness.view(run, ours=True) == View()

    def test_what_people_were_sent_is_cleared_without_a_verdict(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        with closing(harness.open(run)) as opened:
            opened.mark_notified("told=bad-data")
        assert clear(harness, run)
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == (before, View())

    # Requests

    def test_a_training_is_asked_to_stop_or_that_is_refused_in_one_line(self, harness: StoreHarness, run: str) -> None:
        before = harness.view(run, ours=False)
        with closing(harness.open(run)) as opened:
            assert not opened.asked_to_stop()
            if opened.why_not_asked():
                with pytest.raises(StoreRefused) as caught:
                    opened.ask_to_stop(REQUEST)
                assert "\n" not in str(caught.value)
                return
            opened.ask_to_stop(REQUEST)
            assert opened.asked_to_stop()
        with closing(harness.open(run)) as opened:
            assert opened.asked_to_stop()
            opened.ask_to_stop(REQUEST)
        write(harness, run, PASS)
        assert_bears(harness, run, PASS)
        with closing(harness.open(run)) as opened:
            assert not opened.asked_to_stop(), "once the run is over nobody need ask"
        assert clear(harness, run)
        assert (harness.view(run, ours=False), harness.view(run, ours=True)) == (before, View())

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
            run = bearing(harness, None)
            finished = not killed_before(harness, number, lambda: try_out(harness, run, SHADOW))  # noqa: B023
            try_out(harness, run, SHADOW)
            with closing(harness.open(run)) as opened:
                assert (opened.shadow(), opened.recorded()) == (SHADOW, None), f"after a kill at write {number}"
