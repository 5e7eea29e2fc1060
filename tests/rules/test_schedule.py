"""LRS001."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.readers.optimizers.saved_schedule import saved_schedules
from tracker_health.rules.schedules.schedule import Schedule
from tracker_health.text import number, percent

CODE = "LRS001"
CODES = ("LRS001", "LRS003", "LRS004", "LRS005", "LRS006")


@pytest.fixture
def judged(judge):
    """What the first of the rules on schedules says that objects, else of one that passes, else of one that skips."""

    def one(evidence):
        order = {"fail": 0, "warn": 1, "pass": 2}
        return min((judge(code, evidence) for code in CODES), key=lambda result: order.get(str(result.verdict), 3))

    return one


RULE = Schedule()
FEW = settings(max_examples=draws(120), deadline=None)


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
@pytest.mark.thinned(3)
def test_healthy(name, n, make, judge):
    if name == "exponential decay" and n == 1000:
        n = 200
    result = judge(CODE, evidence_of(make, rates(name, n)))
    assert result.verdict == "pass", result.message
    assert f"{number(result.measured['peak'])}" in result.message


def test_all_zero(make, judge):
    result = judge(CODE, evidence_of(make, np.zeros(60)))
    assert result.verdict == "fail"
    assert "0 at all 60 points" in result.message
    assert "optimizer steps" in result.remedy


@pytest.mark.parametrize("n", [60, 400])
def test_a_rate_that_the_log_rounds_to_zero(n, healthy, make, judge):
    """Four decimals of 2e-5: the loss could not have come down at a rate of 0."""
    rounded = np.round(2e-5 * (1 + np.cos(np.pi * np.arange(n) / n)), 4)
    result = judge(CODE, evidence_of(make, rounded, losses=healthy.descent(n=n)))
    assert (result.verdict, result.confidence) == ("pass", "low")
    wanders = 2.0 + 0.2 * np.random.default_rng(0).standard_normal(n)
    assert judge(CODE, evidence_of(make, rounded, losses=wanders)).verdict == "fail"


@pytest.mark.parametrize(("peak", "verdict"), [(3e-4, "pass"), (1e-3, "warn")])
def test_the_end_of_a_schedule_that_the_log_rounds_to_zero(peak, verdict, make, judge):
    """Ten of the last decimal: half of one is next to nothing."""
    rounded = np.round(peak * np.linspace(1.0, 0.0, 40) ** 4, 4)
    rounded[15:] = 0.0
    assert judge(CODE, evidence_of(make, rounded, losses=np.linspace(2.0, 1.0, 40))).verdict == verdict


@pytest.mark.parametrize("stand", [1, 2, 5, 10])
def test_a_warm_up_that_never_ends(stand, healthy, make, judge):
    """Counted in optimizer steps where it should have been epochs: it rises at every point, or in stairs."""
    stairs = np.repeat(np.arange(20.0), stand)
    falls = healthy.descent(n=len(stairs), rate=1.0)
    result = judge(CODE, evidence_of(make, stairs, losses=falls))
    assert result.verdict == "warn"
    assert "still rising when the run ended, from 0 to 19" in result.message
    assert judge(CODE, evidence_of(make, stairs[: len(stairs) - stand // 2], losses=falls)).verdict == "warn"
    settled = healthy.descent(n=400, rate=20.0)
    assert judge(CODE, evidence_of(make, stairs, losses=settled)).verdict == "pass"
    arrived = np.append(stairs, np.full(stand + 1, stairs[-1]))
    assert judge(CODE, evidence_of(make, arrived, losses=falls)).verdict == "pass"


@pytest.mark.parametrize("floor", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("warm_up", [0, 5])
def test_a_rate_at_its_floor_for_most_of_the_run(floor, warm_up, healthy, make, judge):
    """A schedule for a third of the steps, with a lowest rate, in a run whose loss was still falling then."""
    decay = floor + (1 - floor) * rates("cosine to 0", 60, 1.0)
    short = np.concatenate([np.linspace(0.0, 1.0, warm_up), decay, np.full(140, floor)])
    losses = np.append(healthy.descent(n=60, rate=2.0), np.full(140 + warm_up, 1.4))
    result = judge(CODE, evidence_of(make, short, losses=losses))
    assert result.verdict == "warn"
    assert result.steps[0] == pytest.approx(60 + warm_up, abs=8)
    long = floor + (1 - floor) * rates("cosine to 0", 200, 1.0)
    assert judge(CODE, evidence_of(make, long, losses=losses)).verdict == "pass"


def test_a_floor_that_is_chosen(healthy, make, judge):
    """In one step, high up, or behind the end of the loss's descent."""
    progress, falling = np.arange(200) / 200, healthy.descent(n=200, rate=2.0)
    down = np.maximum(1.0 - progress / 0.4, 0.1)
    step = np.where(progress < 0.4, 1.0, 0.1)
    assert judge(CODE, evidence_of(make, step, losses=falling)).verdict == "pass"
    assert judge(CODE, evidence_of(make, np.maximum(down, 0.5), losses=falling)).verdict == "pass"
    assert judge(CODE, evidence_of(make, down, losses=healthy.descent(n=200, rate=40.0))).verdict == "pass"
    assert judge(CODE, evidence_of(make, down, losses=falling)).verdict == "warn"


def test_worked_example(make, judge):
    """A schedule of 20 steps in a run of 50: the rate is 0 for 31 points of 50."""
    result = judge(CODE, evidence_of(make, np.append(np.linspace(1e-3, 0.0, 20), np.zeros(30))))
    assert result.message == "the learning rate is 0 for 62 % of the run, after a peak of 0.001"
    assert result.steps == (19,)


def test_zero_for_most_of_the_run(make, judge):
    """A schedule laid out for a tenth of the steps; in the second case it creeps on at a billionth."""
    for rest in (0.0, 1e-9):
        values = np.full(200, rest * 3e-4)
        values[:20] = rates("linear decay to 0", 20)
        result = judge(CODE, evidence_of(make, values))
        assert result.verdict == "warn"
        assert f"0 for {percent(result.measured['zero_share'])} of the run, after a peak of 0.0003" in result.message


def test_a_frozen_group_beside_a_live_one(make, judge):
    assert judge(CODE, evidence_of(make, np.zeros(100), rates("cosine to 0"))).verdict == "pass"
    assert judge(CODE, evidence_of(make, rates("constant"), np.zeros(200))).verdict == "pass"
    assert judge(CODE, evidence_of(make, np.zeros(100), np.zeros(100))).verdict == "fail"
    assert judge(CODE, evidence_of(make, rates("constant", peak=1e-5), np.linspace(0, 1e-3, 100))).verdict == "warn"


def test_nan_and_few_points(make, judge):
    assert judge(CODE, evidence_of(make, [1e-3, np.nan] * 10)).verdict == "pass"
    assert judge(CODE, evidence_of(make, [np.nan] * 10)).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.0] * (RULE.min_points - 1))).verdict == "SkippedProbe"
    assert judge(CODE, evidence_of(make, [0.0] * RULE.min_points)).verdict == "fail"
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@FEW
@given(name=st.sampled_from(HEALTHY), exponent=st.integers(-60, 60), zeros=st.integers(0, 200))
def test_the_unit_of_the_rate_does_not_matter(name, exponent, zeros, make, judge):
    values = np.append(rates(name), np.zeros(zeros))
    expected = judge(CODE, evidence_of(make, values))
    assert judge(CODE, evidence_of(make, values * 2.0**exponent)).verdict == expected.verdict


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
        (lambda lr, o: lr.StepLR(o, 10, 0.1), 900, "is 0 for 92 % of the run"),
        (lambda lr, o: lr.ExponentialLR(o, 0.95), 900, "is 0 for 70 % of the run"),
        (lambda lr, o: lr.MultiStepLR(o, [1, 2, 3, 4, 5, 6, 7], 0.1), 900, "is 0 for 99 % of the run"),
        (lambda lr, o: lr.LinearLR(o, 0.001, 1.0, 5000), 900, "still rising when the run ended, from 0.0001 to 0.0181"),
        (lambda lr, o: lr.CosineAnnealingLR(o, 20), 900, "laid out for 20 steps and took 900: the rate came down and rose again 22"),
        (lambda lr, o: lr.CosineAnnealingLR(o, 900), 10, "laid out for 900 steps and took 10 (1.1 %)"),
        (lambda lr, o: lr.OneCycleLR(o, 0.1, 900), 10, "laid out for 900 steps and took 10 (1.1 %)"),
        (lambda lr, o: lr.OneCycleLR(o, 0.1, 3200), 900, "still rising when the run ended"),
    ],
)  # fmt: skip
def test_a_saved_schedule_for_another_number_of_steps(schedule, times, says, make, judged):
    result = judged(with_saved(make, stepped(schedule, times)))
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
def test_a_saved_schedule_as_it_should_be(schedule, times, make, judged):
    assert judged(with_saved(make, stepped(schedule, times))).verdict == "pass"


def halfway(lr, optimizer):
    return lr.CosineAnnealingLR(optimizer, 3000)


def test_beside_the_runs_own_plan(make, judged):
    """A run that was cut off is RUN001's; one that came to its end should have come to that of its schedule."""
    schedules = stepped(halfway, 900)
    assert judged(with_saved(make, schedules, params={"max_steps": "900"})).verdict == "warn"
    assert judged(with_saved(make, schedules, params={"max_steps": "3000"})).verdict == "pass"


def test_the_log_is_asked_first(make, judged):
    """What was logged is what the training had; how often the scheduler was stepped still counts."""
    logged = make.series(rates("linear decay to 0"), role="learning_rate")
    gone = stepped(lambda lr, o: lr.StepLR(o, 10, 0.1), 900)
    assert judged(with_saved(make, gone, logged)).verdict == "pass"
    assert judged(with_saved(make, stepped(halfway, 9), logged)).verdict == "warn"
    risen = make.series(np.linspace(1e-5, 1e-3, 50), role="learning_rate")
    assert judged(with_saved(make, stepped(lambda lr, o: lr.CosineAnnealingLR(o, 900), 900), risen)).verdict == "warn"


@pytest.mark.parametrize(("mode", "best", "verdict"), [
    ("max", 2.0, "warn"), ("min", 0.9, "pass"), ("max", 0.85, "pass"), ("min", 0.1, "warn"), ("max", 7.0, "pass"),
])  # fmt: skip
def test_a_plateau_of_the_wrong_kind(mode, best, verdict, make, judged):
    (schedule,) = stepped(lambda lr, o: lr.StepLR(o, 300, 0.1), 900)
    waiting = replace(schedule, best=best, waits_for_rise=mode == "max")
    held_out = make.series([2.0, 1.5, 1.2, 1.0, 0.95, 0.9], role="val_loss")
    accuracy = make.series([0.1, 0.5, 0.7, 0.8, 0.84, 0.85], role="val_accuracy")
    result = judged(with_saved(make, (waiting,), held_out, accuracy))
    assert result.verdict == verdict
    assert ("waits for" in result.message) == (verdict == "warn")


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
    assert (judge("LRS006", evidence).verdict == "warn") == (verdict == "warn")


@pytest.mark.parametrize(("peak", "verdict"), [(4.9e-8, "warn"), (5.1e-8, "pass")])
@pytest.mark.parametrize(("name", "params"), [
    ("lr-AdamW", {}), ("lr", {"optimizer": "adamw_torch"}), ("lr", {"training/optim": "Lion"}),
])  # fmt: skip
def test_a_rate_that_moves_nothing(name, params, peak, verdict, make, judged):
    rate = make.series(rates("cosine to 0", peak=peak), role="learning_rate", name=name)
    result = judged(make.evidence(np.linspace(2.0, 1.5, 100), rate, params=params))
    assert result.verdict == verdict
    assert verdict == "pass" or f"{name} is 4.9e-08 at most" in result.message


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
def test_a_warm_up_that_the_run_never_came_out_of(name, steps, params, verdict, make, judged):
    loss = make.series(np.linspace(2.0, 1.0, len(steps)), steps, role="train_loss")
    result = judged(make.evidence(loss, params={**params, name: "5000"}))
    assert result.verdict == verdict
    if verdict == "warn":
        assert "5000 steps" in result.message
        level = make.series(np.append(np.linspace(2.0, 1.0, 4), np.full(len(steps) - 4, 1.0)), steps, role="train_loss")
        assert judged(make.evidence(level, params={**params, name: "5000"})).verdict == "SkippedProbe"
