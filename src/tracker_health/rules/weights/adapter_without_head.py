"""WGT008."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom
from tracker_health.text import printable
from tracker_health.words.verdict import Verdict

_CLASSIFIES = re.compile(r"SEQ_CLS|TOKEN_CLS|QUESTION_ANS|(sequence|token)_?classification", re.IGNORECASE)
_HEAD = re.compile(r"(^|[._])(classifier|score|qa_outputs|head|classification_head|out_proj)([._]|$)")


@dataclass(frozen=True, kw_only=True)
class AdapterWithoutHead(Probe):
    """An adapter for classification without its head.

    What it finds:
        A saved adapter whose task is a classification, and next to which no classification head was saved.

    Why it matters:
        The head of a classifier begins at random. Whoever loads the adapter gets another random one, and answers like
        guessing, though the training was good.

    How it decides:
        The task is what the adapter's configuration names. It must be a classification, or the answering of
        questions by spans. Warn when the configuration names no modules to save, and no tensor next to the
        adapter's is of a head by its name.

    Known limits:
        Heads of unusual names are taken for missing, unless the configuration names them. A head that was trained
        before, and is part of the base model, is not needed next to the adapter.

    Worked example:
        weights layer.q.lora_A.weight 2x4: uniform(0.5)*8
        weights layer.q.lora_B.weight 4x2: normal(0.01)*8
        task: SEQ_CLS
        gives: heads 0
        warn: the task is SEQ_CLS, and 0 of 2 tensors are a head's.

    What to do:
        Name the head in `modules_to_save` of the adapter's configuration, and train again: the trained head is lost.

    References:
        PEFT, `LoraConfig.modules_to_save`; for the task type SEQ_CLS it adds the usual names by itself.
    """

    code = "WGT008"
    name = "adapter-without-head"
    symptom = Symptom.FROZEN
    since = "0.2.0"

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.WEIGHTS),)

    def judge(self, evidence: Evidence) -> Finding:
        weights = evidence.weights
        if weights is None or not weights.has_adapter or not _CLASSIFIES.search(weights.task):
            return Finding.skipped("the weights are no adapter for classification, as far as its configuration says")
        heads = [one.name for one in weights.tensors if ".lora_" not in one.name and _HEAD.search(one.name)]
        measured = {"heads": len(heads), "tensors": len(weights.tensors)}
        if heads or weights.saved_beside:
            return Finding.passed("a head is saved with the adapter", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"the adapter is for {printable(weights.task)}, and no head is among its "
            f"{len(weights.tensors)} tensors",
            remedy="name the head in modules_to_save of the adapter's configuration, and train again",
            measured=measured,
        )
