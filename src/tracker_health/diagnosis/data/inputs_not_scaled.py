"""Inputs not scaled."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding
from tracker_health.diagnosis._facts import Facts

_LARGE = 500.0


def names_first_layer(facts: Facts) -> bool:
    """Whether the large inputs are those of the first layer."""
    return (
        facts.has("OPT009") and bool(facts.first_layer) and f"of {facts.first_layer} " in facts.found["OPT009"].message
    )


def _inputs_are_huge(facts: Facts) -> bool:
    return names_first_layer(facts) and (facts.measured("OPT009", "input_rms") or 0.0) >= _LARGE


def _began_high(facts: Facts) -> bool:
    first, chance = facts.measured("LOS009", "first"), facts.measured("LOS009", "chance")
    return first is not None and chance is not None and first > 100.0 * chance


class InputsNotScaled(Cause):
    """The inputs were never brought to a usual scale.

    Features in units of their own, pixels from 0 to 255: the first outputs are hundreds of times too large, the loss
    begins far above guessing, and one learning rate does not suit all features.
    """

    name = "inputs-not-scaled"
    title = "The inputs are not scaled"
    from_the_start = True
    explains = codes("OPT009 LOS009 LOS003 LOS006 LOS008 GEN003 WGT004 OPT004 GRD002")
    signs = (
        finding("OPT009", 3, "the first layer's inputs have a root mean square of 500 or more", _inputs_are_huge),
        finding("OPT009", 1, "the first layer's inputs are large", names_first_layer),
        finding("LOS009", 2, "the loss began many times above guessing"),
        finding("LOS009", 1, "the loss began a hundred times above guessing or more", _began_high),
        finding(
            "WGT004",
            1,
            "the weights grew more than hundredfold",
            lambda facts: (facts.measured("WGT004", "scale") or 0.0) > 100.0 and facts.has("LOS009"),
        ),
        finding("OPT007", -2, "a step is a large part of the weights"),
    )
    test = "print mean and deviation of every input feature"
    do = "scale every input feature to mean 0 and deviation 1, by the training data"
