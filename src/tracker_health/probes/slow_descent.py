"""LOS011."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from tracker_health.evidence import Evidence, FloatArray, Need, Part, Series
from tracker_health.evidence.numerics import evaluation_noise, local_noise, median, median_error, start_level
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._comparable import begins_late, settled
from tracker_health.probes._run import is_fine_tuning, learning_rates
from tracker_health.probes._standing import is_of_another_model
from tracker_health.result import Finding
from tracker_health.text import number
from tracker_health.verdict import Verdict

_SIGNIFICANT, _SIGNIFICANT_HALF = 3.0, 2.0
_ROOT = 2.0**0.5
_PARTS = 8
_FEW = 16
_EARLY, _LATE = 0.25, 0.75
_BEGINS, _BEFORE = 0.2, 3
_A_PERCENT = 0.01
_REMEDY = "raise the learning rate, or train longer"


@dataclass(frozen=True, kw_only=True)
class SlowDescent(Probe):
    """The loss has come down by little, and in step with the learning rate to the end.

    What it finds:
        A training loss that lost little of its start, and fell as fast at the end, for the learning rate it then had,
        as on the whole; or a validation loss that did so, where the noise of batches hides it.

    Why it matters:
        A training that works learns most at first. One that does not slow down has hardly begun: its steps are far too
        small, or too few, or something keeps the model from using what it sees.

    How it decides:
        The run is cut by the sum of the learning rate, where it is logged (by steps otherwise), so that a schedule's
        end does not look like convergence. Warn when the loss has come down by no more than `little` of its start, and
        both the middle half and the last quarter brought, less one standard error, at least `pace` of what they would
        bring to a straight line; the last quarter beyond three standard errors, and its second half two: of medians of
        eighths, the run's first values being the start. Both, since the end of a schedule takes the noise out of the
        weights, and the loss falls once more. Of fewer than 16 points, but no fewer than `min_points`, each of the last
        quarter (two at least) has to lie below the one before. Fine-tunes are left alone: an adapter, or a param that
        names a base model.

        Noise may hide such a fall, which a validation loss of `min_points` shows. Warn also when that fell so, step by
        step whatever the learning rate: by at least `held_out_pace` of a straight line. Neither it nor the training
        loss may have come down by more than `little`, of 16 evaluations and more than `held_out_little`. Not where the
        history begins when training had done a part, or a weight of the objective rises (`kl_weight`).

    Known limits:
        A fine-tune that no param tells of, with a tiny learning rate, looks the same. A loss that is mostly noise
        (labels at random, say) under a rate that decays exponentially may fall in step with the rate to its end.

    What to do:
        Raise the learning rate, or train longer; look whether the gradient reaches the first layer.

    References:
        Standard error of a median. Smith (2017), on learning rates that are too small.
    """

    code = "LOS011"
    name = "slow-descent"
    symptom = Symptom.UNDERTRAINED
    headline = ("descent",)

    little: Annotated[
        float, Threshold("descent that is little, as a share of the start", "fraction", "calibration", gt=0, le=1)
    ] = 0.25
    pace: Annotated[
        float, Threshold("fall late in the run over that of a straight line", "ratio", "calibration", gt=0)
    ] = 0.8
    held_out_pace: Annotated[float, Threshold("the same of a validation loss", "ratio", "calibration", gt=0)] = (
        0.75  # of certified healthy runs 0.73 at most
    )
    held_out_little: Annotated[
        float, Threshold("descent that is little where many evaluations fall along a line", "fraction", "design", gt=0,
                         le=1)
    ] = 0.4  # fmt: skip
    min_points: Annotated[int, Threshold("finite points needed", "points", "design", ge=6)] = 6

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="train_loss", min_points=self.min_points),
            Need(role="learning_rate", optional=True),
            Need(role="val_loss", optional=True),
            Need(role="objective_weight", optional=True),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        loss = evidence.first("train_loss").finite()
        if len(loss) < self.min_points:
            return Finding(verdict=Verdict.SKIP, message=f"only {len(loss)} finite points of the loss")
        found = self._trained(evidence, loss)
        return found if found.verdict is Verdict.WARN else self._held_out(evidence, loss) or found

    def _trained(self, evidence: Evidence, loss: Series) -> Finding:
        """What the training loss shows."""
        rate = _summed_rate(evidence, loss)
        progress = _shares(loss.steps.astype(float) if rate is None else rate)
        fall = _fall(loss.values, progress, local_noise(loss.values))
        if fall is None:
            return Finding(
                verdict=Verdict.SKIP, message="too few points of the loss at each level of the learning rate"
            )
        if not (0.0 < fall.descent <= self.little and fall.sure and fall.pace >= self.pace):
            came = f"came down by {fall.descent:.0%}" if fall.descent > 0 else "did not come down"
            return Finding(verdict=Verdict.PASS, message=f"the loss {came}", measured=fall.measured())
        if is_fine_tuning(evidence):
            return Finding(verdict=Verdict.PASS, message="a fine-tune may gain little", measured=fall.measured())
        return _slow("loss", fall, "" if rate is None else " for its learning rate")

    def _held_out(self, evidence: Evidence, loss: Series) -> Finding | None:
        """That the validation loss fell by little and step by step, where it did."""
        series = evidence.find("val_loss")
        held_out = series.finite() if series is not None else None
        if held_out is None or len(held_out) < self.min_points or _is_no_whole_training(evidence, loss):
            return None
        little = self.little if len(held_out) < _FEW else self.held_out_little
        # A line is no noise of evaluations, which hardly have any.
        fall = _fall(held_out.values, _shares(held_out.steps.astype(float)), evaluation_noise(held_out.values))
        if fall is None or not (0.0 < fall.descent <= little and fall.sure and fall.pace >= self.held_out_pace):
            return None
        return _slow("validation loss", fall, "") if _came_down(loss.values) <= little else None


def _is_no_whole_training(evidence: Evidence, loss: Series) -> bool:
    """Whether training did a part before the history begins, or its end is judged by another measure."""
    late = loss.steps[0] > max(1.0, _BEGINS * loss.steps[-1]) or begins_late(loss)
    return late or is_fine_tuning(evidence) or settled(evidence) is not None or is_of_another_model(evidence)


def _came_down(values: FloatArray) -> float:
    """By which share of the highest of its first values a loss ends below it."""
    start, end = float(values[:_BEFORE].max()), median(values[-max(2, len(values) // _PARTS) :])
    return (start - end) / start if start > 0 else 0.0


def _slow(name: str, fall: _Fall, pace: str) -> Finding:
    return Finding(
        verdict=Verdict.WARN,
        message=f"the {name} has come down by no more than {_share(fall.descent)}, "
        f"from {number(fall.start)} to {number(fall.end)}, and fell at the end as fast as ever{pace}",
        remedy=_REMEDY,
        measured=fall.measured(),
    )


def _share(descent: float) -> str:
    return f"{descent:.0%}" if descent >= _A_PERCENT else f"{max(descent, 0.1 * _A_PERCENT):.1%}"


class _Fall(NamedTuple):
    """Losses, and what parts of the way brought at least, less a standard error, over what they would bring to a
    straight line. ``sure``: the late fall is beyond the noise.
    """

    start: float
    end: float
    middle: float
    late: float
    sure: bool

    @property
    def descent(self) -> float:
        """As a share of the start, if that is above zero."""
        return (self.start - self.end) / self.start if self.start > 0 else 0.0

    @property
    def pace(self) -> float:
        return min(self.middle, self.late)

    def measured(self) -> dict[str, float | int]:
        return {"start": self.start, "end": self.end, "descent": self.descent, "pace": self.pace}


def _summed_rate(evidence: Evidence, loss: Series) -> FloatArray | None:
    """The sum of the learning rate up to each point of the loss; None where no rate tells.

    Of several rates the one with the highest peak: a frozen group may well have a rate of 0.
    """
    rates = max(learning_rates(evidence), key=lambda one: float(one.values.max()), default=None)
    if rates is None or len(rates) < 2:
        return None
    between = np.diff(rates.steps) * (rates.values[1:] + rates.values[:-1]) / 2.0
    summed = np.asarray(np.interp(loss.steps, rates.steps, np.append(0.0, np.cumsum(between))))
    tells = np.isfinite(summed).all() and (between >= 0).all() and summed[-1] > summed[0]
    return summed if tells else None


def _shares(ways: FloatArray) -> FloatArray:
    """Of the whole way that which lies before each point."""
    whole = ways[-1] - ways[0]
    return np.asarray((ways - ways[0]) / whole if whole > 0 else np.linspace(0.0, 1.0, len(ways)))


def _fall(values: FloatArray, progress: FloatArray, noise: float) -> _Fall | None:
    return _fall_of_few(values, progress) if len(values) < _FEW else _fall_of_many(values, progress, noise)


def _fall_of_many(values: FloatArray, progress: FloatArray, noise: float) -> _Fall | None:
    """By medians of eighths."""
    at = np.minimum((progress * _PARTS).astype(int), _PARTS - 1)
    parts = [values[at == part] for part in range(_PARTS)]
    if not all(len(part) for part in parts):
        return None
    start = start_level(values, max(1, min(3, len(values) // 10)), noise)
    levels = [median(part) for part in parts]
    places = [median(progress[at == part]) for part in range(_PARTS)]
    line = (start - levels[-1]) / places[-1]
    second, sixth, seventh, last = levels[1], *levels[-3:]
    errors = [median_error(noise, len(part)) for part in parts]
    late_error = float(np.hypot(errors[-3], errors[-1]))
    return _Fall(
        start=start,
        end=last,
        middle=_over(line, second - sixth - float(np.hypot(errors[1], errors[-3])), places[-3] - places[1]),
        late=_over(line, sixth - last - late_error, places[-1] - places[-3]),
        sure=sixth - last > _SIGNIFICANT * late_error and seventh - last > _SIGNIFICANT_HALF * late_error,
    )


def _fall_of_few(values: FloatArray, progress: FloatArray) -> _Fall:
    """By single points: a log too short for eighths, of a point an epoch, say."""
    size = min(max(2, len(values) // 4, int((progress > _LATE).sum())), len(values) - 2)
    line, error = float(values[0] - values[-1]), _ROOT * evaluation_noise(values)
    after, before = np.interp((_EARLY, _LATE), progress, values)
    late = float(values[-1 - size] - values[-1])
    return _Fall(
        start=float(values[0]),
        end=float(values[-1]),
        middle=_over(line, float(after - before) - error, _LATE - _EARLY),
        late=_over(line, late - error, float(1.0 - progress[-1 - size])),
        sure=bool((np.diff(values[-1 - size :]) < 0).all()) and late > _SIGNIFICANT * error,
    )


def _over(line: float, fall: float, way: float) -> float:
    """A fall over that of a line that falls by so much on the whole way; 0 where there is none."""
    there = line * way
    return fall / there if there > 0 else 0.0
