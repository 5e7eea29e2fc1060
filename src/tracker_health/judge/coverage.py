"""What of a run was judged: which of its parts, and whether its main signal was, with confidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, Part
from tracker_health.facts.intent import optimizers_named
from tracker_health.facts.learnt import is_drawn, learnt_by
from tracker_health.facts.scores import HELD_OUT as SCORES
from tracker_health.facts.settings import Settings
from tracker_health.facts.steps import is_smoke_test
from tracker_health.report.result import BY_PARAMS, Judged, ProbeResult, SkippedProbe
from tracker_health.rules.probe import Probe
from tracker_health.text import count, printable, setting
from tracker_health.words.verdict import Verdict

_REASON_CHARACTERS = 300
_NOTED = frozenset(("kept", "state_begins"))  # measures of a rule that passed for a reason that a reader should know
_FEW_CHECKS = 4
_DRAWN = "single values of the loss scatter by as much as all of it, as when timesteps are drawn"

MAIN_SIGNALS = frozenset(("train_loss", "val_loss", "train_reward", "val_reward"))
"""The roles that a pass rests on, where any of them is there."""

_BY_CODE = {"GRD": "gradients", "WGT": "weights"}
"""Parts that a rule may judge by another part: by its code the part that it is about."""

_PARTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("loss", frozenset(("train_loss",))),
    ("validation", frozenset(("val_loss",))),
    (
        "accuracy or reward",
        frozenset(("train_accuracy", "train_auc", "train_reward", "val_reward", *SCORES)),
    ),
    ("gradients", frozenset(("grad_norm", "gap_grads"))),
    ("learning rate", frozenset(("learning_rate", Part.SAVED_SCHEDULE))),
    ("optimizer", frozenset((Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS))),
    ("weights", frozenset((Part.WEIGHTS,))),
    ("end", frozenset((Part.ENDING,))),
)

_PARTS_OF_SOME: tuple[tuple[str, frozenset[str]], ...] = (
    ("parts of the loss or reward", frozenset(("loss_part", "reward_part", "objective_loss"))),
    (
        "policy",
        frozenset(("kl", "entropy", "entropy_loss", "policy_std", "clip_fraction", "explained_variance", "margin")),
    ),
)
"""Parts that only some trainings have: of others it is not said that they are not there."""


class RuleOutcome(NamedTuple):
    """A rule that was asked, whether it votes, and what it came to; None where it broke or lost its evidence.
    ``required``: the roles that it cannot do without.
    """

    probe: Probe
    votes: bool
    result: ProbeResult | SkippedProbe | None
    required: frozenset[str]


def coverage_of(evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> tuple[Judged, ...]:
    """Each part of a run: judged, not there, or there and not usable, with the reason."""
    of_some = [(part, roles) for part, roles in _PARTS_OF_SOME if any(map(evidence.amount, roles))]
    return tuple(_judged(part, roles, evidence, outcomes) for part, roles in (*_PARTS, *of_some))


def _judged(part: str, roles: frozenset[str], evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> Judged:
    there = {role for role in roles if evidence.amount(role)}
    asked = [one for one in outcomes if one.result is not None and one.required & there]
    vouching = [one for one in asked if one.probe.vouches] if there & MAIN_SIGNALS else []
    if any(isinstance(one.result, ProbeResult) for one in vouching or asked) or any(map(_found, asked)):
        return Judged(part=part, state="judged")
    asked = vouching or asked
    if there:
        reasons = [one.result.reason for one in asked if isinstance(one.result, SkippedProbe)]
        reasons += [one.result.message for one in asked if isinstance(one.result, ProbeResult)]
        return Judged(part=part, state="not usable", why=_shown(reasons[0] if reasons else "no rule looks at it"))
    for problem in evidence.problems:
        if problem.roles & roles:
            return Judged(part=part, state="not usable", why=_shown(f"{problem.source}: {problem.message}"))
    missing = next((evidence.missing[role] for role in sorted(roles) if role in evidence.missing), "")
    if not missing and (other := _judged_by(part, outcomes)):
        return Judged(part=part, state="judged", why=f"only by what the {other} keeps")
    if not missing and (said := _said_by_params(part, evidence)):
        return Judged(part=part, state="not usable", why=_shown(f"{BY_PARAMS} ({said}); nothing else shows it"))
    return Judged(part=part, state="not usable" if missing else "not there", why=_shown(missing))


def _judged_by(part: str, outcomes: Sequence[RuleOutcome]) -> str:
    """The other part by which a rule judged this one, as moments show dead units of weights; empty where none did."""
    judged = (
        one for one in outcomes if isinstance(one.result, ProbeResult) and _BY_CODE.get(one.probe.code[:3]) == part
    )
    required = next((one.required for one in judged), frozenset[str]())
    return next((other for other, roles in _PARTS if roles & required and other != part), "")


def _said_by_params(part: str, evidence: Evidence) -> str:
    """What the params say of a part that nothing else shows; empty for nothing."""
    settings = Settings(evidence)
    if part == "learning rate" and settings.rate_said is not None:
        return setting(settings.rate_said)
    return ", ".join(optimizers_named(evidence)[:1]) if part == "optimizer" else ""


def _found(outcome: RuleOutcome) -> bool:
    return isinstance(outcome.result, ProbeResult) and outcome.result.verdict is not Verdict.PASS


def _shown(text: str) -> str:
    return printable(text, _REASON_CHARACTERS)


def why_unjudged(evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> str | None:
    """Why a run without findings does not pass: nothing that votes looked at its main signal, or none with confidence.
    None where it does pass.

    The main signal is a loss or a reward where any is there, else what else shows that training worked.
    """
    if is_smoke_test(evidence):
        return f"all of the plan was done, and its {count(evidence.optimizer_steps or 0, 'step')} are too few to judge"
    vouching = [one for one in outcomes if one.votes and one.probe.vouches and one.result is not None]
    there = {role for role in MAIN_SIGNALS if evidence.amount(role)}
    if there:
        vouching = [one for one in vouching if one.required & there] or vouching
    if any(isinstance(one.result, ProbeResult) for one in vouching) or _learnt_without_it(evidence):
        return None
    skipped = [one.result.reason for one in vouching if isinstance(one.result, SkippedProbe)]
    return skipped[0] if skipped else "no rule that could show it is among those that vote"


def _learnt_without_it(evidence: Evidence) -> str:
    """What a run passes by whose main signal no rule can judge; empty where there is nothing of the kind."""
    with np.errstate(all="ignore"):
        return learnt_by(evidence) or (_DRAWN if is_drawn(evidence) else "")


_TO_KNOW_MORE = {
    "loss": "a held-out loss or score, and the gradient norm",
    "validation": "the training loss",
    "accuracy or reward": "the loss; of a policy its entropy and its KL divergence",
    "gradients": "the loss",
    "optimizer": "the loss",
    "weights": "the loss",
}
"""What to log, where a part of a run is all that could be judged."""


def notes_on(evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> Iterator[str]:
    """What a reader of a pass should know of it."""
    parts = (one.part for one in coverage_of(evidence, outcomes) if one.state == "judged" and not one.why)
    judged = [part for part in parts if part in _TO_KNOW_MORE]
    checks = sum(one.votes and isinstance(one.result, ProbeResult) for one in outcomes)
    if len(judged) == 1 and checks <= _FEW_CHECKS:
        yield f"only the {judged[0]} could be judged; to know more, log {_TO_KNOW_MORE[judged[0]]}"
    for one in outcomes:
        if isinstance(one.result, ProbeResult) and one.votes and not _NOTED.isdisjoint(one.result.measured):
            yield f"{one.result.code}: {one.result.message}"
    vouching = [one.result for one in outcomes if one.votes and one.probe.vouches]
    learnt = _learnt_without_it(evidence)
    if learnt and not any(isinstance(one, ProbeResult) for one in vouching):
        yield "; ".join([learnt, *(one.reason for one in vouching if isinstance(one, SkippedProbe))][:2])
