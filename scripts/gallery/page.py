"""The page of symptoms: every run of the gallery as a picture, with the rules and causes that name it."""

from __future__ import annotations

from collections.abc import Sequence

from gallery.choosing import Judged, Word, flagged_runs, most_common_first
from tracker_health.config import ORIGINAL_RULES

_COLUMNS = 2
_ABOUT = (
    "Find the picture that looks like your run. Each is a synthetic run that all rules and the diagnosis judged. Below "
    "it stand the rules that flag it and the cause that is named. Rules in brackets are informational by default. In "
    "each part what is most common in the [benchmark](../accuracy-method.md) comes first, and runs that no rule "
    "flags come last."
)
_SYMPTOMS = (
    "The words that reports and the tag `health.symptoms` use, and the rules behind each. The most common come first: "
    "in how many of {runs} flagged runs of the benchmark it was found. Those runs have faults that were chosen; yours "
    "may have others more often."
)


def symptoms_page(runs: Sequence[Judged], symptoms: Sequence[Word]) -> str:
    """The Markdown page. ``symptoms``: the vocabulary."""
    lines = ["# Symptoms", "", _ABOUT, ""]
    families: dict[str, list[Judged]] = {}
    for one in runs:
        families.setdefault(one.entry.family, []).append(one)
    for family, unsorted in families.items():
        members = most_common_first(unsorted)
        lines += [f"## {family}", "", "|" + " |" * _COLUMNS, "|" + "---|" * _COLUMNS]
        for place in range(0, len(members), _COLUMNS):
            cells = [_cell(one) for one in members[place : place + _COLUMNS]]
            cells += [""] * (_COLUMNS - len(cells))
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    lines += ["## The words for symptoms", "", _SYMPTOMS.format(runs=len(flagged_runs())), ""]
    for word in symptoms:
        links = " · ".join(f"[{one.code} {one.name}](../rules/{one.code}.md)" for one in word.rules)
        often = f" ({word.runs} runs)" if word.runs else ""
        lines += [f"### Symptom {word.name.replace('_', ' ')}", "", f"`{word.name}`{often}: {links}", ""]
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
