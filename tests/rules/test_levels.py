"""Where a curve begins, and what training came to: no verdict rests on one value, none on how often it was logged."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

EVERY = (1, 2, 4, 8, 16)


def trained(*, rate, scale=1.0, steps=800, wrong_labels=0.0, seed=0):
    """Losses and accuracies of each step of a small classifier's training among five classes, with Adam.

    ``scale``: by what its answers are multiplied at first.
    """
    torch.manual_seed(seed)
    inputs, weights = torch.randn(512, 20), torch.randn(20, 5)
    labels = (inputs @ weights).argmax(1)
    layers = [torch.nn.Linear(20, 64), torch.nn.ReLU()]
    for _ in range(2):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 5))
    sharpness = torch.nn.Parameter(torch.tensor(scale).log())
    optimizer = torch.optim.Adam([{"params": net.parameters()}, {"params": [sharpness], "lr": 0.3}], lr=rate)
    losses, accuracies = [], []
    for _ in range(steps):
        batch = torch.randint(0, 512, (32,))
        wrong = torch.rand(32) < wrong_labels
        right = torch.where(wrong, torch.randint(0, 5, (32,)), labels[batch])
        answers = net(inputs[batch]) * sharpness.exp()
        loss = torch.nn.functional.cross_entropy(answers, right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        accuracies.append((answers.argmax(1) == right).float().mean().item())
    return np.array(losses), np.array(accuracies)


@pytest.fixture(scope="module")
def destroyed():
    return trained(rate=3.0)


@pytest.fixture(scope="module")
def badly_begun():
    return trained(rate=0.003, scale=1e5, wrong_labels=0.2)


def logged(make, run, every, **more):
    losses, accuracies = (values[every - 1 :: every] for values in run)
    steps = np.arange(every, every * len(losses) + 1, every)
    return make.evidence(make.series(losses, steps), make.series(accuracies, steps, role="train_accuracy"), **more)


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("params", [{}, {"num_classes": "5"}])
@pytest.mark.thinned(2)
def test_a_destroyed_run_fails_however_often_it_was_logged(every, params, destroyed, make, report):
    """The loss exploded with the first steps, and came down to guessing (ln 5 = 1.61): nothing was learnt."""
    found = report(logged(make, destroyed, every, params=params))
    assert found.verdict == "fail"
    assert found.diagnosis.cause in ("learning-rate-too-high", "diverged-cause-unknown")


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("params", [{}, {"num_classes": "5"}])
@pytest.mark.thinned(2)
def test_a_run_that_began_as_high_and_learnt_does_not_fail(every, params, badly_begun, make, report):
    losses, _ = badly_begun
    assert losses[0] > 1000.0
    assert np.median(losses[-100:]) < 1.3
    found = report(logged(make, badly_begun, every, params=params))
    told = {one.code for one in found.findings}
    assert found.verdict in ("pass", "warn")
    assert told <= {"LOS009"}, "that it began high may be said"


def test_a_loss_of_another_kind_that_ends_at_the_logarithm_of_the_classes_is_left_alone(make, judge):
    """A sum of several losses, of a detector for instance, without an accuracy."""
    rng = np.random.default_rng(0)
    losses = 5.0 + 20.0 * np.exp(-np.arange(400) / 60.0) + 0.1 * rng.standard_normal(400)
    for code in ("LOS005", "LOS006"):
        assert judge(code, make.evidence(losses, params={"num_classes": "91"})).verdict == "pass"


# The first value alone


def falling(n=80, seed=0):
    return 0.3 + 2.0 * np.exp(-np.arange(n) / 20.0) + 0.03 * np.random.default_rng(seed).standard_normal(n)


@pytest.mark.parametrize("first", [0.0, 0.0231, 0.23])
@pytest.mark.parametrize("n", [12, 80, 1000])
def test_a_first_sum_of_one_batch_that_was_divided_by_a_hundred(first, n, make, report):
    losses = np.concatenate([[first], 0.5 + 2.0 * np.exp(-np.arange(n) / (n / 4.0))])
    assert report(make.evidence(losses, steps=np.arange(n + 1) * 100)).verdict == "pass"


def test_a_first_value_that_the_end_comes_back_to_is_where_it_began(make, judge):
    """A loss that exploded with its first step and came back to where it had been."""
    losses = np.concatenate([[2.3], 2.3 + 80.0 * np.exp(-np.arange(100) / 15.0)])
    assert judge("LOS004", make.evidence(losses)).verdict == "fail"


def test_a_high_first_value_is_no_descent(make, judge):
    flat = 0.693 + 0.003 * np.random.default_rng(1).standard_normal(240)
    alone = make.evidence(np.concatenate([[1.12], flat]))
    assert judge("LOS006", alone).verdict == "warn"
    found = judge("LOS005", alone)
    assert (found.verdict, found.kind) == ("warn", "flat")
    assert judge("LOS005", make.evidence(flat)).verdict == "fail"


def test_of_a_short_log_a_high_first_value_says_nothing(make, judge):
    flat = 0.693 + 0.003 * np.random.default_rng(1).standard_normal(30)
    found = judge("LOS005", make.evidence(np.concatenate([[1.12], flat])))
    assert "only the first value of the loss is higher" in found.reason["reason"]


@pytest.mark.parametrize("n", [8, 40, 80, 1000])
def test_a_high_first_value_before_a_descent_counts(n, make, judge):
    losses = np.concatenate([[9.3], falling(n)])
    assert make.evidence(losses).curve("train_loss").start.value > 2.0
    for code in ("LOS004", "LOS005"):
        assert judge(code, make.evidence(losses)).verdict == "pass"


def test_a_task_that_grows_at_first(make, judge):
    """As while a queue of negatives fills: it falls for the rest of the run."""
    rng = np.random.default_rng(0)
    losses = np.concatenate([[6.9, 7.6, 8.3, 9.1], 7.2 + 2.6 * np.exp(-np.arange(156) / 60.0)])
    losses += 0.04 * rng.standard_normal(160)
    for code in ("LOS004", "LOS005", "LOS007", "LOS008"):
        assert judge(code, make.evidence(losses)).verdict == "pass", code
    stays = np.concatenate([losses[:40], np.full(120, losses[40])])
    assert judge("LOS005", make.evidence(stays + 0.04 * rng.standard_normal(160))).verdict in ("fail", "warn")


# A loss near 0


def test_of_a_loss_that_is_0_in_print_small_values_are_no_divergence(make, judge):
    losses = np.zeros(60)
    losses[40:46] = 0.03
    assert judge("LOS004", make.evidence(losses)).verdict == "pass"
    losses[40:] = 300.0
    assert judge("LOS004", make.evidence(losses)).verdict == "fail"


@pytest.mark.parametrize("digits", [3, 4, 5])
def test_a_descent_to_the_last_digit_is_rounded(digits, make, judge):
    halved = np.round(0.61 * 0.5 ** np.arange(32), digits)
    assert judge("LOS002", make.evidence(halved)).verdict == "pass"


def test_zeros_from_the_beginning_on_beside_finite_evaluations(make, report):
    losses = np.zeros(60)
    losses[[3, 21, 58]] = 0.02, 0.03, 0.05
    held_out = make.series(np.linspace(0.41, 0.24, 6), np.arange(10, 61, 10), role="val_loss")
    assert report(make.evidence(losses, held_out)).verdict == "pass"


@pytest.mark.parametrize(("kept", "verdict"), [(True, "pass"), (False, "warn")])
def test_zeros_of_batches_that_are_all_right(kept, verdict, make, judge):
    """A model of NaN answers like one that guesses."""
    losses = np.concatenate([2.0 * np.exp(-np.arange(60) / 12.0), np.zeros(20)])
    right = np.concatenate([np.linspace(0.2, 1.0, 60), np.full(20, 1.0 if kept else 0.1)])
    found = judge("LOS002", make.evidence(losses, make.series(right, role="train_accuracy")))
    assert found.verdict == verdict


# Gradient norms that are means


@pytest.mark.parametrize(("falls", "verdict"), [(True, "pass"), (False, "fail")])
def test_norms_that_are_infinite_while_the_loss_falls(falls, verdict, make, judge):
    losses = np.linspace(0.31, 0.12, 30) if falls else np.full(30, 0.3)
    norms = make.series(np.full(30, np.inf), role="grad_norm")
    assert judge("GRD001", make.evidence(losses, norms)).verdict == verdict


def test_norms_that_are_infinite_after_the_loss_had_fallen(make, judge):
    losses = np.concatenate([np.linspace(2.0, 1.0, 60), np.full(20, 1.0)])
    norms = np.ones(80)
    norms[[10, *range(60, 80)]] = np.inf
    assert judge("GRD001", make.evidence(losses, make.series(norms, role="grad_norm"))).verdict == "fail"


# A second stage


def test_a_second_stage_whose_epochs_begin_again(make, report):
    losses = [1.52, 1.3, 1.13, 0.96, 0.84, 0.72, 0.62, 0.52, 0.46, 0.39, 0.33]
    found = report(make.evidence(losses, steps=[1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5]))
    assert found.verdict == "pass"


def test_what_is_said_of_one_nan(make, report):
    losses = np.linspace(2.0, 1.0, 200)
    losses[61] = np.nan
    found = report(make.evidence(losses))
    assert found.verdict == "warn"
    assert "at step 61 alone, and finite again" in found.diagnosis.sentence
    assert "restart" not in found.diagnosis.action.text


@pytest.mark.parametrize("every", [1, 2, 4, 8])
def test_a_loss_alone_that_exploded_and_came_back_to_its_first_value_is_flagged(every, make, report):
    """Nothing says how many answers there are: the end confirms the first value, which is a level then."""
    random = np.random.default_rng(0)
    losses = np.r_[1.61, 1.61 + 250 * np.exp(-np.arange(799) / 60)] * random.lognormal(0, 0.03, 800)
    found = report(make.evidence(make.series(losses[::every], np.arange(0, 800, every))))
    assert str(found.verdict) in {"warn", "fail"}
    assert found.diagnosis.cause in {"learning-rate-too-high", "diverged-cause-unknown"}


@pytest.mark.parametrize("end", [0.1, 0.4])
def test_a_first_value_that_is_a_hundredth_is_no_start(end, make, report):
    random = np.random.default_rng(1)
    losses = np.r_[0.0227, end + 2.2 * np.exp(-np.arange(99) / 15)] * random.lognormal(0, 0.02, 100)
    assert str(report(make.evidence(make.series(losses, np.arange(100)))).verdict) == "pass"
