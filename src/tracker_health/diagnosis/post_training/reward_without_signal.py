"""Reward without signal."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_REWARDS = ("train_reward", "val_reward")
_GREEDY, _USUAL_TEMPERATURE = 0.2, 1.0
_FEW, _USUAL_GENERATIONS = 4, 8


def _has_reward(facts: Facts) -> bool:
    return any(facts.evidence.find(role) is not None for role in _REWARDS)


def _reward_stands(facts: Facts) -> bool:
    for role in _REWARDS:
        series = facts.evidence.find(role)
        values = series.finite().values if series is not None else ()
        if len(values) > 2 and float(min(values)) == float(max(values)):
            return True
    return False


def _is_greedy(facts: Facts) -> bool:
    temperature = facts.settings.temperature
    return temperature is not None and temperature < _GREEDY and _has_reward(facts)


class RewardWithoutSignal(Cause):
    """Rewards do not distinguish good answers from bad ones.

    All samples of a group get the same reward, so every advantage is 0, and nothing is learnt: the reward is one number
    whatever is said, too coarse or out of reach, or all samples are alike.
    """

    name = "reward-without-signal"
    title = "Rewards do not distinguish answers"
    from_the_start = True
    explains = codes("RWD001 RWD002 RWD003 GRD003 OPT003 LOS005 GAP006 WGT002")
    signs = (
        measure("the reward is one number throughout", "reward", _reward_stands, 6),
        finding("RWD002", 6, "groups of answers had no spread of rewards"),
        finding("GRD003", 4, "the gradient norm is exactly 0 in a run with rewards", _has_reward),
        finding("RWD001", 2, "the reward did not rise, or was lost"),
        setting("answers are sampled at a temperature of next to 0", "temperature", _is_greedy, 4),
        measure("nearly all answers are cut off", "cut_share", lambda facts: facts.answers_are_cut, -8),
        measure("the reward only ever fell", "reward", lambda facts: facts.reward_never_rose, -6),
    )
    test = "print the rewards of one group of samples"

    def action(self, facts: Facts) -> Action:
        temperature, generations = facts.settings.temperature, facts.settings.generations
        if _is_greedy(facts):
            text = f"sample answers at a temperature of {number(_USUAL_TEMPERATURE)}, not {number(temperature or 0.0)}"
            return Action(text=text, setting="temperature", old=temperature, new=_USUAL_TEMPERATURE)
        if generations is not None and generations < _FEW and not _reward_stands(facts):
            text = f"make {_USUAL_GENERATIONS} answers to each prompt, not {number(generations)}"
            return Action(text=text, setting="num_generations", old=generations, new=_USUAL_GENERATIONS)
        return Action(
            text="print the rewards of one group of samples: they must differ; make the reward finer, or tasks easier"
        )
