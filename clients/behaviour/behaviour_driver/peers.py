"""Other users of a script: plain WebSocket connections without a client library."""

from __future__ import annotations

from typing import Any

from behaviour_driver.matching import matches
from behaviour_driver.scope import Scope
from behaviour_driver.server import Server
from greendot.testing import WireClient

FILL = "x" * 60_000
MOST_FLOODED = 400


class Peer:
    """One other user, connected without the proxy. Frames wait until a step expects them."""

    def __init__(self, server: Server, scope: Scope, wire: WireClient) -> None:
        self._server = server
        self._scope = scope
        self._wire = wire
        self._waiting: list[dict[str, Any]] = []
        self._joined: set[str] = set()
        self.flooded = 0  # messages of a flood

    @classmethod
    async def connect(cls, server: Server, scope: Scope, user: str, **hello: Any) -> Peer:
        wire = await WireClient.connect(server.port)
        try:
            await wire.hello(server.token(scope.wide(user)), **hello)
        except BaseException:
            await wire.end()
            raise
        return cls(server, scope, wire)

    async def end(self) -> None:
        await self._wire.end()

    async def do(self, command: str, fields: dict[str, Any]) -> None:
        """Perform a command of a script."""
        room = self._scope.wide(fields.get("room", ""))
        if "room" in fields and room not in self._joined:
            self._joined.add(room)
            await self._wire.request(type="room.join", room=room)
        match command:
            case "send":
                times = fields.get("times")
                for body in range(1, times + 1) if times else [fields["body"]]:
                    await self._wire.request(type="room.send", room=room, body=body)
            case "flood":
                await self._flood(room, self._scope.wide(fields["until"]))
            case "typing" | "stop_typing":
                self._wire.send(type="typing.start" if command == "typing" else "typing.stop", room=room)
            case "watch":
                await self._wire.request(type="watch", users=[self._scope.wide(fields["user"])])
            case "expect":
                await self._expect(dict(fields))
            case "none":
                self._waiting += await self._wire.quiet()
                found = [frame for frame in self._waiting if frame["type"] == fields["event"]]
                assert not found, f"unexpected {self._scope.narrow(found)}"
            case "leave":
                self._wire.send(type="bye")
                await self._wire.closed()

    async def _expect(self, fields: dict[str, Any]) -> None:
        kind = fields.pop("event")
        while True:
            frame = self._waiting.pop(0) if self._waiting else await self._wire.receive()
            if frame["type"] == kind:
                break
        found = self._scope.narrow(frame["data"])
        assert matches(fields, found), f"the peer received {found}"

    async def _flood(self, room: str, slow: str) -> None:
        """Send large messages until the server has closed the connection of the slow user."""
        for number in range(1, MOST_FLOODED + 1):
            await self._wire.request(type="room.send", room=room, body={"n": number, "fill": FILL})
            self.flooded = number
            if number % 5 == 0:
                sessions = (await self._server.ask("GET", f"/v1/users/{slow}/sessions"))["sessions"]
                if any(session["state"] == "lingering" for session in sessions):
                    return
        raise AssertionError(f"the server did not close the slow connection after {MOST_FLOODED} messages")
