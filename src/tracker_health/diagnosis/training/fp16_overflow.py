"""Overflow of half precision."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure, setting
from tracker_health.words.diagnosis import Action


class Fp16Overflow(Cause):
    """Half precision overflows, and steps are skipped.

    Numbers above 65504 are infinite in fp16. The loss scale is halved at each overflow; once it is next to nothing,
    every step is skipped and the model stands still while its loss looks sound.
    """

    name = "fp16-overflow"
    title = "Half precision overflows"
    explains = codes(
        "AMP001 GRD001 LOS001 LOS005 LOS006 GEN005 WGT001 WGT002 OPT001 OPT002 RUN001 RUN004 LOS012 GAP001"
    )
    signs = (
        finding(
            "AMP001",
            6,
            "the loss scale fell to next to nothing",
            lambda facts: facts.finite_loss or not facts.has("LOS001"),
        ),
        finding("AMP001", 1, "the loss scale fell, and the loss is not finite", lambda facts: facts.has("LOS001")),
        setting(
            "the params speak of fp16, and something is not finite",
            "fp16",
            lambda facts: facts.settings.half_precision and facts.has("LOS001", "GRD001", "OPT002"),
            2,
        ),
        finding(
            "RUN001",
            1,
            "the optimizer counts fewer updates than steps were done",
            lambda facts: facts.measured("RUN001", "updates") is not None,
        ),
        measure("the evaluation alone is not finite", "val_loss", lambda facts: facts.only_validation_is_nonfinite, 1),
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, -4),
    )
    test = "train 100 steps in bf16 or fp32: the overflow is gone if half precision was the reason"
    do = Action(text="train in bf16, which has the range of fp32", setting="precision", old="fp16", new="bf16")
