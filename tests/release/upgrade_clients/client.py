"""Python client during an upgrade. Arguments: the server's address, a token, and `leave` to leave at once.

It prints its state, the notifications that it has read, and at a message `end` all messages that it has received.
"""

from __future__ import annotations

import asyncio
import json
import sys

from greendot.client import Backoff, Client, body_of
from greendot.protocol.events import NotificationCreated, RoomMessage


async def run(url: str, token: str, leave: str = "") -> None:
    received: list[tuple[int, object]] = []
    tasks: set[asyncio.Task[object]] = set()
    ended = asyncio.Event()
    async with Client(url, token, device="program", backoff=Backoff(base_s=0.1, cap_s=1.0)) as me:
        user = me.welcome.user if me.welcome else ""

        def on_message(event: RoomMessage) -> None:
            received.append((event.seq, body_of(event)))
            if body_of(event) == "end":
                ended.set()

        async def read(seq: int) -> None:
            await me.inbox.read(seen[seq])
            print(f"read {seq}", flush=True)

        seen: dict[int, str] = {}

        def on_notification(event: NotificationCreated) -> None:
            seen[event.seq] = event.id
            if event.seq in (1, 4):  # marks of before and after the upgrade
                tasks.add(asyncio.create_task(read(event.seq)))

        def on_state(state: str) -> None:
            if state in ("waiting", "reconnecting") and not any(task.get_name() == "queued" for task in tasks):
                tasks.add(asyncio.create_task(me.send("hall", f"queued by {user}"), name="queued"))
                print("waiting", flush=True)

        me.on(RoomMessage, on_message)
        me.on(NotificationCreated, on_notification)
        me.on("state", lambda event: on_state(event.state))
        (own,) = await me.watch(user)
        print("state", own.state, own.status_text, flush=True)
        if not leave:
            await me.join("hall")
            print("joined", flush=True)
            await ended.wait()
            await asyncio.gather(*tasks)
    print("left" if leave else f"received {json.dumps(received)}", flush=True)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
