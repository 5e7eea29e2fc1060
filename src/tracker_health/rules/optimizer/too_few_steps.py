"""OPT001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.facts.steps import is_smoke_test
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class TooFewSteps(Probe):
    """Training took only a handful of optimizer steps.

    What it finds:
        Fewer than `min_steps` optimizer steps, counted by the checkpoint, the trainer state, or a metric that counts
        them.

    Why it matters:
        After a few steps Adam's moments are still warming up and an adapter has barely moved: the model is the one
        that training started from.

    How it decides:
        Below `hopeless_steps`: fail, unless all of the plan was done. Such a run was meant to be that short, as a test
        of the code, and is not judged. Below `min_steps`: fail when less than `min_fraction` of the plan was done, else
        warn: a fine-tune of 1,000 samples in 3 epochs at batch 64 is 47 steps and may be fine. Epoch-numbered metrics
        never count as steps. Skip where the log exceeds the checkpoint's `step` `far` times.

    Known limits:
        The rule is skipped if neither the checkpoint nor the trainer state has the number of steps. A checkpoint's
        `step` that the log far exceeds may be the epoch's number: if the optimizer does not count, the rule is then
        skipped as well.

    Worked example:
        param max_steps: 1000
        optimizer fc 2x2: step=30 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        gives: optimizer_steps 30
        fail: 30 is below `min_steps`, and 30 / 1000 is 0.03 of the plan, below `min_fraction`.

    What to do:
        Train longer: more epochs, a smaller batch, or fewer gradient accumulation steps.

    References:
        Kingma and Ba (2015): the bias of Adam's second moment fades over about 1 / (1 - beta2) steps.
    """

    code = "OPT001"
    name = "too-few-steps"
    symptom = Symptom.UNDERTRAINED
    headline = ("optimizer_steps",)

    min_steps: Annotated[
        int, Threshold("optimizer steps below which a run is short", "steps", "original rule", ge=1)
    ] = 50
    hopeless_steps: Annotated[
        int, Threshold("optimizer steps below which nothing more is asked", "steps", "design", ge=1)
    ] = 10
    min_fraction: Annotated[
        float, Threshold("share of the plan that counts as done", "fraction", "design", gt=0, le=1)
    ] = 0.9
    far: Annotated[
        int, Threshold("steps of the log over the checkpoint's, where that counts something else", "ratio", "design",
                       ge=1)
    ] = 10  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STEPS),
            Need(role="train_loss", optional=True),
            Need(role=Part.PLAN, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        steps = evidence.optimizer_steps or 0
        measured = {"optimizer_steps": steps}
        logged = _last_step_of_the_log(evidence)
        if steps < self.min_steps and logged > self.far * max(steps, 1):
            message = f"the checkpoint counts {count(steps, 'step')} of some kind, but the log goes to step {logged}"
            return Finding(verdict=Verdict.SKIP, message=message)
        if steps >= self.min_steps:
            return Finding(verdict=Verdict.PASS, message=f"{count(steps, 'optimizer step')}", measured=measured)
        if is_smoke_test(evidence, self.hopeless_steps):
            message = f"all of the plan was done, and its {count(steps, 'step')} are too few to judge"
            return Finding(verdict=Verdict.SKIP, message=message)
        hopeless, progress = steps < self.hopeless_steps, evidence.progress
        cut_off = progress is not None and not progress.snapshot and progress.fraction < self.min_fraction
        because = f"; {percent(progress.fraction)} of the plan was done" if progress is not None and cut_off else ""
        limit = self.hopeless_steps if hopeless else self.min_steps
        return Finding(
            verdict=Verdict.FAIL if hopeless or cut_off else Verdict.WARN,
            message=f"only {count(steps, 'optimizer step')}, fewer than {limit}{because}",
            remedy=f"train for {self.min_steps} optimizer steps or more: more epochs or smaller batches",
            measured=measured,
        )


def _last_step_of_the_log(evidence: Evidence) -> int:
    """How far the log goes, where the number of steps is not an optimizer's own count and nothing confirms it; else 0.

    ``step`` in a checkpoint may be the epoch's.
    """
    state, loss = evidence.optimizer, evidence.find("train_loss")
    if state is None or evidence.info.global_step is not None or evidence.find("global_step") is not None:
        return 0
    counted = any(tensor.step is not None for tensor in state.tensors) or "global_step" in state.extras
    if counted or state.global_step is None or loss is None or len(loss.clean()) <= state.global_step:
        return 0
    return int(loss.clean().steps.max())
