"""What is said where nothing shows the cause: the fact, and the checks that would tell most, in their order."""

from __future__ import annotations

from tracker_health.diagnosis._actions import around, is_logged, restart, with_clip
from tracker_health.diagnosis._cause import Cause, codes
from tracker_health.diagnosis._facts import Facts
from tracker_health.text import setting
from tracker_health.words.diagnosis import Action

_STAYED = ("LOS001", "LOS004", "GRD004")
_CHECKS = 3


def _after_a_divergence(facts: Facts) -> Action:
    """Go back; then the learning rate, the gradients and the batches, each as far as it was not logged."""
    rate = facts.settings.rate
    lower = f"train on at a third of the learning rate of {setting(rate)}" if rate else "log the learning rate"
    norm = "" if is_logged(facts, "grad_norm") else "log the gradient norm of every step"
    batches = f"look at the batches{around(facts)}"
    return with_clip(facts, restart(facts, _STAYED), *[one for one in (lower, norm, batches) if one][: _CHECKS - 1])


def _of_the_gradients(facts: Facts) -> str:
    broke = facts.measured("LOS001", "first_step") if facts.diverged_before_nan else None
    then = f"it was NaN from {facts.at(broke)} on; " if broke is not None else ""
    if facts.grew_before_nan:
        then = "it had grown tenfold before; "
    if not facts.has("GRD004", "GRD002") or facts.head_code in ("GRD004", "GRD002"):
        return f"{then}nothing logged shows why"
    gradient, loss = facts.went_wrong(("GRD004",)), facts.went_wrong(("LOS004",))
    first = gradient is not None and loss is not None and gradient.step < loss.step
    grew = f"the gradient norm grew {'before it' if first else 'with it'}"
    return f"{then}{grew}, and what set it off was not logged"


DIVERGED_CAUSE_UNKNOWN = Cause(
    name="diverged-cause-unknown",
    title="the training diverged, and nothing that was logged shows why",
    about="""The training left its course, and nothing that was logged shows why.
    A rate that is known and usual, or not known at all, is not blamed: to lower it is a check, not a remedy. What is
    left is to log more, and to look at the steps before.""",
    explains=codes(
        "LOS001 LOS003 LOS004 LOS005 LOS018 LOS006 LOS008 LOS101 GEN001 GEN004 GRD001 GRD002 GRD004 GAP005 OPT007 "
        "WGT004 AMP001 GEN009 LOS019 LOS021"
    ),
    says=_of_the_gradients,
    do=_after_a_divergence,
    test="log the learning rate and the gradient norm of every step, and go back to before it began",
    unknown=codes("LOS001 LOS002 LOS004 LOS101 GRD001 GRD004 GAP001 GAP005 OPT002 OPT007 WGT001 AMP001 LOS019 LOS021"),
)


def _after_spikes(facts: Facts) -> Action:
    """What came down again by itself asks for no other rate."""
    return with_clip(facts, f"look at the batches{around(facts)}")


SPIKES_CAUSE_UNKNOWN = Cause(
    name="spikes-cause-unknown",
    title="the loss left its level and came back, and nothing that was logged shows why",
    about="""The loss or its gradient left its level, and came back.
    A few batches, a rate at its limit and numbers of half precision look the same. A run that continues as before lost
    little.""",
    explains=codes("LOS003 LOS008 GRD002 GEN001 GEN004 GEN009"),
    says=lambda _: "nothing logged shows why",
    do=_after_spikes,
    test="print the largest input and the gradient norm of each batch around the jump",
    unknown=codes("LOS003 LOS008 GRD002"),
)


def _of_no_learning(facts: Facts) -> Action:
    if facts.head_code == "LOS009":
        return Action(
            text="print mean and deviation of every input, and the norm of every weight before the first step"
        )
    checks = [
        "overfit one batch: a model that cannot learn eight samples has a fault in its loss or its gradients",
        "" if facts.settings.rate else "log the learning rate",
        "" if is_logged(facts, "grad_norm") else "log the gradient norm",
        "look at ten samples with their labels, as the model gets them",
    ]
    return Action(text="; ".join([one for one in checks if one][:_CHECKS]))


NOT_LEARNING_CAUSE_UNKNOWN = Cause(
    name="not-learning-cause-unknown",
    title="nothing was learnt, and nothing that was logged shows why",
    about="""Nothing was learnt, and nothing that was logged shows why.
    A flat loss alone tells no rate from labels, gradients or inputs: all of them give the same curve.""",
    explains=codes(
        "LRS003 LOS005 LOS018 LOS006 LOS007 LOS009 LOS012 LOS015 GEN002 GEN003 GEN007 GEN005 GRD003 GAP002 "
        "GAP003 GAP004 GAP006 OPT003 OPT019 OPT004 OPT006 OPT009 OPT010 OPT014 OPT015 OPT016 OPT017 OPT018 "
        "WGT002 WGT003 WGT004 WGT005 WGT007 REG005"
    ),
    says=lambda _: "nothing logged shows why",
    do=_of_no_learning,
    test="overfit one batch of eight samples",
    unknown=codes(
        "LOS005 LOS018 LOS006 LOS007 LOS009 LOS012 LOS015 GEN002 GEN003 GEN007 GEN005 GRD003 GAP002 GAP003 "
        "GAP004 GAP006 OPT003 OPT019 OPT004 OPT005 OPT006 OPT009 OPT010 OPT014 OPT015 OPT016 OPT017 OPT018 "
        "WGT002 WGT003 WGT004 WGT005 WGT006 WGT007 REG005 LRS001 LRS003 LRS004 LRS005 LRS006"
    ),
)

_OF_PREFERENCES_AND_LENGTHS = ("RWD007", "RWD009")
"""What these find says more of what to do than that a reward was lost."""
_OF_A_POLICY = (
    "RWD001 RWD002 RWD003 RWD004 RWD005 RWD006 RWD007 RWD008 RWD009 RWD010 "
    "RWD011 RWD012 RWD013 RWD014 RWD015 RWD016 RWD017 RWD018 RWD019 RWD020"
)


def _of_a_reward(facts: Facts) -> Action:
    head = facts.found.get(facts.head_code)
    if head is not None and facts.head_code in _OF_PREFERENCES_AND_LENGTHS:
        return Action(text=head.remedy)
    checks = [
        restart(facts, ("RWD001",)),
        "watch ten episodes, or read ten answers, with their rewards",
        "" if is_logged(facts, "entropy") else "log the policy's entropy",
        "" if is_logged(facts, "kl") else "log its KL divergence",
    ]
    return Action(text="; ".join([one for one in checks if one][:_CHECKS]))


REWARD_CAUSE_UNKNOWN = Cause(
    name="reward-cause-unknown",
    title="the reward was not earned, or was lost, and nothing that was logged shows why",
    about="""The reward was not earned, or was lost, and nothing that was logged shows why.
    A reward that fell tells no wrong sign from a policy that moved too far or a task that changed.""",
    explains=codes(_OF_A_POLICY),
    says=lambda _: "nothing logged shows why",
    do=_of_a_reward,
    test="watch ten episodes, or read ten answers, with their rewards",
    unknown=codes(_OF_A_POLICY),
)

SCORE_CAUSE_UNKNOWN = Cause(
    name="score-cause-unknown",
    title="a held-out score was lost, and nothing that was logged shows why",
    about="""A held-out score was lost, and nothing that was logged shows why.
    A score that falls while the losses do not tells no overfitting from an evaluation that changed.""",
    explains=codes("GEN009"),
    says=lambda _: "nothing logged shows why",
    do="evaluate the best and the last checkpoint by hand, on the same samples; log the score of training samples",
    test="evaluate the best checkpoint again",
    unknown=codes("GEN008 GEN009 GEN010 GEN011 LOS020"),
)

CAUSES = (
    DIVERGED_CAUSE_UNKNOWN,
    SPIKES_CAUSE_UNKNOWN,
    NOT_LEARNING_CAUSE_UNKNOWN,
    REWARD_CAUSE_UNKNOWN,
    SCORE_CAUSE_UNKNOWN,
)
