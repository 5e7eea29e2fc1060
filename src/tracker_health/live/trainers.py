"""Callbacks that stop a training of transformers, Lightning or Keras which is plainly going wrong: one line to add.

Each hands to ``LiveHealth`` what its trainer logs, and ends the training as early stopping does. Each trainer is
imported when its callback is made. Whatever goes wrong in here is reported in one line; the training continues.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tracker_health.errors import ConfigError, optional_packages
from tracker_health.live.health import LiveHealth
from tracker_health.live.options import announce, check_options
from tracker_health.live.together import from_first, is_one_of_several
from tracker_health.monitor.measuring_errors import reported
from tracker_health.monitor.trainer_params import keras_params, lightning_params, transformers_params

_reported = reported("the training continues without being judged")
_THE_TRAINING = "the training"


def transformers_health(**options: Any) -> Any:
    """A callback for the ``Trainer`` of transformers: ``Trainer(callbacks=[transformers_health()])``.

    It judges what the trainer logs, so ``logging_steps`` says how closely it looks. A training that it stops writes no
    checkpoint any more, so that none of the good ones makes room for a bad one. Several processes stop at the same
    step. What was found is in ``callback.health``.

    ``options``: those of ``LiveHealth``. Unless they say otherwise, the plan is the trainer's ``max_steps``; settings
    of the run are the trainer's, too.

    Raises:
        ConfigError: an option is none of ``LiveHealth``, or makes no sense.
        MissingExtra: transformers is not installed.
    """
    _check(options)
    with optional_packages("transformers"):
        from transformers import TrainerCallback

    class HealthCallback(_UntilTheEnd, TrainerCallback):  # type: ignore[misc, unused-ignore]
        """Judges from the beginning of the training to its end."""

        health: LiveHealth | None = None
        _judge: _TransformersJudge | None = None

        @_reported
        def on_train_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:  # noqa: ARG002
            self.health = _health(options, state.max_steps, transformers_params(args, state, trainer.get("model")))
            self._judge = _TransformersJudge(self.health)

        @_reported
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.all_log = False

        @_reported
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.before_log(control)

        on_epoch_end = on_step_end

        @_reported
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ARG002
            if self._judge is not None and logs and "train_runtime" not in logs:  # not a summary of the whole
                self._judge.take(logs, state, control)

    return HealthCallback()


def lightning_health(*, every: int | None = None, **options: Any) -> Any:
    """A callback for Lightning's ``Trainer``: ``Trainer(callbacks=[lightning_health()])``.

    It judges the training loss, the learning rate and what the module logs: after steps, at the end of an epoch, after
    validation. The trainer stops as it does for early stopping; several processes at the same step, by what the first
    of them logs. A ``ModelCheckpoint`` saves nothing any more then, so that none of the good ones makes room for a bad
    one. What was found is in ``callback.health``.

    ``every``: from so many steps one is judged; by default the trainer's ``log_every_n_steps``. ``options``: those of
    ``LiveHealth``. Unless they say otherwise, plan and settings of the run are the trainer's.

    Raises:
        ConfigError: an option is none of ``LiveHealth``, or makes no sense.
        MissingExtra: Lightning is not installed.
    """
    _check(options, every)
    with optional_packages("lightning"):
        # It is one package under two names; what is loaded already is what the trainer is of.
        package: Any = sys.modules.get("lightning.pytorch") or import_module("pytorch_lightning")

    class HealthCallback(package.Callback):  # type: ignore[misc]
        """Judges from the beginning of the training to its end."""

        health: LiveHealth | None = None
        _judge: _LightningJudge | None = None

        @_reported
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.health = _health(options, _lightning_plan(trainer), lightning_params(trainer, pl_module))
            self._judge = _LightningJudge(self.health, trainer, every)

        @_reported
        def on_train_batch_end(self, trainer: Any, _: Any, outputs: Any, *__: Any) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.after_batch(outputs)

        @_reported
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.after("validation")

        @_reported
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.after("epoch")

        @_reported
        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002
            if self._judge is not None:
                self._judge.give_back()
                self._judge = None
            _end_silences(self.health)

    return HealthCallback()


def keras_health(*, every: int | None = None, **options: Any) -> Any:
    """A callback for Keras 3: ``model.fit(..., callbacks=[keras_health()])``.

    It judges the logs of every epoch. With ``every`` also the loss of the batches, as the mean over so many: what Keras
    logs during an epoch is a mean since its beginning. ``fit`` then ends after the batch or epoch. What was found is in
    ``callback.health``.

    ``every``: None to count epochs. Otherwise steps are batches. ``options``: those of ``LiveHealth``. The plan is the
    epochs or batches of ``fit``, unless they say otherwise. Looks depend on what was logged and not on a clock. So
    several processes with the same logs decide alike. Those of a model within ``DistributedDataParallel`` stop
    together.

    Raises:
        ConfigError: an option is none of ``LiveHealth``, or makes no sense.
        MissingExtra: Keras is not installed.
    """
    _check(options, every)
    with optional_packages("keras"):
        from keras.callbacks import Callback

    class HealthCallback(_UntilTheEnd, Callback):  # type: ignore[misc, unused-ignore]
        """Judges from the beginning of ``fit`` to its end."""

        health: LiveHealth | None = None
        _batches: _KerasBatches

        @_reported
        def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002
            self._batches = _KerasBatches(every)
            epochs, steps = self.params.get("epochs"), self.params.get("steps")
            plan = epochs if every is None else epochs * steps if epochs and steps else None
            known = {"seconds": math.inf, "rest": 0.0, "together": _is_data_parallel(self._model), **options}
            self.health = _health(known, plan, keras_params(self.model))

        @_reported
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002
            self._batches.begin(epoch, self.params.get("steps"))

        @_reported
        def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
            mean = self._batches.mean(batch, logs or {})
            if mean is not None:
                self._judge({"loss": mean}, self._batches.step)

        @_reported
        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            metrics = dict(logs or {})
            if every is not None:
                metrics.pop("loss", None)
            self._judge(metrics, epoch + 1 if every is None else self._batches.step)

        def _judge(self, metrics: dict[str, Any], step: int) -> None:
            if self.health is None:
                return
            rate = getattr(getattr(self.model, "optimizer", None), "learning_rate", None)
            _feed(self.health, {**metrics, **({} if rate is None else {"learning_rate": rate})}, step)
            if self.health.should_stop:
                self.model.stop_training = True

    return HealthCallback()


def _check(options: Mapping[str, Any], every: int | None = None) -> None:
    check_options(LiveHealth, options)
    LiveHealth(**options)
    if every is not None and every < 1:
        raise ConfigError(f"every={every}: it must be a number of steps, 1 or more")


def _health(options: Mapping[str, Any], plan: float | None, params: Mapping[str, Any]) -> LiveHealth:
    plan = plan if plan is not None and 0 < plan < math.inf else None
    return LiveHealth(**{"plan": plan, **options, "params": {**params, **(options.get("params") or {})}})


class _UntilTheEnd:
    """Of a callback: that nothing is logged after the training is no hang."""

    health: LiveHealth | None = None

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """The training is over. Its trainer calls it."""
        _end_silences(self.health)


def _end_silences(health: LiveHealth | None) -> None:
    if health is not None:
        health.end_silences()


def _feed(health: LiveHealth, metrics: Mapping[str, Any], step: int) -> None:
    known = health.stopped_by
    health.log(metrics, step)
    if known is None and health.stopped_by is not None:
        announce(health, _THE_TRAINING)


class _TransformersJudge:
    """Of one training with the Trainer."""

    def __init__(self, health: LiveHealth) -> None:
        self._health = health
        self._stops = False
        self.all_log = False
        """Whether the next log comes in all processes. What a training logs besides may come in one of them."""

    def before_log(self, control: Any) -> None:
        """The step or the epoch is over: the trainer's own log comes next, and then its checkpoint."""
        self.all_log = control.should_log
        if self._stops:
            control.should_save = False

    def take(self, logs: Mapping[str, Any], state: Any, control: Any) -> None:
        several, all_log = is_one_of_several(), self.all_log
        self.all_log = False
        if state.is_world_process_zero or not several:
            _feed(self._health, logs, state.global_step)
        if not several:
            self._stops = self._health.should_stop
        elif all_log:
            self._stops = from_first(self._health.should_stop)
        if self._stops:
            control.should_training_stop, control.should_save = True, False


class _LightningJudge:
    """Of one training with Lightning.

    A trainer holds the last value of each metric, however old. An occasion is a step, the end of an epoch, or a
    validation. New at an occasion are the metrics that were first there at one of its kind.
    """

    def __init__(self, health: LiveHealth, trainer: Any, every: int | None) -> None:
        self._health, self._trainer = health, trainer
        self._every = every or max(1, trainer.log_every_n_steps)
        self._last_step: int = trainer.global_step
        self._occasions = dict.fromkeys(trainer.callback_metrics, "validation")  # what the sanity check left
        self._has_begun = False
        self._checkpoints: list[tuple[Any, int, Any]] = []

    def after_batch(self, outputs: Any) -> None:
        """Judge a step that is due; of the micro-batches of one step the last."""
        step = self._trainer.global_step
        if not self._has_begun:
            self._has_begun = True
            self._new("step")
        if step - self._last_step >= self._every:
            self._last_step = step
            self._judge({**_lightning_step(self._trainer, outputs), **self._new("step")})

    def after(self, occasion: str) -> None:
        """Judge what a validation or an epoch brought."""
        if not self._trainer.sanity_checking:
            self._judge(self._new(occasion))

    def _new(self, occasion: str) -> dict[str, Any]:
        metrics = dict(self._trainer.callback_metrics)
        for name in metrics:
            self._occasions.setdefault(name, occasion)
        return {name: value for name, value in metrics.items() if self._occasions[name] == occasion}

    def _judge(self, metrics: Mapping[str, Any]) -> None:
        """All processes come here at the same steps, and the first decides."""
        trainer = self._trainer
        if trainer.is_global_zero and metrics:
            _feed(self._health, metrics, trainer.global_step)
        decision = trainer.is_global_zero and self._health.should_stop
        if trainer.strategy.reduce_boolean_decision(decision, all=False):
            trainer.should_stop = True
            self._keep_checkpoints()

    def _keep_checkpoints(self) -> None:
        if not self._checkpoints:
            known = [one for one in self._trainer.checkpoint_callbacks if hasattr(one, "save_top_k")]
            self._checkpoints = [(one, one.save_top_k, one.save_last) for one in known]
        for one, _, _ in self._checkpoints:
            one.save_top_k, one.save_last = 0, None

    def give_back(self) -> None:
        """Let the checkpoint callbacks be as they were."""
        for one, top, last in self._checkpoints:
            one.save_top_k, one.save_last = top, last


def _lightning_step(trainer: Any, outputs: Any) -> dict[str, Any]:
    """The loss of a step and its learning rate, whatever the module logs."""
    metrics: dict[str, Any] = {}
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    if loss is not None:
        metrics["loss"] = loss * trainer.accumulate_grad_batches  # of which it is a part
    rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
    if rates:
        metrics["learning_rate"] = max(rates)  # a group that is frozen has 0
    return metrics


def _lightning_plan(trainer: Any) -> float:
    """Optimizer steps; the trainer counts those of all optimizers, and plans those of one."""
    return float(trainer.estimated_stepping_batches) * max(1, len(trainer.optimizers))


def _is_data_parallel(model: Any) -> bool:
    """Whether each process of torch.distributed calls ``fit`` with a copy of this model."""
    return type(model).__name__ == "DistributedDataParallel"


class _KerasBatches:
    """Steps in batches, and the mean loss of some out of the mean since the beginning of an epoch."""

    def __init__(self, every: int | None) -> None:
        self._every = every
        self.step, self._epoch_began = 0, 0
        self._batches, self._sum = 0, 0.0

    def begin(self, epoch: int, batches: int | None) -> None:
        """Begin an epoch, also the first one of a training that continues."""
        self._epoch_began = self.step = max(self.step, epoch * (batches or 0))
        self._batches, self._sum = 0, 0.0

    def mean(self, batch: int, logs: Mapping[str, Any]) -> float | None:
        """The mean loss since it was last given, where that is ``every`` batches ago."""
        done = batch + 1
        self.step = self._epoch_began + done
        if self._every is None or "loss" not in logs or done - self._batches < self._every:
            return None
        total = float(logs["loss"]) * done
        mean = (total - self._sum) / (done - self._batches)
        self._batches, self._sum = done, total
        return mean
