"""Page with the API documents in a browser, with a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from e2e.axe import faults
from greendot.app.http import document
from greendot.protocol.codec import decode_command
from greendot.protocol.commands import COMMANDS
from wire_described import DOCUMENT as WIRE
from wire_described import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1280, "height": 900}}
SAMPLES = """() => {
  for (const one of document.querySelectorAll(".entry")) one.open = true;
  return new Promise((resolve) => setTimeout(() => resolve(Object.fromEntries(
    [...document.querySelectorAll(".entry")].map((one) => [one.id, one.querySelector("pre")?.textContent ?? ""])))));
}"""


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve() as process:
        yield process


def test_everything_of_both_documents_is_shown_and_the_examples_are_right(
    open_tab: OpenTab, site: ServerProcess
) -> None:
    page = open_tab(url=f"{site.url}docs", **WIDE).page
    expect(page.locator("#found")).to_contain_text("entries")
    samples = page.evaluate(SAMPLES)
    operations = {one["operationId"] for methods in document()["paths"].values() for one in methods.values()}
    wire = {f"wire-{name}" for name in WIRE["components"]["messages"]} | {"wire-close-codes"}
    assert samples.keys() == operations | wire
    for name in COMMANDS:
        example = json.loads(samples[f"wire-{name}"])
        said(example)
        decode_command(json.dumps(example))
    assert "Authorization: Bearer" in samples["put_rooms_room"]
    assert f"{site.url}v1/rooms/lobby" in samples["put_rooms_room"]
    assert page.locator("#wire-close-codes").inner_text().count("\n4") >= 10


def test_what_is_looked_for_is_found_by_keyboard_alone(open_tab: OpenTab, site: ServerProcess) -> None:
    page = open_tab(url=f"{site.url}docs", **WIDE).page
    expect(page.locator(".entry").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#needle")).to_be_focused()
    page.keyboard.type("expires_in_ms")  # name of a field
    expect(page.locator("#found")).to_contain_text(" of ")
    expect(page.locator("[id='wire-typing.started']")).to_be_visible()
    expect(page.locator("[id='wire-watch']")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("[id='wire-watch']")).to_be_visible()
    page.keyboard.type("room.send")
    page.keyboard.press("Enter")
    entry = page.locator("[id='wire-room.send']")
    expect(entry).to_have_attribute("open", "")
    expect(entry.locator("summary")).to_be_focused()
    entry.get_by_role("link", name="SendReply").press("Enter")
    expect(page.locator("[id='wire-SendReply']")).to_have_attribute("open", "")
    page.locator("#needle").fill("xyzzy")
    expect(page.locator("#found")).to_have_text("No entry matches. Try another word.")


def test_the_docs_page_is_readable_on_every_screen(open_tab: OpenTab, site: ServerProcess) -> None:
    for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
        tab = open_tab(url=f"{site.url}docs#post_notifications", color_scheme=scheme, **size)
        expect(tab.page.locator("#post_notifications .about")).to_be_visible()
        assert not tab.overflows
        tab.page.locator("#needle").fill("inbox.badge")
        tab.page.locator("[id='wire-inbox.badge'] summary").click()
        assert not tab.overflows
    # On a phone the list of contents is closed at first.
    tab.page.locator("#needle").fill("")
    link = tab.page.locator("#contents").get_by_role("link", name="hello", exact=True)
    expect(link).to_be_hidden()
    tab.page.locator("#menu > summary").click()
    link.click()
    expect(link).to_be_hidden()
    expect(tab.page.locator("[id='wire-hello'] .about")).to_be_visible()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_the_docs_page_has_no_accessibility_faults(
    open_tab: OpenTab, site: ServerProcess, size: dict[str, Any], scheme: str
) -> None:
    page = open_tab(url=f"{site.url}docs#put_rooms_room", color_scheme=scheme, **size).page
    expect(page.locator("#put_rooms_room .about")).to_be_visible()
    page.locator("#needle").fill("room.count")
    page.locator("[id='wire-room.count'] summary").click()
    # Check a few entries of each type: all of them would take axe half a minute.
    page.evaluate("document.querySelectorAll('[hidden]').forEach((element) => element.remove())")
    page.evaluate("scrollTo(0, 0)")  # axe reports elements half behind the bar as small targets
    assert faults(page) == []
