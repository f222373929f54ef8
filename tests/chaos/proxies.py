"""TCP proxies in a process of their own, which delay, cut, reset or freeze connections.

    python -m chaos.proxies       read one JSON command per line, write one JSON reply per line, end with the input

A proxy has one target, or several targets with a health check, as a load balancer has. A rule applies to all links of a
proxy, to the links of one client process, or to the links to one target.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

HEALTH_S, HEALTH_LIMIT_S = 0.5, 2.0
MOST_WAITING = 64  # chunks per direction: a faster sender must wait, as on a real network
CHUNK = 65_536


class Rule:
    """Fault of some links of a proxy."""

    def __init__(self, mode: str, delay_s: float = 0.0, pid: int | None = None, target: int | None = None) -> None:
        assert mode in ("cut", "freeze", "delay", "reset"), mode
        self.mode, self.delay_s, self.pid, self.target = mode, delay_s, pid, target

    def fits(self, link: Link) -> bool:
        return self.pid in (None, link.pid) and self.target in (None, link.target)


class Link:
    """One connection of a client and the connection to its target."""

    def __init__(self, proxy: Proxy, port: int, pid: int | None, target: int) -> None:
        self.proxy, self.port, self.target = proxy, port, target
        self.pid = pid  # process of the client; None while no rule needs it
        self.delay_s = 0.0
        self.thawed = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []
        self.apply()

    def apply(self) -> None:
        """Follow the current rules of the proxy."""
        modes = [rule for rule in self.proxy.rules if rule.fits(self)]
        self.delay_s = sum(rule.delay_s for rule in modes)
        if any(rule.mode == "freeze" for rule in modes):
            self.thawed.clear()
        else:
            self.thawed.set()
        if any(rule.mode in ("cut", "reset") for rule in modes):
            self.reset()

    def reset(self) -> None:
        """Close both connections with RST."""
        for writer in self.writers:
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction until its end."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_WAITING)
        delivery = asyncio.create_task(self._deliver(waiting, writer))
        loop = asyncio.get_running_loop()
        try:
            while True:
                data = await reader.read(CHUNK)
                await self.thawed.wait()
                await waiting.put((loop.time() + self.delay_s, data))
                if not data:
                    await delivery
                    return
        finally:
            delivery.cancel()

    async def _deliver(self, waiting: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await waiting.get()
            if (left := due - loop.time()) > 0:
                await asyncio.sleep(left)
            await self.thawed.wait()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


class Proxy:
    """Listener with its links and rules."""

    def __init__(self, port: int, targets: list[int]) -> None:
        self.port, self.targets = port, targets
        self.rules: list[Rule] = []
        self.links: set[Link] = set()
        self.healthy = set(targets)
        self.pids: list[int] = []  # client processes that rules may name
        self._server: asyncio.Server | None = None
        self._checks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port, backlog=512)
        if len(self.targets) > 1:
            self._checks = [asyncio.create_task(self._check(target)) for target in self.targets]

    def change(self, rules: list[dict[str, Any]]) -> None:
        self.rules = [Rule(**rule) for rule in rules]
        if self._needs_pids:
            owners = owned(self.pids)
            for link in self.links:
                link.pid = owners.get(link.port)
        for link in [*self.links]:
            link.apply()
        self.rules = [rule for rule in self.rules if rule.mode != "reset"]  # a reset concerns open links only

    @property
    def _needs_pids(self) -> bool:
        return any(rule.pid is not None for rule in self.rules)

    async def _check(self, target: int) -> None:
        """Ask a target for its readiness again and again."""
        while True:
            try:
                async with asyncio.timeout(HEALTH_LIMIT_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", target)
                    try:
                        writer.write(b"GET /readyz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
                        ready = b" 200 " in await reader.readline()
                    finally:
                        writer.transport.abort()
            except (OSError, TimeoutError):
                ready = False
            (self.healthy.add if ready else self.healthy.discard)(target)
            await asyncio.sleep(HEALTH_S)

    def _candidates(self) -> list[int]:
        """Return the targets to try: healthy ones first, those with few links first."""
        load = {target: sum(link.target == target for link in self.links) for target in self.targets}
        return sorted(self.targets, key=lambda target: (target not in self.healthy, load[target]))

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        pid = owned(self.pids).get(port) if self._needs_pids else None
        link: Link | None = None
        try:
            for target in self._candidates():
                link = Link(self, port, pid, target)
                if any(rule.mode == "cut" and rule.fits(link) for rule in self.rules):
                    continue
                try:
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
                except OSError:
                    continue
                link.writers = [writer, far_writer]
                self.links.add(link)
                async with asyncio.TaskGroup() as both:
                    both.create_task(link.pump(reader, far_writer))
                    both.create_task(link.pump(far_reader, writer))
                return
        except* OSError:
            pass  # one side was reset, so the other side is reset too
        finally:
            if link is not None:
                self.links.discard(link)
                link.writers = link.writers or [writer]
                link.reset()


def owned(pids: list[int]) -> dict[int, int]:
    """Return the local port of each connection of these processes, with its process."""
    sockets = {name: pid for pid in pids for name in _files(pid)}
    found = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if (pid := sockets.get(f"socket:[{fields[9]}]")) is not None:
            found[int(fields[1].rpartition(":")[2], 16)] = pid
    return found


def _files(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(entry.path)


async def serve() -> None:
    """Execute commands until standard input ends."""
    proxies: dict[str, Proxy] = {}
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        match command["do"]:
            case "add":
                proxy = proxies[command["name"]] = Proxy(command["port"], command["targets"])
                await proxy.start()
            case "pids":
                for proxy in proxies.values():
                    if len(proxy.targets) == 1:
                        proxy.pids = command["pids"]
            case "rules":
                proxies[command["name"]].change(command["rules"])
        print(json.dumps({"done": command["do"]}), flush=True)


if __name__ == "__main__":
    asyncio.run(serve())
