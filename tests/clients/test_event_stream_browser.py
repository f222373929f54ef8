"""JavaScript client in a real browser behind a real nginx that passes no WebSockets and buffers responses."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, Page

from deployed.test_event_stream_proxied import configured

if TYPE_CHECKING:
    from e2e.browser import ServerProcess

pytest_plugins = ("e2e.browser",)
pytestmark = pytest.mark.browser

LOCATION = "location / { proxy_pass http://127.0.0.1:%d; proxy_set_header Host $http_host; }"
BEGIN = """
async ([user, url]) => {
  const { Greendot } = await import("/greendot.js");
  const getToken = async () => (await (await fetch(`/dev/token?user=${user}`)).json()).token;
  window.client = new Greendot({ url, getToken, backoff: { baseMs: 50, capMs: 500 } });
  window.received = [];
  client.on("message", ({ body }) => received.push(body));
  client.connect();
  await client.room("lobby").join();
}
"""
Open = Callable[..., Page]


@contextmanager
def proxy(folder: Path, server: int) -> Iterator[str]:
    """Run nginx in front of the server; yield its URL."""
    port, command = configured(folder, LOCATION % server)
    with (folder / "nginx.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            for _ in range(500):
                try:
                    create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.01)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


@pytest.fixture
def opened(chromium: Browser, site: ServerProcess, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that opens a page with a client, through nginx unless `straight`."""
    contexts = []

    with proxy(tmp_path, site.port) as url:

        def open_one(user: str, *, straight: bool = False) -> Page:
            contexts.append(chromium.new_context(bypass_csp=True))
            page: Page = contexts[-1].new_page()
            page.goto((site.url if straight else url) + "favicon.svg")
            page.evaluate(BEGIN, [user, "/"])
            page.wait_for_function("client.state === 'online'")
            return page

        yield open_one
        for context in contexts:
            context.close()


def requests(page: Page) -> list[str]:
    """Return a list that records the page's next requests to `/v1/events`."""
    made: list[str] = []
    page.on("request", lambda it: "/v1/events" in it.url and made.append(it.method))
    return made


def test_a_page_whose_sockets_do_not_pass_uses_a_stream_and_receives_at_once(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob", straight=True)
    posts = requests(alice)
    for number in range(5):
        bob.evaluate(f"client.room('lobby').send({number})")
        alice.wait_for_function(f"received.length === {number + 1}", timeout=2_000)
    alice.evaluate("client.room('lobby').send('from a stream')")
    bob.wait_for_function("received.at(-1) === 'from a stream'", timeout=2_000)
    assert bob.evaluate("received") == alice.evaluate("received") == [0, 1, 2, 3, 4, "from a stream"]
    assert {*posts} == {"POST"}


def test_a_page_remembers_the_transport_and_recovers_after_kill_9(opened: Open, site: ServerProcess) -> None:
    alice = opened("alice")
    sockets: list[object] = []
    alice.on("websocket", lambda socket: sockets.append(socket))
    site.kill()
    alice.wait_for_function("client.state !== 'online'")
    alice.evaluate("() => { window.sending = client.room('lobby').send('meanwhile'); }")
    site.start()
    alice.wait_for_function("client.state === 'online'", timeout=20_000)
    alice.wait_for_function("received.includes('meanwhile')")
    assert sockets == []


def test_a_page_that_is_left_ends_its_stream(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob", straight=True)
    bob.evaluate("() => { window.states = []; client.presence.watch('alice', ({ state }) => states.push(state)); }")
    bob.wait_for_function("states.at(-1) === 'online'")
    alice.evaluate("client.close()")
    bob.wait_for_function("states.at(-1) === 'offline'", timeout=5_000)


def test_a_page_of_another_origin_uses_a_stream_where_its_origin_is_allowed(
    chromium: Browser, serve: Callable[..., object], tmp_path: Path
) -> None:
    with serve(GREENDOT_DOOR_ORIGINS="*") as site, proxy(tmp_path, site.port) as url:  # type: ignore[attr-defined]
        context = chromium.new_context(bypass_csp=True)
        page = context.new_page()
        page.goto(site.url + "favicon.svg")
        page.evaluate(BEGIN, ["alice", url])
        page.wait_for_function("client.state === 'online'")
        page.evaluate("client.room('lobby').send('across')")
        page.wait_for_function("received.at(-1) === 'across'")
        context.close()
