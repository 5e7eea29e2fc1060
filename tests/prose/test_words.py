"""What people read is plain English: none of the words that a plainer one says better, and no sentence that runs on.

It reads the pages, every docstring, and every text in the code that has a space in it: messages, remedies and help.
Lists of names (``word_set("a b")``, ``codes("A001 A002")``) and regular expressions are no prose.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.prose

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted((ROOT / "src").rglob("*.py"))
LONGEST = 25
"""Words of a sentence."""

NO_PROSE = {"word_set", "codes", "compile"}
"""Functions whose text is a list of names or a regular expression."""

PLAINER = {
    r"\b(?:is|are|was|were|be) told\b": "is reported",
    r"\btells? of\b|\btold of\b": "shows, reports",
    r"\btells? apart\b|\btold apart\b": "distinguishes",
    r"\bbears?\b|\bbore\b|\bborne\b": "has",
    r"\b(?:its|their) like\b": "comparable ones",
    r"\banew\b": "again",
    r"\bamid\b": "between, among, during",
    r"\bmend(?:s|ed|ing)?\b|\bamiss\b": "fix, wrong",
    r"\bleapt\b|\bleaps?\b": "jumped, jumps",
    r"\bby heart\b": "memorises",
    r"\bhangs? on\b": "depends on",
    r"\bby the params\b": "according to the params",
    r"\bsound (?:trainings?|runs?|models?|ones?)\b|\bsick\b": "healthy, faulty",
    r"\bcome to first\b": "whichever comes first",
    r"\bleft word\b": "recorded",
    r"\bas large as layers begin\b": "still the size of a fresh initialisation",
    r"\b(?:everything|all|nothing) of ours\b": "everything tracker-health wrote",
    r"\bfrom (?:which|this verdict) on\b": "at this verdict or worse",
    r"\bso many runs at once\b": "N runs in parallel",
    r"\bfor ever\b": "until stopped",
    r"\btroubles?\b": "error",
    r"\blies? upon\b|\bis had\b|\bis come\b": "overlaps, is available, has arrived",
    r"\bas where\b": "as if, as when",
    r"\bthan this training stands\b": "than this training tolerates",
    r"\bof (?:which|whose) chains\b": "two sentences",
}
RARE = {
    r"\bsurely\b": "clearly",
    r"\b(?:stands?|stood|lies?|lay) (?:at|above|below|before|behind|beside|between|next to|within)\b": "is",
    r"\bbeside\b": "next to, compared with, in addition to",
    r"\bgoes on\b": "continues, is still running",
    r"\bnext to nothing\b|\bhardly\b": "almost zero, barely",
    r"\bsomebody\b|\bby whomever\b": "someone, by anyone",
    r"\bno vote\b": "informational",
    r"\bdoomed\b|\bdied without a word\b": "failing, crashed silently",
    r"\bforms? of (?:a )?logs?\b": "log format",
    r"\blevel of guessing\b": "chance level",
}
"""Words that have a place, but only here and there: each ``MOST`` times in all texts together."""

MOST = 5


def paragraphs(text):
    """What is prose in it, without code, tables, headings, pictures, trees and emphasis."""
    text = re.sub(r"```.*?```|<[^>]+>|\*\*", " ", text, flags=re.DOTALL)
    text = re.sub(r"``[^`]*``|`[^`]*`", "_", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!", "├", "└")))
    for part in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", kept):
        yield " ".join(part.split())


def sentences(text):
    for part in paragraphs(text):
        if " · " not in part:
            yield from re.split(r"(?<=[.!?:;])\s+|(?<=[.!?]\))\s+", part)


def texts_in(path):
    """The docstrings and the other texts of a module, each with its line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    no_prose = {id(text) for node in ast.walk(tree) if called(node) in NO_PROSE for text in node.args}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
        if is_text and id(node) not in no_prose:
            yield node.lineno, node.value


def called(node):
    """The name of the function that a node calls, without what it is looked up in; None of other nodes."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)


def read(path):
    if path.suffix == ".md":  # lines that are indented are code
        return [(1, re.sub(r"^    .*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE))]
    return list(texts_in(path))


@cache
def all_texts():
    return [(path, line, text) for path in (*PAGES, *MODULES) for line, text in read(path)]


def without_code(text):
    return re.sub(r"``[^`]*``|`[^`]*`|```.*?```", "_", text, flags=re.DOTALL)


def listed_words(text, words=PLAINER):
    text = without_code(text)
    return [f"{found.group()!r}: say {better}" for word, better in words.items() for found in re.finditer(word, text)]


def too_long(text):
    return [one for one in sentences(text) if len(re.findall(r"[A-Za-z][\w'-]*", one)) > LONGEST]


def name(path):
    return str(path.relative_to(ROOT))


def test_plainer_words_are_used():
    found = [f"{name(path)}:{line}: {word}" for path, line, text in all_texts() for word in listed_words(text)]
    assert not found


@pytest.mark.parametrize("word", RARE)
def test_a_rare_word_stays_rare(word):
    only = {re.compile(word, re.IGNORECASE): RARE[word]}
    found = [f"{name(path)}:{line}: {one}" for path, line, text in all_texts() for one in listed_words(text, only)]
    assert len(found) <= MOST, found


def test_sentences_end():
    found = [f"{name(path)}:{line}: {one}" for path, line, text in all_texts() for one in too_long(text)]
    assert not found


def test_a_listed_word_is_found():
    assert listed_words("a run that bears a verdict, as is told anew") == [
        "'is told': say is reported",
        "'bears': say has",
        "'anew': say again",
    ]
    assert listed_words("the key `bears` stays") == []


def test_a_list_of_names_is_no_prose(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('A = word_set("a b")\nB = re.compile(r"a b")\nC = note("a b")\n')
    assert list(texts_in(module)) == [(3, "a b")]


def test_a_sentence_that_runs_on_is_found():
    assert too_long("word " * 26)
    assert not too_long("word " * 25)
    assert not too_long("one two. " * 30)
    assert not too_long("**One two.** (Three four.) " * 30)
