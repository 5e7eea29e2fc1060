"""The pages: self-contained, whatever a run is called, and small."""

from __future__ import annotations

import html.parser
import re
import warnings
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tracker_health.config import preset
from tracker_health.engine import diagnose
from tracker_health.evidence import (
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
from tracker_health.evidence.parameters.steps import relative_updates
from tracker_health.result import ErrorEntry

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from tracker_health.render import page as pages
from tracker_health.render.attachments import attachments, page_of
from tracker_health.render.charts import draw
from tracker_health.render.comparison import comparison_page, row_of

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m",
    "\u202eover\u2066\u200b",
    "]]></svg><script>alert(2)</script>",
    "$x_1$ \\frac{1}{2}",
    "{{ 7 * 7 }}{% include 'x' %}",
    "A" * 10_000,
    "_hidden\nsecond line",
]
STEPS = np.arange(400)
HEALTHY = 2.3 * np.exp(-STEPS / 90) + 0.3 + np.random.default_rng(0).normal(0, 0.02, 400)


def series(role, values, name=None, steps=None):
    steps = np.arange(len(values)) if steps is None else steps
    return Series(
        name=name or role, role=role, steps=steps, values=np.asarray(values, dtype=np.float64), source="a.jsonl"
    )


def evidence(*found, name="run", **parts):
    return Evidence(run=RunRef(store="directory", id=f"/runs/{name}", name=name), info=RunInfo(), series=found, **parts)


def page(given):
    report = diagnose(given, preset("default"))
    content, missing = page_of(given, report)
    assert missing == ""
    return content.decode(), report


class Elements(html.parser.HTMLParser):
    """The elements of a page and their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def is_harmless(text, scripts=0):
    elements = Elements(text).found
    assert sum(tag == "script" for tag, _ in elements) == scripts
    assert not any(tag in ("iframe", "object", "embed", "link", "base", "form", "img") for tag, _ in elements)
    for _, attributes in elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href", "action"):
                assert value.startswith(("#", "http://tracker", "https://tracker"))
    # Names of XML namespaces are no addresses that anything fetches.
    assert not re.findall(r"url\((?!#)", text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    return elements


def states(*layers):
    moment = {"count": 64, "rms": 1e-4, "minimum": 0.0, "maximum": 1e-3, "nonfinite": 0}
    return OptimizerState(
        source="optimizer.pt",
        tensors=tuple(
            TensorState(
                id=place,
                name=name,
                shape=(8, 8),
                step=100.0,
                second_moment=MomentStats(mean=mean, zeros=64 if mean == 0 else 0, **moment),
            )
            for place, (name, mean) in enumerate(layers)
        ),
    )


CASES = {
    "healthy": [series("train_loss", HEALTHY), series("grad_norm", 1 + HEALTHY), series("learning_rate", STEPS * 1e-5)],
    "nan": [series("train_loss", np.where(STEPS > 300, np.nan, HEALTHY))],
    "all nan": [series("train_loss", np.full(40, np.nan))],
    "infinite": [series("train_loss", np.where(STEPS == 200, np.inf, HEALTHY))],
    "spikes": [series("train_loss", HEALTHY + 30.0 * (STEPS % 150 == 149))],
    "huge": [series("train_loss", HEALTHY * 1e300)],
    "tiny": [series("train_loss", HEALTHY * 1e-300)],
    "negative": [series("train_loss", HEALTHY - 5.0)],
    "mixed": [series("train_loss", np.where(STEPS == 9, 1e12, HEALTHY - 1.0))],
    "one point": [series("train_loss", [1.0])],
    "twelve points": [series("train_loss", HEALTHY[::40]), series("val_loss", HEALTHY[::40] + 0.1)],
    "one step": [series("train_loss", HEALTHY, steps=np.zeros(400, dtype=np.int64))],
    "large steps": [series("train_loss", HEALTHY, steps=STEPS * 10**15)],
    "validation alone": [series("val_loss", HEALTHY[::10])],
    "loss scale": [series("train_loss", HEALTHY), series("loss_scale", 2.0 ** (16 - STEPS // 50))],
    "nothing": [],
}


@pytest.mark.parametrize("case", list(CASES))
def test_a_page_of_every_kind_of_run(case):
    text, report = page(evidence(*CASES[case]))
    is_harmless(text)
    assert len(text.encode()) < 400_000
    assert f">{report.verdict.upper()}<" in text
    for finding in report.findings:
        assert f"{finding.code} {finding.name}" in text
    assert text.count("<svg") == sum(
        role in {one.role for one in CASES[case]} for role in ("grad_norm", "learning_rate", "loss_scale")
    ) + any(one.role.endswith("_loss") for one in CASES[case])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_a_run_are_text(name):
    given = evidence(
        series("train_loss", np.where(STEPS > 200, np.nan, HEALTHY), name=name),
        series("val_loss", HEALTHY[::10], name=f"val {name}"),
        name=name,
        optimizer=states((f"layers.0.{name}.weight", 1.0), (f"layers.1.{name}.weight", 0.0)),
    )
    text, _ = page(given)
    is_harmless(text)
    assert len(text.encode()) < 400_000


def test_a_page_needs_nothing_from_elsewhere():
    text, _ = page(evidence(*CASES["healthy"]))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src 'none'")
    assert "script" not in policy


def test_a_million_points_give_a_small_page_with_the_spike_in_it():
    values = np.full(10**6, 1.0)
    values[712_345] = 77.25
    text, _ = page(evidence(series("train_loss", values)))
    assert len(text.encode()) < 400_000
    assert "highest 77.25" in text


@pytest.mark.parametrize("layers", [1, 2, 96])
def test_the_gradients_by_layer(layers):
    state = states(*((f"model.layers.{place}.mlp.up.weight", 1e-6 * (place != 0)) for place in range(layers)))
    (chart,) = draw(given := evidence(optimizer=state), diagnose(given, preset("default")))
    assert chart.kind == "layers"
    assert f"in {layers} layer{'s' * (layers > 1)}, by" in chart.description
    assert "1 tensor got none" in chart.description
    assert "mathdefault" not in chart.svg


def test_as_many_layers_as_a_name_can_tell_give_a_small_page():
    state = states(*((f"layers.{place}.up.weight", 1e-6 * (place % 3)) for place in range(20_000)))
    text, _ = page(evidence(optimizer=state))
    assert len(text.encode()) < 400_000


def moved(*layers, rate=1e-3):
    """Optimizer state and weights of layers with these root mean squares."""
    moment = MomentStats(count=64, mean=1e-6, rms=1e-6, minimum=0.0, maximum=1e-3, zeros=0, nonfinite=0)
    tensors = tuple(
        TensorState(id=place, name=f"layers.{place}.up.weight", shape=(8, 8), step=1000.0, group=0,
                    first_moment=moment, second_moment=moment)
        for place in range(len(layers))
    )  # fmt: skip
    headers = tuple(
        TensorHeader(name=tensor.name, shape=(8, 8), dtype="F32", rms=size)
        for tensor, size in zip(tensors, layers, strict=True)
    )
    state = OptimizerState(source="optimizer.pt", tensors=tensors, groups=({"lr": rate},))
    return {"optimizer": state, "weights": Weights(source="model.safetensors", tensors=headers)}


def test_the_updates_by_layer():
    given = evidence(**moved(0.1, 0.2, 0.0, float("inf"), None))
    assert [ratio for _, ratio in relative_updates(given)] == pytest.approx([1e-2 * 0.22942, 5e-3 * 0.22942], rel=1e-4)
    chart = next(one for one in draw(given, diagnose(given, preset("default"))) if one.kind == "updates")
    assert "2 layers, by role" in chart.description
    wild = evidence(series("train_loss", 2.3 + 0.01 * np.sin(STEPS)), **moved(0.1, 0.1, rate=0.5))
    assert next(one for one in draw(wild, diagnose(wild, preset("default"))) if one.kind == "updates").codes == (
        "OPT007",
    )
    without_weights = evidence(optimizer=given.optimizer)
    charts = draw(without_weights, diagnose(without_weights, preset("default")))
    assert [one.kind for one in charts] == ["layers"]


def test_overfitting_is_marked_on_the_validation_loss():
    validation = np.concatenate([2 * np.exp(-np.arange(10) / 3) + 0.5, 0.55 + 0.04 * np.arange(10)])
    given = evidence(
        series("train_loss", 0.5 * HEALTHY), series("val_loss", validation, steps=20 * np.arange(len(validation)))
    )
    report = diagnose(given, preset("default"))
    assert [one.code for one in report.findings] == ["GEN001"]
    svg = draw(given, report)[0].svg
    (ring,), points = (
        [float(y) for y in re.findall(rf'<use [^>]*y="([\d.]+)"[^>]*{style}', svg)]
        for style in ("fill-opacity: 0; stroke: #e69f00", "fill: #d55e00")
    )
    assert ring == pytest.approx(max(points), abs=0.2)  # the lowest value, furthest down


def test_names_in_other_scripts_give_no_warnings():
    given = evidence(series("train_loss", HEALTHY, name="\u65e5\u672c\u8a9e \U0001f600"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (chart,) = draw(given, diagnose(given, preset("default")))
    assert "\u65e5\u672c\u8a9e" in chart.svg


def test_pictures_are_well_formed_take_the_pages_colour_and_are_the_same_each_time():
    given = evidence(*CASES["spikes"])
    report = diagnose(given, preset("default"))
    first, second = (draw(given, report) for _ in range(2))
    assert [chart.svg for chart in first] == [chart.svg for chart in second]
    for chart in first:
        ET.fromstring(chart.svg)
        assert "currentColor" in chart.svg
        assert 'id="figure' not in chart.svg
    assert first[0].png.startswith(b"\x89PNG")


def test_the_owners_style_is_left_alone():
    import matplotlib as mpl

    mpl.rcParams["axes.facecolor"] = "black"
    before = dict(mpl.rcParams)
    given = evidence(*CASES["healthy"])
    draw(given, diagnose(given, preset("default")))
    assert dict(mpl.rcParams) == before
    mpl.rcdefaults()


def test_a_picture_that_cannot_be_drawn_is_told(monkeypatch):
    from tracker_health.render import charts

    def fail(*_):
        raise OverflowError("too much")

    monkeypatch.setitem(charts._PLOTS, "loss", fail)
    given = evidence(*CASES["healthy"])
    made = attachments(given, diagnose(given, preset("default")))
    assert list(made.files) == ["report.html"]
    assert "too much" in made.missing
    assert b"too much" in made.files["report.html"]


def test_without_the_packages_the_verdict_is_told_with_the_way_to_get_them(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr(pages, "_environment", pages._environment.__wrapped__)  # as in a new process
    given = evidence(*CASES["healthy"])
    made = attachments(given, diagnose(given, preset("default")))
    assert not made.files
    assert "tracker-health[charts]" in made.missing


@pytest.mark.parametrize("name", HOSTILE)
def test_the_comparison(name):
    rows = []
    for case, found in CASES.items():
        given = evidence(*found, name=f"{case} {name}")
        rows.append(row_of(diagnose(given, preset("default")), given))
    text = comparison_page(rows, title=name).decode()
    is_harmless(text, scripts=1)
    digest = re.search(r"script-src '([^']*)'", text).group(1)
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL).group(1)
    import base64
    import hashlib

    assert digest == "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert text.count("<tr>") == len(CASES) + 1


def test_only_addresses_that_a_browser_may_open_become_links():
    given = evidence(*CASES["healthy"])
    report = diagnose(given, preset("default"))
    from dataclasses import replace

    rows = [
        row_of(replace(report, run=replace(report.run, url=url)), given)
        for url in ("https://tracker/#/x", "javascript:alert(1)", "data:text/html,x", None)
    ]
    assert [row.link for row in rows] == ["https://tracker/#/x", "", "", ""]
    is_harmless(comparison_page(rows, title="links").decode(), scripts=1)


def test_the_comparison_of_many_runs_stays_small():
    noise = np.random.default_rng(0)
    rows = []
    for number in range(300):
        given = evidence(series("train_loss", HEALTHY + noise.normal(0, 0.1, 400)), name=f"run-{number}")
        rows.append(row_of(diagnose(given, preset("default")) if not rows else rows[0].report, given))
    assert len(comparison_page(rows, title="many")) < 1_200_000


def test_what_is_not_finite_shows_in_the_small_curve_and_as_the_last_value():
    given = evidence(series("train_loss", np.where(STEPS >= 200, np.nan, HEALTHY)))
    row = row_of(diagnose(given, preset("default")), given)
    assert np.isnan(row.last)
    assert row.sort_key == ""
    assert max(float(point.split(",")[0]) for point in row.sparkline.split()) == 160  # of 320: the half that is known
    assert ">NaN</td>" in comparison_page([row], title="x").decode()
    none = evidence(series("train_loss", np.full(9, np.nan)))
    row = row_of(diagnose(none, preset("default")), none)
    assert row.curve is None
    assert ">NaN</td>" in comparison_page([row], title="x").decode()


def test_a_source_that_no_rule_could_judge_is_told_once():
    from dataclasses import replace

    given = evidence(*CASES["healthy"])
    told = ErrorEntry(source="a.jsonl", message="not JSON")
    lost = [ErrorEntry(source="a.jsonl", message="could not be judged: not JSON", code=f"LOS00{n}") for n in (1, 2)]
    report = replace(diagnose(given, preset("default")), errors=(told, told, *lost))
    text = page_of(given, report)[0].decode()
    assert text.count("not JSON") == 1
    assert "Without a.jsonl not judged: LOS001, LOS002" in text
