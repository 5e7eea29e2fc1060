"""The scores of the full set, put where people and ``explain`` find them."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from pathlib import Path

from score import Scores, by_rule, table

ROOT = Path(__file__).parent.parent.parent
_BEGIN, _END = "<!-- scores: begin -->", "<!-- scores: end -->"


def write(scores: list[Scores]) -> None:
    """Put the tables into docs/accuracy-tables.md, and the validation figures of each rule beside the package's pages.

    ``scores``: of the split for tuning and of the one for validation.
    """
    tune, validate = scores
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    path = ROOT / "src" / "tracker_health" / "render" / "calibration.json"
    elsewhere = {code: one for code, one in json.loads(path.read_text())["rules"].items() if "measured" in one}
    content = {"date": today, "healthy": len(validate.healthy), "rules": by_rule(validate) | elsewhere}
    path.write_text(json.dumps(content, indent=1) + "\n")
    lines = [_BEGIN, f"Measured on {today}, on the working tree after commit {_commit()}.", ""]
    for one in (validate, tune):
        title = "Validation" if one is validate else "Tuning"
        lines += [f"### {title}: {one.summary()}", "", *table(one), ""]
    tables = ROOT / "docs" / "accuracy-tables.md"
    text = tables.read_text()
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) :]
    tables.write_text(before + "\n".join(lines) + after)


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
