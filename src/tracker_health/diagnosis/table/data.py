"""Causes in the data, and in how it is evaluated."""

from __future__ import annotations

from tracker_health.diagnosis import _signs as signs
from tracker_health.diagnosis._actions import around, numbers_of, with_clip
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts
from tracker_health.facts.classes import vocabulary
from tracker_health.words.diagnosis import Action


def _labels_are_ignored(facts: Facts) -> str:
    if facts.loss_is_zero:
        points = len(facts.evidence.first("train_loss"))
        return f"no label counts: all {points} values of the loss are exactly 0, as when every label is masked"
    return "no label of the evaluation counts: its loss is not finite, while that of the training is"


def _print_the_labels(facts: Facts) -> Action:
    where = "batch" if facts.loss_is_zero else "batch of the evaluation"
    of_text = (
        "; check the response marker, the chat template and whether prompts fill the whole length"
        if vocabulary(facts.evidence) is not None or facts.fine_tunes
        else "; check what the loss ignores, and that the mask is not turned round"
    )
    return Action(text=f"print the labels of one {where}, and count those that the loss ignores{of_text}")


ALL_LABELS_IGNORED = Cause(
    name="all-labels-ignored",
    title="no label counts",
    about="""No label counts: all of them are masked.
    The loss leaves out labels of -100. Where a chat template or a response marker does not match the text, or prompts
    fill the whole length, that is all of them: the loss is exactly 0 (or NaN, as a mean over nothing).""",
    explains=codes("GRD003 OPT003 OPT019 LOS001 LOS002 LOS005 LOS018 GEN003 GEN007 GAP006 WGT002 OPT004 LOS013"),
    requires=(signs.LOSS_ZERO,),
    speaks=(signs.GRADIENT_ZERO_BESIDE_THE_LOSS, signs.NAN_IN_EVALUATION, signs.ZERO_LOSS_WITHOUT_GRADIENT),
    judged={
        signs.GRADIENT_ZERO_BESIDE_THE_LOSS: 2.0,
        signs.NAN_IN_EVALUATION: 2.0,
        signs.ZERO_LOSS_WITHOUT_GRADIENT: 1.0,
    },
    says=_labels_are_ignored,
    do=_print_the_labels,
    test="count the labels of one batch that are not -100",
    from_the_start=True,
)


def _do_not_belong(facts: Facts) -> str:
    if facts.first_layer_is_blind:
        layer = facts.first_layer
        return f"the inputs say nothing: {layer} never had a gradient while its bias had, so all inputs were 0"
    return f"inputs and labels do not belong together{numbers_of(facts, 'GEN002', 'GEN004', 'GEN003', 'LOS006')}"


def _look_at_samples(facts: Facts) -> Action:
    if facts.first_layer_is_blind:
        return Action(text="print one batch of inputs as the model gets it: it is all zeros")
    return Action(text="look at ten samples with their labels, as the model gets them: are they pairs?")


LABELS_DO_NOT_MATCH = Cause(
    name="labels-do-not-match",
    title="inputs and labels do not belong together",
    about="""Inputs and labels do not belong together.
    Labels of other samples, or inputs that say nothing about them: the model learns no more than how frequent each
    answer is, or memorises what does not carry over to other samples.""",
    explains=codes(
        "LOS005 LOS018 LOS006 LOS008 GEN001 GEN002 GEN003 GEN007 GEN004 OPT003 OPT019 WGT003 OPT010 GEN008 GEN009 "
        "RWD009"
    ),
    requires=(
        signs.INPUTS_ZERO,
        signs.NOT_LEARNT_THOUGH_IT_COULD,
        signs.ONLY_VALIDATION_GUESSES,
        signs.VALIDATION_FLAT,
        signs.BELOW_CHANCE,
        signs.PAIRS_SWAPPED,
        signs.PAIRS_BY_CHANCE,
    ),
    speaks=(
        signs.GAP_OF_ACCURACY,
        signs.EPSILON_RULES,
        signs.WEIGHTS_UNUSUAL,
        signs.HARDLY_MOVED,
        signs.NO_NOISE,
        signs.OTHERS_WITHOUT_GRADIENT,
    ),
    never=(signs.RATE_ZERO, signs.GRADIENT_VANISHES, signs.GRADIENT_ZERO, signs.ONE_NUMBER),
    says=_do_not_belong,
    do=_look_at_samples,
    test="look at ten samples with their labels, as the model gets them",
    from_the_start=True,
)

DATA_NOT_SHUFFLED = Cause(
    name="data-not-shuffled",
    title="the training data is not shuffled",
    about="""The samples come sorted, by label say, in every epoch.
    The model follows what it saw last, so the loss goes through one slow pattern in every epoch, and jumps where the
    label changes.""",
    explains=codes("LOS010 LOS004 LOS005 LOS018 LOS006 LOS007 LOS008 GEN001 GEN003 GEN007 GEN004"),
    requires=(signs.SAWTOOTH,),
    do=Action(text="shuffle the training data in every epoch", setting="shuffle", old="False", new="True"),
    test="print the labels of the first batches of two epochs",
    from_the_start=True,
)

SAME_BATCH_REPEATED = Cause(
    name="same-batch-repeated",
    title="every step sees the same batch",
    about="""Every step sees the same batch.
    The loss then has none of the noise that batches make, and falls to nothing while other samples get worse.""",
    explains=codes("LOS013 GEN001 GEN002 GEN003 GEN007 GEN004 OPT005"),
    requires=(signs.NO_NOISE,),
    speaks=(signs.GRADIENTS_AGREE,),
    do="print the samples of two batches in a row; look for next(iter(loader)) inside the loop",
    test="print the samples of two batches in a row",
    from_the_start=True,
)

INPUTS_NOT_SCALED = Cause(
    name="inputs-not-scaled",
    title="the inputs are not scaled",
    about="""The inputs were never brought to a usual scale.
    Features in units of their own, pixels from 0 to 255: the first outputs are hundreds of times too large, the loss
    begins far above guessing, and one learning rate does not suit all features.""",
    explains=codes("OPT009 LOS009 LOS003 LOS006 LOS008 GEN003 GEN007 WGT004 OPT004 GRD002"),
    requires=(signs.INPUTS_LARGE, signs.INPUTS_HUGE),
    speaks=(signs.BEGAN_HIGH, signs.BEGAN_VERY_HIGH, signs.WEIGHTS_GREW, signs.STEP_LARGE),
    says=lambda facts: f"the inputs are not scaled{numbers_of(facts, 'OPT009', 'LOS009')}",
    do="scale every input feature to mean 0 and deviation 1, by the training data",
    test="print mean and deviation of every input feature",
    from_the_start=True,
)

OUTLIERS_IN_DATA = Cause(
    name="outliers-in-data",
    title="a few batches hold values far out of proportion",
    about="""A few batches hold values far out of proportion.
    At a usual learning rate, the loss jumps at these batches and recovers. The first layer's second moments show inputs
    many times larger than a scaled feature.""",
    explains=codes("LOS003 LOS008 GRD002 OPT009"),
    requires=(signs.ONLY_SPIKES,),
    speaks=(signs.INPUTS_LARGE_AFTER_A_USUAL_START, signs.GRADIENT_JUMPED, signs.SPIKED, signs.STEP_LARGE),
    judged={signs.ONLY_SPIKES: 3.0, signs.GRADIENT_JUMPED: 1.0},
    do=lambda facts: with_clip(facts, f"look for broken samples in the batches{around(facts)}"),
    test="print the largest input value of each batch around the jump",
)


def _keep_the_best(facts: Facts) -> Action:
    best = facts.measured("GEN001", "best_step")
    best = facts.measured("GEN004", "best_step") if best is None else best
    if best is None:
        return Action(text="stop at the best validation loss; add data, augmentation or regularisation")
    return Action(
        text=f"keep the checkpoint at {facts.at(best)}, where validation was best; then add data or regularise"
    )


OVERFITTING = Cause(
    name="overfitting",
    title="the model memorises its training samples",
    about="""The model memorises its training samples.
    The training loss falls on while that of other samples rises: too few samples, too many epochs, too little
    regularisation.""",
    explains=codes("GEN001 GEN002 GEN004 LOS012 GEN009"),
    requires=(signs.OVERFITS, signs.GAP_OF_ACCURACY),
    speaks=(signs.VALIDATION_FLAT, signs.VALIDATION_GUESSES, signs.LOSS_FLAT, signs.NO_NOISE),
    judged={signs.OVERFITS: 6.0},
    do=_keep_the_best,
    test="train on ten times the samples, or on augmented ones: the gap shrinks if it is overfitting",
)


def _does_not_follow(facts: Facts) -> str:
    if facts.only_validation_is_nonfinite and facts.nonfinite_for_a_while:
        return "the evaluation is at fault, not the training, whose loss is finite"
    if facts.only_validation_is_nonfinite:
        return "the evaluation is at fault, not the training, whose loss is finite throughout"
    return "the evaluation does not follow the training"


def _look_at_the_evaluation(facts: Facts) -> Action:
    if facts.only_validation_is_nonfinite:
        return Action(
            text="look at one batch of the evaluation: labels that are all masked, or fp16 in the evaluation alone "
            "(fp16_full_eval)"
        )
    return Action(text="evaluate the model that is trained: look for a copy, or an average that is not updated")


EVALUATION_STUCK = Cause(
    name="evaluation-stuck",
    title="the evaluation does not follow the training",
    about="""The evaluation does not look at the model that is trained, or not at its answers.
    It gives one number while training continues, or no number at all: a copy or an average that is not updated, labels
    that are all masked, half precision in the evaluation alone.""",
    explains=codes("GEN005 LOS001 GEN003 GEN007 GEN002 GEN008 GEN011"),
    requires=(signs.ONE_NUMBER_WHILE_IT_MOVES, signs.NAN_IN_EVALUATION),
    speaks=(signs.NONE_CHANGED, signs.SCALE_FELL, signs.RATE_BEYOND),
    never=(signs.NONE_CHANGED, signs.RATE_ZERO, signs.SCALE_FELL),
    says=_does_not_follow,
    do=_look_at_the_evaluation,
    test="evaluate the trained model on its training samples",
    from_the_start=True,
)

EVALUATION_BROKEN = Cause(
    name="evaluation-broken",
    title="the evaluation does not measure what is learnt",
    about="""A held-out score is at its worst, on one number, or NaN, while the training loss comes down.
    Labels have other numbers in the held-out set, answers are decoded wrongly, a threshold lets nothing through, or the
    model gives one answer for all.""",
    explains=codes("GEN007 GEN008 GEN011"),
    requires=(signs.SCORE_AT_WORST, signs.SCORE_NAN, signs.SCORE_STANDS),
    do="look at ten held-out samples with their labels and the model's answers, as the score's function gets them",
    test="compute the score on the training samples, and by hand on ten samples",
    from_the_start=True,
)

CLASS_NEVER_PREDICTED = Cause(
    name="class-never-predicted",
    title="one class is never predicted",
    about="""One class is never predicted, and the mean over the classes hides it.
    The class is rare, its label has another number in the held-out set, or the loss ignores it.""",
    explains=codes("GEN010"),
    defines=(signs.CLASS_AT_ZERO,),
    do="count the labels of each class in both sets, and look at the numbers that they have there",
    test="print how often each class is predicted on the training samples",
    from_the_start=True,
)

CAUSES = (
    ALL_LABELS_IGNORED,
    LABELS_DO_NOT_MATCH,
    DATA_NOT_SHUFFLED,
    SAME_BATCH_REPEATED,
    INPUTS_NOT_SCALED,
    OUTLIERS_IN_DATA,
    OVERFITTING,
    EVALUATION_STUCK,
    EVALUATION_BROKEN,
    CLASS_NEVER_PREDICTED,
)
