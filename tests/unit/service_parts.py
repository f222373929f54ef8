"""Parts of one node for unit tests of its services, in virtual time.

The services, the engine (in memory) and the store (SQLite in memory) are the real ones. Connections have no socket:
they keep the frames that would have been written. Time passes only while all tasks wait.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import cached_property, wraps
from typing import Any, TypeVar

import msgspec

from greendot.auth.model import Grants
from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import ALL_NODES, Acknowledged, Deliver, Message, Part, Topic
from greendot.engine.results import NodeInfo
from greendot.errors import EngineUnavailable, StoreUnavailable
from greendot.inbox.delivery import InboxCatchUp, InboxDelivery
from greendot.inbox.kinds_model import Kinds, NotificationKind
from greendot.inbox.service import InboxService
from greendot.limits.model import Quota
from greendot.limits.rate_limits import RateLimits
from greendot.node.bus import BusDispatcher
from greendot.node.cluster_rpc import ClusterRpc
from greendot.node.context import NodeContext
from greendot.node.event_recorder import EventRecorder
from greendot.node.event_recorder_model import EventTail
from greendot.node.hub import Hub
from greendot.node.registry import Registry
from greendot.node.session import Connection, Session
from greendot.node.surge_detector import SurgeDetector
from greendot.node.tasks import Tasks
from greendot.node.timers import Timers
from greendot.presence.grace_model import EndCause
from greendot.presence.held_changes import HeldChanges
from greendot.presence.model import ManualStatus, SessionEpoch
from greendot.presence.profiles import ProfileService
from greendot.presence.status import StatusService
from greendot.protocol.commands import ClientInfo
from greendot.protocol.events import TypingTimes
from greendot.push.policy_model import QueuePolicy
from greendot.rooms.before_publish import BeforePublish
from greendot.rooms.commands import RoomCommands
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.messages import RoomMessages
from greendot.rooms.receipts import ReceiptService
from greendot.rooms.service import RoomLimits, RoomService
from greendot.rooms.session_rooms import SessionRooms
from greendot.rooms.signals import InvisibleSignals, Signals
from greendot.store.inbox import Notice
from greendot.store.rooms import Draft, Record, Role
from greendot.store.sqlite import SqliteStore
from greendot.store.sqlite.thread import _transact
from greendot.telemetry.metrics import Metrics
from greendot.testing import Held, hold
from greendot.testing.hold import Point
from greendot.transport.send_buffer_model import SendBuffer
from greendot.visibility.cache import VisibilityCache
from greendot.visibility.freshness import VisibilityFreshness
from greendot.visibility.model import VisibilityPolicy
from greendot.visibility.updates import VisibilityUpdates
from greendot.visibility.webhook import VisibilityClient, VisibilityWebhook
from model.simulated import LoopClock, VirtualLoop, empty_database, take_frame

T = TypeVar("T")
Frame = dict[str, Any]
TENANT = "acme"  # a tenant without hidden users and limits
LIMITED = "limited"  # a tenant with one signal, message and typing command per second
TICK_S = 0.02  # all ready work is done by then, and timers that were due at once have fired
LARGE = 3  # listeners; above this number a room is large
ANSWER_S = 60.0  # lifetime of an answer of an app
DAY_MS = 86_400_000


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that takes `parts`, on an event loop whose time passes only while it is idle."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        async def story() -> None:
            parts = Parts()
            await parts.start()
            try:
                await test(parts=parts, **fixtures)
            finally:
                await parts.close()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(story())

    signature = inspect.signature(test)
    others = [parameter for name, parameter in signature.parameters.items() if name != "parts"]
    run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run


class LoopThread:
    """Stand-in for the database thread: each call runs in the loop, one turn later."""

    def __init__(self) -> None:
        self.db = empty_database()
        self.calls: list[str] = []  # methods of the store, in the order of their calls
        self.failing: dict[str, Exception] = {}  # errors by method, raised instead of the call
        self.is_away = False

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        method = method_of(work)
        self.calls.append(method)
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable("away")
        if method in self.failing:
            raise self.failing[method]
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        ((_, result),) = _transact(self.db, [(work, future)])
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


def method_of(work: Callable[..., Any]) -> str:
    """Return the name of the store's method that made this work."""
    return work.__qualname__.split(".")[1]


class LoopStore(SqliteStore):
    """SQLite store with its database in the loop, so that no call takes time."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.thread = LoopThread()
        self._thread = self.thread  # type: ignore[assignment]

    @property
    def calls(self) -> list[str]:
        return self.thread.calls

    def take_calls(self) -> list[str]:
        """Return the calls since the last time."""
        calls, self.thread.calls = self.thread.calls, []
        return calls

    def holding(self, method: str, at: Point = "before") -> AbstractAsyncContextManager[Held]:
        """Hold the calls of a method, also of services that keep the bound method."""
        return hold(self.thread, "do", at=at, when=lambda work: method_of(work) == method)


class RecordedEngine(MemoryEngine):
    """Memory engine that records published messages, and loses messages or is away on request."""

    def __init__(self, clock: LoopClock) -> None:
        super().__init__(clock)
        self.published: list[tuple[Topic, Message]] = []
        self.verbs: list[tuple[str, str, str]] = []  # enter and exit, with room and user
        self.is_deaf = False  # published messages are lost
        self.is_away = False
        self.others: list[NodeInfo] = []  # other nodes

    def publish(self, topic: Topic, message: Message) -> None:
        self.published.append((topic, message))
        is_for_another = topic.kind == "node" and topic.name not in (self._incarnation, ALL_NODES.name)
        if not self.is_deaf and not is_for_another:
            super().publish(topic, message)

    def sent(self, kind: type[T]) -> list[T]:
        """Return the published messages of one type."""
        return [message for _, message in self.published if isinstance(message, kind)]

    async def nodes(self) -> list[NodeInfo]:
        return [*await super().nodes(), *self.others]

    def live_nodes(self) -> Collection[str]:
        return [*super().live_nodes(), *(info.node for info in self.others if info.state == "live")]

    async def enter(
        self,
        tenant: str,
        room: str,
        user: str,
        ref: SessionEpoch,
        name: str | None = None,
        *,
        restoring: bool = False,
    ) -> None:
        self.verbs.append(("restore" if restoring else "enter", room, user))
        await self._reached()
        await super().enter(tenant, room, user, ref, name, restoring=restoring)

    async def exit(self, tenant: str, room: str, user: str, ref: SessionEpoch) -> None:
        self.verbs.append(("exit", room, user))
        await self._reached()
        await super().exit(tenant, room, user, ref)

    async def _reached(self) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise EngineUnavailable("away")


class CheckedTasks(Tasks):
    """Tasks of a test. An exception in one of them fails the test."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[BaseException] = []

    def _done(self, task: asyncio.Task[Any]) -> None:
        super()._done(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)


class NoSocket:
    """Stand-in for the socket of a connection that is closed."""

    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


class RecordedConnection(Connection):
    """Connection without a socket that records written frames. While slow, frames stay in the send buffer."""

    session: Session

    def __init__(self, owner: Parts, number: str) -> None:
        super().__init__(owner, number)
        self.socket = NoSocket()  # type: ignore[assignment]
        self._written: list[Frame] = []

    def flush(self) -> None:
        if self._out is not None and not self.closing:
            collected, self._out = self._out, None
            self._write(b"".join(item.frame for item in collected))

    def become_slow(self) -> None:
        """Make the socket accept no more data."""
        self.flush()
        self._outbox = SendBuffer()

    def keep_up(self) -> None:
        """Make the socket accept all waiting frames."""
        while self._outbox is not None and (items := self._outbox.take()):
            self._write(b"".join(item.frame for item in items))
        self._outbox = None

    def take(self, *types: str) -> list[Frame]:
        """Return and clear the frames of these types, or of all. Frames of other types are dropped."""
        frames, self._written = self._written, []
        return [frame for frame in frames if not types or frame["type"] in types]

    def data(self, *types: str) -> list[Any]:
        """Return the data of these frames."""
        return [frame["data"] for frame in self.take(*types)]

    def seqs(self, kind: str = "room.message") -> list[int]:
        """Return the numbers of the records among these frames."""
        return [data["seq"] for data in self.data(kind)]

    def _write(self, data: bytes) -> None:
        buffer = bytearray(data)
        while (frame := take_frame(buffer)) is not None:
            self._written.append(msgspec.json.decode(frame[1]))
        assert not buffer


def quota(per_s: int = 0) -> Quota:
    """Make a quota of signals, messages and typing commands per connection and second; 0: no limits."""
    rates: Any = {("connection", activity): per_s for activity in ("signals", "sends", "typing")}
    return Quota(bool(per_s), (1_000, 1_000), 1.0, rates, watches=100, rooms=5)


class Parts:
    """State that the services of a node share, and the services, each made on first use."""

    def __init__(self) -> None:
        clock = self.clock = LoopClock(asyncio.get_running_loop())
        self.metrics = Metrics()
        self.registry = Registry()
        self.hub = Hub(self.metrics, None, clock.monotonic)
        self.waiting = self.hub.waiting
        self.timers = Timers(clock)
        self.tasks = CheckedTasks()
        recorder = EventRecorder(EventTail(), clock)
        surge = SurgeDetector(clock)
        self.context = NodeContext(clock, self.timers, self.tasks, self.hub, self.registry, surge, recorder)
        self.store = LoopStore()
        self.engine = RecordedEngine(clock)
        self.incarnation = ""
        self.apps: dict[str, VisibilityClient] = {}  # visibility webhooks by tenant
        self.kinds: dict[str, NotificationKind] = {"alarm": NotificationKind("acknowledged")}
        self.queue_policies = {"": QueuePolicy()}
        self.invisible_signals: dict[str, InvisibleSignals] = {}  # by kind of signal
        self.tenant_mutes: dict[tuple[str, str], int] = {}  # ends by tenant and user
        self.pushes = 0  # calls of the push worker
        self.rpc = ClusterRpc(self.engine, lambda: self.incarnation, clock.monotonic)
        self.heard_at = float("inf")  # time up to which messages on the bus have arrived
        limits = {LIMITED: quota(per_s=1)}
        self.rate_limits = RateLimits(quota(), limits, clock, self.metrics, self.registry.usage)
        self._numbers = 0

    async def start(self) -> None:
        self.incarnation = await self.engine.start(self)

    async def close(self) -> None:
        self.timers.close()
        await self.tasks.cancel()
        self.store.thread.db.close()
        if self.tasks.failures:
            raise AssertionError("a task failed") from self.tasks.failures[0]

    # --- time ---

    async def settle(self) -> None:
        """Let all ready work be done, and timers fire that are due at once."""
        await self.pass_s(TICK_S)

    async def pass_s(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # --- services ---

    @cached_property
    def statuses(self) -> StatusService:
        return StatusService(self.engine, self.store, self.context)

    @cached_property
    def session_rooms(self) -> SessionRooms:
        return SessionRooms(self.engine, self.statuses, self.context)

    @cached_property
    def webhook(self) -> VisibilityWebhook:
        return VisibilityWebhook(self.context, {"": ANSWER_S}, self.apps)

    @cached_property
    def visibility(self) -> VisibilityCache:
        """Make the cache. A tenant named like a policy has that policy."""
        policies = {
            "": VisibilityPolicy(),
            "shared_rooms": VisibilityPolicy("shared_rooms"),
            "contacts": VisibilityPolicy("contacts"),
            "recent_contacts": VisibilityPolicy("recent_contacts", DAY_MS),
            "ask": VisibilityPolicy("ask"),
        }
        return VisibilityCache(self.store, self.context, policies, self.webhook, self.engine.now_ms, self.freshness)

    @cached_property
    def freshness(self) -> VisibilityFreshness:
        return VisibilityFreshness(lambda: self.heard_at, self.context)

    @cached_property
    def visibility_updates(self) -> VisibilityUpdates:
        return VisibilityUpdates(self.engine, self.store, self.context, self.visibility, self.webhook, self.rpc)

    @cached_property
    def profiles(self) -> ProfileService:
        return ProfileService(self.engine, self.store, self.context, self.statuses, self.metrics)

    @cached_property
    def rooms(self) -> RoomService:
        limits = RoomLimits(self.rate_limits.most_rooms, LARGE, TypingTimes(), 1.0)
        held_changes = HeldChanges(self.engine, self.rpc, self.context, self.statuses)
        return RoomService(
            self.engine,
            self.store,
            self.session_rooms,
            self.visibility,
            self.context,
            held_changes,
            self.profiles,
            limits,
            lambda tenant, user: self.tenant_mutes.get((tenant, user), 0),
        )

    @cached_property
    def messages(self) -> RoomMessages:
        return RoomMessages(
            self.engine,
            self.store,
            self.rooms,
            self.context,
            self.rpc,
            self.rate_limits,
            self.profiles,
            self.visibility_updates.members_changed,
            BeforePublish(self.context, {}, self.metrics),
        )

    @cached_property
    def receipts(self) -> ReceiptService:
        return ReceiptService(
            self.engine, self.store, self.rooms, self.statuses, self.visibility, self.context, self.metrics, LARGE
        )

    @cached_property
    def signals(self) -> Signals:
        return Signals(
            self.engine,
            self.clock,
            self.registry,
            self.hub,
            self.metrics,
            self.statuses,
            self.visibility,
            self.profiles,
            self.invisible_signals,
        )

    @cached_property
    def room_commands(self) -> RoomCommands:
        return RoomCommands(
            self.rooms, self.messages, self.signals, self.statuses, self.rate_limits, self.context.recorder
        )

    @cached_property
    def inboxes(self) -> InboxDelivery:
        return InboxDelivery(self.store, self.context, self.metrics)

    @cached_property
    def inbox_service(self) -> InboxService:
        return InboxService(
            self.engine,
            self.store,
            self.context,
            self.inboxes,
            Kinds(self.kinds),
            self.metrics,
            self.queue_policies,
            self._push_queued,
        )

    def _push_queued(self) -> None:
        self.pushes += 1

    # --- the host of the engine ---

    @cached_property
    def _bus(self) -> BusDispatcher:
        return BusDispatcher(
            self.metrics,
            {Acknowledged: self.rpc.acknowledged, Deliver: self._deliver},
            self.statuses.bus,
            self.visibility_updates.bus,
            self.rooms.bus,
            self.receipts.bus,
            self.inboxes.bus,
        )

    def receive(self, topic: Topic, message: Message) -> None:
        self._bus.receive(topic, message)

    def _deliver(self, topic: Topic, message: Deliver) -> None:
        (self.signals if topic.kind == "user" else self.rooms).deliver(topic, message)

    def lost(self, part: Part) -> None:
        raise NotImplementedError

    def found(self, part: Part, *, intact: bool) -> None:
        raise NotImplementedError

    def reborn(self, incarnation: str) -> None:
        raise NotImplementedError

    def died(self, incarnation: str) -> None:
        raise NotImplementedError

    # --- the owner of connections ---

    def now(self) -> float:
        return self.clock.monotonic()

    def set_timer(self, delay_s: float, call: Any, argument: Any) -> Any:
        return self.timers.set(delay_s, call, argument)

    def cancel_timer(self, timer: Any) -> None:
        self.timers.cancel(timer)

    def has_output(self, connection: Connection) -> None:
        self.hub.has_output(connection)

    def ended(self, connection: Connection, cause: EndCause, code: int) -> None:
        connection.ended_by = (cause, code)

    def count_dropped(self, frame: bytes) -> None:
        self.metrics.drop(frame, "slow")

    def count_coalesced(self, frame: bytes) -> None:
        self.metrics.coalesce(frame)

    def slow(self, connection: Connection) -> None:
        pass

    def opened(self, connection: Connection) -> None:
        raise NotImplementedError

    def received(self, connection: Connection, text: str) -> None:
        raise NotImplementedError

    def counted(self, connection: Connection) -> bool:
        raise NotImplementedError

    def violated(self, connection: Connection, code: int, reason: str) -> None:
        raise NotImplementedError

    def unread(self, connection: Connection, types: tuple[str, ...]) -> None:
        raise NotImplementedError

    def gone(self, connection: Connection) -> None:
        raise NotImplementedError

    def count_send_failed(self) -> None:
        raise NotImplementedError

    # --- users ---

    async def connect(
        self, user: str, *, tenant: str = TENANT, device: str = "phone", **grants: Any
    ) -> RecordedConnection:
        """Return a connection whose session is registered and known to the engine, as after hello."""
        self._numbers += 1
        connection = RecordedConnection(self, f"{self.incarnation}/{self._numbers}")
        granted = Grants(tenant, user, self.clock.now_ms() + DAY_MS, **grants)
        session = Session(f"{self.incarnation}-{self._numbers}", granted, device, ClientInfo())
        session.ref = SessionEpoch(session.id, self.incarnation, self._numbers)
        session.connection, connection.session = connection, session
        session.status_as_of = 0
        self.registry.connections[connection.id] = connection
        self.registry.add(session)
        self.rate_limits.greeted(connection, session)
        await self.engine.touch(tenant, user, session.ref, device, False, granted.name)
        await self.engine.set_status(tenant, user, ManualStatus())
        return connection

    def disconnect(self, connection: RecordedConnection) -> None:
        """End the connection. Its session lingers."""
        connection.closing = True
        connection.session.connection = None
        del self.registry.connections[connection.id]

    # --- rooms ---

    async def room(self, room: str, *members: str, tenant: str = TENANT, role: Role = "member", **given: Any) -> None:
        """Make a room with these members, in the store only."""
        await self.store.put_room(tenant, room, **given)
        for user in members:
            await self.store.put_member(tenant, room, user, role)

    async def join(self, connection: RecordedConnection, room: str, after: int | None = None) -> LocalRoom:
        """Join a room and discard the resulting frames."""
        session = connection.session
        await self.rooms.join(connection, session, room, after)
        await self.settle()
        for other in self.registry.connections.values():
            if isinstance(other, RecordedConnection):
                other.take()
        local = self.rooms.local(Topic("room", session.tenant, room))
        assert local is not None
        return local

    async def joined(self, room: str, *users: str) -> tuple[LocalRoom, list[RecordedConnection]]:
        """Make a room that these users have joined, then clear the list of the store's calls."""
        await self.room(room, *users)
        connections = [await self.connect(user) for user in users]
        for connection in connections:
            local = await self.join(connection, room)
        self.store.take_calls()
        return local, connections

    async def write(self, room: str, count: int = 1, *, tenant: str = TENANT, body: bytes = b"{}") -> list[Record]:
        """Write messages into the store without publishing them."""
        records = []
        for _ in range(count):
            self._numbers += 1
            draft = Draft("app", None, body, f"k{self._numbers}", self.clock.now_ms())
            written = await self.store.append(tenant, room, draft)
            assert written is not None
            records.append(written.record)
        return records

    # --- inboxes ---

    async def attach(self, connection: RecordedConnection, after: int | None = None) -> InboxCatchUp:
        """Attach a device to the inbox of its user, as a hello does."""
        session = connection.session
        return await self.inboxes.attach(connection, session, self.inboxes.ask(session), after)

    def notice(self, user: str, *, tenant: str = TENANT, kind: str = "mention", key: str = "", **given: Any) -> Notice:
        self._numbers += 1
        return Notice(tenant, user, kind, b"{}", key or f"n{self._numbers}", self.clock.now_ms(), **given)
