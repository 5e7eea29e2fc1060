"""OPT014."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need
from tracker_health.evidence.numerics import median
from tracker_health.facts.settings import Settings
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import setting, short_name
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class ClipTooTight(Probe):
    """Gradients are clipped to almost nothing.

    What it finds:
        A limit of the gradient norm in the params that is orders of magnitude below usual ones.

    Why it matters:
        Plain SGD then makes no steps, and epsilon dominates those of Adam. Mostly a decimal point is misplaced.

    How it decides:
        Warn when the params clip gradients to a norm of `least_clip` or less. Where gradient norms were logged, their
        median has to be half of the limit or more: else they are smaller by themselves. Params that mention privacy
        pass: there each sample is clipped and scaled up again.

    Known limits:
        A limit for single values of the gradient is judged as one for its norm.

    Worked example:
        grad_norm: 1.2 1.1 0.9 1 0.8 0.9
        param max_grad_norm: 0.00001
        gives: clip 1e-5
        warn: 1e-5 is below `least_clip`, and norms of 0.95 reach it.

    What to do:
        Clip at about the norm that most steps have, often 1, or not at all.

    References:
        Pascanu et al. (2013), on the difficulty of training recurrent neural networks.
    """

    code = "OPT014"
    name = "clip-too-tight"
    symptom = Symptom.UPDATE_SIZE
    since = "0.2.0"

    least_clip: Annotated[float, Threshold("limit of the gradient norm that is too low", "norm", "design", gt=0)] = 5e-5

    @property
    def needs(self) -> tuple[Need, ...]:
        return Need.beside("grad_norm")

    def judge(self, evidence: Evidence) -> Finding:
        settings, norms = Settings(evidence), evidence.find("grad_norm")
        limit = settings.clip_said
        if limit is None or settings.is_private:
            return Finding.skipped("no param clips the gradient's norm")
        sizes = norms.finite().values if norms is not None else ()
        said = f"gradients are clipped to a norm of {setting(limit.value)} ({short_name(limit.name)})"
        if limit.value > self.least_clip or (len(sizes) and median(sizes) < 0.5 * limit.value):
            return Finding.passed(said, {"clip": limit.value})
        remedy = "clip at about the norm that most steps have, often 1, or not at all"
        return Finding(verdict=Verdict.WARN, message=said, remedy=remedy, measured={"clip": limit.value})
