"""What the names of one run mean next to each other: one name cannot say which loss is the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tracker_health.roles import quantities as q
from tracker_health.roles.meaning import (
    BESIDE_ADVERSARIES,
    LOSS_PART,
    OBJECTIVE_LOSS,
    TRAIN_LOSS,
    VAL_LOSS,
    VAL_LOSS_TERM,
    Meaning,
)
from tracker_health.roles.objectives import Objective, is_of_an_adversary
from tracker_health.roles.quantities import Reading, reading_of
from tracker_health.roles.words import HELD_OUT, TRAINING, word_set, words_of

_OF_THE_NAME_ALONE = word_set(
    "epoch global_step learning_rate grad_norm weight_norm loss_scale objective_weight data_time step_time throughput elapsed workload rank memory clip_fraction "
    "response_length kl entropy cut_share flat_share reward_spread advantage_spread importance_ratio explained_variance margin chosen_logp "
    "rejected_logp chosen_reward rejected_reward episode_length exploration policy_std"
)
"""Quantities that are called as the role that they have, whatever the other names are."""
_ADVERSARY = word_set("gen generator disc discriminator adversarial")
# What a generator's samples are compared by with the data: it is to fall, whatever the adversaries do.
_OF_THE_DATA = word_set("mel stft recon reconstruction rec pixel pix perceptual l1 l2")
# A loss of these is never the whole objective, however alone.
_COMPANIONS = word_set("aux z balancing router mtp load")
# Words that make a held-out loss a term, where others would name a data set.
_TERMS = q.LOSS_FUNCTIONS | _COMPANIONS | word_set(
    "kl recon reconstruction rec box cls obj dfl seg bbox giou ctc att reg adv perceptual mask rpn cycle idt commit quant vq prior "
    "source target domain task"
)  # fmt: skip
# Words that leave an accuracy what it is, those that make it one of another kind of answer, and those of other models.
_OF_ANY_ACCURACY = word_set("token reward top roc cls score categorical sparse binary multiclass pair decode")
_OF_ANSWERS = word_set("seq sequence mlm node")
_OF_A_POLICY = word_set("loss actor policy learners default ppo")
# Where answers are logged, what is called a return is a token's, or an advantage; and the parts of a reward are on a shelf.
_ANSWERS, _NO_PART = "response_length", word_set("step iter total std min max chosen rejected margin kl instantaneous")
_OF_NO_ACCURACY = word_set("disc real fake best domain")
_SHELVES_OF_RESULTS = word_set("metrics coco bbox segm")
_MOST_TERMS = 16
_INSTEAD = {TRAIN_LOSS: LOSS_PART, VAL_LOSS: VAL_LOSS_TERM}
_Key = frozenset[str]


class Run:
    """The names of one run, of which some are ``given`` a role by patterns. ``meanings`` has one for each.

    ``own``: roles that a user gave patterns of their own, which no other name has then.
    """

    def __init__(self, names: Sequence[str], given: Mapping[str, str], own: frozenset[str] = frozenset()) -> None:
        self.meanings: dict[str, Meaning] = {}
        self._given, self._own, self._objective = given, own, Objective(names)
        tr = any("tr" in words_of(name) for name in names)
        every = _as_pairs_say([reading_of(name, tr=tr) for name in names])
        self._left = [one for one in every if one.name not in given]
        self._losses = [one for one in self._left if self._is_loss(one)]
        said = {one.quantity for one in every}
        # Losses of both samples, or nothing but the results of a finished model: what does not say its samples is held out.
        self._parted = {"training", "held-out"} <= {one.samples for one in self._losses}
        twins = {one.quantity for one in every if not one.samples} & {one.quantity for one in every if one.held_out}
        trained = (
            self._losses or twins - {""} or said & _OF_THE_NAME_ALONE or any(one.samples == "training" for one in every)
        )
        self._results_only = not trained and len(said & {q.SCORE, q.ERROR, q.ACCURACY, q.AUC}) > 1
        self._take_what_is_given(every)
        self._take_what_the_name_says()
        self._decide_losses()
        self._decide_stand_ins()
        self._decide_accuracies()
        self._decide_rewards_and_scores()
        for one in self._left:
            if one.name not in self.meanings:
                self._take(one, None, "no rule asks for it" if one.quantity else "no word of it is known")

    def _take(
        self, one: Reading, role: str | None, why: str, *, guessed: bool = False, part: str = "", samples: str = ""
    ) -> None:
        if role in self._own and one.name not in self._given:
            role, part, why = _INSTEAD.get(role), "", f"others were named as {role}"
        elif part == "term" and any(_INSTEAD[whole] == role for whole in _INSTEAD.keys() & self._own):
            part = ""  # someone has said what the whole is: no sum of others
        self.meanings[one.name] = Meaning(
            name=one.name, role=role, samples=samples or one.samples, quantity=one.quantity or role or "", part=part, of=one.of,
            one_of=one.one_of, average=one.average, guessed=guessed, why=why,
        )  # fmt: skip

    def _take_what_is_given(self, every: Sequence[Reading]) -> None:
        for one in every:
            if one.name in self._given:
                self._take(one, self._given[one.name], "a pattern says so")

    def _take_what_the_name_says(self) -> None:
        timed = any(one.quantity == "data_time" for one in self._left)
        for one in self._left:
            if one.quantity in _OF_THE_NAME_ALONE:
                self._take(one, one.quantity, "its words say it")
            elif timed and one.words == {"time"}:
                self._take(one, "step_time", "next to the time that loading takes")

    # Losses

    def _is_loss(self, one: Reading) -> bool:
        return one.quantity == q.LOSS or (self._objective.adversaries and is_of_an_adversary(one.name))

    def _decide_losses(self) -> None:
        falling = [one for one in self._losses if self._objective.falls and not one.words & _ADVERSARY]
        for one in self._losses:
            if self._objective.rewarded and one.rest - _OF_A_POLICY == {"kl"} and not one.held_out:
                self._take(one, "kl", "what keeps a policy near its reference")
            elif self._objective.rewarded and one.rest - _OF_A_POLICY == {"entropy"} and not one.held_out:
                self._take(one, "entropy_loss", "what pays a policy for its entropy")
            elif self._objective.adversaries and one.words & _OF_THE_DATA and not one.held_out:
                self._take(one, LOSS_PART, BESIDE_ADVERSARIES)
            elif not self._objective.falls or one.words & _ADVERSARY:
                self._take(one, OBJECTIVE_LOSS, "it need not fall: the names show rewards or adversaries")
        train = {one: self._key(one) for one in falling if not one.held_out}
        whole = self._decide_whole(train)
        terms = {one: key for one, key in train.items() if key != whole}
        self._take_terms(terms, LOSS_PART, "one of several terms" if whole is None else "a loss next to the whole")
        held_out = {one: self._key(one) for one in falling if one.held_out}
        self._decide_held_out(held_out, whole, {*terms.values()})

    def _key(self, one: Reading) -> _Key:
        """What tells a loss from others: nothing for the whole. Next to a local loss the global one is its sibling."""
        beside_local = "global" in one.words and any("local" in other.words for other in self._losses)
        named = one.rest - {"loss", "objective", "criterion"}
        return named | {"global"} | {*one.numbers} if beside_local else named | {*one.numbers}

    def _decide_whole(self, train: Mapping[Reading, _Key]) -> _Key | None:
        """Give the whole of the training's losses its role; what tells it from others, None where all are terms."""
        found = _whole_of(train)
        if found is None:
            return None
        whole, why, guessed = found
        if self._objective.unsure:
            why, guessed = f"{why}; rewards of evaluations leave open whether it has to fall", True
        for one, key in train.items():
            if key == whole:
                self._take(one, TRAIN_LOSS, why, guessed=guessed, part="whole")
        return whole

    def _take_terms(self, terms: Mapping[Reading, _Key], role: str, why: str) -> None:
        """Give terms their role: of very many the first, which are no sum then."""
        few = len({*terms.values()}) <= _MOST_TERMS
        for one in terms if few else [*terms][:_MOST_TERMS]:
            self._take(one, role, why, part="term" if few else "")

    def _decide_held_out(self, held_out: Mapping[Reading, _Key], whole: _Key | None, terms: set[_Key]) -> None:
        """A held-out loss is the whole, a term, or the loss of a data set: never a part of the training loss."""
        keys = {*held_out.values()}
        several, plain = len(keys) > 1, frozenset() in keys
        guessed = any(one.role == TRAIN_LOSS and one.guessed for one in self.meanings.values())
        parts: dict[Reading, _Key] = {}
        sets: list[Reading] = []
        for one, key in held_out.items():
            if not key or key == whole or (not several and key & q.LIKELIHOODS):
                doubtful = guessed and (bool(key) or self._objective.unsure)
                self._take(one, VAL_LOSS, "the loss of held-out samples", part="whole", guessed=doubtful)
            elif key in terms or ((several or plain) and (key - (whole or frozenset())) & _TERMS):
                parts[one] = key
            else:
                sets.append(one)
        for one in sets[:_MOST_TERMS]:
            why = "the loss of one of several sets of samples" if several else "the only held-out loss"
            self._take(one, VAL_LOSS, why, part="whole", guessed=guessed or (whole is None and not several))
        self._take_terms(parts, VAL_LOSS_TERM, "a term of the held-out loss")

    def _decide_stand_ins(self) -> None:
        """Of a run without any loss, what was minimised, or the errors: one of them, on training and held-out samples."""
        if self._losses or not self._objective.falls or {TRAIN_LOSS, VAL_LOSS} & {*self._own, *self._given.values()}:
            return
        fits = [(one, measure) for one in self._left if (measure := _measure(one))]
        if any(one.quantity == q.PURPOSE for one in self._left):
            fits = [(one, measure) for one, measure in fits if measure in q.PURPOSES]
        said, unsaid, held_out = (
            dict.fromkeys(measure for one, measure in fits if one.samples == samples) for samples in ("training", "", "held-out")
        )  # fmt: skip
        pairs = [measure for measure in unsaid if measure in held_out]
        lone = [*unsaid] if len(unsaid) == 1 and not self._results_only else []
        unit = next(iter([*said, *pairs, *lone, *held_out]), None)
        for one, measure in fits:
            if measure == unit and (one.samples or unit in (*pairs, *lone)):
                role, guessed = VAL_LOSS if one.held_out else TRAIN_LOSS, not said or measure in q.PURPOSES
                self._take(one, role, "no loss was logged: it stands in for it", part="whole", guessed=guessed)

    # What is to rise

    def _decide_accuracies(self) -> None:
        """Accuracies and areas under a curve: of each side the plain one, or the only one that there is."""
        for quantity in (q.ACCURACY, q.AUC):
            some = [one for one in self._left if one.quantity == quantity and not one.words & _OF_NO_ACCURACY]
            some = [one for one in some if self._objective.falls or "reward" not in one.words]
            apart = any(one.held_out for one in some)
            unsaid = "held-out" if (self._parted and not apart) or self._results_only else "training"
            for side, prefix in (("training", "train"), ("held-out", "val")):
                of_side = [one for one in some if (one.samples or unsaid) == side]
                self._decide_accuracy(of_side, f"{prefix}_{quantity}", side)

    def _decide_accuracy(self, some: Sequence[Reading], role: str, side: str) -> None:
        keys = {one: frozenset(one.of) - _OF_ANY_ACCURACY for one in some}
        plain = next(iter(keys.values())) if len({*keys.values()}) == 1 else frozenset()
        for one, key in keys.items():
            unknown = any(not word.isdecimal() for word in key - _OF_ANSWERS)
            if key == plain and (one.samples or not unknown):
                why = "its words say it" if one.samples else "of which samples the other names tell"
                self._take(one, role, why, samples=side, guessed=unknown, part="whole")

    def _decide_rewards_and_scores(self) -> None:
        rewarded = self._objective.rewarded
        answers = any(one.quantity == _ANSWERS for one in self._left)
        for one in self._left:
            if one.name in self.meanings or one.words & _OF_NO_ACCURACY - {"best"}:
                continue
            on_a_shelf = not _SHELVES_OF_RESULTS.isdisjoint(one.segments[0][:1] if one.segments else ())
            held_out = one.held_out or (not one.samples and (self._results_only or self._parted or on_a_shelf))
            if rewarded and _is_part_of_a_reward(one):
                self._take(one, "reward_part", "one of several rewards")
            elif rewarded and one.words - TRAINING == {"std"}:
                self._take(one, "policy_std", "how far a policy's actions spread")
            elif rewarded and one.quantity == q.REWARD and not (answers and not one.words & {"reward", "score"}):
                self._take(one, "val_reward" if one.held_out else "train_reward", "a reward, in reinforcement learning")
            elif held_out and one.quantity in (q.SCORE, q.ACCURACY, q.AUC):
                self._take(one, "higher_better_val", "a score of held-out samples", samples="held-out")
            elif held_out and one.quantity == q.ERROR:
                self._take(one, "lower_better_val", "an error of held-out samples", samples="held-out")


def _is_part_of_a_reward(one: Reading) -> bool:
    """Whether a name is a reward among several: ``rewards/format/mean``, ``Episode_Reward/tracking``."""
    shelf, rest = {*one.segments[-3:][0]}, {word for part in one.segments[-2:] for word in part}
    on_it = "reward" in shelf and shelf <= {"reward", "episode", "eval", "train"} and len(one.segments) > 1
    named = one.rest - {"reward", "episode"} and one.segments[-1] != ("accuracy",)  # that of preferences
    return bool(on_it and named and not one.held_out and not rest & _NO_PART)


def _as_pairs_say(readings: list[Reading]) -> list[Reading]:
    """The readings, where ``train_eval`` next to ``valid_eval`` is an evaluation of the training samples."""
    known = {one.words for one in readings}

    def has_twin(one: Reading) -> bool:
        return any((one.words - TRAINING) | {word} in known for word in HELD_OUT - one.words)

    return [
        replace(one, held_out_words=one.held_out_words - one.words)
        if one.held_out and one.words & TRAINING and has_twin(one)
        else one
        for one in readings
    ]


def _whole_of(train: Mapping[Reading, _Key]) -> tuple[_Key, str, bool] | None:
    """Which of the training's losses is the whole, how that is known, and whether it is no more than a guess."""
    keys = {*train.values()}
    functions = {key for key in keys if key <= q.LOSS_FUNCTIONS}
    totals = functions & {key for one, key in train.items() if one.words & q.WHOLE}
    alone = {key for key in keys if not key & _COMPANIONS} or keys
    likely = {key for key in functions if key & q.LIKELIHOODS}
    if frozenset() in keys:
        return frozenset(), "a loss, with no word that makes it a part", False
    if len(totals) == 1:
        return totals.pop(), "the total of the losses", False
    if len(alone) == 1:
        (key,) = alone
        return key, "the only loss of the training", key not in functions or "elbo" in key
    return (likely.pop(), "the only likelihood among the losses", True) if len(likely) == 1 else None


def _measure(one: Reading) -> str:
    """The one measure that a name is of, if it may stand in for a loss; CatBoost calls its loss by the samples alone."""
    if one.samples and not one.rest and one.words <= {"learn", "test"}:
        return "learn"
    measures = one.words & (q.STAND_INS | q.PURPOSES)
    fits = one.quantity in (q.ERROR, q.PURPOSE) and len(measures) == 1 and one.rest <= measures
    return next(iter(measures)) if fits else ""
