"""Actions that several causes share, and values to propose. A setting goes from one value to another one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracker_health.diagnosis._facts import Facts
from tracker_health.text import setting
from tracker_health.words.diagnosis import Action

USUAL_CLIP, _MOST_OF_A_NORM, _MANY = 1.0, 10.0, 10.0


def rounded(value: float) -> float:
    """A value with one significant digit."""
    return float(f"{value:.0e}")


def many_times(value: float) -> float:
    """So much of something of which there was far too little."""
    return _MANY * value


def rate_action(facts: Facts, *, down: bool) -> Action:
    """Another learning rate: ten times lower or higher, and no farther from what is usual than that leaves it."""
    rate, usual = facts.settings.rate, facts.usual_rate
    if rate is None or rate <= 0.0:
        word = "a tenth of" if down else "ten times"
        return Action(text=f"train with {word} the learning rate", setting="learning_rate")
    new = rounded(min(rate / 10, usual) if down else max(rate * 10, usual))
    text = f"train again with a learning rate of {setting(new)}, not {setting(rate)}"
    return Action(text=text, setting="learning_rate", old=rate, new=new)


def clip_for(facts: Facts) -> float | None:
    """The norm to clip gradients at: 1, but no more than ten times what is usual here; None where they are clipped so,
    or lower.
    """
    usual = facts.gradient_logged
    new = USUAL_CLIP if usual is None or usual <= 0.0 else min(USUAL_CLIP, rounded(_MOST_OF_A_NORM * usual))
    return None if facts.settings.clip is not None and facts.settings.clip <= new else new


def with_clip(facts: Facts, *texts: str) -> Action:
    """What to do, and to clip gradients, where that is not done."""
    new, said = clip_for(facts), [text for text in texts if text]
    if new is None:
        return Action(text="; ".join(said))
    text = "; ".join([*said, f"clip gradients at a norm of {setting(new)}"])
    return Action(text=text, setting="max_grad_norm", old=facts.settings.clip, new=new)


def restart(facts: Facts, codes: Iterable[str]) -> str:
    """``restart from a checkpoint before step 820``; empty where no logged step is before what these findings show,
    or going back undoes none of it.
    """
    onset = facts.went_wrong(codes)
    steps = [int(one.steps.min()) for one in facts.evidence.of_training if len(one)]
    if onset is None or onset.last_good <= min(steps, default=0):
        return ""
    return f"restart from a checkpoint {'at' if onset.is_best else 'before'} {onset.where}"


def around(facts: Facts) -> str:
    """``around step 820``, where what heads the report began; empty where it has no step."""
    onset = facts.head.onset if facts.head is not None else None
    steps = facts.head.steps if facts.head is not None else ()
    if onset is not None and not onset.is_best:
        return f" around {onset.where}"
    return f" around {facts.at(min(steps))}" if steps else ""


def is_logged(facts: Facts, role: str) -> bool:
    """Whether the run logged numbers of this role."""
    series = facts.evidence.find(role)
    return series is not None and bool(np.isfinite(series.values).any())


def numbers_of(facts: Facts, *codes: str) -> str:
    """What the first of these rules that found something says, behind a colon; empty where that heads the report."""
    said = next((facts.found[code].message for code in codes if code in facts.found and code != facts.head_code), "")
    return f": {said}" if said else ""
