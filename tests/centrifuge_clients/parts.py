"""Clients that send raw Centrifuge commands, and tokens as the apps of Centrifugo make them."""

from __future__ import annotations

from typing import Any

import msgspec

from greendot.protocol.tokens import sign_hs256
from greendot.testing.server import SECRET, Served
from greendot.testing.wire import TEXT, WireClient

SOCKET = "/connection/websocket"
ON = {"enabled": True, "namespaces": {name: {} for name in ("default", "news", "chat", "inbox")}}


def address(served: Served) -> str:
    return f"ws://127.0.0.1:{served.port}{SOCKET}"


def subscription_token(served: Served, user: str, channel: str, ttl_s: float | None = None, **claims: Any) -> str:
    """Return a subscription token, with an end if `ttl_s` is given."""
    body: dict[str, Any] = {"sub": user, "channel": channel, "iat": served.clock.now_ms() / 1000} | claims
    if ttl_s is not None:
        body["exp"] = round(served.clock.now_ms() / 1000 + ttl_s)
    return sign_hs256(SECRET, body)


class RawClient:
    """Client that sends commands as the test gives them."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire
        self._numbers = 0
        self.pushes: list[dict[str, Any]] = []  # pushes that came while a reply was awaited

    @classmethod
    async def opened(cls, served: Served) -> RawClient:
        return cls(await served.socket(SOCKET))

    @classmethod
    async def connected(cls, served: Served, user: str, **claims: Any) -> RawClient:
        """Return a client that is connected as `user`."""
        client = await cls.opened(served)
        reply = await client.ask(connect={"token": served.token(user, **claims)})
        assert "connect" in reply, reply
        return client

    @classmethod
    async def subscribed(cls, served: Served, user: str, channel: str, **options: Any) -> RawClient:
        """Return a client that is connected as `user` and subscribed to `channel`."""
        client = await cls.connected(served, user)
        reply = await client.ask(subscribe={"channel": channel, **options})
        assert "subscribe" in reply, reply
        return client

    def send(self, text: str | bytes) -> None:
        self.wire.send_frame(TEXT, text.encode() if isinstance(text, str) else text)

    async def ask(self, **command: Any) -> dict[str, Any]:
        """Send a command and return its reply."""
        self._numbers += 1
        self.send(msgspec.json.encode({"id": self._numbers, **command}))
        while (frame := await self.wire.receive()).get("id") != self._numbers:
            self.pushes.append(frame)
        return frame

    async def push(self) -> dict[str, Any]:
        """Return the next push."""
        frame = self.pushes.pop(0) if self.pushes else await self.wire.receive()
        push: dict[str, Any] = frame["push"]
        return push
