"""What a run's record says of the runs that it belongs with: plain data, and what of the params counts for that."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tracker_health.roles import RolePlan

MOST_RESULTS = 12
_MOST_NAMES, _MOST_PARAMS, _MOST_CALLED, _CHARACTERS = 2_000, 1_000, 20, 200

BETTER: Mapping[str, bool] = {
    "val_accuracy": True,
    "val_auc": True,
    "higher_better_val": True,
    "lower_better_val": False,
    "val_reward": True,
    "train_reward": True,
    "val_loss": False,
    "train_loss": False,
}
"""The roles of results, the one that says most of a model first; whether more is better."""

_RANKS = frozenset(("global_rank", "process_index", "process_rank", "world_rank", "dist_rank", "rank"))
_WORLDS = frozenset(("world_size", "num_processes", "n_ranks", "num_ranks"))
_FOLDS = frozenset(("fold", "cv_fold", "fold_id", "fold_idx", "fold_index", "split_index", "split_idx", "cv_split"))
_SEEDS = frozenset(("seed", "random_seed", "random_state", "data_seed", "rng_seed", "manual_seed", "global_seed"))
# A name alone may be of something else: `rank` is also that of an adapter.
_SHELVES = frozenset(("", "dist", "distributed", "ddp", "fsdp", "trainer", "env", "runtime", "cv", "data"))
_OF_THE_PLACE = frozenset(
    (
        "device", "gpu", "gpu_id", "cuda_visible_devices", "host", "hostname", "node", "node_name", "pid", "port", "ip",
        "master_addr", "master_port", "output_dir", "logging_dir", "log_dir", "run_name", "run_id", "name", "job_id",
        "start_time", "timestamp", "date",
    )
)  # fmt: skip
_WHOLE = re.compile(r"\d{1,7}(\.0)?")
_IN_NAME = r"(?<![a-z0-9]){}[-_ =#:]{{0,2}}(\d{{1,7}})(?![\d.])"
_RANK_IN_NAME = re.compile(_IN_NAME.format(r"(?:global[-_ ]?)?rank"), re.IGNORECASE)
_WORKER_IN_NAME = re.compile(_IN_NAME.format(r"(?:worker|process)"), re.IGNORECASE)
_FOLD_IN_NAME = re.compile(_IN_NAME.format(r"(?:cv[-_ ]?)?(?:fold|split)"), re.IGNORECASE)
_ADAPTER = re.compile(r"(?<![a-z])(?:lora|dora|adapter|low)[-_ ]?$", re.IGNORECASE)

_PLAN = RolePlan(wanted=frozenset(BETTER))


@dataclass(frozen=True, kw_only=True)
class Result:
    """The last value of a metric that has a role. ``higher``: whether more of it is better."""

    name: str
    role: str
    value: float
    higher: bool


@dataclass(frozen=True, kw_only=True)
class Kin:
    """What a run's record says of the runs that it belongs with.

    ``where``: its project or experiment, beyond which nothing belongs together; ``id``: of the run there. ``group``,
    ``job_type`` and ``sweep``: as W&B has them; ``parent``: the id of MLflow's parent run; ``is_trial``: a search says
    so. ``rank``: among the processes of one training; ``rank_sure``: by a word that means nothing else; ``world``: how
    many these are. ``fold`` and ``seed``: as the params, or the name, say. ``named`` and ``others``: digests of the
    names of all other params, and of these with their values; empty where there are none.

    ``started`` and ``ended``: in seconds since 1970, None where that is not known, or it is still running.
    ``last_step``: of its history, None where that is not known. ``results``: what its record has. ``state``: how far it
    has come, whatever was annotated since.
    """

    where: str
    id: str
    name: str
    group: str = ""
    job_type: str = ""
    sweep: str = ""
    parent: str = ""
    is_trial: bool = False
    rank: int | None = None
    rank_sure: bool = False
    world: int | None = None
    fold: int | None = None
    seed: str = ""
    named: str = ""
    others: str = ""
    started: float | None = None
    ended: float | None = None
    last_step: int | None = None
    results: tuple[Result, ...] = ()
    state: str = ""


def settings_of_kin(
    params: Mapping[str, Any], names: Sequence[str] = (), tags: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What is said of a run's rank, fold and seed by its params, its tags or its name; digests of all other params.

    Args:
        params: The run's params, flat, with dots, slashes or underscores between the parts of a name.
        names: What it is called: its name, its job type, tags without a value.
        tags: Its tags with their values; those that say none of these things do not count.

    Returns:
        Fields of ``Kin``, by name.
    """
    said: dict[str, dict[str, str]] = {"rank": {}, "node": {}, "world": {}, "fold": {}, "seed": {}}
    rest: dict[str, str] = {}
    known = [(str(key), value, True) for key, value in sorted(islice(params.items(), _MOST_PARAMS), key=_name)]
    known += [(str(key), value, False) for key, value in sorted(islice((tags or {}).items(), _MOST_PARAMS), key=_name)]
    for key, value, is_param in known:
        text = str(value)[:_CHARACTERS]
        kind, word = _kind_of(key[:_CHARACTERS])
        if kind in said:
            said[kind].setdefault(word, text)
        elif is_param and kind != "place":
            rest[key[:_CHARACTERS]] = text
    called = [name[:_CHARACTERS] for name in islice(names, _MOST_CALLED)]
    rank, sure = _rank_of(said, called)
    fold = next(filter(_is_known, map(_whole, said["fold"].values())), None)
    return {
        "rank": rank,
        "rank_sure": sure,
        "world": next(filter(_is_known, map(_whole, said["world"].values())), None),
        "fold": _in_name(_FOLD_IN_NAME, called) if fold is None else fold,
        "seed": " ".join(f"{key}={value}" for key, value in sorted(said["seed"].items()))[:_CHARACTERS],
        "named": _digest_of(sorted(rest)) if rest else "",
        "others": _digest_of(sorted(rest.items())) if rest else "",
    }


def _kind_of(key: str) -> tuple[str, str]:
    """What a param is for kinship, and the word that says it; "" for a setting like any other."""
    parts = [part for part in re.split(r"[./:\s]+", key.lower().replace("-", "_")) if part]
    word, shelf = (parts[-1], parts[-2] if len(parts) > 1 else "") if parts else ("", "")
    if word in _RANKS and (word != "rank" or shelf in _SHELVES):
        return "rank", word
    if word in ("node_rank", "local_rank"):
        return "node", word
    for kind, words in (("world", _WORLDS), ("fold", _FOLDS), ("seed", _SEEDS)):
        if word in words and (kind != "fold" or shelf in _SHELVES):
            return kind, word
    return ("place", word) if word in _OF_THE_PLACE else ("", word)


def _name(item: tuple[str, Any]) -> str:
    return str(item[0])


def _rank_of(said: Mapping[str, Mapping[str, str]], called: Sequence[str]) -> tuple[int | None, bool]:
    """The rank, and whether the word for it means nothing else."""
    for word in sorted(said["rank"], key=lambda word: word == "rank"):
        if (rank := _whole(said["rank"][word])) is not None:
            return rank, word != "rank"
    node, local = _whole(said["node"].get("node_rank", "")), _whole(said["node"].get("local_rank", ""))
    named = _in_name(_RANK_IN_NAME, called)
    if named is not None:
        return named, False
    if node is not None or local is not None:
        # Of one node the local rank is the rank; of several, ranks are told apart by both.
        return (node or 0) * 10_000 + (local or 0), True
    return _in_name(_WORKER_IN_NAME, called), False


def _in_name(pattern: re.Pattern[str], called: Sequence[str]) -> int | None:
    for name in called:
        for found in pattern.finditer(name):
            if not _ADAPTER.search(name[: found.start()]):
                return int(found[1])
    return None


def _whole(text: str) -> int | None:
    return int(float(text)) if _WHOLE.fullmatch(text.strip()) else None


def _is_known(number: int | None) -> bool:
    return number is not None


def results_of(last: Mapping[str, float]) -> tuple[Result, ...]:
    """The results among the last values of a run's metrics.

    Args:
        last: The last value of each metric.

    Returns:
        Those that are finite and have a role of ``BETTER``, the one that says most first.
    """
    names = [name for name in islice(last, _MOST_NAMES) if len(name) <= _CHARACTERS]
    found = [
        Result(name=name, role=role, value=float(last[name]), higher=BETTER[role])
        for name, role in _PLAN.of(names).needed.items()
        if math.isfinite(last[name])
    ]
    order = list(BETTER)
    return tuple(sorted(found, key=lambda one: (order.index(one.role), one.name))[:MOST_RESULTS])


def _digest_of(content: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(content)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
