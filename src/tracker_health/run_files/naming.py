"""What the names of a run's files say: which belong to one training, and which of them is the newest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tracker_health.report.resume_point import Counted
from tracker_health.text import without_numbers

# Folders of which a trainer leaves one after the other in a single run. A number in any other folder tells runs apart,
# and so does one in a file after a word that says so.
_CHECKPOINT_FOLDER = re.compile(
    r"(.*[-_=.])?(checkpoint|ckpt|chkpt|global_?step|step|epoch|iter|iteration|part)s?[-_=.]?\d.*|v\d+",
    re.IGNORECASE | re.DOTALL,
)
_OWN = (
    *("run", "seed", "fold", "trial", "exp", "experiment", "job", "rank", "worker", "optimizer", "gpu", "device"),
    *("node", "client", "agent", "replica", "split"),
)
_OF_ITS_OWN = re.compile(rf"(.*[-_.])?({'|'.join(_OWN)})[-_=.]?\d.*", re.IGNORECASE | re.DOTALL)

MAX_PATH_CHARACTERS = 4096

_SUFFIXES = frozenset({"pt", "pt2", "pth", "ckpt", "bin", "safetensors", "tar", "pkl", "zip"})
_LAST = frozenset({"last", "latest", "final", "newest"})
_STAGES = frozenset({"stage", "phase"})
# Words that say nothing but that this is a checkpoint, or which one of a training's, alone or before a number.
_WHICH_ONE = _LAST.union(
    ("best", "model", "checkpoint", "ckpt", "chkpt", "weights", "epoch", "epochs", "ep", "step", "steps", "global"),
    ("iter", "iters", "iteration", "iterations"),
)
_COUNTED = _WHICH_ONE.union(
    _STAGES, ("e", "it", "v", "version", "part", "kimg", "of", "ba", "batch", "tokens", "sample", "samples")
)
# What a checkpoint was measured by: these mean something else where no number or "best" is next to them.
_MEASURED = frozenset(
    ("val", "valid", "validation", "test", "eval", "dev", "train", "loss", "acc", "accuracy", "auc", "auroc", "f1"),
).union(
    ("score", "metric", "map", "iou", "miou", "dice", "bleu", "rouge", "ppl", "perplexity", "mse", "mae", "rmse", "r2"),
    ("psnr", "ssim", "error", "err", "wer", "cer", "top1", "top5", "precision", "recall", "kappa", "mcc", "nll"),
    ("bbox", "segm", "coco", "ap", "fid", "reward"),
)
# Words before a number that say what it counts. After any other it only says which checkpoint this is, unless the word
# says that it counts something else.
_STEPS = frozenset(("step", "steps", "iter", "iters", "iteration", "iterations", "it", "update", "updates", "ba"))
_EPOCHS = frozenset(("epoch", "epochs", "ep", "e"))
_OF_A_CHECKPOINT = frozenset(("model", "checkpoint", "ckpt", "chkpt", "weights", "state", "net", "network", "save"))
_COUNTS_ELSE = _MEASURED.union(_OWN, _STAGES, ("v", "version", "part", "of", "kimg", "tokens", "sample", "samples"))
_SHARD = re.compile(r"-\d{1,6}-of-\d{1,6}(?!\d)")
_MOST_DIGITS = 15
_TOKEN = re.compile(r"(?<![a-z0-9])(?:f1|r2|top[15])(?![a-z0-9])|[^\W\d_]+|\d+(?:\.\d+)?(?:e-?\d+)?(?:[kmb](?![a-z]))?")
_NOT_FINITE = frozenset({"nan", "inf"})
_THOUSANDS = {"k": 10**3, "m": 10**6, "b": 10**9}
_SCALED = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([kmb])")


def saying(words: str) -> str:
    """A pattern for the beginning of a name, up to the first of some words (``log|logs``) that is between dots,
    hyphens and underscores. Tried once: with each of a thousand words, the rest of a long name would be gone through.
    """
    return rf"(?>.*?(?<![^-_.])(?:{words})(?![^-_.]))"


def is_plain(path: str) -> bool:
    """Whether a path stays below where it starts, and no file system is asked for a longer one than there can be. Paths
    come from servers and from model names.
    """
    if len(path) > MAX_PATH_CHARACTERS or "\\" in path or "\0" in path:
        return False
    return not {"", ".", ".."}.intersection(path.split("/"))


def numbers(path: str) -> tuple[int, ...]:
    """The numbers in a path, to sort by: ``checkpoint-10`` comes after ``checkpoint-2``."""
    return tuple(int(digits) for digits in re.findall(r"\d{1,18}", path))


def series_of(path: str) -> str:
    """The path with the numbers masked in which the checkpoints, or the pieces of a log, of one run differ."""
    *folders, name = path.split("/")
    masked = [without_numbers(folder) if _CHECKPOINT_FOLDER.fullmatch(folder) else folder for folder in folders]
    return "/".join([*masked, name if _OF_ITS_OWN.fullmatch(name) else without_numbers(name)])


def checkpoints_of(path: str) -> str:
    """A key that is equal for all checkpoints that one training may leave in a place: numbered ones, the best and the
    last one.
    """
    *folders, name = path.split("/")
    return "/".join([*filter(None, map(_place, folders)), _essence(_without_suffixes(name))])


def _without_suffixes(name: str) -> str:
    parts = name.split(".")
    while len(parts) > 1 and parts[-1].lower() in _SUFFIXES:
        parts.pop()
    return ".".join(parts)


def age(path: str) -> tuple[float, int, tuple[int, ...]]:
    """To sort the checkpoints of one training by: its stage, what it is called, its numbers."""
    stages = re.findall(rf"(?:{'|'.join(sorted(_STAGES))})[-_=.]?(\d{{1,9}})", path.lower())
    counted = _counts(path)
    # One that has no number is written over each time, or when the training ends.
    called = _standing(path) or int(not counted)
    return float(stages[-1]) if stages else float("inf") if called > 0 else 0.0, called, counted


def _standing(path: str) -> int:
    """1 for a checkpoint that is called the last one, -1 for the best one: it may be older than those with numbers."""
    words = set(re.findall(r"[a-z]+", "/".join(path.lower().split("/")[-2:])))
    return int(not _LAST.isdisjoint(words)) - int("best" in words)


def _counts(path: str) -> tuple[int, ...]:
    """The numbers in a path without those that a checkpoint was measured by: ``step_2k`` comes after ``step_900``."""
    found: list[int] = []
    before = ""
    for token in _tokens(path.lower()):
        if token.is_number and before not in _MEASURED:
            number = _SCALED.fullmatch(token.text)
            scaled = (int(float(number[1]) * _THOUSANDS[number[2]]),) if number else numbers(token.text)
            found.extend(scaled)
        before = token.text
    return tuple(found)


def _place(folder: str) -> str:
    """A folder, as far as it tells trainings apart: not ``checkpoints``, ``best`` or ``epoch-3``."""
    if not _CHECKPOINT_FOLDER.fullmatch(folder):
        return folder if re.search(r"\d", folder) or _essence(folder) else ""
    return _essence(folder)


def is_one_of_several(folder: str) -> bool:
    """Whether a folder's name is that of one checkpoint, next to which others may be."""
    return bool(_CHECKPOINT_FOLDER.fullmatch(folder) and _counted_in(folder))


def saved_together(path: str, *, is_part: bool = False) -> str:
    """The folder whose files are one checkpoint with this one: ``a/checkpoint-500`` for all below it; else the path.

    ``is_part``: the name is that of one of several parts, whatever numbers it has. A folder counts where its number
    says nothing else than the names in it: not ``epochs50`` for ``step_100.pt``.
    """
    parts = path.split("/")
    known, end = Counted() if is_part else _counted_in(_without_suffixes(parts[-1])), len(parts)
    for at in range(len(parts) - 2, -1, -1):
        around = _counted_in(parts[at]) if _CHECKPOINT_FOLDER.fullmatch(parts[at]) else Counted()
        if around and known and set(around).isdisjoint(set(known) - {None}):
            break
        if around:
            known, end = around, at + 1
    return "/".join(parts[:end])


def counted(path: str) -> Counted:
    """When a checkpoint was saved, by its name, and where that says nothing by the folders around it: those that a
    trainer leaves one after the other in a run.
    """
    *folders, name = path.split("/")
    around = [folder for folder in reversed(folders) if _CHECKPOINT_FOLDER.fullmatch(folder)]
    return next((one for part in (_without_suffixes(name), *around) if (one := _counted_in(part))), Counted())


def _counted_in(name: str) -> Counted:
    step, epoch, numbers_alone = None, None, list[int]()
    tokens = _tokens(_SHARD.sub("", name.lower()))
    for at, token in enumerate(tokens):
        number = _whole(token.text) if token.is_number else None
        before = tokens[at - 1] if at else None
        if number is None:
            continue
        if before is not None and before.text in _STEPS:
            step = number
        elif before is not None and before.text in _EPOCHS:
            epoch = number
        elif before is None or before.text in _OF_A_CHECKPOINT or _stands_apart(token, before):
            numbers_alone.append(number)
    return Counted(step, epoch, max(numbers_alone, default=None) if step is None and epoch is None else None)


def _stands_apart(token: _Token, before: _Token) -> bool:
    """Whether a number behind some name (``unet-100``) is no part of it, and counts nothing else."""
    return not token.glued and before.text not in _COUNTS_ELSE


def _whole(text: str) -> int | None:
    """The whole number that a token stands for; None where it is none, or larger than any count."""
    scaled = _SCALED.fullmatch(text)
    if scaled:
        return int(float(scaled[1]) * _THOUSANDS[scaled[2]])
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


class _Token(NamedTuple):
    text: str
    glued: bool

    @property
    def is_number(self) -> bool:
        return self.text[0].isdecimal()


def _essence(name: str) -> str:
    """What is left of a name without what only says which one of a training's checkpoints it is.

    A number counts checkpoints after a word that says so, or after none; after any other (``resnet18``, ``unet-100``)
    where nothing else in the name does.
    """
    tokens = _tokens(name.lower())
    counters = _counters(tokens)
    told = any(counters) or any(token.text in _LAST or token.text == "best" for token in tokens)
    kept = []
    for at, token in enumerate(tokens):
        if counters[at] or (token.text in _WHICH_ONE and not token.is_number):
            continue
        own = at > 0 and tokens[at - 1].text in _OWN
        if not token.is_number or told or own:
            kept.append(token.text)
        elif token.glued:
            kept.append("#")
    return "-".join(kept)


def _tokens(name: str) -> list[_Token]:
    found, end = [], -1
    for match in _TOKEN.finditer(name):
        found.append(_Token(match.group(), match.start() == end))
        end = match.end()
    return found


def _counters(tokens: list[_Token]) -> list[bool]:
    """Of each token whether it is a number that counts or measures checkpoints, or a word that says of what."""
    found = [False] * len(tokens)
    for at, token in enumerate(tokens):
        if not token.is_number and token.text not in _NOT_FINITE:
            continue
        before = at - 1
        while before >= 0 and tokens[before].text in _MEASURED:
            before -= 1
        measures = before < at - 1
        counted = before >= 0 and tokens[before].text in _COUNTED
        if measures or (token.is_number and (counted or at == 0 or found[at - 1])):
            for one in range(before if counted else before + 1, at + 1):
                found[one] = True
    for at in _measures_of_the_best(tokens):
        found[at] = True
    return found


def _measures_of_the_best(tokens: list[_Token]) -> Iterator[int]:
    """The places of the words next to ``best`` that say in what."""
    for at, token in enumerate(tokens):
        for step in (-1, 1) if token.text == "best" else ():
            near = at + step
            while 0 <= near < len(tokens) and tokens[near].text in _MEASURED:
                yield near
                near += step
