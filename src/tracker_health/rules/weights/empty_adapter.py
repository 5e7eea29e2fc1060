"""WGT007."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, printable
from tracker_health.words.verdict import Verdict

_GATHER = (
    "save the adapter from the gathered model: under ZeRO-3 set stage3_gather_16bit_weights_on_model_save, or call the "
    "trainer's save_model; look whether the names in the file are the adapter's"
)
_IDLE = "look whether the adapter is on and its parameters are in the optimizer, with a learning rate"


@dataclass(frozen=True, kw_only=True)
class EmptyAdapter(Probe):
    """An adapter that holds nothing, or changes nothing.

    What it finds:
        A file of adapter weights without a tensor, or with tensors of size 0. Also adapters whose second matrix is
        still all zeros after many steps, as at initialisation.

    Why it matters:
        The training ran to its end, but its result was not saved. Such an adapter leaves the base model as it was.

    How it decides:
        Fail for an adapter's file that holds no value at all; warn where some of its tensors are of size 0. The second
        matrix of an adapter begins at 0. After `min_steps` optimizer steps, fail where that of every adapter in the
        file still is exactly 0. Warn where that of some is.

    Known limits:
        Second matrices are known by the names that PEFT gives them (`lora_B`, `lora_embedding_B`). Initialisations that
        begin with another matrix at 0 are not known.

    Worked example:
        optimizer q.lora_A.weight 2x4: step=100 exp_avg=0*8 exp_avg_sq=1e-3*8
        weights q.lora_A.weight 2x4: uniform(0.5)*8
        weights q.lora_B.weight 4x2: 0*8
        gives: idle 1, adapters 1
        fail: after 100 steps all 8 values of the second matrix are 0, in the only adapter.

    What to do:
        Save the adapter from the gathered model, and look into the file before the training is deleted.

    References:
        Hu et al. (2022), LoRA, section 4.1: the second matrix begins at zero.
    """

    code = "WGT007"
    name = "empty-adapter"
    symptom = Symptom.FROZEN
    since = "0.1.1"
    headline = ("empty", "idle")

    min_steps: Annotated[
        int, Threshold("optimizer steps after which a second matrix is no longer 0", "steps", "design", ge=1)
    ] = 50  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHTS),
            Need(role=Part.OPTIMIZER_STEPS, any_of=(Part.OPTIMIZER_STATE,), optional=True),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        weights, rows = evidence.weights, evidence.parameters.with_weight
        if weights is None or not (weights.is_hollow_adapter or weights.has_adapter):
            return Finding(verdict=Verdict.SKIP, message="the weights hold no adapter")
        where, steps = printable(weights.source), evidence.steps_at_least.steps
        if weights.is_hollow_adapter:
            held = f"{count(len(rows), 'tensor')} of size 0" if rows else "0 tensors"
            message = f"{where} holds {held} and nothing else: nothing of the adapter was saved"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=_GATHER, measured={"empty": len(rows)})
        empty = [one.called for one in rows if not one.numel]
        second = [one for one in rows if one.is_second_factor]
        idle = [one.called for one in second if one.is_zero]
        measured = {"empty": len(empty), "idle": len(idle), "adapters": len(second)}
        if empty:
            message = f"{len(empty)} of {count(len(rows), 'tensor')} in {where} hold no value: {listing(empty)}"
            return Finding(verdict=Verdict.WARN, message=message, remedy=_GATHER, measured=measured)
        if idle and steps >= self.min_steps:
            which = f"the second matrix of {len(idle)} of {count(len(second), 'adapter')} is all 0 after {steps} steps"
            return Finding(
                verdict=Verdict.FAIL if len(idle) == len(second) else Verdict.WARN,
                message=f"{which}, as it begins: {listing(idle)}",
                remedy=_IDLE,
                measured=measured,
                details={"idle": idle[:200]},
            )
        message = f"{count(len(second) - len(idle), 'adapter')} of {len(second)} left the zeros that they begin with"
        return Finding(verdict=Verdict.PASS, message=message, measured=measured)
