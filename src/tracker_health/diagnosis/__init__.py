"""One cause for what the rules found: which it is, how sure, what it explains, and one thing to do. Pure.

Every cause declares the signs by which it is known, each with a weight. The cause whose signs have the highest sum
comes first. See ``_ranking`` for the whole of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracker_health.diagnosis._base import Cause, Sign
from tracker_health.diagnosis._facts import Facts
from tracker_health.diagnosis._ranking import CERTAIN, LEAD, LEAST, LIKELY, SMALL_LEAD, certainty, explained, rank
from tracker_health.diagnosis.data.all_labels_ignored import AllLabelsIgnored
from tracker_health.diagnosis.data.data_not_shuffled import DataNotShuffled
from tracker_health.diagnosis.data.evaluation_stuck import EvaluationStuck
from tracker_health.diagnosis.data.inputs_not_scaled import InputsNotScaled
from tracker_health.diagnosis.data.labels_do_not_match import LabelsDoNotMatch
from tracker_health.diagnosis.data.outliers_in_data import OutliersInData
from tracker_health.diagnosis.data.overfitting import Overfitting
from tracker_health.diagnosis.data.same_batch_repeated import SameBatchRepeated
from tracker_health.diagnosis.post_training.entropy_bonus_too_high import EntropyBonusTooHigh
from tracker_health.diagnosis.post_training.kl_coefficient_too_high import KlCoefficientTooHigh
from tracker_health.diagnosis.post_training.kl_coefficient_too_low import KlCoefficientTooLow
from tracker_health.diagnosis.post_training.length_limit_too_short import LengthLimitTooShort
from tracker_health.diagnosis.post_training.preferences_without_effect import PreferencesWithoutEffect
from tracker_health.diagnosis.post_training.reward_hacked import RewardHacked
from tracker_health.diagnosis.post_training.reward_without_signal import RewardWithoutSignal
from tracker_health.diagnosis.process.checkpoint_incomplete import CheckpointIncomplete
from tracker_health.diagnosis.process.communication_failed import CommunicationFailed
from tracker_health.diagnosis.process.data_loader_died import DataLoaderDied
from tracker_health.diagnosis.process.disk_full import DiskFull
from tracker_health.diagnosis.process.killed_reason_unknown import KilledReasonUnknown
from tracker_health.diagnosis.process.out_of_memory import OutOfMemory
from tracker_health.diagnosis.process.own_error import OwnError
from tracker_health.diagnosis.process.resume_incomplete import ResumeIncomplete
from tracker_health.diagnosis.process.stopped_too_early import StoppedTooEarly
from tracker_health.diagnosis.process.wrong_weights_saved import WrongWeightsSaved
from tracker_health.diagnosis.training.adapter_not_attached import AdapterNotAttached
from tracker_health.diagnosis.training.diverged_cause_unknown import DivergedCauseUnknown
from tracker_health.diagnosis.training.fp16_overflow import Fp16Overflow
from tracker_health.diagnosis.training.gradient_clipping_too_tight import GradientClippingTooTight
from tracker_health.diagnosis.training.gradients_not_cleared import GradientsNotCleared
from tracker_health.diagnosis.training.initialisation_wrong import InitialisationWrong
from tracker_health.diagnosis.training.learning_rate_too_high import LearningRateTooHigh
from tracker_health.diagnosis.training.learning_rate_too_low import LearningRateTooLow
from tracker_health.diagnosis.training.loss_implemented_wrong import LossImplementedWrong
from tracker_health.diagnosis.training.loss_term_idle import LossTermIdle
from tracker_health.diagnosis.training.no_gradient import NoGradient
from tracker_health.diagnosis.training.non_finite_loss import NonFiniteLoss
from tracker_health.diagnosis.training.optimizer_setting_wrong import OptimizerSettingWrong
from tracker_health.diagnosis.training.parameters_not_trained import ParametersNotTrained
from tracker_health.diagnosis.training.schedule_wrong import ScheduleWrong
from tracker_health.diagnosis.training.units_dead import UnitsDead
from tracker_health.diagnosis.training.weight_decay_too_strong import WeightDecayTooStrong
from tracker_health.evidence import Evidence
from tracker_health.report.result import ProbeResult
from tracker_health.text import printable
from tracker_health.words.diagnosis import Action, Alternative, Diagnosis, SignSeen

__all__ = [
    "CAUSES",
    "CERTAIN",
    "LEAD",
    "LEAST",
    "LIKELY",
    "SMALL_LEAD",
    "Cause",
    "Facts",
    "Sign",
    "cause_named",
    "diagnosis_of",
    "rank",
]

_MOST_OTHERS = 2
_CHARACTERS = 500

CAUSES: tuple[Cause, ...] = (
    LearningRateTooHigh(),
    LearningRateTooLow(),
    ScheduleWrong(),
    OptimizerSettingWrong(),
    WeightDecayTooStrong(),
    GradientClippingTooTight(),
    NonFiniteLoss(),
    Fp16Overflow(),
    AllLabelsIgnored(),
    LabelsDoNotMatch(),
    DataNotShuffled(),
    SameBatchRepeated(),
    InputsNotScaled(),
    OutliersInData(),
    ParametersNotTrained(),
    AdapterNotAttached(),
    GradientsNotCleared(),
    NoGradient(),
    UnitsDead(),
    InitialisationWrong(),
    Overfitting(),
    StoppedTooEarly(),
    EvaluationStuck(),
    CheckpointIncomplete(),
    WrongWeightsSaved(),
    ResumeIncomplete(),
    LossImplementedWrong(),
    LossTermIdle(),
    RewardWithoutSignal(),
    LengthLimitTooShort(),
    KlCoefficientTooLow(),
    KlCoefficientTooHigh(),
    EntropyBonusTooHigh(),
    RewardHacked(),
    PreferencesWithoutEffect(),
    DivergedCauseUnknown(),
    OutOfMemory(),
    DiskFull(),
    DataLoaderDied(),
    CommunicationFailed(),
    OwnError(),
    KilledReasonUnknown(),
)


def cause_named(name: str) -> Cause | None:
    """The cause of this name."""
    return next((cause for cause in CAUSES if cause.name == name), None)


def diagnosis_of(evidence: Evidence, results: Sequence[ProbeResult]) -> Diagnosis | None:
    """The cause of what the rules found; None where nothing with a vote was found, or no cause explains any of it."""
    facts = Facts(evidence, results)
    if not any(one.votes for one in facts.found.values()):
        return None
    ranked = rank(CAUSES, facts)
    if not ranked:
        return None
    first, *rest = ranked
    sure = certainty(ranked)
    if sure == "certain":  # what has less than half of its score is no rival
        rest = [one for one in rest if 2 * one.score >= first.score]
    sentence = printable(first.cause.sentence(facts).rstrip("."), _CHARACTERS)
    return Diagnosis(
        cause=first.cause.name,
        certainty=sure,
        sentence=f"{sentence[:1].upper()}{sentence[1:]}.",
        action=_shown(first.cause.action(facts)),
        explains=explained(first.cause, facts),
        others=tuple(
            Alternative(cause=one.cause.name, test=one.cause.test, score=one.score) for one in rest[:_MOST_OTHERS]
        ),
        signs=tuple(
            SignSeen(name=one.name, looks_at=one.looks_at, weight=first.cause.weight(one)) for one in first.signs
        ),
        score=first.score,
    )


def _shown(action: Action) -> Action:
    """The action with nothing in it that a terminal would obey: it may hold names from the run."""
    return replace(action, text=printable(action.text, _CHARACTERS))
