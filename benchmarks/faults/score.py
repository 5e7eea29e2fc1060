"""How right the verdicts are: recall per fault, symptoms named rightly, false alarms on certified healthy runs."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generate import jobs
from oracle import Label, labels

from tracker_health import Config, check, preset
from tracker_health.registry import BUILT_IN

COLUMNS = (("default", "checkpoint"), ("default", "logs"), ("dlm", "checkpoint"), ("runmedic", "logs"))
_RUNMEDIC = {
    "divergence": "diverged", "overfitting": "overfit", "no_learning": "not_learning", "non_finite": "nonfinite",
    "grad_spikes": "spikes", "loss_spikes": "spikes", "constant_lr_plateau": "schedule",
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a tool says of a run: whether it objects, the symptoms it names (the worst first), and in what words."""

    flagged: bool
    symptoms: tuple[str, ...]
    words: str = ""
    codes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run that counts, with its truth."""

    id: str
    fault: str
    task: str
    cadence: str
    structural: bool
    symptoms: frozenset[str]
    label: Label


def counted(size: str, out: Path, split: str) -> list[Run]:
    """The runs of a split. Siblings are those of the size that was asked for."""
    wanted = {job.id for job in jobs(size)}
    truths = {path.stem: json.loads(path.read_text()) for path in (out / "truth").glob("*.json") if path.stem in wanted}
    if len(truths) < len(wanted):
        raise SystemExit(f"{len(wanted) - len(truths)} of {len(wanted)} runs are not there: generate them first")
    by_id = labels(truths)
    return [
        Run(key, truth["fault"], truth["task"], truth["recipe"]["cadence"], truth["structural"],
            frozenset(truth["symptoms"]), by_id[key])
        for key, truth in sorted(truths.items())
        if truth["split"] == split
    ]  # fmt: skip


def ours(config: Config) -> Callable[[Iterable[Path]], dict[str, Answer]]:
    """Our verdicts under a configuration, on folders."""

    def judge(folders: Iterable[Path]) -> dict[str, Answer]:
        return {folder.name: _answer(check(str(folder), config=config)) for folder in folders}

    return judge


def _answer(report: Any) -> Answer:
    findings = [one for one in report.findings if one.votes]
    words = f"{report.verdict}: " + "; ".join(f"{one.code} {one.message}" for one in findings)
    return Answer(
        flagged=str(report.verdict) in ("warn", "fail", "error"),
        symptoms=tuple(one.symptom for one in findings),
        words=words if findings else f"{report.verdict}: {report.summary}",
        codes=tuple(one.code for one in findings),
    )


def runmedic(folders: Iterable[Path]) -> dict[str, Answer]:
    """The nearest open tool's, on the same folders: its warnings and critical findings count."""
    listed = list(folders)
    command = [sys.executable, "-m", "runmedic", "diagnose", str(listed[0].parent), "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    answers = {folder.name: Answer(False, ()) for folder in listed}
    for run in found:
        serious = [one for one in run["findings"] if one["severity"] in ("warning", "critical")]
        serious.sort(key=lambda one: one["severity"] != "critical")
        symptoms = tuple(_RUNMEDIC.get(one["check"], one["check"]) for one in serious)
        answers[Path(run["path"]).parent.name] = Answer(bool(serious), symptoms)
    return answers


TOOLS: Mapping[str, Callable[[Iterable[Path]], dict[str, Answer]]] = {
    "default": ours(preset("default")),
    "dlm": ours(preset("dlm")),
    "runmedic": runmedic,
}


def _without_checkpoints(out: Path, runs: list[Run]) -> Path:
    """The same runs with their logs alone."""
    folder = out / "logs"
    for run in runs:
        target = folder / run.id / "metrics.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / "runs" / run.id / "metrics.jsonl", target)
    return folder


def _as_adapter_store(out: Path, runs: list[Run]) -> Path:
    """The same runs as the two original rules read them: a step log of their own form beside the training state."""
    folder = out / "stores"
    for run in runs:
        source, target = out / "runs" / run.id, folder / run.id
        (target / "logs").mkdir(parents=True, exist_ok=True)
        rows = [json.loads(line) for line in (source / "metrics.jsonl").read_text().splitlines()]
        with (target / "logs" / "train-1.jsonl").open("w") as file:
            for row in rows:
                loss = next((row[name] for name in ("loss", "train/loss", "train_loss") if name in row), None)
                if loss is not None:
                    file.write(json.dumps({"type": "step", "step": row["step"], "loss": loss}) + "\n")
        for path in source.iterdir():
            if path.suffix in (".pt", ".safetensors"):
                shutil.copyfile(path, target / path.name)
    return folder


def wilson(hits: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share, after Wilson (1927)."""
    if not total:
        return 0.0, 1.0
    share = hits / total
    centre = share + z * z / (2 * total)
    margin = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - margin) / scale), min(1.0, (centre + margin) / scale)


@dataclass(frozen=True)
class Scores:
    """What every tool said of every run that counts."""

    split: str
    healthy: list[Run]
    sick: list[Run]
    answers: dict[tuple[str, str], dict[str, Answer]]


def score(size: str, out: Path, split: str, tools: list[str]) -> Scores:
    """Judge every run of a split by every tool, with the checkpoint and without."""
    runs = counted(size, out, split)
    healthy = [run for run in runs if run.label.certified]
    sick = [run for run in runs if run.fault != "none" and (run.structural or run.label.manifested)]
    places = {"checkpoint": out / "runs", "logs": _without_checkpoints(out, runs)}
    answers = {}
    for tool, state in COLUMNS:
        if tool in tools:
            place = _as_adapter_store(out, runs) if tool == "dlm" else places[state]
            answers[tool, state] = TOOLS[tool]([place / run.id for run in healthy + sick])
    return Scores(split, healthy, sick, answers)


def table(scores: Scores) -> list[str]:
    """The table in Markdown: a line a fault, the means over faults, symptoms, false alarms."""
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in scores.sick:
        groups[run.fault].append(run)
    lines = [
        "| fault | runs | " + " | ".join(f"{tool}, {state}" for tool, state in scores.answers) + " |",
        "|---|---|" + "---|" * len(scores.answers),
    ]
    for structural in (True, False):
        chosen = {fault: group for fault, group in sorted(groups.items()) if group[0].structural is structural}
        recalls = {
            fault: [_recall(by_id, group) for by_id in scores.answers.values()] for fault, group in chosen.items()
        }
        lines += [_row(fault, len(chosen[fault]), values) for fault, values in recalls.items()]
        kind = "structural" if structural else "manifested"
        means = [sum(column) / len(column) for column in zip(*recalls.values(), strict=True)]
        lines.append(_row(f"**all {kind}, mean over faults**", sum(map(len, chosen.values())), means))
    named = [_named(by_id, scores.sick) for by_id in scores.answers.values()]
    lines.append(_row("**right symptom first, of those flagged**", len(scores.sick), named))
    alarms = [_alarms(by_id, scores.healthy) for by_id in scores.answers.values()]
    return [*lines, f"| **false alarms** | {len(scores.healthy)} | " + " | ".join(alarms) + " |"]


def _alarms(answers: dict[str, Answer], healthy: list[Run]) -> str:
    hits = sum(answers[run.id].flagged for run in healthy)
    low, high = wilson(hits, len(healthy))
    return f"{hits / max(1, len(healthy)):.1%} [{low:.1%}, {high:.1%}]"


def _row(name: str, runs: int, values: list[float]) -> str:
    return f"| {name} | {runs} | " + " | ".join(f"{value:.2f}" for value in values) + " |"


def _recall(answers: dict[str, Answer], runs: list[Run]) -> float:
    return sum(answers[run.id].flagged for run in runs) / len(runs)


def _named(answers: dict[str, Answer], runs: list[Run]) -> float:
    flagged = [run for run in runs if answers[run.id].flagged]
    return sum(
        bool(answers[run.id].symptoms[:1]) and answers[run.id].symptoms[0] in run.symptoms for run in flagged
    ) / max(1, len(flagged))


def disagreements(scores: Scores) -> Iterator[str]:
    """Every false alarm, miss and wrong name of ours."""
    for (tool, state), by_id in scores.answers.items():
        if tool != "default":
            continue
        for run in scores.healthy:
            if by_id[run.id].flagged:
                yield f"FALSE ALARM {state} {run.id} {run.task} {run.cadence}: {by_id[run.id].words}"
        for run in scores.sick:
            answer, what = by_id[run.id], f"{state} {run.fault} {run.id} {run.task} {run.cadence}"
            if not answer.flagged:
                yield f"MISS {what}: {answer.words}"
            elif not set(answer.symptoms[:1]) & run.symptoms:
                yield f"MISNAMED {what}: {answer.words}"


def by_rule(scores: Scores) -> dict[str, Any]:
    """For each of our rules: its false alarms, and what it finds by itself, with the checkpoint at hand."""
    answers = scores.answers["default", "checkpoint"]
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in scores.sick:
        groups[run.fault].append(run)
    return {
        probe.code: {
            "false_alarms": sum(probe.code in answers[run.id].codes for run in scores.healthy),
            "found": {
                fault: [hits, len(group)]
                for fault, group in sorted(groups.items())
                if (hits := sum(probe.code in answers[run.id].codes for run in group))
            },
        }
        for probe in BUILT_IN
        if preset("default").counts(probe.code, probe.status)
    }
