"""What numbers say of what was read by name: sums, counters, ranks, running means, several evaluation sets, guesses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.config import Config, changed
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
from tracker_health.evidence.confirmation import confirm
from tracker_health.judge.engine import diagnose
from tracker_health.roles import RolePlan
from tracker_health.testing import check_probe

N = 60
FALL = 2.0 * 0.95 ** np.arange(N) + 0.1


def series(name, values, steps=None):
    steps = np.arange(1, len(values) + 1) if steps is None else np.asarray(steps)
    return Series(name=name, steps=steps.astype(np.int64), values=np.asarray(values, dtype=np.float64))


def confirmed(config=None, **values):
    """The series of these names, and the notes."""
    found = [one if isinstance(one, Series) else series(name, one) for name, one in values.items()]
    return confirm(found, (config or Config()).role_plan().of(one.name for one in found))


def of_role(found, role):
    return [one for one in found.series if one.role == role]


def verdict(**values):
    """The report on a run with these series."""
    found = confirmed(**values)
    info = RunInfo(metric_names=tuple(values), status="FINISHED")
    run = RunRef(store="directory", id="a", name="a")
    return diagnose(Evidence(run=run, info=info, series=found.series, notes=found.notes), Config())


def test_terms_add_up_to_the_loss_that_was_not_logged():
    found = confirmed(
        **{"train/box_loss": FALL, "train/cls_loss": 2 * FALL, "val/box_loss": FALL, "val/cls_loss": FALL}
    )
    (train,), (held_out,) = of_role(found, "train_loss"), of_role(found, "val_loss")
    assert (train.name, held_out.name) == ("train/box_loss + train/cls_loss", "val/box_loss + val/cls_loss")
    np.testing.assert_allclose(train.values, 3 * FALL)
    assert train.guessed
    assert "the sum of its terms" in train.understood
    assert any("train_loss is guessed to be train/box_loss + train/cls_loss" in note for note in found.notes)


def with_ranks(values, ranks=4, idle=0.0):
    """One metric that all ranks log at each step, the first of them the loss."""
    cells = np.column_stack([values, *[np.full(len(values), idle)] * (ranks - 1)]).ravel()
    return series("train_loss", cells, np.repeat(np.arange(1, len(values) + 1), ranks))


def test_zeros_of_idle_ranks_in_one_metric_are_no_loss_of_0():
    found = confirmed(train_loss=with_ranks(FALL))
    np.testing.assert_array_equal(found.series[0].values, FALL)
    assert any("as idle ranks log them" in note for note in found.notes)
    assert str(verdict(train_loss=with_ranks(FALL)).verdict) == "pass"


def test_a_nan_beside_zeros_of_idle_ranks_is_found():
    broken = np.where(np.arange(N) < 40, FALL, np.nan)
    assert str(verdict(train_loss=with_ranks(broken)).verdict) == "fail"


@pytest.mark.parametrize(
    "given",
    [
        with_ranks(FALL, ranks=1),
        series("train_loss", np.where(np.arange(N) < 40, FALL, 0.0)),  # zeros at steps of their own hide something
        series("train_loss", np.where(np.arange(N) < 30, FALL, 0.0), np.repeat([1, 2, 3, 4, 5, 6], 10)),  # by epoch
        series("train_loss", np.where(np.arange(N) < 40, FALL, 0.0), np.zeros(N)),  # without steps
        with_ranks(FALL, idle=1.0),
    ],
)
def test_other_zeros_stay(given):
    found = confirmed(train_loss=given)
    np.testing.assert_array_equal(found.series[0].values, given.values)


def test_nothing_is_added_up_where_the_whole_is_there():
    found = confirmed(loss=FALL, box_loss=FALL, cls_loss=FALL)
    assert [one.name for one in of_role(found, "train_loss")] == ["loss"]


def test_terms_are_added_at_the_steps_that_all_have():
    (train,) = of_role(
        confirmed(box_loss=series("box_loss", FALL), cls_loss=series("cls_loss", FALL[:50])), "train_loss"
    )
    assert (len(train), int(train.steps[-1])) == (50, 50)
    apart = confirmed(box_loss=series("box_loss", FALL), cls_loss=series("cls_loss", FALL[:3], [500, 600, 700]))
    assert not of_role(apart, "train_loss")
    assert any("not summed" in note for note in apart.notes)


def test_a_nan_in_one_term_is_one_in_the_sum():
    sick = np.where(np.arange(N) < 40, FALL, np.nan)
    report = verdict(box_loss=FALL, cls_loss=sick)
    assert report.verdict == "fail"
    assert [one.code for one in report.findings] == ["LOS001"]
    assert "box_loss + cls_loss" in report.findings[0].message
    assert report.summary == report.diagnosis.sentence


def test_who_names_the_training_loss_gets_no_sum():
    config = changed(Config(), {"roles.train_loss": ("mine",)})
    assert not of_role(confirmed(config, box_loss=FALL, cls_loss=FALL), "train_loss")


@pytest.mark.parametrize("values", [np.arange(N) + 1, 10 * np.arange(N), np.arange(N) + 100_000])
def test_a_loss_that_counts_is_a_counter(values):
    found = confirmed(loss=values)
    assert not of_role(found, "train_loss")
    assert any("counts up" in note for note in found.notes)


def test_what_only_adds_up_is_no_loss_where_it_is_a_guess():
    assert not of_role(confirmed(cost=0.02 * np.arange(N) + 0.001 * np.sin(np.arange(N))), "train_loss")
    assert of_role(confirmed(cost=FALL), "train_loss")
    assert of_role(confirmed(train_loss=0.02 * np.arange(N) + 0.5), "train_loss"), "a loss by its name may rise evenly"


def test_an_objective_that_rises_is_maximised():
    assert of_role(confirmed(elbo=-500.0 * FALL), "objective_loss")
    assert of_role(confirmed(elbo=500.0 * FALL), "train_loss")
    turned = np.concatenate([FALL[:30], FALL[:30][::-1] * 40])
    assert of_role(confirmed(objective=turned), "train_loss"), "it came down before it rose"


def test_a_rank_that_logs_zeros_is_not_judged():
    found = confirmed(rank0_loss=np.zeros(N), rank1_loss=FALL)
    assert [one.name for one in of_role(found, "train_loss")] == ["rank1_loss"]
    assert verdict(rank0_loss=np.zeros(N), rank1_loss=FALL).verdict == "pass"
    assert len(of_role(confirmed(rank0_loss=np.zeros(N), rank1_loss=np.zeros(N)), "train_loss")) == 2


def test_of_several_evaluation_sets_the_plain_one_is_judged_and_named():
    found = confirmed(
        **{"train/loss": FALL, "eval/wiki_loss": FALL, "eval/loss": FALL, "test/loss": FALL, "eval/code_loss": FALL}
    )
    run = RunRef(store="directory", id="a", name="a")
    assert Evidence(run=run, series=found.series).first("val_loss").name == "eval/loss"
    (note,) = (one for one in found.notes if "several evaluation sets" in one)
    assert note == "several evaluation sets: eval/loss is judged; next to it test/loss, eval/code_loss, eval/wiki_loss"
    assert not confirmed(**{"train/loss": FALL, "val/loss": FALL, "val/loss_step": FALL}).notes


def test_a_running_mean_is_thinned_until_its_points_share_little():
    rng = np.random.default_rng(1)
    noise = 0.1 + 0.05 * rng.standard_normal(1500)
    mean = np.array([noise[max(0, at - 19) : at + 1].mean() for at in range(len(noise))])
    found = confirmed(avr_loss=mean)
    (judged,) = of_role(found, "train_loss")
    assert 12 <= len(judged) <= 75
    assert judged.steps[-1] == 1500
    assert any("running mean" in note for note in found.notes)
    assert len(of_role(confirmed(avr_loss=noise), "train_loss")[0]) == 1500, "means of an epoch each share nothing"
    assert len(of_role(confirmed(loss=mean), "train_loss")[0]) == 1500, "nothing calls it a mean"
    mean[700] = np.nan
    assert of_role(confirmed(avr_loss=mean), "train_loss")[0].nonfinite == 1


def test_rules_of_degree_warn_at_most_on_a_guess():
    flat = 2.3 + 0.001 * np.sin(np.arange(N))
    sure, guess = verdict(train_loss=flat), verdict(train_loss_local=flat)
    assert (sure.verdict, guess.verdict) == ("fail", "warn")
    assert "is a guess" in guess.summary
    assert any(
        "train_loss is guessed to be train_loss_local (the only loss of the training)" in one for one in guess.notes
    )


@pytest.mark.parametrize("values", [np.append(FALL, [np.nan] * 20), np.append(FALL, 1e7 * np.exp(np.arange(20)))])
def test_nan_and_what_is_past_all_bounds_fail_on_a_guess(values):
    assert verdict(train_loss_local=values).verdict == "fail"


def test_a_run_whose_metrics_are_not_understood_does_not_pass():
    report = verdict(wobble=FALL, fnord=FALL)
    assert report.verdict == "skip"
    assert "no metric is understood as a loss, an accuracy or a reward: fnord, wobble" in report.notes[0]
    assert not verdict(lr=FALL, epoch=np.arange(N)).notes, "all of it is understood"


def test_rules_are_tested_with_the_series_that_they_are_to_see():
    from tracker_health.rules.curves.no_progress import NoProgress

    check_probe(NoProgress, series={"box_loss": list(FALL), "cls_loss": list(FALL)}, expect="pass")


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(
    st.dictionaries(
        st.sampled_from(
            ["loss", "elbo", "avg_loss", "rank0_loss", "rank1_loss", "box_loss", "val/box_loss", "val/c_loss", "acc"]
        ),
        st.lists(numbers, max_size=40),
        max_size=6,
    )
)
def test_no_numbers_break_it_and_it_changes_none(values):
    given_series = [series(name, one) for name, one in values.items()]
    before = [one.values.copy() for one in given_series]
    found = confirm(given_series, RolePlan().of(values))
    for one, kept in zip(given_series, before, strict=True):
        np.testing.assert_array_equal(one.values, kept)
    assert {*values} <= {one.name for one in found.series}
    again = confirm(found.series, RolePlan().of(values))
    assert [one.role for one in again.series] == [one.role for one in found.series]
