"""State of recipients, as the push policy reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from greendot.engine.memory import MemoryEngine
from greendot.errors import EngineUnavailable
from greendot.presence.model import ManualStatus, SessionEpoch, Snapshot
from greendot.push.policy_model import RecipientState
from greendot.push.recipient_state import RecipientStates
from greendot.store.sqlite import SqliteStore
from greendot.testing.clock import START_MS, ManualClock

T = "t1"
ANN, BOB = (T, "ann"), (T, "bob")


class Host:
    """Engine host that ignores all calls."""

    def receive(self, topic: object, message: object) -> None: ...
    def lost(self, part: object) -> None: ...
    def found(self, part: object, *, intact: bool) -> None: ...
    def reborn(self, incarnation: str) -> None: ...
    def died(self, incarnation: str) -> None: ...


class Cast:
    """An engine with users and their sessions."""

    def __init__(self, engine: MemoryEngine, store: SqliteStore, clock: ManualClock) -> None:
        self.engine, self.store, self.clock = engine, store, clock
        self.facts = RecipientStates(engine, store)
        self.name = ""

    async def comes(
        self, user: str, device: str = "phone", *, idle: bool = False, room: str | None = None
    ) -> SessionEpoch:
        ref = SessionEpoch(f"{self.name}-{user}{device}", self.name, 1)
        await self.engine.touch(T, user, ref, device, idle, None)
        await self.engine.set_status(T, user, ManualStatus())
        if room is not None:
            await self.engine.enter(T, room, user, ref)
        return ref

    async def look(self, room: str | None = None, user: str = "ann") -> RecipientState:
        key = (T, user)
        return (await self.facts.read({key: {room} if room else set()}))[key]


@asynccontextmanager
async def staged() -> AsyncIterator[Cast]:
    clock = ManualClock()
    engine = MemoryEngine(
        clock, grace_ms=30_000, typing_ttl_ms=5_000, typing_throttle_ms=2_000, seen_retention_ms=86_400_000
    )
    store = SqliteStore(":memory:")
    await store.start()
    cast = Cast(engine, store, clock)
    cast.name = await engine.start(Host())
    try:
        yield cast
    finally:
        await engine.close()
        await store.close()


async def test_each_is_seen_as_they_are() -> None:
    async with staged() as cast:
        await cast.comes("ann")
        await cast.comes("bob", idle=True)
        found = await cast.facts.read({ANN: (), BOB: (), (T, "eve"): (), ("t2", "ann"): ()})
        assert found == {
            ANN: RecipientState("online"),
            BOB: RecipientState("idle"),
            (T, "eve"): RecipientState("offline"),
            ("t2", "ann"): RecipientState("offline"),
        }


async def test_only_an_active_session_is_in_the_room() -> None:
    async with staged() as cast:
        laptop = await cast.comes("ann", "laptop", idle=True, room="r1")
        await cast.comes("ann", "phone", room="r2")
        assert await cast.look("r1") == RecipientState("online", set())
        assert await cast.look("r2") == RecipientState("online", {"r2"})
        await cast.engine.touch(T, "ann", laptop, "laptop", False, None)
        assert await cast.look("r1") == RecipientState("online", {"r1"})
        assert await cast.look() == RecipientState("online"), "no room was requested"


async def test_a_session_whose_socket_is_gone_is_in_no_room() -> None:
    async with staged() as cast:
        ref = await cast.comes("ann", room="r1")
        await cast.engine.linger(T, "ann", ref, 30_000, 0)
        assert await cast.look("r1") == RecipientState("online", set())
        cast.clock.advance(30)
        assert await cast.look("r1") == RecipientState("offline")


async def test_who_is_invisible_is_here_all_the_same() -> None:
    async with staged() as cast:
        await cast.comes("ann", room="r1")
        await cast.engine.set_status(T, "ann", ManualStatus("invisible", rev=1))
        assert await cast.look("r1") == RecipientState("online", {"r1"})


async def test_who_is_busy_is_busy_active_or_not_and_also_away() -> None:
    async with staged() as cast:
        ref = await cast.comes("ann")
        until = START_MS + 3_600_000
        kept = await cast.store.put_status(T, "ann", ManualStatus("busy", until))
        await cast.engine.set_status(T, "ann", kept)
        assert await cast.look() == RecipientState("online", set(), busy=True, busy_until=until)
        await cast.engine.touch(T, "ann", ref, "phone", True, None)
        assert await cast.look() == RecipientState("idle", set(), busy=True, busy_until=until)
        await cast.engine.linger(T, "ann", ref, 0, 0)
        assert await cast.look() == RecipientState("offline", busy=True, busy_until=until), (
            "the status must survive the end of the session"
        )


async def test_where_the_engine_is_away_nothing_is_known() -> None:
    class Away(MemoryEngine):
        async def read(self, tenant: str, users: Sequence[str]) -> list[Snapshot]:
            if "bob" in users:
                raise EngineUnavailable("a part of it is away")
            return await super().read(tenant, users)

    async with staged() as cast:
        cast.engine.__class__ = Away
        await cast.comes("ann")
        assert await cast.facts.read({ANN: (), BOB: ()}) == {ANN: RecipientState("online"), BOB: RecipientState(None)}
        cast.engine.__class__ = MemoryEngine
