"""What the params of a run say that it was meant to be: a fine-tune, a distillation, stopped early, partly frozen."""

from __future__ import annotations

import re

from tracker_health.evidence import BEST_CHECKPOINT, Evidence
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
_ADAPTER = re.compile(r"(^|[^a-z])(q?lora|peft|adalora|dora)([^a-z]|$)")
_EARLY_STOPPING = re.compile(r"early_?stop|^(es_)?patience$")  # not the patience of a learning-rate schedule
_OPTIMIZER = re.compile(r"(^|[./_])opt(im(izer)?)?([./_](name|type|class|_target_))?$")
_TEACHER = re.compile(r"distil(?!bert|gpt|roberta|whisper|led)|teacher(?!.?forc)")
_MOST_OF_A_PARAM = 300
_KEEPS_BEST = ("load_best_model_at_end", "restore_best_weights")
_YES = frozenset(("true", "1", "1.0", "yes", "on"))


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


def says_adapter(evidence: Evidence) -> bool:
    """Whether a param names an adapter that is trained: LoRA and its relatives are, by Adam, on a trained model."""
    params = evidence.info.params.items()
    return any(
        _ADAPTER.search(f"{name} {value}"[:_MOST_OF_A_PARAM].lower()) and not _says_no(str(value).strip().lower())
        for name, value in params
    )


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


def _says_no(value: str) -> bool:
    return value in _NO or bool(re.fullmatch(r"-\d{1,9}(\.\d{1,9})?|0+(\.0+)?", value))


def _numbers_in(name: str) -> set[int]:
    return {int(one) for one in re.findall(r"\d{1,12}", name[-_MOST_OF_A_PARAM:])}
