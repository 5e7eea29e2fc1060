"""What one metric's name says by itself: on whose samples it was measured, which quantity it is, and what is left."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tracker_health.roles.words import HELD_OUT, HELD_OUT_BESIDE_TR, TRAINING, segments_of, word_set

LOSS, ACCURACY, AUC, REWARD, ERROR, SCORE, PURPOSE = "loss", "accuracy", "auc", "reward", "error", "score", "purpose"
"""Quantities whose role depends on the run's other names; all others but ``other`` are called as their role."""
OTHER = "other"
"""What no rule asks for: a time, a count, a share, an axis."""

SCORES = word_set(
    "f1 dice iou miou map ap bleu sacrebleu rouge rougel meteor psnr ssim precision recall r2 kappa kap qwk mcc ndcg mrr top5 lddt gdt "
    "success auprc exact hits jaccard dsc matthews pearson spearman kendall silhouette plcc srcc"
)
"""Measures of which more is better."""
STAND_INS = word_set("ppl bpb bpc rmse mse mae l2 error")
"""Errors that fall as a loss does, and are taken for it where a run logged no loss."""
ERRORS = STAND_INS | word_set("wer cer fid mape smape lpips rmsd rel ade fde fad uer eer")
"""Measures of which less is better."""
PURPOSES = word_set("cost objective criterion elbo energy likelihood loglik ll")
"""What was minimised or maximised, though it is not called a loss."""
LIKELIHOODS = word_set("ce nll elbo")
LOSS_FUNCTIONS = LIKELIHOODS | word_set("bce mse mae l1 l2 huber focal hinge smooth binary multi multiclass")
WHOLE = word_set("total overall final all sum vae")

_RUNNING = word_set("running smooth smoothed ema")
_ONE_OF_SEVERAL = word_set("rank gpu worker process device fold seed replica")
# Words that neither narrow what was measured nor make it a part of something.
_NEUTRAL = TRAINING | HELD_OUT | WHOLE | _RUNNING | word_set(
    "metrics metric stats epoch step steps batch batches iter iters iterations updates avg current curr raw reduced sample out global logs log "
    "learning optim optimizer opt main progress value values micro macro vs across reporter lm language gpt ptl per state"
) | _ONE_OF_SEVERAL  # fmt: skip
_TIMES = "time times second timing timings duration"
_LOADS = "data load loading loader dataload dataloading dataloader"
_SIDES = "actor critic policy pi g d generator discriminator gen disc"
_NO_RATE = "loss mul mult multiplier min max scheduler"
# Where `loss` is only the shelf that these are on.
_ON_A_SHELF = "alpha explained q old logits reg"
_EXTREMES = "min max std"
_NO_LOSS = (
    f"{_EXTREMES} scale scaler weight w best threshold unscaled penalty delta variance scores signs nan count ntk lr rate ppl ratio "
    "accuracy auc psnr offset"
)
_ANSWERS = "completion response answer generation sample"


@dataclass(frozen=True)
class _Saying:
    """A quantity, and the words that say it: one of each group must be there.

    They are looked for in the last part of a name, then in the last two, and so on. ``never``: words next to them there
    that make it something else; ``nowhere``: the same for the whole name. ``beside``: what else may be left of the name
    (None: anything). ``held_out``: whether it may be of held-out samples.
    """

    quantity: str
    words: tuple[str, ...]
    never: str = ""
    nowhere: str = ""
    beside: str | None = None
    held_out: bool = True

    @cached_property
    def _sets(self) -> tuple[tuple[frozenset[str], ...], frozenset[str], frozenset[str], frozenset[str] | None]:
        groups = tuple(word_set(group) for group in self.words)
        allowed = None if self.beside is None else word_set(self.beside).union(*groups)
        return groups, word_set(self.never), word_set(self.nowhere), allowed

    @property
    def said(self) -> frozenset[str]:
        """The words that say it."""
        return frozenset().union(*self._sets[0])

    def fits(self, scope: frozenset[str], reading: Reading) -> bool:
        groups, never, nowhere, allowed = self._sets
        return (
            all(scope & group for group in groups)
            and not (scope - {reading.one_of.partition(" ")[0]}) & never
            and not reading.words & nowhere
            and (allowed is None or reading.rest <= allowed)
            and (self.held_out or not reading.held_out)
        )


_SAYINGS = (
    _Saying("learning_rate", ("lr",), never=_NO_RATE),
    _Saying("learning_rate", ("learning", "rate"), never=_NO_RATE),
    _Saying("grad_norm", ("grad", "norm"), beside=f"l2 default learners {_SIDES}"),
    _Saying("weight_norm", ("norm", "param weight"), beside="l2"),
    _Saying("loss_scale", ("scale", "loss grad amp scaler"), beside=""),
    _Saying(LOSS, ("loss",), never=_NO_LOSS, nowhere="best"),
    _Saying("explained_variance", ("explained", "variance var"), held_out=False),
    _Saying(OTHER, (_ON_A_SHELF,), never="loss accuracy"),
    _Saying(OTHER, ("values", "q qf v vf"), never="loss"),
    _Saying(ACCURACY, ("accuracy",), never="reward loss"),
    _Saying(AUC, ("auc",)),
    _Saying("elapsed", ("elapsed wall total", "time second"), never="remaining eval step iter batch", nowhere="sample token",
            beside="train wall elapsed clock total time", held_out=False),
    _Saying("elapsed", ("timestamp runtime",), nowhere="train", beside="", held_out=False),
    _Saying("data_time", (_LOADS, _TIMES), never="rank", beside="train perf", held_out=False),
    _Saying("data_time", ("data loader dataloader", "wait stall fetch"), beside="train perf time second", held_out=False),
    _Saying("step_time", ("dt",), beside="second", held_out=False),
    _Saying("step_time", ("step iter batch update", _TIMES), never="optim optimizer persecond",
            beside="elapsed perf performance speed runtime in timers", held_out=False),
    _Saying("throughput", ("throughput tps wps ups ips fps bps",), never=f"total policy env inference mfu flops gflops tflops {_TIMES}", held_out=False),
    _Saying("throughput", ("persecond", "token sample step steps batch batches iter iters iterations updates it its"), never="total", held_out=False),
    _Saying("rank", ("rank",), nowhere="avg", beside="global process world dist", held_out=False),
    _Saying("workload", ("seq sequence context", "length"), never=f"response completion answer {_EXTREMES}", beside="train batch input", held_out=False),
    _Saying("workload", ("batch bsz", "size"), never="learning", beside="effective local seq token sample", held_out=False),
    _Saying("workload", ("image img crop", "size resolution"), beside="input", held_out=False),
    _Saying("memory", ("mem",), nowhere="num cpu process swap free percent usage master ratio cached", held_out=False),
    _Saying("cut_share", ("clip clipped", "fraction ratio", "completion response"), beside="length", held_out=False),
    _Saying("clip_fraction", ("clip clipped", "fraction ratio"), never=f"grad length {_EXTREMES}", nowhere="response prompt completion"),
    _Saying("cut_share", ("truncated truncation", "rate fraction ratio share"), beside=_ANSWERS, held_out=False),
    _Saying("response_length", ("response completion", "length"), never=f"terminated clip clipped {_EXTREMES}"),
    _Saying("response_length", ("gen", "token", "sample"), never=_EXTREMES, held_out=False),
    _Saying("flat_share", ("reward", "std", "zero", "fraction share"), held_out=False),
    _Saying("reward_spread", ("reward", "std spread"), beside="group", held_out=False),
    _Saying("advantage_spread", ("advantage", "std spread"), beside="critic actor policy group", held_out=False),
    _Saying("importance_ratio", ("importance", "ratio"), never=_EXTREMES, held_out=False),
    _Saying("importance_ratio", ("prob", "ratio"), never=f"clamped {_EXTREMES}", held_out=False),
    _Saying("margin", ("margin",), beside="reward preference chosen rejected policy dpo", held_out=False),
    _Saying("chosen_logp", ("chosen", "logp"), never="ratio ref reference", beside="policy", held_out=False),
    _Saying("rejected_logp", ("rejected", "logp"), never="ratio ref reference", beside="policy", held_out=False),
    _Saying("chosen_reward", ("chosen", "reward"), never=_EXTREMES, beside="", held_out=False),
    _Saying("rejected_reward", ("rejected", "reward"), never=_EXTREMES, beside="", held_out=False),
    _Saying("kl", ("kl",), never="old reward vllm target min max", nowhere="loss", held_out=False,
            beside="approx ppo divergence div penalty objective info policy actor local"),
    _Saying("kl", ("approx", "kl"), never="old", beside="policy loss", held_out=False),
    _Saying("entropy", ("entropy",), never="loss cross target", beside="actor policy objective approx charts mask default learners learner info loss"),
    _Saying("episode_length", ("episode", "length"), never=_EXTREMES, held_out=False),
    _Saying("exploration", ("exploration", "rate epsilon fraction"), held_out=False),
    _Saying("exploration", ("epsilon",), beside="charts rollout schedule agent", held_out=False),
    _Saying("policy_std", ("policy action actor", "std"), never="loss log grad reward min max", held_out=False),
    _Saying(LOSS, (" ".join(LIKELIHOODS | {"bce"}),), never=_NO_LOSS),
    _Saying(LOSS, ("multiclass",), beside=""),
    _Saying(LOSS, ("smooth", "l1"), never=_NO_LOSS),
    _Saying(REWARD, ("critic", "score"), never=_EXTREMES),
    _Saying(OTHER, ("critic", "return")),
    _Saying(REWARD, ("core", "reward"), never=_EXTREMES),
    _Saying(REWARD, ("reward return",), never=f"time loss {_EXTREMES}",
            beside="episode charts rollout env runners cumulative environment objective rlhf critic frame agent ray tune"),
    _Saying(SCORE, (" ".join(SCORES),), never="time num"),
    _Saying(SCORE, ("corr",), beside="concordance linear rank"),
    _Saying(ERROR, (" ".join(ERRORS),), never="time num"),
    _Saying(PURPOSE, (" ".join(PURPOSES),), beside=""),
)  # fmt: skip

_AXES = word_set("step steps epoch iter iters iterations update updates episode timesteps timestep kimg round tick")
_COUNTED = word_set(
    "time times second eta num n count total version seed size percent remaining elapsed wall runtime duration consumed sps system temperature "
    "epsilon best threshold bsz wpb token samples mem throughput clip lr max min grad norm flos flops gflops tflops mfu date timestamp"
)
_BETA = word_set("beta lambda anneal annealing rampup sparsity")
_WEIGHS = _BETA | {"weight", "w"}
_NO_OBJECTIVE_WEIGHT = word_set("decay norm rms init class policy d disc ent entropy mem min max avg")
_TERMS_THAT_ARE_WEIGHED = word_set("kl vae reg regularization consistency aux adv l1 l2")
# What makes the task harder as it rises: by itself, or by its strength or ratio.
_HARDER = word_set("curriculum difficulty stage noise")
_HOW_HARD = _HARDER | word_set("mask masking aug augment augmentation reg level std ratio strength")
_FIRST_SET = re.compile(r"validation_0\W")


@dataclass(frozen=True)
class Reading:
    """What a name says by itself.

    ``words``: all of its words; ``samples``: ``training``, ``held-out`` or empty; ``quantity``: see above, empty where
    no word says one; ``rest``: what is left when samples and neutral words are gone; ``of``: that without the
    quantity, with the numbers; ``one_of``: the process or fold that logged it (``rank 0``); ``average``: ``mean``, ``running mean`` or empty.
    """

    name: str
    segments: tuple[tuple[str, ...], ...]
    held_out_words: frozenset[str]

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(word for segment in self.segments for word in segment if not word.isdecimal())

    @property
    def held_out(self) -> bool:
        return bool(self.words & self.held_out_words)

    @property
    def samples(self) -> str:
        return "held-out" if self.held_out else "training" if self.words & TRAINING else ""

    @cached_property
    def rest(self) -> frozenset[str]:
        return self.words - _NEUTRAL - self.held_out_words

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        return tuple(number for before, number in self._numbered if before not in _ONE_OF_SEVERAL)

    @property
    def one_of(self) -> str:
        return next((f"{before} {number}" for before, number in self._numbered if before in _ONE_OF_SEVERAL), "")

    @property
    def _numbered(self) -> list[tuple[str, str]]:
        flat = [word for segment in self.segments for word in segment]
        return [(before, word) for before, word in zip(["", *flat], flat, strict=False) if word.isdecimal()]

    @property
    def average(self) -> str:
        return "running mean" if self.words & _RUNNING else "mean" if "avg" in self.words else ""

    @property
    def quantity(self) -> str:
        return self._said[0]

    @cached_property
    def of(self) -> tuple[str, ...]:
        measure = frozenset() if self.quantity in (LOSS, SCORE, ERROR) else self._said[1]
        return (*sorted(self.rest - measure - {"loss"}), *self.numbers)

    @cached_property
    def _said(self) -> tuple[str, frozenset[str]]:
        """The quantity, and the words that may have said it."""
        bare = self.words - TRAINING - {"progress"}
        if bare == {"epoch"} and len(self.words) < 3:
            return "epoch", bare
        if bare == {"global", "step"}:
            return "global_step", bare
        if _FIRST_SET.match(self.name) or bare == {"accuracy", "step"} == self.words:
            return OTHER, bare  # of boosted trees, it may be the training data; of the other, gradients are accumulated
        if self._weighs():
            return "objective_weight", _WEIGHS
        scope: frozenset[str] = frozenset()
        for segment in reversed(self.segments):
            scope |= {word for word in segment if not word.isdecimal()}
            for saying in _SAYINGS:
                if saying.fits(scope, self):
                    return saying.quantity, saying.said
        known = self.words & _COUNTED or (bare and bare <= _AXES | _NEUTRAL)
        return (OTHER if known else ""), _COUNTED

    def _weighs(self) -> bool:
        """Whether the objective changes with it: the weight of a term, or how hard the task is."""
        if self.words & _NO_OBJECTIVE_WEIGHT or (self.segments and self.segments[-1][-1] == "loss"):
            return False
        harder = self.rest & _HARDER or (len(self.rest) > 1 and self.rest & {"strength", "ratio"})
        if harder and self.rest <= _HOW_HARD:
            return True
        if not self.words & _WEIGHS and not self.words >= {"kl", "scale"}:
            return False
        named = [{*part} - ({"w"} if part[0] != "w" else set()) for part in self.segments]
        of_another = any(part & _WEIGHS and part - _WEIGHS - _NEUTRAL - {"loss"} for part in named)
        alone = bool(self.rest & _BETA) and self.rest <= _BETA | {"weight"}
        return of_another or alone or bool(self.rest & _TERMS_THAT_ARE_WEIGHED)


@lru_cache(maxsize=65536)
def reading_of(name: str, *, tr: bool = False) -> Reading:
    """What a name says; ``tr``: others of the run call the training ``tr``, so that ``va`` and ``te`` are its siblings."""
    return Reading(name, segments_of(name), HELD_OUT | HELD_OUT_BESIDE_TR if tr else HELD_OUT)
