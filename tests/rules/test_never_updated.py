"""OPT004, of optimizers that were never stepped, or hardly ever."""

import json
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tracker_health.api import check
from tracker_health.rules.optimizer.missing_from_optimizer import MissingFromOptimizer

CODE = "OPT004"
RULE = MissingFromOptimizer()
ADAM = {"lr": 1e-3, "betas": (0.9, 0.999)}


def empty(make, *groups, rows=100, parameters=4, **more):
    """What is left of a run whose optimizer has no state."""
    stateless = tuple(f"#{key}" for key in range(parameters))
    more.setdefault("global_step", None)
    state = make.state(groups=groups or (ADAM,), stateless=stateless, **more)
    return make.evidence(make.series([1.0] * rows), optimizer=state)


@pytest.mark.parametrize(
    "group",
    [ADAM, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "alpha": 0.99}, {"rho": 0.9}, {"scale_parameter": True}],
    ids=["adam", "momentum", "rmsprop", "adadelta", "adafactor"],
)
def test_no_state_where_there_would_be_some(group, make, judge):
    result = judge(CODE, empty(make, group, global_step=300))
    assert result.verdict == "fail"
    told = "none of 4 parameters has any state after 300 steps (counted by the checkpoint's step)"
    assert result.message == f"{told}: the optimizer made no update"
    assert result.measured == {"missing": 4, "in_optimizer": 0}
    assert "optimizer.step()" in result.remedy
    one = judge(CODE, empty(make, group, global_step=300, parameters=1))
    assert one.message.startswith("the 1 parameter that there is has not any state")


@pytest.mark.parametrize(
    "groups",
    [[{"lr": 0.1}], [{"lr": 0.1, "momentum": 0}], [{"lr": 0.1, "momentum": 0.0}], [ADAM, {"lr": 0.1, "momentum": 0}]],
)
def test_optimizers_that_keep_none(groups, make, judge):
    """Of a group that keeps none the others may be frozen."""
    result = judge(CODE, empty(make, *groups, global_step=300))
    assert (result.verdict, "plain SGD" in result.reason["reason"]) == ("SkippedProbe", True)


def test_by_the_log_alone_the_checkpoint_may_be_the_first(make, judge):
    result = judge(CODE, empty(make))
    assert result.verdict == "warn"
    assert result.message.endswith("the optimizer made no update, or the checkpoint is from before training")
    assert judge(CODE, empty(make, extras={"epoch": 12})).verdict == "fail"
    assert judge(CODE, empty(make, global_step=0)).verdict == "SkippedProbe"
    assert judge(CODE, empty(make, parameters=0)).verdict == "SkippedProbe"


@pytest.mark.parametrize(("steps", "verdict"), [(RULE.min_steps - 1, "SkippedProbe"), (RULE.min_steps, "fail")])
def test_boundary_of_the_steps(steps, verdict, make, judge):
    assert judge(CODE, empty(make, global_step=steps)).verdict == verdict
    assert judge(CODE, empty(make, rows=steps)).verdict == ("warn" if verdict == "fail" else verdict)


def test_a_param_that_speaks_of_freezing_is_no_excuse(make, judge):
    evidence = make.evidence(
        optimizer=make.state(groups=(ADAM,), stateless=("#0",), global_step=300), params={"freeze_base": "True"}
    )
    assert judge(CODE, evidence).verdict == "fail"


# Hardly any updates


def counted(make, own, reached, *, start=0, info=None):
    state = make.state(*(make.tensor(key, step=float(own)) for key in range(4)), global_step=reached)
    last = max(reached or 0, 1)
    losses = make.series([1.0] * 20, steps=[start + (last - start) * row // 20 for row in range(20)])
    return make.evidence(losses, optimizer=state, info=info)


def test_a_dozen_updates_in_three_thousand_steps(make, judge):
    result = judge(CODE, counted(make, 12, 3000))
    assert result.verdict == "warn"
    assert "has made 12 updates, the run has come to step 3000" in result.message
    assert result.measured == {"updates": 12, "global_step": 3000}
    assert judge(CODE, counted(make, 0, 3000)).message.startswith("the optimizer has made 0 updates")


@pytest.mark.parametrize(
    ("own", "reached"),
    [
        (12486, 12500),  # overflows that a scaler finds its level by
        (46, 46 * 64),  # gradients that accumulate
        (23, 23 * 64),
        (500, 500 * 1000),
        (12, None),
        (12, 12),
    ],
)
def test_as_many_updates_as_steps_or_a_share_of_them(own, reached, make, judge):
    assert judge(CODE, counted(make, own, reached)).verdict == "pass"


def test_a_log_with_a_row_for_each_update(make, judge):
    """Its steps are an environment's."""
    for own, verdict in ((20, "pass"), (19, "pass"), (14, "warn"), (40, "warn")):
        assert judge(CODE, counted(make, own, 20_480)).verdict == verdict


def test_a_run_that_goes_on_from_another(make, judge):
    """Its log begins in the middle, and so may its optimizer."""
    assert judge(CODE, counted(make, 12, 3000, start=2900)).verdict == "pass"


def test_a_count_without_a_log(make, judge):
    state = make.state(make.tensor(0, step=12.0), global_step=3000)
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "warn"


@settings(deadline=None)
@given(own=st.integers(0, 200), reached=st.integers(0, 20_000), few=st.integers(1, 100), most=st.integers(1, 200))
def test_against_plain_python(own, reached, few, most, make, judge):
    result = judge(CODE, counted(make, own, reached), few_updates=few, most_accumulated=most, min_steps=1)
    hardly = own < few and reached > most * max(own, 1) and not 18 <= own <= 22  # the log has twenty rows
    assert result.verdict == ("warn" if hardly else "pass" if own else "SkippedProbe")


# Real ones


@pytest.mark.parametrize(
    "kind",
    [
        torch.optim.AdamW,
        partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        torch.optim.RMSprop,
        torch.optim.Adadelta,
        torch.optim.NAdam,
        torch.optim.Adamax,
        torch.optim.RAdam,
        torch.optim.ASGD,
    ],
)
@pytest.mark.parametrize(("stepped", "verdict"), [(True, "pass"), (False, "fail")])
def test_what_torchs_optimizers_leave(kind, stepped, verdict, tmp_path):
    """A loop that never calls ``step``, and one that does."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer, rows = kind(model.parameters()), []
    for step in range(30):
        loss = (model(torch.randn(8, 4)) - 1.0).square().mean()
        loss.backward()
        if stepped:
            optimizer.step()
        optimizer.zero_grad()
        rows.append(json.dumps({"step": step, "loss": float(loss.detach())}))
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 29}
    torch.save(saved, tmp_path / "last.pt")
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows))
    (found,) = (one for one in check(tmp_path).results if one.code == CODE)
    assert found.verdict == verdict, found.message
