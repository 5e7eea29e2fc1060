"""What a checkpoint shows of when it was too late."""

from __future__ import annotations

from tracker_health.evidence import OptimizerState, StepUnit
from tracker_health.report.resume_point import Onset


def nan_saved(state: OptimizerState | None) -> Onset | None:
    """That a checkpoint holds NaN, which came at its step or before; None where that step is not known."""
    if state is None or state.global_step is None:
        return None
    return Onset(step=state.global_step, unit=StepUnit.OPTIMIZER_STEP, what="NaN was saved")
