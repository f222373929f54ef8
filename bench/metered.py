"""Cost of metrics on the hot path: a signal from its command to the sockets of ten listeners, with and without metrics.

    python bench/metered.py        30 s

Both variants run in alternating turns within one process; `unmetered.py` removes the metrics. The path is that of
Greendot without the event loop. A command is decoded and authorised. Its event is published, packed for Redis, parsed,
verified, and written to the socket of each listener. The bench measures the CPU time of the thread and compares the
fastest turns of each variant, because other programs only make turns slower.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from importlib import import_module
from statistics import median
from types import ModuleType
from typing import Any

import hiredis

from report import Row, table, verdict
from unmetered import Finder, unstamped

KEPT = 0.98  # minimum share of the work in the same CPU time
LISTENERS = 10
TURNS, MESSAGES = 300, 100
BODY = '{"x":120,"y":340,"note":"a few words"}'
COMMAND = f'{{"type":"signal.send","room":"lobby","kind":"cursor","key":"k","body":{BODY}}}'


class _Redis:
    """Fake of the Redis servers that returns every published message."""

    sharded, up = False, True

    def __init__(self) -> None:
        self._reader = hiredis.Reader()

    def of(self, partition: int) -> _Redis:
        return self

    def post(self, command: str, channel: str, data: bytes) -> None:
        packed = hiredis.pack_command((command, channel, data))  # type: ignore[arg-type]
        self._reader.feed(b">3\r\n$7\r\nmessage\r\n" + packed.partition(b"PUBLISH\r\n")[2])

    def heard(self) -> list[Any]:
        found: list[Any] = self._reader.gets()
        return found


def loaded(*, counted: bool) -> dict[str, ModuleType]:
    """Import Greendot again, with or without its metrics."""
    _forget()
    finder = Finder()
    if not counted:
        sys.meta_path.insert(0, finder)
    try:
        redis = ("engine.redis.bus", "engine.redis.bus_codec", "engine.redis.engine_time")
        names = ("testing", "clock", "engine.port", *redis)
        found = {name: import_module(f"greendot.{name}") for name in names}
    finally:
        if not counted:
            sys.meta_path.remove(finder)
    if not counted:
        unstamped(found["engine.redis.bus"])
    return found


def _forget() -> dict[str, ModuleType]:
    """Remove the loaded modules of Greendot from `sys.modules` and return them."""
    return {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "greendot"}


def _restore(before: dict[str, ModuleType]) -> None:
    _forget()
    sys.modules.update(before)


class Way:
    """Path from a client's command to the sockets of a room."""

    def __init__(self, served: Any, clients: list[Any], bus: Any, redis: _Redis) -> None:
        node = served.node
        session = clients[0].welcome["session"]
        self._clients, self._served = clients, served
        self._sender = node.registry.sessions[session].connection
        self._take, self._flush = node.dispatcher._handle, node.hub.flush  # called directly, without their queues
        self._pushed, self._heard = bus.pushed, redis.heard
        self.took_us: list[float] = []

    def turn(self) -> None:
        take, sender, pushed, heard, flush = self._take, self._sender, self._pushed, self._heard, self._flush
        begun = time.thread_time_ns()
        for _ in range(MESSAGES):
            take(sender, COMMAND, 0.0)
            pushed(heard())
            flush()
        self.took_us.append((time.thread_time_ns() - begun) / MESSAGES / 1000)

    async def drain(self) -> None:
        """Read all signals on every listener, which proves their delivery."""
        for client in self._clients[1:]:
            for _ in range(MESSAGES):
                assert (await client.receive())["type"] == "signal"


async def way(stack: AsyncExitStack, *, counted: bool) -> Way:
    """Start a node with a room and its users. Its Redis bus is connected to itself."""
    of = loaded(counted=counted)
    served = await stack.enter_async_context(of["testing"].serving(limits={"enabled": False}))
    await served.lobby()
    clients = [await served.joined(f"u{number}") for number in range(LISTENERS + 1)]
    for client in clients:
        await client.quiet()
    redis = _Redis()
    bus = of["engine.redis.bus"].RedisBus(redis, of["engine.redis.bus_codec"].BusCodec(b"k" * 32), "gd:")
    engine_time = of["engine.redis.engine_time"].EngineTime(of["clock"].SystemClock())
    engine_time.observe(int(time.time() * 1000))
    bus.now = engine_time.now
    bus._want(of["engine.port"].Topic("room", "default", "lobby"))
    bus.attach(served.node)
    served.node.engine.publish = bus.publish
    return Way(served, clients, bus, redis)


async def measured(turns: int) -> tuple[list[float], list[float]]:
    """Return the CPU microseconds per message of each turn, sorted, with and without metrics."""
    before = _forget()
    async with AsyncExitStack() as stack:
        stack.callback(_restore, before)  # the caller keeps its own modules
        on, off = await way(stack, counted=True), await way(stack, counted=False)
        for number in range(turns):
            for which in (on, off) if number % 2 else (off, on):
                which.turn()
                await which.drain()
    return sorted(on.took_us), sorted(off.took_us)


def row(on: list[float], off: list[float]) -> Row:
    best = max(1, len(on) // 10)
    ratio = median(off[:best]) / median(on[:best])
    by_rank = sorted(b / a for a, b in zip(on[: len(on) // 2], off[: len(off) // 2], strict=True))
    return Row(
        f"a signal to {LISTENERS} by Redis, {median(on[:best]):.1f} µs: counted ÷ not counted, by CPU time",
        f"{ratio:.3f}",
        f"{by_rank[0]:.3f}–{by_rank[-1]:.3f}",
        "",
        f"≥ {KEPT}",
        verdict(ratio >= KEPT),
    )


if __name__ == "__main__":
    print(table([row(*asyncio.run(measured(TURNS)))]))
