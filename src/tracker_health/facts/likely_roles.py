"""Which metrics of unknown names go as a loss or a reward does: what a person could name them."""

from __future__ import annotations

from collections.abc import Iterable

from tracker_health.evidence import Series
from tracker_health.facts.descent import descent_of
from tracker_health.roles import HELD_OUT_WORDS, words_of
from tracker_health.text import printable

_LEAST_SHARE = 0.05  # of where it began, that a curve came down or up


def likely_roles(series: Iterable[Series]) -> str:
    """What to set so that a run of which no metric is understood can be judged, by how its metrics went.

    Args:
        series: The metrics of unknown names.

    Returns:
        The metric that came down most, beyond its noise, and the role to set to it; else the one that rose most; empty
        where none did either.
    """
    values = {one.name: one.finite().values for one in series}
    for sign, goes, role in (
        (1.0, "falls as a loss does", "train_loss"),
        (-1.0, "rises as a reward does", "train_reward"),
    ):
        found = {name: descent_of(sign * one) for name, one in values.items()}
        shares = {name: one.share for name, one in found.items() if one and one.sure and one.share > _LEAST_SHARE}
        trained = {name: share for name, share in shares.items() if set(words_of(name)).isdisjoint(HELD_OUT_WORDS)}
        if shares:
            best = max(trained or shares, key=lambda name: ((trained or shares)[name], name))
            chosen = role if trained else role.replace("train_", "val_")
            return f"{printable(best, 80)} {goes}: set roles.{chosen} to it"
    return ""
