"""Prose of the documents: plain words, short sentences, lines of one width, headings that name their subject."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MOST_WORDS = 30  # in a sentence
WIDTH = 160  # of a line that is neither a table row nor code

# Words for people, and words with a plain replacement. The glossary has the nouns to use.
RETIRED = {
    "anybody": "any client, any user",
    "everybody": "all users",
    "nobody": "no user, no client",
    "somebody": "a user, an operator",
    "whoever": "the user who, the client that",
    "tell": "publish, send, report",
    "tells": "publishes, sends, reports",
    "telling": "publishing, sending",
    "told": "published, sent, reported",
    "hear": "receive",
    "hears": "receives",
    "heard": "received",
    "says": "states, reports, contains",
    "said": "stated, reported",
    "saying": "stating, reporting",
    "comings and goings": "presence changes",
    "so many": "the number",
    "so long": "the time",
}
RIDDLES = re.compile(r"(what|who|whose|whom|whether|how|when|where|which|why|it|that|those|beside)\b", re.IGNORECASE)

# Texts that other programs print, or that are made from the types of the JavaScript packages.
GENERATED = ("docs/reference/",)
# Pages outside docs/.
ELSEWHERE = (
    "README.md",
    "CONTRIBUTING.md",
    "clients/behaviour/README.md",
    "clients/js/README.md",
    "clients/react/README.md",
    "clients/vue/README.md",
    "clients/server/README.md",
    "examples/README.md",
    "bench/RESULTS.md",
)
# Records of past decisions keep their sentences and words. Their titles and the index follow the rules.
DECISIONS = "docs/adr/0"

_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
# Tables in bench/RESULTS.md that programs print. Tests and constants refer to their rows by name.
_MEASURED = re.compile(r"<!-- (figures|sizing): begin.*?<!-- \1: end -->", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]+`")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_SENTENCE = re.compile(r"(?<=[.;!?])[*_)\"”]*\s+")


@cache
def pages() -> tuple[Path, ...]:
    found = [*(ROOT / place for place in ELSEWHERE), *sorted(DOCS.rglob("*.md"))]
    return tuple(page for page in found if not name(page).startswith(GENERATED))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def lines(page: Path) -> tuple[tuple[int, str], ...]:
    """Return the numbered lines of a page without its fenced code and comments."""
    text = page.read_text()
    for pattern in (_FENCE, _MEASURED, _COMMENT):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    return tuple(enumerate(text.splitlines(), 1))


def plain(text: str) -> str:
    """Replace links by their words, and code by one word."""
    return _LINK.sub(r"\1", _CODE.sub("CODE", text))


def paragraphs(page: Path) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, list item, heading and table cell with the number of its first line."""
    first, parts = 0, list[str]()
    for number, line in (*lines(page), (0, "")):
        if parts and (not line.strip() or _ITEM.match(line) or line.startswith(("|", "#"))):
            yield first, plain(" ".join(parts))
            parts = []
        if line.startswith("|"):
            cells = line.strip("|").replace("\\|", "/").split("|")
            yield from ((number, plain(cell.strip())) for cell in cells)
        elif line.strip():
            first = first if parts else number
            parts.append(_ITEM.sub("", line).strip())


def long_sentences(text: str) -> list[str]:
    return [sentence for sentence in _SENTENCE.split(text) if len(sentence.split()) > MOST_WORDS]


def retired_words(text: str) -> list[str]:
    found = re.findall(rf"\b({'|'.join(RETIRED)})\b", text, re.IGNORECASE)
    return [f"{word}: {RETIRED[word.lower()]}" for word in found]


def offences(page: Path) -> list[str]:
    texts = [(number, text) for number, text in paragraphs(page) if not name(page).startswith(DECISIONS)]
    found = [f"{number}: {sentence}" for number, text in texts for sentence in long_sentences(text)]
    found += [f"{number}: {word}" for number, text in texts for word in retired_words(text)]
    for number, line in lines(page):
        if len(line) > WIDTH and not line.startswith(("|", "![")) and "https://" not in line:
            found.append(f"{number}: {len(line)} characters in a line, {WIDTH} are allowed")
        heading = re.match(r"#+ (?:\d+\. )?(.*)", line)
        if heading and RIDDLES.match(heading[1]):
            found.append(f"{number}: name the subject in the heading: {heading[1]}")
    return found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_a_page_is_plain_english(page: Path) -> None:
    assert offences(page) == []


def test_unreleased_changes_are_plain_english() -> None:
    """Check the part of the changelog about the next version. Parts about released versions are history."""
    page = ROOT / "CHANGELOG.md"
    releases = [number for number, line in lines(page) if line.startswith("## ") and "(unreleased)" not in line]
    end = min(releases, default=sys.maxsize)
    texts = [(number, text) for number, text in paragraphs(page) if number < end]
    assert [
        f"{number}: {found}" for number, text in texts for found in (*long_sentences(text), *retired_words(text))
    ] == []


def test_offences_are_found() -> None:
    """Check the rules themselves with one text for each."""
    assert retired_words("Nobody is told.") == ["Nobody: no user, no client", "told: published, sent, reported"]
    assert long_sentences("word " * 31) != []
    assert long_sentences("word " * 20 + "end. " + "word " * 20) == []
    assert RIDDLES.match("What it costs")


def test_every_page_is_in_the_index_with_its_kind() -> None:
    index = (DOCS / "README.md").read_text()
    listed = {
        *re.findall(r"^\| \[[^\]]+\]\(([^)]+)\) \| (?:tutorial|guide|reference|explanation) \|", index, re.MULTILINE)
    }
    there = {page.relative_to(DOCS).as_posix() for page in (*DOCS.glob("*.md"), *DOCS.glob("guides/*.md"))}
    assert there - {"README.md"} <= listed


def test_every_decision_is_in_the_index_with_its_title() -> None:
    index = (DOCS / "adr" / "README.md").read_text()
    for record in DOCS.glob("adr/0*.md"):
        number, _, title = record.read_text().partition("\n")[0].removeprefix("# ").partition(". ")
        assert f"| {number} | [{title}]({record.name}) | " in index, record.name
