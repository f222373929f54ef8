"""Closed connections are freed at once: objects left to the garbage collector cost memory and long loop turns."""

from __future__ import annotations

import gc
from collections import Counter

from greendot.node.session import Connection
from greendot.testing import WireClient, serving
from greendot.transport.listener import ProtocolSniffer

CLIENTS = 20
OF_A_CONNECTION = (Connection, ProtocolSniffer)


def alive() -> Counter[type]:
    return Counter(type(thing) for thing in gc.get_objects() if isinstance(thing, OF_A_CONNECTION))


async def test_nothing_of_a_closed_connection_waits_for_the_garbage_collector() -> None:
    async with serving(limits={"enabled": False}) as served:
        await served.lobby()
        before = alive()
        gc.disable()
        try:
            for number in range(CLIENTS):
                client = await WireClient.connect(served.port)
                await client.hello(served.token(f"user{number}"))
                await client.request(type="watch", users=["user0", "somebody"])
                await client.request(type="room.join", room="lobby")
                await client.end()
            await served.until_gone()
            left = alive() - before
        finally:
            gc.enable()
        assert left.total() < CLIENTS / 2, left  # a stack frame may still refer to the last one
