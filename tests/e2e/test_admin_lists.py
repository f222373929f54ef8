"""Dashboard in a browser: history at opening, lists of users and rooms with their actions, durations in words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from e2e.axe import faults

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
API_KEY = "a-key-for-the-tests-of-the-page"  # pytest must load e2e.browser first
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve() as process:
        yield process


@pytest.fixture
def look(open_tab: OpenTab, site: ServerProcess) -> Callable[..., Tab]:
    def open_one(view: str = "", key: str = API_KEY, **context: Any) -> Tab:
        tab = open_tab(url=f"{site.url}admin#{view}", **context)
        tab.page.get_by_label("Admin key").fill(key)
        tab.page.get_by_role("button", name="Open").click()
        return tab

    return open_one


def ids(page: Page) -> list[str]:
    return page.locator("#list tbody tr").evaluate_all("rows => rows.map((row) => row.dataset.id)")


def test_users_are_listed_filtered_and_acted_on(look: Callable[..., Tab], open_tab: OpenTab) -> None:
    anna = open_tab("Anna")
    for name in ("Bea", "Bert"):
        open_tab(name)
    page = look("find").page
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(3)
    assert ids(page) == ["anna", "bea", "bert"]
    expect(page.get_by_role("heading", name="Users online")).to_be_visible()
    page.get_by_label("User id").press_sequentially("be")
    expect(rows).to_have_count(2)
    assert ids(page) == ["bea", "bert"]
    expect(page.locator("#listed-count")).to_have_text("2 of 3, ids that begin with “be”")
    page.get_by_label("User id").fill("zz")
    expect(page.locator("#listed-count")).to_have_text("none of 3, ids that begin with “zz”")
    page.get_by_label("User id").fill("")
    expect(rows).to_have_count(3)
    anna.page.get_by_label("Busy").click()
    expect(rows.first.locator('[data-label="State"]')).to_have_text("busy")  # the list follows by itself
    # The actions are beside each user, by keyboard too.
    page.get_by_role("button", name="Disconnect anna").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 session of anna will be closed with 4503")
    dialog.get_by_role("button", name="Disconnect").click()
    expect(page.locator("#toast")).to_have_text("Done: 1 session disconnected (4503).")
    expect(rows).to_have_count(2)
    expect(anna.page.locator("#connection")).to_have_text("Disconnected")
    page.get_by_role("button", name="bea", exact=True).click()
    expect(page.locator(".found").get_by_role("heading", name="Bea")).to_be_visible()


def test_rooms_are_listed_in_pages(look: Callable[..., Tab], site: ServerProcess) -> None:
    for number in range(60):
        site.call("PUT", f"v1/rooms/team-{number:02}", {"open": number % 2 == 0})
    page = look("find").page
    page.get_by_role("radio", name="Room").check(force=True)
    expect(page.get_by_role("heading", name="Rooms", exact=True)).to_be_visible()
    page.get_by_label("Room id").fill("team-")
    expect(page.locator("#listed-count")).to_have_text("50 or more, ids that begin with “team-”")
    page.get_by_role("button", name="More").click()
    expect(page.locator("#list tbody tr")).to_have_count(60)
    expect(page.get_by_role("button", name="More")).to_be_hidden()
    page.get_by_label("Room id").fill("team-07")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator('#list [data-label="Access"]')).to_have_text("members only")
    page.get_by_role("button", name="Members and occupants of team-07").click()
    expect(page.locator(".found").get_by_role("heading", name="team-07")).to_be_visible()


def test_a_room_is_archived_and_deleted_and_a_user_muted_and_banned(
    look: Callable[..., Tab], open_tab: OpenTab, site: ServerProcess
) -> None:
    site.call("PUT", "v1/rooms/noisy", {"open": True})
    dora = open_tab("Dora")
    dora.open_room("noisy")
    page = look("find").page
    page.get_by_role("radio", name="Room").check(force=True)
    page.get_by_label("Room id").fill("noisy")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    access = page.locator('#list [data-label="Access"]')

    def confirm(button: str, yes: str, done: str) -> None:
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name=yes, exact=True).click()
        expect(page.locator("#toast")).to_have_text(f"Done: {done}.")

    confirm("Archive noisy", "Archive", "room archived")
    expect(access).to_have_text("open to all, archived")
    expect(dora.page.locator(".talk:not([hidden]) .rights")).to_contain_text("This room is archived.")
    confirm("Reopen noisy", "Reopen", "room reopened")
    expect(access).to_have_text("open to all")
    confirm("Delete noisy", "Delete", "room deleted")
    expect(page.locator("#listed-count")).to_have_text("none, ids that begin with “noisy”")
    expect(dora.page.locator(".talk:not([hidden]) .rights")).to_have_text("The app has deleted this room.")
    page.get_by_role("radio", name="User").check(force=True)
    page.get_by_label("User id").fill("dora")
    page.get_by_role("button", name="Find").click()
    moderation = page.locator(".fact", has_text="Moderation")
    expect(moderation).to_contain_text("no mute, no ban")
    confirm("Mute", "Mute", "user muted")
    expect(moderation).to_contain_text("muted")
    confirm("End mute", "End mute", "mute ended")
    expect(moderation).to_contain_text("no mute, no ban")
    confirm("Ban", "Ban", "user banned")
    expect(moderation).to_contain_text("banned")
    expect(dora.page.locator("#connection")).not_to_have_text("Connected")
    confirm("End ban", "End ban", "ban ended")


def test_the_audit_is_listed_newest_first_and_leads_to_users_and_rooms(
    look: Callable[..., Tab], site: ServerProcess
) -> None:
    site.call("PUT", "v1/rooms/court", {"open": True})
    site.call("POST", "v1/rooms/court/messages", {"user": "bea", "body": "rude"})
    site.call("PATCH", "v1/rooms/court/messages/1", {"body": "***", "by": "mod", "reason": "rude words"})
    site.call("PUT", "v1/rooms/court", {"archived": True})
    page = look("find").page
    page.get_by_role("radio", name="Audit").check(force=True)
    expect(page.get_by_role("heading", name="Audit", exact=True)).to_be_visible()
    page.get_by_label("Room id").fill("court")
    rows = page.locator("#list tbody tr")
    expect(rows).to_have_count(2)
    expect(page.locator("#listed-count")).to_have_text("2, in room “court”")
    assert rows.locator('[data-label="Action"]').all_inner_texts() == ["room.archived", "message.edited"]
    assert rows.last.locator("td").all_inner_texts()[1:] == ["court", "bea", "1", "mod", "rude words"]
    rows.first.get_by_role("button", name="court").click()
    expect(page.locator(".found").get_by_role("heading", name="court")).to_be_visible()
    expect(page.locator('#list [data-label="Access"]')).to_have_text("open to all, archived")


@pytest.mark.parametrize("screen", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_lists_are_accessible_and_fit_the_screen(
    look: Callable[..., Tab], open_tab: OpenTab, site: ServerProcess, screen: dict[str, Any]
) -> None:
    site.call("PUT", "v1/rooms/shelf", {"archived": True})
    open_tab("Cleo with a rather long name that does not fit on a phone")
    tab = look("find", reduced_motion="reduce", **screen)
    for what, row in (("User", "cleo"), ("Room", "lobby"), ("Audit", "1")):
        tab.page.get_by_role("radio", name=what).check(force=True)
        expect(tab.page.locator(f'#list tr[data-id^="{row}"]').first).to_be_visible()
        for scheme in ("dark", "light"):
            tab.page.emulate_media(color_scheme=scheme)
            if kept := os.environ.get("GREENDOT_TEST_PICTURES"):
                tab.page.screenshot(path=Path(kept) / f"{scheme}-{screen['viewport']['width']}-admin-{what}.png")
            assert faults(tab.page, colours_only=scheme == "dark") == [], (what, scheme)
            assert not tab.overflows, (what, scheme)


def test_an_unknown_key_is_named_as_such_and_a_key_without_rights_too(
    look: Callable[..., Tab], site: ServerProcess
) -> None:
    page = look(key="not the key").page
    expect(page.locator("#key-hint")).to_contain_text("Unknown key")
    expect(page.locator("#key-hint")).not_to_contain_text("scope")


def test_durations_are_said_in_words(look: Callable[..., Tab]) -> None:
    page = look().page
    expect(page.locator("#link")).to_have_text("Live")
    expect(page.locator('#nodes [data-label="Uptime"]')).to_have_text(re.compile(r"^\d+ (seconds?|minutes?)"))
    expect(page.locator('#nodes [data-label="Lease"]')).to_have_text(re.compile("renewed (just now|.* seconds? ago)"))
    said = page.evaluate(
        """spans => import('/admin/format.js').then(({spoken}) => spans.map((seconds) => spoken(seconds * 1000)))""",
        [0, 1, 59, 60, 90, 119, 299, 300, 3_599, 3_600, 7_140, 86_400, 100_000, 200_000, 864_000],
    )
    assert said == [
        "less than a second",
        "1 second",
        "59 seconds",
        "1 minute",
        "1 minute 30 seconds",
        "1 minute 59 seconds",
        "4 minutes 59 seconds",
        "5 minutes",
        "59 minutes",
        "1 hour",
        "1 hour 59 minutes",
        "1 day",
        "1 day 3 hours",
        "2 days 7 hours",
        "10 days",
    ]


def test_plots_are_not_empty_at_opening_and_show_an_hour(look: Callable[..., Tab]) -> None:
    tab = look()
    page = tab.page
    expect(page.locator("#link")).to_have_text("Live")

    def points() -> int:
        replies = [frame["data"] for frame in tab.heard if frame["type"] == "reply" and "every_ms" in frame["data"]]
        return len(replies[-1]["at"]) if replies else 0

    for _ in range(20):  # the server keeps a point every ten seconds
        page.wait_for_timeout(1_500)
        if points() >= 2:
            break
        page.reload()
        expect(page.locator("#link")).to_have_text("Live")
    assert points() >= 2
    page.reload()
    line = page.locator('path[data-name="ws_connections"]')
    expect(line).to_have_attribute("d", re.compile("^M.*L"))
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+) ", line.get_attribute("d") or "")]
    width = page.locator(".field-of-plot").first.evaluate("it => it.clientWidth")
    assert (xs[-1] - xs[0]) / width * 300 >= 9  # seconds, a moment after the page was opened
    page.get_by_role("radio", name="1 hour").check(force=True)
    expect(page.locator(".panel .from").first).to_have_text("1 hour ago")
    assert (line.get_attribute("d") or "").count("M") == 1  # no gap between the server's points and the page's


def test_old_samples_of_the_page_are_thinned_and_an_hour_stays(look: Callable[..., Tab]) -> None:
    page = look().page
    kept = page.evaluate(
        """() => import('/admin/history.js').then(({History}) => {
            const history = new History();
            const begin = 1_800_000_000_000;
            history.fill({ at: [begin - 20_000, begin - 10_000], columns: { "sums.a": [1, null] } });
            for (let second = 0; second < 4_000; second++) history.add(begin + second * 1000, { sums: { a: second } });
            const gaps = history.samples.slice(1).map(({ at }, index) => at - history.samples[index].at);
            history.fill({ at: [begin + 3_995_000], columns: { "sums.a": [7] } });
            return { count: history.samples.length, span: history.latest.at - history.samples[0].at,
                     largest: Math.max(...gaps), series: history.series("sums.a", 3_600).length };
        })"""
    )
    assert kept["count"] == kept["series"]
    assert 880 <= kept["count"] <= 920
    assert 3_585_000 <= kept["span"] <= 3_600_000
    assert kept["largest"] <= 10_000
