"""Parts of a node for unit tests: virtual time, the memory engine, SQLite in memory, connections that record frames.

@in_virtual_time
async def test_a_rule(parts: NodeParts) -> None:
    ann = await parts.online("ann")
    ...
    assert await ann.frames() == [...]

The clock is that of the loop and moves only while every task waits: `pass_time` moves it. The engine and the store are
the real ones. `away` has the names of calls that fail, `calls` has all calls made, and `held` stops a call at a point.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec

from greendot.app.node import Node
from greendot.auth.model import Grants
from greendot.config import Settings
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Message, Part, Topic
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.limits.frame_limit_model import CommandLimit
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Connection, Session
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timer_model import Timer
from greendot.node.timers import Timers
from greendot.presence.grace_model import EndCause
from greendot.presence.model import ManualStatus, NodeLife, SessionEpoch, Snapshot
from greendot.protocol.commands import ClientInfo
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.thread import _answer, _transact
from greendot.telemetry import log_events
from greendot.telemetry.log import event_of
from greendot.telemetry.metrics import Metrics
from greendot.testing.hold import Held, Point, hold
from greendot.testing.server import SECRET
from greendot.transport.connection import Owner
from model.simulated import LoopClock, VirtualLoop, empty_database

T = TypeVar("T")
Frame = dict[str, Any]
TENANT = "default"
HOUR_MS = 3_600_000
MOMENT_S = 0.001  # all ready work is done by then, and no service has a timer as short as this


# --- time ---


def in_virtual_time(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test from a coroutine function that takes the parts of a node first, then fixtures."""

    def run(**fixtures: Any) -> None:
        failures = _Failures()
        logger = logging.getLogger("greendot")
        logger.addHandler(failures)
        try:
            with asyncio.Runner(loop_factory=VirtualLoop) as runner:
                runner.run(_with_parts(story, fixtures, failures))
        finally:
            logger.removeHandler(failures)
        assert failures.found == [], "a task of the node failed"

    signature = inspect.signature(story)
    run.__name__, run.__doc__, run.__module__ = story.__name__, story.__doc__, story.__module__
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return run


async def _with_parts(
    story: Callable[..., Coroutine[Any, Any, None]], fixtures: Mapping[str, Any], failures: _Failures
) -> None:
    parts = NodeParts(failures)
    await parts.start()
    try:
        await story(parts, **fixtures)
        await settle()
    finally:
        await parts.close()


async def settle() -> None:
    """Let all ready work be done."""
    await asyncio.sleep(MOMENT_S)


async def pass_time(seconds: float) -> None:
    """Let time pass and due work be done."""
    await asyncio.sleep(seconds)
    await settle()


class _Failures(logging.Handler):
    """Log handler that records tasks of a node that ended with an exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if event_of(record) is log_events.WORK_FAILED:
            self.found.append(repr(record.exc_info[1] if record.exc_info else record.getMessage()))


# --- the engine and the store, with calls that fail or wait ---


class _Calls:
    """Record of the calls of an engine or a store, and their planned failures."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []  # names and arguments
        self.away: set[str] = set()  # names of calls that fail without effect
        self.unanswered: set[str] = set()  # names of calls that take effect, but whose answer is lost

    def made(self, name: str) -> list[tuple[Any, ...]]:
        """Return the arguments of all calls of this name."""
        return [args for called, args in self.calls if called == name]

    def count(self, name: str) -> int:
        return len(self.made(name))

    async def begins(self, name: str) -> None:
        """Run before a call takes effect. See `held`."""

    async def ends(self, name: str) -> None:
        """Run after a call has taken effect."""


def held(target: _Calls, name: str, at: Point = "before") -> AbstractAsyncContextManager[Held]:
    """Hold the calls of this name, also those of services that keep the bound method. See `greendot.testing.hold`."""
    return hold(target, "begins" if at == "before" else "ends", when=lambda called: called == name)


def _switched(kind: type[Any], names: Iterable[str], error: type[Exception]) -> None:
    """Wrap these methods of a class, so that calls are recorded and can fail and wait."""

    def switch(name: str) -> None:
        carry_out = getattr(kind, name)

        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args))
            await self.begins(name)
            if name in self.away:
                raise error("away")
            result = await carry_out(self, *args, **kwargs)
            await self.ends(name)
            if name in self.unanswered:
                raise error("the answer is lost")
            return result

        setattr(kind, name, call)

    for name in names:
        switch(name)


def _coroutines(kind: type[Any], *, but: Iterable[str]) -> list[str]:
    names = [name for name in dir(kind) if not name.startswith("_") and name not in but]
    return [name for name in names if inspect.iscoroutinefunction(getattr(kind, name))]


class SwitchedEngine(MemoryEngine, _Calls):
    """Memory engine whose calls can fail or wait, and which can lose its records."""

    def __init__(self, clock: LoopClock) -> None:
        MemoryEngine.__init__(self, clock)
        _Calls.__init__(self)
        self.restoring = False  # records were lost, and other nodes have not restored theirs: all states are stale
        self.published: list[tuple[Topic, Message]] = []
        self.refused_by: frozenset[str] = frozenset()  # other nodes that take no new work

    def lose(self) -> None:
        """Remove every user and occupant, as after a restart of an empty engine."""
        self._users.clear()
        self._tenants.clear()
        self._seen.clear()
        self._occupants.clear()

    def save(self) -> None:
        """Copy the users, as a replica has them."""
        self._saved = copy.deepcopy(self._users)

    def fail_over(self) -> None:
        """Continue with the users of the copy, which are older."""
        self._users.clear()
        self._users.update(self._saved)

    def other_node(self, incarnation: str = "OTHR") -> str:
        """Register another live node, whose sessions tests make."""
        self._nodes[incarnation] = NodeLife()
        return incarnation

    def end_node(self, incarnation: str) -> None:
        """End a node, so that its sessions no longer count."""
        self._nodes[incarnation] = NodeLife(self.now_ms(), self.now_ms())

    def is_restoring(self, tenant: str, name: str) -> bool:
        return self.restoring

    def refusing(self) -> frozenset[str]:
        return super().refusing() | self.refused_by

    def publish(self, topic: Topic, message: Message) -> None:
        self.published.append((topic, message))
        if topic.kind != "node" or topic.name == self._incarnation:
            super().publish(topic, message)

    def sent_to(self, node: str) -> list[Message]:
        """Return the messages to another node."""
        return [message for topic, message in self.published if topic == Topic("node", "", node)]

    def _snapshot(self, key: tuple[str, str]) -> Snapshot:
        return super()._snapshot(key)._replace(stale=self.restoring)


_switched(SwitchedEngine, _coroutines(MemoryEngine, but=("start", "close")), EngineUnavailable)


class _LoopDatabase:
    """Stand-in for the database thread: every call is a transaction, answered in the next turn of the loop.

    A thread would take real time, while virtual time passes independently.
    """

    def __init__(self) -> None:
        self.db: sqlite3.Connection = empty_database()

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self.db.close()

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(_answer, _transact(self.db, [(work, future)]))
        return await future


class SwitchedStore(SqliteStore, _Calls):
    """SQLite in memory, whose calls can fail or wait."""

    def __init__(self) -> None:
        SqliteStore.__init__(self, ":memory:")
        _Calls.__init__(self)
        self._thread = _LoopDatabase()  # type: ignore[assignment]


_switched(SwitchedStore, _coroutines(SqliteStore, but=("start", "close", "migrate")), StoreUnavailable)


# --- clients ---


class RecordingSocket:
    """Socket below a connection. It keeps data that the kernel takes, and data that waits while it is `full`."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.taken = bytearray()
        self.waiting = bytearray()
        self.full = False
        self.reading = True
        self._closing = self._lost = False

    def write(self, data: bytes) -> None:
        if not self._closing:
            (self.waiting if self.full or self.waiting else self.taken).extend(data)

    def drain(self) -> None:
        """Let the kernel take waiting data, and more from now on."""
        self.full = False
        self.taken += self.waiting
        self.waiting.clear()
        if self._closing:
            self._lose()
        elif self.connection is not None:
            self.connection.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def close(self) -> None:
        self._closing = True
        if not self.waiting:
            self._lose()

    def abort(self) -> None:
        self._closing = True
        self.waiting.clear()
        self._lose()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def can_write_eof(self) -> bool:
        return False

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        assert self.connection is not None
        self.connection.on_disconnected()


class Client:
    """The client's end of a connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.socket = RecordingSocket()
        self.socket.connection = connection
        self._read = 0  # bytes that were already returned
        connection.socket = cast(asyncio.Transport, self.socket)
        connection.on_connected()

    @property
    def session(self) -> Session:
        assert self.connection.session is not None
        return self.connection.session

    def say(self, **command: Any) -> None:
        """Send a command."""
        self.send(msgspec.json.encode(command).decode())

    def send(self, text: str) -> None:
        """Send a text frame. A frame after a close is ignored."""
        if not self.connection.deaf:
            self.connection.on_received()
            self.connection.on_text(text)

    async def ask(self, **command: Any) -> Frame:
        """Send a command and return its reply or error."""
        self.say(id=1, **command)
        (reply,) = [frame for frame in await self.frames() if frame["type"] in ("reply", "error")]
        return reply

    async def frames(self, kind: str | None = None) -> list[Frame]:
        """Return the frames since the last call; a close as `{"type": "close", "code": …, "reason": …}`."""
        await settle()
        found = decoded(self.socket.taken[self._read :])
        self._read = len(self.socket.taken)
        return [frame for frame in found if kind in (None, frame["type"])]

    async def events(self, kind: str | None = None) -> list[Frame]:
        """Return the data of the events since the last call."""
        return [frame["data"] for frame in await self.frames(kind) if "data" in frame and frame["type"] != "reply"]

    async def closed(self) -> int | None:
        """Return the code of the close frame since the last call; None if there was none."""
        return next((frame["code"] for frame in await self.frames("close")), None)

    def answer_close(self) -> None:
        """Close the TCP connection, as a peer does after a close frame."""
        self.socket.close()

    def cut(self) -> None:
        """Cut the TCP connection."""
        self.socket.abort()


def decoded(data: bytes | bytearray) -> list[Frame]:
    """Decode the frames of a server."""
    frames: list[Frame] = []
    at = 0
    while at < len(data):
        opcode, size, at = data[at] & 15, data[at + 1], at + 2
        if size in (126, 127):
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(data[at : at + width], "big"), at + width
        payload, at = bytes(data[at : at + size]), at + size
        if opcode == 8:
            frames.append({"type": "close", "code": int.from_bytes(payload[:2], "big"), "reason": payload[2:].decode()})
        elif opcode == 10:
            frames.append({"type": "pong", "payload": payload})
        else:
            frames.append(msgspec.json.decode(payload))
    return frames


# --- a node ---


class RecordingOwner:
    """Owner of connections without a service. It records the callbacks of connections."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.now = context.clock.monotonic
        self.set_timer = context.timers.set
        self.waiting = context.hub.waiting
        self.texts: list[str] = []
        self.violations: list[tuple[int, str]] = []
        self.unread_types: list[str] = []
        self.ends: list[tuple[EndCause, int]] = []
        self.gone_count = 0
        self.slow_count = 0
        self.dropped: list[bytes] = []
        self.coalesced: list[bytes] = []
        self.failed_count = 0

    def cancel_timer(self, timer: Timer | None) -> None:
        self._context.timers.cancel(timer)

    def has_output(self, connection: Connection) -> None:
        self._context.hub.has_output(connection)

    def opened(self, connection: Connection) -> None:
        self._context.registry.connections[connection.id] = connection

    def received(self, connection: Connection, text: str) -> None:
        self.texts.append(text)

    def counted(self, connection: Connection) -> bool:
        return True

    def violated(self, connection: Connection, code: int, reason: str) -> None:
        self.violations.append((code, reason))

    def unread(self, connection: Connection, types: tuple[str, ...]) -> None:
        self.unread_types += types

    def ended(self, connection: Connection, cause: EndCause, code: int) -> None:
        self.ends.append((cause, code))

    def gone(self, connection: Connection) -> None:
        self.gone_count += 1
        self._context.registry.gone(connection)

    def slow(self, connection: Connection) -> None:
        self.slow_count += 1

    def count_dropped(self, frame: bytes) -> None:
        self.dropped.append(frame)

    def count_coalesced(self, frame: bytes) -> None:
        self.coalesced.append(frame)

    def count_send_failed(self) -> None:
        self.failed_count += 1


_: type[Owner] = RecordingOwner


class NodeParts:
    """Dependencies of services, and host of the engine: a message of the bus goes to its handler in `bus`."""

    def __init__(self, failures: _Failures) -> None:
        self.clock = LoopClock(asyncio.get_running_loop())
        self.metrics = Metrics()
        self.context = _context(self.clock, self.metrics)
        self.engine = SwitchedEngine(self.clock)
        self.store = SwitchedStore()
        self.owner: Owner = RecordingOwner(self.context)
        self.bus: dict[type, Callable[[Topic, Any], None]] = {}
        self.incarnation = ""
        self.node: Node | None = None
        self._failures = failures
        self._clients = 0

    async def start(self) -> None:
        self.incarnation = await self.engine.start(self)

    async def close(self) -> None:
        self.context.timers.close()
        await self.context.tasks.cancel()
        await self.store.close()

    def failed(self) -> list[str]:
        """Return and clear the failures of tasks so far, which would fail the test."""
        found, self._failures.found = self._failures.found, []
        return found

    async def whole(self, **sections: Any) -> Node:
        """Make all services of a node on this engine and store. Later clients belong to the node."""
        settings = msgspec.convert({"auth": {"secret": SECRET}} | sections, Settings)
        node = self.node = Node(settings, self.engine, self.store, self.clock)
        self.context = node._context
        self.metrics = node.metrics
        self.owner = node.connections
        node.sessions.incarnation = self.incarnation
        await node.revocation_service.start()
        return node

    # --- users ---

    @property
    def registry(self) -> Registry:
        return self.context.registry

    def grants(self, user: str, **claims: Any) -> Grants:
        """Return the grants of a token that is valid for an hour."""
        now = self.clock.now_ms()
        given = {"tenant": TENANT, "expires_at": now + HOUR_MS, "issued_at": now} | claims
        return Grants(user=user, **given)

    def token(self, user: str, ttl_s: float = 3600.0, **claims: Any) -> str:
        """Make a token that the whole node accepts."""
        assert self.node is not None
        return self.node.tokens.make(user, self.clock.now_ms(), ttl_s, **claims)

    def client(self, limit: CommandLimit | None = None) -> Client:
        """Open a socket."""
        self._clients += 1
        if self.node is not None:
            return Client(self.node.connections.connect(None))
        connection = Connection(self.owner, f"{self.incarnation}/{self._clients}")
        connection.limit = limit
        return Client(connection)

    def session(self, user: str, device: str = "phone", **claims: Any) -> Client:
        """Open a socket with a session that is registered on the node and unknown to the engine."""
        client = self.client()
        session = Session(
            f"{self.incarnation}-{user}{self._clients}", self.grants(user, **claims), device, ClientInfo()
        )
        session.ref = SessionEpoch(session.id, self.incarnation, 1)
        session.active_at = session.state_at = self.clock.monotonic()
        session.connection, client.connection.session = client.connection, session
        session.status_as_of = 0
        self.registry.add(session)
        return client

    async def online(self, user: str, device: str = "phone", **claims: Any) -> Client:
        """Open a socket with a session that the engine knows and others see."""
        client = self.session(user, device, **claims)
        session = client.session
        await MemoryEngine.touch(self.engine, *session.key, session.ref, device, False, session.grants.name)
        await MemoryEngine.set_status(self.engine, *session.key, ManualStatus())
        session.confirmed = True
        return client

    async def shown(self, user: str, tenant: str = TENANT) -> Snapshot:
        """Read a user from the engine without recording the call."""
        (snapshot,) = await MemoryEngine.read(self.engine, tenant, [user])
        return snapshot

    async def states(self, *users: str) -> list[str]:
        """Return the states of users as others see them."""
        return [(await self.shown(user)).visible.state for user in users]

    async def greeted(self, user: str, claims: Mapping[str, Any] | None = None, **hello: Any) -> Client:
        """Open a socket of the whole node and send hello. The welcome is not read."""
        client = self.client()
        client.say(type="hello", token=self.token(user, **(claims or {})), **hello)
        await settle()
        return client

    # --- from the engine ---

    def receive(self, topic: Topic, message: Message) -> None:
        if self.node is not None:
            self.node.receive(topic, message)
        elif (handle := self.bus.get(type(message))) is not None:
            handle(topic, message)

    def lost(self, part: Part) -> None:
        pass

    def found(self, part: Part, *, intact: bool) -> None:
        pass

    def reborn(self, incarnation: str) -> None:
        pass

    def died(self, incarnation: str) -> None:
        pass


def _context(clock: LoopClock, metrics: Metrics) -> NodeContext:
    hub, surge = Hub(metrics, now=clock.monotonic), SurgeDetector(clock)
    recorder = EventRecorder(EventTail(), clock)
    return NodeContext(clock, Timers(clock), Tasks(), hub, Registry(), surge, recorder)


@asynccontextmanager
async def under_way(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine next to the test until it waits. Await its end when the block ends."""
    task = asyncio.ensure_future(work)
    await settle()
    try:
        yield task
    finally:
        await asyncio.wait([task])
    task.result()


def users_of(reply: bytes) -> list[str]:
    """Return the users of a reply with presence entries, in order."""
    return [entry["user"] for entry in entries_of(reply)]


def entries_of(reply: bytes) -> Sequence[Frame]:
    """Return the entries of a reply to `watch` or `presence.get`."""
    found: Sequence[Frame] = msgspec.json.decode(reply)["presence"]
    return found
