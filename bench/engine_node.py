"""Engine of a node without clients, in a separate process so that it has its own core.

    engine_node.py fill URL USERS            restore USERS users with one session each; keep them until stdin ends
    engine_node.py cycle URL USERS CYCLES    connect and disconnect CYCLES times, one user after the other
    engine_node.py read URL USERS            restore users; for each line `FIRST STEP COUNT ROUNDS`, time reads
    engine_node.py reap URL                  start a second node; after a line it leaves, and the first reaps it
    engine_node.py subscribe URL TOPICS      subscribe to TOPICS rooms; for each line, count messages
    engine_node.py publish URL TOPICS RATE S publish RATE messages per second to these rooms for S seconds

Each prints a line of JSON when it is ready, and one for each line on stdin. It ends when its stdin ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from statistics import median
from typing import Any

import uvloop

from greendot.engine.messages import Deliver, Message, Part, Topic
from greendot.engine.redis.engine import Options, RedisEngine
from greendot.engine.redis.nodes import LeasePeriods
from greendot.engine.results import Known
from greendot.presence.model import ManualStatus, SessionEpoch

KEY = b"a key that only the bench knows."
TENANT = "default"
AT_ONCE = 500  # concurrent verbs
SPEAK_EVERY_S = 0.001
LIFE_S = 900


def user(number: int) -> str:
    return f"u{number}"


def room(number: int) -> Topic:
    return Topic("room", TENANT, f"room-{number}")


def frame(stamp: int) -> bytes:
    """Return a signal frame for clients with a body of 128 bytes, which begins with the time of sending."""
    body = f"{stamp:020d}".ljust(128, "x")
    return f'{{"type":"signal","room":"room-0","user":"u0","kind":"b","body":"{body}"}}'.encode()


STAMP = slice(frame(0).index(b"0" * 20), frame(0).index(b"0" * 20) + 20)


class Host:
    """Host that counts messages. With `stamped` it also records their age."""

    def __init__(self, stamped: bool = False) -> None:
        self.heard_count = 0
        self.ages_ns: list[int] = []
        if stamped:
            self.receive = self._receive_stamped  # type: ignore[method-assign]

    def receive(self, topic: Topic, message: Message) -> None:
        self.heard_count += 1

    def _receive_stamped(self, topic: Topic, message: Message) -> None:
        if isinstance(message, Deliver):
            self.heard_count += 1
            self.ages_ns.append(time.monotonic_ns() - int(message.frame[STAMP]))

    def lost(self, part: Part) -> None:
        raise SystemExit("the connection to Redis was lost")

    def found(self, part: Part, *, intact: bool) -> None: ...

    def reborn(self, incarnation: str) -> None:
        raise SystemExit("the node was declared dead")

    def died(self, incarnation: str) -> None:
        pass


@asynccontextmanager
async def engine(
    url: str, host: Host, *, grace_s: float = 30, driven: bool = True
) -> AsyncIterator[tuple[RedisEngine, str]]:
    """Start the engine of a node; yield the engine and its incarnation."""
    made = RedisEngine(url, Options(key=KEY, periods=LeasePeriods(grace=grace_s)), driven=driven)
    incarnation = await made.start(host)
    try:
        yield made, incarnation
    finally:
        await made.close()


async def in_batches(verbs: Iterable[Any]) -> None:
    """Run verbs in batches of AT_ONCE. A batch is sent in one write."""
    batch = []
    for verb in verbs:
        batch.append(verb)
        if len(batch) == AT_ONCE:
            await asyncio.gather(*batch)
            batch.clear()
    await asyncio.gather(*batch)


def ref(incarnation: str, number: int, conn: int = 1) -> SessionEpoch:
    return SessionEpoch(f"{incarnation}-{number:09d}", incarnation, conn)


def connected(e: RedisEngine, incarnation: str, number: int, conn: int = 1) -> Any:
    """Connect a user with one session, a known status and a name."""
    known = Known("default", False, f"User {number}", 0, ManualStatus())
    return e.restore(TENANT, user(number), ref(incarnation, number, conn), known)


# --- measurements ---


async def fill(url: str, users: int) -> None:
    async with engine(url, Host()) as (e, incarnation):
        await in_batches(connected(e, incarnation, number) for number in range(users))
        answer(users=users)
        await told()


async def cycle(url: str, users: int, cycles: int) -> None:
    async with engine(url, Host()) as (e, incarnation):

        async def once(number: int, conn: int) -> None:
            await connected(e, incarnation, number, conn)
            await e.linger(TENANT, user(number), ref(incarnation, number, conn), 0, 0)

        start = time.monotonic()
        await in_batches(once(number % users, number // users + 1) for number in range(cycles))
        answer(seconds=time.monotonic() - start)
        await told()


async def read(url: str, users: int) -> None:
    async with engine(url, Host()) as (e, incarnation):
        await in_batches(connected(e, incarnation, number) for number in range(users))
        answer(users=users)
        while line := await told():
            first, step, count, rounds = map(int, line.split())
            asked = [user((first + step * index) % users) for index in range(count)]
            await e.read(TENANT, asked)  # warm-up of both sides
            took, cpu = [], time.process_time()
            for _ in range(rounds):
                start = time.perf_counter()
                found = await e.read(TENANT, asked)
                took.append(time.perf_counter() - start)
            assert all(snapshot.visible.state == "online" for snapshot in found)
            answer(p50_us=median(took) * 1e6, cpu_us=(time.process_time() - cpu) / rounds * 1e6)


async def reap(url: str) -> None:
    async with engine(url, Host(), driven=False) as (first, one):
        async with engine(url, Host(), grace_s=0, driven=False) as (_, other):
            answer(one=one, other=other)
            await told()
        await asyncio.sleep(0.1)  # its grace is over on both clocks
        table = await first.lives.table()
        start, cpu = time.monotonic(), time.process_time()
        swept = await first.sweeper.reap(table)
        took, used = time.monotonic() - start, time.process_time() - cpu
        answer(seconds=took, cpu_s=used, sessions=0 if swept is None else swept.sessions)
        await told()


async def subscribe(url: str, topics: int) -> None:
    host = Host(stamped=False)
    async with engine(url, host) as (e, _):
        await e.subscribe([room(number) for number in range(topics)])
        answer(topics=topics)
        while line := await told():
            if line == "ages":
                host.receive = host._receive_stamped  # type: ignore[method-assign]
            ages, host.ages_ns = sorted(host.ages_ns), []
            count, host.heard_count = host.heard_count, 0
            share = {f"p{p:g}_ms": ages[int(len(ages) * p / 100)] / 1e6 for p in (50, 99, 99.9) if ages}
            answer(heard=count, cpu_s=time.process_time(), invalid=e.bus.counts.invalid, **share)


async def publish(url: str, topics: int, rate: float, seconds: float) -> None:
    rooms = [room(number) for number in range(topics)]
    async with engine(url, Host()) as (e, _):
        answer(topics=topics)
        await told()
        sent, start = 0, time.monotonic()
        while (passed := time.monotonic() - start) < seconds:
            while sent < passed * rate:
                e.publish(rooms[sent % topics], Deliver(frame(time.monotonic_ns())))
                sent += 1
            await asyncio.sleep(SPEAK_EVERY_S)
        await e.servers.of(0).call("PING")
        answer(sent=sent, seconds=time.monotonic() - start)
        await told()


# --- connection to the driver ---


def answer(**values: object) -> None:
    print(json.dumps(values), flush=True)


async def told() -> str:
    """Return the driver's next line; empty when its pipe has ended."""
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    return line.strip() or ("go" if line else "")


PARTS = {"fill": fill, "cycle": cycle, "read": read, "reap": reap, "subscribe": subscribe, "publish": publish}

if __name__ == "__main__":
    signal.alarm(LIFE_S)  # must not outlive a driver that was killed
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 50)  # as in `greendot serve`
    part, url, *numbers = sys.argv[1:]
    uvloop.run(PARTS[part](url, *map(int, numbers)))
