"""What is said about a rule, for the terminal (``explain``) and for its generated page: both from the rule's own
docstring and thresholds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from textwrap import wrap

from tracker_health.probe import CASES, EXAMPLE, Explanation, Probe, explanation_of, thresholds_of
from tracker_health.render.calibration import calibration, calibration_in_short
from tracker_health.retired import Retired
from tracker_health.text import printable

_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")


MOST_LINES = 40
"""Of the short explanation of a rule: what a terminal shows without scrolling."""
_COLUMNS = 100
_LEAST_LINES = 4


def explain(probe: type[Probe]) -> str:
    """What a rule is, how it decides, and what to do, in ``MOST_LINES`` lines at most."""
    explanation = explanation_of(probe)
    decides = _reflowed(explanation.sections["How it decides"])
    thresholds = [_line(_threshold_in_short(probe, name)) for name in thresholds_of(probe)]
    head = [f"{probe.code} {probe.name} ({probe.status}, symptom: {probe.symptom})"]
    head += ["", *wrap(explanation.summary, _COLUMNS), ""]
    cases = [_line(f"{name}: {sentence}") for name, sentence in explanation.cases.items()]
    rest = ["", "Thresholds", *thresholds] if thresholds else []
    rest += ["", CASES, *cases] if cases else []
    rest += ["", EXAMPLE, *_example(explanation)] if explanation.example else []
    rest += ["", "What to do", *_reflowed(explanation.sections["What to do"])]
    measured = calibration_in_short(probe.code)
    rest += ["", *([_line(f"Calibration: {measured}", "")] if measured else [])]
    rest.append(f"More: tracker-health explain {probe.code} --full")
    room = max(_LEAST_LINES, MOST_LINES - len(head) - len(rest) - 1)
    return "\n".join([*head, "How it decides", *_cut(decides, room), *rest][:MOST_LINES]) + "\n"


def _threshold_in_short(probe: type[Probe], name: str) -> str:
    _, threshold = thresholds_of(probe)[name]
    unit = f" ({threshold.unit})" if threshold.unit else ""
    return f"{name} = {getattr(probe, name)}{unit}: {threshold.meaning}"


def _line(text: str, indent: str = "  ") -> str:
    return indent + printable(text, _COLUMNS - len(indent))


def _cut(lines: list[str], room: int) -> list[str]:
    return lines if len(lines) <= room else [*lines[: room - 1], "  ... (--full shows the rest)"]


def _reflowed(text: str) -> list[str]:
    """Paragraphs and items of lists, each wrapped anew, without blank lines."""
    parts: list[str] = []
    for line in text.splitlines():
        begins = not line.strip() or _ITEM.match(line)
        if begins or not parts:
            parts.append(line.strip())
        else:
            parts[-1] = f"{parts[-1]} {line.strip()}".strip()
    return [f"  {line}" for part in parts for line in wrap(part, _COLUMNS - 2, break_on_hyphens=False)]


def explain_in_full(probe: type[Probe]) -> str:
    """All that there is to say of a rule, as plain text."""
    explanation = explanation_of(probe)
    lines = [f"{probe.code} {probe.name} ({probe.status}, symptom: {probe.symptom})", "", explanation.summary]
    for title, text in explanation.sections.items():
        lines += ["", title, *(f"  {line}" if line else "" for line in text.splitlines())]
        if title == "How it decides":
            lines += _threshold_lines(probe)
            lines += _case_lines(explanation)
            lines += ["", EXAMPLE, *_example(explanation)] if explanation.example else []
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


def _case_lines(explanation: Explanation) -> list[str]:
    if not explanation.cases:
        return []
    width = max(map(len, explanation.cases))
    return ["", CASES, *(f"  {name:<{width}}  {sentence}" for name, sentence in explanation.cases.items())]


def _example(explanation: Explanation) -> list[str]:
    """The lines of the worked example."""
    example = explanation.example
    if example is None:
        return []
    series = [f"{role}: {' '.join(f'{value:g}' for value in values)}" for role, values in example.series.items()]
    series += [f"param {name}: {value}" for name, value in example.params.items()]
    return [
        *map(_line, series),
        *wrap(f"{example.verdict}: {example.why}", _COLUMNS, initial_indent="  ", subsequent_indent="  "),
    ]


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
            lines += _case_table(explanation)
            lines += [f"\n## {EXAMPLE}\n", *(f"    {line}" for line in _example(explanation))] * bool(
                explanation.example
            )
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


def _case_table(explanation: Explanation) -> list[str]:
    if not explanation.cases:
        return []
    rows = [f"| `{name}` | {sentence} |" for name, sentence in explanation.cases.items()]
    return ["", f"## {CASES}", "", "| case | what is different |", "|---|---|", *rows]


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
