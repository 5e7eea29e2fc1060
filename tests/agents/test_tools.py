"""What agents are told, without a protocol: what may be named, sizes, advice on runs that go on, and what is hidden."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tracker_health import Config, LiveHealth
from tracker_health.cli import cli
from tracker_health.errors import ConfigError, ReadError, RunError, RunNotFound, StoreRefused
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
from tracker_health.fleet.agents import prompts
from tracker_health.fleet.agents.roots import Roots
from tracker_health.fleet.agents.secrets import Secrets
from tracker_health.fleet.agents.tools import Tools, watched
from tracker_health.live import false_stops
from tracker_health.live.replay import replay
from tracker_health.readers.files import regular_file
from tracker_health.readers.files.regular_file import read_regular
from tracker_health.stores.common.boundary import read_only_from
from tracker_health.stores.common.temporary import TemporaryFolder

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "cases"
MOST_TOKENS = 400
RUN_ID = "0123456789abcdef" * 2


def tokens(document):
    return len(json.dumps({"note": prompts.DATA_NOTE, "data": document})) / 4


@pytest.fixture
def inside(tmp_path):
    folder = tmp_path / "inside"
    (folder / "run").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    return folder


def test_a_run_is_looked_up_among_the_roots(inside):
    roots = Roots.of((str(inside),), "http://tracking:5000", ("team/proj",))
    assert (
        roots.run("run") == roots.run(f" {inside}/run ") == roots.run("./run/../run") == str(inside.resolve() / "run")
    )
    assert roots.run(RUN_ID) == roots.run(f"runs:/{RUN_ID}/model") == f"mlflow:{RUN_ID}"
    assert roots.run("012345") == "012345"
    assert roots.run(f"https://elsewhere/#/experiments/7/runs/{RUN_ID}/artifacts") == f"mlflow:{RUN_ID}"
    assert roots.run("wandb:team/proj/abc") == roots.run("https://evil/team/proj/runs/abc") == "wandb:team/proj/abc"
    assert roots.project("team/proj/sweeps/x1") == "team/proj/sweeps/x1"


@pytest.mark.parametrize(
    "named", ["../outside", "/etc/passwd", "link", "wandb:team/other/abc", "wandb:proj/abc", "https://host/last.ckpt", "s3://bucket/a.ckpt", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_outside_is_refused(inside, named):
    (inside / "link").symlink_to(inside.parent / "outside")
    roots = Roots.of((str(inside),), "", ("team/proj",))
    with pytest.raises(StoreRefused, match="outside of what this server may look at"):
        roots.run(named)


def test_whether_something_outside_is_there_is_not_said(inside):
    roots = Roots.of((str(inside),), "", ())
    said = []
    (inside.parent / "neighbour").mkdir()
    for name in ("neighbour", "no-such-thing"):
        with pytest.raises(RunError) as error:
            roots.run(str(inside.parent / name))
        said.append(str(error.value).replace(name, ""))
    assert said[0] == said[1]


@pytest.mark.parametrize("named", ["", "a\nb", "a\x00b", "x" * 1001, "nothing", RUN_ID[:5]])
def test_what_is_no_run_is_not_found(inside, named):
    with pytest.raises(RunNotFound):
        Roots.of((str(inside),), "http://tracking:5000", ()).run(named)


def test_without_a_store_no_id_is_looked_up(inside):
    with pytest.raises(StoreRefused):
        Roots.of((str(inside),), "", ()).run(RUN_ID)


def test_files_outside_are_not_read_wherever_links_lead(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_file, "_confined_to", None)
    inside, outside, store = (tmp_path / name for name in ("inside", "outside", "store"))
    for folder in (inside, outside, store / "mlruns", store / "other"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    (inside / "link").symlink_to(outside / "file")
    (inside / "own").symlink_to(inside / "file")
    (store / "mlflow.db").write_text("x")
    assert read_regular(inside / "link", 9) == b"x"
    read_only_from([inside], f"sqlite:///{store}/mlflow.db")
    for path in (inside / "file", inside / "own", store / "mlflow.db", store / "mlruns" / "file"):
        assert read_regular(path, 9) == b"x"
    for path in (inside / "link", outside / "file", inside / ".." / "outside" / "file", store / "other" / "file"):
        with pytest.raises(ReadError, match="outside of the folders"):
            read_regular(path, 9)
    with TemporaryFolder() as fetched:
        (Path(fetched) / "file").write_text("x")
        assert read_regular(Path(fetched) / "file", 9) == b"x"
        (Path(fetched) / "link").symlink_to(outside / "file")
        with pytest.raises(ReadError, match="outside of the folders"):
            read_regular(Path(fetched) / "link", 9)


def rows():
    with (CASES / "expected.csv").open(newline="") as file:
        return [row["folder"] for row in csv.DictReader(file) if (CASES / row["folder"]).is_dir()]


def test_no_answer_on_runs_as_people_have_them_is_too_long():
    tools = Tools(roots=Roots.of((str(CASES),), "", ()), config=Config())
    runs = rows()
    good = [one for one in runs if tools.check_run(one)["verdict"] == "pass"][:2]
    for run in runs[::5]:
        others = [one for one in good if one != run]
        answers = [
            tools.check_run(run),
            tools.watch_run(run),
            tools.rules_that_fit(run),
            tools.compare_runs(run, others),
        ]
        with suppress(ConfigError):  # it has no training loss
            answers.append(tools.curve(run, "train_loss"))
        for answer in answers:
            assert tokens(answer) <= MOST_TOKENS, (run, answer)


def test_every_rule_and_cause_is_explained_in_an_answer():
    names = [
        line.partition(":")[0].split()[0] for what in ("rules", "causes") for line in Tools.listed(what).splitlines()
    ]
    assert len(names) > 150
    for name in names:
        assert tokens(Tools.explain(name)) <= MOST_TOKENS
        assert len(Tools.page(name)) > 300


def so_far(values, status="RUNNING", plan=120):
    series = Series(name="loss", steps=np.arange(len(values)), values=np.array(values, float), role="train_loss")
    info = RunInfo(status=status, tracker="MLflow", params={"max_steps": str(plan)}, metric_names=("loss",))
    return Evidence(run=RunRef(store="mlflow", id="1", name="a"), info=info, series=(series,))


FALLING = [float(2.0 * np.exp(-step / 40)) for step in range(120)]
BROKEN = [*FALLING[:60], *[9.0 + step for step in range(60)]]


@pytest.mark.parametrize(
    ("evidence", "advice"),
    [
        (so_far(FALLING[:3]), "too early"),
        (so_far(FALLING[:60]), "go on"),
        (so_far(BROKEN[:62]), "go on"),  # nobody knows yet whether it comes down again
        (so_far(BROKEN[:100]), "stop"),
        (so_far(BROKEN, "FINISHED"), "over"),
    ],
)
def test_advice_on_a_run_that_goes_on(evidence, advice):
    answer = watched(evidence, Config(), None)
    assert answer["advice"] == advice
    assert (answer["false_stops"] is not None) == (advice == "stop")
    assert tokens(answer) <= MOST_TOKENS


def test_one_look_sees_what_is_seen_from_inside_a_training():
    health = LiveHealth(plan=120, seconds=1e9, rest=0.0)
    for step, loss in enumerate(BROKEN):
        health.step(step=step, loss=loss)
        if health.should_stop:
            break
    assert health.stopped_by is not None
    stop = health.stopped_by.step
    assert replay(so_far(BROKEN[: stop + 5]), Config()).stop_for.code == health.stopped_by.code
    assert replay(so_far(BROKEN[: stop - 15]), Config()).stop_for is None


def test_the_rate_of_false_stops_is_the_one_that_was_measured():
    counts = false_stops.measured()
    row = next(
        one
        for one in (ROOT / "docs" / "stopping.md").read_text().splitlines()
        if one.startswith("| `LiveHealth`, validation")
    )
    assert f"| {counts['healthy_stopped']} of {counts['healthy']} (" in row
    assert f"| {counts['faulty_stopped']} of {counts['faulty']} (" in row
    assert f"{counts['healthy_stopped']} of {counts['healthy']} healthy runs" in false_stops.said()


def test_credentials_are_hidden():
    environment = {
        "WANDB_API_KEY": "0" * 40,
        "SHORT_KEY": "abc",
        "PATH": "/usr/bin",
        "STORE": "https://me:pass%20word@host/x",
    }
    secrets = Secrets(["https://you:hunter22@host"], environment)
    text = secrets.hidden(f"{'0' * 40} hunter22 pass%20word 'pass word' abc /usr/bin")
    assert text == "*** *** *** '***' abc /usr/bin"


def test_the_server_needs_something_to_look_at(tmp_path):
    pytest.importorskip("mcp")
    for given, said in (
        ([], "nothing was given that may be looked at"),
        (["--root", tmp_path / "none"], "is not a folder"),
        (["--project", "proj"], "is no ENTITY/PROJECT"),
    ):
        done = CliRunner().invoke(cli, ["mcp", *map(str, given)])
        assert done.exit_code == 2
        assert said in done.stderr


def test_only_one_module_imports_the_protocol():
    importing = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if any(line.strip().startswith(("import mcp", "from mcp")) for line in path.read_text().splitlines())
    ]
    assert importing == ["server.py"]


def test_what_a_run_says_controls_no_terminal(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [json.dumps({"step": step, "loss": 2.0, "\x1b[2J evil\nname": 1.0}) for step in range(40)]
    (folder / "train_log.jsonl").write_text("\n".join(lines))
    tools = Tools(roots=Roots.of((str(tmp_path),), "", ()), config=Config())
    assert tools.report("run").replace("\n", "").isprintable()
    assert json.dumps(tools.rules_that_fit("run")).isprintable()
    with pytest.raises(ConfigError, match="there is no metric"):
        tools.curve("run", "\x1b[2J")


def test_silence_is_said():
    evidence = replace(so_far(FALLING[:60]))
    assert watched(evidence, Config(), 7_200.0)["silent_seconds"] == 7_200
