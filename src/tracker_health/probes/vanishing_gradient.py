"""GRD003."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Attribution, Evidence, FloatArray, Need, OptimizerState, Part
from tracker_health.evidence.numerics import coarseness, longest_run, mann_kendall, median
from tracker_health.evidence.parameters.steps import corrected_second_moment
from tracker_health.layers import place_of
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._run import Descent, descent
from tracker_health.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_NAMED = (Attribution.NAMED, Attribution.CONTENT_CHECKED)
_HARDLY = 0.05  # of the loss's start: it has not learnt
_HALF = 0.5
_MOSTLY = 0.9
_DIGITS = 100.0  # units of the last digit that the norms before must have had
_MONOTONE = 2.0  # of the trend's standard normal score: five layers in order have 2.2
_MOST_LAYERS = 200
_STANDS_STILL = 100


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(Probe):
    """Gradients fade to nothing while the loss is far from its floor.

    What it finds:
        A gradient norm that is 0, or a millionth of what it was, while the loss has hardly come down; and gradients
        that shrink a thousandfold from the last layer to the first.

    Why it matters:
        Without gradients nothing is learnt: the units are saturated or dead, the weights were initialised too small, or
        the loss does not depend on them.

    How it decides:
        Of the logged norm the second half is looked at: it has collapsed when nine tenths of it are at most `collapse`
        times the median of the first quarter, or exactly 0. Warn of a collapse where the loss came down by less than
        5 % of its start or not beyond its noise, and of exact zeros, to which no convergence leads, where it came down
        by less than half, or is one that need not come down (of an actor, say), where no reward rose. Of a checkpoint
        the size of the gradients, the root of Adam's second moment, is compared along the depth, for each matrix that
        is there in `min_layers` layers or more: warn when in most of them it falls towards the first layer, in order,
        by more than `depth_ratio`, and the loss came down by less than half. That is done only where names come from
        the file or are confirmed by its contents, never on an assumed order. Beside a loss, and without such names,
        matrices of one shape are compared in the order in which the optimizer has them: `min_layers` or more.

    Known limits:
        Without names all matrices of one shape are one kind, those of two towers as well. A norm that is logged with
        few decimals may read 0; where the loss falls, that passes. Without a loss only the checkpoint is judged.

    What to do:
        Initialise as the framework does, add residual connections or normalisation, replace saturating activations,
        and look for a detached or zeroed output.

    References:
        Hochreiter (1991); Glorot and Bengio (2010); the slope along the depth is Theil's (1950) and Sen's (1968), its
        order Mann's (1945) and Kendall's.
    """

    code = "GRD003"
    name = "vanishing-gradient"
    symptom = Symptom.VANISHING

    collapse: Annotated[float, Threshold("norm over its early level", "ratio", "design", gt=0, le=1)] = 1e-6
    depth_ratio: Annotated[float, Threshold("last layer's gradient over the first's", "ratio", "design", gt=1)] = 1e3
    min_points: Annotated[int, Threshold("gradient norms needed", "points", "design", ge=8)] = 20
    min_layers: Annotated[int, Threshold("layers needed", "layers", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="grad_norm", any_of=(Part.SECOND_MOMENTS,)),
            *(Need(role=role, optional=True) for role in ("train_loss", OBJECTIVE_LOSS, *REWARDS)),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = descent(evidence)
        norms = evidence.find("grad_norm")
        values = norms.finite().values if norms is not None else np.empty(0)
        found = None
        if len(values) >= self.min_points and loss is not None:
            found = self._over_time(evidence, values, loss)
        elif len(values) >= self.min_points and evidence.find(OBJECTIVE_LOSS) is not None and not _rewarded(evidence):
            found = _of_an_objective(values)
        ratios = self._along_the_depth(evidence.optimizer, known=loss is not None)
        if (found is None or found.verdict is Verdict.PASS) and ratios:
            found = self._of_layers(ratios, loss)
        why = "neither enough gradient norms beside a loss, nor second moments of as many matrices as are needed"
        return found or Finding(verdict=Verdict.SKIP, message=why)

    def _over_time(self, evidence: Evidence, values: FloatArray, loss: Descent) -> Finding:
        early, late = median(values[: len(values) // 4]), values[len(values) // 2 :]
        zeros = float(np.mean(late == 0.0))
        faded = float(np.mean(late <= self.collapse * early))
        level = median(late)
        measured = {"early_norm": early, "late_norm": level, "zero_share": zeros, "descent": loss.share}
        silent = zeros >= _MOSTLY and not (loss.sure and loss.share >= _HALF)
        collapsed = faded >= _MOSTLY and not (loss.sure and loss.share >= _HARDLY)
        if not silent and not collapsed:
            message = f"the gradient norm has a median of {number(level)} in the second half of the run"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        what = (
            f"is exactly 0 at {zeros:.0%} of the points" if silent else f"fell from {number(early)} to {number(level)}"
        )
        return Finding(
            verdict=Verdict.WARN,
            message=f"in the second half of the run the gradient norm {what}, and the loss came down by "
            f"{max(loss.share, 0.0):.0%}{_stands_still(evidence)}",
            remedy="look for saturated or dead units, a detached output, and weights that began too small",
            measured=measured,
        )

    def _along_the_depth(self, state: OptimizerState | None, *, known: bool) -> Mapping[str, float]:
        """Per kind of matrix: how many times larger gradients are in its last layer than in its first, if in order.
        ``known``: whether there is a loss to tell what they were enough for.
        """
        if state is None:
            return {}
        if state.attribution not in _NAMED:
            return self._along_the_order(state) if known else {}
        families: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
        for tensor in state.with_second_moment:
            place, square = place_of(tensor.name or ""), corrected_second_moment(state, tensor)
            if place is not None and len(tensor.shape) >= 2 and square:
                families[tensor.optimizer, place.stack, place.role][place.layer] = float(np.log(square)) / 2.0
        return {
            f"{stack}.*.{role}": _rise(by_layer)
            for (_, stack, role), by_layer in families.items()
            if self.min_layers <= len(by_layer) <= _MOST_LAYERS
        }

    def _along_the_order(self, state: OptimizerState) -> Mapping[str, float]:
        """The same per shape, of matrices as they come one after the other in the optimizer."""
        families: dict[tuple[str, tuple[int, ...]], dict[int, float]] = defaultdict(dict)
        for place, tensor in enumerate(state.with_second_moment):
            square = corrected_second_moment(state, tensor)
            if len(tensor.shape) >= 2 and square:
                families[tensor.optimizer, tensor.shape][place] = float(np.log(square)) / 2.0
        return {
            f"the matrices of {'x'.join(map(str, shape))}": _rise(by_place)
            for (_, shape), by_place in families.items()
            if self.min_layers <= len(by_place) <= _MOST_LAYERS
        }

    def _of_layers(self, ratios: Mapping[str, float], loss: Descent | None) -> Finding:
        name, largest = max(ratios.items(), key=lambda one: one[1])
        fading = [ratio for ratio in ratios.values() if ratio > self.depth_ratio]
        measured = {"kinds_of_matrices": len(ratios), "fading": len(fading), "largest_ratio": largest}
        learnt = loss is not None and loss.sure and loss.share >= _HALF
        if learnt or 2 * len(fading) <= len(ratios):
            message = f"from the last layer to the first gradients fall {number(largest)} times at most"
            if largest <= 1.0:
                message = f"in none of {count(len(ratios), 'kind')} of matrices gradients fade towards the first layer"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"gradients fade towards the first layer, {number(largest)} times in {name}, and as much in "
            f"{len(fading)} of {len(ratios)} kinds of matrices",
            remedy="initialise as the framework does; add residual connections or normalisation",
            measured=measured,
        )


def _of_an_objective(values: FloatArray) -> Finding | None:
    """What exact zeros say beside a loss that need not come down; None without them."""
    zeros = float(np.mean(values[len(values) // 2 :] == 0.0))
    before = float(values.max())
    if zeros < _MOSTLY or before < _DIGITS * coarseness(before):
        return None
    return Finding(
        verdict=Verdict.WARN,
        message=f"in the second half of the run the gradient norm is exactly 0 at {zeros:.0%} of the points: nothing "
        "is learnt there",
        remedy="look for a policy that has come down to one action, saturated units, or a detached output",
        measured={"zero_share": zeros},
    )


def _rewarded(evidence: Evidence) -> bool:
    """Whether a reward ended above its beginning: where all is solved, advantages and gradients are 0."""
    rewards = [one.finite().values for one in evidence.series if one.role in REWARDS]
    return any(len(one) > 1 and float(one[-1]) > float(one[0]) for one in rewards)


def _rise(logs: Mapping[int, float]) -> float:
    """How many times larger the last of these is than the first, if they are in order; else 1."""
    layers = np.array(sorted(logs))
    sizes = np.array([logs[layer] for layer in layers])
    rise = _slope(layers, sizes) * float(layers[-1] - layers[0])
    return float(np.exp(min(rise, 600.0))) if mann_kendall(sizes) >= _MONOTONE else 1.0


def _slope(at: np.ndarray, values: FloatArray) -> float:
    """Theil and Sen's: the median of the slopes of all pairs."""
    later, earlier = np.triu_indices(len(at), 1)[::-1]
    return median((values[later] - values[earlier]) / (at[later] - at[earlier]))


def _stands_still(evidence: Evidence) -> str:
    """Words for a loss that shows one and the same value for a long time."""
    loss = evidence.find("train_loss")
    values = loss.finite().values if loss is not None else np.empty(0)
    start, length = longest_run(np.diff(values) == 0.0)
    if length + 1 < _STANDS_STILL or values[start] == 0.0:
        return ""
    return f"; it stood at exactly {number(float(values[start]))} for {length + 1} points in a row"
