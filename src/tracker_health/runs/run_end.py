"""What is known of a run's end besides its evidence: how it was seen to end, and for how long it has been silent."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace

from tracker_health.config import Config
from tracker_health.evidence import Evidence, RunInfo
from tracker_health.runs.run_config import config_for_run
from tracker_health.stores.common.exits import ending_seen, exit_value
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.words.ending import Ended, Ending


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """``seen``: the end, by the launcher or a hook; ``silent_for``: seconds since a run that claims to be running was
    heard of, where these are too many.
    """

    seen: Ending | None = None
    silent_for: float | None = None

    def state(self, fingerprint: str) -> str:
        """A run's fingerprint with that: what the digest is made of. That a run finished says nothing new of most."""
        new = self.seen is not None and self.seen.how is not Ended.FINISHED
        seen = [str(self.seen.how), self.seen.by] if self.seen is not None and new else []
        return json.dumps([fingerprint, *seen, self.silent_for is not None])


def find_end(run: TrackedRun, stale_after: float, ending: Ending | None = None) -> RunEnd:
    """The same for every command: what is on the run, what this call knows, and for how long it has been silent."""
    seen = ending or ending_seen(run)
    heard = run.heard() if seen is None else None
    silent = None if heard is None else time.time() - heard
    too_long = silent is not None and silent > stale_after
    return RunEnd(seen=seen, silent_for=silent if too_long else None)


def add_silence(run: TrackedRun, info: RunInfo, hang_after: float | None) -> RunInfo:
    """A run's record with how long ago its last point came, and for how long signs of its process came after that.

    ``hang_after``: of the configuration.
    """
    pulse = run.pulse()
    if pulse is None or pulse.points is None:
        return replace(info, hang_after=hang_after)
    now = time.time() if pulse.until is None else pulse.until
    vital = None if pulse.vital is None else pulse.vital - pulse.points
    return replace(info, quiet_for=now - pulse.points, vital_for=vital, hang_after=hang_after)


def seems_alive(run: TrackedRun, config: Config) -> bool:
    """Whether a run that claims to be running seems to do so, and has no verdict by which it does not."""
    end, recorded = find_end(run, config_for_run(config, run).stale_after), run.recorded()
    is_called_silent = recorded is not None and recorded.ended == Ended.SILENT
    return end.seen is None and end.silent_for is None and not is_called_silent


def exit_to_keep(run: TrackedRun, ending: Ending | None, end: RunEnd, evidence: Evidence) -> str:
    """What the run has to have of its end for those who look later; nothing where the rest of it says that it finished.

    ``ending``: as this call was given it.
    """
    if ending is None:
        return run.exit() if end.seen is not None else ""
    otherwise = replace(evidence, info=replace(evidence.info, seen=None)).ending
    is_known = otherwise is not None and otherwise.how is ending.how is Ended.FINISHED
    return "" if is_known else exit_value(ending, run.state())
