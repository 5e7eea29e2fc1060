"""The files of a model by their names, whatever library wrote them, and which of them nothing was read from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from tracker_health.run_files.tree import FileEvidence, RunFile
from tracker_health.text import count, listing, printable

_READ = re.compile(r".*\.(safetensors|pt2?|pth|ckpt|distcp)", re.IGNORECASE | re.DOTALL)

# What is a model by its suffix alone, and what may be something else unless its name says so.
_OTHERS = re.compile(
    r".*\.(onnx|onnx[._]data|skops|keras|tflite|gguf|ggml|mlmodel|pdmodel|pdparams|pdiparams|ubj|xgb|lgb|cbm?|pte|ptl"
    r"|mar|h2o)|saved_model\.pb|.*\.data-\d{5}-of-\d{5}",
    re.IGNORECASE | re.DOTALL,
)
_PERHAPS = re.compile(
    r".*\.(pkl|pickle|joblib|dill|cloudpickle|h5|hdf5|npz|msgpack|pb|zip|rds|bin|engine|plan|mdl|model|dat)",
    re.IGNORECASE | re.DOTALL,
)
_SAYS_MODEL = re.compile(r"model|checkpoint|ckpt|weights|params|estimator|classifier|regressor", re.IGNORECASE)
_NOT_THE_MODEL = re.compile(
    r"(optimizer|scheduler|scaler|rng_state|random_states|training_args|tokenizer|vocab|spiece|sentencepiece|merges"
    r"|MLmodel|requirements|conda|python_env|input_example|serving_input_example|README|LICENSE).*"
    r"|.*\.(ya?ml|txt|md|py|toml|cfg|ini|log|csv|tsv|parquet|png|jpe?g|svg|html|ipynb|lock|jsonl|tiktoken)",
    re.IGNORECASE | re.DOTALL,
)
_MOST_NAMED = 3


def of_other_formats(files: Iterable[RunFile]) -> list[str]:
    """The files of a run that are a model's by their names, and of no format that is read."""
    return [file.path for file in files if _OTHERS.fullmatch(file.name) or _named(file.name)]


def is_description(name: str) -> bool:
    """Whether a file of this name describes a model, or goes with it, and is not the model itself."""
    return bool(_NOT_THE_MODEL.fullmatch(name))


def why_unread(found: FileEvidence) -> str:
    """Why the files of a registered model were not all read, from what came of them; empty where they were."""
    unread = [file for file in found.files if file.path not in found.read and not is_description(file.name)]
    models = [file.path for file in unread if _may_be_model(file.name)]
    if not found.read and not models and unread:
        # Whatever wrote it: what is no description is the model.
        models = [max(unread, key=lambda file: (not file.name.endswith(".json"), file.size)).path]
    weights = found.weights
    if weights is not None and weights.unread:
        every = count(len(weights.tensors) + weights.left_out, "tensor")
        return f"{weights.unread} of {every} of {printable(weights.source)} were not read, or not to their end"
    return nothing_read_from(models) if models else ""


def nothing_read_from(paths: list[str]) -> str:
    """The reason why weights are missing that are in these files."""
    return f"no weights are read from {listing(sorted(paths), _MOST_NAMED)}"


def _may_be_model(name: str) -> bool:
    return any(one.fullmatch(name) for one in (_READ, _OTHERS, _PERHAPS))


def _named(name: str) -> bool:
    return bool(_PERHAPS.fullmatch(name) and _SAYS_MODEL.search(PurePosixPath(name).stem))
