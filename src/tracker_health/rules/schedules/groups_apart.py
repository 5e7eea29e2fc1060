"""LRS006."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.rules.schedules._schedules import groups_far_apart
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class GroupsApart(Probe):
    """A group of parameters has almost no learning rate.

    What it finds:
        A group of the optimizer whose learning rate is orders of magnitude below that of another group.

    Why it matters:
        Its parameters barely move, and nothing reports it: the rate that people look at is that of another group.

    How it decides:
        By the rates that the groups of a lone optimizer began with. Warn when the lowest that is not 0 is less
        than the highest over `groups_apart`.

    Known limits:
        A rate of 0 freezes a group on purpose. Without a scheduler in the checkpoint the first rates are not known.

    Worked example:
        group body: initial_lr=1e-8
        group head: initial_lr=0.01
        optimizer body.weight 2x2: step=100 exp_avg_sq=1e-6*4
        optimizer head.weight 2x2: step=100 exp_avg_sq=1e-6*4
        warn: 0.01 / 1e-8 is 1e6, more than `groups_apart`.

    What to do:
        Give the group a rate of the others' order, or freeze it and leave it out of the optimizer.

    References:
        Howard and Ruder (2018): rates by layer differ by factors of 2.6 there, up to about a thousand in all.
    """

    code = "LRS006"
    name = "groups-apart"
    symptom = Symptom.SCHEDULE
    since = "0.2.0"

    groups_apart: Annotated[
        float, Threshold("highest over lowest rate of an optimizer's groups that is too much", "ratio", "design", gt=1)
    ] = 1e5

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=Part.OPTIMIZER_STATE),)

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        if state is None or len(state.groups) < 2:
            return Finding.skipped("the optimizer has one group of parameters")
        said = groups_far_apart(evidence, self.groups_apart)
        if not said:
            return Finding.passed("the groups' rates are of one order, as far as they are known")
        remedy = "give it a rate of the others' order, or freeze it (requires_grad_(False)) and leave it out"
        return Finding(verdict=Verdict.WARN, message=said, remedy=remedy)
