"""Links of reports to the documentation, and the documentation as a site."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

import tracker_health
from tracker_health.config import Config
from tracker_health.diagnosis import CAUSES
from tracker_health.judge.annotations import plan
from tracker_health.judge.doc_links import docs_link
from tracker_health.render.console import report_lines
from tracker_health.render.markdown import report_markdown
from tracker_health.render.rule_page import advice_in, numbered, plain
from tracker_health.rules.registry import BUILT_IN
from tracker_health.words.retired import RETIRED

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))

from build_site import staged  # noqa: E402

# docs_url


BASE = "https://docs.example.com/th"


@pytest.fixture
def rose(write_log, healthy_losses):
    """The report of a run that diverged."""
    return tracker_health.check(write_log([*healthy_losses, *[2.0 + one for one in healthy_losses[-100:]]]))


def everywhere(report, base):
    """What a person reads of a report, everywhere."""
    note = plan(report, "0" * 16, config=Config(docs_url=base)).note
    return [note, "\n".join(report_markdown(report, base)), "\n".join(report_lines(report, width=100, docs_url=base))]


def test_with_docs_url_reports_link_rules_and_causes(rose):
    code = rose.findings[0].code
    note, markdown, terminal = everywhere(rose, BASE)
    assert f"[`{code}`]({BASE}/rules/{code}.html)" in note
    assert f"[`{code}`]({BASE}/rules/{code}.html)" in markdown
    assert f"{BASE}/causes/{rose.diagnosis.cause}.html" in terminal
    assert "tracker-health explain" not in note


def test_without_docs_url_nothing_links_anywhere(rose):
    for text in everywhere(rose, ""):
        assert "http" not in text
        assert "](" not in text
    assert f"`tracker-health explain {rose.diagnosis.cause}`" in everywhere(rose, "")[0]


def test_each_link_has_its_page():
    for code in [rule.code for rule in BUILT_IN] + [one.code for one in RETIRED] + [cause.name for cause in CAUSES]:
        path = docs_link(code, f"{BASE}/").removeprefix(f"{BASE}/")
        assert (DOCS / path).with_suffix(".md").exists()
    assert docs_link("SND001", BASE) is None
    assert docs_link("LOS004", "") is None


def test_only_a_note_with_links_makes_another_digest():
    assert Config(docs_url="").digest == Config().digest != Config(docs_url=BASE).digest


@pytest.mark.parametrize(
    "value", ["ftp://a/b", "https://u:secret@host/", "javascript:alert(1)", "https://a/(b)", "https://a b"]
)
def test_docs_url_is_an_address(value, monkeypatch):
    from tracker_health.settings.sources import effective

    with pytest.raises(tracker_health.ConfigError) as failure:
        effective({}, environ={"TRACKER_HEALTH_DOCS_URL": value})
    assert "secret" not in str(failure.value)
    assert effective({}, environ={"TRACKER_HEALTH_DOCS_URL": f"{BASE}/"}).config.docs_url == BASE


def test_docs_url_may_come_from_the_policy(tmp_path, monkeypatch):
    from tracker_health.settings.sources import effective, under_policy

    policy = tmp_path / "policy.toml"
    policy.write_text(f'docs_url = "{BASE}"\n')
    monkeypatch.setenv("TRACKER_HEALTH_POLICY", str(policy))
    assert effective({}).config.docs_url == BASE
    assert under_policy(Config(), writes=True).docs_url == BASE
    assert under_policy(Config(docs_url="https://own"), writes=True).docs_url == "https://own"


# The template


def test_prose_becomes_steps_and_lists_stay():
    assert (
        numbered("One thing. `Two` things.\nThree e.g. four.") == "1. One thing.\n2. `Two` things.\n3. Three e.g. four."
    )
    assert numbered("- one. Two.\n- three.") == "- one. Two.\n- three."
    assert numbered("One alone.") == "One alone."


def test_advice_is_a_table_of_what_is_seen():
    prose, rows = advice_in("First look.\nthe loss jumps -> clip\n  gradients\nNaN -> bf16")
    assert (prose, rows) == ("First look.", [("the loss jumps", "clip gradients"), ("NaN", "bf16")])


def test_markdown_as_text():
    assert plain('<span class="b">a</span> [b](c.md) **d**') == "a b d"
    assert plain("| x | yy |\n|---|---|\n| aaa | b |\n") == "x    yy\naaa  b"


# The site


def test_links_are_made_for_the_site():
    given = PurePosixPath("docs/rules/LOS004.md")
    assert staged("[a](../../CONTRIBUTING.md#b)", given) == "[a](../contributing.md#b)"
    assert staged("[a](../../src/x.py)", given) == "`a`"
    assert staged("`[a](../../src/x.py)` [c](LOS003.md)", given) == "`[a](../../src/x.py)` [c](../rules/LOS003.md)"
    assert (
        staged("[a](docs/cli.md) [b](#here) [c](https://x)", PurePosixPath("CHANGELOG.md"))
        == "[a](cli.md) [b](#here) [c](https://x)"
    )


@pytest.mark.exhaustive  # make site builds it, strictly, before each change
def test_the_site_builds_and_is_whole():
    """Strict; no page asks another server for anything; every link and anchor in it is there."""
    pytest.importorskip("mkdocs", reason="MkDocs is not installed: make site")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "build_site.py"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    site = ROOT / "build" / "site"
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > len(BUILT_IN) + len(CAUSES)
    assert (site / "search" / "search_index.js").exists(), "the search of a page that was opened from a folder"
    ids = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="([^"]+)"', text)
        assert [one for one in loaded if re.match(r"(?:https?:)?//", one)] == []
        if path.name == "404.html":
            continue
        for target in re.findall(r'<a\b[^>]*?href="([^"]+)"', text):
            file, _, anchor = html.unescape(target).partition("#")
            if re.match(r"\w+:", file):
                continue
            there = (path.parent / file).resolve() if file else path
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{path.name} links {target}"
            assert not anchor or there not in ids or anchor in ids[there], f"{path.name} links {target}"
