"""Documentation site: it builds without a warning, and the claims of its pages are true."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page, expect

from docs.test_documents import DOCS, defaults, table
from e2e.axe import faults
from greendot.config import Kind, Settings
from greendot.connect import dispatch
from greendot.protocol import commands
from greendot.protocol.codec import MAX_FRAME
from greendot.transport import send_buffer_model

pytest_plugins = ("e2e.browser",)
ROOT = DOCS.parent
SITE = ROOT / "build" / "site"
IMAGES = DOCS / "images"
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1360, "height": 900}}
# Pairs of a copy button and its code, that overlap or leave their block; and the number of all pairs.
COVERED = """() => {
  const blocks = [...document.querySelectorAll("pre:has(> code)")].filter((one) => one.checkVisibility());
  const bad = blocks.filter((block) => {
    const [outer, code, button] = [block, block.querySelector("code"), block.querySelector("button")]
      .map((one) => one.getBoundingClientRect());
    const overlaps = code.right > button.left && code.top < button.bottom && button.top < code.bottom;
    return overlaps || button.right > outer.right + 1 || button.bottom > outer.bottom + 1 || button.width < 24;
  });
  return [bad.map((one) => one.textContent.slice(0, 60)), blocks.length];
}"""


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


def test_an_address_that_leads_nowhere_is_found(site: Path, tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "site"), run_name="site")
    forge = "https://forge.example/team/greendot/blob/main"
    right = f"""<a href="other.html#there"></a><a href="#top" id="top"></a><a href="https://example.com/x"></a>
      <img src="a%20b.png"><a href="{forge}/docs/README.md#x"></a><a href="folder/"></a>
      <source srcset="a%20b.png 1x, /a%20b.png 2x">"""
    wrong = {
        '<a href="missing.html">': "the site has no such file",
        '<a href="other.html#nowhere">': "the page has no such anchor",
        '<a href="#nowhere">': "the page has no such anchor",
        '<img src="missing.png">': "the site has no such file",
        '<source srcset="a%20b.png 1x, missing.png 2x">': "the site has no such file",
        '<script src="missing.js"></script>': "the site has no such file",
        '<link href="missing.css">': "the site has no such file",
        '<a href="../outside.html">': "the site has no such file",
        f'<a href="{forge}/docs/missing.md">': "this repository has no such file",
    }
    (tmp_path / "folder").mkdir()
    for name in ("other.html", "folder/index.html", "a b.png"):
        (tmp_path / name).write_text('<p id="there">')
    (tmp_path / "index.html").write_text(right)
    assert script["broken_links"](tmp_path) == []
    for tag, fault in wrong.items():
        (tmp_path / "index.html").write_text(right + tag)
        (found,) = script["broken_links"](tmp_path)
        assert found.startswith("index.html: ")
        assert found.endswith(fault)


def test_files_that_pages_outside_the_site_link_to_exist() -> None:
    links = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")
    code = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
    patterns = ("*.md", "*/*.md", "deploy/**/*.md", "clients/*/README.md")
    pages = {page for pattern in patterns for page in ROOT.glob(pattern) if page.parts[len(ROOT.parts)] != "build"}
    assert ROOT / "speedups" / "README.md" in pages
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in sorted(pages)
        for target in links.findall(code.sub("", page.read_text()))
        if not (page.parent / target).exists()
    ]
    assert broken == []


# --- the front page ---


def test_the_front_page_has_the_features_of_the_readme_and_the_figures_of_the_bench(site: Path) -> None:
    home = (site / "index.html").read_text()
    features = (ROOT / "README.md").read_text().partition("## Features")[2].partition("\n## ")[0]
    names = re.findall(r"^\| \[([^\]]+)\]", features, re.MULTILINE)
    assert re.findall(r"<strong><a href=[^>]*>([^<]+)</a></strong>", home) == names
    tabs = re.findall(r'<label for="__tabbed_1_\d">([^<]+)<', home)
    assert tabs == ["Web page", "Python client", "Python backend", "Any backend"]
    results = (ROOT / "bench" / "RESULTS.md").read_text()
    row = re.search(r"^\| Greendot +\| ([\d,]+) \(.*?\| ([\d,]+) \(", results, re.MULTILINE)
    assert row is not None
    assert re.findall(r"class=own>.*?</span>([\d,]+)</td>", home) == [row[1], row[2]]


def test_the_animation_is_small_and_complete() -> None:
    for name in ("demo-light", "demo-dark", "demo-phone-light", "demo-phone-dark"):
        moving, still = ((IMAGES / f"{name}{end}.webp").read_bytes() for end in ("", "-still"))
        assert len(moving) <= 250_000
        assert len(still) <= 60_000
        assert int.from_bytes(moving[4:8], "little") == len(moving) - 8  # the size of the RIFF container
        assert moving.count(b"ANMF") >= 8
        assert b"ANMF" not in still


@pytest.fixture
def open_page(chromium: Browser, site: Path) -> Iterator[Any]:
    """Yield a function that opens a page of the site as a file. Fail if a page logs a fault or loads anything else."""
    contexts, faulty = [], list[str]()

    def opening(name: str = "index.html", **context: Any) -> Page:
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        page.on("request", lambda it: faulty.append(it.url) if not it.url.startswith(("file:", "data:")) else None)
        page.on("console", lambda it: faulty.append(it.text) if it.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: faulty.append(str(error)))
        page.goto((site / name).as_uri())
        return page

    yield opening
    for context in contexts:
        context.close()
    assert faulty == []


@pytest.mark.browser
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_the_front_page_fits_the_screen_and_its_animation_can_be_paused(
    open_page: Any, size: dict[str, Any], scheme: str
) -> None:
    page = open_page(color_scheme=scheme, **size)
    name = f"demo-phone-{scheme}" if size is PHONE else f"demo-{scheme}"
    expect_picture(page, f"{name}.webp")
    page.get_by_role("button", name="Pause").click()
    expect_picture(page, f"{name}-still.webp")
    page.get_by_role("button", name="Play").click()
    expect_picture(page, f"{name}.webp")
    page.emulate_media(reduced_motion="reduce", color_scheme=scheme)
    expect_picture(page, f"{name}-still.webp")
    expect(page.locator("#film button")).to_be_hidden()
    page.get_by_text("Python backend", exact=True).click()
    expect(page.get_by_text("server.notify")).to_be_visible()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    # The menus of the theme are not of this project: only its own content is checked.
    page.evaluate("document.querySelectorAll('header, nav, .md-sidebar, .md-overlay').forEach((one) => one.remove())")
    assert faults(page, colours_only=True) == []


def expect_picture(page: Page, name: str) -> None:
    """Wait until the browser has loaded and decoded this picture of the front page."""
    ready = "(name) => { const it = document.querySelector('#film img'); "
    page.wait_for_function(
        ready + "return it.currentSrc.endsWith(`/${name}`) && it.complete && it.naturalWidth > 0 }", arg=name
    )
    page.evaluate("document.querySelector('#film img').decode()")


@pytest.mark.browser
@pytest.mark.timeout(120)
def test_the_search_works_in_a_site_of_files(open_page: Any) -> None:
    page = open_page("docs/settings.html", **WIDE)
    page.locator("input.md-search__input").click()
    page.keyboard.type("redis keys")
    page.locator(".md-search-result__link", has=page.get_by_role("heading", name="Redis keys")).first.click()
    page.wait_for_url(re.compile("docs/redis-keys.html"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Redis keys")


@pytest.mark.browser
@pytest.mark.timeout(120)
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_copy_buttons_cover_no_code(open_page: Any, size: dict[str, Any]) -> None:
    for name in ("index.html", "docs/client.html", "docs/deploy.html"):
        page = open_page(name, **size)
        expect(page.locator("pre button").first).to_be_visible()
        covered, blocks = page.evaluate(COVERED)
        assert covered == [], name
        assert blocks > 1
        assert page.locator("pre:has(> code)").count() == page.locator("pre button").count()


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
