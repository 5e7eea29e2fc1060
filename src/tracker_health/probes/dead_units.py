"""WGT003."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Part, TensorState, Weights
from tracker_health.evidence.parameters.words import expert_of
from tracker_health.probe import Probe, Symptom, Threshold
from tracker_health.result import Finding
from tracker_health.text import listing
from tracker_health.verdict import Verdict

_SPARSE = re.compile(
    r"(^|[._])(emb|embed|embedding|embeddings|tok|token|tokens|wte|wpe|pos|position|positions|codebook|lm_head|head"
    r"|classifier|score|logits|output_layer|relative_attention_bias|relative_position_bias_table)([._0-9]|$)"
)
_JOINED = re.compile(r"weight_[ih]h|gate|glu|in_proj|qkv")
_SILENT = 0.999  # what NoGradient calls dead as a whole


@dataclass(frozen=True, kw_only=True)
class DeadUnits(Probe):
    """Half of a layer's units never get a gradient.

    What it finds:
        Matrices of which at least half of the rows, one for each output unit, have a second moment of exactly 0.

    Why it matters:
        A unit whose gradient was 0 in every step is never on: the layer is smaller than it looks. Rectified units die
        of a step that was too large, or were born dead, and do not come back.

    How it decides:
        Per matrix with `min_units` rows or more and at least `min_steps` steps: warn when a share of `dead_share` of
        the rows holds nothing but zeros. A row is a unit where another matrix takes so many inputs (of filters, or a
        multiple: each has a map of features), or where a name tells of joined gates: rows of a table that were never
        looked up, of an output layer, or that a coupling masks, are none. Exempt are embeddings (of tokens, positions,
        distances) and output layers by name, experts of a mixture, and matrices that are zero as a whole, which
        no-gradient tells of. Where the optimizer has no names, a matrix is left out that has the shape of an embedding
        or output layer in the weights beside it, or, without these, more rows than columns.

    Known limits:
        Needs second moments by rows. A layer of which half was pruned on purpose looks the same, and so does a table
        without a telling name of as many rows as a layer takes inputs. Of layers whose outputs are joined with others'
        before they are taken nothing is seen.

    What to do:
        Lower the learning rate or lengthen the warm-up, use a leaky activation (GELU, SiLU, LeakyReLU), and look at the
        initial biases.

    References:
        Maas et al. (2013), rectifier nonlinearities; Lu et al. (2019), dying ReLU and initialization.
    """

    code = "WGT003"
    name = "dead-units"
    symptom = Symptom.DEAD
    headline = ("layers_with_dead_units",)

    dead_share: Annotated[float, Threshold("share of rows that are all 0", "fraction", "design", gt=0, le=1)] = 0.5
    min_units: Annotated[int, Threshold("rows that a layer must have", "rows", "design", ge=2)] = 8
    min_steps: Annotated[int, Threshold("optimizer steps before a zero means something", "steps", "design", ge=1)] = 100

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        state = evidence.optimizer
        sparse, taken = _sparse_shapes(evidence.weights), _inputs(evidence)
        shares = [
            (share, one)
            for one in (state.with_second_moment if state is not None else ())
            if not _is_sparse(one, sparse) and (share := self._dead_share(one)) is not None and _are_taken(one, taken)
        ]
        if not shares:
            return Finding(verdict=Verdict.SKIP, message="no layer's second moments are known by rows")
        dead = sorted((pair for pair in shares if pair[0] >= self.dead_share), key=lambda pair: -pair[0])
        worst = max(share for share, _ in shares)
        measured = {"layers": len(shares), "layers_with_dead_units": len(dead), "largest_share": worst}
        if not dead:
            message = f"at most {worst:.0%} of a layer's units never had a gradient"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        names = [one.label for _, one in dead]
        what = "layer has" if len(dead) == 1 else "layers have"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{len(dead)} of {len(shares)} {what} units that never had a gradient, up to {worst:.0%} of them: "
            f"{listing(names)}",
            remedy="lower the learning rate, lengthen the warm-up, use a leaky activation, look at the initial bias",
            measured=measured,
            details={"layers": names[:100]},
        )

    def _dead_share(self, tensor: TensorState) -> float | None:
        """The share of rows that are 0; None for a tensor that is not judged."""
        moment = tensor.second_moment
        if moment is None or moment.zero_rows is None or len(tensor.shape) < 2 or tensor.shape[0] < self.min_units:
            return None
        too_early = tensor.step is not None and not tensor.step >= self.min_steps
        if too_early or moment.nonfinite or moment.zeros >= _SILENT * moment.count:
            return None
        return moment.zero_rows / tensor.shape[0]


def _sparse_shapes(weights: Weights | None) -> set[tuple[int, ...]] | None:
    """The shapes of the tensors whose rows need not all be seen; None where no weights tell."""
    if weights is None:
        return None
    return {one.shape for one in weights.tensors if _SPARSE.search(one.name.lower()) or expert_of(one.name)}


def _are_taken(tensor: TensorState, taken: Counter[int]) -> bool:
    """Whether another matrix takes as many inputs as there are rows. Of filters each has a map of many places, and
    gates are joined before they are taken.
    """
    rows, own = tensor.shape[0], tensor.shape[1]
    if taken[rows] > (own == rows) or _JOINED.search((tensor.name or "").lower()):
        return True
    return len(tensor.shape) > 2 and any(inputs % rows == 0 for inputs in taken)


def _inputs(evidence: Evidence) -> Counter[int]:
    """How many inputs the matrices take, and how many of them those: of the optimizer's state, and of the weights."""
    found: Counter[int] = Counter()
    for known in (evidence.optimizer, evidence.weights):
        shapes = [one.shape for one in known.tensors] if known is not None else []
        found |= Counter(shape[1] for shape in shapes if len(shape) > 1 and shape[1] > 0)
    return found


def _is_sparse(tensor: TensorState, shapes: set[tuple[int, ...]] | None) -> bool:
    """Whether rows of zeros are to be expected."""
    if tensor.name is not None:
        return expert_of(tensor.name) is not None or bool(_SPARSE.search(tensor.name.lower()))
    if shapes is None:
        return len(tensor.shape) >= 2 and tensor.shape[0] > tensor.shape[1]
    return tensor.shape in shapes
