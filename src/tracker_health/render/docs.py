"""What is said about a rule, for the terminal (``explain``) and for its generated page: both from the rule's own
docstring and thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from tracker_health.probe import Probe, explanation_of, thresholds_of
from tracker_health.render.calibration import calibration


def explain(probe: type[Probe]) -> str:
    """The explanation of a rule as plain text."""
    explanation = explanation_of(probe)
    lines = [f"{probe.code} {probe.name} ({probe.status}, symptom: {probe.symptom})", "", explanation.summary]
    for title, text in explanation.sections.items():
        lines += ["", title, *(f"  {line}" if line else "" for line in text.splitlines())]
        if title == "How it decides":
            lines += _threshold_lines(probe)
    measured = calibration(probe.code)
    if measured:
        lines += ["", "Calibration", *(f"  {line}" for sentence in measured for line in wrap(sentence, 110))]
    return "\n".join(lines) + "\n"


def _threshold_lines(probe: type[Probe]) -> list[str]:
    found = thresholds_of(probe)
    if not found:
        return []
    lines = ["", "Thresholds"]
    for name, (_, threshold) in found.items():
        lines.append(f"  {name} = {getattr(probe, name)}  {threshold.meaning} [{threshold.unit}; {threshold.source}]")
    return lines


def page(probe: type[Probe]) -> str:
    """The Markdown page of a rule."""
    explanation = explanation_of(probe)
    lines = [
        f"# {probe.code} {probe.name}",
        "",
        f"*{probe.status}, since {probe.since}, symptom `{probe.symptom}`*",
        "",
        explanation.summary,
    ]
    for title, text in explanation.sections.items():
        lines += ["", f"## {title}", "", text]
        if title == "How it decides":
            lines += _threshold_table(probe)
    measured = calibration(probe.code)
    if measured:
        lines += ["", "## Calibration", "", *measured]
    return "\n".join(lines) + "\n"


def _threshold_table(probe: type[Probe]) -> list[str]:
    found = thresholds_of(probe)
    if not found:
        return []
    lines = ["", "| threshold | default | unit | meaning | source |", "|---|---|---|---|---|"]
    for name, (_, threshold) in found.items():
        lines.append(
            f"| `{name}` | {getattr(probe, name)} | {threshold.unit} | {threshold.meaning} | {threshold.source} |"
        )
    return lines


def index(probes: Iterable[type[Probe]]) -> str:
    """The Markdown page that lists the rules."""
    lines = ["# The rules", "", "| code | name | finds | symptom | status |", "|---|---|---|---|---|"]
    for probe in probes:
        summary = explanation_of(probe).summary
        lines.append(
            f"| {probe.code} | [{probe.name}]({probe.name}.md) | {summary} | {probe.symptom} | {probe.status} |"
        )
    return "\n".join(lines) + "\n"
