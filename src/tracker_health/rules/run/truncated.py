"""RUN001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part, Progress
from tracker_health.facts.intent import early_stopping
from tracker_health.facts.never_updated import SKIPPED, behind
from tracker_health.facts.scores import HELD_OUT, rests
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, percent
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class Truncated(Probe):
    """The run ended well before its plan.

    What it finds:
        Fewer optimizer steps or epochs than the run's own plan (`max_steps`, `num_train_epochs` and the like), with no
        sign of early stopping. Also a run that reached its end, but whose optimizer counts less than half of the
        updates.

    Why it matters:
        A killed or crashed run leaves a model whose learning-rate schedule never came down, and often nobody notices.

    How it decides:
        The farthest count is taken: the checkpoint's, the trainer state's, the log's, the optimizer's own. Warn when it
        is below `min_fraction` of the plan, and more than the last of `many_epochs` or more is missing. A run that goes
        on, was set up to stop early, or ended in an error passes, and so does a checkpoint of mid-training. So does one
        that finished `rest` evaluations or more after a held-out loss or score was best. Warn, too, where a whole run's
        optimizer counts less than half of the steps, and these are clearly no batches.

    Known limits:
        A run without a recorded plan is skipped. So is one whose steps are only in the log and of an unknown kind. A
        step that the training gave its tracker counts as one of the plan. If rows of every fifth step or more would end
        there too, the run is skipped. A run that stopped early by the training loss, without recording it, looks like
        one that was cut off. A `patience` in the params, the checkpoint or the console counts as a record. In a log of
        every k-th epoch a run counts as done up to the next point. A mid-training checkpoint counts if the next one of
        its folder is overdue by three times, and by five minutes. Steps that may be rows or samples count next to a
        checkpoint's own, or where a metric has a point for each epoch. Where steps and epochs are planned, whichever
        comes first ends the run. An optimizer that was made again for a second stage looks like one that lost its
        state. So does a copied folder in which training continues.

    Worked example:
        param max_steps: 1000
        optimizer fc 2x2: step=400 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        gives: done 400, planned 1000, fraction 0.4
        warn: 400 / 1000 is 0.4, below `min_fraction`.

    What to do:
        Resume from the last checkpoint, or find out in the console log what stopped it. When resuming, load the
        optimizer's state.

    References:
        None: plain arithmetic.
    """

    code = "RUN001"
    name = "truncated"
    symptom = Symptom.UNDERTRAINED
    kinds = ("unfinished", "updates-missing")
    headline = ("fraction",)

    min_fraction: Annotated[
        float, Threshold("share of the plan that counts as done", "fraction", "design", gt=0, le=1)
    ] = 0.9

    many_epochs: Annotated[
        int, Threshold("planned epochs of which the last may be missing by how they are counted", "epochs", "design",
                       ge=1)
    ] = 8  # fmt: skip

    rest: Annotated[
        int, Threshold("evaluations since the best held-out value, from which a run that finished may have been "
                       "stopped early", "evaluations", "design", ge=1)
    ] = 3  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.PLAN),
            Need(role="train_loss", optional=True),
            *Need.beside("val_loss", *HELD_OUT, "val_reward"),
        )

    def judge(self, evidence: Evidence) -> Finding:
        progress = evidence.progress
        if progress is None:
            return Finding(verdict=Verdict.SKIP, message="the plan is not known")
        share, measured = _told(progress)
        one_left = progress.unit == "epochs" and progress.done >= progress.planned - 1.0
        if progress.fraction >= self.min_fraction or (one_left and progress.planned >= self.many_epochs):
            return _whole(evidence, progress, share, measured)
        ending = evidence.ending
        if ending is not None and ending.how not in (Ended.FINISHED, Ended.RUNNING):
            message = f"{share} were done; how the run ended says why ({ending.how})"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        stopping, rested = early_stopping(evidence), rests(evidence, self.rest)
        if progress.snapshot or stopping or rested:
            why = "the run is still running, or this is a checkpoint of its middle"
            if stopping or rested:
                why = f"early stopping was on ({stopping})" if stopping else f"it may have been stopped early: {rested}"
            return Finding(
                verdict=Verdict.PASS, message=f"{share} were done; {why}", measured=measured, confidence="low"
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"the run ended after {share} ({'at most ' * bool(progress.unlogged)}{percent(progress.fraction)})",
            remedy="resume from the last checkpoint, or look in the console log for what stopped it",
            measured=measured,
            kind="unfinished",
        )


def _told(progress: Progress) -> tuple[str, dict[str, float]]:
    """What was done of the plan, in words and in numbers."""
    measured = {"done": progress.done, "planned": progress.planned, "fraction": progress.fraction}
    # Of a run whose optimizer was behind: updates that were skipped or forgotten were steps all the same.
    unit = progress.unit if progress.updates is None else "steps"
    share = f"{number(progress.done)} of {number(progress.planned)} planned {unit}"
    if progress.unlogged:
        share += f", logged every {number(progress.unlogged + 1)}"
    return share, measured if progress.updates is None else measured | {"updates": progress.updates}


def _whole(evidence: Evidence, progress: Progress, share: str, measured: dict[str, float]) -> Finding:
    """The finding on a run that came to its plan's end, whose optimizer may count far fewer updates."""
    if progress.updates is None:
        return Finding(verdict=Verdict.PASS, message=f"{share} were done", measured=measured)
    counted = f"its optimizer counts {count(progress.updates, 'update')}"
    if not behind(evidence, progress.updates, progress.done):
        return Finding(verdict=Verdict.PASS, message=f"{share} were done; {counted}", measured=measured)
    return Finding(
        verdict=Verdict.WARN,
        message=f"the run came through {share}, but {counted} ({percent(progress.updates / progress.done)}): "
        f"the others were skipped, or its state was lost when the run was resumed",
        remedy=SKIPPED,
        measured=measured,
        kind="updates-missing",
    )
