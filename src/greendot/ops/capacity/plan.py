"""Plan for a workload: nodes, Redis, PostgreSQL, network."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, exp
from typing import Literal

from msgspec import Struct

from greendot.ops.capacity.constants import IDLE, LARGE, SMALL, of, seconds
from greendot.ops.capacity.workload import Workload

Unit = Literal["", "/s", "cores", "bytes", "bytes/s", "bytes/day", "s"]

BUSY = 0.5  # share of a core: at half load 99 % of deliveries took 14 ms at most, with room for a storm
SHARD_BYTES = 16e9  # memory of one Redis: more takes long to move, and longer to refill
BUCKETS = 128 * 128  # hashes that hold the users
PACKED = 512  # users of one hash beyond which each takes more memory (hash-max-listpack-entries)
PARTITIONS = 128  # partitions of all keys: further shards would have nothing to do
COMPARED_S, INBOXES_S = 15.0, 60.0  # seconds between two comparisons with the store: heads of rooms, heads of inboxes
IP_BYTES = 40  # TCP/IP headers of a write to a socket
BUS_BYTES = 200  # envelope of a body on the bus: type, topic, MAC
HELLOS_S = 5_000  # admission.hellos_per_s: new clients that a node admits
MEASURED_NODES = 2
LEAST = 0.05  # share of a core, at least, that each Redis has left for work


class Figure(Struct, frozen=True, kw_only=True):
    """Figure of a plan, with its formula."""

    part: str  # nodes, Redis, PostgreSQL, network
    what: str
    value: float
    unit: Unit = ""
    formula: str
    measured: bool = True  # False: extrapolated beyond what was measured


class Placement(Struct, frozen=True):
    """Workload, spread evenly over nodes."""

    work: Workload
    nodes: int

    def hearing(self, listeners: float) -> float:
        """Return how many nodes have at least one of `listeners` connections that are on random nodes."""
        return float(self.nodes * (1 - (1 - 1 / self.nodes) ** listeners))

    def followed(self, things: float, each: float) -> tuple[float, float]:
        """Return the channels with a subscriber, and the pairs of a channel and a node that subscribes to it.

        There is a channel for each of `things` rooms or users, and each connection follows `each` of them.
        """
        here = self.work.connections / self.nodes * each
        pairs = self.nodes * things * (1 - exp(-here / things))
        return min(things * (1 - exp(-self.work.connections * each / things)), pairs), pairs

    @property
    def bus_s(self) -> float:
        """Return the messages per second that are published on the bus."""
        work = self.work
        return work.messages_s + work.typing_s + work.changes_s + work.notifications_s * work.online

    @property
    def received_s(self) -> float:
        """Return the messages per second of the bus, counted once for each node that receives them."""
        work = self.work
        told = work.messages_s * self.hearing(work.listeners) + work.typing_s * self.hearing(work.others)
        told += work.changes_s * self.hearing(work.watchers)
        return told + work.notifications_s * work.online * self.hearing(work.devices)

    @property
    def cpu(self) -> float:
        """Return the cores that all nodes use together."""
        work = self.work
        used = work.connections * of("idle") / 100 / IDLE + work.deliveries_s / of("deliveries")
        used += work.connects_s * (1 / of("connects") + work.watched * seconds("read"))
        used += work.messages_s * seconds("message_cpu") + work.typing_s * 10 / of("small_fanout")
        used += work.notifications_s * of("notifying") / 100 / of("notifications")
        return used + (self.received_s / of("intake") if self.nodes > 1 else 0.0)


class CapacityPlan(Struct, frozen=True):
    """Figures of what a workload needs, each with its formula."""

    spread: Placement
    shards: int  # number of Redis shards; 0: no Redis needed
    figures: list[Figure]

    def value(self, part: str, what: str) -> float:
        return next(one.value for one in self.figures if (one.part, one.what) == (part, what))


def plan(work: Workload) -> CapacityPlan:
    spread = spread_of(work)
    figures = [*_nodes(spread)]
    shards = shards_of(spread) if spread.nodes > 1 else 0
    if shards:
        figures += _redis(spread, shards)
    return CapacityPlan(spread, shards, [*figures, *_postgres(spread), *_network(spread)])


def spread_of(work: Workload) -> Placement:
    """Spread a workload over as few nodes as possible.

    More nodes receive more messages from the bus, so the count is repeated until the cores are enough.
    """
    nodes = max(1, ceil(work.connections / work.per_node))
    for _ in range(100):
        wanted = ceil(Placement(work, nodes).cpu / BUSY)
        if wanted <= nodes:
            break
        nodes = wanted
    return Placement(work, nodes)


def shards_of(spread: Placement) -> int:
    """Return the Redis shards needed. Each does its share of the work, and answers the idle commands of every node."""
    left = max(BUSY - spread.nodes * seconds("idle_node"), LEAST)
    return max(1, ceil(_redis_work(spread) / left), ceil(sum(_redis_parts(spread).values()) / SHARD_BYTES))


def _nodes(spread: Placement) -> Iterator[Figure]:
    work, nodes = spread.work, spread.nodes
    measured = nodes <= MEASURED_NODES
    each = 1_000 * of("connection") + work.watched * of("watch") + work.rooms * of("room")
    yield Figure(
        part="nodes", what="processes of one core", value=nodes, measured=measured,
        formula=f"max(connections ÷ {work.per_node:,}, cores in use ÷ {BUSY:g}), without a spare node",
    )  # fmt: skip
    yield Figure(
        part="nodes", what="connections per node", value=work.connections / nodes,
        measured=work.connections / nodes <= of("most_held"), formula="users × online × devices ÷ nodes",
    )  # fmt: skip
    yield Figure(
        part="nodes", what="memory per node", value=work.connections / nodes * each, unit="bytes",
        formula=f"connections × ({of('connection'):g} KB + watched × {of('watch'):,.0f} B + rooms × "
        f"{of('room'):,.0f} B), at most",
    )  # fmt: skip
    yield Figure(
        part="nodes", what="deliveries", value=work.deliveries_s, unit="/s", measured=measured,
        formula="messages × subscribers + typing × other subscribers + presence changes × watchers + notifications",
    )  # fmt: skip
    yield Figure(
        part="nodes", what="cores in use", value=spread.cpu, unit="cores", measured=measured,
        formula=f"deliveries ÷ {of('deliveries'):,.0f} + connects ÷ {of('connects'):,.0f} + messages × "
        f"{of('message_cpu'):g} µs + bus messages received ÷ {of('intake'):,.0f} + …",
    )  # fmt: skip
    yield Figure(
        part="nodes", what="reconnect time after an outage", value=work.connections / nodes / HELLOS_S, unit="s",
        measured=measured, formula=f"connections per node ÷ admission.hellos_per_s ({HELLOS_S:,})",
    )  # fmt: skip


def per_user() -> tuple[float, float]:
    """Return the bytes that Redis takes in any case, and per user: the line through both measurements."""
    fixed = (of("redis_small") - of("redis_large")) / (1 / SMALL - 1 / LARGE)
    return fixed, of("redis_large") - fixed / LARGE


def _redis_parts(spread: Placement) -> dict[str, float]:
    work = spread.work
    fixed, each = per_user()
    online = of("crowded") if work.online_users / BUCKETS > PACKED else each
    seen = of("crowded") if work.users / BUCKETS > PACKED else each
    rooms, on_rooms = spread.followed(work.room_count, work.rooms)
    users, on_users = spread.followed(work.users, work.watched)
    channels, pairs = rooms + users, on_rooms + on_users
    return {
        "online users": fixed + work.online_users * online,
        "offline users": (work.users - work.online_users) * seen,
        "channels": channels * of("channel") + (pairs - channels) * of("subscriber"),
    }


def _redis_work(spread: Placement) -> float:
    """Return the cores that all shards use together, without the commands of idle nodes."""
    work = spread.work
    further = max(spread.received_s - spread.bus_s, 0.0) * seconds("hear")
    published = (work.messages_s + work.notifications_s * work.online) * seconds("publish")
    verbs = work.connects_s * seconds("come_and_go") + work.typing_s * seconds("start")
    return further + published + verbs


def _redis(spread: Placement, shards: int) -> Iterator[Figure]:
    cpu = _redis_work(spread) + shards * spread.nodes * seconds("idle_node")
    work, parts = spread.work, _redis_parts(spread)
    measured = spread.nodes <= MEASURED_NODES
    fixed, each = per_user()
    formulas = {
        "online users": f"{fixed / 1e6:.1f} MB + online users × {each:.0f} B; {of('crowded'):g} B each above "
        f"{PACKED * BUCKETS / 1e6:.1f} million",
        "offline users": "users seen within presence.last_seen_days × the same; at most all others",
        "channels": f"channels × {of('channel'):g} B + additional nodes on them × {of('subscriber'):g} B",
    }
    yield Figure(
        part="Redis", what="servers" if shards == 1 else "shards of a cluster", value=shards, measured=shards == 1,
        formula=f"max(cores in use ÷ {BUSY:g}, memory ÷ {SHARD_BYTES / 1e9:.0f} GB)",
    )  # fmt: skip
    for what, size in parts.items():
        yield Figure(
            part="Redis", what=f"memory: {what}", value=size, unit="bytes", formula=formulas[what],
            measured=work.online_users <= LARGE,
        )  # fmt: skip
    yield Figure(
        part="Redis", what="memory in total", value=sum(parts.values()), unit="bytes",
        measured=work.online_users <= LARGE, formula="sum over all shards; set maxmemory to 1.5 times this",
    )  # fmt: skip
    yield Figure(
        part="Redis", what="cores in use", value=cpu, unit="cores", measured=measured,
        formula=f"connects × {of('come_and_go'):g} µs + typing × {of('start'):g} µs + messages × {of('publish'):g} µs "
        f"+ deliveries to additional nodes × {of('hear'):g} µs + nodes × shards × {of('idle_node'):g} µs",
    )  # fmt: skip
    commands = work.connects_s * 2 + work.typing_s + work.messages_s + work.notifications_s * work.online
    yield Figure(
        part="Redis", what="commands", value=commands + spread.nodes * shards * of("idle_commands"), unit="/s",
        measured=measured,
        formula=f"connects × 2 + typing + messages + notifications to online users + nodes × shards × "
        f"{of('idle_commands'):g}",
    )  # fmt: skip
    yield Figure(
        part="Redis", what="messages on the bus", value=spread.bus_s, unit="/s", measured=measured,
        formula="messages + typing + presence changes + notifications to online users",
    )  # fmt: skip
    yield Figure(
        part="Redis", what="bus messages received by nodes", value=spread.received_s, unit="/s", measured=measured,
        formula="each × nodes with a subscriber: nodes × (1 − (1 − 1/nodes)^subscribers)",
    )  # fmt: skip


def lookups_s(spread: Placement) -> float:
    """Return the heads of rooms and inboxes that nodes read from the store per second."""
    _, pairs = spread.followed(spread.work.room_count, spread.work.rooms)
    return pairs / COMPARED_S + spread.work.connections / INBOXES_S


def _postgres(spread: Placement) -> Iterator[Figure]:
    work = spread.work
    writes = work.messages_s + work.notifications_s
    more = work.body - 128
    notifications_day = work.users * work.notifications
    measured = work.messages_s <= of("messages") and work.notifications_s <= of("notifications")
    measured &= spread.nodes <= MEASURED_NODES
    cpu = work.messages_s * seconds("message_pg") + work.notifications_s * seconds("notification_pg")
    cpu += lookups_s(spread) * seconds("head")
    disk = work.messages_day * (of("message_disk") + more) + notifications_day * (of("notification_disk") + more)
    wal = work.messages_day * (of("message_wal") + more) + notifications_day * (of("notification_wal") + more)
    yield Figure(
        part="PostgreSQL", what="commits, at most", value=writes, unit="/s", measured=measured,
        formula="messages + notifications; concurrent writes share a commit",
    )  # fmt: skip
    yield Figure(
        part="PostgreSQL", what="cores in use", value=cpu, unit="cores", measured=measured,
        formula=f"messages × {of('message_pg'):g} µs + notifications × {of('notification_pg'):g} µs + heads read × "
        f"{of('head'):g} µs",
    )  # fmt: skip
    yield Figure(
        part="PostgreSQL", what="stream heads read", value=lookups_s(spread), unit="/s", measured=measured,
        formula=f"rooms on each node ÷ {COMPARED_S:g} s + connections ÷ {INBOXES_S:g} s",
    )  # fmt: skip
    yield Figure(
        part="PostgreSQL", what="growth", value=disk, unit="bytes/day",
        formula=f"messages a day × {of('message_disk') + more:,.0f} B + notifications a day × "
        f"{of('notification_disk') + more:,.0f} B",
    )  # fmt: skip
    yield Figure(
        part="PostgreSQL", what="write-ahead log", value=wal, unit="bytes/day",
        formula=f"messages a day × {of('message_wal') + more:,.0f} B + notifications a day × "
        f"{of('notification_wal') + more:,.0f} B",
    )  # fmt: skip


def _network(spread: Placement) -> Iterator[Figure]:
    work = spread.work
    each = of("delivery_bytes") - 128 + work.body + IP_BYTES
    yield Figure(
        part="network", what="to clients", value=work.deliveries_s * each, unit="bytes/s",
        measured=spread.nodes <= MEASURED_NODES,
        formula=f"deliveries × ({of('delivery_bytes') - 128:g} B envelope + {work.body} B body + {IP_BYTES} B TCP/IP)",
    )  # fmt: skip
    if spread.nodes > 1:
        yield Figure(
            part="network", what="between nodes and Redis", unit="bytes/s", measured=spread.nodes <= MEASURED_NODES,
            value=(spread.bus_s + spread.received_s) * (BUS_BYTES + work.body),
            formula=f"(messages on the bus + received by nodes) × {BUS_BYTES + work.body} B",
        )  # fmt: skip
