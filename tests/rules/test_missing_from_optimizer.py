"""OPT004."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.growth import linear
from tests.laws import draws

from tracker_health.evidence import MomentStats, TensorHeader, Weights
from tracker_health.rules.optimizer.missing_from_optimizer import MissingFromOptimizer

CODE = "OPT004"
RULE = MissingFromOptimizer()
FEW = settings(max_examples=draws(80), deadline=None)


def transformer(layers=4, *, width=8, vocabulary=50, tied=False):
    """Names and shapes of a small language model, in the order of the model."""
    shapes = {"model.embed_tokens.weight": (vocabulary, width)}
    for layer in range(layers):
        block = f"model.layers.{layer}"
        shapes |= {
            f"{block}.input_layernorm.weight": (width,),
            f"{block}.self_attn.q_proj.weight": (width, width),
            f"{block}.self_attn.v_proj.weight": (width, width),
            f"{block}.mlp.up_proj.weight": (4 * width, width),
            f"{block}.mlp.down_proj.weight": (width, 4 * width),
        }
    shapes["model.norm.weight"] = (width,)
    return shapes if tied else shapes | {"lm_head.weight": (vocabulary, width)}


def lora(layers=4, *, rank=2, width=8):
    names = [
        f"base_model.model.model.layers.{layer}.self_attn.{one}"
        for layer in range(layers)
        for one in ("q_proj", "v_proj")
    ]
    return {
        f"{name}.lora_{side}.weight": shape
        for name in names
        for side, shape in (("A", (rank, width)), ("B", (width, rank)))
    }


def vision(blocks=4):
    """Convolutions with BatchNorm, as torchvision names them."""
    shapes = {"conv1.weight": (8, 3, 3, 3), "bn1.weight": (8,), "bn1.bias": (8,)}
    for block in range(blocks):
        shapes |= {
            f"layer1.{block}.conv.weight": (8, 8, 3, 3),
            f"layer1.{block}.bn.weight": (8,),
            f"layer1.{block}.bn.bias": (8,),
        }
    return shapes | {"fc.weight": (10, 8), "fc.bias": (10,)}


def without(shapes, *fragments):
    return {name: shape for name, shape in shapes.items() if not any(one in name for one in fragments)}


def state_of(make, shapes, *, named=True, step=1000.0, order=None, rename=str, **more):
    tensors = [
        make.tensor(key, name=rename(name) if named else None, shape=shape, step=step)
        for key, (name, shape) in enumerate(shapes.items())
    ]
    if order is not None:
        tensors = [tensors[index] for index in order]
    return make.state(*tensors, global_step=int(step), **more)


def judged(make, judge, trained, saved, *, dtype="F32", named=True, thresholds=None, **more):
    """``trained`` and ``saved``: names and shapes in the optimizer and in the weights file."""
    state = state_of(make, trained, named=named, **more)
    return judge(CODE, make.evidence(optimizer=state, weights=make.weights(saved, dtype)), **(thresholds or {}))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "shapes", [transformer(), lora(), vision(), {"w": (2, 2)}], ids=["lm", "lora", "vision", "one"]
)
def test_healthy(shapes, named, make, judge):
    result = judged(make, judge, shapes, shapes, named=named)
    assert result.verdict == "pass"
    assert f"all {len(shapes)} listed parameter" in result.message
    assert judge(CODE, make.evidence(optimizer=state_of(make, shapes, named=named))).verdict == "pass"


def test_a_short_fine_tune_of_an_adapter(make, judge):
    """Forty-seven steps."""
    assert judged(make, judge, lora(), lora(), step=47.0).verdict == "pass"
    assert judged(make, judge, lora(), lora(), step=47.0, named=False).verdict == "pass"


def unlisted(shapes, *fragments):
    """Those that have state, and the labels of those that have none, which keep their places in the order."""
    kept = without(shapes, *fragments)
    return kept, tuple(name for name in shapes if name not in kept)


def stateless(make, judge, shapes, *fragments, named=True, weights=None, group_of=None, **more):
    """The verdict where a group lists all of these and some never had a gradient."""
    kept, gone = unlisted(shapes, *fragments)
    places = {name: index for index, name in enumerate(shapes)}
    tensors = [
        make.tensor(places[name], name=name if named else None, shape=shape, group=group_of(name) if group_of else 0)
        for name, shape in kept.items()
    ]
    labels = gone if named else tuple(f"#{places[name]}" for name in gone)
    groups = sorted({group_of(name) for name in shapes}) if group_of else [0]
    listed = tuple(
        tuple(name if named else places[name] for name in shapes if not group_of or group_of(name) == group)
        for group in groups
    )
    state = make.state(*tensors, stateless=labels, listed=() if named else listed)
    return judge(CODE, make.evidence(optimizer=state, weights=weights, **more))


@pytest.mark.parametrize("fragments", [("layers.1.self_attn.v_proj",), ("layers.0.mlp", "layers.2.mlp")])
def test_listed_without_state_amid_what_is_trained(fragments, make, judge):
    """Its layer is trained and so is its like in a later one: it was cut off."""
    result = stateless(make, judge, transformer(), *fragments)
    assert result.verdict == "fail"
    assert "no gradient ever reached" in result.message
    assert all(any(one in name for one in fragments) for name in result.details["missing"])
    assert "no_grad" in result.remedy
    amount = result.measured["missing"]
    assert f"{amount} parameter{'s have' if amount > 1 else ' has'} no state" in result.message
    assert result.measured["in_optimizer"] == len(transformer()) - amount


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("fragments", [("layers.3.",), ("layers.3.", "model.norm")])
def test_listed_without_state_and_perhaps_unused(fragments, named, make, judge):
    """A last layer whose output nobody takes."""
    result = stateless(make, judge, transformer(), *fragments, named=named)
    assert result.verdict == "warn"
    assert "unused, frozen, or cut off" in result.message
    assert result.remedy.startswith("unused or frozen on purpose?")


def test_without_names_a_gap_is_no_proof(make, judge):
    """One layer, a weight and a bias at most, may be a head that the task leaves out."""
    assert stateless(make, judge, transformer(), "layers.1.self_attn.v_proj", named=False).verdict == "pass"
    assert stateless(make, judge, transformer(), "model.norm", named=False).verdict == "pass"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("shapes", "fragments"),
    [
        (transformer(), ("embed_tokens",)),
        (transformer(), ("embed_tokens", "layers.0.", "layers.1.")),
        (transformer(), ("model.",)),
        (vision(), ("layer1", "conv1", "bn1")),
        (vision(8), ("layer1.0.", "layer1.1.", "conv1", "bn1")),
    ],
    ids=["embedding", "embedding and half", "all but the head", "backbone", "first stages"],
)
def test_a_frozen_backbone_that_the_optimizer_was_given(shapes, fragments, named, make, judge):
    """``Adam(model.parameters())`` after ``requires_grad_(False)``: the usual way to train a head."""
    result = stateless(make, judge, shapes, *fragments, named=named)
    assert result.verdict == "pass", result.message
    assert "frozen or unused, as it seems on purpose" in result.message


def test_a_frozen_backbone_in_groups_with_and_without_decay(make, judge):
    """Parameters are numbered through the groups: each group begins with frozen ones."""
    shapes = transformer()
    order = sorted(shapes, key=lambda name: len(shapes[name]) == 1)
    ordered = {name: shapes[name] for name in order}

    def group_of(name):
        return int(len(shapes[name]) == 1)

    gone = ("embed_tokens", "layers.0.", "layers.1.")
    assert stateless(make, judge, ordered, *gone, named=False, group_of=group_of).verdict == "pass"
    inside = stateless(make, judge, ordered, "layers.2.mlp", "layers.3.mlp", named=False, group_of=group_of)
    assert inside.verdict == "warn"


@pytest.mark.parametrize("named", [True, False])
def test_adapters_and_biases_beside_a_base_that_the_optimizer_was_given(named, make, judge):
    saved = {}
    for layer in range(4):
        name = f"model.layers.{layer}.q_proj"
        saved |= {f"{name}.weight": (64, 64), f"{name}.lora_A.weight": (4, 64), f"{name}.lora_B.weight": (64, 4)}
    kept = [name for name in saved if "lora" not in name]
    assert stateless(make, judge, saved, *kept, named=named).verdict == "pass"
    matrices = [name for name, shape in vision().items() if len(shape) > 1]
    assert stateless(make, judge, vision(), *matrices, named=named).verdict == "pass"


def test_a_cut_off_adapter(make, judge):
    weights = make.weights(lora())
    for named in (True, False):
        result = stateless(make, judge, lora(), "layers.1.self_attn.q_proj", named=named, weights=weights)
        assert result.verdict == "fail", result.message


@pytest.mark.parametrize("name", ["bert.pooler.dense.weight", "vit.embeddings.mask_token", "masked_spec_embed"])
def test_what_many_models_carry_along_unused(name, make, judge):
    shapes = transformer() | {name: (8, 8)}
    assert stateless(make, judge, dict(sorted(shapes.items())), name).verdict == "pass"


@pytest.mark.parametrize("form", ["model.layers.{}.mlp.experts.{}.up.weight", "h.{}.expert.{}.w"])
def test_experts_without_tokens(form, make, judge):
    shapes = {form.format(layer, expert): (8, 8) for layer in range(3) for expert in range(4)} | {"head.weight": (2, 8)}
    few = list(shapes)[1:12:4]
    assert stateless(make, judge, shapes, *few).verdict == "pass"
    result = stateless(make, judge, shapes, *[name for name in list(shapes)[:12] if list(shapes).index(name) % 4])
    assert result.verdict == "warn"
    assert "got no token" in result.message
    assert "routing" in result.remedy


def as_initialised(shapes, rng, *, trained=(), begun=("",)):
    """Weights as torch draws them, those of ``begun``; others were moved, those trained before are a fifth larger."""
    headers = []
    for name, shape in shapes.items():
        bound = (1.2 if any(one in name for one in trained) else 1.0) / np.sqrt(np.prod(shape[1:]))
        values = np.ones(shape) if len(shape) == 1 else rng.uniform(-bound, bound, shape)
        if not any(name.startswith(one) for one in begun):
            values = values + 0.02 * rng.standard_normal(shape)
        stats = MomentStats(
            count=values.size, mean=float(values.mean()), rms=float(np.sqrt(np.mean(values**2))),
            minimum=float(values.min()), maximum=float(values.max()), zeros=0, nonfinite=0,
        )  # fmt: skip
        headers.append(TensorHeader(name=name, shape=shape, dtype="F32", rms=stats.rms, stats=stats))
    return Weights(source="model.safetensors", tensors=tuple(headers))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_front_was_detached_and_never_trained(seed, named, make, judge):
    """Frozen by its place, but as large as a layer begins, and no frozen model has random weights."""
    shapes = {f"{index}.{part}": (64, 64)[: 2 - (part == "bias")] for index in range(4) for part in ("weight", "bias")}
    rng = np.random.default_rng(seed)
    fresh = as_initialised(shapes, rng, begun=("0.", "1."))
    result = stateless(make, judge, shapes, "0.", "1.", named=named, weights=fresh)
    assert result.verdict == "warn"
    assert "never trained" in result.message
    pretrained = as_initialised(shapes, rng, trained=("0.", "1."), begun=())
    assert stateless(make, judge, shapes, "0.", "1.", named=named, weights=pretrained).verdict == "pass"


@pytest.mark.parametrize(
    ("said", "frozen"),
    [
        ({"freeze_base": "True"}, True),
        ({"frozen_stages": "2"}, True),
        ({"freeze_base": "0"}, False),
        ({"frozen_stages": "-1"}, False),
        ({"freeze_bn": "no"}, False),
        ({"frozen_layers": "[]"}, False),
        ({"unfreeze_epoch": "3"}, False),
    ],
)
def test_a_param_that_speaks_of_freezing(said, frozen, make, judge):
    result = stateless(make, judge, transformer(), "layers.1.mlp", params=said)
    assert result.verdict == ("pass" if frozen else "fail")


def test_two_optimizers_are_judged_apart(make, judge):
    """The second begins later: it has no state yet."""
    first = [make.tensor(key, shape=(4, 4), optimizer="g") for key in range(6)]
    waiting = tuple(f"d/#{key}" for key in range(6))
    assert judge(CODE, make.evidence(optimizer=make.state(*first, stateless=waiting[:3]))).verdict == "pass"
    both = make.state(*first, make.tensor(0, optimizer="d"), make.tensor(4, optimizer="d"), stateless=waiting[1:4])
    assert judge(CODE, make.evidence(optimizer=both)).verdict == "warn"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    "gone", [("layers.3.self_attn.v_proj",), ("layers.2.",), ("layers.3.mlp", "layers.2.mlp"), ("model.norm.weight",)]
)
def test_a_whole_model_of_which_something_in_the_middle_or_at_the_end_is_missing(gone, named, make, judge):
    shapes = transformer()
    if not named:
        shapes = {name: (*shape[:-1], shape[-1] + index) for index, (name, shape) in enumerate(shapes.items())}
    result = judged(make, judge, without(shapes, *gone), shapes, named=named)
    assert result.verdict == "warn"
    assert all(any(one in name for one in gone) for name in result.details["missing"])
    assert result.measured["missing"] == len(shapes) - len(without(shapes, *gone))
    assert gone[0] in result.message


@pytest.mark.parametrize("named", [True, False])
def test_an_adapter_of_which_some_is_missing(named, make, judge):
    result = judged(make, judge, without(lora(), "layers.1."), lora(), named=named)
    assert result.verdict == "fail"
    assert result.measured["missing"] == 4
    if named:
        assert all("layers.1." in name for name in result.details["missing"])


def test_adapters_whose_first_factors_are_frozen(make, judge):
    assert judged(make, judge, without(lora(), "lora_A"), lora()).verdict == "pass"
    assert judged(make, judge, without(lora(), "lora_B"), lora()).verdict == "fail"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("saved", "gone"),
    [
        (transformer(), ("embed_tokens",)),
        (transformer(), ("embed_tokens", "layers.0.", "layers.1.")),
        (
            transformer(8),
            ("embed_tokens", "layers.0.", "layers.1.", "layers.2.", "layers.3.", "layers.4.", "layers.5."),
        ),
        (transformer(), ("norm",)),
        (transformer(), ("model.",)),
        (vision(), (".bn.", "bn1")),
        (vision(), ("layer1", "conv1", "bn1")),
        (vision(), ("conv1",)),
    ],
    ids=[
        "embedding",
        "embedding and half",
        "three quarters",
        "norms",
        "all but the head",
        "batch norm",
        "backbone",
        "stem",
    ],
)
def test_frozen_on_purpose(saved, gone, named, make, judge):
    result = judged(make, judge, without(saved, *gone), saved, named=named)
    assert result.verdict == "pass", result.message
    assert "frozen or unused, as it seems on purpose" in result.message


@pytest.mark.parametrize("names", [("A", "B"), ("down.weight", "up.weight"), ("lora_A.weight", "lora_B.weight")])
@pytest.mark.parametrize("base", ["base.", "linear.", ""])
def test_factors_beside_their_matrix_whatever_their_names(names, base, make, judge):
    saved, trained = {}, {}
    for layer in range(3):
        own = {f"net.{layer}.{names[0]}": (4, 32), f"net.{layer}.{names[1]}": (64, 4)}
        trained |= own
        saved |= own | {f"net.{layer}.{base}weight": (64, 32), f"net.{layer}.{base}bias": (64,)}
    assert judged(make, judge, trained, saved).verdict == "pass"


def test_biases_normalisations_and_the_head_of_a_model(make, judge):
    saved = {f"blocks.{index}.{role}": shape for index in range(4) for role, shape in
             (("conv.weight", (8, 8, 3, 3)), ("conv.bias", (8,)), ("norm.weight", (8,)))} | {"fc.weight": (2, 8)}  # fmt: skip
    trained = {name: shape for name, shape in saved.items() if len(shape) == 1 or name.startswith("fc")}
    assert judged(make, judge, trained, saved).verdict == "pass"
    assert judged(make, judge, trained | {"blocks.1.conv.weight": (8, 8, 3, 3)}, saved).verdict == "warn"


def test_an_output_layer_that_is_not_tied(make, judge):
    result = judged(make, judge, without(vision(), "fc."), vision())
    assert (result.verdict, result.details["missing"]) == ("warn", ["fc.weight", "fc.bias"])


def test_an_adapter_trained_beside_the_whole_model(make, judge):
    saved = transformer() | {name.removeprefix("base_model.model."): shape for name, shape in lora().items()}
    trained = {name: shape for name, shape in saved.items() if "lora_" in name}
    # A file that holds adapter weights counts as an adapter's.
    assert judged(make, judge, trained, trained).verdict == "pass"
    adapters = {
        name.replace("lora_A", "adapter.down").replace("lora_B", "adapter.up"): shape for name, shape in saved.items()
    }
    assert judged(make, judge, {n: s for n, s in adapters.items() if ".adapter." in n}, adapters).verdict == "pass"


@pytest.mark.parametrize("named", [True, False])
def test_a_tied_output_layer(named, make, judge):
    assert judged(make, judge, without(transformer(), "lm_head"), transformer(tied=True), named=named).verdict == "pass"


def test_a_tied_output_layer_that_is_saved_twice(make, judge):
    """Of the same shape as the embedding, which is trained."""
    result = judged(make, judge, without(transformer(), "lm_head"), transformer())
    assert result.verdict == "pass", result.message


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: f"module._orig_mod.{name}",
        lambda name: name.removeprefix("model."),
    ],
    ids=["module", "compiled", "both", "without model"],
)
def test_prefixes_in_one_of_the_two_files(rename, make, judge):
    assert judged(make, judge, transformer(), transformer(), rename=rename).verdict == "pass"
    gone = judged(make, judge, without(transformer(), "layers.3."), transformer(), rename=rename)
    assert (gone.verdict, gone.measured["missing"]) == ("warn", 5)


def test_the_adapter_name_in_the_optimizers_names(make, judge):
    def rename(name):
        return name.replace(".weight", ".default.weight")

    assert judged(make, judge, lora(), lora(), rename=rename).verdict == "pass"
    assert judged(make, judge, without(lora(), "layers.0."), lora(), rename=rename).verdict == "fail"


def test_names_of_another_world_tell_nothing(make, judge):
    assert (
        judged(make, judge, transformer(), transformer(), rename=lambda name: f"student.net.{name}").verdict == "pass"
    )


@pytest.mark.parametrize("named", [True, False])
def test_groups_with_and_without_decay_change_the_order(named, make, judge):
    shapes = transformer()
    matrices = [index for index, shape in enumerate(shapes.values()) if len(shape) > 1]
    order = matrices + [index for index in range(len(shapes)) if index not in matrices]
    assert judged(make, judge, shapes, shapes, named=named, order=order).verdict == "pass"


def test_weights_of_another_model_tell_nothing_where_there_are_no_names(make, judge):
    assert judged(make, judge, {"a": (3, 3), "b": (3, 3)}, {"a": (3, 3), "c": (5, 5)}, named=False).verdict == "pass"


@pytest.mark.parametrize(
    "name",
    [
        "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked", "bert.embeddings.position_ids",
        "model.layers.3.self_attn.rotary_emb.inv_freq", "attn.masked_bias", "rotary_emb.cos_cached", "layers.0.causal_mask",
    ],
)  # fmt: skip
def test_buffers_are_not_trained(name, make, judge):
    assert judged(make, judge, transformer(), transformer() | {name: (8,)}).verdict == "pass"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("h.0.attn.bias", (1, 1, 16, 16)), ("positional_encoding.pe", (1, 16, 8)), ("queue", (8, 64)), ("mean", (1, 3)),
        ("std", (1, 3)), ("encoder.mask", (16, 16)), ("rope.cos", (16, 8)),
        ("sqrt_alphas_cumprod", (1000,)), ("teacher.layers.0.weight", (8, 8)), ("ema_model.module.fc.weight", (8, 8)),
    ],
)  # fmt: skip
def test_other_buffers_and_copies(name, shape, named, make, judge):
    assert judged(make, judge, transformer(), transformer() | {name: shape}, named=named).verdict == "pass"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("ours", "copy"), [("", "teacher."), ("online.", "target."), ("encoder_q.", "encoder_k.")])
def test_a_copy_of_the_whole_model(ours, copy, named, make, judge):
    trained = {f"{ours}{name}": shape for name, shape in transformer().items()}
    saved = trained | {f"{copy}{name}": shape for name, shape in transformer().items()}
    assert judged(make, judge, trained, saved, named=named).verdict == "pass"
    assert judged(make, judge, without(trained, "layers.3."), saved, named=named).verdict == "warn"


def test_a_target_without_an_original_is_a_parameter(make, judge):
    saved = transformer() | {"target.proj.weight": (8, 9)}
    assert judged(make, judge, transformer(), saved).verdict == "warn"


@pytest.mark.parametrize("named", [True, False])
def test_an_unknown_kind_counts_where_its_like_is_trained(named, make, judge):
    saved = {f"layers.{index}.{kind}": (4 + index, 4) for index in range(4) for kind in ("weight", "mixing")}
    assert judged(make, judge, saved, saved, named=named).verdict == "pass"
    assert judged(make, judge, without(saved, "mixing"), saved, named=named).verdict == "pass"
    some = judged(make, judge, without(saved, "3.mixing"), saved, named=True)
    assert (some.verdict, some.details["missing"]) == ("warn", ["layers.3.mixing"])


@pytest.mark.slow
def test_the_time_is_linear_in_the_parameters(make, judge):
    def work(size):
        saved = {f"blocks.{index}.w": (4, 4) for index in range(size)}
        judged(make, judge, dict(list(saved.items())[: size * 5 // 8]), saved, named=False)

    assert linear(work, 500)


@pytest.mark.parametrize("dtype", ["I64", "U8", "BOOL"])
def test_integers_are_not_trained(dtype, make, judge):
    saved = make.weights(transformer(), "BF16")
    more = make.weights({"model.layers.3.codes": (8, 8)}, dtype)
    both = type(saved)(source="a", tensors=(*saved.tensors, *more.tensors))
    state = state_of(make, transformer())
    assert judge(CODE, make.evidence(optimizer=state, weights=both)).verdict == "pass"


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3"])
def test_floats_are(dtype, make, judge):
    assert judged(make, judge, without(transformer(), "layers.3."), transformer(), dtype=dtype).verdict == "warn"


def test_boundary_of_the_share(make, judge):
    """Above seven tenths of the tensors it is a frozen backbone."""
    shapes = {f"layers.{index}.weight": (index + 1, 2) for index in range(10)}
    kept = {name: shape for name, shape in shapes.items() if name[7] in "012"}
    assert judged(make, judge, kept, shapes).verdict == "warn"
    assert judged(make, judge, without(kept, "layers.2."), shapes).verdict == "pass"


@pytest.mark.parametrize(("vectors", "verdict"), [(4, "warn"), (5, "pass")])
def test_boundary_of_many_vectors(vectors, verdict, make, judge):
    """Five vectors and nothing else look like the normalisation layers; four like an accident."""
    shapes = transformer(6)
    gone = [name for name, shape in shapes.items() if len(shape) == 1][-vectors:]
    assert judged(make, judge, without(shapes, *gone), shapes).verdict == verdict


@pytest.mark.parametrize(("step", "verdict"), [(4.0, "SkippedProbe"), (5.0, "warn")])
def test_boundary_of_the_steps(step, verdict, make, judge):
    state = state_of(make, transformer(), step=step, stateless=("head.a", "head.b", "head.c"))
    assert judge(CODE, make.evidence(optimizer=state)).verdict == verdict


def test_an_optimizer_without_state_is_skipped(make, judge):
    state = make.state(global_step=1000, stateless=("a", "b"))
    result = judge(CODE, make.evidence(optimizer=state))
    assert result.verdict == "SkippedProbe"
    assert "SGD" in result.reason["reason"]
    assert judge(CODE, make.evidence([1.0] * 50)).verdict == "SkippedProbe"


@FEW
@given(kept=st.sets(st.integers(0, 11), min_size=1), permuted=st.permutations(range(12)), named=st.booleans())
def test_what_is_missing_is_what_is_not_there(kept, permuted, named, make, judge):
    """Of an adapter file all of it has to be in the optimizer, whatever the order. All shapes differ."""
    saved = {f"layers.{index}.q.lora_A.weight": (index + 1, 3) for index in permuted}
    trained = {f"layers.{index}.q.lora_A.weight": (index + 1, 3) for index in kept}
    result = judged(make, judge, trained, saved, named=named)
    assert result.verdict == ("pass" if len(kept) == 12 else "fail")
    assert result.measured["missing"] == 12 - len(kept)
    if len(kept) < 12:
        assert set(result.details["missing"]) == set(saved) - set(trained)


@FEW
@given(
    kept=st.lists(st.sampled_from([(2, 2), (3, 3), (4,)]), min_size=1, max_size=8),
    more=st.lists(st.sampled_from([(2, 2), (3, 3), (4,)]), max_size=5),
)
def test_repeated_shapes_are_counted(kept, more, make, judge):
    saved = {f"layers.{index}.q.lora_A.weight": shape for index, shape in enumerate([*kept, *more])}
    trained = {f"p{index}": shape for index, shape in enumerate(reversed(kept))}
    result = judged(make, judge, trained, saved, named=False)
    assert result.measured["missing"] == len(more)
    if more:
        assert sorted(saved[name] for name in result.details["missing"]) == sorted(more)
