"""Engine port: signals that all nodes share.

An engine combines small ports on one connection: presence, typing, rooms, used names and the bus. Every adapter
passes `greendot.testing.engine_suite` unchanged. A verb is a method of these ports that reads or changes shared state.
To linger is to count as online for the grace, after the connection has ended. All verbs share these guarantees:

- **Atomic per user** (presence) and **per room** (typing, occupancy): two verbs on the same one never interleave.
- **Published once**: a verb that changes a visible state publishes the change to the user's watch topic (or the
  room's topic) in the same step. The caller publishes nothing.
- **Settling**: every presence verb first ends expired data of its user: lingering sessions, sessions of dead nodes, the
  `until` of a manual status. No user is shown as online for too long, even if the node with the timer is gone.
- **Time** is the engine's own, in milliseconds. Callers pass durations and ages, never timestamps.
- **EngineUnavailable** is raised when the engine cannot be reached. The verb may or may not have been carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from greendot.engine.messages import Message, Part, Topic
from greendot.engine.results import Adopted, EngineSession, Known, NodeInfo, OccupantPage, Page, Swept, Touched
from greendot.errors import EngineUnavailable
from greendot.limits.overload_model import Level
from greendot.presence.model import ManualStatus, SessionEpoch, Snapshot
from greendot.rooms.typing_model import Typist
from greendot.telemetry.metrics_model import Histogram


class CountingEngine(Protocol):
    """Metrics of the engine. All values are in memory, so that reading them costs nothing."""

    def counts(self) -> dict[str, float]:
        """Return the engine's counters and gauges by metric name."""
        ...

    def histograms(self) -> dict[str, Histogram]:
        """Return the engine's histograms by metric name."""
        ...


RecordsState = Mapping[int, str]  # state by partition; a loss changes it


class RestoringEngine(Protocol):
    """Progress of restoring after the engine has lost records. `Host.found` reports a loss to the node."""

    def is_restoring(self, tenant: str, name: str) -> bool:
        """Return whether records of this user or room were lost and some node has not yet restored its own.

        A missing session then does not mean that the user is offline. The answer is valid for reads that ended before
        the call. The call costs no I/O.
        """
        ...

    async def is_any_restoring(self) -> bool:
        """Return whether any records are being restored, so that a list may be incomplete.

        The call costs one round trip per server.
        """
        ...

    def records_state(self, part: Part) -> RecordsState:
        """Return the state of a part's records, which changes when records are lost. The call costs no I/O."""
        ...

    async def restored(self, part: Part, since: RecordsState) -> None:
        """Report that this node has restored all its data of a lost part, beginning in the state `since`.

        Partitions whose state differs from `since` have lost records again, and are left out of the report. Return when
        every live node has reported this part, or when the other nodes have made no progress for the period of a lease.
        Raise EngineUnavailable if the part becomes unreachable during the wait.
        """
        ...


class Transition(Struct, frozen=True, gc=False, order=True):
    """User who came online or went offline, as others see it; or room that became occupied or vacant."""

    kind: Literal["user", "room"]
    tenant: str
    name: str
    on: bool


class TransitionEngine(Protocol):
    """Reports of transitions, to the node whose verb caused the transition. A report is lost with the verb's answer.

    Restoring after a loss causes no transitions. After a node's death, another node ends its sessions and gets the
    transitions of its users. A room that becomes empty by the death causes a transition only when a verb reads the
    room.
    """

    turned: Callable[[Transition], None] | None  # callback, called in the loop's thread; must not take long


Tenant = str
User = str


class Host(Protocol):
    """Node that an engine works for. The engine calls all methods in the loop's thread; they must not take long."""

    def receive(self, topic: Topic, message: Message) -> None:
        """Handle a message on one of the node's topics."""
        ...

    def lost(self, part: Part) -> None:
        """Handle the loss of the connection to this part. States of its users and rooms may become stale."""
        ...

    def found(self, part: Part, *, intact: bool) -> None:
        """Restore the sessions of a part that can be reached again, and reread its watched users and rooms.

        With `intact` False, the engine may have lost sessions. A missing session then does not mean that its user is
        offline, until all nodes have restored their sessions.
        """
        ...

    def reborn(self, incarnation: str) -> None:
        """Restore all sessions under a new incarnation: the node was declared dead and continues under this name."""
        ...

    def died(self, incarnation: str) -> None:
        """Read the occupancy of rooms again, because the sessions of a dead node no longer count as online.

        The engine publishes no `Left` for these sessions.
        """
        ...


PassThrottle = Callable[[int], Awaitable[None]]


class PresenceEngine(Protocol):
    """Presence of users. The module's docstring has the guarantees of every verb."""

    async def touch(
        self, tenant: Tenant, user: User, ref: SessionEpoch, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        """Record that the session lives on this connection, and end lingering sessions of its device.

        `idle` None keeps the former value. Raise Fenced if `ref.incarnation` is not a live node.
        """
        ...

    async def linger(self, tenant: Tenant, user: User, ref: SessionEpoch, grace_ms: int, silent_ms: int) -> int | None:
        """Record that the connection ended, with its last frame `silent_ms` ago.

        The session counts as online for `grace_ms` more. Return the milliseconds that remain. Return None and change
        nothing if the session has another connection. With `grace_ms` 0, end the session even if it has an earlier
        connection of the same node, because the touch of this connection may have been lost.
        """
        ...

    async def leave(self, tenant: Tenant, user: User, ref: SessionEpoch) -> int | None:
        """End a lingering session after its grace. Return the remaining milliseconds if called early, else None."""
        ...

    async def restore(self, tenant: Tenant, user: User, ref: SessionEpoch, known: Known) -> None:
        """Write the session with all data that the node has, in case the engine lost the session.

        Change nothing if the engine still has the session. The published change is marked as restored, because other
        sessions of the user may still be missing.

        With `known.lost_ms`, the engine may have older data than before the loss. A visible state that was written
        before then is published with a new version, also if it stays the same: clients may know a higher version than
        the record's. The version that others see of an invisible user stays.
        """
        ...

    async def adopt(self, tenant: Tenant, user: User, session: str, ref: SessionEpoch) -> Adopted | None:
        """Continue the session as `ref`, whichever node held it. Return None if the user has no such session."""
        ...

    async def set_status(self, tenant: Tenant, user: User, manual: ManualStatus) -> Snapshot:
        """Copy the durable manual status to the engine. A revision lower than the known one is ignored.

        Return a snapshot, `stale` as in `read`. The engine keeps no status of a user without sessions: if `own` of the
        snapshot is offline, the status was not taken.
        """
        ...

    async def read(self, tenant: Tenant, users: Sequence[User]) -> list[Snapshot]:
        """Return one snapshot per user, in order, in one round trip per shard.

        Unknown users are offline with version 0. A snapshot is `stale` while `is_restoring` is true for its user.
        """
        ...

    def order(self, tenant: Tenant, users: Sequence[User]) -> Sequence[int]:
        """Return the positions of the users, grouped by where the engine keeps them.

        Reading the users some at a time in this order takes no more round trips than reading all at once. The result is
        a range if the order does not matter.
        """
        ...

    async def online(self, tenant: Tenant, after: str | None, limit: int) -> Page:
        """Return a page of the users whom others see as not offline.

        Following `next` from the first page on, each user who stays online is in one of the pages. `after` is the
        `next` of a page, or a user to continue after. In tenants of up to `results.ORDERED` users online, pages are
        sorted by id. Larger tenants have a stable order of the engine's own, and a page may have fewer users than
        `limit` without being the last.
        """
        ...

    async def sessions(self, tenant: Tenant, user: User) -> list[EngineSession]:
        """Return the user's sessions that count as online, on all nodes."""
        ...

    def now_ms(self) -> int:
        """Return the engine's time, which decides when an `until` is over. The node's wall clock may differ much."""
        ...


class TypingEngine(Protocol):
    """Typing users. Starts and stops get no answer: losing one is harmless."""

    def typing_start(self, tenant: Tenant, room: str, user: User, name: str | None) -> None:
        """Start typing for the engine's `ttl`. At most one start per `throttle`, user and room takes effect."""
        ...

    def typing_stop(self, tenant: Tenant, room: str, user: User) -> None:
        """Stop typing of the user, whichever device started. The throttle is not shortened."""
        ...

    async def typers(self, tenant: Tenant, room: str) -> list[Typist]:
        """Return the room's typing users, ordered by their last start, in one command."""
        ...


class RoomEngine(Protocol):
    """Room occupancy: users with at least one session in the room.

    Sessions of a dead node are in their rooms until the node's grace is over. A node's death publishes nothing; see
    `Host.died`. Sessions that do not enter again for a day may be forgotten.
    """

    async def enter(
        self,
        tenant: Tenant,
        room: str,
        user: User,
        ref: SessionEpoch,
        name: str | None = None,
        *,
        restoring: bool = False,
    ) -> None:
        """Add the session to the room under this incarnation. Change nothing if it is already there.

        `name` is only published, with the entry of a user's first session.

        `restoring` marks the published message as restored data, which the engine may have lost. Raise Fenced if
        `ref.incarnation` is not a live node.
        """
        ...

    async def exit(self, tenant: Tenant, room: str, user: User, ref: SessionEpoch) -> None:
        """Remove the session from the room, whichever incarnation of its node it entered under."""
        ...

    async def present(self, tenant: Tenant, room: str) -> list[User]:
        """Return all occupants of the room, sorted by id.

        A large room takes several commands, each for some of the occupants: a user who enters or leaves meanwhile may
        be missing or included. `present_page` is cheaper for callers that show some of the occupants.
        """
        ...

    async def present_page(
        self, tenant: Tenant, room: str, after: User | None, limit: int, look_for: User | None = None
    ) -> OccupantPage:
        """Return up to `limit` occupants after a user id, the number of all, and whether `look_for` is one of them.

        All are of one moment. The cost depends on `limit`, not on the size of the room.
        """
        ...

    async def sessions_in_room(self, tenant: Tenant, room: str, users: Sequence[User]) -> dict[User, set[str]]:
        """Return the sessions in the room by user, in one round trip. Users without a session in the room are left out.

        An ended session may still be included; `sessions` returns only sessions that count as online.
        """
        ...

    async def room_nodes(self, tenant: Tenant, room: str) -> set[str]:
        """Return the live nodes with sessions in the room, in one command.

        In a large room the answer may include nodes whose last session has left.
        """
        ...


class Bus(Protocol):
    """Messages between nodes: at most once, in order per topic and publisher, never stored."""

    def publish(self, topic: Topic, message: Message) -> None:
        """Send a message to every node that receives the topic, this node included. Never block, never raise.

        Room and watch topics reach the nodes that subscribed. A user topic reaches the nodes that hold sessions of the
        user, a node topic that node; these need no subscription.
        """
        ...

    async def reach(self, node: str, message: Message) -> bool:
        """Send a message to one node, under any incarnation it has had.

        Return False if no node receives messages under this name.
        """
        ...

    def heard_at(self) -> float:
        """Return a time of the node's monotonic clock: all messages published to its topics before have arrived."""
        ...

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        """Subscribe to topics. Messages published after the return will arrive; read a snapshot only then."""
        ...

    async def unsubscribe(self, topics: Iterable[Topic]) -> None: ...


class UsedNamesEngine(Protocol):
    """Names that were used on any node, so that a replay is noticed on all of them."""

    async def use(self, tenant: Tenant, name: str, keep_ms: int) -> int:
        """Return the milliseconds since the first use of the name; 0 if this is the first. One round trip at most.

        The name is remembered for `keep_ms` from its first use on. While the engine is away, only uses on this node
        count: this verb does not raise EngineUnavailable. Each node has a limit of names for that case.
        """
        ...


class Engine(
    PresenceEngine,
    TypingEngine,
    RoomEngine,
    UsedNamesEngine,
    Bus,
    TransitionEngine,
    CountingEngine,
    RestoringEngine,
    Protocol,
):
    """All engine ports, and the life of the node that uses them."""

    async def start(self, host: Host) -> str:
        """Register a new incarnation of this node and return its name.

        The host receives messages and events from the registration on. Raise EngineUnavailable or ConfigError if the
        engine cannot be used.
        """
        ...

    async def close(self) -> None:
        """Exit cleanly: the sessions of this incarnation count as online for the grace from now on."""
        ...

    @property
    def trouble(self) -> str | None:
        """Return why the engine cannot be used at all now, or None while it can."""
        ...

    level: Level  # overload level of this node, set by the node; other nodes read it within about two seconds

    @property
    def lag_s(self) -> float:
        """Return the current seconds from publishing a message to receiving it."""
        ...

    def refusing(self) -> frozenset[str]:
        """Return the nodes that refuse new work, as last read. The call costs no I/O."""
        ...

    def live_nodes(self) -> Collection[str]:
        """Return the live incarnations, as last read, about a second ago. The call costs no I/O."""
        ...

    async def nodes(self) -> list[NodeInfo]:
        """Return every incarnation, including dead ones that are still remembered."""
        ...

    async def sweep(self) -> Swept:
        """Check all data and end expired sessions. The engine also sweeps by itself periodically."""
        ...

    async def audit(
        self,
        holds: Callable[[SessionEpoch], bool],
        pace: PassThrottle | None = None,
        part: Part | None = None,
        silent_ms: Callable[[SessionEpoch], int] | None = None,
    ) -> int:
        """End the sessions that the engine has for this node if `holds` returns False for them. Return their number.

        `silent_ms` returns the milliseconds since the last frame of a session's client, as in `linger`. It is called
        only for the sessions to end. Without it, the last frames of their clients count as received now.
        With `part`, only the sessions of users in this part are compared.
        `pace` is awaited before each batch of commands, with the number of commands. There can be many, and none is
        urgent.
        """
        ...


class Fenced(EngineUnavailable):
    """Incarnation that is not live. The node must register a new incarnation and touch every session again."""
