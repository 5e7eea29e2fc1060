"""The worked example in a rule's docstring has the verdict, and the numbers, that it claims."""

from dataclasses import replace
from itertools import chain
from math import prod

import numpy as np
import pytest

from tracker_health.evidence import OptimizerState, Rank, RunInfo, TextLog
from tracker_health.readers.optimizers.saved_schedule import saved_schedules
from tracker_health.rules.probe import explanation_of
from tracker_health.rules.registry import BUILT_IN
from tracker_health.testing import make_optimizer_state, make_weights
from tracker_health.words.ending import Ended, Ending
from tracker_health.words.gap_names import metric

WITH_ONE = [rule for rule in BUILT_IN if explanation_of(rule).example is not None]
OF_FILES = ("LOS101", "OPT101", "REG003", "CMP001", "RUN006")
"""Rules whose evidence is a file of its own, a console, or a baseline of other runs."""
OF_WORDS = ("LRS004", "LRS005", "LRS006", "RUN003", "RUN004")
"""Rules whose findings measure no number: of their examples the verdict alone is checked."""


def values_of(text):
    """``0.1 nan 0*14``: numbers, of which one may stand many times; ``uniform(0.5)``, ``normal(0.02)``: draws."""
    rng, found = np.random.default_rng(0), []
    for one in text.replace(",", " ").split():
        value, _, times = one.partition("*")
        size = int(times or 1)
        if value.startswith(("uniform", "normal")):
            kind, _, scale = value.rstrip(")").partition("(")
            drawn = rng.uniform(-1.0, 1.0, size) if kind == "uniform" else rng.standard_normal(size)
            found += list(float(scale) * drawn)
        else:
            found += [float(value)] * size
    return found


def tensors_of(example, kind):
    """Arrays by name, of the lines ``weights NAME 4x4: values``."""
    found = {}
    for key, text in example.parts.items():
        what, _, rest = key.partition(" ")
        name, _, shape = rest.partition(" ")
        if what == kind:
            values = np.array(values_of(text))
            sizes = [int(size) for size in shape.split("x")] if shape else [len(values)]
            assert len(values) == prod(sizes), key
            found[name] = values.reshape(sizes)
    return found


def settings_of(text):
    """``lr=0.1 betas=0.9,0.999 mode=max``: a number, a tuple of numbers, or a word for each name."""
    found = {}
    for one in text.split():
        key, _, value = one.partition("=")
        numbers = tuple(float(number) for number in value.split(",")) if value[-1].isdigit() else (value,)
        found[key] = numbers if len(numbers) > 1 else numbers[0]
    return found


def optimizer_of(example):
    """The state of lines ``optimizer NAME 4x4: step=100 exp_avg_sq=0*16``, with the settings of lines
    ``group NAME: lr=0.1`` for the parameters whose names begin so (``group: lr=0.1`` for all of them), and the
    learning-rate scheduler of a line ``schedule: last_epoch=10 T_max=900 eta_min=0 base_lrs=0.1 _last_lr=0.1``.
    """
    state, groups = {}, {}
    for key, text in example.parts.items():
        what, _, rest = key.partition(" ")
        name, _, shape = rest.partition(" ")
        if what == "group":
            groups[name] = settings_of(text)
        if what != "optimizer":
            continue
        kept = {}
        for one in text.split():
            slot, _, values = one.partition("=")
            numbers = values_of(values)
            sizes = [int(size) for size in shape.split("x")] if shape else [len(numbers)]
            kept[slot] = numbers[0] if slot == "step" else np.array(numbers).reshape(sizes)
        state[name] = kept
    if not state and "schedule" not in example.parts:
        return None
    found = make_optimizer_state(in_groups(state, groups)) if state else OptimizerState(source="it", tensors=())
    return replace(found, schedules=schedules_of(example))


def in_groups(state, groups):
    """A state dict as torch saves it, where there are groups."""
    if not groups:
        return state
    names = list(state)
    lists = {name: [at for at, one in enumerate(names) if one.startswith(name)] for name in groups}
    assert sorted(chain(*lists.values())) == list(range(len(names)))
    return {
        "state": dict(enumerate(state.values())),
        "param_groups": [
            {"params": known, "param_names": [names[at] for at in known], **groups[name]}
            for name, known in lists.items()
        ],
    }


def schedules_of(example):
    saved = settings_of(example.parts.get("schedule", ""))
    lists = {key: [saved[key]] for key in ("base_lrs", "_last_lr") if key in saved}
    return saved_schedules(saved | lists)


def gap_of(example, make):
    """The statistics of lines ``gap grads/fc.weight: max=1*4 mean=0*4 var=1*4``, a metric for each."""
    for key, text in example.parts.items():
        what, _, tensor = key.partition(" ")
        kind, _, name = tensor.partition("/")
        for one in text.split() if what == "gap" else ():
            statistic, _, values = one.partition("=")
            yield make.series(values_of(values), role=f"gap_{kind}", name=metric(kind, name, statistic))


@pytest.mark.parametrize("rule", WITH_ONE, ids=lambda rule: rule.code)
def test_the_worked_example(rule, make, judge):
    example = explanation_of(rule).example
    last = max(map(len, example.series.values()), default=1) - 1
    series = []
    for key, values in example.series.items():
        role, _, name = key.partition(" ")
        steps = np.linspace(last / len(values) * (len(values) < last), last, len(values))
        series.append(make.series(values, steps, role=role, name=name or role))
    parts, weights, before = {}, tensors_of(example, "weights"), tensors_of(example, "before")
    if weights:
        made = make_weights(weights, previous=before or None)
        parts["weights"] = replace(made, task=example.parts.get("task", ""))
    if "resumed" in example.parts:
        steps = tuple(int(step) for step in example.parts["resumed"].split())
        parts["text_log"] = TextLog(source="train.log", lines=99, rows=last, resumed=steps)
    series += gap_of(example, make)
    odd = [
        make.series(values_of(text), role=None, name=key.partition(" ")[2])
        for key, text in example.parts.items()
        if key.startswith("odd ")
    ]
    parts["odd"] = tuple(odd)
    parts["ranks"] = tuple(
        Rank(
            number=int(key.split()[1]),
            name=" ".join(key.split()[:2]),
            series=(make.series(values_of(text), role=(*key.split(), "train_loss")[2]),),
        )
        for key, text in example.parts.items()
        if key.startswith("rank ")
    )
    seen = Ending(how=Ended(example.parts["ended"]), by="it") if "ended" in example.parts else None
    info = RunInfo(params=example.params, metric_names=tuple(one.name for one in series), seen=seen)
    evidence = make.evidence(None, *series, info=info, optimizer=optimizer_of(example), **parts)
    result = judge(rule.code, evidence)
    assert result.verdict == example.verdict, result.message
    if rule.code in OF_WORDS:
        assert not any(isinstance(value, (int, float)) for value in result.measured.values()), result.measured
    for name, value in example.gives.items():
        assert result.measured[name] == pytest.approx(value, rel=0.01), (name, result.measured)


def test_every_rule_with_a_vote_has_one_that_gives_numbers():
    without = [rule.code for rule in BUILT_IN if rule.status != "preview" and rule.code not in (*OF_FILES, *OF_WORDS)]
    assert [
        rule for rule in without if rule not in {one.code for one in WITH_ONE if explanation_of(one).example.gives}
    ] == []
    assert {*OF_WORDS} <= {one.code for one in WITH_ONE}
