"""Whether a change to the code changes what is said of any run.

    python benchmarks/verdicts.py take before.jsonl --cases CASES --public FOLDER --faults OUT
    python benchmarks/verdicts.py compare before.jsonl after.jsonl

``take`` judges every run of these folders, and writes a line of JSON for each: its verdict, the codes that object, the
cause with how sure it is, and every sentence. ``compare`` prints each difference, verdicts first, and exits with 1 if
a verdict, a code or a cause differs; ``--words`` counts sentences too. A run only one file has is a difference.

CASES holds ``expected.csv``, whose column ``folder`` names runs below it, and where a case has a file ``AGE``, its
files are given that many days of age. FOLDER is that of ``public_runs.py``, OUT that of ``faults generate``: both what
the trainings left and their full logs are judged.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import click

from tracker_health import Config, TrackerHealthError, check

sys.path.insert(0, str(Path(__file__).parent))

FIELDS = ("verdict", "codes", "cause", "words")
"""What a line has beside the run's name, the most severe difference first."""
_CHUNK = 16
_SECONDS_A_DAY = 86_400


@click.group()
def main() -> None:
    """Take what is said of many runs, and compare it with what was said before."""


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--cases", type=click.Path(path_type=Path, exists=True), help="A folder of cases.")
@click.option("--public", type=click.Path(path_type=Path, exists=True), help="A folder of public_runs.py.")
@click.option("--faults", type=click.Path(path_type=Path, exists=True), help="A folder of faults generate.")
@click.option("--workers", type=int, default=2, show_default=True)
def take(file: Path, cases: Path | None, public: Path | None, faults: Path | None, workers: int) -> None:
    """Judge every run of the folders, and write what was said to FILE."""
    with file.open("w") as lines, ProcessPoolExecutor(workers) as pool, tempfile.TemporaryDirectory() as copies:
        for said in _said(pool, cases, public, faults, Path(copies)):
            lines.write(json.dumps(said, sort_keys=True) + "\n")


def _said(
    pool: ProcessPoolExecutor, cases: Path | None, public: Path | None, faults: Path | None, copies: Path
) -> Iterator[dict[str, Any]]:
    if cases is not None:
        yield from pool.map(said_of_folder, *zip(*_aged_cases(cases, copies), strict=True))
    if public is not None:
        with (public / "labels.csv").open(newline="") as file:
            ids = [row["id"] for row in csv.DictReader(file)]
        yield from pool.map(partial(said_of_curve, public), ids, chunksize=_CHUNK)
    if faults is not None:
        runs = [path for place in ("runs", "told") for path in sorted((faults / place).iterdir())]
        names = [f"faults/{path.parent.name}/{path.name}" for path in runs]
        yield from pool.map(said_of_folder, names, runs, chunksize=_CHUNK)


def _aged_cases(cases: Path, copies: Path) -> Iterator[tuple[str, Path]]:
    """The cases, copied: files get the age that the case asks for, which version control does not keep."""
    with (cases / "expected.csv").open(newline="") as file:
        folders = [row["folder"] for row in csv.DictReader(file)]
    for case in sorted({folder.partition("/")[0] for folder in folders}):
        shutil.copytree(cases / case, copies / case)
        if (cases / case / "AGE").is_file():
            then = time.time() - _SECONDS_A_DAY * float((cases / case / "AGE").read_text())
            for path in (copies / case).rglob("*"):
                os.utime(path, (then, then))
    yield from ((f"cases/{folder}", copies / folder) for folder in sorted(folders))


def said_of_folder(name: str, folder: Path) -> dict[str, Any]:
    """What is said of a folder; an error that stops its judging is its only word."""
    try:
        report = check(folder)
    except TrackerHealthError as error:
        return {"run": name, "verdict": type(error).__name__, "codes": [], "cause": "", "words": []}
    return _line(name, report.to_json())


def said_of_curve(public: Path, name: str) -> dict[str, Any]:
    """What is said of a public curve."""
    from public_runs import diagnose, evidence_of

    curve = json.loads((public / "curves" / f"{name}.json").read_text())
    return _line(f"public/{name}", diagnose(evidence_of(curve), Config()).to_json())


def _line(name: str, report: dict[str, Any]) -> dict[str, Any]:
    objecting = [one for one in report["results"] if one["verdict"] in ("warn", "fail")]
    diagnosis = report.get("diagnosis") or {}
    words = [str(diagnosis.get("sentence", "")), str((diagnosis.get("action") or {}).get("text", ""))]
    return {
        "run": name,
        "verdict": report["verdict"],
        "codes": sorted(
            f"{one['code']} {one['verdict']}" + ("" if one["votes"] else " (no vote)") for one in objecting
        ),
        "cause": " ".join(filter(None, (diagnosis.get("cause", ""), diagnosis.get("certainty", "")))),
        "words": words + [str(one["message"]) for one in objecting],
    }


@main.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True))
@click.argument("after", type=click.Path(path_type=Path, exists=True))
@click.option("--words", is_flag=True, help="Sentences that differ count too.")
@click.option("--labels", type=click.Path(path_type=Path, exists=True), help="The folder of faults: say what a run is.")
def compare(before: Path, after: Path, words: bool, labels: Path | None) -> None:
    """Print every run of which something else is said, and exit with 1 if there is one."""
    fields = FIELDS if words else FIELDS[:-1]
    former, latter = _read(before), _read(after)
    counts: Counter[str] = Counter()
    lines = {field: [] for field in fields} | {"run": []}
    for name in sorted(former.keys() | latter.keys()):
        field, text = _difference(former.get(name), latter.get(name), fields)
        if field:
            counts[field] += 1
            lines[field].append(f"{field}: {name}{_label(name, labels)}: {text}")
    print("\n".join(line for field in ("run", *fields) for line in lines[field]))
    print(f"{len(latter)} runs; first difference in: " + (", ".join(f"{k} {n}" for k, n in counts.items()) or "none"))
    raise SystemExit(bool(counts))


def _read(path: Path) -> dict[str, dict[str, Any]]:
    lines: Iterable[dict[str, Any]] = map(json.loads, path.read_text().splitlines())
    return {line["run"]: line for line in lines}


def _difference(former: dict[str, Any] | None, latter: dict[str, Any] | None, fields: Iterable[str]) -> tuple[str, str]:
    """The most severe field that differs, with both values; nothing where none does."""
    if former is None or latter is None:
        return "run", "only after" if former is None else "only before"
    for field in fields:
        if former[field] != latter[field]:
            return field, f"{former[field]} -> {latter[field]}"
    return "", ""


def _label(name: str, out: Path | None) -> str:
    truth = out / "truth" / f"{Path(name).name}.json" if out is not None and name.startswith("faults/") else None
    if truth is None:
        return ""
    known = json.loads(truth.read_text())
    return f" [{known['split']}, {known['fault']}]"


if __name__ == "__main__":
    main()
