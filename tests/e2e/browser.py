"""Real server process and real browser, for tests of pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, WebSocket, expect, sync_playwright

from e2e.forking import Blocking
from redis_servers import free_port

API_KEY = "a-key-for-the-tests-of-the-page"
SETTINGS = {
    "GREENDOT_PRESENCE_HEARTBEAT_S": "2",
    "GREENDOT_PRESENCE_DEAD_AFTER_S": "6",
    "GREENDOT_PRESENCE_GRACE_S": "1",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": "0.5",
    "GREENDOT_TYPING_TTL_S": "4",
    "GREENDOT_TYPING_THROTTLE_S": "0.5",
    "GREENDOT_API_KEY": API_KEY,
}
# The headless shell draws no windows: a page costs a third of the processor time.
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# The page refreshes the list of people every ten seconds. All other updates are faster.
expect.set_options(timeout=15_000)

# Messages that browsers log when a server is unreachable; a page cannot suppress them.
UNREACHABLE = re.compile(r"ERR_CONNECTION_REFUSED|WebSocket connection to .* failed")
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} blocked ${event.blockedURI}`));
"""


class ServerProcess:
    """`greendot serve --dev` on its own port, which tests can stop and restart."""

    def __init__(self, folder: Path, **settings: str) -> None:
        # The port stays free while the server is stopped: the kernel assigns none of this range.
        self.port = free_port()
        self._log = folder / f"server-{self.port}.log"
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("GREENDOT_")}
        self._environment |= SETTINGS | {"GREENDOT_SERVER_DATA_DIR": str(folder / "data")} | settings
        self._folder = folder
        self._process: Blocking | None = None
        self.url = f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start the server and return when it is ready."""
        with self._log.open("a") as log:
            words = ("serve", "--dev", "--port", str(self.port))
            self._process = Blocking(self._folder, self._environment, *words, log=log)
        said = ""
        while "is ready" not in said:
            line = self._process.stdout.readline()
            assert line, f"the server exited before it was ready: {said}{self.log}"
            said += line

    def stop(self) -> None:
        """Stop the server with a signal, as an operator does."""
        if self._process is not None:
            self.thaw()
            self._process.terminate()
            self._end()

    def kill(self) -> None:
        """Kill the server, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: sockets stay open and receive nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        assert self._process is not None
        self._process.communicate(timeout=20)
        self._process = None

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the HTTP API with the operator's key."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, method=method, headers={"Authorization": f"Bearer {API_KEY}"})
        with urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    @property
    def log(self) -> str:
        return self._log.read_text()


class Tab:
    """Page of one person in a browser, with its frames and problems."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.problems: list[str] = []
        self.heard: list[dict[str, Any]] = []  # frames of all sockets, in order
        self.said: list[dict[str, Any]] = []
        page.on("websocket", self._listen)
        page.add_init_script(REPORT_VIOLATIONS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda text: self.heard.append(json.loads(text)))
        socket.on("framesent", self._sent)

    def _sent(self, text: str | bytes) -> None:
        with suppress(json.JSONDecodeError):  # the playground sends any text
            self.said.append(json.loads(text))

    def states_of(self, user: str) -> list[str]:
        """Return the states of the user in the presence.changed events that this page received."""
        told = [frame["data"] for frame in self.heard if frame["type"] == "presence.changed"]
        return [entry["state"] for entry in told if entry["user"] == user]

    def enter(self, name: str) -> None:
        self.page.get_by_label("Your name").fill(name)
        self.page.get_by_role("button", name="Join").click()
        self.expect_connected()

    def expect_connected(self) -> None:
        """Wait until the page is connected and in the room. Text typed earlier is not published."""
        expect(self.page.locator("#connection")).to_have_text("Connected")
        expect(self.page.locator("#present")).not_to_have_text("not connected")

    def person(self, user: str) -> Locator:
        return self.page.locator(f'#people [data-user="{user}"]')

    def expect_state(self, user: str, state: str) -> None:
        """Expect the state in the user's dot and in the text."""
        expect(self.person(user).locator(".dot")).to_have_attribute("data-state", state)
        words = "offline|last seen" if state == "offline" else state
        expect(self.person(user).locator(".state")).to_have_text(re.compile(words))

    @property
    def field(self) -> Locator:
        return self.page.locator("#desk .talk:not([hidden]) .say textarea")

    def open_person(self, user: str) -> None:
        self.person(user).locator(".row").click()

    def open_room(self, room: str) -> None:
        """Open the room and wait until the page has joined it. Text typed earlier is not published."""
        self.page.locator(f'#rooms [data-room="{room}"] button').click()
        expect(self.page.locator("#room-title")).to_have_text(room)
        expect(self.page.locator("#present")).not_to_have_text("not connected")

    @property
    def drafts(self) -> Locator:
        """Return the own messages that the page has not received from the server yet."""
        return self.page.locator("#desk .talk:not([hidden]) .message.draft")

    @property
    def typing(self) -> Locator:
        return self.page.locator("#desk .talk:not([hidden]) .typing")

    @property
    def messages(self) -> Locator:
        return self.page.locator("#desk .talk:not([hidden]) .message .text")

    def say(self, text: str) -> None:
        self.field.fill(text)
        self.field.press("Enter")

    @property
    def overflows(self) -> bool:
        return self.page.evaluate("document.documentElement.scrollWidth > innerWidth")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yield a browser for one module, not the session: no other test can start an event loop while Playwright runs."""
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        sentence = "Chromium is not installed; run: apt install chromium"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., AbstractContextManager[ServerProcess]]:
    """Return a function that starts servers with the given settings. Servers with the same `folder` share a store."""

    @contextmanager
    def serving(folder: Path | None = None, **settings: str) -> Iterator[ServerProcess]:
        process = ServerProcess(folder or tmp_path_factory.mktemp("demo"), **settings)
        process.start()
        try:
            yield process
        finally:
            process.stop()
        assert "Traceback" not in process.log

    return serving


@pytest.fixture
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    with serve() as process:
        yield process


@pytest.fixture
def open_tab(chromium: Browser, site: ServerProcess) -> Iterator[Callable[..., Tab]]:
    """Yield a function that opens tabs, each in its own browser context. Fail at the end if a tab logged problems."""
    tabs: list[Tab] = []
    contexts = []

    def open_one(name: str | None = None, url: str | None = None, **context: Any) -> Tab:
        contexts.append(chromium.new_context(**context))
        tab = Tab(contexts[-1].new_page(), url or site.url)
        tabs.append(tab)
        if name is not None:
            tab.enter(name)
        return tab

    yield open_one
    for context in contexts:
        context.close()
    problems = [problem for tab in tabs for problem in tab.problems if not UNREACHABLE.search(problem)]
    assert problems == []
