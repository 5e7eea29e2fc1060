"""What is said about a rule, for the terminal (``explain``) and for its generated page: both from the rule's own
docstring and thresholds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap

from tracker_health.probe import Probe, explanation_of, thresholds_of
from tracker_health.render.calibration import calibration
from tracker_health.retired import Retired


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


def explain_retired(rule: Retired) -> str:
    """What there is to say of a rule that was retired, as plain text."""
    return f"{rule.code} {rule.name} (retired)\n\n{_fate(rule)}\n"


def _fate(rule: Retired) -> str:
    return f"{rule.fate}: {rule.why.rstrip('.')}. Reports and tags of earlier versions may still name it."


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


def retired_page(rule: Retired, names: Mapping[str, str]) -> str:
    """The Markdown page of a retired rule. ``names``: of the rules that are there, by code."""
    links = "\n".join(f"- [{code} {names[code]}]({names[code]}.md)" for code in rule.replaced_by)
    return f"# {rule.code} {rule.name}\n\n*retired*\n\n{_fate(rule)}\n" + (f"\n{links}\n" if links else "")


def index(probes: Iterable[type[Probe]], retired: Iterable[Retired] = ()) -> str:
    """The Markdown page that lists the rules."""
    lines = ["# The rules", "", "| code | name | finds | symptom | status |", "|---|---|---|---|---|"]
    for probe in probes:
        summary = explanation_of(probe).summary
        lines.append(
            f"| {probe.code} | [{probe.name}]({probe.name}.md) | {summary} | {probe.symptom} | {probe.status} |"
        )
    gone = [
        f"| {one.code} | [{one.name}]({one.name}.md) | {', '.join(one.replaced_by)} | {one.since} |" for one in retired
    ]
    if gone:
        lines += ["", "## Retired", "", "| code | name | replaced by | since |", "|---|---|---|---|", *gone]
    return "\n".join(lines) + "\n"
