"""Learning rate too low."""

from __future__ import annotations

from tracker_health.diagnosis._actions import rate_action
from tracker_health.diagnosis._base import Cause, codes, finding, first_message, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action


class LearningRateTooLow(Cause):
    """The learning rate is so low that training hardly moves.

    The loss stays where it began, or still falls at the end by as much as at the beginning. All steps together would
    hardly have moved the weights.
    """

    name = "learning-rate-too-low"
    title = "The learning rate is too low"
    explains = codes("LOS005 LOS006 LOS007 GEN003 GEN002 OPT006 OPT012 WGT002 WGT005")
    signs = (
        setting("the learning rate is lower than what trains", "learning_rate", lambda facts: facts.rate_is_tiny),
        finding(
            "OPT006",
            3,
            "all steps together hardly move the weights",
            lambda facts: not facts.has("WGT004") and not facts.rate_is_beyond,
        ),
        finding("OPT010", 2, "steps are much smaller than the learning rate says"),
        finding("LOS005", 1, "the loss hardly came down"),
        finding("LOS006", 1, "the loss stayed at the level of guessing"),
        finding("LOS007", 1, "the loss was still falling at the end"),
        finding("WGT004", -2, "the weights have an unusual size"),
        measure("the loss exploded and only came back", "loss", lambda facts: facts.only_came_back, -4),
        measure("the learning rate is 0", "learning_rate", lambda facts: facts.rate_is_zero, -6),
        setting("the learning rate is beyond what trains", "learning_rate", lambda facts: facts.rate_is_beyond, -8),
        setting("the learning rate is usual or higher", "learning_rate", lambda facts: facts.rate_is_enough, -3),
    )
    test = "train 100 steps at ten times the learning rate: the loss falls faster if the rate was too low"

    def sentence(self, facts: Facts) -> str:
        rate = facts.settings.rate
        effect = first_message(facts, ("OPT006", "LOS005", "LOS006", "LOS007", "OPT012", "OPT010"))
        effect = f"; {effect}" if effect else ""
        if rate is None or rate >= facts.usual_rate / 10:
            return f"Steps are too small{effect}"
        kind = {"adam": " for Adam", "sgd": " for SGD"}.get(facts.settings.optimizer, "")
        return f"A learning rate of {number(rate)} is too low{kind}, where {number(facts.usual_rate)} is usual{effect}"

    def action(self, facts: Facts) -> Action:
        return rate_action(facts, down=False)
