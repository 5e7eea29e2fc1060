"""LOS013."""

import numpy as np
import pytest

from tracker_health.evidence import RunInfo

CODE = "LOS013"


def line(n, *, end=0.05, pace=6.0):
    """A loss without noise."""
    return end + 2.3 * np.exp(-pace * np.arange(n) / n)


def batches(n, *, noise=0.05, seed=0):
    """The same of batches that differ."""
    return line(n) * (1.0 + noise * np.random.default_rng(seed).standard_normal(n))


def logged(make, losses, *, per_epoch=20, **more):
    epochs = make.series(np.arange(len(losses)) // per_epoch, role="epoch")
    return make.evidence(losses, epochs, **more)


def test_worked_example(make, judge):
    """Neighbours on an exponential differ by 1 % each time: their third differences are nearly nothing."""
    result = judge(CODE, logged(make, 2.0 * 0.99 ** np.arange(60)))
    assert (result.verdict, result.steps) == ("warn", (30,))
    assert result.measured["roughness"] == pytest.approx(1.4826 * 0.01**2 / 20**0.5, rel=0.03)
    assert result.measured["points_per_epoch"] == 20.0


@pytest.mark.parametrize("n", [60, 300, 3000])
def test_one_batch_again_and_again(n, make, judge):
    result = judge(CODE, logged(make, line(n)))
    assert result.verdict == "warn"
    assert result.symptom == "overfit"
    assert result.measured["roughness"] < 0.015
    assert f"{n} points" in result.message


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.3, 0.03, 0.004])
@pytest.mark.parametrize("n", [60, 300, 3000])
def test_batches_that_differ(n, noise, seed, make, judge):
    assert judge(CODE, logged(make, batches(n, noise=noise, seed=seed))).verdict == "pass"


def smoothed(values, keeps=0.9):
    out, level = [], values[0]
    for value in values:
        level = keeps * level + (1.0 - keeps) * value
        out.append(level)
    return np.array(out)


def running_means(values, per_epoch):
    """Of each epoch's batches so far, as Keras shows them."""
    parts = np.split(values, np.arange(per_epoch, len(values), per_epoch))
    return np.concatenate([np.cumsum(part) / np.arange(1, len(part) + 1) for part in parts])


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(smoothed, id="moving average"),
        pytest.param(lambda values: smoothed(values, 0.99), id="slow moving average"),
        pytest.param(lambda values: running_means(values, 20), id="running means"),
        pytest.param(lambda values: values.reshape(-1, 10).mean(1), id="means of ten steps"),
    ],
)
@pytest.mark.parametrize("noise", [0.2, 0.05])
def test_ways_to_log_batches_that_differ(log, noise, make, judge):
    for seed in range(10):
        losses = log(batches(600, noise=noise, seed=seed))
        assert judge(CODE, logged(make, losses)).verdict == "pass"


@pytest.mark.parametrize("per_epoch", [1, 2])
def test_all_samples_at_once(per_epoch, make, judge):
    """A step an epoch has no noise where it is of all samples."""
    result = judge(CODE, logged(make, line(300), per_epoch=per_epoch))
    assert result.verdict == "SkippedProbe"
    assert "epochs" in result.reason["reason"]


def test_an_epoch_that_nothing_counts(make, judge):
    assert judge(CODE, make.evidence(line(300))).verdict == "SkippedProbe"


def test_epochs_of_the_plan(make, judge):
    told = make.evidence(line(300), params={"num_train_epochs": "10"}, info=None)
    assert judge(CODE, told).verdict == "SkippedProbe"  # how many were done is not known
    done = RunInfo(params={"num_train_epochs": "10"}, metric_names=("train_loss",), epoch=8.0)
    assert judge(CODE, make.evidence(line(300), info=done)).verdict == "warn"
    many = RunInfo(params={"num_train_epochs": "300"}, metric_names=("train_loss",), epoch=300.0)
    assert judge(CODE, make.evidence(line(300), info=many)).verdict == "SkippedProbe"


def test_a_beginning_too_steep_to_tell(make, judge):
    """Of a steep descent every tenth step was logged: its bends look like noise."""
    losses = np.concatenate([[3.6, 2.7, 1.1, 0.9, 0.3, 0.28, 0.1, 0.095, 0.06, 0.05], line(35, end=0.03)[15:] / 60.0])
    assert judge(CODE, logged(make, losses)).verdict == "warn"


def test_a_part_without_noise(make, judge):
    """Noise in any third is noise: the first steps of a steep descent hide theirs."""
    losses = line(300)
    losses[200:] = batches(300)[200:]
    assert judge(CODE, logged(make, losses)).verdict == "pass"


def test_what_rounding_hides(make, judge):
    """Two decimals of a loss that has come down to 0.05 are steps, and no line."""
    assert judge(CODE, logged(make, np.round(line(300, pace=20.0), 2))).verdict == "pass"


def test_few_points(make, judge):
    assert judge(CODE, logged(make, line(29))).verdict == "SkippedProbe"
    assert judge(CODE, logged(make, line(30))).verdict == "warn"


def test_a_flat_loss_says_nothing(make, judge):
    assert judge(CODE, logged(make, np.full(100, 0.7))).verdict == "pass"


def test_its_threshold(make, judge):
    evidence = logged(make, batches(300))
    measured = judge(CODE, evidence).measured["roughness"]
    assert judge(CODE, evidence, max_roughness=measured * 0.99).verdict == "pass"
    assert judge(CODE, evidence, max_roughness=measured * 1.01).verdict == "warn"


@pytest.mark.parametrize(("norms", "verdict"), [
    ("smooth", "warn"), ("noisy", "pass"), ("clipped", "warn"), ("few", "pass"), ("none", "pass"),
])  # fmt: skip
def test_gradient_norms_tell_where_the_loss_is_rounded_away(norms, verdict, make, judge):
    """Of one batch that was learnt by heart: the log has three decimals of the loss."""
    n = 300
    course = np.exp(-np.arange(n) / 60.0)
    rng = np.random.default_rng(0)
    losses = np.round(0.01 * course + 0.002 * rng.uniform(size=n), 3)
    smooth = 3.0 * course
    case = {
        "smooth": smooth, "noisy": smooth * (1 + 0.2 * rng.normal(size=n)), "clipped": np.minimum(smooth, 0.4),
        "few": smooth[::12], "none": None,
    }[norms]  # fmt: skip
    more = [] if case is None else [make.series(case, np.linspace(0, n - 1, len(case)).astype(int), role="grad_norm")]
    info = RunInfo(params={"epochs": "10"}, metric_names=("train_loss",), epoch=10.0)
    result = judge(CODE, make.evidence(losses, *more, info=info))
    assert (result.verdict, "gradient norm" in result.message) == (verdict, verdict == "warn")


@pytest.mark.parametrize(("end", "verdict"), [(0.3, "pass"), (0.9, "warn"), (1.4, "warn")])
def test_a_validation_loss_that_came_down_as_well(end, verdict, make, judge):
    """All samples at once, in several steps of what the run calls an epoch."""
    info = RunInfo(params={"num_train_epochs": "10"}, metric_names=("train_loss",), epoch=8.0)
    held_out = make.series(np.linspace(1.0, end, 12), role="val_loss")
    assert judge(CODE, make.evidence(line(300), held_out, info=info)).verdict == verdict
