"""GEN002."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, FloatArray, Need, Series
from tracker_health.evidence.numerics import (
    block_medians,
    depth_of_minimum,
    evaluation_noise,
    local_noise,
    mann_kendall,
    median,
    start_level,
)
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.probes._accuracy import MOSTLY_RIGHT, right_at_end
from tracker_health.probes._comparable import begins_late, is_of_margins, lacks_beginning, settled
from tracker_health.probes._standing import OF_ANOTHER_MODEL, is_of_another_model
from tracker_health.result import Finding
from tracker_health.text import number, printable
from tracker_health.verdict import Verdict

_ANOTHER_UNIT = 10.0
_NONE = 0.005
_ALIKE = 1.1
_BLOCKS = 60
_FALLING = -1.0
_SEVERAL, _SURE = 10, -3.0
_FEW, _LIKELY = 5, -1.8  # five that fall all along score -2.2
_FAR, _BEYOND_NOISE, _KEPT = 0.05, 6.0, 0.2
_USUAL = 0.75  # of the furthest
_MIRRORED = 0.5


@dataclass(frozen=True, kw_only=True)
class ValidationFlat(Probe):
    """The training loss falls, the validation loss never does.

    What it finds:
        A validation loss that never came below where the untrained model stood, beside a training loss that fell
        clearly.

    Why it matters:
        What is learnt holds for the training samples alone: their labels are shuffled, the loader yields the same batch
        again and again, or validation is on other data or prepared otherwise.

    How it decides:
        The untrained model's level is the first training loss. Warn when the best validation loss is less than
        `min_gain` below it while the training loss fell by at least `train_descent` of it, or by `small_descent` for
        sure (Mann-Kendall) where the validation loss gained less than half a percent; or by half of that, where the
        validation loss began no further from it than `train_descent`, and rose for sure meanwhile, by half of
        `small_descent` and half as far as the training loss fell. Where the validation loss does not fall
        (Mann-Kendall), its best is its lowest value and three quarters of what the lowest of that many noisy values may
        lie below their level, but no more than the median of its second half. Warn, too, where the training loss ends
        below 0 and no validation loss came near anything it ever was, to within ten times its range.

    Known limits:
        Needs a training history that begins with the training, and both losses in the same unit. A validation loss
        that is another one than the training's, which comes below 0, looks as if it was prepared otherwise. Where the
        validation loss begins higher than the training loss and falls for sure (Mann-Kendall below minus three, of
        five to nine evaluations below -1.8, by `min_gain`; or of ten and more by 5 % and six times the noise, most of
        which it keeps), it passes: a training that goes on from another one begins with a gap. Where it begins at
        more than twice of it and falls by a fifth, the rule is skipped. So it is where the first point comes after
        ten steps or more, and either nine in ten validation answers are right, or the training loss halves up to the
        second point and the validation loss begins no higher: what was learnt before is not seen. And so it is where
        the training loss is exactly 0 at three points, without rounding, and above a hundredth of its start at three
        after the first of them: losses of margins (triplets, hinge) hang on how many samples are compared.

    What to do:
        Check that labels belong to their inputs, that the loader shuffles, and that both sets are prepared alike.

    References:
        Zhang et al. (2017), networks fit random labels.
    """

    code = "GEN002"
    name = "validation-flat"
    symptom = Symptom.NOT_LEARNING
    headline = ("gain_share",)

    min_gain: Annotated[
        float, Threshold("gain of the validation loss that is one, as a share of the first training loss", "fraction",
                         "design", ge=0, le=1)
    ] = 0.02  # fmt: skip
    train_descent: Annotated[
        float, Threshold("fall of the training loss that is a clear one", "fraction", "calibration", gt=0, le=1)
    ] = 0.2
    small_descent: Annotated[
        float, Threshold("the same where the validation loss gained nothing at all", "fraction", "calibration", gt=0,
                         le=1)
    ] = 0.1  # fmt: skip
    min_points: Annotated[int, Threshold("finite evaluations needed", "evaluations", "design", ge=2)] = 3

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role="val_loss", min_points=self.min_points),
            Need(role="train_loss", min_points=6),
            Need(role="val_accuracy", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        rise = settled(evidence)
        if rise is not None:
            return Finding(verdict=Verdict.SKIP, message=f"the objective changes: {printable(rise[0], 60)} rises")
        if is_of_another_model(evidence):
            return Finding(verdict=Verdict.SKIP, message=OF_ANOTHER_MODEL)
        held_out, loss = evidence.first("val_loss").finite().values, evidence.first("train_loss").finite()
        if len(held_out) < self.min_points or len(loss) < 6:
            return Finding(verdict=Verdict.SKIP, message="too few finite points of the two losses")
        if is_of_margins(loss.values):
            said = (
                "the training loss is exactly 0 again and again, as one of margins: it hangs on how batches are drawn"
            )
            return Finding(verdict=Verdict.SKIP, message=said)
        return _of_another_sign(loss.values, held_out) or self._compared(loss, held_out, evidence)

    def _mirrors(self, held_out: FloatArray, start: float, fall: float) -> bool:
        """Whether the validation loss rose from its beginning on, by about as much as the training loss fell."""
        first = float(held_out[0])
        rise = (median(held_out[-max(2, len(held_out) // 10) :]) - first) / start
        far = rise >= _MIRRORED * max(self.small_descent, fall) and abs(first - start) <= self.train_descent * start
        return far and fall >= _MIRRORED * self.small_descent and mann_kendall(_blocks(held_out)) > -_SURE

    def _compared(self, loss: Series, held_out: FloatArray, evidence: Evidence) -> Finding:
        start = start_level(loss.values, max(1, min(3, len(loss) // 10)), local_noise(loss.values))
        end, best = median(loss.values[-max(2, len(loss) // 10) :]), float(held_out.min())
        falls = held_out[0] > 2.0 * start and best < 0.8 * held_out[0]
        if start <= 0 or falls or best > _ANOTHER_UNIT * start:
            return Finding(verdict=Verdict.SKIP, message="the two losses are not in the same unit")
        if loss.steps[0] > max(1.0, 0.2 * loss.steps[-1]):
            return Finding(verdict=Verdict.SKIP, message="the history does not begin with the training")
        right = lacks_beginning(loss) and right_at_end(evidence) >= MOSTLY_RIGHT
        if right or (begins_late(loss) and held_out[0] <= _ALIKE * start):
            said = "the log begins when much was learnt: it does not tell where the untrained model stood"
            return Finding(verdict=Verdict.SKIP, message=said)
        gain, fall = (start - _best_level(held_out)) / start, (start - end) / start
        measured = {"start": start, "train_end": end, "val_best": best, "gain_share": gain, "train_share": fall}
        clear = fall >= self.train_descent or (
            gain < _NONE
            and mann_kendall(_blocks(loss.values)) < _SURE
            and (fall >= self.small_descent or self._mirrors(held_out, start, fall))
        )
        if gain >= self.min_gain or not clear:
            return Finding(
                verdict=Verdict.PASS,
                message=f"the best validation loss is {number(best)}, training began at {number(start)}",
                measured=measured,
            )
        if _falls_from_its_own_start(held_out, start, self.min_gain):
            said = f"the validation loss began above the training loss, at {number(float(held_out[0]))}, and came down"
            return Finding(verdict=Verdict.PASS, message=said, measured=measured, confidence="low")
        return Finding(
            verdict=Verdict.WARN,
            message=f"the training loss fell from {number(start)} to {number(end)}, but the validation loss never came "
            f"below {number(best)}",
            remedy="check that labels belong to their inputs, that the loader shuffles, and that validation data is "
            "prepared like training data",
            measured=measured,
        )


def _of_another_sign(loss: FloatArray, held_out: FloatArray) -> Finding | None:
    """That the training loss came below 0 and the validation loss stayed far above all that it ever was, which no sum
    in the place of a mean does; None where it is not so.
    """
    low, high, best = float(loss.min()), float(loss.max()), float(held_out.min())
    end = median(loss[-max(2, len(loss) // 10) :])
    if end >= 0 or best <= max(high, 0.0) + _ANOTHER_UNIT * (high - low):
        return None
    return Finding(
        verdict=Verdict.WARN,
        message=f"the training loss ends below 0, at {number(end)}, but the validation loss never came below "
        f"{number(best)}",
        remedy="check that validation data is prepared like training data, and that both losses are the same",
        measured={"train_end": end, "val_best": best},
    )


def _falls_from_its_own_start(held_out: FloatArray, start: float, least: float) -> bool:
    """Whether the validation loss began above the training loss, and came down by more than chance to its end."""
    size = max(1, len(held_out) // 4)
    before, after = float(held_out[0]), median(held_out[-size:])
    blocks = _blocks(held_out)
    sure = len(blocks) >= _FEW and mann_kendall(blocks) < (_SURE if len(blocks) >= _SEVERAL else _LIKELY)
    fell, kept = before - after, after - float(held_out.min()) < _KEPT * (before - after)
    far = len(blocks) >= _SEVERAL and kept and fell > max(_FAR * before, _BEYOND_NOISE * evaluation_noise(held_out))
    return before > start and fell > least * before and (sure or far)


def _blocks(values: FloatArray) -> FloatArray:
    """A few dozen levels of a history."""
    return block_medians(values, max(1, len(values) // _BLOCKS))


def _best_level(held_out: FloatArray) -> float:
    """Of values that only scatter, the lowest is below their level, and the more of them the further."""
    low = float(held_out.min())
    if mann_kendall(_blocks(held_out)) < _FALLING:
        return low
    level = low + _USUAL * depth_of_minimum(len(held_out)) * evaluation_noise(held_out)
    return min(level, median(held_out[len(held_out) // 2 :]))
