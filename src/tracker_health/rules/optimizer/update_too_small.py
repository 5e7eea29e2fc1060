"""OPT006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.parameters.steps import needs_of_update_size, reach_of_momentum, update_size
from tracker_health.facts.descent import descent
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class UpdateTooSmall(Probe):
    """Steps are far too small for the weights to move.

    What it finds:
        An Adam training in which a step at the highest learning rate barely changes the weights. Or an SGD training
        whose steps together could not have changed them.

    Why it matters:
        The model stays what it was, however long it trains.

    How it decides:
        Adam's step is lr * sqrt((1 - b1) / (1 + b1)) for each value, at the highest learning rate that is
        known. It is too small below `min_ratio` of the root mean square of the weights, in the median matrix.
        SGD's steps are too small when all of them in one direction would reach less than `min_reach`. Fail when
        the loss came down by less than `least_descent` (a fine-tune: `fine_tuned`); warn without a loss and for
        fine-tunes. Weights that `exploded` hide every step: WGT004 says that. It needs `min_steps` optimizer
        steps.

    Known limits:
        Needs the state of Adam, or of SGD with a momentum, and the weights next to it; of SGD a loss as well. A
        learning rate for a short final phase of training is small on purpose. If nothing names the base model, that
        looks the same.

    Worked example:
        train_loss: 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3 2.3
        group: lr=1e-7 initial_lr=1e-7 betas=0.9,0.999
        optimizer fc 4x4: step=100 exp_avg=0.01*16 exp_avg_sq=1e-3*16
        weights fc 4x4: 0.1*16
        gives: update_ratio 2.294e-7, peak_rate 1e-7
        fail: 1e-7 * sqrt(0.1 / 1.9) is 2.29e-8; over weights of 0.1 that is 2.29e-7, below `min_ratio`.

    What to do:
        Raise the learning rate tenfold. Healthy trainings from scratch have a ratio of 0.0002 to 0.02 at their highest
        rate; fine-tuning a language model at 2e-5 has 0.0002, preference tuning at 5e-7 has 0.000005.

    References:
        Kingma and Ba (2015), section 2.1, on the bound of Adam's step.
    """

    code = "OPT006"
    name = "update-too-small"
    symptom = Symptom.UPDATE_SIZE
    headline = ("update_ratio", "reach")

    min_ratio: Annotated[float, Threshold("least step over the size of the weights", "ratio", "design", gt=0)] = 1e-5
    min_reach: Annotated[
        float, Threshold("least way of all steps of SGD over the size of the weights", "ratio", "calibration", gt=0)
    ] = 5e-3
    least_descent: Annotated[
        float, Threshold("fall of a loss that learns, as a share of its start", "fraction", "calibration", gt=0)
    ] = 0.05
    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    fine_tuned: Annotated[
        float, Threshold("the same of a fine-tune", "fraction", "calibration", gt=0)
    ] = 0.0125  # fmt: skip
    exploded: Annotated[
        float, Threshold("scale of the weights compared with which every step looks small", "ratio", "design", gt=1)
    ] = 200.0

    @property
    def needs(self) -> tuple[Need, ...]:
        return needs_of_update_size(self.min_steps)

    def judge(self, evidence: Evidence) -> Finding:
        size, reach, scale = update_size(evidence), reach_of_momentum(evidence), evidence.parameters.weight_scale
        if scale > self.exploded:
            why = f"the weights exploded to {number(scale)} times their usual size"
            message = f"{why}: compared with them every step looks small (see WGT004)"
            return Finding(verdict=Verdict.SKIP, message=message)
        if size is not None and size.scheduled:
            measured = {"update_ratio": size.ratio, "peak_rate": size.rate}
            usual = " (usual 0.02 to 2 %)"
            return self._judged(evidence, size.step, usual, measured, enough=size.ratio / self.min_ratio)
        if size is None and reach is not None and descent(evidence) is not None:
            way = f"all steps in one direction, as large as the last, would have moved the weights by {number(reach)}"
            return self._judged(evidence, way, " of their size", {"reach": reach}, enough=reach / self.min_reach)
        why = "the highest learning rate is not known, or no matrix of the state is among the weights"
        return Finding(verdict=Verdict.SKIP, message=why)

    def _judged(
        self, evidence: Evidence, step: str, usual: str, measured: dict[str, float], *, enough: float
    ) -> Finding:
        """The finding on steps of a size that is, where they are too small, ``enough`` (below 1) of what they need."""
        if enough >= 1.0:
            return Finding(verdict=Verdict.PASS, message=step, measured=measured)
        loss, fine_tuning = descent(evidence), is_fine_tuning(evidence)
        needed = self.fine_tuned if fine_tuning else self.least_descent
        if loss is not None and loss.sure and loss.share >= needed:
            message = f"{step}, which was enough: the loss came down by {percent(loss.share)}"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured | {"descent": loss.share})
        factor = f"{number(1.0 / enough)} times" if enough > 0 else "by far"
        seen = "no loss tells whether that was enough" if loss is None else "the loss did not come down either"
        return Finding(
            verdict=Verdict.WARN if loss is None or fine_tuning else Verdict.FAIL,
            message=f"{step}{usual}; {seen}",
            remedy=f"raise the learning rate, or what gradients are clipped to, {factor}",
            measured=measured,
        )
