"""LiveHealth: the verdict of ``check`` on every beginning of a run, what counts by when, and no harm to a training."""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health import ConfigError, Verdict, check, preset
from tracker_health.live import LIVE_RULES, LiveHealth, When
from tracker_health.live.health import FREE_SECONDS
from tracker_health.live.rules import Standing
from tracker_health.report.result import ProbeResult
from tracker_health.report.resume_point import Onset
from tracker_health.rules.registry import probe_classes


def falling(n, noise=0.05, seed=0):
    random = np.random.default_rng(seed)
    return 2.0 * np.exp(-3.0 * np.arange(n) / n) + 0.3 + noise * random.normal(size=n)


def diverging(n, at):
    values = falling(n)
    values[at:] += np.linspace(0.5, 6.0, n - at)
    return values


def run_through(values, **options):
    health = LiveHealth(plan=len(values), rest=0.0, **options)
    for step, value in enumerate(values):
        health.step(step=step, loss=float(value))
        if health.should_stop:
            break
    return health


RUNS = {
    "falls": falling(120),
    "diverges": diverging(120, 60),
    "never learns": 2.3 + 0.01 * np.random.default_rng(1).normal(size=120),
    "NaN": np.where(np.arange(120) < 70, falling(120), np.nan),
    "spikes": np.where(np.arange(120) % 29 == 28, 9.0, falling(120)),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("points", [4, 9, 23, 61, 78, 120])
@pytest.mark.thinned(4)
def test_its_verdict_is_that_of_check_on_the_same_beginning(tmp_path, name, points):
    values = RUNS[name][:points]
    rows = [{"type": "config", "num_classes": 10, "max_steps": 120}]
    rows += [{"step": step, "loss": float(value), "grad_norm": 1.0 + step % 3} for step, value in enumerate(values)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = check(tmp_path, config=_only_live())

    health = LiveHealth(plan=120, params={"num_classes": 10}, stop_on=None)
    for row in rows[1:]:
        health.log({name: value for name, value in row.items() if name != "step"}, row["step"])
    health.look()

    def found(one):
        return {(each.code, each.verdict, each.message) for each in one.results}

    assert found(health.report) == found(report)
    assert health.report.is_healthy_so_far == (report.verdict == "pass"), "a training that goes on has not passed yet"
    assert health.report.is_healthy_so_far or health.report.verdict == report.verdict
    assert (health.report.diagnosis is None) == (report.diagnosis is None)
    if report.diagnosis is not None:
        assert health.report.diagnosis.cause == report.diagnosis.cause


def _only_live():
    from dataclasses import replace

    return replace(preset("default"), select=frozenset(LIVE_RULES))


def test_every_live_rule_exists():
    assert set(LIVE_RULES) <= {one.code for one in probe_classes()}


def test_a_divergence_stops_the_run_after_it_stood_and_before_its_end():
    health = run_through(RUNS["diverges"])
    assert health.should_stop
    found = health.stopped_by
    assert (found.code, found.verdict, found.stops) == ("LOS004", Verdict.FAIL, True)
    assert 60 < found.step < 119
    assert "LOS004" in str(found)
    assert f"step {found.step}" in str(found)


def test_a_nan_is_seen_at_once_and_stops_once_it_stays():
    health = run_through(RUNS["NaN"])
    assert health.stopped_by.code == "LOS001"
    assert 70 <= health.stopped_by.step <= 70 * 1.1 + 2


@pytest.mark.parametrize("at", [[0], [1], [5], [6], [12], [40], [150], [200], [200, 201], [390]])
@pytest.mark.thinned(3)
def test_nan_that_was_skipped_stops_nothing(at):
    values = falling(400)
    values[at] = np.nan
    assert not run_through(values).should_stop


def test_a_loss_that_is_nan_from_its_first_point_stops():
    health = run_through(np.full(60, np.nan))
    assert health.stopped_by.code == "LOS001"
    assert health.stopped_by.step < 25


@pytest.mark.slow
def test_what_only_begins_badly_stops_nothing():
    health = LiveHealth(plan=400, rest=0.0)
    for step, value in enumerate(falling(400)):
        # A scaler finds its level, a warm-up begins with 0, and nothing was evaluated yet.
        norm, rate = (math.inf, 0.0) if step < 6 else (1.0 + step % 3, 1e-3)
        val = float(falling(400)[step]) if step % 100 == 99 else math.nan
        health.step(step=step, loss=float(value), grad_norm=norm, learning_rate=rate, val_loss=val)
    assert not health.should_stop


def test_metrics_that_are_often_nan_cost_few_looks(monkeypatch):
    looks = []
    health = LiveHealth(plan=3000, seconds=math.inf, rest=0.0)
    look = LiveHealth._look
    monkeypatch.setattr(LiveHealth, "_look", lambda self: looks.append(self._history.points) or look(self))
    for step in range(3000):
        health.step(step=step, loss=1.0 / (step + 1), reward_mean=math.nan if step % 2 else 1.0)
    assert len(looks) < 120  # those of a history that grows, where 1,500 are not finite


def test_many_new_names_late_are_taken_at_once():
    health = LiveHealth(plan=3000)
    begin = time.process_time()
    for step in range(1100):
        health.step(step=step, loss=1.0)
    steps = time.process_time() - begin
    health.log({f"layer{index}/norm": 1.0 for index in range(1900)}, 1100)
    assert time.process_time() - begin < 8 * steps


def test_one_bad_call_ends_no_judging():
    health = LiveHealth(plan=120, rest=0.0, on_finding=lambda _: 1 / 0)
    health.step(step=math.nan, loss=1.0)
    health.log({"loss": 1.0}, "three")
    health.log("loss", 1)
    health.log({3: 2.0}, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step, value in enumerate(RUNS["diverges"]):
            health.step(step=step, loss=float(value))
    assert health.should_stop
    assert "on_finding" in str(caught[0].message)


@pytest.mark.slow
def test_a_copy_of_what_holds_it_has_the_same_and_a_pickle_a_new_one():
    health = run_through(RUNS["diverges"])
    assert copy.deepcopy({"model": health})["model"] is health
    again = pickle.loads(pickle.dumps(health))
    assert not again.should_stop
    for step, value in enumerate(RUNS["diverges"]):
        again.step(step=step, loss=float(value))
    assert again.stopped_by.step == health.stopped_by.step


@pytest.mark.slow
def test_what_learns_nothing_is_stopped_after_a_third_of_the_plan_and_never_without_one():
    values = 2.3 + 0.01 * np.random.default_rng(1).normal(size=300)
    health = run_through(values)
    assert health.should_stop
    assert 0.3 <= health.stopped_by.step / 300 < 0.75
    free = LiveHealth(rest=0.0)
    for step, value in enumerate(values):
        free.step(step=step, loss=float(value))
    assert not free.findings


@pytest.mark.slow
def test_what_learns_late_is_left_alone_until_a_third_of_the_plan():
    late = np.concatenate([2.3 + 0.01 * np.random.default_rng(2).normal(size=80), falling(220)])
    assert not run_through(late).findings


def test_warm_restarts_and_a_higher_level_after_a_resume_stop_nothing():
    part = falling(100)
    restarts = np.concatenate([part, part[20:] * 0.8, part[20:] * 0.7])
    rates = np.concatenate([np.linspace(1e-3, 1e-5, 100), np.linspace(1e-3, 1e-5, 80), np.linspace(1e-3, 1e-5, 80)])
    health = LiveHealth(plan=len(restarts), rest=0.0)
    for step, (value, rate) in enumerate(zip(restarts, rates, strict=True)):
        health.step(step=step, loss=float(value), learning_rate=float(rate))
    assert not health.should_stop


@pytest.mark.slow
@pytest.mark.parametrize("begins", [0, 30, 31, 150])
def test_a_run_that_goes_on_from_a_checkpoint_has_learnt_before_its_history_begins(begins):
    level = 0.4 + 0.01 * np.random.default_rng(4).normal(size=300)
    health = LiveHealth(plan=300, rest=0.0)
    for step in range(begins, 300):
        health.step(step=step, loss=float(level[step]))
    assert bool(health.findings) == (begins <= 30)


def test_a_short_plan_is_no_reason_to_be_quick():
    health = LiveHealth(plan=20, rest=0.0)
    values = 2.3 + 0.01 * np.random.default_rng(3).normal(size=15)
    for step, value in enumerate(values):
        health.step(step=step, loss=float(value))
    assert not health.findings


def test_a_dry_run_only_says_so():
    said = []
    health = run_through(RUNS["diverges"], dry_run=True, on_finding=said.append)
    assert not health.should_stop
    assert health.stopped_by is not None
    assert said == health.findings
    assert said[0].stops


@pytest.mark.slow
def test_stop_on_none_and_warn():
    assert run_through(RUNS["diverges"], stop_on=None).stopped_by is None
    values = RUNS["spikes"]
    assert run_through(values, stop_on="fail").stopped_by is None
    assert run_through(values, stop_on="warn").should_stop


@pytest.mark.parametrize(
    "wrong",
    [
        {"stop_on": "error"},
        {"plan": 0},
        {"plan": math.nan},
        {"plan": -1},
        {"plan": "1000"},
        {"plan": 10**400},
        {"plan": math.inf},
        {"plan": 10**5_000},
        {"seconds": 10**400},
        {"seconds": math.nan},
        {"rest": None},
        {"rest": -1},
        {"seconds": "x"},
        {"params": [1]},
        {"on_finding": 3},
    ],
)
def test_arguments_that_make_no_sense(wrong):
    with pytest.raises(ConfigError):
        LiveHealth(**wrong)


def test_a_finding_is_given_once():
    health = LiveHealth(plan=120, stop_on=None, rest=0.0)
    found = [health.step(step=step, loss=float(value)) for step, value in enumerate(RUNS["diverges"])]
    codes = [(one.code, one.verdict) for one in health.findings]
    assert len(set(codes)) == len(codes)
    assert [one for one in found if one is not None]


def test_what_is_no_number_is_passed_over_and_numpy_and_torch_are_numbers():
    torch = pytest.importorskip("torch")
    health = LiveHealth()
    for step in range(8):
        health.log(
            {
                "loss": torch.tensor(2.0),
                "val_loss": np.float32(1.0),
                "grad_norm": np.array([1.0]),
                "text": "x",
                "none": None,
                "list": [1],
            },
            step,
        )
    health.look()
    assert {one.name for one in health.report.series} == {"loss", "val_loss", "grad_norm"}


class Odd:
    """A value of somebody's own."""

    def item(self):
        raise KeyError("no")

    __float__ = __str__ = item


@pytest.mark.parametrize(
    "odd", [Odd(), 10**400, -(10**5_000), np.array(["x"], dtype=object)], ids=["object", "int", "negative", "array"]
)
def test_what_has_no_number_costs_nothing_but_itself(odd):
    health = LiveHealth(plan=np.int64(120), seconds=np.float32(60), rest=np.int64(0), params={"odd": odd})
    for step, value in enumerate(RUNS["diverges"]):
        health.log({"loss": float(value), "mine": odd}, step)
        health.log({"loss": 1.0, Odd(): 1.0}, odd)
    assert health.should_stop
    assert 0 < health.share < 1


def test_whatever_breaks_the_training_goes_on(monkeypatch):
    health = LiveHealth()
    monkeypatch.setattr("tracker_health.live.verdicts.diagnose", lambda *_, **__: 1 / 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(20):
            assert health.step(step=step, loss=1.0) is None
    assert len(caught) == 1
    assert "the training continues without being judged" in str(caught[0].message)


def test_looks_follow_the_growth_of_the_history(monkeypatch):
    looks = []
    health = LiveHealth(seconds=math.inf, rest=0.0)
    monkeypatch.setattr(LiveHealth, "_look", lambda self: looks.append(self._history.points) or _grown(self))
    for step in range(2000):
        health.step(step=step, loss=1.0)
    late = np.array(looks[20:])
    assert ((late[1:] / late[:-1]) >= 1.05).all()
    assert len(looks) < 110


def _grown(health):
    health._next_points = max(health._history.points + 1, health._history.points * 1.05)


def test_a_slow_run_is_looked_at_by_the_clock(monkeypatch):
    health = LiveHealth(seconds=5.0, rest=0.0)
    for step in range(200):
        health.step(step=step, loss=1.0)
    points = len(health.report.series), health.report.series[0].points
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 3600.0)
    health.step(step=200, loss=1.0)
    assert health.report.series[0].points == 201 > points[1]


@pytest.mark.slow
def test_a_training_of_a_blink_is_judged_at_every_growth_too():
    health = LiveHealth(plan=120)
    for step, value in enumerate(RUNS["diverges"]):
        health.step(step=step, loss=float(value))
    at = run_through(RUNS["diverges"]).stopped_by.step
    assert health.stopped_by.step == at < 119


def test_a_fast_training_waits_for_few_looks(monkeypatch):
    looks, now = [], 0.0
    health = LiveHealth()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def look(*_, **__):
        nonlocal now
        now += 0.1
        looks.append(now)
        return report

    for step in range(8):
        health.step(step=step, loss=1.0)
    health.look()
    report = health.report
    monkeypatch.setattr("tracker_health.live.verdicts.diagnose", look)
    for step in range(8, 5000):
        now += 0.0005
        health.step(step=step, loss=1.0)
    assert 1.0 < len(looks) * 0.1 <= FREE_SECONDS + now / 20 + 0.1


@pytest.mark.slow
def test_memory_is_for_what_is_judged():
    health = LiveHealth(seconds=math.inf)
    noise = {f"weights/{index}/hist": 1.0 for index in range(50)}
    for step in range(1500):
        health.log({"loss": 1.0, **noise}, step)
    assert set(health._history._values) == {"loss"}


def test_names_have_an_end():
    health = LiveHealth(seconds=math.inf)
    for step in range(3000):
        health.log({f"metric {step}": 1.0}, step)
    assert len(health._history.names) <= 2000


# What counts


def result(code, verdict, votes=True, onset=None, measured=()):
    return ProbeResult(
        code=code,
        name="x",
        symptom="",
        status="stable",
        verdict=verdict,
        votes=votes,
        score=0.0,
        message="",
        remedy="",
        onset=onset,
        measured=dict(measured),
    )


LOST = Onset(step=3, what="it became NaN")


@pytest.mark.slow
@given(
    grows=st.lists(st.floats(1.0, 1.3), min_size=1, max_size=40),
    stands=st.lists(st.booleans(), min_size=40, max_size=40),
)
@settings(deadline=None, max_examples=draws(60))
def test_a_finding_counts_only_when_it_stood_while_the_history_grew(grows, stands):
    standing, points, since = Standing(), 20, None
    for grow, stood in zip(grows, stands, strict=False):
        points = int(points * grow) + 1
        since = (since or points) if stood else None
        found = standing.after([result("LOS004", Verdict.FAIL)] if stood else [], points, 0.5)
        assert bool(found) == (since is not None and points >= 1.2 * since)


def test_a_fail_that_turns_into_a_warn_has_stood_as_a_warn_all_along():
    standing = Standing()
    assert not standing.after([result("LOS003", Verdict.FAIL)], 100, 0.5)
    assert [one.verdict for one in standing.after([result("LOS003", Verdict.WARN)], 110, 0.5)] == [Verdict.WARN]


def test_what_has_no_vote_or_is_no_live_rule_never_counts():
    standing = Standing()
    for points in (100, 200, 400):
        assert not standing.after(
            [result("LOS001", Verdict.FAIL, votes=False), result("LOS007", Verdict.FAIL)], points, 1
        )


@pytest.mark.parametrize(("share", "counts"), [(None, False), (0.1, False), (0.29, False), (0.3, True), (1.0, True)])
def test_the_plan_decides_when_nothing_learnt_may_be_said(share, counts):
    (late,) = LIVE_RULES["LOS005"]
    assert late.counts(result("LOS005", Verdict.FAIL), 50, share, growth=2.0) is counts
    assert When().counts(result("LOS003", Verdict.WARN), 8, None, growth=2.0)
    assert not When().counts(result("LOS003", Verdict.WARN), 8, None, growth=1.0)
    assert not When().counts(result("LOS003", Verdict.WARN), 7, None, growth=2.0)


@pytest.mark.slow
@given(
    verdict=st.sampled_from([Verdict.WARN, Verdict.FAIL]),
    points=st.integers(4, 10_000),
    share=st.one_of(st.none(), st.floats(0.0, 1.0)),
    growth=st.floats(1.0, 4.0),
)
def test_what_counts_goes_on_counting_as_a_run_goes_on(verdict, points, share, growth):
    for whens in LIVE_RULES.values():
        for when in whens:
            if when.counts(result("X", verdict, onset=LOST, measured={"share": 1.0}), points, share, growth=growth):
                later = None if share is None else min(1.0, share * 1.5)
                worse = result("X", Verdict.FAIL, onset=LOST, measured={"share": 1.0})
                assert when.counts(worse, 2 * points, later, growth=2 * growth)
