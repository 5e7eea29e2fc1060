"""What guessing has. Every rule that compares with it asks here, so that no two of them differ about it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from tracker_health.evidence import FEWEST_POINTS, LIKELY, Curve, Estimate, Evidence
from tracker_health.facts.accuracy import Shares, measures, wrong
from tracker_health.facts.classes import classes, classes_of_head, counts, vocabulary
from tracker_health.text import number

UNTRAINED = 0.3
"""How far the loss of an untrained model may be from that of guessing, as a share of it."""

FEWEST_SEEN, MOST_SEEN = 3, 20
"""How many answers a first loss can show. Larger numbers are too close to their neighbours."""

LARGEST = 100.0
"""A loss beyond which nothing is a cross-entropy of single answers."""

_NEAR, _COINCIDENCE, _BEGAN = 0.01, 0.06, 0.1
"""For a number of answers that only the level of the loss shows. The first two limit its distance from the loss of
guessing, as a share of that and of the way to one answer more. The third limits how far above it the loss may begin.
Chosen on the benchmark's tuning tasks.
"""

_FAR, _EXPLODED = 3.0, 30.0
_BELOW, _LEARNT, _AS_OFTEN, _AGAIN = 0.01, 0.1, 2.0, 0.1
"""For a loss that came down to chance level: so many times that no untrained model has, and only an explosion
goes so far. So far below it, as a share, something was learnt, and so does an accuracy that gained so much of its way
to 1. One answer for all is right at most so often, in times of guessing. An end so near to the first value, as a share
of it, is the same level again.
"""


@dataclass(frozen=True)
class Chance:
    """Guessing among so many answers. ``told``: the run's params or the model's last layer say how many."""

    answers: float
    told: bool = True

    @property
    def loss(self) -> float:
        """The cross-entropy of guessing, in nats."""
        return log(self.answers)

    @property
    def share(self) -> float:
        """How many answers are right by chance."""
        return 1.0 / self.answers

    @property
    def next(self) -> float:
        """How far the loss of guessing among one answer more is above this one."""
        return log(1.0 + self.share)

    def begins(self, start: Estimate) -> bool:
        """Whether a loss that starts there may be a cross-entropy among so many, before anything was learnt."""
        return abs(start.value - self.loss) <= UNTRAINED * self.loss

    def holds(self, curve: Curve, below: float, above: float) -> bool:
        """Whether a loss stays and ends at chance level: no further below and above it, in nats."""
        levels = curve.between(0.5, 1.0), curve.end
        return all(self.loss - below <= one.value <= self.loss + above for one in levels)

    def is_fallen_to(self, curve: Curve) -> bool:
        """Whether a loss came from where no untrained model is, and ends about chance level, no lower."""
        least, most = (1.0 - _BELOW) * self.loss, (1.0 + UNTRAINED) * self.loss
        ends = curve.end.value <= most and not curve.end.surely_below(least, LIKELY)
        return self._began_far(curve, _FAR) and ends and curve.between(0.75, 1.0).value >= least

    def is_fallen_to_from_an_explosion(self, curve: Curve) -> bool:
        """The same from so far above that only an explosion goes there, without going on down at the end."""
        late = curve.between(0.75, 0.875) - curve.between(0.875, 1.0)
        return self.is_fallen_to(curve) and self._began_far(curve, _EXPLODED) and not late.surely_above(0.0, LIKELY)

    def _began_far(self, curve: Curve, times: float) -> bool:
        return max(curve.start.value, curve.first.value) >= times * self.loss

    @property
    def said(self) -> str:
        """In words, for people."""
        return f"guessing among {self.answers:.0f} answers"

    @property
    def level(self) -> str:
        """The loss, with the digits that people know such numbers by: ``guessing among 10 answers has 2.303``."""
        return f"{self.said} has {number(self.loss, 4)}"


def chance_of(evidence: Evidence) -> Chance | None:
    """The chance that the params tell, or else the model's last layer; None where neither does.

    A classifier's params may hold the vocabulary of the model that it was made of: then the one counts whose logarithm
    is nearer to the first loss.
    """
    known, curve = counts(evidence), evidence.curve("train_loss")
    head = classes_of_head(evidence) if not known else None
    told = [Chance(count) for count in known or (head,) if count is not None]
    return min(told, key=lambda one: abs(one.loss - curve.start.value) if curve is not None else 0.0, default=None)


def chance_of_loss(evidence: Evidence) -> Chance | None:
    """The same, for the training loss: None where that begins below the level of an untrained model, and so is no
    cross-entropy among so many.
    """
    curve, told = evidence.curve("train_loss"), chance_of(evidence)
    below = curve is None or told is None or curve.start.value < (1.0 - UNTRAINED) * told.loss
    return None if below else told


def chance_of_classes(evidence: Evidence) -> Chance | None:
    """The same of a classifier alone: of a vocabulary far more answers are right by chance than one in so many."""
    return None if vocabulary(evidence) is not None and classes(evidence) is None else chance_of(evidence)


def chance_of_start(evidence: Evidence) -> Chance | None:
    """The chance among classes that the first training loss agrees with; where nothing tells them, that which the first
    loss is itself.
    """
    curve, told = evidence.curve("train_loss"), chance_of_classes(evidence)
    if curve is None or vocabulary(evidence) is not None:
        return None
    if told is not None:
        return told if told.begins(curve.start) else None
    seen = log(FEWEST_SEEN) <= curve.start.value <= log(MOST_SEEN)
    return Chance(exp(curve.start.value), told=False) if seen else None


def chance_of_level(evidence: Evidence) -> Chance | None:
    """The chance at whose level the training loss begins and stays, and the validation loss ends no lower, though
    nothing shows it; None where they do not.
    """
    curve, held_out = evidence.curve("train_loss"), evidence.curve("val_loss")
    level = curve.between(0.5, 1.0).value if curve is not None else LARGEST
    if curve is None or not level < log(MOST_SEEN + 1):
        return None
    chance = Chance(max(2, min(round(exp(level)), MOST_SEEN)), told=False)
    near = min(_NEAR * chance.loss, _COINCIDENCE * chance.next)
    began = chance.loss - near <= curve.top.value <= (1.0 + _BEGAN) * chance.loss
    elsewhere = held_out is not None and held_out.end.surely_below(chance.loss - near)
    return chance if began and chance.holds(curve, near, near) and not elsewhere else None


def chance_of_accuracy(shares: Shares) -> Chance | None:
    """The chance, of up to twenty answers, whose share of right ones an accuracy has in the second half."""
    curve = Curve.of(shares.judged)
    right = curve.between(0.5, 1.0).value if curve is not None else 0.0
    answers = round(1.0 / right) if right * MOST_SEEN > 0.5 else 0
    return Chance(answers, told=False) if 2 <= answers <= MOST_SEEN else None


def chance_fallen_to(evidence: Evidence) -> Chance | None:
    """The chance that a training loss came down to from far above, and no further: nothing was learnt but to undo what
    the first steps had done.

    The accuracy must not have learnt anything, either; where there is none, the loss has to come from as far as only an
    explosion goes. Where nothing tells the number of answers, the loss and the accuracy have to agree about it.
    """
    curve, told = evidence.curve("train_loss"), chance_of_loss(evidence)
    if curve is None or (vocabulary(evidence) is not None and classes(evidence) is None):
        return None
    shares = next((one for one in measures(evidence, FEWEST_POINTS) if one.name == "accuracy"), None)
    if shares is None:
        return told if told is not None and told.is_fallen_to_from_an_explosion(curve) else None
    seen = (_chance_of_end(curve), chance_of_accuracy(shares)) if told is None else (told,)
    fits = (one for one in seen if one is not None and one.is_fallen_to(curve) and _guesses(shares, one))
    return next(fits, None)


def came_back_to_its_start(curve: Curve) -> bool:
    """Whether a loss exploded after its first value and came back to that, no lower, where it stays.

    A first value alone is no level. The end of the run confirms it here: that a part of a mean, which is far too low as
    well, agrees with a level at the end would be chance.
    """
    first, late = curve.first.value, curve.between(0.75, 0.875) - curve.between(0.875, 1.0)
    near = all(abs(one.value - first) <= _AGAIN * first for one in (curve.end, curve.between(0.75, 1.0)))
    exploded = float(curve.series.values[: len(curve.series) // 2].max(initial=0.0)) >= _EXPLODED * first > 0.0
    return exploded and near and not late.surely_above(0.0, LIKELY)


def _chance_of_end(curve: Curve) -> Chance | None:
    """The chance whose level a loss ends at, among a number of answers that it can show."""
    level = curve.end.value
    return (
        Chance(max(2.0, exp(level) // 1.0), told=False) if (1.0 - _BELOW) * log(2) <= level <= log(MOST_SEEN) else None
    )


def _guesses(shares: Shares, chance: Chance) -> bool:
    """Whether an accuracy did not rise, and one answer for all may be right as often."""
    mistakes = wrong(shares.train if shares.train is not None else shares.held_out)
    if mistakes is None:
        return False
    late = mistakes.between(0.5, 1.0)
    gain, least = mistakes.start - late, _LEARNT * (1.0 - chance.share)
    rose = gain.value > least and gain.surely_above(0.0, LIKELY)
    return not rose and 1.0 - late.value <= min(_AS_OFTEN * chance.share, 0.5 * (1.0 + chance.share))
