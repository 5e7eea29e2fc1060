"""Optimizer state: torch is the oracle for what is whole, and nothing that is not makes it run or crash."""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import tracker_health
from tracker_health.errors import ReadError
from tracker_health.readers.optimizers.optimizer_state import (
    MAX_PARAMETERS,
    dangerous,
    has_optimizer_state,
    read_optimizer_state,
)
from tracker_health.readers.torch_files.safe_pickle import SafePickle

torch = pytest.importorskip("torch")

TWO = struct.pack("<2f", 1.5, -2.5)


def read(path):
    return read_optimizer_state(path, "file")


def naive(tensor):
    """Count, mean, rms, least, largest, zeros, non-finite: in float64, the plainest way."""
    values = tensor.detach().to(torch.float64).numpy().ravel()
    if not len(values):
        return 0, math.nan, math.nan, math.nan, math.nan, 0, 0
    with np.errstate(all="ignore"):
        measures = float(values.mean()), float(np.sqrt((values**2).mean())), float(values.min()), float(values.max())
    return len(values), *measures, int((values == 0).sum()), int((~np.isfinite(values)).sum())


def check_moment(stats, tensor):
    if not isinstance(tensor, torch.Tensor):
        assert stats is None
        return
    count, mean, rms, least, largest, zeros, nonfinite = naive(tensor)
    assert (stats.count, stats.zeros, stats.nonfinite) == (count, zeros, nonfinite)
    # A mean near zero is as exact as the values it is a mean of.
    size = float(tensor.detach().to(torch.float64).abs().mean()) if count else 0.0
    assert stats.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * size if math.isfinite(size) else 0.0, nan_ok=True)
    assert stats.rms == pytest.approx(rms, rel=1e-12, nan_ok=True)
    assert [stats.minimum, stats.maximum] == pytest.approx([least, largest], rel=1e-12, nan_ok=True)


def moments_by_torch(state):
    """The moments of one parameter as whole tensors, by the definitions of the optimizers that keep them."""
    state = {**state, **state.get("__bnb_optimizer_quant_state__", {})}
    first = next((state[key] for key in ("exp_avg", "momentum_buffer", "state1") if state.get(key) is not None), None)
    if "z" in state:
        first = None
    if "exp_avg_sq_row" in state:
        row, column = state["exp_avg_sq_row"].double(), state["exp_avg_sq_col"].double()
        return first, row.unsqueeze(-1) * column.unsqueeze(-2) / row.mean(-1, keepdim=True).unsqueeze(-1)
    if "row_var" in state:
        row = state["row_var"].double()
        return first, row * state["col_var"].double() / row.mean(-2, keepdim=True)
    keys = ("exp_avg_sq", "exp_inf", "square_avg", "sum", "variance", "state2")
    second = next((state[key] for key in keys if key in state), None)
    return dequantised(first, state, "1"), dequantised(second, state, "2")


def dequantised(codes, state, suffix):
    if f"qmap{suffix}" not in state:
        return codes
    values = state[f"qmap{suffix}"].double()[codes.long()].flatten()
    scales = state[f"absmax{suffix}"].double().repeat_interleave(256)[: len(values)]
    return (values * scales).reshape(codes.shape)


def check(found, expected):
    """Against the state dict that torch itself reads."""
    assert [tensor.id for tensor in found.tensors] == list(expected["state"])
    for tensor, state in zip(found.tensors, expected["state"].values(), strict=True):
        step = state.get("step", expected["param_groups"][0].get("k"))
        assert tensor.step == (None if step is None else float(step))
        first, second = moments_by_torch(state)
        check_moment(tensor.first_moment, first)
        check_moment(tensor.second_moment, second)
        known = second if second is not None else first
        assert tensor.shape == (() if known is None else tuple(known.shape))
    assert len(found.groups) == len(expected["param_groups"])
    for group, truth in zip(found.groups, expected["param_groups"], strict=True):
        for name, value in truth.items():
            if isinstance(value, (int, float, str)) or value is None:
                assert group[name] == value


# torch as the oracle


def torch_load(path):
    """What torch's safe reader makes of a file, told of the harmless classes in it that it refuses."""
    generator = [np._core.multiarray._reconstruct, np.ndarray, np.dtype, type(np.dtype(np.uint32))]
    with torch.serialization.safe_globals([*generator, torch.torch_version.TorchVersion]):
        return torch.load(path, map_location="cpu", weights_only=True)


def find_state(value):
    if "param_groups" in value:
        return value
    return next(inner for inner in value.values() if isinstance(inner, dict) and "param_groups" in inner)


SAMPLES = [
    *(
        f"hf_{kind}/checkpoint-4/optimizer.pt"
        for kind in ("full_adafactor", "full_ft_12L", "full_sgd", "lora_adamw8bit", "lora_all_mts_12L")
    ),
    *(f"hf_lora_{kind}/checkpoint-4/optimizer.pt" for kind in ("layers_2_5_11", "plus", "qv_12L")),
    "accelerate_ckpt/optimizer.bin",
    *(f"dlm/training_state{variant}.pt" for variant in ("", "_TorchVersion", "_norng", "_legacy")),
    *(
        f"raw_optim/{kind}.pt"
        for kind in ("adafactor_torch", "adagrad", "adamax", "adamw", "adamw_amsgrad", "adamw_foreach", "adamw_fused")
    ),
    *(
        f"raw_optim/{kind}.pt"
        for kind in (
            "adamw_named",
            "bnb_adamw32",
            "bnb_adamw8bit",
            "bnb_lion8bit",
            "bnb_paged_adamw8bit",
            "lion_pytorch",
        )
    ),
    *(
        f"raw_optim/{kind}.pt"
        for kind in ("muon_torch", "nadam", "radam", "rmsprop", "schedulefree_adamw", "sgd_mom", "sgd_plain")
    ),
]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_read_as_torch_reads_it(name, samples):
    path = samples / name
    check(read(path), find_state(torch_load(path)))
    assert has_optimizer_state(path)


def test_no_sample_is_left_out(samples):
    saved = {str(path.relative_to(samples)) for path in samples.rglob("*") if path.suffix in (".pt", ".bin")}
    others = {name for name in saved if name.endswith(("scheduler.pt", "scheduler.bin"))}
    assert saved - others == set(SAMPLES)
    assert not any(has_optimizer_state(samples / name) for name in others)


def test_the_format_before_zip_gives_the_same(samples):
    found, expected = (read(samples / "dlm" / f"training_state_{kind}.pt") for kind in ("legacy", "norng"))
    assert found.tensors == expected.tensors
    assert found.extras == expected.extras


def test_the_adapter_trainers_state(samples):
    found = read(samples / "dlm" / "training_state.pt")
    expected = torch_load(samples / "dlm" / "training_state.pt")
    assert found.global_step == expected["global_step"]
    assert found.extras["epoch"] == expected["epoch"]
    assert found.extras["use_qlora"] == expected["use_qlora"]
    assert dangerous(found.stubs) == ()


OPTIMIZERS = {
    "Adam": torch.optim.Adam,
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-4, betas=(0.8, 0.95)),
    "AdamW amsgrad": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True),
    "AdamW fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "AdamW foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=True),
    "AdamW capturable": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.5)),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "RMSprop": torch.optim.RMSprop,
}


def trained(make, dtype=torch.float32, steps=3):
    """An optimizer after a few steps on parameters of every shape and memory order."""
    torch.manual_seed(0)
    shapes = [torch.randn(300, 301), torch.randn(7), torch.tensor(0.5), torch.empty(0, 3), torch.randn(1, 1, 4)]
    shapes += [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(6, 5).T]
    parameters = [torch.nn.Parameter(tensor.to(dtype)) for tensor in shapes]
    optimizer = make(parameters)
    for _ in range(steps):
        for parameter in parameters[:-1]:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.thinned(3)
def test_optimizers_of_every_kind_and_dtype(name, dtype, tmp_path):
    state = trained(OPTIMIZERS[name], dtype).state_dict()
    path = tmp_path / "optimizer.pt"
    torch.save(state, path)
    found = read(path)
    check(found, state)
    assert found.stubs == ()
    if name != "SGD":
        assert len(found.tensors) == 6  # the last one never got a gradient


def test_named_parameters_and_several_groups(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": named[::2]}, {"params": named[1::2], "weight_decay": 0.0}])
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "step": 1}, tmp_path / "a.ckpt")
    found = read(tmp_path / "a.ckpt")
    assert [tensor.name for tensor in found.tensors] == ["0.weight", "1.weight", "0.bias", "1.bias"]
    assert [tensor.shape for tensor in found.tensors] == [(3, 4), (2, 3), (3,), (2,)]
    assert found.groups[1]["weight_decay"] == 0.0
    assert found.groups[0]["betas"] == (0.9, 0.999)
    assert found.global_step == 1


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_moments_that_are_not_finite(special, tmp_path):
    optimizer = trained(OPTIMIZERS["AdamW"])
    for index, state in enumerate(optimizer.state_dict()["state"].values()):
        if index % 2:
            state["exp_avg"].fill_(special)
        elif state["exp_avg_sq"].numel():
            state["exp_avg_sq"].view(-1)[-1] = special
    path = tmp_path / "optimizer.pt"
    torch.save(optimizer.state_dict(), path)
    check(read(path), optimizer.state_dict())


def test_a_lightning_checkpoint(tmp_path):
    state = trained(OPTIMIZERS["Adam"]).state_dict()
    torch.save(
        {"epoch": 1, "global_step": 12, "optimizer_states": [state], "loops": {}, "lr_schedulers": [{}]},
        tmp_path / "last.ckpt",
    )
    found = read(tmp_path / "last.ckpt")
    check(found, state)
    assert (found.global_step, found.extras["epoch"]) == (12, 1)


@pytest.mark.parametrize(
    ("several", "names"),
    [
        (lambda g, d: {"g": g, "d": d}, ["g", "d"]),
        (lambda g, d: {"optimizer_states": [g, d]}, ["optimizer_states.0", "optimizer_states.1"]),
        (lambda g, d: {"step": 3, "optimizers": {"g": g, "d": d}}, ["optimizers.g", "optimizers.d"]),
    ],
)
def test_several_optimizers_are_kept_apart(several, names, tmp_path):
    generator, discriminator = (trained(OPTIMIZERS[name]).state_dict() for name in ("Adam", "SGD momentum"))
    torch.save(several(generator, discriminator), tmp_path / "a.ckpt")
    found = read(tmp_path / "a.ckpt")
    for index, (name, expected) in enumerate(zip(names, (generator, discriminator), strict=True)):
        part = tuple(replace(tensor) for tensor in found.tensors if tensor.optimizer == name)
        assert [tensor.group for tensor in part] == [index] * len(part)
        assert [tensor.label for tensor in part] == [f"{name}/#{key}" for key in expected["state"]]
        check(replace(found, tensors=part, groups=found.groups[index : index + 1]), expected)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"model": {"weight": torch.ones(2)}},
        torch.ones(3),
        [1, 2],
        None,
        {"state": {}},
        {"state": [], "param_groups": []},
    ],
)
def test_no_optimizer_state_is_told(value, tmp_path, assert_one_line):
    path = tmp_path / "a.pt"
    torch.save(value, path)
    with pytest.raises(ReadError, match="no optimizer state") as error:
        read(path)
    assert_one_line(str(error.value))
    assert not has_optimizer_state(path)


@pytest.mark.parametrize("whole", [lambda model, _: model, lambda model, adam: {"model": model, "optimizer": adam}])
def test_an_object_in_the_place_of_its_state_is_told(whole, tmp_path):
    model = torch.nn.Linear(2, 2)
    torch.save(whole(model, torch.optim.AdamW(model.parameters())), tmp_path / "a.pt")
    with pytest.raises(ReadError, match="no optimizer state") as error:
        read(tmp_path / "a.pt")
    assert "save optimizer.state_dict()" in error.value.hint


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("zipped", [True, False])
def test_moments_of_complex_parameters_are_those_of_their_two_parts(dtype, zipped, tmp_path):
    parameter = torch.nn.Parameter(torch.randn(5, 7, dtype=dtype))
    optimizer = torch.optim.Adam([parameter], 1e-2)
    for _ in range(5):
        optimizer.zero_grad()
        (parameter.abs() ** 2).sum().backward()
        optimizer.step()
    torch.save(optimizer.state_dict(), tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    (found,) = read(tmp_path / "a.pt").tensors
    truth = {key: torch.view_as_real(optimizer.state[parameter][key]) for key in ("exp_avg", "exp_avg_sq")}
    assert found.shape == (5, 7, 2)
    assert found.second_moment.mean == pytest.approx(float(truth["exp_avg_sq"].double().mean()), rel=1e-6)
    assert found.first_moment.rms == pytest.approx(float(truth["exp_avg"].double().square().mean().sqrt()), rel=1e-6)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda moment: moment.to("meta"), "meta device"),
        (lambda moment: moment.to_sparse(), "sparse"),
    ],
)
def test_moments_of_a_kind_that_is_not_read_are_not_taken_for_none(change, told, tmp_path):
    content = trained(OPTIMIZERS["AdamW"]).state_dict()
    for key in ("exp_avg", "exp_avg_sq"):
        content["state"][0][key] = change(content["state"][0][key])
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(ReadError, match=f"parameter 0: its moments are kept as .*{told}"):
        read(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (torch.optim.Adadelta, "adadelta"),
        (torch.optim.RMSprop, "rmsprop"),
        (lambda parameters: torch.optim.AdamW(parameters, amsgrad=True), "amsgrad"),
        (torch.optim.ASGD, ""),
        (torch.optim.Rprop, ""),
    ],
)
def test_optimizers_by_what_they_keep(make, kind, tmp_path):
    torch.save(trained(make).state_dict(), tmp_path / "a.pt")
    found = read(tmp_path / "a.pt")
    assert {tensor.kind for tensor in found.tensors} == {kind}
    assert (found.tensors[0].second_moment is None) == (kind == "")


def test_what_is_kept_for_all_parameters_at_the_first_leaves_none_without_state(tmp_path):
    model = torch.nn.Linear(2, 2)
    lbfgs = torch.optim.LBFGS(model.parameters())

    def loss():
        lbfgs.zero_grad()
        value = model(torch.ones(3, 2)).square().mean()
        value.backward()
        return value

    lbfgs.step(loss)
    torch.save(lbfgs.state_dict(), tmp_path / "a.pt")
    found = read(tmp_path / "a.pt")
    assert (len(found.tensors), found.stateless) == (1, ())


def test_an_empty_state_is_an_empty_state(tmp_path):
    torch.save(torch.optim.AdamW([torch.ones(2)]).state_dict(), tmp_path / "a.pt")
    found = read(tmp_path / "a.pt")
    assert (found.tensors, found.steps, len(found.groups)) == ((), None, 1)


# Odd values in the right places


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (-3, -3.0),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (math.nan, math.nan),
        ("12", None),
        (None, None),
        (True, None),
        ([4], None),
        (2.5, 2.5),
    ],
    ids=str,
)
def test_steps_that_are_none(step, expected, tmp_path, save_archive, optimizer_of, tensor):
    state = {"step": step, "exp_avg": tensor("0"), "exp_avg_sq": tensor("1")}
    path = save_archive(tmp_path / "a.pt", optimizer_of(state, global_step=step), {"0": TWO, "1": TWO})
    found = read(path)
    (parameter,) = found.tensors
    assert parameter.step == pytest.approx(expected, nan_ok=True) if expected is not None else parameter.step is None
    assert parameter.second_moment.minimum == -2.5  # a negative second moment is a matter for the rules
    assert isinstance(found.steps, (int, type(None)))


def test_a_signalling_nan_is_no_warning(tmp_path, save_archive, optimizer_of, tensor):
    """Damage has such bit patterns; numpy warns of each, and warnings are errors here."""
    state = {"step": tensor("0", shape=()), "exp_avg": tensor("1"), "exp_avg_sq": tensor("1")}
    signalling = struct.pack("<I", 0x7F800001)
    path = save_archive(tmp_path / "a.pt", optimizer_of(state), {"0": signalling, "1": 2 * signalling})
    (found,) = read(path).tensors
    assert math.isnan(found.step)
    assert found.second_moment.nonfinite == 2


@pytest.mark.parametrize("values", [(-3.0,), (math.nan,), (math.inf,)])
def test_steps_in_tensors_that_are_none(values, tmp_path, save_archive, optimizer_of, tensor):
    state = {"step": tensor("0", shape=()), "exp_avg": tensor("1"), "exp_avg_sq": tensor("1")}
    path = save_archive(tmp_path / "a.pt", optimizer_of(state), {"0": struct.pack("<f", *values), "1": TWO})
    assert read(path).tensors[0].step == pytest.approx(values[0], nan_ok=True)
    assert isinstance(read(path).steps, (int, type(None)))


def test_a_step_of_two_numbers_is_refused_by_name(tmp_path, save_archive, optimizer_of, tensor, assert_one_line):
    path = save_archive(tmp_path / "a.pt", optimizer_of({"step": tensor()}), {"0": TWO})
    with pytest.raises(ReadError, match=r"parameter 0: .*where one number belongs") as error:
        read(path)
    assert_one_line(str(error.value))


def test_what_training_states_hold_beside_numbers_does_not_hide_the_rest(tmp_path):
    state = trained(OPTIMIZERS["AdamW"]).state_dict()
    beside = {
        "args": argparse.Namespace(lr=0.1),
        "path": pathlib.PurePosixPath("/data"),
        "best": np.float64(0.25),
        "array": np.arange(10),
        "sparse": torch.eye(3).to_sparse(),
        "version": torch.__version__,
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "size": torch.Size([1, 2]),
        "set": {1, 2},
        "tuples": {(0, 1): "a"},
        "rng": torch.get_rng_state(),
        7: "an integer key",
        "loss": torch.tensor(0.5),
        "epoch": 3,
    }
    torch.save({"optimizer_state_dict": state, "global_step": 3, **beside}, tmp_path / "training_state.pt")
    found = read(tmp_path / "training_state.pt")
    check(found, state)
    assert (found.global_step, found.extras["loss"], found.extras["epoch"]) == (3, 0.5, 3)
    assert "argparse.Namespace" in found.stubs
    assert dangerous(found.stubs) == ()


def test_odd_state_of_a_parameter_does_not_hide_the_others(tmp_path, save_archive, tensor):
    state = {
        0: {"exp_avg_sq": tensor()},
        "layer.weight": {"exp_avg_sq": tensor(), "step": 2},
        (1, 2): {"exp_avg_sq": tensor()},
        2: "text",
        3: None,
        4: {"exp_avg_sq": [1.0, 2.0], "exp_avg": "text"},
        10**400: {},
        None: {},
        b"bytes": {},
        "x" * 10_000: {},
        "\x1b[31m\n": {},
    }
    path = save_archive(
        tmp_path / "a.pt", {"state": state, "param_groups": [1, {"params": [[]], "param_names": [1]}]}, {"0": TWO}
    )
    found = read(path)
    assert [tensor.second_moment is not None for tensor in found.tensors[:4]] == [True, True, True, False]
    assert found.tensors[1].name == "layer.weight"
    assert all(str(tensor.id).isprintable() and len(str(tensor.id)) <= 200 for tensor in found.tensors)


def test_groups_with_odd_values(tmp_path, save_archive):
    group = {
        "lr": 10**400,
        "params": [0],
        "param_names": ["a", "b"],
        "betas": (0.9, "x"),
        5: 1,
        "text": "y" * 5000,
        "k" * 5000: 1,
        "n": None,
    }
    path = save_archive(tmp_path / "a.pt", {"state": {}, "param_groups": [group]})
    (found,) = read(path).groups
    assert found == {"lr": math.inf, "params": (0,), "betas": (0.9, "x"), "param_names": ("a", "b"), "n": None}


@pytest.mark.parametrize(
    ("value", "read_as"),
    [(2**63 - 1, 2**63 - 1), (2**63, math.inf), (-(2**63), -math.inf), (10**400, math.inf), (-(10**400), -math.inf)],
)
def test_integers_beyond_64_bits_are_infinite(value, read_as, tmp_path, save_archive, optimizer_of):
    extras = {"global_step": value, "best_val_loss": value, "history": [value, 1]}
    found = read(save_archive(tmp_path / "a.pt", optimizer_of(**extras))).extras
    assert found == {"global_step": read_as, "best_val_loss": read_as, "history": (read_as, 1)}
    assert type(found["best_val_loss"]) is type(read_as)


@pytest.mark.parametrize("value", [math.nan, math.inf, 10**400, "7", True, None, [7], 7.5, 2**60])
def test_global_steps_that_are_none(value, tmp_path, save_archive, optimizer_of):
    path = save_archive(tmp_path / "a.pt", optimizer_of(global_step=value))
    assert read(path).global_step is None


def test_a_state_dictionary_in_itself(tmp_path, save_archive):
    root = {"state": {}, "param_groups": []}
    root["state"][0] = root["state"]
    root["param_groups"].append(root)
    assert len(read(save_archive(tmp_path / "a.pt", root)).tensors) == 1
    outer = {"a": 1}
    outer["self"] = outer
    with pytest.raises(ReadError, match="no optimizer state"):
        read(save_archive(tmp_path / "a.pt", outer))


# Hostile files


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("place", ["beside", "in the state", "in a group", "as the step", "as a moment", "deep"])
@pytest.mark.parametrize("way", ["system", "open"])
def test_nothing_in_a_checkpoint_is_run(way, place, tmp_path, save_archive, optimizer_of, tensor):
    canary = tmp_path / "canary"
    call = Calls(os.system, f"touch {canary}") if way == "system" else Calls(open, str(canary), "w")
    state = {"step": 5, "exp_avg": tensor("0"), "exp_avg_sq": tensor("1")}
    root = {"optimizer": optimizer_of(state), "epoch": 2}
    target = {
        "beside": root,
        "in the state": root["optimizer"]["state"],
        "in a group": root["optimizer"]["param_groups"][0],
        "as the step": state,
        "as a moment": state,
        "deep": root.setdefault("deep", {}).setdefault("deeper", {}),
    }[place]
    target[{"as the step": "step", "as a moment": "exp_avg"}.get(place, "evil")] = call
    found = read(save_archive(tmp_path / "a.pt", root, {"0": TWO, "1": TWO}))
    assert found.extras == {"epoch": 2}
    assert found.tensors[0].second_moment.maximum == 1.5
    assert len(dangerous(found.stubs)) == 1
    assert not canary.exists()


def test_nothing_in_a_legacy_file_is_run(tmp_path, assert_one_line):
    canary = tmp_path / "canary"
    torch.save({"evil": Calls(os.system, f"touch {canary}")}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ReadError) as error:
        read(tmp_path / "a.pt")
    assert_one_line(str(error.value))
    assert not canary.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "posix.system",
        "nt.system",
        "subprocess.Popen",
        "builtins.eval",
        "__builtin__.exec",
        "builtins.open",
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_dangerous_names(name, protocol):
    module, _, attribute = name.rpartition(".")
    call = f"c{module}\n{attribute}\n)R.".encode()
    machine = SafePickle(b"\x80" + bytes([protocol]) + call)
    machine.load()
    assert dangerous(machine.stubs) == (name,)


def test_harmless_names():
    names = (
        "numpy.dtype",
        "builtins.set",
        "collections.Counter",
        "pathlib.PosixPath",
        "torch.device",
        "osmium.thing",
        "_codecs.encode",
    )
    assert dangerous(names) == ()


def bomb(name, path, save_archive, tensor, optimizer_of):
    big = 4_000_000
    if name == "stride 0":
        state = {"exp_avg_sq": tensor(shape=(10**12,), strides=(0,), count=1)}
        return save_archive(path, optimizer_of(state), {"0": struct.pack("<f", 1.0)})
    if name == "compression":
        states = optimizer_of({"exp_avg_sq": tensor(shape=(60 * 2**20,))})
        return save_archive(path, states, {"0": bytes(240 * 2**20)}, compression=zipfile.ZIP_DEFLATED)
    if name == "every parameter the same large storage":
        state = {"exp_avg": tensor(shape=(big,)), "exp_avg_sq": tensor(shape=(big,))}
        return save_archive(
            path, {"state": dict.fromkeys(range(30_000), state), "param_groups": []}, {"0": bytes(4 * big)}
        )
    if name == "as many parameters as are read":
        state = {"step": tensor("1", shape=()), "exp_avg": tensor("0"), "exp_avg_sq": tensor("0")}
        return save_archive(
            path,
            {"state": dict.fromkeys(range(MAX_PARAMETERS), state), "param_groups": []},
            {"0": TWO, "1": TWO[:4], "x": bytes(10**6)},
        )
    if name == "more parameters than are read":
        return save_archive(path, {"state": {index: {} for index in range(250_000)}, "param_groups": []})
    if name == "a pickle over the limit":
        return save_archive(path, b"\x80\x02" + b"N0" * (40 * 2**20) + b"N.")
    if name == "a key of many long texts":
        key = ("x" * 10**6,)
        return save_archive(path, {"state": {key * 60: {}}, "param_groups": [], key * 50: 1})
    raise KeyError(name)


BOMBS = {
    "stride 0": "densely",
    "compression": "compressed",
    "every parameter the same large storage": "larger than the file",
    "as many parameters as are read": None,
    "more parameters than are read": "more than",
    "a pickle over the limit": "more than",
    "a key of many long texts": None,
}


@pytest.mark.parametrize("name", list(BOMBS))
@pytest.mark.thinned(7)
def test_bombs_cost_neither_time_nor_memory(name, tmp_path, save_archive, tensor, optimizer_of, measured):
    path = bomb(name, tmp_path / "a.pt", save_archive, tensor, optimizer_of)
    outcome = measured("torch", path)
    if BOMBS[name] is None:
        assert outcome["message"] is None
    else:
        assert BOMBS[name] in outcome["message"]


@pytest.mark.slow
def test_a_file_larger_than_the_memory_is_read_through_a_small_buffer(
    tmp_path, save_archive, optimizer_of, tensor, measured
):
    path = tmp_path / "a.pt"
    values = 100 * 2**20
    save_archive(path, optimizer_of({"exp_avg_sq": tensor(shape=(values,))}), {"0": bytes(4 * values)})
    assert measured("torch", path)["value"] == 1
    path.unlink()


def test_shared_tuples_of_many_paths(tmp_path):
    """In a hand-made pickle: Python itself would hash the key for ever."""
    graph = b")\x85" + b"2\x86" * 60
    root = (
        b"\x80\x02}(X\x05\x00\x00\x00state}(K\x00"
        + graph
        + graph
        + b"}uX\x0c\x00\x00\x00param_groups]("
        + graph
        + b"eu."
    )
    path = tmp_path / "a.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", root)
    found = read(path)
    assert (len(found.tensors), found.groups) == (1, ())


@pytest.mark.parametrize("preset", ["default", "dlm"])
@pytest.mark.parametrize("huge", [10**400, -(10**400), 2**63], ids=["huge", "negative", "65 bits"])
@pytest.mark.parametrize("where", ["global_step", "best_val_loss", "epoch"])
def test_huge_integers_in_a_checkpoint_break_no_rule(where, huge, preset, tmp_path, tensor, save_archive, valid_report):
    state = {"state": {0: {"step": 50, "exp_avg_sq": tensor()}}, "param_groups": [{"params": [0], "lr": huge}]}
    numbers = {"global_step": 100, "best_val_loss": 1.0, "epoch": 1} | {where: huge}
    save_archive(tmp_path / "training_state.pt", {"optimizer_state_dict": state, **numbers}, {"0": TWO})
    report = tracker_health.check(tmp_path, config=preset)
    valid_report(report.to_json())
    assert report.errors == ()
    if where != "global_step" and preset == "dlm":
        assert "OPT101" in [result.code for result in report.results]


@pytest.mark.parametrize(
    ("beside", "step"),
    [
        ({"step": 30, "epoch": 30}, None), ({"step": 30, "epoch": 3}, 30), ({"global_step": 30, "epoch": 30}, 30),
        ({"iteration": 7, "epoch": 7}, None), ({"step": 3, "iter": 900, "epoch": 3}, 900), ({"step": 5}, 5),
    ],
)  # fmt: skip
def test_an_epochs_number_that_is_called_a_step(beside, step, tmp_path):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2, 2))], lr=0.1)
    torch.save({"optimizer": optimizer.state_dict(), **beside}, tmp_path / "a.pt")
    assert read(tmp_path / "a.pt").global_step == step
