"""OPT013: a setting that the log has otherwise than the params."""

import json

import numpy as np
import pytest

from tracker_health import check
from tracker_health.evidence import RunInfo
from tracker_health.facts.applied import as_logged

CODE = "OPT013"
LOSS = np.linspace(2.0, 1.0, 50)


def run(make, rates, params, **info):
    logged = [make.series(one, role="learning_rate", name=f"lr/{at}") for at, one in enumerate(rates)]
    names = ("train_loss", *(one.name for one in logged))
    known = {name: str(value) for name, value in params.items()}
    return make.evidence(LOSS, *logged, info=RunInfo(params=known, metric_names=names, **info))


def constant(rate, n=50):
    return np.full(n, rate)


@pytest.mark.parametrize(
    ("rates", "params", "verdict"),
    [
        ([constant(0.01)], {"learning_rate": 5e-5}, "warn"),
        ([constant(1e-6)], {"lr": 1e-3}, "warn"),
        ([constant(1.9e-3)], {"lr": 1e-3}, "pass"),
        ([np.linspace(0.0, 1e-3, 50)], {"lr": 1.0}, "pass"),  # it still rises
        ([1e-3 * np.cos(np.linspace(0, 1.5, 50))], {"lr": 1e-3}, "pass"),
        ([constant(1e-4), constant(1e-3)], {"lr": 1e-3}, "pass"),  # a group of its own
        ([constant(8e-3)], {"lr": 1e-3, "world_size": 8}, "pass"),  # scaled for the devices
        ([constant(8e-3)], {"lr": 1e-3, "max_lr": 8e-3}, "pass"),  # a schedule with a top of its own
        ([constant(2e-3)], {"lr0": 0.01, "optimizer": "auto"}, "pass"),
        ([constant(0.5)], {"lr": 1.0, "optimizer": "Prodigy"}, "pass"),
        ([constant(8e-3)], {"lr": 1e-3, "model.lr": 8e-3}, "pass"),  # two that say it: which one is meant is not known
        ([constant(1e-3, 4)], {"lr": 1.0}, "pass"),  # too few
    ],
)
def test_rates(rates, params, verdict, make, judge):
    assert judge(CODE, run(make, rates, params)).verdict == verdict


@pytest.mark.parametrize(("warm_up", "verdict"), [(20, "warn"), (2, "pass"), (40, "pass"), (0, "pass")])
def test_a_warm_up_that_did_not_happen(warm_up, verdict, make, judge):
    """At its top from the first step on; a log of less than twice the warm-up does not show it."""
    assert judge(CODE, run(make, [constant(1e-3)], {"warmup_steps": warm_up})).verdict == verdict


@pytest.mark.parametrize(("counted", "verdict"), [(10.0, "warn"), (100.0, "pass"), (99.0, "pass"), (None, "pass")])
def test_epochs(counted, verdict, make, judge):
    found = judge(CODE, run(make, [constant(1e-3)], {"epochs": 100}, printed_epochs=counted))
    assert (found.verdict, "100 epochs" in found.message) == (verdict, verdict == "warn")


def test_a_deepspeed_file_is_a_source(tmp_path):
    rows = [{"step": step, "loss": 2.0 - step / 500, "learning_rate": 1e-5} for step in range(0, 500, 10)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "ds_config.json").write_text(
        json.dumps(
            {"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "eps": "auto"}}}
        )
    )
    (found,) = [one for one in check(tmp_path).findings if one.code == CODE]
    assert "sets deepspeed.optimizer.lr" in found.message.replace("set ", "sets ")


def test_what_runs_are_compared_by_has_what_was_logged(make):
    state = make.state(make.tensor(0), groups=({"weight_decay": 0.1, "eps": 1e-8},))
    evidence = run(make, [constant(0.3)], {"lr": 1e-3})
    known = as_logged(make.evidence(*evidence.series, info=evidence.info, optimizer=state))
    assert (known["lr"], known["learning rate, as logged"], known["weight decay, as saved"]) == ("0.001", "0.3", "0.1")
