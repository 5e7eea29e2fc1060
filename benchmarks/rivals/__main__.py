"""Make ten runs with a known truth, ask four tools about each, and write docs/rivals.md: ``make rivals``.

    python benchmarks/rivals ENVIRONMENT

ENVIRONMENT is a virtual environment with the other tools (requirements.txt), apart from the project's own.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from page import PAGE, SEEDS, Answers, filled, line_of
from runs import RUNS
from tools import TOOLS


def main(programs: Path) -> None:
    """Ask every tool about every run, print what it says, and write the page."""
    answers: Answers = {(run.name, tool.name): [] for run in RUNS for tool in TOOLS}
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            for run in RUNS:
                run.make(Path(folder, run.name), seed)
                for tool in TOOLS:
                    answer = tool.ask(Path(folder, run.name), programs)
                    answers[run.name, tool.name].append(answer)
                    print(f"seed {seed} {line_of(run, tool, answer)}", flush=True)
    text = filled(PAGE.read_text(encoding="utf-8"), answers, datetime.now(UTC).date())
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "bin").is_dir():
        raise SystemExit("name the environment that has the other tools: make rivals installs it")
    main(Path(sys.argv[1], "bin").absolute())
