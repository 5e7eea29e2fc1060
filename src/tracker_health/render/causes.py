"""What is said about a cause: in short for ``explain CAUSE``, and as a page of the documentation, which ``--full``
prints as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from tracker_health.diagnosis import LEAD, LEAST, LIKELY, Cause, Sign
from tracker_health.render.rule_page import in_terminal, plain
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import printable
from tracker_health.words.diagnosis import Action, Diagnosis

_COLUMNS = 100
_SIGNS_IN_SHORT = 6

HOW = f"""The headline says what clearly happened: of the findings of the worst verdict the one that began first.
NaN, divergence and a loss scale that collapsed come before all others, and overfitting, an early end, a
schedule and spikes after all others. A cause leads only if it explains one of those findings and the run
shows a sign that it requires. Of several the one comes first for which the most speaks: the weights of
the signs that the run shows add up to its score. A weight is counted, as a power of 2: of 3, a sign is
seen 8 times as often in runs with this cause as in others. Of signs that look at the same thing only the
strongest counts. A sign that came after what it is said to cause does not count. A cause is certain if a
sign defines it, and its score is at least {LEAD:g} above that of the next one that may lead. Such signs
are a setting beyond use, the text of an exception, a NaN that was seen. It is likely from a score of
{LIKELY:g} on, with the same lead. Otherwise it is possible. Where no cause has what it requires, the
headline says that nothing logged shows why. A cause with a score below {LEAST:g} is not named."""


@dataclass(frozen=True, kw_only=True)
class Diagnosed:
    """A run that was diagnosed as a cause. ``file``: of its picture, relative to the page."""

    title: str
    file: str
    diagnosis: Diagnosis


def source_of(cause: Cause, sign: Sign) -> str:
    """Where a sign's weight comes from, where it was counted; else empty."""
    counts = cause.counts_of(sign)
    if counts is None:
        return ""
    return (
        f"seen in {counts.seen} of {counts.of} runs with this cause, in {counts.elsewhere} of {counts.of_others} others"
    )


def explain_cause(cause: Cause) -> str:
    """What a cause is, what it requires, its strongest other signs, what to do, and how to be sure."""
    lines = [cause.name, "", *wrap(cause.summary, _COLUMNS)]
    lines += ["", *wrap(" ".join(cause.text.split()), _COLUMNS)] if cause.text else []
    required = list(dict.fromkeys((*cause.defines, *cause.requires)))
    lines += ["", *_listed("It is named first only with one of these", cause, required)] if required else []
    others = [sign for sign in cause.speaks if sign not in required and cause.weight(sign) > 0]
    strongest = sorted(others, key=lambda one: -cause.weight(one))[:_SIGNS_IN_SHORT]
    lines += ["", *_listed("What speaks for it besides", cause, strongest)] if strongest else []
    advice = _advice(cause)
    lines += ["", "What to do", *(f"  {line}" for line in wrap(advice, _COLUMNS - 2))] if advice else []
    lines += ["", "How to be sure", *(f"  {line}" for line in wrap(cause.test, _COLUMNS - 2))]
    lines += ["", f"More: tracker-health explain {cause.name} --full"]
    return "\n".join(lines) + "\n"


def _listed(title: str, cause: Cause, signs: Sequence[Sign]) -> list[str]:
    looks = max(len(sign.looks_at) for sign in signs)
    return [title, *(f"  {cause.weight(one):+5.1f}  {one.looks_at:<{looks}}  {one.name}" for one in signs)]


def cause_text(cause: Cause) -> str:
    """The page of a cause as plain text, without pictures and links."""
    lines = [cause.name, "", cause.summary]
    for title, body in (*_sections(cause, ()), ("## How causes are ranked", " ".join(HOW.split()))):
        lines += ["", title.lstrip("# "), *in_terminal(plain(body))]
    return "\n".join(lines) + "\n"


def cause_page(cause: Cause, runs: Sequence[Diagnosed] = ()) -> str:
    """The Markdown page of a cause. ``runs``: such that are diagnosed as it."""
    lines = [f"# {cause.name}", "", cause.summary, "", *_pictures(runs)]
    for title, body in _sections(cause, runs):
        lines += [f"{title}\n", body, ""]
    return "\n".join(lines).rstrip() + "\n"


def _sections(cause: Cause, runs: Sequence[Diagnosed]) -> Iterator[tuple[str, str]]:
    if cause.text:
        yield "## What happens", " ".join(cause.text.split())
    yield "## How it is recognised", _signs(cause)
    yield "## What to do", _what_to_do(cause, runs)
    yield "## How to be sure", f"{cause.test[:1].upper()}{cause.test[1:]}."
    yield "## What it can explain", _explained(cause)
    yield "## See also", "[How causes are ranked](index.md#how-causes-are-ranked) · [Symptoms](../symptoms/index.md)"


def _pictures(runs: Sequence[Diagnosed]) -> list[str]:
    """Side by side: runs of the gallery with this diagnosis."""
    if not runs:
        return []
    head = ["| " + " | ".join("for example" for _ in runs) + " |", "|" + "---|" * len(runs)]
    cells = [
        f"![{one.title}]({one.file})<br>**{one.title}** ({one.diagnosis.certainty}): "
        f"{_in_cell(printable(one.diagnosis.sentence, 300))}"
        for one in runs
    ]
    return [*head, "| " + " | ".join(cells) + " |", ""]


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def _signs(cause: Cause) -> str:
    if cause.unknown:
        return "Where no cause has what it requires, a report is headed by what happened, and this says that."
    lines = ["| | looks at | sign | weight |", "|---|---|---|---|"]
    for sign in dict.fromkeys(cause.signs):
        counted = source_of(cause, sign)
        role = "defines it" if sign in cause.defines else "required" if sign in cause.requires else ""
        judged = "" if counted or sign not in cause.judged else " (judged)"
        weight = f"{cause.weight(sign):+.1f}{judged}" if cause.weight(sign) else ""
        lines.append(f"| {role} | {_looks_at(sign)} | {sign.name}{counted and f' ({counted})'} | {weight} |")
    lines += [f"| rules it out | {_looks_at(sign)} | {sign.name} | |" for sign in cause.never]
    lines += [f"| leaves a doubt | {_looks_at(sign)} | {sign.name} | |" for sign in cause.doubts]
    said = "It leads only with a sign that defines it or is required."
    return "\n".join([*lines, "", f"{said} A weight without a count is a judgement, or that of a sign of its own."])


def _looks_at(sign: Sign) -> str:
    known = {probe.code for probe in BUILT_IN}
    kinds = f" ({', '.join(sign.of)})" if sign.of else ""
    return f"[{sign.looks_at}](../rules/{sign.looks_at}.md){kinds}" if sign.looks_at in known else sign.looks_at


def _advice(cause: Cause) -> str:
    """What to do, where it depends on no number of the run."""
    return _in_words(cause.do) if isinstance(cause.do, Action) else cause.do if isinstance(cause.do, str) else ""


def _in_words(action: Action) -> str:
    return f"`{action.change}` {action.explained}".strip() if action.change else action.text


def _what_to_do(cause: Cause, runs: Sequence[Diagnosed]) -> str:
    advice = _advice(cause)
    parts = [f"{advice[:1].upper()}{advice[1:]}."] if advice else []
    own = [one for one in runs if _in_words(one.diagnosis.action) != advice]
    if own:
        rows = [f"| {one.title} | {_in_cell(_in_words(one.diagnosis.action))} |" for one in own]
        parts.append("\n".join(["| you see | try first |", "|---|---|", *rows]))
    return "\n\n".join(parts) or "What to do depends on the run: its report names the setting and both values."


def _explained(cause: Cause) -> str:
    names = {probe.code: probe.name for probe in BUILT_IN}
    return " · ".join(f"[{code} {names[code]}](../rules/{code}.md)" for code in sorted(cause.explains) if code in names)
