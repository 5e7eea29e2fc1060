"""OPT006 and OPT007."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tracker_health
from tracker_health.evidence import TensorHeader, Weights
from tracker_health.evidence.parameters.steps import signal_to_noise, weighted_median
from tracker_health.rules.optimizer.update_too_large import UpdateTooLarge
from tracker_health.rules.optimizer.update_too_small import UpdateTooSmall

SMALL, LARGE = "OPT006", "OPT007"
NOISE = math.sqrt((1 - 0.9) / (1 + 0.9))


def evidence_of(
    make, sizes, *, rate, logged=True, initial=None, betas=None, names=None, step=1000.0, losses=None, **more
):
    """Matrices of 4 x n values with these root mean squares of their weights."""
    shapes = [(4, index + 2) for index in range(len(sizes))]
    moment = make.moment(1e-9)
    tensors = [make.tensor(index, 1e-6, shape=shape, step=step, first=moment) for index, shape in enumerate(shapes)]
    group = (
        {"lr": rate}
        | ({} if initial is None else {"initial_lr": initial})
        | ({} if betas is None else {"betas": betas})
    )
    headers = tuple(
        TensorHeader(name=(names or {}).get(index, f"layers.{index}.weight"), shape=shape, dtype="F32", rms=size)
        for index, (shape, size) in enumerate(zip(shapes, sizes, strict=True))
    )
    series = [make.series([rate] * 5, role="learning_rate")] if logged else []
    state = make.state(*tensors, groups=(group,))
    return make.evidence(
        losses, *series, **more, optimizer=state, weights=Weights(source="model.safetensors", tensors=headers)
    )


def level(share, n=200, back=0.0):
    """A loss that comes down by that share, and at the end goes back up by a part of it."""
    losses = 2.0 * (1 - share * (1 - np.exp(-10 * np.arange(n) / n)))
    losses[-n // 4 :] += 2.0 * share * back
    return losses + 0.001 * np.random.default_rng(0).standard_normal(n)


@pytest.mark.parametrize(
    ("share", "back", "verdict"),
    [(0.99, 0, "pass"), (0.8, 0, "pass"), (0.7, 0, "warn"), (0, 0, "warn"), (0.9, 0.3, "warn")],
)
def test_large_steps_that_did_no_harm(share, back, verdict, make, judge):
    """One-cycle AdamW at 0.01 in front of batch normalisation, whose scale does not matter."""
    result = judge(LARGE, evidence_of(make, [0.018], rate=0.01, losses=level(share, back=back)))
    assert result.verdict == verdict
    if verdict == "pass":
        assert "did no harm" in result.message


def test_a_loss_that_the_first_steps_threw_up_speaks_for_nothing(make, judge):
    losses = np.concatenate([[2538.0, 425.0, 3.2], 2.4 + 0.05 * np.random.default_rng(0).standard_normal(43)])
    assert judge(LARGE, evidence_of(make, [0.018], rate=0.01, losses=losses)).verdict == "warn"


@pytest.mark.parametrize(
    ("share", "params", "verdict"),
    [
        (0.35, {}, "pass"), (0.06, {}, "pass"), (0.03, {}, "fail"), (0.0, {}, "fail"), (0.35, {"base_model": "b"}, "pass"),
        (0.03, {"base_model": "b"}, "pass"), (0.005, {"base_model": "b"}, "warn"),
    ],
)  # fmt: skip
def test_small_steps_and_what_the_loss_says(share, params, verdict, make, judge):
    """Preference tuning of a whole model at 5e-7."""
    evidence = evidence_of(make, [0.02], rate=5e-7, losses=level(share), params=params)
    assert judge(SMALL, evidence).verdict == verdict


def grouped(make, groups, sizes, *rates, losses=None):
    """Two matrices, each in a group of its own."""
    shapes = [(4, 2), (4, 3)]
    moment = make.moment(1e-9)
    tensors = [make.tensor(key, 1e-6, shape=shape, first=moment, group=key) for key, shape in enumerate(shapes)]
    headers = tuple(
        TensorHeader(name=f"l.{key}.weight", shape=shape, dtype="F32", rms=size)
        for key, (shape, size) in enumerate(zip(shapes, sizes, strict=True))
    )
    series = [make.series(one, role="learning_rate", name=f"lr{key}") for key, one in enumerate(rates)]
    weights = Weights(source="w", tensors=headers)
    return make.evidence(losses, *series, optimizer=make.state(*tensors, groups=tuple(groups)), weights=weights)


def test_each_matrix_has_the_rate_of_its_own_group(make, judge):
    """The backbone at 1e-5 and the head at 0.01; the head is larger. The median is the smaller matrix's, by values."""
    groups = ({"lr": 1e-5, "initial_lr": 1e-5}, {"lr": 1e-2, "initial_lr": 1e-2})
    measured = judge(LARGE, grouped(make, groups, [0.02, 0.06])).measured
    assert measured["update_ratio"] == pytest.approx(1e-2 * NOISE / 0.06)
    assert measured["peak_rate"] == 1e-2
    swapped = judge(LARGE, grouped(make, groups[::-1], [0.02, 0.06])).measured
    assert swapped["update_ratio"] == pytest.approx(1e-5 * NOISE / 0.06)


def test_a_logged_rate_is_the_groups_that_it_ends_at(make, judge):
    groups = ({"lr": 1e-5}, {"lr": 1e-4})
    rates = ([1e-3, 1e-5], [1e-2, 1e-4])
    assert judge(LARGE, grouped(make, groups, [0.1, 0.1], *rates)).measured["peak_rate"] == 1e-2
    # Nobody's: a rate that has come down to 0, or to none of them.
    for last in (0.0, 3e-5):
        alone = judge(LARGE, grouped(make, groups, [0.1, 0.1], [5e-2, last]))
        assert alone.measured["peak_rate"] == 1e-4
        assert judge(SMALL, grouped(make, groups, [0.1, 0.1], [5e-2, last])).verdict == "SkippedProbe"
    # With and without weight decay, but one rate: everybody's.
    alike = ({"lr": 0.0, "initial_lr": 1e-3}, {"lr": 0.0, "initial_lr": 1e-3})
    assert judge(LARGE, grouped(make, alike, [0.1, 0.1], [2e-3, 0.0])).measured["peak_rate"] == 2e-3


def test_the_peak_that_a_one_cycle_schedule_remembers(make, judge):
    """OneCycleLR begins and remembers a 25th of it as the initial rate."""
    group = {"lr": 8e-11, "initial_lr": 8e-7, "max_lr": 2e-5, "min_lr": 8e-11}
    result = judge(SMALL, grouped(make, (group, group), [0.02, 0.02]))
    assert (result.verdict, result.measured["peak_rate"]) == ("pass", 2e-5)


@given(size=st.floats(1e-3, 10), rate=st.floats(1e-9, 1.0))
def test_one_matrix(size, rate, make, judge):
    ratio = rate * NOISE / size
    scale = size * math.sqrt(2)  # of four rows and two columns
    large_limit = UpdateTooLarge.max_ratio / (2 if scale > UpdateTooLarge.grown else 1)
    assume(all(abs(ratio / limit - 1) > 1e-6 for limit in (UpdateTooSmall.min_ratio, large_limit)))
    evidence = evidence_of(make, [size], rate=rate)
    small, large = judge(SMALL, evidence), judge(LARGE, evidence)
    assert small.measured["update_ratio"] == pytest.approx(ratio, rel=1e-6)
    assert small.verdict == ("warn" if ratio < UpdateTooSmall.min_ratio else "pass")
    flat = judge(SMALL, evidence_of(make, [size], rate=rate, losses=level(0.0)))
    assert flat.verdict == ("fail" if ratio < UpdateTooSmall.min_ratio else "pass")
    assert large.verdict == ("warn" if ratio > large_limit else "pass")
    assert large.measured["weight_scale"] == pytest.approx(scale, rel=1e-6)


@given(pairs=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 9)), max_size=12))
def test_the_weighted_median_against_repetition(pairs):
    repeated = sorted(value for value, weight in pairs for _ in range(weight))
    expected = repeated[(len(repeated) - 1) // 2] if repeated else None
    assert weighted_median(pairs) == expected


def test_the_highest_logged_rate_counts(make, judge):
    evidence = evidence_of(make, [0.1], rate=1e-3)
    peak = make.series([0.0, 0.5, 0.2, 0.0], role="learning_rate", name="lr2")
    both = make.evidence(None, *evidence.series, peak, optimizer=evidence.optimizer, weights=evidence.weights)
    assert judge(LARGE, both).measured["peak_rate"] == 0.5


def test_a_rate_that_was_only_set_last_is_not_called_too_small(make, judge):
    last = evidence_of(make, [0.1], rate=1e-12, logged=False)
    assert judge(SMALL, last).verdict == "SkippedProbe"
    assert judge(SMALL, evidence_of(make, [0.1], rate=1e-12, logged=False, initial=1e-3)).verdict == "pass"
    assert judge(LARGE, evidence_of(make, [0.1], rate=1.0, logged=False)).verdict == "warn"


@pytest.mark.parametrize(
    ("last", "logged", "peak", "words"),
    [
        (0.0, None, 1e-3, "the schedule's learning rate, 0.001 (how high it came is not logged)"),
        (1e-3, None, 1e-3, "the highest learning rate, 0.001"),  # a constant one
        (4e-4, np.linspace(0, 4e-4, 20), 4e-4, "the highest learning rate, 0.0004"),  # a warm-up that never ended
        (0.0, np.linspace(1e-3, 0, 20), 1e-3, "the highest learning rate, 0.001"),
        (0.0, [1e-5, 0.0], 1e-3, "the schedule's learning rate, 0.001 (how high it came is not logged)"),
        (0.0, [0.0] * 20, 1e-3, "the schedule's learning rate, 0.001 (how high it came is not logged)"),  # rounded
    ],
)
def test_a_rate_is_called_the_highest_where_it_was_reached(last, logged, peak, words, make, judge):
    evidence = evidence_of(make, [0.1], rate=last, logged=False, initial=1e-3)
    if logged is not None:
        rates = make.series(logged, role="learning_rate")
        evidence = make.evidence(None, rates, optimizer=evidence.optimizer, weights=evidence.weights)
    for code in (SMALL, LARGE):
        result = judge(code, evidence)
        assert result.message.startswith(f"one step at {words}, changes the weights by ")
        assert result.measured["peak_rate"] == peak


def test_a_log_that_begins_in_the_middle_does_not_tell_the_highest_rate(make, judge):
    evidence = evidence_of(make, [0.1], rate=0.0, logged=False, initial=1e-3)
    rates = make.series(np.linspace(1e-4, 0, 20), range(1000, 1020), role="learning_rate")
    evidence = make.evidence(None, rates, optimizer=evidence.optimizer, weights=evidence.weights)
    assert judge(LARGE, evidence).measured["peak_rate"] == 1e-3


def test_the_last_rate_is_called_that(make, judge):
    message = judge(LARGE, evidence_of(make, [0.1], rate=1e-3, logged=False)).message
    assert message.startswith("one step at the last learning rate, 0.001, changes the weights by ")


@pytest.mark.parametrize(
    ("log", "words"), [(True, "the highest learning rate, 0.0005"), (False, "the schedule's learn")]
)
def test_a_real_warm_up_that_is_longer_than_the_training(log, words, tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
    lines = []
    for step in range(100):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).square().mean()
        loss.backward()
        lines.append(f"{step},{float(loss.detach())}" + f",{schedule.get_last_lr()[0]}" * log + "\n")
        optimizer.step()
        schedule.step()
    (tmp_path / "metrics.csv").write_text("step,loss" + ",lr" * log + "\n" + "".join(lines))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 100}, tmp_path / "last.pt")
    results = {one.code: one for one in tracker_health.check(tmp_path).results}
    assert all(results[code].message.startswith(f"one step at {words}") for code in (SMALL, LARGE))


def test_the_second_factor_of_an_adapter_is_left_out(make, judge):
    names = {0: "model.q.lora_A.weight", 1: "model.q.lora_B.weight"}
    result = judge(LARGE, evidence_of(make, [0.1, 1e-6], rate=1e-3, names=names))
    assert result.verdict == "pass"
    assert result.measured["update_ratio"] == pytest.approx(1e-3 * NOISE / 0.1)


def test_other_betas(make, judge):
    result = judge(LARGE, evidence_of(make, [0.1], rate=1e-3, betas=(0.5, 0.99)))
    assert result.measured["update_ratio"] == pytest.approx(1e-3 * math.sqrt(0.5 / 1.5) / 0.1)


@pytest.mark.parametrize("size", [0.0, float("nan"), float("inf"), None, 1e200])
def test_weights_without_a_size_tell_nothing(size, make, judge):
    evidence = evidence_of(make, [size], rate=1e-3)
    assert [judge(code, evidence).verdict for code in (SMALL, LARGE)] == ["SkippedProbe"] * 2


@pytest.mark.parametrize("rate", [0.0, float("nan"), -1.0])
def test_a_rate_that_is_none_tells_nothing(rate, make, judge):
    evidence = evidence_of(make, [0.1], rate=rate)
    assert [judge(code, evidence).verdict for code in (SMALL, LARGE)] == ["SkippedProbe"] * 2


def test_vectors_are_left_out(make, judge):
    tensor = make.tensor(0, 1e-6, shape=(16,), first=make.moment(1e-9))
    weights = Weights(source="w", tensors=(TensorHeader(name="b", shape=(16,), dtype="F32", rms=1e-9),))
    evidence = make.evidence(
        make.series([1.0] * 9), optimizer=make.state(tensor, groups=({"lr": 1.0},)), weights=weights
    )
    assert judge(LARGE, evidence).verdict == "SkippedProbe"


def test_signal_to_noise_against_adams_own_numbers(tmp_path, make):
    torch = pytest.importorskip("torch")
    from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state

    torch.manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(7, 5))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, betas=(0.8, 0.95))
    for _ in range(37):
        weight.grad = torch.randn(7, 5) + 0.3
        optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    state = read_optimizer_state(tmp_path / "optimizer.pt", "optimizer.pt")
    kept = optimizer.state[weight]
    first = kept["exp_avg"].double() / (1 - 0.8**37)
    second = kept["exp_avg_sq"].double() / (1 - 0.95**37)
    assert signal_to_noise(state, state.tensors[0]) == pytest.approx(float((first**2 / second).mean()), rel=1e-5)
    assert signal_to_noise(state, state.tensors[0], fewest_steps=38) is None


def by_sgd(make, sizes, *, moment, rate=0.1, steps=1000, logged=True, losses=None, **more):
    """Matrices of 4 x n values under SGD, whose momentum has this root mean square."""
    shapes = [(4, index + 2) for index in range(len(sizes))]
    tensors = [
        make.tensor(index, None, shape=shape, step=None, first=make.moment(moment), kind="momentum")
        for index, shape in enumerate(shapes)
    ]
    headers = tuple(
        TensorHeader(name=f"layers.{index}.weight", shape=shape, dtype="F32", rms=size)
        for index, (shape, size) in enumerate(zip(shapes, sizes, strict=True))
    )
    series = [make.series([rate] * 5, role="learning_rate")] if logged else []
    state = make.state(*tensors, groups=({"lr": rate, "momentum": 0.9},), global_step=steps)
    return make.evidence(
        level(0.0) if losses is None else losses, *series, **more, optimizer=state,
        weights=Weights(source="model.safetensors", tensors=headers),
    )  # fmt: skip


def test_sgd_that_could_not_have_moved(make, judge):
    """Gradients that are clipped to nearly nothing."""
    result = judge(SMALL, by_sgd(make, [0.1, 0.2], moment=1e-7))
    assert result.verdict == "fail"
    # 0.1 * 1e-7 * 1000 steps over 0.2, the larger matrix's
    assert result.measured["reach"] == pytest.approx(5e-5)
    assert "100 times" in result.remedy
    assert judge(SMALL, by_sgd(make, [0.1, 0.2], moment=1e-7), min_reach=4e-5).verdict == "pass"


def test_sgd_that_moved(make, judge):
    assert judge(SMALL, by_sgd(make, [0.1, 0.2], moment=1e-3)).verdict == "pass"


def test_sgd_whose_gradients_are_gone_for_all_is_learnt(make, judge):
    """What is left of the momentum at the end is small where everything is learnt."""
    result = judge(SMALL, by_sgd(make, [0.1], moment=1e-9, losses=level(0.9)))
    assert result.verdict == "pass"
    assert "was enough" in result.message


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"logged": False}, id="a schedule may have lowered the rate"),
        pytest.param({"losses": [2.0, 1.9]}, id="no loss tells"),
        pytest.param({"steps": None}, id="steps that nothing counts"),
    ],
)
def test_what_sgd_does_not_tell(more, make, judge):
    assert judge(SMALL, by_sgd(make, [0.1], moment=1e-9, **more)).verdict == "SkippedProbe"


def test_a_fine_tune_by_sgd(make, judge):
    result = judge(SMALL, by_sgd(make, [0.1], moment=1e-9, params={"base_model": "base"}))
    assert result.verdict == "warn"
