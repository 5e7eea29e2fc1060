"""LOS014."""

import numpy as np
import pytest

CODE = "LOS014"


def falling(n=60, *, start=4.2, end=0.006, pace=25.0):
    """A loss over 64 tokens whose targets are among the inputs."""
    return end + (start - end) * np.exp(-pace * np.arange(n) / n)


EVALUATIONS = (2.1, 0.02, 0.008, 0.006, 0.006, 0.006)


def text(make, losses, held_out=EVALUATIONS, *, params=None, weights=None):
    more = []
    if held_out is not None:
        more.append(make.series(held_out, np.linspace(0, len(losses) - 1, len(held_out)), role="val_loss"))
    params = {"vocab_size": "64"} if params is None else params
    return make.evidence(losses, *more, params=params, weights=weights)


def test_worked_example(make, judge):
    """Of 64 tokens guessing costs 4.16. Both losses are below 0.3 at a quarter of the run, and end below 0.1."""
    result = judge(CODE, text(make, [4.2, 0.9, 0.1, *[0.02] * 9], [2.0, 0.3, 0.1, *[0.05] * 9]))
    assert (result.verdict, result.confidence, result.steps) == ("warn", "high", (2,))


def test_targets_among_the_inputs(make, judge):
    result = judge(CODE, text(make, falling()))
    assert result.verdict == "warn"
    assert result.symptom == "log_integrity"
    assert "the validation loss over 64 tokens ends at 0.006, a perplexity of 1.006" in result.message


@pytest.mark.parametrize("name", ["tok_emb.weight", "transformer.wte.weight", "model.embed_tokens.weight"])
def test_the_table_of_tokens_tells_how_many_there_are(name, make, judge):
    weights = make.weights({"pos_emb.weight": (256, 32), name: (64, 32), "head.weight": (64, 32)})
    assert judge(CODE, text(make, falling(), params={}, weights=weights)).verdict == "warn"


HEALTHY = {
    "a text": {"losses": falling(end=1.5, pace=8.0), "held_out": [4.1, 2.0, 1.6, 1.5, 1.5]},
    "a text that is learnt by heart": {"losses": falling(), "held_out": [2.4, 2.6, 2.9, 3.3]},
    "a rule that is understood late": {"losses": falling(), "held_out": [4.1, 5.0, 7.0, 7.0, 2.0, 0.001, 0.001, 0.001]},
    "a rule that is learnt late": {"losses": falling(pace=8.0)},
    "a little above": {"losses": falling(), "held_out": [0.5, 0.12, 0.11, 0.11, 0.11]},
    "a likelihood": {"losses": falling(), "held_out": [2.0, -700.0, -800.0, -800.0, -800.0]},
}


@pytest.mark.parametrize("logged", HEALTHY.values(), ids=HEALTHY)
def test_near_misses(logged, make, judge):
    assert judge(CODE, text(make, **logged)).verdict == "pass"


UNKNOWN = {
    "no vocabulary": {"params": {}},
    "a classifier of texts": {"params": {"vocab_size": "64", "num_classes": "14"}},
    "few tokens, as of sums": {"params": {"vocab_size": "20"}},
    "a fine-tune": {"params": {"vocab_size": "64", "base_model": "x"}},
    "a model that goes on": {"params": {"vocab_size": "50257"}},
    "a table of another name": {"params": {}, "table": "user.weight"},
    "positions": {"params": {}, "table": "pos_emb.weight"},
}


@pytest.mark.parametrize("known", UNKNOWN.values(), ids=UNKNOWN)
def test_no_loss_over_a_vocabulary(known, make, judge):
    weights = make.weights({known["table"]: (64, 32)}) if "table" in known else None
    assert judge(CODE, text(make, falling(), params=known["params"], weights=weights)).verdict == "SkippedProbe"


def test_few_points(make, judge):
    assert judge(CODE, text(make, falling(), None)).verdict == "SkippedProbe"
    assert judge(CODE, text(make, falling(), EVALUATIONS[:3])).verdict == "SkippedProbe"
    assert judge(CODE, text(make, falling(3))).verdict == "SkippedProbe"
