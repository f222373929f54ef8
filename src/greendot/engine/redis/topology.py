"""Which server each partition is on. redis-py asks: this happens a few times a minute at most."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from greendot.engine.redis.keys import PARTITIONS, TAGS, slot
from greendot.engine.redis.url import Address, Place
from greendot.errors import EngineUnavailable

ASK_S = 1.0
SLOTS = [slot(tag.encode()) for tag in TAGS]  # of each partition

Layout = list[Address]  # by partition


async def find(place: Place, known: set[Address]) -> Layout:
    """Ask for the servers now. EngineUnavailable if nobody can tell. `known` are servers seen before."""
    if place.kind == "standalone":
        return [place.hosts[0]] * PARTITIONS
    if place.kind == "sentinel":
        return [await _from_sentinels(place)] * PARTITIONS
    return await _from_cluster(place, known)


async def _from_sentinels(place: Place) -> Address:
    """What the sentinel with the newest word says: one that is cut off goes on naming the old primary."""
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


async def _from_cluster(place: Place, known: set[Address]) -> Layout:
    """The first complete answer, asking all at once: while a server fails over some do not know yet."""
    hosts = [*dict.fromkeys([*place.hosts, *known])]
    answers = await asyncio.gather(*(_ask(place, host, "CLUSTER", "SLOTS") for host in hosts))
    layouts = [
        _layout(answer, host) for answer, host in zip(answers, hosts, strict=True) if not isinstance(answer, Exception)
    ]
    whole = [layout for layout in layouts if None not in layout]
    if not whole:
        raise EngineUnavailable(f"no server of the cluster knows where all slots are: {_reasons(place, answers)}")
    # Where they differ, some have not heard of a move or failover: what most say stands.
    common = max(whole, key=lambda layout: sum(layout == other for other in whole))
    return [address for address in common if address is not None]


def _layout(answer: Any, asked: Address) -> list[Address | None]:
    found: list[Address | None] = [None] * PARTITIONS
    for first, last, primary, *_ in answer:
        host = _text(primary[0]) or asked.host  # empty: the one that was asked
        address = Address(host, int(primary[1]))
        for partition, number in enumerate(SLOTS):
            if int(first) <= number <= int(last):
                found[partition] = address
    return found


async def _ask(place: Place, host: Address, *command: str) -> Any:
    from redis.asyncio import Redis  # here, because standalone Redis does without it
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError as DriverError

    login = {} if place.kind == "sentinel" else {"username": place.user, "password": place.password}
    tls = {f"ssl_{name}": file for name, file in _tls_files(place).items()} if place.tls else {}
    client = Redis(
        driver_info=None,  # CLIENT SETINFO: not known to Redis 7.0, refused to a user with few rights
        host=host.host,
        port=host.port,
        protocol=2,
        socket_timeout=ASK_S,
        socket_connect_timeout=ASK_S,
        # All are waited for: one that is down must say so at once, or every failover takes that much longer.
        retry=Retry(NoBackoff(), 0),
        ssl=place.tls,
        **login,  # type: ignore[arg-type]
        **tls,  # type: ignore[arg-type]
    )
    try:
        async with asyncio.timeout(2 * ASK_S):
            # Not execute_command: it would reshape the answer, differently in each version.
            connection = await client.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            await connection.send_command(*command)
            return await connection.read_response()
    except (DriverError, OSError, TimeoutError) as error:
        return error if str(error) else TimeoutError("it did not answer in time")
    finally:
        with contextlib.suppress(DriverError, OSError):
            await client.connection_pool.disconnect()
            await client.aclose()


def _tls_files(place: Place) -> dict[str, str]:
    names = {"ca": "ca_certs", "cert": "certfile", "key": "keyfile"}
    return {names[name]: file for name, file in place.files.items()}


def _pairs(answer: Any) -> list[tuple[Any, Any]]:
    return list(answer.items()) if isinstance(answer, dict) else list(zip(answer[::2], answer[1::2], strict=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _reasons(place: Place, answers: list[Any]) -> str:
    reasons = [f"{host}: {answer}" for host, answer in zip(place.hosts, answers, strict=False)]
    return "; ".join(reasons)
