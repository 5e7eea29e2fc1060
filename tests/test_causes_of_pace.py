"""Causes of what a run costs lead by their own signs, and by nothing else."""

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
from tracker_health.judge.engine import diagnose
from tracker_health.render.curves import plots_of
from tracker_health.render.sketch import sketch
from tracker_health.words.ending import Ended, Ending

N = 300
AT = np.arange(N)
SLOWER = np.where(AT < 180, 1.0, 2.5)
LEAKS = 2000.0 + 20.0 * AT


def noisy(values, size=0.03, seed=0):
    return np.asarray(values) * np.exp(size * np.random.default_rng(seed).standard_normal(len(values)))


def report(params=None, ended=None, **metrics):
    metrics = {
        "train_loss": 2.0 * np.exp(-AT / 100) + 0.3 + 0.02 * np.random.default_rng(1).standard_normal(N)
    } | metrics
    series = tuple(
        Series(name=role, role=role, steps=AT, values=np.asarray(values, dtype=np.float64))
        for role, values in metrics.items()
    )
    seen = Ending(how=ended, by="its process") if ended is not None else None
    info = RunInfo(params={"max_steps": str(N), "num_workers": "2"} | (params or {}), seen=seen)
    return diagnose(Evidence(run=RunRef(store="directory", id="a", name="a"), series=series, info=info), Config())


def test_a_run_that_keeps_its_pace_has_no_cause():
    found = report(step_time=noisy(np.full(N, 60.0)), memory=noisy(np.full(N, 2000.0)))
    assert (found.verdict, found.diagnosis) == ("pass", None)


def test_a_loader_that_is_too_slow():
    found = report(step_time=noisy(np.full(N, 60.0)), data_time=noisy(np.full(N, 42.0)))
    assert (found.verdict, found.diagnosis.cause, found.diagnosis.certainty) == ("warn", "data-loader-bound", "certain")
    assert (found.diagnosis.action.setting, found.diagnosis.action.old, found.diagnosis.action.new) == (
        "num_workers",
        2,
        4,
    )


def test_a_loader_that_became_slower_is_the_cause_of_slower_steps():
    # Data is 40 % of a step at the end: too little for the rule on waiting, and most of what steps take longer.
    step, data = noisy(np.where(AT < 180, 60.0, 110.0)), noisy(np.where(AT < 180, 3.0, 48.0))
    found = report(step_time=step, data_time=data)
    assert [one.code for one in found.findings] == ["SYS005"]
    assert found.diagnosis.cause == "data-loader-bound"


def test_slower_steps_whose_data_came_in_time():
    found = report(step_time=noisy(60.0 * SLOWER), data_time=noisy(np.full(N, 3.0)))
    assert (found.diagnosis.cause, found.diagnosis.certainty) == ("slowed-down", "likely")


@pytest.mark.parametrize(("memory", "cause"), [(LEAKS, "memory-creeps"), (np.full(N, 2000.0), "out-of-memory")])
def test_out_of_memory_by_a_leak_or_at_once(memory, cause):
    found = report({"max_steps": "900"}, Ended.OUT_OF_MEMORY, memory=noisy(memory, 0.005))
    assert (found.verdict, found.diagnosis.cause) == ("fail", cause)


def test_a_leak_that_has_not_ended_the_run():
    found = report(memory=noisy(LEAKS, 0.005))
    assert (found.verdict, found.diagnosis.cause) == ("warn", "memory-creeps")


def test_the_time_per_step_is_drawn_where_only_points_have_times():
    loss = Series(
        name="loss",
        role="train_loss",
        steps=AT,
        values=1.0 + np.exp(-AT / 100),
        times=1.7e9 + np.cumsum(60.0 * noisy(SLOWER)),
    )
    evidence = Evidence(run=RunRef(store="directory", id="a", name="a"), series=(loss,))
    found = diagnose(evidence, Config())
    assert found.findings[0].about == ("seconds per step",)
    assert sketch(evidence, found).says.startswith("seconds per step")
    assert [plot.name for plot in plots_of(evidence, found)] == ["pace", "loss"]


def test_what_a_run_costs_heads_no_report_on_a_training_that_broke():
    loss = np.where(AT < 200, 1.0 + np.exp(-AT / 50), np.nan)
    found = report(train_loss=loss, step_time=noisy(60.0 * SLOWER))
    assert found.verdict == "fail"
    assert found.diagnosis.cause not in ("slowed-down", "data-loader-bound", "memory-creeps")
