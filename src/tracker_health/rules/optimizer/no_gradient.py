"""OPT003."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Parameter, Part
from tracker_health.evidence.parameters.words import MEMORY
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, printable
from tracker_health.words.verdict import Verdict

_CUT = "look for .detach(), no_grad, a dead activation or an unused branch between them and the loss"
_ROUTING = "look at the routing: its balance loss, its capacity, and how many tokens each expert gets"
_FINAL_STATES = (
    "read the whole sequence, or both final states (h_n): the last output of the backward direction saw one input, and "
    "so has every output where the sequences have one step"
)


@dataclass(frozen=True, kw_only=True)
class NoGradient(Probe):
    """Parameters that no gradient ever reached.

    What it finds:
        Parameters whose second moment is exactly 0 (almost) everywhere after many optimizer steps. For an optimizer
        without one (SGD with momentum, Lion) it is the first moment.

    Why it matters:
        Adam's second moment is a running mean of squared gradients: exactly 0 means that every gradient was exactly 0.
        The layer is detached, dead, or masked out, and keeps the values it began with. A momentum is 0 where every
        gradient of the last thousand steps or so was.

    How it decides:
        Of parameters with `min_steps` steps: fail when `zero_share` of the moment is exactly 0, or a momentum holds
        only weight decay, unless all do and the loss fell by `learnt`. Exempt are vectors, embeddings, tied outputs and
        tables of one value for each user or item, unless all parameters are affected. Experts without a token pass
        while half of them have some, else warn. Warn for recurrent weights whose inputs are trained.

    Known limits:
        Checkpoints without parameter names do not distinguish a bias from a gain. Vectors are then left out. Squares of
        gradients below 1e-23 underflow to 0 in float32; such a parameter is as dead.

    Worked example:
        optimizer fc1.weight 4x4: step=100 exp_avg=0*16 exp_avg_sq=0*16
        optimizer fc2.weight 4x4: step=100 exp_avg=0.01*16 exp_avg_sq=1e-3*16
        gives: tensors 2, dead_tensors 1
        fail: after 100 steps all 16 second moments of fc1 are exactly 0, a share of 1.

    What to do:
        Look for `.detach()`, `torch.no_grad()`, a dead ReLU, or an unused branch between this parameter and the loss.
        Of experts, look at the routing.

    References:
        Kingma and Ba (2015), algorithm 1.
    """

    code = "OPT003"
    name = "no-gradient"
    symptom = Symptom.DEAD
    vouches = True
    headline = ("dead_tensors",)

    min_steps: Annotated[int, Threshold("optimizer steps before a zero means something", "steps", "design", ge=1)] = 50
    zero_share: Annotated[
        float, Threshold("share of exact zeros that makes a parameter dead", "fraction", "design", gt=0, le=1)
    ] = 0.999
    learnt: Annotated[
        float, Threshold("relative fall of a loss that leaves no gradient", "fraction", "design", gt=0, le=1)
    ] = 0.99

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role="train_loss", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        rows, known = [one for one in evidence.parameters.with_state if one.moment], evidence.steps_at_least
        trained = [
            one for one in rows if one.numel and (known.steps if one.steps is None else one.steps) >= self.min_steps
        ]
        if not trained:
            by = f"{known.steps} are known, counted by {printable(known.by)}" if known.by else "none is known"
            few = f"no parameter has {self.min_steps} optimizer steps: {by}"
            why = few if rows else "the optimizer keeps no moments (plain SGD), or made none"
            return Finding(verdict=Verdict.SKIP, message=why)
        silent = [one for one in trained if one.silent_share >= self.zero_share]
        if self._is_learnt(evidence, silent, trained):
            silent = [one for one in silent if not one.decays]
        everything = len(silent) == len(trained)
        dead = [one for one in silent if everything or not one.may_be_silent]
        found = self._dead(dead, trained, evidence) if dead else None
        measured = {"tensors": len(trained), "dead_tensors": len(dead), "exempt_tensors": len(silent) - len(dead)}
        if found is None:
            exempt = f" ({len(silent)} exempt)" if silent else ""
            message = f"gradients reached {_all(trained)}{exempt}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        verdict, message, remedy = found
        details = {"dead": [one.label for one in dead][:100]}
        return Finding(verdict=verdict, message=message, remedy=remedy, measured=measured, details=details)

    def _is_learnt(self, evidence: Evidence, silent: Sequence[Parameter], trained: Sequence[Parameter]) -> bool:
        """Whether all matrices do nothing but decay, as when a loss has come down to almost zero."""
        decaying = sum(one.decays for one in silent)
        loss = descent(evidence)
        return decaying == sum(one.is_matrix for one in trained) and (loss is None or loss.share >= self.learnt)

    @staticmethod
    def _dead(
        dead: Sequence[Parameter], trained: Sequence[Parameter], evidence: Evidence
    ) -> tuple[Verdict, str, str] | None:
        names, everything = listing([one.label for one in dead]), len(dead) == len(trained)
        experts, busy = evidence.parameters.experts_among(dead), evidence.parameters.experts_among(trained)
        alive = {one.name for one in trained} - {one.name for one in dead}
        if len(experts) == len(dead) and not everything:
            owners = sorted({one.expert for one in experts if one.expert})
            which = f"{count(len(owners), 'expert')} ({listing(owners)})" if owners else "some experts"
            message = f"{which} got no token: {count(len(experts), 'parameter')} had no gradient in any step"
            return None if 2 * len(experts) <= len(busy) else (Verdict.WARN, message, _ROUTING)
        if not everything and all(
            MEMORY.search(name := one.called) and MEMORY.sub("weight_ih", name) in alive for one in dead
        ):
            message = f"no gradient came through time: {names} never took a hidden state that the loss depends on"
            return Verdict.WARN, message, _FINAL_STATES
        ever = "ever reached" if all(one.state and one.state.second_moment for one in dead) else (
            "reached for a thousand steps or ever since the start")  # fmt: skip
        which = (f"any of the {len(dead)} parameters" if len(dead) > 1 else "the 1 parameter that there is") if (
            everything) else f"{len(dead)} of {len(trained)} parameters"  # fmt: skip
        return Verdict.FAIL, f"no gradient {ever} {which}: {names}", _CUT


def _all(parameters: Sequence[Parameter]) -> str:
    return f"all {len(parameters)} parameters" if len(parameters) > 1 else "the 1 parameter that there is"
