"""OPT101."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tracker_health.evidence import DlmCheckpoint, Evidence, Need, Part
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import count, number
from tracker_health.verdict import Verdict

_LAYER = re.compile(r"\.layers\.(\d+)\.")


@dataclass(frozen=True, kw_only=True)
class GradientGhost(Probe):
    """Undertraining told from Adam's second moments, by the original arithmetic.

    What it finds:
        An adapter checkpoint with too few steps, with second moments that are all non-finite or all 0, or with layers
        whose mean second moment stands out.

    Why it matters:
        Old reports and gates use this rule; it is kept exact so that people can compare.

    How it decides:
        In this order, on `training_state.pt` and `adapter_model.safetensors`: fewer than `min_steps_threshold` global
        steps fail; second moments that are all non-finite, or all exactly 0, fail. Then parameter ids are dealt out to
        the numbered layers in equal shares. A layer is high if its mean second moment exceeds
        `undertrained_layer_ratio` times that of the lowest layer. More than `layer_failure_frac` of the layers fails,
        any warns.

    Known limits:
        The equal shares are wrong on most real checkpoints, and a large second moment means a large gradient, not a
        lack of training. Outside the preset `dlm` the rule therefore measures without a vote. One dead layer makes
        the lowest mean 0, and layers are then not judged: OPT003 finds it.

    What to do:
        Train longer if the steps are few; for layers trust OPT003 and the per-tensor table.

    References:
        The pre-run check for adapters that these rules were taken from.
    """

    code = "OPT101"
    name = "gradient-ghost"
    symptom = Symptom.UNDERTRAINED
    vouches = True
    headline = ("frac_layers_undertrained", "global_mean_exp_avg_sq")

    min_steps_threshold: Annotated[int, Threshold("global steps needed", "steps", "original rule", ge=1)] = 50
    undertrained_layer_ratio: Annotated[
        float, Threshold("layer mean over the lowest that makes a layer high", "ratio", "original rule", gt=1)
    ] = 2.0
    layer_failure_frac: Annotated[
        float, Threshold("share of high layers that fails", "fraction", "original rule", ge=0, le=1)
    ] = 0.3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.DLM_CHECKPOINT),)

    def judge(self, evidence: Evidence) -> Finding:
        checkpoint = evidence.dlm_checkpoint
        if checkpoint is None:
            return Finding(verdict=Verdict.SKIP, message="there is no checkpoint")
        means = {
            tensor.id: tensor.second_moment.mean
            for tensor in checkpoint.state.with_second_moment
            if tensor.second_moment is not None
        }
        layers, per_layer, unmapped = _layers(checkpoint, means)
        facts = _facts(checkpoint, means, layers, per_layer, unmapped)
        finite = [mean for mean in means.values() if math.isfinite(mean)]
        if checkpoint.global_step < self.min_steps_threshold:
            message = f"only {count(checkpoint.global_step, 'global step')}, {self.min_steps_threshold} are needed"
            return _failed(message, "global_step_below_threshold", checkpoint.global_step, facts)
        if not means:
            return Finding(verdict=Verdict.SKIP, message="the optimizer state holds no second moments (exp_avg_sq)")
        if not finite:
            message = f"the second moments of all {len(means)} parameters are non-finite"
            return _failed(message, "all_optimizer_state_nan", 0, facts)
        if not any(finite):
            message = f"the second moments of all {len(finite)} parameters are exactly 0"
            return _failed(message, "all_optimizer_state_zero", 0, facts)
        return self._judge_layers(layers, facts, unmapped)

    def _judge_layers(self, layers: Mapping[int, float], facts: dict[str, Any], unmapped: str) -> Finding:
        finite = {layer: mean for layer, mean in layers.items() if math.isfinite(mean)}
        lowest = min(finite.values(), default=0.0)
        ratios = {layer: mean / lowest if lowest > 0.0 else None for layer, mean in finite.items()}
        limit = self.undertrained_layer_ratio
        high = sorted(layer for layer, ratio in ratios.items() if ratio is not None and ratio > limit)
        fraction = len(high) / len(layers) if high else 0.0
        worst = sorted(finite, key=lambda layer: -(ratios[layer] or finite[layer]))[:3]
        facts |= {
            "frac_layers_undertrained": fraction,
            "num_layers_undertrained": len(high),
            "undertrained_layers": high,
            "worst_layers": [{"layer": layer, "ratio": ratios[layer]} for layer in worst],
        }
        if lowest <= 0.0:
            why = unmapped or ("the lowest layer mean is 0" if finite else "no layer has a finite mean")
            return _finding(
                Verdict.PASS, 0.0, f"steps and second moments are fine; layers were not judged: {why}", facts
            )
        shown = f"{len(high)} of {len(layers)} layers above {number(limit)} times the lowest mean second moment"
        verdict = Verdict.FAIL if fraction > self.layer_failure_frac else Verdict.WARN if high else Verdict.PASS
        return _finding(verdict, fraction, shown, facts)


def _layers(checkpoint: DlmCheckpoint, means: Mapping[int | str, float]) -> tuple[dict[int, float], int, str]:
    """Mean of each layer's finite tensor means (NaN if it has none), parameters per layer, and why there are no
    layers.
    """
    if checkpoint.weight_names is None:
        return {}, 0, checkpoint.weights_reason
    if not checkpoint.weight_names:
        return {}, 0, "no tensor names in the weights file"
    counts = Counter(int(found.group(1)) for name in checkpoint.weight_names if (found := _LAYER.search(name)))
    if not counts:
        return {}, 0, "no layer numbers in the tensor names"
    if len(set(counts.values())) > 1:
        return {}, 0, "the layers have unequal numbers of tensors"
    per_layer = next(iter(counts.values()))
    numbers = sorted(counts)
    if len(checkpoint.state.tensors) < per_layer * len(numbers):
        return {}, per_layer, "fewer optimizer states than tensor names"
    members: dict[int, list[float]] = {layer: [] for layer in numbers}
    for key, mean in means.items():
        position = key // per_layer if isinstance(key, int) and key >= 0 else len(numbers)
        if position < len(numbers) and math.isfinite(mean):
            members[numbers[position]].append(mean)
    return {layer: sum(own) / len(own) if own else math.nan for layer, own in members.items()}, per_layer, ""


def _facts(
    checkpoint: DlmCheckpoint,
    means: Mapping[int | str, float],
    layers: Mapping[int, float],
    per_layer: int,
    unmapped: str,
) -> dict[str, Any]:
    finite = [mean for mean in means.values() if math.isfinite(mean)]
    extras = checkpoint.state.extras
    best = extras.get("best_val_loss")
    return {
        "global_step": checkpoint.global_step,
        "epoch": extras.get("epoch"),
        "num_params": len(checkpoint.state.tensors),
        "num_layers": len(layers),
        "params_per_layer": per_layer if layers else 0,
        "global_mean_exp_avg_sq": sum(finite) / len(finite) if finite else math.nan,
        "num_nonfinite_exp_avg_sq": len(means) - len(finite),
        "best_val_loss": float(best) if isinstance(best, (int, float)) and math.isfinite(best) else None,
        "use_qlora": extras.get("use_qlora"),
        "layers_reason": unmapped,
    }


_MEASURES = (
    "global_step",
    "num_params",
    "num_layers",
    "params_per_layer",
    "global_mean_exp_avg_sq",
    "num_nonfinite_exp_avg_sq",
    "frac_layers_undertrained",
    "num_layers_undertrained",
)


_SCORES = {Verdict.PASS: 0.9, Verdict.WARN: 0.7, Verdict.FAIL: 0.3}


def _finding(verdict: Verdict, raw: float, message: str, facts: Mapping[str, Any]) -> Finding:
    return Finding(
        verdict=verdict,
        score=0.0 if "primary_signal" in facts else _SCORES[verdict],
        message=message,
        remedy="train longer, and look at the per-tensor statistics" if verdict is not Verdict.PASS else "",
        measured={name: facts[name] for name in _MEASURES if name in facts} | {"raw": raw},
        details=facts,
    )


def _failed(message: str, signal: str, raw: float, facts: Mapping[str, Any]) -> Finding:
    return _finding(Verdict.FAIL, float(raw), message, {**facts, "primary_signal": signal})
