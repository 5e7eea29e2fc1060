"""Pictures for the README: a report of the documentation's runs, and a real MLflow server with those of the demo, in a
headless Chromium.

    python scripts/make_screenshots.py [FOLDER]

Needs chromium and the package playwright. FOLDER takes the pictures (default: docs/pictures).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WIDTH = 1280
REPORT: Any = {"width": 1200, "height": 700}
STARTUP_SECONDS = 120
COLUMNS = ("health.verdict", "health.cause")
WITHOUT_BUTTONS = """() => document.querySelectorAll("button, div").forEach((one) => {
  if (getComputedStyle(one).position === "fixed" && one.offsetWidth < 100) one.style.display = "none";
})"""
"""Takes what floats over a page out of its picture, as the button of an assistant."""

RENDERED = 2500  # milliseconds in which MLflow's pages have drawn their charts


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no chromium here: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        sys.exit("playwright is not installed: pip install playwright")
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as address, sync_playwright() as driver:
        sick, link = annotated(address)
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 800})
        shoot_report(page, Path(folder) / "example", target / "report.png")
        tidy(page, link)
        shoot(page, link, "text=matching runs", target / "runs.png", height=400)
        shoot(page, sick, "text=Training health", target / "run.png", height=720)
        browser.close()


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A server on the demo's store, on a free port of this machine."""
    from tracker_health.cli.demo import run_demo

    run_demo(str(folder))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store = f"sqlite:///{next(folder.rglob('*.db'))}"
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    quiet = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with subprocess.Popen(  # noqa: S603  our own command
        [*command, "--backend-store-uri", store], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quiet,
        cwd=folder, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            wait_until_up(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def wait_until_up(port: int) -> None:
    end = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    sys.exit("the MLflow server did not start")


def annotated(address: str) -> tuple[str, str]:
    """The page of a failing run, and the list of all."""
    from tracker_health.api import annotate, runs_of_experiment
    from tracker_health.cli.demo import EXPERIMENT
    from tracker_health.runs.lookup import filter_link
    from tracker_health.words.verdict import Verdict

    runs = runs_of_experiment(EXPERIMENT, tracking_uri=address)
    refs = [
        outcome.report.run
        for outcome in (annotate(run, tracking_uri=address, force=True) for run in runs)
        if outcome.report.verdict is Verdict.FAIL
    ]
    sick = next(ref for ref in refs if ref.name == "calm-heron")
    return str(sick.url), filter_link(sick, Verdict.FAIL).partition("?")[0]


def shoot_report(page: Any, place: Path, target: Path) -> None:
    """The report of a run that breaks, in the band of seven healthy ones."""
    from contextlib import chdir

    from example_runs import make_folders

    from tracker_health.api import baseline_from, page_of_run
    from tracker_health.config import Config

    place.mkdir()
    make_folders(place)
    with chdir(place):
        healthy = [f"outputs/run-{number}" for number in range(5, 12)]
        baseline = baseline_from(healthy, of="seven healthy runs")
        (place / "report.html").write_bytes(page_of_run("outputs/run-12", config=Config(baseline=baseline)).html)
    page.set_viewport_size(REPORT)
    page.goto((place / "report.html").as_uri())
    page.screenshot(path=target)
    print(target)


def tidy(page: Any, link: str) -> None:
    """Without MLflow's assistant next to the page, and with the columns of the verdict: the page remembers both."""
    page.goto(link)
    page.wait_for_selector("text=matching runs", timeout=60_000)
    assistant = page.get_by_text("MLflow Assistant")
    if assistant.count():
        assistant.locator("xpath=ancestor::*[.//button][1]").locator("button").last.click()
    page.get_by_text("Model training").first.click()
    page.get_by_role("button", name="Columns").click()
    search = page.get_by_placeholder("Search columns")
    for _ in range(2):  # all columns that every run has (source, data set, user), then none of them
        page.locator("[class*=tree-checkbox]").first.click()
    for column in COLUMNS:
        search.fill(column)
        page.wait_for_selector("text=Tags (1)")
        page.locator("[class*=tree-checkbox]").first.click()
    page.keyboard.press("Escape")


def shoot(page: Any, url: str, awaited: str, target: Path, *, height: int, only: str = "body") -> None:
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.goto(url)
    page.wait_for_selector(awaited, timeout=60_000)
    page.wait_for_timeout(RENDERED)
    page.evaluate(WITHOUT_BUTTONS)
    page.locator(only).first.screenshot(path=target)
    print(target)


if __name__ == "__main__":
    main()
