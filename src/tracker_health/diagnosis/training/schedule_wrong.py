"""Schedule wrong."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, first_message, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action


class ScheduleWrong(Cause):
    """The learning rate's schedule does not fit the run.

    It was laid out for another number of steps, or is stepped at another rhythm: the rate is 0 long before the end, or
    its warm-up never ends.
    """

    name = "schedule-wrong"
    title = "The learning rate's schedule does not fit the run"
    explains = codes("LRS001 LOS005 LOS006 LOS007 GEN003 GEN005 WGT002 OPT006 OPT012 WGT005 OPT004")
    signs = (
        finding("LRS001", 6, "the logged rate is 0 for most of the run, or still rises at its end"),
        measure("the learning rate is 0", "learning_rate", lambda facts: facts.rate_is_zero, 5),
    )
    test = "print the learning rate of every hundredth step beside the plan's number of steps"

    def sentence(self, facts: Facts) -> str:
        said = first_message(facts, ("LRS001",)) or "the learning rate is 0 in the last checkpoint"
        effect = first_message(facts, ("WGT002", "LOS005", "LOS006", "LOS007"))
        return f"{self.title}: {said}" + (f"; {effect}" if effect else "")

    def action(self, facts: Facts) -> Action:
        peak = facts.settings.rate
        steps = facts.evidence.optimizer_steps
        if not peak:
            return Action(
                text="give the optimizer a learning rate above 0, and look at what the scheduler makes of it",
                setting="learning_rate",
                old=0.0,
                new=facts.usual_rate,
            )
        whole = f" ({number(steps)} here)" if steps else ""
        text = f"give the scheduler the run's number of optimizer steps{whole}, and call it once for each of them"
        return Action(text=text, setting="scheduler steps", new=float(steps) if steps else None)
