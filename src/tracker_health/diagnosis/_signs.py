"""The signs by which causes are known. Each has one name, and any cause may ask for it."""

from __future__ import annotations

from collections.abc import Callable

from tracker_health.diagnosis._cause import Sign
from tracker_health.diagnosis._facts import Facts
from tracker_health.facts.environments import is_control
from tracker_health.words.ending import Ended

_Asked = Callable[[Facts], bool]
_WHOLE, _MOSTLY = 1.0, 0.5
_HALF_OF_AN_ADAPTER = 0.5
_HUGE_INPUTS, _FAR_ABOVE_GUESSING, _GROWN_WEIGHTS = 500.0, 100.0, 100.0
_LARGE_EPSILON, _USUAL_EPSILON = 1e-5, 1e-6
_TINY_GRADIENT, _MUCH_LESS = 1e-3, 0.01
_HIGH_BONUS, _HIGH_KL, _LOW_KL, _GREEDY = 0.1, 1.0, 0.01, 0.2
_WORSE_THAN_SHORT = ("LOS004", "LOS005", "LOS006", "GEN003")
_LEFT_ITS_COURSE = ("LOS001", "LOS003", "LOS004", "LOS008", "GRD001", "GRD002", "GRD004", "OPT007")
_REWARDS = ("train_reward", "val_reward")


def _finding(name: str, code: str, *of: str, where: _Asked | None = None) -> Sign:
    """A rule's finding, of some kinds, or only one that this holds for."""
    return Sign(
        name=name,
        kind="finding",
        looks_at=code,
        of=of,
        seen=lambda facts: facts.has_kind(code, *of) and (where is None or where(facts)),
        begins=lambda facts: facts.onset(code),
    )


def _setting(name: str, looks_at: str, seen: _Asked, begins: Callable[[Facts], int | None] = lambda _: None) -> Sign:
    return Sign(name=name, kind="setting", looks_at=looks_at, seen=seen, begins=begins)


def _number(name: str, looks_at: str, seen: _Asked, begins: Callable[[Facts], int | None] = lambda _: None) -> Sign:
    return Sign(name=name, kind="number", looks_at=looks_at, seen=seen, begins=begins)


# Settings

RATE_BEYOND = _setting(
    "the learning rate is beyond what trains",
    "learning_rate",
    lambda facts: facts.rate_is_beyond,
    lambda facts: facts.rate_above_since(),
)
RATE_FAR_ABOVE = _setting(
    "the learning rate is ten times the highest that is usual, or more",
    "learning_rate",
    lambda facts: facts.rate_is_far_above,
    lambda facts: facts.rate_above_since(),
)
RATE_ABOVE = _setting(
    "the learning rate is higher than is usual, and the training left its course",
    "learning_rate",
    lambda facts: facts.rate_is_above and facts.has(*_LEFT_ITS_COURSE) and not facts.rises_throughout,
    lambda facts: facts.rate_above_since(),
)
RATE_JUMPED = _setting(
    "the logged learning rate rose at once, at least fivefold, in the middle of the run",
    "learning_rate",
    lambda facts: facts.rate_jump is not None,
    lambda facts: None if facts.rate_jump is None else facts.rate_jump.step,
)
RATE_TINY = _setting("the learning rate is lower than what trains", "learning_rate", lambda facts: facts.rate_is_tiny)
RATE_OF_A_GROUP_TINY = _setting(
    "the learning rate of one group is almost zero",
    "learning_rate",
    lambda facts: facts.rate_of_a_group_is_nothing,
)
RATE_VANISHED = _setting(
    "a logged learning rate was almost zero for most of the run, and had been higher",
    "learning_rate",
    lambda facts: facts.rate_vanished,
)
RATE_ZERO = _setting("the learning rate is 0", "learning_rate", lambda facts: facts.rate_is_zero)
RATE_USUAL_AND_STEPS_SMALL = _setting(
    "the learning rate is usual, and no step was seen to be large",
    "learning_rate",
    lambda facts: facts.rate_is_usual and not facts.has("OPT007"),
)
RATE_ENOUGH = _setting("the learning rate is usual or higher", "learning_rate", lambda facts: facts.rate_is_enough)
DECAY_BEYOND = _setting(
    "decay times rate takes half a percent or more off the weights per step",
    "weight_decay",
    lambda facts: facts.decay_is_beyond,
)
DECAY_LITTLE = _setting(
    "decay times rate is known to take little off the weights", "weight_decay", lambda facts: facts.decay_is_little
)
CLIP_TINY = _setting("gradients are clipped to almost zero", "max_grad_norm", lambda facts: facts.clip_is_tiny)
FP16_BROKE = _setting(
    "the params speak of fp16, and something is not finite",
    "fp16",
    lambda facts: facts.settings.half_precision and facts.has("LOS001", "GRD001", "OPT002"),
)
EPSILON_LARGE = _setting(
    "epsilon is 1e-5 or more, and rules the steps",
    "eps",
    lambda facts: facts.has("OPT010") and (facts.settings.epsilon or 0.0) >= _LARGE_EPSILON,
)
BETAS_SWAPPED = _finding("the second beta is lower than the first", "OPT011")
TEMPERATURE_LOW = _setting(
    "answers are sampled at a temperature of next to 0",
    "temperature",
    lambda facts: facts.is_policy and (facts.settings.temperature or 1.0) < _GREEDY,
)
BONUS_HIGH = _setting(
    "the entropy bonus is a tenth or more, and the policy came apart or acts at random",
    "entropy_coef",
    lambda facts: (facts.settings.entropy_bonus or 0.0) >= _HIGH_BONUS and facts.policy_is_random,
)
KL_HIGH = _setting(
    "the KL coefficient is 1 or more, and the reward did not rise",
    "kl_coefficient",
    lambda facts: (facts.settings.kl_coefficient or 0.0) >= _HIGH_KL and facts.has("RWD003"),
)
KL_LOW = _setting(
    "the KL coefficient is known and below 0.01, and the policy left its course",
    "kl_coefficient",
    lambda facts: (
        facts.settings.kl_coefficient is not None
        and facts.settings.kl_coefficient < _LOW_KL
        and (facts.has("RWD005", "RWD006", "RWD007") or facts.has("RWD004"))
    ),
)
BETA_ZERO = _setting(
    "beta is 0", "kl_coefficient", lambda facts: facts.has("RWD009") and facts.settings.kl_coefficient == 0.0
)

# Losses

NAN_IN_LOSS = _finding(
    "a loss is NaN or infinite", "LOS001", where=lambda facts: not facts.only_validation_is_nonfinite
)
NAN_IN_ANY_LOSS = _finding("any loss is NaN or infinite", "LOS001")
ZERO_FOR_NAN = _finding(
    "the loss is exactly 0 where the gradient is not finite", "LOS002", where=lambda facts: not facts.loss_is_zero
)
NAN_IN_EVALUATION = _number(
    "the evaluation alone is not finite", "val_loss", lambda facts: facts.only_validation_is_nonfinite
)
DIVERGED_BEFORE = _number("the loss had diverged before it became NaN", "loss", lambda facts: facts.diverged_before_nan)
GREW_BEFORE_NAN = _number("the loss grew tenfold, then became NaN", "loss", lambda facts: facts.grew_before_nan)
SPIKED = _finding("the loss has spikes", "LOS003")
DIVERGED = _finding("the loss diverged", "LOS004")
UNBOUNDED = _finding("the loss fell beyond all bounds", "LOS004", "without-a-bound")
LEFT_ITS_LEVEL = _finding("the loss left its level", "LOS008")
LEARNT = _number(
    "the training loss came down by half or more",
    "loss",
    lambda facts: facts.has_learnt,
)
ONLY_SPIKES = _number(
    "the loss jumped and came down again, more than once or far", "loss", lambda facts: facts.only_spikes
)
ONLY_ROSE = _number("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout)
ONLY_ROSE_AT_A_USUAL_RATE = _number(
    "the loss rose from the beginning on, at a learning rate that is known to be usual or lower",
    "loss",
    lambda facts: facts.rises_throughout and (facts.rate_is_usual or facts.rate_is_tiny),
)
ONLY_ROSE_BELOW_CHANCE = _number(
    "the loss rose from the beginning on, and an accuracy ends below that of guessing",
    "loss",
    lambda facts: facts.rises_throughout and facts.below_chance,
)
CAME_BACK = _number(
    "the loss exploded and came back, no lower than before it learnt", "loss", lambda facts: facts.only_came_back
)
FELL_BACK = _number(
    "the loss fell back at once to where it began",
    "loss",
    lambda facts: facts.fell_back is not None,
    lambda facts: None if facts.fell_back is None else facts.fell_back.step,
)
PART_OF_LOSS_DEAD = _finding("a part of the loss is 0 while another one moves", "LOS020", "loss")
PART_OF_REWARD_STANDS = _finding("a part of the reward never changes", "LOS020", "reward")
SCORE_AT_WORST = _finding("a held-out score never left its worst value, while the training loss fell", "GEN008")
SCORE_NAN = _finding("a held-out score is NaN or infinite", "GEN011", where=lambda facts: not facts.has("LOS001"))
SCORE_STANDS = _finding("a held-out score never moves", "GEN007", where=lambda facts: not facts.has("LOS005", "LOS006"))
SCORE_LOST = _finding("a held-out score fell far below its best", "GEN009")
CLASS_AT_ZERO = _finding("one class is at 0 throughout", "GEN010")
NOT_AS_SET = _finding("a setting is another one in the log than in the params", "OPT013")
RATE_NOT_AS_SET = _finding(
    "the learning rate is another one in the log than in the params, from the beginning on",
    "OPT013",
    "rate",
    where=lambda facts: facts.rate_jump is None,
)
A_MULTIPLE = _finding("the training loss is a whole multiple of the validation loss", "GEN006")
JUMPED_AT_A_RESUME = _finding("the loss is clearly higher right after a resume", "LOS017")
ROSE_AT_A_RESUME = _number(
    "the loss rose where the run was resumed",
    "resume",
    lambda facts: facts.rose_at_a_resume is not None,
    lambda facts: facts.rose_at_a_resume,
)
LOSS_FLAT = _finding("the loss barely came down", "LOS005")
STILL_FALLING = _finding("the loss was still falling at the end", "LOS007")
ENDED_WHILE_FALLING = _finding(
    "the loss was still falling at the end, and nothing worse was found",
    "LOS007",
    where=lambda facts: facts.headed.isdisjoint(_WORSE_THAN_SHORT),
)
BEGAN_HIGH = _finding(
    "the loss began many times above guessing, and did not only come back to it",
    "LOS009",
    where=lambda facts: not facts.only_came_back,
)
BEGAN_VERY_HIGH = _finding(
    "the loss began a hundred times above guessing or more",
    "LOS009",
    where=lambda facts: (
        (facts.measured("LOS009", "first") or 0.0)
        > _FAR_ABOVE_GUESSING * (facts.measured("LOS009", "chance") or float("inf"))
    ),
)
SAWTOOTH = _finding("the loss goes through one slow pattern in every epoch", "LOS010")
SOFTMAX_TWICE = _finding("loss and accuracy add up as behind two softmaxes", "LOS012")
NO_NOISE = _finding("the loss has none of the noise of batches", "LOS013")
LOSS_ZERO = _number("the loss is exactly 0 from the first point on", "loss", lambda facts: facts.loss_is_zero)
NOT_A_SUM = _finding("the loss is not the sum of its terms", "REG002")
TERM_IDLE = _finding("the regulariser is idle", "REG001")
LATENT_IDLE = _finding("the latent variable carries nothing", "REG005")
OFF_TARGET = _finding("the target was not reached", "REG004")

# Evaluations

OVERFITS = _finding("the validation loss rose from its minimum while training went on", "GEN001")
GAP_OF_ACCURACY = _finding("the accuracy holds for the training samples only", "GEN004")
VALIDATION_FLAT = _finding("validation never improved", "GEN002")
VALIDATION_GUESSES = _finding("validation guesses", "GEN003")
ONLY_VALIDATION_GUESSES = _finding(
    "validation guesses, while training learns", "GEN003", where=lambda facts: facts.has("GEN001", "GEN004")
)
ONE_NUMBER = _finding("the evaluation is one number", "GEN005")
ONE_NUMBER_WHILE_IT_MOVES = _finding(
    "the evaluation is one number while the training moves",
    "GEN005",
    where=lambda facts: not facts.has("LOS005", "LOS006"),
)
ONE_NUMBER_AND_FLAT = _finding(
    "the evaluation is one number, and the training loss is flat",
    "GEN005",
    where=lambda facts: facts.has("LOS005", "LOS006"),
)
BELOW_CHANCE = _number("an accuracy ends below that of guessing", "accuracy", lambda facts: facts.below_chance)

# Gradients and the optimizer

GRADIENT_NAN = _finding("gradient norms are NaN or infinite", "GRD001")
GRADIENT_JUMPED = _finding("the gradient norm jumped", "GRD002")
GRADIENT_GREW = _finding("the gradient norm grew and stayed", "GRD004")
GRADIENT_ZERO = _finding("the gradient norm is exactly 0", "GRD003", "zero")
GRADIENT_FADES = _finding("the gradient norm vanishes", "GRD003", "faded", "along-the-depth")
GRADIENT_ZERO_BESIDE_THE_LOSS = _number(
    "the gradient norm is exactly 0 from the first point on, as the loss is",
    "grad_norm",
    lambda facts: facts.gradient_is_zero and facts.loss_is_zero,
)
GRADIENT_VANISHES = _number("a logged gradient norm is almost zero", "grad_norm", lambda facts: facts.gradient_vanishes)
GRADIENT_ZERO_WITH_REWARDS = _finding(
    "the gradient norm is exactly 0 in a run with rewards", "GRD003", "zero", where=lambda facts: facts.is_policy
)
SCALE_AT_MINIMUM = _finding(
    "the loss scale fell to almost zero",
    "AMP001",
    where=lambda facts: facts.finite_loss or not facts.has("LOS001"),
)
SCALE_FELL_WITH_NAN = _finding(
    "the loss scale fell, and the loss is not finite", "AMP001", where=lambda facts: facts.has("LOS001")
)
SCALE_FELL = _finding("the loss scale fell", "AMP001")
FEW_STEPS = _finding("only a handful of optimizer steps", "OPT001")
NAN_IN_MOMENTS = _finding("NaN in the optimizer's moments", "OPT002")
ALL_WITHOUT_GRADIENT = _finding(
    "no gradient ever reached any parameter",
    "OPT003",
    where=lambda facts: facts.measured("OPT003", "dead_tensors") == facts.measured("OPT003", "tensors"),
)
SOME_WITHOUT_GRADIENT = _finding("no gradient ever reached some parameters", "OPT003")


def _some_dead(facts: Facts) -> bool:
    dead, tensors = facts.measured("OPT003", "dead_tensors"), facts.measured("OPT003", "tensors")
    if dead is None or tensors is None or facts.first_layer_is_blind or facts.weights_are_tiny:
        return False
    return dead < tensors and not any("lora_" in one for one in facts.names("OPT003", "dead"))


SOME_DEAD = _finding("no gradient ever reached some parameters, while others train", "OPT003", where=_some_dead)
INPUTS_ZERO = _finding(
    "the first layer had no gradient, its bias had: the inputs are 0",
    "OPT003",
    where=lambda facts: facts.first_layer_is_blind,
)
OTHERS_WITHOUT_GRADIENT = _finding(
    "other layers have no gradient", "OPT003", where=lambda facts: not facts.first_layer_is_blind
)
ZERO_LOSS_WITHOUT_GRADIENT = _finding(
    "no gradient reached the parameters, and the loss is 0", "OPT003", where=lambda facts: facts.loss_is_zero
)
NOT_IN_OPTIMIZER = _finding("parameters have no place, state or rate in the optimizer", "OPT004")
GRADIENTS_AGREE = _finding("Adam's gradients all point the same way", "OPT005")
HARDLY_MOVED = _finding("all steps together barely move the weights", "OPT006")
HARDLY_MOVED_OF_USUAL_WEIGHTS = _finding(
    "all steps together barely move the weights, which are of a usual size",
    "OPT006",
    where=lambda facts: not facts.has("WGT004") and not facts.rate_is_beyond,
)
STEP_LARGE = _finding("a step is a large part of the weights", "OPT007", where=lambda facts: not facts.weights_are_tiny)
STEP_LARGE_OF_NOTHING = _finding(
    "steps are many times the weights, which are almost zero",
    "OPT007",
    where=lambda facts: facts.weights_are_tiny,
)


def names_first_layer(facts: Facts) -> bool:
    """Whether the large inputs are those of the first layer."""
    layer = str(facts.found["OPT009"].details.get("layer", "")) if facts.has("OPT009") else ""
    return bool(layer) and bool(facts.first_layer) and facts.first_layer.startswith(layer)


INPUTS_LARGE = _finding("the first layer's inputs are large", "OPT009", where=names_first_layer)
INPUTS_HUGE = _finding(
    "the first layer's inputs have a root mean square of 500 or more",
    "OPT009",
    where=lambda facts: names_first_layer(facts) and (facts.measured("OPT009", "input_rms") or 0.0) >= _HUGE_INPUTS,
)
INPUTS_LARGE_AFTER_A_USUAL_START = _finding(
    "the first layer's inputs are large, though the loss began as usual",
    "OPT009",
    where=lambda facts: names_first_layer(facts) and not facts.has("LOS009"),
)
LATER_INPUTS_LARGE = _finding(
    "the inputs of a later layer are large", "OPT009", where=lambda facts: not names_first_layer(facts)
)
EPSILON_RULES = _finding("epsilon rules the steps", "OPT010")


def gradient_is_nothing(facts: Facts) -> bool:
    """Whether gradients are so small that an epsilon that is usual rules the steps, and neither a clip nor inputs of 0
    make them so.
    """
    epsilon = facts.settings.epsilon
    if facts.clip_is_tiny or facts.first_layer_is_blind:
        return False
    return facts.has("OPT010") and epsilon is not None and epsilon <= _USUAL_EPSILON


GRADIENT_BELOW_EPSILON = _number("gradients are below a usual epsilon", "OPT010", gradient_is_nothing)


def uses_little_of_the_gradient(facts: Facts) -> bool:
    """Whether the gradients that SGD took are almost zero, though weights and learning rate are usual.

    If gradient norms were logged, the gradients must also be a hundredth of those or less.
    """
    used, logged = facts.gradient_used, facts.gradient_logged
    if used is None or used > _TINY_GRADIENT or facts.weights_are_tiny or facts.rate_is_tiny or facts.rate_is_beyond:
        return False
    return logged is None or used <= _MUCH_LESS * logged or logged <= _TINY_GRADIENT


def _logs_little(facts: Facts) -> bool:
    """Whether the logged norms are almost zero and a clip is known, though the loss is not."""
    logged, loss = facts.gradient_logged, facts.loss
    tiny = logged is not None and 0.0 < logged <= facts.limit("OPT014", "least_clip")
    known = tiny and loss is not None and loss.end.value > _TINY_GRADIENT and not facts.weights_are_tiny
    return known and facts.settings.clip is not None


SGD_TOOK_LITTLE = _number("SGD took almost nothing of the gradients", "first moments", uses_little_of_the_gradient)
NORMS_AT_THE_CLIP = _number(
    "gradients are clipped, and the logged norms are almost zero while the loss is not", "grad_norm", _logs_little
)
NOT_LEARNT_THOUGH_IT_COULD = _number(
    "the model guesses, though gradients reached every parameter at a usual learning rate",
    "OPT003",
    lambda facts: facts.is_stuck and facts.gradients_arrive and facts.rate_is_usual,
)
UPDATES_MISSING = _finding("the optimizer counts fewer updates than steps were done", "RUN001", "updates-missing")
STATE_LOST = _finding(
    "the optimizer counts fewer updates than steps were done, and its loss scale is sound",
    "RUN001",
    "updates-missing",
    where=lambda facts: not facts.has("AMP001"),
)

# Weights

NAN_IN_WEIGHTS = _finding("NaN in the weights", "WGT001", where=lambda facts: not facts.one_tensor_is_broken)
ONE_TENSOR_BROKEN = _number(
    "one tensor is broken, and training never saw it", "WGT001", lambda facts: facts.one_tensor_is_broken
)


def _some_unchanged(facts: Facts) -> bool:
    share = facts.unchanged_share
    return share is not None and share < _WHOLE and not facts.rate_is_beyond and not facts.weights_are_tiny


HEAD_NOT_SAVED = _finding("an adapter for classification was saved without a head", "WGT008")
SOME_UNCHANGED = _finding("some tensors did not change between checkpoints", "WGT002", where=_some_unchanged)
NONE_CHANGED = _finding(
    "no tensor changed between checkpoints", "WGT002", where=lambda facts: facts.unchanged_share == _WHOLE
)
UNITS_WITHOUT_GRADIENT = _finding(
    "units never had a gradient", "WGT003", where=lambda facts: not facts.first_layer_is_blind
)
WEIGHTS_UNUSUAL = _finding("the weights have an unusual size", "WGT004")
WEIGHTS_TINY = _finding("the weights are almost zero", "WGT004", where=lambda facts: facts.weights_are_tiny)
WEIGHTS_HUGE = _finding(
    "the weights are many times their usual size", "WGT004", where=lambda facts: facts.weights_are_huge
)
WEIGHTS_GREW = _finding(
    "the weights grew more than hundredfold",
    "WGT004",
    where=lambda facts: (facts.measured("WGT004", "scale") or 0.0) > _GROWN_WEIGHTS and facts.has("LOS009"),
)
SEVERAL_INITIAL = _finding(
    "several tensors that were stepped are what layers begin with",
    "WGT005",
    where=lambda facts: (facts.measured("WGT005", "initial") or 0.0) > 1.0,
)
ONE_INITIAL = _finding(
    "a tensor is what layers begin with",
    "WGT005",
    where=lambda facts: (facts.measured("WGT005", "initial") or 0.0) <= 1.0,
)
STATISTICS_IDLE = _finding("normalisations never saw a batch", "WGT006")
ADAPTER_HOLLOW = _finding(
    "the adapter's file holds tensors without a value, or none",
    "WGT007",
    where=lambda facts: (
        (facts.measured("WGT007", "empty") or 0.0) > 0.0 or facts.measured("WGT007", "adapters") is None
    ),
)
ADAPTER_IDLE = _finding(
    "the second matrix of every adapter is still 0",
    "WGT007",
    where=lambda facts: (
        (facts.measured("WGT007", "idle") or 0.0) > 0.0
        and facts.measured("WGT007", "idle") == facts.measured("WGT007", "adapters")
    ),
)


def _of_the_adapter(code: str, key: str) -> Callable[[Facts], bool]:
    """Whether a finding names half of the adapter's tensors or more."""

    def half(facts: Facts) -> bool:
        named = [one for one in facts.names(code, key) if "lora_" in one]
        weights = facts.evidence.weights
        total = sum("lora_" in one.name for one in weights.tensors) if weights is not None else len(named)
        return total > 0 and len(named) >= _HALF_OF_AN_ADAPTER * total

    return half


ADAPTER_WITHOUT_GRADIENT = _finding(
    "no gradient reached half of the adapter or more", "OPT003", where=_of_the_adapter("OPT003", "dead")
)
ADAPTER_WITHOUT_STATE = _finding(
    "half of the adapter or more has no state", "OPT004", where=_of_the_adapter("OPT004", "missing")
)
_adapter_unchanged = _of_the_adapter("WGT002", "unchanged")
ADAPTER_UNCHANGED = _finding(
    "half of the adapter or more did not change",
    "WGT002",
    where=lambda facts: _adapter_unchanged(facts) and not facts.rate_is_zero,
)

# Layers, as hooks saw them

LAYER_NAN = _finding("NaN in a layer", "GAP001")
LAYER_DEAD = _finding("activations are 0 throughout", "GAP002")
LAYER_SATURATED = _finding("activations are saturated", "GAP003")
LAYERS_VANISH = _finding("gradients vanish along the depth", "GAP004")
LAYERS_EXPLODE = _finding("activations or gradients explode along the depth", "GAP005")
LAYER_WITHOUT_GRADIENT = _finding("layers without gradients", "GAP006")

# The schedule, the plan and the end

RATE_MOVES_NOTHING = _finding("a logged learning rate is so small that nothing moves", "LRS003")
SCHEDULE_OFF = _number(
    "the schedule of the learning rate does not fit the run",
    "schedule",
    lambda facts: facts.has("LRS001", "LRS004", "LRS005", "LRS006"),
)
PLAN_NOT_DONE = _finding(
    "the plan was not done, and the loss came down as far as it went",
    "RUN001",
    "unfinished",
    where=lambda facts: facts.headed.isdisjoint(_WORSE_THAN_SHORT),
)


def ended(facts: Facts, how: Ended) -> bool:
    """Whether the run ended in this way, and that was found bad."""
    return any(one.measured.get("ended") == str(how) for code in ENDS if (one := facts.found.get(code)) is not None)


ENDS = ("RUN003", "RUN004")


def _says(facts: Facts, *words: str) -> bool:
    """Whether the cause that the console gives for the end, or its last line, has one of these words."""
    said = " ".join(
        str(facts.found[code].details.get(key, "")) for code in ENDS if code in facts.found for key in ("cause", "text")
    ).lower()
    return any(word in said for word in words)


MEMORY_OUT = Sign(
    name="it ended for lack of memory",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: (
        ended(facts, Ended.OUT_OF_MEMORY) or _says(facts, "out of memory", "memoryerror", "cannot allocate memory")
    ),
)
COLLECTIVE_FAILED = Sign(
    name="its console ends with a failed collective operation",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: _says(facts, "collective operation", "nccl", "connection reset by peer", "gloo"),
)
LOADER_DIED = Sign(
    name="its console ends with a dead data loader",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: _says(facts, "data loader worker", "dataloader worker"),
)
DISK_FULL = Sign(
    name="its console ends with a full disk",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: _says(facts, "no space left", "disk quota exceeded"),
)
EXCEPTION_SAYS_NAN = Sign(
    name="the exception that ended it says NaN",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: facts.says_nan(),
)
EXCEPTION_SAYS_SCALE = Sign(
    name="the exception that ended it says loss scale",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: _says(facts, "loss scale"),
)
TIME_UP = Sign(
    name="its console says that its time was up",
    kind="finding",
    looks_at="RUN003",
    seen=lambda facts: _says(facts, "time was up", "time limit"),
)
PREEMPTED = Sign(
    name="its console or its tracker says that it was preempted",
    kind="finding",
    looks_at="RUN003",
    seen=lambda facts: ended(facts, Ended.PREEMPTED) or _says(facts, "preempt"),
)
INTERRUPTED = Sign(
    name="its console says that it was interrupted or cancelled",
    kind="finding",
    looks_at="RUN003",
    seen=lambda facts: _says(facts, "keyboardinterrupt", "interrupted", "cancelled") and not TIME_UP.seen(facts),
)
FAILED = Sign(
    name="it failed with an error of its own",
    kind="finding",
    looks_at="RUN004",
    seen=lambda facts: ended(facts, Ended.FAILED),
)
SLOW_RANK = _finding("one rank is slower than all others, to the end", "SYS004")
HUNG = _finding("ranks waited in a collective operation until its time was up, or ran different ones", "RUN006")

# Policies and preferences


def reward_stands(facts: Facts) -> bool:
    """Whether a reward is one number throughout; of a policy that acts, 0: any other may be what a stuck one earns."""
    series = [one.finite().values for role in _REWARDS if (one := facts.evidence.find(role)) is not None]
    still = [values for values in series if len(values) > 2 and float(min(values)) == float(max(values))]
    return any(not is_control(facts.evidence) or not values.any() for values in still)


REWARD_LOST = _finding("the reward did not rise, or was lost", "RWD001")
REWARD_HAD_RISEN = _finding("the reward had risen, and was lost", "RWD001", "lost")
NO_SPREAD = _finding(
    "groups of answers had no spread of rewards, from the beginning on",
    "RWD002",
    where=lambda facts: not facts.groups_differed_at_first,
)
ENTROPY_LEFT = _finding("the policy's entropy collapsed or exploded", "RWD004")
ENTROPY_GONE = _finding("the policy's entropy collapsed", "RWD004", "collapsed")
CAME_APART = _finding("the policy came apart", "RWD004", "came-apart")
KL_LEFT = _finding("the policy's divergence left its course", "RWD005")
UPDATES_CLIPPED = _finding("most updates were clipped", "RWD006")
ANSWERS_CUT = _finding("answers were cut off", "RWD007", "cut")
GREW_INTO_THE_LIMIT = _finding(
    "answers grew into the limit, and the reward was not lost",
    "RWD007",
    "grew-into-the-limit",
    where=lambda facts: not facts.has("RWD001", "RWD003"),
)
OTHER_REWARD_FELL = _finding("the reward rose while another one stalled or fell", "RWD008")
PART_STANDS = _finding("the reward rose while a part of it stayed at the bottom", "RWD017")
GROUPS_AGREE = _finding(
    "most groups of answers have no spread, from the beginning on",
    "RWD018",
    where=lambda facts: not facts.groups_differed_at_first,
)
POLICY_STILL = _finding("no update moved the policy", "RWD011")
POLICY_STILL_IN_CONTROL = _finding(
    "no update moved a policy that acts", "RWD011", where=lambda facts: is_control(facts.evidence)
)
VALUES_BEYOND = _finding("the loss of values is out of reach", "RWD016")
VALUES_EXPLODED = _finding("the loss of values exploded", "LOS021", where=lambda facts: facts.is_policy)
MARGIN_STANDS = _finding("the margin is one number throughout", "RWD009", "no-effect")
PAIRS_SWAPPED = _finding("held-out pairs are preferred the wrong way", "RWD009", "held-out-reversed")
PAIRS_BY_CHANCE = _finding("held-out pairs are preferred as by chance", "RWD009", "held-out-by-chance")
REJECTED_PREFERRED = _finding("rejected answers are preferred", "RWD009", "rejected-preferred")
REWARD_STANDS = _number("the reward is one number throughout", "reward", reward_stands)
REWARD_ONLY_FELL = _number("the reward only ever fell", "reward", lambda facts: facts.reward_never_rose)
ALL_CUT = _number(
    "nearly all answers are cut off, from the beginning on", "cut_share", lambda facts: facts.answers_are_cut
)
POLICY_NEVER_MOVED = _number("gradients came, and the policy never moved", "kl", lambda facts: facts.nothing_moved)
ANSWERS_ALIKE = _number(
    "chosen and rejected answers are equally likely", "logps", lambda facts: facts.answers_are_the_same
)
SOMETHING_ELSE_MOVED = _number(
    "the policy's divergence, entropy or answers left their course", "policy", lambda facts: facts.something_else_moved
)

# What a run costs

WAITS_FOR_DATA = _finding("most of a step's time is spent on data", "SYS001", "data")
SLOWED = _finding("steps take longer from some point on, to the end", "SYS005")
SLOWER_BY_DATA = _number(
    "most of what steps take longer is time for data",
    "data_time",
    lambda facts: (facts.measured("SYS005", "data_share") or 0.0) >= _MOSTLY,
)
MEMORY_CREEPS = _finding("memory rises steadily, to the end", "SYS002")
MEMORY_CREPT_OUT = _number(
    "memory rose steadily, and the run ended for lack of it",
    "memory",
    lambda facts: facts.has("SYS002") and MEMORY_OUT.seen(facts),
)
