"""Overfitting."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action


def _guesses(facts: Facts) -> bool:
    return facts.has("GEN003")


class Overfitting(Cause):
    """The model memorises its training samples.

    The training loss falls on while that of other samples rises: too few samples, too many epochs, too little
    regularisation.
    """

    name = "overfitting"
    title = "The model memorises its training samples"
    explains = codes("GEN001 GEN002 GEN004 LOS012")
    signs = (
        finding("GEN001", 4, "the validation loss rose from its minimum while training went on"),
        finding("GEN004", 3, "the accuracy holds for the training samples only"),
        finding("GEN002", 1, "validation never improved"),
        finding("GEN003", -2, "validation guesses", _guesses),
        finding("LOS005", -3, "the loss hardly came down"),
        finding("LOS013", -3, "every batch may be the same"),
        finding("LOS001", -4, "a loss is NaN or infinite"),
    )
    test = "train on ten times the samples, or on augmented ones: the gap shrinks if it is overfitting"

    def action(self, facts: Facts) -> Action:
        best = facts.measured("GEN001", "best_step")
        if best is None:
            best = facts.measured("GEN004", "best_step")
        if best is None:
            return Action(text="stop at the best validation loss; add data, augmentation or regularisation")
        return Action(
            text=f"keep the checkpoint at step {int(best)}, where validation was best; then add data or regularise"
        )
