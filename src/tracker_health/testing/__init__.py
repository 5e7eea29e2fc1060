"""For authors of rules: helpers and a suite for their tests."""

from tracker_health.testing.parts import make_optimizer_state, make_text_log, make_weights
from tracker_health.testing.probes import check_probe

__all__ = ["check_probe", "make_optimizer_state", "make_text_log", "make_weights"]
