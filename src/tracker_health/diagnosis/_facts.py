"""What signs look at: the findings, the settings with the limits of the rules, and a few numbers that no rule has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

import numpy as np

from tracker_health.evidence import Curve, Evidence, StepUnit, TensorState, place_of
from tracker_health.facts import turns
from tracker_health.facts.chance import UNTRAINED, came_back_to_its_start, chance_fallen_to, chance_of
from tracker_health.facts.environments import is_control
from tracker_health.facts.intent import is_fine_tuning, says_adapter
from tracker_health.facts.resumes import resumes_of
from tracker_health.facts.settings import ADAM, MOST_RATE_OF_SGD, SGD, Settings, UsualRate, usual_rate_of
from tracker_health.facts.turns import Jump
from tracker_health.report.result import ProbeResult, earliest_onset
from tracker_health.report.resume_point import Onset
from tracker_health.rules.probe import Symptom, thresholds_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import steps_in_words
from tracker_health.words.verdict import Verdict

_FEW, _ROUNDED = 3, 1e-5
_NEARLY_ALL = 0.9
_TINY_NORM = 1e-8  # of a gradient that moves nothing, whatever the rate
_NAN = re.compile(r"\b(?:nan|inf|infinity|non-?finite|not finite)\b", re.IGNORECASE)
_BESIDE = 2  # rows of a log behind a resume within which a rise belongs to it

WORST = frozenset({Symptom.NONFINITE, Symptom.DIVERGED, Symptom.SCALE_COLLAPSE})
"""Symptoms after which nothing else that the run did counts."""

MILD = frozenset({Symptom.OVERFIT, Symptom.UNDERTRAINED, Symptom.SCHEDULE, Symptom.SPIKES, Symptom.UNSTABLE,
                  Symptom.IDLE_REGULARISER, Symptom.ODD_ONE_OUT, Symptom.THROUGHPUT})  # fmt: skip
"""Symptoms that head no report on a run that shows another one, of the same verdict."""

_MOVED = ("RWD004", "RWD005", "RWD006", "RWD007")


@dataclass(frozen=True, eq=False)
class Facts:
    """A run as causes see it. ``results``: what the rules found, those without a vote too. ``limits``: the thresholds
    of the rules as they are set, by code; of others the declared ones count. ``about``: the codes that the cause that
    leads explains, once one does.
    """

    evidence: Evidence
    results: Sequence[ProbeResult]
    limits: Mapping[str, Mapping[str, float | int]] = field(default_factory=dict)
    about: frozenset[str] = frozenset()

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.evidence)

    def limit(self, code: str, name: str) -> float:
        """A threshold of a rule: where it is set, else as the rule declares it."""
        if code in self.limits:
            return float(self.limits[code][name])
        rule = next(one for one in BUILT_IN if one.code == code)
        if name not in thresholds_of(rule):
            raise KeyError(f"{code} has no threshold {name}")
        return float(getattr(rule, name))

    @cached_property
    def found(self) -> dict[str, ProbeResult]:
        """What warns or fails, by code."""
        return {one.code: one for one in self.results if one.verdict in (Verdict.WARN, Verdict.FAIL)}

    @cached_property
    def headed(self) -> frozenset[str]:
        """The codes of which one heads the report: the findings with a vote of the worst verdict, and of those the ones
        of the worst symptoms.
        """
        voting = [one for one in self.found.values() if one.votes]
        worst = max((one.verdict.rank for one in voting), default=0)
        heads = [one for one in voting if one.verdict.rank == worst]
        least = min((_mildness(one) for one in heads), default=0)
        return frozenset(one.code for one in heads if _mildness(one) == least)

    def headed_by(self, explains: frozenset[str]) -> Facts:
        """The same, headed by a finding of the worst that a cause explains."""
        return replace(self, about=explains)

    @cached_property
    def head(self) -> ProbeResult | None:
        """The finding that heads the report: of the worst ones that the cause explains the one that began first."""
        return self.first_of(self.headed & self.about or self.headed)

    @property
    def head_code(self) -> str:
        return "" if self.head is None else self.head.code

    @property
    def head_message(self) -> str:
        return "" if self.head is None else self.head.message

    def first_of(self, codes: Iterable[str]) -> ProbeResult | None:
        """Of these findings the one that began first; those without a step come last, in the order of the rules."""
        known = [one for code, one in self.found.items() if code in set(codes)]
        return min(known, key=lambda one: min(one.steps, default=float("inf")), default=None)

    def has(self, *codes: str) -> bool:
        """Whether any of these rules found something."""
        return any(code in self.found for code in codes)

    def has_kind(self, code: str, *kinds: str) -> bool:
        """Whether a rule found something of one of these kinds; of any, where none is named."""
        return code in self.found and (not kinds or self.found[code].kind in kinds)

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

    def at(self, step: float) -> str:
        """``step 620``, or ``epoch 12``: on the axis of the loss."""
        known = [one for role in ("train_loss", "val_loss") if (one := self.evidence.find(role)) is not None]
        return known[0].place(step) if known else place_of(step, StepUnit.UNKNOWN)

    def all_at(self, steps: Sequence[int]) -> str:
        """``steps 620 and 640``, on the same axis."""
        loss = self.evidence.find("train_loss")
        return steps_in_words(steps) if loss is None else loss.places(np.array(steps, dtype=np.int64))

    @cached_property
    def fine_tunes(self) -> bool:
        return is_fine_tuning(self.evidence)

    @cached_property
    def is_policy(self) -> bool:
        """Whether a policy is trained: by a reward, or by preferences."""
        return any(self.evidence.find(role) is not None for role in ("train_reward", "val_reward", "margin"))

    @cached_property
    def starts_trained(self) -> bool:
        """Whether the model began from a trained one: as said, or as its first loss is far below that of guessing."""
        chance = chance_of(self.evidence)
        started = self.loss is not None and chance is not None
        below = started and self.loss.start.surely_below((1.0 - UNTRAINED) * chance.loss)  # type: ignore[union-attr]
        return self.fine_tunes or says_adapter(self.evidence) or bool(below)

    @cached_property
    def usual(self) -> UsualRate:
        """The learning rates that such a training mostly takes."""
        policy = "" if not self.is_policy else "control" if is_control(self.evidence) else "answers"
        return usual_rate_of(self.settings.optimizer, fine_tunes=self.starts_trained, policy=policy)

    @property
    def usual_rate(self) -> float:
        return self.usual.typical

    @cached_property
    def most_rate(self) -> float | None:
        """From here on almost nothing trains; None for an optimizer of which that is not known. One that scales its
        steps by itself begins with 1.
        """
        of_adam = self.limit("OPT016", "most_rate")
        if self.settings.optimizer_is_unsaid:
            return float(np.nextafter(max(of_adam, MOST_RATE_OF_SGD), np.inf))
        return {ADAM: of_adam, SGD: MOST_RATE_OF_SGD}.get(self.settings.optimizer)

    @property
    def rate_is_beyond(self) -> bool:
        """Whether the learning rate is higher than what trains."""
        rate = self.settings.rate
        return rate is not None and self.most_rate is not None and rate >= self.most_rate

    @property
    def rate_is_far_above(self) -> bool:
        """Whether the learning rate is ten times the highest that is usual for such a training, or more."""
        rate = self.settings.rate
        is_known = self.settings.optimizer or self.is_policy or says_adapter(self.evidence)
        return bool(is_known) and rate is not None and rate >= self.usual.far_above

    def rate_above_since(self) -> int | None:
        """The first step at which a logged rate was above what is usual; None where it was from the first one on."""
        above = [np.flatnonzero(one.values > self.usual.highest) for one in self.settings.logged_rates]
        at = [(int(found[0]), one) for found, one in zip(above, self.settings.logged_rates, strict=True) if len(found)]
        return min((int(one.steps[first]) for first, one in at if first), default=None)

    @property
    def rate_is_tiny(self) -> bool:
        """Whether the learning rate is lower than what trains, and not 0."""
        rate = self.settings.rate
        return rate is not None and 0.0 < rate < self.usual.least and not self.rate_still_rises

    @cached_property
    def rate_still_rises(self) -> bool:
        """Whether the logged rate ends at its highest and began lower: its warm-up was not over."""
        values = [one.values for one in self.settings.logged_rates]
        return any(len(one) > 1 and float(one[-1]) == float(one.max()) > float(one[0]) for one in values)

    @property
    def rate_is_above(self) -> bool:
        """Whether the learning rate is higher than is usual for such a training, and not far above."""
        rate = self.settings.rate
        is_known = self.settings.optimizer or says_adapter(self.evidence)
        return bool(is_known) and rate is not None and self.usual.highest < rate < self.usual.far_above

    @property
    def rate_of_a_group_is_nothing(self) -> bool:
        """Whether the learning rate of one group is so low that no weight moves, and not 0."""
        rate, groups = self.settings.slowest_rate, max(len(self.settings.logged_rates), self.settings.groups)
        return groups > 1 and rate is not None and 0.0 < rate < self.limit("LRS003", "least_rate")

    @cached_property
    def rate_vanished(self) -> bool:
        """Whether a logged learning rate, of one group at least, was almost zero for most of the run, and had been
        higher.
        """
        least = self.limit("LRS003", "least_rate")
        rates = [one.values for one in self.settings.logged_rates]
        return any(float(np.median(values)) < least <= float(values.max()) for values in rates)

    @property
    def rate_is_usual(self) -> bool:
        """Whether the learning rate is known, and about what such trainings take."""
        rate = self.settings.rate
        return rate is not None and self.rate_jump is None and self.usual.holds(rate)

    @property
    def rate_is_enough(self) -> bool:
        """Whether the learning rate is known, and not far below what such trainings take."""
        return self.settings.rate is not None and self.settings.rate >= self.usual.lowest

    @cached_property
    def rate_jump(self) -> Jump | None:
        return turns.rate_jump(self.settings.logged_rates)

    @cached_property
    def rate_is_zero(self) -> bool:
        """Whether the learning rate was 0 all along, or is 0 in a checkpoint since which, and before, nothing moved. A
        rate of 0 at the end of a decay says nothing.
        """
        rates = self.settings.logged_rates
        throughout = bool(rates) and not any(one.values.any() for one in rates)
        still = self.unchanged_share == 1.0 or self.settings.rate == 0.0
        return throughout or (self.settings.last_rate == 0.0 and still)

    @property
    def decay_is_beyond(self) -> bool:
        """Whether the weight decay is large, and takes more off the weights in each step than they can stand."""
        decay, share = self.settings.weight_decay, self.settings.decay_per_step
        least, most = self.limit("OPT015", "least_decay"), self.limit("OPT015", "most_decay")
        return decay is not None and share is not None and decay >= least and share >= most

    @property
    def decay_is_little(self) -> bool:
        """Whether the weight decay is known to take little off the weights."""
        is_known = self.settings.weight_decay is not None and self.settings.decay_per_step is not None
        return is_known and not self.decay_is_beyond

    @property
    def clip_is_tiny(self) -> bool:
        """Whether gradients are clipped to almost zero."""
        return self.settings.clip is not None and self.settings.clip <= self.limit("OPT014", "least_clip")

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
        """Whether the weights are almost zero."""
        scale = self.measured("WGT004", "scale")
        return scale is not None and scale < self.limit("WGT004", "min_scale")

    @cached_property
    def weights_are_huge(self) -> bool:
        return self.has("WGT004") and not self.weights_are_tiny

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
    def gradients_came(self) -> bool:
        """Whether a gradient norm was logged that was not 0."""
        series = self.evidence.find("grad_norm")
        return series is not None and bool(series.finite().values.any())

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
        where = f"{points} times between {self.at(first)} and {self.at(last)}"
        if points == len(steps):
            where = f"at {self.all_at(steps)} alone"
        return f"{where}, and finite again afterwards"

    @cached_property
    def stays_nonfinite(self) -> bool:
        """Whether a loss or a gradient norm is NaN or infinite from its first such value to its end."""
        roles = ("train_loss", "val_loss") if self.has("LOS001", "LOS002") else ("grad_norm",)
        values = [one.clean().values for role in roles for one in self.evidence.all_of(role)]
        broken = [one[np.argmax(~np.isfinite(one)) :] for one in values if not np.isfinite(one).all()]
        return not broken or any(not np.isfinite(one).any() for one in broken)

    @cached_property
    def has_learnt(self) -> bool:
        """Whether the training loss clearly came down, to half of its start or less, and not from an explosion."""
        loss = self.loss
        if loss is None or loss.start.value <= 0.0 or self.only_came_back:
            return False
        return loss.kept.surely_above(0.0) and loss.kept.value >= 0.5 * loss.start.value

    @cached_property
    def rises_throughout(self) -> bool:
        """Whether the training loss only ever rose."""
        if self.loss is None or self.loss.series.guessed:  # a guessed sum may be of weights that nobody knows
            return False
        return self.has("LOS004", "LOS005") and turns.rises_throughout(self.loss)

    @property
    def something_else_moved(self) -> bool:
        """Whether a policy's divergence, entropy or answers left their course: then its reward fell for a reason."""
        return self.has(*_MOVED)

    @cached_property
    def fell_back(self) -> Jump | None:
        """Where the loss, after it had come down, was at once back near the level that it began at."""
        if self.loss is None or not (self.has("LOS004") or turns.had_come_down(self.loss)):
            return None
        return turns.fell_back(self.loss)

    @cached_property
    def rose_at_a_resume(self) -> int | None:
        """The step at which a loss rose, where that is right behind a resume."""
        rises = [self.onset(code) for code in ("LOS003", "LOS004", "LOS008", "LOS017")]
        rises += [self.fell_back.step] if self.fell_back is not None else []
        steps = self.loss.series.steps if self.loss is not None else np.empty(0)
        for resumed, _ in resumes_of(self.evidence):
            soon = steps[steps > resumed][:_BESIDE]
            last = int(soon[-1]) if len(soon) else resumed
            at = next((one for one in rises if one is not None and resumed <= one <= last), None)
            if at is not None:
                return at
        return None

    @cached_property
    def grew_before_nan(self) -> bool:
        losses = (one for one in self.evidence.series if one.role in ("train_loss", "val_loss"))
        return turns.grew_before_nan(losses)

    @property
    def diverged_before_nan(self) -> bool:
        """Whether the loss had diverged at an earlier step than that of the first NaN."""
        rose, broke = self.onset("LOS004"), self.measured("LOS001", "first_step")
        return "LOS004" in self.headed and rose is not None and broke is not None and rose < broke

    @cached_property
    def only_spikes(self) -> bool:
        """Whether the loss jumped up and came down again by itself, at a rate that did not and is not beyond use."""
        if self.loss is None or self.rate_jump is not None or self.rate_is_beyond or self.fell_back is not None:
            return False
        return self.has("LOS003", "LOS008") and not self.has("LOS004") and turns.only_spikes(self.loss)

    @cached_property
    def gradient_vanishes(self) -> bool:
        """Whether a logged gradient norm, of the whole or of a layer, is almost zero while the loss is not."""
        norms = [one.finite().values for role in ("grad_norm", "layer_grad_norm") for one in self.evidence.all_of(role)]
        tiny = any(len(values) > _FEW and float(np.median(np.abs(values))) <= _TINY_NORM for values in norms)
        return tiny and self.loss is not None and abs(self.loss.end.value) > _TINY_NORM

    def says_nan(self) -> bool:
        """Whether the exception that ended the run speaks of NaN or infinity."""
        texts = [str(self.found[code].details.get("text", "")) for code in ("RUN004", "RUN003") if code in self.found]
        return any(_NAN.search(text) for text in texts)

    @cached_property
    def below_chance(self) -> bool:
        """Whether an accuracy ends clearly below that of guessing."""
        chance = chance_of(self.evidence)
        curves = [self.evidence.curve(role) for role in ("train_accuracy", "val_accuracy")]
        least = 0.0 if chance is None else 0.5 * chance.share
        return any(one.end.surely_below(least) for one in curves if one is not None)

    @property
    def is_stuck(self) -> bool:
        """Whether the model learnt nothing: neither loss nor accuracy left chance level."""
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
    def groups_differed_at_first(self) -> bool:
        """Whether groups of answers had a spread of rewards at the beginning: then its lack is an effect."""
        flat = self.evidence.curve("flat_share")
        if flat is not None:
            return flat.start.value < 0.5 <= flat.end.value
        spreads = [self.evidence.curve(role) for role in ("reward_spread", "advantage_spread")]
        return any(
            one.start.value > 0.0 and one.end.value < 0.5 * one.start.value for one in spreads if one is not None
        )

    @property
    def policy_is_random(self) -> bool:
        """Whether a policy's entropy exploded or stays at its maximum, or the noise of its actions grew."""
        return self.has_kind("RWD004", "came-apart") or self.has("RWD012", "RWD015")

    @cached_property
    def answers_are_cut(self) -> bool:
        """Whether nearly all answers were cut off at the limit, from the beginning on."""
        cut = self.evidence.curve("cut_share")
        return cut is not None and cut.start.value >= _NEARLY_ALL and cut.end.value >= _NEARLY_ALL

    @cached_property
    def reward_never_rose(self) -> bool:
        """Whether the reward of training ends below its start, and clearly never was above it."""
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
        return bool(moved) and self.has("RWD003", "RWD009") and self.gradients_came

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


def _mildness(one: ProbeResult) -> int:
    return 0 if one.symptom in WORST else 2 if one.symptom in MILD else 1


def _had_gradient(tensor: TensorState) -> bool:
    moment = tensor.second_moment if tensor.second_moment is not None else tensor.first_moment
    return moment is not None and moment.rms > 0.0


def earliest(steps: Iterable[int | None]) -> int | None:
    """The earliest step that is known."""
    return min((one for one in steps if one is not None), default=None)
