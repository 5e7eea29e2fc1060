"""The scores of the full set, put where people and ``explain`` find them."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from against import Tally
from score import Scores, by_rule, table

ROOT = Path(__file__).parent.parent.parent
_CALIBRATION = ROOT / "src" / "tracker_health" / "render" / "calibration.json"
_BEGIN, _END = "<!-- scores: begin -->", "<!-- scores: end -->"
_REPAIRS_BEGIN, _REPAIRS_END = "<!-- repairs: begin -->", "<!-- repairs: end -->"


def write(scores: list[Scores]) -> None:
    """Put the tables into docs/accuracy-tables.md, and the validation figures of each rule beside the package's pages.

    ``scores``: of the split for tuning and of the one for validation.
    """
    tune, validate = scores
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    elsewhere = {code: one for code, one in json.loads(_CALIBRATION.read_text())["rules"].items() if "measured" in one}
    content = {"date": today, "healthy": len(validate.healthy), "rules": by_rule(validate) | elsewhere}
    _CALIBRATION.write_text(json.dumps(content, indent=1) + "\n")
    lines = [_BEGIN, f"Measured on {today}, on the working tree after commit {_commit()}.", ""]
    for one in (validate, tune):
        title = "Validation" if one is validate else "Tuning"
        lines += [f"### {title}: {one.summary()}", "", *table(one), ""]
    _put(lines, ROOT / "docs" / "accuracy-tables.md")


Faults = Mapping[str, Mapping[str, Tally]]
"""For each fault, ``healthy`` among them, how many runs are flagged ``alone``, by the ``baseline`` and by ``both``, and
how many could be ``compared``."""


def write_against(validate: Faults, tune: Faults) -> None:
    """Put what a baseline finds into docs/baseline.md, and the figures of CMP001 on the validation tasks beside the
    package's pages.
    """
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    content = json.loads(_CALIBRATION.read_text())
    healthy, found = validate["healthy"], {fault: one["baseline"] for fault, one in sorted(validate.items())}
    content["rules"]["CMP001"] = {
        "judged": healthy["compared"].odd,
        "false_alarms": found.pop("healthy").odd,
        "found": {fault: [one.odd, one.judged] for fault, one in found.items() if one.odd},
        "missed": {},
        "measured": {"date": today, "healthy": healthy["alone"].judged, "by": "benchmarks/faults against"},
    }
    _CALIBRATION.write_text(json.dumps(content, indent=1) + "\n")
    flagged = ", ".join(
        f"{one['baseline'].odd} of {one['compared'].odd} ({name})"
        for name, one in (("validation", healthy), ("tuning", tune["healthy"]))
    )
    said = f"Measured on {today}. Of healthy runs that could be compared, the baseline flagged {flagged}."
    _put([_BEGIN, said, "", *_against(validate, tune), "", ""], ROOT / "docs" / "baseline.md")


def _against(validate: Faults, tune: Faults) -> Iterator[str]:
    """A table of the faults that the default rules miss in some runs, the others together, and the healthy runs."""
    splits = (validate, tune)
    yield "| | validation: runs | alone | baseline | either | tuning: runs | alone | baseline | either |"
    yield "|---" * 9 + "|"
    faults = sorted((validate.keys() | tune.keys()) - {"healthy"})
    missed = [one for one in faults if any(one in some and _runs([one], some) > _hits([one], some, "alone")
                                           for some in splits)]  # fmt: skip
    rows = {fault: [fault] for fault in missed}
    rows |= {f"{len(faults) - len(missed)} other faults": [one for one in faults if one not in missed]}
    rows |= {"**all faults**": faults, "**healthy**": ["healthy"]}
    for name, group in rows.items():
        cells = [str(cell) for some in splits for cell in (
            _runs(group, some), *(_hits(group, some, by) for by in ("alone", "baseline", "both"))
        )]  # fmt: skip
        yield f"| {name} | {' | '.join(cells)} |"


def _runs(group: list[str], some: Faults) -> int:
    return sum(some[one]["alone"].judged for one in group if one in some)


def _hits(group: list[str], some: Faults, by: str) -> int:
    return sum(some[one][by].odd for one in group if one in some)


def write_repairs(lines: list[str]) -> None:
    """Put what became of advice that was followed into docs/accuracy-tables.md."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    said = f"Measured on {today}, on the working tree after commit {_commit()}, on runs of the tuning tasks."
    _put([_REPAIRS_BEGIN, said, "", *lines, "", ""], ROOT / "docs" / "accuracy-tables.md", _REPAIRS_END)


def _put(lines: list[str], page: Path, end: str = _END) -> None:
    """Put lines, of which the first is the begin, in the place of those between the marks of a page."""
    text = page.read_text()
    before, after = text[: text.index(lines[0])], text[text.index(end) :]
    page.write_text(before + "\n".join(lines) + after)


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
