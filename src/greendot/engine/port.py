"""The engine port: what holds signals, shared by all nodes.

An engine is four small ports on one connection: presence, typing, who is in a room, and the bus. Every adapter passes
`greendot.testing.engine_suite` unchanged. What holds for all verbs:

- **Atomic per user** (presence) and **per room** (typing, who is there): two verbs on the same one never interleave.
- **Told once**: a verb that changes what can be seen publishes it to the user's watch topic (or the room's topic)
  itself, in the same step; the caller publishes nothing.
- **Settling**: every presence verb first ends what has run out (lingers, dead nodes, a manual status' `until`),
  so nobody is shown longer than they count, even when the node in charge of a timer is gone.
- **Time** is the engine's own, in milliseconds; callers pass durations and ages, never stamps.
- **EngineUnavailable** is raised when the engine cannot be reached; the verb may or may not have been carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from greendot.engine.messages import Message, Part, Topic
from greendot.engine.results import Adopted, EngineSession, Known, NodeInfo, Page, Swept, Touched
from greendot.errors import EngineUnavailable
from greendot.limits.overload_model import Level
from greendot.presence.model import ManualStatus, SessionEpoch, Snapshot
from greendot.rooms.typing_model import Typist
from greendot.telemetry.metrics_model import Histogram


class CountingEngine(Protocol):
    """Costs nothing to ask: all of it is in memory."""

    def counts(self) -> dict[str, float]:
        """What the engine has counted, by metric name."""
        ...

    def histograms(self) -> dict[str, Histogram]:
        """What it has measured, by metric name."""
        ...


RecordsState = Mapping[int, str]  # by partition: another one after a loss


class RestoringEngine(Protocol):
    """See `engine.port.Host.found` for how a node is told of a loss."""

    def is_restoring(self, tenant: str, name: str) -> bool:
        """Whether records of this user or room were lost and not all nodes have restored theirs: absence means nothing.

        It covers what was read before it is asked. It costs nothing.
        """
        ...

    async def is_any_restoring(self) -> bool:
        """Whether anything is being restored: a list may lack some. In one round trip per server."""
        ...

    def records_state(self, part: Part) -> RecordsState:
        """Return the state of a part's records, which changes when they are lost. It costs nothing."""
        ...

    async def restored(self, part: Part, since: RecordsState) -> None:
        """This node has told the engine all it holds of a part that was lost; it began in the state `since`.

        Where the state has changed since, records were lost again, and this does not count.
        Returns when every live node has, or a lease after the loss; EngineUnavailable if the part goes away meanwhile.
        """
        ...


class Transition(NamedTuple):
    """A user came (online, as others see it) or went; a room came to have somebody in it, or nobody."""

    kind: Literal["user", "room"]
    tenant: str
    name: str
    on: bool


class TransitionEngine(Protocol):
    """Tells of turns the one node whose verb made them; nobody if the verb's answer was lost on its way.

    What is restored after a loss is no turn. When a node dies its users are told of by the node that ends their
    sessions; of its rooms nobody is told before somebody looks into them.
    """

    turned: Callable[[Transition], None] | None  # called in the loop's thread; must not take long


Tenant = str
User = str


class Host(Protocol):
    """The node an engine works for. What it is told, it is told in the loop's thread and must not take long."""

    def receive(self, topic: Topic, message: Message) -> None:
        """A message on one of the node's topics."""
        ...

    def lost(self, part: Part) -> None:
        """The engine cannot be reached for this part: what is shown of it may become stale."""
        ...

    def found(self, part: Part, *, intact: bool) -> None:
        """It can be reached again: restore the sessions, and read again what is followed.

        Unless `intact`, it may have forgotten them; until all nodes have restored theirs, absence means nothing.
        """
        ...

    def reborn(self, incarnation: str) -> None:
        """The node was taken for dead and lives on under this name: restore all sessions under it."""
        ...

    def died(self, incarnation: str) -> None:
        """Another node's sessions stopped counting just now: who is in a room is to be read again, nobody tells it."""
        ...


PassThrottle = Callable[[int], Awaitable[None]]


class PresenceEngine(Protocol):
    """Who is there. See the module's docstring for what holds for every verb."""

    async def touch(
        self, tenant: Tenant, user: User, ref: SessionEpoch, device: str, idle: bool | None, name: str | None
    ) -> Touched:
        """The session lives on this connection; `idle` None keeps what it was. Ends its device's lingers.

        Refused with `Fenced` when `ref.incarnation` is not a live node.
        """
        ...

    async def linger(self, tenant: Tenant, user: User, ref: SessionEpoch, grace_ms: int, silent_ms: int) -> int | None:
        """The connection is gone and was last heard `silent_ms` ago; the session counts for `grace_ms` more.

        Answers what remains; None if the session has moved on to another connection (nothing is changed then).
        """
        ...

    async def leave(self, tenant: Tenant, user: User, ref: SessionEpoch) -> int | None:
        """End a linger that is over. Answers the milliseconds that remain when called early, else None."""
        ...

    async def restore(self, tenant: Tenant, user: User, ref: SessionEpoch, known: Known) -> None:
        """Touch with everything there is to know, in case the engine forgot. Changes nothing if it did not.

        What is told of it is marked as restored: the user may have other sessions that are still to be.
        """
        ...

    async def adopt(self, tenant: Tenant, user: User, session: str, ref: SessionEpoch) -> Adopted | None:
        """The session goes on as `ref`, wherever it was; None if the user has no such session."""
        ...

    async def set_status(self, tenant: Tenant, user: User, manual: ManualStatus) -> Snapshot:
        """Copy the durable manual status; a lower revision than the known one is ignored."""
        ...

    async def read(self, tenant: Tenant, users: Sequence[User]) -> list[Snapshot]:
        """One snapshot per user, in order, in one round trip per shard. Unknown users are offline, version 0; all are
        `stale` while the engine `is_restoring` there."""
        ...

    def order(self, tenant: Tenant, users: Sequence[User]) -> Sequence[int]:
        """Return the positions of the users, those who are kept together in a row: read in this order, part by part,
        they take no more round trips than all at once. A range where their order does not matter."""
        ...

    async def online(self, tenant: Tenant, after: str | None, limit: int) -> Page:
        """Return a page of the users others see as not offline.

        Following `next` from the first page on, each user who stays online is in one of the pages. `after` is the
        `next` of a page, or a user to go on behind. In tenants of up to `results.ORDERED` users online, pages are by
        id. Others are in an order of the engine's own that does not change, and a page may have fewer users than
        `limit` and still not be the last.
        """
        ...

    async def sessions(self, tenant: Tenant, user: User) -> list[EngineSession]:
        """The sessions that count, on all nodes."""
        ...

    def now_ms(self) -> int:
        """The engine's time, by which an `until` is over; the node's own wall clock may be quite another."""
        ...


class TypingEngine(Protocol):
    """Who is typing. Starts and stops are not answered: losing one is harmless."""

    def typing_start(self, tenant: Tenant, room: str, user: User, name: str | None) -> None:
        """Held for the engine's `ttl`; let through at most once per `throttle`, user and room, else ignored."""
        ...

    def typing_stop(self, tenant: Tenant, room: str, user: User) -> None:
        """Stops the user, whichever device started. Does not shorten the throttle."""
        ...

    async def typers(self, tenant: Tenant, room: str) -> list[Typist]:
        """The room's typers now, by when they last said so, in one command."""
        ...


class RoomEngine(Protocol):
    """Who is in a room: users with at least one session there that counts. Sessions count as long as their node.

    When a node dies nobody is told: see `Host.died`. What is not entered again for a day may be forgotten.
    """

    async def enter(self, tenant: Tenant, room: str, user: User, ref: SessionEpoch, *, restoring: bool = False) -> None:
        """The session is in the room, under this incarnation from now on. Changes nothing if it was already.

        When it is `restoring` what the engine may have forgotten, what is told of it says so.
        Refused with `Fenced` when `ref.incarnation` is not a live node.
        """
        ...

    async def exit(self, tenant: Tenant, room: str, user: User, ref: SessionEpoch) -> None:
        """The session is not in the room (any more), whichever incarnation of its node it entered under."""
        ...

    async def present(self, tenant: Tenant, room: str) -> list[User]:
        """The users in the room now, by id, in one command."""
        ...

    async def sessions_in_room(self, tenant: Tenant, room: str, users: Sequence[User]) -> dict[User, set[str]]:
        """The sessions in the room of those of the users who have some, in one round trip. One that has ended may still
        be among them: `sessions` tells which count."""
        ...

    async def room_nodes(self, tenant: Tenant, room: str) -> set[str]:
        """The live nodes with sessions in the room, in one command."""
        ...


class Bus(Protocol):
    """Messages between nodes: at most once, in order per topic and publisher, never stored."""

    def publish(self, topic: Topic, message: Message) -> None:
        """Offer a message to every node that hears the topic, this one included. Never blocks, never raises.

        Room and watch topics are heard by the nodes that subscribed. A user topic is heard by the nodes that hold
        sessions of the user, a node topic by that node; these need no subscription.
        """
        ...

    async def reach(self, node: str, message: Message) -> bool:
        """Offer a message to one node, by any name it has had; whether it was there to hear it."""
        ...

    async def subscribe(self, topics: Iterable[Topic]) -> None:
        """Returns once messages published from now on will be received: only then read a snapshot."""
        ...

    async def unsubscribe(self, topics: Iterable[Topic]) -> None: ...


class Engine(
    PresenceEngine, TypingEngine, RoomEngine, Bus, TransitionEngine, CountingEngine, RestoringEngine, Protocol
):
    """All of them, and the life of the node that uses them."""

    async def start(self, host: Host) -> str:
        """Register a new life of this node and return its name. The host is told what arrives from then on.

        EngineUnavailable or ConfigError if it cannot be used as it is.
        """
        ...

    async def close(self) -> None:
        """A clean exit: this incarnation's sessions count for the grace from now on, then no more."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the engine cannot be used at all now; None while it can."""
        ...

    level: Level  # how loaded this node is, set by it: the others learn of it, within two seconds or so

    @property
    def lag_s(self) -> float:
        """How long what is published takes at the moment until it is heard."""
        ...

    def refusing(self) -> frozenset[str]:
        """The nodes that take no new work, as last heard of: costs nothing to ask."""
        ...

    async def nodes(self) -> list[NodeInfo]:
        """Every node's life, the dead as long as they are remembered."""
        ...

    async def sweep(self) -> Swept:
        """Look at everything and end what no longer counts. Also done now and then without being asked."""
        ...

    async def audit(self, holds: Callable[[SessionEpoch], bool], pace: PassThrottle | None = None) -> int:
        """End this node's sessions that `holds` does not know; how many there were.

        `pace` is awaited before every so many commands, with their number: they can be many, and are not urgent.
        """
        ...


class Fenced(EngineUnavailable):
    """The incarnation is not live (any more): register anew and touch every session again."""
