"""What a metric was taken for, and why."""

from __future__ import annotations

from dataclasses import dataclass

TRAIN_LOSS, VAL_LOSS = "train_loss", "val_loss"

OBJECTIVE_LOSS = "objective_loss"
"""Role of a loss that need not descend: only what is always faulty (NaN, explosion) is judged on it."""

LOSS_PART = "loss_part"
"""Role of a loss next to the training loss: one of its terms, or of another model."""

VAL_LOSS_TERM = "val_loss_term"
"""The same of a held-out loss: it never becomes a part of the training loss."""

REWARDS = ("train_reward", "val_reward")
"""Roles of what reinforcement learning is to raise."""

LOSSES = (TRAIN_LOSS, VAL_LOSS, OBJECTIVE_LOSS)
TERMS = (LOSS_PART, VAL_LOSS_TERM)
ANY_LOSS = frozenset((*LOSSES, *TERMS))
"""A run that has one of these among its metrics needs no logs from elsewhere."""

SHOW_TRAINING = frozenset(
    (
        *ANY_LOSS,
        *REWARDS,
        "train_accuracy",
        "val_accuracy",
        "train_auc",
        "val_auc",
        "higher_better_val",
        "lower_better_val",
    )
)
"""Roles of what a run's history is read for: one that has none of them shows nothing of whether training worked."""

BESIDE_ADVERSARIES = "a distance to the data, next to adversaries"
"""Why a loss is one that has to fall, though the names show an adversarial pair."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a metric's name is understood as, next to the run's other names.

    ``role``: what rules ask for it by, None where none does. ``samples``: ``training``, ``held-out``, or empty where
    nothing says it. ``quantity``: ``loss``, ``learning_rate``, ..., ``other`` for what no rule asks for, empty for what
    is not understood. ``part``: ``whole`` or ``term`` of a loss. ``of``: the words that tell a term, a data set or a
    module from others. ``one_of``: the process or fold that logged it. ``average``: ``mean``, ``running mean`` or empty.
    ``guessed``: that nothing else fits is all that speaks for it. ``why``: what it was known by.
    """

    name: str
    role: str | None = None
    samples: str = ""
    quantity: str = ""
    part: str = ""
    of: tuple[str, ...] = ()
    one_of: str = ""
    average: str = ""
    guessed: bool = False
    why: str = ""

    @property
    def described(self) -> str:
        """All of it in a few words: ``held-out loss, term kl, guessed``."""
        if not self.quantity:
            return "not understood"
        words = [word for word in (self.samples, self.average, self.quantity.replace("_", " ")) if word]
        more = [f"term {' '.join(self.of)}" if self.part == "term" else " ".join(self.of)] if self.of else []
        more += [self.one_of] * bool(self.one_of) + ["guessed"] * self.guessed
        return ", ".join([" ".join(words), *more])
