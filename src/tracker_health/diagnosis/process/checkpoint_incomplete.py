"""Checkpoint incomplete."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding
from tracker_health.diagnosis._facts import Facts


def _is_hollow(facts: Facts) -> bool:
    return (facts.measured("WGT007", "empty") or 0) > 0 or facts.measured("WGT007", "adapters") is None


class CheckpointIncomplete(Cause):
    """The checkpoint does not hold what was trained.

    A file of weights without tensors, or without those that were trained: as where shards are gathered on another
    process than the one that saves.
    """

    name = "checkpoint-incomplete"
    title = "The checkpoint does not hold what was trained"
    explains = codes("WGT007")
    signs = (finding("WGT007", 7, "the adapter's file holds tensors without a value, or none", _is_hollow),)
    test = "list the tensors of the saved file"
    do = "save again with the parameters gathered first (under ZeRO-3: stage3_gather_16bit_weights_on_model_save)"
