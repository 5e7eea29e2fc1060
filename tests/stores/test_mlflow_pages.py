"""What people see in MLflow's own pages, in a real browser on a real server.

Debian's chromium, driven by Playwright. Not in CI: MLflow's pages are built anew with each of its versions.
"""

from __future__ import annotations

import math
import os
import shutil
import uuid

import pytest

mlflow = pytest.importorskip("mlflow")

from tracker_health.api import annotate  # noqa: E402
from tracker_health.render.page import headline_of  # noqa: E402
from tracker_health.runs.lookup import filter_link  # noqa: E402
from tracker_health.words.verdict import Verdict  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60_000  # milliseconds

pytestmark = [
    pytest.mark.skipif("CI" in os.environ, reason="MLflow's pages are looked at by hand, not in CI"),
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.fixture(scope="module")
def outcomes(server_uri):
    """Three runs of one experiment, one of them healthy, annotated twice."""
    from mlflow.entities import Metric

    client = mlflow.MlflowClient(tracking_uri=server_uri)
    experiment = client.create_experiment(f"pages {uuid.uuid4()}")
    histories = {
        "sound": lambda step: 0.3 + 2 * math.exp(-step / 60),
        "nan midway": lambda step: math.nan if step > 200 else 0.3 + 2 * math.exp(-step / 60),
        "lost again": lambda step: 0.3 + 2 * math.exp(-min(step, 150) / 60) + max(0, step - 150) * 0.1,
    }
    made = {}
    for name, loss in histories.items():
        run = client.create_run(experiment, run_name=name).info.run_id
        client.set_tag(run, "mlflow.note.content", "The owner's words.")
        client.log_batch(run, metrics=[Metric("train/loss", loss(step), step, step) for step in range(300)])
        client.set_terminated(run)
        for _ in range(2):
            made[name] = annotate(run, tracking_uri=server_uri, force=True)
    return made


def test_the_link_leads_to_exactly_the_failing_runs(page, outcomes):
    assert {name for name, one in outcomes.items() if one.report.verdict is Verdict.FAIL} == {
        "nan midway",
        "lost again",
    }
    page.goto(filter_link(outcomes["nan midway"].report.run, Verdict.FAIL))
    page.wait_for_selector("text=2 matching runs")
    for name in ("nan midway", "lost again"):
        page.get_by_text(name, exact=True).first.wait_for()
    assert page.get_by_text("sound", exact=True).count() == 0


def test_the_run_page_shows_the_words(page, outcomes):
    url = outcomes["lost again"].report.run.url
    page.goto(url)
    page.wait_for_selector("text=Training health: FAIL")
    assert page.locator("text=The owner's words.").count() == 1


def test_the_artifact_viewer_shows_the_report_with_its_picture(page, outcomes):
    complaints = []
    page.goto(f"{outcomes['lost again'].report.run.url}/artifacts/health/report.html")
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.wait_for_selector("iframe")
    frame = next(frame for frame in page.frames if frame is not page.main_frame)
    frame.wait_for_selector("svg")
    assert frame.locator(".top").get_by_text("lost again", exact=True).count() == 1
    assert frame.locator("h1").inner_text() == headline_of(outcomes["lost again"].report)[0]
    assert frame.locator("a[href^=http], [data-act]").filter(visible=True).count() == 0  # none of them works here
    assert frame.locator(".chart svg").first.bounding_box()["width"] > 300
    assert not [text for text in complaints if "report" in text or "Content Security" in text]


def test_the_page_of_hostile_names_runs_nothing_and_stays_in_its_width(page, tmp_path):
    import json

    from tracker_health.api import page_of_run

    folder = tmp_path / "<script>alert(1)<" / "run \"'><img src=x onerror=alert(1)> \u202e"
    folder.mkdir(parents=True)
    rows = [{"step": step, "loss": 2.0 * 0.99**step, "A" * 10_000: 1.0} for step in range(100)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    place = tmp_path / "page.html"
    place.write_bytes(page_of_run(folder).html)
    told = []
    page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda message: told.append(message.text))
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(place.as_uri())
    page.wait_for_selector("svg")
    assert not told
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName"))
    assert "SUMMARY" in reached
