"""What a run left behind, as plain typed parts: the only thing that rules see.

Readers and stores make these; nothing here does I/O. Arrays are float64 or int64 and are never changed in place.
"""

from tracker_health.evidence.axis import Axis
from tracker_health.evidence.children import Child, Children
from tracker_health.evidence.collectives import Entered, GroupDump, RankDump, RankReports
from tracker_health.evidence.confirmation import Confirmed, confirm
from tracker_health.evidence.course import CHARACTERS, SHARES, Baseline, Course, Sibling, Usual
from tracker_health.evidence.curve import (
    FEW_POINTS,
    FEWEST_LEVELS,
    FEWEST_POINTS,
    LIKELY,
    SURELY,
    Curve,
    Estimate,
    Excursion,
    Fall,
)
from tracker_health.evidence.ending import stood
from tracker_health.evidence.evidence import Evidence
from tracker_health.evidence.needs import Need, Part, Request
from tracker_health.evidence.parameters import (
    Initial,
    Left,
    LeftOut,
    Parameter,
    ParameterTable,
    Place,
    Purpose,
)
from tracker_health.evidence.plan import plan_of, planned_epochs, planned_steps
from tracker_health.evidence.progress import Progress, is_whole_multiple
from tracker_health.evidence.ranks import RANK_ROLE, Beside, Rank, as_one, beside
from tracker_health.evidence.rhythm import Pace, Pulse, Rhythm, is_of_the_machine, rhythm_of
from tracker_health.evidence.run import (
    BEST_CHECKPOINT,
    DlmCheckpoint,
    DlmStepLog,
    Problem,
    RunInfo,
    RunRef,
    TextLog,
    Trouble,
    names_apart,
)
from tracker_health.evidence.schedule import SavedSchedule
from tracker_health.evidence.series import FloatArray, IntArray, Series, StepUnit, place_of
from tracker_health.evidence.steps import StepCount, accumulation, is_of_the_end, told_by_checkpoint
from tracker_health.evidence.tensors import (
    Attribution,
    MomentStats,
    OptimizerState,
    TensorHeader,
    TensorState,
    WeightChange,
    Weights,
    label_of,
)
from tracker_health.words.ending import Ended, Ending

__all__ = [
    "BEST_CHECKPOINT",
    "CHARACTERS",
    "FEWEST_LEVELS",
    "FEWEST_POINTS",
    "FEW_POINTS",
    "LIKELY",
    "RANK_ROLE",
    "SHARES",
    "SURELY",
    "Attribution",
    "Axis",
    "Baseline",
    "Beside",
    "Child",
    "Children",
    "Confirmed",
    "Course",
    "Curve",
    "DlmCheckpoint",
    "DlmStepLog",
    "Ended",
    "Ending",
    "Entered",
    "Estimate",
    "Evidence",
    "Excursion",
    "Fall",
    "FloatArray",
    "GroupDump",
    "Initial",
    "IntArray",
    "Left",
    "LeftOut",
    "MomentStats",
    "Need",
    "OptimizerState",
    "Pace",
    "Parameter",
    "ParameterTable",
    "Part",
    "Place",
    "Problem",
    "Progress",
    "Pulse",
    "Purpose",
    "Rank",
    "RankDump",
    "RankReports",
    "Request",
    "Rhythm",
    "RunInfo",
    "RunRef",
    "SavedSchedule",
    "Series",
    "Sibling",
    "StepCount",
    "StepUnit",
    "TensorHeader",
    "TensorState",
    "TextLog",
    "Trouble",
    "Usual",
    "WeightChange",
    "Weights",
    "accumulation",
    "as_one",
    "beside",
    "confirm",
    "is_of_the_end",
    "is_of_the_machine",
    "is_whole_multiple",
    "label_of",
    "names_apart",
    "place_of",
    "plan_of",
    "planned_epochs",
    "planned_steps",
    "rhythm_of",
    "stood",
    "told_by_checkpoint",
]
