"""Notices of the demo page about the connection and the user's options."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Route, expect

from greendot.auth.tokens import Tokens
from greendot.testing import WireClient

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]
    Serve = Callable[..., AbstractContextManager[ServerProcess]]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser
SECRET = "a secret for the tests of the demo, long enough"


def notice(tab: Tab) -> Locator:
    return tab.page.locator("#desk .notice")


def try_now(tab: Tab) -> None:
    """Click the button of the notice if it is still there: the page also reconnects by itself."""
    notice(tab).get_by_role("button").evaluate_all("buttons => buttons.forEach((button) => button.click())")


def test_a_restart_of_the_server_is_shown_and_the_page_reconnects(open_tab: OpenTab, site: ServerProcess) -> None:
    ann = open_tab("Ann")
    site.stop()  # the drain asks each client to reconnect later
    expect(notice(ann)).to_contain_text("The server is restarting.")
    expect(ann.page.locator("#connection")).to_contain_text("Reconnecting")
    expect(notice(ann).get_by_role("button")).to_have_text("Try now")
    ann.say("meanwhile")
    expect(ann.page.locator(".message.draft .note")).to_have_text("will be sent when connected")
    expect(notice(ann)).to_contain_text("The server cannot be reached.")
    site.start()
    try_now(ann)
    ann.expect_connected()
    expect(notice(ann)).to_be_hidden()
    expect(ann.messages.last).to_have_text("meanwhile")
    expect(ann.page.locator(".message.draft")).to_have_count(0)


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@contextmanager
def crowd(port: int) -> Iterator[None]:
    """Keep new users sending hellos during the block. The first ones have been answered when it begins."""
    begun, over = threading.Event(), threading.Event()
    token = Tokens(SECRET).make("stranger", round(time.time() * 1000), 3600)

    async def hello() -> None:
        with suppress(Exception):  # most are refused
            async with await WireClient.connect(port) as client:
                await client.hello(token)

    async def come() -> None:
        while not over.is_set():
            await asyncio.gather(*(hello() for _ in range(4)))
            begun.set()

    thread = threading.Thread(target=lambda: asyncio.run(come()))
    thread.start()
    try:
        assert begun.wait(30)
        yield
    finally:
        over.set()
        thread.join()


def test_an_overloaded_server_shows_a_notice_until_the_client_is_connected(open_tab: OpenTab, serve: Serve) -> None:
    limits = {"GREENDOT_ADMISSION_HELLOS_PER_S": "1", "GREENDOT_ADMISSION_WAITING": "1"}
    with serve(GREENDOT_AUTH_SECRET=SECRET, **limits) as busy:
        tab = open_tab(url=busy.url)
        tab.page.get_by_label("Your name").fill("Guest")
        with crowd(port_of(busy.url)):
            tab.page.get_by_role("button", name="Join").click()
            expect(notice(tab)).to_contain_text("The server is very busy.")
        tab.expect_connected()  # after some retries
        expect(notice(tab)).to_be_hidden()


def test_an_expiring_token_is_replaced_unseen_and_a_failed_replacement_is_shown(
    open_tab: OpenTab, serve: Serve
) -> None:
    with serve(GREENDOT_AUTH_SECRET=SECRET) as site:
        tab = open_tab(url=site.url)
        asked = 0
        failing = False

        def token(route: Route) -> None:
            nonlocal asked
            asked += 1
            if failing:
                route.fulfill(status=503)
            else:
                route.fulfill(json={"token": Tokens(SECRET).make("bea", round(time.time() * 1000), 8, name="Bea")})

        tab.page.route("**/dev/token?*", token)
        tab.enter("Bea")
        tab.page.wait_for_timeout(9_000)  # longer than one token is valid
        tab.expect_connected()
        assert asked >= 2
        assert not [frame for frame in tab.heard if frame["type"] == "error"]
        failing = True
        expect(notice(tab)).to_contain_text(re.compile("Your sign-in (is being renewed|could not be checked)"))
        failing = False
        try_now(tab)
        tab.expect_connected()
        # The browser logs the failed requests itself.
        tab.problems = [problem for problem in tab.problems if "503" not in problem]


def test_a_user_signed_out_by_the_app_is_notified_and_can_sign_in_again(open_tab: OpenTab, site: ServerProcess) -> None:
    cleo, dan = open_tab("Cleo"), open_tab("Dan")
    cleo.say("hello")
    dan.expect_state("cleo", "online")
    site.call("POST", "v1/tokens/revoke", {"user": "cleo"})
    expect(notice(cleo)).to_contain_text("You were signed out.")
    expect(cleo.page.locator("#connection")).to_have_text("Disconnected")
    dan.expect_state("cleo", "offline")
    cleo.page.wait_for_timeout(1_100)  # the revocation covers tokens of the same second
    notice(cleo).get_by_role("button", name="Sign in again").click()
    cleo.expect_connected()
    dan.expect_state("cleo", "online")
    expect(cleo.messages.last).to_have_text("hello")


def test_a_device_without_a_network_shows_a_notice_and_reconnects_by_itself(
    open_tab: OpenTab, site: ServerProcess
) -> None:
    eva, fay = open_tab("Eva"), open_tab("Fay")
    fay.expect_state("eva", "online")
    eva.page.context.set_offline(True)
    site.kill()
    expect(notice(eva)).to_contain_text("This device is offline.")
    expect(eva.page.locator("#connection")).to_have_text("No network")
    eva.say("later")
    site.start()
    eva.page.context.set_offline(False)
    eva.expect_connected()
    expect(eva.messages.last).to_have_text("later")
    fay.expect_connected()
    expect(fay.messages.last).to_have_text("later")
