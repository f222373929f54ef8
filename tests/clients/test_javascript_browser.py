"""JavaScript client in a real browser, as pages load it: its events, and behaviour that only a browser has."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Browser, Page

if TYPE_CHECKING:
    from e2e.browser import ServerProcess

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

# Create a client of a user and record all its events.
BEGIN = """
async ([user, options]) => {
  const { Greendot, localStore } = await import("/greendot.js");
  const getToken = async () => (await (await fetch(`/dev/token?user=${user}`)).json()).token;
  const storage = options.stored ? localStore() : undefined;
  window.client = new Greendot({ url: "/", getToken, storage, backoff: { baseMs: 100, capMs: 500 } });
  window.states = [];
  window.told = [];
  client.on("state", ({ state }) => states.push(state));
  client.on("message", ({ body }) => told.push(body));
  client.connect();
  if (options.room) await client.room(options.room).join();
}
"""

Open = Callable[..., Page]


@pytest.fixture
def opened(chromium: Browser, site: ServerProcess) -> Iterator[Open]:
    """Yield a function that opens an empty page of the server with a client of the user."""
    contexts = []

    def open_one(user: str, **options: Any) -> Page:
        # The page's content security policy would block the test's evaluations.
        contexts.append(chromium.new_context(bypass_csp=True))
        page: Page = contexts[-1].new_page()
        page.goto(site.url + "favicon.svg")
        page.evaluate(BEGIN, [user, options])
        page.wait_for_function("client.state === 'online'")
        return page

    yield open_one
    for context in contexts:
        context.close()


def frames(page: Page) -> list[str]:
    """Return a list that records the types of commands on the page's next connections."""
    sent: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(json.loads(frame)["type"])))
    return sent


def test_two_hundred_people_are_watched_with_one_command(opened: Open) -> None:
    page = opened("alice")
    sent = frames(page)
    page.evaluate("client.close(); client.connect()")
    page.wait_for_function("client.state === 'online'")
    page.evaluate("() => { for (let n = 0; n < 200; n++) client.presence.watch(`user-${n}`); }")
    page.wait_for_function("client.presence.of('user-199') !== undefined")
    assert sent.count("watch") == 1


def test_input_on_the_page_is_sent_as_activity_once(opened: Open) -> None:
    page = opened("alice")
    sent = frames(page)
    page.evaluate("client.close(); client.connect()")
    page.wait_for_function("client.state === 'online'")
    assert "activity" not in sent
    for step in range(20):
        page.mouse.move(step, step)
    page.keyboard.press("a")
    page.evaluate("client.rooms()")
    assert sent.count("activity") == 1


def test_a_page_without_a_network_is_offline_and_reconnects_when_there_is_one(
    opened: Open, site: ServerProcess
) -> None:
    page = opened("alice", room="lobby")
    site.kill()
    page.wait_for_function("client.state === 'waiting'")
    page.context.set_offline(True)
    page.wait_for_function("client.state === 'offline'")
    assert page.evaluate("client.reason.action") == "check-network"
    page.evaluate("() => { window.sending = client.room('lobby').send('meanwhile'); }")
    site.start()
    page.context.set_offline(False)
    page.wait_for_function("client.state === 'online'")
    assert page.evaluate("sending.then(({ seq }) => seq)") == 1
    page.wait_for_function("told.length === 1")


def test_a_reloaded_page_receives_the_messages_it_missed(opened: Open) -> None:
    alice, bob = opened("alice", room="lobby"), opened("bob", room="lobby", stored=True)
    alice.evaluate("client.room('lobby').send('first')")
    bob.wait_for_function("told.length === 1")
    bob.goto("about:blank")
    alice.evaluate("client.room('lobby').send('second')")
    bob.go_back()
    bob.evaluate(BEGIN, ["bob", {"room": "lobby", "stored": True}])
    bob.wait_for_function("told.length > 0")
    assert bob.evaluate("told") == ["second"]


def test_a_server_that_goes_silent_is_given_up_and_found_again(opened: Open, site: ServerProcess) -> None:
    page = opened("alice")
    site.freeze()
    page.wait_for_function("states.at(-1) !== 'online'", timeout=15_000)
    site.thaw()
    page.wait_for_function("client.state === 'online'", timeout=20_000)
    assert page.evaluate("states.slice(0, 3)") == ["connecting", "online", "waiting"]
