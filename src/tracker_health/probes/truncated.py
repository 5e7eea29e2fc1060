"""RUN001."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

# Not the patience of a learning-rate schedule.
_EARLY_STOPPING = re.compile(r"early_?stop|^(es_)?patience$")


@dataclass(frozen=True, kw_only=True)
class Truncated(Probe):
    """The run ended well before its plan.

    What it finds:
        Fewer optimizer steps or epochs than the run's own plan (`max_steps`, `num_train_epochs` and the like), with
        no sign of early stopping.

    Why it matters:
        A killed or crashed run leaves a model whose learning-rate schedule never came down, and often nobody notices.

    How it decides:
        Warn when less than `min_fraction` of the plan was done. Where only a log tells that, and it has every k-th
        epoch or step (`if epoch % 50 == 0`), the run may have gone on up to the point that would have come next: that
        counts as done, up to the plan's end. A checkpoint written in mid-training says nothing about where the run
        ended and passes; so does a run that the tracker says is still running, or that was set up to stop early. In a
        console log `Epoch 12/50` is a plan, and a word about early stopping such a setting.

    Known limits:
        A run without a recorded plan is skipped. A killed run that its tracker still calls running passes, unless the
        launcher saw it die. One that stopped early and says so nowhere, neither in its params nor in its console log,
        is not told from one that was cut off. `step 230/744` is no plan: it may count batches. In a log of every k-th
        epoch a run that died less than k epochs before its end is not told from a whole one.

    What to do:
        Resume from the last checkpoint, or find out in the console log what stopped it.

    References:
        None: plain arithmetic.
    """

    code = "RUN001"
    name = "truncated"
    symptom = Symptom.UNDERTRAINED
    headline = ("fraction",)

    min_fraction: Annotated[
        float, Threshold("share of the plan that counts as done", "fraction", "design", gt=0, le=1)
    ] = 0.9

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.PLAN),)

    def judge(self, evidence: Evidence) -> Finding:
        progress = evidence.progress
        if progress is None:
            return Finding(verdict=Verdict.SKIP, message="the plan is not known")
        share = f"{number(progress.done)} of {number(progress.planned)} planned {progress.unit}"
        if progress.unlogged:
            share += f", logged every {number(progress.unlogged + 1)}"
        measured = {"done": progress.done, "planned": progress.planned, "fraction": progress.fraction}
        if progress.fraction >= self.min_fraction:
            return Finding(verdict=Verdict.PASS, message=f"{share} were done", measured=measured)
        stopping = _early_stopping(evidence)
        if progress.snapshot or stopping:
            why = (
                f"early stopping was on ({stopping})"
                if stopping
                else "the run goes on, or this is a checkpoint of its middle"
            )
            return Finding(
                verdict=Verdict.PASS, message=f"{share} were done; {why}", measured=measured, confidence="low"
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"the run ended after {share} ({'at most ' * bool(progress.unlogged)}{progress.fraction:.0%})",
            remedy="resume from the last checkpoint, or look in the console log for what stopped it",
            measured=measured,
        )


def _early_stopping(evidence: Evidence) -> str:
    for name, value in evidence.info.params.items():
        if _EARLY_STOPPING.search(name.lower()) and str(value).lower() not in (
            "",
            "none",
            "false",
            "0",
            "0.0",
        ):
            return printable(name, 60)
    return ""
