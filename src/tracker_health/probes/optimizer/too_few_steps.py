"""OPT001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.numerics import median
from tracker_health.facts.steps import is_smoke_test
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count
from tracker_health.verdict import Verdict

_FAR = 10


@dataclass(frozen=True, kw_only=True)
class TooFewSteps(Probe):
    """Training took only a handful of optimizer steps.

    What it finds:
        Fewer than `min_steps` optimizer steps, counted by the checkpoint, the trainer state, or a metric that counts
        them.

    Why it matters:
        After a few steps Adam's moments are still warming up and an adapter has hardly moved: the model is the one
        that training started from.

    How it decides:
        Below `hopeless_steps`: fail, unless all of the plan was done: such a run was meant to be that short, as a test
        of the code, and is not judged. Below `min_steps`: fail when something corroborates it (the run stopped before
        its plan, the learning rate was still rising, or the loss was still falling steeply), else warn: a fine-tune
        of 1,000 samples in 3 epochs at batch 64 is 47 steps and may be fine. Epoch-numbered metrics never count as
        steps.

    Known limits:
        Where neither checkpoint nor trainer state tells the steps, the rule is skipped. So it is where a checkpoint of
        an optimizer that does not count has a `step` that the log exceeds tenfold: it may be the epoch's number.

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

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STEPS),
            Need(role="train_loss", optional=True),
            Need(role="learning_rate", optional=True),
            Need(role=Part.PLAN, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        steps = evidence.optimizer_steps or 0
        measured = {"optimizer_steps": steps}
        logged = _contradicted(evidence, steps)
        if steps < self.min_steps and logged:
            message = f"the checkpoint counts {count(steps, 'step')} of some kind, but the log goes to step {logged}"
            return Finding(verdict=Verdict.SKIP, message=message)
        if steps >= self.min_steps:
            return Finding(verdict=Verdict.PASS, message=f"{count(steps, 'optimizer step')}", measured=measured)
        if is_smoke_test(evidence, self.hopeless_steps):
            message = f"all of the plan was done, and its {count(steps, 'step')} are too few to judge"
            return Finding(verdict=Verdict.SKIP, message=message)
        signs = [
            sign for sign in (_stopped_early(evidence), _still_warming_up(evidence), _still_falling(evidence)) if sign
        ]
        hopeless = steps < self.hopeless_steps
        because = f"; {', and '.join(signs)}" if signs else ""
        limit = self.hopeless_steps if hopeless else self.min_steps
        return Finding(
            verdict=Verdict.FAIL if hopeless or signs else Verdict.WARN,
            message=f"only {count(steps, 'optimizer step')}, fewer than {limit}{because}",
            remedy=f"train for {self.min_steps} optimizer steps or more: more epochs or smaller batches",
            measured=measured,
        )


def _contradicted(evidence: Evidence, steps: int) -> int:
    """How far the log goes, where it goes far beyond a number that is no optimizer's own count and nothing bears out
    (``step`` in a checkpoint may be the epoch's); else 0.
    """
    state = evidence.optimizer
    if state is None or evidence.info.global_step is not None or evidence.find("global_step") is not None:
        return 0
    counted = any(tensor.step is not None for tensor in state.tensors)
    if counted or "global_step" in state.extras or state.global_step is None:
        return 0
    loss = evidence.find("train_loss")
    last = int(loss.clean().steps.max()) if loss is not None and len(loss.clean()) else 0
    return last if last > _FAR * max(steps, 1) and len(loss.clean() if loss else ()) > steps else 0


def _stopped_early(evidence: Evidence) -> str:
    progress = evidence.progress
    if progress is None or progress.snapshot or progress.fraction >= 0.9:
        return ""
    return f"{progress.fraction:.0%} of the plan was done"


def _still_warming_up(evidence: Evidence) -> str:
    rate = evidence.find("learning_rate")
    if rate is None or len(rate.finite()) < 3:
        return ""
    values = rate.finite().values
    return "the learning rate was still rising" if values[-1] >= values.max() and values[-1] > values[-2] else ""


def _still_falling(evidence: Evidence) -> str:
    """The last third still brought a third of the whole descent: a straight line or steeper, not a curve that levels
    off.
    """
    loss = evidence.find("train_loss")
    if loss is None or len(loss.finite()) < 9:
        return ""
    parts = [median(part) for part in np.array_split(loss.finite().values, 6)]
    descent, last = parts[0] - min(parts), parts[3] - parts[5]
    return "the loss was still falling steeply" if descent > 0.05 * abs(parts[0]) and last > descent / 3 else ""
