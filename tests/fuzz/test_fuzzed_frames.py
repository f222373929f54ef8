"""Random bytes on a WebSocket: the server keeps running, keeps no data, and answers in whole frames or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from e2e.narrow import upgrade
from fuzz.live import Live, fuzzing, tells_nothing
from fuzz.nonsense import JSON, Nonsense
from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close
from greendot.protocol.commands import COMMANDS
from greendot.testing.wire import CLOSE, PONG, TEXT, make_frame

FIELDS = sorted({field.encode_name for kind in COMMANDS.values() for field in msgspec.structs.fields(kind)})
NONSENSE = Nonsense()

mixed_up = st.builds(
    lambda name, fields: msgspec.json.encode(fields | {"type": name}),
    st.sampled_from([*COMMANDS]),
    st.dictionaries(st.sampled_from(FIELDS), JSON | NONSENSE.names, max_size=4),
)
well_typed = st.one_of(*(NONSENSE.of(kind) for kind in COMMANDS.values())).map(msgspec.json.encode)
payloads = st.one_of(
    mixed_up,
    well_typed,
    st.text(max_size=50).map(str.encode),
    st.binary(max_size=130),
    st.integers(0, MAX_FRAME + 10).map(lambda size: b"x" * size),
)
frames = st.builds(
    make_frame, st.integers(0, 15), payloads, fin=st.booleans(), rsv=st.integers(0, 7), mask=st.booleans()
)
good_frames = payloads.map(lambda payload: make_frame(TEXT, payload))
# Headers with a larger length than the data, or than the limit.
promises = st.builds(
    lambda first, size: bytes([first, 0xFF]) + size.to_bytes(8, "big"), st.integers(0, 255), st.integers(0, 2**64 - 1)
)
everything = st.lists(st.one_of(good_frames, frames, promises, st.binary(max_size=60)), max_size=8).map(b"".join)


async def said(port: int, data: bytes) -> bytes:
    """Send the bytes after a handshake and return all the server's data until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(upgrade())
        received = await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.write_eof()
        while part := await reader.read(65_536):
            received += part
    except ConnectionError:
        pass  # the server closed before it had read all
    finally:
        writer.close()
    return received


def frames_in(received: bytes) -> list[tuple[int, bytes]]:
    """Return the whole frames of a server by RFC 6455. The connection may have cut off the last."""
    found, at = [], 0
    while at + 2 <= len(received):
        first, size, start = received[at], received[at + 1], at + 2
        assert first & 0x70 == 0, "a reserved bit is set without an extension"
        assert size < 0x80, "a server's frame is masked"
        if size >= 126:
            width = 2 if size == 126 else 8
            size, start = int.from_bytes(received[start : start + width], "big"), start + width
        if start + size > len(received):
            break
        found.append((first & 0xF, received[start : start + size]))
        at = start + size
    return found


def is_a_frame_of_ours(opcode: int, payload: bytes) -> None:
    match opcode:
        case 0x1:
            frame: dict[str, Any] = msgspec.json.decode(payload)
            assert isinstance(frame["type"], str)
        case 0x8:
            assert len(payload) <= 125
            assert int.from_bytes(payload[:2], "big") in {*map(int, Close)}
            payload[2:].decode()
        case _:
            assert opcode == PONG


def test_any_bytes_in_or_outside_of_frames_leave_the_server_and_other_clients_unharmed(tmp_path: Path) -> None:
    with Live(tmp_path) as live:
        live.do(live.server.ask("PUT", "/v1/rooms/lobby", {"open": True}))
        hello = make_frame(TEXT, msgspec.json.encode({"type": "hello", "token": live.server.token("alice")}))

        @fuzzing
        @given(everything, st.booleans())
        def send(data: bytes, known: bool) -> None:
            received = live.do(said(live.server.port, hello + data if known else data))
            head, _, answers = received.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ") or not head
            for opcode, payload in (found := frames_in(answers)):
                is_a_frame_of_ours(opcode, payload)
            assert [opcode for opcode, _ in found[:-1]].count(CLOSE) == 0, "a frame follows the close frame"
            tells_nothing(answers, data)
            live.has_not_grown()

        send()
