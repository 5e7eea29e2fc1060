"""Places of parameters by their names."""

from __future__ import annotations

import pytest

from tracker_health.words.layers import LayerPlace, place_of


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model.layers.10.self_attn.q_proj.weight", LayerPlace("model.layers", 10, "self_attn.q_proj.weight")),
        ("transformer.h.0.attn.c_attn.bias", LayerPlace("transformer.h", 0, "attn.c_attn.bias")),
        (
            "encoder.block.3.layer.0.SelfAttention.q.weight",
            LayerPlace("encoder.block", 3, "layer.0.SelfAttention.q.weight"),
        ),
        (
            "decoder.block.3.layer.0.SelfAttention.q.weight",
            LayerPlace("decoder.block", 3, "layer.0.SelfAttention.q.weight"),
        ),
        ("bert.encoder.layer.2.output.dense.weight", LayerPlace("bert.encoder.layer", 2, "output.dense.weight")),
        ("blocks.7.mlp.fc1.weight", LayerPlace("blocks", 7, "mlp.fc1.weight")),
        ("model.layers.1.mlp.experts.3.w1.weight", LayerPlace("model.layers", 1, "mlp.experts.3.w1.weight")),
        ("layers.4", LayerPlace("layers", 4, "")),
        ("model.embed_tokens.weight", None),
        ("lm_head.weight", None),
        ("layers.norm.weight", None),
        ("player.3.weight", None),
    ],
)
def test_places(name, place):
    assert place_of(name) == place
