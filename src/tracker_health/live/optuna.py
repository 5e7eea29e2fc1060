"""A pruner for Optuna that ends trials which are plainly going wrong, whatever other trials reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from tracker_health.config import preset
from tracker_health.errors import ConfigError, named, optional_packages
from tracker_health.live.health import LiveHealth
from tracker_health.live.options import check_options
from tracker_health.live.tracked import LiveRuns
from tracker_health.live.verdicts import LiveFinding
from tracker_health.monitor.measuring_errors import tell
from tracker_health.roles import TRAIN_LOSS
from tracker_health.text import printable

with optional_packages("optuna"):
    from optuna.pruners import BasePruner
    from optuna.study import StudyDirection

if TYPE_CHECKING:
    from datetime import datetime

    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

CAUSE, STEP, STOPPED, WOULD_STOP = "health.cause", "health.step", "health.stopped", "health.would_stop"
"""User attributes of a trial that was pruned for its health, or would have been: the cause, where one is known, the
step, and why in a sentence."""

_ATTRIBUTE_CHARACTERS = 1000


class HealthPruner(BasePruner):
    """Prunes a trial when ``LiveHealth`` says that it should stop.

    The values that a trial reports are its history. An objective can add evidence of its own:

        pruner = HealthPruner(plan=1000)
        study = optuna.create_study(pruner=pruner)

        def objective(trial):
            rate = trial.suggest_float("learning_rate", 1e-4, 10, log=True)
            health = pruner.health(trial)
            for step in range(1000):
                loss = train(rate)
                health.step(step=step, loss=loss, learning_rate=rate)
                if step % 100 == 99:
                    trial.report(evaluate(), step)
                    if trial.should_prune():
                        raise optuna.TrialPruned

    Why a trial was pruned is in its user attributes, see ``CAUSE``, ``STEP`` and ``STOPPED``. In a study of several
    objectives, where Optuna asks no pruner, ``health.should_stop`` answers. An MLflow or W&B run that the objective
    began says so too; one that was there before the trial is the study's. A pruner can be shared by threads, and
    copied into other processes: what it knows of a trial is made again from what the trial reported.
    """

    def __init__(
        self,
        plan: float | None = None,
        *,
        metric: str | None = None,
        beside: BasePruner | None = None,
        dry_run: bool = False,
        params_from_trial: bool = True,
        **options: Any,
    ) -> None:
        """Begin with no trial.

        Args:
            plan: The last step of a trial, in the unit that it reports in; or that of ``health.step`` where the
                objective feeds it. Without one nothing is said of trials that learn nothing.
            metric: What the reported value is called. By default ``loss`` in a study that minimises and ``accuracy`` in
                one that maximises; ``val_loss`` and ``val_accuracy`` where the objective feeds a training loss. A
                value that is neither, such as a reward, needs its name.
            beside: Another pruner that is asked as well: a trial is pruned if either says so.
            dry_run: Only write onto the trial what would have pruned it. The pruner ``beside`` still prunes.
            params_from_trial: The trial's parameters are settings of the run, which some rules ask for.
            **options: Others of ``LiveHealth``: ``config``, ``stop_on``, ``params``, ``on_finding``, ...

        Raises:
            ConfigError: an option makes no sense.
        """
        check_options(LiveHealth, options)
        if beside is not None and not isinstance(beside, BasePruner):
            raise ConfigError(f"beside={beside!r}: it must be a pruner, as in MedianPruner()")
        LiveHealth(plan=plan, **options)
        self._plan, self._metric, self._beside = plan, metric, beside
        self._dry_run, self._params_from_trial = dry_run, params_from_trial
        self._options = {**options, "hang": False}  # a trial that has ended says nothing any more
        self._trials: dict[tuple[BaseStorage, int], _TrialHealth] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """All but the trials under way, which belong to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("_trials", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._trials, self._lock = {}, threading.Lock()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether a trial should be pruned, by what it reported. Optuna calls it in ``trial.should_prune()``.

        Args:
            study: The study.
            trial: A trial that is under way.

        Returns:
            True where its health or the pruner ``beside`` says so.
        """
        return self._is_stopped(study, trial) or (self._beside is not None and self._beside.prune(study, trial))

    def _is_stopped(self, study: Study, trial: FrozenTrial) -> bool:
        try:
            health = self._health_of(study, trial)
            minimises = study.directions[0] != StudyDirection.MAXIMIZE
            health.take_reports(trial.intermediate_values, minimises=minimises)
        except Exception as error:  # noqa: BLE001  whatever is wrong in here, the study continues
            tell(f"trial {trial.number} continues without being judged: {named(error)}")
            return False
        return health.should_stop

    def health(self, trial: Trial, *, plan: float | None = None) -> LiveHealth:
        """What judges a trial, for the objective to feed with more than it reports to Optuna.

        Values that are reported are then put at the newest step that was fed.

        Args:
            trial: The trial, after its parameters were suggested: those suggested later are no settings of the run.
            plan: The last step of this trial, where it is another than that of the others.

        Returns:
            The same object for each call with this trial.

        Raises:
            ConfigError: ``plan`` makes no sense.
        """
        return self._health_of(trial.study, trial, plan)

    def _health_of(self, study: Study, trial: Trial | FrozenTrial, plan: float | None = None) -> _TrialHealth:
        key = (study._storage, trial._trial_id)  # noqa: SLF001  as Optuna's own integrations do
        with self._lock:
            health = self._trials.get(key)
        if health is not None:
            return health
        params = {**(trial.params if self._params_from_trial else {}), **(self._options.get("params") or {})}
        health = _TrialHealth(
            metric=self._metric,
            began=trial.datetime_start,
            plan=self._plan if plan is None else plan,
            dry_run=self._dry_run,
            **{
                **self._options,
                "params": params,
                "on_finding": _Recorder(*key, self._dry_run, self._options.get("on_finding")),
            },
        )
        ended = self._ended()
        with self._lock:
            for other in ended:
                self._trials.pop(other, None)
            return self._trials.setdefault(key, health)

    def _ended(self) -> list[tuple[BaseStorage, int]]:
        """Trials that are over, of which nothing is kept: Optuna tells no pruner that one is."""
        with self._lock:
            known = list(self._trials)
        return [key for key in known if _is_over(*key)]


def _is_over(storage: BaseStorage, trial_id: int) -> bool:
    try:
        return storage.get_trial(trial_id).state.is_finished()
    except KeyError:  # its study was deleted
        return True


class _TrialHealth(LiveHealth):
    """Of one trial: what it reports, and what its objective feeds."""

    def __init__(self, *, metric: str | None, began: datetime | None, **options: Any) -> None:
        super().__init__(**options)
        # A run that was there before is not the trial's: it is of the whole study.
        self._runs = LiveRuns(options.get("runs"), since=began.timestamp() if began is not None else 0.0)
        config = options.get("config", "default")
        self._roles_of = (preset(config) if isinstance(config, str) else config).role_names
        self._metric = metric
        self._reports, self._is_fed = 0, False

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> LiveFinding | None:
        self._is_fed = True
        return super().log(metrics, step)

    def take_reports(self, values: dict[int, float], *, minimises: bool) -> None:
        """Take those values that were reported since the last time: new ones are at the end of a trial's."""
        fresh = sorted(islice(reversed(values.items()), len(values) - self._reports))
        self._reports = len(values)
        if not fresh:
            return
        if self._metric is None:
            self._metric = self._usual_name(minimises=minimises)
        if self._is_fed:
            # A report may count epochs where the objective counts steps.
            fresh = [(self._history.last_step, fresh[-1][1])]
        for step, value in fresh:
            super().log({self._metric: value}, step)

    def _usual_name(self, *, minimises: bool) -> str:
        roles = self._roles_of(self._history.names).values()
        return f"{'val_' if TRAIN_LOSS in roles else ''}{'loss' if minimises else 'accuracy'}"


class _Recorder:
    """Writes what stops a trial onto it, and hands findings on."""

    def __init__(
        self, storage: BaseStorage, trial_id: int, dry_run: bool, on_finding: Callable[[LiveFinding], object] | None
    ) -> None:
        self._storage, self._trial_id, self._dry_run, self._on_finding = storage, trial_id, dry_run, on_finding

    def __call__(self, finding: LiveFinding) -> None:
        if finding.stops:
            try:
                self._write(finding)
            except Exception as error:  # noqa: BLE001  the trial may be over, the storage away for a while
                tell(f"why a trial was pruned is not written onto it: {named(error)}")
        if self._on_finding is not None:
            self._on_finding(finding)

    def _write(self, finding: LiveFinding) -> None:
        attributes: dict[str, Any] = {STEP: finding.step}
        if finding.cause is not None and finding.cause.named:
            attributes[CAUSE] = finding.cause.named
        attributes[WOULD_STOP if self._dry_run else STOPPED] = printable(str(finding), _ATTRIBUTE_CHARACTERS)
        for name, value in attributes.items():
            self._storage.set_trial_user_attr(self._trial_id, name, value)
