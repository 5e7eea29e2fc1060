"""Optimizer setting wrong."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, setting
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import number
from tracker_health.words.diagnosis import Action

_LARGE_EPSILON = 1e-5
_USUAL_EPSILON = 1e-8


def _epsilon_is_large(facts: Facts) -> bool:
    epsilon = facts.settings.epsilon
    return epsilon is not None and epsilon >= _LARGE_EPSILON and facts.has("OPT010")


def _betas_are_swapped(facts: Facts) -> bool:
    betas = facts.settings.betas
    return facts.has("OPT011") or (betas is not None and betas[1] < betas[0])


class OptimizerSettingWrong(Cause):
    """The optimizer's epsilon or betas are not what they should be.

    An epsilon far above the root of the second moment makes Adam's steps as small as the gradient over it; swapped
    betas make them follow single batches.
    """

    name = "optimizer-setting-wrong"
    title = "A setting of the optimizer is wrong"
    explains = codes("OPT010 OPT011 OPT006 LOS004 LOS005 LOS006 LOS007 LOS008 GEN003")
    signs = (
        setting("epsilon is 1e-5 or more, and rules the steps", "eps", _epsilon_is_large),
        setting("the second beta is lower than the first", "betas", _betas_are_swapped),
        finding("OPT010", 2, "epsilon rules the steps"),
    )
    test = "train 100 steps with the optimizer's default settings"

    def sentence(self, facts: Facts) -> str:
        if _epsilon_is_large(facts):
            ratio = facts.measured("OPT010", "eps_ratio")
            times = f", {number(round(ratio))} times the root of the second moment" if ratio else ""
            return f"Epsilon is {number(facts.settings.epsilon or 0.0)}{times}: steps are that much too small"
        return super().sentence(facts)

    def action(self, facts: Facts) -> Action:
        epsilon, betas = facts.settings.epsilon, facts.settings.betas
        if _betas_are_swapped(facts):
            new = "0.9, 0.999"
            old = ", ".join(map(number, betas)) if betas is not None else None
            return Action(text=f"set the betas to {new}", setting="betas", old=old, new=new)
        text = f"set epsilon to {number(_USUAL_EPSILON)}, the default"
        return Action(text=text, setting="eps", old=epsilon, new=_USUAL_EPSILON)
