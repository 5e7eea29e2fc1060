"""One table of a model's parameters: what trained, what did not, and whether that was meant.

``table`` makes it of an optimizer's state and of weights, which ``joining`` brings together. ``rows`` has what is known
of one parameter, ``initial`` whether it still is what an initialiser draws, ``steps`` how large its steps are, and
``words`` what its name says. ``purpose`` is the one place where it is asked whether something was left out on purpose:
about a case (``left_out``), question by question (``answers``).
"""

from tracker_health.evidence.parameters.initial import Initial
from tracker_health.evidence.parameters.left_out import Left
from tracker_health.evidence.parameters.purpose import LIKELY as LIKELY_MEANT
from tracker_health.evidence.parameters.purpose import SURE as SURELY_MEANT
from tracker_health.evidence.parameters.purpose import LeftOut, Purpose
from tracker_health.evidence.parameters.rows import Kind, Naming, Parameter, Place
from tracker_health.evidence.parameters.table import ParameterTable

__all__ = [
    "LIKELY_MEANT",
    "SURELY_MEANT",
    "Initial",
    "Kind",
    "Left",
    "LeftOut",
    "Naming",
    "Parameter",
    "ParameterTable",
    "Place",
    "Purpose",
]
