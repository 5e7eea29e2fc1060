"""WGT006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class IdleStatistics(Probe):
    """Normalisation layers that were trained but never looked at a batch.

    What it finds:
        Batch normalisation whose running mean is still exactly 0 and whose running variance is still exactly 1, though
        its own weights were trained.

    Why it matters:
        The model was in evaluation mode while it was trained (`model.train()` was forgotten): nothing was normalised,
        and dropout was off. Or the layer's momentum is 0, and it behaves differently in evaluation than in training.

    How it decides:
        Of saved weights next to an optimizer of at least `min_steps` steps. Warn where a layer has a mean of nothing
        but zeros and a variance of nothing but ones, while it was in use. That shows in the values of its bias, which
        have come to differ (of its weight, where it has no bias). Warn as well where all the layers of a model, two or
        more, hold what they begin with, weights and biases too. One layer may be unused, but rarely all of them.

    Known limits:
        Layers without weights of their own (`affine=False`), of a single channel, and normalisation without running
        statistics, say nothing.

    Worked example:
        optimizer bn.weight 4: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        weights bn.weight 4: 1.1,0.9,1,1
        weights bn.bias 4: 0.1,-0.1,0.2,0.3
        weights bn.running_mean 4: 0*4
        weights bn.running_var 4: 1*4
        gives: idle 1, layers 1
        warn: four biases differ, so that the layer was trained; all means are 0 and all variances 1.

    What to do:
        Call `model.train()` before training continues, also after each evaluation.

    References:
        Ioffe and Szegedy (2015), Batch normalization; torch.nn.BatchNorm1d.
    """

    code = "WGT006"
    name = "idle-statistics"
    symptom = Symptom.FROZEN
    headline = ("idle",)

    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHTS),
            Need(role=Part.OPTIMIZER_STEPS, any_of=(Part.OPTIMIZER_STATE,), optional=True),
            Need(role="train_loss", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        layers = evidence.parameters.normalisations
        known = [one for one in layers if one.was_trained]
        untouched = len(layers) > 1 and all(one.is_begun for one in layers)
        if not known and not untouched:
            return Finding(verdict=Verdict.SKIP, message="no trained layer with running statistics")
        if evidence.steps_at_least.steps < self.min_steps:
            return Finding(verdict=Verdict.SKIP, message=f"fewer than {self.min_steps} optimizer steps are known")
        idle = layers if untouched else [one for one in known if one.never_looked]
        measured = {"idle": len(idle), "layers": len(layers if untouched else known)}
        names = listing([one.name for one in idle])
        if not idle:
            message = f"the running statistics of {count(len(known), 'layer')} have moved"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        if untouched:
            return Finding(
                verdict=Verdict.WARN,
                message=f"all {len(layers)} normalisation layers are as they begin, statistics and weights, so that "
                f"nothing was normalised: {names}",
                remedy="call model.train() before training, and do not freeze normalisations that were never trained",
                measured=measured,
            )
        return Finding(
            verdict=Verdict.WARN,
            message=f"no batch ever went into the running statistics of {len(idle)} of "
            f"{count(len(known), 'trained normalisation layer')} (mean 0, variance 1): {names}",
            remedy="call model.train() before training, and again after each evaluation",
            measured=measured,
        )
