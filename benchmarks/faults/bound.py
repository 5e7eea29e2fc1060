"""What one run can tell at all: a classifier that is fitted to everything that the rules measure, beside the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from score import Run, counted
from sklearn.ensemble import HistGradientBoostingClassifier

from tracker_health import check

_ABSENT = -1e4
_VERDICTS = {"pass": 0.0, "warn": 1.0, "fail": 2.0}


class _Measured(NamedTuple):
    """A run's numbers, by rule and measure, and whether the rules object."""

    numbers: dict[str, float]
    flagged: bool


def bound(size: str, out: Path, place: str) -> Iterator[str]:
    """Lines on the manifested runs of validation that are found, by the rules and by a classifier fitted on tuning.

    ``place``: ``runs``, or ``told`` for logs that leave nothing out. The classifier is given an advantage: the
    threshold at which it objects is chosen on the validation runs themselves.
    """
    tune, validate = (_of_split(size, out, place, split) for split in ("tune", "validate"))
    names = sorted({name for _, one in (*tune, *validate) for name in one.numbers})
    model = HistGradientBoostingClassifier(
        max_iter=150, learning_rate=0.06, max_leaf_nodes=12, l2_regularization=1.0, min_samples_leaf=8, random_state=0
    )
    model.fit(_matrix(tune, names), [not run.label.certified for run, _ in tune])
    scores = model.predict_proba(_matrix(validate, names))[:, 1]
    healthy = np.array([run.label.certified for run, _ in validate])
    by_rules = np.array([one.flagged for _, one in validate])
    yield f"rules: false alarms {by_rules[healthy].mean():.1%}, found {_found(validate, by_rules):.2f}"
    for share in (by_rules[healthy].mean(), 0.02, 0.05, 0.1):
        flagged = scores > np.quantile(scores[healthy], 1.0 - share)
        yield f"fitted: false alarms {flagged[healthy].mean():.1%}, found {_found(validate, flagged):.2f}"


def _of_split(size: str, out: Path, place: str, split: str) -> list[tuple[Run, _Measured]]:
    runs = [
        run
        for run in counted(size, out, split)
        if run.label.certified or (run.fault != "none" and (run.structural or run.label.manifested))
    ]
    with ProcessPoolExecutor() as pool:
        return list(zip(runs, pool.map(_measured, [out / place / run.id for run in runs], chunksize=16), strict=True))


def _measured(folder: Path) -> _Measured:
    report = check(str(folder))
    numbers = {f"{one.code}.verdict": _VERDICTS[str(one.verdict)] for one in report.results}
    for one in report.results:
        numbers |= {
            f"{one.code}.{name}": float(value) for name, value in one.measured.items() if not isinstance(value, str)
        }
    return _Measured(numbers, str(report.verdict) in ("warn", "fail"))


def _matrix(runs: list[tuple[Run, _Measured]], names: list[str]) -> np.ndarray:
    values = np.array([[one.numbers.get(name, _ABSENT) for name in names] for _, one in runs])
    values[~np.isfinite(values)] = _ABSENT
    return np.sign(values) * np.log1p(1e3 * np.abs(values))


def _found(runs: list[tuple[Run, _Measured]], flagged: np.ndarray) -> float:
    """The share of manifested runs that are found, mean over faults."""
    by_fault = defaultdict(list)
    for (run, _), found in zip(runs, flagged, strict=True):
        if not run.label.certified and not run.structural:
            by_fault[run.fault].append(found)
    return float(np.mean([np.mean(group) for group in by_fault.values()]))
