"""Functions that take any bytes and fail if the code breaks a promise: for `make fuzz-long`, and for the kept corpus.

A target raises AssertionError, or the exception that the code should have handled.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from hashlib import sha1
from typing import Any, get_args

import httptools
import msgspec

from fuzz.live import tells_nothing
from greendot.compat.centrifuge.codec_model import BadCommand as CentrifugeBadCommand
from greendot.compat.centrifuge.protobuf import as_json
from greendot.engine.messages import NodeMessage, Topic, TopicKind
from greendot.engine.redis.bus_codec import BusCodec, Malformed
from greendot.protocol.codec import MAX_FRAME, BadCommand, decode_command, encode_error
from greendot.protocol.codes import Close
from greendot.protocol.commands import COMMANDS
from greendot.testing import Served, serving
from greendot.testing.wire import TEXT, make_frame
from greendot.transport.frame_model import BadFrame, next_frame, text_of
from greendot.transport.listener import ProtocolSniffer
from greendot.transport.plain_socket import PlainSocket, SocketPoller
from greendot.transport.request_head import Field, Head, RequestRefused, read_head
from greendot.transport.websocket import Framing
from greendot.transport.websocket_handshake import (
    PATH,
    KnownHandshakes,
    Upgrade,
    check_handshake,
    handshake_fields,
    plain_upgrade,
    wants_websocket,
)

Target = Callable[[bytes], None]
VIOLATIONS = {Close.PROTOCOL_VIOLATION, Close.BINARY, Close.BAD_UTF8, Close.TOO_BIG}
TURNS = 50  # of the event loop; then the node's clock is moved, and work in threads gets real time
PATIENCE = 5_000  # times TURNS, until a socket must have ended


# --- handshake: both readers of a request agree ---


class _Reading:
    """Request as `transport.http1` reads it."""

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[Field] = []
        self.head: Head | None = None

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is None:
            self.fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.head is None:
            self.head = read_head(self.parser.get_method(), self.parser.get_http_version(), self.url, self.fields)

    def feed(self, data: bytes) -> None:
        self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as error:
            cause = error.__context__
            if cause is not None and not isinstance(cause, RequestRefused):
                raise cause from None


_known = KnownHandshakes(token_in_query=True)


def _without_key(upgrade: Upgrade | None) -> Upgrade | None:
    """Return a request without the field of the key, which a known handshake does not replace: nothing reads it."""
    if upgrade is None:
        return None
    kept = {name: value for name, value in upgrade.headers.items() if name != b"sec-websocket-key"}
    return msgspec.structs.replace(upgrade, headers=kept)


def handshake(data: bytes) -> None:
    """A request that the short way accepts is accepted by the general parser, with the same fields."""
    upgrade = plain_upgrade(data, token_in_query=True)
    again = _known.read(data)
    assert _without_key(again) == _without_key(upgrade), "a known handshake is read differently"
    reading = _Reading()
    reading.feed(data)
    if upgrade is None:
        return
    head = reading.head
    assert head is not None, "only the short way accepts this"
    assert wants_websocket(head)
    assert check_handshake(head, PATH) is None
    assert head.by_name[b"sec-websocket-key"] == upgrade.key
    assert handshake_fields(head.by_name, head.query) == upgrade.asked
    assert dict(head.by_name) == dict(upgrade.headers)


# --- framing: the same messages, however the bytes arrive ---


class _Wire(asyncio.Transport):
    """End of a WebSocket without a socket. It keeps whether the protocol still reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.reads = False


class _Received(Framing):
    """WebSocket that keeps the messages."""

    __slots__ = ("found", "wire")

    def __init__(self) -> None:
        super().__init__()
        self.socket = self.wire = _Wire()
        self.found: list[object] = []

    def on_text(self, text: str) -> None:
        assert len(text.encode()) <= MAX_FRAME
        self.found.append(text)

    def on_ping(self, payload: bytes) -> None:
        assert len(payload) <= 125
        self.found.append(payload)

    def on_client_close(self, code: int) -> None:
        self.found.append(code)

    def close(self, code: int, reason: str = "", last: bytes | None = None) -> None:
        assert code in VIOLATIONS, f"closed with {code} for {reason}"
        self.found.append((code, reason))


def framing(data: bytes) -> None:
    """The bytes behind the first are a client's. The first is the size of the pieces in which they arrive."""
    if not data:
        return
    size, data = data[0] % 67 + 1, data[1:]
    whole, pieces = _Received(), _Received()
    whole.feed(data)
    for at in range(0, len(data), size):
        if pieces.wire.reads:
            pieces.feed(data[at : at + size])
    assert whole.found == pieces.found, "the messages depend on how the bytes arrive"


def frame(data: bytes) -> None:
    """A frame with these bytes as its payload is read unchanged, and no other byte is taken for a part of it."""
    made = make_frame(TEXT, data[:MAX_FRAME])
    assert next_frame(made + data[:3], 0) == (0x81, data[:MAX_FRAME], len(made))
    assert next_frame(made[:-1], 0) is None


# --- codec ---


def codec(data: bytes) -> None:
    """Any frame is a command or is refused, and the refusal is JSON that others can read."""
    try:
        text = text_of(data)
    except BadFrame:
        return
    try:
        command = decode_command(text)
    except BadCommand as bad:
        sent = encode_error(bad, bad.command_id)
        assert msgspec.json.decode(sent[sent.index(b'{"type"') :])["type"] == "error"
    else:
        assert type(command) in COMMANDS.values()


def protobuf(data: bytes) -> None:
    """Any binary frame of a Centrifuge client is JSON lines or is refused."""
    try:
        lines = as_json(data)
    except CentrifugeBadCommand:
        return
    for line in lines.splitlines():
        assert isinstance(msgspec.json.decode(line), dict)


# --- bus ---

_ours = BusCodec(b"a key for tests, thirty-two long")
_topic = Topic("room", "default", "lobby")
_read = _ours.reader("channel", _topic)


def _signed(kind: bytes, body: bytes) -> bytes:
    mac: Any
    if kind == b"m":
        mac = _ours._mac("channel")
        mac.update(body)
        return kind + mac.digest() + body
    return kind + sha1(f"{_ours.script_key}channel|".encode() + body).hexdigest().encode() + body


def bus(data: bytes) -> None:
    """A message is refused, or is read as it was written. The first byte chooses the kind of a signed one."""
    for message in (data, _signed(b"mctpx"[(n := data[0] % 5) : n + 1], data[1:]) if data else b""):
        try:
            topic, found = _read(message)
        except Malformed:
            continue
        assert topic.kind in get_args(TopicKind)
        if message[:1] == b"m":
            assert isinstance(found, NodeMessage)
            written = _ours.write("channel", found, topic)
            assert _ours.write("channel", _read(written)[1], topic) == written
    try:
        assert isinstance(_ours.read_beat("channel", data), int)
    except Malformed:
        pass


# --- HTTP entrance: a whole node and sockets of the kernel ---


class _Faults(logging.Handler):
    """Records of errors in the log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(f"{record.getMessage()} {record.exc_info}")


class _Accepted(PlainSocket):
    """Socket of a pair, with the addresses that a TCP socket has."""

    __slots__ = ()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else super().get_extra_info(name, default)


class Entrance:
    """Node in this process that gets each input on a socket of its own."""

    def __init__(self, served: Served, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._served = served
        self._host = served.node.connections
        self._poller = runner.run(_made(SocketPoller))
        self._web = served.greendot.server._web
        self._faults = _Faults()
        logging.getLogger().addHandler(self._faults)

    def __call__(self, data: bytes) -> None:
        """The answer is HTTP without an error of the server, or none, and the socket ends."""
        answer = self._runner.run(self._answer(data))
        assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:200]
        assert not answer.startswith(b"HTTP/1.1 500"), answer[:200]
        tells_nothing(answer, data)
        assert not self._faults.found, self._faults.found

    async def _answer(self, data: bytes) -> bytes:
        near, far = socket.socketpair()
        with near:
            near.setblocking(False)
            far.setblocking(False)
            near.send(data[:65_536] or b"\n")
            near.shutdown(socket.SHUT_WR)
            visit = self._host.ingress.arrive("127.0.0.1", far.fileno())
            assert visit is not None
            visit.fd = far.fileno()
            first = far.recv(4_096)
            protocol = ProtocolSniffer(self._host, self._web, visit, first)
            _Accepted(self._poller, far.detach(), protocol).open()
            answer = b""
            for turn in range(TURNS * PATIENCE):
                try:
                    part = near.recv(262_144)
                except BlockingIOError:
                    if turn % TURNS == TURNS - 1:
                        self._served.clock.advance(1)
                        self._served.node.timers.tick()
                        await asyncio.sleep(0.001)
                    else:
                        await asyncio.sleep(0)
                    continue
                except ConnectionResetError:
                    return answer
                if not part:
                    return answer
                answer += part
        raise AssertionError("the socket did not end")


async def _made(kind: Callable[[], Any]) -> Any:
    return kind()


@contextmanager
def entrance() -> Iterator[Target]:
    """Run a node; yield the target of its HTTP entrance."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        served = runner.run(stack.enter_async_context(serving()))
        try:
            yield Entrance(served, runner)
        finally:
            runner.run(stack.aclose())


@contextmanager
def _plain(target: Target) -> Iterator[Target]:
    yield target


TARGETS: dict[str, Callable[[], Any]] = {
    **{one.__name__: partial(_plain, one) for one in (handshake, framing, frame, codec, protobuf, bus)},
    "http": entrance,
}
