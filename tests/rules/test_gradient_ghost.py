"""OPT101: the arithmetic in plain Python. tests/test_golden.py has the original's own figures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import DlmCheckpoint

CODE = "OPT101"
MEANS = st.lists(st.sampled_from([1e-6, 2e-6, 2.5e-6, 9e-6, 0.0, math.nan, math.inf]), min_size=1, max_size=16)


def names(per_layer, layers):
    return tuple(f"model.layers.{layer}.m{index}.lora_A.weight" for layer in layers for index in range(per_layer))


def checkpoint(make, means, keys, step=100, **extras):
    tensors = [make.tensor(key, mean) for key, mean in enumerate(means)]
    state = make.state(*tensors, global_step=step, extras=extras)
    return DlmCheckpoint(
        state=state, global_step=step, weight_names=keys, weights_reason="" if keys else "weights file missing"
    )


def naive(means, per_layer, layers, ratio=2.0, share=0.3):
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite or not any(finite):
        return "fail", 0.0
    if not layers or len(means) < per_layer * len(layers):
        return "pass", 0.0
    own = {}
    for position, layer in enumerate(sorted(layers)):
        group = [mean for mean in means[position * per_layer : (position + 1) * per_layer] if math.isfinite(mean)]
        if group:
            own[layer] = sum(group) / len(group)
    low = min(own.values(), default=0.0)
    if low <= 0:
        return "pass", 0.0
    fraction = sum(mean / low > ratio for mean in own.values()) / len(layers)
    return ("fail" if fraction > share else "warn" if fraction else "pass"), fraction


@given(
    means=MEANS,
    per_layer=st.integers(1, 3),
    layers=st.sets(st.integers(0, 30), max_size=6),
    share=st.sampled_from([0, 0.25, 0.3, 1]),
)
def test_against_plain_python(means, per_layer, layers, share, make, judge):
    evidence = make.evidence(dlm_checkpoint=checkpoint(make, means, names(per_layer, layers)))
    result = judge(CODE, evidence, layer_failure_frac=share)
    verdict, raw = naive(means, per_layer, layers, share=share)
    assert result.verdict == verdict
    assert result.measured["raw"] == pytest.approx(raw, rel=1e-12)


@pytest.mark.parametrize(("step", "verdict"), [(0, "fail"), (49, "fail"), (50, "pass")])
def test_steps_come_first(step, verdict, make, judge):
    evidence = make.evidence(dlm_checkpoint=checkpoint(make, [1e-6] * 4, names(1, range(4)), step=step))
    result = judge(CODE, evidence)
    assert result.verdict == verdict
    if step < 50:
        assert f"only {step} global steps" in result.message
        assert (result.measured["raw"], result.details["primary_signal"]) == (step, "global_step_below_threshold")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (None, "weights file missing"),
        ((), "no tensor names"),
        (("head.weight",), "no layer numbers"),
        ((*names(2, range(2)), "x.layers.0.extra"), "unequal numbers"),
        (names(5, range(4)), "fewer optimizer states"),
    ],
)
def test_without_layers_the_message_says_why(keys, reason, make, judge):
    result = judge(CODE, make.evidence(dlm_checkpoint=checkpoint(make, [1e-6] * 4, keys)))
    assert (result.verdict, result.score, result.measured["num_layers"]) == ("pass", 0.9, 0)
    assert "layers were not judged" in result.message
    assert reason in result.message
    assert reason in result.details["layers_reason"]


def test_one_dead_layer_makes_the_baseline_zero(make, judge):
    result = judge(CODE, make.evidence(dlm_checkpoint=checkpoint(make, [0.0, 1e-6, 1e-6, 1e-6], names(1, range(4)))))
    assert (result.verdict, result.score) == ("pass", 0.9)
    assert "not judged: the lowest layer mean is 0" in result.message


def test_all_zero_is_the_one_difference_to_the_original(make, judge):
    result = judge(CODE, make.evidence(dlm_checkpoint=checkpoint(make, [0.0] * 4, names(1, range(4)))))
    assert (result.verdict, result.score, result.measured["raw"]) == ("fail", 0.0, 0.0)


@pytest.mark.parametrize(
    ("best", "shown"), [(0.5, 0.5), (2, 2.0), (math.inf, None), (math.nan, None), ("x", None), (None, None)]
)
def test_the_best_validation_loss_is_a_number_or_null(best, shown, make, judge):
    evidence = make.evidence(dlm_checkpoint=checkpoint(make, [1e-6], None, best_val_loss=best, use_qlora=True, epoch=2))
    details = judge(CODE, evidence).details
    assert (details["best_val_loss"], details["use_qlora"], details["epoch"]) == (shown, True, 2)


def test_without_second_moments(make, judge):
    assert judge(CODE, make.evidence(dlm_checkpoint=checkpoint(make, [], None))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(dlm_checkpoint=checkpoint(make, [], None, step=3))).verdict == "fail"
    assert judge(CODE, make.evidence([1.0])).verdict == "SkippedProbe"


@given(means=MEANS, one=st.floats(1.01, 20), other=st.floats(1.01, 20))
def test_a_higher_ratio_never_finds_more(means, one, other, make, judge):
    evidence = make.evidence(dlm_checkpoint=checkpoint(make, means, names(1, range(len(means)))))
    lower, higher = sorted([one, other])
    ranks = [judge(CODE, evidence, undertrained_layer_ratio=ratio).verdict.rank for ratio in (lower, higher)]
    assert ranks[1] <= ranks[0]
