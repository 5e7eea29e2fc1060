"""Loss implemented wrongly."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, first_message, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_USUAL_EPSILON = 1e-6


def _gradient_is_nothing(facts: Facts) -> bool:
    epsilon = facts.settings.epsilon
    return facts.has("OPT010") and epsilon is not None and epsilon <= _USUAL_EPSILON and not facts.first_layer_is_blind


def _prefers_the_rejected(facts: Facts) -> bool:
    return "rejected answers are preferred" in facts.found["RWD009"].message


class LossImplementedWrong(Cause):
    """The loss is not what it should be: a wrong sign, a softmax too many, a factor that makes it vanish.

    A maximised loss rises from the first step. Behind two softmaxes a loss levels off far above 0 while the accuracy
    is high. A loss that is scaled away gives gradients that Adam's epsilon rules.
    """

    name = "loss-implemented-wrong"
    title = "The loss is not implemented as it should be"
    from_the_start = True
    explains = codes(
        "LOS001 LOS004 LOS005 LOS006 LOS007 LOS012 LOS015 GEN001 GEN003 GEN004 GRD001 GRD004 OPT002 "
        "OPT005 OPT010 WGT001 WGT004 AMP001 REG002 RWD001 RWD002 RWD003 RWD004 RWD005 RWD007 RWD009 GRD003"
    )
    signs = (
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, 6),
        measure("the reward only ever fell", "reward", lambda facts: facts.reward_never_rose, 4),
        finding("RWD009", 6, "rejected answers are preferred", _prefers_the_rejected),
        finding("LOS012", 4, "loss and accuracy add up as behind two softmaxes"),
        measure("gradients are below a usual epsilon", "OPT010", _gradient_is_nothing, 7),
        finding("OPT005", 1, "all gradients point the same way", lambda facts: facts.rises_throughout),
        finding("LOS015", 3, "the discriminator is always right"),
        finding("REG002", 4, "the loss is not the sum of its terms"),
        finding("OPT001", -4, "only a handful of optimizer steps"),
        finding("OPT004", -3, "parameters are not trained"),
        finding("AMP001", -2, "the loss scale fell to next to nothing"),
        measure("the learning rate is beyond what trains", "learning_rate", lambda facts: facts.rate_is_beyond, -5),
    )
    test = "compute the loss of one batch by hand, and its gradient's sign"

    def sentence(self, facts: Facts) -> str:
        if facts.rises_throughout and facts.loss is not None:
            first, end = facts.loss.first.value, facts.loss.end.value
            return f"The loss is maximised: it rose from {number(first)} to {number(end)}, and never fell"
        if _gradient_is_nothing(facts):
            ratio = number(round(facts.measured("OPT010", "eps_ratio") or 0.0))
            return (
                f"The loss is scaled down to nothing: Adam's epsilon of {number(facts.settings.epsilon or 0.0)} is "
                f"{ratio} times the root of the gradients' second moment"
            )
        if facts.reward_never_rose:
            return f"The objective may have the wrong sign: {first_message(facts, ('RWD001', 'RWD003'))}"
        return super().sentence(facts)

    def action(self, facts: Facts) -> Action:
        if facts.rises_throughout:
            return Action(text="minimise the loss: look for a minus sign before the loss, the gradient or the step")
        if _gradient_is_nothing(facts):
            return Action(text="look for a factor that scales the loss or the gradient down to nothing")
        if facts.has("LOS012"):
            return Action(text="give logits to the loss, without a softmax before it")
        if facts.reward_never_rose or facts.has("RWD009"):
            return Action(text="look at the sign of the reward, of the advantages, and of the loss")
        return Action(text="compute the loss of one batch by hand, and compare")
