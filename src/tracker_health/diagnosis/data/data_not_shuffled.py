"""Data not shuffled."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding
from tracker_health.words.diagnosis import Action


class DataNotShuffled(Cause):
    """The samples come sorted, by label say, in every epoch.

    The model follows what it saw last, so the loss goes through one slow pattern in every epoch, and jumps where the
    label changes.
    """

    name = "data-not-shuffled"
    title = "The training data is not shuffled"
    from_the_start = True
    explains = codes("LOS010 LOS004 LOS005 LOS006 LOS007 LOS008 GEN001 GEN003 GEN004")
    signs = (finding("LOS010", 6, "the loss goes through one slow pattern in every epoch"),)
    test = "print the labels of the first batches of two epochs"
    do = Action(text="shuffle the training data in every epoch", setting="shuffle", old="False", new="True")
