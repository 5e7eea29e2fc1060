"""What several rules ask of a run as a whole: its learning rates, whether it began from a trained model, how far its
loss came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracker_health.evidence import BEST_CHECKPOINT, Evidence, FloatArray, Series
from tracker_health.evidence.numerics import local_noise, median, median_error, start_level
from tracker_health.text import printable, short_name

_BASE_MODEL_PARAMS = (
    "base_model",
    "base_model_name_or_path",
    "model_name_or_path",
    "_name_or_path",
    "pretrained",
    "init_checkpoint",
)
_NO = frozenset(("", "none", "null", "false", "no", "off", "[]", "{}", "()"))
_EARLY_STOPPING = re.compile(r"early_?stop|^(es_)?patience$")  # not the patience of a learning-rate schedule
_OPTIMIZER = re.compile(r"(^|[./_])optim(izer)?([./_](name|type|class|_target_))?$")
_TEACHER = re.compile(r"distil(?!bert|gpt|roberta|whisper|led)|teacher(?!.?forc)")
_MOST_OF_A_PARAM = 300
_KEEPS_BEST = ("load_best_model_at_end", "restore_best_weights")
_YES = frozenset(("true", "1", "1.0", "yes", "on"))
SMOKE_STEPS = 10
"""Of fewer optimizer steps nothing can be said."""

_WHOLE = 0.99
_FEWEST_POINTS = 8
_SURE = 3.0  # standard errors
_NEARLY = 0.05
_LITTLE = 0.9


def learning_rates(evidence: Evidence) -> list[Series]:
    """The logged learning rates, a series for each group of parameters, without what is not finite."""
    return evidence.rates_logged


def rate_since(evidence: Evidence, step: int) -> float | None:
    """The first learning rate that was logged at a step or after it, as a share of the highest; of several groups that
    of the one where it is the largest. None where there is none, or all are 0.
    """
    found = [
        float(later[0] / rate.values.max())
        for rate in learning_rates(evidence)
        if len(later := rate.values[rate.steps >= step]) and rate.values.max() > 0
    ]
    return max(found, default=None)


def optimizers_named(evidence: Evidence) -> list[str]:
    """What the params call the optimizer, in lower case."""
    params = evidence.info.params.items()
    return [
        value[:_MOST_OF_A_PARAM].lower()
        for name, value in params
        if _OPTIMIZER.search(name[-_MOST_OF_A_PARAM:].lower())
    ]


def is_fine_tuning(evidence: Evidence) -> bool:
    """Whether an adapter, or a param that names a base model, shows that the run began from a trained one."""
    if evidence.weights is not None and evidence.weights.has_adapter:
        return True
    params = evidence.info.params
    return any(str(params.get(name, "")).lower() not in ("", "none", "false", "0") for name in _BASE_MODEL_PARAMS)


def early_stopping(evidence: Evidence) -> str:
    """What shows that the run was set up to stop early; empty where nothing does."""
    for name, value in evidence.info.params.items():
        if _EARLY_STOPPING.search(name.lower()) and not _says_no(str(value).strip().lower()):
            return short_name(name)
    return evidence.optimizer.early_stopping if evidence.optimizer is not None else ""


def is_distillation(evidence: Evidence) -> bool:
    """Whether the run's params speak of a teacher, to whose answers the loss compares the model's."""
    said = (f"{name} {value}"[:_MOST_OF_A_PARAM].lower() for name, value in evidence.info.params.items())
    return any(_TEACHER.search(one) for one in said)


def says_frozen(evidence: Evidence) -> bool:
    """Whether the run's own params speak of freezing."""
    return any(
        re.search(r"(?<!un)freez|frozen", name.lower()) and not _says_no(str(value).strip().lower())
        for name, value in evidence.info.params.items()
    )


def _says_no(value: str) -> bool:
    return value in _NO or bool(re.fullmatch(r"-\d{1,9}(\.\d{1,9})?|0+(\.0+)?", value))


def why_too_few_steps(evidence: Evidence, fewest: int) -> str:
    """Why nothing is said of what the optimizer's steps did; empty where it did enough of them."""
    known = evidence.steps_at_least
    if known.steps >= fewest:
        return ""
    by = f"{known.steps}, counted by {printable(known.by, 80)}" if known.by else "none"
    return f"fewer than {fewest} optimizer steps are known: {by}"


def is_smoke_test(evidence: Evidence, fewest: int = SMOKE_STEPS) -> bool:
    """Whether all of the plan was done, and it was fewer optimizer steps than say anything: a test of the code."""
    steps, progress = evidence.optimizer_steps, evidence.progress
    if steps is None or progress is None or progress.snapshot:
        return False
    return steps < fewest and progress.fraction >= _WHOLE


def best_kept(evidence: Evidence, step: int) -> str:
    """What was kept of the model as it was best, at a step: a checkpoint's name, or the param that says that it was
    loaded again at the end. Empty where nothing shows it.
    """
    params = evidence.info.params
    named = str(params.get(BEST_CHECKPOINT, ""))
    for name in _KEEPS_BEST:
        if str(params.get(name, "")).strip().lower() in _YES:
            return printable(named, 80) or name
    sources = [one.source for one in (evidence.weights, evidence.optimizer) if one is not None]
    kept = [*([named] if named else []), *sources]
    return next((printable(one, 80) for one in kept if step in _numbers_in(one)), "")


def _numbers_in(name: str) -> set[int]:
    return {int(one) for one in re.findall(r"\d{1,12}", name[-_MOST_OF_A_PARAM:])}


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How far a training loss came.

    ``share``: from its start to the median of the last quarter, over the size of the start. ``lost``: how much of the
    way down to its best level it has lost again, from 0 to 1 or more. ``sure``: the fall is beyond three standard
    errors of those levels. ``at_once``: it was nearly whole with the third point, or within a hundredth of the run, and
    of what was left then less than a tenth was learnt: what fell was a loss that the first steps had thrown up.
    """

    share: float
    lost: float
    sure: bool
    at_once: bool


def descent(evidence: Evidence) -> Descent | None:
    """How far the training loss came; None where there is none, or too little of it to tell."""
    loss = evidence.find("train_loss")
    return descent_of(loss.finite().values if loss is not None else np.empty(0))


def descent_of(values: FloatArray) -> Descent | None:
    """How far the values of a loss came, none of which is NaN; None where they are too few to tell."""
    if len(values) < _FEWEST_POINTS:
        return None
    noise = local_noise(values)
    start = start_level(values, max(1, min(3, len(values) // 10)), noise)
    levels = [median(part) for part in np.array_split(values, min(16, len(values) // 2))]
    quarter = max(2, len(values) // 4)
    end = median(values[-quarter:])
    best = min(*levels, end)
    with np.errstate(all="ignore"):
        share = float(np.float64(start - end) / np.abs(start)) if start != 0 else 0.0
        lost = float((end - best) / (start - best)) if start > best else 1.0
    error = float(np.hypot(median_error(noise, 1), median_error(noise, quarter)))
    return Descent(share=share, lost=lost, sure=start - end > _SURE * error, at_once=_at_once(values, end))


def _at_once(values: FloatArray, end: float) -> bool:
    """Whether the loss came down within its first points, and hardly any further."""
    n = len(values)
    first = max(3, n // 100)
    early = median(values[first : first + max(3, n // 10)])
    return bool(early <= end + _NEARLY * (values[0] - end) and end >= _LITTLE * early)
