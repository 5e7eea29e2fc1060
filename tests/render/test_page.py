"""The pages: self-contained, whatever a run is called, and small."""

from __future__ import annotations

import base64
import hashlib
import html
import html.parser
import json
import re
import struct
import warnings
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tracker_health.config import preset
from tracker_health.evidence import (
    Evidence,
    MomentStats,
    OptimizerState,
    RunInfo,
    RunRef,
    Series,
    Sibling,
    TensorHeader,
    TensorState,
    Weights,
    names_apart,
)
from tracker_health.judge.engine import diagnose
from tracker_health.report.result import ErrorEntry, Report
from tracker_health.words.acknowledgements import Acknowledgement
from tracker_health.words.verdict import Verdict

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from tracker_health.diagnosis import CAUSES
from tracker_health.render import page as pages
from tracker_health.render.attachments import attachments, page_of
from tracker_health.render.comparison import comparison_page, row_of
from tracker_health.render.curves import plots_of
from tracker_health.render.docs import help_on, help_on_cause
from tracker_health.render.heat import heat_map
from tracker_health.render.picture import run_card, run_picture
from tracker_health.render.plot import draw, tick, value_ticks
from tracker_health.render.questions import missing_from, not_applicable
from tracker_health.rules.registry import probe_classes

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
LARGEST = 150_000  # bytes of a page
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


def is_harmless(text):
    elements = Elements(text).found
    scripts = [attributes.get("type", "") for tag, attributes in elements if tag == "script"]
    assert scripts == ["application/json", ""]  # what the script reads, and the script
    assert not any(tag in ("iframe", "object", "embed", "link", "base", "img") for tag, _ in elements)
    for tag, attributes in elements:
        assert "style" not in attributes  # the policy would not let it
        assert tag != "form" or "action" not in attributes
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href", "action"):
                assert value.startswith(("#", "http://tracker", "https://tracker"))
    assert not re.findall(r"url\((?!#)|@import|@font-face", text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL).group(1))
    return elements


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL).group(1))


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
    assert len(text.encode()) <= LARGEST
    assert f">{report.verdict.upper()}" in text
    for finding in report.findings:
        assert f"<b>{finding.code} {finding.name}</b>" in text
    roles = {one.role for one in CASES[case]}
    charts = sum(role in roles for role in ("grad_norm", "learning_rate", "loss_scale"))
    charts += any(role.endswith("_loss") for role in roles)
    assert text.count('<svg class="plot"') == charts == len(data_of(text)["plots"])
    for svg in re.findall(r'<svg class="plot".*?</svg>', text, re.DOTALL):
        ET.fromstring(svg)


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
    assert len(text.encode()) <= LARGEST


def hash_of(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy_of(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1).replace("&#39;", "'")
    return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))


def test_a_page_needs_nothing_from_elsewhere():
    """What runs and what styles is what the policy names by its hash, and nothing else may."""
    given = evidence(*CASES["healthy"])
    report = diagnose(given, preset("default"))
    for text in (page(given)[0], comparison_page([row_of(report, given)], title="x").decode()):
        policy = policy_of(text)
        style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
        script = re.search(r"<script>(.*?)</script>", text, re.DOTALL).group(1)
        assert policy == {
            "default-src": "'none'",
            "style-src": hash_of(style),
            "script-src": hash_of(script),
            "base-uri": "'none'",
            "form-action": "'none'",
        }


@pytest.mark.slow
def test_a_million_points_give_a_small_page_with_the_spike_in_it():
    values = np.full(10**6, 1.0)
    values[712_345] = 77.25
    text, _ = page(evidence(series("train_loss", values)))
    assert len(text.encode()) <= LARGEST
    assert "highest 77.2" in text
    assert 77.25 in data_of(text)["plots"][0]["lines"][0]["v"]


@pytest.mark.parametrize("layers", [1, 2, 96])
def test_the_layers_of_a_checkpoint(layers):
    state = states(*((f"model.layers.{place}.mlp.up.weight", 1e-6 * (place != 0)) for place in range(layers)))
    found = heat_map(evidence(optimizer=state))
    assert len(found.rows) + found.left_out == layers
    silent = [
        cells[[name for name, _ in found.columns].index("values without any gradient")] for *_, cells in found.rows
    ]
    assert (silent[0].text, silent[0].heat) == ("100 %", 5)
    assert all((cell.text, cell.heat) == ("0 %", 0) for cell in silent[1:])


@pytest.mark.slow
def test_as_many_layers_as_a_name_can_tell_give_a_small_page():
    state = states(*((f"layers.{place}.up.weight", 1e-6 * (place % 3)) for place in range(20_000)))
    text, _ = page(evidence(optimizer=state))
    assert len(text.encode()) <= LARGEST
    assert "19976 more, all nearer to what is usual" in text


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


def test_layers_are_hotter_the_further_they_are_from_what_is_usual():
    given = evidence(**moved(0.1, 0.2, 0.0, float("inf"), 35.4))
    found = heat_map(given)
    columns = [name for name, _ in found.columns]
    scales = [cells[columns.index("weights, against a fresh layer")] for *_, cells in found.rows]
    assert [cell.text for cell in scales] == ["0.283 \u00d7", "0.566 \u00d7", "0 \u00d7", "Infinity", "100 \u00d7"]
    assert [cell.heat for cell in scales] == [1, 0, 5, 5, 5]
    steps = [cells[columns.index("largest step, against the weights")] for *_, cells in found.rows]
    assert [cell and cell.text for cell in steps] == ["0.23 %", "0.11 %", None, None, "0.00065 %"]
    assert heat_map(evidence()) is None


def loss_of(given):
    report = diagnose(given, preset("default"))
    return plots_of(given, report)[0], report


def test_overfitting_is_marked_on_the_validation_loss():
    validation = np.concatenate([2 * np.exp(-np.arange(10) / 3) + 0.5, 0.55 + 0.04 * np.arange(10)])
    given = evidence(
        series("train_loss", 0.5 * HEALTHY), series("val_loss", validation, steps=20 * np.arange(len(validation)))
    )
    plot, report = loss_of(given)
    assert [one.code for one in report.findings] == ["GEN001"]
    (mark,) = (one for one in plot.marks if one.label)
    assert mark.step == report.findings[0].steps[0]
    assert mark.value == validation[mark.step // 20]


JUMP = np.concatenate([[2.3], 2.3 + 2236.1 * np.exp(-np.arange(399) / 6) + 0.01 * np.sin(np.arange(399))])
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"


@pytest.mark.parametrize(
    "values",
    [
        HEALTHY + 30.0 * (STEPS % 150 == 149),
        JUMP,
        np.where(STEPS > 200, HEALTHY + (STEPS - 200) / 20, HEALTHY),
        np.where(STEPS > 300, np.nan, HEALTHY),
        np.where(STEPS == 200, np.inf, HEALTHY),
    ],
    ids=["spikes", "jump", "climb", "nan", "infinite"],
)
def test_a_mark_says_what_the_finding_and_the_curve_say(values):
    """A ring lies on the curve, its step is one of the finding's, and a number in its label is in the finding's text."""
    plot, report = loss_of(evidence(series("train_loss", values)))
    assert plot.marks or plot.bands
    for mark in plot.marks:
        assert mark.value is None or mark.value == values[mark.step]
        if not mark.label:
            continue
        code = re.search(r"\((\w+)\)$", mark.label).group(1)
        finding = next(one for one in report.findings if one.code == code)
        assert mark.step in finding.steps
        assert f"step {mark.step} " in mark.label
        said = re.match(rf"({NUMBER}) at ", mark.label)
        assert said is None or re.search(rf"(?<![\d.]){re.escape(said.group(1))}(?!\d)", finding.message)
    for band in plot.bands:
        assert not np.isfinite(values[band.first : band.last + 1]).any()


def test_a_jump_is_marked_with_the_number_of_the_headline():
    given = evidence(series("train_loss", JUMP))
    text, _ = page(given)
    assert "2238 at step 1 (LOS004)" in text
    plot, _ = loss_of(given)
    assert plot.is_logarithmic
    ring = re.search(r'<circle class="mark fail" cx="([\d.]+)" cy="([\d.]+)"', draw(plot)).groups()
    heights = [float(pair.split(",")[1]) for pair in re.search(r'points="([^"]*)"', draw(plot)).group(1).split()]
    assert float(ring[1]) == pytest.approx(min(heights), abs=0.2)  # the highest value, furthest up


def test_the_level_of_guessing_is_drawn_where_the_rule_says_it_is():
    values = 2.3026 + np.random.default_rng(0).normal(0, 0.01, 400)
    given = evidence(series("train_loss", values))
    given = replace(given, info=RunInfo(params={"num_classes": "10"}))
    plot, report = loss_of(given)
    (line,) = plot.references
    assert line.label == "2.303: guessing among 10"
    assert line.value == next(one for one in report.results if one.code == "LOS006").measured["chance"]


@pytest.mark.slow
def test_names_in_other_scripts_give_no_warnings():
    given = evidence(series("train_loss", HEALTHY, name="\u65e5\u672c\u8a9e \U0001f600"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_picture(given, diagnose(given, preset("default"))).startswith(b"\x89PNG")
    assert "\u65e5\u672c\u8a9e" in page(given)[0]


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.thinned(4)
def test_the_picture_is_drawn_of_every_loss_and_is_the_same_each_time(case):
    given = evidence(*CASES[case])
    report = diagnose(given, preset("default"))
    first, second = (run_picture(given, report) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG") if any(one.role.endswith("_loss") for one in CASES[case]) else first == b""


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.thinned(4)
def test_the_card_has_the_size_of_a_preview(case):
    """Also of a run without a curve: then the words alone."""
    given = evidence(*CASES[case])
    card = run_card(given, diagnose(given, preset("default")))
    assert card.startswith(b"\x89PNG")
    assert struct.unpack(">II", card[16:24]) == (1200, 630)


def test_the_owners_style_is_left_alone():
    import matplotlib as mpl

    mpl.rcParams["axes.facecolor"] = "black"
    before = dict(mpl.rcParams)
    given = evidence(*CASES["healthy"])
    run_picture(given, diagnose(given, preset("default")))
    assert dict(mpl.rcParams) == before
    mpl.rcdefaults()


def fail(*_):
    raise OverflowError("too much")


def test_a_picture_that_cannot_be_drawn_is_reported(monkeypatch):
    from tracker_health.render import attachments as made_here

    monkeypatch.setattr(made_here, "run_picture", fail)
    given = evidence(*CASES["healthy"])
    made = attachments(given, diagnose(given, preset("default")))
    assert list(made.files) == ["report.html"]
    assert "too much" in made.missing


def test_charts_that_cannot_be_drawn_are_reported_on_the_page(monkeypatch):
    monkeypatch.setattr(pages, "plots_of", fail)
    given = evidence(*CASES["nan"])
    made = attachments(given, diagnose(given, preset("default")))
    assert "too much" in made.missing
    text = made.files["report.html"].decode()
    is_harmless(text)
    assert "too much" in text
    assert "LOS001 nonfinite-loss" in text


def test_without_the_packages_the_verdict_comes_with_the_way_to_get_them(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr(pages, "_environment", pages._environment.__wrapped__)  # as in a new process
    given = evidence(*CASES["healthy"])
    made = attachments(given, diagnose(given, preset("default")))
    assert not made.files
    assert "tracker-health[charts]" in made.missing


def test_a_report_alone_gives_a_page(monkeypatch):
    """As one that was read from a file: without evidence there are no curves, and everything else."""
    given = evidence(*CASES["nan"])
    report = Report.from_json(diagnose(given, preset("default")).to_json())
    text = pages.report_page(report).decode()
    is_harmless(text)
    assert "NaN or infinite from step 301" in text
    assert "There is no curve: the report comes without the run&#39;s metrics." in text


def test_an_agent_s_page_shows_its_reward():
    steps = np.arange(1, 61)
    reward = Series(
        name="rollout/ep_rew_mean", role="train_reward", source="log", steps=steps, values=40.0 - 0.5 * steps
    )
    names = (reward.name,)
    info = RunInfo(metric_names=names, params={"env_id": "CartPole-v1"})
    given = Evidence(run=RunRef(store="directory", id="agent", name="agent"), info=info, series=(reward,))
    report = diagnose(given, preset("default"))
    (plot,) = plots_of(given, report)
    assert (plot.name, next(line.name for line in plot.lines)) == ("reward", "rollout/ep_rew_mean")
    assert plot.marks, "the fall is marked"
    text = pages.report_page(report, given).decode()
    assert "There is no curve" not in text
    assert "Reward by step" in text


def shown(*series, findings):
    """The charts of a run in which rules found something about series."""
    given = evidence(*series)
    base = diagnose(evidence(series_of_loss()), preset("default"))
    results = tuple(
        replace(
            base.results[0], code=code, verdict=Verdict.WARN, votes=True, about=about, steps=(100,), message="it is"
        )
        for code, about in findings
    )
    report = replace(base, verdict=Verdict.WARN, results=results, diagnosis=None)
    return plots_of(given, report), report, given


def series_of_loss():
    return series("train_loss", HEALTHY)


def test_the_first_chart_is_of_what_the_leading_finding_is_about():
    entropy = series("entropy", HEALTHY, name="policy_entropy")
    plots, report, given = shown(series_of_loss(), entropy, findings=[("RUN001", ()), ("RWD003", ("policy_entropy",))])
    assert [(one.title, one.codes) for one in plots] == [("Training loss", ("RUN001",)), ("Entropy", ("RWD003",))]
    plots, report, given = shown(series_of_loss(), entropy, findings=[("RWD003", ("policy_entropy",)), ("RUN001", ())])
    assert [(one.title, one.codes) for one in plots] == [("Entropy", ("RWD003",)), ("Training loss", ("RUN001",))]
    assert [mark.label for plot in plots for mark in plot.marks] == ["step 100 (RWD003)", "step 100 (RUN001)"]
    text = pages.report_page(report, given).decode()
    chain = text[text.index('class="chain"') :]
    assert '<a href="#figure-entropy">Entropy</a>' in chain, "what stands above is linked"
    assert chain.index('id="figure-loss"') < chain.index("RUN001")


def test_findings_about_one_series_share_its_chart():
    plots, *_ = shown(
        series_of_loss(), series("val_loss", HEALTHY), findings=[("GEN001", ("val_loss",)), ("LOS003", ("train_loss",))]
    )
    (plot,) = plots
    assert plot.codes == ("GEN001", "LOS003")
    assert {line.look.split()[0] for line in plot.lines} == {"main", "val"}
    assert len(plot.marks) == 2


def test_many_losses_are_small_charts():
    terms = [series("loss_part", HEALTHY, name=f"loss_{n}") for n in range(20)]
    plots, report, given = shown(series_of_loss(), *terms, findings=[("LOS020", ("loss_3", "loss_4"))])
    assert [(one.title, one.is_small) for one in plots[:3]] == [
        ("loss_3", False),
        ("loss_4", True),
        ("Training loss", False),
    ]
    assert len(plots) == 9
    assert all(one.is_small for one in plots[3:])
    assert len(pages.report_page(report, given)) <= LARGEST


@pytest.mark.parametrize("role", ["val_auc", "kl", "objective_loss"])
def test_a_run_without_loss_and_reward_shows_what_it_has(role):
    given = evidence(series(role, HEALTHY, name="x"), series("epoch", STEPS))
    report = diagnose(given, preset("default"))
    (plot,) = plots_of(given, report)
    assert plot.lines[0].name == "x"
    assert run_picture(given, report).startswith(b"\x89PNG")


def test_a_metric_without_a_role_is_drawn_where_something_was_found_of_it():
    odd = replace(series("x", np.where(STEPS > 300, np.nan, HEALTHY), name="eval_f1"), role=None)
    given = replace(evidence(series_of_loss()), odd=(odd,))
    report = diagnose(given, preset("default"))
    assert [one.about for one in report.findings] == [("eval_f1",)]
    assert [one.title for one in plots_of(given, report)] == ["eval_f1", "Training loss"]


def test_what_a_baseline_shows_is_in_a_box_of_its_own():
    given = evidence(*CASES["healthy"])
    report = diagnose(given, preset("default"))
    assert "Compared with healthy runs" not in page(given)[0]
    odd = replace(
        report.results[0], code="CMP001", name="odd-one-out", symptom="odd_one_out", message="it ended at 0.3",
        details={"baseline": "0123456789abcdef", "frozen": True},
    )  # fmt: skip
    text = pages.report_page(replace(report, results=(*report.results, odd)), given).decode()
    assert re.search(r"Compared with healthy runs</h2><p>It ended at 0\.3\.", text)
    assert "Baseline 0123456789abcdef." in text


@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_next_to_it_is_text_and_small(name):
    roles = ("train_loss", "val_loss", "grad_norm", "learning_rate")
    own = [series(role, HEALTHY, name=name if role == "train_loss" else role) for role in roles]
    terms = [series("loss_part", HEALTHY, name=f"loss_{n}") for n in range(9)]
    beside = Sibling(
        run=RunRef(store="directory", id="beside", name=name), name=name, verdict="pass", link="https://tracker/x", settings={f"{name}{n}": name for n in range(50)},
        series={role: series(role, HEALTHY + 1) for role in roles},
    )  # fmt: skip
    text, _ = page(replace(evidence(*own, *terms), siblings=(beside,)))
    is_harmless(text)
    assert len(text.encode()) <= LARGEST
    aside = re.search(r'<aside class="compared">.*?</aside>', text, re.DOTALL).group(0)
    assert aside.count("<td>not set</td>") <= 20
    lines = data_of(text)["plots"][0]["lines"]
    assert [line["c"] for line in lines if "other" in line["c"]] == ["other", "other val"]
    assert max(line["v"][0] for line in lines if line["c"] == "other") > 2.5


def test_of_two_runs_next_to_it_that_are_called_alike_each_has_a_name_and_both_curves():
    long = "a-name-that-is-too-long-for-the-legend-of-"
    beside = [
        Sibling(run=ref, name=name, verdict="pass", series={role: series(role, HEALTHY) for role in ("train_loss", "val_loss")})
        for end in "xy"
        for name in (f"{long}{end}",)
        for ref in (RunRef(store="directory", id=name, name=name),)
    ]  # fmt: skip
    text, _ = page(replace(evidence(series("train_loss", HEALTHY)), siblings=tuple(beside)))
    names = [line["t"] for line in data_of(text)["plots"][0]["lines"] if "other" in line["c"]]
    assert len({*names}) == 4
    assert sum(name.endswith(", val") for name in names) == 2
    assert "Dashed: validation." in text


def test_runs_of_one_name_are_told_apart_by_their_folders_or_ids():
    refs = [RunRef(store="directory", id=f"/x/{seed}/a/run", name="run") for seed in "12"]
    assert names_apart([*refs, refs[0]]) == ["1/a/run", "2/a/run", "1/a/run"]
    assert names_apart(refs[:1]) == ["a/run"]
    tracked = [RunRef(store="mlflow", id=f"{seed}" * 32, name="calm-owl") for seed in "12"]
    assert names_apart(tracked) == ["calm-owl (11111111)", "calm-owl (22222222)"]


@pytest.mark.parametrize(("low", "high"), [(9.2103, 9.21035), (1e-7, 1e-7 + 1e-11), (0.0, 1.0), (-3.0, 2e7)])
def test_no_two_ticks_look_alike(low, high):
    ticks = [tick(value) for value in value_ticks(low, high, logarithmic=False)]
    assert len({*ticks}) == len(ticks) > 2


def test_an_axis_of_zeros_begins_at_0():
    text, _ = page(evidence(series("train_loss", np.zeros(40))))
    assert ">-0" not in re.search(r'<svg class="plot".*?</svg>', text, re.DOTALL).group(0)


@pytest.mark.parametrize(
    ("found", "unasked"),
    [
        (series("higher_better_val", 1 - HEALTHY / 3, name="mAP50"), "accuracy"),
        (series("objective_loss", HEALTHY, name="ppo/loss/total"), "training loss"),
        (series("train_reward", -HEALTHY), "validation loss"),
    ],
)
def test_nobody_is_asked_for_what_the_run_has_another_metric_for(found, unasked):
    _, report = page(evidence(found))
    asked = missing_from(report)
    assert unasked not in [one.what for one in asked]
    codes = {code for one in asked for code in one.codes} | {one.code for one in not_applicable(report)}
    assert codes == {one.code for one in report.skipped}


def test_a_run_without_a_loss_has_the_numbers_of_its_main_metric():
    reward = series("train_reward", -HEALTHY, name="mean_reward")
    text, report = page(evidence(reward))
    assert "final mean_reward" in text
    assert "highest near step" in text
    both = comparison_page([row_of(report, evidence(reward))], title="x").decode()
    assert ">last value<" in both
    assert ">curve<" in both
    assert "Reward of all runs" in both
    assert "mean_reward</small>" in both


def test_what_was_not_there_is_listed_once_with_the_way_to_get_it():
    text, report = page(evidence(*CASES["healthy"]))
    assert len([one for one in report.skipped if one.details.get("role") == "val_accuracy"]) == 7
    assert text.count("log it after each evaluation, as val_accuracy") == 1
    assert "GEN003, GEN004" in text


def test_every_rule_is_under_one_question():
    given = evidence(*CASES["nan"])
    report = diagnose(given, preset("default"))
    text, _ = page(given)
    for result in report.results:
        assert text.count(f"<b>{result.code} {result.name}</b>") == 1 + (result in report.findings)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_comparison(name):
    rows = []
    for case, found in CASES.items():
        given = evidence(*found, name=f"{case} {name}")
        rows.append(row_of(diagnose(given, preset("default")), given))
    text = comparison_page(rows, title=name).decode()
    is_harmless(text)
    assert len(text.encode()) <= LARGEST
    assert text.count("<tr role") == len(CASES) + 1
    drawn = {line["k"] for line in data_of(text)["plots"][0]["lines"]}
    assert drawn <= set(re.findall(r'data-line="(\d+)"', text))
    assert len(drawn) == sum(row.curve is not None for row in rows)


def test_the_comparison_can_be_filtered_by_what_its_rows_have():
    rows = []
    for case in ("healthy", "nan", "one point"):
        given = evidence(*CASES[case], name=case)
        rows.append(row_of(diagnose(given, preset("default")), given))
    elements = Elements(comparison_page(rows, title="x").decode()).found
    options = [attributes["value"] for tag, attributes in elements if tag == "option" and attributes["value"]]
    runs = [attributes for tag, attributes in elements if tag == "tr" and "data-verdict" in attributes]
    assert {run["data-verdict"] for run in runs} <= set(options)
    assert {run["data-cause"] for run in runs} - {""} <= set(options)
    assert {code for run in runs for code in run["data-rules"].split(", ")} - {""} <= set(options)
    assert "non-finite-loss" in options
    assert "LOS001" in options


def test_only_addresses_that_a_browser_may_open_become_links():
    given = evidence(*CASES["healthy"])
    report = diagnose(given, preset("default"))
    rows = [
        row_of(replace(report, run=replace(report.run, url=url)), given)
        for url in ("https://tracker/#/x", "javascript:alert(1)", "data:text/html,x", None)
    ]
    assert [row.link for row in rows] == ["https://tracker/#/x", "", "", ""]
    is_harmless(comparison_page(rows, title="links").decode())


@pytest.mark.slow
def test_the_comparison_of_many_runs_stays_small():
    noise = np.random.default_rng(0)
    rows = []
    for number in range(40):
        given = evidence(series("train_loss", HEALTHY + noise.normal(0, 0.1, 400)), name=f"run-{number}")
        rows.append(row_of(diagnose(given, preset("default")) if not rows else rows[0].report, given))
    assert len(comparison_page(rows, title="many")) <= 200_000
    assert len(comparison_page(rows * 8, title="many")) < 700_000


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
    given = evidence(*CASES["healthy"])
    told = ErrorEntry(source="a.jsonl", message="not JSON")
    lost = [ErrorEntry(source="a.jsonl", message="could not be judged: not JSON", code=f"LOS00{n}") for n in (1, 2)]
    report = replace(diagnose(given, preset("default")), errors=(told, told, *lost))
    text = page_of(given, report)[0].decode().partition('<script type="application/json"')[0]
    assert text.count("not JSON") == 1
    assert "Without a.jsonl not judged: LOS001, LOS002" in text


def test_rules_and_causes_link_to_the_documentation_where_it_is_served():
    given = evidence(series("train_loss", [2.0] * 10 + [float("nan")] * 10))
    report = diagnose(given, preset("default"))
    linked = page_of(given, report, "https://docs.example.com/th/")[0].decode()
    assert 'href="https://docs.example.com/th/rules/LOS001.html"' in linked
    unlinked = page_of(given, report)[0].decode()
    assert "docs.example.com" not in unlinked
    assert "tracker-health explain LOS001" in unlinked


def test_the_page_explains_each_finding_without_a_network():
    given = evidence(*CASES["nan"])
    report = diagnose(given, preset("default"))
    text = pages.report_page(report, given).decode()
    for finding in report.findings:
        said = dict(help_on(finding.code))
        assert list(said) == ["What it finds", "When it is wrong", "How to silence it"]
        assert f'ignore = ["{finding.code}"]' in said["How to silence it"]
        assert all(
            html.escape(one, quote=True).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in text
            for one in said.values()
        )
    assert help_on("XYZ999") == ()


def test_the_help_on_any_rule_and_cause_is_short():
    for known in (*(help_on(one.code) for one in probe_classes()), *(help_on_cause(one.name) for one in CAUSES)):
        assert 0 < sum(map(len, (text for _, text in known))) < 1300
        assert not any("`" in text or "**" in text for _, text in known)


@pytest.mark.parametrize(
    ("store", "run", "url", "address"),
    [
        ("mlflow", "abc", "http://tracker/#/experiments/1/runs/abc", "'http://tracker/#/experiments/1/runs/abc'"),
        ("mlflow", "abc", None, "mlflow:abc"),
        ("wandb", "me/p/abc", "https://tracker/me/p/runs/abc", "wandb:me/p/abc"),
        ("wandb", "/w/run 1; ls", None, "'/w/run 1; ls'"),
        ("directory", "/runs/a", None, ""),
    ],
)
def test_a_run_of_a_tracker_has_the_command_that_answers_its_verdict(store, run, url, address):
    given = evidence(*CASES["nan"])
    report = diagnose(given, preset("default"))
    report = replace(report, run=RunRef(store=store, id=run, name="run", url=url))
    codes = " ".join(one.code for one in report.findings)
    expected = f'tracker-health ack {address} {codes} --because "WHY"' if address else ""
    text = pages.report_page(report, given).decode()
    assert data_of(text)["ack"] == expected
    assert ("Known, or meant?" in text) == bool(expected)
    answered = pages.report_page(replace(report, open=()), given).decode()
    assert data_of(answered)["ack"] == "", "nothing is open"


def test_the_text_of_an_issue_says_which_run_and_which_version():
    given = evidence(
        series("train_loss", np.where(STEPS > 300, np.nan, HEALTHY), name="train_loss (all)"), name="run-1"
    )
    report = diagnose(given, preset("default"))
    report = replace(report, run=replace(report.run, url="https://tracker/a (b)"))
    lines = data_of(pages.report_page(report, given).decode())["issue"].splitlines()
    assert lines[0] == "### FAIL run-1"
    assert lines[-3] == "Run: `/runs/run-1` ([page](https://tracker/a%20%28b%29))"
    assert lines[-1] == f"Judged by tracker-health {report.tool.version}, default rules."
    assert not any("\\" in line for line in lines)
    assert "train_loss (all)" in "".join(lines)


def test_the_page_of_a_run_that_passed_says_why_first():
    report = replace(
        diagnose(evidence(*CASES["healthy"]), preset("default")), summary="loss 2.3 -> 0.3, level; 30 checks"
    )
    assert pages.headline_of(report) == ("Loss 2.3 -> 0.3, level.", "30 checks.")


def test_what_somebody_answered_stands_below_the_verdict():
    given = evidence(series("train_loss", [2.0] * 10 + [float("nan")] * 10))
    report = diagnose(given, preset("default"))
    answer = Acknowledgement(
        id="1", who="ana <b>", because="a known gap in the data", when=1_700_000_000.0, codes=("LOS001",)
    )
    text = pages.report_page(replace(report, acknowledged=(answer,), open=("GRD001",)), given).decode()
    assert "acknowledged by ana &lt;b&gt;" in text
    assert "a known gap in the data. Still open: GRD001" in text
