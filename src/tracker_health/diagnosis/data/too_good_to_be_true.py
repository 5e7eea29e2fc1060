"""Too good to be true."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding


class TooGoodToBeTrue(Cause):
    """The loss is lower than the task allows.

    The answer is among the inputs: a causal mask that is missing, a label that leaks, test samples in the training set.
    """

    name = "too-good-to-be-true"
    title = "The loss is lower than the task allows"
    from_the_start = True
    explains = codes("LOS014 LOS013")
    signs = (finding("LOS014", 6, "the loss is lower than such a task allows"),)
    test = "evaluate on samples that were made after the training data"
    do = "look for the answer among the inputs: a missing causal mask, a label in a feature, copies"
