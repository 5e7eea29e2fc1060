"""Live statistics of gradients, activations and parameters, for any torch model. Needs torch, which is imported when
something is watched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracker_health.errors import ConfigError, optional_packages
from tracker_health.monitor.dumps import GradientDumps
from tracker_health.monitor.gap_rules import GapJudge
from tracker_health.monitor.live_alerts import LiveAlerts
from tracker_health.monitor.sinks import (
    ActiveRunsSink,
    Files,
    Log,
    Metrics,
    Several,
    StatisticsSink,
    TrainerLog,
    detail_file,
    log_to,
)
from tracker_health.monitor.trackers import ActiveRun, active_runs
from tracker_health.words.gap_names import KINDS
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    import torch

    from tracker_health.monitor.gap_monitor import GapMonitor


def watch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    interval: int = 100,
    kinds: Iterable[str] = KINDS,
    include: Iterable[str] = ("*",),
    exclude: Iterable[str] = (),
    detail: str | Callable[[int, Mapping[str, float]], object] = "file",
    folder: str | Path | None = None,
    log: Log | None = None,
    scaler: Any = None,
    steps_done: int = 0,
    dumps: GradientDumps | None = None,
    alert: bool = False,
    stop_on: str | None = None,
) -> GapMonitor:
    """Measure gradients, activations and parameters in the first and in every ``interval``-th optimizer step.

    Metrics are called ``gap/KIND/NAME/max``, ``mean`` and ``var``.

    Args:
        model: The model; its modules and parameters are measured where they are.
        optimizer: The optimizer, whose steps are counted.
        interval: Optimizer steps from one measurement to the next.
        kinds: Some of ``grads``, ``activations``, ``activation_grads``, ``params``.
        include: Patterns (``*``, ``?``, ``[...]``) of the names of modules and parameters that are measured.
        exclude: Patterns of those that are not.
        detail: ``"file"`` writes all statistics into ``gap.jsonl`` and a summary of each layer to the active W&B or
            MLflow run; ``"metrics"`` sends all to the run; a function is called with the step and all metrics.
        folder: Where the file goes instead of among the run's own.
        log: Takes step and metrics in place of the active run.
        scaler: The ``torch.amp.GradScaler``, whose scale is then taken out of the gradients.
        steps_done: Optimizer steps before this start, where training continues from a checkpoint.
        dumps: Which gradients are written to files as well.
        alert: While the run is still running, rules that can already tell mark it: the tag ``health.live`` of an MLflow
            run is then ``warn`` or ``fail``, and a W&B run has the tag ``health:live-warn`` or ``health:live-fail``.
            With the setting ``notify.wandb_alert`` W&B also alerts people; trackio always gets an alert.
        stop_on: ``"warn"`` or ``"fail"`` does that too, and sets ``should_stop`` at this verdict or worse, which the
            training loop may ask for.

    Returns:
        A context manager, which measures until it is left; ``close()`` ends it as well.

    Raises:
        ConfigError: an argument makes no sense, the file is there already, or there is no run for ``"metrics"``.
        MissingExtra: torch is not installed.
    """
    chosen = tuple(kinds)
    unknown = sorted(set(chosen) - set(KINDS))
    if unknown or not (chosen or dumps):
        raise ConfigError(f"kinds={list(chosen)!r}: there is nothing to measure", f"known: {', '.join(KINDS)}")
    if interval < 1:
        raise ConfigError(f"interval={interval}: it must be at least 1")
    if stop_on not in (None, "warn", "fail"):
        raise ConfigError(f'stop_on={stop_on!r}: it must be "warn", "fail" or None')
    if (alert or stop_on) and not chosen:
        raise ConfigError("alert and stop_on: there is nothing to judge without kinds")
    if steps_done < 0:
        raise ConfigError(f"steps_done={steps_done}: it must be at least 0")
    if dumps is not None and not steps_done:
        dumps.refuse_old_steps()
    with optional_packages("torch"):
        from tracker_health.monitor.gap_monitor import GapMonitor
        from tracker_health.monitor.models import refuse_others
    refuse_others(model, optimizer)
    runs = list(log.runs) if isinstance(log, TrainerLog) else active_runs()
    sinks: list[StatisticsSink] = []
    if chosen:
        sinks.append(_sink(detail, folder, log, runs, continued=steps_done > 0))
    judge = None
    if alert or stop_on:
        judge = GapJudge(partial(_mark, runs, LiveAlerts()), Verdict(stop_on) if stop_on else None)
        sinks.append(judge)
    if dumps is not None and dumps.log:
        sinks.append(Files(dumps.root, runs))
    return GapMonitor(
        model,
        optimizer,
        Several([*sinks, ActiveRunsSink(runs)]),
        interval=interval,
        kinds=chosen,
        include=tuple(include),
        exclude=tuple(exclude),
        scaler=scaler,
        steps_done=steps_done,
        dumps=dumps,
        judge=judge,
    )


def _mark(runs: Sequence[ActiveRun], alerts: LiveAlerts, word: str, reason: str) -> None:
    for run in runs:
        with suppress(Exception):  # a tracker out of reach shows itself
            run.mark(word)
        with suppress(Exception):
            alerts.send(run, word, reason)


def _sink(
    detail: str | Log, folder: str | Path | None, log: Log | None, runs: Sequence[ActiveRun], *, continued: bool
) -> StatisticsSink:
    to = log or log_to(runs)
    if callable(detail):
        return Metrics(detail, layers=False)
    if detail == "metrics":
        if to is None:
            raise ConfigError('detail="metrics": no W&B or MLflow run is active', "start one, or give a function")
        return Metrics(to, layers=False)
    if detail != "file":
        raise ConfigError(f'detail={detail!r}: it must be "file", "metrics" or a function')
    file = detail_file(folder, runs, continued=continued, keep=isinstance(log, TrainerLog))
    return Several([file, *([Metrics(to, layers=True)] if to is not None else [])])


__all__ = ["GradientDumps", "watch"]
