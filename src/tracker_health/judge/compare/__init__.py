"""Two runs next to each other: what is unlike (``compare``), whether one repairs the other (``judge_repair``). Pure.

``side`` is a run as it is compared, ``alignment`` the axis, ``paths`` and ``partings`` the curves, ``changes`` settings
and tensors; ``margins`` says what two seeds bring about.
"""

from tracker_health.judge.compare.alignment import Alignment, By, aligned, came_to_its_plan
from tracker_health.judge.compare.changes import Change, TensorChanges
from tracker_health.judge.compare.comparison import NOTHING_PARTS, Comparison, compare
from tracker_health.judge.compare.ends import End
from tracker_health.judge.compare.partings import ROLES, Parting, Partings
from tracker_health.judge.compare.paths import PARTS
from tracker_health.judge.compare.repair import Repair, judge_repair
from tracker_health.judge.compare.side import Side

__all__ = [
    "NOTHING_PARTS", "PARTS", "ROLES", "Alignment", "By", "Change", "Comparison", "End", "Parting", "Partings",
    "Repair", "Side", "TensorChanges", "aligned", "came_to_its_plan", "compare", "judge_repair",
]  # fmt: skip
