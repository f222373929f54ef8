"""Facts about Redis servers, read in bounded time and with no more rights than Redis grants."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from greendot.engine.redis import topology
from greendot.engine.redis.link import Link, RedisError, connect
from greendot.engine.redis.url import Address, RedisTarget, parse
from greendot.errors import ConfigError, EngineUnavailable
from greendot.ops.facts_model import RedisFacts

LIMIT_S = 6.0  # seconds for one server
_ASKED = ("hash-max-listpack-value", "save", "notify-keyspace-events", "client-output-buffer-limit")


async def redis_facts(url: str) -> list[RedisFacts]:
    """Return the facts of every primary. The facts of an unreachable primary contain the reason."""
    try:
        place = parse(url)
        addresses = [*dict.fromkeys(await topology.find(place, set()))]
    except (ConfigError, EngineUnavailable) as error:
        return [RedisFacts(address=", ".join(map(str, parse(url).hosts)), trouble=str(error))]
    return list(await asyncio.gather(*(_facts(place, address) for address in addresses)))


async def _facts(place: RedisTarget, address: Address) -> RedisFacts:
    try:
        async with asyncio.timeout(LIMIT_S):
            link = await connect(Link.unheard, place, address, place.context())
            try:
                return await _ask(link, address, anyone=await _lets_anyone_in(place, address))
            finally:
                link.close()
    except TimeoutError:
        return RedisFacts(address=str(address), trouble="no answer in time")
    except (ConfigError, EngineUnavailable) as error:
        return RedisFacts(address=str(address), trouble=str(error))


async def _lets_anyone_in(place: RedisTarget, address: Address) -> bool:
    stranger = replace(place, user=None, password=None)
    try:
        link = await connect(Link.unheard, stranger, address, place.context())
    except EngineUnavailable:
        return False
    link.close()
    return True


async def _ask(link: Link, address: Address, *, anyone: bool) -> RedisFacts:
    info = _fields(await link.call("INFO", "everything"))
    asked = time.time()
    seconds, microseconds = await link.call("TIME")
    now = (asked + time.time()) / 2  # middle of the round trip
    config = await _config(link)
    cluster = await _if_allowed(link, "CLUSTER", "INFO") if info.get("cluster_enabled") == "1" else None
    return RedisFacts(
        address=str(address),
        product="Valkey" if "valkey_version" in info else "Redis",
        version=info.get("redis_version", "0.0"),
        role=info.get("role", "master"),
        policy=info.get("maxmemory_policy", "noeviction"),
        memory_used=int(info.get("used_memory", 0)),
        memory_most=int(info.get("maxmemory", 0)),
        listpack_value=int(config["hash-max-listpack-value"]) if "hash-max-listpack-value" in config else None,
        clustered=info.get("cluster_enabled") == "1",
        cluster_state=None if cluster is None else _fields(cluster).get("cluster_state"),
        lets_anyone_in=anyone,
        has_more_rights=bool(config),  # Greendot does not need CONFIG
        clients=int(info.get("connected_clients", 0)),
        clients_most=int(info.get("maxclients", 0)),
        snapshot_failed=info.get("rdb_last_bgsave_status", "ok") != "ok" and await _refuses_writes(link),
        persists=info.get("aof_enabled") == "1" or bool(config.get("save")),
        notifies=config.get("notify-keyspace-events", ""),
        pubsub_buffer=_pubsub_buffer(config.get("client-output-buffer-limit", "")),
        skew_ms=(int(seconds) + int(microseconds) / 1e6 - now) * 1000,
    )


async def _refuses_writes(link: Link) -> bool:
    """Return whether the server refuses writes after a failed snapshot.

    The server then refuses PING, too. The status in INFO alone does not show the refusal: the status stays bad when
    snapshots are turned off, although the server accepts writes again.
    """
    try:
        await link.call("PING")
    except RedisError as error:
        return error.code == "MISCONF"
    return False


async def _if_allowed(link: Link, *command: str) -> Any:
    try:
        return await link.call(*command)
    except RedisError:
        return None


def _fields(answer: Any) -> dict[str, str]:
    lines = (line.partition(":") for line in _text(answer).splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


async def _config(link: Link) -> dict[str, str]:
    """Return the server's configuration; empty without the right to read it."""
    answer = await _if_allowed(link, "CONFIG", "GET", *_ASKED)
    if answer is None:
        return {}
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode(errors="replace")


def _pubsub_buffer(limits: str) -> int | None:
    """Return the hard limit in `normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60`."""
    words = limits.split()
    return int(words[words.index("pubsub") + 1]) if "pubsub" in words else None
