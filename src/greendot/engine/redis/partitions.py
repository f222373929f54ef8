"""Redis primaries, and the primary that holds each partition.

A cluster has several primaries. A standalone server, or a set of servers with Sentinel, has one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from greendot.engine.messages import Part
from greendot.engine.redis import topology
from greendot.engine.redis.keys import BUCKETS, PARTITIONS, partition_of
from greendot.engine.redis.link import Argument, RedisError
from greendot.engine.redis.primary import Primary
from greendot.engine.redis.scripts import SCRIPTS
from greendot.engine.redis.url import Address, RedisTarget
from greendot.errors import EngineUnavailable
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.metrics_model import SHORT_S, Histogram

# Seconds between two routine lookups, which find moves and failovers that no error has shown. A replaced primary still
# answers clients that do not know of the failover, so Sentinel is asked often.
ASK_EVERY_S = {"sentinel": 2.0, "cluster": 5.0}
SOON_S = 0.25  # seconds between two lookups while a server is down; also the wait from `ask` to the lookup
REDIRECTS = 8
PIECE = 32  # partitions restored together after a loss: a quarter of all
_MOVING = {"MOVED", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING"}


class PrimariesOwner(Protocol):
    """Owner of `Primaries`: receives the state, the partitions and the pushes of the servers."""

    async def came_up(self, server: Primary) -> None: ...
    def is_up(self, server: Primary) -> None: ...
    def went_down(self, server: Primary) -> None: ...
    async def moved(self, server: Primary, partitions: set[int]) -> None:
        """Handle partitions that have moved from another server to `server`, which is up."""
        ...

    def pushed(self, push: list[Any]) -> None: ...


class Primaries:
    """Connections to all primaries of one target; routes commands by partition. Call `start` first."""

    def __init__(self, place: RedisTarget, watcher: PrimariesOwner) -> None:
        self.place = place
        self.sharded = place.kind == "cluster"
        self.all: dict[Address, Primary] = {}
        self.bucket_counts = [
            BUCKETS
        ] * PARTITIONS  # number of buckets of each partition (see `keys`), as last reported to this node
        self.latency = Histogram(SHORT_S)  # latency of commands on all servers
        self.reconnects = 0  # reconnections to servers that were connected before
        self._met: set[Address] = set()
        self._watcher = watcher
        self._by_partition: list[Primary] = []
        self._task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._ask = asyncio.Event()
        self._tls = place.context()

    # --- life ---

    async def start(self) -> None:
        """Connect to all primaries. Raise EngineUnavailable if one of them cannot be reached."""
        self._apply(await topology.find(self.place, set()))
        servers = [*self.all.values()]
        await asyncio.gather(*(server.first for server in servers))
        down = [server for server in servers if not server.up]
        if down:
            reasons = "; ".join(f"Redis at {server.address} cannot be used: {server.trouble}" for server in down)
            await self.close()
            raise EngineUnavailable(reasons)
        if self.place.kind != "standalone":
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in self.all.values()), *self._closing)
        self.all.clear()

    # --- routing ---

    def of(self, partition: int) -> Primary:
        return self._by_partition[partition]

    @property
    def down(self) -> list[Primary]:
        return [server for server in self.all.values() if not server.up]

    async def run(self, partition: int, name: str, keys: Sequence[str], *arguments: Argument) -> Any:
        """Run a verb (Lua script) on the server of its keys. Retry on another server if the keys have moved."""
        script, call = SCRIPTS[name], (len(keys), *keys, *arguments)
        server, asking = self.of(partition), False
        for attempt in range(REDIRECTS):
            try:
                if asking:
                    server.post("ASKING")
                return await server.call("EVALSHA", script.sha, *call)
            except RedisError as error:
                match error.code:
                    case "NOSCRIPT":
                        await server.call("SCRIPT", "LOAD", script.source)
                    case "ASK":
                        server, asking = self._redirected(error), True
                    case "MOVED":
                        server, asking = self._redirected(error), False
                        self.ask()
                    case "TRYAGAIN":
                        await asyncio.sleep(0.02 * (attempt + 1))
                    case code:
                        if code in _MOVING:
                            self.ask()
                        raise
        raise EngineUnavailable("the keys are moving between servers of the cluster: try again")

    def learn_count(self, partition: int, error: RedisError) -> bool:
        """Store the number of buckets that a `BUCKETS` error reports. Return False for another error."""
        if error.code == "BUCKETS":
            self.bucket_counts[partition] = int(str(error).split()[1])
        return error.code == "BUCKETS"

    def _redirected(self, error: RedisError) -> Primary:
        host, _, port = str(error).split()[2].rpartition(":")
        found = self.all.get(Address(host, int(port)))
        if found is None or not found.up:
            self.ask()
            raise EngineUnavailable("the keys are on a server that is not connected yet: try again")
        return found

    @property
    def latency_us(self) -> int:
        """Return the latest timed latency of the slowest server, in microseconds."""
        return round(
            1e6 * max((s.commands.latency_s for s in self.all.values() if s.commands is not None), default=0.0)
        )

    # --- moves and failovers ---

    def ask(self) -> None:
        """Request an early lookup of the servers, after an answer that contradicts the known layout."""
        self._ask.set()

    async def _follow(self) -> None:
        every = ASK_EVERY_S[self.place.kind]
        while True:
            wait = SOON_S if self.down else every * random.uniform(0.8, 1.0)
            try:
                # Not asyncio.wait_for: in Python 3.11 it swallows a cancellation that comes with the event.
                async with asyncio.timeout(wait):
                    await self._ask.wait()
                await asyncio.sleep(
                    SOON_S * random.uniform(0.2, 1.0)
                )  # one fault causes many calls of `ask`: one lookup serves them all
            except TimeoutError:
                pass
            self._ask.clear()
            try:
                layout = await topology.find(self.place, {*self.all})
            except EngineUnavailable as error:
                log(log_events.WORK_LATER, work="reading the partition map", reason=error)
                continue
            for server, partitions in self._apply(layout):
                if server.up:
                    await self._moved(server, partitions)

    async def _moved(self, server: Primary, partitions: set[int]) -> None:
        try:
            await self._watcher.moved(server, partitions)
        except EngineUnavailable as error:
            server.fail(f"partitions that came to it could not be taken over ({error})")

    def _apply(self, layout: topology.Layout) -> list[tuple[Primary, set[int]]]:
        """Apply a layout. Return the known servers that gained partitions, each with these partitions."""
        wanted: dict[Address, set[int]] = {}
        for partition, address in enumerate(layout):
            wanted.setdefault(address, set()).add(partition)
        gained = []
        for address, partitions in wanted.items():
            server = self.all.get(address)
            if server is None:
                server = self.all[address] = Primary(address, self.place, self._tls, self)
            elif more := partitions - server.partitions:
                gained.append((server, more))
            server.partitions = partitions
        if len(wanted) < len(self.all):
            self._retire([address for address in self.all if address not in wanted])
        self._by_partition = [self.all[layout[partition]] for partition in range(PARTITIONS)]
        return gained

    def _retire(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            log(log_events.REDIS_UNUSED, server=str(address))
            server = self.all.pop(address)
            server.partitions = set()
            closing = asyncio.get_running_loop().create_task(server.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    # --- methods of PrimaryOwner, called by each Primary ---

    async def came_up(self, server: Primary) -> None:
        await self._watcher.came_up(server)

    def is_up(self, server: Primary) -> None:
        self.reconnects += server.address in self._met
        self._met.add(server.address)
        self._watcher.is_up(server)

    def went_down(self, server: Primary) -> None:
        self.ask()
        self._watcher.went_down(server)

    def pushed(self, push: list[Any]) -> None:
        self._watcher.pushed(push)

    def refused(self, server: Primary, error: EngineUnavailable) -> None:
        code = error.code if isinstance(error, RedisError) else ""
        if code in _MOVING:
            self.ask()
        elif code == "NOSCRIPT":  # the refused command is lost, later ones will pass
            for script in SCRIPTS.values():
                server.post("SCRIPT", "LOAD", script.source)


class Partitions(Part):
    """Users and rooms on some partitions."""

    def __init__(self, partitions: Iterable[int], servers: Primaries) -> None:
        self.numbers = frozenset(partitions)
        self._servers = servers

    def covers(self, tenant: str, name: str) -> bool:
        return partition_of(tenant, name) in self.numbers

    def within(self, other: Part) -> bool:
        return self.numbers <= other.numbers if isinstance(other, Partitions) else super().within(other)

    def away(self) -> Part | None:
        away = [partition for partition in self.numbers if not self._servers.of(partition).up]
        return Partitions(away, self._servers) if away else None

    def pieces(self) -> Sequence[Part]:
        shares = (self.numbers.intersection(range(at, at + PIECE)) for at in range(0, PARTITIONS, PIECE))
        return [Partitions(share, self._servers) for share in shares if share]
