"""Demo in each state, wide and narrow, light and dark: no axe violations and no horizontal overflow.

Screenshots are kept in the folder GREENDOT_TEST_PICTURES.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from e2e.axe import faults

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]
    Look = Callable[[Tab, str], None]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser
WIDE = {"viewport": {"width": 1280, "height": 800}}
NARROW = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LONG = "Maximiliana Wolfeschlegelsteinhausenbergerdorff the Third of That Name"


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve() as process:
        yield process


@pytest.fixture(params=[WIDE, NARROW], ids=["wide", "narrow"])
def size(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.fixture
def look(size: dict[str, Any]) -> Look:
    kept = os.environ.get("GREENDOT_TEST_PICTURES")

    def take(tab: Tab, state: str) -> None:
        for scheme in ("dark", "light"):
            tab.page.emulate_media(color_scheme=scheme)
            if kept:
                tab.page.screenshot(path=Path(kept) / f"{scheme}-{size['viewport']['width']}-{state}.png")
            assert not tab.overflows, state
            assert faults(tab.page, colours_only=scheme == "dark") == [], (state, scheme)

    return take


@pytest.fixture
def bob(open_tab: OpenTab) -> Tab:
    return open_tab("Bob Miller")


def test_the_door(open_tab: OpenTab, size: dict[str, Any], look: Look) -> None:
    tab = open_tab(reduced_motion="reduce", **size)
    look(tab, "door")
    tab.page.get_by_role("button", name="Join").click()
    look(tab, "door-nameless")


def test_the_chat_and_what_opens_over_it(open_tab: OpenTab, bob: Tab, size: dict[str, Any], look: Look) -> None:
    name = f"Ann {size['viewport']['width']}"
    user = name.lower().replace(" ", "-")
    ann = open_tab(name, reduced_motion="reduce", **size)
    look(ann, "arrived")
    open_tab("דנה לוי").say("שלום לכולם")
    long = open_tab(LONG)
    long.say("x" * 300)
    ann.say("mine")
    bob.open_room("design")
    bob.say("elsewhere")
    bob.open_room("lobby")
    bob.field.fill("typing")
    expect(ann.typing).to_have_text("Bob Miller is typing…")
    expect(ann.page.locator("#people li").nth(2)).to_be_attached()
    look(ann, "talking")
    with_list(ann, lambda: look_at_the_list(ann, bob, look))
    ann.page.locator("#here").click()
    look(ann, "who-is-here")
    ann.page.keyboard.press("Escape")
    ann.page.locator("#bell").click()
    look(ann, "inbox-empty")
    ann.page.get_by_role("button", name="Send me a notification").click()
    bob.open_person(user)
    bob.page.get_by_role("button", name=f"Notify {name}").click()
    expect(ann.page.locator("#notifications .entry")).to_have_count(2)
    ann.page.get_by_role("button", name=re.compile("^Mark read")).last.click()
    look(ann, "inbox")
    ann.page.keyboard.press("Escape")
    bob.page.get_by_role("button", name=f"Notify {name}").click()
    expect(ann.page.locator("#toast")).to_be_visible()
    look(ann, "toast")


def with_list(tab: Tab, call: Callable[[], None]) -> None:
    """Call the function with the list of rooms and people open; on a phone it is closed."""
    menu = tab.page.get_by_role("button", name="Rooms and people")
    is_drawer = menu.is_visible()
    if is_drawer:
        menu.click()
    call()
    if is_drawer:
        tab.page.get_by_role("button", name="Close the list").click()


def look_at_the_list(ann: Tab, bob: Tab, look: Look) -> None:
    look(ann, "people")
    ann.open_person("bob-miller")
    look(ann, "person")
    ann.open_person("bob-miller")
    ann.page.get_by_label("Busy").click()
    ann.page.get_by_label("End of the status").select_option("1 hour")
    expect(ann.page.locator("#me .state")).to_contain_text("busy until")
    look(ann, "busy")
    ann.page.get_by_label("Invisible").click()
    expect(ann.page.locator("#me .state")).to_contain_text("others see you offline")
    look(ann, "invisible")
    ann.page.get_by_label("Auto").click()
    expect(ann.page.locator("#me .dot")).to_have_attribute("data-state", "online")


def test_a_room_in_which_the_user_may_not_write(
    open_tab: OpenTab, site: ServerProcess, size: dict[str, Any], look: Look
) -> None:
    user = f"quiet-{size['viewport']['width']}"
    room = f"rules-{size['viewport']['width']}"
    site.call("PUT", f"v1/rooms/{room}", {"open": True})
    site.call("PUT", f"v1/users/{user}/info", {"info": {"avatar": "🦊", "colour": "#06f"}})
    ann = open_tab(user.replace("-", " "), reduced_motion="reduce", **size)
    menu = ann.page.get_by_role("button", name="Rooms and people")
    if menu.is_visible():
        menu.click()
    ann.open_room(room)
    ann.say("mine")
    rights = ann.page.locator("#desk .talk:not([hidden]) .rights")
    for path in (f"mutes/{user}", f"bans/{user}"):
        site.call("PUT", f"v1/rooms/{room}/{path}")
        expect(rights).to_contain_text("The app has")
        look(ann, f"rights-{path[:3]}")


def test_two_devices_the_plug_and_the_end(
    open_tab: OpenTab, bob: Tab, site: ServerProcess, size: dict[str, Any], look: Look
) -> None:
    site.call("PUT", "v1/rooms/a-room-that-does-not-fit-beside-the-others", {"open": True})
    ann = open_tab("Anna", reduced_motion="reduce", **size)
    ann.say("first")
    ann.page.get_by_role("button", name="Second device").click()
    phone = ann.page.get_by_role("region", name="Your phone")
    expect(phone.locator(".talk:not([hidden]) .message").last).to_be_visible()
    look(ann, "second-device")
    ann.page.locator("#desk .pull").click()
    look(ann, "plug-menu")
    ann.page.get_by_role("button", name="Cut the connection").click()
    ann.say("while away")
    expect(ann.page.locator("#desk .story")).to_contain_text("Cut ")
    look(ann, "cut-two-devices")
    ann.page.get_by_role("button", name="End outage").click()
    ann.expect_connected()
    ann.page.get_by_label("Close the second device").click()
    expect(ann.page.locator("#desk .story")).to_contain_text("Back after")
    look(ann, "back")
    ann.page.locator("#desk .pull").click()
    ann.page.get_by_role("button", name="Drop all packets").click()
    look(ann, "silent")
    ann.page.get_by_role("button", name="End outage").click()
    ann.expect_connected()
    site.call("POST", "v1/tokens/revoke", {"user": "anna"})
    expect(ann.page.locator("#desk .notice")).to_contain_text("You were signed out.")
    look(ann, "signed-out")
