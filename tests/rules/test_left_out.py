"""OPT004: what was left out of training by accident, and what was on purpose, in models that are really trained."""

import gzip
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tests.growth import linear
from torch import nn

from tracker_health.api import check
from tracker_health.evidence import MomentStats, OptimizerState, TensorHeader, TensorState, Weights
from tracker_health.evidence.parameters.initial import never_trained
from tracker_health.evidence.parameters.left_out import Case, Left
from tracker_health.evidence.parameters.purpose import purposes
from tracker_health.evidence.parameters.rows import Naming, Parameter
from tracker_health.readers.optimizers.attribution import attributed

CODE = "OPT004"
DATA = Path(__file__).parent.parent / "data" / "attribution"
CHECKPOINTS = json.loads(gzip.decompress((DATA / "shapes.json.gz").read_bytes()))


# Answers by name


def answer(missing, trained, *, how=Left.WITHOUT_STATE, shape=(4, 4)):
    """The names of the answers for parameters by name, and those that they are for."""

    def row(name, *, of):
        return Parameter(label=name, name=name, naming=Naming.FILE, shape=of, trained=True)

    case = Case(
        how=how,
        missing=tuple(row(name, of=shape) for name in missing),
        trained=tuple(row(name, of=(4, 4)) for name in trained),
        all_amount=len(missing) + len(trained),
    )
    return {one.purpose.name: [row.name for row in one.parameters] for one in purposes(case)}


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("rnn.weight_hh_l0", ["rnn.weight_ih_l0"], True),
        ("rnn.weight_ih_l0_reverse", ["rnn.weight_hh_l0_reverse"], True),
        ("cell.weight_hh", ["cell.weight_ih"], True),
        ("attn.k_proj_weight", ["attn.q_proj_weight"], True),
        ("rnn.weight_hh_l0", ["rnn.weight_ih_l1", "rnn.weight_hh_l1"], False),
        ("rnn.weight_hh_l0_reverse", ["rnn.weight_hh_l0"], False),
        ("rnn.weight_hh_l0", ["other.weight_ih_l0"], False),
        ("rnn.weight_hh_l0", ["rnn.bias_hh_l0", "fc.weight"], False),
        ("rnn.module.weight_hh_l0", ["rnn.module.weight_ih_l0", "rnn.weight_hh_l0_raw"], False),
        ("last.weight_g", ["last.weight_v"], False),
        ("pos_embed", ["cls_token"], False),
    ],
)
def test_no_module_is_frozen_by_halves(missing, trained, found):
    """A layer or a direction of a recurrent module may be; and AWD-LSTM trains a copy."""
    assert ("half a module" in answer([missing], trained)) is found


def test_the_first_parameters_of_a_model_may_end_within_a_layer():
    first, rest = ["emb.weight", "rnn.weight_ih_l0"], ["rnn.weight_hh_l0", "fc.weight"]
    assert "half a module" not in answer(first, rest)
    assert answer(first, [*rest, "pos_emb.weight"])["half a module"] == first[1:]
    assert answer(["emb.weight", rest[0]], [*first[1:], *rest[1:]])["half a module"] == rest[:1]


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        ("emb.2.weight", ["emb.0.weight", "emb.1.weight", "emb.3.weight"], True),
        ("emb.3.weight", ["emb.0.weight", "emb.1.weight", "emb.2.weight"], True),
        ("emb.0.weight", ["emb.1.weight", "emb.2.weight", "emb.3.weight"], False),
        ("emb.1.weight", ["emb.0.weight"], False),
        ("net.2.weight", ["net.0.weight", "net.4.weight"], True),
        ("net.4.weight", ["net.0.weight", "net.2.weight"], False),
        ("convs.1.weight", ["convs.0.weight", "convs.2.weight"], True),
        ("heads.1.weight", ["heads.0.weight", "heads.2.weight"], False),
        ("decoder.seg_layers.1.weight", ["decoder.seg_layers.0.weight", "decoder.seg_layers.2.weight"], False),
        ("net.2.weight", ["net.0.weight", "net.4.weight", "net.4.lora_A.weight"], False),
        ("layer2.0.conv1.weight", ["layer2.0.conv2.weight", "layer2.1.conv1.weight"], True),
        ("layer2.1.conv1.weight", ["layer2.1.conv2.weight", "layer2.0.conv1.weight"], False),
        ("layer2.0.conv1.weight", ["layer2.1.conv1.weight", "layer2.1.conv2.weight"], False),
    ],
)
def test_what_lies_between_its_sisters(missing, trained, found):
    assert ("between sisters" in answer([missing], trained)) is found


def test_sisters_are_matrices_and_more_than_what_is_missing():
    trained = ["net.0.weight", "net.4.weight"]
    assert "between sisters" not in answer(["net.2.weight"], trained, shape=(4,))
    assert "between sisters" in answer(["net.2.weight"], trained, shape=None)
    assert "between sisters" not in answer(["net.1.weight", "net.2.weight", "net.3.weight"], trained)


TOWER = [f"{tower}.layers.{layer}.{part}.weight" for tower in ("vision", "text") for layer in (0, 1) for part in "ab"]


@pytest.mark.parametrize(
    ("missing", "trained", "found"),
    [
        (TOWER[:4], ["first.weight", *TOWER[4:]], True),
        (TOWER[:3], ["first.weight", *TOWER[3:]], False),
        (["decoder.0.weight", "decoder.0.bias"], TOWER, False),
        ([f"layer3.{n}.conv.weight" for n in range(4)], [f"layer2.{n}.conv.weight" for n in range(4)], False),
        ([f"wav2vec2.{n}.conv.weight" for n in range(4)], TOWER, True),
        ([f"layers.1.mlp.{n}.weight" for n in range(4)], [f"layers.0.mlp.{n}.weight" for n in range(4)], False),
    ],
    ids=["tower", "part", "one layer", "numbered", "a number", "in a list"],
)
def test_whole_branches(missing, trained, found):
    """Or at least nothing before it is trained, by its name."""
    names = answer(missing, trained)
    assert bool({"branch", "front"} & set(names)) is found or (not found and "front" in names)


@pytest.mark.parametrize(
    ("missing", "others", "frozen"),
    [
        (["layer1.0.conv.weight"], ["layer2.0.conv.weight"], True),
        (["layer2.0.conv.weight"], ["layer1.0.conv.weight", "layer3.0.conv.weight"], False),
        (["fc1.weight"], ["fc2.weight"], True),
        (["fc2.weight"], ["fc1.weight", "fc3.weight"], False),
        (["classifier.0.weight"], ["classifier.2.weight"], True),
        (["classifier.2.weight"], ["classifier.0.weight", "classifier.4.weight"], False),
        (["fc_in.weight"], ["blocks.0.weight", "head.weight"], True),
    ],
)
def test_what_lies_before(missing, others, frozen):
    assert ("front" in answer(missing, others)) is frozen


def of_layers(layers, *roles):
    return [f"layers.{layer}.{role}.weight" for layer in layers for role in roles]


@pytest.mark.parametrize(
    ("missing", "others", "frozen"),
    [
        (of_layers(range(4), "mlp.up"), of_layers(range(4), "attn.q"), True),
        ([*of_layers(range(4), "mlp.up"), "embed.weight"], [*of_layers(range(4), "attn.q"), "head.weight"], True),
        ([*of_layers(range(4), "mlp.up"), "head.weight"], of_layers(range(4), "attn.q"), True),
        ([*of_layers(range(4), "mlp.up"), "head.weight"], [*of_layers(range(4), "attn.q"), "embed.weight"], False),
        (of_layers(range(1, 4), "mlp.up"), [*of_layers(range(4), "attn.q"), "layers.0.mlp.up.weight"], False),
    ],
    ids=["every layer", "and the front", "nothing else", "and the head", "not of the first"],
)
def test_the_same_parts_of_every_layer(missing, others, frozen):
    assert ("kind" in answer(missing, others)) is frozen


@pytest.mark.parametrize(
    ("missing", "other", "found"),
    [
        ("heads.svhn.weight", "heads.mnist.weight", True),
        ("heads.1.weight", "heads.0.weight", True),
        ("decoders.depth.0.weight", "decoders.normal.0.weight", True),
        ("head_depth.weight", "head_normal.weight", True),
        ("depth_head.weight", "normal_head.weight", True),
        ("classifier.dense.weight", "classifier.out_proj.weight", False),
        ("classifier.2.weight", "classifier.0.weight", False),
        ("heads.a.weight", "heads.b.bias", False),
        ("user_emb.weight", "item_emb.weight", False),
        ("conv1.weight", "conv2.weight", False),
    ],
)
def test_heads_by_name_of_which_a_task_uses_some(missing, other, found):
    assert ("other head" in answer([missing], [other])) is found


@pytest.mark.slow
def test_the_time_is_linear_in_the_parameters():
    def work(size):
        names = [f"blocks{index}.{index}.w.weight" for index in range(size)]
        names += [f"net.{index}.weight" for index in range(2 * size)]
        answer(names[1::2], names[::2])

    assert linear(work, 200)


# Real models


def before(*modules):
    """As if they had been trained before."""
    with torch.no_grad():
        for parameter in (one for module in modules for one in module.parameters()):
            parameter.mul_(3.3)


def frozen(*modules):
    for module in modules:
        for one in module.parameters() if isinstance(module, nn.Module) else [module]:
            one.requires_grad_(False)


class Parts(nn.Module):
    """Modules by name, and what they do together."""

    def __init__(self, run, **modules):
        super().__init__()
        for name, module in modules.items():
            setattr(self, name, module)
        self._run = run

    def forward(self):
        return self._run(self)


def numbers(*shape):
    return torch.randn(*shape)


def words(*shape):
    return torch.randint(0, 40, shape)


def chain(*widths):
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def mlp():
    return Parts(lambda self: self.net(numbers(8, 20)), net=chain(20, 32, 32, 16))


def recurrent(kind=nn.GRU, **more):
    def run(self):
        return self.fc(self.rnn(self.emb(words(4, 6)))[0])

    return Parts(run, emb=nn.Embedding(40, 24), rnn=kind(24, 16, batch_first=True, **more), fc=nn.Linear(16, 40))


def tabular():
    def run(self):
        return self.net(torch.cat([one(words(8)) for one in self.emb], 1))

    return Parts(run, emb=nn.ModuleList(nn.Embedding(40 + n, 12) for n in range(4)), net=chain(48, 16, 8))


def recommender():
    def run(self):
        return self.fc(torch.cat([self.user_emb(words(8)), self.item_emb(words(8))], 1))

    return Parts(run, user_emb=nn.Embedding(41, 12), item_emb=nn.Embedding(42, 12), fc=nn.Linear(24, 8))


def towers():
    def run(self):
        return self.vision(numbers(8, 20)) * self.text(numbers(8, 12)) * self.scale

    found = Parts(run, text=chain(12, 32, 16), vision=chain(20, 32, 16))
    found.scale = nn.Parameter(torch.ones(()))
    return found


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Linear(32, 32, bias=False), nn.LayerNorm(32)
        self.conv2, self.bn2 = nn.Linear(32, 32, bias=False), nn.LayerNorm(32)

    def forward(self, x):
        return x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))


def residual():
    def run(self):
        return self.fc(self.layer2(self.layer1(self.conv1(numbers(8, 20)))))

    layers = {f"layer{n}": nn.Sequential(Block(), Block(), Block()) for n in (1, 2)}
    return Parts(run, conv1=nn.Linear(20, 32, bias=False), **layers, fc=nn.Linear(32, 16))


def tied():
    def run(self):
        return self.decoder(self.body(self.emb(words(8))))

    found = Parts(run, emb=nn.Embedding(40, 24), body=chain(24, 24, 24), decoder=nn.Linear(24, 40))
    found.decoder.weight = found.emb.weight
    return found


def left_by(model, folder, *, named, listed=True, weights=True, sgd=False):
    """What a training leaves behind. ``listed``: the optimizer gets all parameters, not only those that are trained."""
    given = [(name, one) for name, one in model.named_parameters() if listed or one.requires_grad]
    parameters = given if named else [one for _, one in given]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9) if sgd else torch.optim.Adam(parameters)
    for _ in range(8):
        optimizer.zero_grad()
        model().square().mean().backward()
        optimizer.step()
    saved = {"optimizer": optimizer.state_dict(), "epoch": 8} | ({"model": model.state_dict()} if weights else {})
    torch.save(saved, folder / "last.pt")
    report = check(folder)
    return next((one for one in report.results if one.code == CODE), SimpleNamespace(verdict="skip", message=""))


def cut(make, *paths):
    """A model of which some modules or tensors get no gradient."""
    torch.manual_seed(0)
    model = make()
    for path in paths:
        above, _, last = path.rpartition(".")
        frozen(getattr(model.get_submodule(above), last))
    return model


ACCIDENTS = {
    "an embedding of four": (tabular, ["emb.2"], False),
    "the last of four": (tabular, ["emb.3"], False),
    "an embedding of two": (recommender, ["item_emb"], False),
    "half of a GRU": (recurrent, ["rnn.weight_hh_l0"], True),
    "the other half": (recurrent, ["rnn.weight_ih_l0"], True),
    "the head": (recurrent, ["fc"], False),
    "the last of a chain": (mlp, ["net.4"], False),
    "the middle of a chain": (mlp, ["net.2"], False),
    "a weight without its bias": (mlp, ["net.4.weight"], False),
    "a convolution": (residual, ["layer2.0.conv1"], False),
    "a random tower": (towers, ["vision"], False),
}


@pytest.mark.parametrize("sgd", [False, True])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.thinned(2)
def test_left_out_by_accident(accident, named, sgd, tmp_path):
    """Listed and without state. What has no names in the optimizer gets them from the weights in order."""
    make, paths, sure = ACCIDENTS[accident]
    result = left_by(cut(make, *paths), tmp_path, named=named, sgd=sgd)
    assert result.verdict == ("fail" if named and sure else "warn"), result.message
    assert paths[0] in result.message


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "accident", ["an embedding of four", "the last of four", "half of a GRU", "the head", "a convolution"]
)
def test_left_out_of_the_optimizer(accident, named, tmp_path):
    make, paths, _ = ACCIDENTS[accident]
    result = left_by(cut(make, *paths), tmp_path, named=named, listed=False)
    assert result.verdict in ("warn", "fail"), result.message
    if named or accident != "a convolution":  # of many of its shape any may be the one
        assert paths[0].rpartition(".")[0] in result.message


def trained_before(make, *paths):
    torch.manual_seed(0)
    model = make()
    before(*(model.get_submodule(path) for path in paths))
    frozen(*(model.get_submodule(path) for path in paths))
    return model


ON_PURPOSE = {
    "one tower": lambda: trained_before(towers, "vision"),
    "the other tower": lambda: trained_before(towers, "text"),
    "the first embedding": lambda: trained_before(tabular, "emb.0"),
    "an embedding that was trained before": lambda: trained_before(recommender, "item_emb"),
    "embedding and recurrent layer": lambda: trained_before(recurrent, "emb", "rnn"),
    "the stem and a stage": lambda: trained_before(residual, "conv1", "layer1"),
    "all but the head": lambda: trained_before(residual, "conv1", "layer1", "layer2"),
    "a tied output": lambda: cut(tied),
    "normalisations": lambda: cut(
        residual, *(f"layer{n}.{block}.bn{k}" for n in (1, 2) for block in range(3) for k in (1, 2))
    ),
}


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("purpose", ON_PURPOSE)
@pytest.mark.thinned(2)
def test_on_purpose(purpose, named, listed, tmp_path):
    assert left_by(ON_PURPOSE[purpose](), tmp_path, named=named, listed=listed).verdict == "pass"


@pytest.mark.parametrize("purpose", ["one tower", "the stem and a stage", "normalisations", "a tied output"])
def test_on_purpose_without_the_weights(purpose, tmp_path):
    for named in (True, False):
        result = left_by(ON_PURPOSE[purpose](), tmp_path, named=named, weights=False)
        assert result.verdict == "pass", result.message


def with_heads(used):
    def run(self):
        return torch.cat([self.heads[n](self.body(numbers(8, 20))) for n in used], 1)

    return Parts(run, body=chain(20, 32, 32), heads=nn.ModuleList(nn.Linear(32, 16) for _ in range(3)))


@pytest.mark.parametrize("used", [(0, 1, 2), (0, 2), (0,), (2,)])
@pytest.mark.parametrize("named", [True, False])
def test_heads_of_which_a_task_uses_some(used, named, tmp_path):
    assert left_by(with_heads(used), tmp_path, named=named).verdict == "pass"


def test_a_target_network_that_the_optimizer_lists(tmp_path):
    def run(self):
        return self.predictor(self.online(numbers(8, 20)))

    model = Parts(run, online=chain(20, 32, 16), target=chain(20, 32, 16), predictor=chain(16, 32, 16))
    frozen(model.target)
    assert left_by(model, tmp_path, named=True).verdict == "pass"


def test_a_normalised_weight_whose_length_is_fixed(tmp_path):
    """As in DINO's head."""
    last = nn.utils.parametrizations.weight_norm(nn.Linear(32, 16))
    model = Parts(lambda self: self.last(self.net(numbers(8, 20))), net=chain(20, 32, 32), last=last)
    frozen(last.parametrizations.weight.original0)
    for named in (True, False):
        assert left_by(model, tmp_path, named=named).verdict == "pass"
        assert left_by(model, tmp_path, named=named, listed=False).verdict == "pass"


# What real trainers leave


def of_a_trainer(name, *, named):
    """The state and the weights of one of the checkpoints that tests/readers/test_attribution.py tells of."""
    one = CHECKPOINTS[name]
    truth = one["truth"]
    truth = {int(key): name for key, name in (truth.items() if isinstance(truth, dict) else enumerate(truth))}
    listed = tuple(map(tuple, one["groups"]))
    labels = {key: truth[key] if named and key in truth else f"#{key}" for ids in listed for key in ids}
    tensors = tuple(
        TensorState(id=int(key), shape=tuple(shape), step=100.0, kind="adam", name=truth[int(key)] if named else None)
        for key, shape in one["shapes"].items()
    )
    stateless = tuple(label for key, label in labels.items() if str(key) not in one["shapes"])
    headers = tuple(TensorHeader(name=name, shape=tuple(shape), dtype="F32") for name, shape in one["weights"])
    weights = Weights(source="model.safetensors", tensors=headers)
    state = OptimizerState(source="optimizer.pt", tensors=tensors, listed=listed, stateless=stateless)
    return (state if named else attributed(state, weights)), weights


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", sorted(CHECKPOINTS))
@pytest.mark.thinned(4)
def test_what_real_trainers_leave_is_sound(name, named, make, judge):
    """Also of adapters, frozen parameters and mixtures; of the one whose last layers were frozen it warns."""
    state, weights = of_a_trainer(name, named=named)
    result = judge(CODE, make.evidence(optimizer=state, weights=weights))
    assert result.verdict == ("warn" if name == "llama_frozenlast" else "pass"), result.message


# The size that layers begin with


def header(values, name="0.weight"):
    values = values.detach().double().flatten()
    shape = (8, len(values) // 8)
    stats = MomentStats(
        count=len(values), mean=float(values.mean()), rms=float(values.square().mean().sqrt()),
        minimum=float(values.min()), maximum=float(values.max()), zeros=0, nonfinite=0,
    )  # fmt: skip
    return TensorHeader(name=name, shape=shape, dtype="F32", rms=stats.rms, stats=stats)


@pytest.mark.parametrize("width", [2, 8, 9, 16, 64])
@pytest.mark.parametrize("seed", range(5))
def test_matrices_as_they_begin_and_trained_before(width, seed):
    """Of a small one its largest value has to tell, of a very small one nothing does."""
    torch.manual_seed(seed)
    fresh = nn.Linear(width, 8).weight
    assert never_trained([header(fresh)]) is (width > 2)
    assert not never_trained([header(3.3 * fresh)])
    if width < 16:
        assert not never_trained([header(0.8 * fresh)]), "too small to tell by their size"


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layers_begin_by_their_width(kind):
    torch.manual_seed(0)
    layer = kind(30, 16)
    some = [
        replace(header(one, f"rnn.{name}"), shape=tuple(one.shape))
        for name, one in layer.named_parameters()
        if one.dim() > 1
    ]
    assert never_trained(some)


# Tied tensors in a file of weights


def test_a_tied_tensor_of_two_names(make, judge):
    """Same values under both; the optimizer has the one name. Vectors are often alike and are not tied."""

    def weights(tied):
        values = make.moment(0.5, count=200)
        values = type(values)(**{**vars(values), "minimum": -1.0, "maximum": 1.0})
        other = values if tied else type(values)(**{**vars(values), "mean": 0.4})
        saved = make.weights({"net.0.weight": (20, 10), "net.2.weight": (10, 20), "net.4.weight": (20, 10)})
        stats = dict(zip(("net.0.weight", "net.4.weight"), (values, other), strict=True))
        headers = [type(one)(**{**vars(one), "stats": stats.get(one.name)}) for one in saved.tensors]
        return type(saved)(source="a", tensors=tuple(headers))

    for named in (True, False):
        state = make.state(
            make.tensor(0, name="net.0.weight" if named else None, shape=(20, 10)),
            make.tensor(1, name="net.2.weight" if named else None, shape=(10, 20)),
        )
        assert judge(CODE, make.evidence(optimizer=state, weights=weights(tied=True))).verdict == "pass"
    state = make.state(
        make.tensor(0, name="net.0.weight", shape=(20, 10)), make.tensor(1, name="net.2.weight", shape=(10, 20))
    )
    assert judge(CODE, make.evidence(optimizer=state, weights=weights(tied=False))).verdict == "warn"


def test_a_tied_tensor_that_is_saved_under_the_other_name(make, judge):
    trained = {"wte.weight": (40, 8), "h.0.w.weight": (8, 8)}
    saved = make.weights({"lm_head.weight": (40, 8), "h.0.w.weight": (8, 8)})
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=saved)).verdict == "pass"


def test_experts_that_are_one_tensor_in_memory(make, judge):
    """As in transformers 5; on disk each is one of its own."""
    trained = {"layers.0.mlp.gate.weight": (4, 8), "layers.0.mlp.experts.down_proj": (4, 8, 6), "head.weight": (2, 8)}
    saved = {"layers.0.mlp.gate.weight": (4, 8), "head.weight": (2, 8)}
    saved |= {f"layers.0.mlp.experts.{expert}.down_proj.weight": (8, 6) for expert in range(4)}
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=make.weights(saved))).verdict == "pass"


def test_modules_that_an_adapter_saves_whole(make, judge):
    """PEFT calls them otherwise in its file than in the model."""
    saved = {"base_model.model.q.lora_A.weight": (4, 8), "base_model.model.q.lora_B.weight": (8, 4)}
    trained = {name.replace(".weight", ".default.weight"): shape for name, shape in saved.items()}
    trained |= {"base_model.model.classifier.modules_to_save.default.weight": (3, 8)}
    saved |= {"base_model.model.classifier.weight": (3, 8)}
    state = make.state(*(make.tensor(key, name=name, shape=shape) for key, (name, shape) in enumerate(trained.items())))
    assert judge(CODE, make.evidence(optimizer=state, weights=make.weights(saved))).verdict == "pass"
    less = make.state(*state.tensors[:2])
    assert judge(CODE, make.evidence(optimizer=less, weights=make.weights(saved))).verdict == "fail"


def language_model(**more):
    def run(self):
        return self.head(self.body(self.tok(words(8))))

    return Parts(run, tok=nn.Embedding(60, 24), body=chain(24, 24, 24), head=nn.Linear(24, 60, bias=False), **more)


@pytest.mark.parametrize("sgd", [False, True])
@pytest.mark.parametrize("named", [True, False])
def test_the_only_head_was_never_given_to_the_optimizer(named, sgd, tmp_path):
    """It has the shape of the embedding, which is trained."""
    result = left_by(cut(language_model, "head"), tmp_path, named=named, listed=False, sgd=sgd)
    assert result.verdict == "warn"
    assert "head.weight" in result.message
    # An output layer that could be tied to the embedding, and is not, is warned of in any case.
    kept = left_by(trained_before(language_model, "head"), tmp_path, named=named, listed=False, sgd=sgd)
    assert kept.verdict == "warn"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("values", [torch.zeros(3), torch.zeros(())])
def test_a_buffer_of_zeros(values, named, tmp_path):
    model = language_model()
    model.register_buffer("unused_scale", values)
    assert left_by(model, tmp_path, named=named).verdict == "pass"
