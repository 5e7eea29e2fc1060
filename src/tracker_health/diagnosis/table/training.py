"""Causes in the optimization: rates, schedules, gradients, precision, what was trained."""

from __future__ import annotations

from tracker_health.diagnosis import _signs as signs
from tracker_health.diagnosis._actions import numbers_of, rate_action, restart, with_clip
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts, earliest
from tracker_health.facts.settings import ADAM, SGD, usual_rate_of
from tracker_health.report.resume_point import Onset
from tracker_health.text import listing, number, percent, setting, went
from tracker_health.words.diagnosis import Action

_OF_OPTIMIZER = {"adam": " for Adam", "sgd": " for SGD"}
_USUAL_DECAY, _USUAL_EPSILON = 0.01, 1e-8


# Learning rate and schedule


def _rate_is_too_high(facts: Facts) -> str:
    rate, jump = facts.settings.rate, facts.rate_jump
    if jump is not None:
        rose = went(jump.before, jump.after, "rose")
        return f"the learning rate, which {rose} at {facts.at(jump.step)}, is too high"
    if rate is None:
        return f"the learning rate is too high{numbers_of(facts, 'OPT007')}"
    kind = _OF_OPTIMIZER.get(facts.settings.optimizer, "")
    usual = f", where {setting(facts.usual_rate)} is usual" if rate > 2 * facts.usual_rate else ""
    return f"a learning rate of {setting(rate)} is too high{kind}{usual}{numbers_of(facts, 'OPT007')}"


def _where_the_rate_rose(facts: Facts) -> Onset | None:
    jump = facts.rate_jump
    if jump is None:
        return None
    return Onset.on(facts.settings.logged_rates[0], jump.step, "the learning rate rose")


def _lower_the_rate(facts: Facts) -> Action:
    jump = facts.rate_jump
    if jump is None:
        return rate_action(facts, down=True)
    before = float(f"{jump.before:.4g}")
    text = f"keep the learning rate at {setting(before)}; restart from a checkpoint before {facts.at(jump.step)}"
    return Action(text=text, setting="learning_rate", old=jump.after, new=before)


LEARNING_RATE_TOO_HIGH = Cause(
    name="learning-rate-too-high",
    title="the learning rate is too high",
    about=f"""The learning rate is higher than this training tolerates.
    Steps carry the weights beyond where the loss falls. It jumps and stays up, or comes down again and ends at the
    chance level, with weights many times their usual size. A rate that rises in the middle, as after a resume
    with another schedule, is the same cause.

    {usual_rate_of(ADAM).said} of Adam, {usual_rate_of(ADAM, fine_tunes=True).said} for fine-tunes and policies,
    {usual_rate_of(SGD).said} of SGD.""",
    explains=codes(
        "LOS001 LOS002 LOS003 LOS004 LOS005 LOS018 LOS006 LOS007 LOS008 LOS009 GEN001 GEN003 GEN007 GEN004 GEN005 "
        "GRD001 GRD002 GRD003 GRD004 OPT002 OPT006 OPT007 OPT009 OPT016 WGT001 WGT002 WGT003 WGT004 AMP001 GAP001 "
        "GAP005 RWD001 RWD002 RWD003 RWD004 RWD005 RWD006 RWD007 RWD009 RWD010 RWD011 RWD014 RWD015 RWD016 "
        "RWD019 RWD020 GEN008 GEN009 OPT013"
    ),
    defines=(signs.RATE_BEYOND,),
    requires=(signs.RATE_FAR_ABOVE, signs.RATE_ABOVE, signs.RATE_JUMPED, signs.STEP_LARGE),
    speaks=(
        signs.WEIGHTS_HUGE,
        signs.DIVERGED,
        signs.LEFT_ITS_LEVEL,
        signs.GREW_BEFORE_NAN,
        signs.CAME_BACK,
        signs.GRADIENT_JUMPED,
        signs.GRADIENT_GREW,
        signs.RATE_TINY,
        signs.WEIGHTS_TINY,
    ),
    never=(signs.RATE_TINY, signs.RATE_USUAL_AND_STEPS_SMALL, signs.RATE_NOT_AS_SET),
    says=_rate_is_too_high,
    set_in=_where_the_rate_rose,
    do=_lower_the_rate,
    test="train 100 steps at a tenth of the learning rate: the loss falls if the rate was too high",
)


def _rate_is_too_low(facts: Facts) -> str:
    rate = facts.settings.rate
    beside = numbers_of(facts, "OPT006", "OPT010")
    if facts.rate_of_a_group_is_nothing:
        return f"a learning rate of {setting(facts.settings.slowest_rate or 0.0)} moves nothing{beside}"
    if rate is None or not facts.rate_is_tiny:
        return f"steps are too small{beside}"
    kind = _OF_OPTIMIZER.get(facts.settings.optimizer, "")
    return f"a learning rate of {setting(rate)} is too low{kind}, where {setting(facts.usual_rate)} is usual{beside}"


def _raise_the_rate(facts: Facts) -> Action:
    if signs.GRADIENT_BELOW_EPSILON.seen(facts) and not signs.RATE_TINY.seen(facts):
        # A higher rate repaired none of five such runs: their steps are of the size of the gradient, not of the rate.
        return Action(text="look for a factor that scales the loss or the gradient down to nothing")
    slowest = facts.settings.slowest_rate
    if slowest is None or not facts.rate_of_a_group_is_nothing:
        return rate_action(facts, down=False)
    text = (
        f"give that group a learning rate of {setting(facts.usual_rate)}: look for a unit or an exponent that slipped"
    )
    return Action(text=text, setting="learning_rate of the group", old=slowest, new=facts.usual_rate)


LEARNING_RATE_TOO_LOW = Cause(
    name="learning-rate-too-low",
    title="the learning rate is too low",
    about="""The learning rate is so low that training barely moves.
    The loss stays where it began, or still falls at the end by as much as at the beginning. All steps together would
    barely have moved the weights.""",
    explains=codes(
        "LOS005 LOS018 LOS006 LOS007 GEN003 GEN007 GEN002 OPT006 OPT010 OPT018 WGT002 WGT005 LRS001 LRS003 LRS006 "
        "RWD001 RWD003 RWD009 RWD011 RWD014 RWD015 RWD020"
    ),
    requires=(
        signs.RATE_TINY,
        signs.RATE_MOVES_NOTHING,
        signs.RATE_OF_A_GROUP_TINY,
        signs.HARDLY_MOVED_OF_USUAL_WEIGHTS,
        signs.GRADIENT_BELOW_EPSILON,
    ),
    speaks=(
        signs.EPSILON_RULES,
        signs.LOSS_FLAT,
        signs.STILL_FALLING,
        signs.WEIGHTS_UNUSUAL,
        signs.CAME_BACK,
        signs.RATE_ENOUGH,
    ),
    never=(
        signs.RATE_NOT_AS_SET,
        signs.RATE_ZERO,
        signs.RATE_BEYOND,
        signs.RATE_FAR_ABOVE,
        signs.LEARNT,
        signs.GRADIENT_VANISHES,
        signs.GRADIENT_ZERO,
        signs.CAME_BACK,
    ),
    says=_rate_is_too_low,
    do=_raise_the_rate,
    test="train 100 steps at ten times the learning rate: the loss falls faster if the rate was too low",
)


def _schedule_is_wrong(facts: Facts) -> str:
    said = numbers_of(facts, "LRS001", "LRS003", "LRS004", "LRS005", "LRS006")
    if not said and facts.rate_is_zero:
        said = ": the learning rate is 0"
    elif not said and facts.rate_vanished:
        said = ": a learning rate was almost zero for most of the run"
    return f"the learning rate's schedule does not fit the run{said}"


def _mend_the_schedule(facts: Facts) -> Action:
    peak, steps, said = facts.settings.rate, facts.evidence.optimizer_steps, facts.settings.rate_said
    if not peak and said:
        return Action(text=f"look at what the scheduler makes of the learning rate of {setting(said)}: it gives 0")
    if not peak:
        return Action(
            text="give the optimizer a learning rate above 0, and look at what the scheduler makes of it",
            setting="learning_rate",
            old=0.0,
            new=facts.usual_rate,
        )
    whole = f" ({number(steps)} here)" if steps else ""
    text = f"give the scheduler the run's number of optimizer steps{whole}, and call it once for each of them"
    return Action(text=text, setting="scheduler steps", new=float(steps) if steps else None)


SCHEDULE_WRONG = Cause(
    name="schedule-wrong",
    title="the learning rate's schedule does not fit the run",
    about="""The learning rate's schedule does not fit the run.
    It was laid out for another number of steps, or is stepped at another rhythm: the rate is 0 long before the end, or
    its warm-up never ends.""",
    explains=codes(
        "LRS001 LRS003 LRS004 LRS005 LRS006 LOS005 LOS018 LOS006 LOS007 GEN003 GEN007 GEN005 WGT002 OPT006 OPT018 "
        "WGT005 OPT004 WGT007"
    ),
    defines=(signs.RATE_ZERO,),
    requires=(signs.SCHEDULE_OFF, signs.RATE_VANISHED),
    never=(signs.NO_SPREAD,),
    says=_schedule_is_wrong,
    do=_mend_the_schedule,
    test="print the learning rate of every hundredth step next to the plan's number of steps",
)


# Settings of the optimizer


def _setting_is_wrong(facts: Facts) -> str:
    if not signs.EPSILON_LARGE.seen(facts):
        return f"a setting of the optimizer is wrong{numbers_of(facts, 'OPT011')}"
    ratio = facts.measured("OPT010", "eps_ratio")
    times = f", {number(round(ratio))} times the root of the second moment" if ratio else ""
    return f"epsilon is {setting(facts.settings.epsilon or 0.0)}{times}, and steps are that much too small"


def _mend_the_setting(facts: Facts) -> Action:
    epsilon, betas = facts.settings.epsilon, facts.settings.betas
    if signs.BETAS_SWAPPED.seen(facts):
        old = ", ".join(map(setting, betas)) if betas is not None else None
        return Action(text="set the betas to 0.9, 0.999", setting="betas", old=old, new="0.9, 0.999")
    text = f"set epsilon to {setting(_USUAL_EPSILON)}, the default"
    return Action(text=text, setting="eps", old=epsilon, new=_USUAL_EPSILON)


OPTIMIZER_SETTING_WRONG = Cause(
    name="optimizer-setting-wrong",
    title="a setting of the optimizer is wrong",
    about="""The optimizer's epsilon or betas are not what they should be.
    An epsilon far above the root of the second moment makes Adam's steps as small as the gradient over it; swapped
    betas make them follow single batches.""",
    explains=codes("OPT010 OPT011 OPT006 LOS004 LOS005 LOS018 LOS006 LOS007 LOS008 GEN003 GEN007"),
    defines=(signs.EPSILON_LARGE, signs.BETAS_SWAPPED),
    speaks=(signs.EPSILON_RULES,),
    says=_setting_is_wrong,
    do=_mend_the_setting,
    test="train 100 steps with the optimizer's default settings",
)


def _decay_is_too_strong(facts: Facts) -> str:
    decay, share = facts.settings.weight_decay, facts.settings.decay_per_step
    if decay is None or share is None or not facts.decay_is_beyond:
        return f"weight decay takes the weights away{numbers_of(facts, 'WGT004')}"
    takes = f"a weight decay of {setting(decay)} takes {percent(share)} of every weight per step"
    return f"{takes}{numbers_of(facts, 'WGT004')}"


WEIGHT_DECAY_TOO_STRONG = Cause(
    name="weight-decay-too-strong",
    title="weight decay takes the weights away",
    about="""Weight decay takes the weights away faster than gradients can build them.
    With decoupled decay each step takes the learning rate times the decay off every weight. At a hundredth per step
    nothing of a weight is left after a few hundred steps.""",
    explains=codes(
        "WGT004 WGT002 WGT003 OPT003 OPT019 OPT004 OPT007 OPT015 LOS004 LOS005 LOS018 LOS006 LOS007 GEN003 GEN007 "
        "GEN009"
    ),
    defines=(signs.DECAY_BEYOND,),
    requires=(signs.STEP_LARGE_OF_NOTHING,),
    speaks=(signs.WEIGHTS_TINY,),
    never=(signs.DECAY_LITTLE,),
    says=_decay_is_too_strong,
    do=lambda facts: Action(
        text=f"set the weight decay to {setting(_USUAL_DECAY)}",
        setting="weight_decay",
        old=facts.settings.weight_decay,
        new=_USUAL_DECAY,
    ),
    test="train 100 steps with a weight decay of 0, and compare the norm of the weights",
)


def _clip_is_too_tight(facts: Facts) -> str:
    used, logged, clip = facts.gradient_used, facts.gradient_logged, facts.settings.clip
    if clip is not None and facts.clip_is_tiny:
        return f"gradients are clipped to a norm of {setting(clip)}"
    if used is not None and signs.SGD_TOOK_LITTLE.seen(facts):
        beside = f" of {number(logged)} that was logged" if logged is not None and logged > 10 * used else ""
        return f"gradients are clipped to almost zero: the optimizer took a norm of about {number(used)}{beside}"
    return "gradients are clipped to almost zero"


GRADIENT_CLIPPING_TOO_TIGHT = Cause(
    name="gradient-clipping-too-tight",
    title="gradients are clipped to almost zero",
    about="""Gradients are clipped to almost zero.
    Plain SGD then makes steps of the limit times the learning rate, which lead nowhere.""",
    explains=codes("OPT006 OPT010 OPT014 OPT018 LOS005 LOS018 LOS006 LOS007 GEN003 GEN007 GRD003 WGT002"),
    defines=(signs.CLIP_TINY,),
    requires=(signs.SGD_TOOK_LITTLE, signs.NORMS_AT_THE_CLIP),
    speaks=(signs.HARDLY_MOVED,),
    says=_clip_is_too_tight,
    do=lambda facts: Action(
        text="clip gradients at a norm of 1, or not at all", setting="max_grad_norm", old=facts.settings.clip, new=1.0
    ),
    test="print the gradient norm before and after clipping",
)


# NaN and precision

_HARM = ("LOS001", "LOS002", "GRD001", "GAP001")


def _is_not_finite(facts: Facts) -> str:
    step = earliest(map(facts.onset, _HARM))
    if facts.nonfinite_for_a_while:
        return f"the loss is NaN or infinite {facts.nonfinite_for_a_while}"
    if step is None:
        said = facts.first_of(("RUN004", "OPT002", "WGT001", *_HARM))
        return f"the training became NaN or infinite{f': {said.message}' if said is not None else ''}"
    first = facts.first_of(_HARM)
    what = "loss" if first is not None and first.code.startswith("LOS") else "gradient"
    if not facts.stays_nonfinite:
        return f"the {what} is NaN or infinite, first at {facts.at(step)}"
    before = ", its very first value" if _from_the_start(facts) else ""
    last = _last_step(facts)
    after = f", and training went on to {facts.at(last)}" if last is not None and last > step else ""
    return f"the {what} is NaN or infinite from {facts.at(step)} on{before}{after}"


def _look_at_the_batch(facts: Facts) -> Action:
    step = earliest(map(facts.onset, _HARM))
    if _from_the_start(facts):
        return Action(text="look for NaN in the inputs and the initial weights: the very first value is not finite")
    if step is None:
        return Action(text="go back to the last checkpoint with finite weights, and look at the batch that came next")
    if facts.nonfinite_for_a_while:
        return Action(
            text=f"look at the batch of {facts.at(step)}: was its update skipped? Then nothing has to be undone"
        )
    back = restart(facts, _HARM)
    return with_clip(facts, back.replace("from a", "from the last", 1), f"look at the batch of {facts.at(step)}")


def _from_the_start(facts: Facts) -> bool:
    series = facts.evidence.find("train_loss")
    values = series.clean().values if series is not None else None
    return bool(values is not None and len(values) and not abs(float(values[0])) < float("inf"))


def _last_step(facts: Facts) -> int | None:
    series = facts.evidence.find("train_loss")
    return int(series.steps[-1]) if series is not None and len(series) else None


NON_FINITE_LOSS = Cause(
    name="non-finite-loss",
    title="the training became NaN or infinite",
    about="""The loss or a gradient became NaN or infinite.
    One NaN reaches every weight within a step or two. Whatever was trained afterwards is lost.""",
    explains=codes(
        "LOS001 LOS002 LOS005 LOS018 GEN001 GEN003 GEN007 GEN004 GEN005 GRD001 OPT002 WGT001 AMP001 GAP001 RUN004 "
        "RUN001 GEN011"
    ),
    defines=(
        signs.NAN_IN_LOSS,
        signs.ZERO_FOR_NAN,
        signs.LAYER_NAN,
        signs.NAN_IN_MOMENTS,
        signs.NAN_IN_WEIGHTS,
        signs.EXCEPTION_SAYS_NAN,
    ),
    requires=(signs.GRADIENT_NAN,),
    speaks=(signs.ONE_TENSOR_BROKEN, signs.ONLY_ROSE),
    never=(signs.DIVERGED_BEFORE, signs.GREW_BEFORE_NAN),
    doubts=(signs.ONLY_ROSE, signs.DIVERGED, signs.GRADIENT_GREW, signs.SCALE_FELL),
    says=_is_not_finite,
    whole=True,
    do=_look_at_the_batch,
    test="run the step before with torch.autograd.set_detect_anomaly(True)",
)

FP16_OVERFLOW = Cause(
    name="fp16-overflow",
    title="half precision overflows",
    about="""Half precision overflows, and steps are skipped.
    Numbers above 65504 are infinite in fp16. The loss scale is halved at each overflow; once it is almost zero,
    every step is skipped and the model stands still while its loss looks sound.""",
    explains=codes(
        "AMP001 GRD001 LOS001 LOS005 LOS018 LOS006 GEN005 WGT001 WGT002 OPT001 OPT002 RUN001 RUN004 LOS012 GAP001"
    ),
    defines=(signs.SCALE_AT_MINIMUM, signs.EXCEPTION_SAYS_SCALE),
    requires=(signs.SCALE_FELL_WITH_NAN, signs.FP16_BROKE),
    speaks=(signs.UPDATES_MISSING, signs.ONLY_ROSE),
    judged={signs.SCALE_FELL_WITH_NAN: 3.0, signs.FP16_BROKE: 4.0},
    do=Action(text="train in bf16, which has the range of fp32", setting="precision", old="fp16", new="bf16"),
    test="train 100 steps in bf16 or fp32: the overflow is gone if half precision was the reason",
)


# Gradients and weights

GRADIENTS_NOT_CLEARED = Cause(
    name="gradients-not-cleared",
    title="gradients are not cleared between steps",
    about="""Gradients of earlier steps are still there when a new one is added.
    Without zero_grad each step follows the sum of all gradients so far. They all point the same way, grow, and carry
    the weights past every minimum.""",
    explains=codes("OPT005 LOS001 LOS004 LOS005 LOS018 LOS006 LOS008 GEN003 GEN007 GRD001 GRD004 WGT001 WGT004"),
    requires=(signs.GRADIENTS_AGREE,),
    speaks=(signs.GRADIENT_GREW, signs.NO_NOISE, signs.ONLY_ROSE, signs.FELL_BACK),
    do="call optimizer.zero_grad() before each backward pass",
    test="print the gradient norm right after zero_grad: it has to be 0",
    from_the_start=True,
)


def _what_is_not_trained(facts: Facts) -> str:
    return f"a part of the model is not trained{numbers_of(facts, 'OPT004', 'WGT002', 'WGT005', 'WGT006', 'RWD003')}"


def _train_the_rest(facts: Facts) -> Action:
    if facts.has("WGT006") and not facts.has("OPT004", "WGT002"):
        return Action(text="call model.train() before training, and again after each evaluation")
    names = facts.names("OPT004", "missing") or facts.names("WGT002", "unchanged") or facts.names("WGT005", "initial")
    which = f" {listing(names, 3)}" if names else " all parameters"
    if facts.has_kind("OPT004", "without-rate"):
        text = f"give the group of{which} a learning rate, or leave it out of the optimizer if it is frozen on purpose"
        return Action(text=text, setting="learning_rate of the group", old=0.0, new=facts.usual_rate)
    return Action(
        text=f"make the optimizer after the model is complete, from model.parameters(), and look whether{which} "
        "has a gradient: a replaced layer, a .detach() or no_grad leaves it out"
    )


PARAMETERS_NOT_TRAINED = Cause(
    name="parameters-not-trained",
    title="a part of the model is not trained",
    about="""A part of the model is never trained.
    It is not in the optimizer, is in a group without a learning rate, or is cut off by a detach. Or its layer was
    replaced after the optimizer was made. Normalisations that never see a batch belong here as well.""",
    explains=codes(
        "WGT007 OPT004 OPT003 OPT019 WGT002 WGT005 WGT006 LOS005 LOS018 LOS006 LOS012 GEN003 GEN007 GEN005 RWD003 "
        "RWD009"
    ),
    requires=(
        signs.NOT_IN_OPTIMIZER,
        signs.SOME_UNCHANGED,
        signs.ONE_INITIAL,
        signs.STATISTICS_IDLE,
        signs.POLICY_NEVER_MOVED,
    ),
    speaks=(signs.SOME_WITHOUT_GRADIENT, signs.BEGAN_HIGH),
    says=_what_is_not_trained,
    do=_train_the_rest,
    test="compare the parameters that have a gradient after one backward pass with those of the optimizer",
    from_the_start=True,
)

ADAPTER_NOT_ATTACHED = Cause(
    name="adapter-not-attached",
    title="the adapter is not attached to the model that is trained",
    about="""The adapter is there and nothing goes through it.
    Its second factors stay 0 and no gradient reaches it: the wrapped model was not the one that was trained, or it was
    made after the optimizer.""",
    explains=codes("WGT007 OPT003 OPT019 OPT004 WGT002 WGT005 LOS005 LOS018 GRD003"),
    requires=(signs.ADAPTER_IDLE, signs.ADAPTER_WITHOUT_GRADIENT, signs.ADAPTER_WITHOUT_STATE, signs.ADAPTER_UNCHANGED),
    never=(signs.RATE_ZERO,),
    do="train the model that get_peft_model returns, and make the optimizer from its parameters",
    test="print the adapter's parameters that ask for a gradient, and their gradients after one backward pass",
    from_the_start=True,
)

NO_GRADIENT = Cause(
    name="no-gradient",
    title="no gradient reaches the parameters",
    about="""No gradient reaches the parameters.
    The loss does not depend on them: a detach, a no_grad, a loss of constants, or a branch that is multiplied by 0. Or
    it fades on its way through the layers.""",
    explains=codes("WGT007 OPT003 OPT019 OPT004 GRD003 GAP004 GAP006 LOS005 LOS018 LOS006 GEN003 GEN007 WGT002"),
    defines=(signs.ALL_WITHOUT_GRADIENT,),
    requires=(signs.GRADIENT_ZERO, signs.LAYER_WITHOUT_GRADIENT, signs.GRADIENT_VANISHES),
    speaks=(signs.SOME_WITHOUT_GRADIENT, signs.GRADIENT_FADES),
    judged={signs.GRADIENT_FADES: 2.0},
    never=(signs.LOSS_ZERO,),
    do="look for .detach(), no_grad or .item() between these parameters and the loss, and for units that saturate",
    test="print which parameters have a gradient after one backward pass",
    from_the_start=True,
)


def _look_at_the_zeros(facts: Facts) -> Action:
    names = facts.names("OPT003", "dead") or facts.names("WGT003", "layers")
    where = f", first of {names[0]}" if names else ""
    return Action(
        text=f"print the share of zeros in each layer's output{where}; look at its initial bias, use a leaky "
        "activation, and lower the learning rate if the units died in training"
    )


UNITS_DEAD = Cause(
    name="units-dead",
    title="units or whole layers never fire",
    about="""Units or whole layers never fire.
    Their output is 0 for every input, so no gradient passes: a bias far below 0, a step that threw them there, or an
    output that is multiplied by 0.""",
    explains=codes("WGT007 OPT003 OPT019 OPT004 WGT003 GAP002 GAP003 LOS005 LOS018 LOS006 GEN003 GEN007 GRD003 LOS012"),
    requires=(signs.SOME_DEAD, signs.UNITS_WITHOUT_GRADIENT, signs.LAYER_DEAD, signs.LAYER_SATURATED),
    speaks=(signs.WEIGHTS_TINY,),
    says=lambda facts: f"units or whole layers never fire{numbers_of(facts, 'OPT003', 'WGT003', 'GAP002', 'GAP003')}",
    do=_look_at_the_zeros,
    test="print the share of zeros in each layer's output for one batch",
)


def _scale_is_wrong(facts: Facts) -> str:
    scale, first = facts.measured("WGT004", "scale"), facts.measured("LOS009", "first")
    if scale is not None:
        size = f"{number(scale)} times" if scale >= 1.0 else f"{percent(scale)} of"
        return f"the weights began at a wrong scale: they have {size} the size that layers begin with"
    if first is not None:
        times = number(first / (facts.measured("LOS009", "chance") or 1.0))
        return f"the weights began at a wrong scale: the first loss is {times} times that of guessing"
    return "the weights began at a wrong scale"


INITIALISATION_WRONG = Cause(
    name="initialisation-wrong",
    title="the weights began at a wrong scale",
    about="""The weights began much too small or much too large.
    Too small, nothing passes from layer to layer and all outputs are alike; too large, the first loss is many times
    that of guessing, and steps are nothing compared with the weights.""",
    explains=codes(
        "WGT004 LOS009 OPT003 OPT019 OPT006 OPT009 OPT018 LOS005 LOS018 LOS006 LOS007 LOS008 GEN003 GEN007 WGT002 "
        "GAP004 GAP005 GRD003"
    ),
    requires=(
        signs.WEIGHTS_TINY,
        signs.WEIGHTS_HUGE,
        signs.LATER_INPUTS_LARGE,
        signs.LAYERS_VANISH,
        signs.LAYERS_EXPLODE,
    ),
    speaks=(signs.BEGAN_HIGH, signs.HARDLY_MOVED, signs.STEP_LARGE, signs.ONLY_ROSE),
    never=(signs.DECAY_BEYOND,),
    says=_scale_is_wrong,
    do="initialise the weights as the framework does, and print their norms before the first step",
    test="print the norm of every weight before the first step",
    from_the_start=True,
)


def _do_not_move(facts: Facts) -> str:
    return f"the weights do not move{numbers_of(facts, 'WGT002', 'GEN005')}"


WEIGHTS_DO_NOT_MOVE = Cause(
    name="weights-do-not-move",
    title="the weights do not move",
    about="""The weights stay what they were, though steps are made.
    The evaluation gives one number to its last digit, or two checkpoints are alike: the optimizer steps other
    parameters than those of the model, or none.""",
    explains=codes("GEN005 LOS005 LOS018 LOS006 LOS007 GEN002 GEN003 GEN007 WGT002 WGT005"),
    requires=(signs.ONE_NUMBER_AND_FLAT, signs.NONE_CHANGED),
    judged={signs.ONE_NUMBER_AND_FLAT: 4.0},
    never=(signs.RATE_ZERO,),
    says=_do_not_move,
    do="make the optimizer after the model is complete and wrapped, and compare a weight before and after one step",
    test="print the norm of one weight before and after a step",
    from_the_start=True,
)


# The loss itself


def _is_maximised(facts: Facts) -> bool:
    return signs.ONLY_ROSE_AT_A_USUAL_RATE.seen(facts) or signs.ONLY_ROSE_BELOW_CHANCE.seen(facts)


def _loss_is_wrong(facts: Facts) -> str:
    if _is_maximised(facts) and facts.loss is not None:
        first, end = facts.loss.outset.value, facts.loss.end.value
        return f"the loss is maximised: it {went(first, end, 'rose')}, and never fell"
    if signs.GRADIENT_BELOW_EPSILON.seen(facts):
        ratio = number(round(facts.measured("OPT010", "eps_ratio") or 0.0))
        epsilon = setting(facts.settings.epsilon or 0.0)
        return (
            f"the loss is scaled down to nothing: Adam's epsilon of {epsilon} is {ratio} times the root of the "
            "gradients' second moment"
        )
    return f"the loss is not implemented as it should be{numbers_of(facts, 'LOS012', 'REG002', 'RWD009')}"


def _mend_the_loss(facts: Facts) -> Action:
    if _is_maximised(facts):
        return Action(text="minimise the loss: look for a minus sign before the loss, the gradient or the step")
    if signs.GRADIENT_BELOW_EPSILON.seen(facts):
        return Action(text="look for a factor that scales the loss or the gradient down to nothing")
    if facts.has("LOS012"):
        return Action(text="give logits to the loss, without a softmax before it")
    if facts.has("RWD009"):
        return Action(text="look at the sign of the reward, of the advantages, and of the loss")
    if signs.UNBOUNDED.seen(facts):
        return Action(text="look for a sign that is turned round, or a term that is rewarded without a limit")
    return Action(text="compute the loss of one batch by hand, and compare")


LOSS_IMPLEMENTED_WRONG = Cause(
    name="loss-implemented-wrong",
    title="the loss is not implemented as it should be",
    about="""The loss is not what it should be: a wrong sign, a softmax too many, a factor that makes it vanish.
    A maximised loss rises from the first step. Behind two softmaxes a loss levels off far above 0 while the accuracy
    is high. A loss that is scaled away gives gradients that Adam's epsilon rules.""",
    explains=codes(
        "LOS001 LOS004 LOS005 LOS018 LOS006 LOS007 LOS012 GEN001 GEN003 GEN007 GEN004 GRD001 GRD004 OPT002 OPT005 "
        "OPT010 WGT001 WGT004 AMP001 REG002 RWD003 RWD009 GRD003"
    ),
    requires=(
        signs.ONLY_ROSE_AT_A_USUAL_RATE,
        signs.ONLY_ROSE_BELOW_CHANCE,
        signs.GRADIENT_BELOW_EPSILON,
        signs.SOFTMAX_TWICE,
        signs.UNBOUNDED,
        signs.NOT_A_SUM,
        signs.REJECTED_PREFERRED,
    ),
    speaks=(signs.GRADIENTS_AGREE, signs.FEW_STEPS, signs.NOT_IN_OPTIMIZER, signs.SCALE_FELL),
    never=(signs.SOMETHING_ELSE_MOVED, signs.RATE_BEYOND, signs.RATE_FAR_ABOVE),
    says=_loss_is_wrong,
    do=_mend_the_loss,
    test="compute the loss of one batch by hand, and its gradient's sign",
    from_the_start=True,
)

LOSS_TERM_IDLE = Cause(
    name="loss-term-idle",
    title="a term of the loss does nothing",
    about="""One term of the loss is not learnt, or does nothing.
    A weight of 0, a target that is constant, a latent variable that carries nothing.""",
    explains=codes("REG001 REG004 REG005 LOS020"),
    requires=(signs.TERM_IDLE, signs.PART_OF_LOSS_DEAD, signs.LATENT_IDLE, signs.OFF_TARGET),
    judged={signs.OFF_TARGET: 2.0},
    do="print the weight and the gradient of each term of the loss",
    test="print each term's gradient norm",
    from_the_start=True,
)


def _apply_the_setting(facts: Facts) -> Action:
    found = facts.found.get("OPT013")
    if found is None or not found.remedy:
        return Action(text="find which file or default the value comes from, and set it in one place")
    before, after = found.measured.get("logged"), found.measured.get("set")
    if found.kind != "rate":
        return Action(text=found.remedy)
    return Action(text=found.remedy, setting="learning_rate", old=before, new=after)


SETTING_NOT_APPLIED = Cause(
    name="setting-not-applied",
    title="a setting was not applied",
    about="""The training ran with another value than the params say.
    A second configuration, a default or a scheduler of its own took the place of what was set. Both values are named:
    the one that trained counts for everything else that was found.""",
    explains=codes(
        "LOS004 LOS005 LOS018 LOS007 LOS008 LRS001 LRS003 LRS004 LRS005 LRS006 OPT001 OPT009 OPT010 OPT013 RUN001 "
        "GEN001 GEN002 WGT002 OPT018 OPT016"
    ),
    defines=(signs.NOT_AS_SET,),
    says=lambda facts: f"what trained is not what was set{numbers_of(facts, 'OPT013')}",
    do=_apply_the_setting,
    test="print the optimizer's groups after the first step",
    from_the_start=True,
)

LOSS_SUMMED = Cause(
    name="loss-summed",
    title="the training loss is a sum where a mean is meant",
    about="""The training loss is a sum over accumulated batches, a whole multiple of the validation loss.
    Where the gradient is that of the sum, each step is as many times too large. Else only the logged number is
    wrong.""",
    explains=codes("GEN006 LOS009"),
    defines=(signs.A_MULTIPLE,),
    do="divide the loss by the number of accumulated batches, where it is summed and where it is logged",
    test="compare the logged loss of one step with the mean over its batches",
    from_the_start=True,
)

CAUSES = (
    LEARNING_RATE_TOO_HIGH,
    LEARNING_RATE_TOO_LOW,
    SCHEDULE_WRONG,
    OPTIMIZER_SETTING_WRONG,
    WEIGHT_DECAY_TOO_STRONG,
    GRADIENT_CLIPPING_TOO_TIGHT,
    NON_FINITE_LOSS,
    FP16_OVERFLOW,
    GRADIENTS_NOT_CLEARED,
    PARAMETERS_NOT_TRAINED,
    ADAPTER_NOT_ATTACHED,
    NO_GRADIENT,
    UNITS_DEAD,
    INITIALISATION_WRONG,
    WEIGHTS_DO_NOT_MOVE,
    LOSS_IMPLEMENTED_WRONG,
    LOSS_TERM_IDLE,
    SETTING_NOT_APPLIED,
    LOSS_SUMMED,
)
