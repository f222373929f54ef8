"""Simulation in virtual time: real nodes on real sockets and a real SQLite, with a faulty bus and network.

All events are drawn from one seed. Time passes only while nothing is ready to run. So minutes take milliseconds, and a
trial can be repeated.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import socket
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from typing import Any, TypeVar

import msgspec

from greendot.app.node import Node
from greendot.config import Settings
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Message, Topic
from greendot.engine.port import Host
from greendot.engine.results import Adopted, EngineSession, Touched
from greendot.errors import StoreUnavailable
from greendot.presence.model import NodeLife, SessionEpoch
from greendot.rooms.typing_model import Typist
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.thread import _open, _transact
from greendot.testing.clock import START_MS
from greendot.testing.server import SECRET
from greendot.testing.wire import CLOSE, TEXT, make_frame
from greendot.transport.websocket_handshake import switching_protocols

T = TypeVar("T")
Heard = Callable[[dict[str, Any] | None], None]
LEASE_S = 15.0  # time until a crashed node counts as dead
SETTINGS = {
    "auth": {"secret": SECRET},
    "limits": {"enabled": False},
    "kinds": {"alarm": {"promise": "acknowledged"}, "secret": {"bus": "hint"}},
}


class Idle(selectors.DefaultSelector):  # type: ignore[misc]  # it is one class or another, by platform
    """Selector that never waits. If no socket is ready, virtual time advances by the timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.passed_s += timeout
        if not ready and timeout is None:
            raise AssertionError("deadlock: no socket is ready and no timer is set")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop whose time passes only while it is idle."""

    def __init__(self) -> None:
        self._idle = Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return 1_000.0 + self._idle.passed_s


class LoopClock:
    """Clock of a node that shows the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.monotonic = loop.time

    def now_ms(self) -> int:
        return START_MS + round(self.monotonic() * 1000)


class Faults(msgspec.Struct):
    """Faults and their probabilities."""

    drop: float = 0.3  # of the bus messages to a node
    twice: float = 0.1
    late: float = 0.1  # much later than messages sent after it
    store: float = 0.0  # calls that fail
    lag_s: float = 0.01  # average delay of everything


class World:
    """State that all nodes share: records, presence and random numbers."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.loop = asyncio.get_running_loop()
        self.clock = LoopClock(self.loop)
        self.db = empty_database()
        self.engines: list[SimulatedEngine] = []
        self.lives: dict[str, NodeLife] = {}
        self.users: dict[Any, Any] = {}
        self.tenants: dict[str, Any] = {}  # the same users by tenant, as the engine pages them
        self.seen: dict[Any, Any] = {}
        self.occupants: dict[Any, Any] = {}
        self.sockets: list[socket.socket] = []  # the clients' ends

    def lag(self) -> float:
        return self.random.expovariate(1 / self.faults.lag_s)

    async def node(self) -> SimulatedNode:
        node = SimulatedNode(self)
        await node.node.start()
        return node

    def close(self) -> None:
        for end in self.sockets:
            end.close()
        self.db.close()


@cache
def _template() -> bytes:
    db, _ = _open(":memory:")
    with closing(db):
        return db.serialize()


class _Database(sqlite3.Connection):
    """Connection that closes itself: from Python 3.13 on an open one that is collected causes a warning.

    The garbage collector may run in any thread, so the connection must not be bound to one.
    """

    def __del__(self) -> None:
        self.close()


def empty_database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=_Database)
    db.deserialize(_template())
    return db


class SimulatedThread:
    """Stand-in for the database thread: runs waiting jobs as one batch, is slow, and fails at times."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []
        self._busy = False
        self._closed = False
        self.killed = False

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self._closed = True  # earlier jobs are still executed

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed or self.killed:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[T] = self._world.loop.create_future()
        self._jobs.append((work, future))
        if not self._busy:
            self._busy = True
            self._world.loop.call_later(self._world.lag(), self._commit)
        return await future

    def _commit(self) -> None:
        if self.killed:  # before the write
            return
        batch, self._jobs = self._jobs, []
        world = self._world
        before, after = (world.random.random() < world.faults.store for _ in range(2))
        results = [] if before else _transact(world.db, batch)
        if before or after:  # after: written, but reported as failed
            results = [(future, StoreUnavailable("it failed")) for _, future in batch]
        world.loop.call_later(world.lag(), self._answer, results)

    def _answer(self, results: list[tuple[asyncio.Future[Any], Any]]) -> None:
        if self.killed:  # after the write
            return
        for future, result in results:
            if not future.done():
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        if self._jobs:
            self._world.loop.call_later(self._world.lag(), self._commit)
        else:
            self._busy = False


class SimulatedStore(SqliteStore):
    """SQLite store with the statements of the real one."""

    def __init__(self, world: World) -> None:
        self._thread = SimulatedThread(world)  # type: ignore[assignment]
        self._hooked = {}


class SimulatedEngine(MemoryEngine):
    """Memory engine shared by several nodes. Published messages are lost, duplicated, delayed and reordered."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self._world = world
        self._nodes, self._users, self._seen = world.lives, world.users, world.seen
        self._tenants = world.tenants
        self._occupants = world.occupants
        self.dead = False

    async def start(self, host: Host) -> str:
        self._world.engines.append(self)
        return await super().start(host)

    async def close(self) -> None:
        self._world.engines.remove(self)
        self.dead = True
        await super().close()

    def crash(self) -> None:
        """Remove the engine without notice; its lease runs out."""
        self._world.engines.remove(self)
        self.dead, self._host = True, None
        self._world.loop.call_later(LEASE_S, self._bury)

    def _bury(self) -> None:
        now = self.now_ms()
        self._nodes[self._incarnation] = NodeLife(now, now + self._grace_ms)

    def publish(self, topic: Topic, message: Message) -> None:
        if self.dead:
            return
        world, chance = self._world, self._world.random
        for engine in world.engines:
            if engine._hears(topic) and chance.random() >= world.faults.drop:
                for _ in range(2 if chance.random() < world.faults.twice else 1):
                    slow = 20 if chance.random() < world.faults.late else 1
                    world.loop.call_later(slow * world.lag(), engine.arrived, topic, message)

    def _hears(self, topic: Topic) -> bool:
        if topic.kind == "node":
            return topic.name == self._incarnation
        if topic.kind == "user":
            record = self._users.get((topic.tenant, topic.name))
            return record is not None and any(
                entry.incarnation == self._incarnation for entry in record.sessions.values()
            )
        return topic in self._topics

    def arrived(self, topic: Topic, message: Message) -> None:
        if self._host is not None and (topic.kind in ("user", "node") or topic in self._topics):
            self._host.receive(topic, message)

    # Calls that need a round trip to Redis take time here.

    async def _wait(self) -> None:
        await asyncio.sleep(self._world.lag())

    async def touch(
        self, tenant: str, user: str, ref: SessionEpoch, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        await self._wait()
        return await super().touch(tenant, user, ref, device, idle, name)

    async def adopt(self, tenant: str, user: str, session: str, ref: SessionEpoch) -> Adopted | None:
        await self._wait()
        return await super().adopt(tenant, user, session, ref)

    async def sessions(self, tenant: str, user: str) -> list[EngineSession]:
        await self._wait()
        return await super().sessions(tenant, user)

    async def typers(self, tenant: str, room: str) -> list[Typist]:
        await self._wait()
        return await super().typers(tenant, room)

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        topics = [*topics]
        await self._wait()
        await super().subscribe(topics)
        await self._wait()

    async def unsubscribe(self, topics: Iterable[Topic]) -> None:
        topics = [*topics]
        await self._wait()
        await super().unsubscribe(topics)


class Local(socket.socket):
    """Socket pair end in this process; written data can be read at once. It ignores TCP options."""

    def setsockopt(self, level: int, *given: Any) -> None:  # type: ignore[override]
        if level != socket.IPPROTO_TCP:
            super().setsockopt(level, *given)

    def getsockopt(self, level: int, *given: Any) -> Any:  # type: ignore[override]
        return 0 if level == socket.IPPROTO_TCP else super().getsockopt(level, *given)


class SimulatedNode:
    """Node that can be stopped cleanly or killed."""

    def __init__(self, world: World) -> None:
        settings = msgspec.convert(SETTINGS, Settings)
        self._world = world
        self.engine = SimulatedEngine(world)
        self.store = SimulatedStore(world)
        self.node = Node(settings, self.engine, self.store, world.clock)
        # Loop lag by the real clock means nothing in virtual time, and polling twenty times a second is slow.
        self.node.overload_monitor.start = lambda: None  # type: ignore[method-assign]
        self.up = True

    async def socket(self, small: bool) -> socket.socket:
        """Return the client's end of a new connection. With `small` the kernel buffers little."""
        ours, other = socket.socketpair()
        theirs = Local(other.family, other.type, other.proto, other.detach())
        ours.setblocking(False)
        theirs.setblocking(False)
        if small:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        transport, _ = await self._world.loop.connect_accepted_socket(asyncio.Protocol, theirs)
        # As the listener does after it has read the request.
        connections = self.node.connections
        connections.connect("simulated").open(
            transport, theirs.fileno(), connections.read_buffer, switching_protocols(b"key")
        )
        self._world.sockets.append(ours)
        return ours

    async def stop(self) -> None:
        self.up = False
        await self.node.drain(0.2)
        await self.node.close()

    async def crash(self) -> None:
        """Crash as by kill -9: running work stops, without notice to others."""
        self.up = False
        self.engine.crash()
        self.store._thread.killed = True  # type: ignore[attr-defined]
        self.node.timers.close()
        for connection in [*self.node.registry.connections.values()]:
            connection.abort()
        await asyncio.sleep(0.001)  # work that this starts is stopped as well
        while len(self.node.tasks):
            await self.node.tasks.cancel()


class Link:
    """Client's end of a socket behind a network that delays data and can be cut at any point.

    `written` is called for each frame that the server has written, `arrived` when the frame arrives. The end is None.
    """

    def __init__(self, world: World, end: socket.socket, written: Heard, arrived: Heard) -> None:
        self._world = world
        self._end = end
        self._written = written
        self._arrived = arrived
        self._buffer = bytearray()
        self._upgraded = False
        self._early = bytearray()
        self._cut = False
        self._going: deque[bytes] = deque()
        self._coming: deque[dict[str, Any] | None] = deque()
        self._ready_at = self._came_at = 0.0  # arrival of the previous frame: the network keeps the order
        self.stalled = False
        world.loop.add_reader(end, self._read)

    def say(self, **command: Any) -> None:
        if not self._cut:
            frame = make_frame(TEXT, msgspec.json.encode(command), mask=True)
            self._ready_at = max(self._ready_at, self._world.loop.time() + self._world.lag())
            self._going.append(frame)
            # The loop keeps no order among timers that are due together.
            self._world.loop.call_at(self._ready_at, self._send)

    def cut(self) -> None:
        """Cut the connection: no more data arrives on either side, and the server notices after a while."""
        if not self._cut:
            self._cut = True
            self._world.loop.remove_reader(self._end)
            self._world.loop.call_later(self._world.random.choice((0, 0, 0.05, 1, 5)), self._end.close)

    def close(self) -> None:
        if not self._cut:
            self._cut = True
            self._world.loop.remove_reader(self._end)
            self._end.close()

    def stall(self, seconds: float) -> None:
        """Stop reading for a while."""
        if not self._cut and not self.stalled:
            self.stalled = True
            self._world.loop.remove_reader(self._end)
            self._world.loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self.stalled = False
        if not self._cut:
            self._world.loop.add_reader(self._end, self._read)

    def _send(self) -> None:
        self._write(self._going.popleft())

    def _write(self, data: bytes) -> None:
        if not self._upgraded:
            self._early += data  # no data may be sent before the response to the upgrade
        elif data and not self._cut:
            try:
                assert self._end.send(data) == len(data)
            except ConnectionError:
                pass  # the server has closed; the reader notices

    def _read(self) -> None:
        try:
            data = self._end.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._later(None)
            self._world.loop.remove_reader(self._end)
            return
        self._buffer += data
        if not self._upgraded and (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            assert self._buffer.startswith(b"HTTP/1.1 101"), bytes(self._buffer)
            del self._buffer[: end + 4]
            self._upgraded = True
            self._write(bytes(self._early))
        while self._upgraded and (frame := take_frame(self._buffer)) is not None:
            opcode, payload = frame
            if opcode == TEXT:
                self._later(payload)
            elif opcode == CLOSE:
                self._later(None)

    def _later(self, payload: bytes | None) -> None:
        frame = None if payload is None else msgspec.json.decode(payload)
        self._written(frame)
        self._came_at = max(self._came_at, self._world.loop.time() + self._world.lag())
        self._coming.append(frame)
        self._world.loop.call_at(self._came_at, self._arrive)

    def _arrive(self) -> None:
        frame = self._coming.popleft()
        if not self._cut:
            if frame is None:
                self.close()
            self._arrived(frame)


def take_frame(buffer: bytearray) -> tuple[int, bytes] | None:
    """Remove the first whole frame of a server from the buffer and return it."""
    if len(buffer) < 2:
        return None
    size, at = buffer[1] & 0x7F, 2
    if size >= 126:
        at = 4 if size == 126 else 10
        size = int.from_bytes(buffer[2:at], "big")
    if len(buffer) < at + size:
        return None
    frame = buffer[0] & 0xF, bytes(buffer[at : at + size])
    del buffer[: at + size]
    return frame
