"""Counts of users and sessions. They are taken one partition at a time, together with the check of the node's entry.

Every node checks all partitions one after the other, and counts and reports its share of them. The reports of all nodes
add up to the total, and Redis does the same work for any number of nodes.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import NamedTuple

from greendot.engine.redis import keys
from greendot.engine.redis.bus import RedisBus
from greendot.engine.redis.nodes import NodeLeases
from greendot.engine.redis.partitions import Primaries
from greendot.engine.redis.sweeper import Sweeper
from greendot.telemetry.metrics_model import Histogram

MOST = 2_000  # users of a partition that are counted one by one; larger partitions are extrapolated


class UserCounts(NamedTuple):
    """Counts of one or several partitions."""

    users: int = 0
    sessions: int = 0


class Census:
    """Latest counts by partition."""

    def __init__(self, servers: Primaries, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._counted: dict[int, UserCounts] = {}

    async def visit(self, partition: int, incarnation: str, alive: Collection[str]) -> bool:
        """Return whether the partition has the node's entry; True if the partition cannot be reached.

        The users of the partition are counted if the partition is in the node's share or was never counted. When
        another node ends, this node may get its share.
        """
        if not self._servers.of(partition).up:
            return True
        home, known = keys.nodes_key(self._prefix, partition), self._servers.bucket_counts[partition]
        counting = partition not in self._counted or partition in _share(incarnation, alive)
        names = self._buckets(partition, known) if counting else []
        arguments = [home, *names], incarnation, MOST
        life, count, read, users, sessions = await self._servers.run(partition, "census", *arguments)
        self._servers.bucket_counts[partition] = count
        if counting and count == known:  # otherwise the next visit counts
            whole = count / max(1, read)
            self._counted[partition] = UserCounts(round(users * whole), round(sessions * whole))
        return bool(life)

    def _buckets(self, partition: int, count: int) -> list[str]:
        buckets = keys.bucket_names(count)
        first = random.randrange(count)  # random start: crowded partitions do not always count the same buckets
        return [keys.buckets(self._prefix, partition, b)[0] for b in buckets[first:] + buckets[:first]]

    def share(self, incarnation: str, alive: Collection[str]) -> UserCounts:
        """Return the counts of this node's share of the partitions.

        The shares of all live nodes cover every partition once.
        """
        counted = [self._counted.get(partition, UserCounts()) for partition in _share(incarnation, alive)]
        return UserCounts(sum(one.users for one in counted), sum(one.sessions for one in counted))


def _share(incarnation: str, alive: Collection[str]) -> range:
    nodes = sorted({*alive, incarnation})
    return range(nodes.index(incarnation), keys.PARTITIONS, len(nodes))


class Figures(NamedTuple):
    """Sources of the engine's metrics."""

    servers: Primaries
    bus: RedisBus
    lives: NodeLeases
    sweeper: Sweeper
    census: Census

    def counts(self, alive: Collection[str]) -> dict[str, float]:
        """Return the counters and gauges. `alive` are the live nodes."""
        bus, total, servers = self.bus.counts, self.sweeper.total, self.servers
        users, sessions = self.census.share(self.lives.incarnation, alive)
        return {
            "realtime_pubsub_published_total": bus.published,
            "redis_command_latency_us": servers.latency_us,
            "realtime_pubsub_invalid_total": bus.invalid,
            "realtime_pubsub_gaps_total": bus.gaps,
            "realtime_pubsub_unrouted_total": bus.dropped,
            "presence_node_deaths_total": self.lives.deaths,
            "presence_swept_sessions_total": total.sessions,
            "presence_swept_users_total": total.users,
            "presence_sweep_drift": self.sweeper.drift,
            "presence_last_sweep_timestamp_seconds": self.sweeper.swept_at / 1000,
            "presence_users_online": users,
            "redis_presence_sessions": sessions,
            "presence_nodes_live": len(alive),
            "presence_lease_age_s": round(self.lives.lease_age_s, 1),
            "redis_servers": len(servers.all),
            "redis_servers_up": len(servers.all) - len(servers.down),
            "redis_reconnects_total": servers.reconnects,
        }

    def histograms(self) -> dict[str, Histogram]:
        return {"realtime_bus_lag_seconds": self.bus.lag, "redis_command_seconds": self.servers.latency}
