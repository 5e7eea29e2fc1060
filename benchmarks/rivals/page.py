"""The tables of docs/rivals.md, written from the answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from runs import RUNS, Run
from tools import TOOLS, Answer, Tool, versions

PAGE = Path(__file__).parents[2] / "docs" / "rivals.md"
SEEDS = 5

Answers = dict[tuple[str, str], list[Answer]]
"""By run and tool, one for each seed."""


def filled(text: str, answers: Answers, day: date) -> str:
    """The page with its tables as the answers have them."""
    parts = {"tools": _tools(day), "result": _result(answers), "runs": _runs(), "words": _words(answers)}
    for name, lines in parts.items():
        written = "\n".join((f"<!-- {name}: written by make rivals -->", *lines, "<!-- end -->"))
        pattern = rf"<!-- {name}: written by make rivals -->.*?<!-- end -->"
        text = re.sub(pattern, lambda _, new=written: new, text, count=1, flags=re.DOTALL)
    return text


def is_right(run: Run, answer: Answer) -> bool:
    """Whether a faulty run is flagged, or a healthy one is not."""
    return not answer.failed and answer.flagged is bool(run.names)


def cell_of(run: Run, tool: Tool, answers: list[Answer]) -> str:
    """How often a tool is right about a run, and how often it names the fault."""
    right, named = _counted(run, tool, answers)
    return f"{right} of {len(answers)}" + (f"<br>named {named}" if run.names else "")


def line_of(run: Run, tool: Tool, answer: Answer) -> str:
    """The row of the table that has the words."""
    result = "right" if is_right(run, answer) else "missed" if run.names else "false alarm"
    named = f", {'named' if tool.names(run.name, answer) else 'not named'}" if run.names else ""
    return f"| {run.name} | {tool.name} | {answer.words} | {result}{named} |"


def _counted(run: Run, tool: Tool, answers: list[Answer]) -> tuple[int, int]:
    return (
        sum(is_right(run, answer) for answer in answers),
        sum(tool.names(run.name, answer) for answer in answers),
    )


def _tools(day: date) -> Iterator[str]:
    of = dict(versions())
    yield f"Last run: {day.day} {day:%B %Y}."
    yield from ("", "| tool | version | what it is for | command |", "|---|---|---|---|")
    for tool in TOOLS:
        yield f"| {tool.name} | {of.get(tool.name, 'this repository')} | {tool.what_for} | `{tool.shown()}` |"


def _result(answers: Answers) -> Iterator[str]:
    yield "| run | " + " | ".join(tool.name for tool in TOOLS) + " |"
    yield "|---|" + "---|" * len(TOOLS)
    for run in RUNS:
        yield f"| {run.name} | " + " | ".join(cell_of(run, tool, answers[run.name, tool.name]) for tool in TOOLS) + " |"
    for title, is_faulty in (("healthy runs", False), ("faulty runs", True)):
        some = [run for run in RUNS if bool(run.names) is is_faulty]
        yield f"| **{title}** | " + " | ".join(f"**{_sum_of(some, tool, answers)}**" for tool in TOOLS) + " |"


def _sum_of(some: list[Run], tool: Tool, answers: Answers) -> str:
    pairs = [_counted(run, tool, answers[run.name, tool.name]) for run in some]
    total = sum(len(answers[run.name, tool.name]) for run in some)
    named = f"<br>named {sum(named for _, named in pairs)}" if some[0].names else ""
    return f"{sum(right for right, _ in pairs)} of {total}{named}"


def _runs() -> Iterator[str]:
    yield from ("| run | what is true of it | named, if a finding says that |", "|---|---|---|")
    for run in RUNS:
        yield f"| {run.name} | {run.truth} | {run.names or 'healthy'} |"


def _words(answers: Answers) -> Iterator[str]:
    yield from ("| run | tool | it says | result |", "|---|---|---|---|")
    for run in RUNS:
        for tool in TOOLS:
            yield line_of(run, tool, answers[run.name, tool.name][0])
