"""A stopper for Ray Tune that ends trials which are plainly going wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tracker_health.errors import named, optional_packages
from tracker_health.live.health import LiveHealth
from tracker_health.live.options import announce, check_options
from tracker_health.monitor.measuring_errors import tell

with optional_packages("ray"):
    from ray.tune import Stopper
    from ray.tune.result import AUTO_RESULT_KEYS, DONE, TRAINING_ITERATION, TRIAL_ID

_OF_RAY = frozenset({*AUTO_RESULT_KEYS, DONE, TRIAL_ID, "experiment_tag", "should_checkpoint", "trial_name"})
"""What Ray adds to the results of a trial."""
_PLAIN = (str, int, float)  # a config may hold whole data sets


class HealthStopper(Stopper):  # type: ignore[misc, unused-ignore]
    """Stops a trial when ``LiveHealth`` says that it should, by the numbers that the trial reports.

        stopper = HealthStopper(plan=100)
        tune.Tuner(train, run_config=tune.RunConfig(stop=stopper)).fit()
        print(stopper.reasons)

    A trial's step is its ``training_iteration``, and its ``config`` are its settings. Other trials go on. An experiment
    that is restored judges its trials by what they report from then on.
    """

    def __init__(self, plan: float | None = None, *, dry_run: bool = False, **options: Any) -> None:
        """Begin with no trial.

        Args:
            plan: How often a trial is meant to report. Without it nothing is said of trials that learn nothing.
            dry_run: Only say what would be stopped.
            **options: Others of ``LiveHealth``: ``config``, ``stop_on``, ``params``, ``on_finding``, ...

        Raises:
            ConfigError: an option makes no sense.
        """
        check_options(LiveHealth, options)
        # What is active where Ray decides is no run of a trial's.
        self._options = {"plan": plan, "dry_run": dry_run, "runs": (), **options, "hang": False}  # trials pause
        LiveHealth(**self._options)
        self._trials: dict[str, LiveHealth] = {}
        self._reasons: dict[str, str] = {}

    @property
    def reasons(self) -> Mapping[str, str]:
        """Why trials were stopped, or would have been in a dry run: a sentence by trial id."""
        return dict(self._reasons)

    def __getstate__(self) -> dict[str, Any]:
        """All but the trials under way: Ray writes its stoppers to disk."""
        return {**vars(self), "_trials": {}}

    def __call__(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        """Take what a trial reports. Ray calls it.

        Args:
            trial_id: Which trial.
            result: What it reported, with what Ray added.

        Returns:
            True where the trial should stop.
        """
        try:
            return self._is_stopped(trial_id, result)
        except Exception as error:  # noqa: BLE001  whatever is wrong in here, the trials go on
            tell(f"trial {trial_id} continues without being judged: {named(error)}")
            return False

    def stop_all(self) -> bool:
        """Whether the whole experiment should end. Ray calls it.

        Returns:
            False: trials are judged each by itself.
        """
        return False

    def _is_stopped(self, trial_id: str, result: Mapping[str, Any]) -> bool:
        if result.get(DONE):
            self._trials.pop(trial_id, None)
            return False
        health = self._trials.get(trial_id)
        if health is None:
            settings = {name: one for name, one in (result.get("config") or {}).items() if isinstance(one, _PLAIN)}
            params = {**settings, **(self._options.get("params") or {})}
            health = self._trials[trial_id] = LiveHealth(**{**self._options, "params": params})
        health.log(dict(_numbers(result)), result.get(TRAINING_ITERATION))
        if health.stopped_by is not None and trial_id not in self._reasons:
            self._reasons[trial_id] = announce(health, f"trial {trial_id}")
        if health.should_stop:
            self._trials.pop(trial_id)
        return health.should_stop


def _numbers(result: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a trial reports itself, by names of the form ``env_runners/episode_return_mean``."""
    for name, value in result.items():
        if not prefix and name in _OF_RAY:
            continue
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value
