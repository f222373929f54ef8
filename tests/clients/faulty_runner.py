"""Runner of the Python client with one deliberate fault: `faulty_runner.py FAULT`."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import greendot.client.link as links
import greendot.client.records as records
import greendot.client.restore as restoring
import greendot.client.session as sessions
import greendot.client.state as states
from greendot.client import Client
from greendot.client.backoff import Backoff
from greendot.client.errors import ConnectionRefused, Disconnected
from greendot.client.heartbeat import HeartbeatTimer
from greendot.client.token_refresh import TokenRefresher
from greendot.protocol.commands import Resume, RoomSend
from greendot.protocol.events import RoomMessage

RUNNER = Path(__file__).parents[2] / "clients" / "behaviour" / "runners" / "python.py"


def sends_twice() -> None:
    """Send each message of the program twice."""
    send = Client.send

    async def twice(self: Client, room: str, body: Any, **options: Any) -> Any:
        first = await send(self, room, body)
        await send(self, room, body)
        return first

    Client.send = twice  # type: ignore[method-assign]


def new_keys() -> None:
    """Give a message another key whenever it is sent again."""
    request = links.Link.request

    def renamed(self: links.Link, command: Any, *arguments: Any) -> Any:
        if isinstance(command, RoomSend):
            command = msgspec.structs.replace(command, key=f"k{random.getrandbits(64)}")
        return request(self, command, *arguments)

    links.Link.request = renamed  # type: ignore[method-assign, assignment]


def loses() -> None:
    """Lose the first message after each reconnect."""
    publish = Client._publish

    def losing(self: Client, event: Any) -> None:
        link = id(self.welcome)
        state = vars(self).setdefault("_links", [link])
        if isinstance(event, RoomMessage) and link not in state:
            state.append(link)
            return
        publish(self, event)

    Client._publish = losing  # type: ignore[method-assign]
    opened = Client.__aenter__

    async def first(self: Client) -> Client:
        await opened(self)
        vars(self)["_links"] = [id(self.welcome)]
        return self

    Client.__aenter__ = first  # type: ignore[method-assign]


def repeats() -> None:
    """Deliver every record that comes, also one that came before."""
    records.Records.accept = lambda self, record: True  # type: ignore[method-assign, assignment]


def forgets_session() -> None:
    """Resume the rooms, but not the session."""
    resume_of = sessions.resume_of

    def forgotten(*arguments: Any) -> Resume | None:
        resume = resume_of(*arguments)
        return resume and msgspec.structs.replace(resume, session=None)

    sessions.resume_of = forgotten


def fetches_little() -> None:
    """Report a gap as soon as the server resends nothing."""
    records.MOST_FETCHED = 10


def hides_gaps() -> None:
    """Continue behind a gap, and do not report the gap."""
    publish = Client._publish
    Client._publish = lambda self, event: (  # type: ignore[method-assign]
        None if isinstance(event, records.Truncated) else publish(self, event)
    )


def _closing(final: Callable[[int], bool]) -> None:
    def error(code: int, reason: str) -> Disconnected | ConnectionRefused:
        return ConnectionRefused(code, reason) if final(code) else Disconnected(code, reason)

    links.closing_error = error


def returns() -> None:
    """Reconnect after every close code."""
    _closing(lambda code: False)


def gives_up() -> None:
    """Stay away after every close code of Greendot."""
    _closing(lambda code: code >= 4000)


def impatient() -> None:
    """Ignore the time that the server gives."""
    delay = Backoff.delay
    Backoff.delay = lambda self, failures, retry_in_ms=None: delay(self, failures)  # type: ignore[method-assign]


def together() -> None:
    """Return exactly after the time that the server gives."""
    Backoff.delay = (  # type: ignore[method-assign]
        lambda self, failures, retry_in_ms=None: 0.05 if retry_in_ms is None else retry_in_ms / 1000
    )


def greedy() -> None:
    """Request two tokens for each connection."""
    token = sessions.Session._token

    async def twice(self: sessions.Session) -> str:
        await token(self)
        return await token(self)

    sessions.Session._token = twice  # type: ignore[method-assign]


def never_refreshes() -> None:
    """Use each token to its end."""
    TokenRefresher.start = lambda self, token, server_time: None  # type: ignore[method-assign]


def trusts_clock() -> None:
    """Compare the expiry of a token with the system clock."""
    start = TokenRefresher.start
    TokenRefresher.start = (  # type: ignore[method-assign]
        lambda self, token, server_time: start(self, token, round(time.time() * 1000))
    )


def local_time() -> None:
    """Show the system clock as the server's time."""
    sessions.Session.now_ms = lambda self: time.time() * 1000  # type: ignore[method-assign]


def types_always() -> None:
    """Send a frame for each keystroke."""
    states.Throttle.start = lambda *arguments: True  # type: ignore[method-assign]


def types_once() -> None:
    """Report that the typing begins, but not that it continues."""
    start = states.Throttle.start

    def once(self: states.Throttle, room: str, now: float, times: Any) -> bool:
        return not self._announced.get(room, (0, False))[1] and start(self, room, now, times)

    states.Throttle.start = once  # type: ignore[method-assign]


def keeps_typers() -> None:
    """Show typers until the server sends that they stopped."""
    states.TYPING_SLACK_S = 3600


def hides_typers() -> None:
    """Remove typers without tolerance for a late repetition."""
    states.TYPING_SLACK_S = 0


def forgets_watches() -> None:
    """Watch no users after a reconnect."""

    async def nothing(*arguments: Any) -> None:
        pass

    restoring._rewatch = nothing


def strict() -> None:
    """Drop the connection at an event that this version does not know."""
    read = links.Link._read

    def checked(self: links.Link, message: bytes) -> None:
        if msgspec.json.decode(message).get("type") == "planet.aligned":
            self.abort()
        read(self, message)

    links.Link._read = checked  # type: ignore[method-assign]


def no_heartbeats() -> None:
    """Send no heartbeats."""
    HeartbeatTimer._beat = lambda self: None  # type: ignore[method-assign]


if __name__ == "__main__":
    spec = importlib.util.spec_from_file_location("python_runner", RUNNER)
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    globals()[sys.argv[1]]()
    asyncio.run(runner.Runner().run())
