"""How each tool is asked about a folder, and how its answer is read: levels and words are the tool's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS_FOR_ONE_RUN = 120
_LONGEST = 100
_FLAGS = {"fail", "warn", "critical", "warning", "error"}
"""Levels of warning and worse; information is a note."""


@dataclass(frozen=True)
class Answer:
    """What a tool said of one run: each finding as its level and words, and what it prints where it has none.

    ``failed``: why it gave no verdict at all.
    """

    findings: tuple[tuple[str, str], ...] = ()
    otherwise: str = ""
    failed: str = ""

    @property
    def flagged(self) -> bool:
        return any(level.lower() in _FLAGS for level, _ in self.findings)

    @property
    def words(self) -> str:
        """All of it, for a table; long sentences are cut."""
        if self.failed:
            return f"cannot judge: {_cut(self.failed)}"
        return "<br>".join(f"{level} {_cut(text)}" for level, text in self.findings) or self.otherwise


def _cut(text: str) -> str:
    short = text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
    return short.replace("|", "\\|")


@dataclass(frozen=True)
class Tool:
    """One way to ask.

    ``named``: by run, the words with which it names the fault, decided by hand. Doubt counts in the tool's favour.
    """

    name: str
    command: tuple[str, ...]
    what_for: str
    read: Callable[[Any], Answer]
    named: dict[str, str]
    given: str = "{run}"

    def ask(self, run: Path, programs: Path) -> Answer:
        """Its answer about a run, asked in the folder above: no path of this machine reaches the page."""
        ours = self.command[0] == "tracker-health"
        start = [sys.executable, "-m", "tracker_health"] if ours else [str(programs / self.command[0])]
        try:
            done = subprocess.run(
                [*start, *self.arguments(run.name)],
                cwd=run.parent, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True,
                timeout=SECONDS_FOR_ONE_RUN, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Answer(failed=f"no answer within {SECONDS_FOR_ONE_RUN} s")
        try:
            return self.read(json.loads(done.stdout))
        except (ValueError, KeyError, IndexError, TypeError):
            return Answer(failed=(done.stderr or done.stdout).strip() or f"exit code {done.returncode}")

    def names(self, run: str, answer: Answer) -> bool:
        """Whether a finding has the words by which it names the fault of this run."""
        return run in self.named and any(self.named[run] in text for _, text in answer.findings)

    def arguments(self, run: str) -> list[str]:
        """What follows the program's name to ask about a run."""
        return [part.format(given=self.given.format(run=run)) for part in self.command[1:]]

    def shown(self) -> str:
        """The command as a user types it."""
        return " ".join((self.command[0], *self.arguments("RUN")))


def _tracker_health(report: dict[str, Any]) -> Answer:
    if report["verdict"] not in ("warn", "fail"):
        return Answer(otherwise=report["verdict"].upper())
    why = report["diagnosis"]
    rule = next(one["name"] for one in report["results"] if one["code"] == why["about"])
    return Answer(((report["verdict"].upper(), f"{why['cause']} ({why['certainty']}): {rule}"),))


def _runmedic(runs: list[dict[str, Any]]) -> Answer:
    found = [(one["severity"].upper(), one["title"]) for run in runs for one in run["findings"]]
    return Answer(tuple(found), "No problems found." if runs else "")


def _trainproof(report: dict[str, Any]) -> Answer:
    found = [(one["level"], f"{one['id']}: {one['message']}") for run in report["reports"] for one in run["findings"]]
    if report["error"]:
        return Answer(failed=report["error"])
    return Answer(tuple(one for one in found if one[0] != "PASS"), "PASS")


def _losslint(report: dict[str, Any]) -> Answer:
    found = tuple((one["severity"], f"{one['check']}: {one['message']}") for one in report["findings"])
    return Answer(found, "clean" if report["runs"] else "")


_OURS = {
    "nan": "non-finite-loss", "diverged": "diverged", "chance-level": "chance-level", "overfit": "overfitting",
    "hidden-nan": "non-finite-loss", "no-gradient": "parameters-not-trained", "no-reward": "no-reward-signal",
}  # fmt: skip

TOOLS = (
    Tool("tracker-health", ("tracker-health", "check", "{given}", "--json"),
         "Judges runs from their logs, optimizer state and weights, and writes verdicts onto runs of MLflow and W&B.",
         _tracker_health, _OURS),
    Tool("tracker-health, log only", ("tracker-health", "check", "{given}", "--json"),
         "The same, given `metrics.jsonl` alone: what it says without the checkpoint.",
         _tracker_health, _OURS | {"chance-level": "not-learning"}, given="{run}/metrics.jsonl"),
    Tool("runmedic", ("runmedic", "diagnose", "{given}", "--json"),
         "Reads logs of many loggers, says what is wrong with evidence and fixes, and has a skill for coding agents.",
         _runmedic,
         {"nan": "became NaN/inf", "diverged": "diverged", "chance-level": "not learning", "overfit": "Overfitting",
          "hidden-nan": "became NaN/inf"}),
    Tool("trainproof", ("trainproof", "doctor", "{given}", "--json"),
         "Checks data, tokenizer and environment before a training, its log during and after it, and a run against a "
         "known-good one.",
         _trainproof,
         {"nan": "TP-NAN:", "diverged": "TP-DIVERGE", "chance-level": "TP-DEAD-RUN", "overfit": "TP-OVERFIT",
          "hidden-nan": "TP-NAN-GRAD"}),
    Tool("losslint", ("losslint", "check", "{given}", "--format", "json"),
         "Lints the metrics file that a trainer writes, live or afterwards, with exit codes for CI.",
         _losslint,
         {"nan": "'loss' has", "diverged": "train loss diverged", "chance-level": "has plateaued",
          "overfit": "eval loss has worsened", "hidden-nan": "'grad_norm' has"}),
)  # fmt: skip


def versions() -> Iterator[tuple[str, str]]:
    """Of each other tool the version that is installed for this."""
    text = Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8")
    yield from re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE)
