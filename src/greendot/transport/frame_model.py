"""Frames that clients send (RFC 6455, section 5): where a frame ends, its payload, and which frames are not allowed.

Plain Python is fast enough: a command takes one or two microseconds, the largest frame a tenth of a millisecond. A
parser in C, with objects of its own for each socket, took longer for a client that connects, sends little and leaves.
"""

from __future__ import annotations

from codecs import utf_8_decode

from greendot.protocol.codec import MAX_FRAME
from greendot.protocol.codes import Close

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
WHOLE_TEXT = 0x80 | TEXT  # first byte of a text message in one frame

# What the first byte may be. Other bytes are for extensions, for unknown kinds, or for control frames in fragments.
_FIRST = frozenset({*(fin | kind for fin in (0, 0x80) for kind in (CONTINUATION, TEXT, BINARY)), 0x88, 0x89, 0x8A})
_RESERVED = 0x70
_MASKED, _SHORTEST_16, _SHORTEST_64 = 0x80, 126, 65_536
_CONTROL = 0x08
# Codes below 3000 that a close frame may carry (IANA's WebSocket Close Code Number Registry).
_CLOSE_CODES = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
_FREE_CODES = range(3000, 5000)
_from_bytes = int.from_bytes


class BadFrame(Exception):
    """Violation of the protocol, with the code and the reason of the close frame that answers it."""

    def __init__(self, code: int, reason: str, *, of_close: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.of_close = of_close  # the frame is a close frame: the client will send no other


def next_frame(data: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Return the first byte of the frame at `at`, its payload, and the position behind it.

    Return None if the frame is not complete. Raise BadFrame as soon as its head shows a violation.
    """
    have = len(data)
    if have < at + 2:
        return None
    first, size, start = data[at], data[at + 1] - _MASKED, at + 6
    if first not in _FIRST:
        raise _bad_first(first)
    if size < 0:
        raise BadFrame(Close.PROTOCOL_VIOLATION, "a client must mask its frames")
    if size >= _SHORTEST_16:
        if first & _CONTROL:
            raise BadFrame(Close.PROTOCOL_VIOLATION, "a control frame has more than 125 bytes")
        start += 2 if size == _SHORTEST_16 else 8
        if have < start - 4:
            return None
        shortest = _SHORTEST_16 if size == _SHORTEST_16 else _SHORTEST_64
        size = _from_bytes(data[at + 2 : start - 4], "big")
        if size < shortest or size >> 63:
            raise BadFrame(Close.PROTOCOL_VIOLATION, "the length of a frame is not encoded as the protocol requires")
        if size > MAX_FRAME:
            raise BadFrame(Close.TOO_BIG, "a frame must not exceed 64 KiB")
    end = start + size
    if have < end:
        return None
    # The payload and its mask as two large numbers: one operation unmasks all bytes.
    mask = data[start - 4 : start] * (size // 4 + 1)
    unmasked = _from_bytes(data[start:end], "little") ^ _from_bytes(mask[:size], "little")
    return first, unmasked.to_bytes(size, "little"), end


def _bad_first(first: int) -> BadFrame:
    if first & _RESERVED:
        reason = "reserved bits are set without a negotiated extension"
    elif first in (CLOSE, PING, PONG):
        reason = "a control frame is fragmented"
    else:
        reason = "the opcode of a frame is unknown"
    return BadFrame(Close.PROTOCOL_VIOLATION, reason)


def text_of(payload: bytes | bytearray) -> str:
    """Return the text of a message. Raise BadFrame if it is not UTF-8."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise _bad_text() from None


class TextFragments(bytearray):
    """Begun text message. Each fragment is checked as it arrives, so that bad text is refused before the last one."""

    __slots__ = ("_checked",)

    _checked: int  # bytes of whole characters; a character may be split between fragments

    def __init__(self) -> None:
        super().__init__()
        self._checked = 0

    def add(self, payload: bytes) -> None:
        """Append a fragment that is not the last. Raise BadFrame if the message cannot become UTF-8."""
        self += payload
        try:
            self._checked += utf_8_decode(bytes(self[self._checked :]), "strict", False)[1]
        except UnicodeDecodeError:
            raise _bad_text() from None


def _bad_text() -> BadFrame:
    return BadFrame(Close.BAD_UTF8, "text frames must be UTF-8")


def close_code(payload: bytes) -> int:
    """Return the code of a close frame, or 0 if it has none. Raise BadFrame if the frame is not allowed."""
    if not payload:
        return 0
    code = _from_bytes(payload[:2], "big")
    if code not in _CLOSE_CODES and code not in _FREE_CODES:  # half a code is none of them
        raise BadFrame(Close.PROTOCOL_VIOLATION, "this close code is not allowed in a close frame", of_close=True)
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise BadFrame(Close.BAD_UTF8, "the reason of a close frame must be UTF-8", of_close=True) from None
    return code
