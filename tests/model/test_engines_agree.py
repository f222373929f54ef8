"""Two nodes on Redis and the same two on the memory engine: equal random commands, compared at each step.

Nodes start, die, are fenced and continue as new incarnations. Sessions move between them. The engine loses users and
gets them back. `MODEL_EXAMPLES` sets the number of sequences (`make model`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from greendot.engine.memory import MemoryEngine
from greendot.engine.messages import Entered, Left, Topic
from greendot.engine.port import Engine, Fenced
from greendot.engine.redis import keys
from greendot.engine.redis.nodes import LeasePeriods
from greendot.engine.results import Known, Swept
from greendot.presence.model import Change, ManualStatus, NodeLife, SessionEpoch, Snapshot, VisibleState
from greendot.testing import ManualClock
from hosts import RecordingHost, RedisNode
from redis_servers import redis_server

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "120"))
USERS = ("ann", "bob")
ROOM = "room"
NODES = (0, 1)
GRACE_S = 3.5  # of a dead node
# Real time passes during a sequence, so that times differ a little. All deadlines are half-way between the whole
# seconds by which time is advanced. Beyond the first bound time is set back. Beyond the second the step proves nothing.
SET_BACK_MS, TOO_LATE_MS = 200, 350


class Step(NamedTuple):
    """One command: its node, its user and its arguments."""

    verb: str
    node: int = 0
    user: str = "ann"
    session: int = 0
    conn: int = 1
    more: tuple[Any, ...] = ()


def step(verb: str, *more: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(
        Step,
        st.just(verb),
        st.sampled_from(NODES),
        st.sampled_from(["ann", "ann", "ann", "bob"]),  # mostly one user, so that its states become complex
        # Two sessions of the first node and one of the other; each node may use any of them.
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([1, 1, 1, 2]),
        st.tuples(*more),
    )


device, name = st.sampled_from(["phone", "phone", "default"]), st.sampled_from([None, "A", "B|,;%"])
idle, revision = st.sampled_from([False, True]), st.integers(1, 4)
status, until = st.sampled_from(["auto", "busy", "invisible"]), st.sampled_from([None, None, 2_500])
ago = st.sampled_from([0, 1_000, 3_000])
steps = st.one_of(
    *(step("open", device, idle, name) for _ in range(4)),
    step("touch", device, st.sampled_from([None, False, True]), name),
    *(step("linger", st.sampled_from([0, 1_500, 3_500]), st.sampled_from([0, 1_000])) for _ in range(2)),
    step("leave"),
    *(step("hang up", st.sampled_from([0, 1_500, 3_500]), st.sampled_from([0, 1_000])) for _ in range(2)),
    step("move"),
    step("late", device, idle, name),
    step("restore", device, idle, name, ago, status, until, revision, st.sampled_from([None, 500])),
    step("adopt", st.integers(0, 2)),
    step("status", status, until, name, revision),
    step("die", st.sampled_from([None, 0, 2_000])),
    step("crash", st.sampled_from([None, 2_000])),
    step("return"),
    step("forget"),
    step("sweep", st.sampled_from([0, 4])),
    step("reap", st.sampled_from([0, 4])),
    *(step("enter") for _ in range(2)),
    step("exit"),
    step("present"),
    step("sessions"),
    step("read"),
    *(step("advance", st.sampled_from([1, 1, 2, 4])) for _ in range(2)),
)


class Side:
    """Engine with two nodes. `start_ms` is its time at the start of the sequence."""

    start_ms = 0

    def engine(self, node: int) -> Engine:
        raise NotImplementedError

    def stamp(self, ms: int | None) -> int | None:
        """Return a time in half seconds since the start, which must be equal on both sides."""
        return ms and (ms - self.start_ms + 100) // 500

    def visible(self, visible: VisibleState) -> Any:
        stamps = [self.stamp(ms) for ms in (visible.since, visible.last_seen, visible.version, visible.until)]
        return visible.state, visible.text, visible.status, *stamps

    def snapshot(self, shown: Snapshot) -> Any:
        return self.visible(shown.visible), self.visible(shown.own), shown.name, shown.devices

    def changes(self, host: RecordingHost, tenant: str) -> dict[str, list[Any]]:
        """Return the published changes of each user and of the room, in order."""
        found: dict[str, list[Any]] = {name: [] for name in (*USERS, ROOM)}
        for topic, message in host.messages:
            if topic.tenant == tenant and isinstance(message, Entered | Left):
                found[topic.name].append(message)
            if topic.tenant == tenant and isinstance(message, Change):
                flags = message.public, message.private, message.restored
                found[topic.name].append(
                    (self.visible(message.visible), self.visible(message.own), message.name, message.devices, *flags)
                )
        return found


class MemorySide(Side):
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryEngine(self.clock, grace_ms=round(GRACE_S * 1000))
        self.host = RecordingHost()
        self.start_ms = self.clock.now_ms()

    def engine(self, node: int) -> Engine:
        return self.memory

    def live(self, incarnation: str) -> None:
        self.memory._nodes[incarnation] = NodeLife()

    def die(self, incarnation: str, renewed_ago: int | None) -> None:
        now = self.clock.now_ms()
        self.memory._nodes[incarnation] = NodeLife(now - (renewed_ago or 0), now + round(GRACE_S * 1000))

    def forget(self, tenant: str, user: str) -> None:
        self.memory._users.pop((tenant, user), None)
        self.memory._seen.pop((tenant, user), None)

    @property
    def elapsed_ms(self) -> int:
        return self.clock.now_ms() - self.start_ms


class RedisSide(Side):
    """Redis side, kept for all sequences; each sequence has its own tenant."""

    def __init__(self, port: int) -> None:
        periods = LeasePeriods(grace=GRACE_S)
        self.nodes = [RedisNode(f"redis://127.0.0.1:{port}", "model:", periods=periods) for _ in NODES]
        self.stories = 0

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    async def close(self) -> None:
        for node in self.nodes:
            await node.close()

    def engine(self, node: int) -> Engine:
        return self.nodes[node].engine

    def incarnation(self, node: int) -> str:
        return self.nodes[node].engine.lives.incarnation

    async def now(self) -> int:
        """Return the engine's time from Redis. A node's own estimate is as late as its last reply."""
        return (await self.nodes[0].engine.lives.table()).now

    async def advance(self, ms: int) -> None:
        await self.nodes[0].advance(ms / 1000, self.nodes[1])

    async def die(self, node: int, renewed: str) -> None:
        """Let the other node report the death, and refresh both nodes well before the end of the grace."""
        await self.nodes[1 - node].engine.lives.bury(self.incarnation(node), renewed)
        for each in self.nodes:
            await each.engine.lives.refresh()

    async def reborn(self, node: int) -> None:
        """Fence the node: its commands are refused, and it continues as a new incarnation."""
        before, engine = self.incarnation(node), self.nodes[node].engine
        with pytest.raises(Fenced):
            await engine.touch("nobody's", "nobody", SessionEpoch(f"{before}-1", before, 1), "phone", None, None)
        await self.renamed(node, before)

    async def renamed(self, node: int, before: str) -> None:
        await self.nodes[node].engine.settled()
        assert self.incarnation(node) != before
        assert self.nodes[node].host.told[-1] == ("reborn", self.incarnation(node))

    async def forget(self, tenant: str, user: str) -> None:
        where = keys.user_keys("model:", tenant, user)
        server = self.nodes[0].engine.servers.of(where.partition)
        count = self.nodes[0].engine.servers.bucket_counts[where.partition]
        await asyncio.gather(*(server.call("HDEL", bucket, where.field) for bucket in where.buckets(count)))

    async def sweep(self, node: int, tenant: str, only: list[str]) -> Swept:
        """Sweep the buckets of this sequence only: a sweep of all would take a second."""
        names = [keys.user_keys("model:", tenant, user) for user in USERS]
        engine = self.nodes[node].engine
        counts, parts = engine.servers.bucket_counts, []
        for partition in sorted({where.partition for where in names}):
            own = {int(w.buckets(counts[partition])[0][-2:], 16) for w in names if w.partition == partition}
            parts += [
                await engine.sweeper._reap(partition, None, only, [bucket], counts[partition]) for bucket in sorted(own)
            ]
        return Swept(*(sum(column) for column in zip(*parts, strict=True)))

    async def settle(self) -> None:
        for node in self.nodes:
            await node.settle()


class Story:
    """One sequence: both sides from the same state."""

    def __init__(self, redis: RedisSide) -> None:
        redis.stories += 1
        self.tenant = f"t{redis.stories}"
        self.redis, self.memory = redis, MemorySide()
        self.sides: tuple[Side, Side] = (self.memory, redis)
        self.topics = [Topic("room", self.tenant, ROOM), *(Topic("watch", self.tenant, user) for user in USERS)]
        self.lives: list[str] = []  # all incarnations so far
        self.lives_now: dict[int, str] = {}  # by node, also for dead nodes that have not noticed it
        self.lives_before: dict[int, str] = {}  # previous incarnation
        self.dead: set[int] = set()  # dead nodes that have not noticed it
        self.sessions: list[str] = []

    async def begin(self) -> None:
        await self.memory.memory.start(self.memory.host)
        for engine in (self.memory.memory, *(node.engine for node in self.redis.nodes)):
            await engine.subscribe(self.topics)
        for node in NODES:
            self.redis.nodes[node].heard.clear()
            self.live(node)
            self.sessions += [f"{self.redis.incarnation(node)}-session{number:03}" for number in (1, 2)]
        self.redis.start_ms = await self.redis.now()

    async def end(self) -> None:
        for node in NODES:
            await self.redis.nodes[node].engine.settled()
            await self.redis.nodes[node].engine.unsubscribe(self.topics)
            if node in self.dead:
                await self.redis.reborn(node)
        for user in USERS:  # the next sequence counts swept users and may share a bucket with this one
            await self.redis.forget(self.tenant, user)
        past = {*self.lives} - {self.redis.incarnation(node) for node in NODES}
        await self.redis.nodes[0].engine.lives.strike_off(past)
        await self.redis.nodes[0].engine.lives.forget(past)

    def live(self, node: int) -> None:
        if node in self.lives_now:
            self.lives_before[node] = self.lives_now[node]
        self.lives_now[node] = self.redis.incarnation(node)
        self.lives.append(self.lives_now[node])
        self.memory.live(self.lives_now[node])
        self.dead.discard(node)

    # --- time ---

    async def late_ms(self) -> int:
        """Return how far Redis's time is ahead because real time passed."""
        return await self.redis.now() - self.redis.start_ms - self.memory.elapsed_ms

    async def advance(self, seconds: int) -> None:
        self.memory.clock.advance(seconds)
        await self.redis.advance(seconds * 1000)

    # --- commands ---

    async def tell(self, step: Step) -> bool:
        """Run a step on both sides and compare. Return False if the machine was too slow for a comparison."""
        if (late_ms := await self.late_ms()) > SET_BACK_MS:
            await self.redis.advance(-late_ms)
        if step.verb == "crash":  # no other command runs before it is reaped
            return await self.tell(step._replace(verb="die")) and await self.tell(step._replace(verb="reap", more=(4,)))
        if step.verb in ("advance", "sweep", "reap"):  # many deadlines have passed at a sweep
            await self.advance(*step.more)
        step = self.informed(step)
        answers = [await self.do(side, step) for side in self.sides]
        if step.verb == "late":
            await self.redis.nodes[step.node].engine.settled()
            assert self.redis.incarnation(step.node) == self.lives_now[step.node]
        elif answers == ["fenced", "fenced"]:
            await self.go_on(step.node)
        await self.redis.settle()
        if await self.late_ms() > TOO_LATE_MS:
            return False
        assert answers[0] == answers[1], step
        told = self.memory.changes(self.memory.host, self.tenant)
        for node in NODES:
            assert self.redis.changes(self.redis.nodes[node].host, self.tenant) == told, step
        return True

    def informed(self, step: Step) -> Step:
        """Replace the session of some steps by an existing one, on its node."""
        there = self.memory.memory._users.get((self.tenant, step.user))
        if step.verb not in ("hang up", "move") or there is None:
            return step
        session, entry = [*there.sessions.items()][step.session % len(there.sessions)]
        if step.verb == "move":
            return step._replace(verb="adopt", more=(session,))
        return step._replace(verb="linger", more=(SessionEpoch(session, entry.incarnation, entry.conn), *step.more))

    async def go_on(self, node: int) -> None:
        """Continue a fenced node as a new incarnation."""
        await self.redis.renamed(node, self.lives_now[node])
        self.live(node)

    async def do(self, side: Side, step: Step) -> Any:
        engine, who = side.engine(step.node), (self.tenant, step.user)
        ref = SessionEpoch(self.sessions[step.session], self.lives_now[step.node], step.conn)
        try:
            match step.verb:
                case "open" | "touch":
                    return await self.touch(engine, step, ref)
                case "late":  # a command of the previous incarnation
                    before = self.lives_before.get(step.node)
                    return before and await self.touch(engine, step, ref._replace(incarnation=before))
                case "linger":
                    its, *how = step.more if isinstance(step.more[0], SessionEpoch) else (ref, *step.more)
                    return await engine.linger(*who, its, *how)
                case "leave":
                    left = await engine.leave(*who, ref)
                    return left and left // 1000
                case "restore":
                    return await engine.restore(*who, ref, self.known(side, *step.more))
                case "adopt":
                    (wanted,) = step.more
                    return await engine.adopt(*who, wanted if isinstance(wanted, str) else self.sessions[wanted], ref)
                case "enter":
                    return await engine.enter(self.tenant, ROOM, step.user, ref)
                case "exit":
                    return await engine.exit(self.tenant, ROOM, step.user, ref)
                case "present":
                    page = await engine.present_page(self.tenant, ROOM, "ann", 2, step.user)
                    return await engine.present(self.tenant, ROOM), page
                case "status":
                    return side.snapshot(await engine.set_status(*who, self.manual(side, *step.more)))
        except Fenced:
            return "fenced"
        return await self.look_after(side, step)

    async def touch(self, engine: Engine, step: Step, ref: SessionEpoch) -> Any:
        touched = await engine.touch(self.tenant, step.user, ref, *step.more)
        if step.verb == "open" and not touched.status_known:  # as a node does
            await engine.set_status(self.tenant, step.user, ManualStatus(rev=1))
        return touched

    def known(self, side: Side, device: str, idle: bool, name: str | None, age: int, *status: Any) -> Known:
        kind, until, rev, lost = status
        return Known(device, idle, name, age, self.manual(side, kind, until, None, rev), lost)

    def manual(self, side: Side, status: Any, until: int | None, text: str | None, rev: int) -> ManualStatus:
        return ManualStatus(status, until and side.start_ms + self.memory.elapsed_ms + until, text, rev)

    async def look_after(self, side: Side, step: Step) -> Any:
        """Run a command that is not about one user."""
        match step.verb, side:
            case "die", MemorySide():
                if step.node not in self.dead:
                    side.die(self.lives_now[step.node], *step.more)
            case "die", RedisSide():  # also for a node that is already dead, which changes nothing
                (renewed_ago,) = step.more
                renewed = "" if renewed_ago is None else side.start_ms + self.memory.elapsed_ms - renewed_ago
                await side.die(step.node, str(renewed))
                self.dead.add(step.node)
            case "return", RedisSide():
                if step.node in self.dead:
                    await side.reborn(step.node)
                    self.live(step.node)
            case "forget", MemorySide():
                side.forget(self.tenant, step.user)
            case "forget", RedisSide():
                await side.forget(self.tenant, step.user)
            case "reap", _:
                if isinstance(side, RedisSide):  # for dead nodes only: the read settles the others
                    await side.sweep(step.node, self.tenant, self.lives)
                return await self.read(side, step.node)
            case "sweep", MemorySide():
                return await side.memory.sweep(), await self.read(side, step.node)
            case "sweep", RedisSide():
                # An expired status is ended by a read, unless another change of the user did it before.
                return await side.sweep(step.node, self.tenant, []), await self.read(side, step.node)
            case "sessions", _:
                entries = await side.engine(step.node).sessions(self.tenant, step.user)
                return sorted((*entry[:4], entry.ends_in_ms and entry.ends_in_ms // 1000) for entry in entries)
            case "read", _:
                return await self.read(side, step.node)
        return None

    async def read(self, side: Side, node: int) -> Any:
        return [side.snapshot(shown) for shown in await side.engine(node).read(self.tenant, USERS)]


class Bench(NamedTuple):
    runner: asyncio.Runner
    redis: RedisSide


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with (
        redis_server("redis", tmp_path_factory.mktemp("redis")) as port,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        redis = RedisSide(port)
        runner.run(redis.start())
        try:
            yield Bench(runner, redis)
        finally:
            runner.run(redis.close())


@given(story=st.lists(steps, min_size=20, max_size=40))
@settings(max_examples=EXAMPLES)
def test_the_same_verbs_give_the_same_answers_and_the_same_changes(bench: Bench, story: list[Step]) -> None:
    bench.runner.run(_tell(bench.redis, story))


async def _tell(redis: RedisSide, story: list[Step]) -> None:
    told = Story(redis)
    await told.begin()
    try:
        for step in [
            *story,
            Step("read"),
            Step("present"),
            Step("advance", more=(4,)),
            Step("read", 1),
            Step("present", 1),
        ]:
            if not await told.tell(step):
                return
    finally:
        await told.end()
