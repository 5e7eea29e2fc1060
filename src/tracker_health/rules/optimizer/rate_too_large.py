"""OPT016."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.descent import descent
from tracker_health.facts.settings import ADAM, Settings, usual_rate_of
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import setting
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class RateTooLarge(Probe):
    """A learning rate that is usual for SGD, given to Adam.

    What it finds:
        A learning rate of Adam or a relative of it that moves every weight by about as much in each step.

    Why it matters:
        Weights are of the order of 0.1. Such steps throw away what the model had in one of them.

    How it decides:
        The rate is the highest of the slowest group, as logged, as the checkpoint began with, or as the params have it.
        Warn when it is `most_rate` or more, unless the loss clearly came down by `healthy_descent` of its start. Learnt
        prompts, which have a high rate, are left out.

    Known limits:
        Without a loss it says nothing. The optimizer has to be known, from a param or from its state.

    Worked example:
        train_loss: 2.3 2.3 2.31 2.3 2.3 2.29 2.3 2.3
        param optimizer: adam
        param lr: 0.5
        gives: rate 0.5
        warn: 0.5 is above `most_rate`, and the loss did not come down.

    What to do:
        Take a rate of 1e-4 to 1e-2.

    References:
        Kingma and Ba (2015): the size of a step is about that of the rate.
    """

    code = "OPT016"
    name = "rate-too-large"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    most_rate: Annotated[float, Threshold("learning rate that is too high for Adam", "rate", "design", gt=0)] = 0.3
    healthy_descent: Annotated[
        float, Threshold("fall of the loss that shows that a setting did no harm", "fraction", "design", gt=0)
    ] = 0.6

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"), *Need.beside("learning_rate", Part.OPTIMIZER_STATE))

    def judge(self, evidence: Evidence) -> Finding:
        settings, loss = Settings(evidence), descent(evidence)
        rate = settings.slowest_rate if settings.optimizer == ADAM and not settings.learns_prompts else None
        if loss is None or rate is None:
            return Finding.skipped("no learning rate of Adam is known, or too little of a loss")
        if rate < self.most_rate or (loss.sure and loss.share >= self.healthy_descent):
            return Finding.passed(f"the learning rate of the slowest group is {setting(rate)}", {"rate": rate})
        return Finding(
            verdict=Verdict.WARN,
            message=f"a learning rate of {setting(rate)} moves every weight by about as much in each step of Adam",
            remedy=f"{usual_rate_of(ADAM).said} for Adam",
            measured={"rate": rate},
        )
