"""The answer of a gate for people: lines of a terminal, and five lines of Markdown for a model card."""

from __future__ import annotations

from tracker_health.judge.annotations import in_markdown
from tracker_health.judge.gate_decision import Gated
from tracker_health.text import listing, printable

_MOST_NOTES = 5


def model_lines(gated: Gated) -> list[str]:
    """The answer, and what it rests on."""
    gate = gated.gate
    verdict = f" ({gate.verdict.upper()})" if gate.verdict is not None else ""
    lines = [f"{gated.model}: {gate.answer}{verdict}  {printable(gate.reason, 400)}".rstrip()]
    if gated.run is not None:
        run = gated.run.run
        identity = "" if run.id == run.name else f" ({printable(run.id, 120)})"
        lines.append(f"  its run: {printable(run.name, 120)}{identity}")
    if gated.error is None:
        told = bool(gated.unread) and gated.unread in gate.reason
        lines.append(f"  its files: {'not judged' if told else printable(_files(gated), 400)}")
    lines += [f"  note: {printable(note, 300)}" for note in gated.notes[:_MOST_NOTES]]
    if gated.promotion:
        lines.append(f"  {printable(gated.promotion, 400)}")
    if gated.unwritten:
        lines.append(f"  not tagged: {printable(gated.unwritten, 400)}")
    return lines


def model_card(gated: Gated) -> list[str]:
    """Five lines of Markdown."""
    gate = gated.gate
    verdict = gate.verdict.upper() if gate.verdict is not None else "UNKNOWN"
    return [
        f"**Training health: {verdict}** · {gate.answer} · {in_markdown(gated.model)}",
        f"- Why: {in_markdown(gate.reason or 'nothing was found')}",
        f"- Run: {_run(gated)}",
        f"- Judged: {_judged(gated)}; registered files: {in_markdown(_files(gated))}",
        f"- By: {_tool(gated)}",
    ]


def _files(gated: Gated) -> str:
    if gated.files is not None:
        judged = "judged" + (f", {gated.files.verdict}" if gated.files.findings else "")
        return f"{judged}, but not all: {gated.unread}" if gated.unread else judged
    return f"not judged: {gated.unread}" if gated.unread else "not judged"


def _run(gated: Gated) -> str:
    if gated.run is None:
        return "not known"
    run = gated.run.run
    name = in_markdown(run.name)
    linked = f"[{name}](<{run.url}>)" if run.url and ">" not in run.url else name
    return f"{linked}, {gated.run.ended}" if gated.run.ended else linked


def _judged(gated: Gated) -> str:
    parts = gated.run.judged_parts("judged") if gated.run is not None else []
    return in_markdown(listing(parts, 10)) if parts else "nothing"


def _tool(gated: Gated) -> str:
    report = gated.run or gated.files
    if report is None:
        return "tracker-health"
    ignored = f", without {in_markdown(listing(list(report.tool.ignored)))}" if report.tool.ignored else ""
    return f"tracker-health {report.tool.version}, preset {in_markdown(report.tool.preset)}{ignored}"
