"""What is in a run's files besides histories and checkpoints: its settings, and what ``watch`` and the callbacks left,
summaries of trainings, dumps of flight recorders and gradients.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath

import numpy as np

from tracker_health.errors import UNREADABLE, StoreUnavailable, described
from tracker_health.evidence import Part, Problem, RankDump, Request, Series, StepUnit, TensorHeader
from tracker_health.readers.flight_recorder import DUMP, read_dump, together
from tracker_health.readers.gradient_dumps import METADATA, GradientDump, read_corner, read_whole
from tracker_health.readers.optimizers.aside import aside
from tracker_health.readers.run_settings import SETTINGS_FILE, read_run_settings
from tracker_health.readers.tensors.weights import Budget
from tracker_health.readers.training_summary import TrainingSummary, read_training_summary
from tracker_health.run_files.checkpoints import CHECKPOINT_PARTS, FolderOfRun
from tracker_health.run_files.tree import FileEvidence, FileTree, RunFile
from tracker_health.text import count, listing, printable
from tracker_health.words.gap_names import SUMMARY_FILE, layer_of, metric

_MOST_DUMPS, _MOST_DUMPED = 1024, 2**27
"""Of flight recorders, and their bytes together: to interpret all of these takes less than a minute."""
_LOSS_SCALE = "loss_scale"
_STATE_PARTS = frozenset(CHECKPOINT_PARTS) - {Part.WEIGHTS, Part.WEIGHT_CHANGES, Part.DLM_CHECKPOINT}


# Settings


def read_settings(tree: FileTree, found: FileEvidence) -> None:
    """Take the settings in the run's own folder, and in those on the way to its history. What a log or a trainer state
    says of itself stays; of several files the one nearest to the history counts.
    """
    sources = [PurePosixPath(one.source) for one in found.series]
    folders = {".", *(str(parent) for source in sources for parent in source.parents)}
    files = [file for file in tree.files if SETTINGS_FILE.fullmatch(file.name) and file.folder in folders]
    settings: dict[str, str] = {}
    for file in sorted(files, key=lambda file: (file.folder.count("/"), file.folder != ".", file.path)):
        settings |= aside(file.path, partial(_settings_in, tree, file), found.notes) or {}
    found.params = {**settings, **found.params}


def _settings_in(tree: FileTree, file: RunFile) -> dict[str, str]:
    return read_run_settings(tree.local(file))


# Summaries of trainings


def read_summary(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """Take what a training said of itself at its end. A checkpoint that was read says more, and stays."""
    files = [file for file in tree.files if file.name == SUMMARY_FILE]
    if not files:
        return
    if len(files) > 1:
        found.notes.append(
            f"several summaries of trainings, of which none is read: {listing([file.path for file in files])}"
        )
        return
    (file,) = files
    try:
        summary = read_training_summary(tree.local(file), file.path)
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - it may hold anything at all, and a verdict does not depend on it
        message = f"it is not read: {printable(described(error))}"
        found.doubtful.append(Problem(source=printable(file.path), message=message))
        return
    found.params = {**summary.params, **found.params}
    _take_scale(summary, request, found, file.path)
    if request.checkpoint is None:
        _take_state(summary, found)


def _take_scale(summary: TrainingSummary, request: Request, found: FileEvidence, source: str) -> None:
    role = request.roles.needed([_LOSS_SCALE]).get(_LOSS_SCALE)
    if role is None or not len(summary.scales) or any(one.role == role for one in found.series):
        return
    found.series.append(
        Series(
            name=_LOSS_SCALE,
            role=role,
            source=source,
            step_unit=StepUnit.OPTIMIZER_STEP,
            steps=summary.scale_steps,
            values=summary.scales,
        )
    )


def _take_state(summary: TrainingSummary, found: FileEvidence) -> None:
    if found.optimizer is None and summary.optimizer is not None:
        found.optimizer = summary.optimizer
        _no_longer_missing(found, _STATE_PARTS)
    if found.weights is None and summary.weights is not None:
        found.weights = summary.weights
        _no_longer_missing(found, {Part.WEIGHTS})


def _no_longer_missing(found: FileEvidence, parts: Iterable[str]) -> None:
    for part in parts:
        found.missing.pop(part, None)


# Dumps of flight recorders


def read_dumps(tree: FileTree, found: FileEvidence) -> None:
    """Take what the flight recorders of the ranks wrote. What cannot be read is none, if nothing else says that."""
    dumps: list[RankDump] = []
    left = _MOST_DUMPED
    for file in tree.files:
        named = DUMP.fullmatch(file.name)
        if named is None:
            continue
        if file.size > left or len(dumps) >= _MOST_DUMPS:
            found.notes.append(f"{count(len(dumps), 'dump')} of flight recorders were read, and no more")
            break
        left -= file.size
        try:
            dumps.append(read_dump(tree.local(file), file.path, int(named["rank"]), file.modified))
        except UNREADABLE as error:
            message = f"it is not read: {printable(described(error))}"
            found.doubtful.append(Problem(source=printable(file.path), message=message))
    found.dumps = together(dumps)


# Gradients

_GRADIENTS = re.compile(
    r"(?P<root>(?:.*/)?)step(?P<step>\d{1,18})/"
    r"(?:(?P<corners>sampled_gradients)/[^/]+\.safetensors|full_gradients/\.metadata)"
)
_ROLE_OF = metric("grads", "any", "max")
_MOST_CORNERS, _MOST_STEPS, _FEWEST_STEPS = 5000, 50, 8
_MOST_BYTES = 2**30
_ENOUGH_UNITS = 8


def read_gradients(tree: FileTree, request: Request, found: FileEvidence) -> None:
    """The statistics of gradients that were written as files, as histories; those that were measured live say more."""
    role = request.roles.needed([_ROLE_OF]).get(_ROLE_OF)
    if role is None or any(one.role == role for one in found.series):
        return
    roots: dict[str, dict[int, list[RunFile]]] = defaultdict(lambda: defaultdict(list))
    for file in tree.files:
        place = _GRADIENTS.fullmatch(file.path)
        if place:
            roots[place["root"]][int(place["step"])].append(file)
    if len(roots) > 1:
        found.notes.append(f"several folders of gradients, of which none is read: {listing(sorted(roots))}")
    elif roots:
        ((root, steps),) = roots.items()
        dumps = list(_dumps(tree, steps, found, role))
        _take_gradients(dumps, root, role, found)


def _dumps(
    tree: FileTree, steps: Mapping[int, list[RunFile]], found: FileEvidence, role: str
) -> Iterator[GradientDump]:
    """The gradients of some steps spread over all: each file of a run that is elsewhere costs a request."""
    most = max(_FEWEST_STEPS, min(_MOST_STEPS, _MOST_CORNERS // max(map(len, steps.values()))))
    every = sorted(steps)
    chosen = np.unique(np.linspace(0, len(every) - 1, min(most, len(every))).astype(int))
    budget = Budget(_MOST_BYTES)
    for step in (every[place] for place in chosen):
        files = steps[step]
        whole = [file for file in files if file.name == METADATA]
        try:
            if whole:
                beside = [file for file in tree.files if file.folder == whole[0].folder]
                tensors = read_whole(FolderOfRun(tree, beside), budget)
            else:
                tensors = tuple(read_corner(tree.local(file), file.path, budget) for file in files[:_MOST_CORNERS])
        except UNREADABLE as error:
            found.cannot_read(files[0].folder, error, [role])
            return
        yield GradientDump(step=step, source=files[0].folder, whole=bool(whole), tensors=tensors)


def _take_gradients(dumps: list[GradientDump], root: str, role: str, found: FileEvidence) -> None:
    points: dict[str, list[tuple[int, tuple[float, float, float]]]] = defaultdict(list)
    for dump in dumps:
        for tensor in dump.tensors:
            stats = tensor.stats
            if stats is not None and stats.count > 1:
                largest = max(abs(stats.minimum), abs(stats.maximum))
                spread = max(stats.rms**2 - stats.mean**2, 0.0) * stats.count / (stats.count - 1)
                odd = stats.nonfinite > 0
                values = (np.nan, np.nan, np.nan) if odd else (largest, stats.mean, spread)
                points[tensor.name].append((dump.step, values))
    corners = [tensor for dump in dumps if not dump.whole for tensor in dump.tensors]
    if corners:
        points = _telling(points, corners)
    found.names += [metric("grads", name, "max") for name in points]
    for name, history in points.items():
        steps = np.array([step for step, _ in history], dtype=np.int64)
        for index, statistic in enumerate(("max", "mean", "var")):
            found.series.append(
                Series(
                    name=metric("grads", name, statistic),
                    role=role,
                    source=printable(root.removesuffix("/") or "gradients"),
                    step_unit=StepUnit.OPTIMIZER_STEP,
                    steps=steps,
                    values=np.array([values[index] for _, values in history]),
                )
            )


def _telling(
    points: Mapping[str, list[tuple[int, tuple[float, float, float]]]], corners: Iterable[TensorHeader]
) -> dict[str, list[tuple[int, tuple[float, float, float]]]]:
    """Without corners of zeros that may be those of unused words, of a picture's margins or of a few dead units. Those
    of a layer stay where several parameters have nothing but zeros, for more units than that.
    """
    units = {corner.name: corner.shape[0] if corner.shape else 1 for corner in corners}
    layers: dict[str, list[str]] = defaultdict(list)
    for name in points:
        layers[layer_of(name)].append(name)
    silent = {name for name, history in points.items() if not any(values[0] for _, values in history)}
    whole = {
        layer
        for layer, names in layers.items()
        if len(names) > 1 and silent.issuperset(names) and max(units.get(name, 0) for name in names) >= _ENOUGH_UNITS
    }
    return {name: history for name, history in points.items() if name not in silent or layer_of(name) in whole}
