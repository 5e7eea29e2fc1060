"""OPT014 to OPT018: settings that are orders of magnitude away from what trains."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.evidence import Series, StepUnit
from tracker_health.rules.optimizer.way_too_short import WayTooShort

CODES = ("OPT014", "OPT015", "OPT016", "OPT017", "OPT018")
RULE = WayTooShort()


@pytest.fixture(scope="session")
def judged(judge):
    """What the first of these rules says that objects, else of one that passes, else of one that skips."""

    def one(evidence):
        results = [judge(code, evidence) for code in CODES]
        order = {"warn": 0, "pass": 1}
        return min(results, key=lambda result: order.get(str(result.verdict), 2))

    return one


@pytest.mark.parametrize("name", [
    "max_grad_norm", "grad_clip", "clip_grad_norm", "gradient_clip_val", "trainer.gradient_clip_val", "optim/clip", "grad.max_norm",
])  # fmt: skip
@pytest.mark.parametrize(("limit", "verdict"), [
    ("1e-06", "warn"), ("5e-05", "warn"), ("6e-05", "pass"), ("1.0", "pass"),
    ("0", "SkippedProbe"), ("0.0", "SkippedProbe"), ("-1", "SkippedProbe"),  # nothing is clipped
    ("none", "SkippedProbe"), ("nan", "SkippedProbe"), ("inf", "SkippedProbe"), ("", "SkippedProbe"),
])  # fmt: skip
@pytest.mark.thinned(3)
def test_where_gradients_are_clipped(name, limit, verdict, make, judged):
    result = judged(make.evidence(np.linspace(2, 1, 50), params={name: limit}))
    assert result.verdict == verdict
    assert verdict != "warn" or name in result.message


@pytest.mark.parametrize("name", ["clip_range", "clip_model", "clip", "loss.clip", "attack.max_norm", "max_norm"])
def test_other_clips(name, make, judged):
    assert judged(make.evidence(np.ones(50), params={name: "1e-6"})).verdict == "SkippedProbe"


@pytest.mark.parametrize(("norm", "verdict"), [(1e-8, "pass"), (1e-6, "warn"), (0.3, "warn")])
def test_gradients_that_never_come_near_the_limit(norm, verdict, make, judged):
    norms = make.series(np.full(50, norm), role="grad_norm")
    assert judged(make.evidence(np.ones(50), norms, params={"grad_clip": "1e-6"})).verdict == verdict


@pytest.mark.parametrize(("decay", "rate", "verdict"), [
    ("5.0", "1.5e-3", "warn"), ("1.0", "4.9e-3", "pass"), ("1.0", "5.1e-3", "warn"), ("0.1", "1e-3", "pass"),
    ("0.01", "1.0", "pass"),  # an optimizer that finds its rate by itself
    ("10", "3e-5", "pass"),  # Lion
    ("5.0", "", "warn"),  # at the only rate that is known
    ("a lot", "1e-3", "SkippedProbe"),
])  # fmt: skip
def test_weight_decay(decay, rate, verdict, make, judged):
    params = {"optimizer.weight_decay": decay, "optimizer.lr": rate, "inner.lr": "0.4", "wd": "300"}
    assert judged(make.evidence(np.ones(50), params=params)).verdict == verdict


def test_a_weight_decay_that_lets_it_learn(make, judged):
    """Long after the training samples were learnt by heart, a large one makes a network generalise."""
    params = {"weight_decay": "1.0", "lr": "1e-2"}
    assert judged(make.evidence(np.linspace(3.0, 0.5, 50), params=params)).verdict == "pass"
    assert judged(make.evidence(np.linspace(3.0, 2.5, 50), params=params)).verdict == "warn"


def test_gradients_of_samples_that_are_clipped_for_privacy(make, judged):
    params = {"max_grad_norm": "1e-5", "noise_multiplier": "1.1"}
    assert judged(make.evidence(np.ones(50), params=params)).verdict == "SkippedProbe"


def test_no_params(make, judged):
    assert judged(make.evidence(np.ones(50))).verdict == "SkippedProbe"
    assert judged(make.evidence(np.ones(50), params={"x" * 10**6 + "/grad_clip": "1e-6"})).verdict == "warn"


def sgd(make, losses, *, steps=500, unit=StepUnit.OPTIMIZER_STEP, norms=None, **params):
    """A run of SGD that was logged fifty times."""
    at = np.linspace(steps / 50, steps, 50).astype(int)
    rows = {"train_loss": losses} | ({} if norms is None else {"grad_norm": norms})
    series = [
        Series(name=role, role=role, steps=at, values=np.asarray(values, dtype=float), step_unit=unit)
        for role, values in rows.items()
    ]
    return make.evidence(*series, params={"optimizer": "SGD", "momentum": "0.9", "lr": "0.1"} | params)


@given(
    limit=st.floats(1e-4, 10.0), rate=st.floats(1e-6, 1.0), momentum=st.floats(0.0, 0.99), steps=st.integers(100, 9000),
    norm=st.none() | st.floats(1e-4, 10.0),
)  # fmt: skip
def test_how_far_sgd_can_have_come(limit, rate, momentum, steps, norm, make, judge):
    norms = None if norm is None else np.full(50, norm)
    said = {"lr": repr(rate), "momentum": repr(momentum), "grad_clip": repr(limit)}
    result = judge("OPT018", sgd(make, np.linspace(2.0, 1.9, 50), steps=steps, norms=norms, **said))
    way = sum(rate * min(limit, norm or limit) for _ in range(steps)) / (1.0 - momentum)
    assert result.measured["way"] == pytest.approx(way, rel=1e-6)
    if not 1 - 1e-6 < way / RULE.least_way < 1 + 1e-6:
        assert result.verdict == ("warn" if way < RULE.least_way else "pass")


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, "warn"), ({"norms": None}, "SkippedProbe"), ({"norms": None, "grad_clip": "5e-4"}, "warn"),
    ({"losses": np.linspace(2.0, 0.5, 50)}, "pass"),  # it learns, however little it moves
    ({"optimizer": "Lion"}, "SkippedProbe"), ({"optimizer": "sgd_nesterov"}, "warn"),
    ({"lr": "nan"}, "SkippedProbe"), ({"momentum": "none"}, "warn"), ({"momentum": "0"}, "warn"),
    ({"unit": StepUnit.EPOCH}, "SkippedProbe"), ({"unit": StepUnit.UNKNOWN}, "SkippedProbe"),
    ({"noise_multiplier": "1.0"}, "SkippedProbe"), ({"lr": "1.0"}, "pass"), ({"losses": np.linspace(2.0, 1.4, 50)}, "pass"),
    ({"losses": np.full(50, np.nan)}, "SkippedProbe"), ({"steps": 40}, "SkippedProbe"), ({"optimizer": "sign_sgd"}, "SkippedProbe"),
    ({"lr": "-0.1"}, "SkippedProbe"),
])  # fmt: skip
def test_steps_of_sgd_that_lead_nowhere(change, verdict, make, judged):
    case = {"losses": np.linspace(2.0, 1.9, 50), "norms": np.full(50, 5e-4)} | change
    assert judged(sgd(make, **case)).verdict == verdict


def test_the_logged_rates_come_before_the_params(make, judged):
    evidence = sgd(make, np.linspace(2.0, 1.9, 50), norms=np.full(50, 1e-3), lr="1.0")
    rates = make.series(np.linspace(0.1, 0.0, 50), role="learning_rate")
    result = judged(replace(evidence, series=(*evidence.series, rates)))
    assert (result.verdict, result.measured["way"]) == ("warn", pytest.approx(500 * 0.05 * 1e-3 / 0.1))


@pytest.mark.parametrize(("rate", "verdict"), [(3e-4, "warn"), (0.3, "pass")])
def test_a_real_training(rate, verdict, make, judged):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    start = [one.detach().clone() for one in model.parameters()]
    losses, norms = [], []
    for _ in range(200):
        x = torch.randn(32, 20)
        loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)))
        optimizer.step()
        losses.append(loss.item())
    evidence = sgd(make, losses[3::4], steps=200, norms=norms[3::4], lr=str(rate), momentum="0")
    result = judged(evidence)
    moved = (
        sum(float((one.detach() - was).square().sum()) for one, was in zip(model.parameters(), start, strict=True))
        ** 0.5
    )
    assert result.verdict == verdict
    assert result.measured["way"] >= 0.9 * moved


@pytest.mark.parametrize(("change", "verdict"), [
    ({}, "warn"), ({"lr": "0.29"}, "pass"), ({"lr": "none"}, "SkippedProbe"), ({"optimizer": "adamw_torch"}, "warn"),
    ({"optimizer": "torch.optim.RMSprop"}, "warn"), ({"optimizer": "SGD"}, "SkippedProbe"),
    ({"optimizer": "Adagrad"}, "SkippedProbe"), ({"optimizer": "Adafactor"}, "SkippedProbe"),
    ({"optimizer": "dadapt_adam"}, "SkippedProbe"), ({"num_virtual_tokens": "20"}, "SkippedProbe"),
    ({"method": "prompt_tuning"}, "SkippedProbe"),
])  # fmt: skip
def test_a_rate_for_adam(change, verdict, make, judged):
    params = {"optimizer": "Adam", "lr": "0.3"} | change
    assert judged(make.evidence(np.linspace(2.0, 1.9, 50), params=params)).verdict == verdict


@pytest.mark.parametrize(("peak", "end", "verdict"), [(0.4, 1.9, "warn"), (0.4, 0.3, "pass"), (0.01, 1.9, "pass")])
def test_the_highest_rate_that_was_logged(peak, end, verdict, make, judged):
    """Where the params have another one, as of a scheduler's beginning, and where it trains all the same."""
    rates = make.series(peak * np.sin(np.linspace(0.0, np.pi, 51)), role="learning_rate")
    evidence = make.evidence(np.linspace(2.0, end, 50), rates, params={"optimizer": "adamw", "lr": "0.5"})
    result = judged(evidence)
    assert result.verdict == verdict
    assert verdict != "warn" or result.measured["rate"] == pytest.approx(peak)


@pytest.mark.parametrize("name", ["dropout", "model.dropout_rate", "hidden_dropout_prob", "resid_pdrop", "p_dropout"])
@pytest.mark.parametrize(("value", "verdict"), [
    ("0.9", "warn"), ("0.95", "warn"), ("0.89", "pass"), ("0", "pass"), ("1.0", "SkippedProbe"), ("nan", "SkippedProbe"),
    ("True", "SkippedProbe"), ("[0.9]", "SkippedProbe"),
])  # fmt: skip
@pytest.mark.thinned(3)
def test_dropout(name, value, verdict, make, judged):
    result = judged(make.evidence(np.linspace(2.0, 1.5, 50), params={"attention_dropout": "x", name: value}))
    assert result.verdict == verdict
    assert verdict != "warn" or name in result.message
    for losses in (np.linspace(2.0, 0.5, 50), np.linspace(2.0, 1.5, 5)):  # it learns; it is not known whether it does
        assert judged(make.evidence(losses, params={name: value})).verdict != "warn"


@pytest.mark.parametrize("name", ["dropedge.dropout_rate", "input.dropout", "drop_rate", "mask/dropout_p", "dropouts"])
def test_what_is_no_dropout_of_the_model(name, make, judged):
    assert judged(make.evidence(np.linspace(2.0, 1.9, 50), params={name: "0.95"})).verdict == "SkippedProbe"


def test_the_largest_dropout_counts(make, judged):
    params = {"attention_dropout": "0.1", "dropout": "0.95", "classifier_dropout": "1.0"}
    assert judged(make.evidence(np.linspace(2.0, 1.9, 50), params=params)).verdict == "warn"


def test_of_several_groups_the_slowest(make, judged):
    """A scalar may well have a large rate."""
    for slow, verdict in ((1e-3, "pass"), (0.4, "warn")):
        rates = [make.series(np.full(50, rate), name=f"lr/{rate}", role="learning_rate") for rate in (0.5, slow)]
        evidence = make.evidence(np.linspace(2.0, 1.9, 50), *rates, params={"optimizer": "Adam"})
        assert judged(evidence).verdict == verdict
