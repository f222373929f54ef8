"""Connections of a foreign protocol: routed by path, run by the dispatcher, converted once per write."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from greendot.auth.model import Grants, Revocation
from greendot.compat.connection import ForeignConnection
from greendot.errors import Refused
from greendot.node.hub import by_dialect
from greendot.protocol import commands as wire
from greendot.protocol.codec import text_frame
from greendot.protocol.versions import Dialect, Reading, frame_head, split_frames
from greendot.testing.server import Served, serving
from greendot.testing.wire import WireClient
from greendot.transport.upgrade import ForeignRequest, ForeignSocket, SocketRoute


class Shout(Dialect):
    """Dialect that shows the type of each event in capitals."""

    shared = True

    def __init__(self) -> None:
        super().__init__(straight=True)
        self.puts = 0

    def _put(self, frames: bytes) -> Reading:
        self.puts += 1
        made = []
        for frame, at in split_frames(frames):
            kind, _ = frame_head(frame, at)
            made.append(text_frame(b'{"type":"%b"}' % kind.upper().encode()) if kind else frame)
        return Reading(b"".join(made))


class Talk:
    """Protocol of a test: `name` signs in and joins the lobby, anything else is repeated."""

    def __init__(self, served: Served) -> None:
        self.dialect = Shout()
        self.ended_ones: list[Any] = []
        self.pings = 0
        self.services = served.node.foreign_services()

    def connect(self, request: ForeignRequest) -> ForeignSocket:
        connection = ForeignConnection(self.services, self, self.dialect, f"talk/{request.query.decode()}")
        connection.set_up(self.services, request)
        return ForeignSocket(connection, b"talk.v1")

    def opened(self, connection: ForeignConnection) -> None:
        connection.send(text_frame(b'{"type":"hi"}'))

    def received(self, connection: ForeignConnection, message: str) -> Awaitable[None] | None:
        if message.startswith("name "):
            return self._enter(connection, message[5:])
        connection.send(text_frame(b'{"type":"again","text":%b}' % msgspec.json.encode(message)))
        return None

    async def _enter(self, connection: ForeignConnection, name: str) -> None:
        connection.granted = Grants("default", name, self.services.clock.now_ms() + 3_600_000)
        if await self.services.dispatcher.open_session(connection, wire.Hello()):
            try:
                await self.services.dispatcher.execute(connection, wire.RoomJoin(room="lobby"))
                connection.send(text_frame(b'{"type":"inside"}'))
            except Refused as refused:
                connection.send(text_frame(b'{"type":"%b"}' % refused.code.encode()))

    def refused(self, connection: ForeignConnection, message: str, refused: Refused) -> None:
        connection.send(text_frame(b'{"type":"slower"}'))

    def ping(self, connection: ForeignConnection) -> None:
        self.pings += 1
        connection.send_ping()

    def room_closed(self, connection: ForeignConnection, room: str) -> None: ...

    def ended(self, connection: ForeignConnection) -> None:
        self.ended_ones.append(connection)


async def talking(served: Served) -> Talk:
    """Serve the protocol at /talk/NAME, on the port of the server."""
    talk = Talk(served)
    listener = served.greendot.server
    listener._web = listener._web._replace(routes=[SocketRoute(b"/talk/", talk.connect)])
    listener._acceptor.close()
    await listener.start("127.0.0.1", 0)
    return talk


async def visitor(served: Served, number: int) -> WireClient:
    client = await served.socket(f"/talk/x?{number}")
    assert (await client.receive())["type"] == "hi"
    return client


async def test_a_path_leads_to_the_protocol_and_others_stay_unknown() -> None:
    async with serving() as served:
        await talking(served)
        client = await visitor(served, 1)
        assert "Sec-WebSocket-Protocol: talk.v1" in client.head
        client.send_frame(1, b"hello")
        assert (await client.receive("again"))["text"] == "hello"
        for path in ("/talk/", "/talk/x/y", "/talk", "/other"):
            with pytest.raises(ConnectionError, match="404"):
                await served.socket(path)


async def test_a_verified_identity_opens_a_session_and_frames_wait_for_it() -> None:
    async with serving() as served:
        await served.lobby()
        await talking(served)
        watcher = await served.client("walt")
        client = await visitor(served, 1)
        client.send_frame(1, b"name ann")
        client.send_frame(1, b"after")
        seen = [(await client.receive())["type"] for _ in range(3)]
        assert seen == ["WELCOME", "inside", "again"]
        assert (await watcher.request(type="presence.get", users=["ann"]))["presence"][0]["state"] == "online"
        assert (await watcher.request(type="room.present", room="lobby"))["users"] == ["ann"]


async def test_a_refusal_of_a_command_comes_back_to_the_protocol() -> None:
    async with serving() as served:
        await talking(served)
        client = await visitor(served, 1)
        client.send_frame(1, b"name ann")
        assert [(await client.receive())["type"] for _ in range(2)] == ["WELCOME", "not_a_member"]


async def test_a_broadcast_is_converted_once_for_all_clients_of_a_dialect() -> None:
    async with serving() as served:
        await served.lobby()
        talk = await talking(served)
        native = await served.joined("nat")
        foreign = [await visitor(served, number) for number in range(3)]
        for number, client in enumerate(foreign):
            client.send_frame(1, b"name u%d" % number)
            assert (await client.receive())["type"] == "WELCOME"
            client.deaf_to = frozenset({"ROOM.ENTERED", "inside"})
        await served.settle()
        before = talk.dialect.puts
        await native.request(type="room.send", room="lobby", body={"text": "hi"})
        assert [(await client.receive())["type"] for client in foreign] == ["ROOM.MESSAGE"] * 3
        assert talk.dialect.puts == before + 1


async def test_a_silent_client_gets_a_ping_and_is_then_closed() -> None:
    async with serving(presence={"heartbeat_s": 30.0, "dead_after_s": 75.0}) as served:
        talk = await talking(served)
        client = await visitor(served, 1)
        await served.advance(44)
        assert talk.pings == 0
        await served.advance(2)
        assert talk.pings == 1
        await served.advance(30)
        assert (await client.closed()).code == 4002
        await served.until_gone()
        assert len(talk.ended_ones) == 1


async def test_an_identity_does_not_outlive_a_revocation() -> None:
    async with serving() as served:
        await served.lobby()
        await talking(served)
        client = await visitor(served, 1)
        client.send_frame(1, b"name ann")
        await client.receive("WELCOME")
        await served.settle()
        now = served.clock.now_ms()
        await served.node.revocation_service.revoke(Revocation("default", "user", "ann", now + 3_600_000, now), "ann")
        assert (await client.closed()).code == 4501


async def test_connections_are_grouped_by_a_dialect_that_the_hub_converts() -> None:
    async with serving() as served:
        await served.lobby()
        talk = await talking(served)
        await served.joined("nat")
        client = await visitor(served, 1)
        client.send_frame(1, b"name ann")
        await client.receive("WELCOME")
        await served.settle()
        groups = by_dialect([*served.node.registry.connections.values()])
        assert {dialect: len(some) for dialect, some in groups.items()} == {None: 1, talk.dialect: 1}
