"""LOS009."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import is_of_something_else, measures, pairs
from tracker_health.probes._classes import classes_of_head, counts, vocabulary
from tracker_health.probes._run import is_distillation, is_fine_tuning
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_SOON = 3
_FEW_CLASSES, _ABOUT, _OF_GUESSING = 4, 0.5, 1.0 / 3.0
_HALF, _DEARER = 0.5, 1.5
_WORD = re.compile("[a-z0-9]+")
_COUNTED = frozenset({"acc", "accuracy", "top1", "perplexity", "ppl"})


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
        is more than `factor` times its logarithm, and something shows that it is a cross-entropy among so many: a
        metric called accuracy, top-1 or perplexity; or a loss that comes down below that logarithm within a twentieth
        of the points (at least three), as a model's does that unlearns its certainty; or, with a number of classes, a
        first loss of `plain_factor` times its logarithm: the means that detectors add up begin lower.

        Where the params are silent, the number of classes is the size of the model's last layer, in a checkpoint, if an
        accuracy was logged beside the loss and the run is no fine-tune. Then more must bear out that the loss is a
        cross-entropy among so many: the first accuracy is that of guessing to within a half, of four classes or more;
        or it is at least a third of guessing's, and the loss comes down below that logarithm as soon. And the loss is
        never lower than so many wrong answers allow.

        In neither case a loss that is on another scale, as one of distillation times the square of its temperature: it
        is still `factor` times that logarithm when half of the answers are right, while a wrong one costs half as much
        again as at first. A model that unlearns its certainty pays less and less for each.

    Known limits:
        Needs the number of classes, and a cross-entropy in nats, averaged and not summed. Of a detection loss, CTC or
        Dice nothing can be said. A history that begins in mid-training is skipped, and so is one whose params speak of
        a teacher or of distillation. A fine-tune that keeps a head made for other labels begins as high.

    What to do:
        Scale the inputs to mean 0 and deviation 1; use the framework's default initialisation.

    References:
        The cross-entropy of a uniform guess among C classes is ln C.
    """

    code = "LOS009"
    name = "initial-loss"
    symptom = Symptom.UPDATE_SIZE

    factor: Annotated[float, Threshold("first loss over that of guessing", "ratio", "design", gt=1)] = 3.0
    plain_factor: Annotated[
        float, Threshold("the same where nothing else shows a cross-entropy", "ratio", "calibration", gt=1)
    ] = 30.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss"),
            Need(role="val_accuracy", any_of=("train_accuracy",), optional=True),
            Need(role="val_loss", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        if is_distillation(evidence):
            return Finding(verdict=Verdict.SKIP, message="the params speak of a teacher: its answers are no classes")
        known, loss = counts(evidence), evidence.first("train_loss").finite()
        head = _head_of_classifier(evidence) if not known else None
        if head is None and not known:
            return Finding(
                verdict=Verdict.SKIP, message="the number of classes is not known: no param num_classes or vocab_size"
            )
        if not len(loss) or loss.steps[0] > max(1.0, 0.2 * loss.steps[-1]):
            return Finding(verdict=Verdict.SKIP, message="the history does not begin with the training")
        # A classifier's settings may hold the vocabulary of the language model that it was made of.
        classes, first = head or known[0], float(loss.values[0])
        chance = log(classes)
        measured = {"classes": classes, "chance": chance, "first": first}
        high = first > self.factor * chance
        shown = self._is_cross_entropy if head is None else _is_borne_out
        if not (high and shown(loss.values, classes, evidence) and not self._is_on_another_scale(classes, evidence)):
            note = "; nothing shows that the loss is a cross-entropy among so many" if high else ""
            message = f"the first loss is {number(first)}, chance is {number(chance)}{note}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the first loss is {number(first)}, {first / chance:.1f} times that of guessing "
            f"among {classes} classes",
            remedy="scale the inputs, and initialise the weights as the framework does",
            measured=measured,
            steps=(int(loss.steps[0]),),
        )

    def _is_cross_entropy(self, values: FloatArray, classes: int, evidence: Evidence) -> bool:
        """Whether answers are counted, the loss comes below chance at once, or begins too high for anything else."""
        plainly = classes != vocabulary(evidence) and values[0] > self.plain_factor * log(classes)
        return _comes_below(values, classes) or plainly or _answers_are_counted(evidence.info.metric_names)

    def _is_on_another_scale(self, classes: int, evidence: Evidence) -> bool:
        """Whether the loss is as high when half of the answers are right, and each wrong one is dearer than at first:
        of the training samples or of the validation samples.
        """
        level = self.factor * log(classes)
        shares = (one for one in measures(evidence, _SOON) if one.name == "accuracy")
        return any(
            _gets_dearer(loss, accuracy, level) for one in shares for _, loss, accuracy in pairs(evidence, one, _SOON)
        )


def _gets_dearer(loss: Series, accuracy: Series, level: float) -> bool:
    """Whether a wrong answer costs half as much again as at first, when half are right and the loss is this high."""
    right = np.interp(loss.steps, accuracy.steps, accuracy.values)
    with np.errstate(all="ignore"):
        cost = loss.values / (1.0 - right)
    still = (right >= _HALF) & (right < 1.0) & (loss.values >= level) & (loss.values <= loss.values[0])
    return bool(still.any() and median(cost[still]) >= _DEARER * cost[0])


def _answers_are_counted(names: tuple[str, ...]) -> bool:
    words = {word for name in names for word in _WORD.findall(name.lower())}
    return not words.isdisjoint(_COUNTED)


def _comes_below(values: FloatArray, classes: int) -> bool:
    """Whether the loss is below guessing within a twentieth of the points."""
    start = max(_SOON, len(values) // 20)
    soon = values[start : start + max(_SOON, len(values) // 50)]
    return bool(len(soon) and median(soon) < log(classes))


def _head_of_classifier(evidence: Evidence) -> int | None:
    """The size of the last layer, where answers were counted beside the loss."""
    counted = any(one.name == "accuracy" for one in measures(evidence, 1))
    return classes_of_head(evidence) if counted and not is_fine_tuning(evidence) else None


def _is_borne_out(values: FloatArray, classes: int, evidence: Evidence) -> bool:
    """Whether loss and accuracy are those of a choice among as many as the last layer has: a sum of squares, or CTC,
    beside the share of sequences without an error, is none.
    """
    accuracy = next(one for one in measures(evidence, 1) if one.name == "accuracy").judged
    of_guessing = float(accuracy.values[0]) * classes
    # A choice among more, a contrast of samples say, that begins at three times this logarithm is right far less often.
    guesses = classes >= _FEW_CLASSES and abs(of_guessing - 1.0) <= _ABOUT
    unlearnt = of_guessing >= _OF_GUESSING and _comes_below(values, classes)
    return (guesses or unlearnt) and not is_of_something_else(evidence)
