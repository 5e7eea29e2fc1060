"""What the pages do in a real browser: keyboard, zoom, filters, MLflow's frame, printing, narrow screens. Debian's
chromium, by Playwright.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from tracker_health.config import preset
from tracker_health.evidence import (
    Axis,
    Evidence,
    MomentStats,
    OptimizerState,
    RunInfo,
    RunRef,
    Series,
    TensorHeader,
    TensorState,
    Weights,
)
from tracker_health.judge.engine import diagnose
from tracker_health.render.attachments import page_of
from tracker_health.render.comparison import comparison_page, row_of
from tracker_health.render.page import report_page
from tracker_health.render.plot import Area, Line, Plot, draw

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


def test_the_table_is_filtered_and_its_lines_with_it(page):
    rows = []
    for name, end in {"good": LOSS, "lost": np.append(LOSS[:100], np.full(100, np.nan))}.items():
        given, report = judged(name, end)
        rows.append(row_of(report, given))
    page.set_content(comparison_page(rows, title="runs").decode())
    assert page.locator(".plot .line").count() == 2
    page.get_by_label("rule").select_option("LOS001")
    assert page.locator("td.name").filter(visible=True).all_inner_texts() == ["lost"]
    assert page.locator(".plot .line").count() == 1
    assert page.locator(".filters output").inner_text() == "1 of 2 runs"
    page.get_by_label("rule").select_option("")
    page.get_by_label("name").fill("GOO")
    assert page.locator("td.name").filter(visible=True).all_inner_texts() == ["good"]


def test_settings_sort_as_numbers_and_every_cell_is_printed(page):
    rows = []
    for name, rate, kind in (("a", "1e-3", "adam"), ("b", "0.02", "sgd"), ("c", "3", "adam"), ("d", "", "sgd")):
        given, report = judged(name, LOSS)
        params = {"lr": rate, "kind": kind} if rate else {"kind": kind}
        rows.append(row_of(report, replace(given, info=RunInfo(params=params)), page=f"{name}.html"))
    page.set_content(comparison_page(rows, title="runs").decode())
    names = "cells => cells.map(cell => cell.innerText)"
    for order in ("abcd", "cbad"):  # what is not there is last, either way
        page.get_by_role("button", name="lr", exact=True).click()
        assert "".join(page.eval_on_selector_all("td.name", names)) == order
    assert page.get_by_role("link", name="a", exact=True).get_attribute("href") == "a.html"
    # On a phone a row is a card, whose settings have their names.
    label = page.locator("td.setting").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert "lr" in label
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1000, "height": 700})
    page.emulate_media(media="print")
    hidden = "cells => cells.filter(cell => getComputedStyle(cell).display === 'none').length"
    assert page.eval_on_selector_all("table.runs :is(th, td)", hidden) == 0


def test_a_narrow_window_prints_a_wide_chart(page):
    given, report = judged("run", LOSS)
    page.set_content(page_of(given, report)[0].decode())
    width = "document.querySelector('.plot').viewBox.baseVal.width"
    narrow = page.evaluate(width)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert narrow < 400
    assert page.evaluate(width) == 900
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(width) == narrow


def test_the_script_writes_the_ticks_that_were_drawn(page):
    page.set_viewport_size({"width": 1200, "height": 800})
    for values in (9.2103 + LOSS * 1e-5, 0 * LOSS, LOSS):
        given, report = judged("run", values)
        text = page_of(given, report)[0].decode()
        drawn = re.findall(r'class="tick"[^>]*text-anchor="end">([^<]*)<', text.split("</svg>")[0])
        page.set_content(text)
        assert page.locator(".plot").first.locator(".tick[text-anchor=end]").all_text_contents() == drawn


def test_arrow_keys_read_values_and_plus_zooms(page):
    given, report = judged("run", LOSS)
    page.set_content(page_of(given, report)[0].decode())
    reader = page.get_by_role("slider", name="Values of the chart: Training loss")
    reader.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert reader.get_attribute("aria-valuetext") == f"step 2: train_loss {LOSS[2]:.4g}"
    page.keyboard.press("End")
    assert reader.get_attribute("aria-valuetext") == f"step 199: train_loss {LOSS[199]:.4g}"
    ticks = page.locator(".plot .tick").all_text_contents()
    whole = page.get_by_role("button", name="whole run")
    assert not whole.is_visible()
    page.keyboard.press("+")
    assert page.locator(".plot .tick").all_text_contents() != ticks
    whole.click()
    assert page.locator(".plot .tick").all_text_contents() == ticks
    page.get_by_role("button", name="log", exact=True).click()
    assert page.locator(".plot .tick").all_text_contents() != ticks
    assert page.get_by_role("button", name="linear").get_attribute("aria-pressed") == "false"


def test_a_chart_by_parts_of_an_epoch_zooms(page):
    """The whole run is less than one."""
    axis = Axis.of("epoch", STEPS, STEPS / 5000)
    series = Series(name="train_loss", role="train_loss", steps=STEPS, values=LOSS, axis=axis)
    given = Evidence(run=RunRef(store="directory", id="run", name="run"), info=RunInfo(), series=(series,))
    page.set_content(page_of(given, diagnose(given, preset("default")))[0].decode())
    ticks = page.locator(".plot .tick").all_text_contents()
    assert "0.02" in ticks
    page.get_by_role("slider", name="Values of the chart: Training loss").focus()
    page.keyboard.press("+")
    assert page.get_by_role("button", name="whole run").is_visible()
    assert page.locator(".plot .tick").all_text_contents() != ticks


def test_what_the_script_draws_is_what_the_page_had(page):
    """A ring of the script's lies on the curve where the one in the file does: at the same step and value."""
    values = np.concatenate([[2.3], 2.3 + 2236.1 * np.exp(-np.arange(199) / 6) + 0.01 * np.sin(np.arange(199))])
    given, report = judged("run", values)
    content = page_of(given, report)[0].decode()
    seen = []
    for text in (content, re.sub(r"<script>.*</script>", "", content, flags=re.DOTALL)):
        page.set_viewport_size({"width": 948, "height": 800})
        page.set_content(text)
        labels = page.locator(".plot .markt").all_text_contents()
        ring = page.locator(".plot circle.mark").first.evaluate("one => Number(one.getAttribute('cy'))")
        seen.append((labels, ring))
    assert seen[0][0] == seen[1][0] == ["2238 at step 1 (LOS004)"]
    assert seen[0][1] == pytest.approx(seen[1][1], abs=3)


def test_in_mlflows_frame_nothing_stands_that_cannot_work(page):
    """MLflow shows a page from a blob in a frame that may run scripts and nothing else."""
    given, report = judged("run", LOSS)
    report = replace(report, run=replace(report.run, url="https://tracker.example/#/run"))
    content = page_of(given, report)[0].decode()
    complaints, requests = [], []
    page.on("console", lambda one: complaints.append(one.text))
    page.on("pageerror", lambda one: complaints.append(str(one)))
    page.on("request", lambda one: requests.append(one.url))
    page.goto("about:blank")
    page.evaluate(
        """content => {
          const frame = document.createElement("iframe");
          frame.sandbox = "allow-scripts";
          frame.src = URL.createObjectURL(new Blob([content], { type: "text/html" }));
          document.body.append(frame);
        }""",
        content,
    )
    frame = page.frame_locator("iframe")
    frame.locator(".reader").first.wait_for()
    assert frame.locator("a[href^=http]").count() == 0
    assert frame.locator(".address").inner_text() == "Page of the run: https://tracker.example/#/run"
    assert frame.locator("[data-act]").filter(visible=True).count() == 0
    assert not complaints
    assert not [one for one in requests if not one.startswith(("blob:", "about:"))]
    page.set_content(content)
    assert page.locator("a[href^=http]").inner_text() == "Page of the run"
    assert page.get_by_role("button", name="Print", exact=True).is_visible()


def test_paper_has_one_page_and_the_rest_on_request(page):
    given, report = judged("run", np.append(LOSS[:100], np.full(100, np.nan)))
    page.set_content(page_of(given, report)[0].decode())

    def sheets():
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", page.pdf(format="A4")))

    assert sheets() == 1
    page.evaluate("document.body.classList.add('appendix')")
    assert sheets() > 1


def test_on_paper_everything_is_dark_on_white_and_open(page):
    given, report = judged("run", LOSS)
    page.set_content(page_of(given, report)[0].decode())
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    passed = page.get_by_text("no-progress").first
    assert not passed.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert not passed.is_visible()
    page.evaluate("document.body.classList.add('appendix')")
    assert passed.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [1440, 820, 390])
def test_no_page_is_wider_than_its_window(page, width):
    """With bars, layers, and several charts in the chain."""
    moment = MomentStats(count=64, mean=1e-6, rms=1e-6, minimum=0.0, maximum=1e-3, zeros=0, nonfinite=0)
    name = "model.encoder.layers.{}.self_attention.projection_of_the_values.weight"
    tensors = tuple(
        TensorState(id=at, name=name.format(at), shape=(8, 8), step=1000.0, first_moment=moment, second_moment=moment)
        for at in range(8)
    )
    headers = tuple(TensorHeader(name=one.name, shape=(8, 8), dtype="F32", rms=50.0) for one in tensors)
    values = {"train_loss": np.where(STEPS > 100, np.nan, LOSS), "grad_norm": LOSS * np.where(STEPS > 90, 1e4, 1)}
    found = [Series(name=role, role=role, steps=STEPS, values=one) for role, one in values.items()]
    terms = [Series(name=f"loss_{n}", role="loss_part", steps=STEPS, values=LOSS) for n in range(4)]
    given = Evidence(
        run=RunRef(store="directory", id="run", name="run"), info=RunInfo(), series=(*found, *terms),
        optimizer=OptimizerState(source="o.pt", tensors=tensors, groups=({"lr": 1e-3},)),
        weights=Weights(source="m.safetensors", tensors=headers),
    )  # fmt: skip
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content(page_of(given, diagnose(given, preset("default")))[0].decode())
    assert page.locator(".cmp").count()
    assert page.locator(".chain .heat").count() == 1
    assert page.locator(".small-ones figure").count() == 4
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    name_ends = page.locator(".heat tbody th").first.evaluate("one => one.getBoundingClientRect().right")
    assert name_ends < 0.6 * width, "numbers are in sight"


def test_the_band_of_healthy_runs_is_drawn_again_on_each_axis(page):
    steps, gap = np.arange(0, 200, 10), np.arange(20) == 8
    low, high = (np.where(gap, np.nan, end + 2 * np.exp(-steps / 40)) for end in (0.2, 0.6))
    plot = Plot(
        name="loss", title="Loss", description="",
        lines=(Line(name="loss", steps=STEPS, values=LOSS), Line(name="low", steps=steps, values=low, look="usual edge")),
        areas=(Area(steps=steps, low=low, high=high),),
    )  # fmt: skip
    drawn = [
        [float(y) for _, y in re.findall(r"([\d.]+),([\d.]+)", one)]
        for one in re.findall(r"<polygon [^>]*>", draw(plot))
    ]
    assert [len(one) for one in drawn] == [16, 22], "in two parts, there and back"
    assert all(max(one[: len(one) // 2]) <= max(one[len(one) // 2 :]) for one in drawn), "down is larger"
    given, report = judged("loss", LOSS)
    html = report_page(report, given).decode()
    data = json.dumps({"plots": [plot.data], "issue": ""})
    page.set_content(
        re.sub(r'(<script type="application/json" id="data">).*?(</script>)', rf"\1{data}\2", html, flags=re.DOTALL)
    )
    before = page.locator(".plot .area").count(), page.locator(".plot .area").first.get_attribute("points")
    page.get_by_role("button", name="log", exact=True).click()
    after = page.locator(".plot .area").count(), page.locator(".plot .area").first.get_attribute("points")
    assert (before[0], after[0]) == (2, 2)
    assert before[1] != after[1]
    assert "NaN" not in before[1] + after[1]
