"""Histories made by seeded numpy, and ``check_probe`` for evidence that is ready: the one way to ask a rule."""

import itertools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tracker_health.config import Config
from tracker_health.evidence import (
    Evidence,
    MomentStats,
    OptimizerState,
    RunInfo,
    RunRef,
    Series,
    StepUnit,
    TensorHeader,
    TensorState,
    Weights,
)
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import ProbeResult, Report
from tracker_health.rules.registry import probe_classes
from tracker_health.testing import check_probe

RUN = RunRef(store="directory", id="runs/a", name="a")


def make_series(values, steps=None, *, role="train_loss", name=None, times=None, step_unit=StepUnit.UNKNOWN):
    values = np.asarray(values, dtype=np.float64)
    steps = np.arange(len(values)) if steps is None else steps
    return Series(
        name=name or role,
        role=role,
        steps=np.asarray(steps, dtype=np.int64),
        values=values,
        times=None if times is None else np.asarray(times, dtype=np.float64),
        step_unit=step_unit,
    )


def make_evidence(losses=None, *more, steps=None, params=None, info=None, **parts):
    """Evidence with a training loss (a list of values or a ready series), further series and parts."""
    series = list(more)
    if losses is not None:
        series.insert(0, losses if isinstance(losses, Series) else make_series(losses, steps))
    info = info or RunInfo(params=params or {}, metric_names=tuple(one.name for one in series))
    return Evidence(run=RUN, info=info, series=tuple(series), **parts)


def make_moment(value=1e-6, *, count=16, zeros=None, nonfinite=0):
    zeros = (count if value == 0 else 0) if zeros is None else zeros
    shown = float("nan") if nonfinite else float(value)
    return MomentStats(
        count=count, mean=shown, rms=abs(shown), minimum=shown, maximum=shown, zeros=zeros, nonfinite=nonfinite
    )


def make_tensor(key, second=1e-6, *, name=None, shape=(4, 4), step=1000.0, zeros=None, nonfinite=0, first=None, **more):
    """One parameter of an Adam state. ``second``: the second moment's mean, or None for an optimizer without one."""
    count = int(np.prod(shape)) if shape else 1
    moment = None if second is None else make_moment(second, count=count, zeros=zeros, nonfinite=nonfinite)
    return TensorState(id=key, name=name, shape=shape, step=step, first_moment=first, second_moment=moment, **more)


def make_state(*tensors, global_step=1000, **more):
    return OptimizerState(source="training_state.pt", tensors=tensors, global_step=global_step, **more)


def make_weights(shapes, dtype="F32"):
    """A weights file's header, from a mapping of names to shapes."""
    headers = tuple(TensorHeader(name=name, shape=shape, dtype=dtype) for name, shape in shapes.items())
    return Weights(source="model.safetensors", tensors=headers)


@pytest.fixture(scope="session")
def make():
    """Builders: ``series``, ``evidence``, ``moment``, ``tensor``, ``state``, ``weights``."""
    return SimpleNamespace(
        series=make_series,
        evidence=make_evidence,
        moment=make_moment,
        tensor=make_tensor,
        state=make_state,
        weights=make_weights,
    )


def diagnosed(evidence, config=None):
    """The report, after checking what holds for every report."""
    report = diagnose(evidence, config or Config())
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert Report.from_json(document).to_json() == report.to_json()
    for result in report.results:
        assert "\n" not in result.message
        if result.verdict in ("warn", "fail"):
            assert re.search(r"\d", result.message), f"{result.code} names no number: {result.message}"
            assert result.remedy, f"{result.code} says not what to do"
            assert result.score is not None
            assert result.score < 1.0
        elif not result.message.startswith("measured only"):
            assert not result.remedy
    return report


@pytest.fixture(scope="session")
def report():
    """``report(evidence, config)``: the whole run's report."""
    return diagnosed


@pytest.fixture(scope="session")
def judge():
    """``judge(code, evidence, **thresholds)``: ``check_probe`` on ready evidence; what is skipped has the verdict
    ``SkippedProbe``.
    """

    def one(code, evidence, **thresholds):
        rule = next(probe for probe in probe_classes() if probe.code == code)(**thresholds)
        outcome = check_probe(rule, evidence=evidence, config=Config(measure_only=frozenset()))
        if isinstance(outcome, ProbeResult):
            return outcome
        return SimpleNamespace(verdict=type(outcome).__name__, reason=vars(outcome))

    return one


# The shared statistics once more, in plain Python, with the definition written out.


def median(values):
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def noise_of(values):
    steps = [abs(b - a) for a, b in itertools.pairwise(values)]
    return 1.4826 * median(steps) / math.sqrt(2) if steps else 0.0


def evaluation_noise_of(values):
    """From second differences, which see no slope; of those after the first third the root mean square counts."""
    bends = [c - 2 * b + a for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    late = bends[len(bends) // 3 :]
    robust = min(noise_of(values), 1.4826 * median([abs(bend) for bend in bends]) / math.sqrt(6))
    return max(robust, min(3 * robust, math.sqrt(sum(bend**2 for bend in late) / len(late) / 6)))


def blocks_of(values, size):
    """Lists of ``size`` values, cut from the end; what is left over at the start belongs to the first."""
    blocks, rest = [], list(values)
    while len(rest) >= 2 * size:
        blocks.insert(0, rest[-size:])
        rest = rest[:-size]
    return [rest, *blocks]


def parts_of(values, count):
    """As even as can be, the longer ones first."""
    parts, rest = [], list(values)
    for left in range(count, 0, -1):
        size = -(-len(rest) // left)
        parts.append(rest[:size])
        rest = rest[size:]
    return parts


def start_of(values, size, noise):
    head = median(values[:size])
    return values[0] if head - values[0] > 4.0 * noise else head


def median_error_of(noise, size):
    return 1.2533 * noise / math.sqrt(size)


def trend_of(values):
    n = len(values)
    score = sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
    return (score - (score > 0) + (score < 0)) / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if n > 2 else 0.0


def quantile(values, share):
    ordered, place = sorted(values), share * (len(values) - 1)
    low = min(math.floor(place), len(values) - 2)
    return ordered[low] + (ordered[low + 1] - ordered[low]) * (place - low)


def jumps_of(values, window=128):
    """Per value: how far it lies above the median of those before it, and that over their deviation; in two passes."""

    def once(history):
        stride, found = 8 if len(values) <= 32768 else 64, []
        for at in range(0, len(values), stride):
            earlier = history[max(0, at - window) : at]
            if not earlier:
                found += [(0.0, 0.0)] * len(values[:stride])
                continue
            centre = median(earlier)
            spread = 1.4826 * median([abs(one - centre) for one in earlier])
            for value in values[at : at + stride]:
                above = value - centre
                found.append((above, above / spread if spread else math.copysign(math.inf, above) if above else 0.0))
        return found

    tamed = [value - above if score > 8 else value for value, (above, score) in zip(values, once(values), strict=True)]
    return once(tamed)


def not_taken(values):
    """The places of NaN between finite values at a regular distance; empty where they are anything else."""
    good = [place for place, value in enumerate(values) if math.isfinite(value)]
    rest = [place for place, value in enumerate(values) if not math.isfinite(value)]
    if len(good) < 5 or any(math.isinf(values[place]) for place in rest):
        return []
    distances = [b - a for a, b in itertools.pairwise(good)]
    usual = median(distances)
    regular = all(one > 1 and 0.5 * usual <= one <= 1.5 * usual for one in distances)
    return rest if regular and good[0] <= usual and len(values) - 1 - good[-1] < usual else []


@pytest.fixture(scope="session")
def plain():
    """The statistics of ``_stats.py`` and numpy's quantile, made of loops over lists."""
    return SimpleNamespace(
        median=median,
        noise=noise_of,
        evaluation_noise=evaluation_noise_of,
        blocks=blocks_of,
        parts=parts_of,
        start=start_of,
        median_error=median_error_of,
        trend=trend_of,
        quantile=quantile,
        jumps=jumps_of,
        not_taken=not_taken,
    )


@pytest.fixture(scope="session")
def bump():
    """``bump(losses, at, length, height)``: a copy that is higher for a while."""

    def raised(losses, at, length, height):
        losses = np.array(losses, dtype=float)
        losses[at : at + length] += height
        return losses

    return raised


# Curves. All take a seed; n is the number of logged points.


def descent(seed=0, *, n=400, start=4.0, floor=1.0, rate=5.0, noise=0.03):
    """An ordinary training loss: exponential approach to a floor, with minibatch noise in proportion to the level."""
    rng = np.random.default_rng(seed)
    level = floor + (start - floor) * np.exp(-rate * np.arange(n) / n)
    return level * (1.0 + noise * rng.standard_normal(n))


def converged_plateau(seed=0):
    """Converged in the first tenth, then 1,800 points of plain noise."""
    return descent(seed, n=2000, rate=60.0, noise=0.02)


def heavy_noise(seed=0):
    """Batch size 1: the noise is as large as the level, with a long upper tail."""
    rng = np.random.default_rng(seed)
    level = 1.0 + 3.0 * np.exp(-5.0 * np.arange(600) / 600)
    return level * rng.gamma(4.0, 0.25, size=600)


def warm_up_bump(seed=0):
    """The loss rises by a fifth while the learning rate warms up, and then falls."""
    losses = descent(seed, n=500)
    losses[:50] += 0.8 * np.sin(np.pi * np.arange(50) / 50)
    return losses


def cosine_restarts(seed=0):
    """Five cycles; each restart brings a bump of a tenth that falls off within the cycle."""
    losses = descent(seed, n=1000, rate=6.0, noise=0.02)
    phase = (np.arange(1000) % 200) / 200
    return losses + np.where(np.arange(1000) >= 200, 0.1 * np.exp(-8 * phase), 0.0)


def one_spike(seed=0):
    """One batch at forty times the level, without a consequence."""
    losses = descent(seed, n=500)
    losses[300] *= 40.0
    return losses


def late_learner(seed=0):
    """Half of the run at ln 2, then learning sets in."""
    rng = np.random.default_rng(seed)
    index = np.arange(600)
    level = np.where(index < 300, np.log(2), 0.1 + (np.log(2) - 0.1) * np.exp(-(index - 300) / 60))
    return level + 0.01 * rng.standard_normal(600)


def staircase(seed=0):
    """A memorising language model: flat within an epoch, a step down at its end."""
    rng = np.random.default_rng(seed)
    return np.repeat([3.0, 2.4, 1.7, 1.1], 150) + 0.05 * rng.standard_normal(600)


def negative_descent(seed=0):
    """A log-likelihood of densities: from 3 down to -4."""
    rng = np.random.default_rng(seed)
    return -4.0 + 7.0 * np.exp(-5.0 * np.arange(400) / 400) + 0.1 * rng.standard_normal(400)


def all_negative(seed=0):
    """A loss that begins and ends below 0."""
    rng = np.random.default_rng(seed)
    return -6.0 + 5.0 * np.exp(-5.0 * np.arange(400) / 400) + 0.1 * rng.standard_normal(400)


def fine_tune(seed=0):
    """A fine-tune that gains 8 % and has done so after a third."""
    rng = np.random.default_rng(seed)
    return 2.0 * (0.92 + 0.08 * np.exp(-10.0 * np.arange(500) / 500)) + 0.02 * rng.standard_normal(500)


def blips(seed=0):
    """A periodic blip of a third, every fifty points."""
    losses = descent(seed, n=600)
    losses[49::50] *= 1.35
    return losses


HEALTHY = {
    one.__name__: one
    for one in (
        descent,
        converged_plateau,
        heavy_noise,
        warm_up_bump,
        cosine_restarts,
        one_spike,
        late_learner,
        staircase,
        negative_descent,
        all_negative,
        fine_tune,
        blips,
    )
}
HEALTHY |= {f"log_of_{n}_points": (lambda seed=0, n=n: descent(seed, n=n)) for n in (8, 9, 12, 20, 30, 60)}
HEALTHY |= {
    "linear": lambda seed=0: np.linspace(3.0, 1.0, 200) + 0.05 * np.random.default_rng(seed).standard_normal(200)
}
HEALTHY |= {"noiseless": lambda seed=0: descent(seed, noise=0.0)}


def exploding(seed=0):
    """Falls for a while, then goes up and stays there."""
    rng = np.random.default_rng(seed)
    losses = descent(seed, n=400)
    losses[250:] = 7.0 + 0.3 * rng.standard_normal(150)
    return losses


def drifting_up(seed=0):
    """Falls to 1.2, then climbs back to 2.6, slowly."""
    losses = descent(seed, n=400, noise=0.02)
    losses[200:] += np.linspace(0.0, 1.5, 200)
    return losses


def rescued_explosion(seed=0):
    """A learning rate of 1.0: from 9 up to 250, and down to 2.8 by its decay, far below the start."""
    rng = np.random.default_rng(seed)
    index = np.arange(500)
    level = np.where(index < 100, 9.0, np.where(index < 200, 250.0, 2.8 + 247.2 * np.exp(-(index - 200) / 40)))
    return level * (1.0 + 0.03 * rng.standard_normal(500))


def from_the_start(seed=0):
    """Up from the first step on."""
    rng = np.random.default_rng(seed)
    return 2.3 * np.exp(np.arange(300) / 60) * (1.0 + 0.05 * rng.standard_normal(300))


def nan_at_800(seed=0):
    losses = descent(seed, n=1000)
    losses[800:] = np.nan
    return losses


def masked_zeros(seed=0):
    """What a Hugging Face log shows of a model that was dead from its second row on: 749 of 750 rows are 0.0."""
    losses = np.zeros(750)
    losses[0] = 2.31 + 0.1 * np.random.default_rng(seed).standard_normal()
    return losses


def memorised(seed=0):
    """The loss falls to 1e-5 and is then printed as 0.0, with four decimals."""
    return np.round(descent(seed, n=600, floor=0.0, rate=16.0), 4)


def at_chance(seed=0):
    """Pinned at ln 4."""
    return np.log(4) + 0.02 * np.random.default_rng(seed).standard_normal(500)


SICK = {
    one.__name__: one
    for one in (
        exploding,
        drifting_up,
        rescued_explosion,
        from_the_start,
        nan_at_800,
        masked_zeros,
        memorised,
        at_chance,
    )
}


@pytest.fixture(scope="session")
def healthy():
    """Near-misses and plain descents by name: makers of losses that must pass."""
    return SimpleNamespace(**HEALTHY)


@pytest.fixture(scope="session")
def sick():
    """Makers of losses with a fault, by name."""
    return SimpleNamespace(**SICK)


def pytest_collection_modifyitems(items):
    """Where a module imports torch, a checkpoint is one that was trained: most of what these tests take."""
    for item in items:
        if Path(__file__).parent in item.path.parents and hasattr(item.module, "torch"):
            item.add_marker(pytest.mark.trains)


def pytest_generate_tests(metafunc):
    """``healthy_name``: every healthy history; ``long_healthy_name``: those of 200 points or more."""
    if "healthy_name" in metafunc.fixturenames:
        metafunc.parametrize("healthy_name", sorted(HEALTHY))
    if "long_healthy_name" in metafunc.fixturenames:
        metafunc.parametrize("long_healthy_name", sorted(name for name in HEALTHY if len(HEALTHY[name]()) >= 200))
