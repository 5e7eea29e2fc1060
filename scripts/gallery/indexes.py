"""The pages that list rules and causes, and those of retired rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tracker_health.diagnosis import Cause
from tracker_health.facts import turns
from tracker_health.render.causes import HOW
from tracker_health.render.docs import fate_of
from tracker_health.render.rule_page import vote_of
from tracker_health.rules.probe import Probe, explanation_of
from tracker_health.words.retired import Retired, RetiredThreshold

GROUPS: Mapping[str, str] = {
    "curves": "Loss",
    "schedules": "Learning rate",
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
    "Each rule reads one kind of evidence and says pass, warn or fail. Rules with *informational* are measured and "
    "shown, and do not change a run's verdict by default. `tracker-health explain CODE` prints a page in short, "
    "`--full` all of it."
)
_ABOUT_CAUSES = (
    "What a diagnosis can say of a run: one cause, how sure it is, and one thing to do. The groups go by where the "
    "fault is."
)


def retired_page(rule: Retired, names: Mapping[str, str]) -> str:
    """The Markdown page of a retired rule. ``names``: of the rules that are there, by code."""
    links = "\n".join(f"- [{code} {names[code]}]({code}.md)" for code in rule.replaced_by)
    return f"# {rule.code} {rule.name}\n\n*retired*\n\n{fate_of(rule)}\n" + (f"\n{links}\n" if links else "")


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
    """By the package that a rule is in."""
    package = probe.__module__.split(".")[-2] if probe.__module__.startswith("tracker_health.") else ""
    return GROUPS.get(package, "Other")


def causes_index(groups: Mapping[str, Iterable[Cause]]) -> str:
    """The Markdown page that lists the causes, and says how they are ranked."""
    lines = ["# The causes", "", _ABOUT_CAUSES, ""]
    for group, causes in groups.items():
        lines += [f"## {group}", "", "| cause | what it is |", "|---|---|"]
        lines += [f"| [{cause.name}]({cause.name}.md) | {cause.summary} |" for cause in causes]
        lines.append("")
    lines += ["## How causes are ranked", "", HOW, "", "## What the signs go by", ""]
    lines += [
        "Signs ask rules for what they found, and for their thresholds, as they are set. These numbers no rule has.",
        "",
    ]
    lines += ["| | |", "|---|---|", *(f"| {what} | {value:g} {unit} |" for what, value, unit in turns.NUMBERS)]
    return "\n".join(lines) + "\n"
