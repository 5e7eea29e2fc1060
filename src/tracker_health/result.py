"""What rules find and what a report holds: the public door to ``tracker_health.report.result``."""

from tracker_health.report.result import (
    SCHEMA,
    Confidence,
    ErrorEntry,
    Finding,
    Judged,
    Measure,
    ProbeResult,
    Report,
    SeriesUse,
    SkippedProbe,
    ToolInfo,
    earliest_onset,
    once_a_source,
    strict,
)

__all__ = [
    "SCHEMA",
    "Confidence",
    "ErrorEntry",
    "Finding",
    "Judged",
    "Measure",
    "ProbeResult",
    "Report",
    "SeriesUse",
    "SkippedProbe",
    "ToolInfo",
    "earliest_onset",
    "once_a_source",
    "strict",
]
