"""WGT003."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

CODE = "WGT003"


def layer(make, key, zero_rows, *, shape=(16, 4), name="fc.weight", zeros=None, step=1000.0):
    tensor = make.tensor(key, 1e-6, name=name, shape=shape, step=step)
    zeros = zero_rows * shape[1] if zeros is None and zero_rows is not None else zeros or 0
    return replace(tensor, second_moment=replace(tensor.second_moment, zero_rows=zero_rows, zeros=zeros))


def of(make, *tensors, takes=16, **more):
    """These, and a small layer behind them; ``takes``: how many inputs that has."""
    behind = layer(make, len(tensors), 0, name="behind.weight", shape=(5, takes))
    if any(tensor.name is None for tensor in tensors):
        behind = replace(behind, name=None)
    return make.evidence(optimizer=make.state(*tensors, behind), **more)


@given(rows=st.lists(st.integers(0, 16), min_size=1, max_size=8), share=st.floats(0.05, 1.0))
def test_against_plain_python(rows, share, make, judge):
    tensors = [layer(make, key, dead, name=f"layers.{key}.weight") for key, dead in enumerate(rows)]
    result = judge(CODE, of(make, *tensors), dead_share=share)
    judged = {f"layers.{key}.weight": dead / 16 for key, dead in enumerate(rows) if dead < 16}
    dead = {name for name, one in judged.items() if one >= share}
    assert result.verdict == ("SkippedProbe" if not judged else "warn" if dead else "pass")
    if judged:
        assert result.measured["layers_with_dead_units"] == len(dead)
        assert result.measured["largest_share"] == max(judged.values())
    if dead:
        assert set(result.details["layers"]) == dead


@pytest.mark.parametrize(
    ("rows", "verdict"), [(0, "pass"), (7, "pass"), (8, "warn"), (15, "warn"), (16, "SkippedProbe")]
)
def test_boundary_of_the_share(rows, verdict, make, judge):
    """A layer that is dead as a whole is no-gradient's."""
    assert judge(CODE, of(make, layer(make, 0, rows))).verdict == verdict


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "wpe.weight",
        "lm_head.weight",
        "classifier.weight",
        "vq.codebook",
        "experts.3.up.weight",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    ],
)
def test_rows_that_were_never_seen(name, make, judge):
    sparse = layer(make, 1, 12, name=name)
    assert judge(CODE, of(make, layer(make, 0, 1), sparse)).verdict == "pass"
    unnamed = replace(sparse, name=None)
    weights = make.weights({name: (16, 4), "layers.0.up.weight": (16, 5)})
    assert judge(CODE, of(make, layer(make, 0, 1), unnamed, weights=weights)).verdict == "pass"


@pytest.mark.parametrize(
    ("shape", "takes", "verdict"),
    [
        pytest.param((16, 4), 16, "warn", id="a layer takes them"),
        pytest.param((16, 1, 2, 2), 16 * 9, "warn", id="a map of each filter"),
        pytest.param((16, 4), 16 * 4, "SkippedProbe", id="rows of a matrix have no maps"),
        pytest.param((16, 4), 4, "SkippedProbe", id="a table, or the end"),
        pytest.param((16, 1, 2, 2), 40, "SkippedProbe", id="no multiple"),
    ],
)
def test_rows_are_units_where_another_layer_takes_them(shape, takes, verdict, make, judge):
    table = layer(make, 0, 12, name="user.weight", shape=shape, zeros=48)
    assert judge(CODE, of(make, table, takes=takes)).verdict == verdict
    frozen = make.weights({"user.weight": shape, "fc.weight": (5, takes)})
    assert judge(CODE, of(make, table, takes=3, weights=frozen)).verdict == verdict


def test_a_square_matrix_does_not_take_its_own_rows(make, judge):
    square = layer(make, 0, 12, name="out_mix.weight", shape=(16, 16))
    assert judge(CODE, of(make, square, takes=4)).verdict == "SkippedProbe"
    assert judge(CODE, of(make, square, takes=16)).verdict == "warn"


@pytest.mark.parametrize("name", ["lstm.weight_ih_l0", "mlp.gate_up_proj.weight", "attn.qkv.weight"])
def test_gates_that_are_joined_before_they_are_taken(name, make, judge):
    assert judge(CODE, of(make, layer(make, 0, 12, name=name), takes=4)).verdict == "warn"


def test_shapes_of_nothing(make, judge):
    assert judge(CODE, of(make, layer(make, 0, 12), takes=0)).verdict == "SkippedProbe"


def test_without_names(make, judge):
    weights = make.weights({"embedding.weight": (50, 4), "layers.0.up.weight": (16, 4)})
    unnamed = layer(make, 0, 12, name=None)
    assert judge(CODE, of(make, unnamed, weights=weights)).verdict == "warn"
    assert judge(CODE, of(make, unnamed)).verdict == "SkippedProbe"
    assert judge(CODE, of(make, layer(make, 0, 12, name=None, shape=(16, 16)))).verdict == "warn"


def test_too_early_too_small_or_not_known(make, judge):
    assert judge(CODE, of(make, layer(make, 0, 12, step=99.0), layer(make, 1, 0))).verdict == "pass"
    assert judge(CODE, of(make, layer(make, 0, 6, shape=(7, 4)))).verdict == "SkippedProbe"
    assert judge(CODE, of(make, layer(make, 0, None))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence([1.0] * 20)).verdict == "SkippedProbe"
