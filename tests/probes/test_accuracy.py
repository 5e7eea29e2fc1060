"""GEN003 and GEN004: accuracies beside each other."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tracker_health.probes._accuracy import chance_of, least_accuracy, measures, samples_of
from tracker_health.probes.accuracy_at_chance import AccuracyAtChance
from tracker_health.probes.accuracy_gap import AccuracyGap

AT_CHANCE, GAP = "GEN003", "GEN004"
FEW = settings(max_examples=100, deadline=None)
TEN = {"num_classes": "10"}


def learning(n=30, *, start=0.1, end=0.95, pace=5.0):
    return end - (end - start) * np.exp(-pace * np.arange(n) / n)


def guessing(n=30, *, chance=0.1, noise=0.01, seed=0):
    return chance + noise * np.random.default_rng(seed).standard_normal(n)


def logged(make, *, train=None, held_out=None, loss=True, params=None, measure="accuracy"):
    """A run with a loss that falls, and accuracies; fewer evaluations lie at evenly spaced steps."""
    n = len(train) if train is not None else len(held_out)
    series = []
    if train is not None:
        series.append(make.series(train, role=f"train_{measure}"))
    if held_out is not None:
        steps = np.linspace(n / len(held_out), n, len(held_out))
        series.append(make.series(held_out, steps, role=f"val_{measure}"))
    losses = 0.05 + 2.25 * np.exp(-5.0 * np.arange(n) / n) if loss else None
    return make.evidence(losses, *series, params=params)


# At the level of guessing


@pytest.mark.parametrize("unit", [1.0, 100.0])
@pytest.mark.parametrize("params", [TEN, None], ids=["told", "seen from the loss"])
def test_validation_at_chance_beside_a_training_that_learns(unit, params, make, judge):
    evidence = logged(make, train=unit * learning(), held_out=unit * guessing(), params=params)
    result = judge(AT_CHANCE, evidence)
    assert result.verdict == "warn"
    assert "of the training samples it is 94" in result.message
    assert result.measured["chance"] == pytest.approx(0.1)
    assert judge(GAP, evidence).verdict == "warn"


@pytest.mark.parametrize(("held_out", "verdict"), [(None, "fail"), (guessing(seed=2), "fail"), (learning(), "pass")])
def test_training_at_chance(held_out, verdict, make, judge):
    """A training accuracy at chance beside a validation accuracy that learns is that of mixed labels, say."""
    result = judge(AT_CHANCE, logged(make, train=guessing(seed=1), held_out=held_out, params=TEN))
    assert result.verdict == verdict


def test_a_level_that_is_only_guessed_warns(make, judge):
    accuracy = make.series(guessing(seed=1), role="train_accuracy")
    assert judge(AT_CHANCE, make.evidence(2.25 + 0.05 * np.exp(-np.arange(30)), accuracy)).verdict == "warn"


def test_a_loss_that_is_of_something_else(make, judge):
    """A squared error that begins at 2.3 is no cross-entropy of as many answers that miss the tolerance."""
    assert judge(AT_CHANCE, logged(make, train=guessing(seed=1))).verdict == "SkippedProbe"
    held_out = make.series(learning(10, end=0.4), np.linspace(20, 200, 10), role="val_accuracy")
    squares = make.series(descending()[19::20], np.linspace(20, 200, 10), role="val_loss")
    assert judge(GAP, make.evidence(descending(), held_out)).verdict == "warn"
    assert judge(GAP, make.evidence(descending(), held_out, squares)).verdict == "pass"


def test_an_auc_of_one_half(make, judge):
    rng = np.random.default_rng(0)
    noise = 0.5 + 0.02 * rng.standard_normal(12)
    assert judge(AT_CHANCE, logged(make, held_out=noise, measure="auc")).verdict == "warn"
    assert judge(AT_CHANCE, logged(make, held_out=noise + 0.08, measure="auc")).verdict == "pass"
    assert judge(AT_CHANCE, logged(make, held_out=learning(12, start=0.5), measure="auc")).verdict == "pass"


NEAR_MISSES = {
    "it learns late": np.concatenate([guessing(20), learning(10)]),
    "it learns little": guessing(chance=0.14),
    "the majority is predicted": guessing(chance=0.3, noise=0.001),
    "worse than guessing": np.full(30, 0.02),
    "too noisy to tell": guessing(noise=0.3),
}


@pytest.mark.parametrize("held_out", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses_of_chance(held_out, make, judge):
    held_out = np.clip(held_out, 0.0, 1.0)
    assert judge(AT_CHANCE, logged(make, held_out=held_out, params=TEN)).verdict == "pass"


def test_a_vocabulary_is_no_number_of_classes(make, judge):
    evidence = logged(make, held_out=guessing(), params={"vocab_size": "50257"})
    assert judge(AT_CHANCE, evidence).verdict == "SkippedProbe"


def test_nothing_tells_the_level_of_guessing(make, judge):
    """An accuracy of one in three would be guessing, but a first loss of 2.3 is that of ten classes."""
    assert judge(AT_CHANCE, logged(make, held_out=guessing(chance=1 / 3))).verdict == "SkippedProbe"


@pytest.mark.parametrize(("level", "chance"), [(2.33, 0.1), (2.42, 0.1), (2.2, 1 / 9), (3.0, 1 / 9), (1.0, 1 / 9)])
def test_the_loss_of_the_same_samples_tells_the_neighbours_apart(level, chance, make):
    """Of few samples guessing is right in 11 %, too, of ten classes."""
    held_out = make.series([0.1, 0.14, 0.11, 0.1, 0.1], role="val_accuracy")
    evidence = make.evidence(np.full(5, 2.3), held_out, make.series(np.full(5, level), role="val_loss"))
    assert chance_of(evidence, next(iter(measures(evidence, 5)))).share == pytest.approx(chance)


def test_a_loss_above_that_of_guessing_speaks_for_one_class_too_many(make, judge):
    """Nothing was learnt, but weights that begin too large make the loss of ten classes that of eleven."""
    held_out = make.series(
        [0.083, 0.092, 0.096, 0.096, 0.104, 0.092, 0.104, 0.108, 0.1, 0.113, 0.115, 0.121], role="val_accuracy"
    )
    losses = np.linspace(2.45, 2.35, 12)
    evidence = make.evidence(losses, held_out, make.series(losses, role="val_loss"))
    assert chance_of(evidence, next(iter(measures(evidence, 5)))).share == pytest.approx(1 / 11)
    assert judge(AT_CHANCE, evidence).verdict == "warn"


@pytest.mark.parametrize("level", [1.9, 2.4, 2.8])
def test_the_median_loss_tells_where_the_first_one_exploded(level, make, judge):
    losses = np.concatenate([[2538.0, 425.0, 3.2], level + 0.05 * np.random.default_rng(0).standard_normal(27)])
    evidence = make.evidence(losses, make.series(guessing(), role="val_accuracy"))
    assert judge(AT_CHANCE, evidence).verdict == "warn"


@pytest.mark.parametrize("first", [1.03, 1.36, 1.79, 1.95])
def test_a_loss_that_passes_by_a_level_on_its_way_down(first, make, judge):
    """Half of the answers among six are right; the median loss is not far from ln 2 by chance."""
    losses = 0.81 + (first - 0.81) * np.exp(-np.arange(30.0) / 3.0)
    evidence = make.evidence(losses, make.series(guessing(chance=0.5), role="val_accuracy"))
    assert judge(AT_CHANCE, evidence).verdict == "SkippedProbe"


@pytest.mark.parametrize(("head", "verdict"), [(2, "warn"), (None, "warn"), (6, "SkippedProbe"), (10, "SkippedProbe")])
def test_the_last_layer_contradicts_a_level(head, verdict, make, judge):
    """The loss came down to ln 2 from above, and the validation accuracy is a half."""
    losses = 0.7 + 1.1 * np.exp(-np.arange(30.0))
    weights = with_head(make, head) if head else None
    evidence = make.evidence(losses, make.series(guessing(chance=0.5), role="val_accuracy"), weights=weights)
    assert judge(AT_CHANCE, evidence).verdict == verdict


@FEW
@given(
    level=st.floats(0.02, 0.98),
    first=st.floats(0.1, 5.0),
    end=st.floats(0.1, 5.0),
    head=st.integers(2, 1000),
)
def test_no_level_is_told_against_the_last_layer(level, first, end, head, make):
    losses = end + (first - end) * np.exp(-np.arange(20.0))
    evidence = make.evidence(
        losses, make.series(np.full(20, level), role="val_accuracy"), weights=with_head(make, head)
    )
    chance = chance_of(evidence, next(measures(evidence, 5)))
    assert chance is None or abs(math.log(chance.share) + math.log(head)) <= 0.3 * math.log(head) + 1e-9


def with_head(make, size):
    return make.weights({"0.weight": (48, 20), "0.bias": (48,), "fc.weight": (size, 48), "fc.bias": (size,)})


@pytest.mark.parametrize(
    ("accuracy", "n", "descent", "verdict"),
    [
        pytest.param(0.54, 36, 0.02, "warn", id="of fifty samples"),
        pytest.param(0.36661, 7, 0.02, "warn", id="of many samples"),
        pytest.param(0.36661, 7, 0.3, "warn", id="the most frequent of many answers"),
        pytest.param(0.37, 5, 0.02, "SkippedProbe", id="rounded, and few"),
        pytest.param(0.97, 36, 0.02, "SkippedProbe", id="nearly all of one class"),
        pytest.param(0.54, 36, 0.2, "SkippedProbe", id="more sure of the same answers"),
        pytest.param(1.0, 36, 0.02, "SkippedProbe", id="all right"),
        pytest.param(0.0, 36, 0.02, "SkippedProbe", id="never measured"),
    ],
)
@pytest.mark.parametrize("validation", [True, False])
def test_an_accuracy_that_never_changes(accuracy, n, descent, verdict, validation, make, judge):
    """The losses are no cross-entropy, so that nothing tells what guessing has."""
    losses = 40.0 * (1.0 - descent * np.linspace(0, 1, 200))
    more = [make.series(np.full(n, accuracy), role="val_accuracy" if validation else "train_accuracy")]
    if validation:
        more.append(make.series(40.0 * (1.0 - descent * np.linspace(0, 1, n)), role="val_loss"))
    result = judge(AT_CHANCE, make.evidence(losses, *more))
    assert result.verdict == verdict
    if verdict == "warn":
        assert f"of {n} values" in result.message


@pytest.mark.parametrize(("value", "other", "at"), [(0.54, 0.56, 20), (0.54, 0.5, 2), (0.34, 0.36, 20)])
def test_an_accuracy_that_changes_once(value, other, at, make, judge):
    values = np.full(36, value)
    values[at] = other
    losses = make.series(np.full(36, 40.0) - 0.01 * np.arange(36), role="val_loss")
    evidence = make.evidence(np.full(200, 40.0), losses, make.series(values, role="val_accuracy"))
    assert judge(AT_CHANCE, evidence).verdict == "SkippedProbe"


@pytest.mark.parametrize("code", [AT_CHANCE, GAP])
def test_accuracies_alone_do_not_pass(code, make, judge):
    assert (
        judge(code, logged(make, train=learning(), held_out=learning(), loss=False, params=TEN)).verdict
        == "SkippedProbe"
    )
    assert judge(code, logged(make, train=learning(), held_out=guessing(), loss=False, params=TEN)).verdict == "warn"


@pytest.mark.parametrize("values", [[-1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 500.0]])
def test_counts_are_no_accuracies(values, make, judge):
    for code in (AT_CHANCE, GAP):
        assert judge(code, logged(make, held_out=np.array(values), params=TEN)).verdict == "SkippedProbe"


def naive_scatter(values):
    steps = [b - a for a, b in itertools.pairwise(values)]
    mean = sum(steps) / len(steps)
    return math.sqrt(sum((step - mean) ** 2 for step in steps) / len(steps)) / math.sqrt(2)


def naive_distance(mean, chance, near):
    """By how much a mean is at the level of guessing, or down to half of it."""
    return near - (mean - chance) if mean > chance else max(near, 0.5 * chance) - (chance - mean)


def naive_at_chance(values, chance, rule):
    """Whether all thirds and the last three values lie at the level of guessing, and how nearly each condition is met
    or missed.
    """
    rest = list(values[len(values) // 10 :])
    noise, before = naive_scatter(rest), naive_scatter(rest[: len(rest) * 2 // 3])
    at_end = max(min(rule.tolerance, 0.2 * chance), 3 * before / math.sqrt(3))
    margins = [naive_distance(sum(rest[-3:]) / 3, chance, at_end)]
    for at in range(3):
        size = [len(rest) // 3 + (number < len(rest) % 3) for number in range(3)]
        part = rest[sum(size[:at]) : sum(size[: at + 1])]
        error = noise / math.sqrt(len(part))
        margins.append(0.1 * (1 - chance) - 3 * error)
        near = max(min(rule.tolerance, 0.2 * chance), 3 * error)
        margins.append(naive_distance(sum(part) / len(part), chance, near))
    return all(margin >= 0 for margin in margins), margins


@FEW
@given(
    values=st.lists(st.floats(0.0, 0.3), min_size=6, max_size=40) | st.lists(st.floats(0.09, 0.12), min_size=6, max_size=40),
    classes=st.integers(2, 20),
)  # fmt: skip
def test_chance_against_plain_python(values, classes, make, judge):
    there, margins = naive_at_chance(values, 1 / classes, AccuracyAtChance())
    assume(all(abs(margin) > 1e-9 for margin in margins))
    later = values[len(values) // 5 :]
    assume(max(later) > min(later) and max(values) >= min(values) + 0.001)  # what never changes is found as such
    evidence = logged(make, held_out=np.array(values), params={"num_classes": str(classes)})
    assert judge(AT_CHANCE, evidence).verdict == ("warn" if there else "pass")


# Far behind, or lost again


def test_a_gain_that_holds_for_the_training_samples_only(make, judge):
    result = judge(GAP, logged(make, train=learning(end=1.0), held_out=learning(10, end=0.35), params=TEN))
    assert result.verdict == "warn"
    assert result.measured["gap_share"] > 0.5


def test_a_validation_accuracy_that_falls_again(make, judge):
    held_out = np.concatenate([learning(12, end=0.8), np.linspace(0.78, 0.5, 12)])
    result = judge(GAP, logged(make, train=learning(24, end=0.9), held_out=held_out))
    assert result.verdict == "warn"
    assert 9 <= result.steps[0] <= 14
    assert f"step {result.steps[0]}" in result.remedy


HEALTHY = {
    "an ordinary gap": (learning(end=0.99), learning(10, end=0.75)),
    "a fine-tune that began with a gap": (learning(start=0.6, end=0.9), learning(10, start=0.4, end=0.62)),
    "dropout": (learning(end=0.8), learning(10, end=0.9)),
    "known well from the first epoch on": (learning(start=0.97, end=1.0), np.full(10, 0.8)),
    "noise": (learning(), np.clip(learning(end=0.8) + 0.05 * np.random.default_rng(1).standard_normal(30), 0, 1)),
    "a restart": (np.concatenate([learning(20), learning(10, start=0.6)]), learning(end=0.85)),
}


@pytest.mark.parametrize(("train", "held_out"), HEALTHY.values(), ids=HEALTHY)
def test_healthy_pairs(train, held_out, make, judge):
    assert judge(GAP, logged(make, train=train, held_out=held_out)).verdict == "pass"


def test_what_both_lose_is_no_overfitting(make, judge):
    both = np.concatenate([learning(15), np.full(15, 0.1)])
    assert judge(GAP, logged(make, train=both, held_out=both)).verdict == "pass"
    assert judge(GAP, logged(make, held_out=both)).verdict == "warn"


def descending(*, begin=2.3, end=0.001, n=200):
    return end + (begin - end) * np.exp(-8.0 * np.arange(n) / n)


@pytest.mark.parametrize("params", [TEN, None], ids=["told", "seen from the loss"])
def test_learnt_by_heart_as_the_loss_shows(params, make, judge):
    held_out = make.series(learning(10, end=0.4), np.linspace(20, 200, 10), role="val_accuracy")
    result = judge(GAP, make.evidence(descending(), held_out, params=params))
    assert result.verdict == "warn"
    assert result.measured["least_train_end"] == pytest.approx(1 - np.mean(descending()[160:]) / math.log(2))
    assert "no room for less than 99" in result.message


@pytest.mark.parametrize(("samples", "verdict"), [(20, "pass"), (400, "warn"), (None, "warn")])
def test_a_few_other_answers_are_no_fall(samples, verdict, make, judge):
    """All evaluations are of the same samples: as many shares of twenty as of four hundred."""
    shares = np.append(np.linspace(0.5, 0.8, 8), np.full(8, 0.65))
    held_out = np.round(shares * samples) / samples if samples else shares + 1e-4 * np.sin(np.arange(16))
    assert judge(GAP, logged(make, held_out=held_out)).verdict == verdict


def test_what_has_just_been_learnt_is_no_gap(make, judge):
    """After a long plateau, within the last of the few evaluations that are compared."""
    train = np.append(np.full(180, 0.1), np.linspace(0.1, 0.9, 20))
    held_out = make.series([*[0.1] * 9, 0.85], np.linspace(20, 200, 10), role="val_accuracy")
    series = [make.series(train, role="train_accuracy"), held_out]
    assert judge(GAP, make.evidence(2.3 - 0.01 * np.arange(200) / 200, *series)).verdict == "pass"


def test_a_rise_at_the_very_end_is_no_guessing(make, judge):
    held_out = np.append(guessing(27), [0.18, 0.22, 0.25])
    assert judge(AT_CHANCE, logged(make, held_out=held_out, params=TEN)).verdict == "pass"


@given(st.lists(st.integers(0, 500), min_size=3, max_size=40), st.integers(1, 500), st.booleans())
def test_of_how_many_samples_shares_are(rights, samples, single):
    shares = np.array([min(right, samples) / samples for right in rights])
    shares = shares.astype(np.float32).astype(float) if single else shares
    found = samples_of(shares)
    assert found is not None
    assert found <= samples
    assert np.allclose(shares * found, np.round(shares * found), atol=1e-3)


def test_shares_that_were_rounded_or_are_of_no_samples():
    rng = np.random.default_rng(0)
    assert samples_of(rng.random(20)) is None
    assert samples_of(np.round(rng.integers(0, 360, 20) / 360, 3)) in (None, 1000)


NOT_BY_HEART = {
    "an ordinary gap": (descending(), 0.75, None),
    "a loss that leaves room": (descending(end=0.4), 0.4, None),
    "a margin": (descending(begin=1.0), 0.4, None),
    "a decision of two": (descending(begin=math.log(2)), 0.4, None),
    "a vocabulary": (descending(begin=math.log(500)), 0.4, None),
    "a small vocabulary": (descending(), 0.4, {"vocab_size": "10"}),
    "no cross-entropy among the classes": (descending(), 0.4, {"num_classes": "80"}),
}


@pytest.mark.parametrize(("losses", "end", "params"), NOT_BY_HEART.values(), ids=NOT_BY_HEART)
def test_what_a_loss_does_not_show(losses, end, params, make, judge):
    held_out = make.series(learning(10, end=end), np.linspace(20, 200, 10), role="val_accuracy")
    assert judge(GAP, make.evidence(losses, held_out, params=params)).verdict == "pass"


@FEW
@given(seed=st.integers(0, 9999), classes=st.integers(3, 20), scale=st.floats(0, 20), sure=st.floats(0, 20))
def test_no_cross_entropy_has_more_wrong_samples_of(seed, classes, scale, sure, make):
    """The bound, against logits drawn at random."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=50)
    logits = scale * rng.standard_normal((50, classes)) + sure * np.eye(classes)[labels]
    highest = logits.max(1, keepdims=True)
    log_shares = logits - highest - np.log(np.exp(logits - highest).sum(1, keepdims=True))
    loss = -log_shares[np.arange(50), labels].mean()
    found = least_accuracy(make.evidence([math.log(classes), math.log(classes), math.log(classes), loss]))
    assert found is not None
    assert found[0].values[-1] <= np.mean(logits.argmax(1) == labels) + 1e-9
    assert found[1] == pytest.approx(1 / classes)


@FEW
@given(
    train=st.lists(st.floats(0, 1), min_size=5, max_size=40),
    held_out=st.lists(st.floats(0, 1), min_size=5, max_size=40),
    share=st.floats(0.1, 2),
)
def test_stricter_thresholds_find_less(train, held_out, share, make, judge):
    evidence = logged(make, train=np.array(train), held_out=np.array(held_out), params=TEN)
    strict = judge(GAP, evidence, gap_share=share * 2, fall_share=share * 2).verdict
    lenient = judge(GAP, evidence, gap_share=share, fall_share=share).verdict
    assert (strict, lenient) != ("warn", "pass")


@FEW
@given(values=st.lists(st.floats(0, 0.01), min_size=5, max_size=30), seed=st.integers(0, 99))
def test_percentages_are_judged_like_shares(values, seed, make, judge):
    held_out = np.append(np.array(values), [0.9, 0.5])
    train = learning(len(held_out), end=0.9)
    for code in (AT_CHANCE, GAP):
        share, percent = (
            judge(code, logged(make, train=unit * train, held_out=unit * held_out, params=TEN)) for unit in (1.0, 100.0)
        )
        assert share.verdict == percent.verdict
        for name, value in share.measured.items():
            assert percent.measured[name] == pytest.approx(value)


def naive_fall(values, rule):
    """Whether the mean of three falls far enough from its best, with no training accuracy and no level of guessing."""
    steps = [b - a for a, b in itertools.pairwise(values)]
    mean = sum(steps) / len(steps)
    noise = math.sqrt(sum((step - mean) ** 2 for step in steps) / len(steps)) / math.sqrt(2)
    smooth = [sum(values[at : at + 3]) / 3 for at in range(len(values) - 2)]
    best = max(range(len(smooth)), key=lambda at: smooth[at])
    fall = smooth[best] - smooth[-1]
    margins = [
        fall - rule.fall_share * (smooth[best] - min(values)),
        fall - (3 + math.sqrt(2 * math.log(len(smooth)))) * noise / math.sqrt(3),
    ]
    return all(margin > 0 for margin in margins) and len(smooth) - 1 - best >= 3, margins


@FEW
@given(
    peak=st.integers(3, 30), after=st.integers(0, 30), end=st.floats(0.1, 0.9), noise=st.floats(0, 0.1), seed=st.integers(0, 999)
)  # fmt: skip
def test_falls_against_plain_python(peak, after, end, noise, seed, make, judge):
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.linspace(0.15, 0.9, peak), np.linspace(0.9, end, after)])
    values = np.clip(values + noise * rng.standard_normal(len(values)), 0, 1)
    assume(len(values) >= 6)
    fell, margins = naive_fall(values.tolist(), AccuracyGap())
    assume(all(abs(margin) > 1e-9 for margin in margins))
    assert judge(GAP, logged(make, held_out=values, params={"vocab_size": "96"})).verdict == (
        "warn" if fell else "pass"
    )


@pytest.mark.parametrize(("first", "spread", "n", "params", "verdict"), [
    (0.291, 0.0008, 11, {}, "warn"), (0.291, 0.0012, 11, {}, "SkippedProbe"), (0.291, 0.0008, 9, {}, "SkippedProbe"),
    (0.51, 0.0008, 11, {}, "SkippedProbe"), (0.02, 0.0008, 11, {}, "SkippedProbe"),
    (0.291, 0.0008, 11, {"base_model": "gpt2"}, "SkippedProbe"),
])  # fmt: skip
def test_an_accuracy_that_hardly_changes(first, spread, n, params, verdict, make, judge):
    """As of a model that has learnt how frequent each character is, and gives the most frequent one."""
    held_out = first + spread * np.sin(np.arange(n)) ** 2 / np.max(np.sin(np.arange(n)) ** 2)
    losses = make.series(3.05 + 0.5 * np.exp(-np.arange(44)), role="train_loss")
    evidence = make.evidence(losses, make.series(held_out, role="val_accuracy"), params=params)
    assert judge(AT_CHANCE, evidence).verdict == verdict


def test_an_accuracy_below_that_of_guessing_is_none_that_was_learnt(make, judge):
    values = 0.08 + 0.02 * np.sin(np.arange(24))
    assert judge(AT_CHANCE, logged(make, held_out=values, params=TEN)).verdict == "warn"
    assert judge(AT_CHANCE, logged(make, held_out=values / 4, params=TEN)).verdict == "pass"


def fell_at_once(make, *, first=0.62, rest=0.456, loss=2.7, train_end=0.5, losses=True):
    """A trained model that a training on wrong labels makes worse from its first evaluation on."""
    held_out = make.series([first, *[rest] * 17], 10 * np.arange(1, 19), role="val_accuracy")
    train = np.linspace(2.0, 2.0 * train_end, 180)
    series = [make.series([2.19, *[loss] * 17], 10 * np.arange(1, 19), role="val_loss")] if losses else []
    return make.evidence(train, held_out, *series)


@pytest.mark.parametrize(("changes", "verdict"), [
    ({}, "warn"), ({"loss": 2.0}, "pass"), ({"loss": 2.25}, "pass"), ({"rest": 0.53}, "pass"), ({"train_end": 0.85}, "pass"),
    ({"losses": False}, "pass"), ({"first": 0.4}, "pass"),
])  # fmt: skip
def test_the_first_evaluation_is_the_best_by_far(changes, verdict, make, judge):
    result = judge(GAP, fell_at_once(make, **changes))
    assert result.verdict == verdict
    assert verdict == "pass" or "fell from 62% at the first evaluation to 45.6%" in result.message


def test_a_loss_weighted_by_classes_lowers_the_accuracy_of_the_majority(make, judge):
    """It begins with the share of the more frequent answer, and gives that up for the rare one, to a lower loss."""
    held_out = make.series([0.85, *np.linspace(0.7, 0.74, 17)], 10 * np.arange(1, 19), role="val_accuracy")
    losses = make.series(np.linspace(0.69, 0.5, 18), 10 * np.arange(1, 19), role="val_loss")
    assert judge(GAP, make.evidence(np.linspace(0.7, 0.4, 180), held_out, losses)).verdict == "pass"


FORGOTTEN = np.tile([0.96, 1.0, 0.7, 1.0], 4)  # of sorted samples, one kind after the other


@pytest.mark.parametrize(
    ("train", "held_out", "verdict"),
    [
        pytest.param(FORGOTTEN, np.full(14, 0.17), "warn", id="as of sorted samples"),
        pytest.param(FORGOTTEN, np.linspace(0.15, 0.19, 14), "warn", id="it rose by a little"),
        pytest.param(FORGOTTEN, np.linspace(0.15, 0.35, 14), "pass", id="it rose"),
        pytest.param(FORGOTTEN, np.full(14, 0.6), "pass", id="not that far"),
        pytest.param(np.r_[FORGOTTEN[:10], np.full(6, 0.5)], np.full(14, 0.17), "pass", id="not all along"),
    ],
)
def test_far_apart_from_the_start(train, held_out, verdict, make, judge):
    loss = 0.5 + 0.01 * np.random.default_rng(0).standard_normal(16)
    series = [make.series(train, role="train_accuracy"), make.series(held_out, range(14), role="val_accuracy")]
    result = judge(GAP, make.evidence(loss, *series))
    assert result.verdict == verdict
    assert ("from the start" in result.message) is (verdict == "warn")


@pytest.mark.parametrize("case", ["late", "fine-tune", "another measure"])
def test_far_apart_from_the_start_for_a_reason(case, make, judge):
    steps, name = range(0 if case != "late" else 500, 16 if case != "late" else 516), "train_accuracy"
    train = make.series(
        FORGOTTEN, steps, role="train_accuracy", name="token_acc" if case == "another measure" else name
    )
    held_out = make.series(np.full(16, 0.17), steps, role="val_accuracy")
    params = {"base_model": "x"} if case == "fine-tune" else {}
    loss = make.series(np.full(16, 0.5), steps)
    assert judge(GAP, make.evidence(loss, train, held_out, params=params)).verdict == "pass"
