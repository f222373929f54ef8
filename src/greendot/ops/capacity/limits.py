"""Limits of a capacity plan: bottlenecks, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterator

from greendot.ops.capacity.constants import of, seconds
from greendot.ops.capacity.plan import BUCKETS, BUSY, LEAST, MEASURED_NODES, PACKED, PARTITIONS, CapacityPlan

MANY_NODES = 200
MUCH_A_DAY = 50e9
BUSY_POSTGRES = 8.0  # cores
# Watchers of a user on a node: above the first, changes are delivered in slices; above the second, watchers poll.
SLICED, POLLED = 1_000, 20_000
LARGE_ROOM = 100  # typing.large_room
FAST_LINK = 10e9 / 8 / 2  # bytes per second: half of 10 Gbit/s


def limits(plan: CapacityPlan) -> Iterator[str]:
    """Yield the limits of a plan, the most important first."""
    work, nodes = plan.spread.work, plan.spread.nodes
    if nodes == 1 and work.messages_s <= of("messages_sqlite") / 2:
        yield (
            "One process with everything embedded is enough: the memory engine and SQLite "
            f"({of('messages_sqlite'):,.0f} messages/s were measured). With a second one in reserve: Redis, PostgreSQL."
        )
    yield from _postgres(plan)
    yield from _redis(plan)
    yield from _fan_out(plan)
    if nodes > MANY_NODES:
        yield (
            f"{nodes:,} nodes: each looks at the lease of every other once a second, and that was never tried with so "
            "many. Better several Greendots, each with a Redis of its own, for a part of the tenants."
        )
    if work.per_node > of("most_held"):
        yield f"{work.per_node:,} connections in one process: {of('most_held'):,.0f} is the most that was ever held."
    if nodes > MEASURED_NODES:
        yield (
            f"Measured was with one node and with {MEASURED_NODES}. What is marked * is supposed to go on as it did: "
            "try it with your own load before you rely on it."
        )


def _postgres(plan: CapacityPlan) -> Iterator[str]:
    work = plan.spread.work
    for what, rate, most in (
        ("messages", work.messages_s, of("messages")),
        ("notifications", work.notifications_s, of("notifications")),
    ):
        if rate > most:
            yield (
                f"{rate:,.0f} {what}/s go into one PostgreSQL, and {most:,.0f}/s is what was measured, with one node. "
                "It is not split over several: that is the limit of one Greendot. Run several, each for a part of the "
                "tenants."
            )
    cores = plan.value("PostgreSQL", "cores in use")
    if cores > BUSY_POSTGRES:
        yield f"PostgreSQL would use {cores:,.0f} cores. Looking up what nodes may have missed is part of it."
    growth = plan.value("PostgreSQL", "growth")
    if growth > MUCH_A_DAY:
        yield (
            f"PostgreSQL grows by {growth / 1e9:,.0f} GB a day. Notifications are removed after inbox.keep_days; "
            "messages are kept for good."
        )


def _redis(plan: CapacityPlan) -> Iterator[str]:
    work = plan.spread.work
    if plan.shards > 1:
        yield (
            f"One Redis is not enough: a cluster of {plan.shards} shards (redis+cluster://). Clusters were tested, and "
            "never measured."
        )
    if plan.spread.nodes * seconds("idle_node") > BUSY - LEAST:
        yield (
            f"{plan.spread.nodes:,} nodes keep every Redis of a cluster busy with asking whether it is there "
            f"({of('idle_node'):g} µs each, once a second): more shards do not help. Raise --per-node."
        )
    if plan.shards > PARTITIONS:
        yield f"Keys lie in {PARTITIONS} partitions: more than {PARTITIONS} shards would have nothing to do."
    if work.users / BUCKETS > PACKED:
        yield (
            f"More than {PACKED * BUCKETS / 1e6:.1f} million users: their hashes are too long to be packed, and each "
            f"takes {of('crowded'):g} bytes. A lower presence.last_seen_days keeps fewer of those who were."
        )
    channels = plan.value("Redis", "memory: channels") if plan.shards else 0.0
    if channels > 1e9:
        yield (
            f"Channels take {channels / 1e9:,.0f} GB of Redis: one for every user who is followed, and a bit for every "
            "node with a follower. Let clients watch whom they show, not everybody they know."
        )


def _fan_out(plan: CapacityPlan) -> Iterator[str]:
    work, nodes = plan.spread.work, plan.spread.nodes
    if work.others > LARGE_ROOM:
        large = f"above typing.large_room ({LARGE_ROOM}) only how many type is told"
        yield f"{work.others:,.0f} connections in a room: {large}."
    here = work.watchers / plan.spread.hearing(work.watchers) if work.watchers else 0.0
    if here > SLICED:
        how = "have to ask" if here > POLLED else "are told in slices of 10 to 30 s"
        yield f"{here:,.0f} watchers of one user on a node {how} (presence.celebrity_watchers, celebrity_polling)."
    rate = plan.value("network", "to clients")
    if rate / nodes > FAST_LINK:
        yield f"{rate / nodes * 8 / 1e9:,.0f} Gbit/s leave each node: the network is the limit, not the core."
