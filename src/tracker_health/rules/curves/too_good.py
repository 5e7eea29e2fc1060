"""LOS014."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.chance import Chance
from tracker_health.facts.classes import classes, classes_of_head, vocabulary
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict

_TABLE = re.compile(
    r"(^|\.)((tok|token|tokens|word|char|input)_?)?(wte|emb|embed|embedding|embeddings|embed_tokens)\.weight$"
)


@dataclass(frozen=True, kw_only=True)
class TooGood(Probe):
    """A language model is right about everything at once.

    What it finds:
        A loss over a vocabulary that fell to almost nothing in the first quarter of the run, on validation, too.

    Why it matters:
        Nobody can predict the next word of a text for sure. A model that does must see it: the targets were not
        shifted, the causal mask is missing, or only padding is predicted. It generates nonsense.

    How it decides:
        The vocabulary is the run's param `vocab_size`, or the rows of a table of tokens among the saved weights. It
        counts from `min_vocabulary` on, where the loss begins near its logarithm. Warn when the validation loss ends
        between 0 and `too_low`, and both losses lie below `nearly` as soon as `early` of the run is over. Fine-tunes
        and classifiers (by a param, or the model's last layer) are left alone.

    Known limits:
        Needs a cross-entropy in nats, and a validation loss. It has no vote: sequences made by a rule (copies, recall,
        sums) can be predicted for sure, and have the same curves. Among small transformers it flagged those whose
        targets were not shifted, and one that rightly learnt to copy. A missing mask is learnt more slowly, and passed.

    Worked example:
        train_loss: 4.2 0.9 0.1 0.02 0.02 0.02 0.02 0.02 0.02 0.02 0.02 0.02
        val_loss: 2 0.3 0.1 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05 0.05
        param vocab_size: 64
        warn: guessing costs ln 64 = 4.16; a quarter on both losses lie below 0.3, and 0.05 is less than 0.1.

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
    nearly: Annotated[float, Threshold("loss that is almost that", "nats a token", "design", gt=0)] = 0.3
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
        loss, held_out = evidence.curve("train_loss"), evidence.curve("val_loss")
        if loss is None or held_out is None or min(loss.points, held_out.points) < self.min_points:
            return Finding.skipped("too few finite points of a loss")
        known = (Chance(one) for one in _vocabularies(evidence) if one >= self.min_vocabulary)
        chance = next((one for one in known if one.begins(loss.start)), None)
        chooses = classes(evidence) is not None or classes_of_head(evidence) is not None
        if chance is None or chooses or is_fine_tuning(evidence):
            return Finding.skipped("no vocabulary is known that the loss is of, or it is a fine-tune")
        end, soon = held_out.end.value, [one.between(self.early, self.early).value for one in (loss, held_out)]
        measured: dict[str, float | int] = {"end": end, "vocabulary": int(chance.answers)}
        if not 0.0 <= end < self.too_low or max(soon) >= self.nearly:
            return Finding.passed(f"the validation loss ends at {number(end)}", measured)
        step = int(held_out.steps[int(self.early * (len(held_out.steps) - 1))])
        return Finding(
            verdict=Verdict.WARN,
            message=f"the validation loss over {chance.answers:.0f} tokens ends at {number(end)}, a perplexity of "
            f"{exp(end):.3f}, and was almost there at step {step}: the model may see what it is to predict",
            remedy="look whether the targets are shifted by one and the causal mask is there; generate a few words",
            measured=measured,
            steps=(step,),
            confidence="high" if held_out.sure else "low",
        )


def _vocabularies(evidence: Evidence) -> Iterator[int]:
    """How many tokens the model may choose among: by a param, and by its tables."""
    said = vocabulary(evidence)
    if said is not None:
        yield said
    tables = evidence.weights.tensors if evidence.weights is not None else ()
    yield from (one.shape[0] for one in tables if len(one.shape) == 2 and _TABLE.search(one.name.lower()))
