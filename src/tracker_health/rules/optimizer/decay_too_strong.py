"""OPT015."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.descent import descent
from tracker_health.facts.settings import Settings
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import percent, setting
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class DecayTooStrong(Probe):
    """A weight decay that removes the weights within about a hundred steps.

    What it finds:
        A weight decay, of the params or of the saved optimizer, that takes a large part of every weight in each step.

    Why it matters:
        Weights shrink faster than gradients can build them up. It looks like a model that cannot do better.

    How it decides:
        The share that a step takes is the weight decay times the learning rate. Warn when the weight decay is
        `least_decay` or more, and that share `most_decay` or more. A loss that clearly came down by
        `healthy_descent` of its start passes.

    Known limits:
        Without a loss it says nothing. It reads no code: a decay that the optimizer's class ignores is judged as well.

    Worked example:
        train_loss: 2.3 2.3 2.31 2.3 2.3 2.29 2.3 2.3
        param weight_decay: 5
        param lr: 0.01
        gives: decay_per_step 0.05
        warn: a step takes 5 times 0.01, which is 5 % of the weights.

    What to do:
        Take a weight decay of 0.1 or less.

    References:
        Loshchilov and Hutter (2019), decoupled weight decay.
    """

    code = "OPT015"
    name = "decay-too-strong"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    most_decay: Annotated[
        float, Threshold("share of the weights that one step's decay takes", "fraction", "design", gt=0, le=1)
    ] = 5e-3
    least_decay: Annotated[
        float, Threshold("weight decay that is too large, whatever the rate's unit", "rate", "design", gt=0)
    ] = 1.0
    healthy_descent: Annotated[
        float, Threshold("fall of the loss that shows that a setting did no harm", "fraction", "design", gt=0)
    ] = 0.6

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"), *Need.beside("learning_rate", Part.OPTIMIZER_STATE))

    def judge(self, evidence: Evidence) -> Finding:
        settings, loss = Settings(evidence), descent(evidence)
        decay, share = settings.weight_decay, settings.decay_per_step
        if loss is None or decay is None or share is None:
            return Finding.skipped("no weight decay or no learning rate is known, or too little of a loss")
        said, measured = f"a weight decay of {setting(decay)} takes {percent(share)} of the weights per step", {
            "decay_per_step": share
        }  # fmt: skip
        harmless = loss.sure and loss.share >= self.healthy_descent
        if harmless or decay < self.least_decay or share < self.most_decay:
            return Finding.passed(said, measured)
        remedy = "take a weight decay of 0.1 or less"
        return Finding(verdict=Verdict.WARN, message=said, remedy=remedy, measured=measured)
