"""Client of the Pusher protocol on one socket, which sends exactly the frames of a test."""

from __future__ import annotations

import json
from typing import Any

from greendot.compat.pusher.signature_model import channel_text, sign, user_text
from greendot.testing.server import Served
from greendot.testing.wire import TEXT, WireClient

APP = {"app_id": "4711", "key": "a-public-key", "secret": "a secret of twenty+"}
QUERY = "protocol=7&client=js&version=8.6.0&flash=false"


class PusherClient:
    """Client on one socket."""

    def __init__(self, socket: WireClient, secret: str = APP["secret"], key: str = APP["key"]) -> None:
        self.socket = socket
        self.secret = secret
        self.key = key
        self.socket_id = ""

    async def establish(self) -> dict[str, Any]:
        frame = await self.receive("pusher:connection_established")
        self.socket_id = frame["data"]["socket_id"]
        return frame["data"]

    def send(self, event: str, data: Any = None, **more: Any) -> None:
        self.socket.send_frame(TEXT, json.dumps({"event": event, "data": data, **more}).encode())

    async def receive(self, event: str | None = None) -> dict[str, Any]:
        """Return the next frame, with its data decoded if it is a string of JSON."""
        frame = await self.socket.receive()
        if isinstance(frame.get("data"), str):
            frame["data"] = json.loads(frame["data"])
        assert event is None or frame["event"] == event, f"expected {event}, got {frame}"
        return frame

    def auth(self, channel: str, data: str | None = None) -> str:
        return f"{self.key}:{sign(self.secret, channel_text(self.socket_id, channel, data))}"

    def ask(self, channel: str, user: str | None = None, **info: Any) -> None:
        """Send a subscription that the app has signed."""
        data = None if user is None else json.dumps({"user_id": user, "user_info": info or {"name": user}})
        asked = {"channel": channel, "auth": self.auth(channel, data)}
        self.send("pusher:subscribe", asked if data is None else asked | {"channel_data": data})

    async def subscribe(self, channel: str, user: str | None = None, **info: Any) -> dict[str, Any]:
        self.ask(channel, user, **info)
        frame = await self.receive("pusher_internal:subscription_succeeded")
        assert frame["channel"] == channel
        return frame["data"]

    def sign_in(self, user: str, **more: Any) -> None:
        data = json.dumps({"id": user, **more})
        auth = f"{self.key}:{sign(self.secret, user_text(self.socket_id, data))}"
        self.send("pusher:signin", {"auth": auth, "user_data": data})

    async def quiet(self) -> list[dict[str, Any]]:
        """Return all frames until the answer to a ping."""
        self.send("pusher:ping", {})
        frames = []
        while (frame := await self.receive())["event"] != "pusher:pong":
            frames.append(frame)
        return frames


async def connected(
    served: Served, query: str = QUERY, key: str = APP["key"], secret: str = APP["secret"]
) -> PusherClient:
    """Return a client that has got its socket id."""
    client = PusherClient(await served.socket(f"/app/{key}?{query}"), secret, key)
    await client.establish()
    return client


async def member(served: Served, user: str, channel: str = "presence-lobby") -> PusherClient:
    """Return a client that has subscribed to a presence channel."""
    client = await connected(served)
    await client.subscribe(channel, user)
    return client
