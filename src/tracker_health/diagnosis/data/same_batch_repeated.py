"""The same batch, again and again."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding


class SameBatchRepeated(Cause):
    """Every step sees the same batch.

    The loss then has none of the noise that batches make, and falls to nothing while other samples get worse.
    """

    name = "same-batch-repeated"
    title = "Every step sees the same batch"
    from_the_start = True
    explains = codes("LOS013 GEN001 GEN002 GEN003 GEN004 OPT005")
    signs = (
        finding("LOS013", 6, "the loss has none of the noise of batches"),
        finding("OPT005", 1, "all gradients point the same way"),
    )
    test = "print the samples of two batches in a row"
    do = "print the samples of two batches in a row; look for next(iter(loader)) inside the loop"
