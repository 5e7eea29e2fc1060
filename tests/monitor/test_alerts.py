"""What is said while a run goes on: the mark on the run, the wish to stop, and no harm to the training."""

from __future__ import annotations

import math
import os
import threading
import time
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
mlflow = pytest.importorskip("mlflow")
from torch import nn  # noqa: E402

import tracker_health  # noqa: E402
from tracker_health import ConfigError, watch  # noqa: E402
from tracker_health.monitor.background import Background  # noqa: E402
from tracker_health.monitor.gap_rules import GapJudge, MeasuredSteps  # noqa: E402
from tracker_health.monitor.live_alerts import LiveAlerts  # noqa: E402
from tracker_health.monitor.trackers import ActiveMlflowRun, ActiveWandbRun  # noqa: E402
from tracker_health.words.verdict import Verdict  # noqa: E402

from ..stores.wandb_runs import inspected, log_in, run_script  # noqa: E402, TID252  tests are no package of a name

PATIENCE = 120.0


class Cut(nn.Module):
    """Its first layer gets no gradient, where it is ``cut``."""

    def __init__(self, *, cut=True):
        super().__init__()
        self.first, self.head, self.cut = nn.Linear(4, 4), nn.Linear(4, 2), cut

    def forward(self, x):
        hidden = self.first(x)
        return self.head(hidden.detach() if self.cut else hidden)


def trained(model, steps, until=None, **options):
    """Train until so many steps are done, or what ``until`` says; gives the closed monitor."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + PATIENCE
    with watch(model, optimizer, interval=1, **options) as monitor:
        while monitor.steps < steps and time.monotonic() < end and not (until and until(monitor)):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return monitor


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:tracker-health")
def test_a_training_that_cannot_succeed_is_ended(tmp_path):
    torch.manual_seed(0)
    monitor = trained(Cut(), 10**6, lambda monitor: monitor.should_stop, folder=tmp_path, stop_on="fail")
    assert 8 <= monitor.steps < 10**6
    assert monitor.stop_reason.startswith("GAP006 gap-zero-gradient: no gradient at any measured step in 2 of 4")


@pytest.mark.slow
def test_a_warning_in_one_line_is_all_that_is_said(tmp_path):
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match="FAIL while the run is still running: GAP006") as told:
        trained(Cut(), 10**6, lambda monitor: monitor._judge.reason, folder=tmp_path, alert=True)
    assert len(told) == 1


def test_a_healthy_training_goes_on(tmp_path):
    torch.manual_seed(0)
    monitor = trained(Cut(cut=False), 60, folder=tmp_path, stop_on="warn")
    assert not monitor.should_stop
    assert monitor._judge._before  # it was judged


def statistics(kind, value, *, name="w"):
    return {(kind, name): (value, 0.0, 0.1)}


def judged(*steps, stop_on=Verdict.FAIL):
    """A judge that has seen these steps, one at a time."""
    marks = []
    judge = GapJudge(lambda word, _: marks.append(word), stop_on, rest=0.0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step, found in enumerate(steps):
            judge._take(step, found)
    return judge, marks, [str(one.message) for one in told]


def test_one_judgement_alone_says_nothing():
    fine, odd = statistics("params", 1.0), statistics("params", math.nan)
    judge, marks, told = judged(fine, odd)
    assert (judge.should_stop, marks, told) == (False, [], [])
    judge, marks, _ = judged(fine, odd, odd)
    assert (judge.should_stop, marks) == (True, ["fail"])
    judge, marks, _ = judged(fine, odd, fine, fine)  # it came back
    assert (judge.should_stop, marks) == (False, ["warn"])
    judge, marks, _ = judged(fine, odd, odd, stop_on=None)
    assert (judge.should_stop, marks) == (False, ["fail"])


def test_a_run_is_marked_once_a_minute_at_most():
    fine, odd = statistics("params", 1.0), statistics("params", math.nan)
    judge, marks, told = judged(odd, fine, fine, odd, odd, odd)
    assert marks == ["warn"]  # that it fails is put off
    assert len(told) == 2
    judge.close()
    assert marks == ["warn", "fail"]


def test_what_is_kept_of_a_long_run_is_bounded():
    history = MeasuredSteps()
    for step in range(5000):
        history.add(
            step, statistics("grads", float(step)) | (statistics("params", 1.0, name="late") if step > 4000 else {})
        )
    series = {one.name: one for one in history.series()}
    steps = series["gap/grads/w/max"].steps
    assert len(steps) <= 257
    assert (steps[0], steps[-1]) == (0, 4999)
    assert (series["gap/grads/w/max"].values == steps).all()
    assert series["gap/params/late/max"].steps[0] > 4000


class Rule:
    code, name = "GAP999", "broken"

    def judge(self, evidence):
        raise ZeroDivisionError


def test_a_rule_that_breaks_is_told_once(monkeypatch):
    monkeypatch.setattr("tracker_health.monitor.gap_rules._RULES", (Rule(),))
    _, marks, told = judged(*[statistics("grads", 1.0)] * 5)
    assert (marks, len(told)) == ([], 1)


@pytest.mark.parametrize("wrong", [{"stop_on": "error"}, {"stop_on": "fail", "kinds": (), "dumps": object()}])
def test_refused(wrong, tmp_path):
    model = Cut()
    with pytest.raises(ConfigError, match="stop_on"):
        watch(model, torch.optim.SGD(model.parameters(), lr=0.1), folder=tmp_path, **wrong)


# Trackers


def tag_of(client, run):
    return client.get_run(run.info.run_id).data.tags.get("health.live")


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:tracker-health")
def test_the_mark_on_an_mlflow_run_goes_when_the_verdict_stands(store):
    client, uri, experiment = store
    with mlflow.start_run(experiment_id=experiment) as run:
        mlflow.log_metric("loss", 1.0, step=1)
        trained(Cut(), 10**6, lambda _: tag_of(client, run), alert=True)
        assert tag_of(client, run) == "fail"
        tracker_health.annotate(f"mlflow:{run.info.run_id}", tracking_uri=uri)
        assert tag_of(client, run) == "fail"  # the run goes on
    assert tag_of(client, run) == "fail"
    tracker_health.annotate(f"mlflow:{run.info.run_id}", tracking_uri=uri)
    assert tag_of(client, run) is None
    assert "health.verdict" in client.get_run(run.info.run_id).data.tags


@pytest.mark.exhaustive
def test_clear_takes_the_mark_off_a_run_without_a_verdict(store):
    client, uri, experiment = store
    with mlflow.start_run(experiment_id=experiment) as run:
        client.set_tag(run.info.run_id, "health.live", "warn")
    assert tracker_health.clear_annotations(f"mlflow:{run.info.run_id}", tracking_uri=uri).found
    assert tag_of(client, run) is None
    client.set_tag(run.info.run_id, "health.live", "births")
    assert not tracker_health.clear_annotations(f"mlflow:{run.info.run_id}", tracking_uri=uri).found
    assert tag_of(client, run) == "births"


@pytest.mark.exhaustive
def test_a_tag_of_the_users_own_is_left_alone(store):
    client, _, experiment = store
    with mlflow.start_run(experiment_id=experiment) as run:
        client.set_tag(run.info.run_id, "health.live", "births")
        marked = ActiveMlflowRun(client, run.info.run_id)
        marked.mark("fail")
        marked.close()
        assert tag_of(client, run) == "births"
    ended = ActiveMlflowRun(client, run.info.run_id)
    client.set_tag(run.info.run_id, "health.live", "warn")
    ended.mark("fail")
    ended.close()
    assert tag_of(client, run) == "warn"  # the run is over


class Hanging:
    """A client whose server takes every request and answers none."""

    def __init__(self):
        self.asked, self.answer = threading.Event(), threading.Event()

    def log_batch(self, *_, **__):
        self.asked.set()
        self.answer.wait()

    log_artifact = get_run = log_batch


@pytest.mark.exhaustive
def test_a_server_that_does_not_answer_holds_nothing_up(tmp_path, monkeypatch):
    client = Hanging()
    run = ActiveMlflowRun(client, "0" * 32)
    run._calls = Background("MLflow run 0", seconds=0.2)
    monkeypatch.setattr("tracker_health.monitor.active_runs", lambda: [run])
    try:
        with pytest.warns(RuntimeWarning, match="left"):
            monitor = trained(Cut(cut=False), 400)  # more than wait for their turn
        assert monitor.steps == 400
        assert client.asked.is_set()
    finally:
        client.answer.set()


class Refusing:
    def log_batch(self, *_, **__):
        raise ConnectionError("no route to host")

    log_artifact = get_run = log_batch


@pytest.mark.filterwarnings("error")
def test_trouble_is_one_line_even_where_warnings_are_errors(tmp_path, monkeypatch, capsys):
    run = ActiveMlflowRun(Refusing(), "0" * 32)
    monkeypatch.setattr("tracker_health.monitor.active_runs", lambda: [run])
    assert trained(Cut(cut=False), 5, folder=tmp_path).steps == 5
    assert capsys.readouterr().err == f"tracker-health: MLflow run {'0' * 32}: ConnectionError: no route to host\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_measures_nothing_and_writes_nothing(tmp_path):
    model = Cut(cut=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watch(model, optimizer, interval=1, folder=tmp_path) as monitor:

        def step():
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

        step()
        child = os.fork()
        if not child:
            step()
            step()
            os._exit(0 if monitor.steps == 1 and not model._forward_hooks else 1)
        assert os.waitpid(child, 0)[1] == 0
        step()
    assert len((tmp_path / "gap.jsonl").read_text().splitlines()) == 3  # a head, two rows


# Alerts by W&B


class WandbsRun:
    """What a run of W&B's SDK has that is used, with an alert that may go wrong."""

    def __init__(self, broken=False):
        self.tags, self.project, self.name, self.id, self.url = ("mine",), "proj", "calm-rat", "abc", "https://wandb/x"
        self.broken, self.alerts = broken, []

    def log(self, *_, **__):
        pass

    def alert(self, title, text, level):
        self.alerts.append((title, text, level))
        if self.broken:
            raise RuntimeError("the service is gone")


def alerted(monkeypatch, tmp_path, settings, run):
    """A training that goes wrong beside that run of W&B's, with these settings in its folder."""
    (tmp_path / "tracker-health.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tracker_health.monitor.active_runs", lambda: [ActiveWandbRun(run)])
    torch.manual_seed(0)
    monitor = trained(Cut(), 10**6, lambda monitor: "live-fail" in str(run.tags), folder=tmp_path, alert=True)
    return monitor, run.alerts


ON = "[notify]\nwandb_alert = true\n"


@pytest.mark.filterwarnings("ignore:tracker-health")
@pytest.mark.slow
def test_wandb_alerts_people_where_the_setting_is_on(monkeypatch, tmp_path):
    _, alerts = alerted(monkeypatch, tmp_path, ON, WandbsRun())
    ((title, text, level),) = alerts
    assert (title, level) == ("FAIL calm-rat while it is running", "ERROR")
    assert "while the run is still running: GAP006 gap-zero-gradient: no gradient" in text
    assert text.endswith("https://wandb/x")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "settings",
    ["", "[notify]\nwandb_alert = false\n", ON + 'mute = ["project:pr*"]\n', ON + 'mute = ["tag:mine=*"]\n', 'mode = "shadow"\n' + ON],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:tracker-health")
def test_wandb_alerts_nobody_otherwise(monkeypatch, tmp_path, settings):
    assert alerted(monkeypatch, tmp_path, settings, WandbsRun())[1] == []


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:tracker-health")
def test_an_alert_that_fails_costs_the_training_nothing(monkeypatch, tmp_path):
    run = WandbsRun(broken=True)
    monitor, alerts = alerted(monkeypatch, tmp_path, ON, run)
    assert (len(alerts), run.tags) == (1, ("mine", "health:live-fail"))
    assert monitor._judge.reason.startswith("GAP006")


def test_a_warning_is_an_alert_only_where_messages_are_wanted_from_warn_on(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for on, expected in (("fail", 0), ("warn", 1)):
        Path("tracker-health.toml").write_text(f'{ON}on = "{on}"\n')
        run = WandbsRun()
        LiveAlerts().send(ActiveWandbRun(run), "warn", "GAP003 gap-saturated: 97 % of values")
        assert [level for _, _, level in run.alerts] == ["WARN"] * expected


TRAINING = """
import torch, wandb, tracker_health
run = wandb.init(project="proj", name="calm-rat")
first, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
model = torch.nn.Sequential(first, head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with tracker_health.watch(model, optimizer, interval=1, alert=True) as monitor:
    for step in range(100_000):
        head(first(torch.randn(8, 4)).detach()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if "health:live-fail" in run.tags:
            break
run.finish()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("on", [True, False])
def test_the_log_of_an_offline_run_has_the_alert(tmp_path, on):
    pytest.importorskip("wandb")
    (tmp_path / "tracker-health.toml").write_text(ON if on else "")
    records = inspected(log_in(run_script(TRAINING, tmp_path)))
    alerts = [one["alert"] for one in records if "alert" in one]
    assert [(one["title"], one["level"]) for one in alerts] == [("FAIL calm-rat while it is running", "ERROR")] * on
