"""What the pages do in a real browser: sorting by keyboard, printing, narrow screens. Debian's chromium, by Playwright."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from tracker_health.config import preset
from tracker_health.engine import diagnose
from tracker_health.evidence import Evidence, RunInfo, RunRef, Series
from tracker_health.render.attachments import page_of
from tracker_health.render.comparison import comparison_page, row_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium (apt-get install chromium)")

STEPS = np.arange(200)
LOSS = 0.4 + 2.0 * np.exp(-STEPS / 40)


@pytest.fixture
def page():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright (pip install playwright)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 400, "height": 800})
        browser.close()


def judged(name, values):
    series = Series(name="train_loss", role="train_loss", steps=STEPS[: len(values)], values=np.asarray(values))
    given = Evidence(run=RunRef(store="directory", id=name, name=name), info=RunInfo(), series=(series,))
    return given, diagnose(given, preset("default"))


def test_the_table_sorts_by_keyboard(page):
    ends = {"2024-03-01": 0.0, "2024-01-02": -1.5, "run-10": 3e-5, "run-9": 20.0, "lost": np.nan}
    rows = []
    for name, end in ends.items():
        given, report = judged(name, np.append(LOSS, []) if end == 0 else np.append(LOSS[:-1], end))
        rows.append(row_of(report, given))
    page.set_content(comparison_page(rows, title="runs").decode())

    def pressed(heading):
        page.get_by_role("button", name=heading, exact=True).focus()
        page.keyboard.press("Enter")
        return page.eval_on_selector_all("td.name", "cells => cells.map(cell => cell.innerText)")

    by_name = ["2024-01-02", "2024-03-01", "lost", "run-9", "run-10"]
    assert pressed("run") == by_name
    assert pressed("run") == by_name[::-1]
    by_loss = ["2024-01-02", "run-10", "2024-03-01", "run-9"]
    assert pressed("last loss") == [*by_loss, "lost"]
    assert pressed("last loss") == [*by_loss[::-1], "lost"]  # what is not there is last, either way


def test_on_paper_everything_is_dark_on_white_and_open(page):
    given, report = judged("run", LOSS)
    page.set_content(page_of(given, report)[0].decode())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    skipped = page.get_by_text("no optimizer state was found").first
    assert not skipped.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert skipped.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
