"""The table of causes, in six parts. The order of its rows decides nothing."""

from __future__ import annotations

from collections.abc import Mapping

from tracker_health.diagnosis._cause import Cause
from tracker_health.diagnosis.table import data, pace, policy, process, training, unknown

CAUSES: tuple[Cause, ...] = (
    *training.CAUSES,
    *data.CAUSES,
    *process.CAUSES,
    *pace.CAUSES,
    *policy.CAUSES,
    *unknown.CAUSES,
)

_GROUPED = {
    "Learning rate and optimizer": "learning-rate-too-high learning-rate-too-low schedule-wrong setting-not-applied "
    "optimizer-setting-wrong weight-decay-too-strong gradient-clipping-too-tight gradients-not-cleared",
    "Loss and numerics": "non-finite-loss fp16-overflow loss-implemented-wrong loss-summed loss-term-idle",
    "Model": "parameters-not-trained no-gradient weights-do-not-move units-dead initialisation-wrong "
    "adapter-not-attached",
    "Data": "labels-do-not-match all-labels-ignored inputs-not-scaled outliers-in-data data-not-shuffled "
    "same-batch-repeated",
    "Evaluation": "overfitting evaluation-stuck evaluation-broken class-never-predicted",
    "Reinforcement learning and preferences": " ".join(cause.name for cause in policy.CAUSES),
    "Machine and process": "out-of-memory disk-full data-loader-died communication-failed hang-in-collective own-error "
    "time-limit preempted interrupted killed-reason-unknown stopped-too-early",
    "Speed and cost": "data-loader-bound slowed-down straggler memory-creeps",
    "Checkpoints": "checkpoint-incomplete wrong-weights-saved resume-incomplete",
    "Cause not known": " ".join(cause.name for cause in unknown.CAUSES),
}
_NAMED = {cause.name: cause for cause in CAUSES}
CAUSE_GROUPS: Mapping[str, tuple[Cause, ...]] = {
    group: tuple(_NAMED[name] for name in names.split()) for group, names in _GROUPED.items()
}
"""The causes by where the fault is, for people who look for one."""
