"""Short set of the families of the Autobahn suite, as raw bytes: against the echo, and against a whole server.

Each conversation is sent in one packet, and again byte by byte. docs/reference/rfc6455.md has the outcome of the suite.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.narrow import upgrade
from greendot.testing.wire import BINARY, CLOSE, PING, PONG, TEXT, make_frame
from rfc6455.expected import EXEMPTIONS, FAMILIES, Outcome, deviations, exemption_of

CONTINUATION = 0x0
PATIENCE_S = 20.0
AT_ONCE = 4_096  # bytes; longer conversations are sent in one packet only
MOST = 65_536
Frames = list[tuple[int, bytes]]


@dataclass(frozen=True)
class Row:
    """Conversation: the bytes of a client, the messages it gets back, and the code of the close frame.

    A client whose bytes are allowed closes with 1000 at the end.
    """

    sent: bytes
    back: tuple[tuple[int, bytes], ...] = ()
    code: int = 1000
    ends: bool = True  # with a close frame of the client, if all is allowed


def text(payload: bytes | str, *, fin: bool = True, rsv: int = 0) -> bytes:
    return make_frame(TEXT, payload.encode() if isinstance(payload, str) else payload, fin=fin, rsv=rsv)


def more(payload: bytes, *, fin: bool = False) -> bytes:
    return make_frame(CONTINUATION, payload, fin=fin)


def closing(code: int | None, reason: bytes = b"") -> bytes:
    return make_frame(CLOSE, b"" if code is None else struct.pack(">H", code) + reason)


def echoed(payload: bytes) -> Row:
    return Row(text(payload), ((TEXT, payload),))


GREEK = "κόσμε".encode()
ALLOWED = {
    **{f"text of {size} bytes": echoed(b"*" * size) for size in (0, 1, 125, 126, 127, 128, 65_535, MOST)},
    **{f"ping of {size} bytes": Row(make_frame(PING, b"?" * size), ((PONG, b"?" * size),)) for size in (0, 4, 125)},
    "ping of any bytes": Row(make_frame(PING, b"\x00\xff\xfe"), ((PONG, b"\x00\xff\xfe"),)),
    "pong without a ping": Row(make_frame(PONG, b"x") + text("a"), ((TEXT, b"a"),)),
    "two fragments": Row(text("ab", fin=False) + more(b"c", fin=True), ((TEXT, b"abc"),)),
    "empty fragments": Row(text("", fin=False) + more(b"") + more(b"x") + more(b"", fin=True), ((TEXT, b"x"),)),
    "fragments of one byte": Row(
        text("", fin=False) + b"".join(more(bytes([one])) for one in b"fragments") + more(b"", fin=True),
        ((TEXT, b"fragments"),),
    ),
    "fragments of 64 KiB together": Row(
        text(b"x" * 32_768, fin=False) + more(b"y" * 32_768, fin=True), ((TEXT, b"x" * 32_768 + b"y" * 32_768),)
    ),
    "a ping between fragments": Row(
        text("a", fin=False) + make_frame(PING, b"!") + more(b"b", fin=True), ((PONG, b"!"), (TEXT, b"ab"))
    ),
    "a pong between fragments": Row(text("a", fin=False) + make_frame(PONG) + more(b"b", fin=True), ((TEXT, b"ab"),)),
    "two messages in fragments": Row((text("a", fin=False) + more(b"b", fin=True)) * 2, ((TEXT, b"ab"), (TEXT, b"ab"))),
    **{
        f"text of {name}": echoed(payload)
        for name, payload in {
            "two bytes a character": GREEK,
            "the last code point": "\U0010ffff".encode(),
            "the first beyond 16 bits": "\U00010000".encode(),
            "code points around the surrogates": "\ud7ff\ue000".encode(),
            "no characters": "\ufffe\uffff\U0001fffe".encode(),
            "a zero": b"\x00",
        }.items()
    },
    "a character in two fragments": Row(text(GREEK[:1], fin=False) + more(GREEK[1:], fin=True), ((TEXT, GREEK),)),
    "a close without a code": Row(closing(None), ends=False),
    **{
        f"a close with {code}": Row(closing(code), code=code, ends=False)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    },
    "a close with a reason": Row(closing(1000, GREEK), ends=False),
    "a close with a reason of 123 bytes": Row(closing(1000, b"x" * 123), ends=False),
    "a text behind a close": Row(closing(1000) + text("never"), ends=False),
    "a ping behind a close": Row(closing(1000) + make_frame(PING), ends=False),
    "a close between fragments": Row(text("a", fin=False) + closing(1000) + more(b"b", fin=True), ends=False),
}
BAD = {
    **{f"reserved bits {rsv}": Row(text("x", rsv=rsv), code=1002) for rsv in range(1, 8)},
    "reserved bits of a ping": Row(make_frame(PING, rsv=2), code=1002),
    "reserved bits of a close": Row(make_frame(CLOSE, b"\x03\xe8", rsv=4), code=1002),
    **{f"opcode {opcode}": Row(make_frame(opcode), code=1002) for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)},
    "a frame without a mask": Row(make_frame(TEXT, b"x", mask=False), code=1002),
    "a ping of 126 bytes": Row(make_frame(PING, b"x" * 126), code=1002),
    "a close of 126 bytes": Row(make_frame(CLOSE, b"\x03\xe8" + b"x" * 124), code=1002),
    "a ping in fragments": Row(make_frame(PING, b"x", fin=False), code=1002),
    "a pong in fragments": Row(make_frame(PONG, b"x", fin=False), code=1002),
    "a length of 16 bits that is too long": Row(b"\x81\xfe\x00\x05" + bytes(9), code=1002),
    "a length of 64 bits that is too long": Row(b"\x81\xff" + struct.pack(">Q", 300) + bytes(4), code=1002),
    "a length with the highest bit": Row(b"\x81\xff" + struct.pack(">Q", 1 << 63) + bytes(4), code=1002),
    "a continuation of nothing": Row(more(b"x", fin=True), code=1002),
    "a first fragment of nothing": Row(more(b"x"), code=1002),
    "a message between fragments": Row(text("a", fin=False) + text("b"), code=1002),
    "a continuation behind the last": Row(text("", fin=False) + more(b"") + text("", fin=False), code=1002),
    "binary": Row(make_frame(BINARY, b"x"), code=1003),
    "binary in fragments": Row(make_frame(BINARY, b"x", fin=False), code=1003),
    **{
        f"text with {name}": Row(text(payload), code=1007)
        for name, payload in {
            "a lone continuation": b"\x80",
            "a character that does not end": GREEK[:-1],
            "an overlong slash": b"\xc0\xaf",
            "an overlong zero": b"\xe0\x80\x80",
            "a surrogate": b"\xed\xa0\x80",
            "a code point beyond the last": b"\xf4\x90\x80\x80",
            "five bytes": b"\xf8\x88\x80\x80\x80",
            "a byte that never occurs": b"a\xfeb",
        }.items()
    },
    "a first fragment with bad text": Row(text(b"a\xff", fin=False), code=1007),
    "a later fragment with bad text": Row(text(GREEK, fin=False) + more(b"\xf4") + more(b"\x90"), code=1007),
    "a last fragment with half a character": Row(text("a", fin=False) + more(GREEK[:1], fin=True), code=1007),
    "a close with half a code": Row(make_frame(CLOSE, b"\x03"), code=1002),
    **{
        f"a close with {code}": Row(closing(code), code=1002)
        for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535)
    },
    "a close with a bad reason": Row(closing(1000, b"\xce\xba\xe1"), code=1007),
    "a frame over the limit": Row(text(b"x" * (MOST + 1)), code=1009),
    "the head of a frame over the limit": Row(b"\x81\xff" + struct.pack(">Q", 1 << 40) + bytes(4), code=1009),
    "fragments over the limit": Row(text(b"x" * MOST, fin=False) + more(b"x"), code=1009),
}


# --- the server ---


@dataclass(frozen=True)
class Ports:
    """Ports of the server process."""

    echo: int
    server: int


@pytest.fixture(scope="module")
def ports() -> Iterator[Ports]:
    with subprocess.Popen(
        [sys.executable, "-m", "rfc6455.echo"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        echo, server = process.stdout.readline().split()
        yield Ports(int(echo), int(server))
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def conversation(port: int, path: str, data: bytes, *, bytewise: bool = False) -> Frames:
    """Send bytes behind a handshake; return all frames until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(upgrade(path))
        received = b""
        while b"\r\n\r\n" not in received:
            received += _read(connection)
        head, _, received = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        try:
            for piece in (data[at : at + 1] for at in range(len(data))) if bytewise else (data,):
                connection.sendall(piece)
        except ConnectionError:
            pass  # the server has refused the first bytes already
        frames, rest = _frames(received)
        while not frames or frames[-1][0] != CLOSE:
            more, rest = _frames(rest + _read(connection))
            frames += more
        try:
            connection.sendall(closing(1000))  # answers the close of the server
            after = connection.recv(1)
        except ConnectionError:
            after = b""
        assert (rest, after) == (b"", b""), "the server sends bytes behind its close frame"
        return frames


def _read(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    assert data, "the server ended the connection without a close frame"
    return data


def _frames(data: bytes) -> tuple[Frames, bytes]:
    """Return the whole frames of a server, and the rest."""
    found: Frames = []
    at = 0
    while at + 2 <= len(data):
        first, size, start = data[at], data[at + 1], at + 2
        assert first & 0xF0 == 0x80, "the server sends whole messages, without reserved bits"
        assert size < 0x80, "a server does not mask"
        if size >= 126:
            width = 2 if size == 126 else 8
            if len(data) < start + width:
                break
            size, start = int.from_bytes(data[start : start + width], "big"), start + width
        if len(data) < start + size:
            break
        found.append((first & 0x0F, data[start : start + size]))
        at = start + size
    return found, data[at:]


def of(frames: Frames) -> tuple[Frames, int]:
    """Return the frames before the close frame, and its code."""
    *before, (opcode, payload) = frames
    assert opcode == CLOSE
    assert len(payload) >= 2
    payload[2:].decode()
    return before, int.from_bytes(payload[:2], "big")


# --- tests ---


@pytest.mark.parametrize("row", (ALLOWED | BAD).values(), ids=(ALLOWED | BAD).keys())
def test_the_echo_answers_by_the_book(ports: Ports, row: Row) -> None:
    data = row.sent + (closing(1000) if row.ends and row.code == 1000 else b"")
    for bytewise in (False, True)[: 1 + (len(data) < AT_ONCE)]:
        frames, code = of(conversation(ports.echo, "/echo", data, bytewise=bytewise))
        assert (frames, code) == ([*row.back], row.code)


@pytest.mark.parametrize("row", BAD.values(), ids=BAD.keys())
def test_a_message_before_a_violation_is_sent_back(ports: Ports, row: Row) -> None:
    frames, code = of(conversation(ports.echo, "/echo", text("before") + row.sent + text("behind")))
    assert (frames, code) == ([(TEXT, b"before")], row.code)


@pytest.mark.parametrize("row", BAD.values(), ids=BAD.keys())
def test_a_server_closes_for_a_violation_before_any_hello(ports: Ports, row: Row) -> None:
    assert of(conversation(ports.server, "/v1/connect", make_frame(PING, b"?") + row.sent)) == (
        [(PONG, b"?")],
        row.code,
    )


def test_an_offer_of_compression_is_not_accepted(ports: Ports) -> None:
    with socket.create_connection(("127.0.0.1", ports.echo), PATIENCE_S) as connection:
        connection.sendall(upgrade("/echo", Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits"))
        head = connection.recv(4_096)
    assert head.startswith(b"HTTP/1.1 101")
    assert b"extensions" not in head.lower()


def test_each_exemption_covers_cases_of_its_own_and_a_change_of_an_outcome_is_found() -> None:
    covered = {case for exemption in EXEMPTIONS for case in exemption.cases}
    assert len(covered) == sum(len(exemption.cases) for exemption in EXEMPTIONS)
    assert all(number in FAMILIES for exemption in EXEMPTIONS for number in exemption.counts)
    assert exemption_of("9.1.1") is None
    assert exemption_of("9.1.2") is not None
    lines = deviations({"9.1.1": Outcome("FAILED", 1009), "9.1.2": Outcome("OK", 1000), "1.1.1": Outcome("OK", 1000)})
    assert [line.split(":")[0] for line in lines if "Outcome" in line] == ["9.1.1", "9.1.2"]
    assert "1 Framing: 1 cases were run, 16 were expected" in lines
