"""LOS012."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

CODE = "LOS012"
TEN = {"num_classes": "10"}


def softmax(logits):
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def trained(classes=10, *, twice=False, n=30, most=12.0, noise=1.0, seed=0):
    """Losses and accuracies of a model whose logits come to favour the right answers, with one softmax or two."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=400)
    losses, accuracies = [], []
    for size in np.linspace(0.0, most, n):
        logits = noise * min(1.0, size) * rng.standard_normal((400, classes))
        logits[np.arange(400), labels] += size * rng.uniform(0.0, 1.0, 400)
        shares = softmax(softmax(logits)) if twice else softmax(logits)
        losses.append(-np.log(shares[np.arange(400), labels]).mean())
        accuracies.append((logits.argmax(1) == labels).mean() if size else 1.0 / classes)
    return np.array(losses), np.array(accuracies)


def logged(make, losses, accuracies, *, validation=False, params=None, head=None):
    """A run; with ``validation`` the loss and accuracy are the validation's, beside the same training loss. ``head``: so
    many does the last layer of its checkpoint choose among.
    """
    more = [make.series(accuracies, role="val_accuracy" if validation else "train_accuracy")]
    if validation:
        more.append(make.series(losses, role="val_loss"))
    weights = (
        make.weights({"0.weight": (48, 20), "0.bias": (48,), "fc.weight": (head, 48), "fc.bias": (head,)})
        if head
        else None
    )
    return make.evidence(losses, *more, params=params, weights=weights)


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize(("classes", "params"), [(10, None), (10, TEN), (4, None), (100, {"num_classes": "100"})])
@pytest.mark.parametrize("n", [8, 30, 300])
def test_a_softmax_too_many(n, classes, params, validation, make, judge):
    evidence = logged(make, *trained(classes, twice=True, n=n), validation=validation, params=params)
    result = judge(CODE, evidence)
    assert result.verdict == "warn"
    assert ("validation" if validation else "training") in result.message
    assert "logits" in result.remedy
    assert result.measured["sum"] > 1.4
    sound = judge(CODE, logged(make, *trained(classes, n=n), validation=validation, params=params))
    assert sound.verdict == "pass"


def with_smoothing(share, classes=10, n=30):
    """What a loss of smoothed targets comes down to, with an accuracy that is near 1."""
    shares = np.full(classes, share / classes)
    shares[0] += 1.0 - share
    least = float(-(shares * np.log(shares)).sum())
    return least + (math.log(classes) - least) * np.exp(-np.arange(n) / 4.0)


@pytest.mark.parametrize(
    ("params", "begin", "verdict"), [(None, 0.9, "SkippedProbe"), (TEN, 0.9, "warn"), (None, 0.4, "warn")]
)
def test_means_of_epochs_that_begin_when_most_is_right(params, begin, verdict, make, judge):
    """The first mean says ln 10 where the second softmax keeps it up, and less where smoothing does."""
    losses = np.append(2.25, np.full(29, 1.75))
    assert judge(CODE, logged(make, losses, np.linspace(begin, 0.97, 30), params=params)).verdict == verdict


@pytest.mark.parametrize(("end", "verdict"), [(1.3, "pass"), (1.61, "warn")])
def test_a_loss_that_is_lower_than_two_softmaxes_allow(end, verdict, make, judge):
    """A model that has only begun is right before it is sure; of ten classes two softmaxes leave 1.6 at 86 %."""
    losses = end + (math.log(10) - end) * np.exp(-np.arange(30) / 4.0)
    accuracies = np.minimum(np.linspace(0.1, 1.5, 30), 0.86)
    assert judge(CODE, logged(make, losses, accuracies, params=TEN)).verdict == verdict


LATE = np.append(2.219, np.linspace(1.83, 1.57, 29)), np.linspace(0.64, 0.865, 30)


@pytest.mark.parametrize(
    ("params", "head", "verdict"),
    [(None, None, "SkippedProbe"), (None, 10, "warn"), (None, 2, "SkippedProbe"), (None, 1, "SkippedProbe"),
     (None, 40, "SkippedProbe"), (TEN, 100, "warn"),
     ({"num_classes": "80"}, 10, "SkippedProbe"), ({"vocab_size": "80"}, 10, "SkippedProbe"),
     ({"vocab_size": "10"}, 10, "warn")],
)  # fmt: skip
def test_the_last_layer_tells_the_classes(params, head, verdict, make, judge):
    """Where the params are silent, and the loss begins there."""
    assert judge(CODE, logged(make, *LATE, params=params, head=head)).verdict == verdict


@pytest.mark.parametrize("classes", [4, 10, 100, 1000])
@pytest.mark.parametrize("n", [8, 30])
def test_a_sound_run_with_a_last_layer(classes, n, make, judge):
    assert judge(CODE, logged(make, *trained(classes, n=n), head=classes)).verdict == "pass"
    assert judge(CODE, logged(make, *trained(classes, n=n, twice=True), head=classes)).verdict == "warn"


def test_a_last_layer_that_the_loss_does_not_agree_with_changes_nothing(make, judge):
    """An embedding of so many values, say: then the loss alone tells, as without it."""
    for run in (trained(10, twice=True), trained(10)):
        one, other = (judge(CODE, logged(make, *run, head=head)) for head in (None, 64))
        assert (one.verdict, one.measured) == (other.verdict, other.measured)


def test_a_log_that_begins_when_some_has_been_learnt(make, judge):
    """The first value is nearest to guessing: by the usual one of the first three there would be six classes."""
    losses = np.empty(30)
    losses[:3], losses[3:] = (2.2, 1.82, 1.5), np.linspace(1.4, 1.03, 27)
    assert judge(CODE, logged(make, losses, np.linspace(0.3, 0.965, 30))).verdict == "pass"


RISING = 0.97 - 0.87 * np.exp(-np.arange(30) / 4.0)
FALLING = 0.1 + 2.2 * np.exp(-np.arange(30) / 4.0)
NEAR_MISSES = {
    "smoothed targets": (with_smoothing(0.3), RISING),
    "it came below once": (np.append(FALLING, np.full(5, 1.6)), np.append(RISING, np.full(5, 0.97))),
    "guessing": (np.full(30, 2.3), np.full(30, 0.1)),
    "above guessing": (np.full(30, 2.4), np.full(30, 0.9)),
    "half right": (np.linspace(2.3, 1.7, 30), np.linspace(0.1, 0.5, 30)),
}


@pytest.mark.parametrize(("losses", "accuracies"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(losses, accuracies, make, judge):
    assert judge(CODE, logged(make, losses, accuracies, params=TEN)).verdict == "pass"


SKIPPED = {
    "two classes": (trained(2, twice=True), None),
    "no cross-entropy of these classes": (trained(10, twice=True), {"num_classes": "80"}),
    "another vocabulary": (trained(10, twice=True), {"vocab_size": "80"}),
    "many, and no param": (trained(100, twice=True), None),
}


@pytest.mark.parametrize(("run", "params"), SKIPPED.values(), ids=SKIPPED)
def test_skipped(run, params, make, judge):
    assert judge(CODE, logged(make, *run, params=params)).verdict == "SkippedProbe"


def test_the_samples_have_to_be_the_same(make, judge):
    """Of mixed training samples the loss is high, though the validation accuracy is."""
    losses, accuracies = trained(twice=True)
    evidence = make.evidence(losses, make.series(accuracies, role="val_accuracy"))
    assert judge(CODE, evidence).verdict == "SkippedProbe"


@settings(max_examples=100, deadline=None)
@given(classes=st.integers(4, 50), size=st.floats(0, 50), seed=st.integers(0, 9999))
def test_the_floor_of_two_softmaxes(classes, size, seed):
    """The number in the rule's explanation: no model comes below it."""
    logits = size * np.random.default_rng(seed).standard_normal(classes)
    least = -np.log(softmax(softmax(logits)).max())
    assert least >= math.log(math.e + classes - 1) - 1 - 1e-9


@settings(max_examples=60, deadline=None)
@given(one=st.floats(1.01, 2), other=st.floats(1.01, 2), twice=st.booleans(), seed=st.integers(0, 99))
def test_a_higher_sum_never_finds_more(one, other, twice, seed, make, judge):
    evidence = logged(make, *trained(twice=twice, seed=seed))
    lower, higher = sorted([one, other])
    if judge(CODE, evidence, least_sum=lower).verdict == "pass":
        assert judge(CODE, evidence, least_sum=higher).verdict == "pass"


# By the sum of loss and accuracy


def saturated(classes, accuracies):
    """The losses of two softmaxes whose first is sure of all its answers."""
    return math.log(math.e + classes - 1) - np.asarray(accuracies)


PART = np.append([0.31, 0.35, 0.37, 0.38], np.linspace(0.39, 0.41, 18))
"""The accuracies of a language model that is tuned with few parameters."""


@pytest.mark.parametrize("params", [None, {"vocab_size": "128"}, {"num_classes": "128"}, {"base_model": "b"}])
@pytest.mark.parametrize("validation", [False, True])
def test_two_softmaxes_among_many(params, validation, make, judge):
    evidence = logged(make, saturated(128, PART), PART, validation=validation, params=params)
    result = judge(CODE, evidence)
    assert result.verdict == "warn"
    assert "they add up as behind two softmaxes among about 128 answers" in result.message
    assert result.measured["classes"] == pytest.approx(128)


def test_two_softmaxes_among_three(make, judge):
    assert judge(CODE, logged(make, *trained(3, twice=True))).verdict == "warn"
    assert judge(CODE, logged(make, *trained(3))).verdict == "SkippedProbe"


def test_an_accuracy_that_stays_beside_a_loss_that_began_at_guessing(make, judge):
    """The most frequent answer is all that was learnt, before the first evaluation."""
    losses, right = np.append(math.log(128), saturated(128, np.full(29, 0.308))), np.full(14, 0.308)
    held_out = (make.series(saturated(128, right), role="val_loss"), make.series(right, role="val_accuracy"))
    assert judge(CODE, make.evidence(losses, *held_out)).verdict == "warn"
    for params in ({"base_model": "b"}, {"vocab_size": "256"}):
        assert judge(CODE, make.evidence(losses, *held_out, params=params)).verdict != "warn"
    assert judge(CODE, make.evidence(losses[1:], *held_out)).verdict != "warn"


def frequent(accuracies, classes=128):
    """The losses of a model that gives its answers the probability that they are right, and all others the same."""
    right = np.asarray(accuracies)
    return -right * np.log(right) - (1 - right) * np.log((1 - right) / (classes - 1))


SOUND = {
    "its answers are as probable as they are right": (frequent(PART), PART),
    "the loss falls faster than the accuracy rises": (4.45 - 3.0 * (PART - PART[-1]), PART),
    "the loss stays": (np.full(22, 4.457), PART),
    "it begins above two softmaxes": (np.append([5.2] * 3, saturated(128, PART)), np.append([0.0] * 3, PART)),
    "it came far below": (np.append(saturated(128, PART), [2.9] * 3), np.append(PART, [0.41] * 3)),
    "all but nothing is learnt": (saturated(128, PART / 40), PART / 40),
    "a share of three": (saturated(3, PART), PART),
}


@pytest.mark.parametrize(("losses", "accuracies"), SOUND.values(), ids=SOUND)
def test_near_misses_of_two_softmaxes(losses, accuracies, make, judge):
    assert judge(CODE, logged(make, losses, accuracies)).verdict != "warn"
    assert judge(CODE, logged(make, losses, accuracies, params={"vocab_size": "1000"})).verdict != "warn"


def test_sound_losses_of_other_samples_excuse(make, judge):
    """Of mixed training samples: their loss is high, and that of the validation samples is not."""
    held_out = make.series(frequent(PART), role="val_loss"), make.series(PART, role="val_accuracy")
    mixed = make.evidence(saturated(128, PART), make.series(PART, role="train_accuracy"), *held_out)
    assert judge(CODE, mixed).verdict != "warn"


@settings(max_examples=60, deadline=None)
@given(
    classes=st.integers(64, 5000),
    end=st.floats(0.3, 0.95),
    rise=st.floats(0.5, 0.9),
    n=st.integers(8, 60),
    seed=st.integers(0, 99),
)
def test_whatever_the_number_of_answers(classes, end, rise, n, seed, make, judge):
    right = end * (1.0 - rise * np.exp(-5.0 * np.arange(n) / n))
    right += 1e-3 * np.random.default_rng(seed).standard_normal(n)
    assert judge(CODE, logged(make, saturated(classes, right), right)).verdict == "warn"
    assert judge(CODE, logged(make, frequent(right, classes), right)).verdict != "warn"


@pytest.mark.parametrize("losses", [[math.inf] * 5, [math.nan] * 9 + [2.3], [math.nan] * 9 + [2.3, 2.2]])
def test_a_training_loss_of_few_finite_values(losses, make, judge):
    validation = [make.series([2.3] * 9, role="val_loss"), make.series([0.1] * 9, role="val_accuracy")]
    result = judge(CODE, make.evidence(losses, *validation))
    assert result.verdict == "SkippedProbe"


def floored(classes, above, *, n=60, noise=0.02, seed=0):
    """A loss that comes down to a share above the least that two softmaxes allow, and scatters upwards from there."""
    floor = math.log(math.e + classes - 1.0) - 1.0
    span = math.log(classes) - floor
    course = floor + span * (above + (1.0 - above) * np.exp(-np.arange(n) / (n / 15)))
    return course + noise * span * np.abs(np.random.default_rng(seed).normal(size=n))


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("told", ["params", "head"])
def test_the_least_loss_of_two_softmaxes(classes, told, make, judge):
    def of(losses, accuracy=None):
        params = {"num_classes": str(classes)} if told == "params" else None
        weights = None
        if told == "head":
            weights = make.weights({"0.weight": (48, 20), "fc.weight": (classes, 48), "fc.bias": (classes,)})
        more = [] if accuracy is None else [make.series(np.full(10, accuracy), role="val_accuracy")]
        return judge(CODE, make.evidence(losses, *more, params=params, weights=weights))

    sick = of(floored(classes, 0.01))
    assert (sick.verdict, "two softmaxes" in sick.message) == ("warn", True)
    assert of(floored(classes, 0.01), 0.97).verdict == "warn"
    assert of(floored(classes, 0.01), 0.6).verdict != "warn"  # so large a loss fits so many wrong answers
    assert of(floored(classes, 0.1)).verdict == "SkippedProbe"
    assert of(floored(classes, -0.05)).verdict == "SkippedProbe"
    assert of(floored(classes, 0.01, n=18)).verdict == "SkippedProbe"
    falling = np.linspace(math.log(classes), floored(classes, 0.01)[-1], 60)
    assert of(falling).verdict == "SkippedProbe"


def test_a_least_loss_of_a_number_of_classes_that_nothing_tells(make, judge):
    assert judge(CODE, make.evidence(floored(10, 0.01))).verdict == "SkippedProbe"


@pytest.mark.parametrize(("twice", "verdict"), [(True, "warn"), (False, "SkippedProbe")])
def test_a_real_training_without_an_accuracy(twice, verdict, make, judge):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    for _ in range(400):
        labels = torch.randint(4, (64,))
        answers = model(torch.nn.functional.one_hot(labels, 16) * 4.0 + torch.randn(64, 16))
        loss = torch.nn.functional.cross_entropy(answers.softmax(-1) if twice else answers, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert judge(CODE, make.evidence(losses, params={"num_classes": "4"})).verdict == verdict
