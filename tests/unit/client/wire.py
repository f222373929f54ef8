"""Server for client tests: a real socket that speaks the protocol and sends only frames that the test requests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Any, TypeVar

from msgspec import Raw
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

from greendot.client import Backoff, Client, EventStream
from greendot.errors import Refused
from greendot.protocol.codec import decode_command, encode_error, encode_event, encode_reply
from greendot.protocol.commands import Bye, Command, Hello, InboxList, RoomJoin, Watch
from greendot.protocol.events import Event, Limits, NotificationCreated, Presence, RoomMessage, RoomState, Welcome
from greendot.protocol.replies import InboxEntry, InboxReply, JoinReply, PresenceReply, Reply

C = TypeVar("C", bound=Command)
T = TypeVar("T")

AT_ONCE = Backoff(base_s=0.0)


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop of its own. Fail if it leaves a task running."""

    async def guarded(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(20):
            await test(*args, **kwargs)
        await asyncio.sleep(0)  # finished tasks are removed from the list in the next turn
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left running: {left}"

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        asyncio.run(guarded(*args, **kwargs))

    return wrapper


async def state(me: Client, wanted: str) -> None:
    """Wait until the client's state is `wanted`."""
    reached = asyncio.Event()
    undo = me.on("state", lambda event: event.state == wanted and reached.set())
    try:
        if me.state != wanted:
            async with asyncio.timeout(5):
                await reached.wait()
    finally:
        undo()


async def take(events: EventStream, count: int, kind: Any) -> list[Any]:
    """Return the next `count` events of type `kind`."""
    found: list[Any] = []
    async with asyncio.timeout(5):
        while len(found) < count:
            event = await anext(events)
            if isinstance(event, kind):
                found.append(event)
    return found


class Peer(WSListener):
    """The server's end of one connection."""

    def __init__(self) -> None:
        self.commands: asyncio.Queue[Command] = asyncio.Queue()
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.said_bye = False
        self.answers_bye = True
        self.inbox: InboxReply | None = an_inbox()  # the answer to every inbox.list; None: the test answers
        self._transport: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            command = decode_command(frame.get_payload_as_bytes())
            if isinstance(command, Bye):
                self.said_bye = True
                if self.answers_bye:
                    self.close(1000)
            elif isinstance(command, InboxList) and self.inbox is not None:
                self.reply(command, self.inbox)
            else:
                self.commands.put_nowait(command)
        elif frame.msg_type == WSMsgType.CLOSE:
            if not self.closed.done():
                self.closed.set_result(int(frame.get_close_code()))
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if not self.closed.done():
            self.closed.set_result(1006)

    async def next(self, kind: type[C]) -> C:
        """Return the next command, which must be of type `kind`."""
        async with asyncio.timeout(5):
            command = await self.commands.get()
        assert isinstance(command, kind), command
        return command

    def write(self, frame: bytes) -> None:
        self._transport.underlying_transport.write(frame)

    def event(self, *events: Event) -> None:
        """Send the events in one write, so that the client reads them in one turn of its loop."""
        self.write(b"".join(encode_event(event, 0) for event in events))

    def reply(self, command: Command, data: Reply, *then: Event) -> None:
        assert command.id is not None
        self.write(encode_reply(command.id, data) + b"".join(encode_event(event, 0) for event in then))

    def error(self, command: Command, code: str, retry_in_ms: int | None = None) -> None:
        self.write(encode_error(Refused(code, f"refused: {code}", retry_in_ms=retry_in_ms), command.id))

    def close(self, code: int, reason: str = "") -> None:
        self._transport.send_close(code, reason)  # type: ignore[arg-type]

    def ping(self) -> None:
        self._transport.send_ping(b"there?")

    def drop(self) -> None:
        self._transport.disconnect(graceful=False)


class Server:
    """Listening server. Each connection is a Peer that the test controls."""

    def __init__(self) -> None:
        self.peers: asyncio.Queue[Peer] = asyncio.Queue()
        self.url = ""

    async def next(self) -> Peer:
        async with asyncio.timeout(5):
            return await self.peers.get()

    async def greet(
        self, welcome: Welcome | None = None, *then: Event, inbox: InboxReply | None = None
    ) -> tuple[Peer, Hello]:
        """Accept a connection and answer its hello with a welcome. The inbox is empty unless `inbox` is given."""
        peer = await self.next()
        peer.inbox = inbox or an_inbox()
        hello = await peer.next(Hello)
        peer.event(welcome or a_welcome(), *then)
        return peer, hello

    def _accept(self, _: object) -> Peer:
        peer = Peer()
        self.peers.put_nowait(peer)
        return peer


@asynccontextmanager
async def serving(ssl: SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    listening = await ws_create_server(server._accept, "127.0.0.1", 0, ssl=ssl)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'wss' if ssl else 'ws'}://127.0.0.1:{port}/v1/connect"
    try:
        yield server
    finally:
        listening.close()
        await listening.wait_closed()


@asynccontextmanager
async def connected(server: Server, **options: Any) -> AsyncIterator[tuple[Client, Peer]]:
    """Yield a connected client and the server's end of its connection."""
    me = Client(server.url, **{"token": "t", "device": "laptop", "backoff": AT_ONCE, **options})
    (peer, _), _ = await asyncio.gather(server.greet(), me.__aenter__())
    try:
        yield me, peer
    finally:
        await me.bye()


async def both(call: Awaitable[T], answer: Awaitable[object]) -> T:
    """Run a client's call together with the server's answer and return the result of the call."""
    result, _ = await asyncio.gather(call, answer)
    return result


def a_welcome(
    session: str = "abcd-1", *, resumed: bool = False, heartbeat_s: float = 30.0, **rooms: RoomState
) -> Welcome:
    return Welcome(
        session=session,
        user="me",
        tenant="default",
        node="abcd",
        resumed=resumed,
        heartbeat_s=heartbeat_s,
        server_time=0,
        unread=0,
        limits=Limits(frame_bytes=64 * 1024, commands_per_s=50, watches=10_000, rooms=500),
        rooms=rooms,
    )


def a_presence(user: str = "bob", version: int = 1, state: Any = "online") -> Presence:
    return Presence(user, user.title(), state, 0, None, version)


def a_message(seq: int, room: str = "lobby", body: bytes = b'{"text":"hi"}') -> RoomMessage:
    return RoomMessage(room, seq, f"m{seq}", "bob", "Bob", Raw(body), 0)


def a_notification(seq: int, *, ack: bool = False) -> NotificationCreated:
    return NotificationCreated(seq, f"n{seq}", "mention", Raw(b'{"text":"hi"}'), 0, ack)


def an_inbox(
    head: int = 0, entries: Iterable[NotificationCreated] = (), unread: int = 0, unseen: int = 0
) -> InboxReply:
    return InboxReply(
        [InboxEntry(n.seq, n.id, n.kind, n.body, n.created_at, None, None, None, None, n.ack) for n in entries],
        head,
        unread,
        unseen,
    )


def a_join(room: str = "lobby", head: int = 0, messages: tuple[RoomMessage, ...] = (), **changes: Any) -> JoinReply:
    fields: dict[str, Any] = {
        "recovered": True,
        "truncated": False,
        "typing": [],
        "typing_count": 0,
        "present": 1,
        "unread": 0,
    }
    return JoinReply(room=room, head=head, messages=list(messages), **{**fields, **changes})


async def watching(me: Client, peer: Peer, *users: str) -> None:
    """Let the client watch `users`, each of them online in version 1."""

    async def answer() -> None:
        command = await peer.next(Watch)
        peer.reply(command, PresenceReply([a_presence(user, 1) for user in command.users]))

    await both(me.watch(*users), answer())


async def joining(me: Client, peer: Peer, room: str = "lobby", head: int = 0) -> None:
    """Let the client join `room`, whose newest message has the number `head`."""

    async def answer() -> None:
        peer.reply(await peer.next(RoomJoin), a_join(room, head))

    await both(me.join(room), answer())
