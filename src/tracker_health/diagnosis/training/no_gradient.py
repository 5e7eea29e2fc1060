"""No gradient."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts


def _all_dead(facts: Facts) -> bool:
    dead, tensors = facts.measured("OPT003", "dead_tensors"), facts.measured("OPT003", "tensors")
    return dead is not None and dead == tensors


class NoGradient(Cause):
    """No gradient reaches the parameters.

    The loss does not depend on them: a detach, a no_grad, a loss of constants, or a branch that is multiplied by 0.
    """

    name = "no-gradient"
    title = "No gradient reaches the parameters"
    from_the_start = True
    explains = codes("WGT007 OPT003 OPT004 GRD003 GAP004 GAP006 LOS005 LOS006 GEN003 WGT002")
    signs = (
        finding("OPT003", 4, "no gradient ever reached any parameter", _all_dead),
        finding("OPT003", 2, "no gradient ever reached some parameters"),
        finding("GRD003", 3, "the gradient norm is exactly 0, or vanishes"),
        finding("GAP006", 4, "layers without gradients"),
        measure(
            "nothing was learnt, and nothing shows whether gradients arrive",
            "gradients",
            lambda facts: facts.is_stuck and not facts.knows_gradients,
            2,
        ),
        measure("the loss is exactly 0", "loss", lambda facts: facts.loss_is_zero, -3),
    )
    test = "print which parameters have a gradient after one backward pass"
    do = "look for .detach(), no_grad or .item() between these parameters and the loss"
