"""The page of symptoms: every run of the gallery as a picture, with the rules and causes that name it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gallery.choosing import Judged
from tracker_health.config import ORIGINAL_RULES
from tracker_health.rules.probe import Probe

_COLUMNS = 2
_ABOUT = (
    "Find the picture that looks like your run. Each is a synthetic run that all rules and the diagnosis judged. Below "
    "it stand the rules that flag it and the cause that is named. Rules in brackets are informational by default."
)
_SYMPTOMS = "The words that reports and the tag `health.symptoms` use, and the rules behind each."


def symptoms_page(runs: Sequence[Judged], symptoms: Mapping[str, Iterable[type[Probe]]]) -> str:
    """The Markdown page. ``symptoms``: the rules for each word of the vocabulary."""
    lines = ["# Symptoms", "", _ABOUT, ""]
    families: dict[str, list[Judged]] = {}
    for one in runs:
        families.setdefault(one.entry.family, []).append(one)
    for family, members in families.items():
        lines += [f"## {family}", "", "|" + " |" * _COLUMNS, "|" + "---|" * _COLUMNS]
        for place in range(0, len(members), _COLUMNS):
            cells = [_cell(one) for one in members[place : place + _COLUMNS]]
            cells += [""] * (_COLUMNS - len(cells))
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += ["## The words for symptoms", "", _SYMPTOMS, ""]
    for symptom, rules in symptoms.items():
        links = " · ".join(f"[{one.code} {one.name}](../rules/{one.code}.md)" for one in rules)
        lines += [f"### Symptom {symptom.replace('_', ' ')}", "", f"`{symptom}`: {links}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _cell(one: Judged) -> str:
    """A picture, what it shows, and who names it."""
    entry, parts = one.entry, []
    voting = {result.code for result in one.usual.findings}
    found = [one for one in one.report.results if one.code in voting or (one.remedy and one.code not in ORIGINAL_RULES)]
    links = [f"[{result.code}](../rules/{result.code}.md)" for result in found]
    shown = [link if result.code in voting else f"({link})" for link, result in zip(links, found, strict=True)]
    parts.append(f"Rules: {' '.join(shown)}" if shown else "No rule flags it")
    diagnosis = one.usual.diagnosis
    if diagnosis is not None:
        parts.append(f"Cause: [{diagnosis.cause}](../causes/{diagnosis.cause}.md), {diagnosis.certainty}")
    return (
        f"![{entry.title}](../gallery/{entry.name}.svg)<br>**{entry.title}.** {entry.sentence}<br>{'<br>'.join(parts)}"
    )
