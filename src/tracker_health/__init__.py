"""tracker-health: judges tracked training runs, and writes the verdict onto them.

The public names load on first use, so that importing the package costs almost nothing and never imports a tracker or
torch.
"""

from __future__ import annotations

from tracker_health._version import __version__

TYPE_CHECKING = False  # that of ``typing`` costs three milliseconds, in each Python that is started with the hooks
if TYPE_CHECKING:
    from typing import Any

    from tracker_health.api import (
        annotate,
        annotate_many,
        check,
        check_many,
        clear_annotations,
        compare,
        read_series,
        read_tensors,
        repaired,
        write_repaired,
    )
    from tracker_health.config import Config, preset
    from tracker_health.errors import ConfigError, RunError, TrackerHealthError
    from tracker_health.evidence import (
        Curve,
        Evidence,
        Need,
        OptimizerState,
        ParameterTable,
        Part,
        RunInfo,
        Series,
        StepUnit,
        Weights,
    )
    from tracker_health.fleet.operations import acknowledge, baseline, gate, summary, sweep
    from tracker_health.hooks import autolog
    from tracker_health.live import LiveFinding, LiveHealth
    from tracker_health.monitor import GradientDumps, watch
    from tracker_health.report.result import Finding, ProbeResult, Report
    from tracker_health.report.resume_point import Onset, Rewind
    from tracker_health.rules.curves.curve_rule import CurveRule
    from tracker_health.rules.probe import Probe, Symptom, Threshold
    from tracker_health.runs.lookup import open_run
    from tracker_health.runs.outcome import Outcome
    from tracker_health.words.diagnosis import Diagnosis
    from tracker_health.words.verdict import Verdict, worst_verdict

_HOMES = {
    "Outcome": "runs.outcome",
    "annotate": "api", "annotate_many": "api", "check": "api", "check_many": "api",
    "clear_annotations": "api", "compare": "api", "read_series": "api", "read_tensors": "api", "repaired": "api",
    "write_repaired": "api",
    "autolog": "hooks",
    "Config": "config", "preset": "config",
    "Diagnosis": "words.diagnosis",
    "ConfigError": "errors", "RunError": "errors", "TrackerHealthError": "errors",
    "Curve": "evidence", "Evidence": "evidence", "Need": "evidence", "OptimizerState": "evidence",
    "ParameterTable": "evidence", "Part": "evidence", "RunInfo": "evidence", "Series": "evidence",
    "StepUnit": "evidence", "Weights": "evidence",
    "Onset": "report.resume_point", "Rewind": "report.resume_point",
    "LiveFinding": "live", "LiveHealth": "live",
    "GradientDumps": "monitor", "watch": "monitor",
    "acknowledge": "fleet.operations", "baseline": "fleet.operations", "gate": "fleet.operations",
    "summary": "fleet.operations", "sweep": "fleet.operations",
    "open_run": "runs.lookup",
    "Probe": "rules.probe", "Symptom": "rules.probe", "Threshold": "rules.probe",
    "CurveRule": "rules.curves.curve_rule",
    "Finding": "report.result", "ProbeResult": "report.result", "Report": "report.result",
    "Verdict": "words.verdict", "worst_verdict": "words.verdict",
}  # fmt: skip

_RENAMED = {
    "clear": "clear_annotations",
    "series": "read_series",
    "tensors": "read_tensors",
    "worst": "worst_verdict",
}
"""Names up to 0.1, too general for a package's front: they go on, with a warning, until 0.3."""

__all__ = [
    "Config",
    "ConfigError",
    "Curve",
    "CurveRule",
    "Diagnosis",
    "Evidence",
    "Finding",
    "GradientDumps",
    "LiveFinding",
    "LiveHealth",
    "Need",
    "Onset",
    "OptimizerState",
    "Outcome",
    "ParameterTable",
    "Part",
    "Probe",
    "ProbeResult",
    "Report",
    "Rewind",
    "RunError",
    "RunInfo",
    "Series",
    "StepUnit",
    "Symptom",
    "Threshold",
    "TrackerHealthError",
    "Verdict",
    "Weights",
    "__version__",
    "acknowledge",
    "annotate",
    "annotate_many",
    "autolog",
    "baseline",
    "check",
    "check_many",
    "clear_annotations",
    "compare",
    "gate",
    "open_run",
    "preset",
    "read_series",
    "read_tensors",
    "repaired",
    "summary",
    "sweep",
    "watch",
    "worst_verdict",
    "write_repaired",
]


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        new = _RENAMED[name]
        message = f"tracker_health.{name} is now called tracker_health.{new}; the old name goes in 0.3"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = new
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
