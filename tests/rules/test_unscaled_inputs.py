"""OPT009."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracker_health
from tracker_health.evidence import TensorHeader, Weights
from tracker_health.rules.optimizer.unscaled_inputs import UnscaledInputs

CODE = "OPT009"
torch = pytest.importorskip("torch")


def state_of(make, layers, *, named=True, step=500.0):
    """Layers of (rows, columns, input rms, bias' second moment)."""
    tensors = []
    for index, (rows, columns, rms, below) in enumerate(layers):
        for key, shape, mean in ((2 * index, (rows, columns), below * rms**2), (2 * index + 1, (rows,), below)):
            name = f"layers.{index}.{'bias' if len(shape) == 1 else 'weight'}" if named else None
            tensors.append(make.tensor(key, mean, name=name, shape=shape, step=step))
    return make.state(*tensors)


@pytest.mark.parametrize("named", [True, False])
@given(rms=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=6))
def test_the_size_of_the_inputs_is_found(rms, named, make, judge):
    layers = [(4 + index, 3, size, 1e-6) for index, size in enumerate(rms)]
    result = judge(CODE, make.evidence(optimizer=state_of(make, layers, named=named)))
    assert result.measured["input_rms"] == pytest.approx(max(rms), rel=1e-6)
    assert result.verdict == ("warn" if max(rms) > UnscaledInputs.max_rms * (1 + 1e-9) else "pass")


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("rounding", [1e-5, 1e-7, 1e-14])
def test_a_bias_whose_gradient_is_rounding_tells_nothing(rounding, named, make, judge):
    """Before a normalisation, or of an attention's keys: its layer would seem to have huge inputs."""
    cancelled, sound = (4, 3, rounding**-0.5, 1e-6 * rounding), (5, 3, 1.5, 1e-6)
    result = judge(CODE, make.evidence(optimizer=state_of(make, [cancelled, sound, cancelled], named=named)))
    assert (result.verdict, result.measured["layers"]) == ("pass", 1)
    assert result.measured["input_rms"] == pytest.approx(1.5, rel=1e-6)
    large = (4, 3, 500.0, 1e-8)  # a small gradient, but a gradient
    assert judge(CODE, make.evidence(optimizer=state_of(make, [large, sound], named=named))).verdict == "warn"


@pytest.mark.parametrize("half", [False, True])
def test_a_real_training_with_a_bias_before_a_normalisation(half, judge, make, tmp_path):
    from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 3)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(60):
        x = torch.randn(32, 20)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    result = judge(CODE, make.evidence(optimizer=read_optimizer_state(tmp_path / "state.pt", "state.pt")))
    assert result.verdict == "pass", result.message


@pytest.mark.parametrize("bias", [False, True])
def test_the_scale_of_a_normalisation_is_no_bias(bias, make, judge):
    """A convolution without a bias, before a normalisation whose scale gets hardly any gradient."""
    shapes = [(8, 3, 3, 3), *[(8,)] * (2 + bias), (4, 8), (4,)]
    means = [1e-3, *[1e-3] * bias, 1e-8, 1e-4, 1e-4, 1e-4]
    tensors = [
        make.tensor(key, mean, shape=shape, step=500.0)
        for key, (shape, mean) in enumerate(zip(shapes, means, strict=True))
    ]
    result = judge(CODE, make.evidence(optimizer=make.state(*tensors)))
    assert (result.verdict, result.measured["layers"]) == ("pass", 1 + bias)


@pytest.mark.parametrize(("name", "flagged"), [("norm.weight", False), ("proj.bias", True), (None, True)])
def test_a_name_that_is_only_likely_tells_a_bias_from_a_scale(name, flagged, make, judge):
    weight = make.tensor(0, 1e-3, name=name and "proj.weight", assumed=name is not None, shape=(8, 3), step=500.0)
    vector = make.tensor(1, 1e-8, name=name, assumed=name is not None, shape=(8,), step=500.0)
    assert (judge(CODE, make.evidence(optimizer=make.state(weight, vector))).verdict == "warn") is flagged


def test_names_that_do_not_belong_together_are_no_layer(make, judge):
    tensors = [make.tensor(0, 1.0, name="a.weight", shape=(4, 3)), make.tensor(1, 1e-9, name="b.bias", shape=(4,))]
    assert judge(CODE, make.evidence(optimizer=make.state(*tensors))).verdict == "SkippedProbe"


@pytest.mark.parametrize("below", [0.0, float("nan"), float("inf")])
def test_a_bias_without_a_finite_gradient_tells_nothing(below, make, judge):
    tensors = [make.tensor(0, 1.0, shape=(4, 3)), make.tensor(1, below, shape=(4,))]
    assert judge(CODE, make.evidence(optimizer=make.state(*tensors))).verdict == "SkippedProbe"


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "pass"), (5.0, "pass"), (300.0, "warn")])
@pytest.mark.parametrize("named", [True, False])
def test_a_real_training(scale, verdict, named, judge, make, tmp_path):
    from tracker_health.readers.optimizers.optimizer_state import read_optimizer_state

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.named_parameters() if named else model.parameters(), lr=1e-3)
    for _ in range(60):
        x = scale * torch.randn(32, 20)
        loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save({"optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    result = judge(CODE, make.evidence(optimizer=read_optimizer_state(tmp_path / "state.pt", "state.pt")))
    assert result.verdict == verdict
    if scale != 1.0:
        assert 0.3 * scale < result.measured["input_rms"] < 3 * scale


def test_a_few_steps_tell_nothing(make, judge):
    layers = [(4, 3, 1e4, 1e-6)]
    few = make.evidence(optimizer=state_of(make, layers, step=UnscaledInputs.min_steps - 1.0))
    assert judge(CODE, few).verdict in ("SkippedProbe", "warn")
    state = state_of(make, layers, step=float(UnscaledInputs.min_steps))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == "warn"


def test_a_stricter_threshold_never_flags_fewer(make, judge):
    rng = np.random.default_rng(0)
    for size in 10 ** rng.uniform(-1, 4, size=20):
        evidence = make.evidence(optimizer=state_of(make, [(4, 3, float(size), 1e-6)]))
        flagged = [judge(CODE, evidence, max_rms=limit).verdict == "warn" for limit in (2.0, 30.0, 1000.0)]
        assert flagged == sorted(flagged, reverse=True)


def trained(folder, model, scale, *, learns=True, columns=20, steps=120, half=False):
    """What a real training leaves whose inputs are that many times too large; and the verdict on it.

    Labels that are drawn anew for each batch leave nothing to learn.
    """
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with (folder / "metrics.jsonl").open("w") as log:
        for step in range(steps):
            x = torch.randn(32, columns)
            labels = (x[:, 0] > 0).long() if learns else torch.randint(0, 3, (32,))
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = torch.nn.functional.cross_entropy(model(x * scale), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            log.write(json.dumps({"step": step + 1, "train_loss": loss.item()}) + "\n")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}, folder / "last.pt")
    return next(one for one in tracker_health.check(folder).results if one.code == CODE)


def before_a_batch_norm():
    nn = torch.nn
    return nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("scale", [1.0, 255.0, 5000.0])
def test_a_normalisation_behind_the_first_layer(scale, learns, tmp_path):
    """It does away with the size of the inputs, for good or not: such a run may train as well as any other."""
    result = trained(tmp_path, before_a_batch_norm(), scale, learns=learns)
    large = scale == 5000.0 and not learns
    assert result.verdict == ("warn" if large else "pass"), result.message
    assert not large or "0.weight" in result.message


class Untracked(torch.nn.Module):
    """A bias of a first layer that a normalisation takes away, which leaves no statistics."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(20, 32)
        self.head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(32, 3))

    def forward(self, x):
        x = self.embed(x)
        return self.head((x - x.mean(0)) / (x.std(0) + 1e-5))


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("learns", [True, False])
def test_a_bias_that_a_normalisation_without_statistics_takes_away(learns, half, tmp_path):
    result = trained(tmp_path, Untracked(), 1.0, learns=learns, half=half)
    assert result.verdict == "pass", result.message


def test_a_normalisation_of_the_inputs_has_no_layer_before_it(tmp_path):
    nn = torch.nn
    raw = nn.Sequential(nn.BatchNorm1d(20), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 3))
    result = trained(tmp_path, raw, 1e5, learns=False)
    assert (result.verdict, result.measured["layers"]) == ("pass", 2)
    assert result.measured["input_rms"] < 10


def headers(make, tensors, *, in_order=True):
    """Weights of (shape, mean, root mean square), by name."""
    return Weights(
        source="model.pt",
        in_order=in_order,
        tensors=tuple(
            TensorHeader(
                name=name, shape=shape, dtype="F32", rms=root, stats=replace(make.moment(1.0), mean=mean, rms=root)
            )
            for name, (shape, mean, root) in tensors.items()
        ),
    )


def standing(make):
    """A training loss that does not come down."""
    return make.series(1.0 + 1e-3 * np.random.default_rng(0).normal(size=60), role="train_loss")


@given(size=st.floats(1.0, 1e5), rms=st.floats(0.05, 2.0), columns=st.integers(1, 300))
def test_the_size_that_running_statistics_remember(size, rms, columns, make, judge):
    norm = rms * columns**0.5
    weights = headers(make, {
        "stem.weight": ((9, 9999), 0.0, 1.0), "conv.weight": ((8, columns), 0.0, rms),
        "bn.running_mean": ((8,), 0.0, 0.6 * size * norm), "bn.running_var": ((8,), (0.8 * size * norm) ** 2, 1.0),
        "later.weight": ((8, 9999), 0.0, 1.0),
    })  # fmt: skip
    state = make.state(make.tensor(0, None, shape=(3, 4)))
    result = judge(CODE, make.evidence(standing(make), optimizer=state, weights=weights))
    if norm < 0.1:
        assert result.verdict == "SkippedProbe"
        return
    assert result.measured["input_rms"] == pytest.approx(size, rel=1e-6)
    if not 1 - 1e-9 < size / UnscaledInputs.max_before_norm < 1 + 1e-9:
        assert result.verdict == ("warn" if size > UnscaledInputs.max_before_norm else "pass")
    assert judge(CODE, make.evidence(optimizer=state, weights=weights)).verdict == "pass"  # nothing tells of harm


@pytest.mark.parametrize("mean", [(5,), (2, 4), (8, 1), ()])
def test_statistics_of_other_shapes_tell_nothing(mean, make, judge):
    weights = headers(make, {
        "fc.weight": ((8, 4), 0.0, 1.0), "bn.running_mean": (mean, 0.0, 1e9), "bn.running_var": ((8,), 1e18, 1.0),
    })  # fmt: skip
    state = make.state(make.tensor(0, None, shape=(3, 4)))
    assert judge(CODE, make.evidence(standing(make), optimizer=state, weights=weights)).verdict == "SkippedProbe"


def test_modules_are_ordered_by_their_numbers(make, judge):
    """As safetensors lists them, the layer before the tenth would be the first. Of other names nothing tells."""
    state = make.state(make.tensor(0, None, shape=(3, 4)))
    for conv, norm, verdict in (("9", "10", "warn"), ("conv", "bn", "SkippedProbe")):
        weights = headers(make, {
            f"{norm}.num_batches_tracked": ((), 0.0, 50.0), "1.weight": ((8, 4), 0.0, 100.0) if conv == "9" else ((), 0.0, 1.0),
            f"{norm}.running_mean": ((8,), 0.0, 1e4), f"{norm}.running_var": ((8,), 0.0, 0.0),
            f"{conv}.weight": ((8, 4), 0.0, 0.5),
        }, in_order=False)  # fmt: skip
        result = judge(CODE, make.evidence(standing(make), optimizer=state, weights=weights))
        assert result.verdict == verdict
        assert verdict != "warn" or "9.weight" in result.message


@pytest.mark.parametrize(("mean", "variance"), [(1e200, 1.0), (float("nan"), 1.0), (0.0, float("nan")), (0.0, -1.0)])
def test_running_statistics_of_any_value(mean, variance, make, judge):
    weights = headers(make, {
        "fc.weight": ((8, 4), 0.0, 0.5), "bn.running_mean": ((8,), mean, abs(mean)),
        "bn.running_var": ((8,), variance, 1.0),
    })  # fmt: skip
    state = make.state(make.tensor(0, None, shape=(3, 4)))
    result = judge(CODE, make.evidence(standing(make), optimizer=state, weights=weights))
    assert result.verdict == ("warn" if mean == 1e200 else "SkippedProbe")
