"""What is said about a rule, for the terminal (``explain``) and for its generated page: both from the rule's own
docstring and thresholds.
"""

from __future__ import annotations

import re
from textwrap import wrap

from tracker_health.config import did_you_mean
from tracker_health.diagnosis import CAUSES, cause_named
from tracker_health.errors import ConfigError
from tracker_health.render.calibration import calibration_in_short
from tracker_health.render.causes import cause_text, explain_cause
from tracker_health.render.rule_page import example_lines, plain, rule_text
from tracker_health.rules.probe import CASES, EXAMPLE, Probe, explanation_of, thresholds_of
from tracker_health.rules.registry import probe_classes
from tracker_health.text import printable, sentence
from tracker_health.words.retired import Retired, retired_rule

_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s")


MOST_LINES = 40
"""Of the short explanation of a rule: what a terminal shows without scrolling."""
_COLUMNS = 100
_LEAST_LINES = 4
_BRIEF_CHARACTERS = 480


def explained(name: str, *, full: bool = False) -> str:
    """What there is to say of a rule, by its code or name, or of a cause; ``full``: its whole page.

    Raises:
        ConfigError: there is no such rule or cause.
    """
    if (probe := _rule_named(name)) is not None:
        return rule_text(probe) if full else explain(probe)
    if (cause := cause_named(name.lower())) is not None:
        return cause_text(cause) if full else explain_cause(cause)
    if (gone := _retired_named(name)) is not None:
        return explain_retired(gone)
    raise _unknown(name)


def explained_in_brief(name: str) -> dict[str, str]:
    """The same in about one kB, as texts by what they say.

    Raises:
        ConfigError: there is no such rule or cause.
    """
    if (probe := _rule_named(name)) is not None:
        said = explanation_of(probe).sections
        return {
            "rule": f"{probe.code} {probe.name}",
            "finds": _in_brief(said["What it finds"]),
            "do": _in_brief(said["What to do"]),
            "wrong_when": _in_brief(said["Known limits"]),
            "measured": calibration_in_short(probe.code),
        }
    if (cause := cause_named(name.lower())) is not None:
        return {"cause": cause.name, "is": _in_brief(f"{cause.summary} {cause.text}"), "be_sure": sentence(cause.test)}
    if (gone := _retired_named(name)) is not None:
        return {"rule": f"{gone.code} {gone.name}", "retired": fate_of(gone)}
    raise _unknown(name)


def rules_listed() -> list[str]:
    """The rules, one a line: code, name, and what it finds."""
    return [f"{one.code} {one.name}: {explanation_of(one).summary}" for one in probe_classes()]


def causes_listed() -> list[str]:
    """The causes, one a line: name, and what it is."""
    return [f"{one.name}: {one.summary}" for one in CAUSES]


def _rule_named(name: str) -> type[Probe] | None:
    return next((one for one in probe_classes() if name.upper() == one.code or name.lower() == one.name), None)


def _retired_named(name: str) -> Retired | None:
    return retired_rule(name.upper()) or retired_rule(name.lower())


def _unknown(name: str) -> ConfigError:
    names = [word for probe in probe_classes() for word in (probe.code, probe.name)]
    names += [cause.name for cause in CAUSES]
    return ConfigError(f"there is no rule or cause {printable(name)!r}", did_you_mean(name, names))


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


def help_on(code: str) -> tuple[tuple[str, str], ...]:
    """A rule in about one kB, for a page that must say it without a network: titles and their text, none of a rule that
    is not installed.
    """
    probe = next((one for one in probe_classes() if one.code == code), None)
    if probe is None:
        return ()
    said = explanation_of(probe).sections
    limit = next((f"{name} = {getattr(probe, name)}" for name in thresholds_of(probe)), "")
    moved = f"; [rules.{probe.name}] with {limit} moves its limit" if limit else ""
    left_out = f'ignore = ["{code}"] in tracker-health.toml leaves it out'
    return (
        ("What it finds", _in_brief(said["What it finds"])),
        ("When it is wrong", _in_brief(said["Known limits"])),
        ("How to silence it", f"{left_out}{moved}; tracker-health ack RUN {code} answers it for one run."),
    )


def help_on_cause(name: str) -> tuple[tuple[str, str], ...]:
    """The same of a cause; none of one that is not known."""
    cause = cause_named(name)
    if cause is None:
        return ()
    return (
        ("What it is", _in_brief(f"{cause.summary} {cause.text}")),
        ("How to be sure", _in_brief(sentence(cause.test))),
    )


def _in_brief(markdown: str) -> str:
    return printable(" ".join(plain(markdown).replace("`", "").split()), _BRIEF_CHARACTERS)


def explain_retired(rule: Retired) -> str:
    """What there is to say of a rule that was retired, as plain text."""
    return f"{rule.code} {rule.name} (retired)\n\n{fate_of(rule)}\n"


def fate_of(rule: Retired) -> str:
    """When and why a rule was retired."""
    return f"{rule.fate}: {rule.why.rstrip('.')}. Reports and tags of earlier versions may still name it."
