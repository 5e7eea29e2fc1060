"""A run's own settings, as training scripts write them next to the log (``config.json``, ``hparams.yaml``).

Only plain values are taken: those at the top, and those one level below a block that is about the training
(``trainer:``, as Lightning's and Hydra's files have it). A pretrained model's ``config.json`` says nothing of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tracker_health.errors import ReadError
from tracker_health.readers.files.json_lines import MAX_NAME_CHARACTERS, param_text, parse_json
from tracker_health.readers.files.regular_file import open_regular, read_regular

SETTINGS_FILE = re.compile(
    r"(config|args|params|hparams|training_args|train_args|train_config)\.(json|ya?ml)|(ds|deepspeed)(_\w{1,40})?\.json|"
    r"(\w{1,40}\.)?monitor\.csv"
)
_OF_DEEPSPEED = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"})
_DEEPSPEED_BLOCKS = ("optimizer", "scheduler")
_TRAINING = re.compile(r"train(er|ing)?(_args|_config)?|hparams|hyper_?param(eter)?s|args|params|optim(ization)?")
_OF_A_MODEL = frozenset({"architectures", "model_type", "transformers_version", "_class_name"})
_MOST_BYTES_OF_JSON, _MOST_BYTES_OF_YAML = 2**20, 2**16  # whose reader is slow
_MOST_PARAMS = 1000
_LONGEST_COMMENT = 1000  # bytes


def read_run_settings(path: Path) -> dict[str, str]:
    """The settings in a file, as text; none where it has no names for its values. Of what is said at the top and again
    in a block, the top counts; what two blocks say differently is left out.

    Raises:
        ReadError: it is too large, or no such JSON or YAML.
        OSError: it cannot be read.
    """
    if path.name.endswith(".csv"):
        return _of_a_monitor(path)
    is_json = path.name.endswith(".json")
    most = _MOST_BYTES_OF_JSON if is_json else _MOST_BYTES_OF_YAML
    document = _parsed(read_regular(path, most), is_json=is_json)
    if not isinstance(document, dict) or not _OF_A_MODEL.isdisjoint(document):
        return {}
    if path.name.startswith(("ds", "deepspeed")):
        known = dict(_of_deepspeed(document)) if not _OF_DEEPSPEED.isdisjoint(document) else {}
        return dict(list(known.items())[:_MOST_PARAMS])
    told: dict[str, set[str]] = {}
    for key, block in document.items():
        if isinstance(block, dict) and isinstance(key, str) and _TRAINING.fullmatch(key.lower()):
            for name, value in _plain(block):
                told.setdefault(name, set()).add(value)
    agreed = {name: next(iter(values)) for name, values in told.items() if len(values) == 1}
    settings = {**agreed, **dict(_plain(document))}
    return dict(list(settings.items())[:_MOST_PARAMS])


def _of_a_monitor(path: Path) -> dict[str, str]:
    """The environment, as the first line of an agent's monitor has it: ``#{"t_start": 1.7e9, "env_id": "..."}``."""
    with open_regular(path) as file:
        first = file.read(_LONGEST_COMMENT).partition(b"\n")[0]
    try:
        said = parse_json(first.removeprefix(b"#")) if first.startswith(b"#{") else None
    except (ValueError, RecursionError):
        return {}
    name = said.get("env_id") if isinstance(said, dict) else None
    return {"env_id": param_text(name)} if isinstance(name, str) else {}


def _of_deepspeed(document: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    """What a DeepSpeed configuration sets of the optimizer and its schedule, by names of its own: where the trainer has
    a value too, both are known.
    """
    for block in _DEEPSPEED_BLOCKS:
        inside = document.get(block)
        params = inside.get("params") if isinstance(inside, dict) else None
        for name, text in _plain(params) if isinstance(params, dict) else ():
            if text != "auto":
                yield f"deepspeed.{block}.{name}", text


def _parsed(content: bytes, *, is_json: bool) -> Any:
    if is_json:
        try:
            return parse_json(content)
        except (ValueError, RecursionError) as error:
            raise ReadError("it is not JSON of a sane size") from error
    import yaml  # where there is such a file: to import it takes longer than to read most runs

    # In Python: libyaml's own overflows the stack where this raises RecursionError. Without merge keys (<<), of which a
    # few can ask for gigabytes.
    loader: Any = type("_Loader", (yaml.SafeLoader,), {"flatten_mapping": lambda _loader, _node: None})
    # Tags that are not plain YAML, as Lightning writes them for objects, are left out.
    loader.add_constructor(None, lambda _loader, _node: None)
    try:
        return yaml.load(content, loader)  # noqa: S506  it is a SafeLoader
    except Exception as error:  # of a tag that does not fit its text (`!!bool foo`) it raises anything
        raise ReadError("it is not YAML with plain values") from error


def _plain(block: Mapping[Any, Any]) -> Iterator[tuple[str, str]]:
    for name, value in block.items():
        if isinstance(name, str) and len(name) <= MAX_NAME_CHARACTERS and isinstance(value, (str, int, float)):
            yield name, param_text(value)
