"""The rules there are: the built-in ones, listed one by one, and those of installed plugins."""

from __future__ import annotations

from functools import cache

from tracker_health.plugins import Plugins, load_plugins
from tracker_health.probe import Probe
from tracker_health.probes.accuracy_at_chance import AccuracyAtChance
from tracker_health.probes.accuracy_gap import AccuracyGap
from tracker_health.probes.answer_length import AnswerLength
from tracker_health.probes.betas_swapped import BetasSwapped
from tracker_health.probes.chance_level import ChanceLevel
from tracker_health.probes.crashed import Crashed
from tracker_health.probes.dead_units import DeadUnits
from tracker_health.probes.discriminator_won import DiscriminatorWon
from tracker_health.probes.diverged import Diverged
from tracker_health.probes.empty_adapter import EmptyAdapter
from tracker_health.probes.epoch_sawtooth import EpochSawtooth
from tracker_health.probes.epsilon_dominates import EpsilonDominates
from tracker_health.probes.evaluation_stands_still import EvaluationStandsStill
from tracker_health.probes.exploding_gradient import ExplodingGradient
from tracker_health.probes.gap_dead_activation import GapDeadActivation
from tracker_health.probes.gap_exploding import GapExploding
from tracker_health.probes.gap_nonfinite import GapNonfinite
from tracker_health.probes.gap_outliers import GapOutliers
from tracker_health.probes.gap_saturated import GapSaturated
from tracker_health.probes.gap_vanishing import GapVanishing
from tracker_health.probes.gap_zero_gradient import GapZeroGradient
from tracker_health.probes.gradient_ghost import GradientGhost
from tracker_health.probes.gradient_spike import GradientSpike
from tracker_health.probes.idle_accelerator import IdleAccelerator
from tracker_health.probes.idle_barrier import IdleBarrier
from tracker_health.probes.idle_statistics import IdleStatistics
from tracker_health.probes.initial_loss import InitialLoss
from tracker_health.probes.initial_weights import InitialWeights
from tracker_health.probes.killed import Killed
from tracker_health.probes.latent_collapse import LatentCollapse
from tracker_health.probes.layer_outlier import LayerOutlier
from tracker_health.probes.loss_identity import LossIdentity
from tracker_health.probes.loss_scale import LossScale
from tracker_health.probes.loss_spike import LossSpike
from tracker_health.probes.masked_nan import MaskedNan
from tracker_health.probes.memory_growth import MemoryGrowth
from tracker_health.probes.missing_from_optimizer import MissingFromOptimizer
from tracker_health.probes.no_gradient import NoGradient
from tracker_health.probes.no_progress import NoProgress
from tracker_health.probes.no_reward_signal import NoRewardSignal
from tracker_health.probes.nonfinite_gradient import NonfiniteGradient
from tracker_health.probes.nonfinite_loss import NonfiniteLoss
from tracker_health.probes.nonfinite_moments import NonfiniteMoments
from tracker_health.probes.nonfinite_weights import NonfiniteWeights
from tracker_health.probes.odd_one_out import OddOneOut
from tracker_health.probes.off_target import OffTarget
from tracker_health.probes.overfit import Overfit
from tracker_health.probes.plateau import Plateau
from tracker_health.probes.policy_clipping import PolicyClipping
from tracker_health.probes.policy_divergence import PolicyDivergence
from tracker_health.probes.policy_entropy import PolicyEntropy
from tracker_health.probes.preferences import Preferences
from tracker_health.probes.repeated_batch import RepeatedBatch
from tracker_health.probes.reward_hacked import RewardHacked
from tracker_health.probes.reward_lost import RewardLost
from tracker_health.probes.reward_stands import RewardStands
from tracker_health.probes.schedule import Schedule
from tracker_health.probes.settings_out_of_range import SettingsOutOfRange
from tracker_health.probes.slowdown import Slowdown
from tracker_health.probes.stale_gradient import StaleGradient
from tracker_health.probes.step_order import StepOrder
from tracker_health.probes.still_descending import StillDescending
from tracker_health.probes.term_not_learnt import TermNotLearnt
from tracker_health.probes.too_few_steps import TooFewSteps
from tracker_health.probes.too_good import TooGood
from tracker_health.probes.too_little_data import TooLittleData
from tracker_health.probes.training_drift import TrainingDrift
from tracker_health.probes.truncated import Truncated
from tracker_health.probes.unchanged_weights import UnchangedWeights
from tracker_health.probes.underconfident import Underconfident
from tracker_health.probes.unscaled_inputs import UnscaledInputs
from tracker_health.probes.unstable_loss import UnstableLoss
from tracker_health.probes.update_too_large import UpdateTooLarge
from tracker_health.probes.update_too_small import UpdateTooSmall
from tracker_health.probes.validation_flat import ValidationFlat
from tracker_health.probes.value_function import ValueFunction
from tracker_health.probes.vanishing_gradient import VanishingGradient
from tracker_health.probes.weight_scale import WeightScale

RULES_VERSION = 11
"""Raised whenever a rule may judge the same evidence differently. Annotated runs that go on are then judged again;
those that have ended keep the verdict of the version that judged them, until ``--rejudge`` asks for another.
"""

BUILT_IN: tuple[type[Probe], ...] = (
    NonfiniteLoss,
    MaskedNan,
    LossSpike,
    Diverged,
    NoProgress,
    ChanceLevel,
    StillDescending,
    Underconfident,
    UnstableLoss,
    InitialLoss,
    EpochSawtooth,
    RepeatedBatch,
    TooGood,
    DiscriminatorWon,
    TermNotLearnt,
    TrainingDrift,
    EvaluationStandsStill,
    Overfit,
    ValidationFlat,
    AccuracyAtChance,
    AccuracyGap,
    RewardLost,
    NoRewardSignal,
    RewardStands,
    PolicyEntropy,
    PolicyDivergence,
    PolicyClipping,
    AnswerLength,
    RewardHacked,
    Preferences,
    ValueFunction,
    NonfiniteGradient,
    GradientSpike,
    VanishingGradient,
    ExplodingGradient,
    TooFewSteps,
    NonfiniteMoments,
    NoGradient,
    MissingFromOptimizer,
    StaleGradient,
    UpdateTooSmall,
    UpdateTooLarge,
    LayerOutlier,
    UnscaledInputs,
    EpsilonDominates,
    BetasSwapped,
    SettingsOutOfRange,
    NonfiniteWeights,
    UnchangedWeights,
    DeadUnits,
    WeightScale,
    InitialWeights,
    IdleStatistics,
    EmptyAdapter,
    GradientGhost,
    GapNonfinite,
    GapDeadActivation,
    GapSaturated,
    GapVanishing,
    GapExploding,
    GapZeroGradient,
    GapOutliers,
    Schedule,
    Plateau,
    LossScale,
    Truncated,
    StepOrder,
    Killed,
    Crashed,
    IdleAccelerator,
    MemoryGrowth,
    Slowdown,
    IdleBarrier,
    LossIdentity,
    TooLittleData,
    OffTarget,
    LatentCollapse,
    OddOneOut,
)


def probe_classes() -> tuple[type[Probe], ...]:
    """Every rule that works, in the order in which reports list them."""
    return (*BUILT_IN, *plugins().rules)


@cache
def plugins() -> Plugins:
    """The installed plugins, loaded when they are first asked for, once a process."""
    return load_plugins(BUILT_IN)
