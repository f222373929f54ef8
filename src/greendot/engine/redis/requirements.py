"""What a Redis server must be like, checked before anything is entrusted to it."""

from __future__ import annotations

from greendot.engine.redis.primary import Server
from greendot.errors import ConfigError

OLDEST = (7, 0)


async def check(server: Server) -> None:
    """ConfigError says what to change."""
    info = bytes(await server.call("INFO", "everything")).decode(errors="replace")
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    version = facts.get("redis_version", "0.0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ConfigError(f"Redis at {server.address} is version {version}; Greendot needs 7.0 or newer, or Valkey.")
    policy = facts.get("maxmemory_policy", "noeviction").strip()
    if policy != "noeviction":
        raise ConfigError(
            f"Redis at {server.address} has maxmemory-policy {policy}: when its memory is full it would throw away who "
            "is online. Set it to noeviction (redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf), or "
            "use a Redis of its own for Greendot."
        )
