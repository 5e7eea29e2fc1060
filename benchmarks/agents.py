"""Sizes of all answers to agents on a folder of runs, how long the server takes, and how often watch_run is wrong.

``python benchmarks/agents.py FOLDER``: a folder of runs, with ``expected.csv`` (columns ``folder`` and ``verdict``)
where their verdicts are known. Tokens are counted as characters / 4.
"""

from __future__ import annotations

import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from tracker_health import Config
from tracker_health.errors import TrackerHealthError
from tracker_health.evidence import Evidence
from tracker_health.fleet.agents.prompts import DATA_NOTE
from tracker_health.fleet.agents.roots import Roots
from tracker_health.fleet.agents.tools import Tools
from tracker_health.live.replay import replay
from tracker_health.live.verdicts import LiveJudge
from tracker_health.render.docs import causes_listed, rules_listed
from tracker_health.runs.run_config import open_with_config

_STARTS = 5
_SHARES = tuple(np.linspace(0.1, 1.0, 10).tolist())
_CHARACTERS_OF_A_TOKEN = 4


def runs_in(folder: Path) -> dict[str, str]:
    """Runs with their expected verdicts, "" where none is known."""
    if (folder / "expected.csv").is_file():
        with (folder / "expected.csv").open(newline="") as file:
            return {row["folder"]: row["verdict"] for row in csv.DictReader(file) if (folder / row["folder"]).exists()}
    return {one.name: "" for one in sorted(folder.iterdir()) if one.is_dir()}


def answers(tools: Tools, runs: list[str]) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """What each tool says of each run: its name, how long it took in seconds, the answer."""
    good = [run for run in runs if tools.check_run(run)["verdict"] == "pass"][:3]
    asked = {
        "check_run": tools.check_run,
        "watch_run": tools.watch_run,
        "rules_that_fit": tools.rules_that_fit,
        "curve": lambda run: tools.curve(run, "train_loss"),
        "compare_runs": lambda run: tools.compare_runs(run, [one for one in good if one != run]),
    }
    for name, ask in asked.items():
        for run in runs:
            begun = time.perf_counter()
            try:
                document = {"note": DATA_NOTE, "data": ask(run)}
            except TrackerHealthError as error:
                document = {"error": error.message, "try": error.hint}
            yield name, time.perf_counter() - begun, document
    for line in (*rules_listed(), *causes_listed()):
        begun = time.perf_counter()
        document = {"note": DATA_NOTE, "data": tools.explain(line.partition(":")[0].split()[0])}
        yield "explain", time.perf_counter() - begun, document


def starts(folder: Path, run: str) -> list[tuple[float, ...]]:
    """Seconds from the start of a server to the answer to ``initialize``, to the first check and to another one."""
    found = []
    for _ in range(_STARTS):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "tracker_health", "mcp", "--root", str(folder)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            moments = []
            client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
            check = {"name": "check_run", "arguments": {"run": run}}
            for number, (method, given) in enumerate(
                (("initialize", client), ("tools/call", check), ("tools/call", check)), start=1
            ):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
                server.stdin.write(json.dumps(message) + "\n")
                server.stdin.flush()
                server.stdout.readline()
                moments.append(time.perf_counter() - begun)
                if number == 1:
                    server.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            server.stdin.close()
        found.append((moments[0], moments[1], moments[2] - moments[1]))
    return found


def watched(folder: Path, runs: dict[str, str]) -> Iterator[tuple[str, bool]]:
    """For each run, its expected verdict, and whether watch_run says stop at any tenth of its history."""
    config = Config()
    request = replace(LiveJudge(config, None).request, parts=frozenset())
    for run, expected in runs.items():
        try:
            with open_with_config(folder / run, config, None) as (opened, _):
                evidence = opened.read(request)
        except TrackerHealthError:
            continue
        steps = [one.steps for one in evidence.series if len(one)]
        if not steps:
            continue
        places = np.unique(np.concatenate(steps))
        lasts = {int(places[max(0, int(share * len(places)) - 1)]) for share in _SHARES}
        yield expected, any(_stops(evidence, last, config) for last in sorted(lasts))


def _stops(evidence: Evidence, last: int, config: Config) -> bool:
    cut = [one.at(np.flatnonzero(one.steps <= last)) for one in evidence.series]
    return replay(replace(evidence, series=tuple(cut)), config).stop_for is not None


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(folder: Path) -> None:
    """Print the sizes by tool, the times, and what watch_run says of runs whose verdict is known."""
    runs = runs_in(folder)
    tools = Tools(roots=Roots.of((str(folder),), "", ()), config=Config())
    sizes: dict[str, list[int]] = {}
    times: dict[str, list[float]] = {}
    for name, seconds, document in answers(tools, list(runs)):
        sizes.setdefault(name, []).append(len(json.dumps(document)))
        times.setdefault(name, []).append(seconds)
    print("| tool | answers | median tokens | most tokens | median seconds |\n|---|---|---|---|---|")
    for name, counted in sizes.items():
        tokens = [one / _CHARACTERS_OF_A_TOKEN for one in counted]
        middle = f"{statistics.median(tokens):.0f} | {max(tokens):.0f} | {statistics.median(times[name]):.3f}"
        print(f"| {name} | {len(counted)} | {middle} |")
    moments = zip(*starts(folder, next(iter(runs))), strict=True)
    for what, values in zip(("initialize", "first check_run", "another check_run"), moments, strict=True):
        print(f"{what}: {statistics.median(values):.2f} s (least {min(values):.2f})")
    found = list(watched(folder, runs))
    for verdict in ("pass", "warn", "fail"):
        said = [stops for expected, stops in found if expected == verdict]
        print(f"watch_run says stop in {sum(said)} of {len(said)} runs whose verdict is {verdict}")


if __name__ == "__main__":
    main()
