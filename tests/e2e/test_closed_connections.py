"""Closed connections and rooms are freed at once: a reference cycle would wait for the garbage collector.

A server freezes objects that have lived for some time (docs/adr/0058). The collector no longer finds their cycles.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from e2e.collected import collected_as_served
from e2e.test_tls import get, serving_tls
from greendot.node.channel import Channel
from greendot.node.session import Connection
from greendot.node.subscriptions import UNHEARD_S
from greendot.presence.watched_user import WatchedUser
from greendot.rooms.local_room import LocalRoom
from greendot.rooms.occupancy import RoomOccupancy
from greendot.rooms.typing import RoomTyping
from greendot.testing import Served, WireClient, serving
from greendot.transport.http1 import HttpProtocol
from greendot.transport.listener import ProtocolSniffer

CLIENTS = 20
OF_A_CLIENT = (Connection, ProtocolSniffer, HttpProtocol, WatchedUser)
OF_A_CLIENT += (LocalRoom, RoomOccupancy, RoomTyping, Channel)
BY_NAME = ("SSLProtocol", "_SSLProtocolTransport")  # types of uvloop, which it does not export


def alive() -> Counter[str]:
    # The type itself: `isinstance` would load the lazy objects of Django, which other tests of this process import.
    kinds = map(type, gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if issubclass(kind, OF_A_CLIENT) or kind.__name__ in BY_NAME)


async def comes_and_goes(served: Served, number: int) -> None:
    """Connect a client that uses what connections can have, let a young collection freeze it, and end it."""
    client = await WireClient.connect(served.port, tls=served.tls)
    await client.hello(served.token(f"user{number}"))
    await client.request(type="watch", users=["user0", "somebody", f"friend{number}"])
    await client.request(type="room.join", room=f"room{number}")
    await client.request(type="room.send", room=f"room{number}", body={"text": "hi"}, key="k")
    client.send(type="typing.start", room=f"room{number}")
    if served.tls is not None:
        await get(served.port, "/healthz", served.tls)
    gc.collect(1)  # freezes, if the collector is set as in a server
    await client.end()


@asynccontextmanager
async def served_by(how: str, folder: Path) -> AsyncIterator[Served]:
    if how == "tls":
        async with serving_tls(folder, limits={"enabled": False}) as (served, _):
            yield served
    else:
        async with serving(limits={"enabled": False}) as served:
            yield served


@pytest.mark.parametrize("how", ["plain", "tls"])
async def test_nothing_of_a_client_waits_for_the_garbage_collector(how: str, tmp_path: Path) -> None:
    async with served_by(how, tmp_path) as served:
        for number in range(CLIENTS):
            await served.node.store.put_room("default", f"room{number}", open=True)
        before = alive()
        with collected_as_served(served.node):
            gc.disable()
            try:
                for number in range(CLIENTS):
                    await comes_and_goes(served, number)
                await served.until_gone()
                await served.advance(60 + UNHEARD_S)  # sessions and topics end
                for _ in range(20):
                    await asyncio.sleep(0)
                gc.unfreeze()  # list frozen objects, too; a collection would hide cycles
                left = alive() - before
            finally:
                gc.enable()
        assert all(count < CLIENTS / 4 for count in left.values()), left  # a stack frame may refer to the last one
