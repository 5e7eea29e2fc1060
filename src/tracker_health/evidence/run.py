"""A run as such: which one, its own record, how it ended, its console log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from tracker_health.evidence.children import Children
from tracker_health.evidence.collectives import RankReports
from tracker_health.evidence.series import FloatArray, IntArray
from tracker_health.evidence.tensors import OptimizerState
from tracker_health.words.ending import Ending
from tracker_health.words.stopped import Stop

BEST_CHECKPOINT = "best_model_checkpoint"
"""The param that names the checkpoint that a trainer kept as its best."""

_MOST_FOLDERS, _ID = 6, 8  # folders above a run, and characters of its id, that keep it apart from others of its name


@dataclass(frozen=True, kw_only=True)
class RunRef:
    """Which run: its store (``directory``, ``mlflow``), its id there, its name and its page."""

    store: str
    id: str
    name: str
    url: str | None = None

    @property
    def listed_name(self) -> str:
        """What it is called among others: of a folder with the one above it, as many are called ``run``."""
        return self.with_folders(1)

    def with_folders(self, above: int) -> str:
        """The name, of a folder with some of those above it.

        Args:
            above: How many of them.

        Returns:
            The path, or what a run of a tracker is called.
        """
        *folders, name = PurePath(self.id).parts or ("",)
        if self.store != "directory" or not folders or name != self.name:
            return self.name
        return PurePath(*folders[-above:], name).as_posix()


def names_apart(runs: Sequence[RunRef]) -> list[str]:
    """What runs are called next to each other: those of one name with more of the folders above them, or their id.

    Args:
        runs: The runs, in the order in which they are shown.

    Returns:
        A name for each, no two of different runs alike.
    """
    names = [run.listed_name for run in runs]

    def alike() -> set[str]:
        different = {(name, run.id) for name, run in zip(names, runs, strict=True)}
        return {name for name, times in Counter(name for name, _ in different).items() if times > 1}

    for above in range(2, _MOST_FOLDERS):
        again = alike()
        names = [run.with_folders(above) if name in again else name for run, name in zip(runs, names, strict=True)]
    again = alike()
    return [f"{name} ({run.id[-_ID:]})" if name in again else name for run, name in zip(runs, names, strict=True)]


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The run's own record: status, params, and every metric name seen (ours left out), read or not.

    ``status`` is the word of the ``tracker`` ("MLflow", "W&B") for the run's state; ``exit_code`` what W&B recorded.
    ``seen``: what the launcher or a hook saw of the process's end. ``silent_for``: seconds since anything came from a
    run that claims to be running, where these are too many. ``stopped``: why its own training stopped it, unless it
    went on. ``at_work``: its process is known to go on, so that nothing in its console has ended it.
    ``Evidence.ending`` puts it together.

    ``quiet_for``: seconds since the last point of a run that claims to be running, by who reads it. ``vital_for``: for
    how many seconds after its last point metrics of the machine, or another sign of its process, came. Both None where
    that is not known. ``hang_after``: from which silence on it is said to hang, where that is set; infinite for never.

    ``experiment``: the name of the experiment or project that it belongs to. ``started`` and ``ended``: in seconds
    since 1970 (UTC), None where the tracker does not say. ``resumed``: at which steps it was, as the
    tracker has it. ``sweep``: the search that the run is a trial of, empty where there is none.

    ``global_step`` and ``epoch`` are what a trainer state says was done; ``snapshot`` is true when that was written
    at a checkpoint in mid-training, so that it cannot tell where the run ended. ``printed_step``: how far a console
    log counted, which may have counted batches; ``printed_epochs``: the epochs that it counts up to. ``children``: how
    the runs below a run without metrics fared.
    """

    status: str = ""
    tracker: str = ""
    exit_code: int | None = None
    seen: Ending | None = None
    silent_for: float | None = None
    quiet_for: float | None = None
    vital_for: float | None = None
    hang_after: float | None = None
    stopped: Stop | None = None
    at_work: bool = False
    params: Mapping[str, str] = field(default_factory=dict)
    metric_names: tuple[str, ...] = ()
    global_step: int | None = None
    epoch: float | None = None
    printed_step: int | None = None
    printed_epochs: float | None = None
    snapshot: bool = False
    children: Children | None = None
    experiment: str = ""
    started: float | None = None
    ended: float | None = None
    resumed: tuple[int, ...] = ()
    sweep: str = ""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What a console log says that ends a process, or would have: the cause in a few words, and the line itself.

    ``line``: its place among the lines that are not blank, from 1; ``rows_after``: how many rows of the history came
    after it, none where they are few and come no further than those before. ``where``: "evaluation" or
    "saving", by the functions of its traceback, else empty.
    """

    cause: str
    text: str
    line: int
    rows_after: int
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class TextLog:
    """A run's console log.

    It counts the lines that are not blank, and those of them that are rows of the history. It has the errors that the
    log shows, and the line after which it said that training was done. ``span``: the first step of the history and the
    furthest one. ``resumed``: the steps after which it says that it continues from a checkpoint. ``reports``: what
    ranks say of collective operations, here and in the run's other consoles.
    """

    source: str
    lines: int
    rows: int
    done: int | None = None
    troubles: tuple[Trouble, ...] = ()
    span: tuple[int, int] | None = None
    resumed: tuple[int, ...] = ()
    reports: RankReports | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class DlmStepLog:
    """The step log that the rule ``training-drift`` reads, by that rule's own conventions.

    ``steps``: int64[n], ascending; ``losses``: float64[n], as logged (non-finite kept); ``files``: the log files, in
    name order.
    """

    files: tuple[str, ...]
    steps: IntArray
    losses: FloatArray

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, kw_only=True)
class DlmCheckpoint:
    """The adapter checkpoint that the rule ``gradient-ghost`` reads: a ``training_state.pt`` with a global step.

    ``weight_names`` are the tensor names of ``adapter_model.safetensors`` next to it, None where that is missing or
    unusable; ``weights_reason`` then says why.
    """

    state: OptimizerState
    global_step: int
    weight_names: tuple[str, ...] | None
    weights_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is there but could not be read, or not completely.

    ``roles`` are the parts it took away (a rule that needs one of them becomes an error); empty when the rest could
    be used. ``unfinished``: the end of the history is not there yet, so that the run cannot pass by what is.
    """

    source: str
    message: str
    roles: frozenset[str] = frozenset()
    unfinished: bool = False
