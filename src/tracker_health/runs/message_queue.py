"""Messages that wait on this machine for their time and their receiver: sent outside the training, once each.

What was found is on the run; what waits, and what was sent in the last hour, is in a file of this user's. Two processes
never send at once, and a receiver that does not answer is tried again by whoever comes next.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tracker_health.config import Notify
from tracker_health.errors import ConfigError, ReadError, RunNotFound, TrackerHealthError, described
from tracker_health.judge.messages import (
    ALERT,
    HOUR_SECONDS,
    MESSAGE,
    Message,
    Notice,
    Sent,
    SentMessages,
    alert_of,
    fields_of,
    payload,
    planned,
)
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.settings.values import may_send, why_not_sent
from tracker_health.stores.base import Overtaken
from tracker_health.stores.common.atomic_files import remove_leftovers, replace_file
from tracker_health.stores.common.locks import let_go, locked, try_lock
from tracker_health.stores.common.tracked_run import TrackedRun, alerting
from tracker_health.stores.remote import hosts
from tracker_health.stores.remote.backoff import seconds_of
from tracker_health.stores.remote.deadline import within
from tracker_health.stores.remote.web import opener
from tracker_health.text import printable
from tracker_health.words.acknowledgements import open_codes, standing
from tracker_health.words.gap_names import WANDB_ALERT_TITLE
from tracker_health.words.verdict import Verdict

SEND_SECONDS = 10.0
"""How long a receiver may take over one message."""
KEEP_SECONDS = 86_400.0
"""How long a message waits for its receiver at most."""
MOST_WAITING = 5_000
_FIRST_PAUSE, _LONGEST_PAUSE = 30.0, 3_600.0
_LOCK_SECONDS = 5.0
_MAX_BYTES = 2**24
_MOST_SEEN = 1_000

Opener = Callable[[str], TrackedRun]


@dataclass(frozen=True, kw_only=True)
class Delivered:
    """What sending came to: so many ``messages``, and the names of the runs that they were ``about``, whose number is
    ``runs``; ``waiting``: notices that have to wait; ``problem``: why one could not be sent, "" otherwise.
    """

    messages: int = 0
    about: frozenset[str] = frozenset()
    waiting: int = 0
    problem: str = ""

    @property
    def runs(self) -> int:
        return len(self.about)


@dataclass(frozen=True, kw_only=True)
class _State:
    """``pause``: until when nothing is sent to a receiver, and after how many failures, by receiver. ``seen``: servers
    of which a sweep has come to its end. ``silences``: by the keys of notices, the last points of runs that stand
    still, about which people were sent a message, or are to be.
    """

    waiting: tuple[Notice, ...] = ()
    sent: tuple[Sent, ...] = ()
    pause: Mapping[str, tuple[float, int]] | None = None
    seen: tuple[str, ...] = ()
    silences: Mapping[str, float] = field(default_factory=dict)


class _NotSent(Exception):
    """A receiver did not take a message. ``after``: in how many seconds it asks to be tried again, None if it does
    not say.
    """

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class MessageQueue:
    """The messages of this user on this machine. ``folder``: where they wait, by default that for programs' state.

    What cannot be kept there is not sent: nothing is ever said twice for want of a memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    @cached_property
    def _folder(self) -> Path:
        return _default_folder() if self._given is None else self._given

    def knows(self, server: str) -> bool:
        """Whether a sweep of this server has come to its end before."""
        return server in self._read().seen

    def remember(self, server: str) -> None:
        """A sweep of this server has come to its end.

        Raises:
            OSError: the folder cannot be written to.
        """
        with self._locked_state() as change:
            state = self._read()
            change(replace(state, seen=(*(one for one in state.seen if one != server), server)[-_MOST_SEEN:]))

    def put(self, notices: Iterable[Notice]) -> None:
        """Let messages wait, in the place of earlier ones on the same cause of the same run.

        Raises:
            OSError: the folder cannot be written to.
        """
        with self._locked_state() as change:
            state = self._read()
            waiting = {one.key: one for one in state.waiting}
            for notice in notices:
                known = waiting.get(notice.key, notice)
                waiting[notice.key] = replace(notice, sent=known.sent, taken=known.taken)
            change(replace(state, waiting=tuple(waiting.values())[-MOST_WAITING:]))

    def put_silences(self, notices: Iterable[Notice], *, send: bool = True) -> int:
        """Let messages on runs that stand still wait, one for each silence; not ``send``: only remember the silences.

        Returns:
            How many are new.

        Raises:
            OSError: the folder cannot be written to.
        """
        known = self._read().silences
        fresh = [one for one in notices if known.get(one.key) != one.silence]
        if not fresh:
            return 0
        with self._locked_state() as change:
            state = self._read()
            silences = {key: one for key, one in state.silences.items() if key not in {new.key for new in fresh}}
            silences = dict([*silences.items(), *((one.key, one.silence) for one in fresh)][-MOST_WAITING:])
            change(replace(state, silences=silences))
        if send:
            self.put(fresh)
        return len(fresh)

    def deliver(self, notify: Notify, store: str, open_run: Opener, now: float | None = None) -> Delivered:
        """Send what is due to be sent about runs of this store, and say so on the runs.

        Args:
            notify: The receivers.
            store: The key of the store that ``open_run`` opens runs of.
            open_run: The run of a name.
            now: In seconds since 1970; by default the time.

        Returns:
            What was sent. What was not is tried again by the next call.

        Raises:
            OSError: the folder cannot be written to.
        """
        at = time.time() if now is None else now
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        place = self._folder / "sending"
        place.mkdir(exist_ok=True)
        lock = try_lock(place)
        if lock is None and os.name == "posix":  # someone else is sending
            return Delivered(waiting=self._waiting(store))
        try:
            return self._deliver(notify, store, open_run, at)
        finally:
            if lock is not None:
                let_go(lock)

    def _deliver(self, notify: Notify, store: str, open_run: Opener, now: float) -> Delivered:
        channels = _channels(notify)
        here = [one for one in self._read().waiting if one.store == store]
        self._settle([one for one in here if one.sent], channels, open_run)
        self._drop([one for one in here if not 0 <= now - one.found < KEEP_SECONDS])
        done = [self._deliver_by(channel, channels, store, open_run, now) for channel in channels]
        return Delivered(
            messages=sum(one.messages for one in done),
            about=frozenset().union(*(one.about for one in done)),
            waiting=self._waiting(store),
            problem="; ".join(one.problem for one in done if one.problem),
        )

    def _waiting(self, store: str) -> int:
        return sum(one.store == store and not one.sent for one in self._read().waiting)

    def _deliver_by(
        self, channel: _Channel, channels: Sequence[_Channel], store: str, open_run: Opener, now: float
    ) -> Delivered:
        """Send what is to leave by a channel, until it takes no more."""
        until, failures = (self._read().pause or {}).get(channel.receiver, (0.0, 0))
        if now < until <= now + _LONGEST_PAUSE:
            return Delivered()
        messages, about = 0, frozenset[str]()
        state = self._read()
        waiting = [one for one in state.waiting if one.store == store and channel.lacks(one)]
        for message in planned(waiting, [one for one in state.sent if one.by == channel.name], now):
            known = [(one, self._is_owed(one, open_run)) for one in message.notices]
            owed = tuple(one for one, is_owed in known if is_owed)
            self._drop([one for one, is_owed in known if is_owed is False])
            if not owed:
                continue
            due = replace(message, notices=owed)
            try:
                channel.send(due, open_run)
            except (_NotSent, ConfigError) as error:
                self._pause(channel.receiver, now, failures + 1, getattr(error, "after", None))
                return Delivered(messages=messages, about=about, problem=str(error))
            self._remember_sent(due, channel, now)
            self._settle(owed, channels, open_run)
            messages, about = messages + 1, about.union(one.run for one in owed)
        return Delivered(messages=messages, about=about)

    def _is_owed(self, notice: Notice, open_run: Opener) -> bool | None:
        """Whether this message is still to be sent: the run says that it is ours, or that another channel of ours had
        it, and nobody has acknowledged the findings. None where that cannot be seen now: it waits.
        """
        try:
            with closing(open_run(notice.run)) as opened:
                if notice.silence:
                    pulse = opened.pulse()
                    return pulse is None or (pulse.points == notice.silence and opened.heard() is not None)
                recorded, told = opened.recorded(), SentMessages.of(opened.notified())
                is_due = (told.due, told.token) == (notice.subject, notice.token)
                if not (is_due or (notice.taken and notice.subject in told.causes)):
                    return False
                if recorded is None:  # it is running, and has no verdict that anybody could have answered
                    return True
                counting = standing(opened.acknowledgements(), cause=recorded.cause, now=time.time())
                return recorded.is_whole and bool(open_codes(recorded.codes, counting))
        except RunNotFound:
            return False
        except Exception:  # noqa: BLE001  its server is away
            return None

    def _settle(self, notices: Iterable[Notice], channels: Sequence[_Channel], open_run: Opener) -> None:
        """Say on the runs that their messages were sent; where that cannot be said yet, it is tried again. A message
        that has to leave by another channel, too, waits on.
        """
        done = set()
        for notice in notices:
            with suppress(Exception), closing(open_run(notice.run)) as opened:
                told = SentMessages.of(opened.notified())
                if told.due == notice.subject and not notice.silence:
                    opened.mark_notified(told.paid().value)
                done.add(notice.key)
        if not done:
            return
        with self._locked_state() as change:
            state = self._read()
            left = (replace(one, sent=False) if one.key in done else one for one in state.waiting)
            waits = (one for one in left if one.key not in done or any(channel.lacks(one) for channel in channels))
            change(replace(state, waiting=tuple(waits)))

    def _drop(self, notices: Iterable[Notice]) -> None:
        keys = {one.key for one in notices}
        if not keys:
            return
        with self._locked_state() as change:
            state = self._read()
            change(replace(state, waiting=tuple(one for one in state.waiting if one.key not in keys)))

    def _remember_sent(self, message: Message, channel: _Channel, now: float) -> None:
        keys = {one.key for one in message.notices}
        with self._locked_state() as change:
            state = self._read()
            waiting = tuple(channel.took(one) if one.key in keys else one for one in state.waiting)
            recent = [one for one in state.sent if now - one.when < HOUR_SECONDS]
            pause = {key: value for key, value in (state.pause or {}).items() if key != channel.receiver}
            change(replace(state, waiting=waiting, sent=(*recent, message.as_sent(now, channel.name)), pause=pause))

    def _pause(self, receiver: str, now: float, failures: int, after: float | None) -> None:
        seconds = _FIRST_PAUSE * 2 ** min(failures - 1, 10) if after is None else after
        until = now + min(max(seconds, 0.0), _LONGEST_PAUSE)
        with self._locked_state() as change:
            state = self._read()
            pause = {key: value for key, value in (state.pause or {}).items() if value[0] > now}
            change(replace(state, pause={**pause, receiver: (until, failures)}))

    # The file

    @property
    def _file(self) -> Path:
        return self._folder / "notices.json"

    @contextmanager
    def _locked_state(self) -> Iterator[Callable[[_State], None]]:
        """Hold the lock on the state; gives what writes it."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        end = time.monotonic() + _LOCK_SECONDS
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self._folder, "the messages of this machine"))
                    break
                except Overtaken:
                    if time.monotonic() > end:
                        raise TimeoutError("another process keeps the messages of this machine locked") from None
                    time.sleep(0.02)
            remove_leftovers(self._folder)
            yield self._write

    def _write(self, state: _State) -> None:
        document = {
            "waiting": [one.to_json() for one in state.waiting],
            "sent": [asdict(one) for one in state.sent],
            "pause": {key: list(value) for key, value in (state.pause or {}).items()},
            "seen": list(state.seen),
            "silences": dict(state.silences),
        }
        replace_file(self._file, json.dumps(document).encode())

    def _read(self) -> _State:
        """What is there; nothing of a file that is damaged."""
        try:
            document = json.loads(read_regular(self._file, _MAX_BYTES))
            waiting = [Notice.from_json(one) for one in document["waiting"]]
            return _State(
                waiting=tuple(one for one in waiting if one is not None),
                sent=tuple(Sent(**one) for one in document["sent"]),
                pause={str(key): (float(until), int(failures)) for key, (until, failures) in document["pause"].items()},
                seen=tuple(map(str, document["seen"])),
                silences={str(key): float(one) for key, one in document.get("silences", {}).items()},
            )
        except (OSError, ReadError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return _State()


def _default_folder() -> Path:
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        raise FileNotFoundError("this user has no home folder; set XDG_STATE_HOME") from None
    return Path(base) / "tracker-health" / "notices"


def _receiver_key(notify: Notify) -> str:
    parts = [notify.webhook, notify.webhook_env, list(notify.command)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# Receivers


@dataclass(frozen=True)
class _Channel:
    """A way by which messages leave. ``name``: of ``messages``; ``receiver``: who is left alone for a while after a
    failure; ``takes``: whether a message is one for it.
    """

    name: str
    receiver: str
    takes: Callable[[Notice], bool]
    send: Callable[[Message, Opener], None]

    def lacks(self, notice: Notice) -> bool:
        """Whether a message has to leave by it and has not."""
        return self.takes(notice) and self.name not in notice.taken

    def took(self, notice: Notice) -> Notice:
        """The message after it has left, with the run still to be marked."""
        return replace(notice, taken=(*notice.taken, self.name), sent=True)


def _channels(notify: Notify) -> list[_Channel]:
    found = []
    if notify.has_receiver:
        found.append(
            _Channel(MESSAGE, _receiver_key(notify), lambda _: True, lambda message, _: _send_message(message, notify))
        )
    if notify.wandb_alert:
        found.append(_Channel(ALERT, ALERT, lambda notice: notice.alerts, _send_alert))
    return found


def _send_alert(message: Message, open_run: Opener) -> None:
    """Have W&B alert people, about the first run where a message is about several.

    Raises:
        _NotSent: it did not take the alert.
    """
    first = message.notices[0]
    title, text = alert_of(message.notices, WANDB_ALERT_TITLE)
    verdict = Verdict.FAIL if any(one.verdict == Verdict.FAIL for one in message.notices) else Verdict.WARN
    try:
        with closing(open_run(first.run)) as opened:
            if (run := alerting(opened)) is None:
                raise _NotSent("this run's tracker cannot alert anybody")
            run.alert(title, text, verdict)
    except TrackerHealthError as error:
        raise _NotSent(described(error)) from None


def _send_message(message: Message, notify: Notify) -> None:
    """Hand a message to the receiver: the address where there is one, else the command.

    Raises:
        _NotSent: it did not take it. No text of a receiver and no address is in the reason.
        ConfigError: a variable with an address or a token is not set.
    """
    fields = fields_of(message.notices)
    if notify.webhook or notify.webhook_env:
        content = json.dumps(payload(fields, notify.template)).encode()
        address = _address(notify)
        _post(address, content, _token(notify.token_env, address) if notify.token_env else "")
    else:
        _run_command(notify.command, json.dumps(fields).encode())


def _address(notify: Notify) -> str:
    address = _secret(notify.webhook_env) if notify.webhook_env else notify.webhook
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"the address in {notify.webhook_env} is not of http or https", "set it again")
    if notify.webhook_env and not hosts.may_carry_secrets(address):
        message = f"the address in {notify.webhook_env} is a secret, and would be sent over plain http"
        raise ConfigError(message, f"{hosts.encrypt_hint(address)}, or give it as webhook if it is none")
    return address


def _token(variable: str, address: str) -> str:
    """The token for a receiver, from a variable that the environment allows: what names the variable may have come with
    a repository that someone else wrote.
    """
    if not may_send(os.environ, variable, address):
        raise ConfigError(*why_not_sent(variable, address))
    if not hosts.may_carry_secrets(address):
        message = f"the token in {variable} is not sent to {hosts.host_of(address)} over plain http"
        raise ConfigError(message, hosts.encrypt_hint(address))
    return _secret(variable)


def _secret(variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"the environment variable {variable} is not set", "export it where the sweep runs")
    return value


def _post(address: str, content: bytes, token: str) -> None:
    try:
        status, after = within(SEND_SECONDS, _post_once, address, content, token)
    except TimeoutError:
        raise _NotSent(f"the receiver did not answer within {SEND_SECONDS:g} seconds") from None
    except Exception as error:  # noqa: BLE001  whose text may have the address in it
        reason = getattr(error, "reason", error)
        words = reason.strerror if isinstance(reason, OSError) and reason.strerror else type(error).__name__
        raise _NotSent(f"the receiver cannot be reached: {printable(words, 100)}") from None
    if not 200 <= status < 300:
        raise _NotSent(f"the receiver answered {status}", after)


def _post_once(address: str, content: bytes, token: str) -> tuple[int, float | None]:
    """The status of the answer, and after how many seconds it wants to be asked again. Redirects are not followed: a
    token is for one address.
    """
    from urllib.error import HTTPError
    from urllib.request import Request

    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    request = Request(address, data=content, headers=headers, method="POST")  # noqa: S310  checked by _address
    try:
        with opener(follows=False).open(request, timeout=SEND_SECONDS) as answer:
            return answer.status, None
    except HTTPError as error:
        with error:
            return error.code, seconds_of(error.headers.get("Retry-After"))


def _run_command(command: tuple[str, ...], content: bytes) -> None:
    try:
        quiet = subprocess.DEVNULL
        done = subprocess.run(  # noqa: S603  the owner's command, without a shell
            command, input=content, stdout=quiet, stderr=quiet, timeout=SEND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise _NotSent(f"the command did not end within {SEND_SECONDS:g} seconds") from None
    except OSError as error:
        raise _NotSent(f"the command cannot be started: {printable(error.strerror or type(error).__name__)}") from None
    if done.returncode:
        raise _NotSent(f"the command ended with exit code {done.returncode}")


def deliver_quietly(work: Callable[[], Delivered]) -> Delivered:
    """What sending came to, where an error of any kind is only its ``problem``: a message never costs a verdict."""
    try:
        return work()
    except (OSError, TrackerHealthError) as error:
        return Delivered(problem=described(error))
    except Exception as error:  # noqa: BLE001
        return Delivered(problem=f"unexpected {type(error).__name__}")
