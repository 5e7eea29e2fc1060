"""All labels ignored."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.words.diagnosis import Action


def _nothing_is_learnt_from(facts: Facts) -> bool:
    return facts.loss_is_zero


class AllLabelsIgnored(Cause):
    """No label counts: all of them are masked.

    The loss leaves out labels of -100. Where a chat template or a response marker does not match the text, or prompts
    fill the whole length, that is all of them: the loss is exactly 0 (or NaN, as a mean over nothing).
    """

    name = "all-labels-ignored"
    title = "No label counts"
    from_the_start = True
    explains = codes("GRD003 OPT003 LOS001 LOS002 LOS005 GEN003 GAP006 WGT002 OPT004 LOS013")
    signs = (
        measure("the loss is exactly 0 from the first point on", "loss", _nothing_is_learnt_from, 7),
        measure(
            "the gradient norm is exactly 0 from the first point on",
            "grad_norm",
            lambda facts: facts.gradient_is_zero and facts.loss_is_zero,
            2,
        ),
        measure("the evaluation alone is not finite", "val_loss", lambda facts: facts.only_validation_is_nonfinite, 2),
        finding("OPT003", 1, "no gradient reached the parameters", lambda facts: facts.loss_is_zero),
    )
    test = "count the labels of one batch that are not -100"

    def sentence(self, facts: Facts) -> str:
        if facts.loss_is_zero:
            points = len(facts.evidence.first("train_loss"))
            return f"No label counts: all {points} values of the loss are exactly 0, as where every label is masked"
        return "No label of the evaluation may count: its loss is not finite, while that of the training is"

    def action(self, facts: Facts) -> Action:
        where = "batch" if facts.loss_is_zero else "batch of the evaluation"
        return Action(
            text=f"print the labels of one {where}: all are masked; check the response marker, the chat template and "
            "whether prompts fill the whole length"
        )
