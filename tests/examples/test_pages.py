"""Examples with pages, each started by its one command, used by two people in a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, WebSocketRoute, expect

from greendot import Server
from redis_servers import free_port

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
PHONE = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True}

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

Open = Callable[..., Page]


@contextmanager
def started(name: str, *arguments: str, port: int | None = None, **variables: str) -> Iterator[str]:
    """Start the example and yield the address of its page."""
    port, greendot = port or free_port(), free_port()
    ports = ["--port", str(port), "--greendot-port", str(greendot)]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "start.py"), name, *ports, *arguments],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    try:
        while "Ctrl-C stops both" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        yield f"http://127.0.0.1:{port}/"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # the example also ends the processes it started
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def pages(chromium: Browser) -> Iterator[Open]:
    """Yield a function that opens pages, each in its own context. Fail at the end if a page logged problems."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_one(url: str, **context: Any) -> Page:
        contexts.append(chromium.new_context(**context))
        page = contexts[-1].new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def overflows(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


@pytest.fixture(scope="module")
def chat() -> Iterator[str]:
    if shutil.which("npm") is None:
        reason = "Node.js 20 or newer and npm are required to build the React example"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with started("react") as url:
        yield url


class Line:
    """Connection of a page to Greendot, which tests can cut."""

    def __init__(self) -> None:
        self._is_cut = False
        self._ways: list[WebSocketRoute] = []

    def asked(self, way: WebSocketRoute) -> None:
        if self._is_cut:
            way.close(code=1001)
            return
        way.connect_to_server()
        self._ways.append(way)

    def cut(self) -> None:
        self._is_cut = True
        for way in self._ways:
            way.close(code=1001)
        self._ways.clear()

    def mend(self) -> None:
        self._is_cut = False


def say(page: Page, text: str) -> Locator:
    """Send a message; return the message in the list."""
    page.get_by_label("Message to lobby").fill(text)
    page.get_by_label("Message to lobby").press("Enter")
    message = page.locator(".messages li:not(.draft)", has_text=text)
    expect(message).to_have_count(1)
    return message


def enter(page: Page, name: str, avatar: str = "🦊") -> Page:
    page.get_by_label("Your name").fill(name)
    page.get_by_label("Your avatar").select_option(avatar)
    page.get_by_role("button", name="Come in").click()
    expect(page.locator(".people h2")).to_contain_text("here")
    return page


def test_two_people_see_each_others_dot_typing_and_message_in_the_react_chat(chat: str, pages: Open) -> None:
    alice, bob = enter(pages(chat), "Alice"), enter(pages(chat), "Bob Miller")
    for page, other, name in ((alice, "bob-miller", "Bob Miller"), (bob, "alice", "Alice")):
        person = page.locator(f'.people [data-user="{other}"]')
        expect(person.locator(".name")).to_have_text(name)
        expect(person.locator(".gd-dot")).to_have_attribute("data-state", "online")
    field = alice.get_by_label("Message to lobby")
    field.press_sequentially("Hello <b>Bob</b>")
    expect(bob.locator(".gd-typing")).to_have_text("Alice is typing…")
    field.press("Enter")
    for page in (alice, bob):
        expect(page.locator(".messages li:not(.draft) p")).to_have_text(["Hello <b>Bob</b>"])
    expect(bob.locator(".gd-typing")).to_be_empty()
    expect(alice.locator(".draft")).to_have_count(0)
    bob.get_by_role("button", name="Leave").click()
    expect(alice.locator('.people [data-user="bob-miller"] .state')).to_have_text("last seen just now")
    expect(alice.locator(".people h2")).to_have_text("Only you are here")


def test_a_message_written_offline_is_shown_and_arrives_once(chat: str, pages: Open) -> None:
    dora, carl = pages(chat), enter(pages(chat), "Carl")
    line = Line()
    dora.route_web_socket(re.compile("/v1/connect"), line.asked)
    dora.reload()
    enter(dora, "Dora")
    expect(dora.locator('.people [data-user="carl"] .gd-dot')).to_have_attribute("data-state", "online")
    line.cut()
    expect(dora.locator(".banner")).to_be_visible()
    field = dora.get_by_label("Message to lobby")
    field.fill("from afar")
    field.press("Enter")
    expect(dora.locator(".draft p")).to_have_text("from afar")
    line.mend()
    # The page also reconnects by itself; then the button is gone.
    dora.get_by_role("button", name="Try now").evaluate_all("buttons => buttons.forEach((button) => button.click())")
    expect(carl.locator(".messages p").filter(has_text="from afar")).to_have_count(1)
    expect(dora.locator(".messages p").filter(has_text="from afar")).to_have_count(1)
    expect(dora.locator(".draft")).to_have_count(0)


def test_people_edit_delete_react_and_see_who_has_read(chat: str, pages: Open) -> None:
    erin, finn = enter(pages(chat), "Erin", "🦉"), enter(pages(chat), "Finn", "🐙")
    for page, other, avatar in ((erin, "finn", "🐙"), (finn, "erin", "🦉")):
        expect(page.locator(f'.people [data-user="{other}"] .gd-face')).to_have_text(avatar)
    expect(erin.locator('.people [data-user="finn"] .gd-face')).to_have_css("background-color", "rgb(192, 74, 124)")
    mine, seen = say(erin, "frist"), say(finn, "and back")
    at_finn = finn.locator(".messages li", has_text="frist")
    expect(at_finn.locator(".from .gd-face")).to_have_text("🦉")
    expect(seen.get_by_role("list", name="Seen by Erin")).to_be_visible()
    at_finn.get_by_role("button", name="👍").click()
    expect(mine.get_by_role("button", name="👍 1")).to_have_attribute("aria-pressed", "false")
    expect(at_finn.get_by_role("button", name="👍 1")).to_have_attribute("aria-pressed", "true")
    at_finn.get_by_role("button", name="👍 1").click()
    expect(mine.get_by_role("button", name="👍")).to_have_text("👍 ")
    expect(at_finn.get_by_role("button", name="Edit")).to_have_count(0)  # of others' messages
    mine.get_by_role("button", name="Edit").click()
    erin.get_by_label("Edited message").fill("first")
    erin.get_by_role("button", name="Save").click()
    changed = finn.locator(".messages li", has_text="first")
    expect(changed.locator("p")).to_have_text("first edited")
    erin.locator(".messages li", has_text="first").get_by_role("button", name="Delete").click()
    expect(finn.locator(".messages li", has_text="deleted")).to_have_count(1)
    expect(changed).to_have_count(0)


def test_a_nudge_is_in_the_inbox_and_the_badge_counts_it(chat: str, pages: Open) -> None:
    gwen, hugo = enter(pages(chat), "Gwen"), enter(pages(chat, permissions=[]), "Hugo")
    for _ in range(2):
        gwen.locator('.people [data-user="hugo"]').get_by_role("button", name="Nudge").click()
    expect(hugo.locator(".gd-badge")).to_have_text("2")
    hugo.get_by_role("button", name="Notifications, 2 unread").click()
    expect(hugo.locator(".gd-inbox li")).to_have_text(["Gwen nudged you"] * 2)
    expect(hugo.locator(".gd-badge")).to_have_count(0)
    # Without a permission, the offer of push notifications shows the reason of the failure.
    hugo.get_by_role("button", name="Notify me while I am away").click()
    expect(hugo.locator(".gd-inbox")).to_contain_text("No push: ")


def test_older_pages_are_loaded_and_measures_of_the_app_are_shown(chat: str, pages: Open, tmp_path: Path) -> None:
    from e2e.browser import API_KEY, ServerProcess  # a plugin of pytest, which must load it first

    secret, port = "s" * 32, free_port()
    greendot = ServerProcess(tmp_path, GREENDOT_AUTH_SECRET=secret, GREENDOT_DOOR_ORIGINS=f"http://127.0.0.1:{port}")
    greendot.start()
    given = {"GREENDOT_AUTH_SECRET": secret, "GREENDOT_API_KEY": API_KEY}
    react = started("react", "--greendot", greendot.url.rstrip("/"), port=port, **given)
    try:
        with Server(greendot.url, API_KEY) as api, react as url:
            for number in range(120):
                api.send("lobby", {"text": f"number {number}."}, user="robot")
            ivy = enter(pages(url), "Ivy")
            expect(ivy.locator(".messages p")).to_have_count(50)
            for shown in (100, 120):
                ivy.get_by_role("button", name="Older messages").click()
                expect(ivy.locator(".messages p")).to_have_count(shown)
            expect(ivy.locator(".messages p").first).to_have_text("number 0.")
            api.delete_message("lobby", 120)
            expect(ivy.locator(".messages p").last).to_have_text("deleted")
            api.mute("ivy", until=round(time.time() * 1000) + 3_600_000)
            expect(ivy.locator(".archived")).to_contain_text("You are muted until ")
            api.unmute("ivy")
            api.put_room("lobby", slow_mode_s=30)
            expect(ivy.locator(".slow")).to_have_text("Slow mode: one message in 30 s")
            api.put_room("lobby", archived=True)
            expect(ivy.locator(".archived")).to_be_visible()
            expect(ivy.get_by_label("Message to lobby")).to_have_count(0)
    finally:
        greendot.stop()


def test_the_react_chat_has_less_than_300_lines() -> None:
    files = [*(ROOT / "examples" / "react_chat" / "src").iterdir()]
    assert sum(len(file.read_text().splitlines()) for file in files) < 300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_react_chat_fits_a_phone(chat: str, pages: Open, scheme: str) -> None:
    page = pages(chat, **PHONE, color_scheme=scheme)
    assert not overflows(page)
    enter(page, f"Somebody with a long name {scheme}")
    page.get_by_label("Message to lobby").fill("a very long word: " + "x" * 300)
    page.get_by_label("Message to lobby").press("Enter")
    expect(page.locator(".messages .mine").last).to_be_in_viewport()
    expect(page.get_by_label("Message to lobby")).to_be_in_viewport()
    assert not overflows(page)


def test_the_react_chat_has_right_types_and_names_no_host_of_a_registry(chat: str) -> None:
    folder = ROOT / "examples" / "react_chat"
    result = subprocess.run(
        ["npm", "run", "--silent", "check"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stdout
    assert '"resolved"' not in (folder / "package-lock.json").read_text()


def test_an_example_with_an_existing_server_names_the_setting_it_needs() -> None:
    command = [sys.executable, str(ROOT / "examples" / "start.py"), "cursors", "--greendot", "http://127.0.0.1:9"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GREENDOT_")}
    result = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 1
    assert "set it to the secret of http://127.0.0.1:9" in result.stderr


def test_two_people_see_each_others_cursor(pages: Open) -> None:
    with started("cursors") as url:
        alice, bob = pages(url), pages(url, **PHONE)
        for page, name in ((alice, "Alice"), (bob, "Bob")):
            page.get_by_label("Your name").fill(name)
            page.get_by_label("Your name").press("Enter")
            expect(page.locator("#connection")).to_have_text("Connected")
        expect(alice.locator("#people li")).to_have_count(2)
        box = alice.locator("#board").bounding_box()
        assert box is not None
        alice.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2, steps=5)
        cursor = bob.locator('.cursor[data-user="alice"]')
        expect(cursor).to_have_text("Alice")
        # The relative position is the same on a board of another size.
        expect(cursor).to_have_css("--x", "0.25")
        expect(cursor).to_have_css("--y", "0.5")
        # A page opened later receives the position.
        carl = pages(url)
        expect(carl.locator('.cursor[data-user="alice"]')).to_be_visible()
        bob.locator("#board").tap(position={"x": 100, "y": 100})
        expect(alice.locator('.cursor[data-user="bob"]')).to_be_visible()
        alice.mouse.move(box["x"] + 10, box["y"] - 20)
        expect(cursor).to_have_count(0)
        bob.close()
        expect(alice.locator('.cursor[data-user="bob"]')).to_have_count(0)
        assert not overflows(carl)
