"""Real Redis Cluster, created by commands; redis-cli is not needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

from .process import RedisProcess, Setting, fields, together, until
from .resp import Argument

SLOTS = 16_384
MIGRATE_MS = 5_000


class Cluster:
    """Primaries with equal ranges of slots, each with its replicas."""

    def __init__(self, primaries: list[RedisProcess], replicas: list[RedisProcess]) -> None:
        self.processes = [*primaries, *replicas]
        self._by_port = {process.announced: process for process in self.processes}

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{process.announced}" for process in self.processes)

    @property
    def alive(self) -> list[RedisProcess]:
        return [process for process in self.processes if process.alive]

    @property
    def primaries(self) -> list[RedisProcess]:
        """Return the processes that serve slots now, in the order of slots."""
        return list(dict.fromkeys(process for _, process in sorted(self._owners().items())))

    def replicas_of(self, primary: RedisProcess) -> list[RedisProcess]:
        """Return the live replicas of a primary."""
        entries = (entry for entry in self._slots(self.alive[0]) if entry[2][1] == primary.announced)
        ports = {node[1] for entry in entries for node in entry[3:]}
        return [process for process in self.alive if process.announced in ports]

    # --- slots ---

    def slot_of(self, key: str | bytes) -> int:
        return int(self.alive[0].command("CLUSTER", "KEYSLOT", key))

    def owner(self, slot: int) -> RedisProcess:
        return self._owners()[slot]

    def primary_of(self, key: str | bytes) -> RedisProcess:
        return self.owner(self.slot_of(key))

    def command(self, key: str, *arguments: Argument) -> Any:
        """Send a command to the primary that serves the key and return its reply."""
        return self.primary_of(key).command(*arguments)

    def move_slot(self, slot: int, to: RedisProcess) -> None:
        """Migrate a slot live, as a resharding does for each slot."""
        with self.moving_slot(slot, to):
            pass

    @contextmanager
    def moving_slot(self, slot: int, to: RedisProcess) -> Iterator[None]:
        """Migrate a slot; during the block no key has moved yet, and missing keys are answered with ASK."""
        source = self.owner(slot)
        assert source is not to
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(source))
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(to))
        yield
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.command("MIGRATE", "127.0.0.1", to.port, "", 0, MIGRATE_MS, "KEYS", *keys)
        # The new owner first: if the old one released the slot before, it would have no owner for a while.
        others = [process for process in self.primaries if process not in (to, source)]
        for process in (to, source, *others):
            process.command("CLUSTER", "SETSLOT", slot, "NODE", _id(to))
        until(
            lambda: all(self._seen_owner(process, slot) == to.announced for process in self.alive), f"slot {slot} moved"
        )

    # --- failure ---

    def fail_over(self, process: RedisProcess) -> RedisProcess:
        """Kill a primary, wait until all processes follow its replica, and return the replica."""
        slot = next(slot for slot, owner in self._owners().items() if owner is process)
        process.kill()

        def taken_over() -> bool:
            owners = {self._seen_owner(witness, slot) for witness in self.alive}
            return owners.isdisjoint({process.announced, None}) and len(owners) == 1 and all(map(_is_ok, self.alive))

        until(taken_over, f"a replica took over from port {process.port}")
        return self.owner(slot)

    # --- internals ---

    def _owners(self) -> dict[int, RedisProcess]:
        return {
            slot: self._by_port[primary[1]]
            for first, last, primary, *_ in self._slots(self.alive[0])
            for slot in range(first, last + 1)
        }

    def _slots(self, witness: RedisProcess) -> list[Any]:
        """Return rows of first slot, last slot, primary, replicas; a node is its address, port and id."""
        rows: list[Any] = witness.command("CLUSTER", "SLOTS")
        return rows

    def _seen_owner(self, witness: RedisProcess, slot: int) -> int | None:
        rows = self._slots(witness)
        return next((primary[1] for first, last, primary, *_ in rows if first <= slot <= last), None)


@contextmanager
def redis_cluster(
    kind: str,
    folder: Path,
    primaries: int = 3,
    replicas: int = 0,
    prepare: Callable[[RedisProcess], object] | None = None,
    **settings: Setting,
) -> Iterator[Cluster]:
    """Run a cluster that serves all slots, with `replicas` for each primary, in sync.

    `prepare` is called with each process before it starts, for example to announce the port of a proxy.
    """
    given: dict[str, Setting] = {
        "cluster_enabled": "yes",
        "cluster_node_timeout": 2_000,  # failures are detected soon
        "cluster_replica_validity_factor": 0,  # a replica may take over, however busy this machine is
        "cluster_allow_replica_migration": "no",  # a replica stays with its primary
    }
    if replicas:
        given["repl_ping_replica_period"] = 1  # Redis 7.0 does not list a replica that has received nothing yet
    processes = [RedisProcess(kind, folder, **given | settings) for _ in range(primaries * (1 + replicas))]
    for process in processes:
        if prepare is not None:
            prepare(process)
    with together(*processes):
        cluster = Cluster(processes[:primaries], processes[primaries:])
        _form(cluster, primaries, replicas)
        yield cluster


def _form(cluster: Cluster, primaries: int, replicas: int) -> None:
    processes = cluster.processes
    for number, process in enumerate(processes):
        process.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        if number < primaries:
            first, end = (SLOTS * n // primaries for n in (number, number + 1))
            process.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
    # Introduce all pairs: gossip would take seconds.
    for process, other in combinations(processes, 2):
        process.command("CLUSTER", "MEET", "127.0.0.1", other.port)
    until(lambda: all(_knows(process, len(processes)) for process in processes), "all nodes know each other")
    for number, process in enumerate(processes[primaries:]):
        process.command("CLUSTER", "REPLICATE", _id(processes[number % primaries]))
    until(lambda: all(_is_complete(cluster, process, replicas) for process in processes), "the cluster has formed")


def _knows(process: RedisProcess, count: int) -> bool:
    nodes = process.command("CLUSTER", "NODES").decode().splitlines()
    return len(nodes) == count and not any("handshake" in node for node in nodes)


def _is_ok(process: RedisProcess) -> bool:
    state = fields(process.command("CLUSTER", "INFO"))
    return state["cluster_state"] == "ok" and state["cluster_slots_ok"] == str(SLOTS)


def _is_complete(cluster: Cluster, process: RedisProcess, replicas: int) -> bool:
    replication = process.info("replication")
    in_step = replication.get("master_link_status", "up") == "up"
    return in_step and _is_ok(process) and all(len(row) == 3 + replicas for row in cluster._slots(process))


def _id(process: RedisProcess) -> str:
    return str(process.command("CLUSTER", "MYID").decode())
