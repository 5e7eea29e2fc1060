"""Laws that hold for every rule, whatever the evidence."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.config import Config, preset
from tracker_health.evidence import (
    Attribution,
    DlmCheckpoint,
    DlmStepLog,
    RunInfo,
    SavedSchedule,
    StepUnit,
    TextLog,
    Trouble,
    WeightChange,
)
from tracker_health.judge.engine import configured_probes, diagnose
from tracker_health.rules.probe import thresholds_of
from tracker_health.rules.registry import probe_classes
from tracker_health.words.verdict import Verdict, worst_verdict

EVERYTHING = Config(preset="everything", preview_votes=True, measure_only=frozenset())
ROLES = (
    "train_loss",
    "val_loss",
    "objective_loss",
    "loss_part",
    "train_accuracy",
    "val_accuracy",
    "val_auc",
    "grad_norm",
    "learning_rate",
    "epoch",
    "global_step",
    "loss_scale",
    "kl",
    "skipped_samples",
    "on_target_shift",
    "off_target_shift",
)
HUGE = 1.7976931348623157e308
VALUES = st.one_of(
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 2.3, math.nan, math.inf, -math.inf, HUGE, -HUGE, 5e-324, 1e-300, 1e154]),
    st.floats(0, 10),
)
STEPS = st.one_of(st.integers(-2, 60), st.sampled_from([2**63 - 1, -(2**63), 0]))
FEW = settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def histories(draw, make):
    """Zero to five series: any values, repeated and backward steps, with and without times."""
    series = []
    for role in draw(st.lists(st.sampled_from(ROLES), max_size=5)):
        n = draw(st.integers(0, 45))
        pool = draw(st.lists(VALUES, min_size=1, max_size=8))
        values = draw(st.lists(st.sampled_from(pool), min_size=n, max_size=n))
        steps = draw(st.none() | st.lists(STEPS, min_size=n, max_size=n))
        times = draw(st.none() | st.lists(st.floats(0, 5) | st.just(math.nan), min_size=n, max_size=n))
        unit = draw(st.sampled_from(list(StepUnit)))
        series.append(
            make.series(
                values,
                steps,
                role=role,
                name=draw(st.sampled_from(["nll", f"{role}{len(series)}"])),
                times=times,
                step_unit=unit,
            )
        )
    return series


@st.composite
def schedules(draw):
    """As a hostile checkpoint may have them: finite rates, any counts."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    rates = np.array(draw(st.lists(finite, max_size=8)), dtype=np.float64)
    return SavedSchedule(
        stepped=draw(st.integers(0, 2**53)),
        laid_out=draw(st.none() | st.floats(1, 1e300)),
        period=draw(st.none() | st.floats(2, 1e300)),
        steps=np.arange(len(rates)),
        rates=rates,
        best=draw(st.none() | finite),
        waits_for_rise=draw(st.none() | st.booleans()),
    )


@st.composite
def states(draw, make):
    tensors = []
    for key in range(draw(st.integers(0, 6))):
        second = draw(st.none() | VALUES)
        tensors.append(
            make.tensor(
                key,
                second,
                name=draw(st.none() | st.text(max_size=20) | st.just(f"layers.{key}.experts.0.w")),
                shape=draw(st.sampled_from([(4, 4), (16,), (), (0, 3)])),
                step=draw(st.none() | VALUES),
                zeros=draw(st.integers(0, 16)),
                nonfinite=draw(st.integers(0, 2)),
                moment_ratio=draw(st.none() | VALUES),
                group=draw(st.none() | st.integers(0, 2)),
            )
        )
    return make.state(
        *tensors,
        global_step=draw(st.none() | st.integers(0, 10**6)),
        attribution=draw(st.sampled_from(list(Attribution))),
        groups=draw(
            st.sampled_from(
                [
                    (),
                    ({"lr": 0.1, "max_lr": "x"}, {"initial_lr": math.nan}),
                    ({"betas": (0.9, 0.95)}, {"betas": (0.0, 1.0)}),
                    ({"betas": "x"},),
                ]
            )
        ),
        schedules=tuple(draw(st.lists(schedules(), max_size=2))),
        stateless=tuple(
            draw(st.lists(st.text(max_size=20) | st.sampled_from(["#3", "d/#9", "layers.0.w"]), max_size=2))
        ),
    )


@st.composite
def weights(draw, make):
    names = st.sampled_from(
        [
            "teacher.w",
            "pe",
            "model.embed.weight",
            "layers.0.w",
            "layers.1.w",
            "fc.bias",
            "x.lora_A.weight",
            "bn.running_mean",
        ]
    )
    shapes = st.sampled_from([(4, 4), (16,), (), (0, 3)])
    found = make.weights(
        draw(st.dictionaries(names, shapes, max_size=5)), draw(st.sampled_from(["F32", "BF16", "I64"]))
    )
    stats = st.none() | VALUES.map(make.moment)
    tensors = tuple(replace(one, rms=draw(st.none() | VALUES), stats=draw(stats)) for one in found.tensors)
    changes = tuple(WeightChange(name=one.name, rms=draw(VALUES), unchanged=draw(st.booleans())) for one in tensors)
    return replace(found, tensors=tensors, previous="step-1", changes=draw(st.sampled_from([(), changes])))


@st.composite
def evidences(draw, make):
    state = draw(st.none() | states(make))
    losses = draw(st.lists(VALUES, max_size=40))
    log = DlmStepLog(
        files=("logs/train-1.jsonl",), steps=np.arange(len(losses)), losses=np.array(losses, dtype=np.float64)
    )
    ghost = None
    if state is not None:
        names = draw(st.none() | st.lists(st.sampled_from([f"x.layers.{n}.w" for n in range(4)]), max_size=6))
        ghost = DlmCheckpoint(
            state=state, global_step=draw(st.integers(-1, 200)), weight_names=None if names is None else tuple(names)
        )
    numbers = st.sampled_from(["", "nan", "inf", "-1", "0", "1e400", "100", "3", "x"])
    params = {
        name: draw(numbers) for name in draw(st.sets(st.sampled_from(["max_steps", "num_train_epochs", "patience"])))
    }
    barrier = st.sampled_from(["lam", "tau", "round", "min_train", "kept_samples", "epochs", "batch_size", "skipped"])
    if reg := draw(st.sampled_from(["", "nll", "wd", "kl_rev"])):
        params |= {"reg": reg} | {name: draw(numbers) for name in draw(st.sets(barrier))}
    info = RunInfo(
        params=params | draw(st.sampled_from([{}, {"num_classes": "10"}, {"vocab_size": "1e9"}])),
        global_step=draw(st.none() | st.integers(0, 10**6)),
        epoch=draw(st.none() | VALUES),
        snapshot=draw(st.booleans()),
    )
    return make.evidence(
        None,
        *draw(histories(make)),
        info=info,
        optimizer=state,
        weights=draw(st.none() | weights(make)),
        dlm_checkpoint=ghost,
        dlm_step_log=draw(st.sampled_from([None, log])),
        text_log=draw(st.none() | text_logs()),
    )


@st.composite
def text_logs(draw):
    few = st.integers(0, 5)
    troubles = st.builds(
        Trouble,
        cause=st.sampled_from(["an exception", "out of memory", "interrupted"]),
        text=st.text(),
        line=few,
        rows_after=few,
    )
    return TextLog(
        source="a",
        lines=draw(few),
        rows=draw(few),
        done=draw(st.none() | few),
        troubles=tuple(draw(st.lists(troubles, max_size=3))),
    )


@FEW
@given(data=st.data())
def test_no_evidence_breaks_a_rule(data, make, report):
    found = report(data.draw(evidences(make)), EVERYTHING)
    assert found.errors == ()
    assert {one.verdict for one in found.results} <= {Verdict.PASS, Verdict.WARN, Verdict.FAIL}
    assert len(found.results) + len(found.skipped) == len(probe_classes())
    for one in found.results:
        assert 0.0 <= one.score <= 1.0
        assert one.confidence in ("high", "medium", "low")
    for one in found.skipped:
        assert one.reason


@settings(FEW, deadline=None)
@given(values=st.lists(VALUES, max_size=60), steps=st.lists(STEPS, min_size=60, max_size=60))
def test_no_loss_history_breaks_a_rule(values, steps, make, report):
    for given_steps in (None, steps[: len(values)]):
        assert report(make.evidence(make.series(values, given_steps)), EVERYTHING).errors == ()


@settings(
    max_examples=draws(80), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    pool=st.lists(VALUES, min_size=1, max_size=12),
    seed=st.integers(0, 10**6),
    n=st.integers(20, 200),
    smooth=st.booleans(),
    classes=st.none() | st.sampled_from(["2", "10", "nan"]),
)
@example(pool=[HUGE / 2], seed=0, n=20, smooth=False, classes=None)
@example(pool=[HUGE], seed=0, n=200, smooth=True, classes="10")
def test_no_long_history_of_any_role_breaks_a_rule(pool, seed, n, smooth, classes, make, report):
    """Long enough for every rule: values of a few kinds at random, or a curve with some of them in it."""
    rng = np.random.default_rng(seed)
    series = []
    for role in ("val_loss", "grad_norm", "learning_rate", "loss_scale", "train_loss"):
        values = rng.choice(np.array(pool, dtype=np.float64), n)
        if smooth:
            values = np.where(rng.random(n) < 0.05, values, 3.0 * np.exp(-np.arange(n) / n) + 0.1 * rng.random(n))
        series.append(make.series(values, role=role))
    found = report(make.evidence(None, *series, params={} if classes is None else {"num_classes": classes}), EVERYTHING)
    assert found.errors == ()
    assert not {"LOS006", "GEN001", "GRD001", "LRS001"} - {one.code for one in (*found.results, *found.skipped)}


@FEW
@given(data=st.data())
def test_the_same_evidence_gives_the_same_report(data, make):
    evidence = data.draw(evidences(make))
    once, again = (json.dumps(diagnose(evidence, EVERYTHING).to_json(), allow_nan=False) for _ in range(2))
    assert once == again


@FEW
@given(data=st.data())
def test_judging_changes_no_array(data, make):
    evidence = data.draw(evidences(make))
    before = [(series.values.copy(), series.steps.copy()) for series in evidence.series]
    diagnose(evidence, EVERYTHING)
    for series, (values, steps) in zip(evidence.series, before, strict=True):
        assert np.array_equal(series.values, values, equal_nan=True)
        assert np.array_equal(series.steps, steps)


@FEW
@given(data=st.data())
def test_the_verdict_is_the_worst_of_the_voters(data, make):
    config = data.draw(st.sampled_from([preset("default"), preset("strict"), preset("dlm"), EVERYTHING]))
    found = diagnose(data.draw(evidences(make)), config)
    voters = [one for one in found.results if one.votes]
    vouched = any(probe.vouches for probe in configured_probes(config) for one in voters if one.code == probe.code)
    expected = worst_verdict(one.verdict for one in voters)
    assert found.verdict == (Verdict.SKIP if expected in (Verdict.PASS, Verdict.SKIP) and not vouched else expected)
    if found.verdict in (Verdict.PASS, Verdict.WARN, Verdict.FAIL):
        assert found.score == min(one.score for one in voters)
    else:
        assert found.score is None


VERDICTS = st.sampled_from(list(Verdict))


@given(one=VERDICTS, two=VERDICTS, three=VERDICTS)
def test_worst_is_a_lattice(one, two, three):
    assert worst_verdict([one, one]) == one
    assert worst_verdict([one, two]) == worst_verdict([two, one])
    assert worst_verdict([worst_verdict([one, two]), three]) == worst_verdict([one, worst_verdict([two, three])])
    assert worst_verdict([one, Verdict.SKIP]) == one
    assert worst_verdict([one, Verdict.FAIL]) == Verdict.FAIL
    assert worst_verdict([one, two]).rank == max(one.rank, two.rank)


def test_the_one_order():
    order = sorted(Verdict, key=lambda verdict: verdict.rank)
    assert order == [Verdict.SKIP, Verdict.PASS, Verdict.WARN, Verdict.ERROR, Verdict.FAIL]
    assert [verdict.severity for verdict in order] == [None, 0, 1, 2, 3]
    assert worst_verdict([]) is Verdict.SKIP


@pytest.mark.parametrize("probe", probe_classes(), ids=lambda probe: probe.name)
def test_defaults_lie_within_their_own_bounds(probe):
    configured = probe()
    for name, (kind, threshold) in thresholds_of(probe).items():
        value = getattr(configured, name)
        assert threshold.problem_with(value) is None
        assert isinstance(value, kind)
        assert threshold.meaning
        assert threshold.source


NATS = {"LOS006", "LOS009"}
"""Rules that compare a loss with that of guessing."""


@pytest.mark.parametrize(
    "name",
    ["exploding", "at_chance", "masked_zeros", "from_the_start", "drifting_up", "rescued_explosion"],
)
@given(exponent=st.integers(-40, 40))
@settings(max_examples=draws(20))
def test_the_unit_of_the_loss_changes_no_verdict(name, exponent, sick, make, report):
    losses = getattr(sick, name)()
    plain, scaled = (report(make.evidence(one)) for one in (losses, losses * 2.0**exponent))
    verdicts = [[(one.code, one.verdict) for one in found.results if one.code not in NATS] for found in (plain, scaled)]
    assert verdicts[0] == verdicts[1]


@given(offset=st.integers(0, 10**9), stride=st.integers(1, 1000))
@settings(max_examples=draws(30))
def test_the_step_axis_changes_no_verdict_but_confidence(offset, stride, sick, make, report):
    losses = sick.exploding()
    found = report(make.evidence(losses, steps=offset + stride * np.arange(len(losses))))
    assert found.verdict is Verdict.FAIL
