"""Initialisation wrong."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.diagnosis.data.inputs_not_scaled import names_first_layer
from tracker_health.text import number


class InitialisationWrong(Cause):
    """The weights began much too small or much too large.

    Too small, nothing passes from layer to layer and all outputs are alike; too large, the first loss is many times
    that of guessing, and steps are nothing beside the weights.
    """

    name = "initialisation-wrong"
    title = "The weights began at a wrong scale"
    from_the_start = True
    explains = codes(
        "WGT004 LOS009 OPT003 OPT006 OPT009 OPT012 LOS005 LOS006 LOS007 LOS008 GEN003 WGT002 GAP004 GAP005"
    )
    signs = (
        finding("WGT004", 5, "the weights are next to nothing", lambda facts: facts.weights_are_tiny),
        finding("WGT004", 3, "the weights are many times their usual size", lambda facts: facts.weights_are_huge),
        finding("LOS009", 2, "the loss began many times above guessing"),
        finding("OPT009", 2, "the inputs of a later layer are large", lambda facts: not names_first_layer(facts)),
        finding("OPT006", 1, "all steps together hardly move the weights", lambda facts: facts.has("WGT004")),
        finding("GAP004", 2, "gradients vanish along the depth"),
        finding("GAP005", 2, "activations or gradients explode along the depth"),
        setting("weight decay takes the weights away", "weight_decay", lambda facts: facts.decay_is_beyond, -6),
        measure("a step is a large part of the weights", "OPT007", lambda facts: facts.has("OPT007"), -4),
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, -4),
    )
    test = "print the norm of every weight before the first step"
    do = "initialise the weights as the framework does, and print their norms before the first step"

    def sentence(self, facts: Facts) -> str:
        scale, first = facts.measured("WGT004", "scale"), facts.measured("LOS009", "first")
        if scale is not None:
            size = f"{number(scale)} times" if scale >= 1.0 else f"a share of {scale:.2g} of"
            return f"{self.title}: they have {size} the size that layers begin with, 0.4 to 4 times is usual"
        if first is not None:
            chance = facts.measured("LOS009", "chance") or 1.0
            return f"{self.title}: the loss began at {number(first)}, {number(first / chance)} times that of guessing"
        return super().sentence(facts)
