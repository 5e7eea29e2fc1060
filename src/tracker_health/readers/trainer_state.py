"""``trainer_state.json`` of the Hugging Face Trainer: log history, steps done and planned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import BEST_CHECKPOINT, Series, StepUnit
from tracker_health.readers.files.json_lines import MAX_FIELDS, MAX_NAME_CHARACTERS, as_number, as_step, parse_json
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.roles import RolePlan

MAX_BYTES = 20 * 2**20


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """What a trainer state holds.

    ``finished``: training had ended, or been told to stop, when it was written. ``at_save_step``: it was written at a
    step at which checkpoints were due.
    """

    source: str
    series: tuple[Series, ...]
    names: tuple[str, ...]
    params: Mapping[str, str]
    global_step: int | None
    max_steps: int | None
    epoch: float | None
    finished: bool
    at_save_step: bool
    loss_by_step: Mapping[int, float]


def read_trainer_state(path: Path, source: str, roles: RolePlan) -> TrainerState:
    """The trainer state of a file; each numeric field of its log history is a series over optimizer steps.

    A row holds only what was logged at its step. So null, which several writers of JSON put for NaN, is NaN in the loss
    and in every field that is a number elsewhere.

    Raises:
        ReadError: it is not a trainer state, or a far too large one.
        OSError: the file cannot be read.
    """
    state = _load(path)
    columns = _columns(state["log_history"])
    read = roles.needed(columns)
    global_step, max_steps = as_step(state.get("global_step")), as_step(state.get("max_steps"))
    return TrainerState(
        source=source,
        series=tuple(
            Series(
                name=name,
                role=read[name],
                source=source,
                step_unit=StepUnit.OPTIMIZER_STEP,
                steps=np.array(columns[name][0], dtype=np.int64),
                values=np.array(columns[name][1], dtype=np.float64),
            )
            for name in columns
            if name in read
        ),
        names=tuple(columns),
        params=_params(state),
        global_step=global_step,
        max_steps=max_steps,
        epoch=as_number(state.get("epoch")),
        finished=_told_to_stop(state)
        or (global_step is not None and max_steps is not None and 0 < max_steps <= global_step),
        at_save_step=_at_save_step(state, global_step),
        loss_by_step=dict(zip(*columns.get("loss", ([], [])), strict=True)),
    )


def _columns(rows: list[Any]) -> dict[str, tuple[list[int], list[float]]]:
    columns: dict[str, tuple[list[int], list[float]]] = {}
    numbers = {"loss"}
    for row in rows:
        step = as_step(row.get("step")) if isinstance(row, dict) else None
        if step is None:
            continue
        for name, value in row.items():
            number = math.nan if value is None else as_number(value)
            if number is not None and name != "step" and len(name) <= MAX_NAME_CHARACTERS:
                if value is not None:
                    numbers.add(name)
                steps, values = columns.setdefault(name, ([], []))
                steps.append(step)
                values.append(number)
        if len(columns) > MAX_FIELDS:
            raise ReadError(f"its log has more than the {MAX_FIELDS} fields that are read")
    # A field that is null in every row, the loss apart, may be so for another reason.
    return {name: column for name, column in columns.items() if name in numbers}


def _load(path: Path) -> dict[str, Any]:
    text = read_regular(path, MAX_BYTES)
    try:
        state = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ReadError("it is not JSON of a sane size, or is cut short") from error
    if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
        raise ReadError("it is no trainer state: it has no log_history")
    return state


def _params(state: Mapping[str, Any]) -> dict[str, str]:
    params = {
        name: str(number)
        for name in ("max_steps", "num_train_epochs")
        if (number := as_number(state.get(name))) is not None
    }
    if "EarlyStoppingCallback" in _callbacks(state):
        params["early_stopping"] = "EarlyStoppingCallback"
    best = state.get("best_model_checkpoint")
    if isinstance(best, str) and best:
        params[BEST_CHECKPOINT] = PurePosixPath(best.replace("\\", "/")).name[:200]
    return params


def _at_save_step(state: Mapping[str, Any], global_step: int | None) -> bool:
    every = as_step(state.get("save_steps"))
    return bool(global_step and every and every > 0 and global_step % every == 0)


def _callbacks(state: Mapping[str, Any]) -> Mapping[str, Any]:
    callbacks = state.get("stateful_callbacks")
    return callbacks if isinstance(callbacks, dict) else {}


def _told_to_stop(state: Mapping[str, Any]) -> bool:
    control = _callbacks(state).get("TrainerControl")
    arguments = control.get("args") if isinstance(control, dict) else None
    return isinstance(arguments, dict) and arguments.get("should_training_stop") is True
