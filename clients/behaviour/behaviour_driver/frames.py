"""WebSocket frames as the proxy reads and writes them."""

from __future__ import annotations

import json
import os
import struct
from asyncio import StreamReader
from typing import Any, NamedTuple

TEXT, CLOSE = 0x1, 0x8


class Frame(NamedTuple):
    """One frame: its opcode, its payload without mask, and the bytes as they came."""

    opcode: int
    payload: bytes
    raw: bytes
    whole: bool  # not a fragment of a message

    def json(self) -> dict[str, Any] | None:
        """Return the JSON object of a text frame, or None if the frame has none."""
        if self.opcode != TEXT or not self.whole:
            return None
        try:
            found = json.loads(self.payload)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None


async def read_frame(reader: StreamReader) -> Frame:
    """Read one frame. Raise IncompleteReadError at the end of the connection."""
    raw = await reader.readexactly(2)
    first, second = raw
    size = second & 0x7F
    if size >= 126:
        more = await reader.readexactly(2 if size == 126 else 8)
        size, raw = int.from_bytes(more), raw + more
    mask = await reader.readexactly(4) if second & 0x80 else b""
    body = await reader.readexactly(size)
    return Frame(first & 0xF, _masked(body, mask) if mask else body, raw + mask + body, bool(first & 0x80))


def text_frame(value: dict[str, Any], *, masked: bool) -> bytes:
    """Return a text frame with this JSON. Frames of clients are masked."""
    return _frame(TEXT, json.dumps(value).encode(), masked)


def close_frame(code: int, reason: str) -> bytes:
    """Return the close frame of a server."""
    return _frame(CLOSE, struct.pack(">H", code) + reason.encode(), False)


def _frame(opcode: int, payload: bytes, masked: bool) -> bytes:
    size, bit = len(payload), 0x80 if masked else 0
    if size < 126:
        head = bytes([0x80 | opcode, bit | size])
    elif size < 65_536:
        head = bytes([0x80 | opcode, bit | 126]) + struct.pack(">H", size)
    else:
        head = bytes([0x80 | opcode, bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + _masked(payload, mask)


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    masks = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data) ^ int.from_bytes(masks)).to_bytes(size)
