"""Adapter not attached."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, codes, finding
from tracker_health.diagnosis._facts import Facts


def _share_of_adapters(facts: Facts, code: str, key: str) -> float:
    """The share of the adapter's tensors that a finding names."""
    named = [one for one in facts.names(code, key) if "lora_" in one]
    weights = facts.evidence.weights
    total = sum("lora_" in one.name for one in weights.tensors) if weights is not None else len(named)
    return len(named) / total if total else 0.0


def _all_idle(facts: Facts) -> bool:
    idle = facts.measured("WGT007", "idle") or 0
    return idle > 0 and idle == facts.measured("WGT007", "adapters")


class AdapterNotAttached(Cause):
    """The adapter is there and nothing goes through it.

    Its second factors stay 0 and no gradient reaches it: the wrapped model was not the one that was trained, or it was
    made after the optimizer.
    """

    name = "adapter-not-attached"
    title = "The adapter is not attached to the model that is trained"
    from_the_start = True
    explains = codes("WGT007 OPT003 OPT004 WGT002 WGT005 LOS005 GRD003")
    signs = (
        finding("WGT007", 7, "the second matrix of every adapter is still 0", _all_idle),
        Sign(
            name="no gradient reached half of the adapter or more",
            kind="finding",
            looks_at="OPT003",
            judged=7,
            seen=lambda facts: _share_of_adapters(facts, "OPT003", "dead") >= 0.5,
        ),
        Sign(
            name="half of the adapter or more has no state",
            kind="finding",
            looks_at="OPT004",
            judged=7,
            seen=lambda facts: _share_of_adapters(facts, "OPT004", "missing") >= 0.5,
        ),
        Sign(
            name="half of the adapter or more did not change",
            kind="finding",
            looks_at="WGT002",
            judged=6,
            seen=lambda facts: _share_of_adapters(facts, "WGT002", "unchanged") >= 0.5 and not facts.rate_is_zero,
        ),
    )
    test = "print the adapter's parameters that ask for a gradient, and their gradients after one backward pass"
    do = "train the model that get_peft_model returns, and make the optimizer from its parameters"
