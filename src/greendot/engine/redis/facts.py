"""What a Redis is like, found out in bounded time and with no more rights than it gives."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec.structs import replace

from greendot.core.facts import RedisFacts
from greendot.engine.redis import topology
from greendot.engine.redis.link import Link, RedisError, connect
from greendot.engine.redis.url import Address, Place, parse
from greendot.errors import ConfigError, EngineUnavailable

LIMIT_S = 6.0  # for one server


async def redis_facts(url: str) -> list[RedisFacts]:
    """Of every primary there is. One that cannot be reached says so in its own facts."""
    try:
        place = parse(url)
        addresses = [*dict.fromkeys(await topology.find(place, set()))]
    except (ConfigError, EngineUnavailable) as error:
        return [RedisFacts(address=", ".join(map(str, parse(url).hosts)), trouble=str(error))]
    return list(await asyncio.gather(*(_facts(place, address) for address in addresses)))


async def _facts(place: Place, address: Address) -> RedisFacts:
    try:
        async with asyncio.timeout(LIMIT_S):
            link = await connect(_link, place, address, place.context())
            try:
                return await _ask(link, address, anyone=await _lets_anyone_in(place, address))
            finally:
                link.close()
    except TimeoutError:
        return RedisFacts(address=str(address), trouble="it did not answer in time")
    except (ConfigError, EngineUnavailable) as error:
        return RedisFacts(address=str(address), trouble=str(error))


def _link() -> Link:
    return Link(lambda push: None, lambda link: None)


async def _lets_anyone_in(place: Place, address: Address) -> bool:
    stranger = replace(place, user=None, password=None)
    try:
        link = await connect(_link, stranger, address, place.context())
    except EngineUnavailable:
        return False
    link.close()
    return True


async def _ask(link: Link, address: Address, *, anyone: bool) -> RedisFacts:
    info = _fields(await link.call("INFO", "everything"))
    asked = time.time()
    seconds, microseconds = await link.call("TIME")
    now = (asked + time.time()) / 2  # it was asked as long ago as its answer took to come
    listpack = await _if_allowed(link, "CONFIG", "GET", "hash-max-listpack-value")
    cluster = await _if_allowed(link, "CLUSTER", "INFO") if info.get("cluster_enabled") == "1" else None
    return RedisFacts(
        address=str(address),
        product="Valkey" if "valkey_version" in info else "Redis",
        version=info.get("redis_version", "0.0"),
        role=info.get("role", "master"),
        policy=info.get("maxmemory_policy", "noeviction"),
        memory_used=int(info.get("used_memory", 0)),
        memory_most=int(info.get("maxmemory", 0)),
        listpack_value=None if listpack is None else _number(listpack),
        clustered=info.get("cluster_enabled") == "1",
        cluster_state=None if cluster is None else _fields(cluster).get("cluster_state"),
        lets_anyone_in=anyone,
        has_more_rights=listpack is not None,  # CONFIG is not among those it needs
        skew_ms=(int(seconds) + int(microseconds) / 1e6 - now) * 1000,
    )


async def _if_allowed(link: Link, *command: str) -> Any:
    try:
        return await link.call(*command)
    except RedisError:
        return None


def _fields(answer: Any) -> dict[str, str]:
    text = bytes(answer).decode(errors="replace") if not isinstance(answer, str) else answer
    return {name: value.strip() for name, colon, value in (line.partition(":") for line in text.splitlines()) if colon}


def _number(answer: Any) -> int | None:
    values = list(answer.values()) if isinstance(answer, dict) else list(answer)[1::2]
    return int(values[0]) if values else None
