"""Documentation site: it builds without a warning, and the claims of its pages are true."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from docs.test_documents import DOCS, defaults, table
from greendot.config import Kind, Settings
from greendot.connect import dispatch
from greendot.protocol import commands
from greendot.protocol.codec import MAX_FRAME
from greendot.transport import send_buffer_model

ROOT = DOCS.parent
SITE = ROOT / "build" / "site"


@pytest.fixture(scope="module")
def site() -> Path:
    if find_spec("mkdocs") is None:
        reason = "mkdocs-material is not installed; run: make docs"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / "site"], capture_output=True, text=True, timeout=110, cwd=ROOT
    )
    # Broken links and anchors, and pages missing in the menus of mkdocs.yml, fail the build.
    assert result.returncode == 0, f"{result.stdout}{result.stderr}\n(menus are in mkdocs.yml, under nav)"
    return SITE


@pytest.mark.timeout(120)
def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    assert len(pages) > 60
    loaded = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//|<link\b[^>]*\brel=["']?stylesheet"""
        r"""["']?[^>]*href=["']?(?:https?:)?//"""
    )
    assert [path.name for path, text in pages.items() if loaded.search(text)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", style.read_text()), style


@pytest.mark.timeout(120)
def test_every_page_can_be_found_in_the_menu_and_by_searching(site: Path) -> None:
    home = (site / "index.html").read_text()
    for page in DOCS.rglob("*.md"):
        built = site / page.relative_to(ROOT).with_suffix(".html")
        name = str(built.relative_to(site))
        assert name in home or name.replace("README.html", "index.html") in home, page
    found = msgspec.json.decode((site / "search" / "search_index.json").read_bytes())["docs"]
    assert any("lingering" in one["text"] for one in found)


def test_the_flows_are_drawn_from_their_files_and_shown() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "draw-flows"))["drawn"]
    page = (DOCS / "architecture.md").read_text()
    files = sorted((DOCS / "flows").glob("*.flow"))
    wanted = ["connect", "drain", "leave", "notify", "recover", "send", "type", "watch"]
    assert [file.stem for file in files] == wanted
    for file in files:
        assert file.with_suffix(".svg").read_text() == drawn(file), "run scripts/draw-flows"
        assert f"](flows/{file.stem}.svg)" in page


# --- the checklist ---


def known_settings() -> set[str]:
    found = {f"kinds.{name}" for name, _ in defaults(Kind)}
    for section in msgspec.structs.fields(Settings):
        if section.name not in ("kinds", "tenants"):
            found |= {f"{section.name}.{name}" for name, _ in defaults(section.type)}
    return found


def test_the_checklist_answers_every_question_with_settings_and_tests_there_are() -> None:
    rows = table("checklist.md", "# Operational checklist")
    assert len(rows) == 21
    for question, (answer, settings, tests) in rows.items():
        assert question.endswith("?")
        assert len(answer) > 40
        assert {*re.findall(r"`([a-z_.]+)`", settings)} <= known_settings(), question
        named = re.findall(r"`(tests/[\w/]+\.py)`", tests)
        assert named, question
        assert all((ROOT / name).exists() for name in named), question
    metrics = (DOCS / "metrics.md").read_text()
    for name in re.findall(r"`((?:realtime|ws|presence)_\w+)`", (DOCS / "checklist.md").read_text()):
        assert f"`{name}`" in metrics, name


# --- limits ---


def most(kind: object) -> int:
    """Return the bound of a type from its JSON Schema."""
    schema = msgspec.json.schema(kind)
    found = next(schema[name] for name in ("maxItems", "maxLength", "maximum") if name in schema)
    assert isinstance(found, int)
    return found


def test_fixed_limits_are_those_of_the_code() -> None:
    rows = {what: cells[0] for what, cells in table("settings.md", "## Fixed limits").items()}
    code = {
        "a frame from a client": MAX_FRAME,
        "an id": most(commands.Id),
        "users in one `watch` or `presence.get` command": most(commands.Users),
        "a status text": most(commands.Text),
        "messages in a page of `room.history`, or recovered at once": most(commands.Limit),
        "commands that wait behind a running command of the same connection": dispatch.MOST_WAITING,
        "messages, notifications and replies that wait for a slow client": send_buffer_model.MAX_RECORD_BYTES,
    }
    for what, bound in code.items():
        assert rows[what].startswith(f"{bound:,}"), what
    assert rows["signals that wait for a slow client"].startswith(
        f"{send_buffer_model.MAX_SIGNAL_KEYS:,} signals and {send_buffer_model.MAX_SIGNAL_BYTES:,} bytes."
    )
    assert rows["a sequence number"] == "2^53"
    assert most(commands.Seq) == 2**53


def test_limits_that_can_be_set_have_these_defaults() -> None:
    for what, (settings, default) in table("settings.md", "## Configurable limits").items():
        for name in re.findall(r"`([a-z_.]+)`", settings):
            section, _, key = name.partition(".")
            value = getattr(getattr(Settings(), section), key)
            assert f"{value:,.0f}" in default, what


# --- the comparison ---


def test_every_claim_about_others_has_a_source_and_every_source_a_claim() -> None:
    claims, _, sources = (DOCS / "comparison.md").read_text().partition("\n## Sources\n")
    used = {mark for group in re.findall(r"\[([A-Z]\d(?:, [A-Z]\d)*)\]", claims) for mark in group.split(", ")}
    given = {*re.findall(r"^- ([A-Z]\d): .*https://", sources, re.MULTILINE)}
    assert used == given
    assert re.search(r"Looked up on \d+ \w+ \d{4}\.", sources)
