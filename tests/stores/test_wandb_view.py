"""The saved view of a W&B project: as the SDK that makes views understands it, and as the tests' server gets it."""

from __future__ import annotations

import json
import re
import sys

import pytest
from click.testing import CliRunner

from tracker_health.cli import cli
from tracker_health.errors import ConfigError, RunNotFound
from tracker_health.stores.wandb.media import MEDIA_KEYS
from tracker_health.stores.wandb.view import COLUMNS, view_of

from ..wandb_server import READER  # noqa: TID252  tests are no package of a name

pytest.importorskip("wandb")
workspaces = pytest.importorskip("wandb_workspaces.workspaces")

SUMMARY = "summary:health/"


def viewed(*arguments):
    return CliRunner().invoke(cli, ["view", *arguments])


def read_back(spec):
    """What the SDK reads out of a description that is on a server."""
    model = workspaces.internal.View(
        entity="team", project="proj", display_name="x", name="nw-x-v", id="x",
        spec=workspaces.internal.WorkspaceViewspec.model_validate(spec),
    )  # fmt: skip
    return workspaces.Workspace._from_model(model)


def test_the_sdk_reads_back_columns_filter_order_and_panels():
    made = read_back(view_of("team/proj").spec)
    runs = made.runset_settings
    assert runs.pinned_columns == ["run:displayName", *(f"summary:{key}" for key in COLUMNS)]
    assert runs.pinned_columns[1:3] == [f"{SUMMARY}verdict", f"{SUMMARY}cause"]
    assert runs.filters == "SummaryMetric(\"health/verdict\") in ['fail', 'warn']"
    assert [(one.item.name, one.ascending) for one in runs.order] == [
        ("health/severity", False), ("CreatedTimestamp", False),
    ]  # fmt: skip
    (section,) = made.sections
    assert [type(panel).__name__ for panel in section.panels] == ["MediaBrowser", "MediaBrowser", "RunComparer"]
    shown = {key for panel in section.panels[:2] for key in panel.media_keys}
    assert shown == {f"health/{key}" for key in MEDIA_KEYS.values()}, "what annotate writes"


def test_a_view_of_a_sweep_and_one_of_nothing_are_refused():
    with pytest.raises(ConfigError, match="names a sweep"):
        view_of("team/proj/sweeps/abc")
    with pytest.raises(RunNotFound, match="names no project"):
        view_of("a/b/c/d")
    with pytest.raises(ConfigError, match="cannot have the name"):
        view_of("team/proj", name="\N{THUMBS UP SIGN}")


def test_a_dry_run_asks_nothing_of_a_server(monkeypatch):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    result = viewed("--project", "team/proj", "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("view 'Training health' of team/proj\n")
    assert "health/verdict is fail or warn" in result.stdout
    document = json.loads(viewed("--project", "proj", "--dry-run", "--json").stdout)
    assert document["section"]["runSets"][0]["filters"]["filters"][0]["value"] == ["fail", "warn"]
    assert viewed("--project", "proj", "--json").exit_code == 2


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    result = viewed("--project", "team/proj", "--dry-run")
    assert (result.exit_code, result.stderr.count("\n")) == (3, 2)
    assert "pip install 'tracker-health[wandb-view]'" in result.stderr


@pytest.mark.slow
def test_a_view_is_made_on_the_server_and_its_address_printed(wandb_server):
    wandb_server.store.new_run("team", "proj", "abc")
    before = view_of("team/proj").spec
    result = viewed("--project", "team/proj", "--name", "Failures")
    assert result.exit_code == 0, result.output
    ((made),) = wandb_server.store.views.values()
    assert (made["entityName"], made["projectName"], made["displayName"]) == ("team", "proj", "Failures")
    assert made["type"] == "project-view"
    for spec in (made["spec"], before):
        for panel in spec["section"]["panelBankConfig"]["sections"][0]["panels"]:
            panel.pop("__id__")
    assert made["spec"] == before, "as a dry run shows it"
    name = re.fullmatch(r"nw-(\w+)-v", made["name"])[1]
    assert result.stdout == f"{wandb_server.url}/team/proj?nw={name}\n"
    own = viewed("--project", "proj")
    assert own.exit_code == 0, own.output
    assert [one["entityName"] for one in wandb_server.store.views.values()] == ["team", wandb_server.entity]
    assert not wandb_server.errors


@pytest.mark.parametrize(
    ("change", "said"),
    [({}, "project"), ({"WANDB_API_KEY": READER}, "no permission"), ({"WANDB_API_KEY": "f" * 40}, "API key")],
)
def test_what_the_server_refuses_is_one_line(wandb_server, monkeypatch, change, said):
    if change:
        wandb_server.store.new_run("team", "proj", "abc")
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    result = viewed("--project", "team/proj")
    assert result.exit_code == 3
    assert said in result.stderr.splitlines()[0]
    assert len(result.stderr.splitlines()) <= 2
    assert not wandb_server.store.views


def test_a_page_about_a_project_names_its_users_and_links_its_runs(wandb_server, tmp_path):
    for name, verdict in (("good", "pass"), ("bad", "fail")):
        run = wandb_server.store.new_run("team", "proj", name)
        ours = {"verdict": verdict, "digest": "0" * 16, "written": "{}", "summary": f"it is <{name}>"}
        run.state, run.summary, run.tags = (
            "finished",
            {f"health/{key}": one for key, one in ours.items()},
            [f"health:{verdict}"],
        )
    page = tmp_path / "summary.html"
    arguments = ["summary", "--project", "team/proj", "--by", "experiment", "--html", str(page), "--json"]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["by"]["experiment"]["team/proj"]["fail"] == 1
    text = page.read_text()
    assert f'href="{wandb_server.url}/team/proj/runs/bad"' in text
    assert "It is &lt;bad&gt;" in text
    assert "Training health: Project team/proj" in text
