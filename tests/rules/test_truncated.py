"""RUN001."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tracker_health
from tracker_health.evidence import RunInfo, StepUnit

CODE = "RUN001"


def info(step=None, epoch=None, *, snapshot=False, **params):
    return RunInfo(
        global_step=step, epoch=epoch, snapshot=snapshot, params={name: str(one) for name, one in params.items()}
    )


@pytest.mark.parametrize(
    ("done", "verdict"), [(1, "warn"), (899, "warn"), (900, "pass"), (1000, "pass"), (1100, "pass")]
)
def test_boundaries(done, verdict, make, judge):
    result = judge(CODE, make.evidence(info=info(done, max_steps=1000)))
    assert result.verdict == verdict
    assert f"{done} of 1000 planned optimizer steps" in result.message
    assert result.measured["fraction"] == done / 1000


@given(done=st.integers(0, 2000), planned=st.integers(1, 2000), least=st.floats(0.01, 1.0))
def test_against_plain_python(done, planned, least, make, judge):
    result = judge(CODE, make.evidence(info=info(done, max_steps=planned)), min_fraction=least)
    assert result.verdict == ("pass" if done / planned >= least else "warn")


@pytest.mark.parametrize(("epoch", "verdict"), [(0.5, "warn"), (2.69, "warn"), (2.7, "pass"), (3.0, "pass")])
def test_by_epochs_where_no_steps_are_planned(epoch, verdict, make, judge):
    result = judge(CODE, make.evidence(info=info(500, epoch, num_train_epochs=3)))
    assert result.verdict == verdict
    assert "of 3 planned epochs" in result.message


def test_epochs_from_a_series(make, judge):
    epochs = make.series([0.5, 1.0, 1.5], role="epoch")
    assert judge(CODE, make.evidence([3.0, 2.0, 1.0], epochs, params={"epochs": "3"})).measured["done"] == 1.5


@pytest.mark.parametrize(
    ("logged", "verdict"),
    [
        (range(0, 300, 50), "pass"),
        (range(0, 300, 100), "pass"),
        (range(0, 200, 50), "warn"),
        (range(50, 300, 50), "pass"),  # the next one, 300, would have been logged
        (range(240), "warn"),
        ([0, 250], "warn"),  # two points have no rhythm
        ([0.0, 0.5, 1.0, 1.5, 200.0], "warn"),  # fractions are exact
    ],
)
def test_epochs_of_which_every_kth_is_logged(logged, verdict, make, judge):
    epochs = make.series(list(logged), role="epoch")
    losses = np.linspace(3, 1, len(epochs))
    assert judge(CODE, make.evidence(losses, epochs, params={"epochs": "300"})).verdict == verdict


def test_the_message_says_that_epochs_between_points_are_not_known(make, judge):
    epochs = make.series(range(0, 200, 50), role="epoch")
    result = judge(CODE, make.evidence(np.linspace(3, 1, 4), epochs, params={"epochs": "300"}))
    assert "151 of 300 planned epochs, logged every 50 (at most 67 %)" in result.message


@pytest.mark.parametrize(
    ("steps", "verdict"), [((500, 2501, 500), "pass"), ((500, 2001, 500), "warn"), ((1, 2500, 1), "warn")]
)
def test_steps_of_which_every_kth_is_logged(steps, verdict, make, judge):
    counted = make.series(np.ones(len(range(*steps))), range(*steps), step_unit=StepUnit.OPTIMIZER_STEP)
    assert judge(CODE, make.evidence(counted, params={"max_steps": "2999"})).verdict == verdict


def test_steps_that_a_trainer_state_counts_are_exact(make, judge):
    counted = make.series(np.ones(5), range(500, 2501, 500), step_unit=StepUnit.OPTIMIZER_STEP)
    assert judge(CODE, make.evidence(counted, info=info(2500, max_steps=2999))).verdict == "warn"


def test_max_steps_of_minus_one_is_no_plan(make, judge):
    """Hugging Face writes max_steps = -1 when epochs decide."""
    assert judge(CODE, make.evidence(info=info(500, 3.0, max_steps=-1, num_train_epochs=3))).verdict == "pass"


@pytest.mark.parametrize("planned", ["", "none", "nan", "inf", "-5", "0", "1e999", "auto"])
def test_a_plan_that_is_no_number_is_skipped(planned, make, judge):
    assert judge(CODE, make.evidence(info=info(500, max_steps=planned))).verdict == "SkippedProbe"


def test_a_checkpoint_of_mid_training_passes(make, judge):
    result = judge(CODE, make.evidence(info=info(500, max_steps=1000, snapshot=True)))
    assert (result.verdict, result.confidence) == ("pass", "low")


@pytest.mark.parametrize(
    ("params", "verdict"),
    [
        ({"early_stopping": "True"}, "pass"),
        ({"early_stopping_patience": "3"}, "pass"),
        ({"patience": "10"}, "pass"),
        ({"early_stopping": "False"}, "warn"),
        ({"early_stopping": "no"}, "warn"),
        ({"early_stopping_patience": "off"}, "warn"),
        ({"patience": "0"}, "warn"),
        ({"EarlyStop": "None"}, "warn"),
        ({"learning_rate": "1e-3"}, "warn"),
    ],
)
def test_early_stopping(params, verdict, make, judge):
    assert judge(CODE, make.evidence(info=info(500, max_steps=1000, **params))).verdict == verdict


def test_without_a_plan_or_without_steps_it_is_skipped(make, judge):
    assert judge(CODE, make.evidence(info=info(500))).verdict == "SkippedProbe"
    assert judge(CODE, make.evidence(info=info(max_steps=500))).verdict == "SkippedProbe"


def test_the_status_of_the_tracker_is_no_evidence(make, judge):
    killed = RunInfo(status="FAILED", global_step=1000, params={"max_steps": "1000"})
    assert judge(CODE, make.evidence(info=killed)).verdict == "pass"


@given(done=st.integers(0, 2000), one=st.floats(0.01, 1.0), other=st.floats(0.01, 1.0))
def test_asking_for_less_never_finds_more(done, one, other, make, judge):
    lower, higher = sorted([one, other])
    evidence = make.evidence(info=info(done, max_steps=1000))
    if judge(CODE, evidence, min_fraction=higher).verdict == "pass":
        assert judge(CODE, evidence, min_fraction=lower).verdict == "pass"


# Several counts of the same steps


def counted(make, own, reached, **more):
    """The state of an optimizer that counts ``own`` updates, in a checkpoint of step ``reached``."""
    return make.state(make.tensor(0, step=float(own)), global_step=reached, **more)


def of_steps(make, *steps, role="train_loss"):
    return make.series(np.linspace(3, 1, len(range(*steps))), range(*steps), role=role)


LIGHTNING = {"extras": {"pytorch-lightning_version": "2.4.0"}}


@pytest.mark.parametrize(
    ("own", "reached", "more", "params", "verdict"),
    [
        (836, 836, LIGHTNING, {}, "pass"),
        (835, 836, LIGHTNING, {}, "pass"),  # a loss scaler that skipped one
        (168, 836, LIGHTNING, {}, "warn"),  # begun anew at a resume
        (500, 836, LIGHTNING, {}, "pass"),  # a resume in the first half is told, and no more
        (209, 836, LIGHTNING, {}, "pass"),  # four batches to each update
        (209, 836, LIGHTNING, {"accumulate_grad_batches": "2"}, "warn"),  # two, it says
        (168, 836, {}, {}, "pass"),  # nobody says that these are updates
        (168, 500, LIGHTNING, {}, "warn"),
        (168, 836, LIGHTNING, {"accumulate_grad_batches": "5"}, "warn"),  # 168 updates of 836 that were planned
    ],
)
def test_the_farthest_count_counts(own, reached, more, params, verdict, make, judge):
    evidence = make.evidence(optimizer=counted(make, own, reached, **more), params={"max_steps": "836", **params})
    assert judge(CODE, evidence).verdict == verdict


def test_an_optimizer_that_was_begun_anew_is_no_end_of_the_run(make, judge):
    evidence = make.evidence(optimizer=counted(make, 168, 836, **LIGHTNING), params={"max_steps": "836"})
    result = judge(CODE, evidence)
    assert result.message.startswith("the run came through 836 of 836 planned steps, but its optimizer counts 168 upda")
    assert "ended" not in result.message
    assert (result.measured["done"], result.measured["updates"]) == (836, 168)


@pytest.mark.parametrize(("planned", "verdict"), [(836, "pass"), (209, "pass"), (300, "warn")])
def test_batches_beyond_the_plan_are_no_updates(planned, verdict, make, judge):
    evidence = make.evidence(optimizer=counted(make, 209, 836), params={"max_steps": str(planned)})
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(
    ("first", "logged", "verdict"),
    [
        (1, 1, "warn"),
        (1, 10, "pass"),  # a tenth of them: the steps may be samples
        (1000, 1, "pass"),  # a run that goes on from another
    ],
)
def test_updates_that_a_loss_scaler_skipped(first, logged, verdict, make, judge):
    loss = of_steps(make, first, 1639, logged)
    evidence = make.evidence(loss, optimizer=counted(make, 196, 1638), params={"max_steps": "1638"})
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ((1, 1001), "pass"),  # the log goes on where the checkpoint was written
        ((1, 701), "warn"),
        ((10, 901, 10), "pass"),
        ((32, 40_000, 32), "warn"),  # samples, far beyond the plan
        ((1, 20), "warn"),  # epochs
    ],
)
def test_a_log_goes_on_after_the_last_checkpoint(steps, verdict, make, judge):
    evidence = make.evidence(of_steps(make, *steps), optimizer=counted(make, 500, 500), params={"max_steps": "1000"})
    assert judge(CODE, evidence).verdict == verdict


PLAN = {"max_steps": "882", "epochs": "14"}


@pytest.mark.parametrize(
    ("train", "validated", "params", "verdict"),
    [
        ((10, 351, 10), (63, 316, 63), PLAN, "warn"),
        ((10, 881, 10), (63, 883, 63), PLAN, "pass"),
        ((10, 801, 10), (63, 757, 63), PLAN, "pass"),  # 90.7 %
        ((63, 316, 63), None, PLAN, "warn"),  # one row an epoch
        ((62, 316, 63), None, PLAN, "warn"),  # counted from 0
        ((10, 351, 10), None, PLAN, "SkippedProbe"),  # rows, or whatever
        ((1, 351), (64, 321, 64), PLAN, "SkippedProbe"),  # rows: each validation is one of them
        ((10, 351, 10), (63, 127, 63), PLAN, "SkippedProbe"),  # two points have no rhythm
        ((10, 351, 10), (63, 316, 63), {"max_steps": "882"}, "SkippedProbe"),
        ((10, 351, 10), (63, 316, 63), PLAN | {"epochs": "13"}, "SkippedProbe"),
        ((10, 101, 10), None, {"max_steps": "1000", "epochs": "100"}, "SkippedProbe"),  # every tenth epoch
        ((10, 351, 10), (63, 316, 63), PLAN | {"patience": "5"}, "pass"),
        ((63, 40_000, 63), None, PLAN, "SkippedProbe"),  # no steps of this plan
    ],
)
def test_steps_of_an_unknown_kind_beside_the_epochs_of_the_plan(train, validated, params, verdict, make, judge):
    more = [of_steps(make, *validated, role="val_loss")] if validated else []
    assert judge(CODE, make.evidence(of_steps(make, *train), *more, params=params)).verdict == verdict


def tracked(make, steps, params, *more, tracker="MLflow", status="FINISHED"):
    """A run as its tracker has it: with times, and the steps that the training gave."""
    loss = make.series(np.linspace(3, 1, len(steps)), steps, times=1.7e9 + np.arange(len(steps)))
    names = ("train_loss", *(one.name for one in more))
    info = RunInfo(tracker=tracker, status=status, params=params, metric_names=names)
    return make.evidence(loss, *more, info=info)


@pytest.mark.parametrize("name", ["max_steps", "trainer.max_steps", "args/maxSteps", "total-steps", "total_timesteps"])
@pytest.mark.parametrize("plan", ["epochs", "n_epochs", "cfg.train.num_epochs", "num_train_epochs", "maxEpochs"])
def test_the_steps_of_a_tracker_are_those_of_the_plan(name, plan, make, judge):
    for params, unit in (({name: "200"}, "steps"), ({plan: "200"} if name == "max_steps" else {}, "epochs")):
        for last, verdict in ((80, "warn"), (199, "pass"), (200, "pass")) if params else ():
            result = judge(CODE, tracked(make, range(1, last + 1), params))
            assert (result.verdict, f"{last} of 200 planned {unit}" in result.message) == (verdict, True)
    assert judge(CODE, tracked(make, range(1, 81), {name: "200"}, tracker="")).verdict == "SkippedProbe"


@pytest.mark.parametrize(
    ("steps", "params", "verdict"),
    [
        (range(200), {"max_steps": "2000"}, "SkippedProbe"),  # rows of every tenth step
        (range(1, 41), {"max_steps": "200"}, "SkippedProbe"),
        (range(0, 100, 10), {"max_steps": "100"}, "pass"),
        (range(0, 50, 10), {"epochs": "50"}, "pass"),
        (range(5), {"max_epochs": "5"}, "pass"),
        (range(3), {"max_epochs": "5"}, "SkippedProbe"),  # too few to be told from folds or rounds
        (range(1, 4001), {"epochs": "20"}, "SkippedProbe"),  # steps, of which nobody says how many are an epoch
        (range(1, 4001), {"max_steps": "200"}, "SkippedProbe"),  # samples
        ([*range(50)] * 4, {"epochs": "80"}, "SkippedProbe"),  # batches of an epoch, again and again
        (range(10, 351, 10), {"max_steps": "882", "epochs": "14"}, "warn"),
        (range(100), {"max_steps": "4000", "epochs": "100"}, "pass"),
        (range(1, 81), {"max_steps": "200", "patience": "5"}, "pass"),
        (range(1, 81), {"scheduler.total_steps": "200", "val.max_steps": "200"}, "SkippedProbe"),
        (range(1, 81), {"n_epochs": "100", "clip_range": "0.2"}, "SkippedProbe"),
    ],
)
def test_what_may_be_counted_otherwise_is_no_early_end(steps, params, verdict, make, judge):
    assert judge(CODE, tracked(make, steps, params)).verdict == verdict


@given(every=st.integers(5, 40), rows=st.integers(8, 400), rest=st.integers(0, 4), first=st.integers(0, 1))
def test_rows_of_a_whole_run_are_never_an_early_end(every, rows, rest, first, make, judge):
    """Logged with the number of the row as their step."""
    evidence = tracked(make, range(first, first + rows), {"max_steps": str(every * rows + min(rest, every - 1))})
    assert judge(CODE, evidence).verdict != "warn"


def test_whoever_finished_some_evaluations_after_the_best_may_have_been_stopped(make, judge):
    for since, verdict in ((0, "warn"), (2, "warn"), (3, "pass"), (20, "pass")):
        held_out = make.series(np.abs(np.arange(80) - 79 + since) + 1.0, range(1, 81), role="val_loss")
        assert judge(CODE, tracked(make, range(1, 81), {"epochs": "200"}, held_out)).verdict == verdict
    assert judge(CODE, tracked(make, range(1, 81), {"epochs": "200"}, held_out, status="")).verdict == "warn"


def test_the_steps_of_a_policy_are_its_episodes(make, judge):
    reward = make.series(np.linspace(1, 90, 80), range(1, 81), role="train_reward")
    assert judge(CODE, tracked(make, range(1, 81), {"max_steps": "200"}, reward)).verdict == "SkippedProbe"


@pytest.mark.parametrize("unit", [StepUnit.EPOCH, StepUnit.LOG_CALL])
def test_rows_and_epochs_are_no_steps(unit, make, judge):
    loss = make.series(np.linspace(3, 1, 5), range(63, 316, 63), step_unit=unit)
    assert judge(CODE, make.evidence(loss, params=PLAN)).verdict == "SkippedProbe"


def found_in(folder):
    return next((one for one in tracker_health.check(folder).results if one.code == CODE), None)


@pytest.mark.parametrize(("last", "verdict"), [(350, "warn"), (880, "pass")])
def test_a_real_table_of_steps(last, verdict, tmp_path):
    rows = sorted([(step, f"{3 / step},") for step in range(10, last + 1, 10)] + [
        (step, f",{3 / step}") for step in range(63, last + 1, 63)
    ])  # fmt: skip
    (tmp_path / "history.csv").write_text("step,train_loss,valid_loss\n" + "".join(f"{at},{of}\n" for at, of in rows))
    (tmp_path / "config.yaml").write_text("epochs: 14\nmax_steps: 882\n")
    assert found_in(tmp_path).verdict == verdict


@pytest.mark.parametrize(("resumed_at", "verdict"), [(None, "pass"), (120, "warn")])
def test_a_real_resume_without_the_optimizers_state(resumed_at, verdict, tmp_path):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    lines = []
    for step in range(1, 151):
        if step == resumed_at:
            optimizer = torch.optim.Adam(model.parameters())
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        lines.append(f"step {step} loss {float(loss.detach()):.6f}\n")
    (tmp_path / "train.log").write_text("".join(lines))
    (tmp_path / "config.json").write_text('{"max_steps": 150}')
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 150}, tmp_path / "last.pt")
    result = found_in(tmp_path)
    assert result.verdict == verdict
    assert "150 of 150" in result.message


@pytest.mark.parametrize(("done", "planned", "verdict"), [
    (8, 9, "pass"), (7, 8, "pass"), (6, 8, "warn"), (6, 7, "warn"), (2, 3, "warn"), (88, 100, "warn"),
])  # fmt: skip
def test_the_last_of_many_epochs(done, planned, verdict, make, judge):
    """It may be missing by how epochs are counted."""
    epochs = make.series(np.arange(1, done + 1), role="epoch", name="epoch")
    evidence = make.evidence(np.linspace(2.0, 1.0, done), epochs, params={"epochs": str(planned)})
    assert judge(CODE, evidence).verdict == verdict


@pytest.mark.parametrize("name", [
    "max_train_steps", "num_train_steps", "train_iters", "max_update", "max_epoch", "nb_epochs", "total_epochs",
])  # fmt: skip
def test_other_names_of_the_plan(name, make, judge):
    for done, verdict in ((30, "warn"), (99, "pass")):
        assert judge(CODE, make.evidence(info=info(done, done, **{name: 100}))).verdict == verdict


def left(folder, *, steps, epoch, saved_at=None, **params):
    """A training whose log counts steps, with a checkpoint that knows its epoch."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(saved_at or steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
    log = "".join(f'{{"step": {step}, "train_loss": {2 / step}}}\n' for step in sorted({*range(7, steps, 7), steps}))
    (folder / "metrics.jsonl").write_text(log)
    (folder / "config.json").write_text(str(params).replace("'", '"'))
    torch.save(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, folder / "checkpoint.pt"
    )
    return found_in(folder)


@pytest.mark.parametrize(("steps", "epoch", "says"), [
    (150, 15, "16 of 40"),  # it may count from 0
    (157, 15, "16 of 40"),
])  # fmt: skip
def test_the_epoch_of_a_checkpoint_with_which_the_log_ends(steps, epoch, says, tmp_path):
    result = left(tmp_path, steps=steps, epoch=epoch, epochs=40)
    assert (result.verdict, says in result.message) == ("warn", True), result.message


@pytest.mark.parametrize(("steps", "epoch", "more"), [
    (400, 39, {}), (400, 40, {}),
    (160, 15, {"saved_at": 90}),  # the best one: the log went on
    (160, 15, {"early_stopping_patience": 3}),
    (160, 15, {"start_epoch": 25}),
    (160, 0, {}),  # nobody counted on
])  # fmt: skip
def test_a_checkpoints_epoch_that_tells_of_no_end(steps, epoch, more, tmp_path):
    result = left(tmp_path, steps=steps, epoch=epoch, epochs=40, **more)
    assert result is None or result.verdict == "pass"


@pytest.mark.parametrize(("epochs", "verdict"), [(5, "warn"), (12, "pass")])
def test_the_batches_of_an_epoch_make_a_plan_in_steps(epochs, verdict, make, judge):
    plan = {"epochs": "12", "steps_per_epoch": "34"}
    held_out = make.series(np.linspace(2, 1, epochs), range(34, 34 * epochs + 1, 34), role="val_loss")
    losses = make.series(np.linspace(2, 1, 40), np.linspace(1, 34 * epochs, 40).astype(int), role="train_loss")
    assert judge(CODE, make.evidence(losses, held_out, params=plan)).verdict == verdict
    other = make.series(np.linspace(2, 1, epochs), range(50, 50 * epochs + 1, 50), role="val_loss")
    assert judge(CODE, make.evidence(losses, other, params=plan)).verdict == "SkippedProbe"


@pytest.mark.parametrize(("done", "epochs_done", "more", "verdict"), [
    (1000, 10, {"max_epochs": 10, "max_train_steps": 100_000}, "pass"),  # what is come to first
    (1000, 5, {"max_epochs": 10, "max_train_steps": 1000}, "pass"),
    (500, 5, {"max_epochs": 10, "max_train_steps": 1000}, "warn"),
    (500, 5, {"max_epochs": 10, "max_steps": 5}, "warn"),  # of something else
    (500, 10, {"max_epochs": 10, "max_steps": 5}, "pass"),
])  # fmt: skip
def test_a_plan_in_steps_beside_one_in_epochs(done, epochs_done, more, verdict, make, judge):
    assert judge(CODE, make.evidence(info=info(done, epochs_done, **more))).verdict == verdict


def test_the_batches_of_an_epoch_are_no_plan_of_a_run_that_goes_on(make, judge):
    held_out = make.series(np.linspace(2, 1, 10), range(100, 1001, 100), role="val_loss")
    params = {"epochs": "40", "steps_per_epoch": "100", "initial_epoch": "30"}
    assert judge(CODE, make.evidence(held_out, params=params)).verdict == "SkippedProbe"
