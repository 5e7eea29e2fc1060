"""What an entry of the gallery is, and how its parts are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracker_health.evidence import Evidence, RunInfo, RunRef, Series, StepUnit

FloatArray = npt.NDArray[np.float64]
Numbers = Sequence[float] | FloatArray


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A synthetic run. ``name``: in kebab case; ``title`` and ``sentence``: what is to be seen. ``family``: its part of
    the page of symptoms. ``near``: the codes of rules that it comes close to, and that must pass it.
    """

    name: str
    title: str
    sentence: str
    family: str
    evidence: Evidence
    near: str = ""


def series(role: str, values: Numbers, *, name: str = "", every: int = 1, unit: StepUnit | None = None) -> Series:
    """A metric that was logged every so many optimizer steps, from step ``every`` on."""
    found = np.asarray(values, dtype=np.float64)
    steps = np.arange(1, len(found) + 1, dtype=np.int64) * every
    return Series(
        name=name or role, role=role, steps=steps, values=found, step_unit=unit or StepUnit.OPTIMIZER_STEP, source="log"
    )


def run(name: str, *metrics: Series, info: RunInfo | None = None, **parts: object) -> Evidence:
    """Evidence of a run with these metrics; ``parts``: further fields of ``Evidence``."""
    names = tuple(one.name for one in metrics)
    known = info or RunInfo(status="FINISHED", tracker="MLflow", metric_names=names)
    return Evidence(run=RunRef(store="directory", id=name, name=name), info=known, series=metrics, **parts)  # type: ignore[arg-type]


def with_params(metrics: Sequence[Series], params: Mapping[str, object], **more: object) -> RunInfo:
    """The record of a run that was started with these params."""
    return RunInfo(
        status=str(more.pop("status", "FINISHED")),
        tracker="MLflow",
        params={key: str(value) for key, value in params.items()},
        metric_names=tuple(one.name for one in metrics),
        **more,  # type: ignore[arg-type]
    )


def noise(seed: int, count: int, size: float = 1.0) -> FloatArray:
    """Normal noise from a fixed seed."""
    return size * np.random.default_rng(seed).standard_normal(count)


def descent(
    seed: int = 0, count: int = 400, *, start: float = 2.3, end: float = 0.3, pace: float = 5.0, rough: float = 0.04
) -> FloatArray:
    """An ordinary loss: an exponential approach to its end, with noise in proportion to the level."""
    level = end + (start - end) * np.exp(-pace * np.arange(count) / count)
    return np.asarray(level * (1 + noise(seed, count, rough)))
