"""Dead units."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action


def _some_dead(facts: Facts) -> bool:
    dead, tensors = facts.measured("OPT003", "dead_tensors"), facts.measured("OPT003", "tensors")
    if dead is None or tensors is None or facts.first_layer_is_blind or facts.weights_are_tiny:
        return False
    return dead < tensors and not any("lora_" in one for one in facts.names("OPT003", "dead"))


class UnitsDead(Cause):
    """Units or whole layers never fire.

    Their output is 0 for every input, so no gradient passes: a bias far below 0, a step that threw them there, or an
    output that is multiplied by 0.
    """

    name = "units-dead"
    title = "Units or whole layers never fire"
    explains = codes("WGT007 OPT003 OPT004 WGT003 GAP002 GAP003 LOS005 LOS006 GEN003 GRD003 LOS012")
    signs = (
        finding("OPT003", 5, "no gradient ever reached some parameters, while others train", _some_dead),
        finding("WGT003", 6, "units never had a gradient", lambda facts: not facts.first_layer_is_blind),
        finding("GAP002", 6, "activations are 0 throughout"),
        finding("GAP003", 4, "activations are saturated"),
        measure("the weights are next to nothing", "WGT004", lambda facts: facts.weights_are_tiny, -3),
    )
    test = "print the share of zeros in each layer's output for one batch"

    def action(self, facts: Facts) -> Action:
        names = facts.names("OPT003", "dead") or facts.names("WGT003", "layers")
        where = f", first of {names[0]}" if names else ""
        return Action(
            text=f"print the share of zeros in each layer's output{where}; look at its initial bias, use a leaky "
            "activation, and lower the learning rate if the units died in training"
        )
