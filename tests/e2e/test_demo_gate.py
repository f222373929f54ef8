"""Demo of a dev server that other machines reach, opened in a browser with the printed address."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, expect

if TYPE_CHECKING:
    from e2e.browser import ServerProcess

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

GATE = "a-gate-token-that-is-long-enough-to-keep"


def test_the_printed_address_opens_the_demo_and_another_address_does_not(
    chromium: Browser, serve: Callable[..., AbstractContextManager[ServerProcess]]
) -> None:
    exposed = {"GREENDOT_SERVER_DEV_HOST": "0.0.0.0", "GREENDOT_SERVER_DEV_GATE": GATE}
    with serve(GREENDOT_API_KEY="k" * 32, **exposed) as site:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(site.url)
        expect(page.locator("body")).to_contain_text("requires its gate token")
        page.goto(f"{site.url}?gate={GATE}")
        assert page.url == site.url  # the token is a cookie now
        other = context.new_page()
        other.goto(site.url)
        for tab, name in ((page, "Alice"), (other, "Bob")):
            tab.get_by_role("textbox").first.fill(name)
            tab.keyboard.press("Enter")
        expect(page.locator("body")).to_contain_text("Bob")
        context.close()
