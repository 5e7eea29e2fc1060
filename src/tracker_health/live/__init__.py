"""Verdicts on runs while they are running, by what they log: from inside a training, in a search, or from outside."""

from __future__ import annotations

from tracker_health.live.health import LiveHealth
from tracker_health.live.rules import LIVE_RULES, When
from tracker_health.live.verdicts import LiveFinding

__all__ = ["LIVE_RULES", "LiveFinding", "LiveHealth", "When"]
