"""REG005."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.evidence.numerics import median
from tracker_health.facts.intent import is_distillation
from tracker_health.report.result import Finding
from tracker_health.roles import LOSS_PART, OBJECTIVE_LOSS, REWARDS, words_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number, short_name, went
from tracker_health.words.verdict import Verdict

_KL = frozenset({"kl", "kld"})
_RECONSTRUCTION = frozenset({"recon", "recons", "reconst", "reconstr", "reconstruction", "elbo", "nelbo", "vae"})
_AUTOENCODER = re.compile(r"(^|[^a-z])(beta|conv|c|cond)?[-_ ]?vae([^a-z]|$)")
_MODEL = re.compile(r"(^|[./_])(model|arch|architecture|network)([./_](name|type|class))?$")
_OTHER_KL = frozenset(
    {"policy", "actor", "critic", "entropy", "reward", "rewards", "teacher", "student", "distill", "distillation"}
)


@dataclass(frozen=True, kw_only=True)
class LatentCollapse(Probe):
    """The latent variables of a variational autoencoder say nothing.

    What it finds:
        A KL divergence to the prior that came down to nothing, next to a reconstruction loss.

    Why it matters:
        A divergence of 0 means that every input has the prior as its code. The decoder sees noise, and gives the mean
        of the data for every input. The loss comes down smoothly nevertheless.

    How it decides:
        Only where metric names or params mention a reconstruction, an ELBO or a VAE. Warn when the median of
        the KL's second half is `collapse` nats at most. It must also be at most `share` of a loss next to it,
        and the KL `least_fall` times as high before: of 89 healthy ones none had come down to a quarter. Not in
        reinforcement learning, nor next to a teacher. It needs `min_points` points.

    Known limits:
        Needs 8 points of a KL called so. The KL does not come down to nothing where each latent variable has free bits,
        or where it is logged with a large weight. A collapse of only some latent variables is not detected.

    Worked example:
        train_loss recon_loss: 100 60 50 40 40 40 40 40
        kl: 3 1 0.2 0.1 0.004 0.004 0.004 0.004
        gives: kl 0.004, highest_kl 3
        warn: 0.004 is below `collapse`, below 3 / `least_fall` = 0.1, and below `share` of the loss of 40, 0.8.

    What to do:
        Raise the weight of the KL slowly from 0, leave each latent variable some free bits, or take a weaker decoder.

    References:
        Bowman et al. (2016); Lucas et al. (2019) on posterior collapse.
    """

    code = "REG005"
    name = "latent-collapse"
    symptom = Symptom.COLLAPSED

    collapse: Annotated[float, Threshold("KL that is nothing", "nats", "calibration", gt=0)] = 0.01
    least_fall: Annotated[float, Threshold("its highest value over what is left", "ratio", "calibration", gt=1)] = 30.0
    share: Annotated[float, Threshold("the same, of the loss next to it", "fraction", "calibration", gt=0)] = 0.02
    min_points: Annotated[int, Threshold("points of the KL needed", "points", "design", ge=4)] = 8

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="kl", any_of=(LOSS_PART, OBJECTIVE_LOSS)), *Need.beside("train_loss", *REWARDS))

    def judge(self, evidence: Evidence) -> Finding:
        kl = next((one.finite() for one in evidence.series if _is_kl(one)), None)
        if kl is None or len(kl) < self.min_points:
            return Finding.skipped("there are too few points of a KL divergence, or none")
        if _is_of_another_kind(evidence) or not _is_autoencoder(evidence):
            return Finding.skipped("nothing says that the KL is one of a variational autoencoder")
        sizes = np.abs(kl.values)
        late, highest = median(sizes[len(sizes) // 2 :]), float(sizes.max())
        bound = min(self.collapse, highest / self.least_fall, self.share * _level(evidence.find("train_loss")))
        measured = {"kl": late, "highest_kl": highest}
        name = short_name(kl.name)
        if late > bound or highest == 0.0:
            return Finding.passed(f"{name} has a median of {number(late)} in the second half of the run", measured)
        return Finding(
            verdict=Verdict.WARN,
            message=f"{name} {went(highest, late, 'came down')}: the latent variables say nothing of "
            "what is reconstructed",
            remedy="raise the weight of the KL slowly from 0, leave each latent variable free bits, or take a weaker "
            "decoder",
            measured=measured,
        )


def _is_kl(series: Series) -> bool:
    return series.role == "kl" or (
        series.role in (LOSS_PART, OBJECTIVE_LOSS) and not _KL.isdisjoint(words_of(series.name))
    )


def _level(loss: Series | None) -> float:
    """The size of the loss in the second half of the run; infinite where there is none."""
    sizes = np.abs(loss.finite().values) if loss is not None else np.empty(0)
    return median(sizes[len(sizes) // 2 :]) if len(sizes) else np.inf


def _is_of_another_kind(evidence: Evidence) -> bool:
    """Whether the KL may well be one of a policy, or of a teacher's answers."""
    rewarded = any(one.role in REWARDS for one in evidence.series)
    named = any(_OTHER_KL & {*words_of(one)} for one in evidence.info.metric_names)
    return rewarded or named or is_distillation(evidence)


def _is_autoencoder(evidence: Evidence) -> bool:
    """Whether a metric's name speaks of a reconstruction, or the model's of a variational autoencoder."""
    reconstructs = any(not _RECONSTRUCTION.isdisjoint(words_of(name)) for name in evidence.info.metric_names)
    models = (value[:200].lower() for name, value in evidence.info.params.items() if _MODEL.search(name[-200:].lower()))
    return reconstructs or any(_AUTOENCODER.search(one) for one in models)
