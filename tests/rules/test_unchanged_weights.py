"""WGT002."""

import copy
import json
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


# Trainings that leave weights alone, without the optimizer's state.


def net(torch, width=24):
    return torch.nn.Sequential(
        torch.nn.Linear(16, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, 1),
    )


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    return torch


def trained(torch, folder, model, parameters=None, *, steps=120, every=30, saved=None, optimizer=None, **more):
    """Train and leave ``model_30.pt``, ... and a log. ``saved``: what is saved in place of the model."""
    optimizer = optimizer or torch.optim.Adam(list(model.parameters() if parameters is None else parameters), lr=1e-2)
    forward = more.pop("forward", model)
    truth = torch.randn(16)
    rows = []
    for step in range(1, steps + 1):
        x = torch.randn(32, 16)
        loss = (forward(x)[:, 0] - x @ truth).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append({"step": step, "train_loss": float(loss.detach())})
        if step % every == 0:
            torch.save((saved or model).state_dict(), folder / f"model_{step}.pt")
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "config.json").write_text(json.dumps({"batch_size": 32, **more}))


def judged(folder):
    """The verdict and what is said; a skip has its reason."""
    report = check(folder)
    found = [(str(one.verdict), one.message) for one in report.results if one.code == CODE]
    skipped = [("SkippedProbe", one.reason) for one in report.skipped if one.code == CODE]
    return (found + skipped)[0]


def test_weights_alone_that_are_trained(torch, tmp_path):
    trained(torch, tmp_path, net(torch))
    assert judged(tmp_path) == ("pass", "6 of 6 tensors changed since model_90.pt")


def test_a_stale_copy_is_saved(torch, tmp_path):
    model = net(torch, 96)
    trained(torch, tmp_path, model, saved=copy.deepcopy(model))
    verdict, said = judged(tmp_path)
    assert verdict == "fail"
    assert said == "not one of 6 tensors differs between model_30.pt and model_120.pt, while the training loss fell"
    (tmp_path / "log.jsonl").unlink()
    assert judged(tmp_path) == ("fail", "not one of 6 tensors differs between model_30.pt and model_120.pt")


def test_a_stale_copy_of_two_checkpoints(torch, tmp_path):
    """Whoever saves the best weights under the last step leaves two that are the same."""
    model = net(torch)
    trained(torch, tmp_path, model, saved=copy.deepcopy(model), every=60)
    verdict, said = judged(tmp_path)
    assert (verdict, "model_60.pt and model_120.pt, while" in said) == ("warn", True)


def test_nothing_is_trained(torch, tmp_path):
    """Loss and weights stand still, at a learning rate of 0 that nobody logged."""
    model = net(torch)
    trained(torch, tmp_path, model, optimizer=torch.optim.Adam(model.parameters(), lr=0.0))
    assert judged(tmp_path)[0] == "warn"


def test_the_best_weights_are_saved_last(torch, tmp_path):
    model = net(torch)
    trained(torch, tmp_path, model)
    (tmp_path / "model_120.pt").write_bytes((tmp_path / "model_90.pt").read_bytes())
    verdict, said = judged(tmp_path)
    assert (verdict, "one may be a copy" in said) == ("SkippedProbe", True)


@pytest.mark.parametrize("names", [("epoch=3.ckpt", "epoch=3-v1.ckpt", "epoch=3-v2.ckpt"), ("last.pt", "best.pt")])
def test_one_step_is_saved_more_than_once(names, torch, tmp_path):
    model = net(torch)
    trained(torch, tmp_path, model, every=120)
    first = tmp_path / "model_120.pt"
    for name in names:
        (tmp_path / name).write_bytes(first.read_bytes())
    first.unlink()
    assert judged(tmp_path)[0] == "SkippedProbe"


def test_the_trained_part_lies_in_another_file(torch, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    base, head = net(torch), torch.nn.Linear(1, 1)
    for step in (30, 60, 90):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        safetensors.save_file(base.state_dict(), folder / "model.safetensors")
        torch.nn.init.normal_(head.weight)
        safetensors.save_file(head.state_dict(), folder / "projector.safetensors")
    verdict, said = judged(tmp_path)
    assert (verdict, "next to which is projector.safetensors" in said) == ("SkippedProbe", True)
    for folder in tmp_path.iterdir():
        (folder / "projector.safetensors").unlink()
    assert judged(tmp_path)[0] == "fail"


@pytest.mark.parametrize("plain", [False, True])
def test_layers_that_were_never_trained(plain, torch, tmp_path):
    """The first two were left out of the optimizer; an optimizer that keeps no state does not tell."""
    model = net(torch)
    optimizer = torch.optim.SGD(model[4].parameters(), lr=1e-2) if plain else None
    trained(torch, tmp_path, model, model[4].parameters(), optimizer=optimizer)
    if plain:
        for file in tmp_path.glob("model_*.pt"):
            held = {"model": torch.load(file), "optimizer": optimizer.state_dict(), "step": int(file.stem[6:])}
            torch.save(held, file)
    verdict, said = judged(tmp_path)
    assert verdict == "warn"
    assert said == (
        "4 tensors did not change since model_90.pt; never trained, as the weights still are what an initialiser draws: nobody freezes random weights: "
        "0.weight, 0.bias, 2.weight, 2.bias"
    )


def test_layers_that_are_frozen_on_purpose(torch, tmp_path):
    """A backbone that was trained before, and one of which the run's settings say so."""
    model = net(torch)
    trained(torch, tmp_path, model, steps=400)
    for file in tmp_path.iterdir():
        file.unlink()
    trained(torch, tmp_path, model, model[4].parameters())
    assert judged(tmp_path) == ("pass", "2 of 6 tensors changed since model_90.pt")
    random = net(torch)
    trained(torch, tmp_path, random, random[4].parameters(), freeze_backbone=True)
    assert judged(tmp_path)[0] == "pass"


@pytest.mark.parametrize(("size", "verdict"), [(1.0, "warn"), (2.0, "pass")])
def test_a_small_embedding_beside_them(size, verdict, torch, tmp_path):
    """Of 160 normal values the size tells little; that of one which was trained before tells enough."""

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = torch.nn.Embedding(10, 16)
            self.up = torch.nn.Linear(16, 32)
            self.head = torch.nn.Linear(32, 1)

        def forward(self, x):
            inner = self.emb(x.abs().mul(4).long().clamp(max=9)).mean(1)
            return self.head(torch.relu(self.up(inner)))

    model = Tagger()
    with torch.no_grad():
        model.emb.weight.copy_(torch.nn.functional.normalize(model.emb.weight, dim=0) * size * 1.1 * 10**0.5)
    trained(torch, tmp_path, model, model.head.parameters())
    assert judged(tmp_path)[0] == verdict


def test_a_layer_behind_trained_ones(torch, tmp_path):
    """In the midst of what is trained nobody freezes; a single layer may be one that the task leaves out."""

    class Blocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList(
                torch.nn.ModuleDict({"up": torch.nn.Linear(16, 24), "down": torch.nn.Linear(24, 16)}) for _ in range(4)
            )
            self.head = torch.nn.Linear(16, 1)
            self.pooler = torch.nn.Linear(16, 16)

        def forward(self, x):
            for number, block in enumerate(self.blocks):
                inner = torch.relu(block["up"](x))
                x = x + block["down"](inner).detach() * self.detached if number == 2 else x + block["down"](inner)
            return self.head(x)

    model = Blocks()
    model.detached = 1.0
    for block in model.blocks:
        torch.nn.init.normal_(block["up"].weight, std=0.3)
        torch.nn.init.normal_(block["down"].weight, std=0.3)
    trained(torch, tmp_path, model)
    verdict, said = judged(tmp_path)
    assert (verdict, "blocks.2.up.weight" in said, "pooler" in said) == ("warn", True, False)

    healthy = net(torch)
    healthy.add_module("pooler", torch.nn.Linear(16, 16))
    for file in tmp_path.iterdir():
        file.unlink()
    trained(torch, tmp_path, healthy, forward=healthy[:5])
    assert judged(tmp_path) == ("pass", "6 of 8 tensors changed since model_90.pt")


def test_what_stands_still_and_is_no_layer(torch, tmp_path):
    """Masks of pruned weights, a teacher, the bias before a normalisation, random features in front."""
    prune = pytest.importorskip("torch.nn.utils.prune")

    class Student(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.B = torch.nn.Parameter(torch.randn(16, 16), requires_grad=False)
            self.body = net(torch)
            self.teacher = net(torch)
            self.norm = torch.nn.LayerNorm(16, elementwise_affine=False)
            for layer in self.body[::2]:
                prune.random_unstructured(layer, "weight", amount=0.3)

        def forward(self, x):
            return self.body(x + 0.1 * torch.sin(x @ self.B))

    model = Student()
    trained(torch, tmp_path, model, list(model.body.parameters()))
    assert judged(tmp_path)[0] == "pass"


def test_first_factors_of_an_adapter(torch, tmp_path):
    """LoRA-FA trains the second ones alone; a second one that stands still beside others is cut off."""
    for still, verdict in ((("lora_A",), "pass"), (("lora_A", "layers.1.q_proj.lora_B"), "warn")):
        safetensors = pytest.importorskip("safetensors.torch")
        tensors = {
            f"base_model.model.layers.{layer}.{module}.{factor}.weight": 0.1 * torch.randn(shape)
            for layer in range(3)
            for module in ("q_proj", "v_proj")
            for factor, shape in (("lora_A", (8, 64)), ("lora_B", (64, 8)))
        }
        for step in (10, 20, 30):
            folder = tmp_path / verdict / f"checkpoint-{step}"
            folder.mkdir(parents=True)
            for name, tensor in tensors.items():
                if not any(one in name for one in still):
                    tensor.add_(0.01 * torch.randn(tensor.shape))
            safetensors.save_file(tensors, folder / "adapter_model.safetensors")
        assert judged(tmp_path / verdict)[0] == verdict


def test_steps_so_small_that_they_are_rounded_away(torch, tmp_path):
    """The last checkpoint is saved a step behind the one before, at the end of the learning rate's decay."""
    model = net(torch)
    trained(torch, tmp_path, model)
    held = torch.load(tmp_path / "model_120.pt")
    for name in ("0.weight", "0.bias", "4.weight", "4.bias"):
        held[name] = held[name] * (1 + 2e-7)
    torch.save(held, tmp_path / "model_121.pt")
    assert judged(tmp_path) == ("pass", "4 of 6 tensors changed since model_120.pt")


def test_nothing_but_nan(make, judge):
    evidence = evidence_of(make, set(names_of()))
    stats = make.tensor(0, float("nan")).second_moment
    nan = replace(stats, nonfinite=stats.count)
    tensors = tuple(replace(one, stats=nan) for one in evidence.weights.tensors)
    result = judge(CODE, replace(evidence, weights=replace(evidence.weights, tensors=tensors)))
    assert (result.verdict, "see WGT001" in result.reason["reason"]) == ("SkippedProbe", True)


@pytest.mark.parametrize(("frozen_at", "verdict"), [(1, "pass"), (50, "pass"), (100, "fail")])
def test_layers_that_were_frozen_on_the_way(frozen_at, verdict, torch, tmp_path):
    """The optimizer keeps what it knew of them. In the last case they were stepped since, by a rate of nothing."""
    model = net(torch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, 121):
        for one in model[0].parameters():
            one.requires_grad_(step <= frozen_at)
            one.grad = one.grad if step <= frozen_at else None
        optimizer.zero_grad()
        model(torch.randn(32, 16)).square().mean().backward()
        optimizer.step()
        if step in (110, 120):
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, tmp_path / f"checkpoint_{step}.pt")
    assert judged(tmp_path)[0] == verdict
