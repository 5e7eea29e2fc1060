"""What was checked, by the question that a person asks; and what was not there, with the way to get it, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tracker_health.facts.scores import HELD_OUT
from tracker_health.report.result import ProbeResult, Report, SkippedProbe
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS
from tracker_health.text import count
from tracker_health.words.verdict import Verdict

_NUMBERS = "Are all numbers finite?"
_OTHER = "What else was checked"
_BY_CODE: Mapping[str, str] = {
    "LOS": "Does the loss come down and stay down?",
    "GEN": "Does validation follow?",
    "RWD": "Does the policy learn from its reward?",
    "GRD": "Do gradients have a usual size?",
    "OPT": "Does the optimizer move every parameter?",
    "WGT": "Are the weights of a usual size, and used?",
    "GAP": "Do signals pass through every layer?",
    "LRS": "Does the learning rate follow a schedule?",
    "AMP": _NUMBERS,
    "REG": "Does the regulariser act?",
    "RUN": "Did the run end as planned?",
    "SYS": "Is the hardware used?",
    "CMP": "Is it like comparable runs?",
}
_INSTEAD: Mapping[str, frozenset[str]] = {
    "train_loss": frozenset((OBJECTIVE_LOSS, *REWARDS, *HELD_OUT)),
    "val_loss": frozenset(REWARDS),
    "val_accuracy": frozenset((*REWARDS, *HELD_OUT)),
    "train_accuracy": frozenset((*REWARDS, *HELD_OUT)),
}
"""Roles that do for one that was not there: nobody is asked to log it next to them."""

_NUMBERS_SYMPTOM = "nonfinite"

# What lets a rule judge, by the role or part that it lacked: what is missing, and the way to get it.
_WAYS: Mapping[str, tuple[str, str]] = {
    "train_loss": ("training loss", "log it at every step, or every tenth"),
    "val_loss": ("validation loss", "log it after each evaluation"),
    "val_accuracy": ("accuracy", "log it after each evaluation, as val_accuracy"),
    "train_accuracy": ("accuracy", "log it after each evaluation, as val_accuracy"),
    "grad_norm": ("gradient norm", "log what clip_grad_norm_ returns"),
    "learning_rate": ("learning rate", "log it with the loss"),
    "loss_scale": ("loss scale of half precision", "log scaler.get_scale() where training is in fp16"),
    "optimizer_state": ("optimizer state", "save optimizer.state_dict() with the checkpoint"),
    "second_moments": ("second moments of the optimizer", "save optimizer.state_dict() with the checkpoint"),
    "weights": ("weights", "save the model next to the optimizer state"),
    "weight_changes": ("an earlier checkpoint", "keep two checkpoints of a run"),
    "ending": ("how the run ended", "start the training with tracker-health exec, or log to a tracker"),
    "text_log": ("console log", "keep what the training prints, as train.log next to the checkpoints"),
    "plan": ("the plan of the run", "log max_steps or num_train_epochs as a parameter"),
    "optimizer_steps": ("number of optimizer steps", "save optimizer.state_dict() with the checkpoint"),
    "baseline": ("a baseline of healthy runs", "tracker-health baseline save makes one, --against compares with it"),
    "epoch": ("epochs", "log the epoch with the loss"),
    "step_time": ("time of a step", "log seconds per step, as step_time"),
    "memory": ("memory", "log the accelerator's memory in use"),
    "accelerator_utilisation": ("use of the accelerator", "turn the tracker's system metrics on"),
    "gap_grads": ("gradients by layer", "add the callback GapMonitor to the training"),
    "gap_activations": ("activations by layer", "add the callback GapMonitor to the training"),
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, and the rules that answer it. ``summary``: how many found something, passed, and had no data."""

    text: str
    results: tuple[ProbeResult, ...]
    skipped: tuple[SkippedProbe, ...]

    @property
    def findings(self) -> int:
        """How many rules with a vote found something."""
        return sum(one.votes and one.verdict is not Verdict.PASS for one in self.results)

    @property
    def summary(self) -> str:
        passed = sum(one.verdict is Verdict.PASS for one in self.results)
        told = [
            count(self.findings, "finding") if self.findings else "",
            f"{passed} passed" if passed else "",
            f"{len(self.skipped)} without data" if self.skipped else "",
        ]
        return ", ".join(one for one in told if one) or "measured only"


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Something that was not there: how to get it, and the rules that wait for it."""

    what: str
    how: str
    codes: tuple[str, ...]


def question_of(code: str, symptom: str) -> str:
    """Under which question a rule stands."""
    return _NUMBERS if symptom == _NUMBERS_SYMPTOM else _BY_CODE.get(code[:3], _OTHER)


def questions_of(report: Report, symptoms: Mapping[str, str]) -> tuple[Question, ...]:
    """The questions that any rule answered; ``symptoms``: of the rules by code. What was only skipped is no question
    of this run.
    """
    order = dict.fromkeys((_NUMBERS, *_BY_CODE.values(), _OTHER))
    results: dict[str, list[ProbeResult]] = {text: [] for text in order}
    skipped: dict[str, list[SkippedProbe]] = {text: [] for text in order}
    for result in report.results:
        results[question_of(result.code, result.symptom)].append(result)
    for one in report.skipped:
        skipped[question_of(one.code, symptoms.get(one.code, ""))].append(one)
    return tuple(
        Question(text=text, results=tuple(_worst_first(results[text])), skipped=tuple(skipped[text]))
        for text in order
        if results[text]
    )


def _worst_first(results: Iterable[ProbeResult]) -> list[ProbeResult]:
    return sorted(results, key=lambda one: -one.verdict.rank)


def missing_from(report: Report) -> tuple[Missing, ...]:
    """What would let more rules judge, once each: first what any training can log."""
    waiting: dict[tuple[str, str], list[str]] = {}
    for one in report.skipped:
        way = _way_for(one, report)
        if way is not None:
            waiting.setdefault(way, []).append(one.code)
    order = list(dict.fromkeys(_WAYS.values()))
    ways = sorted(waiting, key=order.index)
    found = [Missing(what=way[0], how=way[1], codes=tuple(waiting[way])) for way in ways]
    broken = [
        Missing(what=one.part, how=f"not usable: {one.why}", codes=())
        for one in report.judged
        if one.state == "not usable" and one.why
    ]
    return (*broken, *found)


def not_applicable(report: Report) -> tuple[SkippedProbe, ...]:
    """The other rules that were skipped: most are for other kinds of training."""
    return tuple(one for one in report.skipped if _way_for(one, report) is None)


def _way_for(skipped: SkippedProbe, report: Report) -> tuple[str, str] | None:
    """What a rule lacked and how to get it; None where that would not be asked of this training."""
    role = str(skipped.details.get("role", ""))
    there = {one.role for one in report.series if one.points > one.nonfinite}
    return _WAYS.get(role) if there.isdisjoint((role, *_INSTEAD.get(role, ()))) else None
