"""One room with a native client, a Centrifuge client and a Pusher client: the same messages in the same order."""

from __future__ import annotations

from typing import Any

import msgspec

from centrifuge_clients.parts import ON, RawClient
from greendot.testing.server import serving
from greendot.testing.wire import TEXT

APP = {"app_id": "1", "key": "278d425bdf160c739803", "secret": "7ad3773142a6692b25b8"}


async def test_clients_of_three_protocols_receive_the_same_messages_in_order() -> None:
    async with serving(centrifuge=ON, pusher=APP) as served:
        await served.lobby()
        native = await served.joined("bob")
        centrifuge = await RawClient.subscribed(served, "ann", "lobby")
        pusher = await served.socket(f"/app/{APP['key']}?protocol=7&client=js&version=8.6.0")
        assert (await pusher.receive())["event"] == "pusher:connection_established"
        pusher.send_frame(TEXT, b'{"event":"pusher:subscribe","data":{"auth":"","channel":"lobby"}}')
        assert (await pusher.receive())["event"] == "pusher_internal:subscription_succeeded"
        for number in range(3):
            await native.request(type="room.send", room="lobby", body={"native": number})
            await centrifuge.ask(publish={"channel": "lobby", "data": {"centrifuge": number}})
        sent = [{kind: number} for number in range(3) for kind in ("native", "centrifuge")]
        assert [(await native.receive("room.message"))["data"]["body"] for _ in sent] == sent
        assert [(await centrifuge.push())["pub"]["data"] for _ in sent] == sent
        events: list[Any] = []
        while len(events) < len(sent):
            frame = await pusher.receive()
            if frame["event"] == "message":
                events.append(msgspec.json.decode(frame["data"])["body"])
        assert events == sent
