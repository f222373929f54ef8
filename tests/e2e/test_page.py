"""Demo page in a browser, with a real server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


def test_two_people_see_each_others_green_dot(open_tab: OpenTab) -> None:
    alice = open_tab("Alice")
    expect(alice.page.locator("#nobody")).to_contain_text("Open this page in a second tab with another name")
    bob = open_tab("Bob Miller")
    bob.expect_state("alice", "online")
    alice.expect_state("bob-miller", "online")
    expect(alice.person("bob-miller").locator(".name")).to_have_text("Bob Miller")
    expect(alice.page.locator("#me")).to_contain_text("you")
    expect(alice.page.locator("#me .dot")).to_have_attribute("data-state", "online")


def test_a_second_tab_of_the_same_browser_is_another_person(open_tab: OpenTab) -> None:
    alice = open_tab("Alice")
    with alice.page.context.expect_page() as opened:
        alice.page.get_by_role("link", name="Open this page in a second tab").click()
    opened.value.get_by_label("Your name").fill("Bob")
    opened.value.get_by_role("button", name="Join").click()
    expect(opened.value.locator('#people [data-user="alice"] .state')).to_have_text("online")
    alice.expect_state("bob", "online")


def test_the_page_shows_the_number_of_users_in_the_room_without_further_requests(open_tab: OpenTab) -> None:
    alice = open_tab("Alice")
    asked: list[str] = []
    with alice.page.expect_event("websocket") as opened:
        alice.page.reload()
    opened.value.on("framesent", lambda frame: asked.extend(re.findall(r"room\.present", str(frame))))
    expect(alice.page.locator("#present")).to_have_text("only you are here")
    bob = open_tab("Bob")
    expect(alice.page.locator("#present")).to_have_text("2 people here")
    expect(bob.page.locator("#present")).to_have_text("2 people here")
    bob.page.get_by_label("Invisible").click()
    expect(alice.page.locator("#present")).to_have_text("only you are here")
    bob.page.get_by_label("Auto", exact=True).click()
    expect(alice.page.locator("#present")).to_have_text("2 people here")
    bob.page.get_by_role("button", name="Leave").click()
    expect(alice.page.locator("#present")).to_have_text("only you are here")
    assert len(asked) == 3  # once for each room


def test_a_user_who_types_is_shown_as_typing_until_a_pause(open_tab: OpenTab) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    alice.field.press_sequentially("Hel")
    expect(bob.typing).to_have_text("Alice is typing…")
    expect(alice.typing).to_be_empty()
    expect(bob.typing).to_be_empty()


def test_emptying_the_field_ends_the_typing(open_tab: OpenTab) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    heard: list[str] = []
    with alice.page.expect_event("websocket") as opened:
        alice.page.reload()
    opened.value.on("framesent", lambda frame: heard.append(str(frame)))
    alice.expect_connected()
    alice.field.fill("Hello")
    expect(bob.typing).to_have_text("Alice is typing…")
    alice.field.fill("")
    expect(bob.typing).to_be_empty()
    assert [kind for frame in heard for kind in re.findall(r"typing\.\w+", frame)] == ["typing.start", "typing.stop"]


def test_the_line_names_two_typers_and_counts_more(open_tab: OpenTab) -> None:
    alice, bob, carl, dora = (open_tab(name) for name in ("Alice", "Bob", "Carl", "Dora"))
    bob.field.fill("one")
    carl.field.fill("two")
    expect(alice.typing).to_have_text(re.compile("(Bob and Carl|Carl and Bob) are typing…"))
    expect(alice.typing).to_be_empty()
    for tab in (bob, carl, dora):
        tab.field.press("End")
        tab.field.press_sequentially("!")
    expect(alice.typing).to_have_text("several people are typing…")


def test_a_typer_is_not_left_typing_when_the_server_dies(open_tab: OpenTab, site: ServerProcess) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    bob.field.fill("Hello")
    expect(alice.typing).to_have_text("Bob is typing…")
    site.kill()
    expect(alice.typing).to_be_empty()


def test_a_user_who_closes_the_page_is_offline_with_a_last_seen(open_tab: OpenTab) -> None:
    bob, alice = open_tab("Bob"), open_tab("Alice")
    alice.expect_state("bob", "online")
    bob.page.close()
    alice.expect_state("bob", "offline")
    expect(alice.person("bob").locator(".state")).to_have_text("last seen just now")
    alice.open_person("bob")
    expect(alice.person("bob").locator("dl")).to_contain_text(re.compile(r"Last seen.*\d\d:\d\d"))


def test_last_seen_goes_on_by_itself(open_tab: OpenTab) -> None:
    bob, alice = open_tab("Bob"), open_tab("Alice")
    alice.expect_state("bob", "online")
    bob.page.close()
    state = alice.person("bob").locator(".state")
    expect(state).to_have_text("last seen just now")
    # Set the clock to one second before the text changes. The page must update it without requests or input.
    for later, words in (("5 * 60", "5 minutes"), ("3600", "1 hour"), ("50 * 3600", "2 days")):
        alice.page.evaluate(
            f"""() => import('/times.js').then(({{setServerTime, now}}) => {{
                globalThis.began ??= now();
                setServerTime(began + {later} * 1000);
                document.dispatchEvent(new Event("visibilitychange"));
            }})"""
        )
        expect(state).to_have_text(f"last seen {words} ago")


def test_a_message_arrives_once_as_plain_text_and_is_there_for_who_comes_later(open_tab: OpenTab) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    text = "<img src=x onerror=alert(1)> & hello"
    alice.say(text)
    for tab in (alice, bob, open_tab("Carl")):
        expect(tab.messages).to_have_text([text])
        expect(tab.page.locator(".messages img")).to_have_count(0)


def test_busy_is_seen_and_invisible_looks_like_offline(open_tab: OpenTab) -> None:
    bob, alice = open_tab("Bob"), open_tab("Alice")
    bob.page.get_by_label("Busy").click()
    alice.expect_state("bob", "busy")
    bob.page.get_by_label("Invisible").click()
    alice.expect_state("bob", "offline")
    expect(bob.page.locator("#me .state")).to_have_text("invisible: others see you offline")
    bob.page.get_by_label("Auto").click()
    alice.expect_state("bob", "online")


def test_an_offline_user_can_be_watched_and_unwatched(open_tab: OpenTab) -> None:
    alice = open_tab("Alice")
    alice.page.get_by_label("Watch a user").fill("Bob Miller")
    alice.page.get_by_role("button", name="Watch", exact=True).click()
    alice.expect_state("bob-miller", "offline")
    bob = open_tab("Bob Miller")
    alice.expect_state("bob-miller", "online")
    bob.page.close()
    alice.expect_state("bob-miller", "offline")
    alice.open_person("bob-miller")
    alice.page.get_by_role("button", name="Stop watching Bob Miller").click()
    expect(alice.person("bob-miller")).to_have_count(0)


def test_a_reload_stays_signed_in_and_other_users_see_no_change(open_tab: OpenTab) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    alice.say("before")
    bob.expect_state("alice", "online")
    bob.page.evaluate(
        """() => { const state = document.querySelector('[data-user="alice"] .state');
        globalThis.seen = [];
        new MutationObserver(() => seen.push(state.textContent)).observe(state, {childList: true, subtree: true}); }"""
    )
    alice.page.reload()
    alice.expect_connected()
    expect(alice.messages).to_have_text(["before"])
    alice.expect_state("bob", "online")
    alice.say("after")
    expect(bob.messages).to_have_text(["before", "after"])
    assert not any("offline" in state for state in bob.page.evaluate("seen"))


def test_a_user_who_leaves_the_page_is_offline_at_once_and_can_enter_under_another_name(open_tab: OpenTab) -> None:
    bob, alice = open_tab("Bob"), open_tab("Alice")
    alice.expect_state("bob", "online")
    bob.page.get_by_role("button", name="Leave").click()
    alice.expect_state("bob", "offline")
    bob.enter("Bert")
    expect(bob.page.locator("#me .name")).to_have_text("Bert")
    bob.expect_state("alice", "online")
    bob.expect_state("bob", "offline")


def test_the_page_survives_a_restart_of_the_server(open_tab: OpenTab, site: ServerProcess) -> None:
    bob, alice = open_tab("Bob"), open_tab("Alice")
    alice.say("one")
    expect(bob.messages).to_have_text(["one"])
    alice.expect_state("bob", "online")
    site.stop()
    expect(alice.page.locator("#connection")).to_contain_text("Reconnecting")
    expect(alice.page.locator("#people-note")).to_have_text("as last known")
    alice.say("two")
    expect(alice.page.locator(".message.draft")).to_be_visible()
    site.start()
    alice.expect_connected()
    expect(alice.messages).to_have_text(["one", "two"])
    expect(bob.messages).to_have_text(["one", "two"])
    expect(alice.page.locator(".message.draft")).to_have_count(0)
    alice.expect_state("bob", "online")
    bob.expect_state("alice", "online")


def test_a_crashed_server_is_noticed_and_found_again(open_tab: OpenTab, site: ServerProcess) -> None:
    alice = open_tab("Alice")
    site.kill()
    try_now = alice.page.get_by_role("button", name="Try now")
    expect(try_now).to_be_visible()
    site.start()
    # The page also reconnects by itself; then the button is gone.
    try_now.evaluate_all("buttons => buttons.forEach((button) => button.click())")
    alice.expect_connected()
    expect(alice.page.get_by_role("alert")).to_be_hidden()


def test_a_close_that_forbids_coming_back_is_explained(open_tab: OpenTab, site: ServerProcess) -> None:
    alice = open_tab("Alice")
    [session] = site.call("GET", "v1/users/alice/sessions")["sessions"]
    site.call("DELETE", f"v1/sessions/{session['session']}")
    expect(alice.page.locator("#connection")).to_have_text("Disconnected")
    expect(alice.page.get_by_role("alert")).to_contain_text("You were disconnected by the operator.")
    alice.page.get_by_role("button", name="Reconnect").click()
    alice.expect_connected()


def test_a_silent_connection_is_given_up_and_made_anew(open_tab: OpenTab, site: ServerProcess) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    alice.say("one")
    expect(bob.messages).to_have_text(["one"])
    site.freeze()
    for tab in (alice, bob):
        expect(tab.page.locator("#connection")).to_contain_text("Reconnecting")
    site.thaw()
    for tab in (alice, bob):
        tab.expect_connected()
    alice.say("two")
    expect(bob.messages).to_have_text(["one", "two"])
    bob.expect_state("alice", "online")


def test_without_a_name_the_door_stays_shut(open_tab: OpenTab) -> None:
    tab = open_tab()
    tab.page.get_by_label("Your name").fill("   ")
    tab.page.get_by_role("button", name="Join").click()
    expect(tab.page.locator("#name-hint")).to_have_text("Enter a name. You can choose any name.")
    tab.page.get_by_label("Your name").fill("Zoë")
    expect(tab.page.locator("#name-hint")).to_have_text("Your id will be zoe")


def test_every_name_gives_an_id_that_the_server_takes(open_tab: OpenTab) -> None:
    tab = open_tab()
    names = ["Ann Lee", "  Ann   Lee ", "Zoë", "_x", "-dash", "a@b.org", "李", "王", "🙂", "...", "x" * 500]
    ids = tab.page.evaluate("names => import('/names.js').then(({idFor}) => names.map(idFor))", names)
    assert ids[:6] == ["ann-lee", "ann-lee", "zoe", "_x", "dash", "a@b.org"]
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}", user) for user in ids)
    assert len(set(ids[6:])) == 5
    tab.enter("李")
    expect(tab.page.locator("#me .name")).to_have_text("李")


def test_a_phone_shows_everything_without_scrolling_sideways(open_tab: OpenTab) -> None:
    alice = open_tab(**PHONE)
    assert not alice.overflows
    alice.enter("Alice with a name that is much longer than a phone is wide")
    bob = open_tab("Bob with a name that is much longer than any phone is wide")
    bob.say("a very long word: " + "x" * 300)
    expect(alice.messages).to_have_count(1)
    bob.field.fill("typing")
    expect(alice.typing).to_contain_text("is typing…")
    assert not alice.overflows
    for part in (alice.field, alice.typing, alice.page.locator("#room-title")):
        expect(part).to_be_in_viewport()
    alice.page.get_by_role("button", name="Rooms and people").click()
    for part in (alice.page.locator("#me"), alice.page.locator("#rooms"), alice.page.locator("#people li").first):
        expect(part).to_be_in_viewport()
    assert not alice.overflows
    alice.page.emulate_media(color_scheme="dark")
    assert not alice.overflows


def test_the_page_layout_is_stable_when_a_user_types_or_the_connection_is_lost(
    open_tab: OpenTab, site: ServerProcess
) -> None:
    alice, bob = open_tab("Alice"), open_tab("Bob")
    alice.say("hello")
    expect(bob.messages).to_have_text(["hello"])
    places = [bob.field, bob.page.locator("#desk .message"), bob.page.locator("#me"), bob.page.locator("#people")]
    before = [place.bounding_box() for place in places]
    alice.field.fill("again")
    expect(bob.typing).not_to_be_empty()
    site.stop()
    expect(bob.page.locator("#connection")).to_contain_text("Reconnecting")
    assert [place.bounding_box() for place in places] == before
