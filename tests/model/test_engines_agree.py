"""The Redis engine answers as the memory engine does: the same random verbs on both, compared at every step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.core.presence import Change, Manual, Ref, Snapshot
from greendot.engine.base import Disconnect, Engine, Message, Topic
from greendot.engine.memory import MemoryEngine
from greendot.engine.redis.engine import RedisEngine
from greendot.ids import new_incarnation
from greendot.testing import ManualClock
from redis_servers import redis_server

USERS = ["ann", "bob"]
user, session, device = st.sampled_from(USERS), st.sampled_from(["s1", "s2"]), st.sampled_from(["d1", "d2"])
conn, name = st.integers(1, 3), st.sampled_from([None, "A", "B|,;%"])
# Ends fall between the whole seconds that time moves by: a few real milliseconds decide nothing.
grace, silent = st.sampled_from([0, 1_500, 3_500]), st.sampled_from([0, 1_000])
status = st.sampled_from(["auto", "busy", "invisible"])
verbs = st.one_of(
    st.tuples(st.just("touch"), user, session, conn, device, st.sampled_from([None, True, False]), name),
    st.tuples(st.just("linger"), user, session, conn, grace, silent),
    st.tuples(st.just("leave"), user, session, conn),
    st.tuples(st.just("status"), user, status, st.sampled_from([None, 2_500]), name, st.integers(1, 4)),
    st.tuples(st.just("advance"), st.sampled_from([1, 2, 5])),
    st.tuples(st.just("read")),
)


class Side:
    """One engine, with its time and what it published."""

    def __init__(self, engine: Engine, incarnation: str) -> None:
        self.engine, self.incarnation = engine, incarnation
        self.told: list[Any] = []
        self.mark = asyncio.Event()

    def hear(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Change):
            shown = (message.face.state, message.face.text, message.own.state, message.own.status)
            self.told.append((topic.name, *shown, message.name, message.devices, message.public, message.private))
        elif isinstance(message, Disconnect):
            self.mark.set()

    async def settle(self) -> None:
        self.mark.clear()
        self.engine.publish(Topic("node", "", self.incarnation), Disconnect("mark", 0, ""))
        await asyncio.wait_for(self.mark.wait(), 10)

    async def do(self, verb: tuple[Any, ...], now: int) -> Any:
        match verb:
            case "touch", user, session, conn, device, idle, name:
                return await self.engine.touch("t", user, Ref(session, self.incarnation, conn), device, idle, name)
            case "linger", user, session, conn, grace, silent:
                return await self.engine.linger("t", user, Ref(session, self.incarnation, conn), grace, silent)
            case "leave", user, session, conn:
                left = await self.engine.leave("t", user, Ref(session, self.incarnation, conn))
                return None if left is None else -(-left // 1_000)  # a few real milliseconds less is the same
            case "status", user, status, until, text, rev:
                manual = Manual(status, until and now + until, text, rev)
                return _shown(await self.engine.set_status("t", user, manual))
        return [_shown(snapshot) for snapshot in await self.engine.read("t", USERS)]


def _shown(snapshot: Snapshot) -> Any:
    face, own = snapshot.face, snapshot.own
    seen = face.last_seen is not None, face.since is not None, face.version > 0
    return face.state, face.text, own.state, own.text, own.status, snapshot.name, snapshot.devices, seen


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with redis_server("redis", tmp_path_factory.mktemp("redis")) as port:
        yield port


@given(st.lists(verbs, min_size=5, max_size=40))
@settings(max_examples=150)
def test_the_same_verbs_give_the_same_answers_and_the_same_changes(port: int, script: list[tuple[Any, ...]]) -> None:
    asyncio.run(_compare(port, script))


async def _compare(port: int, script: list[tuple[Any, ...]]) -> None:
    clock, incarnation = ManualClock(), new_incarnation()
    redis = RedisEngine(("127.0.0.1", port), key=b"k", prefix=f"{incarnation}:")
    sides = [Side(MemoryEngine(clock), incarnation), Side(redis, incarnation)]
    for side in sides:
        await side.engine.start(incarnation, side.hear)
        await side.engine.subscribe([Topic("watch", "t", name) for name in USERS])
    try:
        await _run(script, clock, redis, sides)
    finally:
        for side in sides:
            await side.engine.close()


async def _run(script: list[tuple[Any, ...]], clock: ManualClock, redis: RedisEngine, sides: list[Side]) -> None:
    started = await redis._now()
    for verb in script:
        if verb[0] == "advance":
            clock.advance(verb[1])
            redis.shift_ms += verb[1] * 1000
            continue
        elapsed = round(clock.monotonic() * 1000)
        answers = [await sides[0].do(verb, clock.now_ms()), await sides[1].do(verb, started + elapsed)]
        assert answers[0] == answers[1], verb
        for side in sides:
            await side.settle()
        assert sides[0].told == sides[1].told, verb
