"""Demo chat: rooms with badges, message edits, the notification bell, one user on two devices."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, WebSocketRoute, expect

from e2e.processes import ask
from greendot.testing import WireClient

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    """Run one server for all tests of this module; each test has its own users.

    Typing ends by a stop or a message: on a loaded machine a page may show it later than the usual time-out.
    """
    with serve(GREENDOT_TYPING_TTL_S="60") as process:
        yield process


def badge(tab: Tab, room: str) -> Locator:
    return tab.page.locator(f'#rooms [data-room="{room}"] .badge')


def last(tab: Tab) -> Locator:
    return tab.messages.last


def bell(tab: Tab) -> Locator:
    return tab.page.get_by_role("button", name=re.compile("Notifications"))


# --- rooms ---


def test_messages_in_another_room_are_counted_until_the_room_is_opened(open_tab: OpenTab) -> None:
    anna, ben = open_tab("Anna"), open_tab("Ben")
    anna.open_room("design")
    anna.open_room("lobby")
    expect(badge(anna, "design")).to_be_hidden()
    ben.open_room("design")
    ben.say("a draft")
    ben.say("and another")
    expect(badge(anna, "design")).to_have_text("2")
    expect(anna.page).to_have_title(re.compile(r"^\(2\) Anna"))
    anna.open_room("design")
    expect(last(anna)).to_have_text("and another")
    expect(badge(anna, "design")).to_be_hidden()
    expect(anna.page.locator("#desk .talk:not([hidden]) .rule.new")).to_be_visible()
    anna.page.reload()
    anna.expect_connected()
    expect(anna.page.locator("#room-title")).to_have_text("design")  # the room that was open before
    expect(badge(anna, "design")).to_be_hidden()


def test_a_reaction_is_counted_on_every_device_and_taken_back_by_a_click(open_tab: OpenTab) -> None:
    rosa, sam = open_tab("Rosa"), open_tab("Sam")
    rosa.open_room("design")
    sam.open_room("design")
    rosa.say("what do you think?")
    message = sam.page.locator("#desk .talk:not([hidden]) .message").last
    expect(message.locator(".text")).to_have_text("what do you think?")
    message.hover()
    message.get_by_role("button", name=re.compile("React with 👍 to the message of Rosa")).click()
    chips = [tab.page.locator("#desk .talk:not([hidden]) .message").last.locator(".reaction") for tab in (rosa, sam)]
    for chip, pressed in zip(chips, ("false", "true"), strict=True):
        expect(chip).to_have_text("👍 1")
        expect(chip).to_have_attribute("aria-pressed", pressed)
    chips[0].click()
    expect(chips[1]).to_have_text("👍 2")
    sam.page.reload()
    sam.expect_connected()
    expect(chips[1]).to_have_text("👍 2")
    expect(chips[1]).to_have_attribute("aria-pressed", "true")
    chips[1].click()
    expect(chips[0]).to_have_text("👍 1")
    chips[0].click()
    expect(chips[1]).to_have_count(0)


def test_typing_shows_in_the_room_it_happens_in_and_beside_its_name_elsewhere(open_tab: OpenTab) -> None:
    cara, dirk = open_tab("Cara"), open_tab("Dirk")
    dirk.open_room("random")
    dirk.field.press_sequentially("Hm")
    beside = cara.page.locator('#rooms [data-room="random"]')
    expect(beside).to_have_class(re.compile("typed"))
    expect(cara.typing).to_be_empty()
    dirk.field.fill("")
    expect(beside).not_to_have_class(re.compile("typed"))


def test_the_room_lists_its_users(open_tab: OpenTab) -> None:
    emil, fred = open_tab("Emil"), open_tab("Fred")
    emil.expect_state("fred", "online")
    emil.page.locator("#here").click()
    here = emil.page.get_by_role("group", name="Users in this room")
    expect(here.get_by_text("Fred")).to_be_visible()
    expect(here.get_by_text("Emil")).to_be_visible()
    fred.page.get_by_role("button", name="Leave").click()
    expect(here.get_by_text("Fred")).to_have_count(0)
    emil.page.keyboard.press("Escape")
    expect(here).to_be_hidden()
    expect(emil.page.locator("#here")).to_be_focused()


def seen(tab: Tab) -> Locator:
    return tab.page.locator("#desk .talk:not([hidden]) .message + .seen")


def test_the_last_message_that_others_have_read_names_them(open_tab: OpenTab, site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/seen", {"open": True, "receipts": True})
    readers = [open_tab(name) for name in ("Sofia Berg", "Theo", "Uta", "Vera")]
    wim = open_tab("Wim")
    for tab in (wim, *readers[:2]):
        tab.open_room("seen")
    wim.say("any news?")
    expect(seen(wim)).to_have_text("Seen by Sofia Berg, Theo")
    readers[0].open_room("lobby")
    wim.say("hello?")
    expect(seen(wim)).to_have_text("Seen by Theo")
    expect(seen(readers[1])).to_have_text("Seen by Sofia Berg")  # below the first message: Wim wrote both
    for tab in (readers[0], *readers[2:]):
        tab.open_room("seen")
    expect(seen(wim)).to_have_text("Seen by 4")
    wim.page.reload()
    wim.expect_connected()
    expect(seen(wim)).to_have_text("Seen by 4")


def test_the_rooms_of_dev_mode_have_receipts(open_tab: OpenTab) -> None:
    xaver, yara = open_tab("Xaver"), open_tab("Yara")
    yara.expect_state("xaver", "online")
    xaver.say("good morning")
    expect(seen(xaver)).to_contain_text("Yara")


# --- messages ---


def test_a_message_is_edited_and_deleted_for_all_users(open_tab: OpenTab) -> None:
    gina, hugo = open_tab("Gina"), open_tab("Hugo")
    gina.say("helo")
    expect(last(hugo)).to_have_text("helo")
    expect(gina.drafts).to_have_count(0)  # else there is no message to edit yet
    gina.field.press("ArrowUp")
    editor = gina.page.get_by_label("New text of the message")
    editor.fill("hello")
    editor.press("Enter")
    for tab in (gina, hugo):
        expect(last(tab)).to_have_text("hello (edited)")
    expect(hugo.page.get_by_role("button", name=re.compile("^Edit"))).to_have_count(0)  # not her message
    gina.page.get_by_role("button", name=re.compile("^Delete your message")).last.click()
    for tab in (gina, hugo, open_tab("Ines")):
        expect(last(tab)).to_have_text("message deleted")


def test_days_are_set_apart_and_earlier_messages_are_a_press_away(open_tab: OpenTab, site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/archive", {"open": True})
    for number in range(70):
        site.call("POST", "v1/rooms/archive/messages", {"user": "jo", "body": {"text": f"message {number}"}})
    kim = open_tab("Kim")
    kim.open_room("archive")
    expect(kim.messages).to_have_count(50)
    expect(kim.page.locator("#desk .talk:not([hidden]) .rule.day")).to_have_text("Today")
    before = last(kim).bounding_box()
    assert before is not None
    kim.page.locator("#desk .scroll:visible").evaluate("box => { box.scrollTop = 0 }")
    kim.page.get_by_role("button", name="Earlier messages").click()
    expect(kim.messages).to_have_count(70)
    expect(kim.messages.first).to_have_text("message 0")
    expect(kim.messages.nth(20)).to_be_in_viewport()  # the scroll position stays
    expect(kim.page.get_by_role("button", name="Earlier messages")).to_be_hidden()


def test_a_refused_message_is_marked_as_not_sent_and_can_be_retried(open_tab: OpenTab, site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/guests", {"open": False})
    site.call("PUT", "v1/rooms/guests/members/lea")
    lea = open_tab("Lea")
    lea.open_room("guests")
    lea.say("still a member")
    expect(last(lea)).to_have_text("still a member")
    expect(lea.drafts).to_have_count(0)  # the server has acknowledged it
    site.call("DELETE", "v1/rooms/guests/members/lea")
    expect(lea.page.locator("#present")).to_have_text("you are no longer in this room")
    lea.say("no longer one")
    note = lea.page.locator(".message.failed .note")
    expect(note).to_contain_text("not sent")
    site.call("PUT", "v1/rooms/guests/members/lea")
    note.get_by_role("button", name="Try again").click()
    expect(lea.page.locator(".message.failed")).to_have_count(0)
    expect(lea.messages.last).to_have_text("no longer one")


def test_a_room_shows_why_the_user_may_not_write(open_tab: OpenTab, site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/ruled", {"open": True})
    mia = open_tab("Mia")
    mia.open_room("ruled")
    talk = mia.page.locator("#desk .talk:not([hidden])")
    rights, field = talk.locator(".rights"), talk.locator("textarea")
    expect(rights).to_be_hidden()
    site.call("PUT", "v1/rooms/ruled/mutes/mia")
    expect(rights).to_have_text("The app has muted you. You can only read.")
    expect(field).to_be_hidden()
    site.call("PUT", "v1/rooms/ruled/mutes/mia", {"until": round(time.time() * 1000) + 3_600_000})
    expect(rights).to_contain_text("The app has muted you until ")
    site.call("DELETE", "v1/rooms/ruled/mutes/mia")
    expect(rights).to_be_hidden()
    site.call("PUT", "v1/rooms/ruled", {"slow_mode_s": 3_600})
    expect(field).to_have_attribute("placeholder", "Write to ruled… (slow mode: one message in 3600 s)")
    site.call("PUT", "v1/rooms/ruled", {"archived": True})
    expect(rights).to_have_text("This room is archived. You can only read it.")
    expect(field).to_be_hidden()
    site.call("PUT", "v1/rooms/ruled", {"archived": False})
    expect(field).to_be_visible()
    site.call("PUT", "v1/rooms/ruled/bans/mia")
    expect(rights).to_have_text("The app has banned you from this room.")
    mia.page.reload()
    expect(rights).to_have_text("The app has banned you from this room.")
    assert mia.problems == []


# --- people ---


def test_avatars_show_the_info_that_the_app_has_set(open_tab: OpenTab, site: ServerProcess) -> None:
    noa, pia = open_tab("Noa"), open_tab("Pia")
    noa.say("before")
    row = pia.person("noa")
    expect(row.locator(".initials")).to_have_text("N")
    site.call("PUT", "v1/users/noa/info", {"info": {"avatar": "🦊", "colour": "#0000ff"}})
    expect(row.locator(".initials")).to_have_text("🦊")
    expect(row).to_have_css("--hue", "240")
    expect(noa.page.locator("#me .initials")).to_have_text("🦊")
    noa.say("after")
    expect(pia.messages.last).to_have_text("after")
    shown = pia.page.locator("#desk .talk:not([hidden]) .message")
    expect(shown.last.locator(".initials")).to_have_text("🦊")
    site.call("PUT", "v1/users/noa/info", {"info": {"avatar": "https://example.com/noa.png", "colour": "url(x)"}})
    expect(row.locator(".initials")).to_have_text("N")
    assert pia.problems == []


def test_busy_has_an_end_and_a_note_that_others_see(open_tab: OpenTab) -> None:
    olga, paul = open_tab("Olga"), open_tab("Paul")
    olga.page.get_by_label("Busy").click()
    olga.page.get_by_label("End of the status").select_option("1 minute")
    paul.expect_state("olga", "busy")
    expect(paul.person("olga").locator(".state")).to_have_text(re.compile(r"^busy · until \d\d:\d\d"))
    expect(olga.page.locator("#me .state")).to_have_text(re.compile(r"^busy until \d\d:\d\d"))
    olga.page.locator("#until option").nth(2).evaluate("option => { option.value = '2' }")  # shortened to 2 s
    olga.page.get_by_label("End of the status").select_option("30 minutes")
    paul.expect_state("olga", "online")  # the status expired
    expect(olga.page.get_by_label("Auto")).to_be_checked()
    note = olga.page.get_by_label("Note for your status")
    note.fill("writing")
    note.press("Enter")
    expect(paul.person("olga").locator(".state")).to_contain_text("writing")


# Focuses the first row, presses a key, and returns the row with the focus and the number of rows. The list of people
# includes users of other tests. It may change between two calls, but not in one.
MOVE = """(rows, key) => {
  rows[0].focus();
  rows[0].dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  return [rows.indexOf(document.activeElement), rows.length];
}"""


def test_the_list_of_people_is_one_stop_for_the_keyboard_and_arrows_within(open_tab: OpenTab) -> None:
    people = {"uwe": "Uwe", "vera": "Vera", "wim": "Wim"}
    quin = open_tab("Quin")
    for name in people.values():
        quin.page.get_by_label("Watch a user").fill(name)
        quin.page.get_by_role("button", name="Watch", exact=True).click()
        expect(quin.person(name.lower())).to_be_visible()
    rows = quin.page.locator("#people .row")
    assert rows.evaluate_all("rows => rows.filter((row) => row.tabIndex === 0).length") == 1
    assert rows.evaluate_all(MOVE, "ArrowDown")[0] == 1
    at, count = rows.evaluate_all(MOVE, "End")
    assert at == count - 1 > 1
    focused = quin.page.locator("#people .row:focus")
    quin.page.keyboard.press("Enter")
    expect(focused).to_have_attribute("aria-expanded", "true")
    quin.page.keyboard.press("Tab")
    expect(quin.page.get_by_role("button", name=re.compile("^Notify"))).to_be_focused()


# --- notifications ---


def test_the_bell_counts_shows_and_forgets(open_tab: OpenTab) -> None:
    rosa, sven = open_tab("Rosa"), open_tab("Sven")
    sven.expect_state("rosa", "online")
    sven.open_person("rosa")
    sven.page.get_by_role("button", name="Notify Rosa").click()
    expect(rosa.page.locator("#toast")).to_have_text("Sven waves at you.")
    expect(bell(rosa)).to_have_accessible_name("Notifications, 1 unread")
    bell(rosa).click()
    rosa.page.get_by_role("button", name="Send me a notification").click()
    entries = rosa.page.locator("#notifications .entry")
    expect(entries).to_have_count(2)
    expect(rosa.page.locator("#bell-badge")).to_have_text("2")
    expect(rosa.page.locator("#bell-badge")).to_have_class(re.compile("quiet"))  # seen, not read
    rosa.page.get_by_role("button", name="Mark read: Sven waves at you.").click()
    expect(rosa.page.locator("#bell-badge")).to_have_text("1")
    rosa.page.get_by_role("button", name="Mark all read").click()
    expect(rosa.page.locator("#bell-badge")).to_be_hidden()
    rosa.page.get_by_role("button", name=re.compile("^Archive: Sven")).click()
    expect(entries).to_have_count(1)
    rosa.page.keyboard.press("Escape")
    expect(bell(rosa)).to_be_focused()
    rosa.page.reload()
    bell(rosa).click()
    expect(entries).to_have_count(1)


# --- two devices ---


def test_two_devices_of_one_user_share_read_marks_status_and_messages(open_tab: OpenTab) -> None:
    tina, udo = open_tab("Tina"), open_tab("Udo")
    tina.page.get_by_role("button", name="Second device").click()
    phone = tina.page.get_by_role("region", name="Your phone")
    expect(phone.locator(".foot")).to_have_text("Connected")
    # It is in the room, too, and has read the messages. Text typed earlier is not published.
    expect(phone.locator(".talk:not([hidden]) .scroll")).to_have_attribute("aria-busy", "false")
    # Send on one device: both devices show the message, and others show it once.
    phone.get_by_label("Message to lobby").fill("from the phone")
    expect(udo.typing).to_have_text("Tina is typing…")
    expect(tina.typing).to_be_empty()  # the page does not show the user's own typing
    phone.get_by_label("Message to lobby").press("Enter")
    expect(last(udo)).to_have_text("from the phone")
    expect(last(tina)).to_have_text("from the phone")
    # Read on one device: both devices show it as read.
    udo.open_room("design")
    udo.say("look")
    counted = phone.locator('[data-room="design"] .badge')
    expect(counted).to_be_visible()
    expect(badge(tina, "design")).to_be_visible()
    tina.open_room("design")
    expect(counted).to_be_hidden()
    # Set the status on one device: both devices show it.
    tina.page.get_by_label("Busy").click()
    expect(phone.locator(".own")).to_have_text("busy")
    udo.expect_state("tina", "busy")
    tina.page.get_by_label("Auto").click()
    # Others see both devices, and one can disconnect.
    udo.open_person("tina")
    expect(udo.person("tina").locator("dl")).to_contain_text("browser, phone")
    tina.page.get_by_label("Close the second device").click()
    udo.open_person("tina")
    udo.open_person("tina")
    expect(udo.person("tina").locator("dl")).not_to_contain_text("phone")
    assert "offline" not in udo.states_of("tina")


def test_a_closed_device_disappears_for_others_even_if_its_session_ends_late(open_tab: OpenTab) -> None:
    byes: list[Callable[[], None]] = []

    def relay(socket: WebSocketRoute) -> None:
        """Relay all frames but the `bye`, which the server gets when the test sends it."""
        server = socket.connect_to_server()

        def sent(text: str | bytes) -> None:
            if json.loads(text)["type"] == "bye":
                byes.append(lambda: server.send(text))
            else:
                server.send(text)

        socket.on_message(sent)
        socket.on_close(lambda code, reason: None)

    vera, walt = open_tab(), open_tab("Walt")
    vera.page.route_web_socket(re.compile("/v1/connect"), relay)
    with vera.page.expect_websocket() as first:
        vera.enter("Vera")
    vera.page.get_by_role("button", name="Second device").click()
    walt.open_person("vera")
    devices = walt.person("vera").locator("dl")
    expect(devices).to_contain_text("browser, phone")
    closed_at = time.monotonic()

    def is_after_grace(text: str) -> bool:
        """Return whether the page asks for or announces the devices, when it expects that the session is over."""
        return time.monotonic() - closed_at > 0.9 and json.loads(text)["type"] in ("presence.get", "signal.send")

    with first.value.expect_event("framesent", is_after_grace):
        vera.page.get_by_label("Close the second device").click()
    for _ in range(2):  # closes the details, and opens them again
        walt.open_person("vera")
    expect(devices).to_contain_text("browser, phone")
    byes[0]()
    expect(devices).not_to_contain_text("phone")
    assert "offline" not in walt.states_of("vera")


# --- many people ---


@pytest.fixture
def crowd(site: ServerProcess) -> Callable[[list[str]], None]:
    """Return a function that connects users, sets them busy and disconnects them, on a loop in its own thread."""

    async def visit(user: str) -> None:
        answer = await ask(site.port, "GET", f"/dev/token?user={user}")
        async with await WireClient.connect(site.port) as client:
            await client.hello(answer.json()["token"])
            await client.request(type="status.set", status="busy")
            await client.request(type="status.set", status="auto")
            client.send(type="bye")
            await client.closed()

    async def all_of(users: list[str]) -> None:
        await asyncio.gather(*map(visit, users))

    def run(users: list[str]) -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(all_of(users))).result(timeout=30)

    return run


def tasks_ms(trace: bytes) -> list[float]:
    """Return the processor time of the page's tasks in milliseconds: on a busy machine wall-clock time means less."""
    events = json.loads(trace)["traceEvents"]
    main = {
        (e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"
    }
    tasks = [e for e in events if e["ph"] == "X" and e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in main]
    return [task["tdur"] / 1000 for task in tasks if "tdur" in task]


def test_two_hundred_people_are_one_watch_and_no_task_is_long(
    open_tab: OpenTab, chromium: Browser, crowd: Callable[[list[str]], None]
) -> None:
    names = {f"person-{number:03}": f"Person {number:03}" for number in range(200)}
    wanda = open_tab()
    wanda.page.evaluate("people => sessionStorage.setItem('greendot.people', JSON.stringify(people))", names)
    wanda.page.reload()
    wanda.enter("Wanda")
    expect(wanda.page.locator("#people li").nth(199)).to_be_attached()
    watches = [frame["users"] for frame in wanda.said if frame["type"] == "watch"]
    assert {*names} <= {*watches[0]}
    assert not any({*names} & {*later} for later in watches[1:])  # later watches are for authors of older messages
    chromium.start_tracing(page=wanda.page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
    crowd([*names])  # all connect, set busy and disconnect as fast as they can
    expect(wanda.page.locator("#people-note")).to_have_text(re.compile(r"^0 of 2\d\d online"), timeout=30_000)
    took = tasks_ms(chromium.stop_tracing())
    assert len([frame for frame in wanda.heard if frame["type"] == "presence.changed"]) >= 600
    assert len(took) > 100
    assert max(took) < 50
