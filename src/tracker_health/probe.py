"""What a rule is, for rules of your own: the public door to ``tracker_health.rules.probe``."""

from tracker_health.rules.probe import (
    CASES,
    EXAMPLE,
    MEASURE_NAME,
    SECTIONS,
    WITHOUT,
    Explanation,
    Probe,
    Status,
    Symptom,
    Threshold,
    WorkedExample,
    explanation_of,
    flaw_in,
    special_cases_of,
    thresholds_of,
)

__all__ = [
    "CASES",
    "EXAMPLE",
    "MEASURE_NAME",
    "SECTIONS",
    "WITHOUT",
    "Explanation",
    "Probe",
    "Status",
    "Symptom",
    "Threshold",
    "WorkedExample",
    "explanation_of",
    "flaw_in",
    "special_cases_of",
    "thresholds_of",
]
