"""Gradients that are not cleared."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure


class GradientsNotCleared(Cause):
    """Gradients of earlier steps are still there when a new one is added.

    Without zero_grad each step follows the sum of all gradients so far. They all point the same way, grow, and carry
    the weights past every minimum.
    """

    name = "gradients-not-cleared"
    title = "Gradients are not cleared between steps"
    from_the_start = True
    explains = codes("OPT005 LOS001 LOS004 LOS005 LOS006 LOS008 GEN003 GRD001 GRD004 WGT001 WGT004")
    signs = (
        finding("OPT005", 5, "Adam's gradients all point the same way"),
        finding("GRD004", 1, "the gradient norm grew and stayed"),
        finding("LOS013", -4, "every batch may be the same"),
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, -5),
        measure("the loss fell back at once to where it began", "loss", lambda facts: facts.fell_back is not None, -3),
    )
    test = "print the gradient norm right after zero_grad: it has to be 0"
    do = "call optimizer.zero_grad() before each backward pass"
