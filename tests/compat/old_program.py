"""Program for the Python client of an earlier version, which runs with that client.

Arguments: the server's address and a token. On each input line it prints the received events as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from greendot.client import Client, body_of
from greendot.protocol.events import NotificationCreated, Presence, RoomMessage


async def run(url: str, token: str) -> None:
    told: dict[str, list[object]] = {"messages": [], "presence": [], "notifications": [], "states": []}
    arrived = asyncio.Event()
    async with Client(url, token, device="program") as me:
        me.on(RoomMessage, lambda event: told["messages"].append([event.seq, body_of(event)]))
        me.on(Presence, lambda event: told["presence"].append([event.user, event.state]))
        me.on(NotificationCreated, lambda event: told["notifications"].append(body_of(event)))
        me.on(NotificationCreated, lambda event: arrived.set())
        me.on("state", lambda event: told["states"].append(event.state))
        await me.join("hall")
        await me.watch("bob")
        await me.send("hall", "from a program of then")
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        await arrived.wait()  # the test ends a program that waits for ever
        await me.inbox.read(through=1)
        told["history"] = [message.seq for message in await me.history("hall", limit=50)]
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
