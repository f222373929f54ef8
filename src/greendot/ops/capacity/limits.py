"""Limits of a capacity plan: bottlenecks and remedies."""

from __future__ import annotations

from collections.abc import Iterator

from greendot.config.settings import Presence
from greendot.ops.capacity.constants import of, seconds
from greendot.ops.capacity.plan import BUCKETS, BUSY, LEAST, MEASURED_NODES, PACKED, PARTITIONS, CapacityPlan

MANY_NODES = 200
MUCH_A_DAY = 50e9
BUSY_POSTGRES = 8.0  # cores
# Watchers of a user on a node: above the first, changes are delivered in slices; above the second, watchers poll.
SLICED, POLLED = Presence().celebrity_watchers, Presence().celebrity_polling
LARGE_ROOM = 100  # typing.large_room
FAST_LINK = 10e9 / 8 / 2  # bytes per second: half of 10 Gbit/s


def limits(plan: CapacityPlan) -> Iterator[str]:
    """Yield the limits of a plan, the most important first."""
    work, nodes = plan.spread.work, plan.spread.nodes
    if nodes == 1 and work.messages_s <= of("messages_sqlite") / 2:
        yield (
            "One process with the memory engine and SQLite is enough "
            f"({of('messages_sqlite'):,.0f} messages/s were measured). For a second node in reserve, use Redis and "
            "PostgreSQL."
        )
    yield from _postgres(plan)
    yield from _redis(plan)
    yield from _fan_out(plan)
    if nodes > MANY_NODES:
        yield (
            f"Each of the {nodes:,} nodes checks the lease of every other node once a second. This was never tested "
            "with so many nodes. Run several installations, each with its own Redis and a part of the tenants."
        )
    if work.per_node > of("most_held"):
        yield (
            f"{work.per_node:,} connections per node were never tested: {of('most_held'):,.0f} is the highest "
            "number that was measured."
        )
    if nodes > MEASURED_NODES:
        yield (
            f"Costs were measured with one node and with {MEASURED_NODES}. Figures marked * are extrapolated from "
            "these. Test with your own load before you rely on them."
        )


def _postgres(plan: CapacityPlan) -> Iterator[str]:
    work = plan.spread.work
    for what, rate, most in (
        ("messages", work.messages_s, of("messages")),
        ("notifications", work.notifications_s, of("notifications")),
    ):
        if rate > most:
            yield (
                f"One PostgreSQL must store {rate:,.0f} {what}/s, but {most:,.0f}/s were measured, with one node. "
                "Greendot cannot use several databases. Run several installations, each with a part of the tenants."
            )
    cores = plan.value("PostgreSQL", "cores in use")
    if cores > BUSY_POSTGRES:
        yield f"PostgreSQL needs {cores:,.0f} cores. A part of them compares the streams of nodes with the store."
    growth = plan.value("PostgreSQL", "growth")
    if growth > MUCH_A_DAY:
        yield (
            f"PostgreSQL grows by {growth / 1e9:,.0f} GB a day. Notifications are removed after inbox.keep_days; "
            "messages are kept without limit."
        )


def _redis(plan: CapacityPlan) -> Iterator[str]:
    work = plan.spread.work
    if plan.shards > 1:
        yield (
            f"One Redis is not enough. Use a cluster of {plan.shards} shards (redis+cluster://). Clusters were "
            "tested, but their capacity was not measured."
        )
    if plan.spread.nodes * seconds("idle_node") > BUSY - LEAST:
        yield (
            f"Health checks by {plan.spread.nodes:,} nodes keep every Redis of a cluster busy "
            f"({of('idle_node'):g} µs per node and second). More shards do not help. Raise --per-node."
        )
    if plan.shards > PARTITIONS:
        yield f"Keys have {PARTITIONS} partitions, so more than {PARTITIONS} shards have no effect."
    if work.users / BUCKETS > PACKED:
        yield (
            f"With more than {PACKED * BUCKETS / 1e6:.1f} million users, the hashes of users are too long to be "
            f"packed, and each user takes {of('crowded'):g} bytes. Lower presence.last_seen_days to keep "
            "fewer offline users."
        )
    channels = plan.value("Redis", "memory: channels") if plan.shards else 0.0
    if channels > 1e9:
        yield (
            f"Channels take {channels / 1e9:,.0f} GB of Redis: one channel per watched user, and more for every node "
            "with a watcher. Let clients watch only the users they display."
        )


def _fan_out(plan: CapacityPlan) -> Iterator[str]:
    work, nodes = plan.spread.work, plan.spread.nodes
    if work.others > LARGE_ROOM:
        large = f"more than typing.large_room ({LARGE_ROOM}), so clients get only the number of typing users"
        yield f"A room has {work.others:,.0f} connections, {large}."
    here = work.watchers / plan.spread.hearing(work.watchers) if work.watchers else 0.0
    if here > SLICED:
        how = "have to poll" if here > POLLED else "get changes in slices of 10 to 30 s"
        yield f"{here:,.0f} watchers of one user on a node {how} (presence.celebrity_watchers, celebrity_polling)."
    rate = plan.value("network", "to clients")
    if rate / nodes > FAST_LINK:
        yield f"Each node sends {rate / nodes * 8 / 1e9:,.0f} Gbit/s, so the network is the limit, not the processor."
