"""``watch`` as a callback of trainers: one line to add. Each trainer is imported when its callback is made.

At the end of a training a callback also leaves ``health_summary.json``: the plan, and optimizer and weights as
statistics, so that the rules need no checkpoint. Whatever goes wrong in here is reported in one line; the training goes
on.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tracker_health.errors import ConfigError, named, optional_packages
from tracker_health.monitor import watch
from tracker_health.monitor.measuring_errors import reported, tell
from tracker_health.monitor.sinks import TrainerLog, log_to
from tracker_health.monitor.trackers import ActiveRun, active_runs, runs_of_loggers
from tracker_health.monitor.trainer_params import lightning_params, transformers_params
from tracker_health.words.gap_names import SUMMARY_FILE, SUMMARY_SCHEMA

_reported = reported("the training continues without live statistics")


def lightning_callback(**options: Any) -> Any:
    """A callback for Lightning's ``Trainer``: ``Trainer(callbacks=[lightning_callback(interval=100)])``.

    ``options``: those of ``watch``. Unless they say otherwise, summaries go to the trainer's loggers, and the file of
    all statistics to its log folder and the run; steps, gradient scaler and optimizer (the first of several) are the
    trainer's. With ``stop_on`` the trainer stops as it does for early stopping.

    Raises:
        ConfigError: an option is none of ``watch``.
        MissingExtra: Lightning is not installed.
    """
    _check(options)
    with optional_packages("lightning"):
        # It is one package under two names; what is loaded already is what the trainer is of.
        package: Any = sys.modules.get("lightning.pytorch") or import_module("pytorch_lightning")

    class GapCallback(package.Callback):  # type: ignore[misc]
        """Watches from the beginning of the training to its end, also an early one."""

        _watched: _Watched | None = None

        @_reported
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            runs = _runs_of(trainer.loggers)
            self._watched = _Watched(
                pl_module,
                trainer.optimizers[0],
                TrainerLog(_lightning_log(trainer, runs), runs),
                folder=trainer.log_dir or trainer.default_root_dir,
                scaler=getattr(trainer.precision_plugin, "scaler", None),
                steps_done=trainer.global_step,
                first=trainer.is_global_zero,
                options=options,
            )

        @_reported
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if self._watched is not None and self._watched.monitor.should_stop:
                trainer.should_stop = True

        @_reported
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self._watched is not None:
                self._watched.finish(lightning_params(trainer, pl_module))

        @_reported
        def on_exception(self, *_: Any) -> None:
            if self._watched is not None:
                self._watched.monitor.close()

    return GapCallback()


def transformers_callback(**options: Any) -> Any:
    """A callback for the ``Trainer`` of transformers: ``Trainer(callbacks=[transformers_callback(interval=100)])``.

    ``options``: those of ``watch``. Unless they say otherwise, summaries go to the active run, and the file of all
    statistics to the trainer's output folder and the run; steps, optimizer and gradient scaler are the trainer's. With
    ``stop_on`` the trainer stops after the step. The trainer does not report an exception: ``callback.close()`` takes
    the hooks off then.

    Raises:
        ConfigError: an option is none of ``watch``.
        MissingExtra: transformers is not installed.
    """
    _check(options)
    with optional_packages("transformers"):
        from transformers import TrainerCallback

    class GapCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Watches from the beginning of the training to its end, also an early one."""

        _watched: _Watched | None = None

        @_reported
        def on_train_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:  # noqa: ARG002
            self.close()
            runs = active_runs()
            self._watched = _Watched(
                trainer["model"],
                trainer["optimizer"],
                TrainerLog(log_to(runs) or _nowhere, runs),
                folder=args.output_dir,
                scaler=getattr(trainer["optimizer"], "scaler", None),
                steps_done=state.global_step,
                first=state.is_world_process_zero,
                options=options,
            )

        @_reported
        def on_step_end(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
            if self._watched is None:
                return
            if self._watched.monitor.should_stop:
                control.should_training_stop = True
            if control.should_training_stop:
                # Before the callbacks of trackers end their runs.
                self._watched.finish(transformers_params(args, state, trainer.get("model")))

        @_reported
        def on_train_end(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:  # noqa: ARG002
            if self._watched is not None:
                self._watched.finish(transformers_params(args, state, trainer.get("model")))

        @_reported
        def close(self) -> None:
            """Take the hooks off, after an exception."""
            if self._watched is not None:
                self._watched.monitor.close()

    return GapCallback()


class _Watched:
    """A training under way, and what is left of it in the end."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        log: TrainerLog,
        *,
        folder: str | Path,
        scaler: Any,
        steps_done: int,
        first: bool,
        options: Mapping[str, Any],
    ) -> None:
        if options.get("log") is not None:
            log = TrainerLog(options["log"], log.runs)
        known = {"folder": folder, "scaler": scaler, "steps_done": steps_done}
        self.monitor = watch(model, optimizer, **{**known, **options, "log": log})
        self._model, self._optimizer, self._runs = model, optimizer, log.runs
        self._path = Path(options.get("folder", folder)) / SUMMARY_FILE
        self._first, self._finished = first, False

    def finish(self, params: Mapping[str, Any]) -> None:
        """Write the summary, hand it to the runs, and take the hooks off."""
        if self._finished:
            return
        self._finished = True
        try:
            if self._first and self._is_ours():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(self._summary(params), encoding="utf-8")
                for run in self._runs:
                    run.keep(self._path)
        except Exception as error:  # noqa: BLE001  the rest is finished all the same
            tell(f"{SUMMARY_FILE} was not written: {named(error)}")
        finally:
            self.monitor.close()

    def _summary(self, params: Mapping[str, Any]) -> str:
        from tracker_health.monitor.models import unwrapped_optimizer, unwrapped_root
        from tracker_health.monitor.training_summary import summary_of
        from tracker_health.readers.training_summary import as_text

        summary = summary_of(
            unwrapped_root(self._model),
            unwrapped_optimizer(self._optimizer),
            steps=self.monitor.steps,
            params={name: str(value) for name, value in params.items() if value is not None},
            scales=self.monitor.loss_scales,
        )
        return as_text(summary)

    def _is_ours(self) -> bool:
        """Whether the file may be written: another of its name is someone's own."""
        if not self._path.exists():
            return True
        with self._path.open(encoding="utf-8", errors="replace") as file:
            return SUMMARY_SCHEMA in file.read(200)


def _check(options: Mapping[str, Any]) -> None:
    known = {*inspect.signature(watch).parameters} - {"model", "optimizer"}
    if unknown := sorted(options.keys() - known):
        raise ConfigError(f"no such option: {', '.join(unknown)}", f"known: {', '.join(sorted(known))}")


def _nowhere(_: int, __: Mapping[str, float]) -> None:
    """No tracker is active: the file has everything."""


# What the rules ask for


def _runs_of(loggers: Any) -> list[ActiveRun]:
    found = runs_of_loggers(loggers)
    return found or active_runs()


def _lightning_log(trainer: Any, runs: list[ActiveRun]) -> Callable[[int, Mapping[str, float]], None]:
    """To the loggers, but to MLflow by a way that waits for no server."""
    behind = log_to([run for run in runs if type(run).__name__ == "MlflowRun"])

    def log(step: int, metrics: Mapping[str, float]) -> None:
        for logger in trainer.loggers:
            if type(logger).__name__ != "MLFlowLogger":
                logger.log_metrics(dict(metrics), step)
        if behind is not None:
            behind(step, metrics)

    return log
