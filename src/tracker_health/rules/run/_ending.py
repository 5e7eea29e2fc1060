"""The finding on how a run ended, for RUN003 and RUN004: by the end, and by whether its plan was reached."""

from __future__ import annotations

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.evidence.ending import ANY_EXCEPTION, ending_outside_the_log, fatal_trouble
from tracker_health.facts.descent import descent_of
from tracker_health.facts.steps import plan_reached
from tracker_health.report.result import Finding
from tracker_health.rules.run._worth import REMEDIES, TABLE
from tracker_health.text import count, number, printable
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.verdict import Verdict

NEEDS = (
    Need(role=Part.ENDING),
    Need(role=Part.TEXT_LOG, optional=True),
    Need(role=Part.PLAN, optional=True),
    Need(role="train_loss", optional=True),
    Need(role="val_loss", optional=True),
)


def ending_finding(evidence: Evidence, ending: Ending, min_points: int) -> Finding:
    """The finding on a run that ended in this way; ``min_points`` of a loss that came down make an error a warning
    where there is no plan.
    """
    if evidence.info.children is not None:
        return Finding(verdict=Verdict.SKIP, message="it trained nothing itself: the runs below it did")
    reached = plan_reached(evidence)
    verdict = TABLE[ending.how].verdicts[reached]
    excused = ending.how is Ended.FAILED and reached is None and _trained(evidence, min_points)
    if verdict is Verdict.FAIL and (excused or _may_go_on_elsewhere(evidence)):
        verdict = Verdict.WARN
    trouble = fatal_trouble(evidence.text_log)
    cause = trouble.cause if trouble is not None else ""
    step = _last_step(evidence)
    return Finding(
        verdict=verdict,
        message=_message(evidence, ending, reached, step),
        remedy=REMEDIES.get(cause, TABLE[ending.how].remedy),
        measured={"ended": str(ending.how), "ended_by": printable(ending.by)},
        details=_details(evidence),
        steps=() if step is None else (step,),
    )


def _trained(evidence: Evidence, min_points: int) -> bool:
    """Whether a loss has so many points, and came down."""
    losses = [one.finite().values for role in ("train_loss", "val_loss") if (one := evidence.find(role)) is not None]
    judged = next((descent_of(values) for values in losses if len(values) >= min_points), None)
    return judged is not None and judged.share > 0.0


def _may_go_on_elsewhere(evidence: Evidence) -> bool:
    """Whether all that is known is an exception in a stream that holds no history, while another source does: what is
    caught in one stream continues in another.
    """
    trouble, log = fatal_trouble(evidence.text_log), evidence.text_log
    outside = ending_outside_the_log(evidence.info)
    return (
        trouble is not None
        and trouble.cause == ANY_EXCEPTION
        and (outside is None or outside.how in (Ended.FINISHED, Ended.RUNNING))
        and log is not None
        and not log.rows
        and bool(evidence.series)
    )


def _last_step(evidence: Evidence) -> int | None:
    steps = [int(one.steps.max()) for one in evidence.series if one.role in ("train_loss", "val_loss") and len(one)]
    return evidence.optimizer_steps if evidence.optimizer_steps is not None else max(steps, default=None)


def _place(evidence: Evidence, step: int) -> str:
    """The last step in words: on the axis of the loss, where that goes so far and no optimizer counted it."""
    for role in ("train_loss", "val_loss"):
        loss = evidence.find(role)
        if loss is not None and len(loss) and evidence.optimizer_steps is None and loss.steps.max() == step:
            return loss.where(step)
    return f"step {step}"


def _message(evidence: Evidence, ending: Ending, reached: bool | None, step: int | None) -> str:
    progress, by = evidence.progress, printable(ending.by)
    trouble = fatal_trouble(evidence.text_log)
    if trouble is not None:
        by += f": {printable(trouble.text)}"
    where = "; 0 points of a loss were logged" if step is None else f" after {_place(evidence, step)}"
    if progress is not None:
        where = f" after {number(progress.done)} of {number(progress.planned)} planned {progress.unit}"
    if reached and ending.how is Ended.SILENT:
        return f"training finished{where}; nobody closed the run ({by})"
    if reached:
        return f"training finished{where}; what came after it {TABLE[ending.how].afterwards} ({by})"
    return f"{TABLE[ending.how].said}{where} ({by})"


def _details(evidence: Evidence) -> dict[str, str | int]:
    trouble, log = fatal_trouble(evidence.text_log), evidence.text_log
    if trouble is None or log is None:
        return {}
    found = {"source": log.source, "cause": trouble.cause, "text": trouble.text, "where": trouble.where}
    return {**found, "line": trouble.line, "lines": log.lines}


def ended_well(evidence: Evidence, ending: Ending) -> Finding:
    """The finding on a run whose end another rule judges, or nobody has to."""
    message = f"{TABLE[ending.how].said} ({printable(ending.by)})"
    log = evidence.text_log
    caught = len(log.troubles) if log is not None and ending.how is Ended.FINISHED else 0
    if caught:
        message += f"; {count(caught, 'exception')} in the console did not end it"
    return Finding(
        verdict=Verdict.PASS, message=message, measured={"ended": str(ending.how), "ended_by": printable(ending.by)}
    )
