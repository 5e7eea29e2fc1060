"""What models may do that nobody thinks of: none of it is disturbed, and what can be measured is."""

from __future__ import annotations

import copy
import io
import math
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tracker_health.monitor import watch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error:tracker-health")


def hooks_of(model):
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())


def measured(model, *batches, step=None, **options):
    """One watched step over these batches; all that was said."""
    said = {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = hooks_of(model)
    options = {"detail": lambda _, metrics: said.update(metrics), **options}
    with watch(model, optimizer, interval=1, **options):
        for batch in batches:
            if step is not None:
                step(model, batch)
            else:
                model(batch).float().square().mean().backward()
        optimizer.step()
    assert hooks_of(model) == before
    return said


def told(capsys):
    """The lines that were told: here they go to standard error, since warnings are errors."""
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("tracker-health: ")]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))


class Fields(NamedTuple):
    count: int
    hidden: torch.Tensor


@dataclass
class Record:
    count: int
    hidden: object


class Odd(nn.Module):
    """Gives whatever its function makes of the input, and passes the input on."""

    def __init__(self, made):
        super().__init__()
        self.made = made

    def forward(self, x):
        return self.made(x)


class Beside(nn.Module):
    """A module whose output nothing uses, between two that train."""

    def __init__(self, made):
        super().__init__()
        self.first, self.odd, self.head = nn.Linear(4, 6), Odd(made), nn.Linear(6, 2)

    def forward(self, x):
        hidden = self.first(x)
        self.odd(hidden)
        return self.head(hidden)


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        (lambda x: None, False),
        (lambda x: 3, False),
        (lambda x: (), False),
        (lambda x: {"text": ["a"], "more": None}, False),
        (lambda x: x.long(), False),
        (lambda x: torch.view_as_complex(x.reshape(len(x), -1, 2).contiguous()), False),
        (lambda x: x[:0], False),
        (lambda x: x[:, :0], False),
        (lambda x: x.sum(), False),
        (lambda x: x.to("meta"), False),
        (lambda x: x.to_sparse(), False),
        (lambda x: torch.nested.as_nested_tensor([x[0], x[1, :2]], layout=torch.jagged), None),
        (lambda x: (None, 1, x), True),
        (lambda x: Fields(1, x), True),
        (lambda x: {"a": {"b": [x]}}, True),
        (lambda x: Record(1, x), True),
        (lambda x: (Record(1, Record(2, [None, x])),), True),
        (lambda x: Record, False),
        (lambda x: x.half(), True),
        (lambda x: x.to(torch.float8_e4m3fn), None),
        (lambda x: x.expand(3, *x.shape), True),
        (lambda x: x.t(), True),
        (lambda x: x * math.nan, True),
        (lambda x: x * math.inf, True),
        (torch.vmap(lambda row: row * 2), True),
    ],
)
@pytest.mark.filterwarnings("ignore:tracker-health", "ignore:The PyTorch API of nested")
def test_outputs_of_any_kind(made, seen):
    said = measured(Beside(made), torch.randn(3, 4))
    assert {"gap/activations/head/max", "gap/grads/first.weight/var", "gap/params/head.bias/mean"} <= said.keys()
    if seen is not None:
        assert ("gap/activations/odd/max" in said) is seen


def test_the_users_own_hooks_see_and_change_what_they_always_did():
    model, order = mlp(), []
    model[0].register_forward_hook(lambda *_: order.append("before"))
    model[0].register_forward_hook(lambda _, __, output: 2 * output)
    model[2].register_full_backward_hook(lambda *_: order.append("backward"))
    with_monitor = measured(model, torch.ones(3, 4))
    assert order == ["before", "backward"]
    assert len(model[0]._forward_hooks) == 2
    plain = mlp()
    assert with_monitor["gap/activations/0/max"] == pytest.approx(2 * plain[0](torch.ones(3, 4)).abs().max().item())


def test_modules_that_are_shared_called_often_or_never():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.again, self.never = self.first, nn.Linear(4, 4)

        def forward(self, x):
            return self.first(torch.tanh(self.again(x)))

    torch.manual_seed(0)
    model, x = Shared(), torch.randn(5, 4)
    said = measured(model, x)
    assert "gap/activations/never/max" not in said
    assert "gap/activations/again/max" not in said
    assert said["gap/grads/never.weight/max"] == 0.0
    assert "gap/activations/first/var" in said


def test_both_calls_of_a_module_count():
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4), torch.randn(5, 4)
    with torch.no_grad():
        one = layer(x)
        rows = torch.cat([one, layer(one)]).double()

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(self.layer(x))

    said = measured(Twice(), x)
    assert said["gap/activations/layer/mean"] == pytest.approx(float(rows.mean(1).mean()), rel=1e-5)
    assert said["gap/activations/layer/var"] == pytest.approx(float(rows.var(1).mean()), rel=1e-5)
    assert said["gap/activations/layer/max"] == pytest.approx(float(rows.abs().max()), rel=1e-6)


def test_copies_and_saved_models_take_no_hook_along():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    with watch(model, optimizer, interval=1, detail=lambda *_: None):
        assert hooks_of(model)
        file = io.BytesIO()
        torch.save(model, file)
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(optimizer)]
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
    file.seek(0)
    x = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one in (*copies[:2], torch.load(file, weights_only=False)):
            one(x).sum().backward()
    assert not hooks_of(copies[0])


@pytest.mark.slow
def test_a_saved_model_needs_nothing_of_ours(tmp_path):
    model = mlp()
    with watch(model, torch.optim.SGD(model.parameters(), lr=0.1), interval=1, detail=lambda *_: None):
        torch.save(model, tmp_path / "model.pt")
    script = (
        "import sys, torch; sys.modules['tracker_health'] = None\n"
        f"print(torch.load({str(tmp_path / 'model.pt')!r}, weights_only=False)(torch.ones(2, 4)).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert "[2, 2]" in done.stdout, done.stderr


def test_two_monitors_of_one_model_do_not_know_each_other():
    model, first, second = mlp(), {}, {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer, interval=1, detail=lambda _, metrics: first.update(metrics))
    two = watch(model, optimizer, interval=1, detail=lambda _, metrics: second.update(metrics))
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    one.close()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    two.close()
    assert first.keys() == second.keys()
    assert not hooks_of(model)
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_two_monitors_of_a_compiled_model_leave_it_compiled():
    ran = []

    def backend(graph, _):
        return lambda *values: ran.append(True) or graph(*values)

    model = torch.compile(mlp(), backend=backend)
    model(torch.randn(3, 4))
    assert ran.pop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one, two = (watch(model, optimizer, interval=1, detail=lambda *_: None) for _ in range(2))
    model(torch.randn(3, 4))
    one.close()
    model(torch.randn(3, 4))
    assert not ran
    two.close()
    model(torch.randn(3, 4))
    assert ran


def test_an_optimizer_with_a_closure():
    model, said = mlp(), {}
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, calls = torch.randn(8, 4), []

    def closure():
        optimizer.zero_grad()
        calls.append(1)
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        optimizer.step(closure)
        optimizer.step(closure)
    assert list(said) == [1, 2]
    assert len(calls) > 2
    assert said[1]["gap/grads/0.weight/max"] > 0
    assert math.isfinite(said[1]["gap/activations/0/mean"])


def test_a_step_that_was_given_up_does_not_count():
    model, said = mlp(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        (model(torch.full((3, 4), math.inf)).sum() * math.nan).backward()
        optimizer.zero_grad()  # the loss was NaN: on with the next batch
        x = torch.randn(3, 4)
        with torch.no_grad():
            expected = mlp()[0](x)
        model(x).sum().backward()
        optimizer.step()
    assert list(said) == [1]
    assert said[1]["gap/activations/0/max"] == pytest.approx(float(expected.abs().max()), rel=1e-6)
    assert all(math.isfinite(value) for value in said[1].values())


def test_steps_that_a_gradient_scaler_leaves_out_do_not_count():
    model, said = mlp(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    with watch(
        model, optimizer, interval=1, scaler=scaler, detail=lambda step, metrics: said.update({step: dict(metrics)})
    ):
        for _ in range(40):
            loss = (model(1e3 * torch.randn(3, 4)) * 1e3).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert said
    assert len(said) < 40
    assert all(math.isfinite(value) for value in said[1].values())


def test_half_precision_models():
    for kind in (torch.float16, torch.bfloat16):
        model = mlp().to(kind)
        said = measured(model, torch.randn(3, 4, dtype=kind))
        assert said["gap/activations/0/max"] > 0
        assert all(math.isfinite(value) for value in said.values())


def test_everything_nan():
    model = mlp()
    with torch.no_grad():
        for one in model.parameters():
            one.fill_(math.nan)
    said = measured(model, torch.randn(3, 4))
    assert {name.split("/")[1] for name in said} == {"activations", "activation_grads", "params", "grads"}
    assert all(math.isnan(value) for name, value in said.items() if name.endswith(("max", "mean")))


def test_data_parallel_is_looked_through():
    model = nn.DataParallel(mlp())
    assert "gap/activations/0/max" in measured(model, torch.randn(3, 4))


def test_traced_and_transformed_models():
    model = mlp()

    def step(model, batch):
        parameters = dict(model.named_parameters())

        def loss(parameters, batch):
            return torch.func.functional_call(model, parameters, (batch,)).square().mean()

        torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, batch.unsqueeze(1))
        model(batch).square().mean().backward()

    x = torch.randn(3, 4)
    with torch.no_grad():
        expected = float(model[0](x).abs().max())
    said = measured(model, x, step=step)
    assert said["gap/activations/0/max"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_model_is_traced_without_the_measuring():
    model = mlp()
    with watch(model, torch.optim.SGD(model.parameters(), lr=0.1), interval=1, detail=lambda *_: None):
        traced = torch.jit.trace(model, torch.randn(3, 4))
    assert not {"aten::amax", "aten::linalg_vector_norm"} & {node.kind() for node in traced.inlined_graph.nodes()}


@pytest.mark.exhaustive
def test_two_thousand_layers(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(2000)))
    measured(model, torch.randn(2, 3), detail="file", folder=tmp_path)
    assert (tmp_path / "gap.jsonl").read_text().count('"grads/1999.weight"') == 1


def test_parameters_that_come_and_go_during_the_training():
    model, said = mlp(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        for step in range(3):
            if step == 1:
                model[0].requires_grad_(False)
            if step == 2:
                model[2] = nn.Linear(6, 2)
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert list(said) == [1, 2, 3]
    assert "gap/grads/0.weight/max" not in said[2]


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_in_the_models_own_code_stays_what_it_is(where):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            if where == "forward":
                raise ZeroDivisionError
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise ZeroDivisionError

    model = mlp()
    model[1] = Odd(Breaks.apply)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError), watch(model, optimizer, interval=1, detail=lambda *_: None):
        model(torch.randn(3, 4)).sum().backward()
    assert not hooks_of(model)


@pytest.mark.slow
def test_code_compiled_whole_around_a_watched_model(capsys):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    said = {}
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: metrics})):
        loss_of = torch.compile(lambda x: model(x).square().mean(), fullgraph=True, backend="eager")
        for _ in range(3):
            loss_of(torch.randn(3, 4)).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert said[3]["gap/grads/0.weight/max"] > 0
    assert not hooks_of(model)
    (line,) = told(capsys)
    assert "no activations were seen in step 1" in line
    assert "code compiled around it" in line


class Refuses(Mapping):
    """What some models give: values are worked out when they are asked for, or an error says why not."""

    def __init__(self, hidden):
        self.hidden = hidden

    def __getitem__(self, key):
        if key == "attentions":
            raise ValueError("ask for them first")
        return self.hidden

    def __iter__(self):
        return iter(["attentions", "hidden"])

    def __len__(self):
        return 2


def endless(hidden):
    output = {"hidden": hidden}
    output["self"] = output
    return output


@pytest.mark.filterwarnings("default:tracker-health")
@pytest.mark.parametrize("wrap", [Refuses, endless])
@pytest.mark.parametrize("inside", [False, True])
def test_an_output_that_cannot_be_walked_through_costs_nothing_else(wrap, inside):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.wrapped = nn.Linear(4, 4), Odd(wrap)

        def forward(self, x):
            output = self.wrapped(self.first(x))
            return output["hidden"] if inside else output

    model, said = Model(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: metrics})):
        for _ in range(2):
            output = model(torch.randn(3, 4))
            (output if inside else output["hidden"]).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert not hooks_of(model)
    assert {"gap/activations/first/max", "gap/grads/first.weight/max"} <= said[2].keys()


@pytest.mark.filterwarnings("default:tracker-health")
def test_gradients_that_are_put_in_by_hand():
    """As ``torch.autograd.grad`` has them: its pass leaves none behind."""
    model, said = mlp(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda _, metrics: said.update(metrics)):
        loss = model(torch.randn(3, 4)).square().mean()
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
        ):
            parameter.grad = gradient
        highest = model[0].weight.grad.abs().max().item()
        optimizer.step()
    assert said["gap/grads/0.weight/max"] == pytest.approx(highest, rel=1e-6)


class Broken(nn.Module):
    """A parameter that nothing uses, beside two layers that train."""

    def __init__(self, made):
        super().__init__()
        self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 2)
        self.odd = made()

    def forward(self, x):
        return self.head(self.first(x))


def frozen(*values):
    return nn.ParameterList([nn.Parameter(one, requires_grad=False) for one in values])


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: nn.LazyLinear(3), "no values yet"),
        pytest.param(
            lambda: frozen(*[torch.zeros(9, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)] * 2),
            "Float4",
            marks=pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no such dtype"),
        ),
    ],
)
def test_a_parameter_that_cannot_be_measured_costs_no_other(made, why, capsys):
    said = {}
    model = Broken(made)
    optimizer = torch.optim.SGD([*model.first.parameters(), *model.head.parameters()], lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: metrics})):
        for _ in range(2):
            model(torch.randn(3, 4)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert list(said) == [1, 2]
    for kind in ("params", "grads", "activations", "activation_grads"):
        name = "first.weight" if kind in {"params", "grads"} else "first"
        assert f"gap/{kind}/{name}/max" in said[2]
    (warning,) = told(capsys)
    assert "params of odd." in warning
    assert why in warning


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_large_frozen_parameter_of_eight_bits(kind):
    torch.manual_seed(0)
    values = torch.randn(300, 300).to(kind)
    said = measured(Broken(lambda: frozen(values)), torch.randn(3, 4))
    assert said["gap/params/odd.0/var"] == pytest.approx(float(values.double().var()), rel=1e-5)


def test_a_lazy_model_is_measured_from_its_first_step_on():
    model, said = nn.Sequential(nn.LazyLinear(6), nn.Linear(6, 2)), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        for _ in range(2):
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert said[1].keys() == said[2].keys()
    assert {"gap/grads/0.weight/max", "gap/params/0.weight/max", "gap/activations/0/max"} <= said[1].keys()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("whole", [True, False])
def test_of_what_torch_jit_has_compiled_the_gradients_and_parameters_are_measured(whole, capsys):
    torch.manual_seed(0)
    model, x = mlp(), torch.randn(3, 4)
    expected = measured(model, x)
    model = mlp()
    if whole:
        model = torch.jit.script(model)
    else:
        model[0] = torch.jit.script(model[0])
    said = measured(model, x)
    seen = {name: value for name, value in expected.items() if name.split("/")[1] in {"grads", "params"} or not whole}
    seen = {name: value for name, value in seen.items() if name.split("/")[2] != "0"}
    assert said == pytest.approx(seen)
    (warning,) = told(capsys)
    assert ("activations of the model" if whole else "activations of 0 ") in warning


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_jit_compiles_a_copy_of_a_watched_model():
    model, x = mlp(), torch.randn(3, 4)
    with watch(model, torch.optim.SGD(model.parameters(), lr=0.1), interval=1, detail=lambda *_: None):
        users = model[0].register_forward_pre_hook(shift)
        scripted = torch.jit.script(copy.deepcopy(model))
        assert torch.equal(scripted(x), model(x))
        with pytest.raises(AttributeError, match="a copy of it can"):
            torch.jit.script(model)
        users.remove()
    assert torch.equal(torch.jit.script(model)(x), model(x))


def shift(self, input: tuple[torch.Tensor]) -> tuple[torch.Tensor]:  # noqa: A002  torch.jit asks for these names
    return (input[0] + 1.0,)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_that_only_gives_the_optimizer_a_state_does_not_count(kind, interval, capsys):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model, said = mlp(), {}
    optimizer = kind(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1e-9)
    record = {"detail": lambda step, metrics: said.update({step: dict(metrics)})}
    with watch(model, optimizer, interval=interval, **record) as monitor:
        for step in range(4):
            get_optimizer_state_dict(model, optimizer)
            assert monitor.steps == step
            model(torch.randn(3, 4)).square().mean().backward()
            highest = float(model[0].weight.grad.abs().max())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            assert monitor.steps == step + 1
            if step + 1 in said:
                assert said[step + 1]["gap/grads/0.weight/max"] == pytest.approx(highest)
    assert list(said) == [step for step in range(1, 5) if step == 1 or step % interval == 0]
    assert not told(capsys)


def test_a_rate_of_zero_is_a_step_like_others():
    model, said = mlp(), {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: metrics})) as monitor:
        (0.0 * model(torch.randn(3, 4)).sum()).backward()
        optimizer.step()
        assert monitor.steps == 1
    assert list(said) == [1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*Profiler record function")
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_compiled_step_of_the_optimizer_leaves_the_measuring_out(kind):
    torch._dynamo.reset()
    model, said = mlp(), {}
    optimizer = kind(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    x = torch.randn(3, 4)
    with watch(model, optimizer, interval=2, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        for _ in range(4):
            model(x).square().mean().backward()
            step()
            optimizer.zero_grad()
    plain, expected = mlp(), {}
    optimizer = kind(plain.parameters(), lr=0.1)
    with watch(plain, optimizer, interval=2, detail=lambda step, metrics: expected.update({step: dict(metrics)})):
        for _ in range(4):
            plain(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert list(said) == [1, 2, 4]
    for measured_step, metrics in expected.items():
        assert said[measured_step] == pytest.approx(metrics, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_whole_model_in_a_reentrant_checkpoint_is_told_of_once(batches, capsys):
    def step(model, batch):
        for _ in range(batches):
            checkpoint(model, batch.requires_grad_(), use_reentrant=True).square().mean().backward()

    model, x = mlp(), torch.randn(3, 4)
    expected = measured(mlp(), x)
    said = measured(model, x, step=step)
    assert not any(name.startswith("gap/activations/") for name in said)
    if batches == 1:
        for name in ("gap/grads/0.weight/max", "gap/activation_grads/0/var"):
            assert said[name] == pytest.approx(expected[name], rel=1e-5)
    (line,) = told(capsys)
    assert "use_reentrant=True" in line


def test_a_model_in_eval_mode_is_told_of_once(capsys):
    model = mlp().eval()
    assert measured(model, torch.randn(3, 4))["gap/grads/0.weight/max"] > 0
    (line,) = told(capsys)
    assert "eval mode" in line


def test_nothing_is_told_where_nothing_is_missing(capsys):
    model, x = mlp(), torch.randn(3, 4)
    measured(model, x)
    measured(model, x, kinds=("grads", "params"))
    measured(model.eval(), x, kinds=("grads",))
    measured(mlp(), x, step=lambda model, batch: model[2](model[0](batch)).sum().backward())
    assert not told(capsys)


class Interrupted(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise KeyboardInterrupt


@pytest.mark.parametrize("through", [True, False])
def test_behind_a_backward_pass_that_raised_gradients_are_measured_before_clipping(through, capsys):
    model, said = mlp(), {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, interval=1, detail=lambda step, metrics: said.update({step: dict(metrics)})):
        for step in (1, 2):
            with pytest.raises(KeyboardInterrupt):
                model(Interrupted.apply(torch.randn(3, 4, requires_grad=True))).sum().backward()
            optimizer.zero_grad()
            x = torch.randn(3, 4)
            (model(x) if through else nn.functional.linear(x, model[0].weight)).square().sum().backward()
            highest = float(model[0].weight.grad.abs().max())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-4)
            optimizer.step()
            assert said[step]["gap/grads/0.weight/max"] == pytest.approx(highest)
            optimizer.zero_grad()
    assert not told(capsys)
