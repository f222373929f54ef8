"""Real nodes on one real Redis, and clients that keep all frames they receive."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from e2e.processes import PATIENCE_S, Patience, Process, running, until
from greendot.testing import Closed, WireClient

LEASE_S, RENEW_S, GRACE_S, CLEAN_GRACE_S = 3.0, 1.0, 2.0, 1.0
LAPSE_S = LEASE_S + GRACE_S + 2.0  # time until the users of a dead node are offline
PERIODS = {
    "GREENDOT_NODE_LEASE_S": f"{LEASE_S:g}",
    "GREENDOT_NODE_RENEW_S": f"{RENEW_S:g}",
    "GREENDOT_PRESENCE_GRACE_S": f"{GRACE_S:g}",
    "GREENDOT_PRESENCE_CLEAN_GRACE_S": f"{CLEAN_GRACE_S:g}",
    "GREENDOT_LIMITS_ENABLED": "false",
    # Other tests make the machine busy and loops late. Shedding is not part of these tests.
    "GREENDOT_OVERLOAD_LAG_S": "10",
    "GREENDOT_OVERLOAD_BUS_LAG_S": "10",
}


def redis_url(port: int) -> str:
    return f"redis://127.0.0.1:{port}"


@asynccontextmanager
async def serving(folder: Path, *engines: str, **environment: str) -> AsyncIterator[list[Process]]:
    """Run a node for each of these engine URLs, all on one store. Print their logs when the test fails."""
    async with AsyncExitStack() as stack:
        entering = (stack.enter_async_context(node(folder, engine, **environment)) for engine in engines)
        yield [*await asyncio.gather(*entering)]


@asynccontextmanager
async def node(folder: Path, engine: str, **environment: str) -> AsyncIterator[Process]:
    async with running(folder, "--host", "127.0.0.1", "--engine", engine, **PERIODS | environment) as process:
        try:
            yield process
        except BaseException:
            await process.kill()
            print(f"--- node on port {process.port}\n{(await process.ended()).err}", file=sys.stderr)
            raise


class Told(NamedTuple):
    """Frame with its arrival time."""

    at: float  # monotonic seconds
    type: str
    data: dict[str, Any]
    frame: dict[str, Any]


class Listener:
    """Client that reads continuously."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.told: list[Told] = []
        self.closed: Closed | None = None
        self._numbers = 0
        self._first: dict[str, str] = {}
        self._ending = False  # asyncio.wait_for may swallow a cancellation
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while not self._ending:
            try:
                frame = await self.client.receive()
            except TimeoutError:
                continue  # no frame within the timeout
            except Closed as closed:
                self.closed = closed
                return
            self.told.append(Told(time.monotonic(), frame["type"], frame.get("data", {}), frame))

    # --- sending ---

    def send(self, **command: Any) -> None:
        self.client.send(**command)

    async def request(self, within_s: float = PATIENCE_S, **command: Any) -> dict[str, Any]:
        """Send a command and return the data of its reply. Raise AssertionError with the frame of an error."""
        frame = await self.answer(within_s, **command)
        assert frame["type"] == "reply", frame
        data: dict[str, Any] = frame["data"]
        return data

    async def answer(self, within_s: float = PATIENCE_S, **command: Any) -> dict[str, Any]:
        """Send a command and return its reply or error."""
        self._numbers += 1
        number = f"r{self._numbers}"
        self.send(**command, id=number)
        found: list[dict[str, Any]] = []
        looked = 0

        def answered() -> bool:
            nonlocal looked
            new, looked = self.told[looked:], len(self.told)
            found.extend(told.frame for told in new if told.frame.get("id") == number)
            return bool(found) or self.closed is not None

        await until(answered, within_s)
        assert found, self.closed
        return found[0]

    async def watch(self, *users: str) -> dict[str, dict[str, Any]]:
        """Watch the users and return their entries, by user."""
        reply = await self.request(type="watch", users=[*users])
        entries = {entry["user"]: entry for entry in reply["presence"]}
        self._first |= {user: entry["state"] for user, entry in entries.items()}
        return entries

    # --- receiving ---

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the data of all events of a type."""
        return [told.data for told in self.told if told.type == kind]

    def changes(self, *users: str) -> list[Told]:
        """Return the presence changes of these users since the watch; without users, of all."""
        all_changes = [told for told in self.told if told.type == "presence.changed"]
        return [told for told in all_changes if not users or told.data["user"] in users]

    def states(self, user: str) -> list[str]:
        """Return the states of the user in changes after the first snapshot."""
        return [told.data["state"] for told in self.changes(user)]

    def shown(self) -> dict[str, str]:
        """Return the last known state of each watched user."""
        return self._first | {told.data["user"]: told.data["state"] for told in self.changes()}

    async def sees(self, user: str, *states: str, within_s: float = PATIENCE_S) -> None:
        """Wait until the user has had exactly these states, in this order."""
        try:
            await until(lambda: len(self.states(user)) >= len(states), within_s)
        except TimeoutError:
            raise AssertionError(f"states of {user}: {self.states(user)}, expected {[*states]}") from None
        assert self.states(user) == [*states], f"states of {user}: {self.states(user)}, expected {[*states]}"

    async def hears(self, event: str, /, within_s: float = PATIENCE_S, **data: Any) -> dict[str, Any]:
        """Wait for an event of this type with these values in its data."""
        found: list[dict[str, Any]] = []
        looked = 0

        def heard() -> bool:
            nonlocal looked
            new, looked = self.told[looked:], len(self.told)
            fits = (told.data for told in new if told.type == event)
            found.extend(d for d in fits if all(d.get(name) == value for name, value in data.items()))
            return bool(found)

        try:
            await until(heard, within_s)
        except TimeoutError:
            raise AssertionError(f"no {event} with {data} among {self.told[-20:]}") from None
        return found[0]

    # --- closing ---

    async def end(self) -> None:
        """Abort the socket."""
        self._ending = True
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self.client.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()


class Clients(AsyncExitStack):
    """Clients of a test, which are closed at its end."""

    async def join(self, node: Process, user: str, **hello: Any) -> Listener:
        return await self.enter_async_context(Listener(await node.client(user, **hello)))

    async def crowd(self, node: Process, users: Iterable[str], **hello: Any) -> dict[str, Listener]:
        """Connect a client for each user concurrently."""
        names = [*users]
        return dict(zip(names, await asyncio.gather(*(self.join(node, user, **hello) for user in names)), strict=True))

    async def watchers(self, nodes: Iterable[Process], *users: str) -> list[Listener]:
        """Connect a client to each node and watch the users."""
        found = []
        for number, process in enumerate(nodes):
            watcher = await self.join(process, f"watcher{number}")
            await watcher.watch(*users)
            found.append(watcher)
        return found


async def counted(node: Process, name: str) -> int:
    """Return the value of a metric of the node."""
    text = (await node.ask("GET", "/metrics")).body.decode()
    found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
    assert found, f"no {name} in {text}"
    return int(float(found[1]))


async def lives(node: Process) -> dict[str, str]:
    """Return the state of each node as this node reports it."""
    return {life["node"]: life["state"] for life in (await node.ask("GET", "/v1/nodes")).json()["nodes"]}


@asynccontextmanager
async def meanwhile(*steps: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Repeat each of these steps concurrently during the block."""
    over = asyncio.Event()

    async def go_on(step: Callable[[], Awaitable[None]]) -> None:
        while not over.is_set():
            await step()

    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(go_on(step))
        try:
            yield
        finally:
            over.set()


async def eventually(check: Callable[[], Awaitable[bool]], what: str, within_s: float = PATIENCE_S) -> None:
    """Poll the asynchronous check until it returns True."""
    patience = Patience(within_s, 0.02, 0.1)  # longer pauses: the check is a request
    while not await check():
        assert await patience.pause() or await check(), f"not within {within_s} s: {what}"


def now_ms() -> int:
    return round(time.time() * 1000)
