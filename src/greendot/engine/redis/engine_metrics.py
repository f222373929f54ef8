"""What the Redis engine shows of itself, by metric name."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from greendot.engine.redis.bus import RedisBus
from greendot.engine.redis.metrics import Census
from greendot.engine.redis.nodes import Nodes
from greendot.engine.redis.partitions import Servers
from greendot.engine.redis.sweeper import Sweeper
from greendot.telemetry.histogram_model import Histogram


class Figures(NamedTuple):
    """The parts that count."""

    servers: Servers
    bus: RedisBus
    lives: Nodes
    sweeper: Sweeper
    census: Census

    def counts(self, alive: Collection[str]) -> dict[str, float]:
        """`alive` are the nodes that live."""
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
