"""RUN001."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.ending import Ended
from tracker_health.evidence import Evidence, Need, Part, Progress
from tracker_health.facts.intent import early_stopping
from tracker_health.facts.never_updated import SKIPPED, behind
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_MANY_EPOCHS = 8


@dataclass(frozen=True, kw_only=True)
class Truncated(Probe):
    """The run ended well before its plan.

    What it finds:
        Fewer optimizer steps or epochs than the run's own plan (`max_steps`, `num_train_epochs` and the like), with no
        sign of early stopping. And a run that came to its end, and whose optimizer counts less than half of the
        updates.

    Why it matters:
        A killed or crashed run leaves a model whose learning-rate schedule never came down, and often nobody notices.

    How it decides:
        Warn when less than `min_fraction` of the plan was done, and more than the last of eight epochs or more is
        missing, by the farthest of the counts: the checkpoint's, the trainer state's, the log's, the optimizer's own.
        Where only a log tells that, and it has every k-th epoch or step (`if epoch % 50 == 0`), the run may have gone
        on up to the point that would have come next: that counts as done, up to the plan's end. A checkpoint written in
        mid-training says nothing about where the run ended and passes, unless it lies in a folder of several
        (`checkpoint-200`, `checkpoint-400`) of which the next is missing for more than three times as long as they took
        to come, and for five minutes, by when their files were written (all at one time, as of a copy, they tell
        nothing); so does a run that the tracker says is still running, or that was set up to stop early: by its params,
        or by what its checkpoint holds (Lightning's callback, a `patience_counter`). In a console log `Epoch 12/50` is
        a plan, and a word about early stopping such a setting.

        A run that failed, was killed, interrupted or pruned passes: `killed` and `crashed` judge how it ended.

        Epochs are those of a metric, of the trainer state, or of a checkpoint with which the log ends. Where steps and
        epochs are planned, what is come to first ends the run.

        Steps of which a log does not say what they are (`step`) may be rows, epochs or samples. They count beside a
        checkpoint's own, as long as they do not lead beyond the plan; and where a metric has a point for each epoch of
        the plan (63 steps apart, of `max_steps: 882` and `epochs: 14`, or of `steps_per_epoch: 63`).

        An optimizer that lost its state at a resume counts anew, and none counts the updates that a loss scaler skips.
        Warn where a whole run's optimizer counts less than half of the steps, and these are surely no batches: they are
        no whole multiple of its count, and a trainer that counts updates wrote them, or the log has them one by one.

    Known limits:
        A run without a recorded plan is skipped, and so is one whose log alone has steps of an unknown kind. One
        that stopped early and says so nowhere, neither in its params nor in its checkpoint or console log, is not told
        from one that was cut off.
        `step 230/744` is a plan only where the log breaks off amid the only such count: it may count batches. In a log
        of every k-th epoch a run that died less than k epochs before its end is not told from a whole one. An optimizer
        that was made anew on purpose, for a second stage of the training, looks like one that lost its state. A copy of
        a folder of checkpoints in which the training still goes on, and one whose job waits to go on, look like a run
        that ended.

    What to do:
        Resume from the last checkpoint, or find out in the console log what stopped it. When resuming, load the
        optimizer's state.

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
        return (
            Need(role=Part.PLAN),
            Need(role="train_loss", optional=True),
            Need(role="val_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        progress = evidence.progress
        if progress is None:
            return Finding(verdict=Verdict.SKIP, message="the plan is not known")
        share, measured = _told(progress)
        if progress.fraction >= self.min_fraction or _lacks_one_epoch(progress):
            return _whole(evidence, progress, share, measured)
        ending = evidence.ending
        if ending is not None and ending.how not in (Ended.FINISHED, Ended.RUNNING):
            message = f"{share} were done; how the run ended says why ({ending.how})"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        stopping = early_stopping(evidence)
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


def _lacks_one_epoch(progress: Progress) -> bool:
    """Whether the last of many epochs is missing, which may be in how they are counted, or have been a part of one."""
    return progress.unit == "epochs" and progress.planned >= _MANY_EPOCHS and progress.done >= progress.planned - 1.0


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
        message=f"the run came through {share}, but {counted} ({progress.updates / progress.done:.0%}): "
        f"the others were skipped, or its state was lost when the run was resumed",
        remedy=SKIPPED,
        measured=measured,
    )
