"""LRS001."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker_health.probes.schedule import Schedule
from tracker_health.readers.saved_schedule import saved_schedules

CODE = "LRS001"
RULE = Schedule()
FEW = settings(max_examples=120, deadline=None)


def evidence_of(make, *rates, losses=None):
    series = [make.series(one, role="learning_rate", name=f"lr/{index}") for index, one in enumerate(rates)]
    return make.evidence(losses, *series)


def rates(name, n=100, peak=3e-4):
    progress = np.arange(n) / (n - 1)
    return (
        peak
        * {
            "constant": np.ones(n),
            "linear decay to 0": 1 - progress,
            "cosine to 0": 0.5 * (1 + np.cos(np.pi * progress)),
            "one cycle": np.where(
                progress < 0.3, 0.04 + 0.96 * progress / 0.3, 0.5 * (1 + np.cos(np.pi * (progress - 0.3) / 0.7))
            ),
            "warm-up, then constant": np.minimum(progress / 0.1, 1),
            "warm-up, then linear decay": np.minimum(progress / 0.1, (1 - progress) / 0.9),
            "cosine restarts": 0.5 * (1 + np.cos(np.pi * (4 * progress % 1))),
            "step decay": 0.1 ** np.floor(3 * progress),
            "exponential decay": 0.95 ** np.arange(n),
            "inverse square root": 1 / np.sqrt(1 + np.arange(n)),
            "cyclic": np.abs(2 * (5 * progress % 1) - 1) + 0.1,
            "doubled once": np.where(progress < 0.5, 1.0, 2.0),
            "grown by a half": 1 + 0.5 * progress,
        }[name]
    )


HEALTHY = (
    "constant", "linear decay to 0", "cosine to 0", "one cycle", "warm-up, then constant", "warm-up, then linear decay",
    "cosine restarts", "step decay", "exponential decay", "inverse square root", "cyclic", "doubled once", "grown by a half",
)  # fmt: skip


@pytest.mark.parametrize("n", [8, 12, 60, 1000])
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy(name, n, make, judge):
    if name == "exponential decay" and n == 1000:
        n = 200
    result = judge(CODE, evidence_of(make, rates(name, n)))
    assert result.verdict == "pass", result.message
    assert f"{result.measured['peak']:.4g}" in result.message


def test_all_zero(make, judge):
    result = judge(CODE, evidence_of(make, np.zeros(60)))
    assert result.verdict == "fail"
    assert "0 at all 60 points" in result.message
    assert "optimizer steps" in result.remedy


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [12, 60, 400])
def test_a_rate_that_the_log_rounds_to_zero(n, seed, healthy, make, judge):
    """Four decimals of 2e-5: the loss could not have come down at a rate of 0."""
    rounded = np.round(2e-5 * (1 + np.cos(np.pi * np.arange(n) / n)), 4)
    result = judge(CODE, evidence_of(make, rounded, losses=healthy.descent(seed, n=n)))
    assert (result.verdict, result.confidence) == ("pass", "low")
    assert f"logged as 0 at all {n} points" in result.message


@pytest.mark.parametrize("n", [8, 20, 60, 500])
def test_a_rate_of_zero_beside_a_loss_that_only_wanders(n, sick, make, judge):
    for seed in range(20):
        losses = 2.0 + 0.2 * np.random.default_rng(seed).standard_normal(n)
        assert judge(CODE, evidence_of(make, np.zeros(60), losses=losses)).verdict == "fail"
    assert judge(CODE, evidence_of(make, np.zeros(60), losses=sick.drifting_up()[200:])).verdict == "fail"


@pytest.mark.parametrize(("end", "verdict"), [(0.899, "pass"), (0.901, "fail")])
def test_boundary_of_a_loss_that_came_down(end, verdict, make, judge):
    losses = np.repeat([1.0, end], 40)
    assert judge(CODE, evidence_of(make, np.zeros(60), losses=losses)).verdict == verdict


def test_zero_for_most_of_the_run(make, judge):
    """A schedule laid out for a tenth of the steps; in the second case it creeps on at a billionth."""
    for rest in (0.0, 1e-9):
        values = np.full(200, rest * 3e-4)
        values[:20] = rates("linear decay to 0", 20)
        result = judge(CODE, evidence_of(make, values))
        assert result.verdict == "warn"
        assert f"0 for {result.measured['zero_share']:.0%} of the run, after a peak of 0.0003" in result.message


@pytest.mark.parametrize("n", [8, 60, 1000])
def test_a_warm_up_that_never_ends(n, make, judge):
    """Counted in optimizer steps where it should have been epochs, or the other way round."""
    result = judge(CODE, evidence_of(make, 1e-9 + 3e-4 * np.arange(n) / 50_000))
    assert result.verdict == "warn"
    assert "still rising when the run ended" in result.message


def test_a_warm_up_stepped_once_per_epoch(make, judge):
    """Every rate is there five times; more than half of the logged points have to rise, else it is a staircase."""
    assert judge(CODE, evidence_of(make, np.repeat(np.arange(1.0, 21), 5)[:96])).verdict == "pass"
    twice = np.delete(np.repeat(np.arange(1.0, 21), 2), np.arange(0, 38, 6))[:-1]
    assert judge(CODE, evidence_of(make, twice)).verdict == "warn"


@pytest.mark.parametrize("decimals", [4, 5, 6, 8])
@pytest.mark.parametrize("points", [12, 60, 1000])
@pytest.mark.parametrize("levels", [3.3, 5.7, 9.2])
@pytest.mark.parametrize("first", [0, 1])
def test_a_warm_up_that_the_log_rounds(first, levels, points, decimals, make, judge):
    """0.000001, 0.000001, 0.000002, ...: printed with so many decimals it repeats itself, and still rises."""
    rising = (first + np.linspace(0.0, levels, points)) * 10.0**-decimals
    assert judge(CODE, evidence_of(make, np.round(rising, decimals))).verdict == "warn"
    # It has come to its rate, and stays there.
    reached = np.concatenate([rising[: points // 2], np.full(points - points // 2, rising[points // 2])])
    assert judge(CODE, evidence_of(make, np.round(reached, decimals))).verdict == "pass"
    beside = evidence_of(make, np.round(rising, decimals), losses=3 * np.exp(-np.arange(200) / 10) + 1)
    assert judge(CODE, beside).verdict == "pass", "the loss has levelled off"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1, 1, 2, 2, 3, 3, 4, 4], "warn"),
        ([1, 1, 2, 2, 3, 3, 4, 4, 4], "pass"),  # printed more often than any before: it may have been reached
        ([1, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4], "warn"),
        ([1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4], "pass"),  # the first value may be printed as often as it likes
        ([1, 1, 2, 2, 3, 3], "pass"),  # two rises are no rounding
        ([1, 1, 2, 2, 4, 4, 5, 5, 6, 6], "pass"),  # by two of the decimal, and repeated: a staircase
        ([1, 1, 2, 2, 3, 3, 2, 2, 3, 3, 4, 4], "pass"),  # back
        ([1.5, 1.5, 2.5, 2.5, 3.5, 3.5, 4.5, 4.5], "pass"),  # no such decimal
        ([3, 3, 4, 4, 5, 5, 6, 6], "pass"),  # no more than twice the first
    ],
)
def test_rises_by_the_last_decimal(values, verdict, make, judge):
    assert judge(CODE, evidence_of(make, np.round(np.array(values) * 1e-6, 7))).verdict == verdict
    assert judge(CODE, evidence_of(make, np.array(values) * 3.7e-6)).verdict == "pass"


def rises_by_decimals(values):
    """The same once more: which numbers were printed how often, and by how much each lies above the one before."""
    printed = [(value, len(list(group))) for value, group in itertools.groupby(values)]
    for decimals in range(3, 13):
        whole = [value * 10**decimals for value, _ in printed]
        if all(abs(one - round(one)) < 1e-6 for one in whole) and len(whole) > 3:
            by_one = all(round(b) - round(a) == 1 for a, b in itertools.pairwise(whole))
            if by_one:
                return printed[-1][1] <= max(often for _, often in printed[1:-1])
    return False


@FEW
@given(
    often=st.lists(st.integers(1, 4), min_size=2, max_size=9),
    first=st.integers(0, 2),
    decimals=st.integers(2, 13),
    skips=st.booleans(),
)
def test_rounded_rates_against_plain_python(often, first, decimals, skips, make, judge):
    numbers = [first + index + (skips and index == len(often) - 1) for index in range(len(often))]
    values = [
        round(one * 10.0**-decimals, decimals) for one, times in zip(numbers, often, strict=True) for _ in range(times)
    ]
    if len(values) < RULE.min_points:
        return
    moves = [b - a for a, b in itertools.pairwise(values)]
    rises = moves[-1] > 0 and sum(move > 0 for move in moves) > len(moves) / 2
    rising = values[-1] > 2 * values[0] and (rises or rises_by_decimals(values))
    idle = values.count(0.0) / len(values) > 0.5
    assert judge(CODE, evidence_of(make, values)).verdict == ("warn" if idle or rising else "pass")


@pytest.mark.parametrize(
    ("name", "verdict"), [("settled", "pass"), ("descent", "warn"), ("at_chance", "warn"), ("short", "warn")]
)
def test_a_rising_rate_whose_loss_levelled_off_passes(name, verdict, healthy, sick, make, judge):
    losses = {
        "settled": healthy.descent(rate=20.0),
        "descent": healthy.descent(rate=1.0),
        "at_chance": sick.at_chance(),
        "short": healthy.descent(rate=20.0)[::60],
    }[name]
    assert judge(CODE, evidence_of(make, np.linspace(0, 1, 100), losses=losses)).verdict == verdict


def test_a_frozen_group_beside_a_live_one(make, judge):
    assert judge(CODE, evidence_of(make, np.zeros(100), rates("cosine to 0"))).verdict == "pass"
    assert judge(CODE, evidence_of(make, rates("constant"), np.zeros(200))).verdict == "pass"
    assert judge(CODE, evidence_of(make, np.zeros(100), np.zeros(100))).verdict == "fail"
    assert judge(CODE, evidence_of(make, rates("constant", peak=1e-5), np.linspace(0, 1e-3, 100))).verdict == "warn"


@pytest.mark.parametrize(("idle", "verdict"), [(50, "pass"), (51, "warn")])
def test_boundary_of_the_zero_share(idle, verdict, make, judge):
    assert RULE.zero_share == 0.5
    assert judge(CODE, evidence_of(make, [1.0] * (100 - idle) + [0.0] * idle)).verdict == verdict


@pytest.mark.parametrize(("rest", "verdict"), [(1.1e-6, "pass"), (0.9e-6, "warn")])
def test_boundary_of_almost_zero(rest, verdict, make, judge):
    assert judge(CODE, evidence_of(make, [1.0] * 40 + [rest] * 60)).verdict == verdict


@pytest.mark.parametrize(("end", "verdict"), [(2.0, "pass"), (2.0001, "warn")])
def test_boundary_of_the_rise(end, verdict, make, judge):
    assert judge(CODE, evidence_of(make, np.linspace(1.0, end, 50))).verdict == verdict


@pytest.mark.parametrize("change", ["last repeats", "one step down"])
def test_one_point_that_does_not_rise(change, make, judge):
    values = np.linspace(0.0, 1.0, 50)
    if change == "last repeats":
        values[-1] = values[-2]
    else:
        values[25] = values[24] - 1e-9
    assert judge(CODE, evidence_of(make, values)).verdict == "pass"


def test_nan_and_few_points(make, judge):
    assert judge(CODE, evidence_of(make, [1e-3, np.nan] * 10)).verdict == "pass"
    assert judge(CODE, evidence_of(make, [np.nan] * 10)).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.0] * (RULE.min_points - 1))).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.0] * RULE.min_points)).verdict == "fail"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@FEW
@given(
    values=st.lists(st.sampled_from([0.0, 1e-9, 0.5, 1.0]) | st.floats(0, 1), min_size=5, max_size=40),
    ordered=st.booleans(),
    zero_share=st.floats(0.01, 1),
)
def test_against_plain_python(values, ordered, zero_share, make, judge):
    values = sorted(values) if ordered else values
    peak = max(values)
    idle = sum(value <= 1e-6 * peak for value in values) / len(values)
    moves = [b - a for a, b in itertools.pairwise(values)]
    rising = (
        min(moves) >= 0 and moves[-1] > 0 and values[-1] > 2 * values[0] and sum(m > 0 for m in moves) > len(moves) / 2
    )
    expected = "fail" if peak == 0 else "warn" if idle > zero_share or rising else "pass"
    result = judge(CODE, evidence_of(make, values), zero_share=zero_share)
    assert result.verdict == expected
    assert result.measured["zero_share"] == pytest.approx(idle)


@FEW
@given(name=st.sampled_from(HEALTHY), exponent=st.integers(-60, 60), zeros=st.integers(0, 200))
def test_the_unit_of_the_rate_does_not_matter(name, exponent, zeros, make, judge):
    values = np.append(rates(name), np.zeros(zeros))
    expected = judge(CODE, evidence_of(make, values))
    assert judge(CODE, evidence_of(make, values * 2.0**exponent)).verdict == expected.verdict


@FEW
@given(zeros=st.integers(0, 60), one=st.floats(0.01, 1), other=st.floats(0.01, 1))
def test_a_higher_share_never_finds_more(zeros, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = evidence_of(make, [1.0] * 20 + [0.0] * zeros)
    if judge(CODE, evidence, zero_share=lower).verdict == "pass":
        assert judge(CODE, evidence, zero_share=higher).verdict == "pass"


# The scheduler that was saved with a checkpoint


def stepped(schedule, times):
    """The saved state of one of torch's schedulers behind so many steps."""
    lr = pytest.importorskip("torch").optim.lr_scheduler
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = schedule(lr, optimizer)
    for _ in range(times):
        optimizer.step()
        scheduler.step()
    return saved_schedules(scheduler.state_dict(), optimizer.state_dict()["param_groups"])


FALLING, FALLEN = np.geomspace(2.0, 0.2, 40), np.geomspace(2.0, 0.2, 20).tolist() + [0.2] * 40


def with_saved(make, schedules, *series, losses=FALLING, params=None, status="FINISHED", **more):
    state = make.state(make.tensor(0, step=900.0), schedules=schedules, global_step=None, **more)
    evidence = make.evidence(losses, *series, optimizer=state, params=params or {})
    return replace(evidence, info=replace(evidence.info, status=status))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("schedule", "times", "says"),
    [
        (lambda lr, o: lr.StepLR(o, 10, 0.1), 900, "is 0 for 92% of the run"),
        (lambda lr, o: lr.ExponentialLR(o, 0.95), 900, "is 0 for 70% of the run"),
        (lambda lr, o: lr.MultiStepLR(o, [1, 2, 3, 4, 5, 6, 7], 0.1), 900, "is 0 for 99% of the run"),
        (lambda lr, o: lr.LinearLR(o, 0.001, 1.0, 5000), 900, "still rising when the run ended, from 0.0001 to 0.01808"),
        (lambda lr, o: lr.CosineAnnealingLR(o, 20), 900, "laid out for 20 steps and took 900: the rate came down and rose again 22"),
        (lambda lr, o: lr.CosineAnnealingLR(o, 900), 10, "laid out for 900 steps and took 10 (1.1%)"),
        (lambda lr, o: lr.OneCycleLR(o, 0.1, 900), 10, "laid out for 900 steps and took 10 (1.1%)"),
        (lambda lr, o: lr.OneCycleLR(o, 0.1, 3200), 900, "laid out for 3200 steps and took 900 (28.1%)"),
    ],
)  # fmt: skip
def test_a_saved_schedule_for_another_number_of_steps(schedule, times, says, make, judge):
    result = judge(CODE, with_saved(make, stepped(schedule, times)))
    assert result.verdict == "warn"
    assert says in result.message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        (lambda lr, o: lr.StepLR(o, 300, 0.1), 900),
        (lambda lr, o: lr.ExponentialLR(o, 0.99), 900),
        (lambda lr, o: lr.LinearLR(o, 0.001, 1.0, 90), 900),
        (lambda lr, o: lr.CosineAnnealingLR(o, 900), 900),
        (lambda lr, o: lr.CosineAnnealingLR(o, 150), 900),
        (lambda lr, o: lr.CosineAnnealingLR(o, 1200), 900),
        (lambda lr, o: lr.OneCycleLR(o, 0.1, 901), 900),
        (lambda lr, o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, 1.0, 50), lr.CosineAnnealingLR(o, 850)], [50]), 900),
    ],
)
def test_a_saved_schedule_as_it_should_be(schedule, times, make, judge):
    assert judge(CODE, with_saved(make, stepped(schedule, times))).verdict == "pass"


def halfway(lr, optimizer):
    return lr.CosineAnnealingLR(optimizer, 3000)


def test_a_run_that_stopped_by_itself_or_is_not_over_may_have_left_its_schedule(make, judge):
    schedules = stepped(halfway, 900)
    held_out = make.series([1.0, 0.8, 0.7, 0.75, 0.8, 0.85], role="val_loss")
    improving = make.series([1.0, 0.8, 0.7, 0.6, 0.5, 0.45], role="val_loss")
    assert judge(CODE, with_saved(make, schedules)).verdict == "warn"
    assert judge(CODE, with_saved(make, schedules, improving)).verdict == "warn"
    for status in ("", "RUNNING", "CRASHED", "FAILED"):
        assert judge(CODE, with_saved(make, schedules, improving, status=status)).verdict in ("pass", "SkippedProbe")
    assert judge(CODE, with_saved(make, schedules, early_stopping="patience_counter")).verdict == "pass"
    assert judge(CODE, with_saved(make, schedules, held_out)).verdict == "pass"
    assert judge(CODE, with_saved(make, schedules, losses=FALLEN)).verdict == "pass"
    assert judge(CODE, with_saved(make, schedules, losses=np.geomspace(2.0, 0.2, 2000))).verdict == "SkippedProbe"
    assert judge(CODE, with_saved(make, schedules, losses=None)).verdict == "pass"


def test_beside_the_runs_own_plan(make, judge):
    """A run that was cut off is RUN001's; one that came to its end should have come to that of its schedule."""
    schedules = stepped(halfway, 900)
    assert judge(CODE, with_saved(make, schedules, params={"max_steps": "900"})).verdict == "warn"
    assert judge(CODE, with_saved(make, schedules, params={"max_steps": "3000"})).verdict == "SkippedProbe"


def test_a_checkpoint_of_the_middle_says_nothing_of_the_end(make, judge):
    """The best one, say, of a run that went on for long."""
    epochs = make.series(np.arange(1, 101), role="epoch", name="epoch")
    held_out = make.series(np.linspace(2.0, 1.0, 100), role="val_loss")
    rising = stepped(lambda lr, o: lr.LinearLR(o, 0.001, 1.0, 50), 40)
    for schedules in (stepped(lambda lr, o: lr.CosineAnnealingLR(o, 100), 40), rising):
        for params in ({"epochs": "100"}, {}):
            evidence = with_saved(make, schedules, epochs, held_out, params=params, extras={"epoch": 40})
            assert judge(CODE, evidence).verdict in ("pass", "SkippedProbe")


def test_the_log_is_asked_first(make, judge):
    """What was logged is what the training had; how often the scheduler was stepped still counts."""
    logged = make.series(rates("linear decay to 0"), role="learning_rate")
    gone = stepped(lambda lr, o: lr.StepLR(o, 10, 0.1), 900)
    assert judge(CODE, with_saved(make, gone, logged)).verdict == "pass"
    assert judge(CODE, with_saved(make, stepped(halfway, 9), logged)).verdict == "warn"
    risen = make.series(np.linspace(1e-5, 1e-3, 50), role="learning_rate")
    assert (
        judge(CODE, with_saved(make, stepped(lambda lr, o: lr.CosineAnnealingLR(o, 900), 900), risen)).verdict == "warn"
    )


@pytest.mark.parametrize(("mode", "best", "verdict"), [
    ("max", 2.0, "warn"), ("min", 0.9, "pass"), ("max", 0.85, "pass"), ("min", 0.1, "warn"), ("max", 7.0, "pass"),
])  # fmt: skip
def test_a_plateau_of_the_wrong_kind(mode, best, verdict, make, judge):
    (schedule,) = stepped(lambda lr, o: lr.StepLR(o, 300, 0.1), 900)
    waiting = replace(schedule, best=best, waits_for_rise=mode == "max")
    held_out = make.series([2.0, 1.5, 1.2, 1.0, 0.95, 0.9], role="val_loss")
    accuracy = make.series([0.1, 0.5, 0.7, 0.8, 0.84, 0.85], role="val_accuracy")
    result = judge(CODE, with_saved(make, (waiting,), held_out, accuracy))
    assert result.verdict == verdict
    assert ("waits for" in result.message) == (verdict == "warn")


def test_a_warm_up_behind_which_only_the_training_loss_had_levelled_off(make, judge):
    rising = make.series(np.linspace(1e-6, 3e-4, 60), role="learning_rate")
    falling = make.series(np.linspace(2.0, 1.0, 12), role="val_loss")
    level = make.series([2.0, 1.0, 0.5] + [0.2] * 9, role="val_loss")
    assert judge(CODE, make.evidence(FALLEN, rising)).verdict == "pass"
    assert judge(CODE, make.evidence(FALLEN, rising, level)).verdict == "pass"
    assert judge(CODE, make.evidence(FALLEN, rising, falling)).verdict == "warn"


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        (({"initial_lr": 1e-8}, {"initial_lr": 1e-2}), "warn"),
        (({"initial_lr": 1e-6}, {"initial_lr": 1e-2}), "SkippedProbe"),  # a backbone and its head
        (({"initial_lr": 0.0}, {"initial_lr": 1e-2}), "SkippedProbe"),  # WGT005 looks at those
        (({"lr": 1e-13, "initial_lr": 1e-3}, {"lr": 1e-3, "initial_lr": 1e-3}), "SkippedProbe"),  # one came down
        (({"lr": 1e-13}, {"lr": 1e-3}), "SkippedProbe"),  # where from is not known
        (({"lr": 1e-13, "initial_lr": 1e-9}, {"lr": 1e-3}), "SkippedProbe"),
        (({"initial_lr": "x"}, {"initial_lr": float("nan")}, {"initial_lr": 1e-3}), "SkippedProbe"),
        (({"initial_lr": 1e-9},), "SkippedProbe"),
        (({"lr": 3e-13}, {"lr": 1.8e-7}), "SkippedProbe"),
    ],
)
def test_groups_whose_rates_are_far_apart(groups, verdict, make, judge):
    evidence = make.evidence(FALLING, optimizer=make.state(make.tensor(0), groups=groups))
    assert judge(CODE, evidence).verdict == verdict
    logged = make.series(rates("cosine to 0"), role="learning_rate")
    beside = make.evidence(FALLING, logged, optimizer=make.state(make.tensor(0), groups=groups))
    assert judge(CODE, beside).verdict == ("warn" if verdict == "warn" else "pass")


@pytest.mark.parametrize(("peak", "verdict"), [(4.9e-8, "warn"), (5.1e-8, "pass")])
@pytest.mark.parametrize(("name", "params"), [
    ("lr-AdamW", {}), ("lr", {"optimizer": "adamw_torch"}), ("lr", {"training/optim": "Lion"}),
])  # fmt: skip
def test_a_rate_that_moves_nothing(name, params, peak, verdict, make, judge):
    rate = make.series(rates("cosine to 0", peak=peak), role="learning_rate", name=name)
    result = judge(CODE, make.evidence(np.linspace(2.0, 1.5, 100), rate, params=params))
    assert result.verdict == verdict
    assert verdict == "pass" or f"{name} is 4.9e-08 at most" in result.message


def test_a_small_rate_may_meet_large_gradients_or_be_the_last_of_a_schedule(make, judge):
    small = rates("constant", peak=1e-9)
    sgd = make.evidence(None, make.series(small, role="learning_rate"), params={"optimizer": "sgd"})
    resumed = make.series(small, np.arange(900, 1000), role="learning_rate", name="lr-Adam")
    plain = make.state(make.tensor(0, None))
    beside = make.evidence(None, make.series(small, role="learning_rate", name="lr-Adam"), optimizer=plain)
    for evidence in (sgd, make.evidence(None, resumed), beside):
        assert judge(CODE, evidence).verdict == "pass"


@pytest.mark.parametrize(("peak", "verdict"), [(1e-7, "warn"), (1e-3, "pass")])
def test_groups_that_both_came_down(peak, verdict, make, judge):
    """Where the log tells that the one with the lower rate never had a higher one."""
    rate = make.series([peak / 100, peak, peak, peak / 2, 3e-13], role="learning_rate")
    state = make.state(make.tensor(0), groups=({"lr": 3e-13}, {"lr": 1.8e-7}))
    assert judge(CODE, make.evidence(FALLING, rate, optimizer=state)).verdict == verdict


@pytest.mark.parametrize(
    "params", [{"optimizer_state_path": "/data/millions/opt", "optimizer": "sgd"}, {"note": "adam"}]
)
def test_what_is_no_name_of_an_optimizer(params, make, judge):
    rate = make.series(rates("constant", peak=1e-9), role="learning_rate")
    assert judge(CODE, make.evidence(None, rate, params=params)).verdict == "pass"


def test_a_tiny_rate_in_the_middle_of_its_rise(make, judge):
    rate = make.series(np.linspace(1e-9, 4e-8, 30), role="learning_rate", name="lr-AdamW")
    assert "still rising" in judge(CODE, make.evidence(None, rate)).message


@pytest.mark.parametrize(("peak", "decimals", "falls", "verdict"), [
    (1e-4, 4, True, "pass"), (1e-4, 4, False, "warn"), (3e-4, 4, True, "pass"),
    (1e-3, 4, True, "warn"),  # ten of the last decimal: half of one is next to nothing
    (1e-4, 9, True, "warn"),
    (1e-3, 3, True, "warn"),  # a rate that was 0 all of a sudden
])  # fmt: skip
def test_a_schedule_whose_end_the_log_rounds_to_zero(peak, decimals, falls, verdict, make, judge):
    rates = np.round(np.linspace(peak, 0, 8) ** 3 / peak**2, decimals)
    losses = np.linspace(2.0, 1.0, 8) if falls else [2.0, 1.5, 1.2, 1.21, 1.19, 1.22, 1.18, 1.2]
    rates[3:] = 0.0
    result = judge(CODE, evidence_of(make, rates, losses=losses))
    assert result.verdict == verdict, result.message


@pytest.mark.parametrize(("name", "steps", "params", "verdict"), [
    ("warmup_steps", range(55, 800, 55), {"epochs": "42"}, "warn"),
    ("train/num_warmup_steps", range(55, 800, 55), {"epochs": "42"}, "warn"),
    ("warmup_steps", range(55, 800, 55), {}, "SkippedProbe"),  # of what nobody says
    ("kl_warmup_steps", range(55, 800, 55), {"epochs": "42"}, "SkippedProbe"),
    ("sampler.warmup_steps", range(55, 800, 55), {"epochs": "42"}, "SkippedProbe"),
    ("warmup_iters", range(55, 800, 55), {"epochs": "42", "decay_lr": "False"}, "SkippedProbe"),
    ("warmup_steps", range(55, 800, 55), {"epochs": "42", "lr_scheduler_type": "constant"}, "SkippedProbe"),
    ("warmup_steps", range(55, 800, 55), {"epochs": "42", "warmup_ratio": "0.03"}, "SkippedProbe"),
    ("warmup_steps", range(55, 3000, 55), {"epochs": "42"}, "SkippedProbe"),  # over by half
    ("warmup_steps", range(1, 43), {"epochs": "42"}, "SkippedProbe"),  # epochs
    ("warmup_steps", range(1, 43), {}, "SkippedProbe"),
    ("warmup_ratio", range(55, 800, 55), {"epochs": "42"}, "SkippedProbe"),
])  # fmt: skip
def test_a_warm_up_that_the_run_never_came_out_of(name, steps, params, verdict, make, judge):
    loss = make.series(np.linspace(2.0, 1.0, len(steps)), steps, role="train_loss")
    result = judge(CODE, make.evidence(loss, params={**params, name: "5000"}))
    assert result.verdict == verdict
    if verdict == "warn":
        assert "5000 steps" in result.message
        level = make.series(np.append(np.linspace(2.0, 1.0, 4), np.full(len(steps) - 4, 1.0)), steps, role="train_loss")
        assert judge(CODE, make.evidence(level, params={**params, name: "5000"})).verdict == "SkippedProbe"


def test_what_was_logged_goes_before_a_warm_up_of_the_params(make, judge):
    rate = make.series(np.linspace(3e-4, 0, 14), range(55, 800, 55), role="learning_rate")
    loss = make.series(np.linspace(2.0, 1.0, 14), range(55, 800, 55), role="train_loss")
    assert judge(CODE, make.evidence(loss, rate, params={"warmup_steps": "5000"})).verdict == "pass"
