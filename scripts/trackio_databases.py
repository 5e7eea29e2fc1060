"""Makes the databases of real trackio that tests read, of the version that is installed here: VERSION.db.gz.

python scripts/trackio_databases.py tests/data/trackio
"""

from __future__ import annotations

import gzip
import math
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

STEPS = 40


def main(folder: Path) -> None:
    """Write the database of a project: a healthy run, one whose loss is NaN in the end, and one with nested names."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRACKIO_DIR"] = place
        import trackio  # type: ignore[import-not-found, unused-ignore]

        _log(trackio, "healthy", {"train/loss": lambda step: 2 * math.exp(-step / 12) + 0.1})
        _log(trackio, "nan", {"loss": lambda step: 2 - 0.02 * step if step < STEPS - 10 else math.nan})
        _log(
            trackio, "nested", {"eval": lambda step: {"loss": 1 + 1 / (step + 1)}, "loss": lambda step: 1 / (step + 1)}
        )
        made = Path(place, "project.db")
        small = Path(place, "small.sqlite")
        with closing(sqlite3.connect(made)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.execute("VACUUM INTO ?", (str(small),))
        with closing(sqlite3.connect(small)) as database:
            database.execute("PRAGMA journal_mode = WAL")  # as trackio has it
        folder.mkdir(parents=True, exist_ok=True)
        content = gzip.compress(small.read_bytes(), mtime=0)
        (folder / f"{version('trackio')}.db.gz").write_bytes(content)
        print(f"trackio {version('trackio')}: {len(content)} bytes")


def _log(trackio: Any, name: str, metrics: Mapping[str, Callable[[int], Any]]) -> None:
    trackio.init(project="project", name=name, config={"lr": 0.1, "max_steps": STEPS, "note": {"of": "ours"}})
    for step in range(STEPS):
        trackio.log({key: value(step) for key, value in metrics.items()}, step=step)
    if name == "nan":
        trackio.alert("mine", "of its owner")
    trackio.finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
