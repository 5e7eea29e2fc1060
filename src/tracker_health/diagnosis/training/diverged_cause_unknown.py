"""Diverged, cause unknown."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, finding, first_message
from tracker_health.diagnosis._facts import Facts, first_of
from tracker_health.words.diagnosis import Action

_SEEN = ("LOS004", "LOS003", "LOS008", "GRD004", "GRD002")


class DivergedCauseUnknown(Cause):
    """The training came off its way, and nothing that was logged says why."""

    name = "diverged-cause-unknown"
    title = "The training diverged, and nothing that was logged says why"
    explains = frozenset((*_SEEN, "LOS005", "GEN001", "GEN004"))
    signs = (
        finding("LOS004", 3, "the loss diverged"),
        finding("LOS008", 1, "the loss left its level"),
        finding("LOS003", 1, "the loss has spikes"),
        finding("GRD004", 1, "the gradient norm grew and stayed"),
        finding("GRD002", 1, "the gradient norm jumped"),
    )
    test = "log the learning rate and the gradient norm of every step"

    def sentence(self, facts: Facts) -> str:
        said = first_message(facts, _SEEN)
        return f"{self.title}: {said}" if said else self.title

    def action(self, facts: Facts) -> Action:
        onset, step = facts.went_wrong(_SEEN), first_of(map(facts.onset, _SEEN))
        began = onset.where if onset is not None else f"step {step}"
        where = f" before {began}" if step is not None else ""
        return Action(
            text=f"restart from a checkpoint{where} with gradients clipped at a norm of 1, and log the gradient norm",
            setting="max_grad_norm",
            old=facts.settings.clip,
            new=1.0,
        )
