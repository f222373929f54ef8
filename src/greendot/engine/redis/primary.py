"""Connections of this node to one primary: a link for commands and a link for pushes, reconnected until closed."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from greendot.engine.redis.link import Argument, Link, RedisError, connect
from greendot.engine.redis.scripts import SCRIPTS
from greendot.engine.redis.url import Address, RedisTarget
from greendot.errors import ConfigError, EngineUnavailable
from greendot.telemetry import log_events
from greendot.telemetry.log import log
from greendot.telemetry.log_repeats import Outage
from greendot.telemetry.metrics_model import Histogram

BACKOFF_S, LONGEST_S = 0.05, 2.0


class PrimaryOwner(Protocol):
    """Owner of primaries: gets their state, pushes, errors and latencies."""

    latency: Histogram  # latency of commands

    async def came_up(self, server: Primary) -> None:
        """Prepare a server whose two links are connected. The server is used after the return.

        Raise EngineUnavailable to retry the connection later.
        """
        ...

    def is_up(self, server: Primary) -> None: ...
    def went_down(self, server: Primary) -> None: ...
    def pushed(self, push: list[Any]) -> None: ...
    def refused(self, server: Primary, error: RedisError) -> None: ...


class Primary:
    """One primary. `up` is True while commands may be sent; otherwise `trouble` has the reason."""

    def __init__(self, address: Address, place: RedisTarget, tls: ssl.SSLContext | None, owner: PrimaryOwner) -> None:
        self.address = address
        self.partitions: set[int] = set()
        self.up = False
        self.trouble = "not connected yet"
        self.run_id = ""  # run id of the server process, as last read
        self.intact = True  # whether its data was unchanged when it last came up
        # State of the watchdog: newest beat (test message), newest that came back, missing ones with their send times.
        self.beat_sent = self.beat_heard = 0
        self.unheard: deque[tuple[int, float]] = deque()
        self.beat_channel, self.beat_partition = "", -1
        self.beat_took = 0.0  # seconds that the newest returned beat took
        self.heard_at = float("-inf")  # send time of the newest returned beat, while the server is up
        self.received = 0  # `Link.received` of the link for pushes, at the last round of beats
        self.commands: Link | None = None
        self.pushes: Link | None = None
        self.first = asyncio.get_running_loop().create_future()  # done after the first attempt
        self._place = place
        self._tls = tls
        self._owner = owner
        self._gone = asyncio.Event()
        self._absence = Outage(log_events.REDIS_LOST, log_events.REDIS_BACK, server=str(address))
        self._task = asyncio.get_running_loop().create_task(self._keep())

    def fail(self, reason: str) -> None:
        """Give up both links and reconnect."""
        if self.up:
            self._absence.began(reason)
        self.trouble = reason
        self._gone.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        delay = BACKOFF_S
        try:
            while True:
                try:
                    if await self._once():
                        delay = BACKOFF_S
                except Exception as error:  # a server must never be given up: some users would have no presence
                    log(log_events.WORK_FAILED, error, work=f"connecting to Redis {self.address}")
                    self._drop()
                if not self.first.done():
                    self.first.set_result(None)
                await asyncio.sleep(delay * random.uniform(0.5, 1.0))
                delay = min(delay * 2, LONGEST_S)
        finally:
            self._drop()

    async def _once(self) -> bool:
        """Connect and stay connected as long as possible. Return False if the connection failed from the start."""
        self._gone.clear()
        try:
            self.commands = await connect(self._link, self._place, self.address, self._tls)
            self.pushes = await connect(self._link, self._place, self.address, self._tls)
            await self._check_role()
            await asyncio.gather(*(self.commands.call("SCRIPT", "LOAD", s.source) for s in SCRIPTS.values()))
            await self._owner.came_up(self)
            if self._gone.is_set():
                raise EngineUnavailable("the connection was lost at once")
        except EngineUnavailable as error:
            self.trouble = str(error)
            self._drop()
            return False
        self.up = True
        self.trouble = ""
        if not self.first.done():
            self.first.set_result(None)
        if self._absence.is_away:
            self._absence.ended()
        else:
            log(log_events.REDIS_CONNECTED, server=str(self.address))
        self._owner.is_up(self)
        await self._gone.wait()
        self._drop()
        return True

    async def _check_role(self) -> None:
        assert self.commands is not None
        role, info = await asyncio.gather(self.commands.call("ROLE"), self.commands.call("INFO", "server"))
        if role[0] != b"master":
            raise EngineUnavailable("the server is a replica")
        text = info if isinstance(info, str) else bytes(info).decode()
        self.run_id = next(line[7:] for line in text.splitlines() if line.startswith("run_id:"))

    def _link(self) -> Link:
        return Link(self._owner.pushed, self._lost, self._refused, self._owner.latency.observe)

    def _refused(self, error: RedisError) -> None:
        self._owner.refused(self, error)

    def _lost(self, link: Link) -> None:
        if link in (self.commands, self.pushes):
            self.fail("the connection was lost")

    def _drop(self) -> None:
        was_up, self.up = self.up, False
        self.heard_at = float("-inf")
        for link in (self.commands, self.pushes):
            if link is not None:
                link.abort()
        self.commands = self.pushes = None
        if was_up:
            self._owner.went_down(self)

    # --- commands: while the server is down, they fail or do nothing ---

    def call(self, *command: Argument) -> asyncio.Future[Any]:
        if self.commands is None:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(EngineUnavailable(f"Redis at {self.address} cannot be reached: {self.trouble}"))
            future.exception()
            return future
        return self.commands.call(*command)

    def post(self, *command: Argument) -> None:
        if self.commands is not None:
            self.commands.post(*command)

    async def subscribe(self, kind: str, batches: Iterable[list[str]]) -> None:
        """Send each batch in one command. Return when all channels are confirmed."""
        pushes = self.pushes
        if pushes is None:
            raise EngineUnavailable(f"Redis at {self.address} cannot be reached: {self.trouble}")
        await asyncio.gather(*(pushes.subscribe(kind, batch) for batch in batches))


OLDEST = (7, 0)


async def check(server: Primary) -> None:
    """Raise ConfigError if the server's version or eviction policy cannot be used. The message names the remedy."""
    info = bytes(await server.call("INFO", "everything")).decode(errors="replace")
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    version = facts.get("redis_version", "0.0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ConfigError(f"Redis at {server.address} is version {version}; Greendot needs 7.0 or newer, or Valkey.")
    policy = facts.get("maxmemory_policy", "noeviction").strip()
    if policy != "noeviction":
        raise ConfigError(
            f"Redis at {server.address} has maxmemory-policy {policy}: a full Redis would evict presence. Set "
            "noeviction (redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf), or give Greendot its "
            "own Redis."
        )
