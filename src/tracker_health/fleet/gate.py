"""A registered model, from its name to the answer whether it may go on: found, judged, tagged, then promoted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tracker_health.config import Config
from tracker_health.errors import ConfigError, RunError, described
from tracker_health.evidence import Evidence, RunInfo, RunRef, plan_of
from tracker_health.judge.annotations import PAGE_FILE, SHADOW, JudgedBy, is_wanted
from tracker_health.judge.engine import diagnose, needs_of
from tracker_health.judge.gate_decision import (
    NOTE_BEGINS,
    Gate,
    Gated,
    GateDecision,
    Rule,
    decide,
    note_of_gate,
    ours_of_gate,
    tags_of,
)
from tracker_health.report.result import Report
from tracker_health.rules.registry import RULES_VERSION
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS
from tracker_health.run_files.model_files import why_unread
from tracker_health.run_files.tree import Tracked
from tracker_health.runs.judging import judge_run
from tracker_health.runs.lookup import open_model, parse_model_name, shown_name
from tracker_health.runs.run_config import config_for_run, resolve_config
from tracker_health.stores.common.note_block import block_of, has_markers, with_note
from tracker_health.stores.common.record import VERDICT, Written
from tracker_health.stores.common.tracked_run import TrackedRun
from tracker_health.stores.found import RegisteredModel
from tracker_health.stores.remote.deadline import within
from tracker_health.text import printable
from tracker_health.words.acknowledgements import open_findings, standing
from tracker_health.words.verdict import Verdict

if TYPE_CHECKING:
    from tracker_health.stores.mlflow.registry import ModelName
    from tracker_health.stores.wandb.artifact import ArtifactName

AGAIN_SECONDS = 3600.0
"""How long a model that could not be judged, and has not changed since, is left alone by a watch."""
UNFINISHED_SECONDS = 300.0
"""How long a model waits whose run is still running."""
_MOST_REMEMBERED = 100_000
_MOST_OF_A_NAME = 400
_MOST_OF_A_DESCRIPTION = 5_000
"""Characters that MLflow's registry keeps."""
_VERDICT_TAG = f"health.{VERDICT}"
_SETTINGS_TAG = "health.settings"
_NOT_PROMOTED = "only a model that may go on is"
_NO_CHECKPOINT = "there is no checkpoint among the registered files"


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """How models are asked about. ``timeout``: in seconds, for one. ``tags``: write the verdict and its cause onto the
    version of the model. ``accept_ack``: what someone has acknowledged on the run may pass. ``promote``: the alias
    that a version gets in MLflow's registry when it may go on, and never otherwise.
    """

    config: Config
    tracking_uri: str | None = None
    rule: Rule = field(default_factory=Rule)
    timeout: float = 600.0
    tags: bool = True
    accept_ack: bool = False
    promote: str = ""


def gate(
    model: str | ModelName | ArtifactName,
    *,
    config: Config | str = "default",
    tracking_uri: str | None = None,
    rule: Rule | None = None,
    timeout: float = 600.0,
    tags: bool = True,
    accept_ack: bool = False,
    promote: str = "",
) -> Gated:
    """Judge the run that made a model, and the registered files where they can be read; say whether it may go on.

    ``model``: as for ``lookup.open_model``; the rest: see ``GateOptions``. Whatever keeps the model from being judged
    is in the answer.

    Raises:
        ConfigError: the configuration names something that does not exist.
    """
    options = GateOptions(
        config=resolve_config(config, writes=tags),
        tracking_uri=tracking_uri,
        rule=rule or Rule(),
        timeout=timeout,
        tags=tags,
        accept_ack=accept_ack,
        promote=promote,
    )
    return gate_one(model, options)


def gate_one(model: str | ModelName | ArtifactName, options: GateOptions) -> Gated:
    """The answer about one model; whatever keeps it from being judged is in it.

    The name is parsed here and nowhere else: the same value is opened, and printed.
    """
    try:
        named = parse_model_name(model) if isinstance(model, str) else model
    except RunError as error:
        return _not_judged(shown_name(str(model)), error, options)
    return _answer_in_time(named.shown, options, lambda: open_model(named, tracking_uri=options.tracking_uri))


@dataclass(kw_only=True)
class Watch:
    """Looks at MLflow's registry again and again: each version of a model is asked about once, and again when its run
    has ended. ``names``: of models, all without any. ``since``: how many seconds ago a version may have been
    registered.
    """

    options: GateOptions
    names: tuple[str, ...] = ()
    since: float = 7 * 86_400.0
    _settled: dict[str, tuple[str, float]] = field(default_factory=dict, repr=False)

    def answer_new(self) -> Iterator[Gated]:
        """The answers about the versions that have none yet under these settings.

        Raises:
            RunError: the registry cannot be reached.
        """
        from tracker_health.stores.mlflow.registry import newest_versions

        now = time.time()
        for version in newest_versions(self.names, self.options.tracking_uri, now - self.since):
            state, again = self._settled.get(version.name, ("", 0.0))
            if (state == version.state and now < again) or self._has_answer(version):
                continue
            answer = _answer_in_time(version.name, self.options, partial(_already_open, version))
            self._remember(version, answer)
            yield answer

    def _has_answer(self, version: RegisteredModel) -> bool:
        by = JudgedBy.of(version.tags.get(_SETTINGS_TAG, ""))
        return _VERDICT_TAG in version.tags and by.config == self.options.config.digest

    def _remember(self, version: RegisteredModel, answer: Gated) -> None:
        if len(self._settled) > _MOST_REMEMBERED:
            self._settled.clear()
        waits = {GateDecision.UNFINISHED: UNFINISHED_SECONDS, GateDecision.NOT_JUDGED: AGAIN_SECONDS}
        until = time.time() + waits[answer.gate.answer] if answer.gate.answer in waits else float("inf")
        self._settled[version.name] = (version.state, until)


def _already_open(version: RegisteredModel) -> RegisteredModel:
    return version


def _answer_in_time(name: str, options: GateOptions, opening: Callable[[], RegisteredModel]) -> Gated:
    try:
        model, answer = within(options.timeout, _answer_about, options, opening)
        # Here, and not in the thread: one that was given up continues, and must set no alias any more.
        return _promote(model, answer, options) if options.promote else answer
    except ConfigError:
        raise
    except TimeoutError:
        message = f"it could not be judged within {options.timeout:g} seconds"
        return _not_judged(name, RunError(message, "give it more time: --timeout 30m"), options)
    except Exception as error:  # noqa: BLE001  whatever it is, there is an answer
        return _not_judged(name, error, options)


def _not_judged(name: str, error: Exception, options: GateOptions) -> Gated:
    reason = printable(described(error), 400)
    gate = Gate(answer=GateDecision.NOT_JUDGED, reason=reason)
    answer = Gated(
        model=printable(name, _MOST_OF_A_NAME), gate=gate, error=error, shadow=options.config.mode == "shadow"
    )
    return replace(answer, unpromoted=_NOT_PROMOTED) if options.promote else answer


def _answer_about(options: GateOptions, opening: Callable[[], RegisteredModel]) -> tuple[RegisteredModel, Gated]:
    with closing(opening()) as model:
        run, evidence, notes, failure, accepts, page = _judge_run_of(model, options)
        try:
            files, unread = _judge_files_of(model, evidence, options.config)
        except Exception as error:  # noqa: BLE001  the run may still be bad
            files, unread = None, described(error)
            failure = failure or unread
        answer = Gated(
            model=model.name,
            gate=decide(run, files, failure, replace(options.rule, accepts=accepts), unread),
            url=model.url,
            run=run,
            files=files,
            unread=unread,
            notes=notes,
            shadow=options.config.mode == "shadow",
        )
        return model, _write_tags(model, answer, options, page) if options.tags else answer


class _RunJudgement(NamedTuple):
    """What became of the run: its report and evidence, what to know besides, why there is none. ``accepts``: the codes
    of what someone has acknowledged on it and may pass; ``page``: the address of the report in its tracker.
    """

    report: Report | None = None
    evidence: Evidence | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""
    accepts: frozenset[str] = frozenset()
    page: str = ""


def _judge_run_of(model: RegisteredModel, options: GateOptions) -> _RunJudgement:
    try:
        with closing(model.run()) as run:
            config = config_for_run(options.config, run)
            report, evidence = judge_run(run, config, go_back=False)
            notes = _note_other_settings(run, report, config)
            entries = run.acknowledgements() if options.accept_ack else ()
            page = _page_of(run)
    except Exception as error:  # noqa: BLE001  the files may still be bad
        return _RunJudgement(failure=described(error))
    now = time.time()
    still_open = {one.code for one in open_findings(report, entries, now)}
    accepts = frozenset(one.code for one in report.findings) - still_open
    said = [one for one in standing(entries, cause=report.cause, now=now) if accepts.intersection(one.codes)]
    notes += tuple(f"{one.said}: {printable(one.because, 300)}" for one in said)
    return _RunJudgement(report, evidence, notes, accepts=accepts, page=page)


def _page_of(run: TrackedRun) -> str:
    """Where its tracker shows the report, if the run has one, else the run."""
    url = run.ref.url or ""
    return f"{url}/artifacts/health/{PAGE_FILE}" if url and PAGE_FILE in Written.of(run.marks).files else url


def _note_other_settings(run: TrackedRun, report: Report, config: Config) -> tuple[str, ...]:
    """That the verdict on the run itself was given otherwise."""
    recorded = run.recorded()
    if recorded is None or recorded.verdict is None:
        return report.notes
    by = JudgedBy.of(recorded.settings)
    if by.config in ("", config.digest):
        return report.notes
    how = "under another policy" if by.policy != config.policy else "with other settings"
    note = (
        f"the verdict on the run ({recorded.verdict}) was given {how}; the gate judged it by these ({report.verdict})"
    )
    return (*report.notes, note)


def _judge_files_of(model: RegisteredModel, evidence: Evidence | None, config: Config) -> tuple[Report | None, str]:
    """The report on the registered files alone, None where there is nothing to judge; and why not all were read.

    What a run was meant to become is left out: a checkpoint from the middle of it may be the one that was chosen.
    """
    request = needs_of(config)
    request = replace(request, parts=request.parts & set(CHECKPOINT_PARTS), checkpoint=None)
    found = model.files(request)
    ref = RunRef(store="registry", id=model.name, name=model.name, url=model.url or None)
    params = dict(evidence.info.params) if evidence is not None else {}
    params = {key: value for key, value in params.items() if key not in plan_of(params)}
    read = found.evidence(ref, request, Tracked(params=params))
    read = replace(read, info=RunInfo(params=read.info.params), series=())
    unread = why_unread(found)
    if read.optimizer is None and read.weights is None and not read.problems:
        return None, printable(next(iter(read.missing.values()), unread or _NO_CHECKPOINT), 300)
    return diagnose(read, config), printable(unread, 300)


def _promote(model: RegisteredModel, answer: Gated, options: GateOptions) -> Gated:
    """The answer, with what became of the alias: it is set where the model may go on, and nowhere else."""
    if answer.gate.answer is not GateDecision.GO_ON:
        return replace(answer, unpromoted=_NOT_PROMOTED)
    if answer.shadow:
        return replace(answer, unpromoted="answers are only tried out (shadow)")
    try:
        before = model.promote(options.promote)
    except RunError as error:
        return replace(answer, unpromoted=printable(described(error), 400))
    was = "as before" if before == model.name else f"before: {before}" if before else "it is new"
    return replace(answer, promoted=f"{options.promote} is {model.name} ({was})")


def _write_tags(model: RegisteredModel, answer: Gated, options: GateOptions, page: str) -> Gated:
    """The answer, with what became of the tags. What is not known for good yet is not written. After them, which say
    whose it is, the verdict in a sentence becomes a block of the description.
    """
    config = options.config
    by = JudgedBy(config=config.digest, policy=config.policy, stale_after=config.stale_after)
    tags = tags_of(answer.gate, by.value, RULES_VERSION)
    if answer.shadow and tags:
        tags = {SHADOW: tags["verdict"]}
    if not tags or answer.gate.answer is GateDecision.UNFINISHED:
        return answer
    wanted, there = {f"health.{key}": value for key, value in tags.items()}, model.tags
    ours = ours_of_gate(there)
    if theirs := sorted(wanted.keys() & there.keys() - set(ours)):
        return replace(answer, unwritten=f"it has a {theirs[-1]} that is not ours")
    refused = answer.gate.answer is GateDecision.NOT_JUDGED and answer.gate.verdict is Verdict.PASS
    if refused and not answer.shadow:  # no filter takes for good what was kept back, whatever its run was
        wanted = {}
    if not answer.shadow:
        # By their settings our tags are known: they come first, and where there are older ones last, and so with these.
        wanted = dict.fromkeys(ours, "") | wanted
    note = note_of_gate(answer.gate, page) if not refused and _is_described(answer, config) else ""
    try:
        model.tag(wanted)
        if note or _is_ours(model.description or ""):
            model.describe(partial(_described, note=note))
    except RunError as error:
        return replace(answer, unwritten=printable(described(error), 400))
    return replace(answer, written=bool(wanted))


def _is_described(answer: Gated, config: Config) -> bool:
    verdict = answer.gate.verdict
    return not answer.shadow and verdict is not None and is_wanted(config.description, verdict)


def _is_ours(text: str) -> bool:
    return block_of(text).startswith(NOTE_BEGINS)


def _described(text: str, *, note: str) -> str:
    """A description with the note as our block; as it is where it has another, as one copied from a run."""
    return text if has_markers(text) and not _is_ours(text) else with_note(text, note, _MOST_OF_A_DESCRIPTION)
