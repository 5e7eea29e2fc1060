"""The page of a rule, as Markdown for the documentation and as text for ``explain --full``: one template.

Its words are the rule's own docstring and thresholds, and what the benchmark measured. Pictures come from outside: they
are drawn by running the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from tracker_health.config import Config
from tracker_health.diagnosis import CAUSES
from tracker_health.evidence import Need, Part
from tracker_health.render.calibration import faults_found, how_often_right
from tracker_health.report.result import ProbeResult
from tracker_health.rules.probe import CASES, EXAMPLE, Explanation, Probe, explanation_of, thresholds_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import number, printable

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`(])")
_MARKED = re.compile(r"\s*(?:[-*|]|\d+\.)\s*\S")
_CODE = re.compile(r"(?<![\w`\[/-])([A-Z]{3}\d{3})(?![\w`\]-])")
_MARK = re.compile(r"(?:-|\d+\.) ")
_ADVICE = " -> "
_COLUMNS, _CODE_COLUMNS = 100, 80
_FAILS = re.compile(r"\bfail", re.IGNORECASE)

_PARTS = {
    Part.OPTIMIZER_STATE: "the optimizer's state",
    Part.SECOND_MOMENTS: "second moments of Adam or its relatives",
    Part.SAVED_LOSS_SCALE: "a saved loss scale",
    Part.SAVED_SCHEDULE: "a saved schedule",
    Part.WEIGHTS: "saved weights",
    Part.WEIGHT_CHANGES: "weights of two checkpoints",
    Part.OPTIMIZER_STEPS: "a count of optimizer steps",
    Part.PLAN: "a plan of steps or epochs",
    Part.TEXT_LOG: "a console log",
    Part.ENDING: "how the run ended",
    Part.DLM_STEP_LOG: "a step log `logs/train-*.jsonl`",
    Part.DLM_CHECKPOINT: "`training_state.pt` with its global step",
    Part.BASELINE: "a baseline",
    Part.RANKS: "several ranks of one training",
    Part.COLLECTIVES: "time-outs of collective operations in a console, or dumps of flight recorders",
}
_ROLES = {
    "train_loss": "training loss", "val_loss": "validation loss", "objective_loss": "a loss that need not fall",
    "train_accuracy": "training accuracy", "val_accuracy": "validation accuracy", "train_auc": "training AUC",
    "val_auc": "validation AUC", "train_reward": "reward", "val_reward": "reward of evaluations",
    "grad_norm": "gradient norm", "loss_part": "a term of the loss", "kl": "KL divergence",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A run that a rule judged. ``file``: of its picture, relative to the page."""

    title: str
    file: str
    result: ProbeResult


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What the page of a rule shows: runs that it flags, and nearby ones that it passes."""

    flagged: Sequence[Picture] = ()
    passed: Sequence[Picture] = ()


def rule_page(probe: type[Probe], pictures: Pictures | None = None) -> str:
    """The Markdown page of a rule, with links to other pages of the documentation."""
    shown = pictures or Pictures()
    explanation = explanation_of(probe)
    lines = [f"# {probe.code} · {probe.name}", "", _badges(probe), "", explanation.summary, ""]
    lines += _pictures(shown)
    lines += [_linked(unwrapped(explanation.sections["What it finds"]), probe), ""]
    for title, body in _sections(probe, shown):
        lines += [f"{title}\n", _linked(body, probe), ""]
    return "\n".join(lines).rstrip() + "\n"


def rule_text(probe: type[Probe]) -> str:
    """The same page as plain text, without pictures and links."""
    explanation = explanation_of(probe)
    lines = [f"{probe.code} {probe.name} ({probe.status}, symptom: {probe.symptom})", "", explanation.summary, ""]
    lines += [plain(_badges(probe)), "", *wrap(" ".join(explanation.sections["What it finds"].split()), _COLUMNS)]
    for title, body in _sections(probe, Pictures()):
        lines += ["", title.lstrip("# "), *in_terminal(plain(body))]
    return "\n".join(lines) + "\n"


def _sections(probe: type[Probe], shown: Pictures) -> Iterator[tuple[str, str]]:
    """Headings and their Markdown, in the order of the page."""
    explanation = explanation_of(probe)
    said = explanation.sections
    yield "## Why it matters", unwrapped(said["Why it matters"])
    yield "## How it decides", numbered(said["How it decides"])
    if explanation.cases:
        yield f"### {CASES}", _case_table(explanation)
    if explanation.example:
        *series, why = example_lines(explanation)
        wrapped = [line for one in series for line in wrap(one, _CODE_COLUMNS, subsequent_indent="  ")]
        yield f"### {EXAMPLE}", "\n".join(["```text", *wrapped, "```", "", _emphasised(why)])
    yield "## What to do", _what_to_do(said["What to do"], shown.flagged)
    yield "## When it is wrong", f"{unwrapped(said['Known limits'])}\n\n{_how_to_silence(probe)}"
    right = how_often_right(probe.code)
    if right:
        yield "## How often it is right", "\n\n".join([*right[:-1], *_faults_table(probe.code), right[-1]])
    if thresholds_of(probe):
        yield "## Settings", _settings_table(probe)
    yield "## See also", _see_also(probe, said["References"])


# What is above


def can_fail(probe: type[Probe]) -> bool:
    """Whether a rule fails runs, or warns at most: by what its docstring says of it."""
    explanation = explanation_of(probe)
    return bool(_FAILS.search(" ".join([explanation.sections["How it decides"], *explanation.cases.values()])))


def vote_of(probe: type[Probe]) -> str:
    """What a rule can do to a run's verdict under the default preset."""
    if not Config().counts(probe.code, probe.status):
        return "informational"
    return "can fail a run" if can_fail(probe) else "warns"


def _badges(probe: type[Probe]) -> str:
    vote = vote_of(probe)
    kind = {"can fail a run": "fail", "warns": "warn"}.get(vote, "none")
    needs = [_need_in_words(need) for need in probe().needs if not need.optional]
    return " · ".join(
        [
            f'<span class="badge {kind}">{vote}</span>',
            *([f"needs {', '.join(needs)}"] if needs else []),
            f"{probe.status} since {probe.since}",
            f"symptom [`{probe.symptom}`](../symptoms/index.md#{symptom_anchor(probe.symptom)})",
        ]
    )


def symptom_anchor(symptom: str) -> str:
    """The anchor of a symptom on the page of symptoms."""
    return f"symptom-{symptom.replace('_', '-')}"


def _need_in_words(need: Need) -> str:
    roles = [_role_in_words(role) for role in need.roles]
    words = f"{', '.join(roles[:-1])} or {roles[-1]}" if len(roles) > 1 else roles[0]
    unit = need.unit.replace("_", " ")
    return f"**{words}**" + (f" (at least {need.min_points} {unit})" if need.min_points > 1 else "")


def _role_in_words(role: str) -> str:
    if role in list(Part):
        return _PARTS[Part(role)]
    return _ROLES.get(role, role.replace("_", " "))


def _pictures(shown: Pictures) -> list[str]:
    """Two columns: what is flagged, what is passed. A caption says what the rule said of that run."""
    if not (shown.flagged or shown.passed):
        return []
    rows = max(len(shown.flagged), len(shown.passed))
    lines = ["| it flags | it passes |", "|---|---|"]
    for place in range(rows):
        cells = [_cell(some[place]) if place < len(some) else "" for some in (shown.flagged, shown.passed)]
        lines.append(f"| {cells[0]} | {cells[1]} |")
    key = (
        "*Drawn by running the rule on [synthetic runs](../symptoms/index.md). Thin line: what was logged. Step line: "
        "the levels that rules compare. Dashed: the limit, where there is one. Circles and red bars: what was found. "
        "Pale bars: what no optimizer lists.*"
    )
    return [*lines, "", key, ""]


def _cell(one: Picture) -> str:
    message = printable(one.result.message, 240).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
    return (
        f"![{one.title}: {one.result.verdict}]({one.file})<br>**{one.result.verdict.upper()}** {one.title}: {message}"
    )


# The sections


def numbered(text: str) -> str:
    """Prose as numbered steps, a sentence each. Lists and tables stay as they are."""
    if any(_MARKED.match(line) for line in text.splitlines()):
        return unwrapped(text)
    sentences = [one for part in text.split("\n\n") for one in _SENTENCE.split(" ".join(part.split()))]
    if len(sentences) == 1:
        return sentences[0]
    return "\n".join(f"{place}. {sentence}" for place, sentence in enumerate(sentences, 1))


def unwrapped(text: str) -> str:
    """Prose with a line for each paragraph; lists and tables stay as they are."""
    blocks = text.split("\n\n")
    marked = [any(_MARKED.match(line) for line in block.splitlines()) for block in blocks]
    return "\n\n".join(
        block if is_marked else " ".join(block.split()) for block, is_marked in zip(blocks, marked, strict=True)
    )


def _what_to_do(text: str, flagged: Sequence[Picture]) -> str:
    """The docstring's advice; lines ``what you see -> what to try`` as a table, as what the report said of pictures."""
    prose, rows = advice_in(text)
    parts = [prose] if prose else []
    seen = dict.fromkeys((one.title, one.result.remedy) for one in flagged if one.result.remedy)
    rows = rows or [(title, remedy) for title, remedy in seen]
    if rows:
        head = "| you see | try first |\n|---|---|"
        parts.append("\n".join([head, *(f"| {_in_cell(one)} | {_in_cell(other)} |" for one, other in rows)]))
    return "\n\n".join(parts)


def advice_in(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The prose of a section, and its lines ``what you see -> what to try first``."""
    entries = re.sub(r"\n[ \t]+", " ", text).splitlines()
    rows = [
        (one.strip(), other.strip()) for one, arrow, other in (line.partition(_ADVICE) for line in entries) if arrow
    ]
    return unwrapped("\n".join(line for line in entries if _ADVICE not in line).strip()), rows


def _in_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _how_to_silence(probe: type[Probe]) -> str:
    lines = ["```toml", "# tracker-health.toml: for some runs only", "[[overrides]]", 'match = "experiment:NAME-*"']
    lines += [f'ignore = ["{probe.code}"]']
    first = next(iter(thresholds_of(probe)), None)
    if first is not None:
        lines += ["", "# or move a limit for all runs", f"[rules.{probe.name}]", f"{first} = {getattr(probe, first)}"]
    return "\n".join([*lines, "```"])


def _faults_table(code: str) -> list[str]:
    found = faults_found(code)
    if not found:
        return []
    rows = [f"| {fault.replace('-', ' ')} | {hits} of {runs} |" for fault, (hits, runs) in found]
    return ["\n".join(["| fault | found by this rule alone |", "|---|---|", *rows])]


def _settings_table(probe: type[Probe]) -> str:
    lines = ["| setting | default | what it is (unit; source) |", "|---|---|---|"]
    for name, (_, threshold) in thresholds_of(probe).items():
        about = "; ".join(one for one in (threshold.unit, threshold.source) if one)
        lines.append(f"| `{name}` | {getattr(probe, name)} | {threshold.meaning} ({about}) |")
    return "\n".join(lines)


def _case_table(explanation: Explanation) -> str:
    rows = [f"| `{name}` | {sentence} |" for name, sentence in explanation.cases.items()]
    return "\n".join(["| case | what is different |", "|---|---|", *rows])


def example_lines(explanation: Explanation) -> list[str]:
    """The lines of the worked example."""
    example = explanation.example
    if example is None:
        return []
    series = [f"{role}: {' '.join(number(value) for value in values)}" for role, values in example.series.items()]
    gives = ", ".join(f"{name} {number(value)}" for name, value in example.gives.items())
    return [
        *series,
        *(f"param {name}: {value}" for name, value in example.params.items()),
        *(f"{name}: {value}" for name, value in example.parts.items()),
        *([f"gives: {gives}"] if gives else []),
        f"{example.verdict}: {example.why}",
    ]


def _emphasised(why: str) -> str:
    verdict, _, reason = why.partition(": ")
    return f"**{verdict.upper()}**: {reason}"


def _see_also(probe: type[Probe], references: str) -> str:
    others = [one for one in BUILT_IN if one.symptom is probe.symptom and one is not probe]
    causes = [cause for cause in CAUSES if probe.code in {sign.looks_at for sign in cause.signs}]
    lines = []
    if others:
        rules = " · ".join(f"[{one.code} {one.name}]({one.code}.md)" for one in others)
        lines.append(f"- Rules for the same symptom: {rules}")
    if causes:
        names = " · ".join(f"[{cause.name}](../causes/{cause.name}.md)" for cause in causes)
        lines.append(f"- Causes that this rule is a sign of: {names}")
    lines.append(f"- Sources: {' '.join(references.split())}")
    return "\n".join(lines)


# Links, and Markdown without them


def _linked(text: str, probe: type[Probe]) -> str:
    """The text with codes of other rules as links; code and links are left alone."""
    known = {one.code for one in BUILT_IN} - {probe.code}
    parts = re.split(r"(```.*?```|`[^`]*`|\[[^\[\]]{0,300}\]\([^()]{0,300}\))", text, flags=re.DOTALL)
    return "".join(
        part if place % 2 else _CODE.sub(lambda one: _link(one.group(1), known), part)
        for place, part in enumerate(parts)
    )


def _link(code: str, known: Iterable[str]) -> str:
    return f"[{code}]({code}.md)" if code in known else code


def plain(markdown: str) -> str:
    """Markdown of these pages as text: no links, no marks, tables in columns."""
    text = re.sub(r"<[^<>]{1,300}>", "", markdown)
    text = re.sub(r"!\[[^\[\]]{0,300}\]\([^()]{0,300}\)", "", text)
    text = re.sub(r"\[([^\[\]]{0,300})\]\([^()]{0,300}\)", r"\1", text)
    text = re.sub(r"^```\w*\n?", "", text, flags=re.MULTILINE).replace("**", "")
    blocks = re.split(r"((?:^\|.*\n?)+)", text, flags=re.MULTILINE)
    return "".join(_columns(block) if block.startswith("|") else block for block in blocks).rstrip()


def in_terminal(text: str) -> Iterator[str]:
    """Lines for a terminal; tables, whose columns stand two spaces apart, and short lines stay as they are."""
    for line in text.splitlines():
        if len(line) <= _COLUMNS or "  " in line.strip():
            yield f"  {line}" if line else ""
        else:
            mark = _MARK.match(line)
            hanging = " " * (2 + (len(mark.group()) if mark else 0))
            yield from wrap(line, _COLUMNS, initial_indent="  ", subsequent_indent=hanging)


def _columns(table: str) -> str:
    rows = [[cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()]
    rows = [row for row in rows if not all(set(cell) <= {"-"} for cell in row)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows
    ]
    return "\n".join(lines) + "\n"
