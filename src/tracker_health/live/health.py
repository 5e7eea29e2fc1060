"""Judge a run by what it has logged so far, from inside its training."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any, Self

from tracker_health.config import Config, preset
from tracker_health.errors import ConfigError, named
from tracker_health.evidence import Evidence, RunInfo, RunRef, confirm
from tracker_health.live.history import LoggedSoFar
from tracker_health.live.rules import share_known
from tracker_health.live.silence import SilenceTimer
from tracker_health.live.together import LookSchedule, from_first, is_first, is_one_of_several
from tracker_health.live.tracked import LiveRuns, Requests
from tracker_health.live.verdicts import FEWEST_POINTS, GROWTH, LiveFinding, LiveJudge
from tracker_health.monitor.measuring_errors import tell
from tracker_health.monitor.trackers import ActiveRun
from tracker_health.report.result import Report
from tracker_health.text import printable
from tracker_health.words.stopped import Stop, stop_of
from tracker_health.words.verdict import Verdict

SECONDS = 60.0
REST = 20.0
"""So many times as long as a look took nothing is judged again: looks take a twentieth of the time at most."""
FREE_SECONDS = 1.0
"""So long the looks of a run may take before they rest, so that a short training is judged at every growth too."""
_PLAN_PARAM = "max_steps"
_MOST_STEPS = 2**63


class LiveHealth:
    """The rules on curves and gradients, over what has been logged so far.

    ``report`` is the newest judgement: that of ``check`` on the same history with these rules alone. A finding is
    given out once it has stood while the history grew: see ``live.rules``. ``should_stop`` is for the training loop to
    ask; nothing is ever raised or stopped by itself.

        health = LiveHealth(plan=10_000)
        for step, batch in enumerate(data):
            loss = train(batch)
            if health.step(step=step, loss=loss) and health.should_stop:
                break
    """

    def __init__(
        self,
        *,
        plan: float | None = None,
        params: Mapping[str, Any] | None = None,
        config: Config | str = "default",
        stop_on: str | None = "fail",
        dry_run: bool = False,
        seconds: float = SECONDS,
        rest: float = REST,
        together: bool = False,
        on_finding: Callable[[LiveFinding], object] | None = None,
        runs: Sequence[ActiveRun] | None = None,
        alert: bool = False,
        obey: bool = False,
        hang: bool = True,
    ) -> None:
        """Begin with an empty history.

        Args:
            plan: The last step that the run is meant to reach, in the unit of ``step``.
            params: Settings of the run (``learning_rate``, ``num_classes``, ...), which some rules ask for.
            config: How to judge: a ``Config``, or the name of a preset. Its ``baseline`` is what is usual.
            stop_on: ``"fail"`` or ``"warn"``: at such a finding ``should_stop`` becomes true; None for never.
            dry_run: Say what would stop the run, and let it go on.
            seconds: So long after a look another one is due at the latest, if something was logged since.
            rest: Times as long as a look took, before another one, once the looks have taken a second; 0 to look
                whenever the history has grown.
            together: All processes of ``torch.distributed`` call ``step`` (or ``log``) with the same steps. The first
                judges by what it logs itself, and all have its findings at the same step, so that all stop there. They
                look when the history has grown, never by the clock. A process that does not call leaves the others
                waiting: switch it on only where all do.
            on_finding: Is given each finding, once; of several processes in the first.
            runs: Where it says why it stops; by default the MLflow and W&B runs that are active then.
            alert: Also mark these runs while they are running, at any finding: ``health.live``. With the setting
                ``notify.wandb_alert`` W&B also alerts people; trackio always gets an alert.
            obey: Stop as well when the run itself asks for that, as ``tracker-health follow --stop-on`` makes it do.
            hang: Also say, from a thread, when nothing was logged for longer than this training's rhythm explains: a
                finding that stops nothing. After the training call ``close``. Not at a prompt or in a notebook.

        Raises:
            ConfigError: an argument makes no sense.
        """
        if stop_on not in (None, "warn", "fail"):
            raise ConfigError(f'stop_on={stop_on!r}: it must be "warn", "fail" or None')
        last = None if plan is None else _number("plan", plan, "it must be the last step, a positive number")
        if last is not None and not 0 < last < math.inf:
            raise ConfigError(f"plan={plan!r}: it must be the last step, a positive number")
        self._seconds, self._rest = (
            _number(name, value, "it must be a number, 0 or more")
            for name, value in (("seconds", seconds), ("rest", rest))
        )
        if min(self._seconds, self._rest) < 0:
            raise ConfigError(f"seconds={seconds!r}, rest={rest!r}: both must be 0 or more")
        if params is not None and not isinstance(params, Mapping):
            raise ConfigError(f"params={params!r}: it must be settings by name, as in {{'learning_rate': 0.1}}")
        if on_finding is not None and not callable(on_finding):
            raise ConfigError(f"on_finding={on_finding!r}: it must be a function of a finding")
        self._options = {
            "plan": plan, "params": params, "config": config, "stop_on": stop_on, "dry_run": dry_run,
            "seconds": seconds, "rest": rest, "together": together, "alert": alert, "obey": obey,
            "hang": hang,
        }  # fmt: skip
        base = preset(config) if isinstance(config, str) else config
        self._judge = LiveJudge(base, Verdict(stop_on) if stop_on else None)
        self._plan = last
        self._params = _texts(params or {})
        if last is not None:
            self._params.setdefault(_PLAN_PARAM, f"{last:g}")
        self._dry_run, self._on_finding = dry_run, on_finding
        self._history = LoggedSoFar(self._judge.request.roles, "the training")
        self._runs, self._alert, self._marked = LiveRuns(runs), alert, Verdict.PASS
        self._requests = Requests(self._asked) if obey else None
        self._silence = SilenceTimer(base, self._params, self._hangs) if hang else None
        self._asked_for: tuple[LiveFinding, Stop] | None = None
        self._next_points, self._rested, self._next_time = float(FEWEST_POINTS), 0.0, math.inf
        self._spent = 0.0
        self._broken = False
        self._together, self._rows = together, LookSchedule(FEWEST_POINTS, GROWTH) if together else None
        self.should_stop, self.stopped_by = False, None

    should_stop: bool
    stopped_by: LiveFinding | None
    """The finding that a training should stop for, or would have to in a dry run."""

    @property
    def report(self) -> Report | None:
        """The newest judgement, None before the first."""
        return self._judge.report

    @property
    def findings(self) -> list[LiveFinding]:
        """What was found so far."""
        return self._judge.findings

    def step(self, *, step: int | None = None, **metrics: Any) -> LiveFinding | None:
        """Take what was logged at a step, and judge if that is due.

        Args:
            step: Counts up; by default from 0 with each call.
            **metrics: Numbers by name: ``loss``, ``val_loss``, ``grad_norm``, ``learning_rate``, ...

        Returns:
            A finding that is new, the worst of several; else None.
        """
        return self.log(metrics, step)

    def log(self, metrics: Mapping[str, Any], step: int | None = None) -> LiveFinding | None:
        """As ``step``, for names that are no Python names.

        Args:
            metrics: Numbers by name (``train/loss``); what is no number is passed over.
            step: As for ``step``.

        Returns:
            As ``step``.
        """
        if self._rows is not None and is_one_of_several():
            return self._log_together(self._rows, metrics, step)
        at = self._place(step)
        if self._broken or at is None or not isinstance(metrics, Mapping):
            return None
        try:
            broke = self._add(metrics, at) and time.monotonic() >= self._rested
            found = self._look() if broke or self._is_due() else None
            return found if self._asked_for is None else self._handed_over() or found
        except Exception as error:  # noqa: BLE001  whatever is wrong in here, the training continues
            self._break(error)
            return None

    def _place(self, step: Any) -> int | None:
        """Which step is meant; None where it is no number, so that what was logged is passed over."""
        try:
            return self._history.last_step + 1 if step is None else int(step)
        except (TypeError, ValueError, OverflowError):
            return None

    def _add(self, metrics: Mapping[str, Any], step: int) -> bool:
        """Take what was logged; whether something is not finite for the first time. What is logged at a step that no
        tracker could keep is passed over.
        """
        if not -_MOST_STEPS <= step < _MOST_STEPS:
            return False
        if self._silence is not None:
            self._silence.logged(step)
            if self._alert:
                with suppress(Exception):  # MLflow knows of a run only in the thread that began it
                    self._runs.there()
        if self._requests is not None and not self._requests.begun:
            self._requests.begin(self._runs.there())
        return self._history.add(_numbers(metrics), step)

    def _break(self, error: Exception) -> None:
        self._broken = True
        tell(f"the training continues without being judged: {named(error)}")

    def _log_together(self, rows: LookSchedule, metrics: Mapping[str, Any], step: int | None) -> LiveFinding | None:
        """As ``log``; a process that cannot judge any more still takes part until all know it."""
        try:
            at, judges = rows.add(step), is_first()
            if judges and not self._broken:
                self._attempt(lambda: self._add(metrics, at))
            if not rows.is_due():
                return None
            before = len(self.findings)
            if judges and not self._broken:
                self._attempt(self._look)
                self._attempt(self._handed_over)
            self._broken, fresh = from_first((self._broken, self.findings[before:]))
            if self._broken:
                self._rows = None
            if not judges:
                self._accept(fresh)
        except Exception as error:  # noqa: BLE001  the processes cannot reach each other
            self._rows = None
            self._break(error)
            return None
        return fresh[0] if fresh else None

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the other processes wait for this one
            self._break(error)

    def _accept(self, findings: list[LiveFinding]) -> None:
        """Take over what another process found."""
        self.findings.extend(findings)
        for finding in findings:
            if finding.stops:
                self.stopped_by, self.should_stop = finding, not self._dry_run

    def _is_due(self) -> bool:
        now = time.monotonic()
        return now >= (self._rested if self._history.points >= self._next_points else self._next_time)

    def look(self) -> LiveFinding | None:
        """Judge now, whether that is due or not. Of several processes the first does, and only for itself.

        Returns:
            As ``step``.
        """
        if not self._broken:
            try:
                return self._look()
            except Exception as error:  # noqa: BLE001  as in ``log``
                self._break(error)
        return None

    def _look(self) -> LiveFinding | None:
        points = self._history.points
        if points < FEWEST_POINTS:
            return None
        begin = time.monotonic()
        found = self._judge.look(self._evidence(), points=points, step=self._history.last_step, share=self.share)
        end = time.monotonic()
        self._next_points = max(points + 1, points * GROWTH)
        self._spent += end - begin
        self._rested = end + (self._rest * (end - begin) if self._spent > FREE_SECONDS else 0.0)
        self._next_time = max(end + self._seconds, self._rested)
        for one in found:
            self._take(one)
        return found[0] if found else None

    @property
    def share(self) -> float | None:
        """How much of the plan is done, from 0 to 1; None without a plan, and where the run began long before."""
        first, last = self._history.first_step, self._history.last_step
        return None if self._plan is None else share_known(min(1.0, last / self._plan), first, last)

    def _evidence(self) -> Evidence:
        names = self._history.names
        roles = self._judge.request.roles.of(names)
        series, notes = confirm(self._history.series(), roles)
        info = RunInfo(status="RUNNING", tracker="the training", params=self._params, metric_names=names)
        ref = RunRef(store="live", id="", name="the training")
        return Evidence(
            run=ref, info=info, series=series, roles=roles, notes=notes, baseline=self._judge.config.baseline
        )

    def _take(self, finding: LiveFinding) -> None:
        """Do what a new finding leads to."""
        if finding.stops and self.stopped_by is None:
            self._stop(finding, finding.stop(time.time()))
        elif self._alert and finding.verdict.rank > self._marked.rank:
            self._mark(finding.verdict, str(finding))
        self._hand_out(finding)

    def _hand_out(self, finding: LiveFinding) -> None:
        if self._on_finding is not None:
            try:
                self._on_finding(finding)
            except Exception as error:  # noqa: BLE001  what others do with a finding ends no judging
                tell(f"on_finding: {named(error)}")

    def _stop(self, finding: LiveFinding, stop: Stop) -> None:
        self.stopped_by = finding
        if not self._dry_run:
            if self._alert:
                self._mark(finding.verdict, str(finding))
            self._runs.stopped(stop.as_stopped)
            self.should_stop = True  # last: a training that sees it may end its run at once

    def _mark(self, verdict: Verdict, reason: str) -> None:
        self._marked = verdict
        self._runs.mark(str(verdict), reason)

    def _hangs(self, finding: LiveFinding) -> None:
        """Nothing was logged for too long. That is seen in another thread, and handed out from there."""
        if self.stopped_by is not None or not is_first():
            return
        self.findings.append(finding)
        if self._alert and finding.verdict.rank > self._marked.rank:
            self._mark(finding.verdict, str(finding))
        if self._on_finding is None:
            tell(f"{finding}; {finding.remedy}")
        self._hand_out(finding)

    def _asked(self, text: str) -> None:
        """The run asks for a stop. That is seen in another thread, and handed over at the next step."""
        if self.stopped_by is not None:
            return
        asked = stop_of(text)
        reason = f"asked to: {asked.reason if asked is not None else printable(text, 200)}"
        verdict = Verdict.WARN if asked is not None and asked.verdict == Verdict.WARN else Verdict.FAIL
        code, cause = (asked.code, asked.cause) if asked is not None else ("", "")
        step = self._history.last_step
        finding = LiveFinding(
            step=step,
            verdict=verdict,
            code=code,
            name="asked-to-stop",
            message=reason,
            remedy="",
            cause=None,
            stops=True,
        )
        stop = Stop(step=step, verdict=str(verdict), code=code, cause=cause, reason=reason, when=time.time())
        self._asked_for = finding, stop
        if not self._together:  # of several processes all stop at the next look
            self._stop(finding, stop)

    def _handed_over(self) -> LiveFinding | None:
        asked, self._asked_for = self._asked_for, None
        if asked is None:
            return None
        finding, stop = asked
        if self.stopped_by is None:
            self._stop(finding, stop)
        self.findings.append(finding)
        self._hand_out(finding)
        return finding

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: a copy of a model or a callback that has it is of the same training."""
        return self

    def __reduce__(self) -> Any:
        """Pickled with a model or into another process it is a new one, with the same options and no history. Runs and
        ``on_finding`` stay behind.
        """
        return _again, (self._options,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end_silences(self) -> None:
        """The training is over: that nothing more is logged is no hang."""
        if self._silence is not None:
            self._silence.close()

    def close(self) -> None:
        """Wait for what is being said on the runs, for ten seconds at most; look for no more requests and silences."""
        self.end_silences()
        if self._requests is not None:
            self._requests.close()
        self._runs.close()


def _again(options: Mapping[str, Any]) -> LiveHealth:
    return LiveHealth(**options)


def _number(name: str, value: Any, wanted: str) -> float:
    """A number of Python's or numpy's, which may be infinite.

    Raises:
        ConfigError: it is none, or larger than any float.
    """
    with suppress(OverflowError):
        if isinstance(value, Real) and not math.isnan(number := float(value)):
            return number
    raise ConfigError(f"{name}={_shown(value)}: {wanted}")


def _shown(value: object) -> str:
    with suppress(Exception):  # a number of many digits has no text
        return printable(repr(value), 80)
    return f"a {type(value).__name__}"


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Settings as text; without those that have none."""
    found = {}
    for name, value in params.items():
        if value is not None:
            with suppress(Exception):
                found[str(name)] = str(value)
    return found


def _numbers(metrics: Mapping[str, Any]) -> Mapping[str, float]:
    """Of what was logged the numbers, also those in arrays and tensors of one value."""
    if all(value.__class__ is float and name.__class__ is str for name, value in metrics.items()):
        return metrics
    numbers = {}
    for name, value in metrics.items():
        if not isinstance(value, (str, bytes, bool)):
            with suppress(Exception):  # whatever the object of someone raises, the others are judged
                numbers[str(name)] = float(value.item() if hasattr(value, "item") else value)
    return numbers
