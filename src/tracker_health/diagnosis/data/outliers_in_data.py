"""Outliers in the data."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, codes, finding, measure
from tracker_health.diagnosis._facts import Facts, first_of
from tracker_health.diagnosis.data.inputs_not_scaled import names_first_layer
from tracker_health.words.diagnosis import Action


class OutliersInData(Cause):
    """A few batches hold values far out of proportion.

    At a usual learning rate, the loss jumps at these batches and recovers. The first layer's second moments show inputs
    many times larger than a scaled feature.
    """

    name = "outliers-in-data"
    title = "A few batches hold values far out of proportion"
    explains = codes("LOS003 LOS004 LOS008 GRD002 OPT009")
    signs = (
        measure("the loss jumped and came down again at a usual learning rate", "loss", lambda f: f.only_spikes, 1),
        Sign(
            name="the first layer's inputs are large, though the loss began as usual",
            kind="finding",
            looks_at="OPT009",
            seen=lambda facts: names_first_layer(facts) and not facts.has("LOS009"),
            judged=3,
        ),
        finding("GRD002", 2, "the gradient norm jumped"),
        finding("LOS003", 1, "the loss has spikes"),
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, -4),
        finding("OPT007", -3, "a step is a large part of the weights"),
    )
    test = "print the largest input value of each batch around the jump"

    def action(self, facts: Facts) -> Action:
        step = first_of(map(facts.onset, ("LOS003", "GRD002", "LOS008", "LOS004")))
        where = f" around step {step}" if step is not None else ""
        return Action(
            text=f"look for broken samples in the batches{where}, and clip gradients at a norm of 1",
            setting="max_grad_norm",
            old=facts.settings.clip,
            new=1.0,
        )
