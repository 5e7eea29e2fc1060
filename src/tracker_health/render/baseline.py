"""What a baseline says, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tracker_health.evidence import SHARES, Baseline
from tracker_health.report.baseline import in_words
from tracker_health.text import contrast, count, number, percent, printable


def baseline_lines(baseline: Baseline) -> Iterator[str]:
    """A baseline in lines of text.

    Args:
        baseline: As it was read from a file.

    Yields:
        What it is of, its band, the params of its runs, the runs, and which were left out.
    """
    yield f"baseline {baseline.digest}: {count(len(baseline.runs), 'run')} of {printable(baseline.of)}"
    steps = f"{number(baseline.shortest)} to {number(baseline.longest)} steps"
    low, middle, high = contrast(*baseline.end)
    yield f"  {printable(baseline.metric)}, {steps}, ended between {low} and {high}, median {middle}"
    yield "  share of the plan: lowest, median, highest level"
    levels = zip(baseline.low, baseline.middle, baseline.high, strict=True)
    for share, (low_at, middle_at, high_at) in enumerate(levels, 1):
        if np.isfinite(middle_at):
            yield f"  {percent(share / SHARES):>6}: {', '.join(contrast(low_at, middle_at, high_at))}"
    for name, usual in baseline.params.items():
        yield f"  {printable(name)}: {in_words(usual)}"
    for run in baseline.runs:
        yield f"  run: {printable(run)}"
    for run, why in baseline.left_out:
        yield f"  left out: {printable(run)}: {printable(why)}"
