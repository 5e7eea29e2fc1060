"""Loss not finite."""

from __future__ import annotations

from tracker_health.diagnosis._base import Cause, codes, finding, measure
from tracker_health.diagnosis._facts import Facts, first_of
from tracker_health.words.diagnosis import Action

_HARM = ("LOS001", "LOS002", "GRD001", "GAP001")


class NonFiniteLoss(Cause):
    """The loss or a gradient became NaN or infinite.

    One NaN reaches every weight within a step or two. Whatever was trained afterwards is lost.
    """

    name = "non-finite-loss"
    title = "The training became NaN or infinite"
    explains = codes("LOS001 LOS002 LOS005 GEN001 GEN003 GEN004 GEN005 GRD001 OPT002 WGT001 AMP001 GAP001")
    signs = (
        finding("LOS001", 4, "a loss is NaN or infinite", lambda facts: not facts.only_validation_is_nonfinite),
        finding(
            "LOS002", 5, "the loss is exactly 0 where the gradient is not finite", lambda facts: not facts.loss_is_zero
        ),
        finding("GRD001", 1, "gradient norms are NaN or infinite"),
        finding("GAP001", 3, "NaN in a layer"),
        finding("OPT002", 3, "NaN in the optimizer's moments"),
        finding("WGT001", 2, "NaN in the weights"),
        measure("one tensor is broken, and training never saw it", "WGT001", lambda f: f.one_tensor_is_broken, -3),
        measure("the loss had grown tenfold before", "loss", lambda facts: facts.grew_before_nan, -4),
        measure("the loss rose from the beginning on", "loss", lambda facts: facts.rises_throughout, -3),
    )
    test = "run the step before with torch.autograd.set_detect_anomaly(True)"

    def sentence(self, facts: Facts) -> str:
        step = first_of(map(facts.onset, _HARM))
        if step is None:
            return super().sentence(facts)
        if facts.nonfinite_for_a_while:
            return f"The loss is NaN or infinite {facts.nonfinite_for_a_while}"
        what = "loss" if facts.has("LOS001", "LOS002") else "gradient"
        before = "" if not _from_the_start(facts) else ", its very first value"
        last = _last_step(facts)
        after = f", and training went on to step {last}" if last is not None and last > step else ""
        return f"The {what} is NaN or infinite from step {step} on{before}{after}"

    def action(self, facts: Facts) -> Action:
        onset, step = facts.went_wrong(_HARM), first_of(map(facts.onset, _HARM))
        if _from_the_start(facts):
            return Action(text="look for NaN in the inputs and the initial weights: the very first value is not finite")
        if facts.nonfinite_for_a_while:
            return Action(
                text=f"look at the batch of step {step}: was its update skipped? Then nothing has to be undone"
            )
        if step is None:
            return Action(
                text="go back to the last checkpoint with finite weights, and look at the batch that came next"
            )
        where = onset.where if onset is not None else f"step {step}"
        text = f"restart from the last checkpoint before {where}; look at the batch of that step, and clip gradients"
        return Action(text=text, setting="max_grad_norm", old=facts.settings.clip, new=1.0)


def _from_the_start(facts: Facts) -> bool:
    series = facts.evidence.find("train_loss")
    values = series.clean().values if series is not None else None
    return bool(values is not None and len(values) and not abs(float(values[0])) < float("inf"))


def _last_step(facts: Facts) -> int | None:
    series = facts.evidence.find("train_loss")
    return int(series.steps[-1]) if series is not None and len(series) else None
