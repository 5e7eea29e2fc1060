"""GRD003."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Curve, Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.roles import OBJECTIVE_LOSS, REWARDS
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, number, percent, went
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class VanishingGradient(Probe):
    """Gradients fade to nothing while the loss is far from its floor.

    What it finds:
        A gradient norm that is 0, or a millionth of what it was, while the loss has barely come down. Also gradients
        that shrink a thousandfold from the last layer to the first.

    Why it matters:
        Without gradients nothing is learnt: the units are saturated or dead, the weights were initialised too small, or
        the loss does not depend on them.

    How it decides:
        The logged norm has collapsed when all but `spared` of its second half is 0, or at most `collapse` of
        its start. Warn when the loss came down by less than `learnt` of its start, or not clearly; for zeros,
        `solved`. Next to a loss that need not come down warn of zeros where no reward clearly rose. In a
        checkpoint Adam's second moments tell the gradients' sizes. Warn when they fall in order towards the
        first layer, by more than `depth_ratio`, in most kinds of matrices of `min_layers` layers. It needs
        `min_points` points.

    Known limits:
        Without names, all matrices of one shape count as one kind, even if they belong to two towers. A norm that is
        logged with few decimals may read 0. Without a loss only the checkpoint is judged.

    Worked example:
        grad_norm: 1.1 0.9 1.0 1.1 0.9 1.0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
        train_loss: 2.30 2.31 2.30 2.29 2.31 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30 2.30
        gives: early_norm 1, zero_share 1, descent 0.002169
        warn: all norms of the second half are 0, and the loss came down by nothing.

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
    kinds = ("zero", "faded", "along-the-depth")

    collapse: Annotated[float, Threshold("norm over its early level", "ratio", "design", gt=0, le=1)] = 1e-6
    spared: Annotated[
        float, Threshold("share of the norms that need not be gone", "fraction", "design", ge=0, le=1)
    ] = 0.1
    learnt: Annotated[
        float, Threshold("descent of a loss that learnt something, as a share of its start", "fraction", "design", ge=0)
    ] = 0.05
    solved: Annotated[float, Threshold("the same where no gradient may be left", "fraction", "design", ge=0)] = 0.5
    depth_ratio: Annotated[float, Threshold("last layer's gradient over the first's", "ratio", "design", gt=1)] = 1e3
    min_points: Annotated[int, Threshold("gradient norms needed", "points", "design", ge=8)] = 20
    min_layers: Annotated[int, Threshold("layers needed", "layers", "design", ge=5)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        beside = Need.beside("train_loss", "objective_weight", OBJECTIVE_LOSS, *REWARDS)
        return (Need(role="grad_norm", any_of=(Part.SECOND_MOMENTS,)), *beside)

    def judge(self, evidence: Evidence) -> Finding:
        norm, loss = evidence.curve("grad_norm"), evidence.curve("train_loss")
        beside = loss is not None or evidence.find(OBJECTIVE_LOSS) is not None
        finding = None
        if norm is not None and norm.points >= self.min_points and beside:
            finding = self._over_time(norm, loss, evidence)
        ratios = evidence.parameters.along_the_depth(self.min_layers, known=loss is not None)
        if (finding is None or finding.verdict is Verdict.PASS) and ratios:
            finding = self._of_layers(ratios, self._came_down(loss, self.solved))
        why = "neither enough gradient norms next to a loss, nor second moments of as many matrices as are needed"
        return finding or Finding.skipped(why)

    def _over_time(self, norm: Curve, loss: Curve | None, evidence: Evidence) -> Finding:
        values = norm.series.values
        half = len(values) // 2
        late, early, end = values[half:], norm.start.value, norm.between(0.5, 1.0).value
        zeros, faded = float(np.mean(late == 0.0)), float(np.mean(late <= self.collapse * early))
        silent = zeros >= 1.0 - self.spared and not self._solved(loss, evidence)
        collapsed = faded >= 1.0 - self.spared and loss is not None and not self._came_down(loss, self.learnt)
        share = 0.0 if loss is None else loss.kept.value / (abs(loss.start.value) or 1.0)
        measured = {"early_norm": early, "late_norm": end, "zero_share": zeros, "descent": share}
        if not silent and not collapsed:
            message = f"the gradient norm has a median of {number(end)} in the second half of the run"
            return Finding.passed(message, measured)
        what = f"is exactly 0 at {percent(zeros)} of the points" if silent else went(early, end, "fell")
        effect = f"the loss came down by {percent(max(share, 0.0))}" if loss is not None else "nothing is learnt there"
        return Finding(
            verdict=Verdict.WARN,
            message=f"in the second half of the run the gradient norm {what}, and {effect}",
            remedy="look for saturated or dead units, answers that all get one reward, or a detached output",
            measured=measured,
            steps=(int(norm.series.steps[half]), norm.last_step),
            kind="zero" if silent else "faded",
        )

    def _solved(self, loss: Curve | None, evidence: Evidence) -> bool:
        """Whether no gradient is left since all is learnt: then a loss came down far, or a reward rose."""
        if loss is not None:
            return self._came_down(loss, self.solved)
        rewards = [curve.upside_down for role in REWARDS if (curve := evidence.curve(role)) is not None]
        return any((reward.start - reward.end).surely_above(0.0) for reward in rewards)

    @staticmethod
    def _came_down(loss: Curve | None, share: float) -> bool:
        return loss is not None and loss.kept.surely_above(0.0) and loss.kept.value >= share * abs(loss.start.value)

    def _of_layers(self, ratios: Mapping[str, float], learnt: bool) -> Finding:
        name, largest = max(ratios.items(), key=lambda one: one[1])
        fading = [ratio for ratio in ratios.values() if ratio > self.depth_ratio]
        measured = {"kinds_of_matrices": len(ratios), "fading": len(fading), "largest_ratio": largest}
        if learnt or 2 * len(fading) <= len(ratios):
            message = f"from the last layer to the first gradients fall {number(largest)} times at most"
            if largest <= 1.0:
                message = f"in none of {count(len(ratios), 'kind')} of matrices gradients fade towards the first layer"
            return Finding.passed(message, measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"gradients fade towards the first layer, {number(largest)} times in {name}, and as much in "
            f"{len(fading)} of {len(ratios)} kinds of matrices",
            remedy="initialise as the framework does; add residual connections or normalisation",
            measured=measured,
            kind="along-the-depth",
        )
