"""What signs look at: the findings, the settings, and a few numbers that no single rule has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import NamedTuple

import numpy as np

from tracker_health.evidence import Curve, Evidence, TensorState
from tracker_health.facts.chance import came_back_to_its_start, chance_fallen_to
from tracker_health.facts.intent import is_fine_tuning
from tracker_health.facts.settings import (
    ADAM,
    LEAST_FINE_TUNING,
    LEAST_RATE,
    MOST_RATE,
    SGD,
    USUAL_FINE_TUNING,
    USUAL_RATE,
    Settings,
)
from tracker_health.report.result import ProbeResult, earliest_onset
from tracker_health.report.resume_point import Onset
from tracker_health.text import steps_in_words
from tracker_health.words.verdict import Verdict

_RATE_JUMP = 5.0  # a learning rate that rises so much from one point to the next jumped
_BACK = 0.35  # of the descent: so near to its start a loss is back where it began
_ABOUT = 10.0  # times as high or as low as usual, and still usual
_GREW = 10.0
_FEW, _ROUNDED = 3, 1e-5
_NEARLY_ALL = 0.9
_LEAST_DECAY, _MOST_PER_STEP = 1.0, 5e-3  # beyond both a weight decay takes the weights within a few hundred steps
_ABRUPT = 3  # levels within which a rise happens at once


class Jump(NamedTuple):
    """A rise from one value to another, and the first step that has it."""

    step: int
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Facts:
    """A run as causes see it. ``results``: what the rules found, those without a vote too."""

    evidence: Evidence
    results: Sequence[ProbeResult]

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.evidence)

    @cached_property
    def found(self) -> dict[str, ProbeResult]:
        """What warns or fails, by code."""
        return {one.code: one for one in self.results if one.verdict in (Verdict.WARN, Verdict.FAIL)}

    def has(self, *codes: str) -> bool:
        """Whether any of these rules found something."""
        return any(code in self.found for code in codes)

    def measured(self, code: str, name: str) -> float | None:
        """A number of a finding; None where the rule found nothing."""
        value = self.found[code].measured.get(name) if code in self.found else None
        return float(value) if isinstance(value, (int, float)) else None

    def names(self, code: str, key: str) -> list[str]:
        """A list of names in the details of a finding."""
        listed = self.found[code].details.get(key) if code in self.found else None
        return [str(one) for one in listed] if isinstance(listed, (list, tuple)) else []

    def onset(self, code: str) -> int | None:
        """The step at which a finding began; None for one that no step belongs to."""
        steps = self.found[code].steps if code in self.found else ()
        return min(steps, default=None)

    def went_wrong(self, codes: Iterable[str]) -> Onset | None:
        """From where on the worst of these findings say that the run was wrong; None where going back undoes none."""
        return earliest_onset(self.found[code] for code in codes if code in self.found)

    @cached_property
    def loss(self) -> Curve | None:
        return self.evidence.curve("train_loss")

    @cached_property
    def fine_tunes(self) -> bool:
        return is_fine_tuning(self.evidence)

    @property
    def usual_rate(self) -> float:
        """What such a training mostly takes."""
        if self.settings.optimizer == SGD:
            return USUAL_RATE[SGD]
        return USUAL_FINE_TUNING if self.fine_tunes else USUAL_RATE[ADAM]

    @property
    def rate_is_beyond(self) -> bool:
        """Whether the learning rate is higher than what trains."""
        rate, limit = self.settings.rate, MOST_RATE.get(self.settings.optimizer)
        if rate is None:
            return False
        if self.settings.optimizer_is_unsaid:  # 1 is also what some that scale their steps by themselves begin with
            return rate > max(MOST_RATE.values())
        return limit is not None and rate >= limit

    @property
    def decay_is_beyond(self) -> bool:
        """Whether the weight decay is large, and takes half a percent or more off the weights in each step."""
        decay, share = self.settings.weight_decay, self.settings.decay_per_step
        return decay is not None and share is not None and decay >= _LEAST_DECAY and share >= _MOST_PER_STEP

    @property
    def decay_is_little(self) -> bool:
        """Whether the weight decay is known to take little off the weights."""
        decay, share = self.settings.weight_decay, self.settings.decay_per_step
        return decay is not None and (decay < _LEAST_DECAY or (share is not None and share < _MOST_PER_STEP))

    @property
    def rate_is_high(self) -> bool:
        """Whether the learning rate is more than ten times what such a policy takes, and there is one."""
        rewarded = any(self.evidence.find(role) is not None for role in ("train_reward", "margin"))
        return rewarded and self.settings.rate is not None and self.settings.rate > _ABOUT * self.usual_rate

    @property
    def rate_is_tiny(self) -> bool:
        """Whether the learning rate is lower than what trains, and not 0."""
        rate, limit = self.settings.rate, LEAST_RATE.get(self.settings.optimizer)
        if rate is None or limit is None:
            return False
        return 0.0 < rate < (LEAST_FINE_TUNING if self.fine_tunes else limit)

    @property
    def rate_is_usual(self) -> bool:
        """Whether the learning rate is known, and about what such trainings take."""
        rate = self.settings.rate
        if rate is None or self.rate_jump is not None:
            return False
        return self.usual_rate / _ABOUT <= rate <= _ABOUT * self.usual_rate

    @property
    def rate_is_enough(self) -> bool:
        """Whether the learning rate is known, and not far below what such trainings take."""
        rate = self.settings.rate
        return rate is not None and rate >= self.usual_rate / _ABOUT

    @cached_property
    def rate_jump(self) -> Jump | None:
        """Where the logged learning rate rose at once to many times the highest it had, after the first tenth of the
        log: no warm-up does that.
        """
        for series in self.settings.logged_rates:
            values, steps = series.values, series.steps
            for at in range(max(2, len(values) // 10), len(values)):
                before = float(values[:at].max())
                if before > 0.0 and values[at] >= _RATE_JUMP * before:
                    return Jump(int(steps[at]), before, float(values[at]))
        return None

    @cached_property
    def rate_is_zero(self) -> bool:
        """Whether the learning rate ended at 0 while nothing moved, or was 0 all along."""
        last = self.settings.last_rate
        peak = self.settings.rate
        still = self.unchanged_share == 1.0 or self.has("GEN005", "LRS001")
        return last == 0.0 and (still or peak == 0.0)

    @cached_property
    def gradient_used(self) -> float | None:
        """The norm of the gradients that plain SGD with momentum took, by its buffers."""
        state, momentum = self.evidence.optimizer, self.settings.momentum
        if state is None or self.settings.optimizer != SGD or not momentum or momentum >= 1.0:
            return None
        squares = [one.first_moment.rms**2 * one.numel for one in state.tensors if one.first_moment is not None]
        total = float(np.sqrt(sum(squares))) * (1.0 - momentum) if squares else float("nan")
        return total if isfinite(total) else None

    @cached_property
    def gradient_logged(self) -> float | None:
        """The median gradient norm of the log."""
        norms = self.evidence.find("grad_norm")
        values = norms.finite().values if norms is not None else np.empty(0)
        return float(np.median(values)) if len(values) else None

    @cached_property
    def weights_are_tiny(self) -> bool:
        """Whether the weights are next to nothing."""
        scale = self.measured("WGT004", "scale")
        return scale is not None and scale < 0.1

    @cached_property
    def weights_are_huge(self) -> bool:
        scale = self.measured("WGT004", "scale")
        return scale is not None and scale > 1.0

    @cached_property
    def finite_loss(self) -> bool:
        """Whether there is a training loss, and all of it is finite."""
        series = self.evidence.find("train_loss")
        return series is not None and len(series) > 0 and series.clean().nonfinite == 0

    @cached_property
    def loss_is_zero(self) -> bool:
        """Whether the training loss was exactly 0 from its first point to its last."""
        series = self.evidence.find("train_loss")
        values = series.clean().values if series is not None else np.empty(0)
        return len(values) > 2 and bool((values == 0.0).all())

    @cached_property
    def gradient_is_zero(self) -> bool:
        """Whether the logged gradient norm was exactly 0 throughout."""
        series = self.evidence.find("grad_norm")
        values = series.finite().values if series is not None else np.empty(0)
        return len(values) > 2 and bool((values == 0.0).all())

    @cached_property
    def only_validation_is_nonfinite(self) -> bool:
        """Whether the training loss is finite, and a validation loss is not, and no weight is broken."""
        held_out = [one for one in self.evidence.series if one.role in ("val_loss", "val_loss_term")]
        broken = any(one.clean().nonfinite for one in held_out)
        return self.finite_loss and broken and not self.has("WGT001", "OPT002", "GRD001")

    @cached_property
    def nonfinite_for_a_while(self) -> str:
        """Where a loss was NaN or infinite that is finite again at the end, in words; empty where none was so."""
        if not self.has("LOS001") or self.has("LOS002", "WGT001", "OPT002") or self.went_wrong(["GRD001"]) is not None:
            return ""
        losses = [self.evidence.find(role) for role in ("train_loss", "val_loss")]
        ends = [one.clean().values[-1] for one in losses if one is not None and one.clean().nonfinite]
        first, last = (self.measured("LOS001", name) for name in ("first_step", "last_step"))
        if not ends or not np.isfinite(ends).all() or first is None or last is None:
            return ""
        points = int(self.measured("LOS001", "nonfinite") or 0)
        steps = self.found["LOS001"].steps
        where = f"{points} times between steps {first:.0f} and {last:.0f}"
        if points == len(steps):
            where = f"at {steps_in_words(steps)} alone"
        return f"{where}, and finite again afterwards"

    @cached_property
    def rises_throughout(self) -> bool:
        """Whether the training loss only ever rose: it ends at its highest, and never lay below its first points."""
        loss = self.loss
        if loss is None or not self.has("LOS004", "LOS005"):
            return False
        came_down = min(loss.head.value, loss.first.value) - loss.best.value
        up = loss.end.value - loss.head.value
        return up > 0 and loss.trend > 3.0 and came_down < 0.1 * up and loss.end.value >= 0.5 * loss.peak.value

    @property
    def is_stuck(self) -> bool:
        """Whether the model learnt nothing: neither loss nor accuracy left the level of guessing."""
        learnt_other = self.has("LOS004", "GEN001", "GEN004") or self.only_came_back
        return self.has("LOS005", "LOS006", "GEN003") and not learnt_other

    @cached_property
    def only_came_back(self) -> bool:
        """Whether the loss came down from far above to guessing, or after an explosion to its own start."""
        loss = self.evidence.curve("train_loss")
        back = loss is not None and self.has("LOS005") and came_back_to_its_start(loss)
        return back or (self.has("LOS006") and chance_fallen_to(self.evidence) is not None)

    @property
    def gradients_arrive(self) -> bool:
        """Whether the optimizer's state shows that gradients reached every parameter."""
        return any(one.code == "OPT003" and one.verdict is Verdict.PASS for one in self.results)

    @property
    def knows_gradients(self) -> bool:
        """Whether anything shows the gradients: their norms, or the optimizer's state."""
        return any(one.code in ("OPT003", "GRD003", "GRD001") for one in self.results)

    @cached_property
    def fell_back(self) -> Jump | None:
        """Where the loss, after it had come down, was at once back near the level that it began at."""
        loss = self.loss
        if loss is None or loss.descent.value <= 0.0 or len(loss.levels) < 2 * _ABRUPT:
            return None
        start, descent = loss.start.value, loss.descent.value
        if not loss.descent.surely_above(0.0) or not (self.has("LOS004") or descent > 0.2 * abs(start)):
            return None
        for at in range(_ABRUPT, len(loss.levels)):
            low, high = float(loss.levels[:at].min()), float(loss.levels[at])
            fell = start - low
            near = float(loss.levels[max(0, at - _ABRUPT) : at].min())
            if fell > 0.3 * descent and near < low + 0.3 * fell and abs(high - start) < _BACK * fell:
                return Jump(loss.rose_at(at, (near + high) / 2), near, high)
        return None

    @cached_property
    def grew_before_nan(self) -> bool:
        """Whether a loss had grown tenfold before it became NaN or infinite."""
        for series in self.evidence.series:
            if series.role not in ("train_loss", "val_loss"):
                continue
            values = series.clean().values
            bad = np.flatnonzero(~np.isfinite(values))
            before = np.abs(values[: bad[0]]) if len(bad) else values[:0]
            if len(before) > 1 and before[-1] > _GREW * max(float(before[0]), 1e-6):
                return True
        return False

    @cached_property
    def only_spikes(self) -> bool:
        """Whether the loss jumped up, more than once or far, and came down again by itself at a usual learning rate."""
        loss = self.loss
        if (
            loss is None
            or self.rate_jump is not None
            or self.rate_is_beyond
            or not self.has("LOS003", "LOS008", "LOS004")
        ):
            return False
        return bool(loss.excursions(0.1 * loss.size)) and loss.end.value < loss.start.value

    @cached_property
    def first_layer_is_blind(self) -> bool:
        """Whether no gradient came to the first matrix alone, while its bias had some: its inputs are 0."""
        state, dead = self.evidence.optimizer, self.names("OPT003", "dead")
        if state is None or len(dead) != 1 or state.stateless:
            return False
        first = next((one for one in state.tensors if len(one.shape) > 1), None)
        if first is None or first.label != dead[0]:
            return False
        bias = f"{first.name.rpartition('.')[0]}.bias" if first.name is not None else None
        beside = [one for one in state.tensors if one.name == bias] if bias is not None else []
        beside = beside or list(state.tensors[state.tensors.index(first) + 1 :][:1])
        return any(one.shape == first.shape[:1] and _had_gradient(one) for one in beside)

    @cached_property
    def first_layer(self) -> str:
        """The name of the first matrix of the weights in the optimizer's order; empty where it has none."""
        state = self.evidence.optimizer
        matrices = [one for one in state.tensors if len(one.shape) > 1] if state is not None else []
        return matrices[0].label if matrices else ""

    @cached_property
    def one_tensor_is_broken(self) -> bool:
        """Whether one tensor of several holds NaN, and neither loss, moments nor gradients ever did."""
        broken, tensors = self.measured("WGT001", "nonfinite_tensors"), self.measured("WGT001", "tensors")
        if broken is None or tensors is None or self.has("LOS001", "OPT002", "GRD001", "LOS002"):
            return False
        return broken == 1 and tensors > 2

    @cached_property
    def answers_are_cut(self) -> bool:
        """Whether nearly all answers were cut off at the limit, from the beginning on."""
        cut = self.evidence.curve("cut_share")
        return cut is not None and cut.start.value >= _NEARLY_ALL and cut.end.value >= _NEARLY_ALL

    @cached_property
    def reward_never_rose(self) -> bool:
        """Whether the reward of training ends below its start, and surely never lay above it."""
        reward = self.evidence.curve("train_reward")
        if reward is None:
            return False
        up = reward.upside_down
        return (up.end - up.start).surely_above(0.0) and not up.descent.surely_above(0.0)

    @cached_property
    def nothing_moved(self) -> bool:
        """Whether a policy stayed its reference, by divergence or margins of 0 throughout, while gradients came."""
        still = [self.evidence.find(role) for role in ("kl", "margin")]
        moved = [one for one in still if one is not None and len(one) > 2 and not one.finite().values.any()]
        return bool(moved) and self.has("RWD003", "RWD009") and not self.gradient_is_zero

    @cached_property
    def answers_are_the_same(self) -> bool:
        """Whether chosen and rejected answers have the same log-probability at every point."""
        chosen, rejected = (self.evidence.find(role) for role in ("chosen_logp", "rejected_logp"))
        if chosen is None or rejected is None or len(chosen) != len(rejected) or len(chosen) < _FEW:
            return False
        return bool(np.allclose(chosen.values, rejected.values, rtol=_ROUNDED, atol=0.0))

    @property
    def unchanged_share(self) -> float | None:
        """The share of the tensors that did not change since the checkpoint before."""
        compared, unchanged = self.measured("WGT002", "compared"), self.measured("WGT002", "unchanged")
        return unchanged / compared if compared and unchanged is not None else None


def _had_gradient(tensor: TensorState) -> bool:
    moment = tensor.second_moment if tensor.second_moment is not None else tensor.first_moment
    return moment is not None and moment.rms > 0.0


def first_of(steps: Iterable[int | None]) -> int | None:
    """The earliest step that is known."""
    return min((one for one in steps if one is not None), default=None)
