"""Parameters that are not trained."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import listing
from tracker_health.words.diagnosis import Action


def _some_unchanged(facts: Facts) -> bool:
    share = facts.unchanged_share
    return share is not None and share < 1.0 and not facts.rate_is_beyond and not facts.weights_are_tiny


def _one_initial(facts: Facts) -> bool:
    return facts.has("WGT005") and not several_initial(facts)


def several_initial(facts: Facts) -> bool:
    """Whether two tensors or more that the optimizer stepped, at a rate above 0, are what layers begin with."""
    stuck = facts.measured("WGT005", "initial") or 0
    return stuck > 1 and "that the optimizer stepped" in facts.found["WGT005"].message


class ParametersNotTrained(Cause):
    """A part of the model is never trained.

    It is not in the optimizer, is in a group without a learning rate, or is cut off by a detach. Or its layer was
    replaced after the optimizer was made. Normalisations that never see a batch belong here as well.
    """

    name = "parameters-not-trained"
    title = "A part of the model is not trained"
    from_the_start = True
    explains = codes("WGT007 OPT004 OPT003 WGT002 WGT005 WGT006 LOS005 LOS006 LOS012 GEN003 GEN005 RWD003 RWD009")
    signs = (
        finding("OPT004", 6, "parameters have no place, state or rate in the optimizer"),
        finding("WGT002", 5, "some tensors did not change between checkpoints", _some_unchanged),
        finding("WGT005", 4, "a tensor is what layers begin with", _one_initial),
        finding("WGT006", 6, "normalisations never saw a batch"),
        measure("gradients came, and the policy never moved", "kl", lambda facts: facts.nothing_moved, 8),
        finding("RWD003", 3, "the reward did not rise, though answers differ"),
        finding("OPT003", 1, "no gradient reached some parameters"),
        measure("the loss began many times above guessing", "LOS009", lambda facts: facts.has("LOS009"), -2),
    )
    test = "compare the parameters that have a gradient after one backward pass with those of the optimizer"

    def action(self, facts: Facts) -> Action:
        if facts.has("WGT006") and not facts.has("OPT004", "WGT002"):
            return Action(text="call model.train() before training, and again after each evaluation")
        names = (
            facts.names("OPT004", "missing") or facts.names("WGT002", "unchanged") or facts.names("WGT005", "initial")
        )
        which = f" {listing(names, 3)}" if names else " all parameters"
        if facts.has("OPT004") and "learning rate of 0" in facts.found["OPT004"].message:
            new = facts.usual_rate
            text = (
                f"give the group of{which} a learning rate, or leave it out of the optimizer if it is frozen on purpose"
            )
            return Action(text=text, setting="learning_rate of the group", old=0.0, new=new)
        return Action(
            text=f"make the optimizer after the model is complete, from model.parameters(), and look whether{which} "
            "has a gradient: a replaced layer, a .detach() or no_grad leaves it out"
        )
