"""What of a run was judged: which of its parts, and whether its main signal was, with confidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tracker_health.evidence import LIKELY, SURELY, Curve, Evidence, Part
from tracker_health.facts.steps import is_smoke_test
from tracker_health.report.result import Judged, ProbeResult, SkippedProbe
from tracker_health.rules.probe import Probe
from tracker_health.text import count, printable
from tracker_health.words.verdict import Verdict

_REASON_CHARACTERS = 300
_LARGE = 0.3  # of the start: a descent that noise must not hide

MAIN_SIGNALS = frozenset(("train_loss", "val_loss", "train_reward", "val_reward"))
"""The roles that a pass rests on, where any of them is there."""

_PARTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("loss", frozenset(("train_loss",))),
    ("validation", frozenset(("val_loss",))),
    (
        "accuracy or reward",
        frozenset(("train_accuracy", "val_accuracy", "train_auc", "val_auc", "train_reward", "val_reward")),
    ),
    ("gradients", frozenset(("grad_norm", "gap_grads"))),
    ("learning rate", frozenset(("learning_rate", Part.SAVED_SCHEDULE))),
    ("optimizer", frozenset((Part.OPTIMIZER_STATE, Part.SECOND_MOMENTS))),
    ("weights", frozenset((Part.WEIGHTS,))),
    ("end", frozenset((Part.ENDING,))),
)


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
    return tuple(_judged(part, roles, evidence, outcomes) for part, roles in _PARTS)


def _judged(part: str, roles: frozenset[str], evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> Judged:
    there = {role for role in roles if evidence.amount(role)}
    asked = [one for one in outcomes if one.result is not None and one.required & there]
    vouching = [one for one in asked if one.probe.vouches] if there & MAIN_SIGNALS else []
    if any(_counts(one, evidence) for one in vouching or asked) or any(map(_found, asked)):
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
    return Judged(part=part, state="not usable" if missing else "not there", why=_shown(missing))


def _counts(outcome: RuleOutcome, evidence: Evidence) -> bool:
    return isinstance(outcome.result, ProbeResult) and not _is_hidden(outcome.result, evidence)


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
    results = [one.result for one in vouching if isinstance(one.result, ProbeResult)]
    if any(not _is_hidden(one, evidence) for one in results):
        return None
    if results:
        return f"{results[0].message}: log more often, or means of several batches"
    skipped = [one.result.reason for one in vouching if isinstance(one.result, SkippedProbe)]
    return skipped[0] if skipped else "no rule that could show it is among those that vote"


def _is_hidden(result: ProbeResult, evidence: Evidence) -> bool:
    """Whether a rule passed since it could not tell, and noise would hide even a large descent in every loss."""
    if result.verdict is not Verdict.PASS or result.confidence != "low":
        return False
    curves = [curve for role in ("train_loss", "val_loss") if (curve := evidence.curve(role)) is not None]
    return bool(curves) and all(map(_hides_a_large_descent, curves))


def _hides_a_large_descent(curve: Curve) -> bool:
    if curve.descent.surely_above(0.0) or curve.kept.surely_above(0.0, LIKELY) or curve.trend < -SURELY:
        return False
    size = max(abs(curve.start.value), abs(curve.best.value))
    return SURELY * curve.descent.error >= _LARGE * size and not _is_drawn(curve)


def _is_drawn(curve: Curve) -> bool:
    """Whether single points scatter by as much as the whole loss: how hard each step is was drawn, as a diffusion
    model's timesteps are, and such a loss shows no trend in healthy runs either.
    """
    return curve.noise >= max(abs(curve.start.value), abs(curve.best.value))


def notes_on(evidence: Evidence, outcomes: Sequence[RuleOutcome]) -> Iterator[str]:
    """What a reader of a pass should know of it."""
    for one in outcomes:
        if isinstance(one.result, ProbeResult) and one.votes and "kept" in one.result.measured:
            yield f"{one.result.code}: {one.result.message}"
    curve = evidence.curve("train_loss")
    if curve is not None and _is_drawn(curve) and not curve.descent.surely_above(0.0):
        yield (
            "single values of the loss scatter by as much as all of it, as where timesteps are drawn: whether it came "
            "down is hidden by that"
        )
