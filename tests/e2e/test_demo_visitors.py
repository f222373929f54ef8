"""Demo in its first minutes: visitors on desktops and phones, their messages, devices and statuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Locator, expect

from e2e.axe import faults

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser
ANDROID = (
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126 Mobile Safari/537.36"
)
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
    "user_agent": ANDROID,
}


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve() as process:
        yield process


def post(site: ServerProcess, room: str, *texts: str, user: str = "poster") -> None:
    for text in texts:
        site.call("POST", f"v1/rooms/{room}/messages", {"user": user, "body": {"text": text}})


def from_end(device: Locator) -> float:
    """Return the pixels below the visible part of the list of messages."""
    scroll = device.locator(".talk:not([hidden]) .scroll")
    distance: float = scroll.evaluate("it => it.scrollHeight - it.clientHeight - it.scrollTop")
    return distance


def expect_at_end(tab: Tab, device: str = "#desk") -> None:
    page = tab.page
    page.wait_for_function(
        """device => { const it = document.querySelector(`${device} .talk:not([hidden]) .scroll`);
        return it.scrollHeight > it.clientHeight && it.scrollHeight - it.clientHeight - it.scrollTop < 2; }""",
        arg=device,
    )


# --- the list of messages ---


@pytest.mark.parametrize("size", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["wide", "narrow"])
def test_the_list_stays_at_its_end_when_its_size_changes(
    open_tab: OpenTab, site: ServerProcess, size: dict[str, Any]
) -> None:
    tab = open_tab("Resized", **size)
    room = f"long-{size['viewport']['width']}"
    site.call("PUT", f"v1/rooms/{room}", {"open": True})
    post(site, room, *(f"{number} " + "words that wrap in a narrow list " * 6 for number in range(12)))
    tab.page.reload()
    # On a phone the list of rooms is closed, and a click by the mouse would miss it.
    tab.page.locator(f'#rooms [data-room="{room}"] button').dispatch_event("click")
    expect(tab.messages).to_have_count(12)
    expect_at_end(tab)
    tab.page.set_viewport_size({**size["viewport"], "height": 420})  # as the keyboard of a phone does
    expect_at_end(tab)
    tab.page.set_viewport_size(size["viewport"])
    tab.page.get_by_role("button", name="Second device").click()
    expect(tab.page.locator("#second .talk:not([hidden])")).to_be_visible()
    expect_at_end(tab)
    # A reader of older messages keeps the place.
    tab.page.locator("#desk .talk:not([hidden]) .scroll").evaluate("it => { it.scrollTop = 0 }")
    tab.page.wait_for_function("document.querySelector('#desk .talk:not([hidden]) .scroll').scrollTop === 0")
    tab.page.set_viewport_size({**size["viewport"], "height": 500})
    tab.page.wait_for_timeout(300)
    assert from_end(tab.page.locator("#desk")) > 100


def test_addresses_in_messages_are_links_and_the_rest_stays_text(open_tab: OpenTab) -> None:
    lena = open_tab("Lena")
    lena.say('see https://example.org/a?b=(c), <a href="javascript:x">no</a> or (http://x.test/y). javascript:z')
    links = lena.messages.last.locator("a")
    expect(links).to_have_text(["https://example.org/a?b=(c)", "http://x.test/y"])
    for link in links.all():
        expect(link).to_have_attribute("target", "_blank")
        expect(link).to_have_attribute("rel", re.compile("noopener noreferrer"))
    expect(lena.messages.last).to_contain_text('<a href="javascript:x">no</a>')


def test_a_deletion_can_be_undone_and_otherwise_happens_by_itself(open_tab: OpenTab, site: ServerProcess) -> None:
    mara, nils = open_tab("Mara"), open_tab("Nils")
    mara.say("keep me")
    expect(nils.messages.last).to_have_text("keep me")
    delete = mara.page.get_by_role("button", name=re.compile("^Delete your message")).last
    delete.click()
    expect(mara.messages.last).to_have_text("message deletedUndo")
    undo = mara.page.get_by_role("button", name=re.compile("^Undo the deletion of your message"))
    expect(undo).to_be_focused()
    assert faults(mara.page) == []
    mara.page.keyboard.press("Enter")
    expect(mara.messages.last).to_have_text("keep me")
    delete.click()
    expect(undo).to_be_visible()
    expect(nils.messages.last).to_have_text("keep me")  # nothing was sent yet
    for tab in (mara, nils):
        expect(tab.messages.last).to_have_text("message deleted")
    expect(undo).to_have_count(0)
    # A page that is left deletes at once.
    mara.say("and me")
    expect(nils.messages.last).to_have_text("and me")
    delete.click()
    expect(undo).to_be_visible()
    mara.page.get_by_role("button", name="Leave").click()
    expect(nils.messages.last).to_have_text("message deleted", timeout=5_000)


def test_a_refused_deletion_shows_the_message_again(open_tab: OpenTab, site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/closing", {"open": False})
    site.call("PUT", "v1/rooms/closing/members/olaf")
    olaf = open_tab("Olaf")
    olaf.open_room("closing")
    olaf.say("stays")
    expect(olaf.page.locator(".message.draft")).to_have_count(0)
    olaf.page.get_by_role("button", name=re.compile("^Delete your message")).last.click()
    site.call("DELETE", "v1/rooms/closing/members/olaf")
    expect(olaf.messages.last).to_have_text("stays")
    expect(olaf.page.locator("#desk .story")).to_contain_text("The message could not be changed")


def test_a_new_visitor_has_no_unread_messages_and_a_returning_one_has(open_tab: OpenTab, site: ServerProcess) -> None:
    post(site, "random", "before one", "before two")
    pia = open_tab("Pia")
    badge = pia.page.locator('#rooms [data-room="random"] .badge')
    expect(pia.page.locator('#rooms [data-room="random"]')).to_be_visible()
    expect(badge).to_be_hidden()
    pia.page.get_by_role("button", name="Leave").click()
    post(site, "random", "while away")
    pia.enter("Pia")
    expect(badge).to_have_text("1")


# --- people ---


def test_other_users_see_devices_come_and_go_at_once(open_tab: OpenTab) -> None:
    quin, rita = open_tab("Quin"), open_tab("Rita", **PHONE)
    devices = quin.person("rita").locator(".devices")
    expect(devices).to_have_text("on phone", timeout=5_000)
    rita.page.get_by_role("button", name="Second device").click()
    expect(rita.page.get_by_role("region", name="Your laptop")).to_be_visible()
    expect(devices).to_have_text("on laptop and phone", timeout=5_000)
    rita.page.get_by_label("Close the second device").click()
    expect(devices).to_have_text("on phone", timeout=5_000)


def test_an_invisible_user_sends_no_signal_when_a_device_comes(open_tab: OpenTab) -> None:
    sara, timo = open_tab("Sara"), open_tab("Timo")
    timo.expect_state("sara", "online")
    sara.page.get_by_label("Invisible").click()
    timo.expect_state("sara", "offline")
    timo.heard.clear()
    sara.page.get_by_role("button", name="Second device").click()
    expect(sara.page.locator("#second .foot")).to_have_text("Connected")
    timo.say("marker")
    expect(sara.messages.last).to_have_text("marker")
    assert [frame for frame in timo.heard if frame["type"] == "signal"] == []


def test_others_see_the_end_of_busy_beside_a_note(open_tab: OpenTab) -> None:
    ulla, veit = open_tab("Ulla"), open_tab("Veit")
    note = ulla.page.get_by_label("Note for your status")
    ulla.page.get_by_label("Busy").click()
    ulla.page.get_by_label("End of the status").select_option("1 hour")
    note.fill("lunch")
    note.press("Enter")
    state = veit.person("ulla").locator(".state")
    expect(state).to_have_text(re.compile(r"^busy · until \d\d:\d\d( [AP]M)? · lunch$"))
    expect(ulla.page.locator("#me .state")).to_have_text(re.compile(r"^busy until \d\d:\d\d( [AP]M)? · lunch$"))
    ulla.page.get_by_label("End of the status").select_option("no end")
    expect(state).to_have_text("busy · lunch")
    expect(note).to_have_value("lunch")


# --- a phone ---


def test_a_large_count_leaves_its_icon_visible_on_a_phone(open_tab: OpenTab, site: ServerProcess) -> None:
    wim = open_tab("Wim", **PHONE)
    post(site, "design", *(f"number {number}" for number in range(101)))
    notes = [{"user": "wim", "kind": "demo", "body": {"text": f"note {number}"}} for number in range(101)]
    site.call("POST", "v1/notifications", {"notifications": notes})
    for button in ("#menu", "#bell"):
        count = wim.page.locator(f"{button} .badge")
        expect(count).to_have_text("99+")
        icon, badge = wim.page.locator(f"{button} .icon").bounding_box(), count.bounding_box()
        assert icon is not None
        assert badge is not None
        assert badge["x"] >= icon["x"] + icon["width"] / 2  # at most a corner is covered
        assert badge["x"] + badge["width"] <= 390
    assert not wim.overflows


def test_a_notification_to_another_user_is_confirmed_above_the_list_on_a_phone(open_tab: OpenTab) -> None:
    open_tab("Xena")
    yara = open_tab("Yara", **PHONE)
    yara.expect_state("xena", "online")
    yara.page.get_by_role("button", name="Rooms and people").click()
    yara.open_person("xena")
    yara.page.get_by_role("button", name="Notify Xena").click()
    said = yara.page.locator("#said")
    expect(said).to_have_text("Notification sent to Xena.")
    box = said.bounding_box()
    assert box is not None
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    assert yara.page.evaluate("([x, y]) => document.elementFromPoint(x, y).id", at) == "said"
