"""How often each sign was seen in runs with its cause, and in runs with other causes: counted on the tuning tasks of
``benchmarks/faults`` among flagged runs, and written by ``python benchmarks/faults causes --write``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import NamedTuple

_MOST, _LEAST = 6, -6


class Counts(NamedTuple):
    """``seen`` in so many of ``of`` runs with the cause, ``elsewhere`` in so many ``of_others``."""

    seen: int
    of: int
    elsewhere: int
    of_others: int

    @property
    def weight(self) -> int:
        """How many times as frequent the sign is with the cause as without it, as a power of 2."""
        here, there = (self.seen + 0.5) / (self.of + 1), (self.elsewhere + 0.5) / (self.of_others + 1)
        return max(_LEAST, min(_MOST, round(log2(here / there))))


COUNTS: Mapping[tuple[str, str], Counts] = {
    ("learning-rate-too-high", "a step is a large part of the weights"): Counts(14, 15, 1, 279),
    ("learning-rate-too-low", "all steps together hardly move the weights"): Counts(4, 17, 0, 239),
    ("schedule-wrong", "the logged rate is 0 for most of the run, or still rises at its end"): Counts(22, 25, 0, 260),
    ("schedule-wrong", "the learning rate is 0"): Counts(17, 25, 0, 260),
    ("weight-decay-too-strong", "steps are many times the weights, which are next to nothing"): Counts(7, 8, 1, 286),
    ("gradient-clipping-too-tight", "SGD took next to nothing of the gradients"): Counts(8, 8, 0, 286),
    ("non-finite-loss", "a loss is NaN or infinite"): Counts(16, 27, 2, 267),
    ("non-finite-loss", "the loss is exactly 0 where the gradient is not finite"): Counts(9, 27, 0, 267),
    ("non-finite-loss", "NaN in the optimizer's moments"): Counts(14, 27, 0, 267),
    ("fp16-overflow", "the loss scale fell to next to nothing"): Counts(9, 9, 2, 285),
    ("labels-do-not-match", "the first layer had no gradient, its bias had: the inputs are 0"): Counts(8, 18, 0, 276),
    ("same-batch-repeated", "the loss has none of the noise of batches"): Counts(4, 4, 0, 290),
    ("parameters-not-trained", "parameters have no place, state or rate in the optimizer"): Counts(26, 42, 3, 237),
    ("parameters-not-trained", "some tensors did not change between checkpoints"): Counts(6, 42, 1, 237),
    ("parameters-not-trained", "normalisations never saw a batch"): Counts(9, 42, 0, 237),
    ("units-dead", "no gradient ever reached some parameters, while others train"): Counts(18, 25, 0, 269),
    ("units-dead", "units never had a gradient"): Counts(7, 25, 0, 269),
    ("initialisation-wrong", "the weights are next to nothing"): Counts(8, 19, 8, 275),
    ("initialisation-wrong", "the weights are many times their usual size"): Counts(8, 19, 9, 275),
    ("stopped-too-early", "only a handful of optimizer steps"): Counts(8, 15, 2, 279),
    ("stopped-too-early", "the plan was not done"): Counts(6, 15, 0, 279),
    ("evaluation-stuck", "the evaluation is one number while the training moves"): Counts(6, 6, 7, 279),
    ("wrong-weights-saved", "several tensors that were stepped are what layers begin with"): Counts(6, 13, 0, 272),
    ("loss-implemented-wrong", "the loss rose from the beginning on"): Counts(8, 15, 1, 270),
    ("loss-implemented-wrong", "loss and accuracy add up as behind two softmaxes"): Counts(4, 15, 4, 270),
}
