"""What is said about a rule, for the terminal (``explain``) and for its generated page: both from the rule's own
docstring and thresholds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from tracker_health.render.calibration import calibration_in_short
from tracker_health.render.rule_page import example_lines, rule_text, vote_of
from tracker_health.rules.probe import CASES, EXAMPLE, Probe, explanation_of, thresholds_of
from tracker_health.text import printable
from tracker_health.words.retired import Retired, RetiredThreshold

_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")


MOST_LINES = 40
"""Of the short explanation of a rule: what a terminal shows without scrolling."""
_COLUMNS = 100
GROUPS: Mapping[str, str] = {
    "curves": "Loss",
    "validation": "Validation",
    "reinforcement": "Reinforcement learning",
    "gradients": "Gradients",
    "optimizer": "Optimizer",
    "weights": "Weights",
    "live": "Layers, while training",
    "run": "How the run went",
    "system": "Speed and memory",
    "fine_tune": "Regularised training",
}
"""What the packages of rules are called, in the order of the navigation."""

_ABOUT_RULES = (
    "Each rule reads one kind of evidence and says pass, warn or fail. Rules with *no vote* are measured and "
    "shown, and do not change a run's verdict by default. `tracker-health explain CODE` prints a page in short, "
    "`--full` all of it."
)
_LEAST_LINES = 4


def explain(probe: type[Probe]) -> str:
    """What a rule is, how it decides, and what to do, in ``MOST_LINES`` lines at most."""
    explanation = explanation_of(probe)
    decides = _reflowed(explanation.sections["How it decides"])
    thresholds = [_line(_threshold_in_short(probe, name)) for name in thresholds_of(probe)]
    head = [f"{probe.code} {probe.name} ({probe.status}, symptom: {probe.symptom})"]
    head += ["", *wrap(explanation.summary, _COLUMNS), ""]
    cases = [_line(f"{name}: {sentence}") for name, sentence in explanation.cases.items()]
    rest = ["", "Settings", *thresholds] if thresholds else []
    rest += ["", CASES, *cases] if cases else []
    rest += ["", EXAMPLE, *map(_folded, example_lines(explanation))] if explanation.example else []
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


def _folded(line: str) -> str:
    """A line of a worked example: numbers are cut, the reason is wrapped."""
    verdict = line.startswith(("pass: ", "warn: ", "fail: "))
    return "\n".join(wrap(line, _COLUMNS, initial_indent="  ", subsequent_indent="  ")) if verdict else _line(line)


def _cut(lines: list[str], room: int) -> list[str]:
    return lines if len(lines) <= room else [*lines[: room - 1], "  ... (--full shows the rest)"]


def _reflowed(text: str) -> list[str]:
    """Paragraphs and items of lists, each wrapped again, without blank lines."""
    parts: list[str] = []
    for line in text.splitlines():
        begins = not line.strip() or _ITEM.match(line) or " -> " in line
        if begins or not parts:
            parts.append(line.strip())
        else:
            parts[-1] = f"{parts[-1]} {line.strip()}".strip()
    return [f"  {line}" for part in parts for line in wrap(part, _COLUMNS - 2, break_on_hyphens=False)]


def explain_in_full(probe: type[Probe]) -> str:
    """All that there is to say of a rule, as plain text: its page."""
    return rule_text(probe)


def explain_retired(rule: Retired) -> str:
    """What there is to say of a rule that was retired, as plain text."""
    return f"{rule.code} {rule.name} (retired)\n\n{_fate(rule)}\n"


def _fate(rule: Retired) -> str:
    return f"{rule.fate}: {rule.why.rstrip('.')}. Reports and tags of earlier versions may still name it."


def retired_page(rule: Retired, names: Mapping[str, str]) -> str:
    """The Markdown page of a retired rule. ``names``: of the rules that are there, by code."""
    links = "\n".join(f"- [{code} {names[code]}]({code}.md)" for code in rule.replaced_by)
    return f"# {rule.code} {rule.name}\n\n*retired*\n\n{_fate(rule)}\n" + (f"\n{links}\n" if links else "")


def index(
    probes: Iterable[type[Probe]], retired: Iterable[Retired] = (), retired_thresholds: Sequence[RetiredThreshold] = ()
) -> str:
    """The Markdown page that lists the rules, by what they read."""
    lines = ["# The rules", "", _ABOUT_RULES, ""]
    groups: dict[str, list[type[Probe]]] = {}
    for probe in probes:
        groups.setdefault(group_of(probe), []).append(probe)
    for title, members in groups.items():
        lines += [f"## {title}", "", "| rule | what it finds | verdict |", "|---|---|---|"]
        for probe in members:
            link = f"[{probe.code} {probe.name}]({probe.code}.md)"
            lines.append(f"| {link} | {explanation_of(probe).summary} | {vote_of(probe)} |")
        lines.append("")
    gone = [
        f"| [{one.code} {one.name}]({one.code}.md) | {', '.join(one.replaced_by)} | {one.since} |" for one in retired
    ]
    if gone:
        lines += ["## Retired", "", "| rule | replaced by | since |", "|---|---|---|", *gone, ""]
    if retired_thresholds:
        lines += [
            "## Retired settings",
            "",
            "They are still understood, and do nothing: a warning names what replaced them.",
            "",
        ]
        lines += ["| setting | replaced by | why |", "|---|---|---|"]
        lines += [
            f"| `{one.rule}.{one.threshold}` | {_code(one.replaced_by)} | {one.why} |" for one in retired_thresholds
        ]
    return "\n".join(lines).rstrip() + "\n"


def _code(name: str | None) -> str:
    return f"`{name}`" if name else "nothing"


def group_of(probe: type[Probe]) -> str:
    """By the package that a rule lies in."""
    package = probe.__module__.split(".")[-2] if probe.__module__.startswith("tracker_health.") else ""
    return GROUPS.get(package, "Other")
