"""Event streams: the protocol over Server-Sent Events and requests, on the same sessions as WebSockets."""

from __future__ import annotations

from greendot.testing import serving
from greendot.testing.event_stream import EventStreamClient


async def test_a_stream_and_a_socket_see_each_other() -> None:
    async with serving() as served:
        await served.lobby()
        bob = await served.joined("bob")
        async with await EventStreamClient.connect(served.port) as ann:
            welcome = await ann.hello(served.token("ann"))
            assert welcome["user"] == "ann"
            await ann.request(type="room.join", room="lobby")
            await ann.quiet()
            await bob.quiet()
            sent = await ann.request(type="room.send", room="lobby", body={"text": "hello"})
            assert (await bob.receive("room.message"))["data"]["seq"] == sent["seq"]
