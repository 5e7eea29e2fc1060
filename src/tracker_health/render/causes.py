"""What is said about a cause, for the terminal (``explain CAUSE``) and for the generated page."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap

from tracker_health.diagnosis import CERTAIN, LEAD, LEAST, LIKELY, SMALL_LEAD, Cause, Sign

_COLUMNS = 100

HOW = f"""A cause is known by signs. Each sign has a weight, and the weights of the signs that a run shows add up to the
cause's score. The cause with the highest score comes first; one below {LEAST} is not named. A weight that was counted
is a power of 2: a sign of weight 3 is seen 8 times as often with this cause as with others. A setting beyond what
trains has more than any of its effects. Of signs that look at the same thing the strongest counts, and a sign that
came after what it is said to cause does not. A cause is certain from a score of {CERTAIN} on if the next one has
{LEAD} less, likely from {LIKELY} on if the next one has {SMALL_LEAD} less, else possible."""


def source_of(cause: Cause, sign: Sign) -> str:
    """Where a sign's weight comes from."""
    counts = cause.counts_of(sign)
    if counts is None:
        return "judgement"
    return (
        f"seen in {counts.seen} of {counts.of} runs with this cause, in {counts.elsewhere} of {counts.of_others} others"
    )


def explain_cause(cause: Cause) -> str:
    """What a cause is, by which signs it is known, and what they weigh."""
    lines = [cause.name, "", *wrap(cause.summary, _COLUMNS)]
    lines += ["", *wrap(" ".join(cause.about.split()), _COLUMNS)] if cause.about else []
    lines += ["", "Signs"]
    looks = max(len(sign.looks_at) for sign in cause.signs)
    for sign in cause.signs:
        lines.append(f"  {cause.weight(sign):+3d}  {sign.looks_at:<{looks}}  {sign.name} ({source_of(cause, sign)})")
    lines += ["", "What it can explain", f"  {', '.join(sorted(cause.explains))}"]
    lines += ["", "What would tell", f"  {cause.test}"]
    lines += ["", "How causes are ranked", *(f"  {line}" for line in wrap(" ".join(HOW.split()), _COLUMNS))]
    return "\n".join(lines) + "\n"


def causes_page(causes: Iterable[Cause]) -> str:
    """The Markdown page on all causes."""
    lines = ["# The causes", "", "What a diagnosis can say of a run, and by what it knows it.", "", HOW, ""]
    for cause in causes:
        lines += [f"## {cause.name}", "", cause.summary, ""]
        lines += [cause.about, ""] if cause.about else []
        lines += ["| weight | looks at | sign | source |", "|---|---|---|---|"]
        for sign in cause.signs:
            lines.append(f"| {cause.weight(sign):+d} | {sign.looks_at} | {sign.name} | {source_of(cause, sign)} |")
        lines += ["", f"Can explain: {', '.join(sorted(cause.explains))}.", "", f"What would tell: {cause.test}.", ""]
    return "\n".join(lines)
