"""Lookup of the server of each partition."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from greendot.engine.redis.keys import PARTITIONS, TAGS, slot
from greendot.engine.redis.link import Link, connect
from greendot.engine.redis.url import Address, RedisTarget
from greendot.errors import ConfigError, EngineUnavailable

ASK_S = 1.0  # seconds for one server, from connecting to the answer
SLOTS = [slot(tag.encode()) for tag in TAGS]  # slot of each partition

Layout = list[Address]  # address of each partition


async def find(place: RedisTarget, known: set[Address]) -> Layout:
    """Look up the server of each partition. `known` are servers seen before.

    Raise EngineUnavailable if no server knows the layout.
    """
    if place.kind == "standalone":
        return [place.hosts[0]] * PARTITIONS
    if place.kind == "sentinel":
        return [await _from_sentinels(place)] * PARTITIONS
    return await _from_cluster(place, known)


async def _from_sentinels(place: RedisTarget) -> Address:
    """Return the primary according to the sentinel with the newest configuration.

    An isolated sentinel still names the old primary.
    """
    answers = await asyncio.gather(*(_ask(place, host, "SENTINEL", "MASTER", place.service) for host in place.hosts))
    newest: tuple[int, Address] | None = None
    for answer in answers:
        if not isinstance(answer, Exception):
            told = {_text(name): _text(value) for name, value in _pairs(answer)}
            word = int(told["config-epoch"]), Address(told["ip"], int(told["port"]))
            newest = max(newest, word) if newest else word
    if newest is None:
        raise EngineUnavailable(f"no sentinel knows {place.service!r}: {_reasons(place, answers)}")
    return newest[1]


async def _from_cluster(place: RedisTarget, known: set[Address]) -> Layout:
    """Return the most common complete layout of all servers, because some do not know of a failover yet."""
    hosts = [*dict.fromkeys([*place.hosts, *known])]
    answers = await asyncio.gather(*(_ask(place, host, "CLUSTER", "SLOTS") for host in hosts))
    layouts = [
        _layout(answer, host) for answer, host in zip(answers, hosts, strict=True) if not isinstance(answer, Exception)
    ]
    whole = [layout for layout in layouts if None not in layout]
    if not whole:
        raise EngineUnavailable(f"no server of the cluster knows where all slots are: {_reasons(place, answers)}")
    # If layouts differ, some servers do not know of a move or failover yet: take the majority.
    common = max(whole, key=lambda layout: sum(layout == other for other in whole))
    return [address for address in common if address is not None]


def _layout(answer: Any, asked: Address) -> list[Address | None]:
    found: list[Address | None] = [None] * PARTITIONS
    for first, last, primary, *_ in answer:
        host = _text(primary[0]) or asked.host  # empty: the server that answered
        address = Address(host, int(primary[1]))
        for partition, number in enumerate(SLOTS):
            if int(first) <= number <= int(last):
                found[partition] = address
    return found


async def _ask(place: RedisTarget, host: Address, *command: str) -> Any:
    """Return the answer of one server, or the error in its place."""
    if place.kind == "sentinel":
        place = replace(place, user=None, password=None, db=0)  # the login is for the Redis servers, not for Sentinel
    link = None
    try:
        async with asyncio.timeout(ASK_S):
            link = await connect(Link.unheard, place, host, place.context())
            return await link.call(*command)
    except TimeoutError:
        return EngineUnavailable("no answer in time")
    except (ConfigError, EngineUnavailable) as error:
        return error
    finally:
        if link is not None:
            link.abort()


def _pairs(answer: Any) -> list[tuple[Any, Any]]:
    return list(answer.items()) if isinstance(answer, dict) else list(zip(answer[::2], answer[1::2], strict=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _reasons(place: RedisTarget, answers: list[Any]) -> str:
    reasons = [f"{host}: {answer}" for host, answer in zip(place.hosts, answers, strict=False)]
    return "; ".join(reasons)
