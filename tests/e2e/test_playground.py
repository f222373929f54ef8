"""Playground of a dev server in a browser: two sessions, any command, any text, and all frames."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Locator, Page, expect

from e2e.axe import faults
from greendot.protocol.codec import decode_command
from greendot.protocol.commands import COMMANDS
from wire_described import said

if TYPE_CHECKING:
    from e2e.browser import ServerProcess, Tab

    OpenTab = Callable[..., Tab]

pytest_plugins = ("e2e.browser",)
pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
WIDE = {"viewport": {"width": 1360, "height": 860}}
# The template of each command, as it is after the command was chosen, and after all its optional fields were added.
TEMPLATES = """() => {
  const form = document.querySelector(".composer");
  const found = {};
  for (const { value } of [...form.command.options]) {
    form.command.value = value;
    form.command.dispatchEvent(new Event("change"));
    const shortest = form.frame.value;
    for (const field of form.querySelectorAll(".field[aria-pressed=false]")) field.click();
    found[value] = [shortest, form.frame.value];
  }
  return found;
}"""


@pytest.fixture(scope="module")
def site(serve: Callable[..., AbstractContextManager[ServerProcess]]) -> Iterator[ServerProcess]:
    # The page sends heartbeats soon, and a slow machine does not end its sessions.
    with serve(GREENDOT_PRESENCE_GRACE_S="60", GREENDOT_PRESENCE_DEAD_AFTER_S="60") as process:
        yield process


class Session:
    """One of the two sessions on the page."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.root = page.locator(".session").nth(number)
        self.frame = self.root.get_by_label("Frame", exact=True)

    def connect(self) -> None:
        self.press("Connect")
        self.expect_state(re.compile(r"^Connected as \S+, session \S+\.$"))

    def press(self, name: str) -> None:
        self.root.get_by_role("button", name=name, exact=True).click()

    def expect_state(self, words: str | re.Pattern[str]) -> None:
        expect(self.root.locator(".state .word")).to_have_text(words)

    def send(self, frame: dict[str, Any] | str) -> None:
        self.frame.fill(frame if isinstance(frame, str) else json.dumps(frame))
        self.frame.press("Control+Enter")

    def frames(self, kind: str) -> Locator:
        return self.root.locator(".frames li").filter(has=self.root.page.locator(f".type:text-is('{kind}')"))

    def text_of(self, kind: str) -> Any:
        """Open the newest frame of this type, and return its JSON."""
        line = self.frames(kind).last
        line.locator("summary").click()
        return json.loads(line.locator("pre").inner_text())


@pytest.fixture
def opened(open_tab: OpenTab, site: ServerProcess) -> Callable[..., Page]:
    def opening(query: str = "", **context: Any) -> Page:
        page = open_tab(url=f"{site.url}playground{query}", **(context or WIDE)).page
        expect(page.locator(".session").first).to_be_visible()
        return page

    return opening


def test_every_command_has_a_template_that_the_server_reads(opened: Callable[..., Page]) -> None:
    templates = opened().evaluate(TEMPLATES)
    assert templates.keys() == COMMANDS.keys()
    for name, texts in templates.items():
        shortest, longest = (json.loads(text) for text in texts)
        said(shortest)
        decode_command(texts[0])
        assert (shortest["type"], longest.keys() >= shortest.keys()) == (name, True)
        # `type` and `id` are in each template. All other fields of the command can be added.
        assert longest.keys() == {"type", *COMMANDS[name].__struct_fields__}, name


def test_two_sessions_talk_and_each_shows_its_frames_both_ways(opened: Callable[..., Page]) -> None:
    page = opened("?user=ann&second=ben#room.send")
    ann, ben = Session(page), Session(page, 1)
    assert json.loads(ann.frame.input_value())["type"] == "room.send"
    for session in (ann, ben):
        session.connect()
        session.send({"type": "room.join", "id": "join", "room": "lobby"})
        expect(session.frames("reply")).to_contain_text(re.compile(r"room\.join.* ms"))
    ann.send({"type": "room.send", "id": 7, "room": "lobby", "body": {"text": "from ann"}})
    expect(ben.frames("room.message")).to_contain_text("from ann")
    assert ben.text_of("room.message")["data"]["user"] == "ann"
    assert ann.text_of("room.send")["body"] == {"text": "from ann"}
    ben.root.get_by_label("Direction of the frames").select_option("sent")
    expect(ben.frames("room.message")).to_be_hidden()
    expect(ben.frames("room.join")).to_be_visible()
    ben.root.get_by_label("Direction of the frames").select_option("both ways")
    ben.root.get_by_label("Filter the frames").fill("ROOM.message ann")
    expect(ben.frames("room.message")).to_be_visible()
    expect(ben.frames("welcome")).to_be_hidden()
    expect(ben.root.locator(".count")).to_have_text(re.compile(r"^1 of \d+$"))
    ben.press("Clear")
    expect(ben.root.locator(".frames li")).to_have_count(0)


def test_frames_can_be_copied_and_sent_again(opened: Callable[..., Page]) -> None:
    page = opened("?user=cleo")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    session = Session(page)
    session.connect()
    session.send({"type": "watch", "id": 9, "users": ["cleo"]})
    expect(session.frames("reply")).to_contain_text("watch")
    sent = session.text_of("watch")
    line = session.frames("watch").last
    line.get_by_role("button", name="Copy").click()
    assert json.loads(clipboard(page, '"users": [')) == sent
    session.frame.fill("")
    line.get_by_role("button", name="Edit").click()
    assert json.loads(session.frame.input_value()) == sent
    session.root.get_by_label("Filter the frames").fill("watch")
    session.root.locator(".tools").get_by_role("button", name="Copy").click()
    copied = [json.loads(line) for line in clipboard(page, '"direction":').splitlines()]
    assert [one["direction"] for one in copied[-2:]] == ["sent", "received"]
    assert copied[-2]["frame"] == sent
    assert all({"at", "direction", "frame"} == one.keys() for one in copied)


def clipboard(page: Page, part: str) -> str:
    """Return the text of the clipboard once it contains this part."""
    page.wait_for_function("(part) => navigator.clipboard.readText().then((text) => text.includes(part))", arg=part)
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_heartbeats_are_sent_and_hidden_until_they_are_asked_for(opened: Callable[..., Page]) -> None:
    session = Session(opened("?user=dora"))
    session.connect()
    acks = session.frames("heartbeat.ack")
    expect(acks.first).to_be_attached()
    expect(acks.first).to_be_hidden()
    session.root.get_by_label("Hide heartbeats").uncheck()
    expect(acks.first).to_be_visible()


def test_refusals_and_ends_are_shown_in_words(open_tab: OpenTab, site: ServerProcess) -> None:
    tab = open_tab(url=f"{site.url}playground?user=eve", **WIDE)
    session = Session(tab.page)
    session.send({"type": "activity"})
    expect(session.root.locator(".hint")).to_have_text("Not connected. Connect first.")
    session.root.get_by_label("User").fill("not an id")
    session.press("Connect")
    session.expect_state(re.compile(r"^No token for not an id: user 'not an id' is not a valid id"))
    assert len(tab.problems) == 1  # the browser logs the refused request
    tab.problems.clear()
    session.root.get_by_label("User").fill("eve")
    session.connect()
    session.frame.fill('{"type": "room.send",')
    expect(session.root.locator(".hint")).to_contain_text("Not JSON")
    session.frame.press("Control+Enter")
    expect(session.frames("error").last).to_contain_text("bad_frame: the frame is not valid JSON")
    session.press("Reset")
    assert json.loads(session.frame.input_value())["type"] == "room.join"
    session.send({"type": "room.send", "id": 3, "body": 1})
    expect(session.frames("error").last).to_contain_text("room.send")
    expect(session.frames("error").last).to_contain_text("bad_field: field `room`")
    session.send({"type": "bye"})
    session.expect_state(re.compile(r"^Closed with 1000 \(normal\)\. The client sent `bye`"))
    expect(session.root.locator(".frames .event").last).to_contain_text("Closed with 1000")


def test_a_cut_session_is_resumed_with_the_messages_it_missed(opened: Callable[..., Page], site: ServerProcess) -> None:
    site.call("PUT", "v1/rooms/tunnel", {"open": True})
    session = Session(opened("?user=finn"))
    session.connect()
    session.send({"type": "room.join", "id": 1, "room": "tunnel"})
    expect(session.frames("reply")).to_be_visible()
    session.press("Cut")
    session.expect_state(re.compile(r"^Closed with 1006.*without a close frame"))
    site.call("POST", "v1/rooms/tunnel/messages", {"user": "gil", "body": {"text": "meanwhile"}})
    session.press("Resume")
    session.expect_state(re.compile("^Connected as finn"))
    assert session.text_of("welcome")["data"]["resumed"] is True
    expect(session.frames("room.message")).to_contain_text("meanwhile")
    session.press("Disconnect")
    session.expect_state(re.compile("^Closed with 1000"))


def test_without_hello_the_page_leaves_it_to_its_user(opened: Callable[..., Page]) -> None:
    session = Session(opened("?user=hana"))
    session.root.get_by_label("Send hello").uncheck()
    session.press("Connect")
    session.expect_state(re.compile("^Connected, without a session. Send hello"))
    expect(session.frames("hello")).to_have_count(0)
    assert json.loads(session.frame.input_value())["type"] == "hello"
    session.press("Send")
    session.expect_state(re.compile("^Connected as hana"))


def test_the_playground_is_used_by_keyboard_alone(opened: Callable[..., Page]) -> None:
    page = opened("?user=ida")
    session = Session(page)
    expect(session.root.get_by_role("button", name="Connect")).to_be_focused()
    page.keyboard.press("Enter")
    session.expect_state(re.compile("^Connected as ida"))
    expect(session.root.get_by_role("button", name="Disconnect")).to_be_focused()
    page.keyboard.press("/")
    expect(session.root.get_by_label("Filter the frames")).to_be_focused()
    session.frame.focus()
    page.keyboard.press("Control+Enter")
    expect(session.frames("reply")).to_contain_text("room.join")
    page.keyboard.press("Control+a")
    page.keyboard.type('{"type": "room.list", "id": 20}')
    page.keyboard.press("Control+Enter")
    expect(session.frames("reply").last).to_contain_text("room.list")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("Alt+ArrowUp")
    assert json.loads(session.frame.input_value())["type"] == "room.join"
    session.frames("welcome").locator("summary").focus()
    page.keyboard.press("Enter")
    expect(session.frames("welcome").locator("pre")).to_be_visible()


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (PHONE, "dark")], ids=["wide", "phone"])
def test_the_playground_is_readable_on_every_screen(open_tab: OpenTab, size: dict[str, Any], scheme: str) -> None:
    tab = open_tab("Jo", reduced_motion="reduce", color_scheme=scheme, **size)
    if size is PHONE:
        tab.page.get_by_role("button", name="Rooms and people").click()
    with tab.page.expect_popup() as popup:
        tab.page.get_by_role("link", name="Playground").click()
    page = popup.value
    session = Session(page)
    second = page.locator(".session").nth(1)
    expect(second).to_be_visible() if size is WIDE else expect(second).to_be_hidden()
    session.connect()
    session.send({"type": "room.join", "id": 1, "room": "lobby"})
    session.send({"type": "unknown", "id": 2})
    expect(session.frames("error")).to_be_visible()
    session.text_of("welcome")
    page.get_by_role("button", name="Second session").click()
    assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.evaluate("document.querySelectorAll('[hidden]').forEach((element) => element.remove())")
    assert faults(page) == []
