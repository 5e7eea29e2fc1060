"""WGT002."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker_health.api import check
from tracker_health.evidence import Attribution, TensorHeader, WeightChange, Weights

CODE = "WGT002"


def names_of(layers=5):
    return [
        f"model.layers.{layer}.{role}" for layer in range(layers) for role in ("q.weight", "up.weight", "norm.weight")
    ]


def evidence_of(
    make,
    still,
    *,
    names=None,
    named=True,
    dtype="F32",
    group=None,
    silent=(),
    previous="checkpoint-100/m.safetensors",
    **more,
):
    """A model of which these tensors did not move. ``silent``: of them no gradient ever arrived."""
    names = names or names_of()
    shapes = {name: (8,) if "norm" in name else (8, 8) for name in names}
    headers = tuple(TensorHeader(name=name, shape=shape, dtype=dtype, rms=1.0) for name, shape in shapes.items())
    changes = tuple(
        WeightChange(name=name, rms=0.0 if name in still else 1e-3, unchanged=name in still) for name in names
    )
    tensors = [
        make.tensor(
            key,
            0.0 if name in silent else 1e-6,
            name=name.removeprefix("model.") if named else None,
            shape=shape,
            group=0,
        )
        for key, (name, shape) in enumerate(shapes.items())
    ]
    weights = Weights(source="checkpoint-200/m.safetensors", tensors=headers, previous=previous, changes=changes)
    state = make.state(*tensors, groups=({"lr": 1e-4} if group is None else group,), **more)
    return make.evidence(optimizer=state, weights=weights)


@pytest.mark.parametrize("named", [True, False])
def test_healthy(named, make, judge):
    result = judge(CODE, evidence_of(make, (), named=named))
    assert (result.verdict, result.message) == ("pass", "15 of 15 tensors changed since checkpoint-100/m.safetensors")


@pytest.mark.parametrize("named", [True, False])
def test_a_tensor_that_stands_still(named, make, judge):
    result = judge(CODE, evidence_of(make, {"model.layers.3.q.weight"}, named=named))
    assert result.verdict == "fail"
    assert "1 tensor in the optimizer did not change at all since checkpoint-100" in result.message
    assert result.details["unchanged"] == ["model.layers.3.q.weight"]


@given(still=st.sets(st.sampled_from(names_of())), silent=st.sets(st.sampled_from(names_of())), named=st.booleans())
def test_against_plain_python(still, silent, named, make, judge):
    result = judge(CODE, evidence_of(make, still, named=named, silent=silent))
    stuck = []
    matrices_stepped = not any("norm" not in name for name in silent)
    for name in names_of():
        layer, role = int(name.split(".")[2]), name.split(".", 3)[3]
        moved = [one for one in range(5) if f"model.layers.{one}.{role}" not in still]
        by_shape = "norm" not in name and matrices_stepped
        by_siblings = len(moved) >= 3 and min(moved) < layer
        if name in still and (name not in silent if named else by_shape or by_siblings):
            stuck.append(name)
    everything = len(still) == 15
    assert result.verdict == ("warn" if everything else "fail" if stuck else "pass")
    assert result.measured["unchanged"] == (15 if everything else len(stuck))


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_steps_that_are_rounded_away(dtype, make, judge):
    """A norm's ones in bfloat16 need a change of 1/256 to become another number; a whole matrix hardly stands still."""
    norms = {name for name in names_of() if "norm" in name}
    assert judge(CODE, evidence_of(make, norms, dtype=dtype)).verdict == "pass"
    result = judge(CODE, evidence_of(make, {"model.layers.2.up.weight"}, dtype=dtype))
    assert result.verdict == "warn"
    assert "rounded away" in result.message
    assert "float32" in result.remedy


def test_near_misses(make, judge):
    still = {"model.layers.3.q.weight"}
    assert judge(CODE, evidence_of(make, still, silent=still)).verdict == "pass"
    assert judge(CODE, evidence_of(make, still, group={"lr": 0.0})).verdict == "pass"
    assert judge(CODE, evidence_of(make, still, group={"lr": 0.0, "initial_lr": 1e-4})).verdict == "fail"
    # The first layers of a model without names in the optimizer may be frozen: one tensor of their shape is not stepped.
    first = {name for name in names_of() if ".0." in name or ".1." in name}
    silent = {"model.layers.0.q.weight"}
    assert judge(CODE, evidence_of(make, first, named=False, silent=silent)).verdict == "pass"
    # What the optimizer does not have is frozen.
    evidence = evidence_of(make, still)
    others = tuple(one for one in evidence.optimizer.tensors if "3.q" not in one.name)
    less = make.state(*others, groups=({"lr": 1e-4},), attribution=Attribution.NAMED)
    assert judge(CODE, make.evidence(optimizer=less, weights=evidence.weights)).verdict == "pass"


def test_buffers_and_experts_do_not_count(make, judge):
    names = [*names_of(), "model.rope.inv_freq", "model.layers.2.experts.1.up.weight"]
    assert judge(CODE, evidence_of(make, set(names[-2:]), names=names)).verdict == "pass"


def test_not_one_moved(make, judge):
    everything = set(names_of())
    result = judge(CODE, evidence_of(make, everything))
    assert result.verdict == "warn"
    assert "not one of 15 tensors differs" in result.message
    for name in ("checkpoint-200/copy.safetensors", "last/model.safetensors", "best-epoch3.pt"):
        copy = judge(CODE, evidence_of(make, everything, previous=name))
        assert copy.verdict == "SkippedProbe"


@pytest.mark.parametrize(("end", "verdict"), [(0.0, "SkippedProbe"), (1e-5, "warn")])
def test_not_one_moved_at_a_rate_of_0(end, verdict, make, judge):
    """That the schedule ended is another rule's finding."""
    evidence = evidence_of(make, set(names_of()))
    rate = make.series([1e-3, 5e-4, end, end], role="learning_rate")
    assert judge(CODE, replace(evidence, series=(*evidence.series, rate))).verdict == verdict


def test_without_an_earlier_checkpoint(make, judge):
    evidence = make.evidence(optimizer=make.state(make.tensor(0)), weights=make.weights({"a.weight": (4, 4)}))
    skipped = judge(CODE, evidence)
    assert skipped.verdict == "SkippedProbe"
    assert "no earlier checkpoint" in skipped.reason["reason"]


def test_by_their_shape_only_where_all_that_is_stepped_was_saved(make, judge):
    """A projector that is trained and not saved is as large as the layer that is frozen."""
    evidence = evidence_of(make, {"model.layers.0.q.weight"}, named=False)
    assert judge(CODE, evidence).verdict == "fail"
    others = (
        *evidence.optimizer.tensors[1:],
        make.tensor(99, shape=(8, 8), group=0),
        make.tensor(98, shape=(3, 8), group=0),
    )
    state = make.state(*others, groups=({"lr": 1e-4},))
    assert judge(CODE, make.evidence(optimizer=state, weights=evidence.weights)).verdict == "pass"


@pytest.mark.parametrize(("trained", "verdict"), [(1.0, "fail"), (0.0, "pass")])
def test_a_bias_that_a_normalisation_takes_away_again(trained, verdict, tmp_path):
    """Trained with SGD its gradient is rounding noise, and each step below the last digit of the bias."""
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begun = model[0].bias.detach().clone()
    for step in range(1, 41):
        x = torch.randn(32, 8)
        optimizer.zero_grad()
        (model(x)[:, 0] - x.sum(1)).square().mean().backward()
        model[0].bias.grad += trained * torch.randn(16)
        optimizer.step()
        with torch.no_grad():
            model[0].bias.copy_(begun)  # a copy that is saved in place of it, or steps that leave no trace
        if step % 20 == 0:
            folder = tmp_path / f"checkpoint-{step}"
            folder.mkdir()
            names = [name for name, _ in model.named_parameters()]
            state = optimizer.state_dict()
            for group in state["param_groups"]:
                group["param_names"] = names
            torch.save({"optimizer_state_dict": state, "global_step": step}, folder / "training_state.pt")
            safetensors.save_file(model.state_dict(), folder / "model.safetensors")
    result = next(one for one in check(tmp_path).results if one.code == CODE)
    assert result.verdict == verdict
