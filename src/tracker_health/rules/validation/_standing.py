"""A validation loss that stands still says nothing of the training: other rules on validation ask here."""

from __future__ import annotations

from tracker_health.evidence import Evidence
from tracker_health.rules.validation.evaluation_stands_still import EvaluationStandsStill
from tracker_health.words.verdict import Verdict

OF_ANOTHER_MODEL = "the validation loss stands still, and says nothing of the training (GEN005 shows that)"


def is_of_another_model(evidence: Evidence) -> bool:
    """Whether the validation loss says nothing of how the training goes."""
    return evidence.find("val_loss") is not None and EvaluationStandsStill().judge(evidence).verdict is Verdict.WARN
