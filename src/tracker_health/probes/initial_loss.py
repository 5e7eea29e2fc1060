"""LOS009."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class InitialLoss(Probe):
    """The loss begins far above guessing.

    What it finds:
        A first training loss that is several times that of a model which knows nothing.

    Why it matters:
        An untrained model should be unsure. One that is sure and wrong was initialised with weights that are too large,
        or gets inputs that were never scaled; its first steps go into undoing that, and some units never recover.

    How it decides:
        The number of classes or the size of the vocabulary comes from the run's params. Warn when the first finite loss
        is more than `factor` times its logarithm.

    Known limits:
        Needs the number of classes, and a cross-entropy in nats, averaged and not summed. A history that begins in
        mid-training is skipped.

    What to do:
        Scale the inputs to mean 0 and deviation 1; use the framework's default initialisation.

    References:
        The cross-entropy of a uniform guess among C classes is ln C.
    """

    code = "LOS009"
    name = "initial-loss"
    symptom = Symptom.UPDATE_SIZE

    factor: Annotated[float, Threshold("first loss over that of guessing", "ratio", "design", gt=1)] = 3.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"),)

    def judge(self, evidence: Evidence) -> Finding:
        classes, loss = evidence.classes, evidence.first("train_loss").finite()
        if classes is None:
            return Finding(
                verdict=Verdict.SKIP, message="the number of classes is not known: no param num_classes or vocab_size"
            )
        if not len(loss) or loss.steps[0] > max(1.0, 0.2 * loss.steps[-1]):
            return Finding(verdict=Verdict.SKIP, message="the history does not begin with the training")
        first, chance = float(loss.values[0]), log(classes)
        measured = {"classes": classes, "chance": chance, "first": first}
        if first <= self.factor * chance:
            return Finding(
                verdict=Verdict.PASS,
                message=f"the first loss is {number(first)}, chance is {number(chance)}",
                measured=measured,
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"the first loss is {number(first)}, {first / chance:.1f} times that of guessing "
            f"among {classes} classes",
            remedy="scale the inputs, and initialise the weights as the framework does",
            measured=measured,
            steps=(int(loss.steps[0]),),
        )
