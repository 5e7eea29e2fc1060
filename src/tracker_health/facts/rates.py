"""The learning rates that were logged."""

from __future__ import annotations

from tracker_health.evidence import Evidence, Series


def learning_rates(evidence: Evidence) -> list[Series]:
    """The logged learning rates, a series for each group of parameters, without what is not finite."""
    return evidence.rates_logged


def rate_since(evidence: Evidence, step: int) -> float | None:
    """The first learning rate that was logged at a step or after it, as a share of the highest; of several groups that
    of the one where it is the largest. None where there is none, or all are 0.
    """
    found = [
        float(later[0] / rate.values.max())
        for rate in learning_rates(evidence)
        if len(later := rate.values[rate.steps >= step]) and rate.values.max() > 0
    ]
    return max(found, default=None)
