"""What a run's end is worth: one table for RUN003 and RUN004, by how the run ended and whether its plan was reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tracker_health.ending import Ended, Ending
from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.ending import ANY_EXCEPTION, ending_outside_the_log, fatal_trouble
from tracker_health.facts.descent import descent_of
from tracker_health.facts.steps import WHOLE_PLAN
from tracker_health.result import Finding
from tracker_health.text import count, number, printable
from tracker_health.verdict import Verdict

_LOSSES = ("train_loss", "val_loss")
NEEDS = (Need(role=Part.ENDING), *Need.beside(Part.TEXT_LOG, Part.PLAN, *_LOSSES))


class Worth(NamedTuple):
    """What an end says of a run, in words, what to do, and its verdict by whether the plan was reached; None where that
    is not known. ``afterwards``: what it did to what came after training.
    """

    said: str
    afterwards: str
    remedy: str
    verdicts: Mapping[bool | None, Verdict]


_BAD = {True: Verdict.WARN, False: Verdict.FAIL, None: Verdict.FAIL}
_INTERRUPTED = {True: Verdict.PASS, False: Verdict.WARN, None: Verdict.WARN}
_GONE, _FINE = dict.fromkeys((True, False, None), Verdict.FAIL), dict.fromkeys((True, False, None), Verdict.PASS)
_RESUME = "resume from the last checkpoint"
_SMALLER = f"use a smaller batch, shorter sequences or gradient checkpointing, and {_RESUME}"
_REASON = f"look in the log of the scheduler or the kernel (dmesg) for the reason, and {_RESUME}"
_OFTEN = f"{_RESUME}; save a checkpoint more often where jobs are preempted"
_THERE = f"check whether its process is still there; if not, {_RESUME}"
TABLE: Mapping[Ended, Worth] = {
    Ended.FAILED: Worth("the run failed", "failed", f"fix the error that ended it, and {_RESUME}", _BAD),
    Ended.OUT_OF_MEMORY: Worth("the run ran out of memory", "ran out of memory", _SMALLER, _BAD),
    Ended.KILLED: Worth("the run was killed", "was killed", _REASON, _BAD),
    Ended.INTERRUPTED: Worth("the run was interrupted", "was interrupted", f"{_RESUME} if it was meant to go on",
                             _INTERRUPTED),
    Ended.PREEMPTED: Worth("the run was preempted", "was preempted", _OFTEN, _INTERRUPTED),
    Ended.SILENT: Worth("the run went silent", "", _THERE, _GONE),
    Ended.FINISHED: Worth("the run finished", "", "", _FINE),
    Ended.PRUNED: Worth("the search stopped this trial", "", "", _FINE),
}  # fmt: skip
_BY_CAUSE = {
    "no space left on the disk": "free the disk or keep fewer checkpoints; the last one may be cut short",
    "a data loader worker died": "give the workers more shared memory, or use fewer of them",
    "a collective operation timed out": "look in the logs of the other ranks for the one that stopped first",
    "too few samples kept": "keep more samples: a larger limit of tokens, a milder filter, more prompts",
    "a prompt that is no prefix of its completion": "tokenize prompt and completion as one text, and cut at "
    "the offsets of characters: else the mask of the loss is off by a token",
    "its time was up": f"ask for more time, or {_RESUME}",
}


def plan_reached(evidence: Evidence) -> bool | None:
    """Whether the run came to the end of its plan, or its console said that training was done; None without a plan."""
    if evidence.text_log is not None and evidence.text_log.done is not None:
        return True
    return None if evidence.progress is None else evidence.progress.fraction >= WHOLE_PLAN


def ending_finding(evidence: Evidence, ending: Ending, min_points: int) -> Finding:
    """The finding on a run that ended in this way; ``min_points`` of a loss that came down make an error a warning
    where there is no plan.
    """
    if evidence.info.children is not None:
        return Finding.skipped("it trained nothing itself: the runs below it did")
    reached = plan_reached(evidence)
    verdict = TABLE[ending.how].verdicts[reached]
    excused = ending.how is Ended.FAILED and reached is None and _trained(evidence, min_points)
    if verdict is Verdict.FAIL and (excused or _may_go_on_elsewhere(evidence)):
        verdict = Verdict.WARN
    trouble = fatal_trouble(evidence.text_log)
    cause, step = trouble.cause if trouble is not None else "", _last_step(evidence)
    return Finding(
        verdict=verdict,
        message=_message(evidence, ending, reached, step),
        remedy=_BY_CAUSE.get(cause, TABLE[ending.how].remedy),
        measured={"ended": str(ending.how), "ended_by": printable(ending.by)},
        details=_details(evidence),
        steps=() if step is None else (step,),
    )


def _trained(evidence: Evidence, min_points: int) -> bool:
    """Whether a loss has so many points, and came down."""
    losses = [one.finite().values for role in _LOSSES if (one := evidence.find(role)) is not None]
    judged = next((descent_of(values) for values in losses if len(values) >= min_points), None)
    return judged is not None and judged.share > 0.0


def _may_go_on_elsewhere(evidence: Evidence) -> bool:
    """Whether all that is known is an exception in a stream that holds no history, while another source does: what is
    caught in one stream goes on in another.
    """
    trouble, log = fatal_trouble(evidence.text_log), evidence.text_log
    outside = ending_outside_the_log(evidence.info)
    if log is None or trouble is None or trouble.cause != ANY_EXCEPTION:
        return False
    denied = outside is not None and outside.how not in (Ended.FINISHED, Ended.RUNNING)
    return not denied and not log.rows and bool(evidence.series)


def _last_step(evidence: Evidence) -> int | None:
    steps = [int(one.steps.max()) for one in evidence.series if one.role in _LOSSES and len(one)]
    return evidence.optimizer_steps if evidence.optimizer_steps is not None else max(steps, default=None)


def _message(evidence: Evidence, ending: Ending, reached: bool | None, step: int | None) -> str:
    progress, by = evidence.progress, printable(ending.by)
    trouble = fatal_trouble(evidence.text_log)
    if trouble is not None:
        by += f": {printable(trouble.text)}"
    where = "; 0 points of a loss were logged" if step is None else f" after step {step}"
    if progress is not None:
        where = f" after {number(progress.done)} of {number(progress.planned)} planned {progress.unit}"
    if reached and ending.how is not Ended.SILENT:
        return f"training finished{where}; what came after it {TABLE[ending.how].afterwards} ({by})"
    return f"{TABLE[ending.how].said}{where} ({by})"


def _details(evidence: Evidence) -> dict[str, str | int]:
    trouble, log = fatal_trouble(evidence.text_log), evidence.text_log
    if trouble is None or log is None:
        return {}
    found = {"source": log.source, "cause": trouble.cause, "text": trouble.text}
    return {**found, "line": trouble.line, "lines": log.lines}


def ended_well(evidence: Evidence, ending: Ending) -> Finding:
    """The finding on a run whose end another rule judges, or nobody has to."""
    message = f"{TABLE[ending.how].said} ({printable(ending.by)})"
    log = evidence.text_log
    caught = len(log.troubles) if log is not None and ending.how is Ended.FINISHED else 0
    if caught:
        message += f"; {count(caught, 'exception')} in the console did not end it"
    return Finding.passed(message, {"ended": str(ending.how), "ended_by": printable(ending.by)})
