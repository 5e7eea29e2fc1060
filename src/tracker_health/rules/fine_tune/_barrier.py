"""What the rules on a regularised fine-tune share: what its settings ask for, and what its log can distinguish.

The objective is ``nll + lam * relu(kl - tau)``: a barrier that acts once the fine-tuned model has diverged from the
original by more than ``tau``. Without one it is ``nll`` alone, with or without weight decay in the optimizer.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import Evidence, Series
from tracker_health.evidence.curve import resolution
from tracker_health.roles import LOSS_PART, words_of

_REGULARISERS = {
    "nll": "nll", "none": "nll", "wd": "wd", "weight_decay": "wd", "kl": "kl", "kl_fwd": "kl_fwd",
    "kl_forward": "kl_fwd", "kl_rev": "kl_rev", "kl_reverse": "kl_rev",
}  # fmt: skip
# Words that many others use for what they penalise: here they name an arm of such an experiment only next to its tau.
_OF_OTHERS = frozenset({"none", "weight_decay"})
_REG = ("reg", "regulariser", "regularizer", "regularisation", "regularization")
_LAM = ("lam", "lambda", "reg_lam", "reg_lambda", "kl_lam", "kl_lambda")
_TAU = ("tau", "reg_tau", "kl_tau")


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """What the params ask for. ``reg``: nll, wd, kl, kl_fwd or kl_rev; ``lam`` and ``tau`` None where not known."""

    reg: str
    lam: float | None
    tau: float | None

    @property
    def is_divergence(self) -> bool:
        return self.reg.startswith("kl")


def barrier_of(evidence: Evidence) -> Barrier | None:
    """The regulariser that a run's params name, or None."""
    named = text_of(evidence, *_REG).strip().lower().replace("-", "_")
    if named not in _REGULARISERS:
        return None
    lam, tau = number_of(evidence, *_LAM), number_of(evidence, *_TAU)
    if named in _OF_OTHERS and tau is None:
        return None
    return Barrier(reg=_REGULARISERS[named], lam=lam, tau=tau)


def text_of(evidence: Evidence, *names: str) -> str:
    """The first param of one of these names, also below others (``config.reg``, ``args/reg``); "" where none is."""
    params = evidence.info.params
    for name in names:
        if name in params:
            return str(params[name])
    below = {re.split(r"[./]", one)[-1].lower(): one for one in sorted(params, reverse=True)}
    return next((str(params[below[name]]) for name in names if name in below), "")


def number_of(evidence: Evidence, *names: str) -> float | None:
    """The same as a finite number, or None."""
    try:
        value = float(text_of(evidence, *names))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def losses_of(evidence: Evidence) -> tuple[Series | None, Series | None]:
    """The negative log-likelihood and the whole loss, each the longest of its kind; None where a run logs it not."""
    terms = [one for one in evidence.series if one.role == LOSS_PART and "nll" in words_of(one.name)]
    wholes = [one for one in evidence.series if one.role == "train_loss"]
    losses = sorted((one for one in (*terms, *wholes) if len(one)), key=lambda one: -len(one))
    nll = next((one for one in losses if "nll" in words_of(one.name)), None)
    return nll, next((one for one in losses if "nll" not in words_of(one.name)), None)


def rounding(*series: Series | None) -> float:
    """Half of the last digit that values of one source were written with.

    Zeros alone say nothing of their digits, so what is next to them in the log has to be among the series.
    """
    return 0.5 * resolution(np.concatenate([np.empty(0), *(one.finite().values for one in series if one is not None)]))


def usual_divergence(before: float, after: float) -> float:
    """The KL divergence, in nats a token, that training has at least when it takes the nll from one level to another.

    Near the original the divergence grows with the square of what the nll gains: on the way to a distribution at the
    distance D a share ``a`` of the way gains ``(2a - a^2) D`` and diverges by ``a^2 D``. D is at most the first nll.
    """
    return (0.5 * max(0.0, before - after)) ** 2 / before if before > 0 else 0.0
