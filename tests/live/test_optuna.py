"""HealthPruner in real studies: whom it prunes and when, however a trial reports, and in whichever process."""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

optuna = pytest.importorskip("optuna")

from tracker_health import ConfigError  # noqa: E402
from tracker_health.live.optuna import CAUSE, STEP, STOPPED, WOULD_STOP, HealthPruner  # noqa: E402

from .curves import breaking, diverging, falling, flat  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.WARNING)
ROOT = Path(__file__).parents[2]
N = 120
LOSSES = {"falls": falling(N), "diverges": diverging(N, 60), "breaks": breaking(N, 70), "learns nothing": flat(N)}
PRUNED, COMPLETE = optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.COMPLETE


def study_of(pruner, **options):
    return optuna.create_study(pruner=pruner, sampler=optuna.samplers.TPESampler(seed=0), **options)


def report(trial, values, at=None):
    """Trains by a list of values, which the trial reports until it is pruned."""
    for step in at or range(len(values)):
        trial.report(float(values[step]), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(np.nan_to_num(values[-1]))


def objective(curves=LOSSES, at=None):
    return lambda trial: report(trial, curves[trial.suggest_categorical("kind", list(curves))], at)


def run_each(study, curves=LOSSES, train=None, **options):
    """One trial of each kind, by its name."""
    for kind in curves:
        study.enqueue_trial({"kind": kind})
    study.optimize(train or objective(curves), n_trials=len(curves), **options)
    return {trial.params["kind"]: trial for trial in study.trials}


def test_whom_it_prunes_and_what_it_writes_onto_them():
    trials = run_each(study_of(HealthPruner(plan=N, rest=0)))
    assert {kind: trial.state for kind, trial in trials.items()} == {
        "falls": COMPLETE,
        "diverges": PRUNED,
        "breaks": PRUNED,
        "learns nothing": PRUNED,
    }
    assert trials["falls"].user_attrs == {}
    assert 60 < trials["diverges"].user_attrs[STEP] == trials["diverges"].last_step < 90
    assert trials["breaks"].user_attrs[CAUSE] == "non-finite-loss"
    assert 70 <= trials["breaks"].user_attrs[STEP] <= 79
    assert 0.3 * N <= trials["learns nothing"].user_attrs[STEP] < 0.5 * N
    assert trials["diverges"].user_attrs[STOPPED].startswith("FAIL at step ")
    assert "LOS004" in trials["diverges"].user_attrs[STOPPED]


@pytest.mark.exhaustive
def test_a_study_goes_on_after_trials_that_ended_in_nan():
    study = study_of(HealthPruner(plan=N, rest=0))
    run_each(study)
    study.optimize(objective(), n_trials=12)
    assert study.best_trial.params["kind"] == "falls"
    assert all(trial.state is COMPLETE for trial in study.trials if trial.params["kind"] == "falls")
    assert all(trial.state is PRUNED for trial in study.trials if trial.params["kind"] != "falls")


@pytest.mark.exhaustive
def test_why_a_trial_ended_is_said_on_its_own_run_and_not_on_that_of_the_study(mlflow, uri):
    pruner = HealthPruner(plan=N, rest=0)

    def train(trial):
        kind = trial.suggest_categorical("kind", list(LOSSES))
        own = mlflow.start_run(nested=True) if kind == "diverges" else contextlib.nullcontext()
        with own:
            try:
                return objective()(trial)
            finally:
                pruner.health(trial).close()

    with mlflow.start_run() as ours:
        trials = run_each(study_of(pruner), train=train)
    client = mlflow.MlflowClient(uri)
    assert [trial.state for trial in trials.values()].count(PRUNED) == 3
    assert "health.stopped" not in client.get_run(ours.info.run_id).data.tags
    (nested,) = client.search_runs([ours.info.experiment_id], f"tags.mlflow.parentRunId = '{ours.info.run_id}'")
    assert json.loads(nested.data.tags["health.stopped"])["step"] == trials["diverges"].last_step


@pytest.mark.slow
def test_a_dry_run_only_writes_what_it_would_do():
    trials = run_each(study_of(HealthPruner(plan=N, rest=0, dry_run=True)))
    assert all(trial.state is COMPLETE for trial in trials.values())
    assert WOULD_STOP in trials["diverges"].user_attrs
    assert STOPPED not in trials["diverges"].user_attrs
    assert WOULD_STOP not in trials["falls"].user_attrs


RISING = 0.1 + 0.8 * (1 - np.exp(-4 * np.arange(N) / N))
REWARDS = {
    "accuracy": RISING,
    "chance": np.full(N, 0.1),
    "reward": -200 + 150 * RISING + 5 * np.random.default_rng(0).normal(size=N),
    "large reward": 500 * RISING,
    "noisy reward": 20 + 15 * np.random.default_rng(0).normal(size=N),
    "falling reward": 200 - 150 * RISING,
}


@pytest.mark.slow
def test_a_study_that_maximises():
    """An accuracy at chance is known by the number of classes; what is no accuracy is not judged as one."""
    trials = run_each(study_of(HealthPruner(plan=N, rest=0, params={"num_classes": 10}), direction="maximize"), REWARDS)
    assert [kind for kind, trial in trials.items() if trial.state is PRUNED] == ["chance"]


def test_the_other_pruner_is_asked_as_well():
    class Asked(optuna.pruners.BasePruner):
        def prune(self, study, trial):
            return trial.last_step == 5 and trial.params["kind"] == "falls"

    trials = run_each(study_of(HealthPruner(plan=N, rest=0, beside=Asked())))
    assert all(trial.state is PRUNED for trial in trials.values())
    assert trials["falls"].last_step == 5
    assert STOPPED not in trials["falls"].user_attrs
    assert STOPPED in trials["diverges"].user_attrs


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_it_works_within_another_pruner():
    curves = {kind: LOSSES[kind] for kind in ("falls", "diverges")}
    trials = run_each(study_of(optuna.pruners.PatientPruner(HealthPruner(plan=N, rest=0), patience=1)), curves)
    assert trials["falls"].state is COMPLETE
    assert trials["diverges"].state is PRUNED


def fed(pruner, name="loss", every=10):
    """Feeds each step, and reports a value that says nothing now and then, counted in epochs."""

    def train(trial):
        values = LOSSES[trial.suggest_categorical("kind", list(LOSSES))]
        health = pruner.health(trial)
        for step, value in enumerate(values):
            health.step(step=step, **{name: value, "learning_rate": 0.1})
            if step % every == every - 1:
                trial.report(1.0 / (1 + step), step // every)
                if trial.should_prune():
                    raise optuna.TrialPruned(str(health.stopped_by))
        return 0.0

    return train


@pytest.mark.slow
def test_what_the_objective_feeds_counts():
    pruner = HealthPruner(plan=N, rest=0)
    trials = run_each(study_of(pruner), train=fed(pruner))
    assert trials["falls"].state is COMPLETE
    assert {kind for kind, trial in trials.items() if trial.state is PRUNED} == LOSSES.keys() - {"falls"}
    assert trials["diverges"].user_attrs[STEP] > 60  # the objective's own steps, not its epochs


@pytest.mark.slow
def test_what_is_reported_beside_a_training_loss_is_a_validation_loss():
    pruner = HealthPruner(plan=N, rest=0)
    names = {}

    def train(trial):
        trial.suggest_categorical("kind", list(LOSSES))
        feeds = trial.number < 2
        health = pruner.health(trial)
        for step in range(40):
            if feeds:
                health.step(step=step, **{"train/loss" if trial.number else "grad_norm": 2.0 - step / 40})
            trial.report(2.0 - step / 50, step)
            trial.should_prune()
        health.look()
        names[trial.number] = {series.name for series in health.report.series}
        return 0.0

    study_of(pruner).optimize(train, n_trials=3)
    assert names == {0: {"grad_norm", "loss"}, 1: {"train/loss", "val_loss"}, 2: {"loss"}}


@pytest.mark.slow
def test_a_study_of_two_objectives_asks_the_health_of_a_trial():
    pruner = HealthPruner(plan=N, rest=0)

    def train(trial):
        values = LOSSES[trial.suggest_categorical("kind", list(LOSSES))]
        health = pruner.health(trial)
        for step, value in enumerate(values):
            if health.step(step=step, loss=value) and health.should_stop:
                raise optuna.TrialPruned(str(health.stopped_by))
        return 0.0, 1.0

    trials = run_each(study_of(pruner, directions=["minimize", "maximize"]), train=train)
    assert trials["falls"].state is COMPLETE
    assert trials["breaks"].state is PRUNED
    assert trials["breaks"].user_attrs[CAUSE] == "non-finite-loss"


@pytest.mark.slow
def test_reports_out_of_order():
    """Each two are swapped; Optuna keeps them as they came."""
    swapped = [step ^ 1 for step in range(N)]
    trials = run_each(study_of(HealthPruner(plan=N, rest=0)), train=objective(at=swapped))
    assert {kind for kind, trial in trials.items() if trial.state is PRUNED} == LOSSES.keys() - {"falls"}
    backwards = run_each(
        study_of(HealthPruner(plan=N, rest=0)), {"falls": falling(N)}, objective(at=range(N - 1, -1, -1))
    )
    assert backwards["falls"].last_step == N - 1


@pytest.mark.slow
def test_a_trial_that_goes_on_where_another_broke_off():
    """With the values of a trial that failed, as RetryFailedTrialCallback hands them on."""
    distributions = {"kind": optuna.distributions.CategoricalDistribution(list(LOSSES))}
    study = study_of(HealthPruner(plan=N, rest=0))
    for kind, values in LOSSES.items():
        waiting = optuna.create_trial(
            state=optuna.trial.TrialState.WAITING,
            params={"kind": kind},
            distributions=distributions,
            intermediate_values={step: float(values[step]) for step in range(50)},
            system_attrs={"fixed_params": {"kind": kind}},
        )
        study.add_trial(waiting)
    study.optimize(objective(at=range(50, N)), n_trials=len(LOSSES))
    trials = {trial.params["kind"]: trial for trial in study.trials}
    whole = run_each(study_of(HealthPruner(plan=N, rest=0)))
    assert trials["falls"].state is COMPLETE
    for kind in ("diverges", "breaks"):
        assert trials[kind].last_step == whole[kind].last_step
    assert trials["learns nothing"].last_step == 50


@pytest.mark.slow
def test_another_process_takes_a_trial_over_and_decides_alike():
    study = study_of(HealthPruner(plan=N, rest=0, beside=optuna.pruners.NopPruner()))
    trial = study.ask()
    for step, value in enumerate(LOSSES["diverges"]):
        trial.report(float(value), step)
        if step % 10 == 9:
            study.pruner = pickle.loads(pickle.dumps(study.pruner))
        if trial.should_prune():
            break
    assert step == run_each(study_of(HealthPruner(plan=N, rest=0)))["diverges"].last_step


@pytest.mark.exhaustive
def test_threads_decide_as_one_does():
    curves = {f"{kind} {index}": values for index in range(3) for kind, values in LOSSES.items()}
    alone = run_each(study_of(HealthPruner(plan=N, rest=0)), curves)
    pruner = HealthPruner(plan=N, rest=0)
    together = run_each(study_of(pruner), curves, n_jobs=4)
    assert {kind: trial.last_step for kind, trial in together.items()} == {
        kind: trial.last_step for kind, trial in alone.items()
    }
    assert len(pruner._trials) <= 5


_WORKER = """
import sys
import optuna
from tests.live.test_optuna import LOSSES, N, HealthPruner, report

def train(trial):
    kind = list(LOSSES)[trial.number % 4]
    trial.set_user_attr("kind", kind)
    return report(trial, LOSSES[kind])

study = optuna.load_study(study_name="s", storage=sys.argv[1], pruner=HealthPruner(plan=N, rest=0))
study.optimize(train, n_trials=4)
"""


@pytest.mark.exhaustive
def test_processes_share_a_database(tmp_path):
    uri = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="s", storage=uri)
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", _WORKER, uri], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=300)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    trials = study.trials
    assert len(trials) == 8
    assert {trial.user_attrs["kind"] for trial in trials if trial.state is COMPLETE} == {"falls"}
    assert all((trial.state is PRUNED) == (STOPPED in trial.user_attrs) for trial in trials)
    assert sum(trial.state is PRUNED for trial in trials) == 6


@pytest.mark.exhaustive
def test_nothing_is_kept_of_trials_that_ended():
    pruner = HealthPruner(plan=N, rest=0)
    study = study_of(pruner)
    study.optimize(objective({"falls": falling(20)}), n_trials=30)
    assert len(pruner._trials) == 1


def test_the_params_of_a_trial_are_settings_of_the_run():
    seen = []
    pruner = HealthPruner(plan=N, rest=0, params={"num_classes": 10})

    def train(trial):
        trial.suggest_float("learning_rate", 0.5, 0.5)
        seen.append(pruner.health(trial))
        assert pruner.health(trial) is seen[-1]
        return 0.0

    study_of(pruner).optimize(train, n_trials=1)
    assert seen[0]._params == {"learning_rate": "0.5", "num_classes": "10", "max_steps": "120"}


def test_a_plan_of_its_own():
    pruner = HealthPruner(plan=N, rest=0)
    study = study_of(pruner)
    assert pruner.health(study.ask(), plan=1000)._plan == 1000
    with pytest.raises(ConfigError):
        pruner.health(study.ask(), plan=-1)


@pytest.mark.parametrize("options", [{"plan": -1}, {"stop_on": "error"}, {"intervall": 3}])
def test_options_that_make_no_sense(options):
    with pytest.raises(ConfigError):
        HealthPruner(**{"plan": 10, **options})


def test_whatever_breaks_the_study_goes_on(monkeypatch):
    pruner = HealthPruner(plan=N, rest=0)
    monkeypatch.setattr(type(pruner), "_health_of", lambda *_, **__: 1 / 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trials = run_each(study_of(pruner))
    assert all(trial.state is COMPLETE for trial in trials.values())
    assert "continues without being judged" in str(caught[0].message)


@pytest.mark.slow
def test_a_storage_that_takes_no_attributes_changes_no_decision(monkeypatch):
    monkeypatch.setattr(optuna.storages.InMemoryStorage, "set_trial_user_attr", lambda *_: 1 / 0)
    with pytest.warns(RuntimeWarning, match="not written onto it"):
        trials = run_each(study_of(HealthPruner(plan=N, rest=0)))
    assert trials["diverges"].state is PRUNED
    assert math.isnan(trials["breaks"].intermediate_values[trials["breaks"].last_step])
