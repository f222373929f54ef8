"""Nodes of a simulated cluster: the services of `app.node.Node` in a process of their own."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from greendot.app.node import Node
from greendot.config import Settings
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
        "kinds": {"alarm": {"promise": "acknowledged"}, "secret": {"bus": "hint"}},
    },
    Settings,
)
ACCEPTED = switching_protocols(b"key")
ROOM, DEN = "plaza", "den"  # open to all users; members only
TENANT, RIVAL = "default", "rival"


TOKEN_S = 864_000


class StoreFaults(msgspec.Struct):
    """Part of the transactions of the store that fail, before or after they are written."""

    store: float = 0.0


class World:
    """Everything that the nodes of one trial share."""

    def __init__(self, seed: int, faults: BusFaults) -> None:
        self.universe = Universe()
        self.random = random.Random(seed)
        self.backend = Backend(self.universe, random.Random(seed + 1), faults)
        self.clock = Clock(self.universe)
        self.db = empty_database()
        self.nodes: list[ClusterNode] = []
        self.tokens: dict[tuple[str, str], str] = {}  # tenant and user → token
        self.revoking: set[str] = set()  # users whose tokens are being revoked: their devices wait
        self.store_faults = StoreFaults()

    def start_node(self) -> ClusterNode:
        node = ClusterNode(self)
        self.universe.finish(node.process, node.node.start())
        node.is_up = True
        self.nodes.append(node)
        return node

    def token(self, node: ClusterNode, user: str, tenant: str = TENANT) -> str:
        key = tenant, user
        if key not in self.tokens:
            self.tokens[key] = node.node.tokens.make(user, self.clock.now_ms(), TOKEN_S, tenant=tenant)
        return self.tokens[key]

    def close(self) -> None:
        for process in self.universe.processes:
            process.kill()
        self.db.close()


async def _unlimited() -> None:
    """Divide no limits among nodes, because the simulation has none."""


class _StoreView:
    """Store of one node: the shared database, seen from the node's process (`model.simulated.SimulatedThread`)."""

    def __init__(self, world: World, process: Process) -> None:
        self.loop, self.db, self.random = process, world.db, world.backend.chance
        self.faults = world.store_faults
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
        self.node.cluster_limits.start = _unlimited  # type: ignore[method-assign]  # turns once a second
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

    def remains(self) -> dict[str, int]:
        """Return the sizes of everything that this node keeps for clients."""
        node = self.node
        return {
            "connections": len(node.registry.connections),
            "sessions": len(node.registry.sessions),
            "watched users": len(node.watching._watched),
            "rooms": len(node.rooms._local),
            "inboxes": len(node.inbox_delivery._local),
            "hellos": len(node.hello._waiting) + len(node.hello._received_at) + len(node.hello.strangers),
            "writes of occupants": len(node._session_rooms._updating),
            "commands without a reply": max(0, len(self.engine._waiting) - 2),  # the lease is renewed at any time
        }

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
