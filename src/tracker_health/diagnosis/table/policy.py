"""Causes in reinforcement learning and preference training."""

from __future__ import annotations

from tracker_health.diagnosis import _signs as signs
from tracker_health.diagnosis._actions import numbers_of, restart
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts
from tracker_health.facts.environments import is_control
from tracker_health.text import setting
from tracker_health.words.diagnosis import Action

_USUAL_BONUS, _USUAL_KL, _USUAL_BETA, _USUAL_TEMPERATURE = 0.001, 0.04, 0.1, 1.0
_TIMES_KL, _TIMES_LENGTH = 10, 4
_FEW, _USUAL_GENERATIONS = 4, 8


def _of_group(facts: Facts) -> Action:
    temperature, generations = facts.settings.temperature, facts.settings.generations
    if is_control(facts.evidence):
        return Action(text="print what the environment pays for twenty steps, and whether any act changes it")
    if signs.TEMPERATURE_LOW.seen(facts):
        text = f"sample answers at a temperature of {setting(_USUAL_TEMPERATURE)}, not {setting(temperature or 0.0)}"
        return Action(text=text, setting="temperature", old=temperature, new=_USUAL_TEMPERATURE)
    if generations is not None and generations < _FEW and not signs.reward_stands(facts):
        text = f"make {_USUAL_GENERATIONS} answers to each prompt, not {setting(generations)}"
        return Action(text=text, setting="num_generations", old=generations, new=_USUAL_GENERATIONS)
    return Action(
        text="print the rewards of one group of samples: they must differ; make the reward finer, or tasks easier"
    )


def _says_no_signal(facts: Facts) -> str:
    what = "acts" if is_control(facts.evidence) else "answers"
    return f"rewards do not distinguish {what}{numbers_of(facts, 'RWD002', 'GRD003', 'RWD001')}"


REWARD_WITHOUT_SIGNAL = Cause(
    name="reward-without-signal",
    title="rewards do not distinguish answers",
    about="""Rewards do not distinguish good answers from bad ones.
    All samples of a group get the same reward, so every advantage is 0, and nothing is learnt: the reward is one number
    whatever is said, too coarse or out of reach, or all samples are alike.""",
    explains=codes(
        "RWD001 RWD002 RWD003 RWD011 RWD014 RWD015 RWD018 RWD020 GRD003 OPT003 OPT019 LOS005 LOS018 GAP006 WGT002 "
        "LRS001 LRS003 LRS004 LRS005 LRS006"
    ),
    defines=(signs.REWARD_STANDS,),
    requires=(signs.NO_SPREAD, signs.GRADIENT_ZERO_WITH_REWARDS, signs.GROUPS_AGREE),
    speaks=(signs.REWARD_LOST, signs.TEMPERATURE_LOW),
    judged={signs.REWARD_LOST: 2.0, signs.TEMPERATURE_LOW: 4.0, signs.GRADIENT_ZERO_WITH_REWARDS: 4.0},
    never=(
        signs.ALL_CUT,
        signs.REWARD_ONLY_FELL,
        signs.REWARD_HAD_RISEN,
        signs.NAN_IN_ANY_LOSS,
        signs.POLICY_STILL_IN_CONTROL,
        signs.ENTROPY_LEFT,
        signs.KL_LEFT,
    ),
    says=_says_no_signal,
    do=_of_group,
    test="print the rewards of one group of samples",
    from_the_start=True,
)


def _let_answers_end(facts: Facts) -> Action:
    limit = facts.settings.length_limit
    if limit is None:
        return Action(text="raise the limit of the length of answers", setting="max_completion_length")
    text = f"let answers have {setting(_TIMES_LENGTH * limit)} tokens, not {setting(limit)}"
    return Action(text=text, setting="max_completion_length", old=limit, new=_TIMES_LENGTH * limit)


LENGTH_LIMIT_TOO_SHORT = Cause(
    name="length-limit-too-short",
    title="the length limit cuts answers off",
    about="""Answers are cut off before they are complete.
    The limit of their length leaves no room for an answer that earns its reward. All get little and alike, however good
    they began.""",
    explains=codes("RWD001 RWD002 RWD003 RWD007 RWD018 GRD003 OPT003 OPT019"),
    requires=(signs.ALL_CUT, signs.ANSWERS_CUT),
    speaks=(signs.NO_SPREAD, signs.GROUPS_AGREE, signs.REWARD_LOST),
    judged={signs.NO_SPREAD: 1.0, signs.GROUPS_AGREE: 2.0, signs.REWARD_LOST: 1.0},
    says=lambda facts: f"the length limit cuts answers off{numbers_of(facts, 'RWD007')}",
    do=_let_answers_end,
    test="read ten answers: they end in the middle",
    from_the_start=True,
)


def _hold_the_policy(facts: Facts) -> Action:
    now = facts.settings.kl_coefficient
    if now is None:
        return Action(text="hold the policy nearer to its reference, by a KL coefficient or smaller updates")
    new = _USUAL_KL if not now else _TIMES_KL * now
    return Action(text=f"hold the policy with a KL coefficient of {new:g}", setting="beta", old=now, new=new)


KL_COEFFICIENT_TOO_LOW = Cause(
    name="kl-coefficient-too-low",
    title="nothing holds the policy near its reference",
    about="""Nothing holds the policy near what it could do before.
    The KL coefficient is known, and next to 0: updates carry the policy away from its reference, until its answers are
    nothing that the reference would have said.""",
    explains=codes("RWD001 RWD003 RWD004 RWD005 RWD006 RWD007 RWD020"),
    requires=(signs.KL_LOW,),
    speaks=(signs.KL_LEFT, signs.ENTROPY_LEFT),
    judged={signs.KL_LEFT: 1.0, signs.ENTROPY_LEFT: 1.0},
    says=lambda facts: (
        f"a KL coefficient of {setting(facts.settings.kl_coefficient or 0.0)} does not hold the policy near its "
        f"reference{numbers_of(facts, 'RWD005', 'RWD004')}"
    ),
    do=_hold_the_policy,
    test="train 50 steps with a KL coefficient ten times as high: the reward keeps what it gained",
)


def _smaller_updates(facts: Facts) -> Action:
    back = restart(facts, ("RWD006", "RWD005", "RWD004", "RWD001"))
    texts = [back, "make smaller updates: a lower learning rate, fewer epochs a batch, or a KL limit (target_kl)"]
    return Action(text="; ".join(text for text in texts if text))


POLICY_DRIFTED = Cause(
    name="policy-drifted",
    title="the policy moved too far from the one that gave its samples",
    about="""The policy left its course.
    Its divergence from its reference, or from the policy that sampled, grew beyond what its reward survives, or its
    entropy exploded. A rate, a coefficient or too many epochs a batch may drive it: nothing shows which.""",
    explains=codes("RWD001 RWD003 RWD004 RWD005 RWD006 RWD007 RWD020"),
    requires=(signs.KL_LEFT, signs.CAME_APART),
    speaks=(signs.UPDATES_CLIPPED,),
    judged={signs.KL_LEFT: 4.0, signs.CAME_APART: 3.0, signs.UPDATES_CLIPPED: 2.0},
    says=lambda facts: f"the policy moved too far{numbers_of(facts, 'RWD005', 'RWD004')}",
    do=_smaller_updates,
    test="train 50 steps at a third of the learning rate: the divergence stays where it was",
)

ENTROPY_COLLAPSED = Cause(
    name="entropy-collapsed",
    title="the policy stopped exploring",
    about="""The policy became sure of its answers before they were good.
    Its entropy is gone while the reward has not risen: every sample is the same, and nothing new is found.""",
    explains=codes("RWD001 RWD002 RWD003 RWD004 RWD020"),
    requires=(signs.ENTROPY_GONE,),
    judged={signs.ENTROPY_GONE: 4.0},
    says=lambda facts: f"the policy stopped exploring{numbers_of(facts, 'RWD004')}",
    do="keep the policy exploring: pay for entropy, clip upwards less (clip-higher), or sample at a higher temperature",
    test="sample ten answers to one prompt at the best step and at the end: they have become one",
)


def _bonus(facts: Facts) -> Action:
    text = f"pay {setting(_USUAL_BONUS)} for entropy, or nothing"
    return Action(text=text, setting="entropy_coef", old=facts.settings.entropy_bonus, new=_USUAL_BONUS)


ENTROPY_BONUS_TOO_HIGH = Cause(
    name="entropy-bonus-too-high",
    title="the policy is paid for being random",
    about="""The policy is paid more for being random than for being right.
    Its entropy rises to that of guessing, and with it goes what it knew.""",
    explains=codes("RWD001 RWD003 RWD004 RWD007 RWD012 RWD014 RWD015 RWD020"),
    requires=(signs.BONUS_HIGH,),
    speaks=(signs.CAME_APART,),
    judged={signs.CAME_APART: 2.0},
    do=_bonus,
    test="train 50 steps without the bonus: the entropy falls",
)

KL_COEFFICIENT_TOO_HIGH = Cause(
    name="kl-coefficient-too-high",
    title="the policy is held fast to its reference",
    about="""The policy is held so fast to its reference that it cannot learn.
    The penalty for another answer than the reference's outweighs what a better one earns.""",
    explains=codes("RWD003 RWD001"),
    requires=(signs.KL_HIGH,),
    do=lambda facts: Action(
        text=f"hold the policy with a KL coefficient of {setting(_USUAL_KL)}",
        setting="beta",
        old=facts.settings.kl_coefficient,
        new=_USUAL_KL,
    ),
    test="train 50 steps with a tenth of the KL coefficient: the reward rises",
)

REWARD_HACKED = Cause(
    name="reward-hacked",
    title="the reward is earned without doing the task",
    about="""The reward is earned without doing the task.
    The policy found what is paid best: length, a phrase, a form. The total rises, and what was meant stands or
    falls.""",
    explains=codes("RWD007 RWD008 RWD017 RWD018 LOS020"),
    requires=(signs.OTHER_REWARD_FELL, signs.GREW_INTO_THE_LIMIT, signs.PART_STANDS),
    do="read answers of high reward; pay length or form only where the answer is right, or give the task more weight",
    test="read ten answers of the highest reward",
)


def _mend_the_pairs(facts: Facts) -> Action:
    if signs.BETA_ZERO.seen(facts):
        return Action(text=f"set beta to {_USUAL_BETA:g}, not 0", setting="beta", old=0.0, new=_USUAL_BETA)
    return Action(text="look whether chosen and rejected answers differ, and whether the reference is a copy")


PREFERENCES_WITHOUT_EFFECT = Cause(
    name="preferences-without-effect",
    title="what is preferred does not reach the loss",
    about="""What is preferred does not reach the loss.
    Beta is 0, the reference is the model itself, or chosen and rejected answers are the same: the margin is one number,
    and the loss of a pair stays at that of a coin.""",
    explains=codes("RWD009 GRD003 LOS005 LOS018 LOS006 GEN005 OPT003 OPT019 LOS007"),
    defines=(signs.BETA_ZERO, signs.ANSWERS_ALIKE),
    requires=(signs.MARGIN_STANDS,),
    speaks=(signs.GRADIENT_ZERO,),
    judged={signs.GRADIENT_ZERO: 2.0},
    do=_mend_the_pairs,
    test="compute the margin of one pair by hand, after ten steps",
    from_the_start=True,
)

POLICY_NOT_TRAINED = Cause(
    name="policy-not-trained",
    title="no update reaches the policy",
    about="""No update reaches the policy.
    Its divergence from one update to the next is 0, and its entropy is one number. The optimizer has other parameters,
    the policy was detached or frozen, or its loss is 0.""",
    explains=codes("RWD011 RWD015 RWD014 RWD001 RWD003 RWD010 RWD020"),
    requires=(signs.POLICY_STILL,),
    do="give the optimizer the parameters of the policy that acts; print one of them before and after an update",
    test="compare the policy's weights before and after one update",
    from_the_start=True,
)

VALUE_FUNCTION_DIVERGED = Cause(
    name="value-function-diverged",
    title="the value function diverged",
    about="""The value function diverged.
    Its loss grew a million-fold, or is where no network gets to by usual steps. Its targets feed on its own
    estimates, or rewards are far too large. Advantages are then its error, and nothing else.""",
    explains=codes("RWD016 LOS021 RWD010 RWD001 RWD003 RWD004 RWD005 RWD014 RWD020 GRD001 GRD002"),
    requires=(signs.VALUES_BEYOND, signs.VALUES_EXPLODED),
    says=lambda facts: f"the value function diverged{numbers_of(facts, 'RWD016', 'LOS021')}",
    do="scale or clip the rewards, update the target network more slowly, and lower the rate of the value function",
    test="train 1,000 steps with rewards divided by their deviation: the loss of values stays near 1",
)

REWARD_PART_CONSTANT = Cause(
    name="reward-part-constant",
    title="a part of the reward never changes",
    about="""A part of the reward has one value for all answers, and that is not its best one.
    Its function never matches, or returns a fallback. What it asks for is not learnt, while the other parts rise.""",
    explains=codes("LOS020"),
    defines=(signs.PART_OF_REWARD_STANDS,),
    do="call that reward function on ten answers by hand: a parser that never matches, or a fallback value",
    test="print the part for a right and for a wrong answer",
    from_the_start=True,
)

CAUSES = (
    REWARD_PART_CONSTANT,
    REWARD_WITHOUT_SIGNAL,
    LENGTH_LIMIT_TOO_SHORT,
    KL_COEFFICIENT_TOO_LOW,
    POLICY_DRIFTED,
    ENTROPY_COLLAPSED,
    ENTROPY_BONUS_TOO_HIGH,
    KL_COEFFICIENT_TOO_HIGH,
    REWARD_HACKED,
    PREFERENCES_WITHOUT_EFFECT,
    POLICY_NOT_TRAINED,
    VALUE_FUNCTION_DIVERGED,
)
