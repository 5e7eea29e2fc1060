"""The command ``series``: what was found, where, under which role."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

import tracker_health
from tracker_health.cli import cli
from tracker_health.config import Config, changed
from tracker_health.render.series import series_lines

SCHEMA = Path(__file__).parent.parent / "docs" / "series.schema.json"


def validated(text):
    """A document that fits the schema, and has no key that the schema does not know."""
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document.keys() == schema["properties"].keys()
    for row in document["series"]:
        assert row.keys() == schema["properties"]["series"]["items"]["properties"].keys()
    return document


@pytest.fixture
def run(tmp_path):
    """A folder with three logs, one metric whose role is guessed, and one NaN."""
    rows = [{"step": step, "my_objective_loss": 2.0 - step / 100, "lr": 0.1} for step in range(50)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[-1]]))
    (tmp_path / "metrics.csv").write_text("step,val_loss\n10,2.5\n20,nan\n")
    (tmp_path / "console.log").write_text("".join(f"step {row['step']} lr={row['lr']}\n" for row in rows[::10]))
    return tmp_path


def test_the_document(run):
    done = CliRunner().invoke(cli, ["series", str(run), "--json"])
    assert done.exit_code == 0, done.output
    document = validated(done.stdout)
    assert document["schema"] == "tracker-health/series/1"
    rows = {row["name"]: row for row in document["series"]}
    assert [row["role"] for row in document["series"]] == ["learning_rate", "train_loss", "val_loss"]
    assert (
        rows["val_loss"] | {"source": "metrics.csv", "points": 2, "nonfinite": 1, "last": None, "last_step": 20}
        == rows["val_loss"]
    )
    mine = rows["my_objective_loss"]
    assert (mine["points"], mine["duplicates"], mine["first"], mine["first_step"], mine["last_step"]) == (
        51,
        1,
        2.0,
        0,
        49,
    )
    assert document["suggested"] == {"roles.train_loss": ["my_objective_loss"]}
    assert (mine["guessed"], mine["understood"]) == (True, "loss, my objective, guessed: the only loss of the training")
    assert (rows["lr"]["guessed"], rows["lr"]["understood"]) == (False, "learning rate: its words say it")
    why = "train_loss is guessed to be my_objective_loss (the only loss of the training); set roles.train_loss to name one"
    assert document["notes"] == ["console.log agrees with train.jsonl, which is judged, on lr", why]


def test_the_table_and_its_suggestion(run):
    done = CliRunner().invoke(cli, ["series", str(run)])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"{run}: 3 rows"
    assert 'roles.train_loss = ["my_objective_loss"]' in done.stdout
    (line,) = (line for line in lines if line.startswith("my_objective_loss"))
    assert line.split()[:7] == ["my_objective_loss", "train_loss", "51", "0", "1", "0..49", "train.jsonl"]
    assert line.endswith("loss, my objective, guessed: the only loss of the training")


def test_the_suggested_setting_works(run):
    done = CliRunner().invoke(cli, ["series", str(run), "--set", "roles.train_loss=my_objective_loss", "--json"])
    document = validated(done.stdout)
    assert document["suggested"] == {}
    assert "train_loss" in {row["role"] for row in document["series"]}
    assert "train_loss" in {one.role for one in tracker_health.check(run, config=_configured()).series}


def _configured():
    return changed(Config(), {"roles.train_loss": ("my_objective_loss",)})


def test_nothing_found_and_what_cannot_be_read(tmp_path):
    (tmp_path / "a.jsonl").write_text("x" * 100)
    done = CliRunner().invoke(cli, ["series", str(tmp_path)])
    assert done.exit_code == 3
    assert "a.jsonl" in done.stderr
    assert "no metric series were found" in done.stdout
    assert validated(CliRunner().invoke(cli, ["series", str(tmp_path), "--json"]).stdout)["problems"]


def test_a_folder_with_nothing_but_a_checkpoint(tmp_path):
    """It has no series, and is not said to have no checkpoint either, which nobody asked for."""
    (tmp_path / "optimizer.pt").write_bytes(b"x")
    done = CliRunner().invoke(cli, ["series", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (0, "")
    done = CliRunner().invoke(cli, ["check", str(tmp_path), "--select", "LOS001"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("SKIP")


def test_an_empty_folder(tmp_path):
    done = CliRunner().invoke(cli, ["series", str(tmp_path)])
    assert done.exit_code == 3
    assert done.stderr.startswith(f"tracker-health: {tmp_path}: nothing to judge in it: it is empty")


def test_the_schema_refuses_what_is_no_such_document():
    schema = json.loads(SCHEMA.read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate({"schema": "tracker-health/series/1", "series": [{}]})


def test_hostile_names_cannot_reach_the_terminal(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"step": 1, "\x1b[31mloss\n": 1.0, "x" * 500: 2.0}) + "\n")
    done = CliRunner().invoke(cli, ["series", str(tmp_path)])
    assert "\x1b[31m" not in done.stdout
    assert len(done.stdout.splitlines()) == 6


@pytest.mark.parametrize(
    "name", ["\U0001f525 my loss", 'a "b\\ my loss', "gr\u00f6\u00dfe my loss", "\x7f my loss", "\ud83d my loss"]
)
def test_the_suggested_line_is_toml_and_works(name, tmp_path):
    rows = [{"step": step, name: 1 / (step + 1)} for step in range(20)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = tracker_health.read_series(tmp_path)
    line = next(one for one in series_lines(table) if "roles.train_loss" in one).rpartition(": ")[2]
    setting = tomllib.loads(line)["roles"]["train_loss"]
    found = tracker_health.read_series(tmp_path, config=changed(Config(), {"roles.train_loss": tuple(setting)}))
    assert [one.role for one in found.series] == ["train_loss"]
