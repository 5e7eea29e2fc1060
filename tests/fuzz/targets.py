"""What is fuzzed: every reader of a file that a run left, and what is written onto runs as far as it is read again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tracker_health.api import check
from tracker_health.evidence import Part, Request
from tracker_health.readers.checkpoint_formats import FORMATS
from tracker_health.readers.dlm_log import read_dlm_step_log
from tracker_health.readers.files.folder import LocalFolder
from tracker_health.readers.gradient_dumps import read_gradient_dumps
from tracker_health.readers.log_formats import log_of, read_log
from tracker_health.readers.mlflow_folder import metric_files, read_meta, read_points, read_texts
from tracker_health.readers.optimizers.optimizer_state import has_optimizer_state, read_optimizer_state
from tracker_health.readers.run_settings import read_run_settings
from tracker_health.readers.tensors.safetensors_header import open_safetensors
from tracker_health.readers.tensors.weights import Budget, described
from tracker_health.readers.torch_files.torch_archive import open_torch_archive
from tracker_health.readers.torch_files.torch_weights import torch_weights
from tracker_health.readers.trainer_state import read_trainer_state
from tracker_health.readers.training_summary import read_training_summary
from tracker_health.roles import RolePlan
from tracker_health.stores.common.record import Written, bears_verdict, owns_note, recorded_on, tagged
from tracker_health.stores.folder.directory import DirectoryRun
from tracker_health.stores.wandb.local import LocalRun
from tracker_health.stores.wandb.transaction_log import read_log as read_transaction_log
from tracker_health.stores.wandb.transaction_log import records_of, rows_of
from tracker_health.words.verdict import Verdict

from .framings import EVENTS, WANDB, ZIP, Framing

_UNEXPECTED = re.compile(r"unexpected [A-Z]\w*:")  # as `errors.described` says it
EVERYTHING = Request(roles=RolePlan(), parts=frozenset(Part))


@dataclass(frozen=True)
class Target:
    """A reader and its input: ``seeds`` names a folder of files, of which one that fits ``changes`` is spoilt; ``read``
    gets that file. It may raise a ``RunError`` or an ``OSError``, and nothing else.
    """

    name: str
    seeds: str
    changes: tuple[str, ...]
    read: Callable[[Path], object]
    framing: Framing | None = None


def _log(path: Path) -> object:
    return read_log(path, path.name, RolePlan())


def _console(path: Path) -> object:
    log_of(path.read_bytes()[: 2**16], RolePlan())
    return read_log(path, path.name, RolePlan())


def _state(path: Path) -> object:
    has_optimizer_state(path)
    return read_optimizer_state(path, path.name)


def _weights(path: Path) -> object:
    with open_torch_archive(path) as archive:
        return described(torch_weights(archive.root), Budget())


def _checkpoint(path: Path) -> object:
    folder = LocalFolder(path.parent)
    for form in FORMATS:
        for lead in form.leads(folder.names):
            form.holds_state(folder, lead)
            return form.read(folder, lead, lead), form.weights(folder, lead, lead)
        form.why_not(folder.names)
    return None


def _safetensors(path: Path) -> object:
    with open_safetensors(path) as tensors:
        return described(tensors, Budget())


def _wandb(path: Path) -> object:
    log = read_transaction_log(path)
    for _ in records_of(path):
        pass
    list(rows_of(path, frozenset({"loss", "a.b", "_step"})))
    return log


def _run_of_wandb(path: Path) -> object:
    run = LocalRun(path, path)
    run.recorded()
    run.fingerprint(EVERYTHING)
    return run.read(EVERYTHING)


def _run_of_mlflow(path: Path) -> object:
    folder = path.parent if path.name == "meta.yaml" else path.parent.parent
    read_texts(folder, "params"), read_texts(folder, "tags")
    return read_meta(folder), [read_points(file) for file in metric_files(folder).values()]


def _annotation(path: Path) -> object:
    run = DirectoryRun(path.parent.parent)
    return run.recorded(), run.clear()


def _written(path: Path) -> object:
    text = path.read_bytes().decode("utf-8", "replace")
    tags = {"health.written": text, "health.digest": "0" * 16, "health.verdict": "pass", "health.codes": text[:99]}
    written = Written.of(tags)
    run = DirectoryRun(path.parent).ref
    return (
        recorded_on(tags),
        bears_verdict(tags),
        owns_note(tags),
        written.value,
        tagged(run, tags, user="", started=None, last_step=60),
    )


def _judged(path: Path) -> object:
    folder = path.parent
    report = check(folder)
    unexpected = [error.message for error in report.errors if _UNEXPECTED.search(error.message)]
    assert not unexpected, unexpected
    return report.verdict


def _side_file(path: Path) -> object:
    report = check(path.parent)
    assert report.verdict is not Verdict.ERROR, report.errors
    return report.verdict


TARGETS = (
    Target("json lines", "logs", ("*.jsonl",), _log),
    Target("json history", "logs", ("*.json",), _log),
    Target("csv", "logs", ("*.csv",), _log),
    Target("console", "texts", ("*",), _console),
    Target("event file", "events", ("*",), _log, EVENTS),
    Target("trainer state", "trainer", ("*",), lambda path: read_trainer_state(path, "x", RolePlan())),
    Target("settings", "settings", ("*",), read_run_settings),
    Target("training summary", "summary", ("*",), lambda path: read_training_summary(path, "x")),
    Target("torch", "torch_files", ("training_state.pt", "optimizer.pt"), _state, ZIP),
    Target("torch, old format", "torch_files", ("legacy.pt",), _state),
    Target("eight bits", "eight_bit", ("*",), _state, ZIP),
    Target("weights", "torch_files", ("training_state.pt", "*.bin"), _weights, ZIP),
    Target("exported program", "exported", ("*.pt2",), _weights, ZIP),
    Target("distributed index", "distributed", (".metadata",), _checkpoint),
    Target("distributed items", "distributed", ("*.distcp",), _checkpoint),
    Target("deepspeed", "deepspeed", ("*",), _checkpoint, ZIP),
    Target("safetensors", "safetensors", ("model.safetensors",), _safetensors),
    Target("gradients", "safetensors", ("*_first2.safetensors",), lambda path: read_gradient_dumps(path.parents[2])),
    Target("dlm log", "dlm", ("*",), lambda path: read_dlm_step_log([("x", path)])),
    Target("wandb log", "run_of_wandb", ("*",), _wandb, WANDB),
    Target("wandb run", "run_of_wandb", ("*",), _run_of_wandb, WANDB),
    Target("mlflow folder", "run_of_mlflow", ("*",), _run_of_mlflow),
    Target("annotation", "annotation", ("annotation.json",), _annotation),
    Target("record", "written", ("*",), _written),
    Target("side files", "beside", ("s*.pt", "*.json", "*.yaml"), _side_file),
    Target("side files of torch", "beside", ("s*.pt",), _side_file, ZIP),
    Target("folder of logs", "logs", ("*",), _judged),
    Target("folder of texts", "texts", ("*",), _judged),
    Target("folder of a run", "whole", ("*",), _judged),
    Target("folder of a checkpoint", "whole", ("*.pt", "*.bin"), _judged, ZIP),
)


def files_of(target: Target, folder: Path) -> list[Path]:
    """The files of a folder that a target changes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if any(fnmatchcase(path.name, pattern) for pattern in target.changes)]
