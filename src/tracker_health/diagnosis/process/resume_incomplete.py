"""Resume incomplete."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, Sign, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.report.resume_point import Onset
from tracker_health.text import number
from tracker_health.words.diagnosis import Action


def _lost_count(facts: Facts) -> bool:
    return facts.measured("RUN001", "updates") is not None and not facts.has("AMP001")


class ResumeIncomplete(Cause):
    """A resume brought back the counter, and not all of the weights or the optimizer's state.

    The loss is back at about where it began, at once, and falls again as it did the first time.
    """

    name = "resume-incomplete"
    title = "The loss is back where it began, as where weights were not restored"
    explains = codes("LOS003 LOS004 LOS008 GEN001 GEN004 RUN001 OPT001")
    signs = (
        Sign(
            name="the loss fell back at once to where it began",
            kind="number",
            looks_at="loss",
            seen=lambda facts: facts.fell_back is not None,
            judged=5,
            begins=lambda facts: None if facts.fell_back is None else facts.fell_back.step,
        ),
        finding("RUN001", 4, "the optimizer counts fewer updates than steps were done", _lost_count),
        measure("the learning rate jumped", "learning_rate", lambda facts: facts.rate_jump is not None, -6),
        measure("the learning rate is beyond what trains", "learning_rate", lambda facts: facts.rate_is_beyond, -4),
        finding("OPT007", -3, "a step is a large part of the weights"),
        finding("LOS010", -4, "the loss goes through one slow pattern in every epoch"),
        finding("OPT009", -3, "the inputs are large"),
    )
    test = "look for a resume at that step: compare the weights right after loading with those of the checkpoint"

    def sentence(self, facts: Facts) -> str:
        jump = facts.fell_back
        if jump is None:
            return super().sentence(facts)
        steps = facts.loss.series.steps if facts.loss is not None else [jump.step]
        last = max((int(step) for step in steps if step < jump.step), default=jump.step)
        start = facts.loss.start.value if facts.loss is not None else jump.after
        return (
            f"The loss jumped from {number(jump.before)} to {number(jump.after)} between steps {last} and {jump.step}, "
            f"back to about where it began ({number(start)}): as where a resume did not restore the weights"
        )

    def set_in(self, facts: Facts) -> Onset | None:
        jump, loss = facts.fell_back, facts.loss
        if jump is None or loss is None:
            return None
        return Onset(step=jump.step, unit=loss.series.step_unit, what="the loss was back where it began")

    def action(self, facts: Facts) -> Action:
        where = f" near step {facts.fell_back.step}" if facts.fell_back is not None else ""
        return Action(
            text=f"look for a resume{where}: load weights, adapter and optimizer from the checkpoint, and compare the "
            "first loss with the one before"
        )
