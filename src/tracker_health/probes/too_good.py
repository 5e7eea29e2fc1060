"""LOS014."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, log
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.evidence.numerics import median
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._classes import classes, classes_of_head, vocabulary
from tracker_health.probes._run import is_fine_tuning
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_TABLE = re.compile(
    r"(^|\.)((tok|token|tokens|word|char|input)_?)?(wte|emb|embed|embedding|embeddings|embed_tokens)\.weight$"
)
_LAST = 3
_NEARLY = 3.0
_LEAST_OF_CHANCE, _MOST_OF_CHANCE = 0.5, 1.3


@dataclass(frozen=True, kw_only=True)
class TooGood(Probe):
    """A language model is right about everything at once.

    What it finds:
        A loss over a vocabulary that fell to almost nothing in the first quarter of the run, on validation, too.

    Why it matters:
        Nobody can tell the next word of a text for sure. A model that does sees it: the targets were not shifted, the
        causal mask is missing, or padding alone is predicted. It generates nonsense.

    How it decides:
        The vocabulary is the run's param `vocab_size`, or the rows of a table of tokens among the saved weights, of
        `min_vocabulary` at least; it counts where the first training loss is from half to 1.3 of its logarithm. Warn
        when the validation loss ends between 0 and `too_low`, and both losses were below three times that within
        `early` of the steps. Fine-tunes and classifiers (by a param, or the model's last layer) are left alone.

    Known limits:
        Needs a cross-entropy in nats, and a validation loss. Sequences made by a rule (copies, recall, sums) can be
        told for sure, and are often learnt as fast: that is why it has no vote.

    What to do:
        Look at one batch: position t must not see token t + 1, and has to predict it. Generate a few words.

    References:
        Shannon (1951), prediction and entropy of printed English: 0.6 to 1.3 bits a letter.
    """

    code = "LOS014"
    name = "too-good"
    symptom = Symptom.LOG_INTEGRITY
    status = "preview"
    headline = ("end",)

    too_low: Annotated[float, Threshold("loss that no text leaves", "nats a token", "design", gt=0)] = 0.1
    early: Annotated[float, Threshold("share of the steps that is at once", "fraction", "design", gt=0, le=1)] = 0.25
    min_vocabulary: Annotated[int, Threshold("tokens of a vocabulary", "tokens", "design", ge=2)] = 40
    min_points: Annotated[int, Threshold("finite points needed, of each loss", "points", "design", ge=3)] = 4

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="val_loss", min_points=self.min_points),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss, held_out = (evidence.first(role).finite() for role in ("train_loss", "val_loss"))
        if min(len(loss), len(held_out)) < self.min_points:
            return Finding(
                verdict=Verdict.SKIP, message=f"only {min(len(loss), len(held_out))} finite points of a loss"
            )
        tokens = next((one for one in _vocabularies(evidence) if self._is_of(loss.values, one)), None)
        chooses = tokens is None or classes(evidence) is not None or classes_of_head(evidence) is not None
        if tokens is None or chooses or is_fine_tuning(evidence):
            said = "no vocabulary is known that the loss is of" if chooses else "a fine-tune may begin anywhere"
            return Finding(verdict=Verdict.SKIP, message=said)
        end = median(held_out.values[-_LAST:])
        measured: dict[str, float | int] = {"end": end, "vocabulary": tokens}
        at = max(_first_below(one, _NEARLY * self.too_low) for one in (loss, held_out))
        first, last = float(loss.steps[0]), float(loss.steps[-1])
        if not 0.0 <= end < self.too_low or at - first > self.early * (last - first):
            return Finding(
                verdict=Verdict.PASS, message=f"the validation loss ends at {number(end)}", measured=measured
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"the validation loss over {tokens} tokens ends at {number(end)}, a perplexity of {exp(end):.3f}, "
            f"and both losses were almost there at step {at:.0f}: the model may see what it is to predict",
            remedy="look whether the targets are shifted by one and the causal mask is there; generate a few words",
            measured=measured,
            steps=(int(at),),
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


def _first_below(loss: Series, level: float) -> float:
    """The step at which a loss first was below a level; infinity where it never was."""
    below = np.flatnonzero(loss.values < level)
    return float(loss.steps[below[0]]) if len(below) else float("inf")
