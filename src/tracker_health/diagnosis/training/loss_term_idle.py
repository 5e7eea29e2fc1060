"""A term of the loss that does nothing."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding


class LossTermIdle(Cause):
    """One term of the loss is not learnt, or does nothing.

    A weight of 0, a target that is constant, a latent variable that carries nothing.
    """

    name = "loss-term-idle"
    title = "A term of the loss does nothing"
    from_the_start = True
    explains = codes("REG001 REG004 REG005")
    signs = (
        finding("REG001", 5, "the regulariser is idle"),
        finding("REG005", 5, "the latent variable carries nothing"),
        finding("REG004", 2, "the target was not reached"),
    )
    test = "print each term's gradient norm"
    do = "print the weight and the gradient of each term of the loss"
