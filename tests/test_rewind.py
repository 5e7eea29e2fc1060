"""Which checkpoint to go back to: where a run went wrong, what a checkpoint's name says, and which one is chosen."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.diagnosis import CAUSES
from tracker_health.evidence import Evidence, RunRef, Series, StepUnit
from tracker_health.judge import checkpoint_choice as rewind
from tracker_health.judge.annotations import plan
from tracker_health.judge.checkpoint_choice import MOST_LOOKED_AT, StepAxis, rewind_of
from tracker_health.render.ci import check_of_run
from tracker_health.render.console import report_lines
from tracker_health.render.markdown import report_markdown
from tracker_health.render.page import report_page
from tracker_health.report.result import ProbeResult, Report, ToolInfo
from tracker_health.report.resume_point import CheckpointContents, Counted, Onset, Rewind, Saved
from tracker_health.words.diagnosis import Action, Diagnosis
from tracker_health.words.verdict import Verdict

RUN = RunRef(store="directory", id="outputs", name="outputs")
TOOL = ToolInfo(version="1", preset="default", config_digest="0")


@dataclass
class FakeShelf:
    """Checkpoints of a run, as a list; what is in each, by its key."""

    listed: list[Saved]
    looks: dict[str, CheckpointContents] = field(default_factory=dict)
    inside: dict[str, Counted] = field(default_factory=dict)
    looked_at: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def counted(self, saved):
        self.asked.append(saved.key)
        return self.inside.get(saved.key, Counted())

    def look(self, saved):
        self.looked_at.append(saved.key)
        return self.looks.get(saved.key, CheckpointContents(tensors=148))


def shelf_at(*steps, **looks):
    saved = [Saved(key=f"s{step}", path=f"outputs/checkpoint-{step}", counted=Counted(step=step)) for step in steps]
    return FakeShelf(saved, looks)


def result(code="LOS004", verdict=Verdict.FAIL, onset=None, votes=True):
    return ProbeResult(
        code=code, name="n", symptom="diverged", status="stable", verdict=verdict, votes=votes, score=0.0,
        message="m 1", onset=onset,
    )  # fmt: skip


def report_of(*results, cause=None, explains=()):
    verdict = max((one.verdict for one in results if one.votes), key=lambda one: one.rank, default=Verdict.PASS)
    diagnosis = None
    if cause is not None:
        diagnosis = Diagnosis(
            cause=cause, certainty="likely", sentence="s.", action=Action(text="t"), explains=tuple(explains)
        )
    return Report(
        run=RUN, verdict=verdict, score=0.0, summary="s", results=results, tool=TOOL, diagnosis=diagnosis,
    )  # fmt: skip


ROSE = Onset(step=620, what="the loss rose", unit=StepUnit.OPTIMIZER_STEP)
DIVERGED = report_of(result(onset=ROSE))


def evidence_up_to(last=1000, unit=StepUnit.OPTIMIZER_STEP, first=0, more=()):
    steps = np.arange(first, last + 1, dtype=np.int64)
    loss = Series(name="loss", role="train_loss", steps=steps, values=np.ones(len(steps)), step_unit=unit)
    return Evidence(run=RUN, series=(loss, *more))


def onset_of(report, evidence=None):
    return rewind.onset_of(report, evidence or evidence_up_to())


# Where it went wrong


def test_the_worst_findings_say_where_and_of_these_the_earliest():
    early = result("LOS008", Verdict.WARN, Onset(step=10, what="w"))
    late, later = (result(f"LOS00{one}", onset=Onset(step=one * 100, what="w")) for one in (3, 4))
    assert onset_of(report_of(early, later, late)).step == 300


def test_what_has_no_vote_says_nothing():
    assert onset_of(report_of(result(onset=ROSE, votes=False), result("LOS008", Verdict.WARN))) is None


def test_a_run_that_passed_or_could_not_be_judged_went_wrong_nowhere():
    assert onset_of(report_of(result(verdict=Verdict.PASS, onset=ROSE))) is None
    assert onset_of(report_of()) is None


def test_the_findings_that_the_diagnosis_explains_come_first():
    explained = result("GEN001", Verdict.WARN, Onset(step=400, what="the best validation loss", is_best=True))
    other = result("LOS003", Verdict.WARN, Onset(step=100, what="the loss jumped"))
    assert onset_of(report_of(explained, other, cause="overfitting", explains=["GEN001"])).step == 400
    assert onset_of(report_of(explained, other)).step == 100


def test_a_cause_from_the_first_step_leaves_nothing_to_go_back_to():
    assert onset_of(report_of(result(onset=ROSE), cause="labels-do-not-match", explains=["LOS004"])) is None
    assert onset_of(report_of(result(onset=ROSE), cause="diverged-cause-unknown", explains=["LOS004"])) == ROSE


def test_causes_that_set_in_later_are_known_as_such():
    later = {"learning-rate-too-high", "non-finite-loss", "overfitting", "resume-incomplete", "diverged-cause-unknown"}
    assert not any(one.from_the_start for one in CAUSES if one.name in later)
    assert {"no-gradient", "same-batch-repeated"} <= {one.name for one in CAUSES if one.from_the_start}


def test_the_best_step_itself_is_good_and_the_first_wrong_one_is_not():
    assert Onset(step=400, what="b", is_best=True).last_good == 400
    assert Onset(step=400, what="w").last_good == 399
    mixed = report_of(
        result("A", onset=Onset(step=401, what="w")), result("B", onset=Onset(step=400, what="b", is_best=True))
    )
    assert onset_of(mixed).last_good == 400


# Which one


def test_the_newest_from_before_is_chosen():
    found = rewind_of(DIVERGED, evidence_up_to(), shelf_at(400, 500, 600, 650))
    assert found.said == ("outputs/checkpoint-600 (step 600, before the loss rose at step 620; no NaN in 148 tensors)")


def test_one_of_the_very_step_is_too_late_but_that_of_the_best_step_is_right():
    assert rewind_of(DIVERGED, evidence_up_to(), shelf_at(600, 620)).step == 600
    best = report_of(result(onset=Onset(step=620, what="the best validation loss", is_best=True, unit=ROSE.unit)))
    found = rewind_of(best, evidence_up_to(), shelf_at(600, 620, 640))
    assert found.said.startswith("outputs/checkpoint-620 (step 620, the best validation loss; no NaN")
    found = rewind_of(best, evidence_up_to(), shelf_at(600, 640))
    assert "(step 600, not after the best validation loss at step 620;" in found.said


def test_one_with_nan_gives_way_to_the_next_older_one():
    found = rewind_of(
        DIVERGED, evidence_up_to(), shelf_at(400, 500, 600, s600=CheckpointContents(tensors=3, nonfinite=True))
    )
    assert found.path == "outputs/checkpoint-500"
    assert found.said.endswith("no NaN in 148 tensors; outputs/checkpoint-600 holds NaN)")


def test_no_more_than_three_are_read():
    broken = {f"s{step}": CheckpointContents(nonfinite=True) for step in range(100, 601, 100)}
    shelf = shelf_at(*range(100, 601, 100), **broken)
    found = rewind_of(DIVERGED, evidence_up_to(), shelf)
    assert shelf.looked_at == ["s600", "s500", "s400"]
    assert found.path == ""
    assert found.said.startswith(
        "no checkpoint from before step 620 is known to be good: outputs/checkpoint-600 holds NaN"
    )


def test_one_that_may_not_be_read_is_named_with_the_reason():
    found = rewind_of(DIVERGED, evidence_up_to(), shelf_at(500, s500=CheckpointContents(unchecked="it has 3 GB")))
    assert found.said.endswith("rose at step 620; not checked: it has 3 GB)")


def test_one_that_cannot_be_read_gives_way_to_one_that_can():
    cut = CheckpointContents(unchecked="it is cut short", is_broken=True)
    found = rewind_of(DIVERGED, evidence_up_to(), shelf_at(500, 600, s600=cut))
    assert (found.path, found.passed_over) == ("outputs/checkpoint-500", ("outputs/checkpoint-600 cannot be read",))
    assert rewind_of(DIVERGED, evidence_up_to(), shelf_at(600, s600=cut)).checked == "not checked: it is cut short"


def test_what_is_no_checkpoint_after_all_is_passed_over_in_silence():
    found = rewind_of(DIVERGED, evidence_up_to(), shelf_at(500, 600, s600=CheckpointContents(is_none=True)))
    assert (found.path, found.passed_over) == ("outputs/checkpoint-500", ())


def test_that_none_is_left_is_said_only_where_there_are_any():
    assert rewind_of(DIVERGED, evidence_up_to(), shelf_at()) is None
    found = rewind_of(DIVERGED, evidence_up_to(), shelf_at(650, 700))
    assert found.said == "no checkpoint from before step 620 is left; save them more often"
    assert not found.path


def test_of_a_run_that_was_wrong_before_a_first_one_was_due_it_asks_for_a_new_start():
    report = report_of(result(onset=Onset(step=12, what="the loss rose", unit=ROSE.unit)))
    assert "so start again" in rewind_of(report, evidence_up_to(), shelf_at(100, 200)).said


def test_a_run_without_such_a_finding_asks_its_store_nothing():
    class Untouchable:
        @property
        def listed(self):
            raise AssertionError

    assert rewind_of(report_of(result(verdict=Verdict.WARN)), evidence_up_to(), Untouchable()) is None


# Whether a number is a step


def unnamed(*numbers, **what):
    return FakeShelf(
        [Saved(key=f"n{one}", path=f"m{one}", counted=Counted(**{what.get("kind", "number"): one})) for one in numbers]
    )


def unknown(step=620):
    return report_of(result(onset=Onset(step=step, what="w")))


def test_numbers_that_go_on_to_the_end_of_the_log_are_its_steps():
    evidence = evidence_up_to(unit=StepUnit.UNKNOWN)
    assert rewind_of(unknown(), evidence, unnamed(*range(50, 1001, 50))).path == "m600"
    assert rewind_of(unknown(), evidence, unnamed(500)).path == "m500"


def test_numbers_that_stop_long_before_the_end_count_something_else():
    evidence = evidence_up_to(5000, StepUnit.UNKNOWN)
    assert rewind_of(unknown(3000), evidence, unnamed(*range(1, 31))) is None
    assert rewind_of(unknown(3000), evidence, unnamed(12)) is None


def test_numbers_beyond_the_end_count_something_else():
    evidence = evidence_up_to(30, StepUnit.UNKNOWN)
    assert rewind_of(unknown(20), evidence, unnamed(500, 1000)) is None
    assert rewind_of(unknown(20), evidence, unnamed(500, 1000, kind="step")) is None
    assert rewind_of(unknown(20), evidence, unnamed(500)) is None


def test_steps_along_an_axis_of_samples_are_not_compared():
    evidence = evidence_up_to(32_000, StepUnit.UNKNOWN)
    assert rewind_of(unknown(16_000), evidence, unnamed(100, 500, 1000, kind="step")) is None


def test_epochs_are_epochs_of_an_axis_that_counts_them():
    report = report_of(result(onset=Onset(step=7, what="w", unit=StepUnit.EPOCH)))
    evidence = evidence_up_to(12, StepUnit.EPOCH, first=1)
    found = rewind_of(report, evidence, unnamed(*range(1, 13), kind="epoch"))
    assert (found.path, found.epoch, found.said) == (
        "m6",
        6,
        "m6 (epoch 6, before w at epoch 7; no NaN in 148 tensors)",
    )
    # Counted from 0 beside a log that counts from 1, epoch 5 is the sixth.
    assert rewind_of(report, evidence, unnamed(*range(12), kind="epoch")).path == "m5"


@pytest.mark.parametrize("unit", [StepUnit.UNKNOWN, StepUnit.LOG_CALL])
def test_epochs_are_found_on_another_axis_by_the_log(unit):
    epoch = Series(
        name="epoch", role="epoch", step_unit=unit,
        steps=np.arange(1000, dtype=np.int64), values=np.arange(1000) // 100 * 1.0,
    )  # fmt: skip
    report = report_of(result(onset=Onset(step=620, what="w", unit=unit)))
    evidence = evidence_up_to(999, unit, more=(epoch,))
    assert rewind_of(report, evidence, unnamed(*range(10), kind="epoch")).path == "m5", "epoch 5 ends at step 599"


def test_shares_of_epochs_leave_it_open_from_where_checkpoints_count():
    shares = Series(
        name="epoch", role="epoch", step_unit=StepUnit.UNKNOWN,
        steps=np.arange(1000, dtype=np.int64), values=np.arange(1000) / 100,
    )  # fmt: skip
    evidence = evidence_up_to(999, StepUnit.UNKNOWN, more=(shares,))
    assert rewind_of(unknown(), evidence, unnamed(*range(10), kind="epoch")).path == "m5", "at 6.0 of 6.2 at the latest"


def test_rows_are_counted_by_a_counter_beside_them_or_not_at_all():
    report = report_of(result(onset=Onset(step=62, what="w", unit=StepUnit.LOG_CALL)))
    rows = np.arange(100, dtype=np.int64)
    counter = Series(
        name="global_step", role="global_step", step_unit=StepUnit.LOG_CALL, steps=rows, values=rows * 10.0
    )
    with_it = evidence_up_to(99, StepUnit.LOG_CALL, more=(counter,))
    shelf = unnamed(*range(50, 1000, 50), kind="step")
    assert rewind_of(report, with_it, shelf).path == "m600"
    assert rewind_of(report, evidence_up_to(99, StepUnit.LOG_CALL), shelf) is None
    logged = unnamed(40, 60, 80, kind="logged")
    assert rewind_of(report, evidence_up_to(99, StepUnit.LOG_CALL), logged).path == "m60"


def test_what_a_checkpoint_says_of_itself_overrules_its_name():
    shelf = shelf_at(500, 600)
    shelf.inside = {"s600": Counted(step=900)}
    assert rewind_of(DIVERGED, evidence_up_to(), shelf).path == "outputs/checkpoint-500"


def test_one_whose_name_says_nothing_is_asked():
    shelf = FakeShelf([Saved(key="best", path="best.pt"), Saved(key="last", path="last.pt")])
    shelf.inside = {"best": Counted(step=580), "last": Counted(step=1000)}
    assert rewind_of(DIVERGED, evidence_up_to(), shelf).path == "best.pt"
    assert rewind_of(DIVERGED, evidence_up_to(), FakeShelf(shelf.listed)) is None, "nobody knows when they were saved"


def test_thousands_are_listed_and_few_asked():
    names = FakeShelf([Saved(key=str(one), path=f"x{one}") for one in range(5000)])
    assert rewind_of(DIVERGED, evidence_up_to(), names) is None
    assert len(names.asked) <= 12
    liars = shelf_at(*range(1, 600))
    liars.inside = {one.key: Counted(step=800) for one in liars.listed}
    assert rewind_of(DIVERGED, evidence_up_to(), liars) is None, "it may be there, and was not found"
    assert len(liars.asked) <= 12


steps = st.integers(0, 2000)


@given(
    st.dictionaries(steps, st.sampled_from(["clean", "nan", "cut", "data"]), max_size=12),
    st.integers(1, 2000),
    st.booleans(),
)
def test_the_chosen_one_is_from_before_and_no_clean_one_lies_between(kinds, at, is_best):
    look = {
        "clean": CheckpointContents(tensors=5),
        "nan": CheckpointContents(nonfinite=True),
        "cut": CheckpointContents(is_broken=True, unchecked="c"),
        "data": CheckpointContents(is_none=True),
    }
    shelf = shelf_at(*kinds, **{f"s{step}": look[kind] for step, kind in kinds.items()})
    onset = Onset(step=at, what="w", unit=StepUnit.OPTIMIZER_STEP, is_best=is_best)
    found = rewind_of(report_of(result(onset=onset)), evidence_up_to(2000), shelf)
    good = {step for step in kinds if step <= onset.last_good}
    assert set(shelf.looked_at) <= {f"s{step}" for step in good}
    assert sum(kinds[int(one[1:])] in ("nan", "cut") for one in shelf.looked_at) <= MOST_LOOKED_AT
    if found is not None and found.path:
        assert found.step <= onset.last_good
        assert is_best or found.step < at
        between = {kinds[step] for step in good if step > found.step}
        if kinds[found.step] == "clean":
            assert "clean" not in between
        else:
            assert kinds[found.step] == "cut", "where none that can be read was found among three"
    elif kinds and found is not None:
        newest = [kinds[step] for step in sorted(good, reverse=True) if kinds[step] != "data"][:MOST_LOOKED_AT]
        assert "clean" not in newest


# In words


HOSTILE = Rewind(before=ROSE, path="a`*<b>|$x", step=600, checked="no NaN in 3 tensors")


@pytest.mark.parametrize("cause", [None, "diverged-cause-unknown"])
def test_every_form_names_it_once_and_as_text(cause):
    report = replace(report_of(result(onset=ROSE), cause=cause, explains=["LOS004"]), rewind=HOSTILE)
    note, markdown = plan(report, "0").note, "\n".join(report_markdown(report))
    for text in (note, markdown):
        (line,) = [one for one in text.splitlines() if one.startswith("**Go back to:**")]
        assert line == "**Go back to:** `a*<b>|$x` (step 600, before the loss rose at step 620; no NaN in 3 tensors)"
    terminal = [one for one in report_lines(report, width=200) if "restart" in one]
    assert terminal == [f"  restart  from {HOSTILE.said}"]
    assert f"Go back to: {HOSTILE.said}" in check_of_run(report, "fail").message.splitlines()
    page = report_page(report).decode()
    assert page.count("<b>Go back to:</b>") == 1
    assert "<code>a`*&lt;b&gt;|$x</code>" in page


def test_that_there_is_none_stands_in_the_same_places():
    report = replace(report_of(result(onset=ROSE)), rewind=Rewind(before=ROSE))
    said = "no checkpoint from before step 620 is left; save them more often"
    assert f"  restart  {said}" in list(report_lines(report, width=200))
    assert f"**Go back to:** {said}" in "\n".join(report_markdown(report))
    assert said in report_page(report).decode()


# As data


@given(
    st.builds(
        Rewind,
        before=st.builds(
            Onset, step=steps, what=st.text(max_size=20), unit=st.sampled_from(StepUnit), is_best=st.booleans()
        ),
        path=st.text(max_size=30),
        step=st.none() | steps,
        epoch=st.none() | steps,
        checked=st.text(max_size=20),
        passed_over=st.lists(st.text(max_size=20), max_size=3).map(tuple),
        is_too_early=st.booleans(),
    )
)
def test_it_survives_its_json_and_fits_the_schema(valid_report, found):
    report = replace(report_of(result(onset=found.before)), rewind=found)
    document = json.loads(json.dumps(report.to_json()))
    valid_report(document)
    assert Report.from_json(document) == report


def test_a_report_without_one_says_nothing_of_it():
    assert "rewind" not in DIVERGED.to_json()


def test_a_step_out_of_an_array_is_a_plain_number():
    assert type(Onset(step=np.int64(3), what="w").step) is int


def test_an_axis_of_a_run_without_points_holds_nothing():
    assert StepAxis.of(Evidence(run=RUN), StepUnit.UNKNOWN).last == 0
