"""HealthStopper: what Ray Tune's trials report decides which of them end; once with Ray itself."""

from __future__ import annotations

import logging
import pickle
import warnings

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed")
pytest.importorskip("ray.tune")

from tracker_health import ConfigError  # noqa: E402
from tracker_health.live.ray import HealthStopper  # noqa: E402

from .curves import breaking, diverging, falling, flat  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore:(?!tracker-health)")]
N = 120
LOSSES = {"falls": falling(N), "diverges": diverging(N, 60), "breaks": breaking(N, 70), "learns nothing": flat(N)}


def results(values, **more):
    """As Ray hands them over, with what it adds."""
    for index, value in enumerate(values):
        yield {
            "train": {"loss": float(value)},
            "note": "x",
            "training_iteration": index + 1,
            "time_total_s": 1e9,
            "pid": 3,
            "config": {"learning_rate": 0.1, "nested": {"x": 1}},
            "done": False,
            **more,
        }


def stopped_at(stopper, name, values):
    return next((one["training_iteration"] for one in results(values) if stopper(name, one)), None)


def test_each_trial_is_judged_by_itself():
    stopper = HealthStopper(plan=N, rest=0)
    assert stopped_at(stopper, "falls", LOSSES["falls"]) is None
    at = {name: stopped_at(stopper, name, values) for name, values in LOSSES.items() if name != "falls"}
    assert 60 < at["diverges"] < 90
    assert 70 < at["breaks"] <= 80
    assert 0.3 * N <= at["learns nothing"] < 0.5 * N
    assert stopper.reasons.keys() == at.keys()
    assert f"at step {at['diverges']}: " in stopper.reasons["diverges"]
    assert "LOS004" in stopper.reasons["diverges"]
    assert not stopper.stop_all()


def test_trials_at_the_same_time_do_not_mix():
    alone, together = HealthStopper(plan=N, rest=0), HealthStopper(plan=N, rest=0)
    at = {name: stopped_at(alone, name, values) for name, values in LOSSES.items()}
    found = dict.fromkeys(LOSSES)
    for rows in zip(*(results(values) for values in LOSSES.values()), strict=True):
        for name, row in zip(LOSSES, rows, strict=True):
            if found[name] is None and together(name, row):
                found[name] = row["training_iteration"]
    assert found == at


def test_why_is_logged_in_one_line(caplog):
    with caplog.at_level(logging.INFO):
        stopped_at(HealthStopper(plan=N, rest=0), "breaks\x1b[2J\n", LOSSES["breaks"])
    (line,) = (one.getMessage() for one in caplog.records if "tracker-health" in one.getMessage())
    assert line.startswith("tracker-health stops trial breaks?[2J : FAIL at step ")


def test_a_dry_run_only_says_so(caplog):
    stopper = HealthStopper(plan=N, rest=0, dry_run=True)
    assert stopped_at(stopper, "breaks", LOSSES["breaks"]) is None
    assert "would stop trial breaks" in caplog.text
    assert stopper.reasons.keys() == {"breaks"}


def test_it_goes_to_disk_while_trials_run():
    stopper = HealthStopper(plan=N, rest=0)
    for row in list(results(LOSSES["breaks"]))[:50]:
        stopper("a", row)
    stopped_at(stopper, "b", LOSSES["breaks"])
    restored = pickle.loads(pickle.dumps(stopper))
    assert restored.reasons == stopper.reasons != {}
    assert any(restored("a", row) for row in list(results(LOSSES["breaks"]))[50:])


def test_nothing_is_kept_of_a_trial_that_ended():
    stopper = HealthStopper(plan=N, rest=0)
    rows = list(results(LOSSES["falls"]))
    for row in rows:
        stopper("a", row)
    assert not stopper("a", {**rows[-1], "done": True})
    stopped_at(stopper, "b", LOSSES["breaks"])
    assert not stopper._trials


@pytest.mark.parametrize("options", [{"plan": -1}, {"stop_on": "error"}, {"intervall": 3}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        HealthStopper(**{"plan": 10, **options})


def test_whatever_breaks_the_trials_go_on(monkeypatch):
    stopper = HealthStopper(plan=N, rest=0)
    monkeypatch.setattr("tracker_health.live.ray.LiveHealth", lambda **_: 1 / 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not stopper("a", next(results([1.0])))
    assert "continues without being judged" in str(caught[0].message)


@pytest.mark.slow
def test_ray_itself(tmp_path):
    """Four trials, two at a time: those that go wrong end early, with what they reported until then."""
    curves = {name: [float(value) for value in values] for name, values in LOSSES.items()}

    def train(config):
        for value in config["curves"][config["kind"]]:
            ray.tune.report({"loss": value})

    stopper = HealthStopper(plan=N, rest=0)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        space = {"kind": ray.tune.grid_search(list(curves)), "curves": curves}
        run = ray.tune.RunConfig(stop=stopper, storage_path=str(tmp_path), verbose=0)
        grid = ray.tune.Tuner(train, param_space=space, run_config=run).fit()
    finally:
        ray.shutdown()
    reported = {one.config["kind"]: one.metrics["training_iteration"] for one in grid}
    alone = HealthStopper(plan=N, rest=0)
    expected = {name: stopped_at(alone, name, values) or N for name, values in LOSSES.items()}
    assert reported == expected
    assert len(stopper.reasons) == 3
    assert not stopper._trials
