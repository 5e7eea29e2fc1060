"""WGT005."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Parameter, ParameterTable, Part
from tracker_health.evidence.parameters.still_initial import (
    WIDE_MARGIN,
    can_tell,
    had_gradients,
    were_rounded,
    would_show,
)
from tracker_health.facts.descent import descent
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class InitialWeights(Probe):
    """Weights that are what training began with, though the optimizer steps them.

    What it finds:
        Tensors whose values are all still those of a fresh initialisation, although the optimizer has done steps on
        parameters of that name and shape.

    Why it matters:
        Either other weights were saved than those that were trained, or the steps went to a copy. The checkpoint is
        worthless, whatever the loss says.

    How it decides:
        A vector begins as nothing but ones or zeros, a matrix uniform within a known bound; training moves values
        across it. Fail where such tensors had `min_steps` steps with gradients that would show: two tensors, or a
        matrix with a wide margin. Where steps might not show, fail if half of the matrices, two at least, are such
        ones. The loss has to have fallen by `learnt` meanwhile, in `long_run` steps and most of the log.

    Known limits:
        Normal initialisation leaves no trace in matrices. Then only normalisations and biases can show it. The weights
        must be in single or double precision, never rounded to half precision, and read in full. The optimizer must
        have moments. Without names in the optimizer, all tensors of a shape have to be as they began. OPT004 covers a
        group without a learning rate.

    Worked example:
        group: lr=0.001
        optimizer norm.weight 4: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        optimizer norm.bias 4: step=100 exp_avg=0.01*4 exp_avg_sq=1e-3*4
        weights norm.weight 4: 1*4
        weights norm.bias 4: 0*4
        gives: initial 2, stepped 2
        fail: a step of about 0.001 would move each of 8 values, yet all are exactly 1 or 0.

    What to do:
        Compare `id(parameter)` in the optimizer with the model's, and look at what is saved, and when.

    References:
        torch.nn.init; the largest of n uniform values is n / (n + 1) of the bound on average.
    """

    code = "WGT005"
    name = "initial-weights"
    symptom = Symptom.FROZEN
    headline = ("initial",)

    min_steps: Annotated[int, Threshold("optimizer steps needed", "steps", "design", ge=1)] = 10
    learnt: Annotated[
        float, Threshold("fall of the loss that no fresh weights have", "fraction", "design", gt=0, le=1)
    ] = 0.1
    long_run: Annotated[
        int, Threshold("steps in which a loss falls by more than chance", "steps", "design", ge=1)
    ] = 50  # fmt: skip

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.WEIGHTS),
            Need(role=Part.OPTIMIZER_STATE, unit="optimizer_steps"),
            Need(role="train_loss", optional=True),
            Need(role="learning_rate", optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        table, done = evidence.parameters, evidence.steps_at_least.steps
        if were_rounded(one for one in table.with_weight if one.is_parameter):
            return Finding(verdict=Verdict.SKIP, message="the weights are numbers of half precision")
        stepped = [
            one
            for one in table.with_state
            if had_gradients(one)
            and (done if one.steps is None else one.steps) >= self.min_steps
            and (of := table.weights_of(one))
            and can_tell(of)
        ]
        if not stepped:
            return Finding(verdict=Verdict.SKIP, message="no parameter that is stepped has weights that would show it")
        begun = [one for one in stepped if all(other.is_begun for other in table.weights_of(one))]
        begun = [one for one in begun if one.state is not None and one.state.group not in table.idle_groups]
        stuck = [one for one in begun if would_show(one, table.weights_of(one))]
        matrices = sum(one.is_matrix for one in begun)
        if _are_sure(stuck, table):
            return _finding(stuck, len(stepped), "")
        if matrices > 1 and 2 * matrices >= sum(one.is_matrix for one in stepped) and self._has_learnt(evidence):
            return _finding(begun, len(stepped), ", while the loss fell,")
        message = f"{len(stepped) - len(stuck)} of {count(len(stepped), 'tensor')} left what layers begin with"
        measured = {"initial": len(stuck), "stepped": len(stepped)}
        return Finding(verdict=Verdict.PASS, message=message, measured=measured)

    def _has_learnt(self, evidence: Evidence) -> bool:
        """Whether the loss fell for sure, so that some weights moved, and not after this checkpoint alone."""
        loss, came, state = evidence.find("train_loss"), descent(evidence), evidence.optimizer
        if loss is None or state is None or came is None or not came.sure or came.share < self.learnt:
            return False
        return (state.steps or 0) >= max(self.long_run, int(loss.steps[-1]) // 2)


def _are_sure(stuck: Sequence[Parameter], table: ParameterTable) -> bool:
    if len(stuck) != 1:
        return len(stuck) > 1
    return stuck[0].is_matrix and would_show(stuck[0], table.weights_of(stuck[0]), WIDE_MARGIN)


def _finding(some: Sequence[Parameter], stepped: int, meanwhile: str) -> Finding:
    labels, are = [one.label for one in some], "is" if len(some) == 1 else "are"
    return Finding(
        verdict=Verdict.FAIL,
        message=f"{count(len(some), 'tensor')} that the optimizer stepped{meanwhile} {are} what layers begin with, to "
        f"the last value: {listing(labels)}",
        remedy="save the model that the optimizer steps: look for a copy, a model made again, or a file that was "
        "written before training",
        measured={"initial": len(some), "stepped": stepped},
        details={"initial": labels[:200]},
    )
