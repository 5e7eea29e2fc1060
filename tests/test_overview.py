"""What the tags of many runs say together."""

from __future__ import annotations

from dataclasses import replace

from tracker_health.evidence import RunRef
from tracker_health.evidence.kin import Kin, results_of, settings_of_kin
from tracker_health.judge.annotations import Shadow
from tracker_health.judge.group_verdict import GroupVerdict
from tracker_health.runs.overview import overview, overview_lines
from tracker_health.stores.base import TaggedRun
from tracker_health.stores.common.record import tagged
from tracker_health.words.acknowledgements import acknowledgement
from tracker_health.words.verdict import Verdict

NOW = 1_800_000_000.0


def run(number, verdict, cause="", codes=("LOS004",)):
    ref = RunRef(store="mlflow", id=str(number), name=f"run {number}")
    return TaggedRun(ref=ref, verdict=verdict, codes=codes, summary="the loss rose", cause=cause)


RUNS = [
    run(1, Verdict.FAIL, "learning-rate-too-high"),
    run(2, Verdict.FAIL, "learning-rate-too-high"),
    run(3, Verdict.WARN, "overfitting"),
    run(4, Verdict.PASS, codes=()),
]


def test_causes_are_counted_and_grouped():
    found = overview(RUNS, by=["cause"], now=NOW)
    assert found.causes == {"learning-rate-too-high": 2, "overfitting": 1}
    assert found.groups["cause"]["learning-rate-too-high"]["fail"] == 2
    document = found.to_json()
    assert document["causes"][0] == {"cause": "learning-rate-too-high", "runs": 2}
    assert document["worst"][0]["cause"] == "learning-rate-too-high"
    lines = list(overview_lines(found))
    assert lines.index("most frequent causes") < lines.index("most frequent reasons")
    assert any("learning-rate-too-high: the loss rose" in line for line in lines)


def test_without_a_cause_nothing_is_said_of_it():
    found = overview([run(1, Verdict.FAIL)], now=NOW)
    assert found.to_json()["causes"] == []
    assert found.to_json()["worst"][0]["cause"] is None
    assert "most frequent causes" not in list(overview_lines(found))


def test_a_run_has_the_cause_of_its_tag():
    ref = RunRef(store="mlflow", id="1", name="a")
    tags = {
        "health.verdict": "fail", "health.digest": "0" * 16, "health.written": "{}", "health.cause": "overfitting",
    }  # fmt: skip
    found = tagged(ref, tags, user="", started=None, last_step=None)
    assert found.cause == ("overfitting" if found.verdict is not None else "")


def said(number, **given):
    entry = {"who": "ana", "when": NOW, "because": "looked", "codes": ["LOS004"], "cause": "overfitting", **given}
    return acknowledgement(id=f"{number:016x}", **entry)


def test_precision_is_the_share_of_what_people_answered_that_was_right():
    flagged = [run(number, Verdict.FAIL, "overfitting") for number in range(6)]
    flagged[0] = replace(flagged[0], acks=(said(1, about_cause=True),))
    flagged[1] = replace(flagged[1], acks=(said(2, wrong=True, about_cause=True),))
    flagged[2] = replace(flagged[2], acks=(said(3), said(4, wrong=True)))
    flagged[3] = replace(flagged[3], acks=(said(5, until=NOW - 1),))
    flagged[4] = replace(flagged[4], acks=(said(6, wrong=True), said(7, codes=[], undoes=[said(6).id])))
    labels = []
    found = overview(flagged, now=NOW, labelled=labels.append)
    document = found.to_json()
    (rule,), (cause,) = document["precision"]["rules"], document["precision"]["causes"]
    assert rule == {
        "code": "LOS004", "name": "diverged", "flagged": 6, "acknowledged": 2, "wrong": 2, "precision": 0.5,
    }  # fmt: skip
    assert (cause["flagged"], cause["acknowledged"], cause["wrong"]) == (6, 1, 1), "codes alone say nothing of it"
    assert document["open"] == 3, "what is over, taken back, or was never answered"
    assert [one["run"]["id"] for one in labels] == ["0", "1", "2", "3"]
    assert labels[1]["acknowledged"][0]["wrong"] is True
    assert "evidence" not in labels[1]["acknowledged"][0]
    lines = list(overview_lines(found))
    assert "3 runs open: someone still has to look" in lines
    (line,) = [one for one in lines if one.startswith("LOS004 diverged")]
    assert line.split() == ["LOS004", "diverged", "6", "2", "2", "50", "%"]


def test_where_nobody_has_answered_there_is_no_precision():
    found = overview(RUNS, now=NOW)
    assert found.to_json()["precision"]["rules"][0]["precision"] is None
    assert not any("precision" in line for line in overview_lines(found))


def test_what_is_tried_out_is_counted_apart():
    tried = Shadow(verdict=Verdict.FAIL, digest="0" * 16)
    found = overview([replace(run(1, None, codes=()), shadow=tried)], now=NOW)
    assert (found.verdicts["none"], found.to_json()["shadow"]) == (1, {"fail": 1})
    assert "in shadow only: 1 fail" in list(overview_lines(found))


def of_kin(number, verdict, where="a", score=None, group="", **params):
    kin = Kin(
        where=where, id=str(number), name=f"run-{number}", group="g", started=0.0, ended=9.0,
        results=() if score is None else results_of({"val/accuracy": score}), **settings_of_kin(params),
    )  # fmt: skip
    state = "3 of 3:0123456789abcdef" if group else ""
    mark = GroupVerdict.of(verdict, group, state)
    found = replace(run(number, verdict), experiment=where, kin=kin, group=group, group_state=state)
    return replace(found, group_verdict=mark.verdict if mark else None)


def test_each_group_has_a_line_that_says_what_it_is():
    folds = [of_kin(at, Verdict.PASS, score=0.8 + at / 10, lr=1, fold=at) for at in range(2)]
    found = overview(folds, by=["group"], now=NOW)
    said = "2 folds: val/accuracy 0.9 best (run-1), 0.8 worst (run-0), spread 0.071; 2 pass"
    assert [one.said for one in found.relations["group"]] == [said]
    assert f"  g: {said}" in list(overview_lines(found))
    assert found.to_json()["groups"]["group"][0]["said"] == said
    assert found.groups["group"] == {"g": {"pass": 2}}


def test_groups_of_two_projects_are_two():
    runs = [of_kin(at, Verdict.PASS, where=where, lr=1, seed=at) for where in "ab" for at in range(2)]
    found = overview(runs, by=["group"], now=NOW)
    assert sorted((one.name, one.kind, one.runs) for one in found.relations["group"]) == [
        ("g (a)", "seeds", 2), ("g (b)", "seeds", 2),
    ]  # fmt: skip
    assert sorted(found.groups["group"]) == ["g (a)", "g (b)"]


def test_ranks_have_the_verdict_that_their_head_bears():
    mark = "rank 1 left the others from step 300"
    runs = [of_kin(at, Verdict.WARN, group=mark if at == 0 else "", lr=1, rank=at) for at in range(3)]
    (group,) = overview(runs, by=["group"], now=NOW).relations["group"]
    assert group.said == "3 ranks of one training: WARN (rank 1 left the others from step 300)"
    (group,) = overview([replace(one, group_state="") for one in runs], by=["group"], now=NOW).relations["group"]
    assert group.said == "3 ranks of one training: not judged together yet; 3 warn"


def test_what_a_group_is_called_cannot_move_the_cursor():
    runs = [of_kin(at, Verdict.PASS, lr=at) for at in range(2)]
    runs = [replace(one, kin=replace(one.kin, group="g\x1b[2J", name="\u202eevil")) for one in runs]
    lines = list(overview_lines(overview(runs, by=["group"], now=NOW)))
    assert not any("\x1b" in line or "\u202e" in line for line in lines)
