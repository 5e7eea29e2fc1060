"""Gradient clipping too tight."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, first_message, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_LEAST_CLIP = 5e-5
_TINY = 1e-3
_MUCH_LESS = 0.01


def _clips_to_nothing(facts: Facts) -> bool:
    return facts.settings.clip is not None and facts.settings.clip <= _LEAST_CLIP


def _uses_little_of_the_gradient(facts: Facts) -> bool:
    """Whether the gradients that SGD took are next to nothing, though weights and learning rate are usual.

    If gradient norms were logged, the gradients must also be a hundredth of those or less.
    """
    used, logged = facts.gradient_used, facts.gradient_logged
    if used is None or used > _TINY or facts.weights_are_tiny or facts.rate_is_tiny or facts.rate_is_beyond:
        return False
    return logged is None or used <= _MUCH_LESS * logged or logged <= _TINY


def _logs_little(facts: Facts) -> bool:
    """Whether the logged norms are next to nothing, though the loss is not."""
    logged, loss = facts.gradient_logged, facts.loss
    tiny = logged is not None and 0.0 < logged <= _LEAST_CLIP
    return tiny and loss is not None and loss.end.value > _TINY and not facts.weights_are_tiny


class GradientClippingTooTight(Cause):
    """Gradients are clipped to next to nothing.

    Plain SGD then makes steps of the limit times the learning rate, which lead nowhere.
    """

    name = "gradient-clipping-too-tight"
    title = "Gradients are clipped to next to nothing"
    explains = codes("OPT006 OPT010 OPT012 LOS005 LOS006 LOS007 GEN003 GRD003 WGT002")
    signs = (
        setting("gradients are clipped to a norm of 5e-5 or less", "max_grad_norm", _clips_to_nothing),
        measure("SGD took next to nothing of the gradients", "first moments", _uses_little_of_the_gradient, 6),
        measure("the logged norms are next to nothing, the loss is not", "grad_norm", _logs_little, 4),
        finding("OPT006", 1, "all steps together hardly move the weights"),
    )
    test = "print the gradient norm before and after clipping"

    def sentence(self, facts: Facts) -> str:
        used, logged, clip = facts.gradient_used, facts.gradient_logged, facts.settings.clip
        effect = first_message(facts, ("LOS005", "LOS006", "OPT006", "OPT012"))
        effect = f"; {effect}" if effect else ""
        if clip is not None and _clips_to_nothing(facts):
            return f"Gradients are clipped to a norm of {number(clip)}{effect}"
        if used is not None and _uses_little_of_the_gradient(facts):
            beside = f" of {number(logged)} that was logged" if logged is not None and logged > 10 * used else ""
            return f"The optimizer took a gradient norm of about {number(used)}{beside}{effect}"
        return f"{self.title}{effect}"

    def action(self, facts: Facts) -> Action:
        text = "clip gradients at a norm of 1, or not at all"
        return Action(text=text, setting="max_grad_norm", old=facts.settings.clip, new=1.0)
