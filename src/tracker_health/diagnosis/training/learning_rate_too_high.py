"""Learning rate too high."""

from __future__ import annotations

from tracker_health.diagnosis._actions import rate_action
from tracker_health.diagnosis._base import Cause, Sign, codes, finding, first_message, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.report.resume_point import Onset
from tracker_health.text import number
from tracker_health.words.diagnosis import Action


def _both_fell(facts: Facts) -> bool:
    return "chosen answers became unlikely" in facts.found["RWD009"].message


class LearningRateTooHigh(Cause):
    """The learning rate is higher than this training tolerates.

    Steps carry the weights beyond where the loss falls. It jumps and stays up, or comes down again and ends at the
    level of guessing, with weights many times their usual size. A rate that rises in the middle, as after a resume
    with another schedule, is the same cause.
    """

    name = "learning-rate-too-high"
    title = "The learning rate is too high"
    explains = codes(
        "LOS001 LOS003 LOS004 LOS005 LOS006 LOS007 LOS008 LOS009 GEN001 GEN003 GEN004 GEN005 GRD001 GRD002 "
        "GRD004 OPT002 OPT006 OPT007 OPT009 OPT012 WGT001 WGT002 WGT003 WGT004 AMP001 GAP005 "
        "RWD001 RWD002 RWD003 RWD004 RWD005 RWD006 RWD007 RWD009 GRD003"
    )
    signs = (
        setting("the learning rate is beyond what trains", "learning_rate", lambda facts: facts.rate_is_beyond),
        Sign(
            name="the logged learning rate rose at once, at least fivefold, in the middle of the run",
            kind="setting",
            looks_at="learning_rate",
            seen=lambda facts: facts.rate_jump is not None,
            judged=6,
            begins=lambda facts: None if facts.rate_jump is None else facts.rate_jump.step,
        ),
        finding("OPT007", 4, "a step is a large part of the weights", lambda facts: not facts.weights_are_tiny),
        finding("WGT004", 1, "the weights grew far beyond their usual size", lambda facts: facts.weights_are_huge),
        finding("LOS004", 1, "the loss diverged"),
        finding("LOS008", 1, "the loss left its level"),
        measure("the loss grew tenfold, then became NaN", "loss", lambda facts: facts.grew_before_nan, 3),
        measure(
            "the loss exploded and came back, no lower than before it learnt",
            "loss",
            lambda facts: facts.only_came_back,
            4,
        ),
        finding("GRD002", 1, "the gradient norm jumped"),
        finding("GRD004", 1, "the gradient norm grew and stayed"),
        finding("RWD001", 2, "a reward was lost"),
        finding("RWD004", 3, "the policy's entropy collapsed or exploded"),
        finding("RWD005", 2, "the policy's divergence left its course"),
        finding("RWD006", 3, "most updates were clipped"),
        finding("RWD009", 5, "chosen answers became unlikely", _both_fell),
        setting("the learning rate is far above what is usual", "learning_rate", lambda facts: facts.rate_is_high, 4),
        setting("the learning rate is lower than what trains", "learning_rate", lambda facts: facts.rate_is_tiny, -6),
        measure("the weights are next to nothing", "WGT004", lambda facts: facts.weights_are_tiny, -4),
        setting("the learning rate is usual", "learning_rate", lambda facts: facts.rate_is_usual, -3),
    )
    test = "train 100 steps at a tenth of the learning rate: the loss falls if the rate was too high"

    def sentence(self, facts: Facts) -> str:
        rate, jump = facts.settings.rate, facts.rate_jump
        effect = first_message(facts, ("LOS004", "LOS006", "LOS005", "LOS008", "OPT007", "WGT004", "RWD001", "RWD009"))
        effect = f"; {effect}" if effect else ""
        if jump is not None:
            values = f"from {number(jump.before)} to {number(jump.after)} at step {jump.step}"
            return f"The learning rate rose {values}, which is too high{effect}"
        if rate is None:
            return f"{self.title}{effect}"
        kind = {"adam": " for Adam", "sgd": " for SGD"}.get(facts.settings.optimizer, "")
        usual = f", where {number(facts.usual_rate)} is usual" if rate > 2 * facts.usual_rate else ""
        return f"A learning rate of {number(rate)} is too high{kind}{usual}{effect}"

    def set_in(self, facts: Facts) -> Onset | None:
        jump = facts.rate_jump
        if jump is None:
            return None
        return Onset(step=jump.step, unit=facts.settings.logged_rates[0].step_unit, what="the learning rate rose")

    def action(self, facts: Facts) -> Action:
        jump = facts.rate_jump
        if jump is not None:
            text = f"keep the learning rate at {number(jump.before)}; restart from a checkpoint before step {jump.step}"
            return Action(text=text, setting="learning_rate", old=jump.after, new=jump.before)
        return rate_action(facts, down=True)
