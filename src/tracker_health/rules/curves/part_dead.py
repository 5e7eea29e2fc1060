"""LOS020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from tracker_health.evidence import Evidence, Need, Series
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, short_name
from tracker_health.words.verdict import Verdict

_ROLES = ("loss_part", "reward_part")
_WHOLES = ("train_loss", "train_reward")


@dataclass(frozen=True, kw_only=True)
class PartDead(Probe):
    """A part of the loss or of the reward never changes, or dies.

    What it finds:
        Parts of a loss or of a reward that are exactly 0 while another part continues. They are 0 in the whole run, or
        from some point to the end.

    Why it matters:
        What that part asks for is not learnt: no box is matched, no sample counts, a target is missing. The total looks
        fine without it.

    How it decides:
        Of parts with `min_points` or more. Warn when half of them or more are exactly 0 at all points while
        another one is not. Warn when one that was not 0 for `alive_share` of the points is exactly 0 for
        `dead_share` at the end. Another part must move. A reward's part counts as dead as well when it has one
        value throughout, below its best possible 1; one alone of several is then enough.

    Known limits:
        A part whose weight is 0 is 0 on purpose. So is one that is switched off by a schedule. Less than half of the
        parts at 0 from the beginning on are taken for that.

    Worked example:
        loss_part box: 0 0 0 0 0 0 0 0 0 0
        loss_part cls: 1 0.9 0.8 0.7 0.6 0.5 0.4 0.3 0.2 0.1
        gives: parts 2, dead 1
        warn: one of two parts is 0 at all 10 points.

    What to do:
        Print how many samples count in that part, and its weight.

    References:
        None: a comparison of values.
    """

    code = "LOS020"
    name = "part-dead"
    symptom = Symptom.COLLAPSED
    since = "0.2.0"
    kinds = ("loss", "reward")
    headline = ("dead",)

    min_points: Annotated[int, Threshold("points of a part", "points", "design", ge=4)] = 10
    alive_share: Annotated[float, Threshold("share of the points before", "fraction", "design", gt=0, le=1)] = 0.1
    dead_share: Annotated[float, Threshold("share of the points at the end", "fraction", "design", gt=0, le=1)] = 0.3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need(role=_ROLES[0], any_of=_ROLES[1:], min_points=self.min_points), *Need.beside(*_WHOLES))

    def judge(self, evidence: Evidence) -> Finding:
        for kind, role, whole in zip(self.kinds, _ROLES, _WHOLES, strict=True):
            parts = [one.finite() for one in evidence.all_of(role) if len(one.finite()) >= self.min_points]
            still = [one for one in parts if self._is_still(one, kind)]
            died = [one for one in parts if self._died(one)]
            others = [one.finite() for one in evidence.all_of(whole)]
            moving = [one for one in (*parts, *others) if len(one) and one.values[-1] and np.ptp(one.values) > 0.0]
            many = 2 * len(still) >= len(parts) or kind == "reward"
            dead = died or (still if many else [])
            if dead and moving:
                return _found(dead, len(parts), kind, moving[0].name, died=bool(died))
        return Finding.passed("no part is still while another one moves", {"dead": 0})

    def _is_still(self, part: Series, kind: str) -> bool:
        values = part.values
        one_value = float(np.ptp(values)) == 0.0
        return one_value and (values[0] == 0.0 or (kind == "reward" and values[0] < 1.0))

    def _died(self, part: Series) -> bool:
        """Whether it was alive, and is exactly 0 to the end."""
        alive = np.flatnonzero(part.values)
        last = int(alive[-1]) + 1 if len(alive) else 0
        return len(alive) >= self.alive_share * len(part) and len(part) - last >= self.dead_share * len(part)


def _found(dead: list[Series], parts: int, kind: str, moving: str, *, died: bool) -> Finding:
    names = listing([f"{short_name(one.name)} ({one.values[-1]:g})" for one in dead])
    values = dead[0].values
    since = int(dead[0].steps[int(np.flatnonzero(values)[-1]) + 1]) if died else int(dead[0].steps[0])
    what = f"exactly 0 from {dead[0].where(since)} to the end" if died else f"one number at all {len(values)} points"
    return Finding(
        verdict=Verdict.WARN,
        message=f"{count(len(dead), 'part')} of the {kind} {'is' if len(dead) == 1 else 'are'} {what}, "
        f"while {short_name(moving)} moves: {names}",
        remedy="print how many samples count in that part, and its weight",
        measured={"dead": len(dead), "parts": parts},
        kind=kind,
        steps=(since,),
    )
