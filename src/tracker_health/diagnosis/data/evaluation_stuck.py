"""Evaluation stuck."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action


class EvaluationStuck(Cause):
    """The evaluation does not look at the model that is trained, or not at its answers.

    It gives one number while training goes on, or no number at all: a copy or an average that is not updated, labels
    that are all masked, half precision in the evaluation alone.
    """

    name = "evaluation-stuck"
    title = "The evaluation does not follow the training"
    from_the_start = True
    explains = codes("GEN005 LOS001 GEN003 GEN002")
    signs = (
        finding("GEN005", 5, "the evaluation is one number while the training moves"),
        measure("the evaluation alone is not finite", "val_loss", lambda facts: facts.only_validation_is_nonfinite, 5),
        finding("WGT002", -4, "no weight moved", lambda facts: facts.unchanged_share == 1.0),
        measure(
            "the learning rate is 0",
            "learning_rate",
            lambda facts: facts.settings.last_rate == 0.0 and facts.has("LRS001"),
            -5,
        ),
        finding("AMP001", -5, "the loss scale fell to next to nothing"),
        finding("LOS005", -3, "the loss hardly came down"),
        measure("the learning rate is beyond what trains", "learning_rate", lambda facts: facts.rate_is_beyond, -3),
    )
    test = "evaluate the trained model on its training samples"

    def sentence(self, facts: Facts) -> str:
        if facts.only_validation_is_nonfinite and facts.nonfinite_for_a_while:
            return f"The evaluation is NaN or infinite {facts.nonfinite_for_a_while}; the training loss is finite"
        if facts.only_validation_is_nonfinite:
            return "The evaluation alone is not finite: the training loss is finite throughout"
        return super().sentence(facts)

    def action(self, facts: Facts) -> Action:
        if facts.only_validation_is_nonfinite:
            return Action(
                text="look at one batch of the evaluation: labels that are all masked, or fp16 in the evaluation "
                "alone (fp16_full_eval)"
            )
        return Action(text="evaluate the model that is trained: look for a copy, or an average that is not updated")
