"""The table of causes, in four parts. The order of its rows decides nothing."""

from __future__ import annotations

from tracker_health.diagnosis._cause import Cause
from tracker_health.diagnosis.table import data, policy, process, training, unknown

CAUSES: tuple[Cause, ...] = (*training.CAUSES, *data.CAUSES, *process.CAUSES, *policy.CAUSES, *unknown.CAUSES)
