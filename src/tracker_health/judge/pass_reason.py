"""Why a run passed: one line with its numbers, and answers to what people worry about in healthy runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tracker_health.evidence import LIKELY, Curve, Evidence
from tracker_health.facts.scores import HELD_OUT, HIGHER
from tracker_health.report.result import Judged, ProbeResult
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS
from tracker_health.text import contrast, count, number, short_name, went
from tracker_health.words.verdict import Verdict

_LEVEL, _MOVES = 0.02, 0.1  # of where it ends: what the last quarter has to bring to be called slow, or still moving
_KEPT = 0.1  # of the best validation loss: what ends higher is not called free of overfitting
_JUMP = 0.25  # of the descent: less does not catch the eye
_MOST_ANSWERS = 2
_SCORES = (*HELD_OUT, "train_accuracy", "train_auc")
RISES = frozenset((*REWARDS, *HIGHER, "train_accuracy", "train_auc"))
"""Roles of metrics that are better the higher they are."""

MAIN_ROLES = ("train_loss", *REWARDS, "val_loss", *_SCORES, OBJECTIVE_LOSS)
"""Which metric a run is known by: its loss, else its reward, else a score, else a loss that need not fall."""

_CALLED = {"train_loss": "loss", "val_loss": "validation loss"}


def why_passed(evidence: Evidence, results: Sequence[ProbeResult], judged: Sequence[Judged]) -> str:
    """What the curves did, and how many rules had nothing against it.

    Args:
        evidence: What the run left.
        results: Of all rules that judged it.
        judged: Which parts of it were.

    Returns:
        ``loss 2.27 -> 0.086, level at the end; validation loss 0.31, best 0.29 at epoch 36 of 40, no overfit; 33
        checks``; the number of checks alone where no curve has enough points.
    """
    passed = {one.code: one for one in results if one.votes and one.verdict is Verdict.PASS}
    hidden = next((one.why for one in judged if one.part == "loss" and one.state == "not usable"), "")
    answers = list(_answers(evidence, passed))[:_MOST_ANSWERS]
    parts = [hidden or _course(evidence), *_held_out(evidence, passed), *answers]
    return "; ".join([*(one for one in parts if one), count(sum(one.votes for one in results), "check")])


def _course(evidence: Evidence) -> str:
    """What the main metric did: a loss, else a reward, else a score."""
    for role in MAIN_ROLES:
        curve = evidence.curve(role)
        if curve is not None:
            name = _CALLED.get(role) or short_name(curve.series.name)
            first, end, extreme = contrast(*_logged(evidence, role))
            if first == end == extreme:
                return f"{name} stays at {end}"
            way = f" by way of {extreme}" if extreme not in (first, end) else ""
            need_not_fall = role == OBJECTIVE_LOSS or way  # what is back where it began fell only from that way
            ending = "" if need_not_fall else _ending(curve, role in RISES)
            return f"{name} {first} -> {end}{way}{ending}"
    return ""


def _ending(curve: Curve, rises: bool) -> str:
    """Whether it still moved when the run ended."""
    late = (curve.upside_down if rises else curve).late
    size, moves = abs(curve.end.value), "rising" if rises else "falling"
    if late.surely_above(_MOVES * size, LIKELY):
        return f", still {moves} at the end"
    if late.surely_above(_LEVEL * size, LIKELY):
        return f", {moves} slowly at the end"
    unsure = LIKELY * late.error
    is_level = abs(late.value) <= _LEVEL * size or abs(late.value) <= unsure <= _MOVES * size
    return ", level at the end" if is_level else ""


def _logged(evidence: Evidence, role: str) -> tuple[float, float, float]:
    """The first and the last finite value that was logged, as a reader finds them, and what it went by: the worst
    value, where the last one is no better than the first.
    """
    values = evidence.first(role).clean().finite().values
    first, last = float(values[0]), float(values[-1])
    worst = float(values.min() if role in RISES else values.max())
    return first, last, worst if (last <= first if role in RISES else last >= first) else last


def _held_out(evidence: Evidence, passed: Mapping[str, ProbeResult]) -> Iterator[str]:
    """Where the validation loss was best, and whether that is overfitting; and how a score of validation ended."""
    if evidence.curve("train_loss") is None:
        return
    curve = evidence.curve("val_loss")
    if curve is not None:
        values, steps = curve.series.values, curve.series.steps
        best = int(np.argmin(values))
        lowest, end = contrast(float(values[best]), float(values[-1]))
        last = curve.series.place(curve.last_step).rpartition(" ")[2]
        where = "its best" if lowest == end else f"best {lowest} at {curve.series.place(int(steps[best]))} of {last}"
        kept = values[-1] <= values[best] + _KEPT * abs(values[best])
        yield f"validation loss {end}, {where}{', no overfit' if kept and 'GEN001' in passed else ''}"
    score = next((one for role in HELD_OUT if (one := evidence.curve(role)) is not None), None)
    if score is not None:
        yield f"{short_name(score.series.name)} {number(score.logged_at(score.last_step))} at the end"


def _answers(evidence: Evidence, passed: Mapping[str, ProbeResult]) -> Iterator[str]:
    """What looks wrong in this run and is not, and why."""
    gradients = passed.get("GRD001")
    if gradients is not None and gradients.measured.get("nonfinite"):
        yield gradients.message
    yield from _jump(evidence)
    train, validation = evidence.curve("train_loss"), evidence.curve("val_loss")
    if train is not None and validation is not None and (train.end - validation.end).surely_above(0.0):
        yield "validation is below training, as with dropout, augmentation or a loss that is averaged over the epoch"
    chosen, margin = evidence.curve("chosen_logp"), evidence.curve("margin")
    if chosen is not None and margin is not None and (chosen.end - chosen.start).surely_below(0.0):
        rise = went(margin.start.value, margin.end.value)
        yield f"{short_name(chosen.series.name)} falls, as is usual in preference training: the margin {rise}"
    objective = evidence.curve(OBJECTIVE_LOSS)
    if objective is not None and "RWD001" in passed and (objective.end - objective.start).surely_above(0.0):
        yield f"{short_name(objective.series.name)} rose, and need not fall while the reward rises"


def _jump(evidence: Evidence) -> Iterator[str]:
    """A rise of the training loss that came back."""
    train, validation = evidence.curve("train_loss"), evidence.curve("val_loss")
    jumps = train.excursions(_JUMP * train.descent.value) if train is not None and train.descent.value > 0.0 else []
    if train is None or not jumps:
        return
    highest = max(jumps, key=lambda one: one.height)
    where = train.series.place(highest.first_step)
    alone = validation is not None and not validation.excursions(_JUMP * max(validation.descent.value, 0.0))
    yield f"the loss jumped at {where} and came back{', and validation did not jump' if alone else ''}"
