"""Dashboard in a browser, with a real server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Page, expect

from e2e.axe import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

API_KEY = "a-key-for-the-tests-of-the-page"  # pytest must load e2e.browser first
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture
def look(open_tab: OpenTab, site: ServerProcess) -> Callable[..., Tab]:
    """Return a function that opens the dashboard with the operator's key: it shows nodes and the tenant `default`."""

    def open_one(view: str = "", **context: object) -> Tab:
        tab = open_tab(url=f"{site.url}admin#{view}", **context)
        enter(tab.page, API_KEY)
        expect(tab.page.locator("#link")).to_have_text("Live")
        return tab

    return open_one


def enter(page: Page, key: str) -> None:
    page.get_by_label("Admin key").fill(key)
    page.get_by_role("button", name="Open").click()


def find(page: Page, what: str, name: str) -> None:
    page.get_by_role("radio", name=what).check(force=True)
    page.get_by_label(f"{what} id").fill(name)
    page.get_by_role("button", name="Find", exact=True).click()


def test_a_wrong_admin_key_shows_a_hint_and_is_not_stored(open_tab: OpenTab, site: ServerProcess) -> None:
    page = open_tab(url=f"{site.url}admin").page
    enter(page, "")
    expect(page.locator("#key-hint")).to_have_text("Enter an admin key.")
    enter(page, "not the key")
    expect(page.locator("#key-hint")).to_contain_text("Unknown key")
    expect(page.get_by_label("Admin key")).to_be_focused()
    assert page.evaluate("Object.keys(sessionStorage).length + Object.keys(localStorage).length") == 0
    enter(page, API_KEY)
    expect(page.locator("#link")).to_have_text("Live")


def test_the_key_stays_in_the_tab_and_out_of_every_address(look: Callable[..., Tab]) -> None:
    tab = look()
    requests: list[str] = []
    tab.page.on("request", lambda request: requests.append(request.url))
    tab.page.reload()
    expect(tab.page.locator("#link")).to_have_text("Live")
    assert tab.page.evaluate("Object.values(sessionStorage)") == [API_KEY]
    assert tab.page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
    assert not any(API_KEY in url for url in [*requests, tab.page.url])
    assert [frame["type"] for frame in tab.said if "key" in frame] == ["hello", "hello"]
    tab.page.get_by_role("button", name="Sign out").click()
    expect(tab.page.get_by_label("Admin key")).to_be_focused()
    assert tab.page.evaluate("Object.keys(sessionStorage).length") == 0


def test_plots_and_numbers_move_with_what_happens(look: Callable[..., Tab], open_tab: OpenTab) -> None:
    page = look().page
    connections = page.locator('[data-tile="Connections"]')
    expect(connections).to_have_text("0")
    people = [open_tab(name) for name in ("Alice", "Bob")]
    expect(connections).to_have_text("2")
    line = page.locator('path[data-name="ws_connections"]')
    before = line.get_attribute("d")
    expect(line).not_to_have_attribute("d", before or "")
    sends = page.locator("figure", has_text="Published and sent").get_by_role("listitem").first
    people[0].say("hello")
    expect(sends).to_have_text(re.compile(r"sent to sockets\s+[1-9][\d.]*/s"))
    node = page.locator("#nodes tbody tr")
    expect(node).to_have_count(1)
    expect(node.locator('[data-label="Load"]')).to_have_text("normal")
    expect(node.locator('[data-label="Connections"]')).to_have_text("2")
    people[1].page.close()
    expect(page.locator("figure", has_text="Sockets closed").locator(".legend")).to_contain_text(
        "1001 client went away"
    )


def test_plots_stand_still_while_paused_and_go_on_with_nothing_missing(look: Callable[..., Tab]) -> None:
    page = look().page
    page.get_by_role("radio", name="1 min", exact=True).check(force=True)
    line = page.locator('path[data-name="ws_connections"]')
    expect(line).to_have_attribute("d", re.compile("L.*L"))
    page.get_by_role("button", name="Pause").click()
    still = line.get_attribute("d") or ""
    page.wait_for_timeout(2500)
    assert line.get_attribute("d") == still
    page.get_by_role("button", name="Resume").click()
    expect(line).not_to_have_attribute("d", still)
    assert (line.get_attribute("d") or "").count("M") == 1


def test_a_user_and_their_room_are_found(look: Callable[..., Tab], open_tab: OpenTab) -> None:
    alice = open_tab("Alice")
    page = look("find").page
    find(page, "User", "nobody")
    expect(page.locator("#search-hint")).to_have_text("Tenant default has no user “nobody”. Check the id.")
    find(page, "User", "alice")
    found = page.locator(".found")
    expect(found.get_by_role("heading", name="Alice")).to_be_visible()
    expect(found.locator(".sessions li")).to_have_count(1)
    expect(found).to_contain_text("online since")
    found.get_by_role("button", name="lobby").click()
    expect(found.get_by_role("heading", name="lobby")).to_be_visible()
    alice.field.press_sequentially("Hel")
    find(page, "Room", "lobby")
    expect(found).to_contain_text("typing: alice")
    expect(found.get_by_role("button", name="alice")).to_be_visible()


def test_events_are_shown_as_they_happen_and_can_be_narrowed(look: Callable[..., Tab], open_tab: OpenTab) -> None:
    tab = look("events")
    page, rows = tab.page, tab.page.locator("#tail li[data-kind]")
    expect(page.locator("#tail")).to_contain_text("No events yet")
    page.wait_for_timeout(1500)  # the page sends the event filter to the server once a second
    alice = open_tab("Alice")
    expect(page.locator("#tail")).to_contain_text("connected")
    alice.say("hello there")
    expect(page.locator("#tail .body")).to_contain_text(["hello there"])
    page.get_by_label("Filter").fill("message")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter").fill("")
    page.get_by_label("Rooms").uncheck()
    expect(page.locator('#tail li[data-kind="rooms"]')).to_have_count(0)
    expect(page.locator('#tail li[data-kind="connects"]').first).to_be_visible()
    page.get_by_role("button", name="alice").first.click()
    expect(page.locator(".found")).to_contain_text("alice")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("#tiles")).to_be_visible()
    page.wait_for_timeout(300)
    assert [frame["kinds"] for frame in tab.said if frame["type"] == "tail"][-1] == []


def test_an_action_is_asked_for_twice_and_done_once(
    look: Callable[..., Tab], open_tab: OpenTab, site: ServerProcess
) -> None:
    alice = open_tab("Alice")
    tab = look("find")
    page, dialog = tab.page, tab.page.get_by_role("dialog")
    find(page, "User", "alice")
    page.get_by_role("button", name="Disconnect all sessions").click()
    expect(dialog).to_contain_text("1 session of alice will be closed with 4503")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Disconnect all sessions").click()
    dialog.get_by_role("button", name="Cancel").click()
    alice.expect_connected()
    assert "confirm" not in [frame["type"] for frame in tab.said]
    assert "audit" not in site.log

    page.get_by_role("button", name="Send test notification").click()
    dialog.get_by_role("button", name="Send notification").click()
    expect(page.locator("#toast")).to_have_text("Done: notification 1 added to the inbox.")
    page.get_by_role("button", name="Disconnect all sessions").click()
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#toast")).to_have_text("Done: 1 session disconnected (4503).")
    expect(page.locator(".found")).to_contain_text("The user is not connected.")
    expect(page.get_by_role("button", name="Disconnect all sessions")).to_be_focused()  # focus returns to the button
    expect(alice.page.locator("#connection")).not_to_have_text("Connected")
    assert site.log.count("audit: ") == 2


def test_a_lost_server_is_shown_as_not_connected_and_then_reconnected(
    look: Callable[..., Tab], site: ServerProcess
) -> None:
    page = look().page
    site.kill()
    expect(page.locator("#link")).to_have_text("Not connected")
    expect(page.locator("#notice")).to_contain_text("Reconnecting in")
    site.start()
    expect(page.locator("#link")).to_have_text("Live")
    expect(page.locator("#notice")).to_be_hidden()


def test_what_is_found_is_shown_as_text(look: Callable[..., Tab], open_tab: OpenTab) -> None:
    alice = open_tab()
    alice.page.get_by_label("Your name").fill("<img src=x onerror=alert(1)>")
    alice.page.get_by_role("button", name="Join").click()
    alice.expect_connected()
    page = look("events").page
    page.wait_for_timeout(1500)
    alice.say("<script>alert(1)</script>")
    expect(page.locator("#tail .body")).to_contain_text(["<script>alert(1)</script>"])
    page.locator("#tail .id").first.click()
    expect(page.locator(".found h2")).to_contain_text("<img src=x")
    assert page.locator("main img, main script").count() == 0


def test_a_user_is_shown_with_the_info_of_the_app(
    look: Callable[..., Tab], open_tab: OpenTab, site: ServerProcess
) -> None:
    open_tab("Alice")
    text = "<img src=x onerror=alert(1)>"
    info = {"avatar": "javascript:alert(1)", "colour": "rgb(0, 102, 255)", "about": text}
    site.call("PUT", "v1/users/alice/info", {"name": "Alice Young", "info": info})
    page = look("find").page
    expect(page.locator("#list tbody tr")).to_contain_text("Alice Young")
    find(page, "User", "alice")
    found = page.locator(".found")
    expect(found.get_by_role("heading", name="Alice Young")).to_be_visible()
    expect(found.locator(".info code")).to_contain_text(text)
    expect(found.locator(".swatch")).to_have_css("background-color", "rgb(0, 102, 255)")
    assert page.locator("main img, main a[href^=javascript]").count() == 0
    site.call("PUT", "v1/users/alice/info", {"info": {"avatar": "https://example.com/a.png", "colour": "url(x)"}})
    found.get_by_role("button", name="Refresh").click()
    expect(found.get_by_role("link", name="Open the avatar")).to_have_attribute("href", "https://example.com/a.png")
    expect(found.locator(".swatch")).to_have_count(0)


def looked_at(tab: Tab, view: str) -> None:
    """Check accessibility in both colour schemes; with reduced motion the page changes at once."""
    for scheme in ("dark", "light"):
        tab.page.emulate_media(color_scheme=scheme)
        assert faults(tab.page, colours_only=scheme == "dark") == [], (view, scheme)
        assert not tab.overflows, (view, scheme)


@pytest.mark.parametrize("screen", [WIDE, PHONE], ids=["wide", "phone"])
def test_every_view_is_accessible_and_fits_the_screen(
    look: Callable[..., Tab], open_tab: OpenTab, site: ServerProcess, screen: dict[str, object]
) -> None:
    open_tab("Alice")
    site.call("PUT", "v1/users/alice/info", {"info": {"avatar": "https://example.com/" + "a" * 300, "colour": "#06f"}})
    looked_at(open_tab(url=f"{site.url}admin", reduced_motion="reduce", **screen), "door")
    tab = look(reduced_motion="reduce", **screen)
    page = tab.page
    expect(page.locator("path.series").first).to_have_attribute("d", re.compile("L"))
    for view, name in (("overview", "Overview"), ("find", "Users and rooms"), ("events", "Events")):
        page.get_by_role("link", name=name).click()
        if view == "find":
            find(page, "User", "alice")
            expect(page.locator(".found")).to_be_visible()
        looked_at(tab, view)
    page.get_by_role("link", name="Users and rooms").click()
    page.get_by_role("button", name="Revoke all tokens").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    looked_at(tab, "dialog")


def test_everything_is_reached_with_the_keyboard(look: Callable[..., Tab]) -> None:
    page = look().page
    reached = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id"))
        outlined = "[document.activeElement, document.activeElement.nextElementSibling ?? document.body]"
        outlined += ".map((it) => getComputedStyle(it).outlineStyle)"  # a hidden radio's outline is drawn on its label
        assert "solid" in page.evaluate(outlined) or page.evaluate("document.activeElement === document.body")
    assert {"Overview", "Users and rooms", "Events", "Sign out", "Pause"} <= reached
