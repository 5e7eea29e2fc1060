"""What a sweep did, for monitoring: a line of JSON a pass, or a file of metrics in Prometheus's text form."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tracker_health.errors import ConfigError
from tracker_health.text import printable

SCHEMA = "tracker-health/sweep/1"
_PROMETHEUS = ".prom"
_HELP = {
    "runs": "Runs that the last pass of the sweep looked at, by what became of them.",
    "seconds": "How long the last pass took.",
    "last_pass_timestamp_seconds": "When the last pass ended.",
    "complete": "1 if the last pass saw all runs, 0 if it was cut short.",
    "oldest_unjudged_seconds": "How long the run that waits longest for a verdict has waited; 0 if none waits.",
}


@dataclass(kw_only=True)
class PassStats:
    """One pass of a sweep. ``kinds``: of ``sweep.Kind``, how many runs. ``incomplete``: of those that were judged, how
    many with something that could not be read. ``complete``: all runs were looked at. ``oldest``: the run that waits
    longest, and since when.
    """

    began: float = field(default_factory=time.time)
    kinds: Counter[str] = field(default_factory=Counter)
    incomplete: int = 0
    complete: bool = True
    seconds: float = 0.0
    oldest: tuple[str, float] | None = None

    def end(self, oldest: tuple[str, float] | None) -> None:
        """Note that it is over."""
        self.seconds = time.time() - self.began
        self.oldest = oldest

    @property
    def judged(self) -> int:
        return self.kinds["annotated"] - self.incomplete

    @property
    def skipped(self) -> int:
        """Nothing has changed, another annotator has it, or it is not to be written onto."""
        return self.kinds["unchanged"] + self.kinds["taken"] + self.kinds["left alone"]

    @property
    def errors(self) -> int:
        return self.kinds["failed"] + self.incomplete

    @property
    def waited(self) -> float:
        """Seconds that the oldest run without a verdict has waited."""
        return max(0.0, self.began + self.seconds - self.oldest[1]) if self.oldest is not None else 0.0

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        oldest = {"run": printable(self.oldest[0]), "seconds": round(self.waited)} if self.oldest else None
        return {
            "schema": SCHEMA,
            "at": datetime.fromtimestamp(self.began, UTC).isoformat(timespec="seconds"),
            "judged": self.judged,
            "skipped": self.skipped,
            "errors": self.errors,
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "oldest_unjudged": oldest,
        }

    def prometheus(self) -> str:
        """As metrics. No name of a run is in them: each would be a series of its own, without end."""
        results = {"judged": self.judged, "skipped": self.skipped, "error": self.errors}
        values: dict[str, list[tuple[str, float]]] = {
            "runs": [(f'{{result="{key}"}}', number) for key, number in results.items()],
            "seconds": [("", round(self.seconds, 3))],
            "last_pass_timestamp_seconds": [("", round(self.began + self.seconds))],
            "complete": [("", int(self.complete))],
            "oldest_unjudged_seconds": [("", round(self.waited))],
        }
        lines = []
        for name, samples in values.items():
            full = f"tracker_health_sweep_{name}"
            lines += [f"# HELP {full} {_HELP[name]}", f"# TYPE {full} gauge"]
            lines += [f"{full}{label} {value}" for label, value in samples]
        return "\n".join(lines) + "\n"


def write_stats(path: str, stats: PassStats) -> None:
    """Put a pass into a file: one that ends in ``.prom`` is replaced, so that a collector never reads half of it; to
    any other a line is added.

    Raises:
        ConfigError: it cannot be written.
    """
    target = Path(path)
    try:
        if target.suffix == _PROMETHEUS:
            partial = target.with_name(f".{target.name}.{os.getpid()}")
            partial.write_text(stats.prometheus())
            partial.replace(target)
        else:
            with target.open("a") as file:
                file.write(json.dumps(stats.to_json(), allow_nan=False) + "\n")
    except OSError as error:
        raise ConfigError(f"{printable(path)} cannot be written: {error.strerror}", "give another --stats") from error
