"""The pages: links lead somewhere, every rule and cause has its page, captions say what the rules say today."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import tracker_health
from tracker_health.diagnosis import CAUSES
from tracker_health.render.calibration import calibration, how_often_right
from tracker_health.render.rule_page import can_fail
from tracker_health.rules.registry import BUILT_IN

pytestmark = pytest.mark.prose

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))

from gallery import checkpoints, choosing, curves  # noqa: E402

PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
HEADINGS = ("Why it matters", "How it decides", "What to do", "When it is wrong", "How often it is right", "See also")
MOST_BYTES = 15_000


def anchors_of(page):
    """The anchors that GitHub and MkDocs both give a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def test_links_lead_somewhere_in_the_repository():
    for page in PAGES:
        for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            if ":" in target:
                continue
            there = (page.parent / path) if path else page
            assert there.exists(), f"{page.name} links {target}"
            if anchor and there.suffix == ".md":
                assert anchor in anchors_of(there), f"{page.name} links {target}"


def test_every_rule_has_its_page():
    for rule in BUILT_IN:
        text = (DOCS / "rules" / f"{rule.code}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {rule.code} · {rule.name}\n")
        wanted = [one for one in HEADINGS if one != "How often it is right" or how_often_right(rule.code)]
        assert wanted == list(HEADINGS) or rule.status == "preview", "what votes was measured"
        assert [one for one in re.findall(r"^## (.+)$", text, re.MULTILINE) if one in HEADINGS] == wanted
        assert f'ignore = ["{rule.code}"]' in text


def test_captions_are_what_the_rule_says():
    for rule in BUILT_IN:
        text = (DOCS / "rules" / f"{rule.code}.md").read_text(encoding="utf-8")
        by_file = {f"{rule.code}-{one.entry.name}.svg": one for one in choosing.judged()}
        captions = re.findall(r"!\[[^\]]*\]\(\.\./gallery/([^)]+)\)<br>\*\*(\w+)\*\* ([^|]*)", text)
        assert any(verdict in ("WARN", "FAIL") for _, verdict, _ in captions) or rule.status == "preview"
        for file, verdict, said in captions:
            assert (DOCS / "gallery" / file).exists()
            result = by_file[file].result(rule.code)
            assert (verdict, said[:20]) == (
                result.verdict.upper(),
                f"{by_file[file].entry.title}: {result.message}"[:20],
            )
            assert verdict != "FAIL" or can_fail(rule)


def test_every_rule_passes_what_comes_close_to_it():
    """The near misses that the gallery names, of rules that there are."""
    known = {rule.code for rule in BUILT_IN}
    for one in choosing.judged():
        for code in one.entry.near.split():
            assert code in known
            result = one.result(code)
            assert result is None or result.verdict == "pass", (
                f"{code} does not pass {one.entry.name}: {result.message}"
            )
    names = {one.entry.name for one in choosing.judged()}
    assert {*curves.NEAR, *checkpoints.NEAR} <= names


def test_healthy_runs_of_the_gallery_pass():
    for name in (
        "healthy",
        "noisy",
        "restart",
        "generalises",
        "reward-rises",
        "checkpoint-usual",
        "moved",
        "whole",
        "busy",
    ):
        report = next(one.usual for one in choosing.judged() if one.entry.name == name)
        assert (name, report.verdict) == (name, "pass")


def test_pictures_are_small_and_hold_nothing_but_shapes():
    files = list((DOCS / "gallery").glob("*.svg"))
    assert len(files) > 200
    for file in files:
        assert file.stat().st_size < MOST_BYTES
        tags = {element.tag.rpartition("}")[2] for element in ET.parse(file).iter()}
        assert tags <= {"svg", "title", "style", "path", "text", "circle", "rect", "g"}


def test_every_cause_has_its_page():
    for cause in CAUSES:
        text = (DOCS / "causes" / f"{cause.name}.md").read_text(encoding="utf-8")
        assert text.startswith(f"# {cause.name}\n")
        assert all(f"## {title}" in text for title in ("How it is recognised", "What to do", "How to be sure"))


def test_every_public_name_is_on_the_page_on_python():
    listed = set(re.findall(r"^::: .*\.(\w+)$", (DOCS / "python.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(tracker_health.__all__) - {"__version__"} <= listed


def test_every_rule_says_what_was_measured():
    for rule in BUILT_IN:
        alarms, _, when = calibration(rule.code)
        assert "certified healthy validation runs" in alarms
        assert when.startswith("Measured on 20")
