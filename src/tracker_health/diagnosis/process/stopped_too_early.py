"""Stopped too early."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_FEW_STEPS = 50


class StoppedTooEarly(Cause):
    """The run ended before it was trained.

    It was stopped before its plan was done, or the plan itself is a handful of steps.
    """

    name = "stopped-too-early"
    title = "The run ended before the model was trained"
    explains = codes("OPT001 RUN001 LOS007 LOS012 LOS005 OPT004 RUN003")
    signs = (
        finding("OPT001", 5, "only a handful of optimizer steps"),
        finding(
            "RUN001", 5, "the plan was not done", lambda facts: (facts.measured("RUN001", "fraction") or 1.0) < 0.99
        ),
        finding("LOS007", 2, "the loss was still falling at the end"),
        finding("LRS001", -3, "the schedule does not fit"),
        finding("AMP001", -5, "the loss scale fell to next to nothing"),
        measure("the learning rate is lower than what trains", "learning_rate", lambda facts: facts.rate_is_tiny, -3),
        finding("OPT010", -2, "epsilon rules the steps"),
    )
    test = "go on from the last checkpoint: the loss falls further if it stopped too early"

    def action(self, facts: Facts) -> Action:
        done, planned = facts.measured("RUN001", "done"), facts.measured("RUN001", "planned")
        if done is not None and planned is not None and done < planned:
            unit = facts.evidence.progress.unit if facts.evidence.progress is not None else "steps"
            text = f"resume from the last checkpoint, and train to {number(planned)} {unit}, not {number(done)}"
            return Action(text=text, setting=unit, old=done, new=planned)
        steps = facts.measured("OPT001", "optimizer_steps")
        if steps is not None:
            new = float(max(_FEW_STEPS, int(steps) * 10))
            text = f"train for {number(new)} optimizer steps or more, not {number(steps)}"
            return Action(text=text, setting="max_steps", old=steps, new=new)
        return Action(text="train longer: the loss was still falling when the run ended")
