"""The monitor against a naive second implementation, on the same run; and what it must leave alone."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tracker_health.errors import ConfigError  # noqa: E402
from tracker_health.monitor import statistics, watch  # noqa: E402


class Pair(nn.Module):
    """Its output is a tuple, of which the first tensor counts."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.first(x), self.second(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.ReLU(inplace=True), Pair()])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.layers[1](self.layers[0](x))
        one, other = self.layers[2](x)
        return {"logits": self.head(self.norm(one + other)), "hidden": one}


def batches(count, size=5):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(size, 6, generator=generator) for _ in range(count)]


def of_all(tensor):
    values = tensor.detach().double().flatten()
    return [float(values.abs().max()), float(values.mean()), float(values.var())]


class Naive:
    """One hook a module, every value kept in double precision."""

    def __init__(self, model):
        self.model, self.inputs, self.gradients = model, {}, {}
        for name, module in model.named_modules():
            if name:
                module.register_forward_hook(lambda _, __, output, name=name: self.take(name, output))

    def take(self, name, output):
        tensor = output[0] if isinstance(output, tuple) else output
        if not self.model.training or not torch.is_grad_enabled():
            return
        self.inputs.setdefault(name, []).append(tensor.detach().double().clone())
        tensor.register_hook(lambda grad: self.gradients.setdefault(name, []).append(grad.double().clone()))

    def step(self):
        """Statistics before clipping, of what was seen since the last step."""
        found = {}
        for kind, seen in (("activations", self.inputs), ("activation_grads", self.gradients)):
            for name, tensors in seen.items():
                rows = torch.cat([one.flatten(1) for one in tensors])
                found[f"gap/{kind}/{name}"] = [
                    float(rows.abs().max()), float(rows.mean(1).mean()), float(rows.var(1).mean())
                ]  # fmt: skip
        for name, parameter in self.model.named_parameters():
            found[f"gap/params/{name}"] = of_all(parameter)
            if parameter.grad is not None:
                found[f"gap/grads/{name}"] = of_all(parameter.grad)
        self.inputs.clear(), self.gradients.clear()
        return {
            f"{key}/{which}": value
            for key, three in found.items()
            for which, value in zip(("max", "mean", "var"), three, strict=True)
        }


def trained(model, steps=4, accumulation=1, naive=None, run=None, **options):
    """Train with clipping; gives what the monitor said and what the naive implementation did."""
    said, expected = {}, {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = iter(batches(steps * accumulation))
    with watch(model, optimizer, detail=lambda step, metrics: said.update({step: dict(metrics)}), **options) as monitor:
        for step in range(1, steps + 1):
            for _ in range(accumulation):
                loss = (run or model)(next(data))["logits"].square().mean() / accumulation
                loss.backward()
            if naive is not None:
                expected[step] = naive.step()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
            optimizer.step()
            optimizer.zero_grad()
        assert monitor.steps == steps
    return said, expected


def hooks_of(model):
    return sum(
        len(one._forward_hooks) + len(one._forward_pre_hooks) + len(one._backward_hooks) + len(one._backward_pre_hooks)
        for one in model.modules()
    ) + sum(len(one._post_accumulate_grad_hooks or ()) + len(one._backward_hooks or ()) for one in model.parameters())


def assert_same(said, expected, tolerance=1e-5):
    assert said.keys() == expected.keys()
    for name, value in expected.items():
        assert said[name] == pytest.approx(value, rel=tolerance, abs=1e-9), name


@pytest.mark.parametrize("accumulation", [1, 4])
def test_statistics_are_those_of_a_naive_implementation(accumulation):
    torch.manual_seed(0)
    model = Model()
    said, expected = trained(model, accumulation=accumulation, naive=Naive(model), interval=2)
    assert list(said) == [1, 2, 4]
    for step, metrics in said.items():
        assert_same(metrics, expected[step])


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torch's own
@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="no compiler for torch.compile")
@pytest.mark.parametrize("accumulation", [1, 4])
def test_a_compiled_model_has_the_same_statistics(accumulation):
    torch.manual_seed(0)
    plain, compiled = Model(), Model()
    compiled.load_state_dict(plain.state_dict())
    _, expected = trained(plain, accumulation=accumulation, naive=Naive(plain))
    wrapped = torch.compile(compiled)
    said, _ = trained(wrapped, accumulation=accumulation, interval=3)
    assert list(said) == [1, 3]
    for step, metrics in said.items():
        assert_same(metrics, expected[step], 1e-4)
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_nothing_stays_behind(tmp_path):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    before = hooks_of(model)
    with pytest.raises(ZeroDivisionError), watch(model, optimizer, interval=1, folder=tmp_path):  # noqa: PT012
        assert hooks_of(model) > before
        model(batches(1)[0])
        raise ZeroDivisionError
    monitor = watch(model, optimizer, interval=2, folder=tmp_path)
    monitor.close()
    monitor.close()
    assert hooks_of(model) == before
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


def test_no_hook_between_the_measured_steps():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hooks_of(model)
    counts = []
    with watch(model, optimizer, interval=3, detail=lambda *_: None):
        for batch in batches(5):
            counts.append(hooks_of(model) > before)
            model(batch)["logits"].sum().backward()
            optimizer.step()
    assert counts == [True, False, True, False, False]


def test_forward_passes_that_train_nothing_do_not_count():
    torch.manual_seed(0)
    model = Model()
    naive = Naive(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = {}
    data = batches(6)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update(metrics)):
        model(100 * data[0])  # a try before the first step
        naive.inputs.clear()
        model(data[1])["logits"].square().sum().backward()
        model.eval()
        model(100 * data[2])["logits"].sum()
        model.train()
        with torch.no_grad():
            model(100 * data[3])
        expected = naive.step()
        optimizer.step()
    assert_same(said, expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_activations_count_once(reentrant):
    class Checkpointed(Model):
        def forward(self, x):
            x = self.layers[0](x)
            one, other = checkpoint(self.layers[2], self.layers[1](x), use_reentrant=reentrant)
            return {"logits": self.head(self.norm(one + other))}

    torch.manual_seed(0)
    plain, model = Model(), Checkpointed()
    model.load_state_dict(plain.state_dict())
    _, expected = trained(plain, accumulation=2, naive=Naive(plain))
    said, _ = trained(model, accumulation=2, interval=1)
    for step, metrics in said.items():
        assert_same(metrics, expected[step])


def test_tied_frozen_and_tiny_tensors():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight
            self.scale, self.frozen = nn.Parameter(torch.ones(1)), nn.Linear(4, 4).requires_grad_(False)
            self.gate = nn.Linear(4, 1)

        def forward(self, x):
            hidden = self.frozen(self.embed(x)).mean(1) * self.scale
            return self.head(hidden) * self.gate(hidden)

    model, said = Tied(), {}
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda _, metrics: said.update(metrics)):
        model(torch.tensor([[1, 2], [3, 4]])).sum().backward()
        optimizer.step()
    kinds = {
        kind: {name.split("/")[2] for name in said if name.startswith(f"gap/{kind}/")} for kind in ("grads", "params")
    }
    assert kinds["params"] == {"embed.weight", "frozen.weight", "frozen.bias", "gate.weight"}
    assert kinds["grads"] == {"embed.weight", "gate.weight"}
    assert "gap/activations/gate/mean" in said
    assert "gap/activations/gate/var" not in said  # one value an instance has none
    assert not any(math.isnan(value) for value in said.values())


def test_mixed_precision_is_unscaled():
    torch.manual_seed(0)
    plain, model = Model(), Model()
    model.load_state_dict(plain.state_dict())
    _, expected = trained(plain, steps=1, naive=Naive(plain))
    optimizer, said = torch.optim.SGD(model.parameters(), lr=0.1), {}
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watch(model, optimizer, interval=1, scaler=scaler, detail=lambda _, metrics: said.update(metrics)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batches(1)[0])["logits"].square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
        scaler.step(optimizer)
        scaler.update()
    for name, value in expected[1].items():
        if name.startswith(("gap/grads", "gap/params", "gap/activations")) and name.endswith("max"):
            assert said[name] == pytest.approx(value, rel=0.05, abs=1e-3), name


class FullDisk:
    def write(self, step, found, counts):
        raise OSError(28, "No space left on device")

    def close(self):
        pass


def test_what_goes_wrong_in_the_monitor_ends_only_the_monitor():
    model = Model()
    before = hooks_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, interval=1, detail=lambda *_: None)
    monitor._sink = FullDisk()
    with pytest.warns(RuntimeWarning, match="has ended"):  # noqa: PT031
        model(batches(1)[0])["logits"].sum().backward()
        optimizer.step()
    assert hooks_of(model) == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(batches(1)[0])["logits"].sum().backward()
        optimizer.step()


def test_a_sick_step_is_told_as_it_is():
    model = Model()
    with torch.no_grad():
        model.head.weight[0, 0] = math.nan
        model.layers[0].weight.fill_(3.0)
    said, _ = trained(model, steps=1, interval=1)
    assert math.isnan(said[1]["gap/params/head.weight/max"])
    assert math.isnan(said[1]["gap/activations/head/max"])
    assert said[1]["gap/params/layers.0.weight/var"] == 0.0


def test_patterns_choose(tmp_path):
    said, _ = trained(
        Model(), steps=1, interval=1, include=("layers.2.*",), exclude=("*.bias",), kinds=("params", "activations")
    )
    assert {name.rsplit("/", 1)[0] for name in said[1]} == {
        f"gap/activations/layers.2.{part}" for part in ("first", "second")
    } | {f"gap/params/layers.2.{part}.weight" for part in ("first", "second")}


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval": 0},
        {"kinds": ()},
        {"kinds": ("weights",)},
        {"detail": "all"},
        {"detail": "metrics"},
        {"steps_done": -1},
        {"include": ("nothing",)},
    ],
)
def test_refused(wrong, tmp_path):
    model = Model()
    with pytest.raises(ConfigError):
        watch(model, torch.optim.SGD(model.parameters(), lr=0.1), **{"folder": tmp_path, **wrong})


@pytest.mark.parametrize(("model", "optimizer"), [(Model(), None), (None, None), (Model(), Model()), (3, "sgd")])
def test_what_is_no_model_or_no_optimizer_is_refused(model, optimizer):
    with pytest.raises(ConfigError, match="it must be a torch"):
        watch(model, optimizer)


def test_a_warning_points_at_the_training():
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.layers[2].register_parameter("lazy", nn.UninitializedParameter())
    with watch(model, optimizer, interval=1, detail=lambda *_: None):
        model(batches(1)[0])["logits"].sum().backward()
        with pytest.warns(RuntimeWarning, match="tracker-health") as told:
            optimizer.step()
    assert [one.filename for one in told] == [__file__]


def test_an_earlier_file_is_never_written_over(tmp_path):
    model = Model()
    (tmp_path / "gap.jsonl").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        watch(model, torch.optim.SGD(model.parameters(), lr=0.1), folder=tmp_path)
    assert (tmp_path / "gap.jsonl").read_text() == "mine"


def test_numbers_are_fetched_once_a_measured_step(monkeypatch):
    calls = []
    transfer = statistics._from_one_device
    monkeypatch.setattr(statistics, "_from_one_device", lambda *given: calls.append(1) or transfer(*given))
    said, _ = trained(Model(), steps=6, accumulation=3, interval=3)
    assert list(said) == [1, 3, 6]
    assert len(calls) == 3


@pytest.mark.exhaustive
def test_a_training_that_just_ends_loses_nothing(tmp_path):
    script = (
        "import torch\nfrom tracker_health import watch\nmodel = torch.nn.Linear(3, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"monitor = watch(model, optimizer, interval=1, folder={str(tmp_path)!r}, alert=True)\n"
        "model(torch.randn(2, 3)).sum().backward()\noptimizer.step()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not done.stderr
    assert len((tmp_path / "gap.jsonl").read_text().splitlines()) == 2
