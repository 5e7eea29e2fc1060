"""Labels that do not match."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, codes, finding, first_message, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action


class LabelsDoNotMatch(Cause):
    """Inputs and labels do not belong together.

    Labels of other samples, or inputs that say nothing about them: the model learns no more than how frequent each
    answer is, or memorises what does not carry over to other samples.
    """

    name = "labels-do-not-match"
    title = "Inputs and labels do not belong together"
    from_the_start = True
    explains = codes("LOS005 LOS006 LOS008 GEN001 GEN002 GEN003 GEN004 OPT003 WGT003 OPT010")
    signs = (
        Sign(
            name="the first layer had no gradient, its bias had: the inputs are 0",
            kind="finding",
            looks_at="OPT003",
            seen=lambda facts: facts.first_layer_is_blind,
            judged=7,
        ),
        measure("nothing was learnt: the model guesses", "loss", lambda facts: facts.is_stuck, 2),
        measure(
            "gradients reached every parameter, at a usual learning rate",
            "OPT003",
            lambda facts: facts.gradients_arrive and facts.rate_is_usual,
            1,
        ),
        finding("GEN003", 2, "validation guesses, while training learns", lambda facts: facts.has("GEN001", "GEN004")),
        finding("GEN002", 3, "nothing of what training learns carries over"),
        setting("the learning rate is usual", "learning_rate", lambda facts: facts.rate_is_usual, 1),
        finding("GEN004", 1, "the gain holds for the training samples only"),
        measure("the learning rate is 0", "learning_rate", lambda facts: facts.rate_is_zero, -6),
        finding("OPT010", -4, "epsilon rules the steps"),
        finding("WGT004", -4, "the weights have an unusual size"),
        finding("OPT006", -3, "all steps together hardly move the weights"),
        finding("LOS013", -4, "every batch may be the same"),
        measure(
            "other layers have no gradient", "OPT003", lambda f: f.has("OPT003") and not f.first_layer_is_blind, -5
        ),
    )
    test = "look at ten samples with their labels, as the model gets them"

    def sentence(self, facts: Facts) -> str:
        if facts.first_layer_is_blind:
            layer = facts.first_layer
            return f"The inputs say nothing: {layer} never had a gradient while its bias had, so all inputs were 0"
        said = first_message(facts, ("GEN002", "GEN004", "LOS006", "GEN003", "LOS005"))
        return f"{self.title}: {said}" if said else self.title

    def action(self, facts: Facts) -> Action:
        if facts.first_layer_is_blind:
            return Action(text="print one batch of inputs as the model gets it: it is all zeros")
        return Action(text="look at ten samples with their labels, as the model gets them: are they pairs?")
