"""What the record of a W&B run says of the runs that it belongs with, as the list of a project gives it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from tracker_health.evidence.kin import Kin, results_of, settings_of_kin
from tracker_health.stores.wandb.online import evidence_of, heard_of, is_live, last_step_of, seconds_of
from tracker_health.stores.wandb.values import flattened, is_metric, number, params_of

_CHARACTERS, _MOST_KEYS = 200, 20_000


def kin_of(run: Any, where: str) -> Kin:
    """What is known by a run of the SDK's that was listed with its config and summary. ``where``: its project."""
    name, job_type = _text(run.name), _text(getattr(run, "job_type", ""))
    listed = islice(flattened(run.summary_metrics), _MOST_KEYS)
    last = {key: known for key, value in listed if is_metric(key) and (known := number(value)) is not None}
    step = last_step_of(run)
    return Kin(
        where=where,
        id=_text(run.id),
        name=name or _text(run.id),
        group=_text(getattr(run, "group", "")),
        job_type=job_type,
        sweep=_text(getattr(run, "sweep_name", "")),
        started=seconds_of(run.created_at),
        ended=None if is_live(run) else heard_of(run),
        last_step=step if step >= 0 else None,
        results=results_of(last),
        state=evidence_of(run),
        **settings_of_kin(params_of(run.config), [name, job_type, *map(str, run.tags)]),
    )


def _text(value: object) -> str:
    return value[:_CHARACTERS] if isinstance(value, str) else ""
