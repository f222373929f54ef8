"""Servers of a run: Redis Cluster or Sentinel, PostgreSQL with a standby, three nodes, and proxies in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from chaos import namespaces
from chaos.names import ADDRESS, NameServer
from chaos.namespaces import RESOLVER
from chaos.nodes import Node
from chaos.storage import Pair
from chaos.story import Story
from redis_servers import Cluster, RedisProcess, Sentinel, clock, free_port, redis_cluster, redis_sentinel

NODES = 3
SMALL_MB = 400  # size of the file system that a fault fills
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
DETECTING = ("warning", "error")


class Plumbing:
    """The process of the proxies. Each method has taken effect when it returns."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.proxies"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def add(self, name: str, port: int, *targets: int) -> None:
        self._do(do="add", name=name, port=port, targets=targets)

    def know(self, pids: list[int]) -> None:
        """Name the processes that rules may mean."""
        self._do(do="pids", pids=pids)

    def rule(self, name: str, *rules: dict[str, Any]) -> None:
        """Replace the rules of a proxy."""
        self._do(do="rules", name=name, rules=rules)

    def _do(self, **command: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        if not self._process.stdout.readline():
            raise RuntimeError("the process of the proxies has ended")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class World:
    """All servers of a run. `async with World(…)` starts and ends them."""

    def __init__(self, folder: Path, story: Story, engine: str, *, clocks: bool = False) -> None:
        self.folder, self.story, self.engine_kind = folder, story, engine
        self.plumbing = Plumbing()
        self.names: NameServer | None = None
        self.nodes: list[Node] = []
        self.postgres: Pair
        self.engine: Cluster | Sentinel
        self.port = free_port()  # of the load balancer
        self.logged: list[tuple[float, str, str]] = []  # time, node, event: warnings and errors
        self.errors: list[tuple[str, str]] = []  # event, text
        self.small = folder
        self.has_small_disk = False
        self.proxies: list[str] = []
        self._clocks = clocks
        self._stack = ExitStack()

    # --- lifecycle ---

    async def __aenter__(self) -> World:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        if namespaces.isolated() and namespaces.use_resolver(self.folder, ADDRESS):
            self.names = NameServer()
            await self.names.start()
        self.small = self.folder / "small"
        self.has_small_disk = namespaces.mount_small(self.small, SMALL_MB)
        self.folder.chmod(0o755)  # PostgreSQL runs as another user
        self.small.chmod(0o755)
        self.postgres = Pair((self.small, self.folder))
        self._stack.callback(self.postgres.remove)
        self.postgres.start()
        await self.postgres.confirm_on_both()
        self._start_engine()
        await self._start_nodes()
        self._proxy("front", self.port, *(node.port for node in self.nodes))

    def _proxy(self, name: str, port: int, *targets: int) -> None:
        self.proxies.append(name)
        self.plumbing.add(name, port, *targets)

    def _start_engine(self) -> None:
        if self.engine_kind == "sentinel":
            self.engine = self._stack.enter_context(redis_sentinel(self.folder / "redis"))
            return
        self.engine = self._stack.enter_context(
            redis_cluster("redis", self.small / "redis", 3, 1, self._announce, appendonly="yes", appendfsync="everysec")
        )

    def _announce(self, process: RedisProcess) -> None:
        proxied = free_port()
        self._proxy(f"redis:{process.port}", proxied, process.port)
        process.announce(proxied)

    @property
    def engine_url(self) -> str:
        url = self.engine.url
        if self.names is not None and self.engine_kind == "cluster":
            url = url.replace("127.0.0.1", "redis.chaos")
        return url

    async def _start_nodes(self) -> None:
        host = "127.0.0.1" if self.names is None else "postgres.chaos"
        for number in range(NODES):
            places = []
            for server in self.postgres.ports:
                port = free_port()
                self._proxy(f"postgres:{number}:{server}", port, server)
                places.append(f"{host}:{port}")
            settings = {
                "GREENDOT_ENGINE_URL": self.engine_url,
                "GREENDOT_STORE_URL": f"postgresql://postgres@{','.join(places)}/postgres?target_session_attrs=read-write",
                "GREENDOT_STORE_MIGRATE": "true",
            }
            # The last node writes its log to the small disk.
            folder = self.folder / ("small" if number == NODES - 1 else ".") / f"node{number}"
            folder.mkdir(parents=True)
            node = Node(f"node {number}", folder, settings | self._clock(folder), self._node_logged)
            self.nodes.append(node)
            self._stack.callback(node.kill)
            node.start()
            await node.await_ready()  # the first one creates the tables
        self.know()

    def know(self) -> None:
        """Let the proxies know the processes of the nodes."""
        self.plumbing.know([node.pid for node in self.nodes])

    def _clock(self, folder: Path) -> dict[str, str]:
        """Return the environment with which the clock of a node can jump, with libfaketime if it is installed."""
        if not self._clocks:
            return {}
        if FAKETIME:
            (folder / "faketime").write_text("+0\n")
            return {
                "LD_PRELOAD": str(FAKETIME[-1]),
                "FAKETIME_TIMESTAMP_FILE": str(folder / "faketime"),
                "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                "DONT_FAKE_MONOTONIC": "1",
            }
        return clock.environment(folder / "clock", clock.compiler() or "cc")

    def jump(self, node: Node, seconds: int) -> None:
        """Set the offset of a node's clock."""
        if FAKETIME:
            (node.folder / "faketime").write_text(f"{seconds:+d}\n")
        else:
            now = clock.jump(node.folder / "clock", 0)
            clock.jump(node.folder / "clock", seconds * 1000 - now)

    async def __aexit__(self, *_: object) -> None:
        self.read_logs()
        self._stack.close()
        if self.has_small_disk:
            namespaces.unmount(self.small)
        self.plumbing.close()
        if self.names is not None:
            self.names.close()
            namespaces.unmount(RESOLVER)

    # --- state ---

    def _node_logged(self, node: Node, line: dict[str, Any]) -> None:
        text = f"{line.get('event')}: {line.get('text', '')}"
        self.story.add(node.name, f"{line.get('level')} {text}")
        if line.get("level") in DETECTING:
            self.logged.append((time.time(), node.name, str(line.get("event"))))
        if line.get("level") == "error":
            self.errors.append((str(line.get("event")), f"{node.name} logs {text} {line.get('exception', '')}".strip()))

    def read_logs(self) -> None:
        for node in self.nodes:
            node.read_log()

    def node_of(self, incarnation: str) -> Node | None:
        return next((node for node in self.nodes if incarnation in node.incarnations), None)

    @property
    def servers(self) -> list[RedisProcess]:
        """Return the Redis servers with data."""
        if isinstance(self.engine, Cluster):
            return self.engine.processes
        return [self.engine.primary, self.engine.replica]

    @property
    def primaries(self) -> list[RedisProcess]:
        return self.engine.primaries if isinstance(self.engine, Cluster) else [self.engine.primary]
