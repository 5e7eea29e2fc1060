"""Wrong weights saved."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, codes, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.diagnosis.training.parameters_not_trained import several_initial
from tracker_health.words.diagnosis import Action


class WrongWeightsSaved(Cause):
    """The checkpoint holds other weights than those that were trained.

    A copy, the model as it was made, or a file that was written wrongly.
    """

    name = "wrong-weights-saved"
    title = "The checkpoint holds other weights than those that were trained"
    explains = codes("WGT001 WGT002 WGT005 WGT006 LOS004")
    signs = (
        Sign(
            name="several tensors that were stepped are what layers begin with",
            kind="finding",
            looks_at="WGT005",
            seen=several_initial,
            judged=6,
        ),
        measure(
            "one tensor is broken, and training never saw it", "WGT001", lambda facts: facts.one_tensor_is_broken, 6
        ),
        measure("the loss fell back at once to where it began", "loss", lambda facts: facts.fell_back is not None, 1),
    )
    test = "evaluate the saved checkpoint: its loss has to be that of the log's end"

    def sentence(self, facts: Facts) -> str:
        if facts.one_tensor_is_broken:
            names = f": {facts.found['WGT001'].message}"
            return f"The checkpoint was written wrongly{names}, while loss and optimizer are finite"
        return super().sentence(facts)

    def action(self, facts: Facts) -> Action:
        if facts.one_tensor_is_broken:
            return Action(text="save the model again, or take the checkpoint before; training itself is sound")
        return Action(text="save the model that the optimizer steps: look for a copy, or a model made again")
