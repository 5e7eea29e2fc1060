"""tracker-health: judges tracked training runs, and writes the verdict onto them.

The public names load on first use, so that importing the package costs next to nothing and never imports a tracker or
torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tracker_health._version import __version__

if TYPE_CHECKING:
    from tracker_health.annotating import Outcome
    from tracker_health.api import annotate, annotate_many, check, check_many, clear, series, tensors
    from tracker_health.config import Config, preset
    from tracker_health.diagnosed import Diagnosis
    from tracker_health.errors import ConfigError, RunError, TrackerHealthError
    from tracker_health.evidence import Evidence, Need, Part, Series
    from tracker_health.hooks import autolog
    from tracker_health.monitor import GradientDumps, watch
    from tracker_health.opening import open_run
    from tracker_health.probe import Probe, Symptom, Threshold
    from tracker_health.result import Finding, ProbeResult, Report
    from tracker_health.verdict import Verdict, worst

_HOMES = {
    "Outcome": "annotating",
    "annotate": "api", "annotate_many": "api", "check": "api", "check_many": "api", "clear": "api",
    "series": "api", "tensors": "api",
    "autolog": "hooks",
    "Config": "config", "preset": "config",
    "Diagnosis": "diagnosed",
    "ConfigError": "errors", "RunError": "errors", "TrackerHealthError": "errors",
    "Evidence": "evidence", "Need": "evidence", "Part": "evidence", "Series": "evidence",
    "GradientDumps": "monitor", "watch": "monitor",
    "open_run": "opening",
    "Probe": "probe", "Symptom": "probe", "Threshold": "probe",
    "Finding": "result", "ProbeResult": "result", "Report": "result",
    "Verdict": "verdict", "worst": "verdict",
}  # fmt: skip

__all__ = [
    "Config",
    "ConfigError",
    "Diagnosis",
    "Evidence",
    "Finding",
    "GradientDumps",
    "Need",
    "Outcome",
    "Part",
    "Probe",
    "ProbeResult",
    "Report",
    "RunError",
    "Series",
    "Symptom",
    "Threshold",
    "TrackerHealthError",
    "Verdict",
    "__version__",
    "annotate",
    "annotate_many",
    "autolog",
    "check",
    "check_many",
    "clear",
    "open_run",
    "preset",
    "series",
    "tensors",
    "watch",
    "worst",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
