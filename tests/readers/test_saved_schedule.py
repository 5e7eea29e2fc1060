"""The learning-rate schedulers that were saved with a checkpoint: beside the rates that torch itself gave."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker_health.evidence import Part, Request
from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state
from tracker_health.readers.optimizers.saved_schedule import saved_schedules
from tracker_health.roles import RolePlan
from tracker_health.run_files.reading import read_files
from tracker_health.stores.folder.directory import DirectoryRun

torch = pytest.importorskip("torch")
lr = torch.optim.lr_scheduler

SCHEDULES = {
    "step": (lambda o: lr.StepLR(o, 7, 0.3), None),
    "milestones": (lambda o: lr.MultiStepLR(o, [5, 12, 12, 40], 0.5), None),
    "no milestones": (lambda o: lr.MultiStepLR(o, [], 0.5), None),
    "exponential": (lambda o: lr.ExponentialLR(o, 0.93), None),
    "cosine": (lambda o: lr.CosineAnnealingLR(o, 60, eta_min=1e-4), 60),
    "cosine that comes again": (lambda o: lr.CosineAnnealingLR(o, 6), 6),
    "linear warm-up": (lambda o: lr.LinearLR(o, 0.01, 1.0, 30), None),
    "linear decay": (lambda o: lr.LinearLR(o, 1.0, 0.1, 30), 30),
    "constant": (lambda o: lr.ConstantLR(o, 0.1, 9), None),
    "polynomial": (lambda o: lr.PolynomialLR(o, 50, 2.0), 50),
    "one cycle": (lambda o: lr.OneCycleLR(o, 0.2, 80), 80),
    "one cycle of three phases": (lambda o: lr.OneCycleLR(o, 0.2, 80, three_phase=True, anneal_strategy="linear"), 80),
    "warm-up, then cosine": (
        lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, 1.0, 8), lr.CosineAnnealingLR(o, 40)], [8]),
        48,
    ),
    "two together": (lambda o: lr.ChainedScheduler([lr.ConstantLR(o, 0.1, 9), lr.ExponentialLR(o, 0.93)]), None),
}
UNKNOWN = {
    "lambda": lambda o: lr.LambdaLR(o, lambda step: 1.0 / (step + 1)),
    "cyclic": lambda o: lr.CyclicLR(o, 0.01, 0.1),
    "warm restarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 10, 2),
    "a lambda after a warm-up": lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, 1.0, 8), lr.LambdaLR(o, lambda step: 1.0 / (step + 1))], [8]
    ),
}


def stepped(make, steps):
    """A real scheduler, its optimizer, and the rates that it gave, from its first on."""
    layers = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
    groups = [{"params": layers[0].parameters(), "lr": 0.02}, {"params": layers[1].parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    scheduler = make(optimizer)
    rates = [optimizer.param_groups[1]["lr"]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[1]["lr"])
    return scheduler, optimizer, rates


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 7, 8, 9, 25, 79])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.thinned(4)
def test_the_rates_that_torch_gave(name, steps, tmp_path):
    make, laid_out = SCHEDULES[name]
    scheduler, optimizer, rates = stepped(make, steps)
    torch.save(
        {"model": {}, "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, tmp_path / "a.pt"
    )
    (found,) = read_optimizer_state(tmp_path / "a.pt", "a.pt").schedules
    assert (found.stepped, found.laid_out) == (steps, laid_out)
    assert found.steps.tolist() == list(range(steps + 1))
    assert found.rates == pytest.approx(rates, rel=1e-6, abs=1e-12)
    assert found.period == (2 * laid_out if name.startswith("cosine") else None)


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.filterwarnings("ignore")
def test_of_others_only_how_often_they_were_stepped(name):
    scheduler, optimizer, _ = stepped(UNKNOWN[name], 25)
    (found,) = saved_schedules(scheduler.state_dict(), optimizer.state_dict()["param_groups"])
    assert (found.stepped, found.laid_out, len(found.rates)) == (25, None, 0)


@pytest.mark.filterwarnings("ignore")
def test_a_rate_that_somebody_set_is_not_explained_by_the_settings():
    scheduler, *_ = stepped(SCHEDULES["cosine"][0], 20)
    (found,) = saved_schedules(scheduler.state_dict() | {"_last_lr": [0.02, 0.03]})
    assert (found.stepped, found.laid_out, len(found.rates)) == (20, None, 0)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_one_that_waits_for_a_metric(mode):
    scheduler, _, _ = stepped(lambda o: lr.ReduceLROnPlateau(o, mode), 0)
    (found,) = saved_schedules(scheduler.state_dict())
    assert (found.best, found.waits_for_rise) == (None, mode == "max")
    scheduler.step(0.5)
    scheduler.step(0.7)
    (found,) = saved_schedules({"lr_schedulers": [scheduler.state_dict()]})
    assert (found.stepped, found.best) == (2, 0.5 if mode == "min" else 0.7)


@pytest.mark.parametrize("name", ["scheduler.pt", "scheduler.bin"])
def test_in_a_file_of_its_own(name, tmp_path):
    scheduler, optimizer, rates = stepped(SCHEDULES["one cycle"][0], 30)
    torch.save(optimizer.state_dict(), tmp_path / name.replace("scheduler", "optimizer"))
    torch.save(scheduler.state_dict(), tmp_path / name)
    found = read_files(DirectoryRun(tmp_path), Request(roles=RolePlan(), parts=frozenset(Part)))
    assert found.optimizer.schedules[0].rates == pytest.approx(rates)
    assert found.problems == []
    (tmp_path / name).write_bytes(b"nothing that can be read")
    found = read_files(DirectoryRun(tmp_path), Request(roles=RolePlan(), parts=frozenset(Part)))
    assert (found.optimizer.schedules, found.problems) == ((), [])


def test_a_long_schedule_is_read_in_a_thousand_points():
    (found,) = saved_schedules(
        {"T_max": 10**9, "eta_min": 0, "base_lrs": [1.0], "last_epoch": 10**9, "_last_lr": [0.0]}
    )
    assert len(found.steps) == 1000
    assert found.steps[-1] == 10**9
    assert (found.rates[0], found.rates[-1]) == (1.0, 0.0)


VALUES = st.one_of(
    st.integers(-3, 50), st.floats(), st.sampled_from([None, True, "x", 10**400, -(2**63), [], {}, math.inf, math.nan])
)
KEYS = (
    "T_max", "eta_min", "step_size", "gamma", "milestones", "factor", "total_iters", "start_factor", "end_factor", "power",
    "total_steps", "_schedule_phases", "last_epoch", "base_lrs", "_last_lr", "_milestones", "best", "mode", "num_bad_epochs",
)  # fmt: skip


def states(inner):
    lists = st.lists(VALUES | inner, max_size=3)
    return st.dictionaries(st.sampled_from(KEYS), VALUES | lists | st.dictionaries(VALUES.filter(_hashable), VALUES)).flatmap(
        lambda one: st.lists(inner, max_size=2).map(lambda parts: one | ({"_schedulers": parts} if parts else {}))
    )  # fmt: skip


def _hashable(value):
    return not isinstance(value, (list, dict))


@settings(deadline=None)
@given(
    st.recursive(st.just({"last_epoch": 3, "base_lrs": [0.1], "_last_lr": [0.1], "gamma": 0.5}), states, max_leaves=6)
)
def test_no_state_breaks_the_reader(state):
    for one in saved_schedules({"lr_schedulers": [state]}, [state]):
        assert 0 <= one.stepped < 2**53
        assert len(one.rates) == len(one.steps) <= 1000
        assert np.isfinite(one.rates).all()


def test_what_is_no_text_where_a_text_belongs():
    deep, tangle = [], []
    for _ in range(5000):
        deep = [deep]
    for _ in range(60):
        tangle = [tangle, tangle]
    for odd in (deep, tangle, 10**5000, {}, None):
        state = {"last_epoch": 3, "_last_lr": [0.1], "base_lrs": [0.1], "num_bad_epochs": 0, "mode": odd}
        assert saved_schedules(state)[0].waits_for_rise is None
        phases = [{"end_step": 9, "start_lr": odd, "end_lr": odd}]
        cycle = {"last_epoch": 3, "_last_lr": [0.1], "base_lrs": [0.1], "total_steps": 10, "_schedule_phases": phases}
        (found,) = saved_schedules(cycle, [{"initial_lr": 0.1, "max_lr": 1.0}])
        assert len(found.rates) == 0


@pytest.mark.parametrize("state", [
    {"T_max": 10**299, "eta_min": 0.0}, {"T_max": 1e20, "eta_min": 0.0}, {"gamma": 1.0001e290},
])  # fmt: skip
def test_what_is_beyond_any_schedule(state):
    (found,) = saved_schedules(state | {"last_epoch": 4, "base_lrs": [1e290], "_last_lr": [1e290]})
    assert (found.laid_out, len(found.rates)) == (None, 0)


def test_one_that_holds_itself():
    state = {"last_epoch": 3, "base_lrs": [0.1], "_last_lr": [0.1], "_milestones": [2]}
    state["_schedulers"] = [state, state]
    assert saved_schedules(state) == ()
    tangle = {"_last_lr": [0.1]}
    tangle["_schedulers"] = [tangle, tangle]
    (found,) = saved_schedules({"_last_lr": [0.1], "_schedulers": [tangle]})
    assert (found.stepped, len(found.rates)) == (0, 0)
