"""REG003."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, isnan, nan, sqrt
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series, StepUnit
from tracker_health.evidence.numerics import median
from tracker_health.report.result import Finding
from tracker_health.rules.fine_tune._barrier import barrier_of, losses_of, number_of
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import number
from tracker_health.words.verdict import Verdict

_KEPT = (
    "kept", "n_kept", "num_kept", "kept_samples", "samples_kept", "completions", "n_completions", "num_completions",
    "n_train", "train_samples", "num_train_samples", "samples", "n_samples", "num_samples",
)  # fmt: skip
_EPOCHS = ("epochs", "num_epochs", "n_epochs", "num_train_epochs", "max_epochs")
_SKIPPED = ("skipped", "n_skipped", "num_skipped", "skipped_samples", "truncated_samples")
_BATCH = ("batch_size", "train_batch_size", "per_device_train_batch_size", "bs")
_ACCUMULATED = ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches", "accumulation_steps")
_OF_STEPS = frozenset({StepUnit.OPTIMIZER_STEP, StepUnit.UNKNOWN})  # rows that were counted, and epochs, are none


@dataclass(frozen=True, kw_only=True)
class TooLittleData(Probe):
    """The fine-tune saw fewer samples than it should have.

    What it finds:
        Fewer kept samples than the run's own `min_train`; fewer optimizer steps than samples times epochs; no sample
        that was trained at all.

    Why it matters:
        A fine-tune of a handful of samples measures those samples, and not the method.

    How it decides:
        From the params: `min_train`, the kept samples (`kept`, `completions`, `n_train`, ...), epochs, batch size and
        accumulation. Warn when there are fewer samples than `min_train`. Warn when less than `min_fraction` of the
        steps was done that samples times epochs make. Steps are the checkpoint's count, or those logged less the
        skipped samples. Fail when the nll has no finite value, or one of its last `last` is not finite. Their mean is
        the converged nll.

    Known limits:
        It judges only runs that give `min_train` or name a regulariser. Processes that share a batch are not
        recognised.

    What to do:
        Keep more samples: a larger limit of tokens, a milder filter, more prompts.

    References:
        None: plain arithmetic.
    """

    code = "REG003"
    name = "too-little-data"
    symptom = Symptom.UNDERTRAINED

    min_fraction: Annotated[
        float, Threshold("share of the optimizer steps that counts as all", "fraction", "design", gt=0, le=1)
    ] = 0.9
    last: Annotated[int, Threshold("last steps in which the nll has converged", "steps", "design", ge=2)] = 5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role="train_loss"), Need(role="skipped_samples", optional=True))

    def judge(self, evidence: Evidence) -> Finding:
        least, kept, planned = number_of(evidence, "min_train"), number_of(evidence, *_KEPT), _planned(evidence)
        if least is None and barrier_of(evidence) is None:
            return Finding.skipped("no param says min_train, or what regularises it")
        done, nll = _done(evidence, planned or 0.0), losses_of(evidence)[0]
        counts = {"kept": kept, "min_train": least, "planned": planned, "done": done}
        converged = _converged(nll, self.last) if nll is not None else {}
        measured = {name: value for name, value in counts.items() if value is not None} | converged
        if nll is not None and isnan(converged.get("converged_nll", 0.0)):
            message = f"the converged nll is NaN: {nll.clean().nonfinite} of {len(nll.clean())} values are not finite"
            remedy = "find the first sample without a trained token"
            return Finding(verdict=Verdict.FAIL, message=message, remedy=remedy, measured=measured)
        found = []
        if kept is not None and least is not None and kept < least:
            found.append(f"{number(kept)} samples were kept, and min_train is {number(least)}")
        if planned is not None and done is not None and done < self.min_fraction * planned:
            of = f"of the {number(planned)} that samples and epochs make"
            found.append(f"{number(done)} optimizer steps were done {of}")
        if found:
            remedy = "keep more samples: a larger limit of tokens, a milder filter, more prompts"
            return Finding(verdict=Verdict.WARN, message="; ".join(found), remedy=remedy, measured=measured)
        if None in (kept, least) and None in (planned, done):
            return Finding.skipped("no param says how many samples were kept")
        return Finding.passed("there were as many samples and steps as asked for", measured)


def _planned(evidence: Evidence) -> float | None:
    """Optimizer steps that samples times epochs make; the last batch of an epoch may be a small one."""
    kept, epochs = number_of(evidence, *_KEPT), number_of(evidence, *_EPOCHS)
    if kept is None or epochs is None or kept <= 0 or epochs <= 0:
        return None
    size = max(1.0, number_of(evidence, *_BATCH) or 1.0) * max(1.0, number_of(evidence, *_ACCUMULATED) or 1.0)
    return max(1.0, kept // size) * epochs


def _done(evidence: Evidence, planned: float) -> float | None:
    """Optimizer steps done: the checkpoint's, or those that were logged without the samples that were skipped. What may
    are behind the last row of a log counts up to the plan's end.
    """
    if evidence.optimizer is not None and evidence.optimizer.steps is not None:
        return float(evidence.optimizer.steps)
    logged = [
        one.clean().steps.astype(np.float64)
        for one in evidence.series
        if one.role == "train_loss" and len(one) and one.step_unit in _OF_STEPS
    ]
    if not logged:
        return None
    steps = max(logged, key=lambda one: float(one[-1]))
    unlogged = median(np.diff(steps)) - 1.0 if len(steps) > 2 else 0.0
    last = float(steps[-1]) + float(steps[0] == 0.0)
    return max(0.0, max(last, min(last + unlogged, planned)) - _skipped(evidence))


def _skipped(evidence: Evidence) -> float:
    """How many samples were skipped: a count that only grows, or one for each step."""
    series = evidence.find("skipped_samples")
    values = series.finite().values if series is not None else np.empty(0)
    if not len(values):
        return max(0.0, number_of(evidence, *_SKIPPED) or 0.0)
    with np.errstate(all="ignore"):
        only_grows = bool((values[1:] >= values[:-1]).all())
        return max(0.0, float(values[-1] if only_grows else values.sum()))


def _converged(nll: Series, last: int) -> dict[str, float]:
    """The mean of the last steps and its standard error: NaN where one is not finite, nothing where not every step was
    logged.
    """
    clean = nll.clean()
    values = clean.values[-last:]
    if not len(nll.finite()):
        return {"converged_nll": nan}
    if len(values) < last or bool((np.diff(clean.steps[-last:]) != 1).any()):
        return {}
    with np.errstate(all="ignore"):
        mean, error = float(values.mean()), float(values.std(ddof=1) / sqrt(last))
    return {"converged_nll": mean, "converged_nll_error": error} if isfinite(mean) else {"converged_nll": nan}
