"""LOS014."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, IntArray, Need, Part, Series
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._classes import vocabulary
from tracker_health.probes._run import is_fine_tuning
from tracker_health.probes._stats import median
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_TABLE = re.compile(
    r"(^|\.)((tok|token|tokens|word|char|input)_?)?(wte|emb|embed|embedding|embeddings|embed_tokens)\.weight$"
)
_LAST = 3
_FEWEST_EVALUATIONS = 3
_NEARLY = 3.0
_LEAST_OF_CHANCE, _MOST_OF_CHANCE = 0.5, 1.3


@dataclass(frozen=True, kw_only=True)
class TooGood(Probe):
    """A language model is right about everything at once.

    What it finds:
        A loss over a vocabulary that fell to almost nothing in the first quarter of the run, of new samples, too, where
        a validation loss was logged.

    Why it matters:
        Nobody can tell the next word of a text for sure. A model that does sees it: the targets were not shifted, the
        causal mask is missing, or padding alone is predicted. It generates nonsense.

    How it decides:
        The vocabulary is the run's param `vocab_size`, or the rows of a table of tokens among the saved weights, of
        `min_vocabulary` at least; it counts where the first loss is from half to 1.3 of its logarithm. Warn when the
        loss ends below `too_low`, that of validation where there are three evaluations or more, and the training loss
        was below three times that within `early` of the steps. Fine-tunes are left alone.

    Known limits:
        Needs a cross-entropy in nats. Sequences made by a rule (copies, sums) can be told for sure, but are seldom
        learnt that fast. A text that is learnt by heart in a few epochs looks the same where nothing was validated.

    What to do:
        Look at one batch: position t must not see token t + 1, and has to predict it. Generate a few words.

    References:
        Shannon (1951), prediction and entropy of printed English: 0.6 to 1.3 bits a letter.
    """

    code = "LOS014"
    name = "too-good"
    symptom = Symptom.LOG_INTEGRITY
    headline = ("end",)

    too_low: Annotated[float, Threshold("loss that no text leaves", "nats a token", "design", gt=0)] = 0.1
    early: Annotated[float, Threshold("share of the steps that is at once", "fraction", "design", gt=0, le=1)] = 0.25
    min_vocabulary: Annotated[int, Threshold("tokens of a vocabulary", "tokens", "design", ge=2)] = 40
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="val_loss", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").finite()
        if len(loss) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(loss)} finite points of the loss")
        tokens = next((one for one in _vocabularies(evidence) if self._is_of(loss.values, one)), None)
        if tokens is None or is_fine_tuning(evidence):
            said = (
                "a fine-tune may begin anywhere" if tokens is not None else "no vocabulary is known that the loss is of"
            )
            return Finding(verdict=Verdict.SKIP, message=said)
        judged = _judged(evidence, loss)
        end, below = median(judged.values[-_LAST:]), np.flatnonzero(loss.values < _NEARLY * self.too_low)
        measured: dict[str, float | int] = {"end": end, "vocabulary": tokens}
        whose = "validation loss" if judged is not loss else "loss"
        if not end < self.too_low or not len(below) or _share_of_steps(loss.steps, int(below[0])) > self.early:
            return Finding(verdict=Verdict.PASS, message=f"the {whose} ends at {number(end)}", measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the {whose} over {tokens} tokens ends at {number(end)}, a perplexity of {exp(end):.3f}, and was "
            f"almost there at step {loss.steps[below[0]]}: the model may see what it is to predict",
            remedy="look whether the targets are shifted by one and the causal mask is there; generate a few words",
            measured=measured,
            steps=(int(loss.steps[below[0]]),),
        )

    def _is_of(self, values: FloatArray, tokens: int) -> bool:
        share = float(values[0]) / log(tokens) if tokens >= self.min_vocabulary else 0.0
        return _LEAST_OF_CHANCE <= share <= _MOST_OF_CHANCE


def _vocabularies(evidence: Evidence) -> Iterator[int]:
    """How many tokens the model may choose among: by a param, and by its tables."""
    said = vocabulary(evidence)
    if said is not None:
        yield said
    tables = evidence.weights.tensors if evidence.weights is not None else ()
    yield from (one.shape[0] for one in tables if len(one.shape) == 2 and _TABLE.search(one.name.lower()))


def _judged(evidence: Evidence, loss: Series) -> Series:
    """The validation loss, where there are enough of it."""
    held_out = evidence.find("val_loss")
    known = held_out.finite() if held_out is not None else None
    return known if known is not None and len(known) >= _FEWEST_EVALUATIONS else loss


def _share_of_steps(steps: IntArray, at: int) -> float:
    whole = float(steps[-1]) - float(steps[0])
    return (float(steps[at]) - float(steps[0])) / whole if whole > 0 else at / len(steps)
