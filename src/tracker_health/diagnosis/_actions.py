"""Actions that several causes share, and values to propose."""

from __future__ import annotations

from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action


def rounded(value: float) -> float:
    """A value with one significant digit."""
    return float(f"{value:.0e}")


def rate_action(facts: Facts, *, down: bool) -> Action:
    """Another learning rate: ten times lower or higher, and no farther from what is usual than that leaves it."""
    rate, usual = facts.settings.rate, facts.usual_rate
    if rate is None or rate <= 0.0:
        word = "a tenth of" if down else "ten times"
        return Action(text=f"train with {word} the learning rate", setting="learning_rate")
    new = rounded(min(rate / 10, usual) if down else max(rate * 10, usual))
    text = f"train again with a learning rate of {number(new)}, not {number(rate)}"
    return Action(text=text, setting="learning_rate", old=rate, new=new)
