"""Whether the verdict that a run has still holds, and what is kept on the run to tell."""

from __future__ import annotations

from dataclasses import replace

from tracker_health.config import Config
from tracker_health.judge.annotations import RULES, SETTINGS, Annotations, JudgedBy, digest_of
from tracker_health.judge.engine import needs_of
from tracker_health.rules.registry import RULES_VERSION
from tracker_health.runs.run_config import config_for_run
from tracker_health.runs.run_end import RunEnd, find_end
from tracker_health.stores.base import Recorded
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict


def why_verdict_holds(
    run: TrackedRun, recorded: Recorded, config: Config, end: RunEnd, fingerprint: str, *, rejudge: bool
) -> str | None:
    """Why the annotation of a run is left as it is: a note, empty where nothing has changed; None where the run is to
    be judged again.

    On a server the settings of whoever comes next do not change a verdict that still holds, unless a policy asks for
    it: else two people's settings would change it back and forth. So it is with two versions of the rules, for runs
    that have ended and unless ``rejudge`` asks for it: an upgrade does not rewrite the history of a team. Where others
    could judge nothing there is no verdict to hold against settings by which something may be judged.
    """
    rules = RULES_VERSION if rejudge else _rules_that_hold(recorded)
    if recorded.digest == digest_of(end.state(fingerprint), config.digest, verdict=recorded.verdict, rules=rules):
        older = f"it was judged by version {rules} of the rules, these are version {RULES_VERSION}"
        return "" if rules == RULES_VERSION else f"{older}; --rejudge judges it by these"
    if recorded.verdict is Verdict.SKIP or not is_as_others_judged_it(run, recorded, config, end, rejudge=rejudge):
        return None
    return "it was judged with other settings, which stay in force on a server; --force judges it with these"


def is_as_others_judged_it(
    run: TrackedRun, recorded: Recorded, config: Config, end: RunEnd, *, rejudge: bool = False
) -> bool:
    """Whether someone with other settings, which this policy lets be, judged a run of a server as it is now."""
    rules = RULES_VERSION if rejudge else _rules_that_hold(recorded)
    by = JudgedBy.of(recorded.settings)
    if not run.shared or by.config == config.digest or config.policy not in ("", by.policy) or not by.state:
        return False
    state = find_end(run, by.stale_after, end.seen).state(run.fingerprint(needs_of(Config())))
    return by.state == digest_of(state, recorded.digest, verdict=recorded.verdict, rules=rules)


def _rules_that_hold(recorded: Recorded) -> int:
    """The version of the rules whose verdict on a run stays: of a run that has ended the one that judged it."""
    has_ended = recorded.ended in set(Ended) - {Ended.RUNNING, Ended.SILENT}
    return RULES_VERSION if recorded.rules is None or not has_ended else recorded.rules


def shadow_verdict_that_holds(run: TrackedRun, config: Config, end: RunEnd, fingerprint: str) -> Verdict | None:
    """The verdict of a run that was judged in shadow, where judging it again could say nothing new."""
    found = run.shadow()
    if found is None or found.digest != digest_of(end.state(fingerprint), config.digest, verdict=found.verdict):
        return None
    return found.verdict


def settings_tags(
    run: TrackedRun, config: Config, end: RunEnd, annotations: Annotations, *, complete: bool
) -> dict[str, str]:
    """By which settings and rules a run was judged, with what ``why_verdict_holds`` goes by where someone has others.

    ``complete``: the run was judged with all that there is of it.
    """
    by = JudgedBy(config=config.digest, policy=config.policy, stale_after=config.stale_after)
    if complete and run.shared:
        state = end.state(run.fingerprint(needs_of(Config())))
        by = replace(by, state=digest_of(state, annotations.digest, verdict=annotations.verdict))
    return {SETTINGS: by.value, RULES: str(RULES_VERSION)}


def is_judged_alike(recorded: Recorded, config: Config) -> bool:
    """Whether the same rules, settings and policy gave the verdict that a run has as would give a new one."""
    by = JudgedBy.of(recorded.settings)
    return recorded.rules in (None, RULES_VERSION) and (by.config, by.policy) == (config.digest, config.policy)


def bytes_to_annotate(run: TrackedRun, config: Config, *, rejudge: bool = False) -> int | None:
    """How many bytes of its files annotating a run could read at most; None where its annotation still holds."""
    settings = config_for_run(config, run)
    request = needs_of(settings)
    recorded, end = run.recorded(), find_end(run, settings.stale_after)
    if recorded is not None and recorded.verdict:
        fingerprint = run.fingerprint(request)
        if why_verdict_holds(run, recorded, settings, end, fingerprint, rejudge=rejudge) is not None:
            return None
    return min(run.bytes_of_files(request), settings.max_download)
