"""The words of a metric's name, in one spelling: ``trainLoss``, ``Train Loss`` and ``losses/train`` say the same."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import zip_longest


def word_set(words: str) -> frozenset[str]:
    """A table of words, as it is written in this package."""
    return frozenset(words.split())


TRAINING = word_set("train training trainer learn fit tr")
HELD_OUT = word_set(
    "val valid validation validate validating vali eval evaluation evaluate evaluating dev test testing holdout heldout"
)
HELD_OUT_BESIDE_TR = word_set("va te")
"""Words for held-out samples where others are called ``tr``; elsewhere valence, or a text encoder."""

_LONGEST = 500
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEGMENTS = re.compile(r"/|\.(?=[^\W\d_])")
_PER_SECOND = re.compile(r"(?<!\s)\s*+/\s*+(?:s|secs?|seconds?)$", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+|%")
# What is written in one: a loss with whatever is before or behind it, and the samples with what was measured on them.
_FUSED = re.compile(
    r"(?P<a>\w+?)(?P<b>loss|losses)|(?P<c>loss)(?P<d>\w+)|(?P<e>grad)(?P<f>norm)|(?P<g>learning)(?P<h>rate)|(?P<i>global)(?P<j>step)|"
    r"(?P<k>train|training|tr|val|valid|validation|test|eval|dev|avg|mean)(?P<l>acc|accuracy|f1|auc|err|error|mse|mae|rmse|ppl|reward)"
)
_NUMBER_BEHIND = re.compile(r"(?<=[^\W\d_])\d+$")
# Words whose number is part of them.
_NUMBERED = word_set("f1 r2 l1 l2 h1 top1 top5 acc1 acc5 beta1 beta2 nfe1 t5 p50 p99 v1 v2")
# Words that belong together, though capitals or something else would cut them.
_JOINED = {
    ("m", "io", "u"): "miou", ("io", "u"): "iou", ("m", "ap"): "map", ("log", "loss"): "loss", ("cross", "entropy"): "ce", ("multi", "class"): "multiclass",
    ("roc", "auc"): "auc", ("auc", "roc"): "auc", ("top", "1"): "accuracy", ("top", "5"): "top5", ("accuracy", "1"): "accuracy", ("accuracy", "5"): "top5",
    ("log", "probs"): "logp", ("log", "prob"): "logp", ("per", "second"): "persecond", ("per", "gpu"): "persecond",
}  # fmt: skip
_SAME = {
    "losses": "loss", "perdida": "loss", "perda": "loss", "perte": "loss", "verlust": "loss", "costs": "cost", "objectives": "objective",
    "epochs": "epoch", "epoca": "epoch", "epoque": "epoch", "epoche": "epoch", "ep": "episode", "episodes": "episode", "episodic": "episode",
    "iteration": "iter",
    "lrs": "lr", "acc": "accuracy", "accuracies": "accuracy", "accurancy": "accuracy", "acc1": "accuracy", "top1": "accuracy", "acc5": "top5",
    "binaryaccuracy": "binary accuracy", "multiclassaccuracy": "multiclass accuracy", "auroc": "auc", "rocauc": "auc", "binaryauroc": "binary auc",
    "logloss": "loss", "mlogloss": "loss", "crossentropy": "ce", "xent": "ce", "kld": "kl", "approxkl": "approx kl", "clipfrac": "clip fraction", "frac": "fraction",
    "gradient": "grad", "gradients": "grad", "grads": "grad", "gnorm": "grad norm", "params": "param", "parameter": "param", "parameters": "param",
    "avr": "avg", "average": "avg", "averaged": "avg", "averageepret": "avg episode return", "eprewmean": "avg episode reward", "mean": "avg", "tot": "total",
    "rewards": "reward", "rew": "reward", "rews": "reward", "returns": "return", "ret": "return",
    "advantages": "advantage", "probs": "prob", "margins": "margin", "logps": "logp", "reject": "rejected",
    "coef": "weight", "coeff": "weight", "coefficient": "weight", "factor": "weight",
    "corrcoef": "corr", "corrcoeff": "corr", "correlation": "corr", "pearsonr": "pearson", "spearmanr": "spearman", "dicecoef": "dice",
    "dicecoeff": "dice", "dicecoefficient": "dice", "determination": "r2",
    "memory": "mem", "vram": "mem", "rss": "mem", "lengths": "length", "len": "length", "completions": "completion", "responses": "response",
    "perplexity": "ppl", "sec": "second", "secs": "second", "seconds": "second", "s": "second", "ms": "second",
    "tokens": "token", "tok": "token", "toks": "token", "samples": "sample", "examples": "sample", "images": "sample", "imgs": "sample",
    "%": "percent", "pct": "percent", "percentage": "percent", "err": "error", "errors": "error", "evalstats": "eval",
    "entrenamiento": "train", "treino": "train", "validacion": "val", "validacao": "val", "prueba": "test",
}  # fmt: skip

_COEFFICIENT = word_set("coef coefs coeff coeffs coefficient coefficients")
# Statistics that are called a coefficient: of anything else (a loss, KL, entropy) it is a weight.
_STATISTICS = word_set(
    "dice sorensen jaccard tversky overlap similarity f1 iou corr correlation matthews mcc pearson spearman kendall concordance agreement kappa "
    "silhouette gini r2"
)


@lru_cache(maxsize=65536)
def normal_form(name: str) -> str:
    """The form in which a name is compared to a pattern: lower case, with every run of other characters than letters
    and digits as one ``/``.
    """
    return re.sub(r"[^a-z0-9*]+", "/", name[:_LONGEST].lower()).strip("/")


@lru_cache(maxsize=65536)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower case as they are there, also where only capitals part them: ``lossG`` has the same
    as ``Loss/G``.
    """
    return tuple(re.findall(r"[a-z0-9]+", _CAPITALS.sub("/", name[:_LONGEST]).lower()))


@lru_cache(maxsize=65536)
def segments_of(name: str) -> tuple[tuple[str, ...], ...]:
    """The words of each part of a name between slashes and dots, each in its one spelling; numbers stay words."""
    plain = name[:_LONGEST]
    if not plain.isascii():
        plain = "".join(letter for letter in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(letter))
    plain = _PER_SECOND.sub(" per second", plain).replace("'s ", " ")
    parts = (_spelt(_WORD.findall(_CAPITALS.sub("_", part).lower())) for part in _SEGMENTS.split(plain))
    return tuple(words for words in parts if words)


def _spelt(found: list[str]) -> tuple[str, ...]:
    words: list[str] = []
    for word, after in zip_longest(found, found[1:]):
        if word in _COEFFICIENT and (after == "of" or (words and words[-1] in _STATISTICS)):
            continue
        known = word if word in _NUMBERED or word in _SAME else _NUMBER_BEHIND.sub("", word)
        fused = None if known in _SAME or known in HELD_OUT else _FUSED.fullmatch(known)
        parts = [part for part in fused.groups() if part] if fused else [known]
        words += (one for part in parts for one in _SAME.get(part, part).split())
        words += [word[len(known) :]] * (known != word)
    # Papers and BasicSR call a loss `L_rec`, `l_pix`, `val_l_pix`.
    first = next((at for at, word in enumerate(words) if word not in TRAINING | HELD_OUT), 0)
    if words[first:][:1] == ["l"] and len(words) > first + 1:
        words[first] = "loss"
    return tuple(_joined(words))


def _joined(words: list[str]) -> list[str]:
    for parts, whole in _JOINED.items():
        for at in range(len(words) - len(parts), -1, -1):
            if tuple(words[at : at + len(parts)]) == parts:
                words[at : at + len(parts)] = [whole]
    return words
