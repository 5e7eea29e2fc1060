"""LOS009."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes.initial_loss import InitialLoss

CODE = "LOS009"
RULE = InitialLoss()
FEW = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("seed", range(3))
def test_healthy(healthy_name, seed, healthy, make, judge):
    losses = getattr(healthy, healthy_name)(seed)
    assert judge(CODE, make.evidence(losses, params={"num_classes": "10"})).verdict == "pass"


@pytest.mark.parametrize(("classes", "first"), [(2, 0.75), (10, 2.35), (10, 3.9), (1000, 7.2), (50257, 11.2)])
def test_an_untrained_model_is_about_as_good_as_guessing(classes, first, make, judge):
    losses = first * np.exp(-np.arange(100) / 30)
    assert judge(CODE, make.evidence(losses, params={"vocab_size": str(classes)})).verdict == "pass"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("classes", "first"), [(2, 14.0), (10, 31.0), (1000, 90.0), (50257, 120.0)])
def test_unscaled_inputs(classes, first, seed, make, judge):
    losses = math.log(classes) * 0.3 + first * np.exp(-np.arange(200) / 2)
    losses *= 1 + 0.05 * np.random.default_rng(seed).standard_normal(200)
    result = judge(CODE, make.evidence(losses, params={"num_classes": str(classes)}))
    assert result.verdict == "warn"
    assert f"the first loss is {losses[0]:.4g}, {losses[0] / math.log(classes):.1f} times" in result.message
    assert f"{classes} classes" in result.message
    assert "initialise" in result.remedy
    assert result.steps == (0,)


@FEW
@given(
    losses=st.lists(st.floats(-5, 50) | st.just(math.nan), min_size=1, max_size=20),
    classes=st.integers(2, 10**6),
    factor=st.floats(1.01, 10),
    offset=st.integers(0, 30),
)
def test_against_plain_python(losses, classes, factor, offset, make, judge):
    counted = (make.series([0.1, 0.2], role="val_accuracy", name="val/accuracy"),)
    known = [(step, loss) for step, loss in enumerate(losses, offset) if not math.isnan(loss)]
    begun_late = not known or known[0][0] > max(1, known[-1][0] / 5)
    expected = "SkippedProbe"
    if not begun_late:
        assume(abs(known[0][1] - factor * math.log(classes)) > 1e-9)
        expected = "warn" if known[0][1] > factor * math.log(classes) else "pass"
    params = {"n_classes": str(classes)}
    evidence = make.evidence(losses, *counted, steps=np.arange(len(losses)) + offset, params=params)
    assert judge(CODE, evidence, factor=factor).verdict == expected


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1 + 1e-12, "warn")])
@pytest.mark.parametrize("classes", [2, 10, 50257])
def test_boundary_of_the_factor(classes, factor, verdict, make, judge):
    losses = [RULE.factor * math.log(classes) * factor, *np.linspace(0.6, 0.5, 30)]
    assert judge(CODE, make.evidence(losses, params={"num_classes": str(classes)})).verdict == verdict


@pytest.mark.parametrize(
    "params", [{}, {"num_classes": "1"}, {"num_classes": "x"}, {"vocab_size": "inf"}, {"classes": "2.5"}]
)
def test_without_a_number_of_classes_it_is_skipped(params, make, judge):
    result = judge(CODE, make.evidence([1e6, 3.0, 2.0], params=params))
    assert result.verdict == "SkippedProbe"
    assert "num_classes" in result.reason["reason"]


@pytest.mark.parametrize(
    ("first_step", "verdict"), [(0, "warn"), (20, "warn"), (40, "SkippedProbe"), (1000, "SkippedProbe")]
)
def test_a_history_that_begins_in_mid_training_is_skipped(first_step, verdict, make, judge):
    evidence = make.evidence(np.full(100, 80.0), steps=np.arange(100) + first_step, params={"num_classes": "10"})
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize("stride", [1, 10, 500])
def test_logs_that_begin_at_their_stride(stride, make, judge):
    """The first row of a log of every tenth step is that of step 10."""
    losses = 40.0 * np.exp(-np.arange(20) / 1.0)
    evidence = make.evidence(losses, steps=(np.arange(20) + 1) * stride, params={"num_classes": "10"})
    assert judge(CODE, evidence).verdict == "warn"


@pytest.mark.parametrize(
    ("param", "count", "start", "end", "rate"),
    [("num_classes", 91, 38.0, 6.0, 60), ("vocab_size", 32, 22.0, 0.25, 15), ("num_classes", 20, 9.5, 3.04, 60),
     ("vocab_size", 32, 400.0, 3.0, 60), ("num_classes", 2, 4.0, 0.7, 60)],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_losses_that_are_no_cross_entropy_among_the_classes(param, count, start, end, rate, seed, make, judge):
    """A detector's sum, CTC, and Dice beside cross-entropy: they come down gradually, or not below chance at all."""
    losses = end + (start - end) * np.exp(-np.arange(300) / rate)
    losses *= 1 + 0.05 * np.random.default_rng(seed).standard_normal(300)
    assert judge(CODE, make.evidence(losses, params={param: str(count)})).verdict == "pass"


@pytest.mark.parametrize(
    ("name", "verdict"), [("val/accuracy", "warn"), ("top1", "warn"), ("ppl", "warn"), ("mAP", "pass"), ("wer", "pass")]
)
def test_a_metric_that_counts_answers_shows_a_cross_entropy(name, verdict, make, judge):
    losses = np.linspace(30.0, 8.0, 100)
    metric = make.series([0.1, 0.2], role="other", name=name)
    assert judge(CODE, make.evidence(losses, metric, params={"num_classes": "10"})).verdict == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(0.99, "pass"), (1.01, "warn")])
def test_boundary_of_the_plain_factor(factor, verdict, make, judge):
    """Of a vocabulary it says nothing: CTC summed over its frames begins at hundreds."""
    first = RULE.plain_factor * math.log(10) * factor
    losses = np.linspace(first, first / 3, 100)
    assert judge(CODE, make.evidence(losses, params={"num_classes": "10"})).verdict == verdict
    assert judge(CODE, make.evidence(losses, params={"vocab_size": "10"})).verdict == "pass"


def with_head(make, losses, accuracies, *, head=10, params=None, more=(), **parts):
    """A run without params beside a checkpoint whose last layer chooses among so many."""
    if accuracies is not None:
        more = (*more, make.series(accuracies, role="val_accuracy", name="val/accuracy"))
    shapes = {"0.weight": (48, 20), "0.bias": (48,), "fc.weight": (head, 48), "fc.bias": (head,)}
    return make.evidence(losses, *more, params=params, weights=make.weights(shapes), **parts)


UNLEARNT = np.array([12.0, 6.0, 3.1, 1.9, *np.linspace(2.0, 0.5, 40)])
RIGHT_EARLY = np.linspace(30.0, 80.0, 15)
LEARNING = np.array([5.6, 27.9, *np.linspace(38, 80, 15)])


@pytest.mark.parametrize("unit", [1.0, 0.01])
def test_the_last_layer_tells_the_classes(unit, make, judge):
    """Where the params are silent, and an accuracy was logged."""
    result = judge(CODE, with_head(make, UNLEARNT, LEARNING * unit))
    assert result.verdict == "warn"
    assert "5.2 times that of guessing among 10 classes" in result.message
    sound = judge(CODE, with_head(make, np.minimum(UNLEARNT, 2.6), LEARNING * unit))
    assert sound.verdict == "pass"
    assert judge(CODE, with_head(make, UNLEARNT, None)).verdict == "SkippedProbe"
    assert judge(CODE, with_head(make, UNLEARNT, LEARNING * unit, head=1)).verdict == "SkippedProbe"
    assert judge(CODE, with_head(make, UNLEARNT, LEARNING * unit, params={"base_model": "x"})).verdict == "SkippedProbe"
    assert judge(CODE, with_head(make, UNLEARNT, LEARNING * unit, params={"num_classes": "1000"})).verdict == "pass"


@pytest.mark.parametrize(
    ("losses", "accuracies"),
    [
        (np.linspace(12.0, 0.5, 60), RIGHT_EARLY),
        (np.array([12.0, 6.0, 3.1, 2.9, *np.linspace(2.9, 2.4, 40)]), RIGHT_EARLY),
        (UNLEARNT, np.array([0.0, 0.0, *np.linspace(5, 80, 15)])),
        (np.array([12.0, 6.0, 0.5, 0.1, *np.full(40, 0.02)]), np.linspace(4, 60, 15)),
    ],
    ids=["it comes down too slowly", "not below guessing", "whole sequences", "squares, beside answers that are near"],
)
def test_a_loss_that_is_no_choice_of_the_last_layer(losses, accuracies, make, judge):
    held_out = make.series(losses[-len(accuracies) :], role="val_loss")
    evidence = with_head(make, losses, accuracies, more=(held_out,))
    assert judge(CODE, evidence).verdict == "pass"


@pytest.mark.parametrize(("first", "verdict"), [(3.4, "warn"), (3.2, "pass")])
def test_boundary_of_the_first_accuracy(first, verdict, make, judge):
    """Of a loss that comes below guessing."""
    assert judge(CODE, with_head(make, UNLEARNT, np.array([first, *LEARNING[1:]]))).verdict == verdict


@pytest.mark.parametrize(("first", "verdict"), [(4.9, "pass"), (5.1, "warn"), (14.9, "warn"), (15.1, "pass")])
@pytest.mark.parametrize("level", [1.0, 20.0])
def test_a_loss_that_stays_high_beside_a_first_accuracy_of_guessing(level, first, verdict, make, judge):
    losses, accuracies = level * np.linspace(70.0, 3.2, 60), np.array([first, *LEARNING[1:]])
    assert judge(CODE, with_head(make, losses, accuracies)).verdict == verdict
    three = with_head(make, losses, np.linspace(33.0, 80.0, 15), head=3)
    assert judge(CODE, three).verdict == "pass"


@pytest.mark.parametrize("size", [8, 16, 64])
def test_a_contrast_of_samples_in_a_space_of_few_dimensions(size, make, judge):
    """A choice among so many begins at three times ln d, and is right once in d cubed."""
    losses = (3.01 + 0.5 * np.exp(-np.arange(60) / 9.0)) * math.log(size)
    accuracies = np.linspace(100.0 / size**3, 60.0, 15)
    assert judge(CODE, with_head(make, losses, accuracies, head=size)).verdict == "pass"


def test_a_first_loss_that_is_nan_is_left_to_los001(make, judge):
    assert judge(CODE, make.evidence([math.nan, 2.0, 1.0, *[1.0] * 9], params={"num_classes": "10"})).verdict == "pass"
    assert judge(CODE, make.evidence([math.nan] * 9, params={"num_classes": "10"})).verdict == "SkippedProbe"


@FEW
@given(first=st.floats(0, 100), one=st.floats(1.01, 10), other=st.floats(1.01, 10))
def test_a_higher_factor_never_finds_more(first, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = make.evidence([first, 1.0, 1.0], params={"num_classes": "10"})
    if judge(CODE, evidence, factor=lower).verdict == "pass":
        assert judge(CODE, evidence, factor=higher).verdict == "pass"


# On another scale


DISTILLED = np.array([9.49, 9.29, 8.77, 8.1, 7.53, 5.5, 3.84, 2.6, 1.9, 1.5, *np.linspace(1.1, 0.7, 10)])
OF_STUDENT = np.array([0.09, 0.18, 0.43, 0.58, 0.67, 0.76, 0.81, 0.83, 0.86, 0.88, *np.linspace(0.9, 0.93, 10)])


def counted(make, losses, right, *, params=None):
    more = (make.series(right, role="train_accuracy", name="acc"),)
    return with_head(make, losses, None, more=more, params=params)


@pytest.mark.parametrize("params", [None, {"num_classes": "10"}], ids=["by the last layer", "told"])
def test_a_distillation_that_learns(params, make, judge):
    """It begins at four times guessing, and a wrong answer costs more and more while most become right."""
    assert judge(CODE, counted(make, DISTILLED, OF_STUDENT, params=params)).verdict == "pass"
    unlearnt = DISTILLED[0] * (1.0 - OF_STUDENT) / (1.0 - OF_STUDENT[0])
    assert judge(CODE, counted(make, unlearnt, OF_STUDENT, params=params)).verdict == "warn"
    assert judge(CODE, counted(make, DISTILLED, np.minimum(OF_STUDENT, 0.2), params=params)).verdict == "warn"


def test_a_loss_that_explodes_is_on_no_other_scale(make, judge):
    losses = np.array([70.0, *np.geomspace(90.0, 1e6, 19)])
    assert judge(CODE, counted(make, losses, OF_STUDENT, params={"num_classes": "10"})).verdict == "warn"


@FEW
@given(
    level=st.floats(1.0, 50.0),
    right=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=30),
    unlearnt=st.lists(st.floats(0.0, 1.0), min_size=5, max_size=30),
)
def test_wrong_answers_that_get_cheaper_are_a_cross_entropy(level, right, unlearnt, make, judge):
    """Whatever is learnt: the certainty of an untrained model, which each wrong answer pays, only falls."""
    n = min(len(right), len(unlearnt))
    right, certainty = np.array([0.1, *right[:n]]), np.sort([1.0, *unlearnt[:n]])[::-1]
    losses = 3.1 * math.log(10) * level * certainty * (1.0 - right) / 0.9
    assert judge(CODE, counted(make, losses, right, params={"num_classes": "10"})).verdict == "warn"


@pytest.mark.parametrize("right", [[1.0] * 20, [0.0] * 20, [math.nan] * 20, [0.5, math.nan] * 10])
def test_odd_accuracies(right, make, judge):
    judge(CODE, counted(make, DISTILLED, np.array(right)))


@pytest.mark.parametrize(("params", "verdict"), [
    ({}, "warn"), ({"model": "distill"}, "SkippedProbe"), ({"teacher": "resnet50"}, "SkippedProbe"), ({"kd/teacher_path": "a"}, "SkippedProbe"),
    ({"model": "distilbert-base"}, "warn"), ({"teacher_forcing": "0.5"}, "warn"),
])  # fmt: skip
def test_the_loss_of_a_distillation_is_no_cross_entropy(params, verdict, make, judge):
    losses = 20.0 * np.exp(-np.arange(60) / 2) + 0.5
    accuracy = make.series(np.linspace(0.1, 0.9, 60), role="train_accuracy", name="accuracy")
    evidence = make.evidence(losses, accuracy, params={"num_classes": "10"} | params)
    assert judge(CODE, evidence).verdict == verdict
