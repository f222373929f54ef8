"""Families of faults. Each fault is drawn from the seed, and ends by itself."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from chaos import namespaces
from chaos.checker import HEARTBEAT_S, LEASE_S, PERIODS, RENEW_S, Allowance, Checker
from chaos.nodes import Node
from chaos.story import Story
from chaos.world import World
from greendot.engine.redis import keys
from redis_servers import Cluster, RedisProcess, Sentinel, until

PATIENCE_S = 60.0
APART_S = LEASE_S + PERIODS.grace_s  # after this time a node's users are gone for the others
SPARE_FILES = 3


class Fault:
    """Fault that runs: its tools, and the moments that figures are counted from."""

    def __init__(self, world: World, checker: Checker, story: Story, chance: random.Random) -> None:
        self.world, self.checker, self.story, self.random = world, checker, story, chance
        self.began: float | None = None
        self.lifted_at: float | None = None
        self.kind, self.text = "", ""
        self._allowance: Allowance | None = None

    @property
    def node(self) -> Node:
        """Draw a node."""
        return self.random.choice(self.world.nodes)

    def seconds(self, least: float, most: float) -> float:
        return round(self.random.uniform(least, most), 1)

    def begin(self, kind: str, text: str) -> None:
        """Note the moment before the fault."""
        assert kind in KINDS, kind
        self.kind, self.began, self.text = kind, time.time(), text
        self.story.show("FAULT", text)

    def lifted(self) -> None:
        """Note the moment from which on the cluster can heal."""
        if self.lifted_at is None:
            self.lifted_at = time.time()

    def allow(self, node: Node, why: str, after_s: float) -> None:
        """Allow that users of a node are shown as offline, from some time after now until the cluster has healed."""
        users = frozenset(self.checker.users_on(node.incarnation))
        self._allowance = Allowance(why, users, time.time() + after_s)
        self.checker.allowances.append(self._allowance)

    def healed(self) -> None:
        if self._allowance is not None:
            self._allowance.end = time.time()

    # --- rules of proxies ---

    def links(self, kind: str, **rule: object) -> None:
        """Apply a rule to all proxies of a kind: `front`, `redis` or `postgres`."""
        for name in self.names(kind):
            self.world.plumbing.rule(name, rule)

    def free(self, *kinds: str) -> None:
        """End all rules of these proxies."""
        for kind in kinds:
            for name in self.names(kind):
                self.world.plumbing.rule(name)

    def names(self, kind: str) -> list[str]:
        return [name for name in self.world.proxies if name.partition(":")[0] == kind]


Cause = Callable[[Fault], Awaitable[None]]


# --- nodes ---


async def node_kill(fault: Fault) -> None:
    node, away_s = fault.node, fault.seconds(0.0, 6.0)
    fault.begin("kill", f"kill -9 {node}; its supervisor starts it again after {away_s} s")
    node.kill()
    fault.lifted()
    await asyncio.sleep(away_s)
    node.start()
    await node.await_ready()
    fault.world.know()


async def node_stop(fault: Fault) -> None:
    node = fault.node
    is_long = fault.random.random() < 0.4
    seconds = fault.seconds(APART_S + 2, APART_S + 6) if is_long else fault.seconds(0.5, LEASE_S - 2)
    if is_long:
        fault.allow(node, "a node was stopped for longer than lease and grace", APART_S - RENEW_S - 1)
    fault.begin("stop-long" if is_long else "stop", f"SIGSTOP {node} for {seconds} s")
    node.signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        node.signal(signal.SIGCONT)


async def descriptors(fault: Fault) -> None:
    """Let a node reach its limit of open files while clients knock, and in some cases while it lost its links."""
    node, seconds = fault.node, fault.seconds(3.0, 6.0)
    loses_links = fault.random.random() < 0.5
    also = ", and reset its links to Redis and PostgreSQL" if loses_links else ""
    fault.begin("descriptors", f"no file descriptors for {node} for {seconds} s{also}")
    limits = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    used = len(os.listdir(f"/proc/{node.pid}/fd"))
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (used + SPARE_FILES, limits[1]))
    strangers = []
    try:
        for _ in range(40):
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", node.port))
            strangers.append(stranger)
        if loses_links:
            for kind in ("redis", "postgres"):
                fault.links(kind, mode="reset", pid=node.pid)
        await asyncio.sleep(seconds)
    finally:
        for stranger in strangers:
            stranger.close()
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limits)


async def clock_jump(fault: Fault) -> None:
    node, seconds = fault.node, fault.seconds(4.0, 10.0)
    offset = fault.random.choice((-3600, -300, -5, 5, 300, 3600))
    fault.begin("clock", f"the clock of {node} jumps by {offset:+} s, and back after {seconds} s")
    fault.world.jump(node, offset)
    try:
        await asyncio.sleep(seconds)
    finally:
        fault.world.jump(node, 0)


# --- engine ---


async def flush(fault: Fault) -> None:
    primaries = fault.world.primaries
    if len(primaries) > 1 and fault.random.random() < 0.3:
        primaries = [fault.random.choice(primaries)]
    fault.begin("flush", f"FLUSHALL on {len(primaries)} of {len(fault.world.primaries)} primaries")
    for primary in primaries:
        primary.command("FLUSHALL")


async def failover(fault: Fault) -> None:
    """Replace a primary by its replica: after kill -9, or planned."""
    engine = fault.world.engine
    if isinstance(engine, Sentinel):
        fault.begin("redis-crash", "kill -9 of the primary; sentinels promote its replica")
        old = engine.primary
        await asyncio.to_thread(engine.fail_over)
        fault.lifted()
        old.start()
        await asyncio.to_thread(old.ready)
        await asyncio.to_thread(engine.heal)
        return
    old = fault.random.choice(engine.primaries)
    if fault.random.random() < 0.5:
        fault.begin("redis-crash", f"kill -9 of the primary on port {old.port}; its replica takes over")
        await asyncio.to_thread(engine.fail_over, old)
        fault.lifted()
        old.start()
        await asyncio.to_thread(old.ready)
    else:
        replica = engine.replicas_of(old)[0]
        text = f"CLUSTER FAILOVER: the replica on port {replica.port} replaces the primary on port {old.port}"
        fault.begin("redis-failover", text)
        replica.command("CLUSTER", "FAILOVER")
        await asyncio.to_thread(until, lambda: replica.command("ROLE")[0] == b"master", "the replica is a primary")
        fault.lifted()
    await asyncio.to_thread(until, lambda: _follows(old), "the old primary is a replica", PATIENCE_S)


def _follows(process: RedisProcess) -> bool:
    role = process.command("ROLE")
    return role[0] == b"slave" and role[3] == b"connected"


async def slots(fault: Fault) -> None:
    engine = fault.world.engine
    assert isinstance(engine, Cluster)
    partitions = fault.random.sample(range(keys.PARTITIONS), fault.random.randint(1, 6))
    moving = sorted({engine.slot_of(keys.nodes_key("", partition)) for partition in partitions})
    fault.begin("slots", f"slots {', '.join(map(str, moving))} move to another primary")

    def move() -> None:
        for slot in moving:
            owner = engine.owner(slot)
            others = [primary for primary in engine.primaries if primary is not owner]
            engine.move_slot(slot, fault.random.choice(others))

    await asyncio.to_thread(move)


# --- links ---


async def links(fault: Fault) -> None:
    kind = fault.random.choice(
        (client_reset, client_freeze, client_delay, engine_cut, engine_freeze, engine_delay, store_cut)
    )
    await kind(fault)


async def client_reset(fault: Fault) -> None:
    fault.begin("client-reset", "all links of clients are reset")
    fault.links("front", mode="reset")


async def client_freeze(fault: Fault) -> None:
    node = fault.node
    is_long = fault.random.random() < 0.5
    seconds = fault.seconds(18.0, 22.0) if is_long else fault.seconds(2.0, PERIODS.dead_s - HEARTBEAT_S - 2)
    if is_long:
        earliest_s = PERIODS.dead_s + PERIODS.silent_s - HEARTBEAT_S - 1
        fault.allow(node, "the links of clients were half-open for longer than a node waits", earliest_s)
    kind = "client-half-open-long" if is_long else "client-half-open"
    fault.begin(kind, f"links of clients to {node} are half-open for {seconds} s")
    fault.links("front", mode="freeze", target=node.port)
    try:
        await asyncio.sleep(seconds)
    finally:
        fault.free("front")


async def client_delay(fault: Fault) -> None:
    delay_s, seconds = fault.seconds(0.1, 1.0), fault.seconds(4.0, 10.0)
    fault.begin("client-delay", f"links of clients are {delay_s} s slower for {seconds} s")
    fault.links("front", mode="delay", delay_s=delay_s)
    try:
        await asyncio.sleep(seconds)
    finally:
        fault.free("front")


async def engine_cut(fault: Fault) -> None:
    node = fault.node
    is_long = fault.random.random() < 0.3
    seconds = fault.seconds(APART_S + 2, APART_S + 6) if is_long else fault.seconds(1.0, LEASE_S - 2)
    if is_long:
        fault.allow(node, "a node was cut off from Redis for longer than lease and grace", APART_S - RENEW_S - 1)
    fault.begin("redis-cut-long" if is_long else "redis-cut", f"{node} is cut off from Redis for {seconds} s")
    await _while_broken(fault, "redis", seconds, mode="cut", pid=node.pid)


async def engine_freeze(fault: Fault) -> None:
    node, seconds = fault.node, fault.seconds(1.0, LEASE_S - 2)
    fault.begin("redis-half-open", f"links of {node} to Redis are half-open for {seconds} s")
    await _while_broken(fault, "redis", seconds, mode="freeze", pid=node.pid)


async def engine_delay(fault: Fault) -> None:
    delay_s, seconds = fault.seconds(0.05, 0.4), fault.seconds(4.0, 10.0)
    fault.begin("redis-delay", f"links of all nodes to Redis are {delay_s} s slower for {seconds} s")
    await _while_broken(fault, "redis", seconds, mode="delay", delay_s=delay_s)


async def store_cut(fault: Fault) -> None:
    node, seconds = fault.node, fault.seconds(1.0, 8.0)
    mode = fault.random.choice(("cut", "freeze"))
    fault.begin(
        "store-cut", f"{node} is {'cut off from' if mode == 'cut' else 'half-open to'} PostgreSQL for {seconds} s"
    )
    await _while_broken(fault, "postgres", seconds, mode=mode, pid=node.pid)


async def _while_broken(fault: Fault, kind: str, seconds: float, **rule: object) -> None:
    try:
        fault.links(kind, **rule)
        await asyncio.sleep(seconds)
    finally:
        fault.free(kind)


# --- store, disk, names ---


async def postgres(fault: Fault) -> None:
    pair, away_s = fault.world.postgres, fault.seconds(0.2, 3.0)
    fault.begin("store-failover", f"PostgreSQL crashes; its standby is promoted after {away_s} s")
    pair.primary.end(signal.SIGQUIT)
    await asyncio.sleep(away_s)
    await pair.promote()
    fault.lifted()
    await pair.rebuild()


async def disk(fault: Fault) -> None:
    """Fill the file system of Redis, of a PostgreSQL and of the log of a node."""
    seconds = fault.seconds(2.0, 8.0)
    fault.begin("disk", f"the disk of Redis, of one PostgreSQL and of the log of a node is full for {seconds} s")
    file = fault.world.small / "filler"
    filling = asyncio.create_task(_fill(file, seconds))
    try:
        await filling
    finally:
        file.unlink(missing_ok=True)
    pair = fault.world.postgres
    for server in (pair.primary, pair.standby):
        if not server.is_running:  # PostgreSQL ends when it cannot write its log; its supervisor starts it again
            fault.story.show("SUPERVISOR", f"starts the PostgreSQL on port {server.port} again")
            server.launch()
            await asyncio.to_thread(server.ready)
    for process in fault.world.servers:
        if not process.alive:
            fault.story.show("SUPERVISOR", f"starts the Redis on port {process.port} again")
            process.recover()


async def _fill(file: Path, seconds: float) -> None:
    """Keep the file system full: space that others free is taken again."""
    end = time.monotonic() + seconds
    with file.open("wb", buffering=0) as filler:
        while time.monotonic() < end:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while filler.write(b"\0" * size) == size:
                        pass
            await asyncio.sleep(0.05)


async def dns(fault: Fault) -> None:
    names = fault.world.names
    assert names is not None
    mode, seconds = fault.random.choice(("silent", "fail", "unknown")), fault.seconds(3.0, 8.0)
    node = fault.node
    also = f"all links of {node} to Redis and PostgreSQL are reset"
    fault.begin("dns", f"the name server is {mode} for {seconds} s, and {also}")
    names.mode = mode
    try:
        for kind in ("redis", "postgres"):
            fault.links(kind, mode="reset", pid=node.pid)
        await asyncio.sleep(seconds)
    finally:
        names.mode = "answer"


FAMILIES: dict[str, Cause] = {
    "kill": node_kill,
    "stop": node_stop,
    "flush": flush,
    "failover": failover,
    "slots": slots,
    "links": links,
    "postgres": postgres,
    "disk": disk,
    "descriptors": descriptors,
    "clock": clock_jump,
    "dns": dns,
}
# Kinds of faults, as figures and docs/faults.md name them. A long one lasts longer than the promises allow for.
KINDS = (
    *("kill", "stop", "stop-long", "flush", "redis-crash", "redis-failover", "slots"),
    *("client-reset", "client-half-open", "client-half-open-long", "client-delay"),
    *("redis-cut", "redis-cut-long", "redis-half-open", "redis-delay", "store-cut", "store-failover"),
    *("disk", "descriptors", "clock", "dns"),
)
# Log events at level `error` that name the fault itself.
EXPECTED_ERRORS = {"descriptors": ("sockets.exhausted",), "mix": ("sockets.exhausted",)}
NEEDS_CLUSTER = ("slots", "links", "dns", "disk")


def impossible(family: str, engine: str) -> str | None:
    """Return the reason why this machine, or this engine, has no faults of a family."""
    if family in ("dns", "disk") and not namespaces.isolated():
        return "needs namespaces (root, or namespaces of users), which this system does not permit"
    if family in NEEDS_CLUSTER and engine != "cluster":
        return "needs ENGINE=cluster"
    return None
