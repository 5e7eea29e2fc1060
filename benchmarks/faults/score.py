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

import numpy as np
from faults import FAULTS, PRIMARY
from generate import jobs
from oracle import Label, labels

from tracker_health import Config, check, preset
from tracker_health.rules.probe import Probe
from tracker_health.rules.registry import BUILT_IN

COLUMNS = (
    ("default", "checkpoint"), ("default", "all logged"), ("default", "logs"), ("dlm", "checkpoint"),
    ("runmedic", "logs"), ("runmedic", "all logged"),
)  # fmt: skip
_RUNMEDIC = {
    "divergence": "diverged", "overfitting": "overfit", "no_learning": "not_learning", "non_finite": "nonfinite",
    "grad_spikes": "spikes", "loss_spikes": "spikes", "constant_lr_plateau": "schedule",
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a tool says of a run: whether it objects, the symptoms it names (the worst first), and in what words.

    ``codes``: our rules that object, with a vote or without; ``judged``: those that had something to judge.
    ``absent``: the tool said nothing of the run.
    """

    flagged: bool
    symptoms: tuple[str, ...]
    words: str = ""
    codes: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    absent: bool = False


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
        codes=tuple(one.code for one in report.results if str(one.verdict) in ("warn", "fail")),
        judged=tuple(one.code for one in report.results),
    )


def runmedic(folders: Iterable[Path]) -> dict[str, Answer]:
    """The nearest open tool's, on the same folders: its warnings and critical findings count."""
    listed = list(folders)
    command = [sys.executable, "-m", "runmedic", "diagnose", str(listed[0].parent), "--json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    answers = {folder.name: Answer(False, (), absent=True) for folder in listed}
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


def _with_all_logged(out: Path, runs: list[Run]) -> Path:
    """The same runs with logs that leave nothing out, beside the same checkpoints."""
    folder = out / "told"
    for run in runs:
        for path in (out / "runs" / run.id).rglob("*"):
            target = folder / run.id / path.relative_to(out / "runs" / run.id)
            if path.is_file() and path.name != "metrics.jsonl" and not target.exists():
                target.parent.mkdir(exist_ok=True)
                target.hardlink_to(path)
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
        newest = max(source.glob("checkpoint-*"), key=lambda one: int(one.name.partition("-")[2]), default=source)
        for path in newest.iterdir():
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
    """What every tool said of every run that counts. ``unsure``: runs without a fault that were not certified."""

    split: str
    healthy: list[Run]
    unsure: list[Run]
    sick: list[Run]
    answers: dict[tuple[str, str], dict[str, Answer]]

    def summary(self) -> str:
        """Of how many runs the figures are."""
        faultless, faults = len(self.healthy) + len(self.unsure), len({run.fault for run in self.sick})
        return (
            f"{len(self.healthy)} certified healthy runs (of {faultless} without a fault), "
            f"{len(self.sick)} faulty ones of {faults} faults"
        )


def score(size: str, out: Path, split: str, tools: list[str]) -> Scores:
    """Judge every run of a split by every tool, with the checkpoint and without."""
    runs = counted(size, out, split)
    healthy = [run for run in runs if run.label.certified]
    unsure = [run for run in runs if run.fault == "none" and not run.label.certified]
    sick = [run for run in runs if run.fault != "none" and (run.structural or run.label.manifested)]
    places = {
        "checkpoint": out / "runs",
        "all logged": _with_all_logged(out, runs),
        "logs": _without_checkpoints(out, runs),
    }
    answers = {}
    for tool, state in COLUMNS:
        if tool in tools:
            place = _as_adapter_store(out, runs) if tool == "dlm" else places[state]
            answers[tool, state] = TOOLS[tool]([place / run.id for run in healthy + unsure + sick])
    return Scores(split, healthy, unsure, sick, answers)


def table(scores: Scores) -> list[str]:
    """The table in Markdown: a line a fault, the means over faults, symptoms, false alarms.

    Shares are of the runs of which a tool said anything.
    """
    columns = list(scores.answers.values())
    lines = [
        "| fault | runs | " + " | ".join(f"{tool}, {state}" for tool, state in scores.answers) + " |",
        "|---|---|" + "---|" * len(columns),
        *_recalls(scores, structural=True),
        *_recalls(scores, structural=False),
    ]
    sick, unsure = scores.sick, scores.unsure
    lines.append(_row("**right symptom first, of those flagged**", len(sick), [_named(one, sick) for one in columns]))
    strict = [_named(one, sick, strict=True) for one in columns]
    lines.append(_row("**the one symptom that names it best**", len(sick), strict))
    lines.append(_text_row("**false alarms**", scores.healthy, columns))
    lines.append(_text_row("**flagged, of those without a fault that were not certified**", unsure, columns))
    absent = [sum(one.absent for one in by_id.values()) for by_id in columns]
    if any(absent):
        total = len(scores.healthy) + len(unsure) + len(sick)
        lines.append(f"| **no answer (not in the shares)** | {total} | " + " | ".join(map(str, absent)) + " |")
    return lines


def _recalls(scores: Scores, *, structural: bool) -> list[str]:
    """A line a fault of one kind, and their mean."""
    chosen = _by_fault([run for run in scores.sick if run.structural is structural])
    recalls = {fault: [_recall(by_id, group) for by_id in scores.answers.values()] for fault, group in chosen.items()}
    kind = "structural" if structural else "manifested"
    lines = [
        *(_row(fault, len(chosen[fault]), values) for fault, values in recalls.items()),
        *_mean(f"**all {kind}, mean over faults**", scores, chosen),
    ]
    if not structural:
        plain = {
            fault: some for fault, group in chosen.items() if (some := [one for one in group if not one.label.slight])
        }
        lines += _mean("**those that would not be certified as healthy, mean over faults**", scores, plain)
    return lines


def _mean(name: str, scores: Scores, chosen: dict[str, list[Run]]) -> list[str]:
    """A line; none where there is no run."""
    if not chosen:
        return []
    recalls = ([_recall(by_id, group) for group in chosen.values()] for by_id in scores.answers.values())
    return [_row(name, sum(map(len, chosen.values())), [float(np.nanmean(column)) for column in recalls])]


def _by_fault(runs: list[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.fault].append(run)
    return dict(sorted(groups.items()))


def _text_row(name: str, runs: list[Run], columns: list[dict[str, Answer]]) -> str:
    return f"| {name} | {len(runs)} | " + " | ".join(_alarms(by_id, runs) for by_id in columns) + " |"


def _answered(answers: dict[str, Answer], runs: list[Run]) -> list[Answer]:
    return [answers[run.id] for run in runs if not answers[run.id].absent]


def _alarms(answers: dict[str, Answer], runs: list[Run]) -> str:
    said = _answered(answers, runs)
    if not said:
        return "-"
    hits = sum(one.flagged for one in said)
    low, high = wilson(hits, len(said))
    return f"{hits / len(said):.1%} [{low:.1%}, {high:.1%}]"


def _row(name: str, runs: int, values: list[float]) -> str:
    return f"| {name} | {runs} | " + " | ".join("-" if np.isnan(value) else f"{value:.2f}" for value in values) + " |"


def _recall(answers: dict[str, Answer], runs: list[Run]) -> float:
    said = _answered(answers, runs)
    return sum(one.flagged for one in said) / len(said) if said else float("nan")


def _named(answers: dict[str, Answer], runs: list[Run], *, strict: bool = False) -> float:
    """The share whose first symptom is one of those accepted, or the one that names the fault best."""
    flagged = [run for run in runs if answers[run.id].flagged]
    right = [
        bool(answers[run.id].symptoms[:1])
        and answers[run.id].symptoms[0] in ({PRIMARY[run.fault]} if strict else run.symptoms)
        for run in flagged
    ]
    return sum(right) / len(right) if right else float("nan")


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
    """For each of our rules, previews too: on how many healthy runs it had something to judge, its false alarms among
    them, and what it finds by itself, with the checkpoint at hand. ``missed``: sick runs of faults that its symptom
    would name, where it found none of any. A rule that only the preset ``dlm`` has is measured under that one.
    """
    groups = _by_fault(scores.sick)
    return {
        probe.code: _of_rule(probe.code, probe.symptom, scores.healthy, groups, scores.answers[used, "checkpoint"])
        for probe in BUILT_IN
        for used in ("dlm" if _is_of_dlm_alone(probe) else "default",)
        if (used, "checkpoint") in scores.answers
    }


def _is_of_dlm_alone(probe: Probe) -> bool:
    return probe.status != "preview" and not preset("default").counts(probe.code, probe.status)


def _of_rule(
    code: str, symptom: str, healthy: list[Run], groups: dict[str, list[Run]], answers: dict[str, Answer]
) -> dict[str, Any]:
    hits = {fault: sum(code in answers[run.id].codes for run in group) for fault, group in groups.items()}
    return {
        "judged": sum(code in answers[run.id].judged for run in healthy),
        "false_alarms": sum(code in answers[run.id].codes for run in healthy),
        "found": {fault: [found, len(groups[fault])] for fault, found in hits.items() if found},
        "missed": {
            fault: len(group)
            for fault, group in groups.items()
            if not any(hits.values()) and symptom in FAULTS[fault].symptoms
        },
    }
