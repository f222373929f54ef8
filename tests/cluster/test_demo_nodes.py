"""Two users in two browsers, on one node and on two nodes with one Redis: each sees the state of the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from cluster.nodes import PERIODS, redis_url
from redis_servers import Proxy, RedisProcess

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser
SECRET = "a secret that both nodes of the demo have"


@pytest.fixture(params=["one node", "two nodes"])
def nodes(
    request: pytest.FixtureRequest,
    serve: Callable[..., AbstractContextManager[ServerProcess]],
    redis: RedisProcess,
    tmp_path: Path,
) -> Iterator[list[ServerProcess]]:
    """Yield the nodes of the first and the second user."""
    settings = {**PERIODS, "GREENDOT_AUTH_SECRET": SECRET, "GREENDOT_PRESENCE_IDLE_S": "3"}
    with ExitStack() as stack:
        if request.param == "one node":
            yield [stack.enter_context(serve(tmp_path, **settings))] * 2
        else:
            settings |= {"GREENDOT_ENGINE_URL": redis_url(redis.port)}
            yield [stack.enter_context(serve(tmp_path, **settings)) for _ in range(2)]


@pytest.fixture
def site(nodes: list[ServerProcess]) -> ServerProcess:
    return nodes[0]


def test_each_sees_of_the_other_what_is_written(open_tab: OpenTab, nodes: list[ServerProcess]) -> None:
    with Proxy(nodes[1].port) as line:
        ann = open_tab("Ann")
        bob = open_tab("Bob", f"http://127.0.0.1:{line.port}/")
        said_and_typed(ann, bob)
        dots(ann, bob)
        notified(ann, bob)
        offline_and_back(ann, bob, line)


def said_and_typed(ann: Tab, bob: Tab) -> None:
    ann.expect_state("bob", "online")
    bob.expect_state("ann", "online")
    bob.field.press_sequentially("Hel")
    expect(ann.typing).to_have_text("Bob is typing…")
    expect(ann.typing).to_be_empty()  # typing expires
    bob.say("hello")
    expect(ann.messages).to_have_text(["hello"])
    bob.open_room("design")
    bob.say("a draft")
    expect(ann.page.locator('#rooms [data-room="design"] .badge')).to_have_text("1")
    bob.open_room("lobby")


def dots(ann: Tab, bob: Tab) -> None:
    ann.expect_state("bob", "idle")  # after three seconds; the default is five minutes
    bob.page.locator("#until option").nth(1).evaluate("option => { option.value = '3' }")  # shortened from a minute
    bob.page.get_by_label("Busy").click()
    bob.page.get_by_label("End of the status").select_option("1 minute")
    expect(ann.person("bob").locator(".state")).to_have_text(re.compile(r"^busy · until \d\d:\d\d"))
    bob.say("not too busy to write")
    expect(ann.person("bob").locator(".state")).to_have_text(re.compile("^(online|idle)$"))  # the status has expired
    ann.expect_state("bob", "idle")
    bob.say("there again")
    ann.expect_state("bob", "online")


def notified(ann: Tab, bob: Tab) -> None:
    bob.open_person("ann")
    bob.page.get_by_role("button", name="Notify Ann").click()
    expect(ann.page.locator("#bell-badge")).to_have_text("1")
    ann.page.get_by_role("button", name="Notifications, 1 unread").click()
    expect(ann.page.locator("#notifications .entry")).to_contain_text("Bob waves at you.")
    ann.page.get_by_role("button", name="Mark all read").click()
    expect(ann.page.locator("#bell-badge")).to_be_hidden()
    ann.page.keyboard.press("Escape")


def offline_and_back(ann: Tab, bob: Tab, line: Proxy) -> None:
    line.cut()
    expect(ann.person("bob").locator(".state")).to_have_text("last seen just now")
    ann.say("while you were away")
    bob.say("written without a network")
    expect(bob.page.locator(".message.draft")).to_be_visible()
    line.heal()
    bob.expect_connected()
    bob.expect_state("ann", "online")
    for tab in (ann, bob):
        expect(tab.messages.get_by_text("while you were away")).to_have_count(1)
        expect(tab.messages.get_by_text("written without a network")).to_have_count(1)
    expect(ann.person("bob").locator(".dot")).to_have_attribute("data-state", re.compile("online|idle"))
    texts = ["hello", "not too busy to write", "there again", "while you were away", "written without a network"]
    assert sorted(ann.messages.all_text_contents()) == texts
    assert sorted(bob.messages.all_text_contents()) == texts
