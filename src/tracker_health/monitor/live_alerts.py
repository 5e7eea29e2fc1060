"""Whether a tracker is to alert people about a run that goes wrong while it is running: as the settings say."""

from __future__ import annotations

from functools import cached_property

from tracker_health.config import Config
from tracker_health.monitor.trackers import ActiveRun, ActiveTrackioRun, ActiveWandbRun
from tracker_health.settings.sources import effective
from tracker_health.words.verdict import Verdict


class LiveAlerts:
    """Alerts as ``[notify]`` wants them. The settings are read when they are first needed, in the thread that judges: a
    policy from an address may take its time.
    """

    @cached_property
    def _config(self) -> Config:
        return effective({}, lenient=True).config

    def send(self, run: ActiveRun, word: str, reason: str) -> None:
        """Have its tracker alert people about a run. ``word``: ``warn`` or ``fail``; ``reason``: what was found."""
        if isinstance(run, (ActiveWandbRun, ActiveTrackioRun)) and self._wants(run, Verdict(word)):
            run.alert(word, reason)

    def _wants(self, run: ActiveWandbRun | ActiveTrackioRun, verdict: Verdict) -> bool:
        """W&B's alerts go to people, where they are wanted; trackio's are on the pages of the run, like its verdict."""
        notify = self._config.notify
        if self._config.mode == "shadow" or notify.is_muted(run.traits):
            return False
        if isinstance(run, ActiveTrackioRun):
            return True
        return notify.wandb_alert and verdict.rank >= Verdict(notify.on).rank
