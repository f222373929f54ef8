"""Traces contain only the work of their own command."""

from __future__ import annotations

from greendot.testing import serving

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_what_waited_behind_a_command_with_a_trace_is_in_none() -> None:
    async with serving() as served:
        await served.lobby()
        alice, bob = await served.client("alice"), await served.client("bob")
        for client in (alice, bob):
            await client.request(type="room.join", room="lobby")
        # More commands than one loop turn handles, so that the next turn is also started within the trace.
        alice.send(type="room.send", room="lobby", body=0, id=0, traceparent=TRACE)
        for number in range(1, 80):
            alice.send(type="room.send", room="lobby", body=number, id=number)
        heard = [await bob.receive("room.message") for _ in range(80)]
        assert [frame["data"]["body"] for frame in heard] == [*range(80)]
        assert heard[0]["traceparent"].split("-")[1] == TRACE.split("-")[1]
        assert {number for number, frame in enumerate(heard) if frame.get("traceparent")} == {0}
