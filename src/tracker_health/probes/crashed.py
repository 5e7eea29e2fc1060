"""RUN004."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part, TextLog, Trouble
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict

_ANY_EXCEPTION = "an exception"
_BY_HAND = "interrupted"
_BEFORE_THE_FIRST_STEP = frozenset({"too few samples kept", "a prompt that is no prefix of its completion"})
"""What a run's own checks of its data say: nothing of it was trained, and nobody goes on after that."""
_WHOLE = 0.99
_REMEDIES = {
    "out of memory": "take smaller batches, shorter sequences or gradient checkpointing, and resume from the last "
    "checkpoint",
    "no space left on the disk": "free the disk or keep fewer checkpoints; the last one may be cut short",
    "a data loader worker died": "give the workers more shared memory, or take fewer of them",
    "a collective operation timed out": "look in the other ranks' logs for the one that stopped first",
    "too few samples kept": "keep more samples: a larger limit of tokens, a milder filter, more prompts",
    "a prompt that is no prefix of its completion": "tokenize prompt and completion as one text, and cut at "
    "the offsets of characters: else the mask of the loss is off by a token",
    "its time was up": "ask for more time, or resume from the last checkpoint",
    "a preemption": "resume from the last checkpoint; save one more often where jobs are preempted",
    "a cancelled job": "resume from the last checkpoint",
}


@dataclass(frozen=True, kw_only=True)
class Crashed(Probe):
    """The console log tells what the run died of.

    What it finds:
        An exception that nobody caught, or a signal, at the end of the run's console log: no memory left, a data loader
        worker that died, a collective operation that timed out, a full disk, an error of the training script.

    Why it matters:
        The model is the one of the last checkpoint, not of the end of training, and trackers often call such a run
        finished.

    How it decides:
        A trouble counts when it is the end of a traceback or the system's own word (`Killed`, `oom-kill`), the history
        does not go on after it (a few rows that come no further are a bar drawn again, or a last save), and at most
        `lines_after` other lines follow. Fail when the cause is a specific one, or the run's plan was not reached. Warn
        when it is some exception in a run without a known plan, when the log holds no history (what is caught in one
        stream may go on in another), or when the log says, before or after it, that training was done. What was raised
        before training went on was caught, and an interruption by hand is no fault. Of several logs the one counts that
        goes on where the others end.

    Known limits:
        Reads what was printed: a machine that lost its power prints nothing. Lines that only mention such a word (a
        warning about memory) say nothing.

    What to do:
        Mend the cause that the message names, and resume from the last checkpoint.

    References:
        Python's format of tracebacks; the kernel's and Slurm's messages.
    """

    code = "RUN004"
    name = "crashed"
    symptom = Symptom.KILLED

    lines_after: Annotated[int, Threshold("other lines that may follow the trouble", "lines", "design", ge=0)] = 200

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.TEXT_LOG, unit="lines"), Need(role=Part.PLAN, optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        log = evidence.text_log
        if log is None:
            return Finding(verdict=Verdict.SKIP, message="no console log was found")
        measured = {"lines": log.lines, "rows": log.rows, "troubles": len(log.troubles)}
        last = self._last(log)
        if last is None or last.cause == _BY_HAND:
            said = "the run was interrupted by hand" if last is not None else "nothing in the console log ended the run"
            if log.troubles and last is None:
                said = f"{count(len(log.troubles), 'exception')} in the console log did not end the run"
            return Finding(verdict=Verdict.PASS, message=said, measured=measured)
        return self._found(evidence, log, last, measured)

    def _last(self, log: TextLog) -> Trouble | None:
        """The trouble after which nothing came; of a chain of exceptions the one that names a cause."""
        fatal = [one for one in log.troubles if not one.rows_after and log.lines - one.line <= self.lines_after]
        return next((one for one in fatal if one.cause != _ANY_EXCEPTION), fatal[-1] if fatal else None)

    def _found(self, evidence: Evidence, log: TextLog, trouble: Trouble, measured: dict[str, int]) -> Finding:
        progress = evidence.progress
        steps = evidence.optimizer_steps
        loss = evidence.find("train_loss")
        reached = (
            steps if steps is not None else int(loss.clean().steps[-1]) if loss is not None and len(loss) else None
        )
        after = f" after step {reached}" if reached is not None else ""
        done = log.done is not None or (progress is not None and progress.fraction >= _WHOLE)
        unreached = progress is not None and not done
        begun = log.rows > 0 or trouble.cause in _BEFORE_THE_FIRST_STEP
        sure = not done and begun and (trouble.cause != _ANY_EXCEPTION or unreached)
        message = f"the console log ends{after} with {trouble.cause}: {printable(trouble.text, 160)}"
        if log.done is not None and log.done > trouble.line:
            message = f"the console log tells of {trouble.cause}, and then that training was done: "
            message += printable(trouble.text, 160)
        elif done:
            message = f"training was done, but then the console log ends with {trouble.cause}: "
            message += printable(trouble.text, 160)
        if progress is not None and not done:
            message += f" ({number(progress.done)} of {number(progress.planned)} planned {progress.unit})"
        return Finding(
            verdict=Verdict.FAIL if sure else Verdict.WARN,
            message=f"{message} (line {trouble.line} of {log.lines})",
            remedy=_REMEDIES.get(trouble.cause, "mend what the message names, and resume from the last checkpoint"),
            measured=measured,
            details={"source": log.source, "cause": trouble.cause, "text": trouble.text},
            steps=(reached,) if reached is not None else (),
        )
