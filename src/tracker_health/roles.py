"""From metric names to the roles that rules ask for.

Names are compared in a normal form: lower case, with every run of other characters than letters and digits as one
``/``. So ``train/loss``, ``train_loss``, ``Train Loss`` and ``train-loss`` are one name. A pattern may hold ``*``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import ClassVar

OWN_PREFIXES = ("health/", "health.")
"""Names under which this tool writes; they are never read back as evidence."""

_OF_MODULES = ("gap/", "train/gap/")

_BOOSTING = ("logloss", "mlogloss", "binary/logloss", "multi/logloss", "multiclass", "crossentropy")

_ACCURACIES = ("accuracy", "acc", "acc1", "acc/1", "acc/top1", "top1", "top/1", "top1/acc", "top/1/acc", "top1/accuracy", "top/1/accuracy",
               "accuracy/top1", "accuracy/top/1", "categorical/accuracy", "sparse/categorical/accuracy", "binary/accuracy",
               "multiclassaccuracy", "binaryaccuracy", "mean/token/accuracy",
               *(f"{of}/{kind}" for of in ("token", "seq", "sequence", "mlm", "node") for kind in ("acc", "accuracy")))  # fmt: skip
_AUCS = ("auc", "auroc", "roc/auc", "rocauc", "auc/roc", "binaryauroc", "macro/auc", "pair/auc")

HELD_OUT_WORDS = (
    "val", "valid", "validation", "eval", "evaluation", "dev", "test", "vali", "holdout", "heldout", "va", "te",
)  # fmt: skip
"""What names call samples that a model is not trained on."""
_BESIDE_TR = frozenset({"va", "te"})

_REWARD_NAMES = (
    "ep/rew/mean", "ep/rew", "ep/ret", "ep/ret/mean", "average/ep/ret", "averageepret", "eprewmean",
    *(
        form
        for kind in ("reward", "return")
        for form in (kind, f"mean/{kind}", f"{kind}/mean", f"avg/{kind}", f"average/{kind}", f"total/{kind}",
                     *(f"{of}{kind}{mean}" for of in ("episode/", "episodic/", "ep/", "mean/episode/", "avg/episode/") for mean in ("", "/mean")))
    ),
)  # fmt: skip
_ROLLOUTS = ("", "train/", "training/", "tr/", "rollout/", "charts/", "env/runners/", "ray/tune/", "train/rollout/")

DEFAULT_PATTERNS: Mapping[str, tuple[str, ...]] = {
    "train_loss": (
        "loss", "train/loss", "training/loss", "loss/train", "loss/training", "losses/train",
        "train/loss/step", "train/loss/epoch", "train/loss/batch", "train/loss/avg", "train/loss/mean", "train/loss/total",
        "train/total/loss", "train/avg/loss", "avg/train/loss", "train/mean/loss", "train/batch/loss", "train/step/loss", "train/epoch/loss",
        "train/ce/loss", "train/cross/entropy/loss", "train/ce", "train/nll", "train/loss/ce", "train/mse", "train/mse/loss",
        "step/loss", "batch/loss", "epoch/loss", "iter/loss", "running/loss", "avg/loss", "mean/loss", "total/loss", "loss/total",
        "ce/loss", "nll", "nll/loss", "lm/loss", "train/lm/loss", "loss/step", "loss/epoch",
        "metrics/train/loss", "global/avg/loss", "loss/metrics/global/avg/loss", "loss/train/total", "train/crossentropyloss",
        "reduced/train/loss", "train/samples/train/loss", "lm/loss/training/lm/loss",
        *(f"{word}/{kind}" for word in ("train", "training", "learn") for kind in _BOOSTING),
        "tr/loss", "loss/tr", "tr/nll", "tr/ce", "tr/mse",
    ),
    "val_loss": tuple(
        re.sub(r"\bval\b", word, form)
        for word in HELD_OUT_WORDS
        for form in ("val/loss", "loss/val", "losses/val", "val/loss/epoch", "val/loss/step", "val/avg/loss", "avg/val/loss", "val/mean/loss",
                     "val/total/loss", "val/ce/loss", "val/ce", "val/nll", "val/lm/loss", "val/lm/loss/value", "metrics/val/loss", "loss/val/total",
                     "val/mse", "val/mse/loss", "val/epoch/loss", "lm/loss/val", "val/crossentropyloss",
                     # Of boosted trees "validation_0" may be the training data: which set comes first is the caller's choice.
                     *(f"val/{place}{kind}" for place in ("", "1/") for kind in _BOOSTING))
    ),
    "train_accuracy": tuple(
        form
        for kind in _ACCURACIES
        for form in (kind, f"train/{kind}", f"training/{kind}", f"tr/{kind}", f"{kind}/train", f"{kind}/training", f"train/{kind}/epoch",
                     f"train/{kind}/step", f"train/avg/{kind}", f"train/mean/{kind}", f"metrics/train/{kind}", f"train/epoch/{kind}")
    ),
    "val_accuracy": tuple(
        form
        for word in HELD_OUT_WORDS
        for kind in _ACCURACIES
        for form in (f"{word}/{kind}", f"{kind}/{word}", f"{word}/{kind}/epoch", f"{word}/{kind}/step", f"{word}/avg/{kind}",
                     f"{word}/mean/{kind}", f"metrics/{word}/{kind}", f"{word}/epoch/{kind}")
    ),
    "train_auc": tuple(form for kind in _AUCS for form in (kind, f"train/{kind}", f"training/{kind}", f"tr/{kind}", f"{kind}/train", f"train/{kind}/epoch")),
    "val_auc": tuple(
        form
        for word in HELD_OUT_WORDS
        for kind in _AUCS
        for form in (f"{word}/{kind}", f"{kind}/{word}", f"{word}/{kind}/epoch", f"metrics/{word}/{kind}")
    ),
    "train_reward": (*(f"{place}{kind}" for place in _ROLLOUTS for kind in _REWARD_NAMES), *(f"{kind}/train" for kind in _REWARD_NAMES)),
    "val_reward": tuple(
        form
        for word in HELD_OUT_WORDS
        for kind in _REWARD_NAMES
        for form in (f"{word}/{kind}", f"{kind}/{word}", f"{word}/env/runners/{kind}")
    ),
    "grad_norm": (
        "grad/norm", "gradient/norm", "gnorm", "train/grad/norm", "train/gradient/norm", "train/gnorm", "total/grad/norm",
        "grad/norm/total", "grad/2/0/norm/total", "grad/2/norm/total", "optim/total/grad/norm", "global/grad/norm",
        "grad/norm/step", "train/grad/norm/step",
    ),
    "learning_rate": (
        "lr", "learning/rate", "train/lr", "train/learning/rate", "lr/step", "lr/*", "optim/lr/group/0", "optim/learning/rate/group/0",
        "learning/rate/step", "optimizer/lr", "opt/lr", "optim/lr", "train/samples/lr",
    ),
    "epoch": ("epoch", "train/epoch", "trainer/epoch"),
    "global_step": ("global/step", "train/global/step", "trainer/global/step"),
    "loss_scale": (
        "loss/scale", "grad/scale", "train/loss/scale", "amp/scale", "amp/loss/scale", "scaler/scale", "train/samples/loss/scale",
    ),
    "kl": tuple(form for kind in ("kl", "kld", "kl/div", "kl/divergence", "kl/local") for form in (kind, f"train/{kind}", f"training/{kind}", f"tr/{kind}", f"{kind}/train")),
    "skipped_samples": ("skipped", "n/skipped", "num/skipped", "skipped/samples", "samples/skipped", "train/skipped"),
    "on_target_shift": tuple(form for prefix in ("", "trait/", "eval/") for form in (f"{prefix}on/target/shift", f"{prefix}on/target", f"{prefix}shift/on/target")),
    "off_target_shift": tuple(form for prefix in ("", "trait/", "eval/") for form in (f"{prefix}off/target/shift", f"{prefix}off/target", f"{prefix}shift/off/target")),
    "accelerator_utilisation": (
        "system/gpu/*/utilization/percentage", "system/gpu/*/gpu", "gpu/*/utilization", "gpu/utilization", "system/gpu/utilization",
    ),
    "memory": (
        "system/system/memory/usage/megabytes", "system/gpu/*/memory/usage/megabytes", "system/gpu/*/memoryallocatedbytes",
        "system/proc/memory/rssmb", "gpu/memory", "gpu/memory/gb", "gpu/memory/mb", "memory/allocated", "cuda/memory/allocated", "memory/rss",
        "train/memory", "memory", "rss", "max/mem",
    ),
    "step_time": (
        "step/time", "train/step/time", "batch/time", "train/batch/time", "time/step", "time/batch", "iter/time", "train/iter/time",
        "elapsed/time/per/iteration/ms", "perf/step/time", "sec/per/step", "seconds/per/step",
    ),
    "data_time": ("data/time", "train/data/time", "time/data", "dataloader/time", "data/loading/time", "train/dataloader/time"),
    "throughput": (
        "throughput", "train/throughput", "tokens/per/second", "tokens/per/sec", "train/tokens/per/second", "train/tokens/per/sec",
        "samples/per/second", "samples/per/sec", "steps/per/second", "steps/per/sec", "train/samples/per/sec", "perf/throughput",
        "throughput/device/tokens/per/sec", "throughput/tokens/per/sec", "tps", "wps",
    ),
    "gap_grads": ("gap/grads/*", "train/gap/grads/*"),
    "gap_activations": ("gap/activations/*", "train/gap/activations/*"),
    "gap_activation_grads": ("gap/activation/grads/*", "train/gap/activation/grads/*"),
    "gap_params": ("gap/params/*", "train/gap/params/*"),
    "objective_weight": tuple(
        prefix + form
        for prefix in ("", "train/")
        for form in (
            "beta", "kl/weight", "kl/beta", "kl/coef", "kl/coeff", "kl/coefficient", "kl/scale", "kl/factor", "kl/lambda", "kld/weight",
            "beta/kl", "weight/kl", "w/kl", "lambda/kl", "beta/vae", "kl/anneal", "kl/annealing", "kl/loss/weight", "loss/weight/kl",
            "anneal", "anneal/factor", "anneal/weight", "annealing/factor", "annealing/weight", "consistency/weight", "rampup",
            "rampup/weight", "aux/weight", "adv/weight", "sparsity", "lambda", "lambda/reg", "reg/weight", "reg/coef", "reg/coeff", "reg/lambda",
            "reg/strength", "regularization/weight", "l1/weight", "l2/weight",
            # The task is made harder.
            "curriculum", "curriculum/level", "curriculum/stage", "curriculum/difficulty", "difficulty", "stage", "training/stage",
            "aug/strength", "augment/strength", "augmentation/strength", "noise", "noise/level", "noise/std", "mask/ratio", "masking/ratio",
        )
    ),
}  # fmt: skip

_PERPLEXITIES = ("ppl", "perplexity")
_ERRORS = (*_PERPLEXITIES, "bpb", "bpc", "mae", "rmse", "l2")
_STAND_INS: Mapping[str, frozenset[str]] = {
    "train_loss": frozenset((*_PERPLEXITIES, "bpb", "bpc")).union(
        f"{word}/{kind}" for word in ("train", "training", "learn") for kind in _ERRORS
    ),
    "val_loss": frozenset(
        f"{word}/{place}{kind}" for word in HELD_OUT_WORDS for place in ("", "1/") for kind in _ERRORS
    ),
}
"""What falls as a loss does, and is taken for it where a run logged no loss: never both, their units differ."""
_OBJECTIVES = frozenset(
    ("elbo", "nll", "objective", "objectives", "cost", "costs", "energy", "criterion", "likelihood", "loglik", "ll")
)
"""Words that say what was minimised or maximised, though it is not called a loss."""

# What else trainers log whose loss is no training loss: reinforcement learning and adversarial pairs. Each entry is a set of words
# that a metric's name holds. `kl`, `entropy` and `epsilon` are left out on purpose: regularised fine-tunes log the first two,
# training with differential privacy the third.
_REINFORCEMENT: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(one.split()), frozenset(other.split()))
    for one, other in (
        ("ppo grpo rlhf", ""),
        ("policy", "loss losses gradient"), ("actor", "loss losses pg"), ("pi pg vf", "loss losses"), ("critic", "value values vf rewards"),
        ("approxkl clipfrac qvalue qvalues qvals", ""), ("approx", "kl"), ("clip", "frac fraction ratio"),
        ("td", "loss error errors err target"), ("qf qf1 qf2 q q1 q2", "value values vals"), ("qf qf1 qf2", "loss"), ("q", "mean max avg average"), ("ent", "coef"),
        ("ep episode episodes episodic", "len length lengths ret rew reward score scores"), ("exploration", "rate epsilon"),
        ("total", "timesteps"),
    )
)  # fmt: skip
_GRADIENT = frozenset({"grad", "gradient", "gradients", "grads", "norm"})
_OF_WHOSE_SAMPLES = frozenset({"on", "off"})  # distillation has an on_policy_loss and an off_policy_loss
_REWARD = frozenset({"reward", "rewards", "rew", "rews"})
# Preference tuning and reward models log rewards as well, and their losses do descend.
_PREFERENCE = frozenset({"chosen", "rejected", "margin", "margins"})
_PREFERRED_RIGHTLY = frozenset({"rewards", "accuracies"})
_OF_WHICH_SET = frozenset({"train", "training", "tr", *HELD_OUT_WORDS})
# In a name of such words a return is an episode's; in `portfolio_return` or `return_code` it is something else.
_GENERAL = frozenset(
    ("train", "training", "tr", *HELD_OUT_WORDS, "rollout", "charts", "metrics", "metric", "loss", "losses",
     "err", "error", "errors", "avg", "average", "mean", "median", "min", "max", "std", "total", "sum", "last", "running", "smoothed", "step",
     "epoch", "batch", "iter", "a", "b", "x", "z", "real", "fake", "l")
)  # fmt: skip
_OF_EPISODES = _GENERAL | {
    "ep",
    "episode",
    "episodes",
    "episodic",
    "discounted",
    "undiscounted",
    "normalized",
    "env",
    "runners",
    "agent",
    "raw",
}
_RETURN = frozenset({"return", "returns", "advantage", "advantages"})
_LOSS = frozenset({"loss", "losses", "err", "real", "fake"})
_GENERATOR = frozenset({"g", "gen", "generator", "errg", "lossg", "gloss"})
_DISCRIMINATOR = frozenset({"d", "dis", "disc", "discriminator", "critic", "errd", "lossd", "dloss"})
# These say it alone, beside the word loss; `dis_loss` (a distance?) and `gen_loss` (of generation?) only together.
_SAYS_IT_ALONE = frozenset({"disc", "discriminator", "critic", "generator"})
_NO_LOSS = frozenset({"scale", "weight", "weights", "coef", "coeff", "lambda", "ratio", "alpha"})

REWARDS = ("train_reward", "val_reward")
"""Roles of what reinforcement learning is to raise."""

OBJECTIVE_LOSS = "objective_loss"
"""Role of a loss that need not descend: only what is always sick (NaN, explosion) is judged on it."""

LOSS_PART = "loss_part"
"""Role of a loss beside the training loss: one of its terms, or of another model."""
_MOST_PARTS = 16
_MOST_MADE = 8

_BETWEEN_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@lru_cache(maxsize=65536)
def normal_form(name: str) -> str:
    """The form in which names are compared."""
    return re.sub(r"[^a-z0-9*]+", "/", name[:500].lower()).strip("/")


@lru_cache(maxsize=65536)
def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, also where only capitals part them: ``lossG`` and ``Loss/G`` have the same."""
    return tuple(re.findall(r"[a-z0-9]+", _BETWEEN_WORDS.sub("/", name[:500]).lower()))


def assign(names: Iterable[str], patterns: Mapping[str, tuple[str, ...]] = DEFAULT_PATTERNS) -> dict[str, str]:
    """The role of every name that has one.

    A loss becomes ``objective_loss`` when the words of the run's other names show reinforcement learning or an
    adversarial pair, unless its role was given patterns of its own: then somebody has said what it is. So do, in such
    a run, all other losses; and in a run without a training loss the parts of one (``train/box_loss``). Beside a
    training loss the first few other losses are ``loss_part``. Without any loss, perplexity and errors stand in for it.
    A reward has its role where the words show reinforcement learning and no adversary: of preferences it is a part of
    the loss, and a discriminator's moves with it.
    """
    known = [name for name in names if not name.startswith(OWN_PREFIXES)]
    # The names of modules say nothing about the objective: a value head is no value function.
    words = [frozenset(words_of(name)) for name in known if not name.startswith(_OF_MODULES)]
    descends = _descends(words)
    rewarded = not descends and not _shows_adversaries(words)
    role_of = _Roles.of(patterns)
    found: dict[str, str | None] = {name: role_of(normal_form(name)) for name in known}
    usual = role_of.usual
    found |= {name: None for name in _of_something_else(known) if found[name] in usual}
    if descends and not any(role in _STAND_INS or _says_the_objective(name) for name, role in found.items()):
        found |= {name: _stands_in(name) for name, role in found.items() if role is None}
    whole = "train_loss" in found.values()
    parts = [name for name, role in found.items() if role is None and _is_loss(name)][:_MOST_PARTS] if whole else []
    roles = dict.fromkeys(parts, LOSS_PART) if descends else {}
    for name, role in found.items():
        if role in ("train_loss", "val_loss") and not descends and role in usual:
            roles[name] = OBJECTIVE_LOSS
        elif role is not None and not (role in REWARDS and role in usual and not rewarded):
            roles[name] = role
        elif _is_loss(name) if not descends else not whole and _is_part_of_a_loss(name):
            roles[name] = OBJECTIVE_LOSS
    return roles


def _says_the_objective(name: str) -> bool:
    return _is_loss(name) or not _OBJECTIVES.isdisjoint(words_of(name))


def is_perplexity(name: str) -> bool:
    """Whether a metric is the exponential of a loss."""
    return not {*_PERPLEXITIES}.isdisjoint(words_of(name))


def adversary_of(name: str) -> str | None:
    """Whose loss a metric is in an adversarial pair: ``generator`` or ``discriminator``; None of anything else, also of
    a critic, which may be an agent's.
    """
    words = frozenset(words_of(name))
    side, of_a_loss = words - _GENERAL, any("loss" in word or word.startswith("err") for word in words)
    if not side or not of_a_loss:
        return None
    return "generator" if side <= _GENERATOR else "discriminator" if side <= _DISCRIMINATOR - {"critic"} else None


def _stands_in(name: str) -> str | None:
    form = normal_form(name)
    return next((role for role, forms in _STAND_INS.items() if form in forms), None)


def _descends(names: list[frozenset[str]]) -> bool:
    """Whether nothing in a run's metric names shows that its loss is one that need not descend."""
    preferred = any(words & _PREFERENCE or words >= _PREFERRED_RIGHTLY for words in names)
    return not any(_shows_reinforcement(words, preferred=preferred) for words in names) and not _shows_adversaries(
        names
    )


def _shows_adversaries(names: list[frozenset[str]]) -> bool:
    """Whether a run's metric names show an adversarial pair."""
    sides = [words - _GENERAL for words in names]
    pair = all(any(side and side <= words for side in sides) for words in (_GENERATOR, _DISCRIMINATOR))
    return pair or any(map(_shows_adversary, names))


def _shows_reinforcement(words: frozenset[str], *, preferred: bool) -> bool:
    if words & _REWARD and not preferred:
        return True
    if words & _RETURN and words - _RETURN <= _OF_EPISODES:
        return True
    if (words & _GRADIENT and "policy" not in words) or words & _OF_WHOSE_SAMPLES:
        return False
    return any(words & one and (not other or words & other) for one, other in _REINFORCEMENT)


def _shows_adversary(words: frozenset[str]) -> bool:
    if "gan" in words:
        return True
    rest = words - _GENERAL
    return bool(words & _LOSS) and (bool(words & _SAYS_IT_ALONE) or rest == {"d"})


def _is_loss(name: str) -> bool:
    words = words_of(name)
    if words and words[-1] in _OF_WHICH_SET:
        words = words[:-1]
    sides = frozenset(words) - _GENERAL
    if sides and (sides <= _GENERATOR or sides <= _DISCRIMINATOR):
        return True
    return bool(words) and "loss" in (words[0], words[-1]) and _NO_LOSS.isdisjoint(words)


def _is_part_of_a_loss(name: str) -> bool:
    return _is_loss(name) and not {"train", "training"}.isdisjoint(words_of(name))


def _of_something_else(names: list[str]) -> Iterator[str]:
    """Names with `va` or `te` where nothing is called `tr`: valence and arousal, a text encoder."""
    if not any("tr" in words_of(name) for name in names):
        yield from (name for name in names if not _BESIDE_TR.isdisjoint(words_of(name)))


class _Roles:
    """The role of a name in its normal form, by patterns: the first role that has one that fits."""

    _made: ClassVar[dict[int, _Roles]] = {}

    @classmethod
    def of(cls, patterns: Mapping[str, tuple[str, ...]]) -> _Roles:
        """Those of patterns, made once: a log without a head asks for one name after the other."""
        made = cls._made.get(id(patterns))
        if made is None or made.patterns is not patterns:
            if len(cls._made) >= _MOST_MADE:
                cls._made.clear()
            made = cls._made[id(patterns)] = cls(patterns)
        return made

    def __init__(self, patterns: Mapping[str, tuple[str, ...]]) -> None:
        self.patterns = patterns
        self._order = {role: at for at, role in enumerate(patterns)}
        self._forms: dict[str, str] = {}
        for role, forms in reversed(list(patterns.items())):
            self._forms |= dict.fromkeys(forms, role)
        self.usual = {role for role, forms in patterns.items() if forms == DEFAULT_PATTERNS.get(role)}
        self._wild = [(role, form) for role, forms in patterns.items() for form in forms if "*" in form]

    def __call__(self, form: str) -> str | None:
        fits = [role for role, wild in self._wild if fnmatchcase(form, wild)]
        if form in self._forms:
            fits.append(self._forms[form])
        return min(fits, key=self._order.__getitem__, default=None)
