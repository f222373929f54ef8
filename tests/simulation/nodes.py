"""Nodes of a simulated cluster: the services of `app.node.Node` in a process of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from greendot.app.node import Node
from greendot.config import Settings
from greendot.testing.clock import START_MS
from greendot.testing.server import SECRET
from greendot.transport.websocket_handshake import switching_protocols
from model.simulated import SimulatedStore, empty_database
from simulation.engine import GRACE_S, LEASE_S, RENEW_S, Backend, BusFaults, ClusterEngine
from simulation.network import NodeEnd, Wire
from simulation.processes import Clock, Process, Universe

SETTINGS = msgspec.convert(
    {
        "auth": {"secret": SECRET},
        "limits": {"enabled": False},
        "engine": {"url": "redis://simulated"},
        "node": {"lease_s": LEASE_S, "renew_s": RENEW_S},
        "presence": {"grace_s": GRACE_S, "idle_s": 60.0},
    },
    Settings,
)
ACCEPTED = switching_protocols(b"key")
ROOM, TENANT = "plaza", "default"


class World:
    """Everything that the nodes of one trial share."""

    def __init__(self, seed: int, faults: BusFaults) -> None:
        self.universe = Universe()
        self.random = random.Random(seed)
        self.backend = Backend(self.universe, random.Random(seed + 1), faults)
        self.clock = Clock(self.universe)
        self.db = empty_database()
        self.nodes: list[ClusterNode] = []
        self.tokens: dict[str, str] = {}

    def start_node(self) -> ClusterNode:
        node = ClusterNode(self)
        self.universe.finish(node.process, node.node.start())
        node.is_up = True
        self.nodes.append(node)
        return node

    def token(self, node: ClusterNode, user: str) -> str:
        if user not in self.tokens:
            self.tokens[user] = node.node.tokens.make(user, START_MS + 1_000_000, 864_000)
        return self.tokens[user]

    def close(self) -> None:
        for process in self.universe.processes:
            process.kill()
        self.db.close()


class _StoreView:
    """Store of one node: the shared database, seen from the node's process (`model.simulated.SimulatedThread`)."""

    def __init__(self, world: World, process: Process) -> None:
        self.loop, self.db, self.random = process, world.db, world.backend.chance
        self.faults = msgspec.defstruct("Faults", [("store", float, 0.0)])()
        self.lag = world.backend.lag


class ClusterNode:
    """Node that can be paused, cut off from the engine, stopped and killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.number = len(world.nodes)
        self.process = world.universe.process()
        self.engine = ClusterEngine(world.backend, self.process)
        self.clock = Clock(world.universe)
        store = SimulatedStore(_StoreView(world, self.process))  # type: ignore[arg-type]
        self.node = Node(SETTINGS, self.engine, store, self.clock)
        # Loop lag by the real clock means nothing in virtual time, and polling twenty times a second is slow.
        self.node.overload_monitor.start = lambda: None  # type: ignore[method-assign]
        self.is_up = False  # accepts clients
        self.sick_since: float | None = None  # paused or cut off
        self.well_since = world.universe.now
        self.sick_before = 0.0  # end of the last fault

    def __str__(self) -> str:
        return f"node{self.number}"

    @property
    def is_well(self) -> bool:
        return self.is_up and self.sick_since is None

    def accept(self, wire: Wire, agent: str = "simulated") -> None:
        def opened(end: NodeEnd) -> None:
            connections = self.node.connections
            connections.connect(agent).open(end, -1, connections.read_buffer, ACCEPTED)

        wire.accept(self.process, opened)

    def do(self, call: Callable[..., object], *args: Any) -> None:
        self.process.do(call, *args)

    # --- faults ---

    def _sicken(self) -> None:
        if self.sick_since is None:
            self.sick_since = self.world.universe.now

    def _recover(self) -> None:
        if self.is_up and not self.process.is_paused and self.engine.is_linked:
            self.sick_since, self.well_since = None, self.world.universe.now

    def pause(self) -> None:
        self._sicken()
        self.process.is_paused = True

    def resume(self) -> None:
        self.process.is_paused = False
        self._recover()

    def cut(self) -> None:
        self._sicken()
        self.engine.cut()

    def mend(self) -> None:
        self.engine.mend()
        self._recover()

    def crash(self) -> None:
        """Die as by kill -9."""
        self._sicken()
        self.is_up = False
        self.engine.crash()
        self.process.kill()

    def stop(self) -> None:
        """Stop cleanly, as at a deploy: clients are sent to other nodes."""
        self._sicken()
        self.is_up = False

        async def stop() -> None:
            self.node.announce_end()
            await self.node.drain(2.0)
            await self.node.close()

        self.process.do(lambda: self.process.create_task(stop()))
