"""The components of @greendot/react in a real browser: accessibility, keyboard, light and dark, phone and desktop."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from clients.javascript import CLIENTS, installed
from e2e.axe import faults

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
SECTIONS = ["Avatar", "Facepile", "TypingLine", "InboxBell"]


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the page with all components in all states, and return its address."""
    installed()
    file = tmp_path_factory.mktemp("stories") / "index.html"
    command = ["node", "react/stories/build.mjs", str(file)]
    built = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_component_is_accessible_in_each_state(
    stories: str, chromium: Browser, device: dict[str, Any], scheme: str
) -> None:
    context = chromium.new_context(**device, color_scheme=scheme)
    problems: list[str] = []
    try:
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(stories)
        expect(page.locator("h2")).to_have_text(SECTIONS)
        expect(page.get_by_role("alert")).to_contain_text("the server is overloaded")
        expect(page.locator(".gd-notification")).to_have_count(4)
        assert faults(page, colours_only=scheme == "dark") == []
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert problems == []
    finally:
        context.close()


def test_the_bell_is_operated_by_keys(stories: str, chromium: Browser) -> None:
    page = chromium.new_page()
    try:
        page.goto(stories)
        bell = page.locator("figure", has=page.get_by_text("three unread", exact=True)).get_by_role("button")
        bell.focus()
        page.keyboard.press("Enter")
        panel = page.locator("figure", has=page.get_by_text("three unread", exact=True)).get_by_role("dialog")
        expect(panel).to_be_focused()
        expect(bell).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("Escape")
        expect(panel).to_have_count(0)
        expect(bell).to_be_focused()
        opened = page.locator("figure", has=page.get_by_text("open", exact=True))
        opened.get_by_role("dialog").focus()
        page.keyboard.press("End")
        expect(opened.get_by_role("button", name="Alice mentioned you")).to_be_focused()
        page.keyboard.press("Home")
        expect(opened.get_by_role("button", name="Unread: Carol replied")).to_be_focused()
        page.keyboard.press("Enter")
        expect(opened.get_by_role("button", name="Carol replied", exact=True)).to_be_focused()
        while opened.get_by_role("dialog").count():
            page.keyboard.press("Tab")  # beyond the last button, the panel closes
        expect(opened.get_by_role("button")).to_have_attribute("aria-expanded", "false")
    finally:
        page.close()
