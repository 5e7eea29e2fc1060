"""What a verdict becomes on a run: tags, metrics, files and words, without knowing the tracker that takes them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tracker_health.config import Config
from tracker_health.evidence import Children
from tracker_health.judge.doc_links import docs_link
from tracker_health.report.result import SET_ROLES, ProbeResult, Report, once_a_source
from tracker_health.rules.probe import MEASURE_NAME
from tracker_health.rules.registry import RULES_VERSION, plugins, probe_classes
from tracker_health.text import printable, split_sentence
from tracker_health.words.diagnosis import Diagnosis
from tracker_health.words.ending import Ended
from tracker_health.words.repairs import REPAIRS, RepairMark
from tracker_health.words.verdict import Verdict

PENDING = "pending"
"""The digest of a run whose annotation has begun and not ended."""

ENDED, ENDED_BY = "ended", "ended_by"
"""The tags that say how the run ended, and by what that is known."""
EXIT = "exit"
"""The tag that keeps what the launcher or a hook saw of the process's end. Nothing else of the run says it to the next
annotation, so it is no part of one.
"""

SEVERITY, CODES, SUMMARY = "severity", "codes", "summary"
"""The number of the verdict; the tags that list the codes of what was found, and say it in a sentence."""

SETTINGS = "settings"
"""The tag that says by which configuration and policy a run was judged, and when the verdict holds no longer."""
RULES = "rules"
"""The tag that says under which version of the rules a run was judged."""
BASELINE = "baseline"
"""The tag with the digest of the baseline that the run was compared to, where that may change the verdict."""
IGNORED = "ignored"
"""The tag that lists which rules the verdict leaves out, and the preset, thresholds, roles and limits that were set."""

SYMPTOMS, VERSION = "symptoms", "version"
"""The tags that list what was seen, in a word for each finding, and the version of tracker-health."""
CHILDREN = "children"
"""The tag that says of a parent run how the runs below it fared."""

STEP = "step"
"""The tag that says up to which step of its history a run was judged."""

CAUSE, ACTION, JUDGED = "cause", "action", "judged"
"""The tags that say the cause of what was found, the one thing to do, and which parts of the run were judged. The first
is there only of a cause that is certain or likely.
"""
CERTAINTY = "certainty"
"""The tag that says how sure the cause is: certain, likely, possible or unknown."""

EXPLAINED = "explained"
"""The tag that lists the codes of the findings that the cause explains, where there are others."""
ACK, OPEN = "ack", "open"
"""The tags next to a verdict that say who answered it, and whether someone still has to look."""
NOTIFIED = "notified"
"""The tag that says about which causes of the run people were sent a message, as ``messages.SentMessages`` has it."""
GROUP_VERDICT, GROUP, GROUP_STATE = "group_verdict", "group", "group_state"
"""The marks on the run that heads the ranks of one training: their one verdict, why, and what they were then."""
SHADOW = "shadow"
"""The one tag that a run gets while verdicts are only tried out."""

_OF_A_GROUP = frozenset({GROUP, GROUP_STATE, GROUP_VERDICT})
OF_ANY_VERDICT = _OF_A_GROUP | {BASELINE, CHILDREN, ENDED, ENDED_BY, IGNORED, JUDGED, RULES, SETTINGS, STEP, SUMMARY}
PLAIN_NAMES = OF_ANY_VERDICT | {ACTION, CAUSE, CERTAINTY, CODES, EXPLAINED, SEVERITY, SYMPTOMS, VERSION}
"""What an annotation writes besides verdict, digest and measures; the first, also where nothing could be judged."""

MAX_HEADLINE_METRICS = 12
_MOST_ERRORS = 5
REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
PICTURE_FILE = "loss.png"

# No other line of a note begins so: in what comes from a run an asterisk is escaped.
_REPAIR_OF, _REPAIRED_IN = "**Repair of** ", "**Repair tried in** "

# Only where a character may be markup: an underscore within a word, an arrow and parentheses are none. Brackets may be,
# as within the text of a link. Addresses need none to become links.
_MARKUP = re.compile(
    r"([\\`|~\[\]]|\*(?!\s)|(?<!\s)\*|(?<![^\W_])_|_(?![^\W_])|^[#+>=*-]|(?<=\w):(?=//)|(?<=www)\.)", re.IGNORECASE
)
_HTML = re.compile(r"<(?=[a-z/!?])|&(?=#?\w+;)", re.IGNORECASE)
_SHADOW = re.compile(r"([a-z]{1,8}) ([\w,-]{1,3000}) ([a-z0-9-]{1,80}) ([0-9a-f]{16})")
_METRIC = re.compile(rf"[a-z0-9_]{{1,100}}/{MEASURE_NAME.pattern}")


@dataclass(frozen=True, kw_only=True)
class Annotations:
    """Everything to write onto a run. Keys are bare (``codes``); a sink puts its tracker's prefix before them.

    ``tags`` leaves out the verdict and the digest, which are written last. ``files`` maps names below ``health/`` to
    their bytes. ``note`` is Markdown for the run's description, empty for none. ``exit``: the value of the tag
    ``EXIT``, empty for none. ``began``: the first step at which something was wrong, None where that is not known.
    """

    verdict: Verdict
    digest: str
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    note: str = ""
    exit: str = ""
    began: int | None = None


def digest_of(
    state: str,
    config_digest: str,
    *,
    complete: bool = True,
    verdict: Verdict | None = None,
    rules: int | None = None,
) -> str:
    """Sixteen hexadecimal digits that stay the same as long as judging the run again could give nothing new.

    A judgement that is not ``complete``, because something could not be read, has another digest than any complete
    one: the next annotation tries again. With the ``verdict`` that is next to it in it, the digest no longer fits a
    run whose verdict was changed by hand. ``rules``: the version of the rules that judged, by default today's.
    """
    version = RULES_VERSION if rules is None else rules
    content = json.dumps([version, plugins().identity, config_digest, state, complete, verdict])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class JudgedBy:
    """By which settings a run was judged, as the tag ``SETTINGS`` keeps it for those who have others.

    ``config`` and ``policy``: the digests of both, that of the policy empty for none. ``stale_after``: the
    configuration's, in seconds. ``state``: ``digest_of`` the state of the run that everybody can work out, whatever
    their settings make them read; empty for a judgement that is not complete.
    """

    config: str = ""
    policy: str = ""
    stale_after: float = math.inf
    state: str = ""

    @property
    def value(self) -> str:
        """For the tag."""
        return f"{self.config}:{self.policy}:{self.stale_after:g}:{self.state}"

    @classmethod
    def of(cls, value: str) -> JudgedBy:
        """What a tag's value says, as far as it can be ours."""
        try:
            config, policy, stale_after, state = value.split(":")
            return cls(config=config, policy=policy, stale_after=float(stale_after), state=state)
        except ValueError:
            return cls()


def incomplete(digest: str) -> str:
    """The digest of an annotation that was to have ``digest`` and of which something could not be written: sixteen
    hexadecimal digits that no complete one has, so that the next annotation tries again.
    """
    return hashlib.sha256(f"{digest} in part".encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """What a run is said to be while verdicts are only tried out. ``digest``: as that of an annotation."""

    verdict: Verdict
    codes: tuple[str, ...] = ()
    cause: str = ""
    digest: str

    @property
    def value(self) -> str:
        """For the tag: verdict, codes, cause and digest, ``-`` for what there is none of."""
        return f"{self.verdict} {','.join(self.codes) or '-'} {self.cause or '-'} {self.digest}"

    @classmethod
    def of(cls, text: str) -> Shadow | None:
        """What a tag's value says, None for one that is not ours."""
        found = _SHADOW.fullmatch(text)
        if found is None or found[1] not in set(Verdict):
            return None
        codes = tuple(code for code in found[2].split(",") if code and code != "-")
        cause = "" if found[3] == "-" else found[3]
        return cls(verdict=Verdict(found[1]), codes=codes, cause=cause, digest=found[4])


def shadow_of(report: Report, digest: str) -> Shadow:
    """What is written of a report while verdicts are only tried out."""
    codes = tuple(result.code for result in report.findings)
    return Shadow(verdict=report.verdict, codes=codes, cause=report.cause, digest=digest)


def is_wanted(when: str, verdict: Verdict) -> bool:
    """Whether something is written next to such a verdict; ``when``: of ``config.WHEN``."""
    return when == "always" or (when == "findings" and verdict.rank >= Verdict.WARN.rank)


def _baseline_of(report: Report) -> str:
    found = (one.details.get("baseline") for one in report.results if one.votes)
    return next((str(digest) for digest in found if digest), "")


def plan(
    report: Report, digest: str, attachments: Mapping[str, bytes] | None = None, config: Config | None = None
) -> Annotations:
    """The annotations for a report. Pure. ``attachments`` are finished files (pictures, pages) to write next to the
    report. ``config``: what of the measures and the description is written, by default as in ``Config()``.
    """
    chosen = config or Config()
    by = "" if report.ended in (Ended.FINISHED, Ended.RUNNING) else report.ended_by
    preset = [] if report.tool.preset == "default" else [f"preset {report.tool.preset}"]
    known = {
        ENDED: report.ended,
        ENDED_BY: by,
        CHILDREN: str(report.children or ""),
        BASELINE: _baseline_of(report),
        IGNORED: ", ".join((*preset, *report.tool.ignored)),
        JUDGED: ", ".join(report.judged_parts("judged")),
    }
    known = {key: value for key, value in known.items() if value}
    if report.verdict is Verdict.SKIP:
        return Annotations(
            verdict=report.verdict,
            digest=digest,
            tags={SUMMARY: report.summary, **known},
            note=_note_on_skipped(report, chosen.description),
        )
    findings = report.findings
    return Annotations(
        verdict=report.verdict,
        digest=digest,
        tags={
            CODES: ",".join(result.code for result in findings),
            SYMPTOMS: ",".join(dict.fromkeys(result.symptom for result in findings)),
            SUMMARY: report.diagnosis.sentence if report.diagnosis is not None else report.summary,
            VERSION: report.tool.version,
            **_tags_of(report.diagnosis),
            **_unexplained(report),
            **known,
        },
        metrics={SEVERITY: float(report.severity or 0), **(_headline_metrics(report) if chosen.metrics else {})},
        files={REPORT_FILE: _document(report), **(attachments or {})},
        note=_note(report, chosen.docs_url) if is_wanted(chosen.description, report.verdict) else "",
        began=_began(report),
    )


def _began(report: Report) -> int | None:
    """The first step of what the headline is about; of the other findings where it has none."""
    return next((min(one.steps) for one in report.headline_first if one.steps), None)


def _tags_of(diagnosis: Diagnosis | None) -> dict[str, str]:
    if diagnosis is None:
        return {}
    named = {CAUSE: diagnosis.named} if diagnosis.named else {}
    return {**named, CERTAINTY: diagnosis.certainty, ACTION: printable(diagnosis.action.in_short, 300)}


def _unexplained(report: Report) -> dict[str, str]:
    """Which findings the cause explains, where it leaves others: an acknowledgement of the cause is of these."""
    if report.diagnosis is None or not report.unexplained:
        return {}
    return {EXPLAINED: ",".join(result.code for result in report.explained)}


def _headline_metrics(report: Report) -> dict[str, float]:
    """A dozen at most: of the findings first, then of the rules that passed; never NaN or infinite, and under no name
    that a tracker would refuse, which would keep the verdict off the run.
    """
    headlines = {probe.code: probe.headline for probe in probe_classes()}
    voting = [result for result in report.results if result.votes]
    measuring = [result for result in report.results if not result.votes]
    chosen: dict[str, float] = {}
    for result in [*sorted(voting, key=lambda one: (-one.verdict.rank, one.code)), *measuring]:
        names = headlines.get(result.code, ())
        if result.verdict is not Verdict.PASS and any(map(result.measured.get, names)):
            names = tuple(one for one in names if result.measured.get(one))  # a 0 is of what did not decide
        for measure in names:
            name, value = f"{result.name.replace('-', '_')}/{measure}", result.measured.get(measure)
            if not isinstance(value, (int, float)) or not math.isfinite(value) or not _METRIC.fullmatch(name):
                continue
            if len(chosen) < MAX_HEADLINE_METRICS:
                chosen[name] = float(value)
    return chosen


def _document(report: Report) -> bytes:
    return (json.dumps(report.to_json(), allow_nan=False, indent=1) + "\n").encode()


def _note(report: Report, docs_url: str) -> str:
    if report.verdict is Verdict.PASS:
        return f"**Training health: PASS**: {in_markdown(report.summary)}{_judged_in_words(report, '; ')}"
    said = f" · {headline_in_markdown(report.diagnosis)}" if report.diagnosis is not None else ""
    lines = [f"**Training health: {report.verdict.upper()}{said}**", ""]
    lines += diagnosis_in_markdown(report, docs_url)
    lines += [finding_in_markdown(result, docs_url) for result in report.unexplained]
    lines += rewind_in_markdown(report) if report.diagnosis is None else []
    errors, unjudged = once_a_source(report.errors)
    lines += [f"- {in_markdown(error.source)}: {in_markdown(error.message)}" for error in errors[:_MOST_ERRORS]]
    lost = [f"- without {in_markdown(source)} not judged: {', '.join(codes)}" for source, codes in unjudged.items()]
    lines += lost[:_MOST_ERRORS]
    if len(lines) == 2:
        lines.append(in_markdown(report.summary))
    lines += ["", *_last_lines(report, docs_url)]
    return "\n".join(lines)


def headline_in_markdown(diagnosis: Diagnosis) -> str:
    """The diagnosis in one short sentence: its first clause."""
    return in_markdown(split_sentence(diagnosis.sentence)[0])


def diagnosis_in_markdown(report: Report, docs_url: str = "") -> list[str]:
    """The lines below the headline: what to try, the rest of the diagnosis, its cause, and its evidence; none where
    there is no cause. What to try comes first: a tracker folds a description after a few lines.
    ``docs_url``: the base of links to rules and causes, empty for none.
    """
    diagnosis = report.diagnosis
    if diagnosis is None:
        return []
    action = diagnosis.action
    change = f"`{printable(action.change, 200).replace('`', '')}`" if action.change else ""
    tried = " ".join(one for one in (change, in_markdown(action.explained if change else action.text)) if one)
    name = _named(f"`{printable(diagnosis.cause, 80).replace('`', '')}`", diagnosis.cause, docs_url)
    cause = f"Cause: {name} ({diagnosis.certainty})."
    rest = in_markdown(split_sentence(diagnosis.sentence)[1])
    lines = [f"**Try next:** {tried}", "", *rewind_in_markdown(report), f"{rest} {cause}".strip(), ""]
    for result in report.explained:
        message = "as above" if result.message in diagnosis.sentence else result.message
        lines.append(finding_in_markdown(replace(result, message=message, remedy=""), docs_url))
    lines += [
        f"- or {_named(in_markdown(other.cause), other.cause, docs_url)}: {in_markdown(other.test)}"
        for other in diagnosis.others
    ]
    return lines


def rewind_in_markdown(report: Report) -> list[str]:
    """The paragraph on the checkpoint to go back to, its path as code; none where nothing is known of one."""
    found = report.rewind
    if found is None:
        return []
    if not found.path:
        return [f"**Go back to:** {in_markdown(found.said)}", ""]
    return [f"**Go back to:** `{printable(found.path, 400).replace('`', '')}` ({in_markdown(found.about)})", ""]


def _judged_in_words(report: Report, before: str = "") -> str:
    judged, absent = report.judged_parts("judged"), report.judged_parts("not there")
    if not judged:
        return ""
    return f"{before}judged: {', '.join(judged)}" + (f"; not logged: {', '.join(absent)}" if absent else "")


def _last_lines(report: Report, docs_url: str) -> list[str]:
    """What was judged, how the run ended, and where to read on or to object."""
    judged = _judged_in_words(report)
    by = "" if report.ended_by in report.headline else report.ended_by  # an exception is told once
    ended = f"ended: {report.ended}" + (f" ({in_markdown(by)})" if by else "")
    said = [one[:1].upper() + one[1:] for one in (judged, ended if report.ended else "") if one]
    lines = [". ".join(said) + "."] if said else []
    codes = [result.code for result in report.findings]
    if codes:
        which = report.diagnosis.cause if report.diagnosis is not None else codes[0]
        page = docs_link(which, docs_url)
        where = f"[{which}]({page})" if page else f"`tracker-health explain {which}`"
        lines.append(
            f"All of it: `health/{REPORT_FILE}`. Wrong? {where} says how it was decided; "
            f'`ignore = ["{codes[0]}"]` leaves a rule out.'
        )
    return [*lines, f"tracker-health {report.tool.version}, preset {report.tool.preset}"]


def _note_on_skipped(report: Report, when: str) -> str:
    """Of a run that was not judged: how the runs below it fared, else why not. Of one for which nothing could be set
    that is only said where descriptions are always written (``when``: of ``config.WHEN``).
    """
    if when == "never":
        return ""
    if report.children is not None:
        return _note_on(report.children)
    if when != "always" and SET_ROLES not in report.summary:
        return ""
    said = "going on" if report.is_healthy_so_far else "not judged"
    return f"**Training health: {said}**: {in_markdown(report.summary)}"


def _note_on(children: Children) -> str:
    """Of a parent run: how the runs below it fared, and which of them to look at."""
    lines = [f"**Training health of the runs below: {in_markdown(str(children))}**", ""]
    for child in children.worst:
        name = f"[{in_markdown(child.name)}]({child.link})" if child.link else in_markdown(child.name)
        lines.append(f"- {str(child.verdict).upper()} {name}: {in_markdown(child.summary)}")
    return "\n".join(lines)


def note_with_group(note: str, said: str) -> str:
    """A note below what is said of all ranks of the training; none where none is wanted."""
    return f"**{in_markdown(said)}**\n\n{note}" if note else ""


def repairs_in_markdown(repairs: Mapping[str, RepairMark]) -> list[str]:
    """A line for each mark of a repair on a run, by its name: which run it was to repair, or which was to repair it,
    and what came of it.
    """
    return [_repair_in_markdown(mark, is_new=name == REPAIRS) for name, mark in sorted(repairs.items())]


def _repair_in_markdown(mark: RepairMark, *, is_new: bool) -> str:
    other = f"`{printable(mark.old if is_new else mark.new, 200).replace('`', '')}`"
    said = f"{mark.answer} ({in_markdown(mark.about)})" if mark.about else mark.answer
    why = f". {in_markdown(mark.because)}" if mark.because else ""
    return f"{_REPAIR_OF if is_new else _REPAIRED_IN}{other}: {said}{why}"


def has_repairs(note: str) -> bool:
    """Whether a note has such a line in it."""
    return any(map(_is_repair, note.splitlines()))


def note_with_repairs(note: str, said: Iterable[str]) -> str:
    """A note with these lines of repairs at its end, and no others."""
    kept = "\n".join(line for line in note.splitlines() if not _is_repair(line)).strip("\n")
    return "\n\n".join(filter(None, (kept, *said)))


def _is_repair(line: str) -> bool:
    return line.startswith((_REPAIR_OF, _REPAIRED_IN))


def finding_in_markdown(result: ProbeResult, docs_url: str = "") -> str:
    """One finding as an item of a list. ``docs_url``: the base of the link to its rule, empty for none."""
    remedy = f". *{in_markdown(result.remedy[:1].upper() + result.remedy[1:])}.*" if result.remedy else ""
    code = _named(f"`{result.code}`", result.code, docs_url)
    return f"- {result.verdict.upper()} {code} {result.name}: {in_markdown(result.message)}{remedy}"


def _named(text: str, code: str, docs_url: str) -> str:
    """The Markdown of a rule or a cause, as a link to its page where that is known."""
    page = docs_link(code, docs_url)
    return f"[{text}]({page})" if page else text


def in_markdown(text: str) -> str:
    """Text from a run, as text: no markup, no link, no HTML."""
    escaped = _MARKUP.sub(r"\\\1", printable(text, 600))
    return _HTML.sub(lambda found: "&lt;" if found.group() == "<" else "&amp;", escaped).replace("$", "&#36;")
