"""The adapter trainer's step log, by the conventions of the rule ``training-drift`` and not by those of other logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tracker_health.errors import ReadError
from tracker_health.evidence import DlmStepLog
from tracker_health.readers.files.json_lines import MAX_LINES, BadLine, json_lines


def read_dlm_step_log(files: Sequence[tuple[str, Path]]) -> DlmStepLog:
    """The steps and losses of all ``train-*.jsonl`` files; (name, path) in name order.

    Only objects with ``type == "step"`` count. A step is ``int(step)``, a loss ``float(loss)``; what does not convert
    is skipped, and so is a broken line; a later line or file wins for a repeated step.

    Raises:
        ReadError: the first line of a file is broken, its bytes are not UTF-8, or it is far too long.
        OSError: a file cannot be read.
    """
    losses: dict[int, float] = {}
    for name, path in files:
        for number, record in json_lines(path, MAX_LINES):
            if isinstance(record, BadLine):
                if record.undecodable:
                    raise ReadError(f"{name}: line {number} holds bytes that are not UTF-8")
                if number == 1:
                    raise ReadError(f"{name}: its first line is not JSON")
            elif isinstance(record, dict) and record.get("type") == "step":
                _keep(losses, record)
    steps = sorted(losses)
    return DlmStepLog(
        files=tuple(name for name, _ in files),
        steps=np.array(steps, dtype=np.int64),
        losses=np.array([losses[step] for step in steps], dtype=np.float64),
    )


def _keep(losses: dict[int, float], record: dict[str, Any]) -> None:
    try:
        step, loss = int(record["step"]), float(record["loss"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return
    if abs(step) < 2**63:
        losses[step] = loss
