"""Which verdicts are worth a message to someone, what it says, and how many leave at a time. Pure.

A message is about one cause of one run, or about many runs of one experiment. What it says comes from a run, which is
hostile: it is bounded, and without what may be private unless the settings ask for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tracker_health.config import CERTAINTIES, Notify
from tracker_health.judge.doc_links import docs_link, page_about
from tracker_health.report.result import Report
from tracker_health.text import count, printable, sentence, without_userinfo
from tracker_health.words.causes import is_same_cause
from tracker_health.words.diagnosis import in_words
from tracker_health.words.ending import Ended
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.diagnosis import Cause

WINDOW_SECONDS = 600.0
MOST_ALONE = 3
"""So many runs of one experiment have a message each within ``WINDOW_SECONDS``; more of them share one."""
MOST_AN_HOUR = 20
HOUR_SECONDS = 3600.0
LEASE_SECONDS = 1800.0
"""How long a message that is due is left to whoever found the verdict, before another sweep sends it."""
MESSAGE, ALERT = "message", "alert"
"""The channels by which a message leaves: to an address or a command, and as W&B's own alert."""
_MOST_CAUSES = 20
_MOST_NAMED = 5
_MAX_TEXT = 3_000

_CAUSE = r"[A-Za-z0-9][A-Za-z0-9-]{0,79}"
_TOLD = re.compile(
    rf"(?:told=({_CAUSE}(?:,{_CAUSE}){{0,{_MOST_CAUSES}}}))?(?: ?due=({_CAUSE})@(\d{{1,12}})#([0-9a-f]{{8}}))?"
    r"(?: ?of=([0-9a-f]{8}))?"
)
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
_WORD = re.compile(r"[^\s'\"(),;]+")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?")
_LONGEST_SUFFIX = 11  # characters of a file's suffix
_AS_SURE = {"high": 0, "medium": 1, "low": 2} | {word: place for place, word in enumerate(CERTAINTIES)}
"""The place in ``CERTAINTIES`` of how sure a finding is, or a cause."""
_NOT_AN_ARROW = re.compile("(?<!-)>")
_LOOK_ALIKES = str.maketrans({"<": "\u2039", "@": "\uff20"})
_ENDS_OF_PROCESSES, _OF_SILENCE = "RUN", "RUN007"
"""Rules with such codes quote what a process said at its end: exceptions, with paths and values in them. That on a
silence quotes nothing.
"""


@dataclass(frozen=True, kw_only=True)
class SentMessages:
    """About what people were sent a message, as a run keeps it in the tag ``NOTIFIED``.

    ``causes``: those of which a message was sent. ``due``: the cause of one that is still to be sent, "" for none;
    ``since``: when someone took that over, in seconds since 1970, and ``token``: who, 8 hexadecimal digits. ``run``:
    the key of the run that it is about, as tags can be copied to another; "" where that is not known.
    """

    causes: tuple[str, ...] = ()
    due: str = ""
    since: int = 0
    token: str = ""
    run: str = ""

    @property
    def value(self) -> str:
        """For the tag, "" where there is nothing to say."""
        told = f"told={','.join(self.causes)}" if self.causes else ""
        due = f"due={self.due}@{self.since}#{self.token}" if self.due else ""
        run = f"of={self.run}" if self.run else ""
        return " ".join(filter(None, (told, due, run)))

    @classmethod
    def of(cls, text: str) -> SentMessages:
        """What a tag's value says; nothing, where it is not ours."""
        found = _TOLD.fullmatch(text[:4_000])
        if found is None:
            return cls()
        causes = tuple(dict.fromkeys(found[1].split(","))) if found[1] else ()
        since, token, run = int(found[3] or 0), found[4] or "", found[5] or ""
        return cls(causes=causes[-_MOST_CAUSES:], due=found[2] or "", since=since, token=token, run=run)

    def on(self, run: str, *, is_copied: bool) -> SentMessages:
        """What of it is about the run of this key, on which it stands: nothing but that it is ours, where it or all
        (``is_copied``) was copied from another.
        """
        return SentMessages(run=run) if is_copied or self.run not in ("", run) else replace(self, run="")

    def stamped(self, run: str) -> SentMessages:
        """The same, to be put onto the run of this key."""
        return replace(self, run=run if self.causes or self.due else "")

    def owing(self, cause: str, now: float, token: str) -> SentMessages:
        """The same, with a message on this cause due; on none where it is ""."""
        if not cause:
            return SentMessages(causes=self.causes, run=self.run)
        return replace(self, due=cause, since=int(now), token=token)

    def paid(self) -> SentMessages:
        """The same after the message that was due has been sent."""
        left = tuple(one for one in self.causes if one != self.due)
        return SentMessages(causes=(*left, self.due)[-_MOST_CAUSES:], run=self.run) if self.due else self

    def is_overdue(self, now: float) -> bool:
        """Whether a message is due that whoever took it over did not send in time."""
        return bool(self.due) and not 0 <= now - self.since < LEASE_SECONDS


@dataclass(frozen=True, kw_only=True)
class Before:
    """The verdict that a run had. ``cause``: its likely cause, or the code of its worst finding. ``alike``: the same
    rules, settings and policy gave it as give the new one.
    """

    verdict: Verdict
    cause: str
    alike: bool


def subject_of(report: Report) -> str:
    """What a message on a report is about: its cause or, without one, the code of its worst finding."""
    if report.diagnosis is not None:
        return report.diagnosis.cause
    return _first_code(report)


def _first_code(report: Report) -> str:
    return report.findings[0].code if report.findings else ""


def due_of(report: Report, notify: Notify, traits: Mapping[str, str], told: SentMessages, before: Before | None) -> str:
    """What a message is to be sent about, "" for none.

    ``traits``: of the run, as ``Config.for_run`` has them. ``before``: None for a run without a whole verdict.
    """
    subject, least = subject_of(report), Verdict.WARN if notify.on == "warn" else Verdict.FAIL
    if not subject or report.verdict not in (Verdict.WARN, Verdict.FAIL) or report.open_verdict.rank < least.rank:
        return ""
    if not _is_sure(report, notify) or report.ended in (Ended.PREEMPTED, Ended.PRUNED) or notify.is_muted(traits):
        return ""
    if any(is_same_cause(subject, one) for one in told.causes):
        return ""
    if told.due == subject or before is None:
        return subject
    is_known = before.verdict.rank >= report.verdict.rank and is_same_cause(
        report.cause or _first_code(report), before.cause
    )
    return subject if before.alike and not is_known else ""


def _is_sure(report: Report, notify: Notify) -> bool:
    """Whether it is as sure as is asked for: of a failure what was found, whatever is known of its cause."""
    least = CERTAINTIES.index(notify.certainty)
    sure = [len(CERTAINTIES) - 1 if report.diagnosis is None else _AS_SURE.get(report.diagnosis.certainty, least + 1)]
    if report.verdict is Verdict.FAIL:
        sure += [_AS_SURE[one.confidence] for one in report.findings if one.verdict is Verdict.FAIL]
    return min(sure) <= least


# What it says


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A verdict that someone is to be sent a message about.

    ``run``: what ``open_run`` takes, in the ``store`` of this key. ``place``: the experiment or project, "" for none.
    ``subject``: see ``subject_of``. ``found``: when, in seconds since 1970; ``token``: of ``SentMessages``.
    ``alerts``: the run's tracker can alert people itself. ``taken``: the channels by which the message has left.
    ``silence``: of a run that stands still, when its last point came, in seconds since 1970: nothing of that is on the
    run, and ``token`` is empty. Else 0.
    ``sent``: it has left by one of them, and the run does not say so yet. ``picture``: the address of the picture that
    was written with the report, "" for none.
    """

    run: str
    store: str
    tracker: str
    place: str
    name: str
    subject: str
    verdict: str
    certainty: str
    said: str
    action: str
    url: str
    docs: str
    found: float
    token: str
    alerts: bool = False
    taken: tuple[str, ...] = ()
    sent: bool = False
    picture: str = ""
    silence: float = 0.0

    @property
    def key(self) -> str:
        """The same for the same cause of the same run."""
        return hashlib.sha256(json.dumps([self.store, self.run, self.subject]).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """As strict JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Notice | None:
        """What ``to_json`` gave, None for what is none."""
        try:
            found = cls(**{**document, "taken": tuple(map(str, document.get("taken", ())))})
        except (TypeError, AttributeError):
            return None
        others = ("found", "alerts", "taken", "sent", "silence")
        texts = [value for key, value in asdict(found).items() if key not in others]
        is_one = all(isinstance(value, str) for value in texts) and all(
            isinstance(one, (int, float)) for one in (found.found, found.silence)
        )
        return found if is_one else None


def notice_of(
    report: Report,
    *,
    run: str,
    store: str,
    traits: Mapping[str, str],
    notify: Notify,
    docs_url: str,
    due: SentMessages,
    alerts: bool = False,
) -> Notice:
    """The notice on a report. ``run``, ``store`` and ``alerts``: see ``Notice``; ``due``: with whose token and time."""
    diagnosis = report.diagnosis
    said, action = _words_of(report, frozenset(notify.include))
    return Notice(
        run=run,
        store=store,
        tracker=report.run.store,
        place=printable(traits.get("experiment") or traits.get("project") or "", 120),
        name=printable(report.run.name, 120),
        subject=due.due,
        verdict=str(report.verdict),
        certainty=diagnosis.certainty if diagnosis is not None else "",
        said=said,
        action=action,
        url=printable(without_userinfo(report.run.url), 500) if report.run.url else "",
        docs=(docs_link(due.due, docs_url) or page_about(report, docs_url)) or "",
        found=float(due.since),
        token=due.token,
        alerts=alerts,
    )


def _words_of(report: Report, include: frozenset[str]) -> tuple[str, str]:
    """A sentence with the numbers, and what to do, without what is not to leave."""
    from tracker_health.diagnosis import CAUSES

    diagnosis = report.diagnosis
    quotes = any(map(_quotes, _subject_codes(report)))
    needed = {"params", "exception"} if quotes else {"params"}
    if diagnosis is not None and needed <= include:
        return _public(diagnosis.sentence, include), _public(diagnosis.action.in_short, include)
    cause = next((one for one in CAUSES if diagnosis is not None and one.name == diagnosis.cause), None)
    said = _in_public(report, cause, include)
    if diagnosis is None:
        return said, _public(report.findings[0].remedy, include) if report.findings else ""
    if cause is not None and not callable(cause.do):
        return said, cause.do if isinstance(cause.do, str) else cause.do.text
    if diagnosis.action.setting:
        return said, f"check the setting {printable(diagnosis.action.setting, 80)}"
    return said, cause.test if cause is not None else ""


def _in_public(report: Report, cause: Cause | None, include: frozenset[str]) -> str:
    """What was found and its cause without the numbers of the latter, which may be of params."""
    about = report.diagnosis.about if report.diagnosis is not None else ""
    heading = sorted(report.findings, key=lambda one: one.code != about)
    quoted = "exception" in include
    messages = (one.message for one in heading if quoted or not _quotes(one.code))
    fact = _public(next(messages, ""), include)
    if cause is None or report.diagnosis is None:
        return fact or f"The verdict is {report.verdict}"
    if not fact:
        return cause.title
    title = "nothing that was logged shows why" if cause.unknown else cause.title
    return in_words(fact, title, report.diagnosis.certainty)


def _subject_codes(report: Report) -> tuple[str, ...]:
    """The codes that the words of a message are about."""
    return tuple(one.code for one in (report.explained or report.findings))


def _quotes(code: str) -> bool:
    return code.startswith(_ENDS_OF_PROCESSES) and code != _OF_SILENCE


def _public(text: str, include: frozenset[str]) -> str:
    """The text without the hosts and paths in it, where these were not asked for."""

    def shown(found: re.Match[str]) -> str:
        word = found.group()
        hidden = ("hosts" not in include and _is_host(word)) or ("paths" not in include and _is_path(word))
        return "…" if hidden else word

    return printable(_WORD.sub(shown, printable(text, 1_000)), 500)


def _is_host(word: str) -> bool:
    user, at, host = word.partition("@")
    return "://" in word or bool(at and user and host) or _ADDRESS.fullmatch(word.rstrip(".:")) is not None


def _is_path(word: str) -> bool:
    """Whether a word is a path: it begins as one, or a folder is before a name with a suffix."""
    if word.startswith(("/", "\\", "~/", "~\\")) or word[1:3] in (":/", ":\\"):
        return len(word) > 1
    folder, _, name = word.rstrip(".:").rpartition("/")
    suffix = name.rpartition(".")[2] if "." in name else ""
    return bool(folder) and suffix[:1].isalpha() and suffix.isalnum() and len(suffix) <= _LONGEST_SUFFIX


def fields_of(of: Sequence[Notice]) -> dict[str, str]:
    """What a template may name: of one run, or of several of one experiment. Whoever reads it, a chat or a mail, takes
    nothing of what comes from a run for a mention or a link.
    """
    notices = [_harmless(one) for one in of]
    first = notices[0]
    if len(notices) == 1:
        values = {
            "verdict": first.verdict,
            "run": first.name,
            "experiment": first.place,
            "cause": first.subject,
            "certainty": first.certainty,
            "sentence": sentence(first.said),
            "action": first.action,
            "url": first.url,
            "picture": first.picture,
            "docs": first.docs,
            "ack": _ack(first),
            "count": "1",
            "filter": _filter(first),
        }
        return {**values, "text": _text_of_one(first, values)}
    causes = Counter(one.subject for one in notices)
    counts = ", ".join(f"{number} {cause}" for cause, number in causes.most_common(_MOST_NAMED))
    worst = "fail" if any(one.verdict == "fail" for one in notices) else "warn"
    runs = {one.run: one.name for one in notices}  # one may be told of more than one cause
    names = ", ".join([*runs.values()][:_MOST_NAMED])
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    values = {
        "verdict": worst,
        "run": f"{names}{more}",
        "experiment": first.place,
        "cause": counts,
        "certainty": "",
        "sentence": sentence(f"{count(len(runs), 'run')}: {counts}"),
        "action": "",
        "url": "",
        "picture": "",
        "docs": "",
        "ack": 'tracker-health ack RUN --because "..."',
        "count": str(len(runs)),
        "filter": _filter(first),
    }
    return {**values, "text": _text_of_many(values)}


def _harmless(notice: Notice) -> Notice:
    """The same in characters that look alike, and that no receiver reads as its own: it is not known which one reads a
    template's words.
    """
    return replace(
        notice,
        run=_without_markup(notice.run),
        place=_without_markup(notice.place),
        name=_without_markup(notice.name),
        said=_without_markup(notice.said),
        action=_without_markup(notice.action),
    )


def _without_markup(text: str) -> str:
    """As text in which Slack, Mattermost, Discord, Teams and a page find no tag, no link, and nobody to call."""
    return _NOT_AN_ARROW.sub("\u203a", text.translate(_LOOK_ALIKES)).replace("](", "] (").replace("://", ": //")


def _text_of_one(notice: Notice, values: Mapping[str, str]) -> str:
    where = f" ({notice.place})" if notice.place else ""
    sure = f" ({notice.certainty})" if notice.certainty else ""
    lines = [f"{notice.verdict.upper()} {notice.name}{where}: {notice.subject}{sure}", values["sentence"]]
    lines += [f"Try next: {notice.action}"] if notice.action else []
    lines += [notice.url] if notice.url else []
    lines += [f"About the cause: {notice.docs or f'tracker-health explain {notice.subject}'}"]
    lines += [f"Seen? {values['ack']} (add --wrong for a false alarm)"]
    return "\n".join(lines)[:_MAX_TEXT]


def _text_of_many(values: Mapping[str, str]) -> str:
    where = f" of {values['experiment']}" if values["experiment"] else ""
    lines = [
        f"{values['verdict'].upper()} {count(int(values['count']), 'run')}{where}: {values['cause']}",
        values["run"],
    ]
    return "\n".join([*lines, f"All of them: {values['filter']}", f"Seen? {values['ack']}"])[:_MAX_TEXT]


def _ack(notice: Notice) -> str:
    """How to answer. A folder goes by its name: its path stays here."""
    run = notice.name if notice.tracker == "directory" else without_userinfo(notice.run)
    return f'tracker-health ack {printable(run, 300)} --because "..."'


def _filter(notice: Notice) -> str:
    """What shows all of its kind: a search of the tracker, or the command that judges folders."""
    if notice.tracker == "mlflow":
        return f"tags.health.open = 'true' and tags.health.verdict = '{notice.verdict}'"
    if notice.tracker == "wandb":
        return f"summary_metrics.health/open = true and summary_metrics.health/verdict = {notice.verdict}"
    if notice.tracker == "trackio":
        return f"tracker-health summary --only {notice.verdict} --project {notice.run.partition('/')[0]}"
    return "tracker-health check FOLDER"


def alert_of(notices: Sequence[Notice], most: int) -> tuple[str, str]:
    """The title, of ``most`` characters, and the text of an alert by W&B, which passes both on to mail and Slack."""
    fields = fields_of(notices)
    about = f"{fields['run']}: {fields['cause']}" if len(notices) == 1 else fields["sentence"]
    return printable(f"{fields['verdict'].upper()} {about}", most), fields["text"]


def payload(fields: Mapping[str, str], template: str) -> Any:
    """The JSON to send: Slack's form or, with a ``template`` (JSON as text), that with the fields it names."""
    if not template:
        return {"text": fields["text"].replace("&", "&amp;")}
    return _filled(json.loads(template), fields)


def _filled(value: Any, fields: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda found: fields.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [_filled(one, fields) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, fields) for key, one in value.items()}
    return value


# How many leave


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A message that was sent: ``when``, in seconds since 1970, about which experiment, whether it was about all of its
    runs ``together``, and by which channel.
    """

    when: float
    place: str
    together: bool
    by: str = MESSAGE


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message to send. ``together``: about all runs of an experiment that wait; the next has to wait longer."""

    notices: tuple[Notice, ...]
    together: bool

    def as_sent(self, now: float, by: str = MESSAGE) -> Sent:
        """The record of it, sent at this time (seconds since 1970) by this channel."""
        return Sent(when=now, place=place_of(self.notices[0]), together=self.together, by=by)


def planned(waiting: Iterable[Notice], sent: Iterable[Sent], now: float) -> tuple[Message, ...]:
    """The messages to send now; the oldest experiment first. What is left has to wait."""
    recent = [one for one in sent if now - one.when < HOUR_SECONDS]
    places: dict[str, list[Notice]] = {}
    for notice in sorted(waiting, key=lambda one: (one.found, one.key)):
        if not notice.sent:
            places.setdefault(place_of(notice), []).append(notice)
    messages: list[Message] = []
    for place, notices in places.items():
        last = [one for one in recent if one.place == place and now - one.when < WINDOW_SECONDS]
        if any(one.together for one in last):
            continue
        together = len(last) + len(notices) > MOST_ALONE
        shares = [tuple(notices)] if together else [(one,) for one in notices]
        messages += [Message(notices=share, together=together) for share in shares]
    return tuple(messages[: max(0, MOST_AN_HOUR - len(recent))])


def place_of(notice: Notice) -> str:
    """The experiment of a notice, in its store; folders are all of one."""
    return f"{notice.store} {notice.place}"
