"""OPT017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.facts.descent import descent
from tracker_health.facts.settings import Settings
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import setting, short_name
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class DropoutTooHigh(Probe):
    """A dropout that leaves almost nothing.

    What it finds:
        A dropout in the params at which almost no unit of a layer is left in a step.

    Why it matters:
        Most dropouts of that size are a share to keep, given as a share to drop.

    How it decides:
        Warn when the largest dropout of the params below 1 is `most_dropout` or more, unless the loss clearly came down
        by `healthy_descent` of its start.

    Known limits:
        Without a loss it says nothing. It reads params, not the model.

    Worked example:
        train_loss: 2.3 2.3 2.31 2.3 2.3 2.29 2.3 2.3
        param dropout: 0.95
        gives: dropout 0.95
        warn: 0.95 is above `most_dropout`, and the loss did not come down.

    What to do:
        Take a dropout of 0.1 to 0.5.

    References:
        Srivastava et al. (2014), dropout.
    """

    code = "OPT017"
    name = "dropout-too-high"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    most_dropout: Annotated[
        float, Threshold("share of the units left out that is too large", "fraction", "design", gt=0, le=1)
    ] = 0.9
    healthy_descent: Annotated[
        float, Threshold("fall of the loss that shows that a setting did no harm", "fraction", "design", gt=0)
    ] = 0.6

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"),)

    def judge(self, evidence: Evidence) -> Finding:
        dropout, loss = Settings(evidence).dropout, descent(evidence)
        if dropout is None or loss is None:
            return Finding.skipped("no param names a dropout, or there is too little of a loss")
        said = f"a dropout of {setting(dropout.value)} ({short_name(dropout.name)})"
        measured = {"dropout": dropout.value}
        if dropout.value < self.most_dropout or (loss.sure and loss.share >= self.healthy_descent):
            return Finding.passed(said, measured)
        message = f"{said} leaves little to learn from"
        return Finding(verdict=Verdict.WARN, message=message, remedy="0.1 to 0.5 are usual", measured=measured)
