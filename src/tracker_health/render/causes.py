"""What is said about a cause: in short for ``explain CAUSE``, and as a page of the documentation, which ``--full``
prints as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from tracker_health.diagnosis import CERTAIN, LEAD, LEAST, LIKELY, SMALL_LEAD, Cause, Sign
from tracker_health.render.rule_page import in_terminal, plain
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import printable
from tracker_health.words.diagnosis import Action, Diagnosis

_COLUMNS = 100
_SIGNS_IN_SHORT = 6

HOW = f"""A cause is recognised by signs. Each sign has a weight, and the weights of the signs that a run shows add up
to the cause's score. The cause with the highest score comes first. A cause with a score below {LEAST} is not named.
A weight that was counted is a power of 2: a sign of weight 3 is seen 8 times as often with this cause as with others.
A setting beyond what trains has a larger weight than any of its effects. Of signs that look at the same thing only the
strongest counts. A sign that came after what it is said to cause does not count. A cause is certain from a score of
{CERTAIN} on, if the next cause has at least {LEAD} less. It is likely from a score of {LIKELY} on, if the next cause
has at least {SMALL_LEAD} less. Otherwise it is possible."""


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
    """What a cause is, its strongest signs, what to do, and how to be sure."""
    lines = [cause.name, "", *wrap(cause.summary, _COLUMNS)]
    lines += ["", *wrap(" ".join(cause.about.split()), _COLUMNS)] if cause.about else []
    strongest = sorted((sign for sign in cause.signs if cause.weight(sign) > 0), key=lambda one: -cause.weight(one))
    looks = max(len(sign.looks_at) for sign in strongest)
    lines += ["", "Strongest signs"]
    for sign in strongest[:_SIGNS_IN_SHORT]:
        lines.append(f"  {cause.weight(sign):+3d}  {sign.looks_at:<{looks}}  {sign.name}")
    advice = _advice(cause)
    lines += ["", "What to do", *(f"  {line}" for line in wrap(advice, _COLUMNS - 2))] if advice else []
    lines += ["", "How to be sure", *(f"  {line}" for line in wrap(cause.test, _COLUMNS - 2))]
    lines += ["", f"More: tracker-health explain {cause.name} --full"]
    return "\n".join(lines) + "\n"


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
    if cause.about:
        yield "## What happens", " ".join(cause.about.split())
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
    known = {probe.code for probe in BUILT_IN}
    lines = ["| weight | looks at | sign |", "|---|---|---|"]
    for sign in cause.signs:
        looks = f"[{sign.looks_at}](../rules/{sign.looks_at}.md)" if sign.looks_at in known else sign.looks_at
        counted = source_of(cause, sign)
        lines.append(f"| {cause.weight(sign):+d} | {looks} | {sign.name}{counted and f' ({counted})'} |")
    return "\n".join([*lines, "", "Weights without a count are judgement."])


def _advice(cause: Cause) -> str:
    """What to do, where it depends on no number of the run."""
    return _in_words(cause.do) if isinstance(cause.do, Action) else cause.do


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
