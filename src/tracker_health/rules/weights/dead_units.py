"""WGT003."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tracker_health.evidence import Evidence, Need, Parameter, Part
from tracker_health.report.result import Finding
from tracker_health.rules.probe import Probe, Symptom, Threshold
from tracker_health.text import count, listing, percent
from tracker_health.words.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class DeadUnits(Probe):
    """Half of a layer's units never get a gradient.

    What it finds:
        Matrices in which at least half of the rows (one per output unit) have a second moment of exactly 0.

    Why it matters:
        A unit whose gradient was 0 in every step is never active: the layer is smaller than it looks. Rectified units
        die after a step that was too large, or were dead from the start. They do not recover.

    How it decides:
        Per matrix with `min_units` rows or more and at least `min_steps` steps. Warn when a share of `dead_share` of
        the rows holds nothing but zeros. A row is a unit where another matrix takes so many inputs, or a name says that
        gates are joined. Exempt are embeddings, output layers, experts and, as OPT003 finds it, what is silent as a
        whole: `silent`. Without names, matrices of the shape of an embedding or an output layer are left out, or those
        with more rows than columns.

    Known limits:
        Needs second moments by rows. A layer that was half pruned on purpose looks the same. So does a table without a
        telling name that has as many rows as a layer takes inputs. Layers whose outputs are joined with others' before
        the next layer are not seen.

    Worked example:
        optimizer fc1.weight 8x2: step=100 exp_avg=0*10,0.01*6 exp_avg_sq=0*10,1e-3*6
        optimizer fc2.weight 2x8: step=100 exp_avg=0.01*16 exp_avg_sq=1e-3*16
        gives: layers_with_dead_units 1, largest_share 0.625
        warn: 10 zeros fill 5 of 8 rows, which are units, as fc2 takes 8 inputs; 5 / 8 is above `dead_share`.

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

    silent: Annotated[
        float, Threshold("share of zeros that makes a matrix dead as a whole", "fraction", "design", gt=0, le=1)
    ] = 0.999

    @property
    def needs(self) -> tuple[Need, ...]:
        return (
            Need(role=Part.SECOND_MOMENTS),
            Need(role=Part.OPTIMIZER_STATE, min_points=self.min_steps, unit="optimizer_steps"),
            Need(role=Part.WEIGHTS, optional=True),
        )

    def judge(self, evidence: Evidence) -> Finding:
        known = ((self._dead_share(one), one.label) for one in evidence.parameters.units)
        shares = [(share, label) for share, label in known if share is not None]
        if not shares:
            return Finding(verdict=Verdict.SKIP, message="no layer's second moments are known by rows")
        dead = sorted((pair for pair in shares if pair[0] >= self.dead_share), key=lambda pair: -pair[0])
        worst = max(share for share, _ in shares)
        measured = {"layers": len(shares), "layers_with_dead_units": len(dead), "largest_share": worst}
        if not dead:
            message = f"at most {percent(worst)} of a layer's units never had a gradient"
            return Finding(verdict=Verdict.PASS, message=message, measured=measured)
        names = [label for _, label in dead]
        has = "has" if len(dead) == 1 else "have"
        return Finding(
            verdict=Verdict.WARN,
            message=f"{len(dead)} of {count(len(shares), 'layer')} {has} units that never had a gradient, up to "
            f"{percent(worst)} of them: {listing(names)}",
            remedy="lower the learning rate, lengthen the warm-up, use a leaky activation, look at the initial bias",
            measured=measured,
            details={"layers": names[:100]},
        )

    def _dead_share(self, row: Parameter) -> float | None:
        """The share of rows that are 0; None for a matrix that is not judged."""
        moment, shape = row.moment, row.shape or (0,)
        if moment is None or moment.zero_rows is None or shape[0] < self.min_units:
            return None
        too_early = row.steps is not None and not row.steps >= self.min_steps
        if too_early or moment.nonfinite or row.silent_share >= self.silent:
            return None
        return moment.zero_rows / shape[0]
