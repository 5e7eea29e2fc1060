"""REG001 to REG004: what a regularised fine-tune asked for, against what it logged."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.laws import draws

from tracker_health.evidence import StepUnit
from tracker_health.readers.log_formats.text_lines import TextLines
from tracker_health.roles import RolePlan, assign
from tracker_health.rules import fine_tune
from tracker_health.rules.fine_tune._barrier import rounding, usual_divergence
from tracker_health.rules.fine_tune.latent_collapse import LatentCollapse
from tracker_health.rules.fine_tune.off_target import OffTarget
from tracker_health.rules.registry import BUILT_IN
from tracker_health.text import percent

CODES = [
    rule.code for rule in BUILT_IN if rule.__module__.startswith(fine_tune.__name__) and rule is not LatentCollapse
]
"""Rules on fine-tunes that say how they are regularised; of a latent variable another test tells."""

TAU, LAM = 0.5, 2.0
PARAMS = {"reg": "kl_rev", "lam": str(LAM), "tau": str(TAU)}


def curve(top, n=120, seed=0):
    """A KL that begins at 0 and levels off at ``top``, and the nll that falls with it."""
    rng = np.random.default_rng(seed)
    rise = 1.0 - np.exp(-np.arange(n) / 15)
    nll = 3.0 - 0.9 * rise + 0.05 * rng.standard_normal(n)
    return top * rise * (1.0 + 0.02 * rng.standard_normal(n)), nll


def loss_of(nll, kl, lam=LAM, tau=TAU):
    """The objective once more, value by value."""
    return [one + lam * (two - tau if two > tau else 0.0) for one, two in zip(nll, kl, strict=True)]


@pytest.fixture
def run(make):
    """Evidence of a run, as a tracker has it."""

    def of(kl, nll, loss=None, **params):
        loss = loss_of(nll, kl) if loss is None else loss
        series = [make.series(loss, name="loss"), make.series(nll, name="nll"), make.series(kl, name="kl", role="kl")]
        return make.evidence(None, *series, params=PARAMS | {key: str(value) for key, value in params.items()})

    return of


@pytest.fixture
def printed(make, tmp_path):
    """Evidence of the same run out of the table that it prints: every sixth step, with ``digits`` decimals."""

    def of(kl, nll, digits=2, reg="kl_rev", completions=40, min_train=30):
        lines = [
            f"10:00:00 INFO heal[{reg}] {completions} completions x 3 ep = 120 steps; lora r=8 on layers 3 to 9",
            f"10:00:00 INFO SHOULD: kl stays near tau. lam={LAM} tau={TAU} min_train={min_train}",
            "10:00:00 INFO step  nll↓    kl  loss↓  gnorm",
        ]
        for step, row in enumerate(zip(nll, kl, loss_of(nll, kl), strict=True)):
            if step % 6 == 0 or step == len(nll) - 1:
                lines.append(f"10:00:00 INFO {step:4d} " + " ".join(f"{one:6.{digits}f}" for one in row) + "   0.50")
        path = tmp_path / "out.log"
        path.write_text("\n".join(lines) + "\n")
        log = TextLines().read(path, "out.log", RolePlan())
        return make.evidence(None, *log.series, params=log.params, text_log=log.text)

    return of


CASES = {
    "acts": (0.8, "pass"),
    "comes near": (0.47, "warn"),
    "stays far below": (0.05, "warn"),
    "is itself": (0.0, "fail"),
}


@pytest.mark.parametrize("case", list(CASES))
def test_idle_barrier_in_metrics_and_in_the_printed_table(case, run, printed, judge):
    top, expected = CASES[case]
    kl, nll = curve(top)
    assert judge("REG001", run(kl, nll)).verdict == expected
    assert judge("REG001", printed(kl, nll)).verdict == expected


def test_what_is_measured_by_a_second_implementation(run, judge):
    kl, nll = curve(0.8)
    result = judge("REG001", run(kl, nll))
    fired = [one for one in kl.tolist() if one > TAU]
    assert result.measured["fired"] == pytest.approx(len(fired) / len(kl))
    assert result.measured["ratio"] == pytest.approx(max(kl.tolist()) / TAU)


def test_a_barrier_that_never_acted_says_so(run, judge):
    kl, nll = curve(0.4)
    result = judge("REG001", run(kl, nll))
    assert percent(max(kl) / TAU) in result.message
    assert "reg = nll" in result.message


def test_a_rounded_kl_of_zero_without_a_gain_only_warns(printed, judge):
    """The learning rate may have been too low: nothing shows that the model moved."""
    kl, nll = np.zeros(120), 3.0 + 0.05 * np.random.default_rng(0).standard_normal(120)
    assert judge("REG001", printed(kl, nll)).verdict == "warn"


def test_a_rounded_kl_at_tau_may_have_exceeded_it(printed, judge):
    kl, nll = curve(TAU)
    kl = np.minimum(kl, TAU + 0.004)
    assert judge("REG001", printed(kl, nll)).verdict == "pass"


@pytest.mark.parametrize(
    ("reg", "top", "expected"), [("nll", 0.3, "fail"), ("wd", 0.3, "fail"), ("nll", 0.0, "pass"), ("wd", 0.0, "pass")]
)
def test_a_kl_where_none_was_asked_for(reg, top, expected, run, judge):
    kl, nll = curve(top)
    assert judge("REG001", run(kl, nll, loss=nll, reg=reg)).verdict == expected


@pytest.mark.parametrize("reg", ["none", "weight_decay"])
def test_words_of_others_name_no_barrier(reg, run, make, judge):
    """A variational autoencoder logs a KL as well, and says of its regularisation that there is none."""
    kl, nll = curve(9.0)
    assert judge("REG001", run(kl, nll, loss=nll, reg=reg)).verdict == "fail", "beside lam and tau they do"
    series = (make.series(nll, name="loss"), make.series(kl, name="kl", role="kl"))
    evidence = make.evidence(None, *series, params={"regularization": reg, "n_samples": "600", "epochs": "3"})
    for code in set(CODES) - {OffTarget.code}:
        assert judge(code, evidence).verdict == "SkippedProbe"


def test_lam_zero_asks_for_no_barrier(run, judge):
    kl, nll = curve(0.1)
    assert judge("REG001", run(kl, nll, lam=0)).verdict == "SkippedProbe"


@pytest.mark.parametrize(("turn", "first", "expected"), [(1, 0.0, "pass"), (3, 0.0, "fail"), (3, 0.2, "pass")])
def test_the_reference_of_a_later_round(turn, first, expected, run, judge):
    kl, nll = curve(0.8)
    kl[0] = first
    assert judge("REG001", run(kl, nll, round=turn)).verdict == expected


def test_values_that_are_not_finite_are_counted(run, judge):
    kl, nll = curve(0.3)
    kl[50:53] = math.nan
    result = judge("REG001", run(kl, nll))
    assert result.measured["nonfinite"] == 3
    assert "not finite at 3 more" in result.message
    assert judge("REG001", run(np.full(120, math.nan), nll)).verdict == "fail"


@pytest.mark.parametrize(("decay", "expected"), [(0.1, "pass"), (0.0, "warn"), (0.01, "warn")])
def test_weight_decay_in_the_checkpoint(decay, expected, make, judge):
    state = make.state(make.tensor(0), groups=({"weight_decay": decay, "lr": 1e-3},))
    evidence = make.evidence([2.0] * 20, params={"reg": "wd", "lam": "0.1"}, optimizer=state)
    assert judge("REG001", evidence).verdict == expected


def test_runs_without_such_a_setting_are_not_judged(make, judge):
    evidence = make.evidence([2.0] * 20, make.series([0.0] * 20, role="kl"))
    for code in CODES:
        assert judge(code, evidence).verdict == "SkippedProbe"


# REG002


@pytest.mark.parametrize("top", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("digits", [2, 4])
def test_the_identity_holds(top, digits, run, printed, judge):
    kl, nll = curve(top)
    assert judge("REG002", run(kl, nll)).verdict == "pass"
    assert judge("REG002", printed(kl, nll, digits)).verdict == "pass"


WRONG = {
    "without tau": lambda nll, kl: loss_of(nll, kl, tau=0.0),
    "another lam": lambda nll, kl: loss_of(nll, kl, lam=LAM / 2),
    "the nll alone": lambda nll, kl: nll,
    "one step": lambda nll, kl: [*loss_of(nll, kl)[:-1], 9.0],
    "of another step": lambda nll, kl: [*loss_of(nll, kl)[1:], 2.0],
}


@pytest.mark.parametrize("name", list(WRONG))
def test_the_identity_is_broken(name, run, judge):
    kl, nll = curve(0.8, n=90)
    loss = WRONG[name](nll, kl)
    result = judge("REG002", run(kl, nll, loss=loss))
    expected = [abs(one - two) > 1e-4 * max(1.0, two) for one, two in zip(loss, loss_of(nll, kl), strict=True)]
    assert (result.verdict, result.measured["off"]) == ("warn", sum(expected))
    assert result.steps[0] == expected.index(True)


def test_single_precision_is_no_deviation(run, judge):
    kl, nll = (np.float32(one) for one in curve(0.8))
    loss = nll + np.float32(LAM) * np.maximum(kl - np.float32(TAU), np.float32(0))
    assert judge("REG002", run(kl, nll, loss=loss)).verdict == "pass"


# REG003


@pytest.mark.parametrize(("kept", "expected"), [(12, "warn"), (29, "warn"), (30, "pass"), (40, "pass")])
def test_fewer_samples_than_the_run_asks_for(kept, expected, run, printed, judge):
    kl, nll = curve(0.8, n=3 * kept)
    assert judge("REG003", run(kl, nll, kept_samples=kept, epochs=3, min_train=30)).verdict == expected
    assert judge("REG003", printed(kl, nll, completions=kept)).verdict == expected


@pytest.mark.parametrize(
    ("steps", "more", "expected"),
    [
        (120, {}, "pass"),
        (60, {}, "warn"),
        (120, {"skipped": 30}, "warn"),
        (120, {"skipped": 2}, "pass"),
        (15, {"batch_size": 8}, "pass"),
        (15, {"batch_size": 4, "gradient_accumulation_steps": 2}, "pass"),
        (7, {"batch_size": 8}, "warn"),
    ],
)
def test_fewer_steps_than_samples_times_epochs(steps, more, expected, run, judge):
    kl, nll = curve(0.8, n=steps)
    assert judge("REG003", run(kl, nll, kept_samples=40, epochs=3, **more)).verdict == expected


@pytest.mark.parametrize("unit", [StepUnit.EPOCH, StepUnit.LOG_CALL])
def test_epochs_and_printed_rows_are_no_steps(unit, make, judge):
    losses = make.series(curve(0.8, n=20)[1], name="loss", step_unit=unit)
    evidence = make.evidence(None, losses, params=PARAMS | {"kept_samples": "600", "epochs": "20"})
    assert judge("REG003", evidence).verdict == "SkippedProbe"


def test_skipped_samples_as_a_series(run, make, judge):
    kl, nll = curve(0.8)
    evidence = run(kl, nll, kept_samples=40, epochs=3)
    for values in ([step // 3 for step in range(120)], [step % 3 == 0 for step in range(120)]):
        skipped = make.series(values, name="skipped", role="skipped_samples")
        result = judge("REG003", make.evidence(None, *evidence.series, skipped, params=dict(evidence.info.params)))
        assert (result.verdict, result.measured["done"]) == (
            "warn",
            120 - max(sum(values) if values[0] else 0, values[-1]),
        )


def test_the_converged_nll(run, printed, judge):
    kl, nll = curve(0.8)
    result = judge("REG003", run(kl, nll, kept_samples=40, epochs=3))
    last = nll[-5:].tolist()
    mean = sum(last) / 5
    error = math.sqrt(sum((one - mean) ** 2 for one in last) / 4 / 5)
    assert result.measured["converged_nll"] == pytest.approx(mean)
    assert result.measured["converged_nll_error"] == pytest.approx(error)
    assert "converged_nll" not in judge("REG003", printed(kl, nll)).measured


@pytest.mark.parametrize("where", [slice(None), slice(118, 119)])
def test_a_converged_nll_that_is_not_finite(where, run, judge):
    kl, nll = curve(0.8)
    nll[where] = math.nan
    result = judge("REG003", run(kl, nll, kept_samples=40, epochs=3))
    assert result.verdict == "fail"
    assert f"{int(np.isnan(nll).sum())} of 120" in result.message


# REG004


@pytest.mark.parametrize(
    ("on", "off", "expected"),
    [(0.8, 0.1, "pass"), (0.1, 0.8, "warn"), (-0.8, 0.1, "pass"), (0.3, -0.31, "warn"), (0.0, 0.0, "pass")],
)
def test_off_target(on, off, expected, make, judge):
    names = {"trait/on_target_shift": [9.0, on], "trait/off_target_shift": [0.0, off]}
    roles = assign(names)
    evidence = make.evidence(
        None, *(make.series(values, name=name, role=roles[name]) for name, values in names.items())
    )
    assert judge("REG004", evidence).verdict == expected


@given(data=st.data())
@settings(max_examples=draws(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_whatever_such_a_run_logs(data, make, judge):
    """No values and no params break a rule."""
    pool = st.sampled_from([0.0, 1e-9, 0.5, 2.25, -1.0, math.nan, math.inf, -math.inf, 1.7e308, -1.7e308])
    names = {"loss": "train_loss", "nll": "train_loss", "kl": "kl", "skipped": "skipped_samples"}
    shifts = {"on_target_shift": "on_target_shift", "off_target_shift": "off_target_shift"}
    series = [
        make.series(data.draw(st.lists(pool, min_size=1, max_size=12)), name=name, role=role)
        for name, role in (names | shifts).items()
    ]
    numbers = st.sampled_from(["", "nan", "0", "-1", "2", "30", "1e308", "x"])
    params = {name: data.draw(numbers) for name in ("lam", "tau", "round", "min_train", "kept", "epochs", "batch_size")}
    params["reg"] = data.draw(st.sampled_from(["nll", "wd", "kl_fwd", "KL-rev"]))
    evidence = make.evidence(None, *series, params=params)
    for code in CODES:
        assert judge(code, evidence).verdict in ("pass", "warn", "fail", "SkippedProbe")


# What they share


@pytest.mark.parametrize("digits", range(5))
def test_the_digits_of_a_log(digits, make):
    shown = [float(f"{value:.{digits}f}") for value in 9.0 * np.random.default_rng(digits).standard_normal(40)]
    assert rounding(make.series(shown)) == pytest.approx(0.5 * 10.0**-digits)
    assert rounding(make.series([0.0] * 40), make.series(shown)) == pytest.approx(0.5 * 10.0**-digits)


def test_zeros_alone_show_no_digits(make):
    assert rounding(make.series([0.0] * 40), None) == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_of_a_tracker_are_not_rounded(dtype, run, judge):
    """Single precision has steps of its own, which hide no divergence."""
    kl, nll = curve(0.0)
    assert judge("REG001", run(kl.astype(dtype), nll.astype(dtype))).confidence == "high"


def test_the_usual_divergence_is_that_of_a_step_along_the_way():
    """Mixtures on the way from one distribution to another: what they gain and how far they have come."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        theirs, data = rng.dirichlet(np.ones(30)), rng.dirichlet(np.full(30, 0.5))
        for share in (0.02, 0.1, 0.5, 1.0):
            mine = theirs ** (1 - share) * data**share
            mine /= mine.sum()
            before, after = -np.sum(data * np.log(theirs)), -np.sum(data * np.log(mine))
            assert np.sum(mine * np.log(mine / theirs)) >= usual_divergence(before, after)
