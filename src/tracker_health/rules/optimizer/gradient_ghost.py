"""OPT101."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from tracker_health.evidence import DlmCheckpoint, Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number
from tracker_health.words.verdict import Verdict

_LAYER = re.compile(r"\.layers\.(\d+)\.")

_FEW = "global_step_below_threshold"
_MEASURES = (
    "global_step", "num_params", "num_layers", "params_per_layer", "global_mean_exp_avg_sq", "num_nonfinite_exp_avg_sq",
    "frac_layers_undertrained", "num_layers_undertrained",
)  # fmt: skip


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
        any warns. The score is `pass_score`, `warn_score` or `fail_score`.

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
    pass_score: Annotated[float, Threshold("score of a pass", "fraction", "original rule", ge=0, le=1)] = 0.9
    warn_score: Annotated[float, Threshold("score of a warning", "fraction", "original rule", ge=0, le=1)] = 0.7
    fail_score: Annotated[float, Threshold("score of high layers", "fraction", "original rule", ge=0, le=1)] = 0.3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.DLM_CHECKPOINT),)

    def judge(self, evidence: Evidence) -> Finding:
        checkpoint = evidence.dlm_checkpoint
        if checkpoint is None:
            return Finding.skipped("there is no checkpoint")
        states = checkpoint.state.with_second_moment
        means = {one.id: one.second_moment.mean for one in states if one.second_moment is not None}
        layers, per_layer, unmapped = _layers(checkpoint, means)
        mapped = {"num_layers": len(layers), "params_per_layer": per_layer, "layers_reason": unmapped}
        facts = _facts(checkpoint, means) | mapped
        steps, finite = checkpoint.global_step, [mean for mean in means.values() if math.isfinite(mean)]
        if steps < self.min_steps_threshold:
            said = f"only {count(steps, 'global step')}, {self.min_steps_threshold} are needed"
            return self._finding(Verdict.FAIL, float(steps), said, facts | {"primary_signal": _FEW})
        if not means:
            return Finding.skipped("the optimizer state holds no second moments (exp_avg_sq)")
        if not any(finite):
            kind, what = ("zero", "exactly 0") if finite else ("nan", "non-finite")
            said = f"the second moments of all {len(finite or means)} parameters are {what}"
            return self._finding(Verdict.FAIL, 0.0, said, facts | {"primary_signal": f"all_optimizer_state_{kind}"})
        known, limit = {one: at for one, at in layers.items() if math.isfinite(at)}, self.undertrained_layer_ratio
        lowest = min(known.values(), default=0.0)
        ratios = {layer: mean / lowest if lowest > 0.0 else None for layer, mean in known.items()}
        high = sorted(layer for layer, ratio in ratios.items() if ratio is not None and ratio > limit)
        fraction = len(high) / len(layers) if high else 0.0
        worst = sorted(known, key=lambda layer: -(ratios[layer] or known[layer]))[:3]
        facts |= {
            "frac_layers_undertrained": fraction, "num_layers_undertrained": len(high), "undertrained_layers": high,
            "worst_layers": [{"layer": layer, "ratio": ratios[layer]} for layer in worst],
        }  # fmt: skip
        shown = f"{len(high)} of {len(layers)} layers above {number(limit)} times the lowest mean second moment"
        if lowest <= 0.0:
            why = unmapped or ("the lowest layer mean is 0" if known else "no layer has a finite mean")
            shown = f"steps and second moments are fine; layers were not judged: {why}"
        verdict = Verdict.FAIL if fraction > self.layer_failure_frac else Verdict.WARN if high else Verdict.PASS
        return self._finding(verdict, fraction, shown, facts)

    def _finding(self, verdict: Verdict, raw: float, message: str, facts: Mapping[str, Any]) -> Finding:
        scores = {Verdict.PASS: self.pass_score, Verdict.WARN: self.warn_score, Verdict.FAIL: self.fail_score}
        score = 0.0 if "primary_signal" in facts else scores[verdict]
        remedy = "train longer, and look at the per-tensor statistics" if verdict is not Verdict.PASS else ""
        measured = {name: facts[name] for name in _MEASURES if name in facts} | {"raw": raw}
        return Finding(verdict=verdict, score=score, message=message, remedy=remedy, measured=measured, details=facts)


def _layers(checkpoint: DlmCheckpoint, means: Mapping[int | str, float]) -> tuple[dict[int, float], int, str]:
    """Mean of each layer's finite tensor means (NaN if it has none), parameters per layer, and why there are no
    layers.
    """
    names = checkpoint.weight_names
    counts = Counter(int(found.group(1)) for name in names or () if (found := _LAYER.search(name)))
    per_layer, numbers = max(counts.values(), default=0), sorted(counts)
    unmapped = (
        (names is None, checkpoint.weights_reason),
        (not names, "no tensor names in the weights file"),
        (not counts, "no layer numbers in the tensor names"),
        (len(set(counts.values())) > 1, "the layers have unequal numbers of tensors"),
        (len(checkpoint.state.tensors) < per_layer * len(numbers), "fewer optimizer states than tensor names"),
    )
    for holds, why in unmapped:
        if holds:
            return {}, 0, why
    members: dict[int, list[float]] = {layer: [] for layer in numbers}
    for key, mean in means.items():
        position = key // per_layer if isinstance(key, int) and key >= 0 else len(numbers)
        if position < len(numbers) and math.isfinite(mean):
            members[numbers[position]].append(mean)
    return {layer: sum(own) / len(own) if own else math.nan for layer, own in members.items()}, per_layer, ""


def _facts(checkpoint: DlmCheckpoint, means: Mapping[int | str, float]) -> dict[str, Any]:
    finite, extras = [mean for mean in means.values() if math.isfinite(mean)], checkpoint.state.extras
    best = extras.get("best_val_loss")
    return {
        "global_step": checkpoint.global_step, "epoch": extras.get("epoch"),
        "num_params": len(checkpoint.state.tensors), "num_nonfinite_exp_avg_sq": len(means) - len(finite),
        "global_mean_exp_avg_sq": sum(finite) / len(finite) if finite else math.nan,
        "best_val_loss": float(best) if isinstance(best, (int, float)) and math.isfinite(best) else None,
        "use_qlora": extras.get("use_qlora"),
    }  # fmt: skip
