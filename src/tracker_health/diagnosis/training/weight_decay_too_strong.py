"""Weight decay too strong."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, first_message, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_USUAL = 0.01


class WeightDecayTooStrong(Cause):
    """Weight decay takes the weights away faster than gradients can build them.

    With decoupled decay each step takes the learning rate times the decay off every weight. At a hundredth per step
    nothing of a weight is left after a few hundred steps.
    """

    name = "weight-decay-too-strong"
    title = "Weight decay takes the weights away"
    explains = codes("WGT004 WGT003 OPT003 OPT004 OPT007 OPT012 LOS004 LOS005 LOS006 LOS007 GEN003")
    signs = (
        setting(
            "decay times rate takes half a percent or more off the weights per step",
            "weight_decay",
            lambda facts: facts.decay_is_beyond,
        ),
        setting(
            "decay times rate is known to take little off the weights",
            "weight_decay",
            lambda facts: facts.decay_is_little,
            -6,
        ),
        finding(
            "OPT007",
            3,
            "steps are many times the weights, which are next to nothing",
            lambda facts: facts.weights_are_tiny,
        ),
        finding("WGT004", 1, "the weights are next to nothing", lambda facts: facts.weights_are_tiny),
    )
    test = "train 100 steps with a weight decay of 0, and compare the norm of the weights"

    def sentence(self, facts: Facts) -> str:
        decay, share = facts.settings.weight_decay, facts.settings.decay_per_step
        effect = first_message(facts, ("WGT004", "LOS006", "LOS005"))
        effect = f"; {effect}" if effect else ""
        if decay is None or share is None or not facts.decay_is_beyond:
            return f"{self.title}{effect}"
        return f"A weight decay of {number(decay)} takes {share:.2g} of every weight per step{effect}"

    def action(self, facts: Facts) -> Action:
        text = f"set the weight decay to {number(_USUAL)}"
        return Action(text=text, setting="weight_decay", old=facts.settings.weight_decay, new=_USUAL)
