"""Demo on broken networks.

All periods are a tenth of the server's defaults: one second here stands for ten.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from redis_servers import Proxy

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser
# A tenth of 30, 75, 30, 5 and 15 s. The client's own waits (reconnects, replies) are not shortened.
TENTH = {
    "GREENDOT_PRESENCE_HEARTBEAT_S": "3",
    "GREENDOT_PRESENCE_DEAD_AFTER_S": "7.5",
    "GREENDOT_PRESENCE_GRACE_S": "3",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "0.5",
    "GREENDOT_PRESENCE_SILENT_GRACE_S": "1.5",
}
# For each cause: seconds without a network, and the states that others see.
AWAY = {
    "reset-10": (1.0, []),
    "reset-40": (4.0, ["offline", "online"]),
    "silent-60": (6.0, []),
    "silent-120": (12.0, ["offline", "online"]),
}


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve(**TENTH) as process:
        yield process


def wait_until(tab: Tab, moment: float) -> None:
    """Wait until the given time while the browser runs, so that the test can check that nothing happened."""
    tab.page.wait_for_timeout(max(0.0, moment - time.monotonic()) * 1000)


def test_who_is_back_soon_was_never_away_and_who_is_not_went_once(open_tab: OpenTab, site: ServerProcess) -> None:
    watcher = open_tab("Watcher")
    with ExitStack() as stack:
        lines = {user: stack.enter_context(Proxy(site.port)) for user in AWAY}
        tabs = {user: open_tab(user, f"http://127.0.0.1:{lines[user].port}/") for user in AWAY}
        for user in AWAY:
            watcher.expect_state(user, "online")
        watcher.say("before")
        for tab in tabs.values():
            expect(tab.messages.last).to_have_text("before")
        watcher.heard.clear()
        began = time.monotonic()
        for user, line in lines.items():
            (line.cut if user.startswith("reset") else line.freeze)()
        watcher.say("meanwhile")
        for user, tab in tabs.items():
            tab.say(f"{user} writes")
        for user, (away_s, _) in AWAY.items():
            wait_until(watcher, began + away_s)
            lines[user].heal()
            press_try_now(tabs[user])
        for user, tab in tabs.items():
            tab.expect_connected()
            watcher.expect_state(user, "online")
        watcher.say("after")
        written = {"before", "meanwhile", "after", *(f"{user} writes" for user in AWAY)}
        for tab in (watcher, *tabs.values()):
            expect(tab.messages.last).to_have_text("after")
            expect(tab.messages).to_have_count(len(written))
            assert {*tab.messages.all_text_contents()} == written  # none missing, no duplicates
        assert {user: watcher.states_of(user) for user in AWAY} == {user: seen for user, (_, seen) in AWAY.items()}


def press_try_now(tab: Tab) -> None:
    """Click "Try now", so that the client's back-off does not add to the outage."""
    tab.page.evaluate("document.querySelector('#desk .notice button').click()")


def test_a_simulated_outage_cuts_the_socket_and_its_steps_are_shown(open_tab: OpenTab) -> None:
    ada, bert = open_tab("Ada"), open_tab("Bert")
    bert.expect_state("ada", "online")
    bert.heard.clear()
    story = ada.page.locator("#desk .story")
    ada.page.get_by_role("button", name="Simulate outage").click()
    ada.page.get_by_role("button", name="Cut the connection").click()
    expect(story).to_have_text(
        re.compile(r"^Cut \d s ago\. The server keeps your session\. Other users see you online for \d s\.")
    )
    expect(ada.page.locator("#connection")).to_contain_text("Reconnecting")
    ada.say("written offline")
    bert.say("while you were away")
    ada.page.get_by_role("button", name="End outage").click()
    expect(story).to_have_text(
        re.compile(r"^Back after \d s: other users saw no change\. 1 message fetched, 1 waiting message sent\.")
    )
    for tab in (ada, bert):
        expect(tab.page.get_by_text("written offline")).to_have_count(1)
        expect(tab.page.get_by_text("while you were away")).to_have_count(1)
    assert bert.states_of("ada") == []
    ada.page.get_by_role("button", name="Simulate outage").click()
    ada.page.get_by_role("button", name="Cut the connection").click()
    bert.expect_state("ada", "offline")
    expect(story).to_contain_text("Other users now see you offline. They received one update.")
    ada.page.get_by_role("button", name="End outage").click()
    expect(story).to_have_text(re.compile(r"other users saw you go offline once and return"))
    bert.expect_state("ada", "online")
    assert bert.states_of("ada") == ["offline", "online"]


def test_a_silent_outage_is_noticed_late_and_messages_sent_meanwhile_arrive(open_tab: OpenTab) -> None:
    cleo, dora = open_tab("Cleo"), open_tab("Dora")
    dora.expect_state("cleo", "online")
    dora.heard.clear()
    cleo.page.get_by_role("button", name="Simulate outage").click()
    cleo.page.get_by_role("button", name="Drop all packets").click()
    expect(cleo.page.locator("#desk .story")).to_contain_text("The server notices in")
    cleo.say("into the tunnel")
    dora.say("can you hear me?")
    expect(cleo.page.locator("#desk .story")).to_contain_text("Silent for 2 s")
    expect(dora.page.get_by_text("into the tunnel")).to_have_count(0)
    cleo.page.get_by_role("button", name="End outage").click()
    for tab in (cleo, dora):
        expect(tab.page.get_by_text("into the tunnel")).to_have_count(1)
        expect(tab.page.get_by_text("can you hear me?")).to_have_count(1)
    expect(cleo.page.locator("#desk .story")).to_contain_text("other users saw no change")
    assert dora.states_of("cleo") == []


def test_while_one_device_is_cut_off_the_other_keeps_its_person_online(open_tab: OpenTab) -> None:
    edda, finn = open_tab("Edda"), open_tab("Finn")
    edda.page.get_by_role("button", name="Second device").click()
    phone = edda.page.get_by_role("region", name="Your phone")
    expect(phone.locator(".foot")).to_have_text("Connected")
    finn.expect_state("edda", "online")
    finn.heard.clear()
    phone.get_by_role("button", name="Simulate outage").click()
    phone.get_by_role("button", name="Cut the connection").click()
    edda.page.locator("#desk .pull").click()
    edda.page.locator("#desk .pull-menu button[value=cut]").click()
    phone.get_by_role("button", name="End outage").click()
    expect(phone.locator(".foot")).to_have_text("Connected")
    expect(edda.page.locator("#desk .story")).to_contain_text("Your other device keeps you online")
    wait_until(finn, time.monotonic() + 3.5)  # longer than the grace
    assert finn.states_of("edda") == []
