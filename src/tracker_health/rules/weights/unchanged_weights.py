"""WGT002."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Left, Need, Parameter, Part, Weights, is_of_the_end
from tracker_health.evidence.parameters.same_in_two_checkpoints import is_half
from tracker_health.facts.descent import fell_since, share_before
from tracker_health.facts.rates import learning_rates, rate_since
from tracker_health.facts.steps import why_too_few_steps
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, printable, short_name
from tracker_health.words.verdict import Verdict

_BEGINS_LATER = re.compile(r"(ema|average).{0,20}(start|begin|after|warm)|update_after_step|(start|begin).{0,20}ema")
_ROUNDED = (
    "keep the weights, or the optimizer's copy of them, in float32: in bfloat16 a change below a 256th of a value is "
    "rounded away"
)
_CUT_OFF = (
    "is the optimizer made from all trainable parameters? Look for .detach() or no_grad between them and the loss"
)
_STUCK = "look for a second copy of these tensors: the optimizer may update another one than the model saves"
_AVERAGE = "update it after every optimizer step, with the parameters of the model that is trained"
_NOTHING = "where steps were done between them, look whether the optimizer's parameters are the saved model's"


@dataclass(frozen=True, kw_only=True)
class UnchangedWeights(Probe):
    """Weights that did not move between two checkpoints, though they are trained.

    What it finds:
        Tensors that are the same to the last bit in the newest checkpoint and in the one before. The optimizer steps
        them, or nothing shows that they are frozen on purpose. Also a moving average that never moved.

    Why it matters:
        They keep their values, whatever the loss does. The module may have been replaced after the optimizer was made,
        or no gradient reaches the layers. The steps of weights in bfloat16 may be rounded away, or a copy is saved in
        place of the model.

    How it decides:
        Fail for tensors that the optimizer clearly stepped, unless floating point hides the step; in half precision
        warn of matrices. After fewer than `min_steps` steps nothing is said. Without a state it asks of unmoved layers
        what OPT004 asks, and warns. Where nothing moved, fail if the first of three checkpoints is the same and the
        loss fell or is unknown. Else warn, unless they may be copies or the rate was `no_rate` of its highest. Warn of
        a moving average that stays the first checkpoint's.

    Known limits:
        Needs the weights of two checkpoints. Buffers, integers and experts without tokens do not count. Without an
        optimizer's state, a front layer that no gradient reaches looks like a frozen one, unless its values show that
        it was never trained.

    Worked example:
        group: lr=0.001
        optimizer fc1.weight 2x2: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        optimizer fc2.weight 2x2: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        before fc1.weight 2x2: 0.5*4
        weights fc1.weight 2x2: 0.51*4
        before fc2.weight 2x2: 0.3*4
        weights fc2.weight 2x2: 0.3*4
        gives: compared 2, unchanged 1
        fail: fc2 is the same to the last bit; one step of 0.001 would show in values of 0.3.

    What to do:
        Make the optimizer after the model is complete; keep a float32 copy of 16-bit weights; compare `id(parameter)`
        in the optimizer with the model's.

    References:
        Micikevicius et al. (2018), section 3.1: a copy of the weights in single precision.
    """

    code = "WGT002"
    name = "unchanged-weights"
    symptom = Symptom.FROZEN
    headline = ("unchanged",)

    min_steps: Annotated[
        int, Threshold("optimizer steps needed where there is a state", "steps", "design", ge=1)
    ] = 10  # fmt: skip
    no_rate: Annotated[
        float, Threshold("learning rate over the highest at which nothing has to move", "fraction", "design", gt=0)
    ] = 1e-6

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHT_CHANGES),
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps", optional=True),
            Need(role="learning_rate", optional=True),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        weights, state, table = evidence.weights, evidence.optimizer, evidence.parameters
        if weights is None or not weights.changes:
            return Finding(verdict=Verdict.SKIP, message="there is no earlier checkpoint to compare the weights with")
        if state is not None and (why_not := why_too_few_steps(evidence, self.min_steps)):
            return Finding(verdict=Verdict.SKIP, message=why_not)
        compared = [one for one in table.with_weight if one.moved is not None and one.is_parameter]
        moved, since = sum(1 for one in compared if one.moved), f"since {printable(weights.previous)}"
        if compared and not moved:
            return self._nothing_moved(evidence, weights, len(compared))
        late = any(_BEGINS_LATER.search(name.lower()[:200]) for name in evidence.info.params)
        if weights.idle_average and is_of_the_end(evidence) and not late:
            where = f"{printable(weights.source)} ({short_name(weights.idle_average)})"
            message = f"the moving average in {where} is that of the first checkpoint, while the model changed"
            return Finding(verdict=Verdict.WARN, message=f"{message}: it is not updated", remedy=_AVERAGE)
        precise = [one for one in table.stuck if not is_half(one)]
        rounded = [one for one in table.stuck if is_half(one) and one.is_matrix]
        if precise or rounded:
            why = "" if precise else "; in half precision the steps may have been rounded away"
            what = f"in the optimizer did not change at all {since}"
            verdict, remedy = (Verdict.FAIL, _STUCK) if precise else (Verdict.WARN, _ROUNDED)
            return _finding(verdict, precise or rounded, what, why, remedy, compared=len(compared))
        for wrong in table.left(Left.UNMOVED, meant=False):
            what = f"did not change {since}; {wrong.purpose.sentence}"
            return _finding(Verdict.WARN, wrong.parameters, what, "", _CUT_OFF, compared=len(compared))
        return Finding(
            verdict=Verdict.PASS,
            message=f"{moved} of {count(len(compared), 'tensor')} changed {since}",
            measured={"compared": len(compared), "unchanged": 0},
        )

    def _nothing_moved(self, evidence: Evidence, weights: Weights, amount: int) -> Finding:
        since = weights.first if weights.same_as_first else weights.previous
        share = share_before(since, weights.source)
        fell = None if share is None else fell_since(evidence, share)
        last = max((int(one.steps[-1]) for one in learning_rates(evidence)), default=0)
        rate = rate_since(evidence, last)
        if rate is not None and rate <= self.no_rate and not (weights.same_as_first and fell):
            return Finding(verdict=Verdict.SKIP, message="no tensor changed, at a learning rate of 0 (see LRS001)")
        if any(one.stats is not None and one.stats.nonfinite == one.stats.count for one in weights.tensors):
            return Finding(verdict=Verdict.SKIP, message="no tensor changed, and some are nothing but NaN (see WGT001)")
        both = f"{printable(since)} and {printable(weights.source)}"
        if share is None or (evidence.optimizer is None and weights.first and not weights.same_as_first):
            return Finding(verdict=Verdict.SKIP, message=f"{both} hold the same weights: one may be a copy")
        meanwhile = ", while the training loss fell" if fell else ""
        return Finding(
            verdict=Verdict.FAIL if weights.same_as_first and fell is not False else Verdict.WARN,
            message=f"not one of {count(amount, 'tensor')} differs between {both}{meanwhile}",
            remedy=_NOTHING,
            measured={"compared": amount, "unchanged": amount},
        )


def _finding(
    verdict: Verdict, rows: Sequence[Parameter], what: str, why: str, remedy: str, *, compared: int
) -> Finding:
    names = [one.weight.name if one.weight is not None else one.shown for one in rows]
    return Finding(
        verdict=verdict,
        message=f"{count(len(names), 'tensor')} {what}: {listing(names)}{why}",
        remedy=remedy,
        measured={"compared": compared, "unchanged": len(names)},
        details={"unchanged": names[:200]},
    )
