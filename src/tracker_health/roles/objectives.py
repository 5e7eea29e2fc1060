"""Which losses need not fall: those of reinforcement learning and of adversarial pairs, shown by the words of a run's
names.
"""

from __future__ import annotations

from collections.abc import Collection

from tracker_health.roles.words import HELD_OUT, HELD_OUT_BESIDE_TR, word_set, words_of

# Words that, together with one of the second set where there is one, only reinforcement learning logs. `kl`, `entropy`
# and `epsilon` are left out on purpose: regularised fine-tunes log the first two, differential privacy the third.
_REINFORCEMENT = tuple(
    (word_set(some), word_set(others))
    for some, others in (
        ("ppo grpo rlhf", ""),
        ("policy", "loss losses gradient"), ("actor", "loss losses pg"), ("pi pg vf", "loss losses"), ("critic", "value values vf rewards"),
        ("approxkl clipfrac qvalue qvalues qvals", ""), ("approx", "kl"), ("clip", "frac fraction ratio"),
        ("td", "loss error errors err target"), ("qf qf1 qf2 q q1 q2", "value values vals"), ("qf qf1 qf2", "loss"), ("q", "mean max avg average"),
        ("ent", "coef"), ("ep episode episodes episodic", "len length lengths ret rew reward score scores"), ("exploration", "rate epsilon"),
        ("total", "timesteps"),
    )
)  # fmt: skip
_GRADIENT = word_set("grad gradient gradients grads norm")
_OF_WHOSE_SAMPLES = word_set("on off")  # distillation has an on_policy_loss and an off_policy_loss
_REWARD = word_set("reward rewards rew rews")
# Preference tuning and reward models log rewards as well, and their losses do descend.
_PREFERENCE = word_set("chosen rejected margin margins")
_PREFERRED_RIGHTLY = word_set("rewards accuracies")
_RETURN = word_set("return returns advantage advantages")
# In a name of such words a return is an episode's; in `portfolio_return` or `return_code` it is something else.
_GENERAL = HELD_OUT | HELD_OUT_BESIDE_TR | word_set(
    "train training tr rollout charts metrics metric loss losses err error errors avg average mean median min max std total sum last "
    "running smoothed step epoch batch iter a b x z real fake l"
)  # fmt: skip
_OF_EPISODES = _GENERAL | word_set(
    "ep episode episodes episodic discounted undiscounted normalized env runners agent raw"
)
_LOSS = word_set("loss losses err real fake")
_GENERATOR = word_set("g gen generator errg lossg gloss")
_DISCRIMINATOR = word_set("d dis disc discriminator critic errd lossd dloss")
# These say it alone, next to the word loss; `dis_loss` (a distance?) and `gen_loss` (of generation?) only together.
_SAYS_IT_ALONE = word_set("disc discriminator critic generator")
_MODULES = ("gap/", "train/gap/")
"""Names of modules say nothing about the objective: a value head is no value function."""


class Objective:
    """What a run's metric names show of its objective.

    ``adversaries``: an adversarial pair; ``falls``: nothing shows that the loss is one that need not descend;
    ``unsure``: but for rewards of evaluations, which imitation has as well; ``preferences``: its rewards are those of
    preferred answers; ``rewarded``: it has rewards that are to rise.
    """

    def __init__(self, names: Collection[str]) -> None:
        words = [frozenset(words_of(name)) for name in names if not name.startswith(_MODULES)]
        reinforced = any(map(_shows_reinforcement, words))
        preferred = any(one & _PREFERENCE or one >= _PREFERRED_RIGHTLY for one in words)
        self.preferences = preferred and not reinforced  # online, answers are made, rewarded and then preferred
        # An agent may have a critic, who is no adversary.
        self.adversaries = _shows_adversaries([one - {"critic"} for one in words] if reinforced else words)
        rewards = [one for one in words if one & _REWARD and not self.preferences]
        rewarded = any(not one & HELD_OUT for one in rewards)
        self.falls = not (self.adversaries or rewarded or reinforced)
        self.rewarded = not (self.falls or self.adversaries or self.preferences)
        self.unsure = self.falls and bool(rewards)


def adversary_of(name: str) -> str | None:
    """Whose loss a metric is in an adversarial pair: ``generator`` or ``discriminator``; None of anything else, also of
    a critic, which may be an agent's.
    """
    words = frozenset(words_of(name))
    side, of_a_loss = words - _GENERAL, any("loss" in word or word.startswith("err") for word in words)
    if not side or not of_a_loss:
        return None
    return "generator" if side <= _GENERATOR else "discriminator" if side <= _DISCRIMINATOR - {"critic"} else None


def is_of_an_adversary(name: str) -> bool:
    """Whether a name says no more than which side of an adversarial pair it is of: ``D_A``, ``errG``."""
    side = frozenset(words_of(name)) - _GENERAL
    return bool(side) and (side <= _GENERATOR or side <= _DISCRIMINATOR)


def _shows_adversaries(names: list[frozenset[str]]) -> bool:
    sides = [words - _GENERAL for words in names]
    pair = all(any(side and side <= words for side in sides) for words in (_GENERATOR, _DISCRIMINATOR))
    return pair or any(map(_shows_adversary, names))


def _shows_adversary(words: frozenset[str]) -> bool:
    if "gan" in words:
        return True
    return bool(words & _LOSS) and (bool(words & _SAYS_IT_ALONE) or words - _GENERAL == {"d"})


def _shows_reinforcement(words: frozenset[str]) -> bool:
    if words & _RETURN and words - _RETURN <= _OF_EPISODES:
        return True
    if (words & _GRADIENT and "policy" not in words) or words & _OF_WHOSE_SAMPLES:
        return False
    return any(words & some and (not others or words & others) for some, others in _REINFORCEMENT)
