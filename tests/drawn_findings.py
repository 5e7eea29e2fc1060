"""What rules may have found, drawn by a seed, beside what a run may have logged and set: for headlines alone."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from tracker_health.config import Config
from tracker_health.evidence import (
    Evidence,
    FloatArray,
    MomentStats,
    OptimizerState,
    RunInfo,
    RunRef,
    Series,
    TensorState,
    TextLog,
    confirm,
)
from tracker_health.judge.engine import needs_of
from tracker_health.report.result import ProbeResult
from tracker_health.report.resume_point import Onset
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.verdict import Verdict

DRAWN, POINTS = 900, 48
_OF_RANKS = ("RUN005", "RUN006", "SYS004")  # which find nothing in a run by itself
RULES = {probe.code: probe for probe in BUILT_IN if probe.code not in _OF_RANKS}
TOGETHER = [
    names.split()
    for names in (
        "OPT009 LOS009 WGT004 OPT007",
        "AMP001 LOS001 GRD001 RUN001 OPT002",
        "LOS005 LOS006 OPT003 GEN003 OPT006",
        "RWD001 RWD003 RWD004 RWD005 RWD006 RWD007",
        "GEN001 GEN002 GEN003 GEN004 GEN005 LOS005",
        "LOS003 LOS008 GRD002 OPT009",
        "LOS004 LOS008 LOS003 RUN001 GRD004",
        "RWD009 GRD003 LOS005",
        "WGT002 OPT004 WGT005 GEN005 LRS001",
        "LOS004 GEN003 LOS005",
        "OPT003 LOS005 LOS006",
        "WGT007 WGT003 WGT006 WGT001",
        "REG001 REG002 REG004 REG005",
        "RWD008 RWD007",
        "WGT001",
        "LOS001 LOS004",
        "LOS009 WGT004 OPT009",
        "LOS004 GEN003",
        "OPT003",
        "OPT016 OPT010 OPT011 WGT004 LOS005",
        "RUN003 RUN004 RUN001 LOS007",
        "LOS013 LOS010 OPT005 LOS012",
    )
]
"""Rules that object together."""

TEXTS = (
    "KeyError: 'x'", "RuntimeError: NaN loss", "CUDA out of memory", "No space left on device", "NCCL timeout",
    "DataLoader worker (pid 3) is killed", "Current loss scale already at minimum", "",
)  # fmt: skip
MEASURES = {
    "scale": (0.01, 0.14, 0.15, 0.16, 1.0, 4.0, 99.0, 101.0, 604.0), "initial": (0, 1, 2), "unchanged": (1, 3, 4),
    "compared": (4,), "dead_tensors": (1, 3, 4), "tensors": (2, 3, 4), "nonfinite_tensors": (1, 2),
    "input_rms": (20.0, 500.0, 700.0), "first": (9.0, 69.0, 70.0, 693.0), "chance": (0.693,), "eps_ratio": (11.0, 900.0),
    "best_step": (7, 12), "optimizer_steps": (3, 5, 20), "done": (4, 9), "planned": (9, 100), "fraction": (0.04, 1.0),
    "empty": (0, 2), "idle": (0, 4), "adapters": (4,), "first_step": (12, 30), "last_step": (30, 48),
    "nonfinite": (1, 2, 18), "ended": ("failed", "killed", "out-of-memory", "silent"),
}  # fmt: skip
TENSORS = ("net.0.weight", "net.0.bias", "net.2.weight", "lora_A.weight", "lora_B.weight")
PARAMS = {
    "optimizer": ("adam", "adamw", "sgd", "LARS"), "lr": (30.0, 1.0, 0.3, 0.1, 0.01, 1e-3, 1e-5, 1e-6, 1e-9, 0.0),
    "weight_decay": (0.01, 1.0, 5.0), "max_grad_norm": (1.0, 5e-5, 1e-5), "adam_epsilon": (1e-8, 1e-6, 1e-5, 0.1),
    "temperature": (0.1, 0.2, 1.0), "num_generations": (2, 4, 8), "beta": (0.0, 0.005, 0.01, 0.04, 1.0, 2.0),
    "entropy_coef": (0.0, 0.01, 0.1), "max_completion_length": (64,), "fp16": ("true", "false"),
    "finetuning_type": ("lora",), "vocab_size": (50_000,), "num_classes": (2, 10), "momentum": (0.9,),
}  # fmt: skip


def drawn_findings() -> Iterator[tuple[str, Evidence, list[ProbeResult]]]:
    """A name, a run, and what was found of it."""
    for seed in range(DRAWN):
        draw = random.Random(seed)
        among = draw.choice((sorted(RULES), *TOGETHER))
        codes = draw.sample(among, min(len(among), draw.choice((1, 1, 2, 2, 3, 4, 6))))
        yield f"findings/{seed}", _run(draw), [_result(draw, code) for code in codes]


def _result(draw: random.Random, code: str) -> ProbeResult:
    rule, step = RULES[code], draw.choice((None, 2, 9, 13, 25, 40))
    names = draw.sample(TENSORS, draw.randint(0, len(TENSORS)))
    onset = None if step is None else Onset(step=step, what="it rose", is_best=draw.random() < 0.2)
    details = {"text": draw.choice(TEXTS), "where": draw.choice(("evaluation", "saving", "")), "layer": "net.0"}
    details |= dict.fromkeys(("dead", "missing", "unchanged", "initial", "layers"), names)
    if draw.random() < 0.4:
        details["dead"] = ["net.0.weight"]
    if draw.random() < 0.3:
        details["layer"] = "net.2"
    return ProbeResult(
        code=code,
        name=rule.name,
        symptom=str(rule.symptom),
        status="stable",
        verdict=draw.choice((Verdict.WARN, Verdict.FAIL, Verdict.FAIL, Verdict.PASS)),
        votes=draw.random() < 0.95,
        score=0.0,
        message=f"what {code} found",
        kind=draw.choice(rule.kinds or ("",)),
        measured={name: draw.choice(values) for name, values in MEASURES.items() if draw.random() < 0.8},
        details=details,
        steps=() if step is None else (step, *draw.choice(((), (POINTS,)))),
        onset=draw.choice((None, onset)),
    )


def _run(draw: random.Random) -> Evidence:
    series = {"loss": _loss(draw)}
    for name, shapes in _SHAPES.items():
        if draw.random() < 0.35:
            series[name] = np.asarray(draw.choice(shapes), dtype=np.float64)
    made = [
        Series(name=name, steps=np.arange(1, POINTS + 1), values=values, source="log")
        for name, values in series.items()
    ]
    params = {name: str(draw.choice(values)) for name, values in PARAMS.items() if draw.random() < 0.35}
    done, log = draw.choice((None, 40)), draw.choice((None, (), (12,), (24,), (24, 36)))
    return Evidence(
        run=RunRef(store="directory", id="run", name="run"),
        info=RunInfo(params=params, metric_names=tuple(series)),
        series=confirm(tuple(made), needs_of(Config()).roles.of(series))[0],
        text_log=None if log is None else TextLog(source="x.log", lines=90, rows=POINTS, done=done, resumed=log),
        optimizer=_state(draw) if draw.random() < 0.3 else None,
    )


def _state(draw: random.Random) -> OptimizerState:
    """Of SGD with momentum, or of Adam."""
    kind, size = draw.choice(("momentum", "adam")), draw.choice((1e-6, 1e-4, 1e-2, 1.0))
    moment, dead = _moment(size), _moment(0.0)
    tensors = tuple(
        TensorState(
            id=at, name=name, shape=(8,) if name.endswith("bias") else (8, 8), step=40.0, kind=kind, group=0,
            first_moment=dead if name == "net.0.weight" and draw.random() < 0.5 else moment,
            second_moment=None if kind == "momentum" else moment,
        )
        for at, name in enumerate(TENSORS[:3])
    )  # fmt: skip
    group = {"lr": draw.choice((0.0, 1e-3)), "initial_lr": draw.choice((0.0, 1e-3, 0.5))}
    group |= {"momentum": 0.9, "dampening": 0.0} if kind == "momentum" else {"eps": 1e-8, "betas": (0.9, 0.999)}
    return OptimizerState(source="optimizer.pt", tensors=tensors, groups=(group,), global_step=40)


def _moment(size: float) -> MomentStats:
    return MomentStats(count=64, mean=0.0, rms=size, minimum=-size, maximum=size, zeros=0 if size else 64, nonfinite=0)


_TIME = np.arange(POINTS) / POINTS
_FALLS = 0.3 + 2.0 * np.exp(-4.0 * _TIME)
_SHAPES = {
    "grad_norm": (np.full(POINTS, 0.5), np.zeros(POINTS), np.full(POINTS, 1e-5), np.full(POINTS, 1e-9), 0.1 + 9 * _TIME),
    "lr": (
        np.full(POINTS, 1e-3), 1e-3 * (1 - _TIME), np.zeros(POINTS), np.where(_TIME < 0.25, 1e-4, 1e-2),
        np.where(_TIME < 0.5, 1e-4, 5e-4), np.where(_TIME < 0.3, 1e-3, 1e-12), np.full(POINTS, 1e-9), 0.2 * _TIME,
    ),
    "val_loss": (_FALLS, np.full(POINTS, np.nan), np.full(POINTS, 0.7)),
    "train_accuracy": (1 - _FALLS / 3, np.full(POINTS, 0.5), np.full(POINTS, 0.01)),
    "train/reward": (0.2 + _TIME, 1.0 - _TIME, np.full(POINTS, 0.4)),
    "train/kl": (np.zeros(POINTS), 9 * _TIME), "train/entropy": (1 - 0.9 * _TIME,),
    "train/completions/clipped_ratio": (np.ones(POINTS), np.full(POINTS, 0.1)),
    "rewards/margins": (np.zeros(POINTS), _TIME), "logps/chosen": (-20 - 9 * _TIME,), "logps/rejected": (-20 - 9 * _TIME,),
}  # fmt: skip


def _loss(draw: random.Random) -> FloatArray:
    at = draw.choice((12, 24, 36))
    back = np.where(np.arange(POINTS) < at, _FALLS, draw.choice((1.4, 2.0, 2.3)) - 0.3 * _TIME)
    broken, passing = _FALLS.copy(), _FALLS.copy()
    broken[at:], passing[at : at + 2] = draw.choice((np.nan, np.inf, 0.0)), np.nan
    grown = np.where(np.arange(POINTS) < at, np.geomspace(1.0, draw.choice((8.0, 1e4)), POINTS), np.nan)
    spiky, explosion = _FALLS.copy(), np.full(POINTS, 0.693)
    spiky[at], explosion[:4] = 9.0, (0.7, 900.0, 300.0, 4.0)
    shapes = (
        _FALLS, np.full(POINTS, 0.693), np.zeros(POINTS), 1.0 + 8.0 * _TIME, back, broken, passing, grown, spiky, explosion
    )  # fmt: skip
    values = np.asarray(draw.choice(shapes), dtype=np.float64)
    noise = np.random.default_rng(draw.randint(0, 99)).normal(0.0, 0.005, POINTS)
    return values + noise if np.ptp(np.nan_to_num(values)) else values
